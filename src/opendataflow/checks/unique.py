"""The check that no two rows are alike in some columns."""

from array import array
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from opendataflow.checks.arrow_types import texts, typed
from opendataflow.checks.chunk_reader import Batch, ChunkFiles
from opendataflow.checks.rule import EXAMPLES, Rule
from opendataflow.domain.checks.check import Check, brief

VERIFIED_KEYS = 1000  # of the hashes that are alike, so many are compared row by row


class Unique(Rule):
    """No two rows have the same values in these columns. As in SQL, a row with a null among them is left out.

    It keeps 8 bytes a row, a hash of the values, and 24 while it looks for two that are alike: 240 MB for ten million
    rows. Hashes may be alike by chance, so a second reading compares the rows behind them.
    """

    def __init__(self, check: Check, schema: Mapping[str, str] | None) -> None:
        super().__init__(check, schema)
        self._keys: list[str] = list(check.options["columns"])
        self._hashes = array("q")
        self._found = ""

    def about(self) -> list[str]:
        return self._keys

    def see(self, batch: Batch) -> None:
        self.seen.update(name for name, values in batch.columns.items() if not pa.types.is_null(values.type))
        joined = self._joined(batch)
        if joined is not None:
            self._hashes.extend(hash(key) for key in joined.to_pylist() if key is not None)

    def _joined(self, batch: Batch) -> Any:
        """The values of each row as one text, null where one of them is."""
        if any(column not in batch.columns for column in self._keys):
            return None
        # A length before each value keeps ("a", "bc") and ("ab", "c") apart.
        parts = []
        for column in self._keys:
            declared = None if self.has_types else self.schema.get(column)
            text = self._comparable(batch.columns[column], declared)
            parts += [pc.utf8_length(text).cast(pa.large_string()), text]
        return pc.binary_join_element_wise(*parts, pa.scalar(":", pa.large_string()))

    @staticmethod
    def _comparable(values: Any, declared: str | None) -> Any:
        """As its type writes it, so that 1 and 1.0 are alike where a number is declared; as it is where it is none."""
        read, bad = typed(values, declared)
        if pa.types.is_floating(read.type):
            read = pc.add(read, pa.scalar(0.0, read.type))  # -0.0 is 0.0
        text = texts(read) if bad is None else pc.coalesce(texts(read), texts(values))
        return text.cast(pa.large_string())

    def end(self, reader: ChunkFiles, rows: int | None) -> None:
        super().end(reader, rows)
        count = len(self._hashes)
        if count < 2:
            return
        hashes = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(self._hashes)])
        ordered = hashes.take(pc.array_sort_indices(hashes))
        again = pc.equal(ordered[1:], ordered[:-1])
        repeated = pc.sum(again).as_py()
        if repeated:
            suspects = ordered[1:].filter(again).unique()
            self._look_again(reader, repeated, suspects[:VERIFIED_KEYS], is_all=len(suspects) <= VERIFIED_KEYS)

    def _look_again(self, reader: ChunkFiles, repeated: int, suspects: Any, *, is_all: bool) -> None:
        wanted = set(suspects.to_pylist())
        first: dict[str, str] = {}
        count = 0
        examples: list[str] = []
        several = self.files > 1
        for batch in reader.batches(self.columns):
            joined = self._joined(batch)
            for at, key in enumerate([] if joined is None else joined.to_pylist()):
                if key is None or hash(key) not in wanted:
                    continue
                where = f"{batch.first_row + at}" + (f" of {batch.file}" if several else "")
                if first.setdefault(key, where) == where:
                    continue
                count += 1
                if len(examples) < EXAMPLES:
                    values = [str(texts(batch.columns[column].slice(at, 1))[0]) for column in self._keys]
                    examples.append(f"({brief(', '.join(values))}) in rows {first[key]} and {where}")
        if count:
            count = count if is_all else repeated
            self._found = f"{', '.join(self._keys)} repeats an earlier row in {count} rows: {', '.join(examples)}"

    def problems(self, rows: int | None) -> list[str]:
        return super().problems(rows) + ([self._found] if self._found else [])
