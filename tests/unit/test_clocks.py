"""Clocks: which names are clocks, how their slots are called, and which slots have begun."""

import datetime
import itertools
import subprocess
import sys
import zoneinfo
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opendataflow.arrivals.clock_slots import due_slots, slot_start
from opendataflow.domain.partitions.clocks import Clock, find_clock, moment_of, slot_name
from opendataflow.errors import UsageError

UTC = datetime.UTC
BERLIN = "Europe/Berlin"
# Changes at midnight (Beirut), over midnight (Nuuk, St Johns until 2011), of half an hour (Lord Howe), of three hours
# (Casey), over the date line (Apia in 2011).
ZONES = ["UTC", BERLIN, "America/New_York", "Asia/Beirut", "America/Nuuk", "America/St_Johns", "Australia/Lord_Howe",
         "Antarctica/Casey", "Pacific/Apia"]  # fmt: skip
CRONS = ["* * * * *", "*/30 * * * *", "0 * * * *", "*/20 2 * * *", "0,30 0-3 * * *", "30 2 * * *", "30 23 * * *",
         "0 0 * * *", "15 0 * * SUN", "0 3 L * *", "10 1,2,3 * * 0", "*/10 1 * 3,10 SUN", "5 4 29 2 *"]  # fmt: skip


def utc(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=UTC)


def clock(name: str, timezone: str | None = None) -> Clock:
    found = find_clock(name, timezone)
    assert found is not None
    return found


def names(of: Clock, after: str, now: str) -> list[str]:
    return [name for name, _ in due_slots(of, after=utc(after), now=utc(now))]


# Which names are clocks -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "timezone", "result"),
    [
        ("today", None, Clock("today", None, None, "UTC")),
        ("today", BERLIN, Clock("today", None, None, BERLIN)),
        ("hourly", None, Clock("hourly", None, None, "UTC")),
        ("hourly", BERLIN, Clock("hourly", None, None, "UTC")),
        ("every 1m", None, Clock("every", 60, None, "UTC")),
        ("every 30m", BERLIN, Clock("every", 1800, None, "UTC")),
        ("every 90m", None, Clock("every", 5400, None, "UTC")),
        ("every  6h", None, Clock("every", 21600, None, "UTC")),
        ("every 24h", None, Clock("every", 86400, None, "UTC")),
        ("every 48h", None, Clock("every", 172800, None, "UTC")),
        ("every 7d", None, Clock("every", 604800, None, "UTC")),
        ("cron 0 3 * * *", None, Clock("cron", None, "0 3 * * *", "UTC")),
        ("cron 0 3 * * *", BERLIN, Clock("cron", None, "0 3 * * *", BERLIN)),
        ("cron 0  3 * * * Europe/Berlin", None, Clock("cron", None, "0 3 * * *", BERLIN)),
        ("cron 0 3 * * * America/New_York", BERLIN, Clock("cron", None, "0 3 * * *", "America/New_York")),
        ("cron 0 3 * * mon-fri", None, Clock("cron", None, "0 3 * * mon-fri", "UTC")),
    ],
)
def test_a_clock_is_known_by_its_name(name: str, timezone: str | None, result: Clock) -> None:
    assert find_clock(name, timezone) == result


