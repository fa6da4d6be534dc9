"""What people do with sources: bind, unbind, test, sample, download."""

import contextlib
import importlib.util
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.types import Receive

from opendataflow.domain.dataset import why_no_place
from opendataflow.errors import UsageError
from opendataflow.operations.bind import Bound, bind, home_of
from opendataflow.server.access import User
from opendataflow.server.action import Acting, Action, Asked, Done, Plan
from opendataflow.server.context import Context
from opendataflow.server.problems import NotThere
from opendataflow.server.sources.children import Children, Failed, Stream, explain, first_of
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.accounts import Role, record_action
from opendataflow.store.records.sources import find_source, list_bindings, record_test

SAMPLE_ROWS = 300
_DRIVER = re.compile("adbc_driver_[a-z0-9_]+")
TEST_SECONDS, SAMPLE_SECONDS = 30.0, 60.0
CHILDREN = Children()


class Tested(NamedTuple):
    answered: bool
    said: str
    milliseconds: float | None = None


class Sampled(NamedTuple):
    columns: list[str]
    rows: list[list[Any]]


# Binding --------------------------------------------------------------------------------------------------------------
def bind_source(
    store: LoopStore, user: User, project: str, datasetid: str, values: Mapping[str, Any], *, dry_run: bool = False
) -> Bound:
    """Bind these fields (None unbinds one) and register the project with them; the record names the fields only."""
    _check_remote(values)
    done = bind(store, home_of(store, project), project, datasetid, values, dry_run=dry_run)
    if not dry_run:
        what = {"bound": list(done.bound), "unbound": list(done.unbound)}
        record_action(store, user.name, "bind-source", f"{project}.{datasetid}", what)
    return done


def _check_remote(values: Mapping[str, Any]) -> None:
    """What is bound over HTTP loads no library into a process of this machine but a driver that is installed."""
    driver, options = values.get("driver"), values.get("driver_options")
    if isinstance(driver, str) and not (_DRIVER.fullmatch(driver) and importlib.util.find_spec(driver)):
        raise UsageError(
            "driver: over the network it is the name of an ADBC driver that is installed here, such as "
            "adbc_driver_postgresql; a library is bound with `dataflow source bind`"
        )
    for name in options if isinstance(options, Mapping) else ():
        if name in ("driver", "entrypoint", "profile") or "load_extension" in name:
            raise UsageError(f"driver_options: {name} loads a library; bind it with `dataflow source bind`")


def tell(done: Bound, *, dry_run: bool = False) -> str:
    """What became of it, in a sentence or two."""
    would = "would be " if dry_run else ""
    parts = [
        f"{', '.join(fields)} {would}{word}" for word, fields in (("bound", done.bound), ("unbound", done.unbound))
        if fields
    ]  # fmt: skip
    told = f"{done.datasetid}: {'; '.join(parts)}."
    if done.changes:
        told += f" Registered: {', '.join(done.changes)}."
    if done.waits_for:
        told += f" Nothing is registered until project.yml is right: {'; '.join(done.waits_for)}"
    return told


class UnbindAsked(Asked):
    project: str
    dataset: str
    field: list[str] | str | None = None  # None: all


def _unbound(acting: Acting, asked: UnbindAsked) -> dict[str, None]:
    if asked.field is not None:
        return dict.fromkeys([asked.field] if isinstance(asked.field, str) else asked.field)
    found = [one.field for one in list_bindings(acting.store, asked.project, asked.dataset)]
    if not found:
        raise UsageError(f"nothing is bound to {asked.dataset!r} of {asked.project!r}")
    return dict.fromkeys(found)


def describe_unbind(acting: Acting, asked: UnbindAsked) -> Plan:
    fields = _unbound(acting, asked)
    done = bind(acting.store, home_of(acting.store, asked.project), asked.project, asked.dataset, fields, dry_run=True)
    return Plan(
        f"What was bound to {asked.dataset} is forgotten: {', '.join(fields)}. What project.yml says holds again.",
        ("registered",), [(change,) for change in done.changes],
    )  # fmt: skip


def unbind(acting: Acting, asked: UnbindAsked) -> Done:
    fields = _unbound(acting, asked)
    done = bind(acting.store, home_of(acting.store, asked.project), asked.project, asked.dataset, fields)
    result = {"unbound": list(done.unbound), "changes": list(done.changes), "waits_for": list(done.waits_for)}
    is_left = find_source(acting.store, asked.project, asked.dataset) is not None
    return Done(tell(done), f"{asked.project}.{asked.dataset}", result, "" if is_left else "/sources")


UNBIND = Action("unbind-source", "Unbind", Role.ADMIN, UnbindAsked, describe_unbind, unbind, is_grave=True)


# Looking --------------------------------------------------------------------------------------------------------------
async def check_there(context: Context, project: str, datasetid: str, dataid: str | None = None) -> None:
    """Raise NotThere for a dataset that is not there, Failed for a dataid that its files cannot have."""
    found = await context.stores.ask(lambda store: find_source(store, project, datasetid))
    if found is None:
        raise NotThere(f"there is no dataset {datasetid!r} in project {project!r}, or it is a clock")
    if dataid is not None and (problem := why_no_place(found.dataset, dataid)):
        raise Failed(problem)


async def run_test(context: Context, user: User, project: str, datasetid: str) -> Tested:
    """Ask the source whether it can be read, and remember the answer."""
    await check_there(context, project, datasetid)
    argv = ("source", "test", "--json", "--", datasetid)
    try:
        told = json.loads(await CHILDREN.ask(context.address, project, *argv, seconds=TEST_SECONDS))
        took = told["connect_ms"] + told["answer_ms"]
        server = "" if told["server"] == "files" else f"{told['server']}: "
        tested = Tested(True, f"{server}{told['what']} has {told['columns']} columns and can be read", took or None)
    except Failed as error:
        tested = Tested(False, str(error))

    def record(store: LoopStore) -> None:
        record_test(store, project, datasetid, answered=tested.answered, said=tested.said)

    await context.stores.ask(record, actor=user.actor)
    return tested


async def sample(
    context: Context, project: str, datasetid: str, *, rows: int = SAMPLE_ROWS, dataid: str | None = None
) -> Sampled:
    """Its first rows."""
    await check_there(context, project, datasetid, dataid)
    argv = ["source", "sample", "--json", "--rows", str(rows), "--", datasetid, *([dataid] if dataid else [])]
    told = json.loads(await CHILDREN.ask(context.address, project, *argv, seconds=SAMPLE_SECONDS))
    return Sampled(list(told[0]) if told else [], [list(row.values()) for row in told])


async def download(
    context: Context, receive: Receive, project: str, datasetid: str, *, dataid: str | None, safe: bool
) -> Stream:
    """All rows as CSV. What is wrong before the first one is told; what goes wrong later breaks the answer off.

    A source may take long to begin: its child ends with the browser that asked, which `receive` tells of.
    """
    await check_there(context, project, datasetid, dataid)
    argv = ["source", "download", *(["--safe"] if safe else []), "--", datasetid, *([dataid] if dataid else [])]
    async with contextlib.AsyncExitStack() as stack:
        child = await stack.enter_async_context(CHILDREN.start(context.address, project, *argv))
        first = await first_of(child, receive)
        if not first and (code := await child.process.wait()):
            raise explain(code, await child.words)
        name = f"{datasetid}{f'-{dataid}' if dataid else ''}.csv"
        headers = {
            "Content-Type": "text/csv; charset=utf-8",
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "Cache-Control": "no-store",
        }
        return Stream(stack.pop_all(), child, first, headers)
    raise AssertionError("the block returns or raises")
