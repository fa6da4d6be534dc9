"""Which dataids are expected, which belong, and in which order."""

import calendar
import datetime
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opendataflow.domain.partitions.scheme import (
    check_scheme,
    count_expected,
    dataids_between,
    dataids_within,
    expected_dataids,
    find_kind,
    is_dataid,
    is_open_sequence,
    kind,
    latest_expected,
    natural_key,
    shift,
    slot_of,
    window,
)
from opendataflow.errors import UsageError

UTC = datetime.UTC
NOW = datetime.datetime(2025, 11, 5, 2, 59, 59, tzinfo=UTC)
DAYS = st.dates(datetime.date(1000, 1, 1), datetime.date(9999, 12, 31))
MOMENTS = st.timedeltas(datetime.timedelta(0), datetime.timedelta(days=720)).map(
    lambda time: datetime.datetime(1990, 1, 1, tzinfo=UTC) + time
)


def expected(scheme: object, after: str | None = None, highest: str | None = None) -> list[str]:
    return list(expected_dataids(scheme, now=NOW, after=after, highest=highest))


def test_a_day_is_expected_once_it_is_over() -> None:
    assert expected({"daily": "2025-11-02"}) == ["2025-11-02", "2025-11-03", "2025-11-04"]
    assert expected({"daily": "2025-11-02.."}) == ["2025-11-02", "2025-11-03", "2025-11-04"]
    assert expected({"daily": "2025-11-05"}) == []


def test_a_daily_range_ends_on_its_last_day() -> None:
    assert expected({"daily": "2025-10-30..2025-11-01"}) == ["2025-10-30", "2025-10-31", "2025-11-01"]
    assert expected({"daily": "2025-11-03..2025-12-31"}) == ["2025-11-03", "2025-11-04"]


def test_an_hour_is_expected_once_it_is_over() -> None:
    assert expected({"hourly": "2025-11-05"}) == ["2025-11-05T00", "2025-11-05T01"]
    assert expected({"hourly": "2025-11-04T23"}) == ["2025-11-04T23", "2025-11-05T00", "2025-11-05T01"]
    assert expected({"hourly": "2025-11-05T02"}) == []


def test_an_hourly_range_may_end_with_an_hour_or_with_a_whole_day() -> None:
    assert expected({"hourly": "2025-11-01T22..2025-11-02T00"}) == ["2025-11-01T22", "2025-11-01T23", "2025-11-02T00"]
    assert expected({"hourly": "2025-11-01T22..2025-11-01"}) == ["2025-11-01T22", "2025-11-01T23"]
    assert len(expected({"hourly": "2025-11-01..2025-11-02"})) == 48


def test_a_month_is_expected_once_it_is_over() -> None:
    assert expected({"monthly": "2025-08"}) == ["2025-08", "2025-09", "2025-10"]
    assert expected({"monthly": "2024-12..2025-01"}) == ["2024-12", "2025-01"]
    assert expected({"monthly": "2025-11"}) == []


def test_now_is_a_moment_whatever_zone_it_is_given_in() -> None:
    tokyo = NOW.astimezone(datetime.timezone(datetime.timedelta(hours=9)))
    assert list(expected_dataids({"hourly": "2025-11-05"}, now=tokyo)) == ["2025-11-05T00", "2025-11-05T01"]


def test_shards_keep_the_width_they_are_written_with() -> None:
    assert expected({"shards": "8..11"}) == ["8", "9", "10", "11"]
    assert expected({"shards": "08..11"}) == ["08", "09", "10", "11"]
    assert expected({"shards": "0..2"}) == ["0", "1", "2"]


def test_an_open_sequence_is_expected_up_to_the_highest_number_seen() -> None:
    assert expected({"sequence": "1"}) == []
    assert expected({"sequence": "1"}, highest="3") == ["1", "2", "3"]
    assert expected({"sequence": "1"}, after="2", highest="3") == ["3"]
    assert expected({"sequence": "5"}, highest="3") == []
    assert expected({"sequence": "1"}, highest="full") == []


