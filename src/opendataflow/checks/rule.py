"""A check at work: what every rule that looks at rows has in common."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from opendataflow.checks.arrow_types import spark_name, texts, typed
from opendataflow.checks.chunk_reader import Batch, ChunkFiles, Opening
from opendataflow.domain.checks.check import (
    CANNOT_TAKE_OUT,
    FAIL,
    Check,
    Finding,
    brief,
    missing_column,
    new_finding,
    what_breaks,
)

EXAMPLES = 3


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


class Rule:
    """One check at work."""

    needs_rows = False  # True: wants every batch, even without a column
    reads_times = False  # True: dates and times must be written as ISO 8601 writes them

    def __init__(self, check: Check, schema: Mapping[str, str] | None, dataid: str = "") -> None:
        self.check = check
        self.schema = schema or {}
        self.dataid = dataid
        self.missing: list[str] = []
        self.has_types = False  # the files know them, so that values are what they are
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
        self.has_types = opening.types is not None
        names = opening.names
        if names is None and self.schema and not opening.is_empty:  # JSON has the columns that are declared
            names = tuple(self.schema)
        elif names is not None:
            self.seen.update(names)
        for column in self.about():
            if names is not None and column not in names:
                self.missing.append(missing_column(column, names, file=opening.file))
            elif opening.types is not None:
                self._refuse(self._unfit(column, spark_name(opening.types[column])))
            elif column in self.schema:
                self._refuse(self._unfit(column, self.schema[column]))

    def see(self, batch: Batch) -> None:
        wanted = self.columns & batch.columns.keys()
        for column in (name for name in self.about() if name in wanted):
            values = batch.columns[column]
            if not pa.types.is_null(values.type):  # JSON: some row has it
                self.seen.add(column)
            broken, shown = self._broken(column, values)
            self._tally(column).add(broken, batch, shown, several=self.files > 1)

    def _broken(self, column: str, values: Any) -> tuple[Any, Any]:
        """A mask of the rows that break the rule, and the values to name."""
        raise NotImplementedError

    def _as_declared(self, column: str, values: Any) -> tuple[Any, Any]:
        """The values as what they are declared to be, where the file itself does not say; and a mask of the unfit."""
        return typed(values, None if self.has_types else self.schema.get(column))

    def _unfit(self, _column: str, _type: str) -> str:
        """Why a column of this type cannot be checked so, whatever its rows are."""
        return ""

    def _refuse(self, problem: str) -> bool:
        if problem and problem not in self.missing:
            self.missing.append(problem)
        return bool(problem)

    def _tally(self, column: str) -> Tally:
        return self.tallies.setdefault(column, Tally(self._what(column)))

    def _what(self, column: str) -> str:
        return what_breaks(self.check, column, self.dataid)

    def end(self, _reader: ChunkFiles, rows: int | None) -> None:
        """After the last batch."""
        if rows and self.files:
            unseen = [name for name in self._must_be_seen() if name not in self.seen]
            self.missing += [f"no row has a column {name!r}" for name in unseen]
            self.tallies = {name: tally for name, tally in self.tallies.items() if name not in unseen}

    def _must_be_seen(self) -> list[str]:
        return [name for name in self.about() if name not in self.schema]

    def problems(self, rows: int | None) -> list[str]:
        return self.missing[:EXAMPLES] + [one.text(rows) for one in self.tallies.values() if one.count]

    def finding(self, rows: int | None) -> Finding:
        problems = self.problems(rows)
        if problems and self.check.takes_out_rows:  # the files are as they are
            return new_finding(self.check, [*problems, CANNOT_TAKE_OUT], on_fail=FAIL)
        return new_finding(self.check, problems)
