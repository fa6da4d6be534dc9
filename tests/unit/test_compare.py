"""An expected table and the one that came out: what is equal, and what is said of the rest."""

import datetime
import decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opendataflow.spark.compare import MOST_KEPT, Comparison, Table, compare, identical, same, shown
from opendataflow.spark.frames import plain

D = decimal.Decimal
UTC = datetime.UTC
DAY = datetime.date(2025, 1, 2)
NOON = datetime.datetime(2025, 1, 2, 12)  # noqa: DTZ001  as Spark gives them


def table(*rows: dict[Any, Any], columns: tuple[Any, ...] | None = None) -> Table:
    return Table(columns=columns or tuple(dict.fromkeys(key for row in rows for key in row)), rows=rows)


def told(found: Comparison) -> list[str]:
    return [str(one) for one in found.differences]


NULLS = [None, float("nan"), D("NaN"), np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT")]


@pytest.mark.parametrize("one", NULLS, ids=repr)
@pytest.mark.parametrize("other", NULLS, ids=repr)
def test_null_equals_null_of_whatever_kind(one: Any, other: Any) -> None:
    assert same(plain(one), plain(other))


@pytest.mark.parametrize("value", [0, "", False, "nan", [], {}, 0.0], ids=repr)
def test_null_equals_nothing_else(value: Any) -> None:
    assert not same(None, value)
    assert not same(value, None)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (np.int8(1), 1),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (D("1.50"), D("1.5")),
        (D("1.5"), 1.5),
        (D(2), 2),
        (0.1 + 0.2, 0.3),
        (0.1 + 0.2 - 0.3, 0),
        (1e300, 1e300 * (1 + 1e-12)),
        (float("inf"), float("inf")),
        (pd.Timestamp("2025-01-02 12:00"), NOON),
        (np.datetime64("2025-01-02T12:00"), NOON),
        (NOON.replace(tzinfo=UTC), NOON.replace(hour=13, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))),
        (NOON, NOON.astimezone()),
        (pd.Timedelta(days=1), datetime.timedelta(days=1)),
        (bytearray(b"a"), b"a"),
        ((1, None), [1.0, float("nan")]),
        (np.array([1, 2]), [1, 2]),
        ({"a": 1, "b": None}, {"a": 1.0}),
        ([{"a": [1]}], [{"a": (1,)}]),
    ],
    ids=repr,
)
def test_values_are_equal_by_what_they_mean(one: Any, other: Any) -> None:
    assert same(plain(one), plain(other))
    assert same(plain(other), plain(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, "1"),
        (1, True),
        (0, False),
        (1.0, 1.0 + 1e-8),
        (10**20, 10**20 + 1),
        (10**400, 1.0),
        (D("0.1"), D("0.10000000000000000001")),
        (DAY, NOON.replace(hour=0)),
        (DAY, "2025-01-02"),
        (NOON, NOON.replace(microsecond=1)),
        (pd.Timestamp("2025-01-02 12:00:00.000000001"), NOON),
        (b"a", "a"),
        ("a", "a "),
        ([1, 2], [2, 1]),
        ([1], [1, None]),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": 1, "b": 2}),
    ],
    ids=repr,
)
def test_values_of_another_kind_or_meaning_are_not_equal(one: Any, other: Any) -> None:
    assert not same(plain(one), plain(other))
    assert not same(plain(other), plain(one))


def test_a_value_that_cannot_be_compared_is_not_equal_and_still_shown() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError

        def __repr__(self) -> str:
            raise RuntimeError

        __hash__ = None  # type: ignore[assignment]

    assert not same(Odd(), Odd())
    assert shown(Odd()) == "<Odd>"


def test_column_order_does_not_count_and_row_order_does() -> None:
    assert compare(table({"a": 1, "b": 2}), table({"b": 2, "a": 1})).count == 0
    found = compare(table({"a": 1}, {"a": 2}), table({"a": 2}, {"a": 1}))
    assert told(found) == ["row 1, column a: expected 1, got 2", "row 2, column a: expected 2, got 1"]
    assert found.reordered