def test_a_sequence_with_an_end_is_expected_as_a_whole() -> None:
    assert expected({"sequence": "1..3"}) == ["1", "2", "3"]
    assert expected({"sequence": "1..3"}, highest="2") == ["1", "2", "3"]


def test_a_sequence_may_start_with_the_number_yaml_makes_of_it() -> None:
    assert expected({"sequence": 2}, highest="3") == ["2", "3"]


def test_values_come_in_the_order_they_were_given_and_none_is_one_chunk() -> None:
    assert expected({"values": ["eu", "us", "ap"]}) == ["eu", "us", "ap"]
    assert expected("none") == ["full"]


@pytest.mark.parametrize(
    ("scheme", "after", "rest"),
    [
        ({"daily": "2025-11-01"}, "2025-11-02", ["2025-11-03", "2025-11-04"]),
        ({"daily": "2025-11-03"}, "2020-01-01", ["2025-11-03", "2025-11-04"]),
        ({"hourly": "2025-11-04"}, "2025-11-05T00", ["2025-11-05T01"]),
        ({"monthly": "2025-01"}, "2025-09", ["2025-10"]),
        ({"shards": "1..4"}, "2", ["3", "4"]),
        ({"shards": "1..4"}, "4", []),
        ({"values": ["b", "a", "c"]}, "a", ["c"]),
        ({"values": ["b", "a"]}, "gone", ["b", "a"]),
        ("none", "full", []),
    ],
)
def test_expecting_goes_on_after_the_last_one(scheme: object, after: str, rest: list[str]) -> None:
    assert expected(scheme, after) == rest


@pytest.mark.parametrize(
    ("scheme", "after"),
    [({"hourly": "2025-11-05"}, "2025-11-04"), ({"monthly": "2025-10"}, "2025-10-31"), ({"shards": "01..02"}, "1")],
)
def test_expecting_starts_over_when_the_last_one_is_from_another_scheme(scheme: object, after: str) -> None:
    assert expected(scheme, after) == expected(scheme) != []


@pytest.mark.parametrize(
    ("scheme", "yes", "no"),
    [
        ("none", ["full"], ["", "Full", "2025-11-01"]),
        (
            {"daily": "2025-11-01..2025-11-30"},
            ["2025-11-01", "2025-11-30"],
            ["2025-10-31", "2025-12-01", "2025-11-31", "20251101", "2025-W45-1", "2025-11-1", " 2025-11-01", "x", ""],
        ),
        ({"daily": "2025-11-01"}, ["2025-11-01", "2099-01-01"], ["2025-10-31", "2025-11-01\n"]),
        (
            {"hourly": "2025-11-01T06..2025-11-30"},
            ["2025-11-01T06", "2025-11-30T23"],
            ["2025-11-01T05", "2025-12-01T00", "2025-11-02T24", "2025-11-31T01", "2025-11-02", "2025-11-02T1", "x", ""],
        ),
        ({"hourly": "2025-11-01"}, ["2025-11-01T00", "2099-01-01T10"], ["2025-11-01 00", "2025-11-01T00:00"]),
        (
            {"monthly": "2025-02..2026-01"},
            ["2025-02", "2025-12", "2026-01"],
            ["2025-01", "2026-02", "2025-00", "2025-13", "2025-2", "2025-02-01", "202502", "0000-01", ""],
        ),
        ({"sequence": "1"}, ["1", "999999999999"], ["0", "01", "-1", "x", "9" * 5000, ""]),
        ({"sequence": "1..100"}, ["1", "100"], ["101"]),
        ({"shards": "1..100"}, ["1", "100"], ["0", "101", "01", "1.0", "-1", "٣", "", "1 "]),
        ({"shards": "001..100"}, ["001", "100"], ["1", "01", "0001"]),
        ({"values": ["eu", "us"]}, ["eu"], ["EU", ""]),
    ],
)
def test_a_dataid_belongs_to_its_scheme_or_not(scheme: object, yes: list[str], no: list[str]) -> None:
    assert [dataid for dataid in yes + no if is_dataid(scheme, dataid)] == yes


