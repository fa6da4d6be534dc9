"""Binding: giving a dataset of this store what project.yml leaves open, and registering the project with it.

Everything is checked as `dataflow apply` checks it, and bound and registered in one transaction, or not at all. A
project.yml that was not right before, and is not right with it, is not registered: what was bound waits for it.
"""

import datetime
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from opendataflow.domain.registration import Registration
from opendataflow.errors import UsageError
from opendataflow.project import PROJECT_FILE
from opendataflow.project.bound import declared_fields, read_bindings
from opendataflow.project.registration.load import Loaded, read_registration
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.sources import binding_statements, bindings_of, find_home, put_bindings
from opendataflow.store.registry import apply, check_name, plan


class Bound(NamedTuple):
    """What became of it, or would."""

    project: str
    datasetid: str
    bound: tuple[str, ...]  # fields
    unbound: tuple[str, ...]
    changes: tuple[str, ...]  # to what is registered, one line each
    waits_for: tuple[str, ...]  # what is wrong with project.yml: nothing is registered until it is right


def home_of(store: LoopStore, project: str) -> str:
    """The folder of the project's project.yml on this machine, or raise UsageError."""
    home = find_home(store, project)
    if home is None:
        raise UsageError(f"there is no project {project!r} in this store; `dataflow apply` registers one")
    if not os.path.isfile(os.path.join(home, PROJECT_FILE)):
        raise UsageError(
            f"the {PROJECT_FILE} of {project} is not on this machine, and what is bound must fit it; "
            "run `dataflow source bind` where the project is"
        )
    return home


def bind(
    store: LoopStore, home: str, project: str, datasetid: str, given: Mapping[str, Any], *, dry_run: bool = False
) -> Bound:
    """Bind these fields of the dataset (None unbinds one), or raise UsageError and change nothing.

    A dataset that project.yml does not name comes to be by it, and ends with its last bound field.
    """
    if not given:
        raise UsageError("there is nothing to bind; give fields like url, table or path")
    known = bindings_of(store, project)
    changes = read_bindings(given)
    _check_open(store, home, datasetid, known.get(datasetid, {}), changes)
    kept = {**known.get(datasetid, {}), **changes}
    own = {field: value for field, value in kept.items() if value is not None}
    after = {**{name: one for name, one in known.items() if name != datasetid}, **({datasetid: own} if own else {})}
    environment = store.environment
    before, loaded = (read_registration(home, environment, bound=one) for one in (known, after))
    _check_project(loaded, project)
    waits_for = _problems(loaded, before)
    told: list[str] = []
    if waits_for or loaded.registration is None:
        if not dry_run:
            put_bindings(store, project, datasetid, changes)
    else:
        wanted = loaded.registration._replace(bound=known)  # what the store holds until these are in it
        told = _register(store, wanted, binding_statements(store, project, datasetid, changes), dry_run=dry_run)
    put = tuple(field for field, value in changes.items() if value is not None)
    return Bound(project, datasetid, put, tuple(one for one in changes if one not in put), tuple(told), waits_for)


def _register(store: LoopStore, wanted: Registration, also: list[tuple[str, Any]], *, dry_run: bool) -> list[str]:
    check_name(store, wanted)
    now = datetime.datetime.now(datetime.UTC)
    return plan(store, wanted, now=now) if dry_run else apply(store, wanted, now=now, also=also)


def _check_open(
    store: LoopStore, home: str, datasetid: str, bound: Mapping[str, Any], changes: Mapping[str, Any]
) -> None:
    declared = declared_fields(home, store.environment, datasetid)
    for field, value in changes.items():
        if value is None and field not in bound:
            raise UsageError(f"{field}: nothing is bound to it")
        if value is not None and field in declared:
            there = declared[field]
            raise UsageError(
                f"{field}: is declared in {there.where} (line {there.line}), and can be changed only there"
            )


def _check_project(loaded: Loaded, project: str) -> None:
    if loaded.registration is not None and loaded.registration.project != project:
        raise UsageError(f"{loaded.source.file} is now project {loaded.registration.project!r}, not {project!r}")


def _problems(loaded: Loaded, before: Loaded) -> tuple[str, ...]:
    """What was wrong already; raises UsageError for what only the binding makes wrong."""
    found = [text for _, text in loaded.problems.lines()]
    own = [text for text in found if text not in {text for _, text in before.problems.lines()}]
    if own:
        raise UsageError("; ".join(_plain(text) for text in own))
    return tuple(found)


def _plain(text: str) -> str:
    """Without what only helps somebody who reads project.yml."""
    return text.rpartition(" (")[0] if " bound in the store: " in text else text
