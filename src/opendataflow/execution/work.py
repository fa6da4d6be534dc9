"""What a runner is given to do, what it has in hand, and what became of it."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.job import Candidate
from opendataflow.domain.runs.questions import Verdict
from opendataflow.domain.runs.run import Claim, Result
from opendataflow.execution.log import RunLog
from opendataflow.execution.made_by import UNKNOWN, MadeBy

Locations = dict[tuple[str, str], str | None]  # (project, datasetid) → where


class Outcome(NamedTuple):
    """What became of one attempt: `runid` is None when nothing was claimed."""

    exit_code: int
    status: str
    jobid: str
    dataid: str | None
    message: str = ""
    runid: int | None = None
    seconds: float = 0.0
    verdict: Verdict | None = None


class Taken(NamedTuple):
    """A claim in hand; `lease_from` is a moment (CLOCK_MONOTONIC) from which its lease surely holds."""

    candidate: Candidate
    claim: Claim
    lease_from: float


Step = dict[str, Any]  # a transformation as the child tells of it: position, name, status, output, …


class Sharing(NamedTuple):
    """Of work whose child may serve several runs at once."""

    most: Callable[[], int]  # so many runs may share a child now; 1: each has its own
    result: Callable[[Claim], dict[str, Any]]  # what the child wrote of the run
    compare_argv: Callable[[Claim, Locations], list[str]]  # produce it alone, and compare it with what is written
    refused: Callable[[Claim, str], None]  # alone, it came out different: never again with this code
    in_vain: Callable[[], None]  # the code is not one whose runs can share a job


class Forked(NamedTuple):
    """Of work whose child is a fork of a zygote: what it is given, and what it leaves beside the data."""

    program: str  # the zygote's
    settings: dict[str, Any]  # what the zygote prepares for it
    argv: Callable[[list[tuple[Claim, Locations]]], list[str]]  # written down for these runs
    begun: Callable[[list[Claim]], None]
    steps: Callable[[Claim, list[Step]], None]
    ended: Callable[[Claim, list[Step], Result], None]  # keep what is known of it, before its end is recorded
    given_back: Callable[[Claim], str | None]  # why it ended, where that says nothing about the run itself
    hand_backs: Callable[[Claim], int]  # how often in a row that was so just before
    sharing: Sharing | None = None
    stays: bool = False  # the child serves the next run, too: each is a line of its standard input


class Work(NamedTuple):
    """What a job's child is, and what it made. With `forked`, it is a fork."""

    argv: Callable[[], list[str]]  # of a fork: none
    manifests: Callable[[Claim, Locations], tuple[tuple[str, str, Manifest], ...]]
    reason: Callable[[Claim], str] | None = None  # why it exited other than 0, where the child can tell
    published: Callable[[Claim, Locations], None] | None = None  # after the store says so: for people's eyes only
    forked: Forked | None = None
    script: str | None = None  # the file that is run, where it is a script


class Flight:
    """A run that goes on: its claim, its log, where its chunks are, and how long its lease surely lasts."""

    __slots__ = ("candidate", "claim", "has_new_steps", "lease_from", "locations", "log", "made_by", "started", "steps")

    def __init__(self, taken: Taken, log: RunLog) -> None:
        self.candidate, self.claim, self.lease_from = taken
        self.log = log
        self.locations: Locations = {}
        self.made_by: MadeBy = UNKNOWN
        self.steps: dict[int, Step] = {}
        self.has_new_steps = False  # since they were last recorded
        self.started = time.monotonic()
