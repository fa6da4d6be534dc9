"""The query of a stream on the runner's child: begun, listened to, and begun again when it ends.

It proposes ranges of items; `spark/streaming.py` is its other side. Nothing is decided here.
"""

import json
import os
import select
import time
from collections.abc import Callable
from typing import Any

from opendataflow import faults
from opendataflow.domain.dataset import path_segment
from opendataflow.domain.streams import get_settings
from opendataflow.execution.guard import Ended, NotStarted
from opendataflow.execution.log import RunLog
from opendataflow.execution.session import Session
from opendataflow.execution.supervise import drain_wakeups, pump

STARTS = 3  # in a row without a batch, before the stream is FAILED
PAUSE_SECONDS = (0.5, 30.0)  # before a query that ended is begun again: first, and most


class StreamFailed(Exception):
    """The stream cannot go on; the message is the reason."""


class QueryOnTheChild:
    """One query at a time, on a child that also runs what it proposes."""

    def __init__(self, session: Session, folder: str, argv: Callable[[], list[str]], *, cwd: str) -> None:
        self._session, self._job, self._settings = session, session.job, get_settings(session.job)
        self._runner, self._guard, self._signals = session.runner, session.runner.guard, session.signals
        self._folder, self._argv, self._cwd = folder, argv, cwd
        self.proposed: tuple[int, int] | None = None
        self.starts = 0  # in a row without a batch
        self.final = ""  # why no query can ever be
        self._begin_at = 0.0
        self._asked_child: int | None = None  # the child that has been told to begin a query
        path = os.path.join(session.address.work, "logs", path_segment(self._job.jobid), "query.log")
        self._said = RunLog(path, self._runner.shown, secrets=tuple(session.passwords.values()))

    def close(self) -> None:
        self._said.end()
        self._said.close()

    def keep(self, committed: Callable[[], int]) -> None:
        """See that there is a child with a query, from where the store is."""
        self._listen()
        if self._asked_child is not None and not self.has_child:
            self._ended("its Spark child is gone")
        if self._asked_child is not None or self.proposed is not None or time.monotonic() < self._begin_at:
            return
        if self.starts >= STARTS:
            raise StreamFailed("its query cannot be run; see above")
        begin = committed()
        if not self._guard.child_stays:
            env = self._runner.lasting_environment(self._job, self._session.passwords)
            self._guard.start(self._argv(), env, self._cwd, float("inf"), stays=True)
        self._guard.give(json.dumps({"stream": self._asked(begin)}))
        self._asked_child = self._guard.started

    @property
    def has_child(self) -> bool:
        """True while the child lives that was told to begin a query: a run may have started another one since."""
        return self._guard.child_stays and self._asked_child == self._guard.started

    def _asked(self, begin: int) -> dict[str, Any]:
        settings = self._settings
        return {
            "folder": self._folder, "begin": begin, "most": settings.max_batch, "seal": settings.seal,
            "every": settings.every_seconds, "slug": self._job.jobid, "home": self._job.home,
            "spark": self._job.definition.get("spark") or {}, "kafka": settings.source.get("kafka"),
            "fields": [list(field) for field in settings.schema],
        }  # fmt: skip

    def hear(self, message: dict[str, Any]) -> None:
        """What the child says of no run."""
        if "batch" in message:
            start, end = message["batch"]
            self.proposed = (start, end)
            faults.point(faults.STREAM_PROPOSED)
        elif "ended" in message and message["is_final"]:
            self._asked_child, self.proposed, self.final = None, None, str(message["ended"])
        elif "ended" in message:
            self._ended(str(message["ended"]))

    def _ended(self, reason: str) -> None:
        self._asked_child = self.proposed = None
        pause = min(PAUSE_SECONDS[0] * 2**self.starts, PAUSE_SECONDS[1])
        self.starts, self._begin_at = self.starts + 1, time.monotonic() + pause
        self._session.say(f"{self._job.jobid}: its query ended ({reason}); it is begun again from what is published")

    def wait(self, seconds: float) -> None:
        """Until the child, the guard or a signal has something to say, or the time has passed."""
        shown = self._runner.shown
        poll = select.poll()
        for fd in (self._guard.events_fd, self._signals.wake_fd, self._guard.answers_fd):
            poll.register(fd, select.POLLIN)
        for fd in (self._guard.out_fd, self._guard.err_fd):
            poll.register(fd, select.POLLIN)
        for fd in shown.waiting():
            poll.register(fd, select.POLLOUT)
        poll.poll(max(0.0, seconds) * 1000)
        drain_wakeups(self._signals.wake_fd)
        shown.flush()
        self._listen()

    def _listen(self) -> None:
        """Between two runs: what the child says, and whether it is still there."""
        events = self._guard.events()
        pump(self._guard, self._said)
        while messages := self._guard.messages():
            for message in messages:
                self.hear(message)
        for event in events or ():
            if isinstance(event, Ended | NotStarted):
                self._child_ended(event)

    def _child_ended(self, event: Ended | NotStarted) -> None:
        if isinstance(event, NotStarted):
            raise StreamFailed(f"its Spark child cannot be started: {event.reason}")
        how = f"exited {event.exit_code}" if event.exit_code is not None else f"was killed by signal {event.signal}"
        self._ended(f"the Spark child {how}")

    def go(self, start: int, end: int) -> None:
        """The proposed range is published: the query goes on."""
        faults.point(faults.STREAM_GO)
        self.starts, self.proposed = 0, None
        self._guard.give(json.dumps({"go": [start, end]}))

    def begin_again(self, begin: int) -> None:
        """What it proposed is not what the store needs: it begins there."""
        self.proposed = None
        self._guard.give(json.dumps({"stream": self._asked(begin)}))
