"""Sources as pages and the API show them: where each is, where each of its values comes from, how it last answered."""

import json
from typing import Any, NamedTuple

from opendataflow.errors import ConfigurationError, UsageError
from opendataflow.operations.bind import home_of
from opendataflow.operations.source_facts import Described, describe_source
from opendataflow.project.bound import FIELDS, SECRETS, declared_fields
from opendataflow.server.problems import NotThere
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.sources import Binding, count_sources, find_source, list_bindings, list_sources

CONVENTION = "by its name"


class Page(NamedTuple):
    items: list[Described]
    total: int


class FieldFacts(NamedTuple):
    """A field of a dataset, as project.yml calls it."""

    name: str
    value: str  # as people read it; of a secret only that there is one
    origin: str  # declared, bound, convention or open
    where: str  # in words
    may_bind: bool
    shadowed: bool = False  # it is bound, too, and project.yml declares it now


class SourceFacts(NamedTuple):
    listed: Described
    partitions: Any
    columns: dict[str, str]  # as declared
    fields: list[FieldFacts]
    unreadable: str  # why project.yml could not be read here; empty: it was


def sources_page(store: LoopStore, *, project: str | None, limit: int, offset: int) -> Page:
    found = list_sources(store, project=project, limit=limit, offset=offset)
    return Page([describe_source(one) for one in found], count_sources(store, project))


def get_source(store: LoopStore, project: str, datasetid: str) -> SourceFacts:
    """Everything about one; nothing secret is in it."""
    found = find_source(store, project, datasetid)
    if found is None:
        raise NotThere(f"there is no dataset {datasetid!r} in project {project!r}, or it is a clock")
    dataset = found.dataset
    fields, problem = fields_of(store, project, datasetid)
    if not any(one.value for one in fields) and not problem and dataset.location:
        given = {"path": dataset.location, "format": dataset.format or ""}
        fields = [
            one._replace(value=given[one.name], origin="convention", where=CONVENTION) if one.name in given else one
            for one in fields
        ]
    return SourceFacts(
        describe_source(found), json.loads(dataset.partitions) if dataset.partitions else None,
        json.loads(dataset.definition or "{}").get("schema") or {}, fields, problem,
    )  # fmt: skip


def fields_of(store: LoopStore, project: str, datasetid: str) -> tuple[list[FieldFacts], str]:
    """Each field that can be bound: what it holds, and who says so. And why project.yml could not be asked."""
    bound = {one.field: one for one in list_bindings(store, project, datasetid)}
    declared, problem = {}, ""
    try:
        declared = declared_fields(home_of(store, project), store.environment, datasetid)
    except ConfigurationError as error:
        problem = f"project.yml cannot be read: {error}"
    except UsageError as error:
        problem = str(error)
    found = []
    for name in FIELDS:
        if name in declared:
            there = declared[name]
            where = f"{there.where}, line {there.line}"
            found.append(FieldFacts(name, _shown(name, there.value), "declared", where, False, name in bound))
        elif name in bound:
            found.append(
                FieldFacts(name, _shown(name, bound[name].value), "bound", _who(bound[name]), not problem)
            )  # fmt: skip
        else:
            found.append(FieldFacts(name, "", "open", "", not problem))
    return found, problem


def _who(one: Binding) -> str:
    return f"bound here by {one.bound_by}, {str(one.bound_at)[:19].replace('T', ' ')}"


def _shown(name: str, value: Any) -> str:
    if name in SECRETS:
        return "set"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
