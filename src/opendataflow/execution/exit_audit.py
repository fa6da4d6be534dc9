"""The end of a child, audited: what it makes of the run."""

import signal

from opendataflow.domain.checks.check import ChecksFailed
from opendataflow.domain.chunk import Input
from opendataflow.domain.job import Job
from opendataflow.domain.runs.ending import ending_of
from opendataflow.domain.runs.questions import CODES, Question
from opendataflow.domain.runs.run import MAX_HAND_BACKS, Ending, Result
from opendataflow.execution.prepare import find_changed
from opendataflow.execution.supervise import (
    Aborted,
    ChildEnd,
    Exited,
    GivenBack,
    Killed,
    Lost,
    NotRun,
    Stopped,
    TimedOut,
)
from opendataflow.execution.work import Flight, Work


def audit(job: Job, work: Work, flight: Flight, end: ChildEnd) -> Result:
    """What the run is to be recorded as. Of one that exited 0, what it read and what it made is looked at first."""
    claim, locations = flight.claim, flight.locations
    match end:
        case Exited(code=0):
            if changed := find_changed(job, flight.candidate.inputs):
                return _handed_back(changed)
            try:
                return Result(Ending.COMPLETE, 0, "", manifests=work.manifests(claim, locations))
            except ChecksFailed as failed:
                return Result(Ending.FAILED, 0, f"it exited 0, but its data are not right: {failed}")
            except OSError as error:
                place = f" {error.filename}" if error.filename else ""
                return Result(Ending.FAILED, 0, f"it exited 0, but an output is not there:{place} {error.strerror}")
        case Exited() if work.forked is not None and (why := work.forked.given_back(claim)):
            if work.forked.hand_backs(claim) < MAX_HAND_BACKS:
                return Result(Ending.HANDED_BACK, None, why)
            # Its code may be what ends the keeper of Spark, each time.
            return Result(Ending.DIED, 1, f"{why}; that was so {MAX_HAND_BACKS + 1} times in a row, so it counts")
        case Exited(code):
            reason = work.reason(claim) if work.reason is not None else ""
            return Result(ending_of(code, job.definition), code, reason or f"it exited {code}")
        case Killed(number):
            reason = work.reason(claim) if work.reason is not None else ""
            return Result(Ending.DIED, 128 + number, reason or f"it was killed by signal {number}")
        case Stopped(number, True) if number == signal.SIGINT:
            return Result(Ending.FAILED, 128 + number, "interrupted by a person")
        case Stopped(number):
            return Result(Ending.HANDED_BACK, 128 + number, f"handed back: the runner got signal {number}")
        case TimedOut(seconds):
            return Result(Ending.FAILED, None, f"it ran longer than its timeout of {seconds:g} s and was ended")
        case Aborted(by):
            return Result(Ending.ABORTED, None, f"aborted by {by}")
        case NotRun(reason):
            return Result(Ending.FAILED, None, f"it could not be started: {reason}")
        case Lost(reason) | GivenBack(reason):
            return Result(Ending.HANDED_BACK, None, reason)


def _handed_back(changed: list[Input]) -> Result:
    code, number = CODES[Question.RIGHT]
    chunk = changed[0].key
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return Result(
        Ending.HANDED_BACK, number, f"{code}: {chunk}{more} changed while it was read, so nothing was published; it "
        f"runs again once the new version is validated: `dataflow ready {chunk.datasetid} {chunk.dataid}`",
    )  # fmt: skip


def exit_code(end: ChildEnd, result: Result) -> int:
    """0 complete, 11 an input changed while it was read, 128+n ended by a signal, 1 anything else that failed."""
    if result.ending is Ending.COMPLETE:
        return 0
    if isinstance(end, Exited) and end.code == 0 and result.ending is Ending.HANDED_BACK:
        return result.exit_code or 1
    if isinstance(end, Stopped | Killed):
        return 128 + end.signal
    return 1
