"""A job, what it reads and writes, and where one of its dataids stands."""

from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from opendataflow.domain.chunk import Input, Output
from opendataflow.domain.dataset import Dataset


class JobStatus(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    RESUBMIT = "RESUBMIT"
    HOLD = "HOLD"


class Link(NamedTuple):
    """One dataset that a job reads (IN) or writes (OUT); `map` says which of its dataids."""

    itemtype: str
    dataset: Dataset
    map: str = "same"


class Mark(NamedTuple):
    """What the marker of a project's root must say, and where else the store has seen the project."""

    store_id: str
    store: str  # the path of a SQLite store, by which a copy of it is known; '' for others
    is_expected: bool  # the root has been marked, and data were published below it
    has_moved: bool = False  # the project has moved together with its store since that last wrote down where it is
    other_root: str = ""  # of the folder that the project is registered from, where that is not this one


class _JobFields(NamedTuple):
    project: str
    jobid: str
    kind: str  # script | pipeline
    script: str | None
    definition: dict[str, object]  # env, transformations: what only the runner needs
    partitions: str | None  # JSON of the scheme its expected dataids come from
    expected_upto: str | None  # the last expected dataid that has a row
    lease_seconds: float
    timeout_seconds: float | None
    retries_max: int
    backoff_seconds: float
    concurrency: int | None
    strict: int  # 1: no dataid before the one before it
    catchup: str  # all | latest: the missed slots of its clock
    root: str  # of the project's environment; every path is below it
    home: str  # the project's folder
    links: tuple[Link, ...]
    mark: Mark | None = None  # None: the root is not looked at


class Job(_JobFields):
    """A job as it is registered. What it reads and writes is sorted out once: a drain asks for it at every dataid."""

    @cached_property
    def inputs(self) -> tuple[Link, ...]:
        return tuple(link for link in self.links if link.itemtype == "IN")

    @cached_property
    def outputs(self) -> tuple[Link, ...]:
        return tuple(link for link in self.links if link.itemtype == "OUT")

    @cached_property
    def mapped(self) -> tuple[Link, ...]:
        """Inputs of which a dataid reads other dataids: by offset, window, rollup or all."""
        return tuple(link for link in self.inputs if link.map not in ("same", "full"))

    def fits(self, candidate: "Candidate") -> bool:
        """True when the dataid was read with the inputs and outputs of this very definition, not of a newer one."""
        inputs = {chunk.key[:2] for chunk in candidate.inputs}
        if not inputs <= self.datasets_read.keys() or not self._plain_inputs <= inputs:
            return False
        return {output.key[:2] for output in candidate.outputs} == self._written

    @cached_property
    def _plain_inputs(self) -> frozenset[tuple[str, str]]:
        """Those of which each dataid has a chunk, known or not."""
        return frozenset(link.dataset[:2] for link in self.inputs if link.map in ("same", "full"))

    @cached_property
    def _written(self) -> frozenset[tuple[str, str]]:
        return frozenset(link.dataset[:2] for link in self.outputs)

    @cached_property
    def datasets_read(self) -> dict[tuple[str, str], Dataset]:
        """By project and name."""
        return {link.dataset[:2]: link.dataset for link in self.inputs}


class Pause(NamedTuple):
    """Nothing more is claimed, of one job or of all, until somebody resumes it or its end has come."""

    jobid: str  # '': everything is paused
    by: str
    until: str | None


class Limit(NamedTuple):
    """How many runs may be live at once, of a job or over a connection, and how many are."""

    kind: str  # job | connection
    name: str
    max_runs: int
    running: int
    why: str = ""  # who set it and for what reason; empty for what a project declares


class Candidate(NamedTuple):
    """A dataid of a job with everything the five questions need from the store, read in one moment."""

    jobid: str
    dataid: str
    status: JobStatus
    waiting: int  # inputs that are not READY, by the counter that claims go by
    attempts: int
    parked_until: str | None
    owner: str | None
    lease_until: str | None
    running: int  # live runs of the job, for its concurrency limit
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    pauses: tuple[Pause, ...] = ()
    earlier: str | None = None  # where order is strict: the lowest dataid that is not COMPLETE
    deaths: int = 0
    limits: tuple[Limit, ...] | None = None  # None: nobody looked; the claim does

    @property
    def paused_by(self) -> str:
        """Who holds the whole job, if somebody does."""
        return next((pause.by for pause in self.pauses if pause.jobid), "")

    @property
    def claimable(self) -> bool:
        return self.status in (JobStatus.PENDING, JobStatus.RESUBMIT)
