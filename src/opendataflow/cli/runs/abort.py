"""`dataflow abort`: have a run ended that is under way."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from opendataflow.cli.opened import address, opened
from opendataflow.cli.options import Json
from opendataflow.cli.render import put_json, say
from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from opendataflow.store.claims import LoopStore
    from opendataflow.store.records.requests import Live

LOOK_SECONDS = 0.2


def add_to(app: typer.Typer) -> None:
    app.command()(abort)


def abort(
    job: Annotated[str, typer.Argument(metavar="JOB|RUN", help="The job's id, or alone: a run's number.")],
    dataid: Annotated[str | None, typer.Argument(help="Which dataid.")] = None,
    wait: Annotated[float, typer.Option(min=0, metavar="S", help="Wait so many seconds for its end.")] = 20.0,
    as_json: Json = False,
) -> int:
    """Have a run ended: its owner ends the process, and the run is FAILED, "aborted by" you; it is not tried again.

    A run that completes before its owner hears of it stays COMPLETE (exit 1). If the owner is dead, the lease runs
    out as usual and the work returns by itself.

    Examples: dataflow abort load_orders 2025-11-12;  dataflow abort 42
    """
    from opendataflow.domain.streams import find_settings
    from opendataflow.store.operations import Key, watch_run
    from opendataflow.store.records.requests import ask_abort, find_live, get_live

    found = address()
    store = opened(found)
    if dataid is None:
        if not job.isdecimal():
            raise UsageError(
                f"which run of {job}? give JOB DATAID, or a run's number; `dataflow runs {job}` lists them"
            )
        live: Live | None = get_live(store, int(job))
    else:
        key = Key(store.get_job(job, project=found.project).project, job, dataid)
        live = find_live(store, key)
    if live is None:
        raise UsageError(f"{job}/{dataid} is not running; see `dataflow why {job} {dataid}`")
    if find_settings(store.get_job(live.key.jobid, project=live.key.project)):
        raise UsageError(f"{live.key.jobid} is a stream; `dataflow stream pause {live.key.jobid}` stops it")
    name = f"run {live.runid} of {live.key.jobid}/{live.key.dataid}"
    if ask_abort(store, live):
        say(f"asked {live.owner} to end {name}")
    end = _wait(store, live, wait)
    status = str(end or "RUNNING")
    if as_json:
        message = watch_run(store, live.runid)["message"]
        put_json({"run": live.runid, **live.key._asdict(), "status": status, "message": message})
    elif end is None:
        say(f"{name} has not ended yet; its lease is until {live.lease_until}; see `dataflow logs {live.runid} -f`")
    else:
        say(f"{name} is {status}: {watch_run(store, live.runid)['message'] or 'it was faster'}")
    return 0 if status == "FAILED" else 1


def _wait(store: "LoopStore", live: "Live", seconds: float) -> str | None:
    from opendataflow.store.operations import watch_run

    give_up = time.monotonic() + seconds
    while True:
        status = str(watch_run(store, live.runid)["status"])
        if status != "RUNNING":
            return status
        if time.monotonic() >= give_up:
            return None
        time.sleep(LOOK_SECONDS)
