"""How much runs at once, and who runs it: scale, pause, resume, workers."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli import completion
from opendataflow.cli.opened import address, opened
from opendataflow.cli.options import Json, Reason
from opendataflow.cli.render import put_json, put_table, say
from opendataflow.errors import UsageError
from opendataflow.operations.time_parsing import end_of_pause

if TYPE_CHECKING:
    from opendataflow.domain.job import Job
    from opendataflow.project.address import Address
    from opendataflow.store.claims import LoopStore

ALL = "all"
DEFAULT = "default"
MOST = 1_000_000
CHANGES = 20  # of a job's limits that are shown
CONNECTION = "connection:"

JobOrAll = Annotated[
    str, typer.Argument(help="The job's id, or `all` for every job of the store.", autocompletion=completion.jobs)
]


def add_to(app: typer.Typer) -> None:
    app.command(context_settings={"ignore_unknown_options": True})(scale)  # `-1` is a bad limit, not an option
    for command in (pause, resume, workers):
        app.command()(command)


# Limits ---------------------------------------------------------------------------------------------------------------
def scale(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB|connection:NAME]", help="A job's id, or a connection.", autocompletion=completion.jobs
        ),
    ] = None,
    most: Annotated[
        str | None, typer.Argument(metavar="[N|default]", help="So many runs at once; `default`: as declared.")
    ] = None,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Say how many runs of a job, or over a connection to a database, may be live at once; alone: list the limits.

    It counts for every worker on every host from the next claim on. What runs goes on; 0 lets nothing more start. A
    brake on the job is lifted. With a job and no number: its limits, and what became of them.

    Examples: dataflow scale load_orders 20;  dataflow scale connection:crm.internal/crm 4 --reason "month's end";
    dataflow scale load_orders default;  dataflow scale
    """
    from opendataflow.store.records.workers import set_limit

    found = address()
    store = opened(found)
    if what is None or most is None:
        _put_limits(store, found, what, as_json=as_json)
        return
    limit = _limit(most)
    of: Job | str = (
        what.removeprefix(CONNECTION) if what.startswith(CONNECTION) else store.get_job(what, project=found.project)
    )
    set_limit(store, of, limit, reason=reason)
    if as_json:
        _put_limits(store, found, what, as_json=True)
        return
    counts = _row(store, found, what)
    told = "no limit" if counts["limit"] is None else f"at most {counts['limit']} at once"
    braked = f", braked to {counts['braked']}" if counts["braked"] is not None else ""
    say(f"{what}: {told}{braked}; {counts['running']} running now")


def _limit(text: str) -> int | None:
    if text == DEFAULT:
        return None
    if not text.isdecimal() or int(text) > MOST:
        raise UsageError(
            f"{text!r} is no limit; give a number from 0 to {MOST:,}, or `default` for what project.yml declares"
        )
    return int(text)


def _rows(store: "LoopStore", found: "Address") -> list[dict[str, Any]]:
    from opendataflow.store.records.workers import list_connections, list_limits

    rows = [
        {
            "job": one.jobid, "project": one.project, "declared": one.declared, "scaled": one.scaled_to,
            "braked": one.braked_to, "limit": one.max_runs, "running": one.running,
            "paused": _pause_text(one.paused_by, one.paused_until),
        }
        for one in list_limits(store, project=found.project)
    ]  # fmt: skip
    rows += [
        {
            "job": f"{CONNECTION}{one.name}", "project": None, "declared": one.declared, "scaled": one.scaled_to,
            "braked": None, "limit": one.max_runs, "running": one.running, "paused": None,
        }
        for one in list_connections(store)
    ]  # fmt: skip
    return rows


def _row(store: "LoopStore", found: "Address", what: str) -> dict[str, Any]:
    return next(row for row in _rows(store, found) if row["job"] == what)


