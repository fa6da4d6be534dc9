"""How far it is, read beside the loop of a worker: counting many that wait takes its time, and leases do not wait."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from opendataflow.cli.paused import pause_of_all, until_text
from opendataflow.errors import DataflowError, StoreUnavailable
from opendataflow.operations.progress import NOTHING, HeldUp, Progress, Row
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.workers import list_limits
from opendataflow.store.reports.stuck import count_behind_failed, count_retried, list_closed
from opendataflow.store.status_counts import Counting

Key = tuple[str, str]
T = TypeVar("T")
HELD_SECONDS = 10.0  # between two looks at what does not go on by itself, also while nothing runs
HELD_SHARE = 20  # and so many times as long as such a look took
HELD_ROWS = 5_000  # failed and waiting ones that it looks at: some hundredths of a second
CLOSE_SECONDS = 1.0  # that a look under way holds up the end


class Seen(NamedTuple):
    """What there is to show."""

    rows: list[Row]
    pause: str  # of everything; empty: none


class Looks:
    """One look after the other, over whatever connection is given."""

    def __init__(self, project: str | None, *, jobs: tuple[str, ...] = ()) -> None:
        self._project, self._jobs = project, jobs
        self._progress, self._counting = Progress(), Counting(project)
        self._held_up, self._pause = NOTHING, ""
        self.next_held = 0.0  # when one is due that has nothing else to do

    def look(self, store: LoopStore, *, is_resting: bool) -> Seen | None:
        """What there is to show; at rest only when something else holds it up than before."""
        now, before = time.monotonic(), (self._pause, self._held_up.reasons)
        if now >= self.next_held:
            self._look_what_is_held_up(store)
        if is_resting and before == (self._pause, self._held_up.reasons):
            return None
        return Seen(self._rows(store, now), self._pause)

    def _look_what_is_held_up(self, store: LoopStore) -> None:
        started, project = time.monotonic(), self._project
        self.next_held = started + HELD_SECONDS
        self._pause = pause_of_all(store)
        reasons = {
            limit[:2]: f"paused by {limit.paused_by}{until_text(limit.paused_until)}"
            for limit in list_limits(store, project=project)
            if limit.paused_by is not None
        }
        for one in list_closed(store, project=project):
            reasons.setdefault((one.project, one.jobid), f"the limit of {one.limit_of} is 0")
        blocked = count_behind_failed(store, project=project, limit=HELD_ROWS)
        retrying = count_retried(store, project=project)
        self._held_up = HeldUp(_named(retrying), _named(blocked), _named(reasons))
        self.next_held += HELD_SHARE * (time.monotonic() - started)

    def _rows(self, store: LoopStore, now: float) -> list[Row]:
        found = self._counting.jobs(store)
        if self._jobs:
            found = {name: of for name, of in found.items() if name.rpartition(".")[2] in self._jobs}
        limits = list_limits(store, project=self._project)
        brakes = _named({limit[:2]: limit.braked_to for limit in limits if limit.braked_to is not None})
        return self._progress.rows(found, now=now, brakes=brakes, held_up=self._held_up)


def _named(of: Mapping[Key, T]) -> dict[str, T]:
    """By the names that the counts have: with their project where there are several."""
    return {name: value for (project, jobid), value in of.items() for name in (jobid, f"{project}.{jobid}")}


class Onlooker:
    """A thread that looks when it is asked to, over a connection of its own; it begins with the first question."""

    def __init__(self, looks: Looks, open_store: Callable[[], LoopStore], *, say: Callable[[str], None]) -> None:
        self.looks = looks
        self._open, self._say = open_store, say
        self._asked, self._is_resting, self._stop = threading.Event(), False, False
        self._seen: Seen | None = None
        self._told = ""
        self.thread: threading.Thread | None = None

    @property
    def is_looking(self) -> bool:
        return self._asked.is_set()

    def ask(self, *, is_resting: bool) -> None:
        """Only while it is not looking."""
        self._is_resting = is_resting
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, name="progress", daemon=True)
            self.thread.start()
        self._asked.set()

    def take(self) -> Seen | None:
        """What was seen since the last time."""
        if self.is_looking:
            return None
        seen, self._seen = self._seen, None
        return seen

    def last(self) -> Seen | None:
        """Wait for one more look, but not for long; None where nobody ever asked."""
        give_up = time.monotonic() + CLOSE_SECONDS
        if self.thread is None:
            return None
        self._wait(give_up)
        self.ask(is_resting=False)
        self._wait(give_up)
        return self.take()

    def _wait(self, give_up: float) -> None:
        while self.is_looking and time.monotonic() < give_up:
            time.sleep(0.005)

    def close(self) -> None:
        self._stop = True
        self._asked.set()
        if self.thread is not None:
            self.thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        store: LoopStore | None = None
        while not self._stop:
            self._asked.wait()
            if self._stop:
                break
            try:
                store = store or self._open()
                self._seen = self.looks.look(store, is_resting=self._is_resting)
                self._told = ""
            except Exception as error:  # noqa: BLE001  a thread that dies silently would show nothing ever again
                self._let_go(store)
                store = None
                told = f"progress: {type(error).__name__}: {error}"
                if not isinstance(error, StoreUnavailable) and told != self._told:  # of that the worker itself speaks
                    self._say(told)
                    self._told = told
            self._asked.clear()
        self._let_go(store)

    @staticmethod
    def _let_go(store: LoopStore | None) -> None:
        if store is not None:
            with contextlib.suppress(DataflowError):
                store.close()
