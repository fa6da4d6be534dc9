"""Answers that cost something, kept for a moment: however many people look at a page, the store is asked once.

An answer has the moment at which it was asked for, and the page shows it. Who comes while a new one is on its way gets
the last one, unless that is too old.
"""

import asyncio
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from opendataflow.server.stores import Stores

KEEP_SECONDS = 2.0
STALE_SECONDS = 30.0  # an older answer is no answer
MOST = 200  # answers that are kept


class Kept(NamedTuple):
    answer: Any
    asked_at: float  # seconds since the epoch


class _Answers:
    def __init__(self) -> None:
        self._kept: dict[Any, Kept] = {}
        self._coming: dict[Any, asyncio.Task[Kept]] = {}
        self._forgotten = 0

    def forget(self) -> None:
        self._kept.clear()
        self._coming.clear()  # what was asked before is answered to whoever waits, and kept for nobody
        self._forgotten += 1

    async def get(self, key: Any, ask: Callable[[], Awaitable[Any]], keep_seconds: float, behind: bool) -> Kept:
        now = time.time()
        kept = self._kept.get(key)
        if kept is not None and 0 <= now - kept.asked_at < keep_seconds:
            return kept
        coming, is_first = self._coming.get(key), False
        if coming is None:
            coming = self._coming[key] = asyncio.create_task(self._ask(key, ask, now))
            coming.add_done_callback(lambda task: task.cancelled() or task.exception())  # told to whoever waits
            is_first = not behind
        if not is_first and kept is not None and 0 <= now - kept.asked_at < STALE_SECONDS:
            return kept
        return await asyncio.shield(coming)

    async def _ask(self, key: Any, ask: Callable[[], Awaitable[Any]], now: float) -> Kept:
        forgotten = self._forgotten
        try:
            kept = Kept(await ask(), now)
            if forgotten == self._forgotten:
                self._kept.pop(key, None)
                self._kept[key] = kept
                while len(self._kept) > MOST:
                    del self._kept[next(iter(self._kept))]
            return kept
        finally:
            if forgotten == self._forgotten:
                del self._coming[key]


_ANSWERS: weakref.WeakKeyDictionary[Stores, _Answers] = weakref.WeakKeyDictionary()


async def kept(
    stores: Stores, key: Any, ask: Callable[[], Awaitable[Any]], *, keep_seconds: float | None = None,
    behind: bool = False,
) -> Kept:  # fmt: skip
    """The answer of the last moments, or a new one; `key` says of what, with all that it depends on.

    It is kept for `keep_seconds`; None: for KEEP_SECONDS.
    With `behind` nobody waits for a new one while there is one that is not too old.
    """
    seconds = KEEP_SECONDS if keep_seconds is None else keep_seconds
    return await _ANSWERS.setdefault(stores, _Answers()).get(key, ask, seconds, behind)


def forget(stores: Stores) -> None:
    """Somebody has just changed something: who looks now sees it."""
    found = _ANSWERS.get(stores)
    if found is not None:
        found.forget()
