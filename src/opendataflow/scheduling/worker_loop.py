"""One loop over several slots: it claims what the lanes give, runs it, and records how it ended.

Each turn takes what has ended and what is free into one transaction: the ends are recorded, the next dataids are
claimed. The state stays exact, one chunk by one; only the commits are shared.
"""

import select
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence

from opendataflow import faults
from opendataflow.domain.runs.ending import decide_end
from opendataflow.domain.runs.run import Claim, Finished
from opendataflow.errors import LeaseLost, StoreUnavailable
from opendataflow.execution.aborts import Aborts
from opendataflow.execution.guard import Guard
from opendataflow.execution.pipeline import PROGRAM
from opendataflow.execution.recover import kill_remains
from opendataflow.execution.shared_runs import Ends
from opendataflow.execution.supervise import Exited, Lost, Signals, Stopped, drain_wakeups
from opendataflow.execution.work import Outcome, Taken
from opendataflow.execution.zygote import GuardMaker
from opendataflow.scheduling.auditor import Auditor
from opendataflow.scheduling.fair_queue import Lane, Lanes, Pick
from opendataflow.scheduling.worker_slot import Ended, Slot, is_quickly_audited
from opendataflow.store.claims import LoopStore, Next

QUICK_BYTES = 4 * 1024 * 1024  # outputs up to this are audited in the loop itself
LOST_SECONDS = 1.0  # after which a lost run is looked for: its lease is over by then
AWAY_SECONDS = (0.05, 1.0)  # between two tries while the store is away: first, and most
SETTLED_SECONDS = 10.0  # after which a store that came back is taken to be back


