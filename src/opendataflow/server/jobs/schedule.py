"""Setting when a job or pipeline runs, or going back to what project.yml declares."""

import datetime

from opendataflow.arrivals.clock_slots import next_slot
from opendataflow.arrivals.due import change_schedule, next_slot_of
from opendataflow.domain.schedules import get_clock, read_schedule
from opendataflow.errors import UsageError
from opendataflow.server.action import Acting, Action, Asked, Done, Field, Plan
from opendataflow.server.action_params import Reason, Word, get_job
from opendataflow.store.records.accounts import Role
from opendataflow.store.schedules import check_new, schedule_of, told


class ScheduleAsked(Asked):
    """`every` (30m, 6h, 1d, hourly, today) or `cron` with a `timezone`; or `as_declared`."""

    project: Word | None = None
    job: Word
    every: Word | None = None
    cron: Word | None = None
    timezone: Word | None = None
    as_declared: bool = False
    reason: Reason = ""


def _wanted(asked: ScheduleAsked) -> str | None:
    """The clock that is asked for, None for what is declared."""
    if asked.as_declared:
        if asked.every or asked.cron:
            raise UsageError("choose a schedule, or what project.yml declares, not both")
        return None
    return read_schedule(asked.every, asked.cron, asked.timezone)


def describe(acting: Acting, asked: ScheduleAsked) -> Plan:
    job = get_job(acting, asked.project, asked.job)
    schedule = schedule_of(acting.store, job)
    says = f"{job.jobid} goes by this schedule now: {told(schedule)}."
    if asked.every or asked.cron or asked.as_declared:
        clock = _wanted(asked)
        if clock is not None:
            check_new(acting.store, job, clock)
            now = datetime.datetime.fromtimestamp(acting.store.clock(), datetime.UTC)
            following = next_slot(get_clock(clock), after=now)
            begins = f"; the next slot begins at {following[1]:%Y-%m-%d %H:%M} UTC" if following else ""
            says += f" From its next slot on it goes by `{clock}`{begins}."
        else:
            says += f" It goes back to what is declared: {f'`{schedule.declared}`' if schedule.declared else 'none'}."
    says += " What is due stays due; every worker and tick goes by it, also after `dataflow apply`."
    fields = [
        Field("every", "Every", value=asked.every or "", hint="30m, 6h, 1d, hourly, today"),
        Field("cron", "or a cron expression", value=asked.cron or "", hint="0 3 * * *"),
        Field("timezone", "in the time zone", value=asked.timezone or "", hint="UTC, Europe/Berlin"),
    ]
    if schedule.is_set:
        fields.append(Field("as_declared", "As project.yml declares it", kind="checkbox"))
    return Plan(says, fields=(*fields, Field("reason", "Reason", hint="for those who wonder", value=asked.reason)))


def perform(acting: Acting, asked: ScheduleAsked) -> Done:
    job = get_job(acting, asked.project, asked.job)
    clock = _wanted(asked)
    set_ = change_schedule(acting.store, job, clock, reason=asked.reason)
    following = next_slot_of(acting.store, acting.store.get_job(job.jobid, project=job.project))
    begins = f"; next: {following[1]:%Y-%m-%d %H:%M} UTC" if following else ""
    result = {"clock": set_.clock, "declared": set_.declared, "is_set": set_.is_set}
    return Done(
        f"{job.jobid} goes by {f'`{set_.clock}`' if set_.clock else 'no schedule'}{begins}.",
        f"{job.project}/{job.jobid}",
        {**result, "next_at": following[1].isoformat() if following else None},
    )


SCHEDULE = Action("schedule", "Set schedule", Role.OPERATOR, ScheduleAsked, describe, perform)
