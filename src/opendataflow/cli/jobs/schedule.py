"""`dataflow schedule`: by which clock jobs go, and setting it in the store instead of project.yml."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli.opened import address, opened
from opendataflow.cli.options import Json, Reason
from opendataflow.cli.render import put_json, put_table, say
from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from opendataflow.domain.job import Job
    from opendataflow.store.claims import LoopStore


def add_to(app: typer.Typer) -> None:
    app.command()(schedule)


def schedule(
    job: Annotated[str | None, typer.Argument(help="A job or pipeline; without it: all that go by a clock.")] = None,
    every: Annotated[str | None, typer.Argument(metavar="[EVERY]", help="30m, 6h, 1d, hourly or today.")] = None,
    cron: Annotated[str | None, typer.Option(help="Five fields: minute, hour, day, month, weekday.")] = None,
    timezone: Annotated[
        str | None, typer.Option(help="Of --cron and `today`, like Europe/Berlin; UTC if none.")
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="As project.yml declares it.")] = False,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Say when a job or pipeline runs, instead of what project.yml declares; with a job alone: by which clock it goes.

    It holds from the next slot on, for every worker and tick, also after `dataflow apply`, until --default. What was
    due before stays due, and no slot is run twice. `dataflow pause JOB --until …` stops it for a while.

    Examples: dataflow schedule load_orders 30m;  dataflow schedule report --cron "0 3 * * *" --timezone Europe/Berlin;
    dataflow schedule report --default;  dataflow schedule
    """
    from opendataflow.arrivals.due import change_schedule
    from opendataflow.domain.schedules import read_schedule

    found = address()
    store = opened(found)
    if job is None:
        if every or cron or default:
            raise UsageError("of which job? `dataflow schedule JOB 30m`")
        _put_all(store, found.project, as_json=as_json)
        return
    of = store.get_job(job, project=found.project)
    if default and (every or cron or timezone):
        raise UsageError("give a schedule or --default, not both")
    if default or every or cron:
        change_schedule(store, of, None if default else read_schedule(every, cron, timezone), reason=reason)
        of = store.get_job(of.jobid, project=of.project)
    elif timezone:
        raise UsageError("--timezone goes with --cron and with `today`")
    told = _facts(store, of)
    if as_json:
        put_json(told)
        return
    say(f"{job}: {told['told']}" + (f"; next: {told['next_slot']} at {told['next_at']}" if told["next_at"] else ""))


def _facts(store: "LoopStore", job: "Job") -> dict[str, Any]:
    from opendataflow.arrivals.due import next_slot_of
    from opendataflow.store.schedules import schedule_of, told

    found = schedule_of(store, job)
    following = next_slot_of(store, job)
    return {
        **found._asdict(), "told": told(found), "next_slot": following[0] if following else None,
        "next_at": following[1].isoformat() if following else None,
    }  # fmt: skip


def _put_all(store: "LoopStore", project: str | None, *, as_json: bool) -> None:
    names = store.read("clocked_jobs", {"project": project}, file="schedules")
    rows = [_facts(store, store.get_job(jobid, project=owner)) for owner, jobid in names]
    if as_json:
        put_json(rows)
        return
    if not rows:
        say("no job goes by a clock; `dataflow schedule JOB 30m` gives it one")
        return
    put_table(
        "", ("job", "schedule", "declared", "set by", "next", "at"),
        [
            (one["jobid"], one["clock"], one["declared"], one["set_by"], one["next_slot"], one["next_at"])
            for one in rows
        ],
    )  # fmt: skip
