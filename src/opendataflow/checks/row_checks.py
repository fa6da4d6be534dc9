"""The checks that look at rows: each sees every file's opening and every batch once, and then has a finding."""

import datetime
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from opendataflow.checks.arrow_types import either, is_known, kind_of, numbers, spark_name, texts, timestamps, typed
from opendataflow.checks.chunk_reader import Opening
from opendataflow.checks.rule import Rule
from opendataflow.checks.unique import Unique
from opendataflow.domain.checks.check import (
    Check,
    Finding,
    count_finding,
    unfit_bounds,
    what_breaks,
    without_text,
)
from opendataflow.domain.checks.patterns import re2_pattern
from opendataflow.domain.partitions.scheme import slot_of
from opendataflow.domain.types.spark import plain_name
from opendataflow.domain.types.values import BOOLEAN, DATE, HAVE_TEXT, INTEGER, NUMERIC, TEXT, TIMESTAMP, moment, number


class RowCount(Rule):
    needs_rows = True

    def __init__(self, check: Check, earlier_rows: Callable[[int], list[int]]) -> None:
        super().__init__(check, None)
        self._earlier_rows = earlier_rows

    def problems(self, _rows: int | None) -> list[str]:
        return []

    def finding(self, rows: int | None) -> Finding:
        options = self.check.options
        earlier = self._earlier_rows(options["last"]) if "within" in options else []
        return count_finding(self.check, rows or 0, earlier)


class Header(Rule):
    def open(self, opening: Opening) -> None:
        super().open(opening)
        wanted = tuple(self.check.options["columns"])
        if opening.names is None:
            self.missing.append(f"{opening.file} has no header")
        elif opening.names != wanted:
            self.missing.append(f"{opening.file} begins with {', '.join(opening.names)}, not {', '.join(wanted)}")


class Schema(Rule):
    """The declared columns are there and hold what they are declared to.

    The same as Spark's reader asks for: a CSV has exactly the declared columns, in any order; JSON, Parquet and ORC may
    have others besides.
    """

    def __init__(self, check: Check, schema: Mapping[str, str] | None) -> None:
        super().__init__(check, schema)
        self._from_footers = False
        self.reads_times = any(plain_name(declared) in ("date", "timestamp") for declared in self.schema.values())
        unknown = [f"type {declared!r} of column {name!r} is not known here" for name, declared in self.schema.items()
                   if not is_known(declared)]  # fmt: skip
        self.missing += unknown if self.schema else ["the dataset declares no schema"]

    def about(self) -> list[str]:
        return list(self.schema)

    @property
    def columns(self) -> set[str]:
        return set() if self._from_footers else set(self.schema)

    def open(self, opening: Opening) -> None:
        super().open(opening)
        if opening.is_empty:
            self.missing.append(f"{opening.file} is empty, it has not even a header")
        if opening.types is not None:
            self._from_footers = True
            for name, declared in self.schema.items():
                found = spark_name(opening.types[name]) if name in opening.types else plain_name(declared)
                if plain_name(found) != plain_name(declared):
                    self.missing.append(f"{opening.file}: column {name!r} is {found}, not {declared}")
        elif opening.names is not None:
            others = [name for name in opening.names if name not in self.schema]
            self.missing += [f"{opening.file} has a column {name!r} that is not declared" for name in others]

    def _must_be_seen(self) -> list[str]:
        return self.about()

    def _broken(self, column: str, values: Any) -> tuple[Any, Any]:
        return typed(values, self.schema[column])[1], values

    def _what(self, column: str) -> str:
        return f"{column} is not {_article(self.schema[column])}"


