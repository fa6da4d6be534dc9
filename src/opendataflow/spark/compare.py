"""An expected table and the one that came out, cell by cell.

Null equals null: None, NaN, NaT and pandas.NA are one. Row order counts, column order does not. Numbers are compared by
value, whatever their type; where one is a float, a difference in the last digits does not count. Everything else equals
only what has its kind: 1 is not "1", and not True. Needs neither pandas nor Spark.
"""

import datetime
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

RELATIVE, ABSOLUTE = 1e-9, 1e-12  # how far floats may be apart
MOST_KEPT = 1000  # differences that are told one by one
_MOST_SHOWN = 120  # characters of a value
_NULLS = ("NaTType", "NAType")  # of pandas

MISSING_COLUMN, EXTRA_COLUMN = "missing column", "extra column"
MISSING_ROW, EXTRA_ROW, CELL = "missing row", "extra row", "cell"

Column = Hashable
Row = Mapping[Column, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Plain values: a row lacks what is null in it, or has None there."""

    columns: tuple[Column, ...]
    rows: Sequence[Row]
    cut_off: bool = False  # there are more rows than these
    index: tuple[Column, ...] = ()  # of a pandas DataFrame: names that look like columns to people


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    kind: str
    row: int | None = None  # from 1, of the expected rows; of an extra row, of those that came out
    column: str | None = None
    expected: str | None = None
    got: str | None = None

    def __str__(self) -> str:
        match self.kind:
            case "missing column":
                return f"column {self.column} is missing{f': {self.got}' if self.got else ''}"
            case "extra column":
                return f"column {self.column} was not expected"
            case "missing row":
                return f"row {self.row} is missing: {self.expected}"
            case "extra row":
                return f"row {self.row} was not expected: {self.got}"
        return f"row {self.row}, column {self.column}: expected {self.expected}, got {self.got}"


@dataclass(slots=True)
class Comparison:
    """What differs: the first of it one by one, and how much there is."""

    differences: list[Difference] = field(default_factory=list)
    count: int = 0
    reordered: bool = False  # the same rows, in another order

    def add(self, difference: Difference) -> None:
        self.count += 1
        if self.count <= MOST_KEPT:
            self.differences.append(difference)


def compare(expected: Table, got: Table) -> Comparison:
    """All that differs. Where columns differ, the cells of those that both have are still compared."""
    found = Comparison()
    if expected.rows or expected.columns:  # else nothing was expected, whatever its columns are called
        _compare_columns(expected, got, found)
    common = [column for column in expected.columns if column in got.columns]
    if expected.rows and got.rows and not common:
        return found
    for difference in _row_differences(expected, got, common):
        found.add(difference)
    same_size = len(expected.rows) == len(got.rows) and not got.cut_off
    found.reordered = found.count > 0 and same_size and _is_reordered(expected, got)
    return found


def _compare_columns(expected: Table, got: Table, found: Comparison) -> None:
    for column in expected.columns:
        if column not in got.columns:
            hint = "it is the index of the result, and `reset_index()` makes it a column"
            told = hint if column in got.index else None
            found.add(Difference(kind=MISSING_COLUMN, column=shown_column(column), got=told))
    for column in got.columns:
        if column not in expected.columns:
            found.add(Difference(kind=EXTRA_COLUMN, column=shown_column(column)))


def _row_differences(expected: Table, got: Table, common: Sequence[Column]) -> Iterator[Difference]:
    """Cells row by row; where the numbers of rows differ, equal rows at both ends are put aside first."""
    before, after = 0, 0
    left, right = expected.rows, got.rows
    if len(left) != len(right):
        shorter = min(len(left), len(right))
        while before < shorter and _same_row(left[before], right[before], common):
            before += 1
        while after < shorter - before and _same_row(left[-1 - after], right[-1 - after], common):
            after += 1
    middle_left, middle_right = left[before : len(left) - after], right[before : len(right) - after]
    paired = min(len(middle_left), len(middle_right))
    for number in range(paired):
        for column in common:
            one, other = middle_left[number].get(column), middle_right[number].get(column)
            if not same(one, other):
                yield Difference(
                    kind=CELL, row=before + number + 1, column=shown_column(column), **_values(one, other)
                )  # fmt: skip
    for number, row in enumerate(middle_left[paired:], before + paired + 1):
        yield Difference(kind=MISSING_ROW, row=number, expected=_shown_row(row, expected.columns))
    for number, row in enumerate(middle_right[paired:], before + paired + 1):
        yield Difference(kind=EXTRA_ROW, row=number, got=_shown_row(row, got.columns))


def _values(expected: Any, got: Any) -> dict[str, str]:
    """Both as text; with their types where the text alone would be the same."""
    one, other = _text(expected), _text(got)
    if one == other:
        one, other = f"{_short(one)} ({type(expected).__name__})", f"{_short(other)} ({type(got).__name__})"
        return {"expected": one, "got": other}
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    if at >= _MOST_SHOWN:  # they part only after what would be shown
        one, other = f"…{one[at - 20 :]}", f"…{other[at - 20 :]}"
    return {"expected": _short(one), "got": _short(other)}


def _is_reordered(expected: Table, got: Table) -> bool:
    if set(expected.columns) != set(got.columns) or len(expected.rows) > MOST_KEPT:
        return False
    return same_rows(expected.rows, got.rows, expected.columns)


def same_rows(some: Sequence[Row], others: Sequence[Row], columns: Sequence[Column]) -> bool:
    """Whether they are the same rows, each as often, in whichever order."""
    left = list(others)
    for row in some:
        at = next((n for n, other in enumerate(left) if _same_row(row, other, columns)), None)
        if at is None:
            return False
        del left[at]
    return not left


def _same_row(one: Row, other: Row, columns: Sequence[Column]) -> bool:
    return all(same(one.get(column), other.get(column)) for column in columns)


def identical(one: Table, other: Table) -> bool:
    """The same in every respect: also the order of columns, and the types of values."""
    return (
        one.columns == other.columns
        and len(one.rows) == len(other.rows)
        and all(
            same(a.get(column), b.get(column))
            and (is_null(a.get(column)) or type(a.get(column)) is type(b.get(column)))
            for a, b in zip(one.rows, other.rows, strict=True)
            for column in one.columns
        )
    )


# Values -----------------------------------------------------------------------------------------------------------
def is_null(value: Any) -> bool:
    """None, NaN of any kind, NaT and pandas.NA."""
    if value is None or type(value).__name__ in _NULLS:
        return True
    return isinstance(value, float | Decimal) and value != value  # noqa: PLR0124  what NaN is known by


def same(one: Any, other: Any) -> bool:
    """Whether two plain values are equal, by the rules above, also within lists and dicts."""
    if is_null(one) or is_null(other):
        return is_null(one) and is_null(other)
    if isinstance(one, bool) or isinstance(other, bool):
        return isinstance(one, bool) and isinstance(other, bool) and one == other
    if isinstance(one, int | float | Decimal) and isinstance(other, int | float | Decimal):
        return _same_number(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return all(same(one.get(key), other.get(key)) for key in {*one, *other})
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    try:
        if isinstance(one, datetime.datetime) and isinstance(other, datetime.datetime):
            return _same_moment(one, other)
        return bool(one == other)
    except Exception:  # noqa: BLE001  what cannot be compared is not equal
        return False


def _same_number(one: Any, other: Any) -> bool:
    if not isinstance(one, float) and not isinstance(other, float):
        return bool(one == other)
    try:
        return math.isclose(float(one), float(other), rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    except OverflowError:  # an int that no float can hold
        return False


def _same_moment(one: datetime.datetime, other: datetime.datetime) -> bool:
    """A time without zone beside one with a zone is one of this process's zone, which is Spark's session's."""
    if (one.tzinfo is None) != (other.tzinfo is None):
        one, other = one.astimezone(), other.astimezone()
    return one == other


def shown(value: Any) -> str:
    """A value as a diff shows it: as Python writes it, and short."""
    return _short(_text(value))


def _text(value: Any) -> str:
    if is_null(value):
        return "null"
    try:
        return str(value) if isinstance(value, datetime.date) else repr(value)
    except Exception:  # noqa: BLE001  an object of the user's own
        return f"<{type(value).__name__}>"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}… ({len(text)} characters)"


def shown_column(column: Column) -> str:
    return column if isinstance(column, str) and column.isidentifier() else repr(column)


def _shown_row(row: Row, columns: Sequence[Column]) -> str:
    return "{" + ", ".join(f"{shown_column(column)}: {shown(row.get(column))}" for column in columns) + "}"
