"""Run one child under the guard: pump its output, renew the lease, pass signals on; its end is a value."""

import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from opendataflow.errors import LeaseLost, StoreUnavailable
from opendataflow.execution.aborts import LOOK_SECONDS
from opendataflow.execution.guard import Ended, Guard, NotStarted, Started
from opendataflow.execution.log import RunLog

GRACE_SECONDS = 10.0
START_SECONDS = 300.0  # in which a child that waits for Spark must have begun; its own time counts from then
GIVES = 3  # a task that children which stay ended without reading
HELD_UP = "the runner was held up after its claim until the lease ran out, so the job was not started"
_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Exited(NamedTuple):
    code: int


class Killed(NamedTuple):
    """The child died of a signal that this runner did not send."""

    signal: int


class Stopped(NamedTuple):
    """The runner was told to stop, and ended the child, if it had started."""

    signal: int
    had_started: bool = True


class TimedOut(NamedTuple):
    seconds: float


class Aborted(NamedTuple):
    """A person wanted it ended."""

    by: str


class NotRun(NamedTuple):
    reason: str


class Lost(NamedTuple):
    """The lease could not be kept, so the child was ended."""

    reason: str


class GivenBack(NamedTuple):
    """The child ended for a reason that is not this run's."""

    reason: str


ChildEnd = Exited | Killed | Stopped | TimedOut | Aborted | NotRun | Lost | GivenBack


class Signals:
    """Signals to the runner, noted instead of acted on; while open, they wake `wake_fd`.

    With `grace_seconds` the first signal only says that nothing more may be taken; what runs is ended when that time is
    over, or at the second signal.
    """

    def __init__(self, *, grace_seconds: float = 0.0) -> None:
        self.wake_fd, self._write = os.pipe()
        os.set_blocking(self._write, False)
        os.set_blocking(self.wake_fd, False)
        self.asked: int | None = None  # take nothing more
        self.grace_seconds = grace_seconds
        self.grace_until = float("inf")
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in _WATCHED:
            signal.signal(number, self._note)

    @property
    def received(self) -> int | None:
        """The signal that what runs must be ended for."""
        return self.asked if self.asked is not None and time.monotonic() >= self.grace_until else None

    @property
    def wake_at(self) -> float:
        """When the grace is over, if one has begun."""
        return self.grace_until if self.asked is not None and self.received is None else float("inf")

    def _note(self, number: int, _frame: object) -> None:
        now = time.monotonic()
        if self.asked is None:
            self.asked, self.grace_until = number, now + self.grace_seconds
        elif self.grace_seconds:
            self.grace_until = min(self.grace_until, now)