class NotNull(Rule):
    def __init__(self, check: Check, schema: Mapping[str, str] | None) -> None:
        super().__init__(check, schema)
        self._must_read = False

    def about(self) -> list[str]:
        return list(self.check.options["columns"])

    def open(self, opening: Opening) -> None:
        super().open(opening)
        counts = opening.null_counts or {}
        self._must_read = self._must_read or any(counts.get(column) != 0 for column in self.about())

    @property
    def columns(self) -> set[str]:
        """None where statistics in the footers already say that nothing is null."""
        return set(self.about()) if self._must_read else set()

    def _broken(self, _column: str, values: Any) -> tuple[Any, Any]:
        return pc.is_null(values), None


class Allowed(Rule):
    """`values`: compared as what the column is; null is allowed, not_null is a check of its own."""

    def about(self) -> list[str]:
        return list(self.check.options["columns"])

    def _broken(self, column: str, values: Any) -> tuple[Any, Any]:
        allowed = self.check.options["columns"][column]
        read, bad = self._as_declared(column, values)
        compared, unfit, value_set = _comparable(read, allowed)
        outside = pc.is_valid(read)
        if value_set is not None:
            outside = pc.and_(outside, pc.invert(pc.is_in(compared, value_set=value_set)))
        return either(either(bad, unfit), outside), values


def _comparable(read: Any, allowed: list[Any]) -> tuple[Any, Any, Any]:
    """The column and the allowed values as the same type, and a mask of what cannot be one; no set: nothing fits."""
    kind = kind_of(read.type)
    numbers_only = all(number(value) is not None and not isinstance(value, str) for value in allowed)
    if kind == INTEGER and all(type(value) is int for value in allowed):
        inside = [value for value in allowed if -(1 << 63) <= value < 1 << 63]
        return read.cast(pa.int64()), None, pa.array(inside, pa.int64())
    if kind in (INTEGER, NUMERIC) or (kind == TEXT and numbers_only):
        found, unfit = numbers(read)
        wanted = [one for value in allowed if (one := number(value)) is not None]
        return found.cast(pa.float64(), safe=False), unfit, pa.array(wanted, pa.float64())
    if kind in (DATE, TIMESTAMP):
        moments = [at for value in allowed if (at := moment(str(value))) is not None]
        return timestamps(read)[0], None, pa.array(moments, pa.timestamp("us"))
    if kind in (TEXT, BOOLEAN):
        written = [str(value).lower() if isinstance(value, bool) else str(value) for value in allowed]
        return texts(read), None, pa.array(written, pa.string())
    return read, None, None


class Between(Rule):
    """Both ends count; null is allowed. Numbers as numbers, dates and times as times, text as text."""

    reads_times = True

    def about(self) -> list[str]:
        return list(self.check.options["columns"])

    def _broken(self, column: str, values: Any) -> tuple[Any, Any]:
        bounds = self.check.options["columns"][column]
        read, bad = self._as_declared(column, values)
        kind = kind_of(read.type)
        if self._refuse(self._unfit(column, spark_name(read.type))):
            return None, values
        if kind in (DATE, TIMESTAMP):
            compared, unit = timestamps(read)[0], pa.timestamp("us")
            bounds = [None if bound is None else pa.scalar(moment(bound), unit) for bound in bounds]
        elif kind == TEXT and any(isinstance(bound, str) for bound in bounds):
            compared = read
            bounds = [None if bound is None else pa.scalar(bound, pa.string()) for bound in bounds]
        else:
            compared, unfit = numbers(read)
            bad = either(bad, unfit)
            if not all(bound is None or (type(bound) is int and abs(bound) < 1 << 63) for bound in bounds):
                compared = compared.cast(pa.float64(), safe=False)
                bounds = [number(bound) for bound in bounds]
            bounds = [None if bound is None else pa.scalar(bound) for bound in bounds]
        outside = None
        # Inverted, so that NaN, which is neither smaller nor greater, is outside.
        for bound, is_inside in zip(bounds, (pc.greater_equal, pc.less_equal), strict=True):
            if bound is not None:
                outside = either(outside, pc.fill_null(pc.invert(is_inside(compared, bound)), False))
        return either(bad, outside), values

    def _unfit(self, column: str, type_: str) -> str:
        return unfit_bounds(column, type_, self.check.options["columns"][column])


