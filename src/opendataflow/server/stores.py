"""The store for requests: each thread of a small pool has a connection of its own."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from opendataflow.errors import StoreUnavailable
from opendataflow.store.claims import LoopStore

THREADS = 4
CLOSE_SECONDS = 10.0
CUT_SECONDS = 1.0  # a connection that was cut while nobody used it is noticed sooner than that

_T = TypeVar("_T")


class Stores:
    """Asks the store in threads, so that one slow question holds up no other request.

    What writes has threads of its own: while it waits for a lock of somebody else's, pages can still be read.
    """

    def __init__(self, open_store: Callable[[], LoopStore]) -> None:
        self.open = open_store
        self._questions = ThreadPoolExecutor(THREADS, "pages")
        self._writes = ThreadPoolExecutor(THREADS, "actions")
        self._of_thread = threading.local()
        self._noted: set[str] = set()

    async def ask(
        self, question: Callable[[LoopStore], _T], *, actor: str | None = None, writes: bool = False
    ) -> _T:  # fmt: skip
        """The answer to a question, or the outcome of an action, which the history records under the actor's name."""
        threads = self._writes if writes or actor is not None else self._questions
        return await asyncio.get_running_loop().run_in_executor(threads, self._answer, question, actor)

    def note(self, name: str, write: Callable[[LoopStore], None]) -> None:
        """Write down what nobody waits for; once at a time for this name."""

        def done(_: object) -> None:
            self._noted.discard(name)

        if name not in self._noted:
            self._noted.add(name)
            self._writes.submit(self._answer, write, None).add_done_callback(done)

    def _answer(self, question: Callable[[LoopStore], _T], actor: str | None) -> _T:
        store: LoopStore | None = getattr(self._of_thread, "store", None)
        is_new, has_begun, began = store is None, False, time.monotonic()
        if store is None:
            store = self._of_thread.store = self.open()
            self._of_thread.name = store.actor
        try:
            signed = actor or self._of_thread.name
            if store.actor != signed:
                store.sign(signed)
            has_begun = actor is not None
            return question(store)
        except StoreUnavailable:
            self._of_thread.store = None
            store.close()
            # The store was started again since: with a new connection, all is well. But nothing is done twice.
            if is_new or has_begun or time.monotonic() - began > CUT_SECONDS:
                raise
        return self._answer(question, actor)

    def close(self) -> None:
        """Let the connections go, each in its own thread: SQLite asks for that."""
        for threads in (self._questions, self._writes):
            all_here = threading.Barrier(THREADS)
            for _ in range(THREADS):
                threads.submit(self._close_own, all_here)
        for threads in (self._questions, self._writes):
            threads.shutdown()

    def _close_own(self, all_here: threading.Barrier) -> None:
        all_here.wait(CLOSE_SECONDS)  # so that no thread comes twice
        store: LoopStore | None = getattr(self._of_thread, "store", None)
        if store is not None:
            store.close()