@pytest.mark.parametrize("name", ["", " ", "orders", "today_x", "Today", "today 2", "hourly rates", "every", "cron"])
def test_any_other_name_is_no_clock(name: str) -> None:
    assert find_clock(name) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("every 30s", "'every 30s': give minutes, hours or days, at least 1m"),
        ("every 0m", "at least 1m"),
        ("every day", "give minutes, hours or days"),
        ("every 30", "give minutes, hours or days"),
        ("every 1.5h", "give minutes, hours or days"),
        ("every -1h", "give minutes, hours or days"),
        ("every 1h 30m", "give minutes, hours or days"),
        ("every 7h", "'every 7h': this does not divide a day evenly"),
        ("every 25m", "does not divide a day evenly"),
        ("every 36h", "does not divide a day evenly"),
        ("cron 0 3 * *", "'cron 0 3 * *': cron takes five fields"),
        ("cron 0 0 3 * * *", "cron takes five fields"),
        ("cron @daily", "cron takes five fields"),
        ("cron 60 3 * * *", "'60' is not a minute (0–59)"),
        ("cron 0 24 * * *", "'24' is not an hour (0–23)"),
        ("cron x 3 * * *", "'X' is not a minute"),
        ("cron 0 3 0 * *", "'0' is not a day (1–31)"),
        ("cron 0 3 * 13 *", "'13' is not a month (1–12 or JAN–DEC)"),
        ("cron 0 3 * * 8", "'8' is not a weekday (0–7 or SUN–SAT)"),
        ("cron 0 3 * * mo", "'MO' is not a weekday"),
        ("cron 5-1 3 * * *", "'5-1' ends before it begins"),
        ("cron 0 3 * * fri-mon", "'FRI-MON' ends before it begins"),
        ("cron */0 3 * * *", "the step in '*/0' is not a number from 1 to 59"),
        ("cron */90 * * * *", "the step in '*/90' is not a number from 1 to 59"),
        ("cron */ * * * *", "the step in '*/'"),
        ("cron 1,,2 * * * *", "'' is not a minute"),
        ("cron -5 * * * *", "'' is not a minute"),
        ("cron 1- * * * *", "'' is not a minute"),
        ("cron ٣ * * * *", "is not a minute"),
        ("cron 0 L * * *", "'L' is not an hour"),
        ("cron 0 0 30 2 *", "no such month has a day 30, so it would never come"),
        ("cron 0 0 31 4,6 *", "no such month has a day 31"),
        ("cron 0 3 * * * Europe/Nowhere", "'Europe/Nowhere' is not a time zone like Europe/Berlin or UTC"),
        ("cron 0 3 * * * Europe", "'Europe' is not a time zone"),
        ("cron 0 3 * * * UTC extra", "cron takes five fields"),
    ],
)
def test_a_malformed_clock_is_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_clock(name)
    assert message in str(refused.value)


@pytest.mark.parametrize("timezone", ["Europe/Nowhere", "../etc/passwd", "/etc/localtime", "Europe", "x\0y"])
def test_an_unknown_zone_is_refused(timezone: str) -> None:
    with pytest.raises(UsageError, match="is not a time zone"):
        find_clock("today", timezone)


FIELDS = [
    (0, 59, ()),
    (0, 23, ()),
    (1, 31, ("L", "LW")),
    (1, 12, ("JAN", "dec", "MAR-JUN")),
    (0, 7, ("SUN", "mon-fri", "5L", "MON#2", "7#1")),
]


@st.composite
def cron_fields(draw: st.DrawFn) -> str:
    def item(low: int, high: int, words: tuple[str, ...]) -> str:
        numbers = st.integers(low, high)
        span = draw(st.sampled_from(["*", "number", "range", *words]))
        if span == "number":
            span = str(draw(numbers))
        elif span == "range":
            span = "-".join(str(end) for end in sorted((draw(numbers), draw(numbers))))
        can_step = span not in words and draw(st.booleans())
        return span + (f"/{draw(st.integers(1, high))}" if can_step else "")

    return " ".join(",".join(item(*field) for _ in range(draw(st.integers(1, 3)))) for field in FIELDS)


@settings(deadline=None)
@given(cron_fields())
@example("0 3 * * *")
def test_every_cron_that_is_accepted_is_understood_by_the_library(fields: str) -> None:
    from cronsim import CronSim

    try:
        find_clock(f"cron {fields}")
    except UsageError as refused:
        assert "so it would never come" in str(refused)  # noqa: PT017
        return
    CronSim(fields, utc("2025-11-12"))


