"""Looking at pipelines: their transformations, what each printed and why it failed."""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli import completion
from opendataflow.cli.opened import address, opened
from opendataflow.cli.render import put, put_json, put_table, say
from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from opendataflow.store.claims import LoopStore

STATUSES = ("PENDING", "RUNNING", "DONE", "ERROR")
_SHORT_DIGEST = 12


def add_to(app: typer.Typer) -> None:
    app.command()(transformations)
    app.command("prepare-spark")(prepare_spark)


def transformations(
    pipeline: Annotated[
        str | None, typer.Argument(help="Only of this pipeline.", autocompletion=completion.jobs)
    ] = None,
    status: Annotated[str | None, typer.Option(help="Only those that stand so: PENDING, RUNNING, DONE, ERROR.")] = None,
    run: Annotated[int | None, typer.Option("--run", help="Of this run, with code, Spark, output and plan.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, newest first.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False,
) -> None:
    """The transformations of every pipeline's last run, in order; with --status, of every dataid's last run.

    Examples: dataflow transformations;  dataflow transformations --status ERROR;  dataflow transformations --run 42
    """
    if status is not None and status.upper() not in STATUSES:
        raise UsageError(f"{status!r} is not a transformation's status; known are {', '.join(STATUSES)}")
    found = address()
    store = opened(found)
    if run is not None:
        _show_run(store, run, as_json=as_json)
        return
    from opendataflow.store.reports.pipelines import list_steps

    project = found.project
    if pipeline is not None:
        job = store.get_job(pipeline, project=project)
        if job.kind != "pipeline":
            raise UsageError(f"{pipeline} is a script and has no transformations; see `dataflow runs {pipeline}`")
        project = job.project
    listed = list_steps(
        store, project=project, jobid=pipeline, status=status.upper() if status else None, limit=limit
    )  # fmt: skip
    if as_json:
        put_json(listed)
        return
    columns = ("pipeline", "order", "transformation", "status", "dataid", "run", "rows", "seconds", "what it said last")
    keys = ("jobid", "position", "name", "status", "dataid", "run", "rows", "seconds")
    put_table("", columns, [[*(one[key] for key in keys), _last_words(one)] for one in listed])
    if not listed:
        say("no pipeline has run yet" if status is None else f"no transformation is {status.upper()}")
    elif any(one["status"] == "ERROR" for one in listed):
        newest = next(one["run"] for one in listed if one["status"] == "ERROR")
        say(f"`dataflow transformations --run {newest}` shows all that it printed, and the traceback")


def prepare_spark(
    again: Annotated[bool, typer.Option("--again", help="Make it anew although it is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False,
) -> None:
    """Once for a machine: keep Spark's classes in a file of about 200 MB, from which every later Spark starts sooner.

    Needed for nothing; worth it where pipelines run as many short processes, in CI for instance.

    Example: dataflow prepare-spark
    """
    from opendataflow.spark.archive import archive_path, make_archive
    from opendataflow.spark.jvm import require_java

    require_java()
    is_new = again or not os.path.exists(archive_path())
    if is_new:
        say("preparing Spark for quick starts (once; about a minute)")
    path = make_archive() if is_new else archive_path()
    if as_json:
        put_json({"path": path, "bytes": os.path.getsize(path), "made": is_new})
    else:
        put(f"Spark {'starts' if is_new else 'already starts'} from {path}; delete the file to undo it")


def _last_words(step: dict[str, Any]) -> str:
    lines = (step["error"] or step["output"]).strip().splitlines()
    return lines[-1] if lines else ""


def _show_run(store: "LoopStore", runid: int, *, as_json: bool) -> None:
    from opendataflow.store.registry import get_run
    from opendataflow.store.reports.pipelines import find_run

    of = get_run(store, runid)
    found = find_run(store, runid)
    if found is None:
        raise UsageError(f"run {runid} is of a script; `dataflow logs --run {runid}` has its output")
    if as_json:
        put_json({"run": runid, "jobid": of["jobid"], "dataid": of["dataid"], "status": of["status"], **found})
        return
    put(f"run {runid}: {of['jobid']}/{of['dataid']} {of['status']}")
    dirty = {1: ", changed since", 0: "", None: ""}[found["dirty"]]
    told = {
        "code": f"{found['git_commit']}{dirty}" if found["git_commit"] else None,
        "engine": found["engine"],
        "Spark application": found["application"],
        "Spark job shared with run": found["job_runid"] if found["job_runid"] != runid else None,
        "rows": found["rows"],
        "bytes": found["bytes"],
    }
    for name, value in told.items():
        if value is not None:
            put(f"  {name}: {value}")
    for step in found["transformations"]:
        size = f", {step['rows']} rows in {step['seconds']} s" if step["rows"] is not None else ""
        code = f" ({step['digest'][:_SHORT_DIGEST]})" if step["digest"] else ""
        put(f"{step['position']}. {step['name']}{code} {step['status']}{size}")
        for text in (step["output"], step["error"]):
            for line in text.rstrip().splitlines():
                put(f"   {line}")
    if found["plan"]:
        put(found["plan"])
