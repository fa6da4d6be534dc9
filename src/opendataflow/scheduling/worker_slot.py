"""A slot of a worker: a guard, and the runs whose child it guards."""

import os
from collections.abc import Callable, Sequence

from opendataflow import faults
from opendataflow.domain.job import Job
from opendataflow.domain.runs.run import Result
from opendataflow.errors import LeaseLost, StoreUnavailable
from opendataflow.execution.environment import dataids_of, guard_environment, own_environment
from opendataflow.execution.exit_audit import audit
from opendataflow.execution.guard import Guard
from opendataflow.execution.run import Runner
from opendataflow.execution.shared_runs import Ends, SharedRuns, Turn
from opendataflow.execution.supervise import Aborted, ChildEnd, GivenBack, Lost, NotRun, Supervision
from opendataflow.execution.work import Flight, Taken
from opendataflow.scheduling.fair_queue import Lane


class Ended:
    """A run whose child has ended, on its way into the store."""

    __slots__ = ("end", "flight", "lane", "result", "runner")

    def __init__(self, lane: Lane, flight: Flight, runner: Runner, end: ChildEnd, result: Result) -> None:
        self.lane, self.flight, self.runner, self.end, self.result = lane, flight, runner, end, result

    @property
    def give_up_at(self) -> float:
        """Until then the lease holds, so until then the end can be recorded."""
        return self.flight.lease_from + self.flight.claim.lease_seconds


