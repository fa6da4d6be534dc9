"""Which slots of a clock have begun since the last one."""

import datetime
import re
from collections.abc import Iterator

from opendataflow.domain.partitions.clocks import (
    UTC,
    Clock,
    day_start,
    get_zone,
    is_fixed,
    local_time,
    moment_of,
    slot_begin,
    slot_name,
)
from opendataflow.errors import UsageError

_SLOT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:T([0-9]{2})(?::([0-9]{2}))?)?")
# No zone's clocks were set back by more than seven hours since 1970.
SLACK = datetime.timedelta(hours=8)
ONE_DAY = datetime.timedelta(days=1)
ONE_SECOND = datetime.timedelta(seconds=1)
_AHEAD = tuple(datetime.timedelta(days=days) for days in (0.05, 1.1, 40, 400, 3000))  # 29 February may be 8 years away


def due_slots(
    clock: Clock, *, after: datetime.datetime | None, now: datetime.datetime
) -> list[tuple[str, datetime.datetime]]:
    """Names and beginnings of the slots that began after `after` and not later than `now`, in order.

    Without `after`, only the current slot: the latest that has begun.
    """
    now = now.astimezone(UTC)
    if after is None:
        starts = _current(clock, now)
    else:
        starts = [start for start in _starts(clock, after.astimezone(UTC), now) if after < start <= now]
    return [(slot_name(clock, start), start) for start in starts]


def next_slot(clock: Clock, *, after: datetime.datetime) -> tuple[str, datetime.datetime] | None:
    """Name and beginning of the first slot that begins after this moment; None when none comes in years."""
    for ahead in _AHEAD:
        found = due_slots(clock, after=after, now=after + ahead)
        if found:
            return found[0]
    return None


def slot_start(clock: Clock, name: str) -> datetime.datetime:
    """When the slot of that name begins; the name may come from another clock that the job had before."""
    found = _SLOT.fullmatch(name)
    try:
        if not found:
            raise ValueError
        day, hour, minute = datetime.date.fromisoformat(found[1]), found[2], found[3]
        if hour is None and clock.kind in ("today", "cron"):
            return day_start(clock, day)
        return datetime.datetime.combine(day, datetime.time(int(hour or 0), int(minute or 0)), tzinfo=UTC)
    except ValueError:
        raise UsageError(f"{name!r} is not a slot like 2025-11-12, 2025-11-12T13 or 2025-11-12T13:30") from None


def _current(clock: Clock, now: datetime.datetime) -> list[datetime.datetime]:
    if clock.kind != "cron":
        return [slot_start(clock, slot_name(clock, now))]
    from cronsim import CronSim

    zone = get_zone(clock.timezone)
    # From an earlier match onwards: what it stands for may have been skipped, so it is only where to look from.
    begin = local_time(now, zone) - _slack(zone, now)
    for earlier in CronSim(clock.cron or "", begin, reverse=True):
        after = moment_of(earlier, zone) - ONE_SECOND
        starts = [start for start in _cron_starts(clock, after, now) if after < start <= now]
        if starts:
            return starts[-1:]
    return []


def _starts(clock: Clock, after: datetime.datetime, now: datetime.datetime) -> Iterator[datetime.datetime]:
    """The beginnings of all slots after one moment up to another, in order, perhaps some more around them."""
    match clock.kind:
        case "cron":
            yield from _cron_starts(clock, after, now)
        case "today":
            day = datetime.date.fromisoformat(slot_name(clock, after))
            last = datetime.date.fromisoformat(slot_name(clock, now))
            while day <= last:
                start = day_start(clock, day)
                if slot_name(clock, start) == day.isoformat():  # a zone that crosses the date line skips a day
                    yield start
                day += ONE_DAY
        case _:
            seconds = clock.every_seconds or 3600
            start = slot_begin(seconds, after)
            while start <= now:
                yield start
                start += datetime.timedelta(seconds=seconds)


def _cron_starts(clock: Clock, after: datetime.datetime, now: datetime.datetime) -> list[datetime.datetime]:
    # cronsim finds the matching local times; what they stand for while clocks are changed is decided here, because
    # cronsim, given a zone, loses times after a change at midnight and repeats some when it starts within an hour
    # that comes twice. The rules are Debian's: fixed times come exactly once, also when they are skipped (then at the
    # end of the gap) or repeated (then the first time); times with a star come whenever the clocks show them.
    from cronsim import CronSim

    zone = get_zone(clock.timezone)
    fixed = is_fixed(clock)
    last = local_time(now, zone) + _slack(zone, now)
    starts: set[datetime.datetime] = set()
    for local in CronSim(clock.cron or "", local_time(after, zone) - _slack(zone, after)):
        if local > last:
            break
        if fixed or zone is UTC:
            starts.add(moment_of(local, zone))
        else:
            both = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
            starts.update(moment for moment in both if local_time(moment, zone) == local)
    return sorted(starts)


def _slack(zone: datetime.tzinfo, moment: datetime.datetime) -> datetime.timedelta:
    """How far around the moment to look: local times are out of order only near a change of the clocks."""
    changes = (moment - SLACK).astimezone(zone).utcoffset() != (moment + SLACK).astimezone(zone).utcoffset()
    return SLACK if changes else datetime.timedelta()