def _times(form: str) -> st.SearchStrategy[str]:
    return MOMENTS.map(lambda moment: moment.strftime(form))


def _ranges(kind: str, form: str) -> st.SearchStrategy[dict[str, object]]:
    return st.tuples(_times(form), st.none() | _times(form)).map(
        lambda ends: {kind: ends[0] if ends[1] is None else f"{min(ends)}..{max(ends)}"}  # type: ignore[type-var]
    )


SCHEMES: st.SearchStrategy[object] = st.one_of(
    st.just("none"),
    _ranges("daily", "%Y-%m-%d"),
    _ranges("hourly", "%Y-%m-%dT%H"),
    _ranges("monthly", "%Y-%m"),
    st.tuples(st.integers(0, 30), st.none() | st.integers(0, 30), st.booleans()).map(
        lambda n: {"sequence": f"{n[0]:0{3 if n[2] else 1}d}" + ("" if n[1] is None else f"..{n[0] + n[1]}")}
    ),
    st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()).map(
        lambda n: {"shards": f"{n[0]:0{3 if n[2] else 1}d}..{n[0] + n[1]}"}
    ),
    st.lists(st.text(min_size=1), min_size=1, unique=True).map(lambda v: {"values": v}),
)
HIGHEST = st.none() | st.integers(0, 50).map(str)


@settings(deadline=None)
@given(SCHEMES, MOMENTS, HIGHEST, st.data())
def test_every_expected_dataid_belongs_to_its_scheme_and_comes_once(
    scheme: object, now: datetime.datetime, highest: str | None, data: st.DataObject
) -> None:
    check_scheme(scheme)
    dataids = list(expected_dataids(scheme, now=now, highest=highest))
    assert len(set(dataids)) == len(dataids)
    some = data.draw(st.lists(st.sampled_from(range(len(dataids))), max_size=5)) if dataids else []
    for position in some:
        assert is_dataid(scheme, dataids[position])
        rest = expected_dataids(scheme, now=now, after=dataids[position], highest=highest)
        assert list(rest) == dataids[position + 1 :]


@settings(deadline=None)
@given(SCHEMES, MOMENTS, HIGHEST, st.integers(-1, 60))
def test_counting_and_the_latest_agree_with_the_whole_list(
    scheme: object, now: datetime.datetime, highest: str | None, limit: int
) -> None:
    dataids = list(expected_dataids(scheme, now=now, highest=highest))
    assert count_expected(scheme, now=now, highest=highest) == len(dataids)
    latest = latest_expected(scheme, now=now, limit=limit, highest=highest)
    assert latest == (dataids[-limit:] if limit > 0 else [])


@settings(deadline=None)
@given(SCHEMES, MOMENTS, HIGHEST)
def test_all_but_values_are_expected_in_natural_order(
    scheme: object, now: datetime.datetime, highest: str | None
) -> None:
    dataids = list(expected_dataids(scheme, now=now, highest=highest))
    if kind(scheme) != "values":
        assert dataids == sorted(dataids, key=natural_key)


def test_counting_and_the_latest_do_not_walk_through_history() -> None:
    assert count_expected({"sequence": "1"}, now=NOW, highest="1" + "0" * 30) == 10**30
    latest = latest_expected({"sequence": "1"}, now=NOW, limit=2, highest="1" + "0" * 30)
    assert latest == ["9" * 30, "1" + "0" * 30]