class Supervision:
    """One child under its guard, from start to end, step by step; whoever owns the loop waits and renews.

    A step never waits: `listen` when one of `fds` is readable, `look_at_the_clock` when `wake_at` has come. `next_beat`
    says when the lease is to be renewed; the owner does it and says what came of it.
    """

    def __init__(
        self, guard: Guard, log: RunLog, *, lease_seconds: float, lease_from: float, timeout_seconds: float | None,
        on_started: Callable[[], None] | None = None, hear: Callable[[dict[str, Any]], None] | None = None,
        stays: bool = False,
    ) -> None:  # fmt: skip
        """`hear` gets the messages of a child that is a fork of the guard.

        With `stays`, such a child may be there already and is left for the next run: what it is started with is the
        file of its task, which it is told in a line and removes when it begins.
        """
        self.guard, self.log, self._hear, self._stays = guard, log, hear, stays
        self._task, self._gives = "", 0
        self._give_again: Callable[[], None] = lambda: None
        self._done: ChildEnd | None = None
        self._lease_seconds, self._timeout_seconds, self._on_started = lease_seconds, timeout_seconds, on_started
        self._deadline = lease_from + lease_seconds - margin_of(lease_seconds)
        self.next_beat = lease_from + lease_seconds / 3
        self._give_up_at = self._kill_at = float("inf")
        self._why_ended: ChildEnd | None = None

    def start(
        self, argv: list[str], env: Mapping[str, str], cwd: str, *, common: Mapping[str, str] | None = None
    ) -> ChildEnd | None:
        """Have the guard start the child, or say why it may not be started any more."""
        now = time.monotonic()
        if now >= self._deadline:
            return Lost(HELD_UP)
        forks = self._hear is not None
        if self._timeout_seconds is not None:
            self._give_up_at = now + self._timeout_seconds + (START_SECONDS if forks else 0)
        if self._stays:
            self._task = argv[0]
            self._give(env, cwd)
            return None
        self.guard.start(argv, env, cwd, self._deadline, forks=forks, tell=self._on_started is not None, common=common)
        return None

    def _give(self, env: Mapping[str, str], cwd: str) -> None:
        """Tell the child that stays its task; a new child, if there is none."""
        self._give_again = lambda: self._give(env, cwd)
        self._gives += 1
        self.guard.events()  # it may have ended since its last task
        if self.guard.child_stays:
            self.guard.extend(self._deadline)
            if self._on_started is not None:
                self._on_started()
        else:
            tell = self._on_started is not None
            self.guard.start([], env, cwd, self._deadline, stays=True, forks=True, tell=tell)
        self.guard.give(json.dumps({"task": self._task}))

    def _take_messages(self, *, to_the_end: bool = False) -> None:
        if self._hear is None:
            return
        while messages := self.guard.messages():
            for message in messages:
                if self._timeout_seconds is not None:
                    # Its own time begins when Spark is its; other runs may come first.
                    waiting = message.get("waiting")
                    if "begun" in message:
                        self._give_up_at = time.monotonic() + self._timeout_seconds
                    elif isinstance(waiting, int) and waiting > 0:
                        self._give_up_at = time.monotonic() + self._timeout_seconds + START_SECONDS
                if self._stays and message.get("done") == self._task:
                    self._done = Exited(int(message["code"]))
                self._hear(message)
            if not to_the_end:
                return

    @property
    def wake_at(self) -> float:
        """When to look at the clock again."""
        return min(self._give_up_at, self._kill_at)

    def look_at_the_clock(self, now: float) -> None:
        """End what took too long, and kill what does not obey."""
        if now >= self._give_up_at:
            self._give_up_at = float("inf")
            self._end_for(TimedOut(self._timeout_seconds or 0), signal.SIGTERM, now)
        if now >= self._kill_at:
            self.guard.kill()
            self._kill_at = float("inf")

    def stop(self, number: int) -> None:
        """Pass the runner's signal on, once."""
        self._end_for(Stopped(number), number, time.monotonic())

    def abort(self, by: str) -> None:
        """A person wants the run ended: the child is told, and has the usual time to obey."""
        self._end_for(Aborted(by), signal.SIGTERM, time.monotonic())

    def _end_for(self, end: ChildEnd, number: int, now: float) -> None:
        if self._why_ended is None:
            self._why_ended = end
            self.guard.signal(number)
            self._kill_at = now + GRACE_SECONDS

    # The lease --------------------------------------------------------------------------------------------------
    def renewed(self, lease_from: float) -> None:
        """The lease holds from this moment (CLOCK_MONOTONIC)."""
        self.next_beat = lease_from + self._lease_seconds / 3
        self._deadline = lease_from + self._lease_seconds - margin_of(self._lease_seconds)
        self.guard.extend(self._deadline)

    def lost(self, error: LeaseLost) -> None:
        """Another may have the work by now: end the child at once."""
        if self._why_ended is None or isinstance(self._why_ended, Stopped):
            self._why_ended = Lost(str(error))
        self.guard.kill()
        self.next_beat = float("inf")

    def not_renewed(self) -> None:
        """The store is away: try again soon. The guard ends the child at its deadline if this goes on."""
        self.next_beat = time.monotonic() + min(1.0, self._lease_seconds / 10)

    # What the guard and the child say ---------------------------------------------------------------------------
    def listen(self) -> ChildEnd | None:
        """Take what they have said; the end, once there is one."""
        events = self.guard.events()
        pump(self.guard, self.log)
        self._take_messages(to_the_end=bool(events))
        if self._done is not None and self._why_ended is None:
            pump(self.guard, self.log, to_the_end=True)
            self.guard.extend(float("inf"))
            return self._done
        if events is None:
            return self._why_ended or killed_with(self.guard)
        for event in events:
            match event:
                case Started():
                    if self._on_started is not None:
                        self._on_started()
                case NotStarted(reason):
                    return NotRun(reason)
                case Ended(exit_code, number, expired):
                    pump(self.guard, self.log, to_the_end=True)
                    if expired:
                        return Lost("the lease could not be renewed in time, so the job was ended")
                    if self._why_ended is not None:
                        return self._why_ended
                    if self._stays and os.path.exists(self._task) and self._gives < GIVES:
                        self._give_again()  # it had not begun: it let Spark go, or was killed
                        return None
                    return Exited(exit_code) if exit_code is not None else Killed(number or 0)
        return None


