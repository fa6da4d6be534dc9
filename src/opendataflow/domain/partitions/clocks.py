"""Clocks: inputs that are always READY for the current slot, and how their slots are called.

A slot begins at a moment and has a name that no other slot of its clock has, also when a zone's clocks are changed.
"""

import datetime
import re
from typing import Literal, NamedTuple

from opendataflow.errors import UsageError

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
DAY_SECONDS = 86400
_EVERY = re.compile(r"([0-9]{1,6})([mhd])")
_UNIT_SECONDS = {"m": 60, "h": 3600, "d": DAY_SECONDS}
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SPECIAL_DAY = re.compile(r"LW?")  # the last day, or the last weekday, of the month
_SPECIAL_WEEKDAY = re.compile(r"[0-7]L|([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)#[1-5]")  # the last, or the nth, of the month


class Clock(NamedTuple):
    kind: Literal["today", "hourly", "every", "cron"]
    every_seconds: int | None = None
    cron: str | None = None  # five fields
    timezone: str = "UTC"  # of `today` and `cron`; the others count in UTC


def find_clock(name: str, timezone: str | None = None) -> Clock | None:
    """The clock that an input's name stands for, None for any other name; a malformed clock is a UsageError.

    Clocks: `today`, `hourly`, `every 30m`, `cron 0 3 * * *`, `cron 0 3 * * * Europe/Berlin`.
    """
    word, *rest = name.split() or [""]
    if word not in ("today", "hourly", "every", "cron") or (word in ("today", "hourly")) == bool(rest):
        return None
    if word == "cron" and len(rest) == 6 and rest[-1][0].isalpha():
        timezone = rest.pop()
    zone = timezone or "UTC"
    get_zone(zone)
    match word:
        case "today":
            return Clock("today", timezone=zone)
        case "hourly":
            return Clock("hourly")
        case "every":
            return Clock("every", every_seconds=_every_seconds(name, " ".join(rest)))
    _check_cron(name, rest)
    return Clock("cron", cron=" ".join(rest), timezone=zone)


def get_zone(name: str) -> datetime.tzinfo:
    """The time zone of that IANA name, or UsageError."""
    if name == "UTC":
        return UTC
    import zoneinfo  # only for those who use zones: it reads files

    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"{name!r} is not a time zone like Europe/Berlin or UTC") from None


def _every_seconds(name: str, text: str) -> int:
    found = _EVERY.fullmatch(text)
    seconds = int(found[1]) * _UNIT_SECONDS[found[2]] if found else 0
    if seconds < 60:
        raise UsageError(
            f"{name!r}: give minutes, hours or days, at least 1m, like `every 30m`, `every 6h`, `every 1d`"
        )
    if DAY_SECONDS % seconds and seconds % DAY_SECONDS:
        raise UsageError(
            f"{name!r}: this does not divide a day evenly; use one that does, like 30m or 6h, or whole days"
        )
    return seconds


# Cron -----------------------------------------------------------------------------------------------------------------
def _check_cron(name: str, fields: list[str]) -> None:
    """Raise UsageError unless these are the five fields of a cron expression that can come true."""
    if len(fields) != 5:
        raise UsageError(
            f"{name!r}: cron takes five fields (minute, hour, day, month, weekday) and optionally a time zone, "
            "like `cron 0 3 * * * Europe/Berlin`"
        )
    minute, hour, day, month, weekday = (field.upper() for field in fields)
    _values(name, "a minute", minute, 0, 59)
    _values(name, "an hour", hour, 0, 23)
    days = _values(name, "a day", day, 1, 31, special=_SPECIAL_DAY)
    months = _values(name, "a month", month, 1, 12, words=_MONTHS, base=1)
    _values(name, "a weekday", weekday, 0, 7, words=_WEEKDAYS, special=_SPECIAL_WEEKDAY)
    # Where neither field begins with a star, the weekday alone is enough for a day to match.
    both = day.startswith("*") or weekday.startswith("*")
    if both and days and min(days) > max(_MONTH_DAYS[number - 1] for number in months):
        raise UsageError(f"{name!r}: no such month has a day {min(days)}, so it would never come")