@settings(deadline=None)
@given(SCHEMES, MOMENTS, st.timedeltas(datetime.timedelta(0), datetime.timedelta(days=60)))
def test_what_is_expected_only_grows(scheme: object, now: datetime.datetime, more: datetime.timedelta) -> None:
    earlier = list(expected_dataids(scheme, now=now))
    later = expected_dataids(scheme, now=now + more)
    assert list(itertools.islice(later, len(earlier))) == earlier


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("daily", "partitions: 'daily' is not none"),
        (None, "partitions: None is not none"),
        ({}, "partitions: {} is not none"),
        ({"weekly": "2025"}, "is not none, {daily: FIRST"),
        ({"daily": "2025-11-01", "shards": "1..2"}, "is not none"),
        ({"daily": 20251101}, "is not none"),
        ({"sequence": True}, "is not none"),
        ({"daily": "2025-13-01"}, "daily: '2025-13-01' is not a date like 2025-11-12"),
        ({"daily": "2025-11"}, "daily: '2025-11' is not a date like 2025-11-12"),
        ({"daily": "20251101"}, "daily: '20251101' is not a date like 2025-11-12"),
        ({"daily": "2025-11-02..2025-11-01"}, "is empty; the first day is after the last"),
        ({"daily": "..2025-11-01"}, "daily: '' is not a date"),
        ({"hourly": "2025-11-01T24"}, "hourly: '2025-11-01T24' is not a date like 2025-11-12 or an hour like"),
        ({"hourly": "2025-11-31"}, "hourly: '2025-11-31' is not a date like"),
        ({"hourly": "2025-11-01T05..2025-11-01T04"}, "is empty; the first hour is after the last"),
        ({"monthly": "2025-11-01"}, "monthly: '2025-11-01' is not a month like 2025-11"),
        ({"monthly": "2025-11..2025-12-31"}, "monthly: '2025-12-31' is not a month like 2025-11"),
        ({"monthly": "2025-11..2025-10"}, "is empty; the first month is after the last"),
        ({"sequence": "one"}, "sequence: 'one' is not a start like 1 or a range like 1..100"),
        ({"sequence": -1}, "sequence: '-1' is not a start like 1"),
        ({"sequence": "1..x"}, "sequence: '1..x' is not a start like 1"),
        ({"sequence": "5..4"}, "is empty; the first number is greater than the last"),
        ({"shards": "10"}, "shards: '10' is not a range like 1..10000"),
        ({"shards": "10.."}, "shards: '10..' is not a range like 1..10000"),
        ({"shards": "a..b"}, "is not a range"),
        ({"shards": "-1..4"}, "is not a range"),
        ({"shards": "5..4"}, "is empty; the first shard is greater than the last"),
        ({"values": []}, "different, non-empty texts"),
        ({"values": ["a", "a"]}, "different, non-empty texts"),
        ({"values": ["a", ""]}, "different, non-empty texts"),
        ({"values": ["a", 1]}, "different, non-empty texts"),
    ],
)
def test_a_scheme_that_means_nothing_is_refused(scheme: object, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_scheme(scheme)
    assert message in str(refused.value)


def test_the_refusal_names_every_scheme() -> None:
    with pytest.raises(UsageError) as refused:
        check_scheme("weekly")
    assert str(refused.value) == (
        "partitions: 'weekly' is not none, {daily: FIRST[..LAST]}, {hourly: FIRST[..LAST]}, {monthly: FIRST[..LAST]}, "
        "{sequence: 1[..LAST]}, {shards: 1..N} or {values: […]}"
    )


def test_a_scheme_has_a_kind() -> None:
    assert kind("none") == "none"
    assert kind({"hourly": "2025-11-01"}) == "hourly"
    assert is_open_sequence({"sequence": "1"})
    assert not is_open_sequence({"sequence": "1..2"})
    assert not is_open_sequence({"daily": "2025-11-01"})
    with pytest.raises(UsageError):
        kind("weekly")


def test_a_dataid_shows_its_kind() -> None:
    forms = ["2025-11-12", "2025-11-12T13", "2025-11", "042", "2025-11-31", "2025-11-12T13:30", "full", ""]
    assert [find_kind(form) for form in forms] == ["daily", "hourly", "monthly", "sequence", None, None, None, None]


# Neighbours and slots -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dataid", "by", "scheme", "result"),
    [
        ("2024-03-01", -1, None, "2024-02-29"),
        ("2025-11-12T00", -1, None, "2025-11-11T23"),
        ("2025-12", 2, None, "2026-02"),
        ("9", 1, None, "10"),
        ("10", -1, None, "9"),
        ("009", 1, None, "010"),
        ("999", 1, None, "1000"),
        ("0", -1, None, None),
        ("full", 1, None, None),
        ("2025-11-12T13:30", 1, None, None),
        ("2025-11-31", 1, None, None),
        ("0001-01-01", -1, None, None),
        ("9999-12-31T23", 1, None, None),
        ("9999-12", 1, None, None),
        ("2025-11-01", -1, {"daily": "2025-11-01"}, "2025-10-31"),
        ("2025-11-30", 1, {"daily": "2025-11-01..2025-11-30"}, "2025-12-01"),
        ("2025-11-01T13", 1, {"daily": "2025-11-01"}, None),
        ("100", -1, {"shards": "001..100"}, "099"),
        ("1", -1, {"sequence": "1"}, "0"),
        ("1", -2, {"sequence": "1"}, None),
        ("b", -1, {"values": ["b", "a"]}, None),
        ("b", 1, {"values": ["b", "a"]}, "a"),
        ("a", 1, {"values": ["b", "a"]}, None),
        ("gone", 0, {"values": ["b", "a"]}, None),
        ("full", 0, "none", "full"),
        ("full", -1, "none", None),
    ],
)
def test_shifting_finds_the_neighbour_or_none(dataid: str, by: int, scheme: object, result: str | None) -> None:
    assert shift(dataid, by, scheme) == result


