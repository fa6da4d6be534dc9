"""Runs on a child that stays: one warm Spark works on many chunks, one task after the other.

Each task is one run, or several that share a Spark job. All are supervised from one loop: their leases are renewed,
their output goes to their own logs, and each is audited and published when the child says that it is done.

When the child dies while it works on several runs, none of them can be blamed: all are handed back, and from then on
they are tried one at a time, so that the one that kills it is found.
"""

import select
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from opendataflow import faults
from opendataflow.domain.job import Job
from opendataflow.errors import LeaseLost, StoreUnavailable
from opendataflow.execution.guard import Ended, NotStarted
from opendataflow.execution.run import Runner
from opendataflow.execution.supervise import (
    GRACE_SECONDS,
    HELD_UP,
    Aborted,
    ChildEnd,
    Exited,
    GivenBack,
    Killed,
    Lost,
    NotRun,
    Stopped,
    TimedOut,
    drain_wakeups,
    killed_with,
    margin_of,
    pump,
)
from opendataflow.execution.work import Flight, Outcome, Taken, Work

# Up to so many claims, the lowest of this moment if so asked; none: nothing can be claimed now.
Take = Callable[[int, bool], list[Taken]]

START_SECONDS = 300.0  # in which Spark must have started; a chunk's own time begins then


class _Run:
    """A run in the child's hands. `limit_seconds` is for its whole task."""

    __slots__ = ("changed", "flight", "give_up_at", "limit_seconds", "next_beat", "why_ended")

    def __init__(self, flight: Flight, limit_seconds: float) -> None:
        self.flight, self.limit_seconds = flight, limit_seconds
        self.give_up_at = time.monotonic() + START_SECONDS + limit_seconds
        self.next_beat = flight.lease_from + flight.claim.lease_seconds / 3
        self.why_ended: ChildEnd | None = None
        self.changed = False

    def begin(self) -> None:
        """From now on its time counts: until now the child may have been starting Spark."""
        self.give_up_at = time.monotonic() + self.limit_seconds

    @property
    def deadline(self) -> float:
        lease = self.flight.claim.lease_seconds
        return self.flight.lease_from + lease - margin_of(lease)


