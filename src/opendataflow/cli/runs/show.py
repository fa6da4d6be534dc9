"""Looking at runs: the list of them, their output, and what one would find in its environment."""

import datetime
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli import completion
from opendataflow.cli.opened import address, opened
from opendataflow.cli.options import JobId, Json
from opendataflow.cli.render import as_text, put, put_json, put_table, say
from opendataflow.errors import UsageError
from opendataflow.operations.time_parsing import moment, window

if TYPE_CHECKING:
    from opendataflow.store.claims import LoopStore

__all__ = ["env", "logs", "moment", "runs", "window"]
COLUMNS = {
    "runid": "run", "jobid": "job", "dataid": "dataid", "attempt": "attempt", "status": "status", "forced": "",
    "claimed_at": "started", "seconds": "seconds", "exit_code": "exit", "message": "message",
}  # fmt: skip


def _utc(text: str | None) -> str | None:
    from opendataflow.store.rows import utc_text

    return None if text is None else utc_text(moment(text))


def runs(
    job: Annotated[str | None, typer.Argument(help="Only runs of this job.", autocompletion=completion.jobs)] = None,
    dataid: Annotated[str | None, typer.Argument(help="Only runs of this dataid.")] = None,
    status: Annotated[str | None, typer.Option(help="Only runs that ended so, or are RUNNING.")] = None,
    since: Annotated[str | None, typer.Option(help="Only runs that began since then: a time, a date, or 2h.")] = None,
    before: Annotated[int | None, typer.Option(help="Only runs with a number below this one.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    as_json: Json = False,
) -> None:
    """The latest runs, newest first; of everything, a job or a dataid. With --json, also the commit of their code.

    Examples: dataflow runs;  dataflow runs load_orders --status FAILED --since 2h
    """
    from opendataflow.domain.runs.run import RunStatus
    from opendataflow.store.operations import NEWEST, Key, list_runs, runs_of_dataid
    from opendataflow.store.records.git import commits_of

    if status is not None and status not in list(RunStatus):
        raise UsageError(f"{status!r} is not a run's status; known are {', '.join(RunStatus)}")
    found = address()
    store = opened(found)
    project = found.project if job is None else store.get_job(job, project=found.project).project
    start, go_on = NEWEST if before is None else before, None
    wanted: dict[str, Any] = {"status": status, "since": _utc(since), "before": start, "limit": limit}
    if job is not None and dataid is not None:
        listed = runs_of_dataid(store, Key(str(project), job, dataid), **wanted)
    else:
        listed, go_on = list_runs(store, project=project, jobid=job, **wanted)
    commits = commits_of(store, [one["runid"] for one in listed])
    for one in listed:
        one["seconds"], one["commit"] = _seconds(one), commits.get(one["runid"])
    if as_json:
        put_json(listed)
    else:
        names = ("run", "job", "dataid", "attempt", "status", "", "started", "seconds", "exit", "message")
        keys = (
            "runid",
            "jobid",
            "dataid",
            "attempt",
            "status",
            "mark",
            "claimed_at",
            "seconds",
            "exit_code",
            "message",
        )
        marked = [{**one, "mark": "forced" if one["forced"] else ""} for one in listed]
        put_table("", names, [[one[key] for key in keys] for one in marked])
    if go_on is not None:
        say(f"stopped there: older runs were not looked at; `--before {go_on}` goes on, a DATAID finds all of its own")
    elif not listed:
        say("no run is like that")


def _cell(run: dict[str, Any], key: str) -> Any:
    return "forced" if key == "forced" and run[key] else "" if key == "forced" else run[key]


def _seconds(run: dict[str, Any]) -> float | None:
    if run["ended_at"] is None:
        return None
    start, end = (datetime.datetime.fromisoformat(run[name]) for name in ("claimed_at", "ended_at"))
    return round((end - start).total_seconds(), 3)


def logs(
    job: Annotated[
        str | None, typer.Argument(help="The job's id, or alone: a run's number.", autocompletion=completion.jobs)
    ] = None,
    dataid: Annotated[str | None, typer.Argument(help="Which dataid; its last run is meant.")] = None,
    run: Annotated[int | None, typer.Option("--run", help="This run, as `dataflow runs` numbers it.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
    as_json: Json = False,
) -> None:
    """The output of a run: the whole log where its file is, its last part from any other host.

    Examples: dataflow logs load_orders 2025-11-12;  dataflow logs -f --run 42
    """
    from opendataflow.operations.log_follow import follow as follow_run
    from opendataflow.operations.log_follow import is_log_of
    from opendataflow.store.registry import get_run

    if follow and as_json:
        raise UsageError("--follow writes as it comes; leave out --json")
    found = address()
    store = opened(found)
    shown = get_run(store, _run_number(store, found.project, job, dataid, run))
    if follow:

        def write(text: str) -> None:
            sys.stdout.write(as_text(text) if sys.stdout.isatty() else text)
            sys.stdout.flush()

        end = follow_run(store, shown, work=found.work, write=write, say=say)
        said = f": {end['message']}" if end["message"] else ""
        say(f"run {shown['runid']} of {shown['jobid']}/{shown['dataid']} is {end['status']}{said}")
        return
    path = shown["log_path"]
    whole = bool(path) and os.path.isfile(path) and is_log_of(path, shown)
    text = shown["log_tail"]
    if whole:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    if as_json:
        of_run = {key: shown[key] for key in ("runid", "jobid", "dataid", "status", "log_path")}
        put_json({**of_run, "whole": whole, "log": text})
        return
    if not whole and path:
        say(f"(the last part of {path}, which is not on this host)")
    put(text.rstrip("\n"))


def _run_number(store: "LoopStore", project: str | None, job: str | None, dataid: str | None, run: int | None) -> int:
    if run is not None:
        if job is not None:
            raise UsageError("give JOB DATAID or --run N, not both")
        return run
    if job is not None and dataid is None:
        if not job.isdecimal():
            raise UsageError(f"{job!r} alone is no valid integer, the number of a run; give JOB DATAID or a number")
        return int(job)
    if job is None or dataid is None:
        raise UsageError("which run? give JOB DATAID or --run N; `dataflow runs` lists them")
    from opendataflow.store.operations import NEWEST, Key, runs_of_dataid

    key = Key(store.get_job(job, project=project).project, job, dataid)
    latest = runs_of_dataid(store, key, status=None, since=None, before=NEWEST, limit=1)
    if not latest:
        raise UsageError(f"there is no run of {job}/{dataid}; see `dataflow why {job} {dataid}`")
    return int(latest[0]["runid"])


def env(
    job: JobId, dataid: Annotated[str, typer.Argument(help="Which dataid.")], as_json: Json = False
) -> None:  # fmt: skip
    """The variables that a run would get now, as a shell could read them; secrets are masked, N is the run's number.

    Example: dataflow env load_orders 2025-11-12
    """
    import shlex

    from opendataflow.operations.log_follow import preview_environment

    found = address()
    store = opened(found)
    variables = preview_environment(store, store.get_job(job, project=found.project), dataid)
    if as_json:
        put_json(variables)
        return
    for name, value in variables.items():
        put(f"{name}={shlex.quote(value)}")
