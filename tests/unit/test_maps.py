"""Which dataids of an input a job reads."""

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opendataflow.domain.partitions.maps import canonical_map, check_map, mapped_dataids
from opendataflow.domain.partitions.scheme import is_dataid, natural_key, shift
from opendataflow.errors import UsageError

NOW = datetime.datetime(2025, 11, 5, 2, 30, tzinfo=datetime.UTC)
DAILY = {"daily": "2025-11-01"}
HOURLY = {"hourly": "2025-11-01"}
MONTHLY = {"monthly": "2025-01"}
SHARDS = {"shards": "1..4"}
SEQUENCE = {"sequence": "1"}
LETTERS = {"values": ["a", "b", "c"]}


def mapped(
    map_: str, dataid: str, scheme: object = None, input_scheme: object = None, known: tuple[str, ...] = ()
) -> tuple[str, ...]:
    return mapped_dataids(map_, dataid, scheme=scheme, input_scheme=input_scheme, now=NOW, known=known)


# What users write -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("same", "same"),
        ("full", "full"),
        ("rollup", "rollup"),
        (" all ", "all"),
        ({"offset": -1}, "offset:-1"),
        ({"offset": 3}, "offset:3"),
        ({"window": 7}, "window:7"),
        ({"window": 1}, "window:1"),
        ("offset:-1", "offset:-1"),
        ("offset: +2", "offset:2"),
        ("window:07", "window:7"),
    ],
)
def test_a_map_has_one_text(value: object, text: str) -> None:
    assert canonical_map(value) == text
    assert canonical_map(text) == text


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "",
        "Same",
        "previous",
        {},
        [],
        {"offset": 0},
        {"offset": True},
        {"offset": "-1"},
        {"offset": 1.0},
        {"offset": 10**9},
        {"window": 0},
        {"window": -7},
        {"window": True},
        {"window": 10**9},
        {"offset": -1, "window": 7},
        {"lag": 1},
        "offset",
        "offset:",
        "offset:0",
        "offset:x",
        "offset:1.5",
        "offset:٣",
        "window:-1",
        "same:1",
    ],
)
def test_anything_else_is_refused_with_what_is_possible(value: object) -> None:
    with pytest.raises(UsageError) as refused:
        canonical_map(value)
    assert str(refused.value) == (
        f"map: {value!r} is not same, full, rollup, all, {{offset: N}} with a whole number other than 0, "
        "or {window: N} with a whole number of 1 or more"
    )


@given(st.integers(-999_999_999, 999_999_999).filter(bool))
def test_every_number_keeps_its_meaning(number: int) -> None:
    text = canonical_map({"offset": number})
    assert text == f"offset:{number}" == canonical_map(text)
    text = canonical_map({"window": abs(number)})
    assert text == f"window:{abs(number)}" == canonical_map(text)


# same, full, offset ---------------------------------------------------------------------------------------------------
def test_same_and_full_need_no_scheme() -> None:
    assert mapped("same", "2025-11-03", DAILY, DAILY) == mapped("same", "2025-11-03") == ("2025-11-03",)
    assert mapped("full", "2025-11-03", DAILY, "none") == mapped("full", "x") == ("full",)


@pytest.mark.parametrize(
    ("map_", "dataid", "scheme", "input_scheme", "result"),
    [
        ("offset:-1", "2025-11-03", DAILY, DAILY, ("2025-11-02",)),
        ("offset:1", "2025-11-03", DAILY, DAILY, ("2025-11-04",)),
        ("offset:-1", "2025-11-03", None, None, ("2025-11-02",)),
        ("offset:-2", "2025-11-01T01", HOURLY, HOURLY, ("2025-10-31T23",)),
        ("offset:-1", "2025-01", MONTHLY, None, ("2024-12",)),
        ("offset:-1", "1", SHARDS, SHARDS, ("0",)),  # not a shard: it never gets ready, and `why` shows it
        ("offset:-2", "1", SHARDS, SHARDS, ()),
        ("offset:-1", "100", {"shards": "001..100"}, {"shards": "001..100"}, ("099",)),
        ("offset:-1", "b", LETTERS, LETTERS, ("a",)),
        ("offset:-1", "a", LETTERS, LETTERS, ()),
        ("offset:-1", "b", {"values": ["b", "c"]}, LETTERS, ("a",)),  # the input begins earlier than the job
        ("offset:-1", "d", {"values": ["c", "d"]}, LETTERS, ("c",)),  # and ends earlier
        ("offset:-1", "full", None, None, ()),
    ],
)
def test_an_offset_reads_a_neighbour(
    map_: str, dataid: str, scheme: object, input_scheme: object, result: tuple[str, ...]
) -> None:
    assert mapped(map_, dataid, scheme, input_scheme) == result


