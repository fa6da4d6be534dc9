"""A worker's slow round: is what was published still there? Some chunks now and then, all the time, beside its loop."""

import threading
from collections.abc import Callable

from opendataflow.errors import StoreUnavailable, UsageError
from opendataflow.operations.verify import describe_finding, find_damage, keep, look_at, next_step
from opendataflow.store.claims import LoopStore
from opendataflow.store.reports.verify import FIRST, list_damage, page_versions

PAUSE_SECONDS = 10.0  # between two looks
AT_ONCE = 50  # chunks of one look; nothing is read but sizes and times, or ETags


class Verifier:
    """A thread with a store of its own, which goes round over the published chunks of a project."""

    def __init__(self, open_store: Callable[[], LoopStore], project: str | None, *, say: Callable[[str], None]) -> None:
        self._open_store, self._project, self._say = open_store, project, say
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="verifier", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        store: LoopStore | None = None
        after = FIRST
        while not self._closing.wait(PAUSE_SECONDS):
            try:
                store = store or self._open_store()
                page = page_versions(store, after, project=self._project, limit=AT_ONCE)
                after = page[-1].key if page else FIRST
                known = {one.key for one in list_damage(store, project=self._project)}
                found = list(look_at(store, page, contents=False))
                keep(store, found, known)
                wrong = [one.version.key for one in found if one.finding in ("gone", "changed")]
                for damage in find_damage(store, [key for key in wrong if key not in known]):
                    self._say(f"{describe_finding(damage.key, damage.finding)}; {next_step(damage)}")
            except (StoreUnavailable, UsageError):  # it is looked at again in the next round
                continue
        if store is not None:
            store.close()
