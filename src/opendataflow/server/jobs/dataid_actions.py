"""Run, hold, release: what is done to dataids of a job, or to the job."""

from typing import Annotated, Any

from pydantic import Field as Number

from opendataflow.domain.job import Job, JobStatus
from opendataflow.domain.runs.questions import Verdict
from opendataflow.domain.words import number_of
from opendataflow.errors import UsageError
from opendataflow.execution.prepare import prepare
from opendataflow.server.action import Acting, Action, Asked, Done, Field, Plan
from opendataflow.server.action_params import Reason, Several, Word, Words, counted, get_job, target_of, who_works
from opendataflow.store.operations import Key, hold, hold_job, release, release_job, resubmit
from opendataflow.store.records.accounts import Role
from opendataflow.store.records.requests import try_now

REASON = Field("reason", "Why, for those who wonder")


class DataidsAsked(Asked):
    project: Word
    job: Word
    dataid: Annotated[Words, Number(min_length=1)]


class SomeAsked(Asked):
    project: Word
    job: Word
    dataid: Words = Several()  # none: the whole job


class HoldAsked(SomeAsked):
    reason: Reason = ""


# Run ------------------------------------------------------------------------------------------------------------------
def _standing(acting: Acting, job: Job, dataid: str) -> tuple[str, str, str]:
    """How a dataid stands, what running it now means, and what stands against it."""
    candidate = acting.store.find_candidate(job, dataid)
    if candidate is None:
        raise UsageError(f"{job.jobid} has no dataid {dataid!r}")
    status = candidate.status
    if status is JobStatus.RUNNING:
        return status, "it runs already", f"it is RUNNING by {candidate.owner}"
    if status in (JobStatus.COMPLETE, JobStatus.FAILED):
        return status, "RESUBMIT: it is made again", ""
    verdict: Verdict = prepare(job, candidate)
    against = f"{verdict.refusal.code}: {verdict.refusal.evidence}" if verdict.refusal else ""
    if status is JobStatus.HOLD:
        return status, "released", "" if "HOLD" in against else against
    return status, "tried again now" if candidate.parked_until else "nothing to do: it is due", against


def describe_run(acting: Acting, asked: DataidsAsked) -> Plan:
    job = get_job(acting, asked.project, asked.job)
    rows = [(dataid, *_standing(acting, job, dataid)) for dataid in dict.fromkeys(asked.dataid)]
    runs = [row for row in rows if row[1] == JobStatus.RUNNING]
    blocked = [row for row in rows if row[3] and row[1] != JobStatus.RUNNING]
    says = [f"{number_of(len(rows), 'dataid')} of {job.jobid} ({counted(str(row[1]) for row in rows)})"]
    if len(runs) == len(rows):
        says = [f"{job.jobid}/{rows[0][0]}: {rows[0][3]}."]
    else:
        says[0] += " can be taken from now on."
        if blocked:
            says.append(f"{number_of(len(blocked), 'dataid')} still {'waits' if len(blocked) == 1 else 'wait'}: "
                        f"{blocked[0][0]}: {blocked[0][3]}.")  # fmt: skip
        says.append(who_works(acting, [job.jobid]))
    heads = ("dataid", "is", "becomes", "against it")
    return Plan(" ".join(says), heads, rows, possible=len(runs) < len(rows))


def perform_run(acting: Acting, asked: DataidsAsked) -> Done:
    job = get_job(acting, asked.project, asked.job)
    store = acting.store
    found: dict[str, list[str]] = {"resubmitted": [], "released": [], "tried again": [], "due": [], "running": []}
    for dataid in dict.fromkeys(asked.dataid):
        candidate = store.find_candidate(job, dataid)
        if candidate is None:
            raise UsageError(f"{job.jobid} has no dataid {dataid!r}")
        if candidate.status is JobStatus.RUNNING:
            found["running"].append(dataid)
        elif candidate.status in (JobStatus.COMPLETE, JobStatus.FAILED):
            resubmit(store, [Key(job.project, job.jobid, dataid)], only=frozenset({candidate.status}))
            found["resubmitted"].append(dataid)
        elif candidate.status is JobStatus.HOLD:
            release(store, job, [dataid])
            found["released"].append(dataid)
        else:
            found["tried again" if candidate.parked_until else "due"].append(dataid)
        if candidate.parked_until:
            try_now(store, Key(job.project, job.jobid, dataid))
    told = ", ".join(f"{len(names):,} {word}" for word, names in found.items() if names)
    target = target_of((job.project, job.jobid, dataid) for dataid in asked.dataid)
    return Done(f"{job.jobid}: {told}. {who_works(acting, [job.jobid])}", target, found)


