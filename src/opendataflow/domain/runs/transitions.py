"""The only table of allowed status changes. SQL follows it; tests prove that the triggers agree."""

from enum import StrEnum

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.job import JobStatus
from opendataflow.errors import UsageError


class JobEvent(StrEnum):
    CLAIM = "CLAIM"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    GIVE_BACK = "GIVE_BACK"  # handed back, lease lost, child died with tries left, or again after this run
    RETRY = "RETRY"  # the backoff of a failed attempt has passed
    RESUBMIT = "RESUBMIT"
    HOLD = "HOLD"
    RELEASE = "RELEASE"
    ASSERT = "ASSERT"  # all its output chunks were declared READY from outside


class ChunkEvent(StrEnum):
    PRODUCE = "PRODUCE"
    PUBLISH = "PUBLISH"
    FAIL = "FAIL"
    CLOSE = "CLOSE"  # its producer will make it again
    ASSERT = "ASSERT"  # declared READY from outside


_J, _JE = JobStatus, JobEvent
JOB_TRANSITIONS: dict[tuple[JobStatus, JobEvent], JobStatus] = {
    (_J.PENDING, _JE.CLAIM): _J.RUNNING,
    (_J.RESUBMIT, _JE.CLAIM): _J.RUNNING,
    (_J.RUNNING, _JE.COMPLETE): _J.COMPLETE,
    (_J.RUNNING, _JE.FAIL): _J.FAILED,
    (_J.RUNNING, _JE.GIVE_BACK): _J.RESUBMIT,
    (_J.FAILED, _JE.RETRY): _J.RESUBMIT,
    (_J.PENDING, _JE.RESUBMIT): _J.PENDING,
    (_J.RUNNING, _JE.RESUBMIT): _J.RUNNING,  # again after this run: the row's `again` flag
    (_J.COMPLETE, _JE.RESUBMIT): _J.RESUBMIT,
    (_J.FAILED, _JE.RESUBMIT): _J.RESUBMIT,
    (_J.RESUBMIT, _JE.RESUBMIT): _J.RESUBMIT,
    (_J.HOLD, _JE.RESUBMIT): _J.HOLD,
    (_J.PENDING, _JE.HOLD): _J.HOLD,
    (_J.FAILED, _JE.HOLD): _J.HOLD,
    (_J.RESUBMIT, _JE.HOLD): _J.HOLD,
    (_J.HOLD, _JE.RELEASE): _J.PENDING,
    (_J.PENDING, _JE.ASSERT): _J.COMPLETE,
    (_J.FAILED, _JE.ASSERT): _J.COMPLETE,
    (_J.RESUBMIT, _JE.ASSERT): _J.COMPLETE,
}

_C, _CE = ChunkStatus, ChunkEvent
CHUNK_TRANSITIONS: dict[tuple[ChunkStatus, ChunkEvent], ChunkStatus] = {
    (_C.PENDING, _CE.PRODUCE): _C.RUNNING,
    (_C.FAILED, _CE.PRODUCE): _C.RUNNING,
    (_C.RESUBMIT, _CE.PRODUCE): _C.RUNNING,
    (_C.READY, _CE.PRODUCE): _C.RUNNING,
    (_C.RUNNING, _CE.PUBLISH): _C.READY,
    (_C.RUNNING, _CE.FAIL): _C.FAILED,
    (_C.RUNNING, _CE.CLOSE): _C.RESUBMIT,
    (_C.READY, _CE.CLOSE): _C.RESUBMIT,
    (_C.FAILED, _CE.CLOSE): _C.RESUBMIT,
    (_C.PENDING, _CE.ASSERT): _C.READY,
    (_C.FAILED, _CE.ASSERT): _C.READY,
    (_C.RESUBMIT, _CE.ASSERT): _C.READY,
    (_C.READY, _CE.ASSERT): _C.READY,
}


def next_job_status(status: JobStatus, event: JobEvent) -> JobStatus:
    """The status after the event, or raise UsageError when the table does not allow it."""
    try:
        return JOB_TRANSITIONS[status, event]
    except KeyError:
        raise UsageError(f"a job that is {status} cannot {event.lower().replace('_', ' ')}") from None


def next_chunk_status(status: ChunkStatus, event: ChunkEvent) -> ChunkStatus:
    """The status after the event, or raise UsageError when the table does not allow it."""
    try:
        return CHUNK_TRANSITIONS[status, event]
    except KeyError:
        raise UsageError(f"a chunk that is {status} cannot {event.lower()}") from None