@given(st.text("0123456789*/-,LW#AJUN ", max_size=20))
def test_no_malformed_cron_gets_through(fields: str) -> None:
    from cronsim import CronSim

    try:
        found = find_clock(f"cron {fields}")
    except UsageError:
        return
    if found is not None and found.cron is not None:
        CronSim(found.cron, utc("2025-11-12"))


# Names ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "timezone", "moment", "result"),
    [
        ("today", None, "2025-11-12T23:59", "2025-11-12"),
        ("today", BERLIN, "2025-11-12T22:59", "2025-11-12"),
        ("today", BERLIN, "2025-11-12T23:00", "2025-11-13"),
        ("today", "America/New_York", "2025-11-12T03:00", "2025-11-11"),
        ("hourly", BERLIN, "2025-11-12T13:59:59", "2025-11-12T13"),
        ("every 30m", None, "2025-11-12T13:59", "2025-11-12T13:30"),
        ("every 6h", None, "2025-11-12T13:59", "2025-11-12T12:00"),
        ("every 1d", None, "2025-11-12T13:59", "2025-11-12"),
        ("every 2d", None, "1970-01-04T13:59", "1970-01-03"),
        ("every 30m", None, "1969-12-31T23:59", "1969-12-31T23:30"),
        ("cron 0 3 * * *", None, "2025-11-12T03:00", "2025-11-12"),
        ("cron 30 0 * * *", BERLIN, "2025-11-11T23:30", "2025-11-12"),
        ("cron 00 03 * * 1", None, "2025-11-10T03:00", "2025-11-10"),
        ("cron 0 3,15 * * *", None, "2025-11-12T03:00", "2025-11-12T03:00"),
        ("cron 0-0 3 * * *", None, "2025-11-12T03:00", "2025-11-12T03:00"),
        ("cron */30 * * * *", BERLIN, "2025-11-12T13:30", "2025-11-12T13:30"),
    ],
)
def test_a_slot_has_a_name(name: str, timezone: str | None, moment: str, result: str) -> None:
    assert slot_name(clock(name, timezone), utc(moment)) == result
    tokyo = utc(moment).astimezone(zoneinfo.ZoneInfo("Asia/Tokyo"))
    assert slot_name(clock(name, timezone), tokyo) == result


@pytest.mark.parametrize(
    ("name", "timezone", "slot", "start"),
    [
        ("today", None, "2025-11-12", "2025-11-12T00:00"),
        ("today", BERLIN, "2025-11-12", "2025-11-11T23:00"),
        ("today", "Asia/Beirut", "2024-03-31", "2024-03-30T22:00"),  # this day began at one
        ("hourly", None, "2025-11-12T13", "2025-11-12T13:00"),
        ("every 30m", None, "2025-11-12T13:30", "2025-11-12T13:30"),
        ("every 2d", BERLIN, "2025-11-12", "2025-11-12T00:00"),
        ("cron 0 3 * * *", BERLIN, "2025-11-12", "2025-11-12T02:00"),
        ("cron */30 * * * *", BERLIN, "2025-11-12T13:30", "2025-11-12T13:30"),
        # The clock of the job was another one before.
        ("every 30m", None, "2025-11-12T13", "2025-11-12T13:00"),
        ("hourly", None, "2025-11-12", "2025-11-12T00:00"),
        ("cron 0 3 * * *", BERLIN, "2025-11-12T13:30", "2025-11-12T13:30"),
    ],
)
def test_a_slot_begins_when_its_name_says(name: str, timezone: str | None, slot: str, start: str) -> None:
    assert slot_start(clock(name, timezone), slot) == utc(start)


@pytest.mark.parametrize("name", ["", "full", "2025-11", "2025-11-31", "2025-11-12T24", "2025-11-12T13:60", "42"])
def test_what_is_no_slot_has_no_beginning(name: str) -> None:
    with pytest.raises(UsageError, match="is not a slot like"):
        slot_start(clock("hourly"), name)


