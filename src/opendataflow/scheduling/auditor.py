"""Audits that take their time, beside the loop of a worker: meanwhile the leases of its other runs are renewed."""

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from opendataflow.domain.runs.run import Ending, Result
from opendataflow.execution.exit_audit import audit
from opendataflow.execution.supervise import ChildEnd
from opendataflow.execution.work import Flight, Work
from opendataflow.scheduling.fair_queue import Lane
from opendataflow.scheduling.worker_slot import Slot
from opendataflow.store.claims import LoopStore

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

THREADS = 2
Audited = tuple[Slot, Flight, ChildEnd, Result]


class Auditor:
    """Gives `results` back, and makes `wake_fd` readable then. Each of its threads opens a store of its own."""

    def __init__(self, open_store: Callable[[], LoopStore]) -> None:
        self.wake_fd, self._write = os.pipe()
        for fd in (self.wake_fd, self._write):
            os.set_blocking(fd, False)
        self._open_store = open_store
        self._own = threading.local()
        self._done: deque[Audited] = deque()
        self._pool: ThreadPoolExecutor | None = None

    def give(self, slot: Slot, lane: Lane, flight: Flight, end: ChildEnd) -> None:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="audit")
        self._pool.submit(self._audit, slot, lane, flight, end)

    def results(self) -> list[Audited]:
        try:
            os.read(self.wake_fd, 4096)
        except BlockingIOError:
            return []
        found = []
        while self._done:
            found.append(self._done.popleft())
        return found

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _audit(self, slot: Slot, lane: Lane, flight: Flight, end: ChildEnd) -> None:
        try:
            result = audit(lane.job, self._work(lane), flight, end)
        except Exception as error:  # noqa: BLE001  a thread that dies silently would keep its slot for ever
            what = f"its output could not be audited: {type(error).__name__}: {error}"
            result = Result(Ending.FAILED, None, what)
        self._done.append((slot, flight, end, result))
        try:
            os.write(self._write, b"!")
        except BlockingIOError:
            pass  # it is readable as it is

    def _work(self, lane: Lane) -> Work:
        """What the lane's work is for this thread: what it reads of the store goes over the thread's own connection."""
        own = self._own.__dict__
        if "store" not in own:
            own |= {"store": self._open_store(), "works": {}}
        works: dict[Lane, Work] = own["works"]
        if lane not in works:
            works[lane] = lane.make_work(own["store"])
        return works[lane]
