"""What follows from a publish: staleness is worked in, and what asks for it runs again by itself."""

from opendataflow.domain.job import JobStatus
from opendataflow.store.claims import LoopStore
from opendataflow.store.operations import Key, resubmit
from opendataflow.store.stale import FILE, expand

AT_ONCE = 1_000  # dataids that one call sets to RESUBMIT


def keep_up(store: LoopStore, *, seconds: float) -> int:
    """Maintenance: work in what has happened, for about so many seconds, and do what `on_change: rerun` asks for.

    Returns how many dataids were set to RESUBMIT.
    """
    expand(store, seconds=seconds)
    return rerun_changed(store)


def rerun_changed(store: LoopStore) -> int:
    """Set to RESUBMIT what has an input with other content than it read, of jobs with `on_change: rerun`."""
    rows = store.read("to_rerun", {"limit": AT_ONCE}, file=FILE)
    if not rows:
        return 0
    keys = [Key(*row) for row in rows]
    return len(resubmit(store, keys, only=frozenset({JobStatus.COMPLETE}), reason="on_change: an input changed"))
