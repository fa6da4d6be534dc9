"""Self-braking: when the recent runs of a job fail or slow down, fewer of them at once; when they are well, more again.

Only what is seen decides here; who asks keeps the limit in the store and tells why.
"""

import statistics
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

WINDOW = 20  # runs that a decision looks at
USUAL = 10  # windows of good runs that say what a usual time is


class BrakeSettings(NamedTuple):
    """`brake:` of a job. A part that is None does not brake."""

    failures: float | None = 0.2  # the part of the window that failed
    slower: float | None = None  # how many times the usual run time
    window: int = WINDOW


class Change(NamedTuple):
    """A new limit (None: braked no longer), and why."""

    becomes: int | None
    reason: str


def brake_settings(definition: Mapping[str, object]) -> BrakeSettings | None:
    """What the job asks for, None when it does not want to be braked."""
    found = definition.get("brake")
    if not isinstance(found, dict):
        return None
    failures, slower = found.get("failures"), found.get("slower")
    if failures is None and slower is None:
        failures = BrakeSettings().failures
    return BrakeSettings(
        None if failures is None else float(failures), None if slower is None else float(slower),
        int(found.get("window") or WINDOW),
    )  # fmt: skip


class Brake:
    """What a worker has seen of one job. Every decision needs a whole window of runs since the last one."""

    def __init__(self, settings: BrakeSettings) -> None:
        self.settings = settings
        self._recent: deque[tuple[bool, float]] = deque(maxlen=settings.window)
        self._usual: deque[float] = deque(maxlen=settings.window * USUAL)
        self._top: int | None = None  # what it was braked from, where no limit says

    def note(self, *, failed: bool, seconds: float) -> bool:
        """One more run; True when there is enough to decide."""
        self._recent.append((failed, seconds))
        return len(self._recent) == self.settings.window

    def decide(self, *, limit: int | None, braked_to: int | None, live: int) -> Change | None:
        """What becomes of the limit: half of it, a step back, or nothing. The window begins anew.

        `limit` is the job's own, without the brake; `live` how many of its runs there are now.
        """
        trouble = self._trouble()
        seen = list(self._recent)
        self._recent.clear()
        if trouble:
            now = braked_to if braked_to is not None else limit if limit is not None else max(live, 1)
            if braked_to is None:
                self._top = now
            return Change(max(1, now // 2), trouble) if now > 1 else None
        self._usual.extend(seconds for failed, seconds in seen if not failed)
        if braked_to is None:
            return None
        top = limit if limit is not None else self._top or max(live, 1) * 2
        becomes = braked_to + max(1, braked_to // 2)
        failed = sum(failed for failed, _ in seen)
        calm = f"{failed} of the last {len(seen)} runs failed, and they took no longer than usual"
        return Change(becomes if becomes < top else None, calm)

    def _trouble(self) -> str:
        """Why fewer should run at once; empty when all is well."""
        settings, seen = self.settings, self._recent
        failed = sum(failed for failed, _ in seen)
        if settings.failures is not None and failed / len(seen) >= settings.failures:
            return f"{failed} of the last {len(seen)} runs failed, the limit is {settings.failures:.0%}"
        times = [seconds for failed, seconds in seen if not failed]
        if settings.slower is not None and len(times) >= 2 and len(self._usual) >= settings.window:
            usual, now = statistics.median(self._usual), statistics.median(times)
            if now > usual * settings.slower:
                return f"the last runs took {now:.3g} s, more than {settings.slower:g} times the usual {usual:.3g} s"
        return ""
