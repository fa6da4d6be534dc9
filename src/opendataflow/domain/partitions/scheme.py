"""Partition schemes: which dataids are expected, in which order.

A scheme counts its dataids: every dataid has a place, a whole number that is one more for the next dataid. So counting,
shifting and finding the latest are arithmetic, however long the history is.
"""

import datetime
import functools
import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from opendataflow.errors import UsageError

FULL = "full"
TIME_KINDS = ("daily", "hourly", "monthly")
SCHEMES = (
    "none, {daily: FIRST[..LAST]}, {hourly: FIRST[..LAST]}, {monthly: FIRST[..LAST]}, {sequence: 1[..LAST]}, "
    "{shards: 1..N} or {values: […]}"
)
_TRAILING_DIGITS = re.compile(r"[0-9]*\Z")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_HOUR = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([01][0-9]|2[0-3])")
_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")
_NUMBER = re.compile(r"[0-9]{1,1000}")  # Python reads no number of more than 4300 digits
MOST_IN_RANGE = 100_000  # dataids of one FIRST..LAST
_WIDTHS = {"daily": 10, "hourly": 13, "monthly": 7}
_DIGITS = {"daily": 8, "hourly": 10, "monthly": 6}
_LAST_DAY = datetime.date.max.toordinal()


class _Scheme(NamedTuple):
    """A scheme that was read: the places of its first and last dataid, and how a dataid is written."""

    kind: str
    first: int
    last: int | None  # None: it goes on
    width: int = 0  # of numbers with leading zeros
    values: tuple[str, ...] = ()


def natural_key(dataid: str) -> tuple[str, str]:
    """Order of dataids: 9 before 10 before 100, dates as dates; the same order as the stores' sort key."""
    digits = _TRAILING_DIGITS.search(dataid)
    tail = digits.group() if digits else ""
    number = tail.lstrip("0")
    return (f"{dataid[: len(dataid) - len(tail)]}{len(number):03d}{number}", dataid)


# Places ---------------------------------------------------------------------------------------------------------------
def _day_place(text: str) -> int | None:
    if not _DAY.fullmatch(text):
        return None
    try:
        return datetime.date.fromisoformat(text).toordinal()
    except ValueError:
        return None


def _hour_place(text: str) -> int | None:
    hour = _HOUR.fullmatch(text)
    day = _day_place(hour[1]) if hour else None
    return None if hour is None or day is None else day * 24 + int(hour[2])


def _month_place(text: str) -> int | None:
    month = _MONTH.fullmatch(text)
    return int(month[1]) * 12 + int(month[2]) - 1 if month and int(month[1]) else None


def _place(scheme: _Scheme, dataid: str) -> int | None:
    """The place of a dataid that is written as the scheme writes it, also before its first or after its last."""
    match scheme.kind:
        case "daily":
            return _day_place(dataid)
        case "hourly":
            return _hour_place(dataid)
        case "monthly":
            return _month_place(dataid)
        case "sequence" | "shards":
            number = int(dataid) if _NUMBER.fullmatch(dataid) else None
            return number if number is not None and dataid == str(number).zfill(scheme.width) else None
    return scheme.values.index(dataid) if dataid in scheme.values else None


def _bounds(scheme: _Scheme) -> tuple[int, int | None]:
    """The lowest and highest place that can be written at all."""
    match scheme.kind:
        case "daily":
            return 1, _LAST_DAY
        case "hourly":
            return 24, _LAST_DAY * 24 + 23
        case "monthly":
            return 12, 9999 * 12 + 11
        case "sequence" | "shards":
            return 0, None
    return 0, len(scheme.values) - 1


def _written(scheme: _Scheme, place: int) -> str:
    match scheme.kind:
        case "daily":
            return datetime.date.fromordinal(place).isoformat()
        case "hourly":
            return f"{datetime.date.fromordinal(place // 24).isoformat()}T{place % 24:02d}"
        case "monthly":
            return f"{place // 12:04d}-{place % 12 + 1:02d}"
        case "sequence" | "shards":
            return str(place).zfill(scheme.width)
    return scheme.values[place]


def _place_at(kind: str, moment: datetime.datetime) -> int:
    """The place of the slot that holds the moment."""
    moment = moment.astimezone(datetime.UTC)
    if kind == "monthly":
        return moment.year * 12 + moment.month - 1
    day = moment.toordinal()
    return day if kind == "daily" else day * 24 + moment.hour


