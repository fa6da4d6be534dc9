"""Moments as people write them: 2h, 02:10, 2025-11-12T02:10; windows, and ends that lie ahead."""

import datetime
import re
import time

from opendataflow.errors import UsageError

_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
_AGO = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_FROM_NOW = _AGO
_FIRST, _LAST = -62_135_596_800.0, 253_402_300_799.999  # of the years 1 to 9999: no store holds others
_DAYTIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def moment(text: str, *, end: bool = False) -> float:
    """Seconds since the epoch of `2h` (ago), a date or a time (UTC unless it says so); a date may mean its end."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return _within(text, time.time() - float(ago.group(1)) * _UNITS[ago.group(2)])
    try:
        at = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        told = f"{text!r} is not a time like 2025-11-12, 2025-11-12T02:10 or 2h (ago)"
        raise UsageError(told) from None
    if at.tzinfo is None:
        at = at.replace(tzinfo=datetime.UTC)
    is_date = len(text.strip()) <= len("2025-11-12")
    return _within(text, at.timestamp() + (86_399.999 if end and is_date else 0))


def _within(text: str, seconds: float) -> float:
    if not _FIRST <= seconds <= _LAST:
        raise UsageError(f"{text.strip()[:40]!r} is further away than any calendar goes")
    return seconds


def window(text: str) -> tuple[float, float]:
    """Beginning and end of `02:10..03:40` (UTC; the latest that has begun), of two full times, or `02:10..now`."""
    first, dots, last = (part.strip() for part in text.partition(".."))
    if not (first and dots):
        told = f"{text!r} is not a window like 02:10..03:40, 02:10..now or 2025-11-12T02:10..2025-11-12T03:40"
        raise UsageError(told)
    now = time.time()
    is_clock = (_CLOCK.fullmatch(first) is not None, _CLOCK.fullmatch(last) is not None)
    if is_clock == (False, True):
        start = moment(first)
        end = _at_clock(last, start)
    elif is_clock[0]:
        end = now if is_clock[1] or last in ("", "now") else moment(last, end=True)
        start = _at_clock(first, end)
        start -= _UNITS["d"] if start > end else 0
        if is_clock[1]:  # its end may still lie ahead: whoever types it at 03:30 means this night
            end = _at_clock(last, start)
            end += _UNITS["d"] if end < start else 0  # 23:50..00:20
    else:
        start, end = moment(first), now if last in ("", "now") else moment(last, end=True)
    if start > end:
        raise UsageError(f"the window {text!r} ends before it begins")
    if start > now:
        raise UsageError(f"the window {text!r} has not begun yet")
    return start, end


def _at_clock(text: str, on: float) -> float:
    """That time of day, on the day of the moment (UTC)."""
    try:
        at = datetime.time.fromisoformat(text if len(text.partition(":")[0]) == 2 else f"0{text}")
    except ValueError:
        raise UsageError(f"{text!r} is not a time of day like 02:10") from None
    return datetime.datetime.combine(datetime.datetime.fromtimestamp(on, datetime.UTC), at, datetime.UTC).timestamp()


def end_of_pause(text: str) -> float:
    """Seconds since the epoch of the end of a pause; it must lie ahead."""
    now = time.time()
    if from_now := _FROM_NOW.fullmatch(text.strip()):
        return 2 * now - moment(from_now.group())
    if clock := _DAYTIME.fullmatch(text.strip()):
        at = datetime.datetime.fromtimestamp(now, datetime.UTC)
        at = at.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        return at.timestamp() + (86_400 if at.timestamp() <= now else 0)
    try:
        end = moment(text)
    except UsageError:
        raise UsageError(
            f"{text!r} is not an end like 2h (from now), 06:30, 2025-11-12 or 2025-11-12T06:30 (UTC)"
        ) from None
    if end <= now:
        raise UsageError(f"{text} is over already; give a time that lies ahead")
    return end
