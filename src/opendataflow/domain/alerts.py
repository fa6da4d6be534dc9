"""Alerts: what somebody is told of, who, and when a message goes out. Nothing here sends."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

LATE_AFTER_SECONDS = 3600.0
GATHER_SECONDS = 30.0
QUIET_SECONDS = 900.0
LONGEST_GATHERING = 4  # times the pause in which nothing new comes
STUCK_TIMES = 5  # as long as usual
STUCK_LEAST_SECONDS = 600.0  # shorter runs are never stuck, unless the job says when
KNOWN_RUNS = 5  # before that, nobody knows what is usual
EXPIRED_SECONDS = 300.0  # a lease that ran out so long ago: nobody is there who would give the work back
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 900.0
GIVE_UP_SECONDS = 86_400.0  # a message that could not be sent for so long is not tried any more
MOST_DEATHS = 2  # of senders in the middle of one message
NEW_WEIGHT = 0.2  # of a run in the moving average


class Event(StrEnum):
    """In the order in which a message tells them."""

    FAILED = "failed"
    STUCK = "stuck"
    LATE = "late"
    RECOVERED = "recovered"


class To(NamedTuple):
    """Where an address is written down in project.yml, and what of it may be shown."""

    place: str
    shown: str


class Settings(NamedTuple):
    """What a job's `notify:` says."""

    to: tuple[To, ...]
    on: frozenset[Event] = frozenset(Event)
    late_after: float = LATE_AFTER_SECONDS
    stuck_after: float | None = None  # None: several times as long as usual
    gather: float = GATHER_SECONDS
    quiet: float = QUIET_SECONDS


class Finding(NamedTuple):
    """Something that somebody is to be told: `jobid` is the job whose `notify:` says whom."""

    event: Event
    project: str
    jobid: str
    subject: str  # job | dataset
    owner: str  # the project of what it is about
    name: str
    dataid: str
    reason: str = ""
    runid: int | None = None


class Pace(NamedTuple):
    """How long runs of a job take, as a moving average of so many."""

    seconds: float
    runs: int

    def after(self, seconds: float) -> "Pace":
        """With one more run."""
        weight = max(NEW_WEIGHT, 1 / (self.runs + 1))
        return Pace(self.seconds * (1 - weight) + seconds * weight, self.runs + 1)


def read_settings(definition: Mapping[str, Any]) -> Settings | None:
    """What a job's definition says of its alerts; None: nobody is told."""
    found = definition.get("notify")
    if not isinstance(found, Mapping) or not found.get("to"):
        return None
    return Settings(
        tuple(To(*one) for one in found["to"]), frozenset(Event(one) for one in found.get("on", Event)),
        float(found.get("late_after", LATE_AFTER_SECONDS)), found.get("stuck_after"),
        float(found.get("gather", GATHER_SECONDS)), float(found.get("quiet", QUIET_SECONDS)),
    )  # fmt: skip


def stuck_limit(settings: Settings, pace: Pace | None) -> float | None:
    """After how many seconds a run counts as stuck; None while nobody can say."""
    if settings.stuck_after is not None:
        return settings.stuck_after
    if pace is None or pace.runs < KNOWN_RUNS:
        return None
    return max(STUCK_LEAST_SECONDS, STUCK_TIMES * pace.seconds)


def due_in(
    settings: Settings, event: Event, *, age: float = 0.0, due: float | None = None, told: Mapping[str, float]
) -> float:
    """In how many seconds the message goes out that this event joins.

    `age` and `due`: how long the message has been gathered, and when it would go out so far (None: it begins now).
    `told`: how many seconds ago the address was told of each kind of event. While more comes the message waits for it,
    but not for ever; a kind that was told a short while ago does not hurry it.
    """
    since = told.get(event)
    is_known = since is not None and since < settings.quiet
    if due is None:
        return max(settings.gather, settings.quiet - (since or 0.0)) if is_known else settings.gather
    if is_known:
        return due
    longest = LONGEST_GATHERING * settings.gather - age
    return max(min(due, settings.gather), min(settings.gather, longest))


def retry_in(attempts: int) -> float:
    """Seconds until a message that could not be sent is tried again."""
    return float(min(RETRY_SECONDS * 2.0 ** min(max(attempts - 1, 0), 32), LONGEST_RETRY_SECONDS))


def summary(counts: Mapping[str, int]) -> str:
    """`100 failed, 3 late`, the gravest first."""
    return ", ".join(f"{counts[one]} {one}" for one in Event if counts.get(one)) or "nothing"


def in_order(events: Iterable[str]) -> str:
    """The kinds, each once, as a message's row keeps them."""
    known = set(events)
    return " ".join(one for one in Event if one in known)
