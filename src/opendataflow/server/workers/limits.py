"""Pause, resume, scale: how much of a job, of a connection or of everything runs at once."""

from typing import Annotated, Literal

from pydantic import Field as Number
from pydantic import model_validator

from opendataflow.domain.job import Job
from opendataflow.domain.words import number_of
from opendataflow.errors import UsageError
from opendataflow.operations.time_parsing import end_of_pause
from opendataflow.server.action import Acting, Action, Asked, Done, Field, Plan
from opendataflow.server.action_params import Reason, Word, get_job, who_works
from opendataflow.store.records.accounts import Role
from opendataflow.store.records.workers import (
    ConnectionLimits,
    Limits,
    find_pause_of_all,
    limits_of,
    list_connections,
    list_limits,
    pause,
    resume,
    set_limit,
)
from opendataflow.store.rows import utc_text

LENGTHS = {"1 day": "1d", "30 days": "30d", "for good": None}
MOST = 1_000_000
REASON = Field("reason", "Why, for those who wonder")


class JobOrAllAsked(Asked):
    project: Word | None = None
    job: Word | None = None  # none: every job of the store
    reason: Reason = ""


class PauseAsked(JobOrAllAsked):
    length: Literal["1 day", "30 days", "for good"] | None = None
    until: Word | None = None  # 2h, 06:30, or a date and time (UTC)

    @model_validator(mode="after")
    def _either(self) -> "PauseAsked":
        if self.length is None and self.until is None:
            self.length = "1 day"
        return self


class ScaleAsked(Asked):
    """`most` runs at once of a `job`, or over a `connection`; default: as project.yml declares."""

    project: Word | None = None
    job: Word | None = None
    connection: Word | None = None
    most: Annotated[int, Number(ge=0, le=MOST)] | Literal["default"] | None = None
    reason: Reason = ""


def _job(acting: Acting, project: str | None, jobid: str | None) -> Job | None:
    return None if jobid is None else get_job(acting, project, jobid)


# Pause and resume -----------------------------------------------------------------------------------------------------
def _end(asked: PauseAsked) -> float | None:
    """What is written wins over what is chosen: a form has both."""
    if asked.until is not None:
        return end_of_pause(asked.until)
    length = LENGTHS[asked.length or "1 day"]
    return None if length is None else end_of_pause(length)


def describe_pause(acting: Acting, asked: PauseAsked) -> Plan:
    job = _job(acting, asked.project, asked.job)
    end = _end(asked)
    until = f"until {utc_text(end)[:16].replace('T', ' ')} UTC" if end is not None else "until somebody resumes it"
    if job is None:
        number = len(list_limits(acting.store, project=None))
        says = f"Nothing of all {number_of(number, 'job')} is started {until}; what runs goes on."
    else:
        limits = limits_of(acting.store, job)
        says = f"Nothing more of {job.jobid} is started {until}; {number_of(limits.running, 'run')} under way goes on."
        if limits.paused_by:
            says += f" It replaces the pause by {limits.paused_by}."
    fields = (
        Field("length", "For how long", choices=tuple(LENGTHS), value=asked.length or "1 day"),
        Field("until", "or until (UTC); this wins", hint="06:30, 2h, or 2025-11-12T06:30", value=asked.until or ""),
        REASON,
    )
    return Plan(says, fields=fields)


def perform_pause(acting: Acting, asked: PauseAsked) -> Done:
    job = _job(acting, asked.project, asked.job)
    until = pause(acting.store, job, until=_end(asked), reason=asked.reason)
    name = "Everything" if job is None else job.jobid
    says = f"{name} is paused {f'until {until}' if until else 'until somebody resumes it'}."
    return Done(says, _target(job), {"paused_until": until})


def describe_resume(acting: Acting, asked: JobOrAllAsked) -> Plan:
    job = _job(acting, asked.project, asked.job)
    by, until = find_pause_of_all(acting.store)
    all_paused = f"paused by {by}" + (f" until {until}" if until else "") if by is not None else ""
    if job is None:
        if not all_paused:
            return Plan("Not everything is paused; single jobs may be.", possible=False)
        return Plan(f"Everything, {all_paused}, goes on. Pauses of single jobs stay.", fields=(REASON,))
    limits = limits_of(acting.store, job)
    if not limits.paused_by:
        told = f" But everything is {all_paused}." if all_paused else ""
        return Plan(f"{job.jobid} is not paused.{told}", possible=False)
    until_text = f" until {limits.paused_until}" if limits.paused_until else ""
    says = f"{job.jobid}, paused by {limits.paused_by}{until_text}, goes on. {who_works(acting, [job.jobid])}"
    return Plan(f"{says} But everything is {all_paused}." if all_paused else says, fields=(REASON,))


def perform_resume(acting: Acting, asked: JobOrAllAsked) -> Done:
    job = _job(acting, asked.project, asked.job)
    is_done = resume(acting.store, job, reason=asked.reason)
    name = "Everything" if job is None else job.jobid
    return Done(f"{name} goes on." if is_done else f"{name} was not paused.", _target(job), {"changed": is_done})


def _target(job: Job | None) -> str:
    return "everything" if job is None else f"{job.project}/{job.jobid}"


# Scale ----------------------------------------------------------------------------------------------------------------
def _limit(acting: Acting, asked: ScaleAsked) -> tuple[Job | str, str, Limits | ConnectionLimits]:
    """What is scaled, its name, and its limit now."""
    if (asked.job is None) == (asked.connection is None):
        raise UsageError("give a job or a connection")
    if asked.job is not None:
        job = get_job(acting, asked.project, asked.job)
        return job, job.jobid, limits_of(acting.store, job)
    name = asked.connection or ""
    known = {one.name: one for one in list_connections(acting.store)}
    if name not in known:
        raise UsageError(f"no job uses a connection {name!r}; known are: {', '.join(known) or '(none)'}")
    return name, f"the connection {name}", known[name]


def _told(limit: int | None) -> str:
    return "no limit" if limit is None else f"at most {limit:,} at once"


def describe_scale(acting: Acting, asked: ScaleAsked) -> Plan:
    _, name, now = _limit(acting, asked)
    says = f"{name} has {_told(now.max_runs)} now (declared: {_told(now.declared)}), "
    says += f"{number_of(now.running, 'run')} under way."
    if asked.most is not None:
        after = now.declared if asked.most == "default" else asked.most
        says += f" It gets {_told(after)}, for every worker, from the next claim on; what runs goes on."
    field = Field("most", "At most so many at once; `default`: as declared", required=True,
                  value=str(asked.most if asked.most is not None else now.max_runs or ""))  # fmt: skip
    return Plan(says, fields=(field, REASON))


def perform_scale(acting: Acting, asked: ScaleAsked) -> Done:
    of, name, _ = _limit(acting, asked)
    if asked.most is None:
        raise UsageError(f"how many runs of {name} at once? give a number, or `default`")
    set_limit(acting.store, of, None if asked.most == "default" else asked.most, reason=asked.reason)
    _, _, now = _limit(acting, asked)
    target = _target(of) if isinstance(of, Job) else f"connection:{of}"
    return Done(f"{name}: {_told(now.max_runs)}; {number_of(now.running, 'run')} under way.", target, now._asdict())


PAUSE = Action("pause", "Pause", Role.OPERATOR, PauseAsked, describe_pause, perform_pause)
RESUME = Action("resume", "Resume", Role.OPERATOR, JobOrAllAsked, describe_resume, perform_resume)
SCALE = Action("scale", "Scale", Role.OPERATOR, ScaleAsked, describe_scale, perform_scale)
