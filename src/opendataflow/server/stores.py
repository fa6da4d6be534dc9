"""The store for requests: each thread of a small pool has a connection of its own."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from opendataflow.errors import StoreUnavailable
from opendataflow.store.loop import LoopStore

THREADS = 4

_T = TypeVar("_T")


class Stores:
    """Asks the store in threads, so that one slow question holds up no other request."""

    def __init__(self, open_store: Callable[[], LoopStore]) -> None:
        self._open = open_store
        self._threads = ThreadPoolExecutor(THREADS, "pages")
        self._of_thread = threading.local()
        self._all: list[LoopStore] = []

    async def ask(self, question: Callable[[LoopStore], _T], *, actor: str | None = None) -> _T:
        """The answer to a question, or the outcome of an action, which the history records under the actor's name."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._answer, question, actor)

    def _answer(self, question: Callable[[LoopStore], _T], actor: str | None) -> _T:
        store: LoopStore | None = getattr(self._of_thread, "store", None)
        if store is None:
            store = self._of_thread.store = self._open()
            self._all.append(store)
        own, store.actor = store.actor, actor or store.actor
        try:
            return question(store)
        except StoreUnavailable:
            self._of_thread.store = None
            self._all.remove(store)
            store.close()
            raise
        finally:
            store.actor = own

    def close(self) -> None:
        self._threads.shutdown()
        for store in self._all:
            store.close()
