"""Run one child under the guard: pump its output, renew the lease, pass signals on; its end is a value."""

import os
import select
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from opendataflow.errors import LeaseLost, StoreUnavailable
from opendataflow.runner.guard import Ended, Guard, NotStarted, Started
from opendataflow.runner.log import RunLog

GRACE_SECONDS = 10.0
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


class NotRun(NamedTuple):
    reason: str


class Lost(NamedTuple):
    """The lease could not be kept, so the child was ended."""

    reason: str


class GivenBack(NamedTuple):
    """The child ended for a reason that is not this run's."""

    reason: str


ChildEnd = Exited | Killed | Stopped | TimedOut | NotRun | Lost | GivenBack


class Signals:
    """Signals to the runner, noted instead of acted on; while open, they wake `wake_fd`."""

    def __init__(self) -> None:
        self.wake_fd, self._write = os.pipe()
        os.set_blocking(self._write, False)
        os.set_blocking(self.wake_fd, False)
        self.received: int | None = None
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in _WATCHED:
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        if self.received is None:
            self.received = number


def supervise(
    guard: Guard,
    argv: list[str],
    *,
    env: dict[str, str],
    cwd: str,
    log: RunLog,
    signals: Signals,
    lease_seconds: float,
    lease_from: float,
    renew: Callable[[], None],
    timeout_seconds: float | None,
    on_started: Callable[[], None] = lambda: None,
) -> ChildEnd:
    """Run the child to its end, however that comes about.

    `lease_from` is a moment (CLOCK_MONOTONIC) from which the lease surely holds; each `renew` that succeeds moves it.
    """
    deadline = lease_from + lease_seconds - margin_of(lease_seconds)
    if time.monotonic() >= deadline:
        return Lost(HELD_UP)
    guard.start(argv, env, cwd, deadline)
    poll = select.poll()
    for fd in (guard.events_fd, guard.out_fd, guard.err_fd, signals.wake_fd):
        poll.register(fd, select.POLLIN)
    showing: set[int] = set()
    started_at = time.monotonic()
    next_beat = lease_from + lease_seconds / 3
    give_up_at = started_at + timeout_seconds if timeout_seconds is not None else float("inf")
    kill_at = float("inf")
    why_ended: ChildEnd | None = None
    while True:
        now = time.monotonic()
        if why_ended is None and signals.received is not None:
            why_ended = Stopped(signals.received)
            guard.signal(signals.received)
            kill_at = now + GRACE_SECONDS
        if why_ended is None and now >= give_up_at:
            why_ended = TimedOut(timeout_seconds or 0)
            guard.signal(signal.SIGTERM)
            kill_at = now + GRACE_SECONDS
        if now >= kill_at:
            guard.kill()
            kill_at = float("inf")
        if now >= next_beat:
            before = time.monotonic()
            try:
                renew()
                lease_from = before
                next_beat = before + lease_seconds / 3
                guard.extend(lease_from + lease_seconds - margin_of(lease_seconds))
            except LeaseLost as error:
                if why_ended is None or isinstance(why_ended, Stopped):
                    why_ended = Lost(str(error))
                guard.kill()
                next_beat = float("inf")
            except StoreUnavailable:
                # The guard ends the child at its deadline if this goes on.
                next_beat = time.monotonic() + min(1.0, lease_seconds / 10)
        # While our own output is not read, the child's is not read either: it waits, the heartbeat does not.
        for stream, fd in ((1, guard.out_fd), (2, guard.err_fd)):
            poll.modify(fd, 0 if log.shown.is_full(stream) else select.POLLIN)
        for fd in showing - (waiting := log.shown.waiting()):
            poll.unregister(fd)
        for fd in waiting - showing:
            poll.register(fd, select.POLLOUT)
        showing = waiting
        wait = max(0.0, min(next_beat, give_up_at, kill_at) - time.monotonic())
        poll.poll(None if wait == float("inf") else wait * 1000 + 1)
        drain_wakeups(signals.wake_fd)
        events = guard.events()
        log.shown.flush()
        pump(guard, log)
        if events is None:
            return why_ended or killed_with(guard)
        for event in events:
            match event:
                case Started():
                    on_started()
                case NotStarted(reason):
                    return NotRun(reason)
                case Ended(exit_code, number, expired):
                    pump(guard, log, to_the_end=True)
                    if expired:
                        return Lost("the lease could not be renewed in time, so the job was ended")
                    if why_ended is not None:
                        return why_ended
                    return Exited(exit_code) if exit_code is not None else Killed(number or 0)


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
    _, status = os.waitpid(guard.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return Killed(-code if code < 0 else signal.SIGKILL)
