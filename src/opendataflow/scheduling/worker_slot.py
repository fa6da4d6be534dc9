"""A slot of a worker: a guard, and the run whose child it guards."""

import os
from collections.abc import Callable

from opendataflow import faults
from opendataflow.domain.runs.run import Result
from opendataflow.errors import LeaseLost, StoreUnavailable
from opendataflow.execution.environment import dataids_of, own_environment
from opendataflow.execution.exit_audit import audit
from opendataflow.execution.guard import Guard
from opendataflow.execution.run import Runner
from opendataflow.execution.supervise import ChildEnd, GivenBack, NotRun, Supervision
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
    """One child at a time, from its claim to its audited end."""

    def __init__(self, guard: Guard, make_runner: Callable[[Guard], Runner]) -> None:
        self._make_runner = make_runner
        self.take_guard(guard)
        self.lane: Lane | None = None
        self.flight: Flight | None = None
        self.child: Supervision | None = None
        self.is_auditing = False

    def take_guard(self, guard: Guard) -> None:
        self.guard, self.runner = guard, self._make_runner(guard)

    @property
    def is_free(self) -> bool:
        return self.flight is None

    def hold(self, lane: Lane, taken: Taken) -> Flight:
        """A claim is this slot's from now on."""
        self.lane, self.flight = lane, self.runner.begin(lane.job, lane.work, taken, lane.passwords)
        return self.flight

    def begin(self, lane: Lane, taken: Taken) -> ChildEnd | None:
        """Start the child of a claim; why it could not be, if so."""
        flight, job = self.hold(lane, taken), lane.job
        self.child = Supervision(
            self.guard, flight.log, lease_seconds=taken.claim.lease_seconds, lease_from=taken.lease_from,
            timeout_seconds=job.timeout_seconds, on_started=faults.when_running(),
            hear=self.runner.listener(lane.work, flight),
        )  # fmt: skip
        try:
            self.runner.find_places(job, flight)
            env = own_environment(
                job=job, claim=flight.claim, owner=self.runner.owner, locations=flight.locations,
                dataids=dataids_of(chunk.key for chunk in flight.candidate.inputs),
            )  # fmt: skip
            return self.child.start(self.runner.argv(lane.work, flight), env, lane.cwd, common=lane.environment)
        except OSError as error:
            return NotRun(str(error))
        except StoreUnavailable as error:
            return GivenBack(f"the store is away: {error}")

    def audited(self, end: ChildEnd) -> Ended:
        """Look at what the run made. The slot is free then."""
        flight, lane = self._both()
        return self.close(end, audit(lane.job, lane.work, flight, end))

    def close(self, end: ChildEnd, result: Result) -> Ended:
        flight, lane = self._both()
        result = self.runner.close_flight(lane.work, flight, end, result)
        self.lane = self.flight = self.child = None
        self.is_auditing = False
        return Ended(lane, flight, self.runner, end, result)

    def _both(self) -> tuple[Flight, Lane]:
        if self.flight is None or self.lane is None:
            raise AssertionError("nothing runs in this slot")
        return self.flight, self.lane

    # The lease --------------------------------------------------------------------------------------------------
    def renewed(self, lease_from: float, lost: LeaseLost | None) -> None:
        if self.flight is None or self.child is None:
            return
        if lost is not None:
            self.child.lost(lost)
            return
        self.flight.lease_from = lease_from
        self.child.renewed(lease_from)

    def record_steps(self) -> None:
        if self.flight is not None and self.lane is not None:
            self.runner.record_steps(self.lane.work, self.flight)


def is_quickly_audited(ended: Slot, *, most_bytes: int) -> bool:
    """True when looking at the run's outputs holds nobody up: nothing to check, nothing large, nothing far away."""
    if ended.lane is None or ended.flight is None:
        return True
    for link in ended.lane.job.outputs:
        place = ended.flight.locations.get(link.dataset[:2])
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
