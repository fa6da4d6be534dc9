"""Outputs that are one file of all chunks, written anew beside a worker's loop when chunks of them were published."""

import threading
from collections.abc import Callable

from opendataflow.domain.job import Job
from opendataflow.errors import StoreUnavailable
from opendataflow.execution.export import show_together
from opendataflow.store.claims import LoopStore


class Exporter:
    """A thread with a store of its own, started when it is first needed. What comes while it writes is done once."""

    def __init__(self, open_store: Callable[[], LoopStore], *, say: Callable[[str], None]) -> None:
        self._open_store, self._say = open_store, say
        self._changed = threading.Condition()
        self._waiting: dict[tuple[str, str], Job] = {}
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def published(self, job: Job) -> None:
        """A chunk of the job was published; nothing happens if its output is no such file."""
        if job.kind != "pipeline" or not any(link.dataset.is_export for link in job.outputs):
            return
        with self._changed:
            self._waiting[job[:2]] = job
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="exporter", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write what is still to be written."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        store: LoopStore | None = None
        while True:
            with self._changed:
                while not self._waiting and not self._is_closing:
                    self._changed.wait()
                if not self._waiting:
                    break
                _, job = self._waiting.popitem()
            try:
                store = store or self._open_store()
                show_together(store, job)
            except (OSError, StoreUnavailable) as error:
                self._say(f"{job.jobid}: its file of all chunks is not written: {error}; the next run tries again")
        if store is not None:
            store.close()