class WarmRuns:
    """The runs of one job on the runner's child. It stays when they are done, for those that come next."""

    def __init__(
        self, runner: Runner, job: Job, work: Work, *, cwd: str, passwords: dict[tuple[str, str], str],
        elsewhere: Callable[[dict[str, Any]], None] = lambda _message: None,
    ) -> None:  # fmt: skip
        """`elsewhere` is for what the child says of no run: a stream's query does."""
        if work.tasks is None:
            raise TypeError("this work has no tasks for a child that stays")
        self._runner, self._job, self._work, self._tasks = runner, job, work, work.tasks
        self._cwd, self._passwords, self._elsewhere = cwd, passwords, elsewhere
        self._guard, self._signals = runner.guard, runner.signals
        self._runs: dict[int, _Run] = {}
        self._suspects: set[str] = set()  # dataids that run one at a time, until it is known which one kills the child
        self._kill_at = float("inf")
        self._stop = False  # take nothing more

    # What is asked of it --------------------------------------------------------------------------------------
    def run_one(self, taken: Taken) -> Outcome:
        """This run, to its end."""
        given = [[taken]]
        (outcome,) = self.run(lambda _limit, _anew: given.pop() if given else [])
        return outcome

    def run(self, take: Take) -> Iterator[Outcome]:
        """What `take` gives, task by task, until it gives nothing more and all have ended."""
        while True:
            while self._has_room() and (taken := self._take(take)):
                if taken[0].claim.dataid not in self._suspects:
                    self._suspects.clear()  # others have taken them: the lowest come first
                yield from self._launch(taken)
            if not self._runs:
                return
            yield from self._wait()

    def _take(self, take: Take) -> list[Taken]:
        try:
            # What was just handed back is the lowest again, which an earlier look ahead does not know.
            return take(1, True) if self._suspects else take(self._tasks.per_task, False)
        except StoreUnavailable:
            if not self._runs:
                raise
            return []  # those that run go on as long as their leases last, and may see it come back

    def stop_taking(self) -> None:
        self._stop = True

    @property
    def has_stopped(self) -> bool:
        """True when nothing more may be taken: a signal, a lost guard, or because somebody said so."""
        return self._stop or self._signals.asked is not None or self._guard.is_gone

    def _has_room(self) -> bool:
        # One task at a time: chunks in threads of one interpreter see each other.
        return not self.has_stopped and not self._runs

    # Begin ----------------------------------------------------------------------------------------------------
    def _launch(self, taken: list[Taken]) -> list[Outcome]:
        """Give the child one task; returns the ends of those that could not even begin."""
        over: list[Outcome] = []
        begun: list[Flight] = []
        for one in taken:
            flight = self._runner.begin(self._job, self._work, one, self._passwords)
            end = self._find_obstacle(flight)
            if end is None:
                begun.append(flight)
            else:
                over.append(self._runner.conclude(self._job, self._work, flight, end))
        if not begun:
            return over
        try:
            self._tasks.begun([flight.claim for flight in begun])
            line = self._tasks.write([(flight.claim, flight.locations) for flight in begun])
        except (OSError, StoreUnavailable) as error:
            is_away = isinstance(error, StoreUnavailable)
            end = GivenBack(f"the store is away: {error}") if is_away else NotRun(str(error))
            return [*over, *(self._runner.conclude(self._job, self._work, flight, end) for flight in begun)]
        limit = self._job.timeout_seconds
        # A little longer than the child's own limit: where it can, it ends a run without ending the others.
        seconds = limit * len(begun) + 1.0 if limit is not None else float("inf")
        for flight in begun:
            self._runs[flight.claim.runid] = _Run(flight, seconds)
        self._give(line)
        faults.point(faults.WHILE_RUNNING)
        return over

    def _find_obstacle(self, flight: Flight) -> ChildEnd | None:
        if self._signals.asked is not None:
            return Stopped(self._signals.asked, had_started=False)
        lease = flight.claim.lease_seconds
        if time.monotonic() >= flight.lease_from + lease - margin_of(lease):
            return Lost(HELD_UP)
        try:
            self._runner.find_places(self._job, flight)
        except OSError as error:
            return NotRun(str(error))
        return None

    def _give(self, line: str) -> None:
        self._guard.events()  # it may have died since its last task
        if self._guard.child_stays:
            self._extend()
        else:
            env = self._runner.lasting_environment(self._job, self._passwords)
            self._guard.start(self._work.argv(), env, self._cwd, self._deadline(), stays=True)
        self._guard.give(line)

    # Go on ----------------------------------------------------------------------------------------------------
    def _wait(self) -> list[Outcome]:
        """Until something happens; returns the ends that came of it."""
        self._look_at_the_clock()
        log = self._oldest.log
        poll = select.poll()
        for fd in (self._guard.events_fd, self._signals.wake_fd):
            poll.register(fd, select.POLLIN)
        # While our own output is not read, the child's is not read either: it waits, the heartbeat does not.
        if not log.shown.is_full(1) and not log.shown.is_full(2):
            for fd in (self._guard.out_fd, self._guard.err_fd, self._guard.answers_fd):
                poll.register(fd, select.POLLIN)
        for fd in log.shown.waiting():
            poll.register(fd, select.POLLOUT)
        beats = [min(run.next_beat, run.give_up_at) for run in self._runs.values()]
        moments = (self._kill_at, self._signals.wake_at, self._runner.aborts.next_at, *beats)
        wait = max(0.0, min(moments) - time.monotonic())
        poll.poll(None if wait == float("inf") else wait * 1000 + 1)
        drain_wakeups(self._signals.wake_fd)
        events = self._guard.events()
        log.shown.flush()
        pump(self._guard, log, to_the_end=bool(events))
        done = self._listen(to_the_end=bool(events))
        if events is None:
            end = killed_with(self._guard)
            return [*done, *self._end_all(end if len(self._runs) == 1 else self._blameless("lost its guard"))]
        for event in events:
            match event:
                case NotStarted(reason):
                    done += self._end_all(NotRun(reason))
                case Ended():
                    done += self._child_ended(event)
        return done

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        if self._signals.received is not None and self._blame(Stopped(self._signals.received)):
            self._guard.signal(self._signals.received)
            self._kill_at = now + GRACE_SECONDS
        late = [run for run in self._runs.values() if now >= run.give_up_at and run.why_ended is None]
        if late:
            limit = self._job.timeout_seconds or 0
            for run in late:
                # Of several in one Spark job it is not known which one takes so long.
                run.why_ended = TimedOut(limit) if len(late) == 1 else self._blameless(f"took longer than {limit:g} s")
            self._guard.signal(signal.SIGTERM)
            self._kill_at = now + GRACE_SECONDS
        aborts = self._runner.aborts.look(now)
        aborted = [run for runid, run in self._runs.items() if runid in aborts and run.why_ended is None]
        if aborted:  # the others of this child are handed back, and run again
            for run in aborted:
                run.why_ended = Aborted(aborts[run.flight.claim.runid])
            self._guard.signal(signal.SIGTERM)
            self._kill_at = now + GRACE_SECONDS
        if now >= self._kill_at:
            self._guard.kill()
            self._kill_at = float("inf")
        renewed = False
        for run in self._runs.values():
            if now >= run.next_beat:
                renewed |= self._beat(run)
        if renewed:
            self._extend()

    def _blame(self, end: ChildEnd) -> bool:
        """Let all runs end so that have no other reason; True when it is new to any."""
        new = [run for run in self._runs.values() if run.why_ended is None]
        for run in new:
            run.why_ended = end
        return bool(new)

    def _beat(self, run: _Run) -> bool:
        """Renew the lease; True when that worked."""
        lease = run.flight.claim.lease_seconds
        try:
            self._runner.renew(run.flight)
            run.next_beat = run.flight.lease_from + lease / 3
            if run.changed:
                self._tasks.steps(run.flight.claim, list(run.flight.steps.values()))
                run.changed = False
        except LeaseLost as error:
            if run.why_ended is None or isinstance(run.why_ended, Stopped):
                run.why_ended = Lost(str(error))
            self._guard.kill()
            run.next_beat = float("inf")
            return False
        except StoreUnavailable:
            # The guard ends the child at its deadline if this goes on.
            run.next_beat = time.monotonic() + min(1.0, lease / 10)
            return False
        return True

    @property
    def _oldest(self) -> Flight:
        return next(iter(self._runs.values())).flight

    def _deadline(self) -> float:
        return min((run.deadline for run in self._runs.values()), default=float("inf"))

    def _extend(self) -> None:
        self._guard.extend(self._deadline())

    # End ------------------------------------------------------------------------------------------------------
    def _listen(self, *, to_the_end: bool) -> list[Outcome]:
        """Take what the child has sent; returns the ends it told of."""
        done: list[Outcome] = []
        while messages := self._guard.messages():
            done += self._hear(messages)
            if not to_the_end:
                break
        return done

    def _hear(self, messages: list[dict[str, Any]]) -> list[Outcome]:
        done: list[Outcome] = []
        for message in messages:
            run = self._runs.get(message.get("run", -1))
            if run is None:  # of no run, or ended for another reason meanwhile
                self._elsewhere(message)
                continue
            if "text" in message:
                run.flight.log.write(message["stream"], message["text"].encode())
            elif "progress" in message:
                self._runner.say(f"{self._job.jobid}/{run.flight.claim.dataid}: {message['progress']}")
            elif "begun" in message:
                run.begin()
            elif "step" in message:
                run.flight.steps[message["step"]["position"]] = message["step"]
                run.changed = True
            elif run.why_ended is None:
                done.append(self._end(run, Exited(message["code"])))
        return done

    def _end(self, run: _Run, end: ChildEnd) -> Outcome:
        del self._runs[run.flight.claim.runid]
        self._extend()
        outcome = self._runner.conclude(self._job, self._work, run.flight, end)
        if outcome.exit_code in (5, 75):
            self.stop_taking()
        if outcome.status in ("COMPLETE", "FAILED"):
            self._suspects.discard(run.flight.claim.dataid)
        return outcome

    def _end_all(self, end: ChildEnd) -> list[Outcome]:
        return [self._end(run, run.why_ended or end) for run in list(self._runs.values())]

    def _child_ended(self, event: Ended) -> list[Outcome]:
        self._kill_at = float("inf")
        if event.expired:
            now, reason = time.monotonic(), "the lease could not be renewed in time, so the job was ended"
            for run in self._runs.values():
                run.why_ended = Lost(reason) if now >= run.deadline else run.why_ended
            return self._end_all(GivenBack("the Spark child was ended: a lease was not renewed in time"))
        unblamed = [run for run in self._runs.values() if run.why_ended is None]
        if len(self._runs) > len(unblamed):
            return self._end_all(GivenBack("the Spark child was ended because of another run"))
        how = f"exited {event.exit_code}" if event.exit_code is not None else f"was killed by signal {event.signal}"
        if len(unblamed) > 1:
            return self._end_all(self._blameless(how))
        return self._end_all(Exited(event.exit_code) if event.exit_code is not None else Killed(event.signal or 0))

    def _blameless(self, how: str) -> ChildEnd:
        self._suspects |= {run.flight.claim.dataid for run in self._runs.values()}
        chunks = len(self._runs)
        return GivenBack(f"the Spark child {how} while it worked on {chunks} chunks; each is tried again alone")


def drained(
    runner: Runner, job: Job, tidy: Callable[[], Any], is_left: Callable[[], bool]
) -> tuple[Take, list[Outcome]]:
    """A `take` that claims whatever can be claimed, until the version is left; the list holds why it last could not."""
    why: list[Outcome] = []

    def take(limit: int, anew: bool) -> list[Taken]:
        tidy()
        if is_left():
            told = "another version of its project is in place; nothing more was taken"
            why[:] = [Outcome(0, "LEFT", job.jobid, None, told)]
            return []
        taken: list[Taken] = []
        while len(taken) < limit:
            try:
                found = runner.take(job, None) if anew else runner.take_next(job)
            except StoreUnavailable:
                if not taken:
                    raise
                break
            if isinstance(found, Outcome):
                why[:] = [found]
                break
            taken.append(found)
        return taken

    return take, why