def test_rows_that_differ_are_not_called_reordered() -> None:
    assert not compare(table({"a": 1}, {"a": 2}), table({"a": 2}, {"a": 2})).reordered
    assert not compare(table({"a": 1}, {"a": 2}), table({"a": 2}, {"a": 1}, {"a": 3})).reordered


def test_a_cell_is_named_by_row_and_column_with_both_values() -> None:
    expected = table({"a": 1, "b c": "x"}, {"a": 2, "b c": "y"})
    got = table({"a": 1, "b c": "x"}, {"a": None, "b c": "z"})
    assert told(compare(expected, got)) == [
        "row 2, column a: expected 2, got null",
        "row 2, column 'b c': expected 'y', got 'z'",
    ]


def test_columns_that_are_missing_or_not_expected_are_named_and_the_others_compared() -> None:
    expected, got = table({"a": 1, "b": 2, "c": 3}), table({"a": 9, "c": 3, "d": 4})
    assert told(compare(expected, got)) == [
        "column b is missing",
        "column d was not expected",
        "row 1, column a: expected 1, got 9",
    ]


def test_a_column_that_is_only_the_index_is_told_so() -> None:
    got = Table(columns=("n",), rows=[{"n": 1}], index=("country",))
    (line,) = told(compare(table({"country": "PT", "n": 1}), got))
    assert "column country is missing" in line
    assert "reset_index()" in line


def test_a_row_in_the_middle_is_named_as_missing_or_extra_and_the_rest_is_equal() -> None:
    three, two = table({"a": 1}, {"a": 2}, {"a": 3}), table({"a": 1}, {"a": 3})
    assert told(compare(three, two)) == ["row 2 is missing: {a: 2}"]
    assert told(compare(two, three)) == ["row 2 was not expected: {a: 2}"]


def test_rows_at_the_end_are_named_after_the_cells_that_differ() -> None:
    found = compare(table({"a": 1}, {"a": 2}), table({"a": 7}, {"a": 8}, {"a": 9}))
    assert told(found) == [
        "row 1, column a: expected 1, got 7",
        "row 2, column a: expected 2, got 8",
        "row 3 was not expected: {a: 9}",
    ]


def test_a_key_that_a_row_lacks_is_null_there() -> None:
    assert compare(table({"a": 1, "b": None}), table({"a": 1}, columns=("a", "b"))).count == 0
    assert told(compare(table({"a": 1, "b": 2}, {"a": 1}), table({"a": 1, "b": 2}, {"a": 1, "b": 3}))) == [
        "row 2, column b: expected null, got 3"
    ]


def test_where_no_rows_are_expected_columns_do_not_matter_but_rows_do() -> None:
    assert compare(table(), table(columns=("a",))).count == 0
    assert told(compare(table(), table({"a": 1}))) == ["row 1 was not expected: {a: 1}"]


def test_of_very_many_differences_the_first_are_kept_and_all_are_counted() -> None:
    rows = [{"a": number} for number in range(3 * MOST_KEPT)]
    found = compare(table(*rows), table(*({"a": -1} for _ in rows)))
    assert (len(found.differences), found.count) == (MOST_KEPT, 3 * MOST_KEPT)


def test_values_that_look_the_same_are_shown_with_their_types() -> None:
    class Text(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            return False

        __hash__ = None  # type: ignore[assignment]

    (line,) = told(compare(table({"a": Text("x")}), table({"a": "x"})))
    assert line == "row 1, column a: expected 'x' (Text), got 'x' (str)"


def test_long_values_are_shown_where_they_part() -> None:
    (line,) = told(compare(table({"a": "x" * 500 + "left"}), table({"a": "x" * 500 + "right"})))
    assert "left'" in line
    assert "right'" in line
    assert len(line) < 200


def test_identical_is_stricter_than_equal() -> None:
    assert identical(table({"a": 1, "b": None}), table({"a": 1, "b": None}))
    assert not identical(table({"a": 1}), table({"a": 1.0}))
    assert not identical(table({"a": 1, "b": 2}), table({"b": 2, "a": 1}))
    assert not identical(table({"a": 1}), table({"a": 1}, {"a": 1}))
    assert not identical(table({"a": 1}), table({"a": None}))
