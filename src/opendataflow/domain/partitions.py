"""Partition schemes: which dataids are expected, in which order."""

import datetime
import re
from collections.abc import Iterator

from opendataflow.errors import UsageError

FULL = "full"
_TRAILING_DIGITS = re.compile(r"[0-9]*\Z")


def natural_key(dataid: str) -> tuple[str, str]:
    """Order of dataids: 9 before 10 before 100, dates as dates; the same order as the stores' sort key."""
    digits = _TRAILING_DIGITS.search(dataid)
    tail = digits.group() if digits else ""
    number = tail.lstrip("0")
    return (f"{dataid[: len(dataid) - len(tail)]}{len(number):03d}{number}", dataid)


def _date(text: str, *, scheme: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{scheme}: {text!r} is not a date like 2025-11-12") from None


def _split_range(text: str) -> tuple[str, str]:
    first, _, last = text.partition("..")
    return first.strip(), last.strip()


def _shards(text: str) -> tuple[int, int, int]:
    first, last = _split_range(text)
    if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
        raise UsageError(f"shards: {text!r} is not a range like 1..10000")
    if int(first) > int(last):
        raise UsageError(f"shards: {text!r} is empty; the first shard is greater than the last")
    return int(first), int(last), len(first) if first.startswith("0") else 0


def check_scheme(scheme: object) -> None:
    """Raise UsageError unless the scheme is one that this version knows."""
    alone = isinstance(scheme, dict) and len(scheme) == 1
    match scheme:
        case "none":
            return
        case {"daily": str(text)} if alone:
            first, last = _split_range(text)
            start = _date(first, scheme="daily")
            if last and _date(last, scheme="daily") < start:
                raise UsageError(f"daily: {text!r} is empty; the first day is after the last")
        case {"shards": str(text)} if alone:
            _shards(text)
        case {"values": [*values]} if alone:
            if not values or not all(isinstance(v, str) and v for v in values) or len(set(values)) < len(values):
                raise UsageError("values: give a list of different, non-empty texts")
        case _:
            raise UsageError(
                f"partitions: {scheme!r} is not none, {{daily: FIRST[..LAST]}}, {{shards: 1..N}} or {{values: […]}}"
            )


def expected_dataids(scheme: object, *, today: datetime.date, after: str | None = None) -> Iterator[str]:
    """The dataids that should exist by now, in order, after the given one: a day counts once it is over."""
    match scheme:
        case "none":
            if after is None:
                yield FULL
        case {"daily": str(text)}:
            first, last = _split_range(text)
            day = _date(first, scheme="daily")
            if after is not None:
                day = max(day, datetime.date.fromisoformat(after) + datetime.timedelta(days=1))
            end = today - datetime.timedelta(days=1)
            if last:
                end = min(end, _date(last, scheme="daily"))
            while day <= end:
                yield day.isoformat()
                day += datetime.timedelta(days=1)
        case {"shards": str(text)}:
            low, high, width = _shards(text)
            if after is not None:
                low = max(low, int(after) + 1)
            for number in range(low, high + 1):
                yield str(number).zfill(width)
        case {"values": [*values]}:
            start_at = values.index(after) + 1 if after in values else 0
            yield from values[start_at:]


def is_dataid(scheme: object, dataid: str) -> bool:
    """True when the dataid can belong to the scheme, expected by now or not."""
    if not dataid:
        return False
    match scheme:
        case "none":
            return dataid == FULL
        case {"daily": str(text)}:
            try:
                day = datetime.date.fromisoformat(dataid)
            except ValueError:
                return False
            first, last = _split_range(text)
            return (
                dataid == day.isoformat()
                and day >= _date(first, scheme="daily")
                and (not last or day <= _date(last, scheme="daily"))
            )
        case {"shards": str(text)}:
            low, high, width = _shards(text)
            return (
                dataid.isascii()
                and dataid.isdigit()
                and low <= int(dataid) <= high
                and dataid == str(int(dataid)).zfill(width)
            )
        case {"values": [*values]}:
            return dataid in values
    return True
