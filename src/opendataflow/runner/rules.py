"""The checks that look at rows: each sees every file's opening and every batch once, and then has a finding."""

import datetime
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from opendataflow.domain.checks import Check, Finding
from opendataflow.domain.partitions import slot_of
from opendataflow.runner.batches import Batch, ChunkFiles, Opening
from opendataflow.runner.typed import either, is_known, numbers, plain_name, spark_name, texts, timestamps, typed

EXAMPLES = 3
SHOWN_CHARACTERS = 40


class Tally:
    """The rows that break a rule: how many, and the first few of them."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.count = 0
        self.examples: list[str] = []
        self._names_values = False

    def add(self, broken: Any, batch: Batch, shown: Any, *, several: bool) -> None:
        """Count the rows of the mask; `shown` are the values to name, if there is more to say than where."""
        number = 0 if broken is None else pc.sum(broken).as_py() or 0
        self.count += number
        self._names_values = shown is not None
        if number and len(self.examples) < EXAMPLES:
            first = pc.indices_nonzero(broken)[: EXAMPLES - len(self.examples)]
            values = [None] * len(first) if shown is None else texts(shown.take(first)).to_pylist()
            for at, value in zip(first.to_pylist(), values, strict=True):
                where = f"row {batch.first_row + at}" + (f" of {batch.file}" if several else "")
                self.examples.append(where if shown is None else f"{_quoted(value)} in {where}")

    def text(self, rows: int | None) -> str:
        of = "" if rows is None else f" of {rows}"
        told = f": {', '.join(self.examples)}" if self._names_values else f", first in {self.examples[0]}"
        return f"{self.what} in {self.count}{of} rows{told}"


def _quoted(value: str | None) -> str:
    return "null" if value is None else f"'{brief(value)}'"


def brief(text: str) -> str:
    """A value as a message shows it: short, and on one line."""
    text = repr(text)[1:-1]
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


class Rule:
    """One check at work."""

    needs_rows = False  # True: wants every batch, even without a column
    reads_times = False  # True: dates and times must be written as ISO 8601 writes them

    def __init__(self, check: Check, schema: Mapping[str, str] | None) -> None:
        self.check = check
        self.schema = schema or {}
        self.missing: list[str] = []
        self.tallies: dict[str, Tally] = {}
        self.files = 0
        self.seen: set[str] = set()

    def about(self) -> list[str]:
        """The columns that it says something of."""
        return []

    @property
    def columns(self) -> set[str]:
        """Those of them that it must see in each batch."""
        return set(self.about())

    def open(self, opening: Opening) -> None:
        self.files += 1
        if opening.names is None:
            return
        self.seen.update(opening.names)
        for column in self.about():
            if column not in opening.names:
                has = ", ".join(opening.names[:20])
                self.missing.append(f"{opening.file} has no column {column!r}; it has {has}")

    def see(self, batch: Batch) -> None:
        for column in self.columns & batch.columns.keys():
            values = batch.columns[column]
            if not pa.types.is_null(values.type):  # JSON: some row has it
                self.seen.add(column)
            broken, shown = self._broken(column, values)
            self._tally(column).add(broken, batch, shown, several=self.files > 1)

    def _broken(self, column: str, values: Any) -> tuple[Any, Any]:
        """A mask of the rows that break the rule, and the values to name."""
        raise NotImplementedError

    def _tally(self, column: str) -> Tally:
        return self.tallies.setdefault(column, Tally(self._what(column)))

    def _what(self, column: str) -> str:
        raise NotImplementedError

    def end(self, _reader: ChunkFiles, rows: int | None) -> None:
        """After the last batch."""
        if rows and self.files:
            self.missing += [f"no row has a column {name!r}" for name in self._must_be_seen() if name not in self.seen]

    def _must_be_seen(self) -> list[str]:
        return self.about()

    def problems(self, rows: int | None) -> list[str]:
        return self.missing[:EXAMPLES] + [one.text(rows) for one in self.tallies.values() if one.count]

    def finding(self, rows: int | None) -> Finding:
        problems = self.problems(rows)
        return Finding(str(self.check), not problems, False, "; ".join(problems), self.check.on_fail)


class RowCount(Rule):
    needs_rows = True

    def __init__(self, check: Check, earlier_rows: Callable[[int], list[int]]) -> None:
        super().__init__(check, None)
        self._earlier_rows = earlier_rows

    def problems(self, _rows: int | None) -> list[str]:
        return []

    def finding(self, rows: int | None) -> Finding:
        options, name, on_fail = self.check.options, str(self.check), self.check.on_fail
        counted = rows or 0
        if "within" not in options:
            low, high = options.get("min"), options.get("max")
            ok = (low is None or counted >= low) and (high is None or counted <= high)
            return Finding(name, ok, False, f"{counted} rows", on_fail)
        earlier = self._earlier_rows(options["last"])
        if not earlier:
            return Finding(name, False, True, "no chunk before this one has a known number of rows", on_fail)
        middle = statistics.median(earlier)
        low, high = (factor * middle for factor in options["within"])
        detail = f"{counted} rows; {low:g} to {high:g} were expected, by the median {middle:g} of {len(earlier)} before"
        return Finding(name, low <= counted <= high, False, detail, on_fail)


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

    def _must_be_seen(self) -> list[str]:
        return []  # where it is never seen it is null, and counted

    def _broken(self, _column: str, values: Any) -> tuple[Any, Any]:
        return pc.is_null(values), None

    def _what(self, column: str) -> str:
        return f"{column} is null"


class Allowed(Rule):
    """`values`: null is allowed; not_null is a check of its own."""

    def __init__(self, check: Check, schema: Mapping[str, str] | None) -> None:
        super().__init__(check, schema)
        self._sets = {column: _value_set(values) for column, values in check.options["columns"].items()}

    def about(self) -> list[str]:
        return list(self._sets)

    def _broken(self, column: str, values: Any) -> tuple[Any, Any]:
        allowed = self._sets[column]
        if pa.types.is_floating(allowed.type):
            compared, bad = numbers(values)
            compared = compared.cast(pa.float64(), safe=False)
        else:
            compared, bad = texts(values), None
        outside = pc.and_(pc.is_valid(compared), pc.invert(pc.is_in(compared, value_set=allowed)))
        return either(bad, outside), values

    def _what(self, column: str) -> str:
        allowed = [str(value) for value in self.check.options["columns"][column]]
        more = f", … {len(allowed) - 5} more" if len(allowed) > 5 else ""
        return f"{column} is not one of {', '.join(allowed[:5])}{more}"


class Between(Rule):
    """Both ends count; null is allowed. Numbers as numbers, dates and times as times, other text as text."""

    reads_times = True

    def about(self) -> list[str]:
        return list(self.check.options["columns"])

    def _broken(self, column: str, values: Any) -> tuple[Any, Any]:
        bounds = self.check.options["columns"][column]
        if any(isinstance(bound, str) for bound in bounds):
            compared, bad, ends = self._as_text_or_time(column, values, bounds)
        else:
            compared, bad = numbers(values)
            is_whole = all(bound is None or (isinstance(bound, int) and abs(bound) < 1 << 63) for bound in bounds)
            if not is_whole or pa.types.is_uint64(compared.type):
                compared = compared.cast(pa.float64(), safe=False)
                bounds = [None if bound is None else float(bound) for bound in bounds]
            ends = [None if bound is None else pa.scalar(bound) for bound in bounds]
        outside = None
        # Inverted, so that NaN, which is neither smaller nor greater, is outside.
        for bound, is_inside in zip(ends, (pc.greater_equal, pc.less_equal), strict=True):
            if bound is not None:
                outside = either(outside, pc.fill_null(pc.invert(is_inside(compared, bound)), False))
        return either(bad, outside), values

    def _as_text_or_time(self, column: str, values: Any, bounds: list[Any]) -> tuple[Any, Any, list[Any]]:
        declared = plain_name(self.schema[column]) if column in self.schema else ""
        is_time = pa.types.is_temporal(values.type) or declared in ("date", "timestamp")
        ends = [timestamps(pa.array([bound], pa.string())) for bound in bounds]
        if is_time and all(bad is None for _, bad in ends):
            compared, bad = timestamps(values)
            return compared, bad, [None if end[0].as_py() is None else end[0] for end, _ in ends]
        compared = texts(values)
        return compared, None, [None if bound is None else pa.scalar(bound, compared.type) for bound in bounds]

    def _what(self, column: str) -> str:
        low, high = self.check.options["columns"][column]
        if low is None or high is None:
            return f"{column} is not at {f'most {high}' if low is None else f'least {low}'}"
        return f"{column} is not between {low} and {high}"


class PartitionColumn(Rule):
    """Every row belongs to the dataid: its time lies in the slot, or its value is the dataid. Null does not belong."""

    reads_times = True

    def __init__(self, check: Check, schema: Mapping[str, str] | None, dataid: str) -> None:
        super().__init__(check, schema)
        self._dataid = dataid
        slot = slot_of(dataid, None)
        self._slot = None if slot is None else tuple(moment.replace(tzinfo=None) for moment in slot)

    def about(self) -> list[str]:
        return [self.check.options["column"]]

    def _must_be_seen(self) -> list[str]:
        return []

    def _broken(self, _column: str, values: Any) -> tuple[Any, Any]:
        inside = self._in_slot(values) if self._slot else self._same(values)
        return pc.invert(pc.fill_null(inside, False)), values

    def _in_slot(self, values: Any) -> Any:
        start, end = self._slot or ()
        if pa.types.is_date(values.type):  # a date knows no hour
            start = datetime.datetime(start.year, start.month, start.day)  # noqa: DTZ001  compared with zoneless times
        times, _ = timestamps(values)
        if not pa.types.is_timestamp(times.type):
            return pa.array([False] * len(values))
        kind = pa.timestamp("us")
        return pc.and_(pc.greater_equal(times, pa.scalar(start, kind)), pc.less(times, pa.scalar(end, kind)))

    def _same(self, values: Any) -> Any:
        if pa.types.is_integer(values.type) and self._dataid.isascii() and self._dataid.isdigit():
            return pc.equal(texts(values), str(int(self._dataid)))
        return pc.equal(texts(values), self._dataid)

    def _what(self, column: str) -> str:
        return f"{column} is not in {self._dataid}" if self._slot else f"{column} is not {self._dataid}"


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
            from opendataflow.runner.unique import Unique

            return Unique(check, schema)
        case "values":
            return Allowed(check, schema)
        case "between":
            return Between(check, schema)
        case "partition":
            return PartitionColumn(check, schema, dataid)
    raise ValueError(f"unknown check {check.kind!r}; was the store written by a newer version?")


def _value_set(values: list[Any]) -> Any:
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return pa.array([float(value) for value in values], pa.float64())
    return pa.array([str(value).lower() if isinstance(value, bool) else str(value) for value in values], pa.string())


def _article(declared: str) -> str:
    return f"an {declared}" if declared[:1] in "aeiou" else f"a {declared}"
