"""Runs that somebody wants ended: looked for about once a second while some are under way, and never before that."""

import time

from opendataflow.errors import StoreUnavailable
from opendataflow.store.claims import LoopStore

LOOK_SECONDS = 1.0
AWAY_SECONDS = 10.0  # while the store is away, its leases are what counts: renewing them finds out when it is back


class Aborts:
    """What one owner of runs hears. On PostgreSQL it is told, on SQLite it sees that others wrote."""

    def __init__(self, store: LoopStore) -> None:
        self._store = store
        self._has_heard = False  # and could not look yet
        self.next_at = 0.0

    def look(self, now: float) -> dict[int, str]:
        """The runs that are to be ended, and who asked for it; empty when there is nothing new, or it is not time."""
        if now < self.next_at:
            return {}
        self.next_at = now + LOOK_SECONDS
        try:
            self._has_heard |= self._store.hears_of_aborts()
            found = self._store.find_aborts() if self._has_heard else {}
        except StoreUnavailable:
            self._has_heard = True
            self.next_at = time.monotonic() + AWAY_SECONDS
            return {}
        self._has_heard = False
        return found
