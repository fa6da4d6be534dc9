"""Group commit: many callers share one fdatasync."""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from opendataflow.intake.log import Accepted, IntakeLog, Request

_Caller = TypeVar("_Caller")
MOST_BYTES = 32 << 20  # of a group


class GroupWriter(Generic[_Caller]):
    """One thread that appends whatever waits, and tells each caller once its items are durable.

    While it writes, others queue up: the next group is theirs. `deliver` gets the answers of a group at once, in this
    thread.
    """

    def __init__(self, log: IntakeLog, deliver: Callable[[list[tuple[_Caller, Accepted | Exception]]], None]) -> None:
        self.log = log
        self._deliver = deliver
        self._waiting: list[tuple[Request, _Caller]] = []
        self._bytes = 0
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)
        self._thread.start()

    @property
    def waiting_bytes(self) -> int:
        """What callers wait for, in memory only."""
        return self._bytes

    def submit(self, request: Request, caller: _Caller) -> None:
        """Queue it; the caller gets its answer through `deliver`."""
        with self._changed:
            if self._closing:
                raise RuntimeError("the log is being closed")
            self._waiting.append((request, caller))
            self._bytes += len(request.items)
            if len(self._waiting) == 1:
                self._changed.notify()

    def close(self) -> None:
        """Write what waits, then close the log."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        self.log.close()

    def _run(self) -> None:
        while group := self._next_group():
            results: Sequence[Accepted | Exception]
            try:
                results = self.log.append_all([request for request, _ in group])
            except Exception as error:  # noqa: BLE001  nobody may wait for ever
                results = [error] * len(group)
            with self._changed:
                self._bytes -= sum(len(request.items) for request, _ in group)
            self._deliver([(caller, result) for (_, caller), result in zip(group, results, strict=True)])

    def _next_group(self) -> list[tuple[Request, _Caller]]:
        """All that waits, up to so many bytes; nothing once it is closing and everything is written."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            size, number = 0, 0
            while number < len(self._waiting) and (number == 0 or size < MOST_BYTES):
                size += len(self._waiting[number][0].items)
                number += 1
            group, self._waiting = self._waiting[:number], self._waiting[number:]
            return group
