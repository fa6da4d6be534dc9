"""The runner's side of a stream's child: runs on it, one at a time, and what happens between them.

The child is a fork of the zygote; it stays attached to Spark from batch to batch (spark/stream_child.py). When it ends,
because another run waits for the driver or because the driver ended, another is started, which attaches for its first
batch. After a while without batches it is let go, so that the driver can stop, and the next batch starts one.
"""

import json
import select
import time
from collections.abc import Sequence
from typing import Any

from opendataflow.domain.job import Job
from opendataflow.execution.session import Session
from opendataflow.execution.supervise import drain_wakeups, pump
from opendataflow.execution.work import Outcome, Taken, Work
from opendataflow.execution.zygote import prepare
from opendataflow.spark.keeper_settings import IDLE_SECONDS
from opendataflow.streams.work import STAYING_PROGRAM, program_of

START_SECONDS = 1.0  # between two starts of a child that nobody needs yet


class StreamChild:
    """At most one process, and runs on it."""

    def __init__(self, session: Session) -> None:
        self.session, self._runner = session, session.runner
        settings: Any = session.job.definition.get("spark") or {}
        self._settings, self._program = settings, program_of(session.job)
        idle = settings.get("idle")
        self._idle_seconds = IDLE_SECONDS if idle is None else float(idle)
        self._used_at = time.monotonic()
        self._rests, self._start_at = False, 0.0

    def prepare(self) -> None:
        """Have Spark started, while nobody waits for it yet."""
        self._runner.fork_children(self._program)
        prepare(self._program, self._settings)

    def run(self, job: Job, work: Work, taken: Taken) -> Outcome:
        """The run, to its recorded end."""
        self._listen()
        if work.forked is None:
            raise TypeError("this work is not for a fork")
        outcome = self._runner.run_claimed(job, work, taken, job.home, self.session.passwords, go_on=False)
        self._used_at, self._rests = time.monotonic(), False
        return outcome

    def wait(self, seconds: float, more: Sequence[int] = ()) -> None:
        """Until the child, a signal or one of these descriptors has something to say, or the time has passed."""
        guard, signals, shown = self._runner.guard, self.session.signals, self._runner.shown
        poll = select.poll()
        for fd in (*(() if guard.is_gone else guard.fds), signals.wake_fd, *more):
            poll.register(fd, select.POLLIN)
        for fd in shown.waiting():
            poll.register(fd, select.POLLOUT)
        poll.poll(max(0.0, seconds) * 1000)
        drain_wakeups(signals.wake_fd)
        shown.flush()
        self._listen()
        if not self._rests and time.monotonic() - self._used_at >= self._idle_seconds:
            self._rests = True
            guard.give(json.dumps({"leave": True}))
        self._keep_child()

    def _keep_child(self) -> None:
        """A new one for one that ended, before a batch waits for it."""
        guard, now = self._runner.guard, time.monotonic()
        if self._rests or not guard.can_fork or guard.is_gone or guard.child_stays or now < self._start_at:
            return
        self._start_at = now + START_SECONDS
        if self._program != STAYING_PROGRAM or self.session.signals.asked is not None:
            return
        job = self.session.job
        env = self._runner.lasting_environment(job, self.session.passwords)
        guard.start([], env, job.home, float("inf"), stays=True, forks=True, tell=False)

    def _listen(self) -> None:
        """Between two runs nobody asked for what the child says: only that it has ended is of interest."""
        guard = self._runner.guard
        if not guard.is_gone:
            guard.events()
            pump(guard, None)
            while guard.messages():
                pass

    def close(self) -> None:
        """End the child."""
        self._runner.close_forked_guard()
