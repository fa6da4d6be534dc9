"""How far the jobs are, how fast it goes, and when it will be done: from counts that are read now and then."""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

WINDOW_SECONDS = 60.0  # over which the rate is taken


class Row(NamedTuple):
    """One job. `rate` is dataids a second, `eta_seconds` None while nothing tells.

    `failed` stay so, `retrying` are tried again by themselves; `left` can come, `blocked` wait for what failed.
    """

    job: str
    done: int
    running: int
    failed: int
    held: int
    left: int
    rate: float
    eta_seconds: float | None
    braked_to: int | None = None
    retrying: int = 0
    blocked: int = 0
    reason: str = ""  # why nothing starts


class HeldUp(NamedTuple):
    """What does not go on by itself: by the name of the job."""

    retrying: Mapping[str, int]
    blocked: Mapping[str, int]
    reasons: Mapping[str, str]


NOTHING = HeldUp({}, {}, {})


class Progress:
    """Takes counts with their time; what was done in between, by whichever worker, makes the rate."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str, int]]] = deque()

    def rows(
        self, counts: Mapping[str, Mapping[str, int]], *, now: float, brakes: Mapping[str, int | None],
        held_up: HeldUp = NOTHING,
    ) -> list[Row]:  # fmt: skip
        """A row for each job that has any dataid."""
        done = {job: of.get("COMPLETE", 0) for job, of in counts.items()}
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_SECONDS:
            self._seen.popleft()
        then, before = self._seen[0]
        return [
            _row(job, of, _rate(done[job] - before.get(job, 0), now - then), brakes.get(job), held_up)
            for job, of in counts.items()
            if any(of.values())
        ]


def _rate(done: int, seconds: float) -> float:
    return max(done, 0) / seconds if seconds > 0 else 0.0


def _row(job: str, of: Mapping[str, int], rate: float, braked_to: int | None, held_up: HeldUp) -> Row:
    open_, failed = of.get("PENDING", 0) + of.get("RESUBMIT", 0), of.get("FAILED", 0)
    # The counts are younger than what was seen to be held up.
    blocked, retrying = min(held_up.blocked.get(job, 0), open_), min(held_up.retrying.get(job, 0), failed)
    left = open_ - blocked
    running = of.get("RUNNING", 0)
    eta = (left + running) / rate if rate > 0 and left + running else None
    return Row(
        job, of.get("COMPLETE", 0), running, failed - retrying, of.get("HOLD", 0), left, rate, eta, braked_to,
        retrying, blocked, held_up.reasons.get(job, ""),
    )  # fmt: skip


def duration(seconds: float | None) -> str:
    """45 s, 12 min, 3 h 20 min, 2 d 4 h: as exact as a person wants it."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"


def line(rows: list[Row]) -> str:
    """All of them as one line for a log."""
    return "; ".join(_told(row) for row in rows if row.left or row.blocked or row.running or row.rate > 0)


def _told(row: Row) -> str:
    parts = [f"{row.done} done", f"{row.running} running"]
    parts += [f"{row.failed} failed"] if row.failed else []
    parts += [f"{row.retrying} to be retried"] if row.retrying else []
    parts += [f"{row.left} left"] if row.left or not row.blocked else []
    parts += [f"{row.blocked} behind what failed"] if row.blocked else []
    parts += [f"{row.rate:.1f}/s"] if row.rate > 0 else []
    parts += [f"done in {duration(row.eta_seconds)}"] if row.eta_seconds is not None else []
    parts += [f"braked to {row.braked_to}"] if row.braked_to is not None else []
    parts += [row.reason] if row.reason else []
    return f"{row.job}: {', '.join(parts)}"