def test_an_offset_before_the_inputs_first_is_still_asked_for() -> None:
    assert mapped("offset:-1", "2025-11-01", DAILY, DAILY) == ("2025-10-31",)


# window ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("map_", "dataid", "scheme", "input_scheme", "result"),
    [
        ("window:3", "2025-11-04", DAILY, DAILY, ("2025-11-02", "2025-11-03", "2025-11-04")),
        ("window:3", "2025-11-02", DAILY, DAILY, ("2025-11-01", "2025-11-02")),
        ("window:3", "2025-11-02", DAILY, None, ("2025-10-31", "2025-11-01", "2025-11-02")),
        ("window:2", "2025-11-02", None, None, ("2025-11-01", "2025-11-02")),
        ("window:1", "2025-11-02", DAILY, DAILY, ("2025-11-02",)),
        ("window:3", "2025-11-03", DAILY, {"daily": "2025-10-01..2025-11-01"}, ("2025-11-01",)),
        ("window:2", "2025-11-09", DAILY, {"daily": "2025-10-01..2025-11-01"}, ()),
        ("window:3", "2025-11-02T00", HOURLY, HOURLY, ("2025-11-01T22", "2025-11-01T23", "2025-11-02T00")),
        ("window:999999999", "3", SHARDS, SHARDS, ("1", "2", "3")),
        ("window:2", "b", {"values": ["b", "c"]}, LETTERS, ("a", "b")),
        ("window:3", "d", {"values": ["b", "c", "d"]}, LETTERS, ("b", "c")),
        ("window:3", "full", None, None, ()),
    ],
)
def test_a_window_ends_with_the_dataid_and_stays_within_the_input(
    map_: str, dataid: str, scheme: object, input_scheme: object, result: tuple[str, ...]
) -> None:
    assert mapped(map_, dataid, scheme, input_scheme) == result


@given(st.integers(0, 4000), st.integers(1, 60))
def test_a_window_is_its_offsets_put_together(after: int, size: int) -> None:
    dataid = shift("2025-11-01", after, DAILY)
    assert dataid is not None
    offsets = [mapped(f"offset:{-back}", dataid, DAILY, DAILY)[0] for back in range(size - 1, 0, -1)]
    inside = [one for one in [*offsets, dataid] if is_dataid(DAILY, one)]
    assert list(mapped(f"window:{size}", dataid, DAILY, DAILY)) == inside


# rollup ---------------------------------------------------------------------------------------------------------------
def test_a_rollup_collects_the_hours_of_a_day_and_the_days_of_a_month() -> None:
    hours = mapped("rollup", "2025-11-03", DAILY, HOURLY)
    assert hours == tuple(f"2025-11-03T{hour:02d}" for hour in range(24))
    days = mapped("rollup", "2024-02", MONTHLY, {"daily": "2020-01-01"})
    assert days == tuple(f"2024-02-{day:02d}" for day in range(1, 30))
    assert len(mapped("rollup", "2024-02", MONTHLY, {"hourly": "2020-01-01"})) == 29 * 24


def test_a_rollup_reads_the_whole_slot_also_what_is_yet_to_come() -> None:
    assert len(mapped("rollup", "2025-11-05", DAILY, HOURLY)) == 24


def test_a_rollup_stays_within_the_input() -> None:
    assert mapped("rollup", "2025-11-03", DAILY, {"hourly": "2025-11-03T22"}) == ("2025-11-03T22", "2025-11-03T23")
    assert mapped("rollup", "2025-11", MONTHLY, {"daily": "2020-01-01..2025-11-02"}) == ("2025-11-01", "2025-11-02")
    assert mapped("rollup", "2024-12", MONTHLY, DAILY) == ()


def test_a_rollup_goes_by_what_the_dataid_shows_and_by_what_is_known() -> None:
    assert len(mapped("rollup", "2025-11-03", None, HOURLY)) == 24
    known = ("2025-11-03T10", "2025-11-03T09", "2025-11-03", "2025-11-04T00", "2025-11", "3", "full")
    assert mapped("rollup", "2025-11-03", DAILY, None, known) == ("2025-11-03T09", "2025-11-03T10")
    assert mapped("rollup", "2025-11-03", DAILY, None) == ()


@pytest.mark.parametrize(
    ("dataid", "scheme", "input_scheme"),
    [
        ("2025-11-03", DAILY, DAILY),
        ("2025-11-03", DAILY, MONTHLY),
        ("2025-11-03T00", HOURLY, DAILY),
        ("2025-11-03T00", None, DAILY),
        ("2025-11-03", None, DAILY),
        ("full", "none", DAILY),
        ("1", SHARDS, HOURLY),
        ("2025-11-03", DAILY, SHARDS),
        ("full", None, None),
        ("2025-11-03T00", DAILY, HOURLY),
    ],
)
def test_a_rollup_of_what_does_not_nest_is_refused(dataid: str, scheme: object, input_scheme: object) -> None:
    with pytest.raises(UsageError, match="rollup collects hours into days or months, or days into months"):
        mapped("rollup", dataid, scheme, input_scheme)