def _put_limits(store: "LoopStore", found: "Address", what: str | None, *, as_json: bool) -> None:
    from opendataflow.store.records.workers import find_pause_of_all

    rows = [row for row in _rows(store, found) if what in (None, row["job"])]
    if what is not None and not rows:
        raise UsageError(f"there is no job or connection {what!r}; `dataflow scale` lists them")
    by, until = find_pause_of_all(store)
    changes = _changes(store, found, what) if what is not None else []
    if as_json:
        everything = f"everything, {_pause_text(by, until)}" if by is not None else None
        rows = [{**row, "paused": row["paused"] or everything} for row in rows]
        put_json([{**row, "changes": changes} for row in rows] if what is not None else rows)
        return
    if by is not None:
        say(f"everything is paused {_pause_text(by, until)}; `dataflow resume all` ends it")
    columns = ("job", "declared", "scaled", "braked", "limit", "running", "paused")
    put_table("", columns, [tuple(row[column] for column in columns) for row in rows])
    if changes:
        names = ("at", "what", "was", "becomes", "reason", "actor")
        put_table("What became of them", names, [tuple(one[name] for name in names) for one in changes])


def _changes(store: "LoopStore", found: "Address", what: str) -> list[dict[str, Any]]:
    """The latest changes of a job's or a connection's limits, with their reasons."""
    from opendataflow.store.records.workers import list_changes

    if what.startswith(CONNECTION):
        return list_changes(store, connection=what.removeprefix(CONNECTION), limit=CHANGES)
    return list_changes(store, job=store.get_job(what, project=found.project), limit=CHANGES)


def _pause_text(by: str | None, until: str | None) -> str | None:
    if by is None:
        return None
    return f"by {by}" + (f" until {until}" if until else "")


# Pauses ---------------------------------------------------------------------------------------------------------------
def pause(
    what: JobOrAll,
    until: Annotated[
        str | None, typer.Option(help="When it ends by itself: 2h (from now), 06:30, or a date and time (UTC).")
    ] = None,
    reason: Reason = "",
) -> None:
    """Claim nothing more of a job, or of all jobs, until it is resumed or its end has come; what runs goes on.

    A paused job is a held one (`dataflow hold JOB`), with an end if it is given; `resume` and `release` end both.

    Examples: dataflow pause load_orders --until 06:30 --reason "a rebuild";  dataflow pause all --until 2h
    """
    from opendataflow.store.records.workers import pause as pause_in

    end = end_of_pause(until) if until is not None else None
    store, job = _target(what)
    told = pause_in(store, job, until=end, reason=reason)
    ends = f"until {told}, or `dataflow resume {what}`" if told else f"until `dataflow resume {what}`"
    say(f"{'everything' if job is None else what} is paused {ends}")


def resume(what: JobOrAll, reason: Reason = "") -> None:
    """Let a paused or held job, or everything, go on.

    Examples: dataflow resume load_orders;  dataflow resume all
    """
    from opendataflow.store.records.workers import find_pause_of_all
    from opendataflow.store.records.workers import resume as resume_in

    store, job = _target(what)
    done = resume_in(store, job, reason=reason)
    name = "everything" if job is None else what
    say(f"{name} goes on" if done else f"{name} was not paused")
    by, until = find_pause_of_all(store)
    if job is not None and by is not None:
        say(f"but everything is paused {_pause_text(by, until)}; `dataflow resume all` ends it")


def _target(what: str) -> "tuple[LoopStore, Job | None]":
    found = address()
    store = opened(found)
    return store, None if what == ALL else store.get_job(what, project=found.project)


# Workers --------------------------------------------------------------------------------------------------------------
def workers(as_json: Json = False) -> None:
    """Who works on this store: host, process, slots, what runs there, and when it was last seen.

    Example: dataflow workers
    """
    from opendataflow.store.records.workers import list_workers

    rows = list_workers(opened())
    if as_json:
        put_json([one._asdict() for one in rows])
        return
    if not rows:
        say("no worker has been here; start one with `dataflow worker`")
        return
    put_table(
        "", ("worker", "pid", "slots", "running", "seen", "jobs", ""),
        [
            (one.name, one.pid, one.slots, one.running, one.seen_at, " ".join(one.jobs) or ALL,
             "gone" if one.is_gone else "idle" if one.is_idle else "")
            for one in rows
        ],
    )  # fmt: skip