# Which slots are due --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "timezone", "current", "start"),
    [
        ("today", BERLIN, "2025-11-12", "2025-11-11T23:00"),
        ("hourly", None, "2025-11-12T13", "2025-11-12T13:00"),
        ("every 15m", None, "2025-11-12T13:30", "2025-11-12T13:30"),
        ("every 1d", None, "2025-11-12", "2025-11-12T00:00"),
        ("cron 0 3 * * *", None, "2025-11-12", "2025-11-12T03:00"),
        ("cron 0 15 * * *", None, "2025-11-11", "2025-11-11T15:00"),
        ("cron 31 13 * * *", None, "2025-11-12", "2025-11-12T13:31"),
        ("cron */30 * * * *", BERLIN, "2025-11-12T13:30", "2025-11-12T13:30"),
        ("cron 0 3 1 1 *", BERLIN, "2025-01-01", "2025-01-01T02:00"),
        ("cron 0 3 29 2 *", None, "2024-02-29", "2024-02-29T03:00"),
    ],
)
def test_without_a_last_one_only_the_current_slot_is_due(
    name: str, timezone: str | None, current: str, start: str
) -> None:
    for now in ("2025-11-12T13:31:00", "2025-11-12T13:31:29.5"):
        assert due_slots(clock(name, timezone), after=None, now=utc(now)) == [(current, utc(start))]


@pytest.mark.parametrize(
    ("name", "after", "now", "due"),
    [
        ("today", "2025-11-10T00:00", "2025-11-12T00:00", ["2025-11-11", "2025-11-12"]),
        ("today", "2025-11-12T00:00", "2025-11-12T23:59", []),
        ("hourly", "2025-11-12T13:00", "2025-11-12T15:00", ["2025-11-12T14", "2025-11-12T15"]),
        ("hourly", "2025-11-12T12:59:59", "2025-11-12T13:00", ["2025-11-12T13"]),
        ("every 30m", "2025-11-12T13:00", "2025-11-12T14:00", ["2025-11-12T13:30", "2025-11-12T14:00"]),
        ("every 2d", "1970-01-01T00:00", "1970-01-05T00:00", ["1970-01-03", "1970-01-05"]),
        ("cron 0 3 * * *", "2025-11-10T03:00", "2025-11-12T03:00", ["2025-11-11", "2025-11-12"]),
        ("cron 0 3 * * *", "2025-11-10T02:59:59.5", "2025-11-10T03:00", ["2025-11-10"]),
        ("cron 0 3 * * *", "2025-11-10T03:00", "2025-11-11T02:59:59.5", []),
        ("cron 0 3 * * FRI", "2025-11-01T00:00", "2025-11-30T00:00", [f"2025-11-{d}" for d in ("07", 14, 21, 28)]),
        ("hourly", "2025-11-12T15:00", "2025-11-12T13:00", []),
        ("cron * * * * *", "2025-11-12T15:00", "2025-11-12T13:00", []),
    ],
)
def test_the_slots_since_the_last_one_are_due(name: str, after: str, now: str, due: list[str]) -> None:
    assert names(clock(name), after, now) == due


def test_a_cron_that_never_comes_is_never_due() -> None:
    never = clock("cron 0 0 */30 * 1#2")  # the 1st or 31st, and the second Monday
    assert due_slots(never, after=None, now=utc("2025-11-12")) == []
    assert names(never, "2025-01-01", "2025-12-31") == []


# Changes of the clocks ------------------------------------------------------------------------------------------------
def test_a_fixed_time_comes_once_on_the_day_it_is_skipped() -> None:
    night = clock("cron 30 2 * * *", BERLIN)
    assert due_slots(night, after=utc("2025-03-29T12:00"), now=utc("2025-03-31T12:00")) == [
        ("2025-03-30", utc("2025-03-30T01:00")),  # three o'clock, the end of the gap
        ("2025-03-31", utc("2025-03-31T00:30")),
    ]
    assert slot_start(night, "2025-03-30") == utc("2025-03-30T01:00")


