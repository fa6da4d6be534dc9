"""The Spark Python Data Source of one SQL read: planned in a process of Spark's, read in its tasks as Arrow batches."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from opendataflow.spark.sql_plan import conditions_of_parts
from opendataflow.spark.sql_pushdown import split
from opendataflow.spark.sql_scan import Scan, read_rows

LOOKING: list[str] = []  # in the note, while the query is looked at


def source_class(scan: Scan, name: str) -> type[DataSource]:
    """A data source of this one read. It is pickled with all it holds, which no option could do without showing it."""
    reader = SqlReader(scan)

    class SqlSource(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return name

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
            return reader

    return SqlSource


class SqlPart(InputPartition):  # type: ignore[misc]
    def __init__(self, sql: str) -> None:
        super().__init__(None)
        self.sql = sql


class SqlReader(DataSourceReader):  # type: ignore[misc]
    """Plans in a process of Spark's, reads in its tasks."""

    def __init__(self, scan: Scan) -> None:
        self._scan, self._conditions = scan, list[str]()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # Spark's name
        # Spark keeps one plan for all uses of a source in all queries, whatever their filters: without a word that this
        # query uses it once, a filter here would be a filter there.
        if _noted(self._scan) is None:
            return filters
        self._conditions, left = split(filters, self._scan.columns, self._scan.access.dialect)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        note = _noted(self._scan)
        if note == LOOKING:
            return [SqlPart("")]  # nobody will read it
        return [SqlPart(sql) for sql in statements(self._scan, self._conditions, only=note)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._read(partition)

    def _read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        yield from read_rows(self._scan, partition.sql)


def statements(scan: Scan, filters: Sequence[str] = (), *, only: Sequence[str] | None = None) -> list[str]:
    """One for each part of the read; `only`: the columns that anybody looks at."""
    parts = conditions_of_parts(scan, filters)
    return [scan.select([*filters, *([part] if part else [])], only=only) for part in parts]


def _noted(scan: Scan) -> list[str] | None:
    """The columns that the query at hand needs; None when nobody looked at it."""
    if scan.note is None:
        return None
    try:
        with open(scan.note, encoding="utf-8") as file:
            return list(json.load(file))
    except (OSError, ValueError):
        return None
