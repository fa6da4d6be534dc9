"""Registering a project, declaring chunks, and asking where things stand."""

import datetime
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli import completion
from opendataflow.cli.opened import address, bound_in, existing, opened, project_address
from opendataflow.cli.options import Json
from opendataflow.cli.paused import pause_of_all
from opendataflow.cli.render import put, put_grid, put_json, put_table, say
from opendataflow.domain.words import number_of
from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from opendataflow.project.address import Address
    from opendataflow.store.claims import LoopStore
    from opendataflow.streams.state import StreamStatus

EXPAND_SECONDS = 1.0  # that `status` spends on what was published last


def add_to(app: typer.Typer) -> None:
    for command in (apply, status, why, sql):
        app.command()(command)


def apply(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    move: Annotated[
        bool, typer.Option("--move", help="The data are where project.yml says, wherever they were before.")
    ] = False,
    new_project: Annotated[
        bool,
        typer.Option("--new-project", help="Begin a second project over the files of another one."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Register what project.yml declares: one transaction, nothing half-done. Makes the store if there is none.

    A root that holds the data of another store, or lacks what was published there, is refused (exit 12) without --move.

    Examples: dataflow apply --dry-run;  dataflow apply --move
    """
    from opendataflow.execution.made_by import record_jobs
    from opendataflow.execution.root_marker import check_root, keep_root
    from opendataflow.project.registration.load import load_registration
    from opendataflow.store.registry import apply as apply_to
    from opendataflow.store.registry import check_name, plan

    found = project_address()
    store = existing(found)
    wanted = load_registration(found.home or "", found.environment or "", bound=bound_in(found, store) if store else {})
    store = store or opened(found, make=True)
    now = datetime.datetime.now(datetime.UTC)
    if not new_project:
        check_name(store, wanted)
    if not (dry_run and move):
        check_root(store, wanted, move=move)
    changes = (plan if dry_run else apply_to)(store, wanted, now=now)
    if not dry_run:
        record_jobs(store, [store.get_job(job.jobid, project=wanted.project) for job in wanted.jobs])
        keep_root(store, wanted)
    if as_json:
        put_json(
            {"project": wanted.project, "environment": wanted.environment, "changes": changes, "applied": not dry_run}
        )
        return
    for change in changes:
        put(change)
    what = f"{number_of(len(wanted.datasets), 'dataset')}, {number_of(len(wanted.jobs), 'job')}"
    done = "would apply" if dry_run else "applied"
    say(f"{done} {number_of(len(changes), 'change')} ({what}, environment {wanted.environment})")


def status(
    name: Annotated[
        str | None,
        typer.Argument(help="Only this job or dataset, dataid by dataid.", autocompletion=completion.jobs_and_datasets),
    ] = None,
    only: Annotated[str | None, typer.Option("--status", help="Only dataids in this status.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many dataids.")] = 1000,
    columns: Annotated[int, typer.Option(help="How many slots the grid shows.")] = 14,
    as_json: Json = False,
) -> None:
    """Where everything stands: counts, a grid of the latest slots, and gaps; or one job or dataset, dataid by dataid.

    On top: who has paused everything, if anybody has.

    Examples: dataflow status;  dataflow status load_orders --status FAILED --json;  dataflow status flights
    """
    from opendataflow.domain.chunk import ChunkStatus
    from opendataflow.domain.job import JobStatus
    from opendataflow.operations.staleness import describe_counts
    from opendataflow.store.on_change import keep_up
    from opendataflow.store.reports.overview import overview

    known = dict.fromkeys([*JobStatus, *ChunkStatus])
    if only is not None and only not in known:
        raise UsageError(f"{only!r} is not a status; known are {', '.join(known)}")
    found = address()
    store = opened(found)
    if name is not None or only is not None:
        if pause := pause_of_all(store):
            say(pause)
        _status_of(store, found.project, name, only, limit, as_json)
        return
    keep_up(store, seconds=EXPAND_SECONDS)
    told = overview(store, project=found.project, columns=max(columns, 1))
    streams = _streams(store, found)
    if as_json:
        put_json({**told, "streams": [one._asdict() for one in streams]})
        return
    if pause := pause_of_all(store):
        put(pause)
    _put_counts("Jobs", told["jobs"], ["PENDING", "RUNNING", "EXPIRED", "COMPLETE", "FAILED", "RESUBMIT", "HOLD"])
    _put_counts("Datasets", told["datasets"], ["PENDING", "RUNNING", "READY", "FAILED", "RESUBMIT", "HOLD"])
    if streams:
        from opendataflow.cli.streams.control import put_streams

        put_streams(streams, "Streams")
    for kind, grid in told["grids"].items():
        put_grid(f"The latest {kind} slots", grid["dataids"], grid["rows"])
    if any(told["stale"].values()):
        put(f"{describe_counts(**told['stale'])}; see `dataflow stale`")
    if told["gaps"]:
        put_table(
            "Expected, but not READY",
            ("dataset", "missing", "of", "latest"),
            [(one, gap["missing"], gap["expected"], " ".join(gap["latest"])) for one, gap in told["gaps"].items()],
        )
    if any(row.get(bad) for row in told["jobs"].values() for bad in ("FAILED", "EXPIRED", "HOLD")):
        say("see `dataflow why` for what is behind the failed and blocked ones")


def _streams(store: "LoopStore", found: "Address") -> "list[StreamStatus]":
    """How the streams stand; most projects have none, and pay one look."""
    from opendataflow.store.records.streams import list_streams

    rows = list_streams(store, project=found.project)
    if not rows:
        return []
    from opendataflow.streams.state import stream_status

    return [stream_status(store, found, row) for row in rows]


def _status_of(
    store: "LoopStore", project: str | None, name: str | None, only: str | None, limit: int, as_json: bool
) -> None:
    from opendataflow.operations.staleness import stale_kinds
    from opendataflow.store.registry import get_dataset, job_rows

    if name is not None and not store.has_job(name, project=project):
        from opendataflow.store.reports.overview import chunks

        try:
            dataset = get_dataset(store, name, project=project)[0]
        except UsageError:
            store.get_job(name, project=project)  # says how to register it
            raise
        told = chunks(store, dataset.project, name, dataset.partitions)
        shown = [one for one in told["chunks"] if only in (None, one["status"])]
        told["chunks"] = shown[-limit:]
        if as_json:
            put_json(told)
            return
        names = ("dataid", "status", "version", "validated_at", "problem", "location", "modified")
        put_table("", names, [[one[key] for key in names] for one in told["chunks"]])
        if told["gaps"]:
            listed = ", ".join(told["gaps"][:20]) + (" …" if len(told["gaps"]) > 20 else "")
            say(f"{len(told['gaps'])} expected and not there: {listed}")
        return
    rows = job_rows(store, project=project, jobid=name, status=only, limit=limit)
    kinds = stale_kinds(store, project=project, jobid=name)
    rows = [{**row, "stale": kinds.get((row["project"], row["jobid"], row["dataid"]))} for row in rows]
    if as_json:
        put_json(rows)
        return
    columns = ("job", "dataid", "status", "stale", "waiting for", "attempts", "run", "owner", "since")
    put_table(
        "",
        columns,
        [
            (r["jobid"], r["dataid"], r["status"], r["stale"] or "",
             number_of(r["waiting"], "input") if r["waiting"] > 0 else "",
             r["attempts"] or "", r["runid"], r["owner"], r["modified"])
            for r in rows
        ],
    )  # fmt: skip
    if len(rows) == limit:
        say(f"only the first {limit}; see --limit and --status")


def _put_counts(title: str, rows: dict[str, dict[str, int]], statuses: list[str]) -> None:
    used = [one for one in statuses if any(one in row for row in rows.values())]
    put_table(title, ["", *used], [[name, *(row.get(one, "") for one in used)] for name, row in rows.items()])


def why(
    job: Annotated[
        str | None,
        typer.Argument(help="The job's id; without it: everything failed or blocked.", autocompletion=completion.jobs),
    ] = None,
    dataid: Annotated[str | None, typer.Argument(help="Which dataid.")] = None,
    as_json: Json = False,
) -> None:
    """Why it ran, failed or did not run: the five answers, what blocks it, and the command that would fix it.

    Alone: everything that failed or is blocked, by what is at the root of it.

    Examples: dataflow why load_orders 2025-11-12;  dataflow why
    """
    from opendataflow.operations.explain import explain
    from opendataflow.store.on_change import keep_up

    found = address()
    store = opened(found)
    if job is None:
        _why_all(store, found, as_json)
        return
    if dataid is None and _why_stream(store, found, job, as_json):
        return
    if dataid is None:
        store.get_job(job, project=found.project)  # raises for one that is not registered
        raise UsageError(f"which dataid of {job}? see `dataflow status {job}`; `dataflow why` alone shows all blockers")
    keep_up(store, seconds=EXPAND_SECONDS)
    told = explain(store, store.get_job(job, project=found.project), dataid)
    if as_json:
        put_json(told)
        return
    put(f"{job}/{dataid} is {told['status']}" + (f", {told['detail']}" if told["detail"] else ""))
    if told["schedule"]:
        put(f"schedule: {told['schedule']}")
    if told["sharing"]:
        put(f"sharing: {told['sharing']}")
    for one in told["damage"]:
        word = "gone" if one["finding"] == "gone" else "not what was published any more"
        put(f"{one['chunk']} is {word}, seen at {one['seen_at']}: {one['fix']}")
    if told["stale"]:
        put(f"stale ({told['stale']['kind']}): {'; '.join(told['stale']['reasons'])}")
    put_table(
        told["asked"],
        ("question", "answer", "evidence"),
        [
            (a["question"], "yes" if a["yes"] else f"no: {a['code']}" if a["code"] else "–", a["evidence"])
            for a in told["answers"]
        ],
    )
    if told["runs"]:
        put_table(
            "Runs",
            ("run", "attempt", "status", "started", "seconds", "exit", "message"),
            [_run_row(r) for r in told["runs"]],
        )
    if told["log_tail"]:
        put("Last lines of its log:")
        put("\n".join("  " + text for text in told["log_tail"].splitlines()[-10:]))
    if told["fix"]:
        put(f"Next step: {told['fix']}")


def _why_stream(store: "LoopStore", found: "Address", job: str, as_json: bool) -> bool:
    """How a stream stands and what would help it on; False when the job is none."""
    from opendataflow.store.records.streams import find_stream

    row = find_stream(store, job, project=found.project)
    if row is None:
        return False
    from opendataflow.streams.state import describe, stream_status

    status = stream_status(store, found, row)
    if as_json:
        put_json(status._asdict())
        return True
    lag = f"{number_of(status.lag_items, 'item')} behind, {status.lag_seconds:.1f} s"
    behind = lag if status.lag_items else "none behind"
    put(f"{job} is {describe(status)}: {behind}, {status.failed} set aside, {status.rejected} rejected")
    put(f"Next step: {status.fix or f'none; its batches are `dataflow status {job}`'}")
    return True


def _why_all(store: "LoopStore", found: "Address", as_json: bool) -> None:
    from opendataflow.operations.blockers import LIMIT, find_blockers

    told, is_all = find_blockers(store, project=found.project)
    if _streams(store, found):
        from opendataflow.streams.state import stream_blockers

        told += stream_blockers(store, found, project=found.project)
    if as_json:
        put_json(told)
        return
    if not told:
        put("Nothing failed and nothing is blocked.")
        return
    for one in told:
        several = f" and {len(one['dataids']) - 1} more" if len(one["dataids"]) > 1 else ""
        put(f"{one['cause']}  {one['name']}/{one['dataids'][0]}{several}: {one['reason']}")
        if one["blocks"]:
            jobs = f"{', '.join(one['jobs'][:8])}{' …' * (len(one['jobs']) > 8)}"
            put(f"    blocks {number_of(one['blocks'], 'dataid')} of {jobs}")
        put(f"    next: {one['fix']}")
    blocks = number_of(sum(one["blocks"] for one in told), "dataid")
    say(f"{number_of(len(told), 'cause')}, {blocks} blocked by {'it' if len(told) == 1 else 'them'}")
    if not is_all:
        say(f"and more: of what failed, and of what is blocked, {LIMIT:,} dataids were looked at")


def _run_row(run: dict[str, Any]) -> tuple[Any, ...]:
    told = f"forced; {run['message']}".removesuffix("; ") if run["forced"] else run["message"]
    return (*(run[key] for key in ("runid", "attempt", "status", "claimed_at", "seconds", "exit_code")), told)


def sql(
    query: Annotated[str, typer.Argument(help="A SELECT over job_status, datastatus, run, history, …")],
    as_json: Json = False,
) -> None:
    """Ask the store in SQL; nothing can be written this way.

    Example: dataflow sql "select jobid, status, count(*) from job_status group by 1, 2"
    """
    columns, rows = opened().select(query)
    if as_json:
        put(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], default=str, ensure_ascii=False))
        return
    put_table("", columns, rows)