def test_a_fixed_time_comes_once_on_the_day_it_is_repeated() -> None:
    night = clock("cron 30 2 * * *", BERLIN)
    assert due_slots(night, after=utc("2025-10-25T12:00"), now=utc("2025-10-27T12:00")) == [
        ("2025-10-26", utc("2025-10-26T00:30")),  # the first time it is half past two
        ("2025-10-27", utc("2025-10-27T01:30")),
    ]
    assert names(night, "2025-10-26T01:10", "2025-10-26T02:00") == []
    assert due_slots(night, after=None, now=utc("2025-10-26T01:10")) == [("2025-10-26", utc("2025-10-26T00:30"))]


@pytest.mark.parametrize("cron", ["*/30 * * * *", "0,30 * * * *"])
def test_a_cron_with_a_star_keeps_its_pace_over_the_changes(cron: str) -> None:
    pace = clock(f"cron {cron}", BERLIN)
    spring = names(pace, "2025-03-29T22:59", "2025-03-30T21:59")
    autumn = names(pace, "2025-10-25T21:59", "2025-10-26T22:59")
    ordinary = names(pace, "2025-11-11T22:59", "2025-11-12T22:59")
    assert (len(spring), len(autumn), len(ordinary)) == (46, 50, 48)
    assert (len(set(spring)), len(set(autumn))) == (46, 50)


def test_times_within_a_starred_hour_are_skipped_and_repeated_as_the_clocks_show_them() -> None:
    hour = clock("cron */30 2 * * *", BERLIN)
    assert names(hour, "2025-03-29T12:00", "2025-03-30T12:00") == []
    assert names(hour, "2025-10-25T12:00", "2025-10-26T12:00") == [
        "2025-10-26T00:00", "2025-10-26T00:30", "2025-10-26T01:00", "2025-10-26T01:30",
    ]  # fmt: skip


def test_fixed_times_that_fall_together_at_the_end_of_a_gap_come_once() -> None:
    several = clock("cron 0 1,2,3 * * *", BERLIN)
    assert names(several, "2025-03-29T12:00", "2025-03-30T12:00") == ["2025-03-30T00:00", "2025-03-30T01:00"]


def test_a_time_that_is_moved_over_midnight_keeps_its_own_day() -> None:
    late = clock("cron 30 23 * * *", "America/Nuuk")  # Saturday ended at eleven that night
    assert due_slots(late, after=utc("2024-03-29T12:00"), now=utc("2024-04-01T12:00")) == [
        ("2024-03-29", utc("2024-03-30T01:30")),
        ("2024-03-30", utc("2024-03-31T01:00")),
        ("2024-03-31", utc("2024-04-01T00:30")),
    ]


def test_today_changes_at_local_midnight_also_when_the_clocks_change() -> None:
    today = clock("today", BERLIN)
    starts = [start for _, start in due_slots(today, after=utc("2025-03-28T23:00"), now=utc("2025-03-31T12:00"))]
    assert starts == [utc("2025-03-29T23:00"), utc("2025-03-30T22:00")]
    starts = [start for _, start in due_slots(today, after=utc("2025-10-24T22:00"), now=utc("2025-10-27T12:00"))]
    assert starts == [utc("2025-10-25T22:00"), utc("2025-10-26T23:00")]


def test_a_day_that_has_begun_stays_when_the_clocks_go_back_over_midnight() -> None:
    today = clock("today", "America/St_Johns")  # until 2011 they changed at one minute past midnight
    assert slot_name(today, utc("2010-11-07T02:29")) == "2010-11-06"
    assert slot_name(today, utc("2010-11-07T02:30")) == "2010-11-07"
    assert slot_name(today, utc("2010-11-07T03:00")) == "2010-11-07"  # half past eleven, on the 6th again