class SlotsLoop:
    """Runs what the lanes give, in its slots, until it is told to stop or nothing is left."""

    def __init__(
        self, store: LoopStore, signals: Signals, slots: Sequence[Slot], lanes: Lanes, auditor: Auditor, *,
        say: Callable[[str], None], ended: Callable[[Lane, Outcome], None],
    ) -> None:  # fmt: skip
        self.store, self.signals, self.lanes, self.say = store, signals, lanes, say
        self.slots = list(slots)
        self._ended_now: list[Ended] = []
        self._tell_ended = ended
        self._auditor = auditor
        self._poll = select.poll()
        self._slot_of: dict[int, Slot] = {}
        for slot in self.slots:
            self._watch(slot)
        self.guards = GuardMaker(PROGRAM)
        for fd in (signals.wake_fd, auditor.wake_fd, self.guards.wake_fd):
            self._poll.register(fd, select.POLLIN)
        self._aborts = Aborts(store)
        self.forks = False  # some children are forks of a zygote; guards that are none are replaced
        self._told_obstacle = ""
        self.stop_taking = False
        self._away: StoreUnavailable | None = None
        self._away_since = 0.0
        self._back_at = float("-inf")  # when that was last said
        self._has_told_away = False
        self.came_back = False  # the store did; whoever reads it sets it back
        self._try_again_at = 0.0
        self._pause = AWAY_SECONDS[0]
        self.retry_at = float("inf")  # when the first is due of those that are tried again

    # What it is at ----------------------------------------------------------------------------------------------
    @property
    def running(self) -> int:
        """How many slots have something to do."""
        return sum(not slot.is_free for slot in self.slots)

    @property
    def runs(self) -> int:
        return sum(len(slot.flights) for slot in self.slots)

    @property
    def is_stopping(self) -> bool:
        return self.signals.asked is not None or self.stop_taking

    @property
    def is_cut_off(self) -> bool:
        """True while the store is away."""
        return self._away is not None

    @property
    def _is_in_a_hurry(self) -> bool:
        """True once the grace is over: nobody waits for a store then."""
        return self.signals.received is not None

    @property
    def is_busy(self) -> bool:
        has_runs = bool(self._ended_now) or any(not slot.is_free for slot in self.slots)
        return has_runs or (self.guards.is_busy and not self.is_stopping)

    @property
    def held(self) -> set[int]:
        """The runs that are ours: those that go on, and those on their way into the store."""
        going_on = {flight.claim.runid for slot in self.slots for flight in slot.flights}
        return going_on | {one.flight.claim.runid for one in self._ended_now}

    # A turn -------------------------------------------------------------------------------------------------------
    def turn(self) -> bool:
        """What ended is recorded and what can be claimed is started; True when something was done."""
        if self.signals.received is not None:
            self._end_all()
        now = time.monotonic()
        self._beat(now)
        if now >= self._aborts.next_at and self._away is None:
            self._end_aborted(now)
        return self._settle()

    def wait(self, until: float, others: Sequence[int] = ()) -> None:
        """Until something happens, at most until that moment."""
        for fd in others:
            self._poll.register(fd, select.POLLIN)
        moments = [until, self.signals.wake_at]
        if self._away is not None:
            moments.append(self._try_again_at)
        elif not self.is_stopping and any(slot.is_free for slot in self.slots):
            can_fork = any(slot.is_free and slot.guard.can_fork for slot in self.slots)
            moments.append(self.lanes.next_at if can_fork else self.lanes.next_script_at)
        for slot in self.slots:
            if slot.child is not None:
                moments += (slot.child.next_beat, slot.child.wake_at)
        wait = max(0.0, min(moments) - time.monotonic())
        ready = self._poll.poll(wait * 1000 + 1)
        for fd in others:
            self._poll.unregister(fd)
        drain_wakeups(self.signals.wake_fd)
        drain_wakeups(self.guards.wake_fd)
        for slot in {self._slot_of[fd] for fd, _ in ready if fd in self._slot_of}:
            self._listen(slot)
        for slot, flight, end, result in self._auditor.results():
            self._ended_now.append(self._closed(slot.close(flight, end, result)))
            self._go_on(slot)
        now = time.monotonic()
        for slot in self.slots:
            if slot.child is not None and not slot.is_auditing and now >= slot.child.wake_at:
                slot.child.look_at_the_clock(now)

    def _watch(self, slot: Slot) -> None:
        for fd in slot.guard.fds:
            self._slot_of[fd] = slot
            self._poll.register(fd, select.POLLIN)

    def _listen(self, slot: Slot) -> None:
        if slot.child is None or slot.is_auditing:
            if slot.guard.events() is None:
                self._replace(slot)
            return
        end = slot.child.listen()
        if end is not None:
            self._conclude(slot, slot.child_ended(end))
            self._go_on(slot)
        if slot.guard.is_gone:
            self._replace(slot)

    def _conclude(self, slot: Slot, ends: Ends) -> None:
        """These runs of the slot have ended: they are audited here, or beside the loop where that takes its time."""
        lane = slot.lane
        for flight, end in ends:
            is_slow = isinstance(end, Exited) and end.code == 0 and lane is not None
            if is_slow and not is_quickly_audited(lane.job, flight, most_bytes=QUICK_BYTES):  # type: ignore[union-attr]
                slot.auditing.add(flight.claim.runid)
                self._auditor.give(slot, lane, flight, end)  # type: ignore[arg-type]
            else:
                self._ended_now.append(self._closed(slot.audited(flight, end)))

    def _go_on(self, slot: Slot) -> None:
        """Start the slot's next child, if it has runs that wait for one."""
        if slot.is_free or slot.is_auditing:
            return
        if self.signals.received is not None:
            self._conclude(slot, slot.child_ended(Stopped(self.signals.received, had_started=False)))
        else:
            self._conclude(slot, slot.go_on())

    def _closed(self, ended: Ended) -> Ended:
        self.lanes.running[ended.lane.key] -= 1
        return ended

    def _replace(self, slot: Slot) -> None:
        """Somebody killed the guard: the slot gets another one."""
        kill_remains(slot.runner.owner)  # it had nobody else to end it
        self.say(f"the guard {slot.guard.pid} was killed; another one takes its place")
        self._change_guard(slot, Guard(apart=True))

    def _change_guard(self, slot: Slot, guard: Guard) -> None:
        for fd in slot.guard.fds:
            self._poll.unregister(fd)
            del self._slot_of[fd]
        slot.guard.close()
        slot.take_guard(guard)
        self._watch(slot)

    def _take_forked_guards(self) -> None:
        """Let free slots have guards that pipelines can be forked from; until there are some, scripts go on."""
        for slot in self.slots:
            if slot.is_free and not slot.guard.is_current():
                self._change_guard(slot, Guard(apart=True))
        for slot in self.slots:
            if slot.is_free and not slot.guard.can_fork and (guard := self.guards.take()) is not None:
                self._change_guard(slot, guard)
                self.lanes.wake_all()
        if lacking := sum(not slot.guard.can_fork for slot in self.slots):
            self.guards.ask(lacking)
        if self.guards.obstacle != self._told_obstacle:
            self._told_obstacle = self.guards.obstacle
            self.say(f"{self._told_obstacle}; pipelines wait" if self._told_obstacle else "pipelines go on")
        if self.guards.obstacle and not any(slot.guard.can_fork for slot in self.slots):
            self.lanes.let_pipelines_sleep()

    # Ending all -----------------------------------------------------------------------------------------------------
    def _end_all(self) -> None:
        """The grace is over: what runs is ended, and handed back."""
        for slot in self.slots:
            if slot.child is not None and not slot.is_auditing:
                slot.child.stop(signal.SIGTERM)

    def _end_aborted(self, now: float) -> None:
        """What people want ended. A run whose child has ended already is as good as over, and stays as it ends."""
        held = {flight.claim.runid: slot for slot in self.slots for flight in slot.flights}
        for runid, by in self._aborts.look(now).items() if held else ():
            slot = held.get(runid)
            if slot is not None and slot.child is not None and runid not in slot.auditing:
                slot.abort(runid, by)

    # Leases -----------------------------------------------------------------------------------------------------------
    def _beat(self, now: float) -> None:
        """Renew in one go the leases that are due, with those that soon will be."""
        held = [slot for slot in self.slots if slot.child is not None and slot.flight is not None]
        if not any(slot.child.next_beat <= now for slot in held if slot.child):
            return
        due = [one for one in held if one.child and one.flight
               and one.child.next_beat - one.flight.claim.lease_seconds / 12 <= now]  # fmt: skip
        before = time.monotonic()
        leased = {slot: slot.leased for slot in due}
        asked: list[tuple[Claim, str | None, str | None]] = []
        for flight in (one for flights in leased.values() for one in flights):
            log = flight.log
            asked.append((flight.claim, log.path_if_written, log.tail() if log.changed else None))
        try:
            answers = iter(self.store.renew_many(asked))
        except StoreUnavailable as error:
            for slot in due:
                if slot.child is not None:
                    slot.child.not_renewed()
            self.is_away(error)
            return
        self._is_back()
        try:
            for slot, flights in leased.items():
                slot.renewed(before, [(flight, next(answers)) for flight in flights])
                slot.record_steps()
        except StoreUnavailable as error:
            self.is_away(error)

    # Ends and claims ----------------------------------------------------------------------------------------------
    def _settle(self) -> bool:
        now = time.monotonic()
        if self._away is not None and (now < self._try_again_at or self._is_in_a_hurry):
            self._keep_what_is_late(self._away)  # here too: leases that cannot be renewed may come first at every turn
            return False
        ends = self._ended_now
        try:
            if self._away is not None:
                self.store.read("get_store", {})
                self._is_back()
            if self.forks and not self.is_stopping:
                self._take_forked_guards()
            # Of the free slots, those come first that pipelines can be forked in, and so do the pipelines.
            free = sorted((slot for slot in self.slots if slot.is_free), key=lambda slot: not slot.guard.can_fork)
            picks = sorted(self._pick(free), key=lambda pick: not pick.lane.is_forked)
            if not ends and not picks:
                return False
            faults.point(faults.BEFORE_PUBLISH)
            before = time.monotonic()
            wanted = [
                Next(pick.lane.job, candidate, verdict, slot.runner.owner)
                for pick, slot in zip(picks, free, strict=False)
                for candidate, verdict in pick.chunks
            ]
            finished, claims = self.store.finish_and_claim_many(
                [(one.flight.claim, one.result) for one in ends if not isinstance(one.end, Lost)], wanted
            )
        except StoreUnavailable as error:
            self.is_away(error)
            self._keep_what_is_late(error)
            return False
        self._is_back()
        self._ended_now = []
        answers = iter(finished)
        for one in ends:
            self._tell(one, LeaseLost(one.end.reason) if isinstance(one.end, Lost) else next(answers))
        claimed = iter(claims)
        for pick, slot in zip(picks, free, strict=False):
            found = [(candidate, next(claimed)) for candidate, _ in pick.chunks]
            taken = [Taken(candidate, claim, before) for candidate, claim in found if claim is not None]
            self._start(pick.lane, slot, taken)
        return True

    def _pick(self, free: Sequence[Slot]) -> list[Pick]:
        if self.is_stopping or not free:
            return []
        ending = Counter(one.lane.key for one in self._ended_now)
        return self.lanes.pick(len(free), ending, room_for_forks=sum(slot.guard.can_fork for slot in free))

    def _start(self, lane: Lane, slot: Slot, taken: Sequence[Taken]) -> None:
        if not taken:  # others were faster, or the job's limit is reached
            self.lanes.missed(lane)
            return
        lane.misses = 0
        self.lanes.running[lane.key] += len(taken)
        slot.hold(lane, taken)
        if self.signals.asked is not None:
            self._conclude(slot, slot.drop(Stopped(signal.SIGTERM, had_started=False)))
        else:
            self._go_on(slot)

    def _tell(self, one: Ended, answer: Finished | LeaseLost) -> None:
        self.lanes.ended(one.lane.key)
        if not isinstance(answer, LeaseLost) and answer.status in ("COMPLETE", "FAILED"):
            one.lane.suspects.discard(one.flight.claim.dataid)
        if isinstance(answer, LeaseLost):
            outcome = one.runner.lost(one.flight, str(answer))
            self.retry_at = min(self.retry_at, time.monotonic() + LOST_SECONDS)
        else:
            outcome = one.runner.finished(one.lane.work, one.flight, one.end, one.result, answer)
            if answer.status == "FAILED":
                pause = decide_end(one.flight.claim, one.result.ending, again=False).retry_in
                if pause is not None:
                    self.retry_at = min(self.retry_at, time.monotonic() + pause)
        self._tell_ended(one.lane, outcome)

    # A store that is away -------------------------------------------------------------------------------------------
    def is_away(self, error: StoreUnavailable) -> None:
        now = time.monotonic()
        if self._away is None and now - self._back_at >= SETTLED_SECONDS:
            self._away_since, self._pause = now, AWAY_SECONDS[0]
        # A store that can be read and not written, as on a full disk, comes and goes with every try: said now and then.
        if not self._has_told_away and now - self._back_at >= SETTLED_SECONDS:
            self.say(f"{error}; {self.runs} runs go on while their leases last, nothing is taken")
            self._has_told_away = True
        self._away = error
        self._try_again_at = now + self._pause
        self._pause = min(self._pause * 2, AWAY_SECONDS[1])

    def _is_back(self) -> None:
        if self._away is not None:
            if self._has_told_away:
                self._back_at = time.monotonic()
                self.say(f"the store is back after {self._back_at - self._away_since:.1f} s")
                self._has_told_away = False
            self._away = None
            self.came_back = True
            self.lanes.wake_all()

    def _keep_what_is_late(self, error: StoreUnavailable) -> None:
        """Ends whose lease is over are kept on this host, and recorded by the upkeep when the store is back."""
        now = time.monotonic() + self._pause
        late = [
            one for one in self._ended_now
            if now > one.give_up_at or self._is_in_a_hurry or isinstance(one.end, Lost)
        ]  # fmt: skip
        self._ended_now = [one for one in self._ended_now if one not in late]
        for one in late:
            if isinstance(one.end, Lost):
                self._tell(one, LeaseLost(one.end.reason))
            else:
                self._tell_ended(one.lane, one.runner.keep_end(one.flight, one.result, error))