@settings(deadline=None)
@given(st.integers(0, 100))
def test_the_rollups_of_all_days_are_all_hours_once(days: int) -> None:
    dataids = mapped_dataids("all", "full", scheme="none", input_scheme=DAILY, now=NOW + datetime.timedelta(days=days))
    hours = [hour for dataid in dataids for hour in mapped("rollup", dataid, DAILY, HOURLY)]
    midnight = (NOW + datetime.timedelta(days=days)).replace(hour=0)
    assert hours == list(mapped_dataids("all", "full", scheme="none", input_scheme=HOURLY, now=midnight))
    assert hours == sorted(hours, key=natural_key)


# all ------------------------------------------------------------------------------------------------------------------
def test_all_reads_what_is_expected_by_now() -> None:
    assert mapped("all", "full", "none", DAILY) == ("2025-11-01", "2025-11-02", "2025-11-03", "2025-11-04")
    assert mapped("all", "full", "none", SHARDS, ("9",)) == ("1", "2", "3", "4")
    assert mapped("all", "2025-11-01", DAILY, "none") == ("full",)
    assert mapped("all", "full", "none", {"sequence": "1..3"}, ("1",)) == ("1", "2", "3")


def test_all_reads_what_is_known_where_no_scheme_says_what_there_is() -> None:
    assert mapped("all", "full", "none", None, ("10", "9", "x")) == ("9", "10", "x")
    assert mapped("all", "full", "none", SEQUENCE, ("10", "9", "x", "0")) == ("9", "10")
    assert mapped("all", "full", "none", SEQUENCE) == ()


# What can never work --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("map_", "scheme", "input_scheme", "message"),
    [
        ("rollup", DAILY, DAILY, "the job is daily, the input daily"),
        ("rollup", HOURLY, DAILY, "the job is hourly, the input daily"),
        ("rollup", DAILY, MONTHLY, "the job is daily, the input monthly"),
        ("rollup", MONTHLY, SHARDS, "the job is monthly, the input shards"),
        ("rollup", HOURLY, None, "the job is hourly, the input not known"),
        ("rollup", None, MONTHLY, "the job is not known, the input monthly"),
        ("rollup", "none", DAILY, "the job is none, the input daily"),
        ("offset:-1", "none", "none", "map: offset:-1 does not fit: `none` has one chunk"),
        ("window:7", DAILY, "none", "map: window:7 does not fit: `none` has one chunk"),
        ("offset:-1", None, "none", "`none` has one chunk"),
        ("offset:-1", DAILY, HOURLY, "needs the same kind of partitions; the job is daily, the input hourly"),
        ("window:7", SHARDS, LETTERS, "needs the same kind of partitions; the job is shards, the input values"),
        ("same", DAILY, HOURLY, "the job is daily, the input hourly; use rollup"),
        ("same", HOURLY, DAILY, "the job is hourly, the input daily; give both the same partitions"),
        ("full", DAILY, DAILY, "map: full needs an input with partitions: none; this one is daily"),
        ("offset:0", DAILY, DAILY, "map: 'offset:0' is not same"),
    ],
)
def test_a_map_that_can_never_work_is_refused(map_: str, scheme: object, input_scheme: object, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_map(map_, scheme=scheme, input_scheme=input_scheme)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("map_", "scheme", "input_scheme"),
    [
        ("rollup", DAILY, HOURLY),
        ("rollup", MONTHLY, HOURLY),
        ("rollup", MONTHLY, DAILY),
        ("rollup", DAILY, None),
        ("rollup", None, HOURLY),
        ("rollup", None, None),
        ("offset:-1", DAILY, DAILY),
        ("offset:-1", DAILY, None),
        ("window:7", None, HOURLY),
        ("window:7", LETTERS, LETTERS),
        ("same", DAILY, DAILY),
        ("same", DAILY, "none"),
        ("same", SHARDS, SEQUENCE),
        ("same", None, DAILY),
        ("full", DAILY, "none"),
        ("full", DAILY, None),
        ("full", DAILY, {"values": ["full", "delta"]}),
        ("all", "none", DAILY),
        ("all", DAILY, SEQUENCE),
    ],
)
def test_a_map_that_can_work_is_accepted(map_: str, scheme: object, input_scheme: object) -> None:
    check_map(map_, scheme=scheme, input_scheme=input_scheme)