def test_a_day_that_a_zone_skips_has_no_slot() -> None:
    assert names(clock("today", "Pacific/Apia"), "2011-12-29T00:00", "2012-01-01T00:00") == [
        "2011-12-29", "2011-12-31", "2012-01-01",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        (BERLIN, "2025-10-26T01:00"),
        (BERLIN, "2025-03-30T01:00"),
        ("Antarctica/Casey", "2023-03-08T16:00"),  # back by three hours
        ("Antarctica/Vostok", "1994-01-31T17:00"),  # back by seven
    ],
)
def test_looking_every_ten_minutes_finds_every_half_hour_over_a_change(zone: str, change: str) -> None:
    pace = clock("cron */30 * * * *", zone)
    looks = [utc(change) + datetime.timedelta(minutes=10 * number) for number in range(-144, 145)]
    seen = [slot for after, now in itertools.pairwise(looks) for slot in due_slots(pace, after=after, now=now)]
    assert len(seen) == 96
    assert seen == due_slots(pace, after=looks[0], now=looks[-1])
    current = [due_slots(pace, after=None, now=now)[0] for now in looks[3:]]
    assert list(dict.fromkeys(current)) == seen


# Properties -----------------------------------------------------------------------------------------------------------
def _around(moment: str) -> st.SearchStrategy[datetime.datetime]:
    days = datetime.timedelta(days=2)
    return st.timedeltas(-days, days).map(lambda time: utc(moment) + time)


CHANGES = [
    "2025-03-30T01:00", "2025-10-26T01:00", "2025-03-09T07:00", "2024-03-30T22:00", "2024-03-31T01:00",
    "2024-10-27T01:00", "2010-11-07T02:31", "2010-03-14T03:31", "2025-04-05T15:00", "2025-10-04T15:30",
    "2023-03-08T16:00", "2011-12-30T10:00", "2024-02-29T00:00",
]  # fmt: skip
MOMENTS = st.sampled_from(CHANGES).flatmap(_around)
CLOCKS = st.one_of(
    st.sampled_from(ZONES).map(lambda zone: clock("today", zone)),
    st.sampled_from(["hourly", "every 1m", "every 90m", "every 8h", "every 1d", "every 3d"]).map(clock),
    st.tuples(st.sampled_from(CRONS), st.sampled_from(ZONES)).map(lambda one: clock(f"cron {one[0]} {one[1]}")),
)
MANY = settings(deadline=None, max_examples=150)


@st.composite
def intervals(draw: st.DrawFn) -> tuple[datetime.datetime, datetime.datetime, datetime.datetime]:
    change = draw(st.sampled_from(CHANGES))
    first, middle, last = sorted(draw(_around(change)) for _ in range(3))
    return first, middle, last


@MANY
@given(CLOCKS, intervals())
def test_slots_have_names_of_their_own_and_come_in_order(
    of: Clock, interval: tuple[datetime.datetime, datetime.datetime, datetime.datetime]
) -> None:
    after, _, now = interval
    slots = due_slots(of, after=after, now=now)
    assert len({name for name, _ in slots}) == len(slots)
    assert all(one < other for (_, one), (_, other) in itertools.pairwise(slots))
    assert all(one < other for (one, _), (other, _) in itertools.pairwise(slots))
    assert all(after < start <= now for _, start in slots)
    for name, start in slots:
        assert slot_start(of, name) == start
        assert slot_name(of, start) == name


@MANY
@given(CLOCKS, intervals())
def test_slots_are_the_same_however_the_time_is_divided(
    of: Clock, interval: tuple[datetime.datetime, datetime.datetime, datetime.datetime]
) -> None:
    after, middle, now = interval
    parts = due_slots(of, after=after, now=middle) + due_slots(of, after=middle, now=now)
    assert parts == due_slots(of, after=after, now=now)