def _start(kind: str, place: int) -> datetime.datetime:
    if kind == "monthly":
        return datetime.datetime(place // 12, place % 12 + 1, 1, tzinfo=datetime.UTC)
    day = datetime.date.fromordinal(place if kind == "daily" else place // 24)
    return datetime.datetime(day.year, day.month, day.day, place % 24 if kind == "hourly" else 0, tzinfo=datetime.UTC)


# Reading a scheme -----------------------------------------------------------------------------------------------------
def _read(scheme: object) -> _Scheme:
    match scheme:
        case "none":
            return _Scheme("none", 0, 0, values=(FULL,))
        case {"daily": str(text), **other} if not other:
            return _read_time("daily", text, "a date like 2025-11-12")
        case {"hourly": str(text), **other} if not other:
            return _read_time("hourly", text, "a date like 2025-11-12 or an hour like 2025-11-12T13")
        case {"monthly": str(text), **other} if not other:
            return _read_time("monthly", text, "a month like 2025-11")
        case {"sequence": str() | int() as start, **other} if not other and not isinstance(start, bool):
            return _read_numbers("sequence", str(start), "a start like 1 or a range like 1..100")
        case {"shards": str(text), **other} if not other:
            return _read_numbers("shards", text, "a range like 1..10000")
        case {"values": [*values], **other} if not other:
            if not values or not all(isinstance(v, str) and v for v in values) or len(set(values)) < len(values):
                raise UsageError("values: give a list of different, non-empty texts")
            return _Scheme("values", 0, len(values) - 1, values=tuple(values))
    raise UsageError(f"partitions: {scheme!r} is not {SCHEMES}")


def _split_range(text: str) -> tuple[str, str]:
    first, _, last = text.partition("..")
    return first.strip(), last.strip()


def _read_time(kind: str, text: str, form: str) -> _Scheme:
    def place(part: str, hour: str) -> int:
        if kind == "hourly" and _DAY.fullmatch(part):  # a day stands for its first or its last hour
            found = _hour_place(part + hour)
        else:
            found = _place(_Scheme(kind, 0, None), part)
        if found is None:
            raise UsageError(f"{kind}: {part!r} is not {form}")
        return found

    first, last = _split_range(text)
    read = _Scheme(kind, place(first, "T00"), place(last, "T23") if last else None)
    if read.last is not None and read.last < read.first:
        unit = {"daily": "day", "hourly": "hour", "monthly": "month"}[kind]
        raise UsageError(f"{kind}: {text!r} is empty; the first {unit} is after the last")
    return read


def _read_numbers(kind: str, text: str, form: str) -> _Scheme:
    first, last = _split_range(text)
    if not _NUMBER.fullmatch(first) or not (_NUMBER.fullmatch(last) or (kind == "sequence" and not last)):
        raise UsageError(f"{kind}: {text!r} is not {form}")
    if last and int(first) > int(last):
        unit = "shard" if kind == "shards" else "number"
        raise UsageError(f"{kind}: {text!r} is empty; the first {unit} is greater than the last")
    width = len(first) if first.startswith("0") else 0
    return _Scheme(kind, int(first), int(last) if last else None, width)


def _read_form(dataid: str) -> _Scheme | None:
    """How a dataid of no known scheme is counted, from the way it is written."""
    for kind in TIME_KINDS:
        form = _Scheme(kind, 0, None)
        if _place(form, dataid) is not None:
            return form
    if _NUMBER.fullmatch(dataid):
        return _Scheme("sequence", 0, None, len(dataid) if dataid.startswith("0") else 0)
    return None


def check_scheme(scheme: object) -> None:
    """Raise UsageError unless the scheme is one that this version knows."""
    _read(scheme)


def kind(scheme: object) -> str:
    """The kind of a scheme: none, daily, hourly, monthly, sequence, shards or values."""
    return _read(scheme).kind


def kind_of(partitions: str) -> str:
    """The kind of a scheme that is this JSON."""
    return _read_json(partitions).kind


def find_kind(dataid: str) -> str | None:
    """The kind of a dataid of no known scheme, from the way it is written: daily, hourly, monthly, sequence or None."""
    form = _read_form(dataid)
    return None if form is None else form.kind


def first_dataid(scheme: object) -> str:
    """The first dataid of a scheme."""
    read = _read(scheme)
    return _written(read, read.first)


def is_open_sequence(scheme: object) -> bool:
    """True for a sequence without an end: only what was seen says how far it goes."""
    read = _read(scheme)
    return read.kind == "sequence" and read.last is None


# What is expected -----------------------------------------------------------------------------------------------------
def _last_expected(scheme: _Scheme, now: datetime.datetime, highest: str | None) -> int:
    """The place of the last dataid that should exist by now; before the first when there is none."""
    if scheme.kind in TIME_KINDS:
        over = _place_at(scheme.kind, now) - 1
        return over if scheme.last is None else min(over, scheme.last)
    if scheme.last is not None:
        return scheme.last
    seen = _place(scheme, highest) if highest is not None else None
    return scheme.first - 1 if seen is None else seen


def expected_dataids(
    scheme: object, *, now: datetime.datetime, after: str | None = None, highest: str | None = None
) -> Iterator[str]:
    """The dataids that should exist by now, in order, after the given one.

    A day, hour or month counts once it is over; an open sequence goes up to `highest`, the highest number seen so far.
    """
    read = _read(scheme)
    first = read.first
    done = _place(read, after) if after is not None else None
    if done is not None:
        first = max(first, done + 1)
    for place in range(first, _last_expected(read, now, highest) + 1):
        yield _written(read, place)


def count_expected(scheme: object, *, now: datetime.datetime, highest: str | None = None) -> int:
    """How many dataids should exist by now."""
    read = _read(scheme)
    return max(0, _last_expected(read, now, highest) - read.first + 1)


def latest_expected(scheme: object, *, now: datetime.datetime, limit: int, highest: str | None = None) -> list[str]:
    """The last of the dataids that should exist by now, at most so many, in order."""
    read = _read(scheme)
    last = _last_expected(read, now, highest)
    return [_written(read, place) for place in range(max(read.first, last - limit + 1), last + 1)]


def is_dataid(scheme: object, dataid: str) -> bool:
    """True when the dataid can belong to the scheme, expected by now or not."""
    read = _read(scheme)
    place = _place(read, dataid)
    return place is not None and _is_in_range(read, place)


def _is_in_range(scheme: _Scheme, place: int) -> bool:
    return scheme.first <= place and (scheme.last is None or place <= scheme.last)


# A dataid becomes part of paths and of scripts' variables, and comes from requests, file names and SQL. --------------
@functools.lru_cache(maxsize=1024)
def _read_json(partitions: str) -> _Scheme:
    return _read(json.loads(partitions))


def is_file_name(dataid: str) -> bool:
    """True when the dataid can be the name of one file: as part of a path it leads to no other folder."""
    return dataid not in ("", ".", "..") and "/" not in dataid and dataid.isprintable()


def why_no_dataid(name: str, partitions: str | None, dataid: str, *, in_range: bool = False) -> str:
    """Why `name`, a dataset or job whose scheme is this JSON, cannot have the dataid; empty when it can.

    Without a scheme a dataid is a file name. With `in_range`, it must not lie before the scheme's first or after its
    last, where chunks may be from before the scheme was changed.
    """
    if partitions is None:
        return "" if is_file_name(dataid) else f"{dataid!r} is not a dataid of {name}: it is not the name of one file"
    scheme = _read_json(partitions)
    place = _place(scheme, dataid)
    if place is not None and not (in_range and not _is_in_range(scheme, place)):
        return ""
    near = _nearest(scheme, dataid)
    mean = f"; did you mean {near!r}?" if near else ""
    return f"{dataid!r} is not a dataid of {name}, whose partitions are {partitions}{mean}"


def _nearest(scheme: _Scheme, dataid: str) -> str:
    """The dataid of the scheme with the same digits, like 2025-11-01 for 20251101; empty when there is none."""
    digits = "".join(_NUMBER.findall(dataid))[:20]
    if scheme.kind in TIME_KINDS:
        marks = "0123-45-67T89"
        near = "".join(mark if mark in "-T" else digits[int(mark) : int(mark) + 1] for mark in marks)
        near = near[: _WIDTHS[scheme.kind]] if len(digits) >= _DIGITS[scheme.kind] else ""
    else:
        near = str(int(digits)).zfill(scheme.width) if digits and scheme.kind in ("sequence", "shards") else ""
    place = _place(scheme, near) if near else None
    return near if place is not None and _is_in_range(scheme, place) and near != dataid else ""


def check_like(name: str, dataid: str, other: str) -> None:
    """Raise UsageError for a dataid of a dataset without a scheme that is a time, but not written as `other` is."""
    form = _read_form(other)
    if form is not None and form.kind in TIME_KINDS and _place(form, dataid) is None:
        near = _nearest(form, dataid)
        if near:
            raise UsageError(f"{dataid!r} is not a dataid like those of {name}, as {other}; did you mean {near!r}?")


def check_dataid(name: str, partitions: str | None, dataid: str) -> None:
    """Raise UsageError for a dataid that the dataset or job cannot have."""
    if problem := why_no_dataid(name, partitions, dataid, in_range=True):
        raise UsageError(problem)


def is_range(partitions: str | None, text: str) -> bool:
    """True for FIRST..LAST, unless a dataid of the scheme (JSON) is written so."""
    if ".." not in text or "/" in text:  # no dataid has a slash: ../x is a path
        return False
    return partitions is None or not is_dataid(json.loads(partitions), text)


def expand_ranges(name: str, partitions: str | None, texts: Iterable[str]) -> list[str]:
    """The texts, with each FIRST..LAST replaced by all dataids of that range; each dataid once.

    `name` is a dataset or job whose scheme is this JSON. Raises UsageError for what is no range of it.
    """
    scheme = json.loads(partitions) if partitions is not None else None
    found: dict[str, None] = {}
    for text in texts:
        if not is_range(partitions, text):
            found[text] = None
            continue
        first, _, last = text.partition("..")
        for end in (first, last):
            check_dataid(name, partitions, end)
        dataids = dataids_between(first, last, scheme)
        if not dataids:
            raise UsageError(f"{text!r} is no range of {name}: no dataids run from the one to the other")
        found |= dict.fromkeys(dataids)
    return list(found)


def dataids_between(first: str, last: str, scheme: object | None) -> tuple[str, ...]:
    """From the one to the other, both of them too; nothing when they are not counted, or not in this order.

    Raises UsageError where they are too many to be listed.
    """
    axis = find_axis(scheme, first)
    start, stop = (None if axis is None else _place(axis, end) for end in (first, last))
    if axis is None or start is None or stop is None:
        return ()
    if stop - start >= MOST_IN_RANGE:
        many = f"{first} to {last} are {stop - start + 1:,} dataids"
        raise UsageError(f"{many}; give at most {MOST_IN_RANGE:,} at once")
    return tuple(_written(axis, place) for place in range(start, stop + 1))


# Neighbours and slots -------------------------------------------------------------------------------------------------
def shift(dataid: str, by: int, scheme: object | None) -> str | None:
    """The dataid so many places later (or earlier, below 0), or None where there is none.

    Without a scheme the way the dataid is written decides; before 100 comes 99 then, never 099.
    The result may lie before the scheme's first or after its last, except in a list of values.
    """
    found = _around(dataid, by, by, scheme)
    return found[0] if found else None


def window(dataid: str, size: int, scheme: object | None) -> tuple[str, ...]:
    """The dataid and the size - 1 before it, in order; fewer where there is nothing before."""
    return _around(dataid, 1 - size, 0, scheme)


def _around(dataid: str, earliest: int, latest: int, scheme: object | None) -> tuple[str, ...]:
    read = _read_form(dataid) if scheme is None else _read(scheme)
    place = None if read is None else _place(read, dataid)
    if read is None or place is None:
        return ()
    low, high = _bounds(read)
    last = place + latest if high is None else min(place + latest, high)
    return tuple(_written(read, at) for at in range(max(place + earliest, low), last + 1))


def slot_of(dataid: str, scheme: object | None) -> tuple[datetime.datetime, datetime.datetime] | None:
    """Start and end of a day, hour or month (UTC); None for a dataid that is no time."""
    read = _read_form(dataid) if scheme is None else _read(scheme)
    if read is None or read.kind not in TIME_KINDS:
        return None
    place = _place(read, dataid)
    if place is None or place == _bounds(read)[1]:  # the end of the very last slot has no date
        return None
    return _start(read.kind, place), _start(read.kind, place + 1)


def slot_of_json(dataid: str, partitions: str | None) -> tuple[datetime.datetime, datetime.datetime] | None:
    """As `slot_of`, for a scheme that is this JSON."""
    return slot_of(dataid, None if partitions is None else json.loads(partitions))


def dataids_within(scheme: object, start: datetime.datetime, end: datetime.datetime) -> tuple[str, ...]:
    """The dataids of a daily, hourly or monthly scheme whose slots begin in the given time, in order."""
    read = _read(scheme)
    if read.kind not in TIME_KINDS:
        return ()
    first, last = _place_at(read.kind, start), _place_at(read.kind, end)
    if _start(read.kind, first) < start:
        first += 1
    if _start(read.kind, last) >= end:
        last -= 1
    if read.last is not None:
        last = min(last, read.last)
    return tuple(_written(read, place) for place in range(max(first, read.first), last + 1))


# Axes -----------------------------------------------------------------------------------------------------------------
Axis = _Scheme


def find_axis(scheme: object | None, like: str | None) -> Axis | None:
    """How dataids are counted: by the scheme, or without one by the way such a dataid is written; None: not at all."""
    if scheme is not None:
        return _read(scheme)
    return _read_form(like) if like is not None else None


def place_of(axis: Axis, dataid: str) -> int | None:
    """The place of a dataid that is written as the axis writes it."""
    return _place(axis, dataid)


def dataid_at(axis: Axis, place: int) -> str:
    """The dataid of a place that the axis can write."""
    return _written(axis, place)


def last_expected_place(axis: Axis, *, now: datetime.datetime) -> int:
    """The place of the last dataid that should exist by now; one before the first when there is none, or no end."""
    return _last_expected(axis, now, None)
