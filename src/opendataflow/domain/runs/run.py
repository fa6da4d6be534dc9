"""A run: one attempt of a job on a dataid, owned through a claim with a lease and a fencing token."""

from enum import StrEnum
from typing import NamedTuple

from opendataflow.domain.chunk import ChunkKey, Manifest


class Owner(NamedTuple):
    """Who holds a claim: enough to say so to a person, and to find and kill its processes on the same host."""

    name: str  # user@host:pid
    host: str  # identifies machine, boot and pid namespace
    pid: int
    pid_started: int
    guard_pid: int
    guard_started: int


class Claim(NamedTuple):
    """The right to run a dataid. `runid` is also the fencing token: it only ever grows."""

    project: str
    jobid: str
    dataid: str
    runid: int
    attempt: int
    deaths: int  # of its child, in a row, before this run
    lease_seconds: float
    retries_max: int
    backoff_seconds: float
    inputs: tuple[ChunkKey, ...]  # the chunks it reads, and so holds a shared lock on


class RunStatus(StrEnum):
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    RESUBMIT = "RESUBMIT"  # handed back, or the child died with tries left
    LOST = "LOST"  # the owner vanished; its lease ran out


class Ending(StrEnum):
    """How a run ended, as its owner saw it."""

    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    GIVEN_UP = "GIVEN_UP"  # failed with an exit code for which the job asks for no further attempt
    ABORTED = "ABORTED"  # a person had it ended
    DIED = "DIED"  # the child was killed by a signal that nobody here sent
    HANDED_BACK = "HANDED_BACK"  # the runner was told to stop


class Result(NamedTuple):
    """All that the end of a run writes, in one transaction."""

    ending: Ending
    exit_code: int | None = None
    message: str = ""
    log_path: str | None = None
    log_tail: str = ""
    manifests: tuple[tuple[str, str, Manifest], ...] = ()  # project, datasetid, what was written
    code: str | None = None  # digest of what made it; None: not known
    checks: str | None = None  # digest of the checks of its outputs


class Finished(NamedTuple):
    """What became of the job's dataid when the run ended."""

    status: str
    note: str = ""


MAX_DEATHS = 3
MAX_HAND_BACKS = 5  # in a row, of a pipeline's run whose Spark went away; one more counts as a death


class LostRun(NamedTuple):
    """A run whose owner is gone; the work went back to RESUBMIT."""

    runid: int
    project: str
    jobid: str
    dataid: str
    owner: str
    host: str