# Hold and release -----------------------------------------------------------------------------------------------------
def _rows(acting: Acting, job: Job, dataids: list[str], becomes: JobStatus) -> list[tuple[str, str, str]]:
    found = []
    for dataid in dict.fromkeys(dataids):
        candidate = acting.store.find_candidate(job, dataid)
        if candidate is None:
            raise UsageError(f"{job.jobid} has no dataid {dataid!r}")
        found.append((dataid, str(candidate.status), str(becomes)))
    return found


def describe_hold(acting: Acting, asked: HoldAsked) -> Plan:
    job = get_job(acting, asked.project, asked.job)
    if not asked.dataid:
        says = f"Nothing more of {job.jobid} is started until it is released; what runs goes on."
        return Plan(says, fields=(REASON,))
    rows = _rows(acting, job, asked.dataid, JobStatus.HOLD)
    are = "is" if len(rows) == 1 else "are"
    says = f"{number_of(len(rows), 'dataid')} of {job.jobid} {are} not started until released."
    never = [row for row in rows if row[1] in (JobStatus.RUNNING, JobStatus.COMPLETE)]
    if never:
        says = f"{job.jobid}/{never[0][0]} is {never[0][1]}: only what waits or failed can be held. Nothing is changed."
    return Plan(says, ("dataid", "is", "becomes"), rows, (REASON,), possible=not never)


def perform_hold(acting: Acting, asked: HoldAsked) -> Done:
    job = get_job(acting, asked.project, asked.job)
    if asked.dataid:
        done = hold(acting.store, job, list(dict.fromkeys(asked.dataid)), reason=asked.reason)
        return _changed(job, done, "on hold")
    is_new, by = hold_job(acting.store, job, reason=asked.reason)
    says = f"{job.jobid} is {'' if is_new else 'already '}held by {by}."
    return Done(says, f"{job.project}/{job.jobid}", {"held_by": by, "changed": is_new})


def describe_release(acting: Acting, asked: SomeAsked) -> Plan:
    job = get_job(acting, asked.project, asked.job)
    if not asked.dataid:
        return Plan(f"{job.jobid} is started again from now on. {who_works(acting, [job.jobid])}")
    rows = _rows(acting, job, asked.dataid, JobStatus.PENDING)
    held = [row for row in rows if row[1] == JobStatus.HOLD]
    if not held:
        return Plan(
            f"None of these dataids of {job.jobid} is on hold.", ("dataid", "is", "becomes"), (), possible=False
        )
    says = f"{number_of(len(held), 'dataid')} of {job.jobid} can be started again. {who_works(acting, [job.jobid])}"
    return Plan(says, ("dataid", "is", "becomes"), rows)


def perform_release(acting: Acting, asked: SomeAsked) -> Done:
    job = get_job(acting, asked.project, asked.job)
    if asked.dataid:
        return _changed(job, release(acting.store, job, list(dict.fromkeys(asked.dataid))), "released")
    is_new, held = release_job(acting.store, job)
    says = f"{job.jobid} is released." if is_new else f"{job.jobid} was not held as a whole."
    if held:
        says += f" {number_of(held, 'dataid')} of it {'is' if held == 1 else 'are'} on hold on their own."
    return Done(says, f"{job.project}/{job.jobid}", {"changed": is_new, "held_dataids": held})


def _changed(job: Job, done: list[dict[str, Any]], word: str) -> Done:
    number = sum(one["before"] != one["status"] for one in done)
    target = target_of((job.project, job.jobid, one["dataid"]) for one in done)
    return Done(f"{job.jobid}: {number_of(number, 'dataid')} {word}.", target, {"changed": done})


RUN = Action("run", "Run", Role.OPERATOR, DataidsAsked, describe_run, perform_run)
HOLD = Action("hold", "Hold", Role.OPERATOR, HoldAsked, describe_hold, perform_hold)
RELEASE = Action("release", "Release", Role.OPERATOR, SomeAsked, describe_release, perform_release)