class Pattern(Rule):
    """Every value matches as a whole; null is allowed."""

    def __init__(self, check: Check, schema: Mapping[str, str] | None) -> None:
        super().__init__(check, schema)
        self._patterns = {column: re2_pattern(pattern) for column, pattern in check.options["columns"].items()}

    def about(self) -> list[str]:
        return list(self._patterns)

    def _broken(self, column: str, values: Any) -> tuple[Any, Any]:
        read, bad = self._as_declared(column, values)
        if self._refuse(self._unfit(column, spark_name(read.type))):
            return None, values
        matching = pc.match_substring_regex(texts(read), self._patterns[column])
        return either(bad, pc.fill_null(pc.invert(matching), False)), values

    def _unfit(self, column: str, type_: str) -> str:
        return without_text(column, type_)


class PartitionColumn(Rule):
    """Every row belongs to the dataid: its time lies in the slot, or its value is the dataid. Null does not belong."""

    reads_times = True

    def __init__(self, check: Check, schema: Mapping[str, str] | None, dataid: str) -> None:
        super().__init__(check, schema, dataid)
        slot = slot_of(dataid, None)
        self._slot = None if slot is None else tuple(moment.replace(tzinfo=None) for moment in slot)

    def about(self) -> list[str]:
        return [self.check.options["column"]]

    def _broken(self, column: str, values: Any) -> tuple[Any, Any]:
        read, _ = self._as_declared(column, values)
        inside = self._in_slot(read) if self._slot else self._same(read)
        return pc.invert(pc.fill_null(inside, False)), values

    def _in_slot(self, read: Any) -> Any:
        start, end = self._slot or ()
        kind = kind_of(read.type)
        if kind not in (DATE, TIMESTAMP, TEXT):
            return _nowhere(read)
        if kind == DATE:  # a date knows no hour
            start = datetime.datetime(start.year, start.month, start.day)  # noqa: DTZ001  compared with zoneless times
        times, unit = timestamps(read)[0], pa.timestamp("us")
        return pc.and_(pc.greater_equal(times, pa.scalar(start, unit)), pc.less(times, pa.scalar(end, unit)))

    def _same(self, read: Any) -> Any:
        kind = kind_of(read.type)
        if kind == INTEGER and self.dataid.isascii() and self.dataid.isdigit():
            return pc.equal(texts(read), str(int(self.dataid)))
        if kind == NUMERIC and (wanted := number(self.dataid)) is not None:
            return pc.equal(read.cast(pa.float64(), safe=False), wanted)
        return pc.equal(texts(read), self.dataid) if kind in HAVE_TEXT else _nowhere(read)

    def _what(self, column: str) -> str:
        return what_breaks(self.check, column, self.dataid, is_slot=self._slot is not None)


def _nowhere(read: Any) -> Any:
    return pa.repeat(pa.scalar(False), len(read))


def new_rule(
    check: Check, dataid: str, schema: Mapping[str, str] | None, earlier_rows: Callable[[int], list[int]]
) -> Rule:
    match check.kind:
        case "rows":
            return RowCount(check, earlier_rows)
        case "header":
            return Header(check, schema)
        case "schema":
            return Schema(check, schema)
        case "not_null":
            return NotNull(check, schema)
        case "unique":
            return Unique(check, schema)
        case "values":
            return Allowed(check, schema)
        case "between":
            return Between(check, schema)
        case "pattern":
            return Pattern(check, schema)
        case "partition":
            return PartitionColumn(check, schema, dataid)
    raise ValueError(f"unknown check {check.kind!r}; was the store written by a newer version?")


def _article(declared: str) -> str:
    return f"an {declared}" if declared[:1] in "aeiou" else f"a {declared}"