@settings(deadline=None)
@given(SCHEMES, MOMENTS, HIGHEST, st.integers(-400, 400), st.data())
def test_shifting_there_and_back_changes_nothing(
    scheme: object, now: datetime.datetime, highest: str | None, by: int, data: st.DataObject
) -> None:
    dataids = list(expected_dataids(scheme, now=now, highest=highest)) or ["gone"]
    dataid = data.draw(st.sampled_from(dataids))
    there = shift(dataid, by, scheme)
    if there is not None:
        assert shift(there, -by, scheme) == dataid


@given(st.one_of(_times("%Y-%m-%d"), _times("%Y-%m-%dT%H"), _times("%Y-%m")), st.integers(-5000, 5000))
def test_times_are_shifted_there_and_back_without_a_scheme(dataid: str, by: int) -> None:
    there = shift(dataid, by, None)
    assert there is not None
    assert shift(there, -by, None) == dataid
    assert (natural_key(there) > natural_key(dataid)) == (by > 0)


@settings(deadline=None)
@given(SCHEMES, MOMENTS, HIGHEST)
def test_the_next_expected_dataid_is_the_shifted_one(
    scheme: object, now: datetime.datetime, highest: str | None
) -> None:
    latest = latest_expected(scheme, now=now, limit=30, highest=highest)
    assert [shift(dataid, 1, scheme) for dataid in latest[:-1]] == latest[1:]


def test_a_window_ends_with_the_dataid_and_stops_where_nothing_is_before() -> None:
    assert window("2025-11-01", 3, {"daily": "2025-11-01"}) == ("2025-10-30", "2025-10-31", "2025-11-01")
    assert window("2", 7, None) == ("0", "1", "2")
    assert window("b", 9, {"values": ["a", "b", "c"]}) == ("a", "b")
    assert window("gone", 9, {"values": ["a", "b", "c"]}) == ()
    assert window("full", 2, None) == ()


def _utc(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("dataid", "scheme", "slot"),
    [
        ("2025-11-12", None, (_utc(2025, 11, 12), _utc(2025, 11, 13))),
        ("2025-11-12T23", None, (_utc(2025, 11, 12, 23), _utc(2025, 11, 13))),
        ("2025-12", None, (_utc(2025, 12, 1), _utc(2026, 1, 1))),
        ("2025-12", {"monthly": "2025-01"}, (_utc(2025, 12, 1), _utc(2026, 1, 1))),
        ("2025-12", {"daily": "2025-01-01"}, None),
        ("2025-12", {"values": ["2025-12"]}, None),
        ("9999-12-31", None, None),
        ("42", None, None),
        ("full", None, None),
        ("full", "none", None),
    ],
)
def test_a_time_has_a_slot(
    dataid: str, scheme: object, slot: tuple[datetime.datetime, datetime.datetime] | None
) -> None:
    assert slot_of(dataid, scheme) == slot