@MANY
@given(CLOCKS, MOMENTS, st.integers(0, 3))
def test_going_on_after_the_last_slot_loses_and_repeats_nothing(of: Clock, now: datetime.datetime, looks: int) -> None:
    seen = due_slots(of, after=None, now=now)
    began = seen[-1][1] if seen else now
    for look in range(1, looks + 1):
        last = slot_start(of, seen[-1][0]) if seen else now
        seen += due_slots(of, after=last, now=now + datetime.timedelta(hours=7 * look))
    assert seen[1:] == due_slots(of, after=began, now=now + datetime.timedelta(hours=7 * looks))


@MANY
@given(CLOCKS, MOMENTS)
def test_the_current_slot_is_the_latest_that_began(of: Clock, now: datetime.datetime) -> None:
    current = due_slots(of, after=None, now=now)
    assert len(current) == 1
    assert current[0][1] <= now
    assert due_slots(of, after=current[0][1], now=now) == []
    recent = due_slots(of, after=now - datetime.timedelta(days=2), now=now)
    if recent:
        assert recent[-1] == current[0]


STARRED: dict[str, Callable[[datetime.datetime], bool]] = {
    "* * * * *": lambda _: True,
    "*/30 * * * *": lambda at: at.minute in (0, 30),
    "0 * * * *": lambda at: at.minute == 0,
    "*/20 2 * * *": lambda at: at.hour == 2 and at.minute in (0, 20, 40),
}


@MANY
@given(st.sampled_from(ZONES), st.sampled_from(sorted(STARRED)), MOMENTS)
def test_a_starred_cron_comes_at_exactly_the_minutes_the_clocks_show(
    zone: str, cron: str, after: datetime.datetime
) -> None:
    after = after.replace(second=0, microsecond=0)
    minutes = [after + datetime.timedelta(minutes=more) for more in range(1, 1441)]
    shown = [minute.astimezone(zoneinfo.ZoneInfo(zone)) for minute in minutes]
    fits = STARRED[cron]
    due = due_slots(clock(f"cron {cron} {zone}"), after=after, now=minutes[-1])
    assert [start for _, start in due] == [minute for minute, at in zip(minutes, shown, strict=True) if fits(at)]


@MANY
@given(st.sampled_from([zone for zone in ZONES if zone != "Pacific/Apia"]), st.times(), MOMENTS)
def test_a_daily_cron_comes_once_for_every_date(zone: str, at: datetime.time, after: datetime.datetime) -> None:
    daily = clock(f"cron {at.minute} {at.hour} * * *", zone)
    due = due_slots(daily, after=after, now=after + datetime.timedelta(days=20))
    days = [datetime.date.fromisoformat(name) for name, _ in due]
    assert all(one + datetime.timedelta(days=1) == other for one, other in itertools.pairwise(days))
    assert len(days) in (19, 20, 21)


@MANY
@given(st.sampled_from(ZONES), MOMENTS)
def test_a_local_time_that_exists_is_its_own_moment(zone: str, moment: datetime.datetime) -> None:
    zoned = moment.replace(second=0, microsecond=0).astimezone(zoneinfo.ZoneInfo(zone))
    found = moment_of(zoned.replace(tzinfo=None, fold=0), zoneinfo.ZoneInfo(zone))
    assert found == zoned.replace(fold=0).astimezone(UTC) <= zoned.astimezone(UTC)


def test_only_a_cron_loads_the_library_and_only_a_zone_loads_zones() -> None:
    code = (
        "import sys, datetime\n"
        "from opendataflow.domain.partitions.clocks import find_clock\n"
        "from opendataflow.arrivals.clock_slots import due_slots\n"
        "for name in ('today', 'hourly', 'every 30m', 'cron 0 3 * * *'):\n"
        "    assert not {'cronsim', 'zoneinfo'} & set(sys.modules), name\n"
        "    clock = find_clock(name)\n"
        "    assert due_slots(clock, after=None, now=datetime.datetime.now(datetime.UTC))\n"
        "assert 'cronsim' in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