def _values(
    name: str,
    field: str,
    text: str,
    low: int,
    high: int,
    *,
    words: tuple[str, ...] = (),
    base: int = 0,
    special: re.Pattern[str] | None = None,
) -> set[int]:
    """The numbers a field stands for; empty when it also has special days."""

    def number(part: str) -> int:
        value = words.index(part) + base if part in words else int(part) if re.fullmatch("[0-9]{1,4}", part) else -1
        if not low <= value <= high:
            raise UsageError(f"{name!r}: {part!r} is not {field} ({low}–{high}{_or_words(words)})")
        return value

    values: set[int] = set()
    specials = False
    for item in text.split(","):
        if special and special.fullmatch(item):
            specials = True
            continue
        span, slash, step = item.partition("/")
        first, dash, last = span.partition("-")
        begin, end = (low, high) if span == "*" else (number(first), number(last) if dash else number(first))
        if slash and not dash:
            end = high
        if end < begin:
            raise UsageError(f"{name!r}: {span!r} ends before it begins")
        if slash and not (re.fullmatch("[0-9]{1,4}", step) and 1 <= int(step) <= high):
            raise UsageError(f"{name!r}: the step in {item!r} is not a number from 1 to {high}")
        values.update(range(begin, end + 1, int(step or 1)))
    return set() if specials else values


def _or_words(words: tuple[str, ...]) -> str:
    return f" or {words[0]}–{words[-1]}" if words else ""


def is_fixed(clock: Clock) -> bool:
    """True for a cron at fixed times: it keeps to them over a change of the clocks, as Debian's cron does."""
    return not any(field.startswith("*") for field in (clock.cron or "*").split()[:2])


def daily_time(clock: Clock) -> datetime.time | None:
    """The time of day of a cron that comes at most once a day, else None."""
    minute, hour, *_ = (clock.cron or "* *").split()
    return datetime.time(int(hour), int(minute)) if minute.isdecimal() and hour.isdecimal() else None


# Local time -----------------------------------------------------------------------------------------------------------
def moment_of(local: datetime.datetime, zone: datetime.tzinfo) -> datetime.datetime:
    """The moment (UTC) of a local time: the first of two; the end of the gap for one that is skipped."""
    first = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if local_time(first, zone) == local:
        return first
    before = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    gap = int((first - before).total_seconds())
    offset = before.astimezone(zone).utcoffset()
    low, high = 0, gap  # the change lies after `low` and not after `high`
    while high - low > 1:
        middle = (low + high) // 2
        if (before + datetime.timedelta(seconds=middle)).astimezone(zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return before + datetime.timedelta(seconds=high)


def local_time(moment: datetime.datetime, zone: datetime.tzinfo) -> datetime.datetime:
    """What the clocks of the zone show, without the zone."""
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def day_start(clock: Clock, day: datetime.date) -> datetime.datetime:
    """When the slot of a local date begins: at midnight, or at the time of day of a daily cron."""
    at = daily_time(clock) or datetime.time()
    return moment_of(datetime.datetime.combine(day, at), get_zone(clock.timezone))


# Names ----------------------------------------------------------------------------------------------------------------
def slot_name(clock: Clock, moment: datetime.datetime) -> str:
    """The name of the slot that holds the moment; for a cron, of the slot that begins at it."""
    moment = moment.astimezone(UTC)
    match clock.kind:
        case "hourly":
            return f"{moment:%Y-%m-%dT%H}"
        case "every":
            begin = slot_begin(clock.every_seconds or 1, moment)
            return _day(begin) if (clock.every_seconds or 1) % DAY_SECONDS == 0 else _minute(begin)
        case "cron" if daily_time(clock) is None:
            return _minute(moment)
    day = local_time(moment, get_zone(clock.timezone)).date()
    if clock.kind == "cron":
        # A time that a change of the clocks skips may come at the next midnight; it still belongs to its own day.
        before = day - datetime.timedelta(days=1)
        return (before if day_start(clock, day) != moment == day_start(clock, before) else day).isoformat()
    # Where the clocks go back over midnight, the day that has begun stays.
    after = day + datetime.timedelta(days=1)
    return (after if day_start(clock, after) <= moment else day).isoformat()


def slot_begin(seconds: int, moment: datetime.datetime) -> datetime.datetime:
    """When the slot of so many seconds that holds the moment begins; slots are counted from 1970-01-01 UTC."""
    length = datetime.timedelta(seconds=seconds)
    return EPOCH + (moment - EPOCH) // length * length


def _day(moment: datetime.datetime) -> str:
    return moment.date().isoformat()


def _minute(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M")