@settings(deadline=None)
@given(SCHEMES, MOMENTS)
def test_a_slot_is_expected_exactly_when_it_has_ended(scheme: object, now: datetime.datetime) -> None:
    latest = latest_expected(scheme, now=now, limit=1)
    slot = slot_of(latest[0], scheme) if latest else None
    if slot is None:
        return
    assert slot[0] < slot[1] <= now
    assert latest_expected(scheme, now=slot[1], limit=1) == latest
    before = latest_expected(scheme, now=slot[1] - datetime.timedelta(microseconds=1), limit=1)
    assert before != latest


def test_hours_and_days_are_found_within_a_time() -> None:
    november = (_utc(2025, 11, 1), _utc(2025, 12, 1))
    assert len(dataids_within({"hourly": "2020-01-01"}, *november)) == 720
    assert dataids_within({"daily": "2025-11-29"}, *november) == ("2025-11-29", "2025-11-30")
    assert dataids_within({"daily": "2025-01-01..2025-11-01"}, *november) == ("2025-11-01",)
    assert dataids_within({"daily": "2026-01-01"}, *november) == ()
    assert dataids_within({"shards": "1..3"}, *november) == ()
    assert dataids_within({"daily": "2025-01-01"}, _utc(2025, 11, 1, 1), _utc(2025, 11, 3, 1)) == (
        "2025-11-02",
        "2025-11-03",
    )


@settings(deadline=None)
@given(st.integers(1990, 2100), st.integers(1, 12))
def test_a_month_has_its_days_and_hours(year: int, month: int) -> None:
    slot = slot_of(f"{year}-{month:02d}", None)
    assert slot is not None
    days = calendar.monthrange(year, month)[1]
    assert len(dataids_within({"daily": "1990-01-01"}, *slot)) == days
    assert len(dataids_within({"hourly": "1990-01-01"}, *slot)) == days * 24


# Order --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("first", "last", "scheme", "found"),
    [
        ("2025-02-27", "2025-03-01", None, ("2025-02-27", "2025-02-28", "2025-03-01")),
        ("9", "11", {"shards": "1..20"}, ("9", "10", "11")),
        ("b", "c", {"values": ["a", "b", "c"]}, ("b", "c")),
        ("3", "1", {"shards": "1..20"}, ()),
        ("2025-02-27", "12", None, ()),
        ("red", "blue", None, ()),
        ("", "3", {"shards": "1..20"}, ()),
    ],
)
def test_dataids_between_two(first: str, last: str, scheme: object, found: tuple[str, ...]) -> None:
    assert dataids_between(first, last, scheme) == found


def test_nine_comes_before_ten_before_a_hundred() -> None:
    assert sorted(["100", "10", "9", "1", "0"], key=natural_key) == ["0", "1", "9", "10", "100"]
    assert sorted(["part-100", "part-9", "part-10"], key=natural_key) == ["part-9", "part-10", "part-100"]


@given(st.lists(st.integers(0, 10**30)), st.text(st.characters(exclude_categories=["Nd", "Cs"]), max_size=5))
def test_numbers_sort_as_numbers_behind_any_text(numbers: list[int], before: str) -> None:
    dataids = [f"{before}{number}" for number in numbers]
    assert sorted(dataids, key=natural_key) == [f"{before}{number}" for number in sorted(numbers)]


@given(st.lists(DAYS))
def test_dates_sort_as_dates(days: list[datetime.date]) -> None:
    dataids = [day.isoformat() for day in days]
    assert sorted(dataids, key=natural_key) == [day.isoformat() for day in sorted(days)]


@given(st.lists(st.integers(1, 10**6), unique=True), st.integers(1, 9))
def test_numbers_sort_alike_with_and_without_leading_zeros(numbers: list[int], width: int) -> None:
    padded = [str(number).zfill(width) for number in numbers]
    assert [int(dataid) for dataid in sorted(padded, key=natural_key)] == sorted(numbers)


@given(st.text(min_size=1), st.text(min_size=1))
def test_different_dataids_have_different_keys(one: str, other: str) -> None:
    assert (natural_key(one) == natural_key(other)) == (one == other)
