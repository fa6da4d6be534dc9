"""Which dataids are expected, which belong, and in which order."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.domain.partitions import check_scheme, expected_dataids, is_dataid, natural_key
from opendataflow.errors import UsageError

TODAY = datetime.date(2025, 11, 5)
DAYS = st.dates(datetime.date(1000, 1, 1), datetime.date(9999, 12, 31))


def expected(scheme: object, after: str | None = None) -> list[str]:
    return list(expected_dataids(scheme, today=TODAY, after=after))


def test_a_day_is_expected_once_it_is_over() -> None:
    assert expected({"daily": "2025-11-02"}) == ["2025-11-02", "2025-11-03", "2025-11-04"]
    assert expected({"daily": "2025-11-02.."}) == ["2025-11-02", "2025-11-03", "2025-11-04"]
    assert expected({"daily": "2025-11-05"}) == []


def test_a_daily_range_ends_on_its_last_day() -> None:
    assert expected({"daily": "2025-10-30..2025-11-01"}) == ["2025-10-30", "2025-10-31", "2025-11-01"]
    assert expected({"daily": "2025-11-03..2025-12-31"}) == ["2025-11-03", "2025-11-04"]


def test_shards_keep_the_width_they_are_written_with() -> None:
    assert expected({"shards": "8..11"}) == ["8", "9", "10", "11"]
    assert expected({"shards": "08..11"}) == ["08", "09", "10", "11"]
    assert expected({"shards": "0..2"}) == ["0", "1", "2"]


def test_values_come_in_the_order_they_were_given_and_none_is_one_chunk() -> None:
    assert expected({"values": ["eu", "us", "ap"]}) == ["eu", "us", "ap"]
    assert expected("none") == ["full"]


@pytest.mark.parametrize(
    ("scheme", "after", "rest"),
    [
        ({"daily": "2025-11-01"}, "2025-11-02", ["2025-11-03", "2025-11-04"]),
        ({"daily": "2025-11-03"}, "2020-01-01", ["2025-11-03", "2025-11-04"]),
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
    ("scheme", "yes", "no"),
    [
        ("none", ["full"], ["", "Full", "2025-11-01"]),
        (
            {"daily": "2025-11-01..2025-11-30"},
            ["2025-11-01", "2025-11-30"],
            ["2025-10-31", "2025-12-01", "2025-11-31", "20251101", "2025-W45-1", "2025-11-1", " 2025-11-01", "x", ""],
        ),
        ({"daily": "2025-11-01"}, ["2025-11-01", "2099-01-01"], ["2025-10-31"]),
        ({"shards": "1..100"}, ["1", "100"], ["0", "101", "01", "1.0", "-1", "٣", "", "1 "]),
        ({"shards": "001..100"}, ["001", "100"], ["1", "01", "0001"]),
        ({"values": ["eu", "us"]}, ["eu"], ["EU", ""]),
    ],
)
def test_a_dataid_belongs_to_its_scheme_or_not(scheme: object, yes: list[str], no: list[str]) -> None:
    assert [dataid for dataid in yes + no if is_dataid(scheme, dataid)] == yes


@given(st.one_of(DAYS.map(lambda day: {"daily": day.isoformat()}),
                 st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()).map(
                     lambda n: {"shards": f"{n[0]:0{3 if n[2] else 1}d}..{n[0] + n[1]}"}),
                 st.lists(st.text(min_size=1), min_size=1, unique=True).map(lambda v: {"values": v})))  # fmt: skip
def test_every_expected_dataid_belongs_to_its_scheme_and_comes_once(scheme: dict[str, object]) -> None:
    check_scheme(scheme)
    first = scheme.get("daily")
    today = datetime.date.fromisoformat(str(first)) if first else TODAY
    dataids = list(expected_dataids(scheme, today=min(today, datetime.date(9999, 12, 1)) + datetime.timedelta(days=20)))
    assert all(is_dataid(scheme, dataid) for dataid in dataids)
    assert len(set(dataids)) == len(dataids)
    for position, dataid in enumerate(dataids[:5]):
        rest = expected_dataids(
            scheme, today=min(today, datetime.date(9999, 12, 1)) + datetime.timedelta(days=20), after=dataid
        )
        assert list(rest) == dataids[position + 1 :]


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("daily", "partitions: 'daily' is not none"),
        (None, "partitions: None is not none"),
        ({}, "partitions: {} is not none"),
        ({"weekly": "2025"}, "is not none, {daily: FIRST"),
        ({"daily": "2025-11-01", "shards": "1..2"}, "is not none"),
        ({"daily": 20251101}, "is not none"),
        ({"daily": "2025-13-01"}, "daily: '2025-13-01' is not a date like 2025-11-12"),
        ({"daily": "2025-11-02..2025-11-01"}, "is empty; the first day is after the last"),
        ({"daily": "..2025-11-01"}, "daily: '' is not a date"),
        ({"shards": "10"}, "shards: '10' is not a range like 1..10000"),
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


# Order --------------------------------------------------------------------------------------------------------------
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