class Slot:
    """One child at a time, for one run or for several that were claimed together, from their claims to audited ends."""

    def __init__(self, guard: Guard, make_runner: Callable[[Guard], Runner]) -> None:
        self._make_runner = make_runner
        self.take_guard(guard)
        self.lane: Lane | None = None
        self.flights: list[Flight] = []  # claimed, and not closed
        self.child: Supervision | None = None  # of now, or the last one while its runs are audited
        self.auditing: set[int] = set()  # runs that are audited beside the loop; no child runs meanwhile
        self._runs: SharedRuns | None = None
        self._owner = self.runner.owner

    def take_guard(self, guard: Guard) -> None:
        self.guard, self.runner = guard, self._make_runner(guard)

    @property
    def is_free(self) -> bool:
        return not self.flights

    @property
    def flight(self) -> Flight | None:
        """The run of the child, or the first of several."""
        return self.flights[0] if self.flights else None

    @property
    def is_auditing(self) -> bool:
        return bool(self.auditing)

    # From claim to end --------------------------------------------------------------------------------------------
    def hold(self, lane: Lane, taken: Sequence[Taken]) -> None:
        """These claims are this slot's from now on."""
        self.lane, self._owner = lane, self.runner.owner
        self.flights = [self.runner.begin(lane.job, lane.work, one, lane.passwords) for one in taken]
        self._runs = SharedRuns(lane.work.forked, self.flights, say=self.runner.say)

    def go_on(self) -> Ends:
        """Start the next child; the runs that ended instead, because they could not be started."""
        lane, runs = self._both()
        over: Ends = []
        while flights := runs.begin():
            end = self._find_obstacle(lane, runs, flights)
            if end is None:
                break
            over += runs.ended(end)
        return over

    def _find_obstacle(self, lane: Lane, runs: SharedRuns, flights: Sequence[Flight]) -> ChildEnd | None:
        """Start the child of these runs, or say why that cannot be."""
        if self.runner.owner != self._owner:
            return GivenBack("its guard was killed")
        if len(flights) == 1 and (why := runs.why(flights[0])) is not None:
            return why
        first, limit = flights[0], lane.job.timeout_seconds
        is_compared = runs.turn is Turn.COMPARED
        self.child = Supervision(
            self.guard, first.log, lease_seconds=first.claim.lease_seconds,
            lease_from=min(one.lease_from for one in self.flights),
            # Where it can, a child of several ends a run without ending the others.
            timeout_seconds=limit if limit is None or len(flights) == 1 else limit * len(flights) + 1.0,
            on_started=faults.when_running(), hear=self.runner.listener(lane.work, flights),
        )  # fmt: skip
        try:
            for one in flights:
                if not one.locations:
                    self.runner.find_places(lane.job, one)
            argv = self.runner.argv(lane.work, flights, compare=is_compared)
            return self.child.start(argv, self._own_environment(lane, flights), lane.cwd, common=lane.environment)
        except OSError as error:
            return NotRun(str(error))
        except StoreUnavailable as error:
            return GivenBack(f"the store is away: {error}")

    def _own_environment(self, lane: Lane, flights: Sequence[Flight]) -> dict[str, str]:
        """The variables of the run; of several, those of none."""
        if len(flights) > 1:
            return guard_environment(self.runner.owner)
        (flight,) = flights
        return own_environment(
            job=lane.job, claim=flight.claim, owner=self.runner.owner, locations=flight.locations,
            dataids=dataids_of(chunk.key for chunk in flight.candidate.inputs),
        )  # fmt: skip

    def child_ended(self, end: ChildEnd) -> Ends:
        """The runs that have ended with the child, and how; `go_on` starts the next child, if there are others."""
        lane, runs = self._both()
        ends = runs.ended(end, is_guard_gone=self.guard.is_gone)
        lane.suspects |= runs.suspects
        return ends

    def drop(self, end: ChildEnd) -> Ends:
        """All runs end with this, before any child was started."""
        return [(one, end) for one in self.flights]

    def audited(self, flight: Flight, end: ChildEnd) -> Ended:
        """Look at what the run made, and let it go."""
        lane, _ = self._both()
        return self.close(flight, end, audit(lane.job, lane.work, flight, end))

    def close(self, flight: Flight, end: ChildEnd, result: Result) -> Ended:
        """The run is over; with the last one the slot is free."""
        lane, _ = self._both()
        result = self.runner.close_flight(lane.work, flight, end, result)
        self.flights.remove(flight)
        self.auditing.discard(flight.claim.runid)
        if not self.flights:
            self.lane = self.child = self._runs = None
        return Ended(lane, flight, self.runner, end, result)

    def _both(self) -> tuple[Lane, SharedRuns]:
        if self._runs is None or self.lane is None:
            raise AssertionError("nothing runs in this slot")
        return self.lane, self._runs

    # While it runs ------------------------------------------------------------------------------------------------
    def abort(self, runid: int, by: str) -> None:
        """A person wants this run ended; one whose child has ended already stays as it ends."""
        runs, child = self._runs, self.child
        for one in runs.flights if runs is not None else ():
            if one.claim.runid == runid and runs is not None and runs.blame(one, Aborted(by)) and child is not None:
                child.abort(by)

    @property
    def leased(self) -> list[Flight]:
        """The runs whose leases are to be renewed."""
        return [one for one in self.flights if self._runs is None or not isinstance(self._runs.why(one), Lost)]

    def renewed(self, lease_from: float, answers: Sequence[tuple[Flight, LeaseLost | None]]) -> None:
        """What became of the leases of these runs."""
        if self.child is None or self._runs is None:
            return
        for flight, lost in answers:
            if lost is None:
                flight.lease_from = lease_from
            elif self._runs.blame(flight, Lost(str(lost))):
                self.child.lost(lost)
        if any(lost is None for _, lost in answers):
            self.child.renewed(lease_from)

    def record_steps(self) -> None:
        for flight in self.flights if self.lane is not None else ():
            self.runner.record_steps(self.lane.work, flight)  # type: ignore[union-attr]


def is_quickly_audited(job: Job, flight: Flight, *, most_bytes: int) -> bool:
    """True when looking at the run's outputs holds nobody up: nothing to check, nothing large, nothing far away."""
    for link in job.outputs:
        place = flight.locations.get(link.dataset[:2])
        if '"checks"' in (link.dataset.definition or ""):
            return False
        if place is None:
            continue
        if "://" in place:
            return False
        try:
            if os.path.isdir(place) or os.stat(place).st_size > most_bytes:
                return False
        except OSError:
            continue  # it is not there, which is quickly said
    return True