def supervise(
    guard: Guard,
    argv: list[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    log: RunLog,
    signals: Signals,
    lease_seconds: float,
    lease_from: float,
    renew: Callable[[], None],
    timeout_seconds: float | None,
    on_started: Callable[[], None] | None = None,
    hear: Callable[[dict[str, Any]], None] | None = None,
    find_abort: Callable[[float], str | None] = lambda _now: None,
    stays: bool = False,
) -> ChildEnd:
    """Run the child to its end, however that comes about; one that stays, until it has done its task.

    `find_abort` says who wants it ended, if anybody does; it is asked about once a second, first after one.
    `lease_from` is a moment (CLOCK_MONOTONIC) from which the lease surely holds; each `renew` that succeeds moves it.
    """
    child = Supervision(
        guard, log, lease_seconds=lease_seconds, lease_from=lease_from, timeout_seconds=timeout_seconds,
        on_started=on_started, hear=hear, stays=stays,
    )  # fmt: skip
    if (end := child.start(argv, env, cwd)) is not None:
        return end
    poll = select.poll()
    for fd in (*guard.fds, signals.wake_fd):
        poll.register(fd, select.POLLIN)
    showing: set[int] = set()
    look_at = time.monotonic() + LOOK_SECONDS
    while True:
        now = time.monotonic()
        if now >= look_at:
            if (by := find_abort(now)) is not None:
                child.abort(by)
            look_at = now + LOOK_SECONDS
        if signals.received is not None:
            child.stop(signals.received)
        child.look_at_the_clock(now)
        if now >= child.next_beat:
            _beat(child, renew)
        # While our own output is not read, the child's is not read either: it waits, the heartbeat does not.
        for stream, fd in ((1, guard.out_fd), (2, guard.err_fd)):
            poll.modify(fd, 0 if log.shown.is_full(stream) else select.POLLIN)
        for fd in showing - (waiting := log.shown.waiting()):
            poll.unregister(fd)
        for fd in waiting - showing:
            poll.register(fd, select.POLLOUT)
        showing = waiting
        wait = max(0.0, min(child.next_beat, child.wake_at, signals.wake_at, look_at) - time.monotonic())
        poll.poll(None if wait == float("inf") else wait * 1000 + 1)
        drain_wakeups(signals.wake_fd)
        log.shown.flush()
        if (end := child.listen()) is not None:
            return end


def _beat(child: Supervision, renew: Callable[[], None]) -> None:
    before = time.monotonic()
    try:
        renew()
        child.renewed(before)
    except LeaseLost as error:
        child.lost(error)
    except StoreUnavailable:
        child.not_renewed()


def margin_of(lease_seconds: float) -> float:
    """How long before the lease ends the child must have ended."""
    return min(1.0, lease_seconds / 10)


def pump(guard: Guard, log: RunLog | None, *, to_the_end: bool = False) -> None:
    """Move what the child has written so far, as long as our own output takes it; at its end, all that is left.

    Without a log it is dropped: nobody asked for what a child says between two runs.
    """
    for stream, fd in ((1, guard.out_fd), (2, guard.err_fd)):
        while to_the_end or log is None or not log.shown.is_full(stream):
            try:
                data = os.read(fd, 65536)
            except BlockingIOError:
                break
            if not data:
                break
            if log is not None:
                log.write(stream, data)


def drain_wakeups(fd: int) -> None:
    try:
        os.read(fd, 1024)
    except BlockingIOError:
        pass


def killed_with(guard: Guard) -> ChildEnd:
    """Somebody killed the guard; its child died with it (PDEATHSIG)."""
    guard.is_gone = True
    status = guard.exit_status()
    code = os.waitstatus_to_exitcode(status) if status is not None else 0
    return Killed(-code if code < 0 else signal.SIGKILL)
