"""The rows of a DataFrame into a staging table: every Spark task streams its own over ADBC, in Arrow.

Each row has the attempt of the task that wrote it. A task that fails, or is done twice, leaves rows behind; what is
published are the rows of those attempts whose answer Spark took.
"""

import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from opendataflow.errors import JobFailed
from opendataflow.spark.adbc import Access, explain, open_access
from opendataflow.spark.bucket_tasks import Batches
from opendataflow.spark.sql_columns import ATTEMPT
from opendataflow.spark.sql_read import is_here, send_along
from opendataflow.spark.sql_target import name_parts

_SQLITE_ROWS = 50_000  # in one transaction: other tasks, and readers, get their turn in between
_FAILED = re.compile(r"StageFailed: (?P<said>.+)")
_COLUMN = re.compile(rb"COPY .*, line \d+, column (?P<name>.+)")


class Attempt(NamedTuple):
    """A task attempt whose rows count, and how many it wrote."""

    number: int
    rows: int


class StageFailed(Exception):
    """In a task: one sentence, without secrets, that the driver finds in what Spark says."""


def stage(df: DataFrame, access: Access, table: str, *, read: Batches | None = None) -> tuple[Attempt, ...]:
    """Write all rows into the staging table; the attempts that count. Raises JobFailed if the database refuses them.

    With `read`, the DataFrame's rows are what it makes the rows of.
    """
    if not is_here(df.sparkSession):
        send_along()
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
    if access.connections is not None:
        df = df.coalesce(access.connections - 1)  # one is taken by whoever publishes
    try:
        # One short row for each task.
        found = df.mapInArrow(_writer(access, table, read), "attempt bigint, rows bigint").collect()
    except PySparkException as error:
        said = _FAILED.findall(str(error))
        if said:
            raise JobFailed(said[-1].strip()) from error
        raise
    return tuple(Attempt(row["attempt"], row["rows"]) for row in found)


def _writer(access: Access, table: str, read: Batches | None) -> Batches:
    *schemas, name = name_parts(table)

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = int(context.taskAttemptId()) if context is not None else 0
        rows_in = batches if read is None else read(batches)
        first = next(rows_in, None)
        if first is None:
            return
        rows = write_batches(_tagged(first, rows_in, attempt, access.dialect), access, schemas, name)
        yield pa.RecordBatch.from_pydict({"attempt": pa.array([attempt]), "rows": pa.array([rows])})

    return write


def _tagged(first: Any, rest: Iterator[Any], attempt: int, kind: str) -> Iterator[Any]:
    """The batches in types that the driver takes, with the attempt in every row."""
    import itertools

    import pyarrow as pa

    for batch in itertools.chain([first], rest):
        columns = [_taken(column, kind) for column in batch.columns]
        number = pa.repeat(pa.scalar(attempt, pa.int64()), batch.num_rows)
        yield pa.RecordBatch.from_arrays([*columns, number], names=[*batch.schema.names, ATTEMPT])


def _taken(column: Any, kind: str) -> Any:
    import pyarrow as pa

    if kind == "sqlite" and pa.types.is_decimal(column.type):
        return column.cast(pa.string())
    return column


def write_batches(batches: Iterator[Any], access: Access, schemas: list[str], name: str) -> int:
    """Write into the table in one stream, or in several transactions where there is one writer at a time."""
    import itertools

    import pyarrow as pa
    from adbc_driver_manager import dbapi

    first = next(batches)
    everything = itertools.chain([first], batches)
    counted, broken = [0], []

    def counting(some: Iterator[Any]) -> Iterator[Any]:
        try:
            for batch in some:
                counted[0] += batch.num_rows
                yield batch
        except BaseException as error:  # of Spark, not of the database that it passes through
            broken.append(error)
            raise

    try:
        with open_access(access, autocommit=True) as connection, connection.cursor() as cursor:
            for group in _groups(everything, access.dialect):
                reader = pa.RecordBatchReader.from_batches(first.schema, counting(group))
                cursor.adbc_ingest(name, reader, mode="append", db_schema_name=schemas[-1] if schemas else None)
    except dbapi.Error as error:
        if broken:
            raise broken[0] from None
        raise StageFailed(_told(error, access)) from None
    except JobFailed as error:
        raise StageFailed(str(error)) from None
    return counted[0]


def _groups(batches: Iterator[Any], kind: str) -> Iterator[Iterator[Any]]:
    if kind != "sqlite":
        yield batches
        return
    group: list[Any] = []
    for batch in batches:
        group.append(batch)
        if sum(one.num_rows for one in group) >= _SQLITE_ROWS:
            yield iter(group)
            group = []
    if group:
        yield iter(group)


def _told(error: Any, access: Access) -> str:
    """What the database refused, with the column that it names."""
    said = explain(error, access)
    for key, value in getattr(error, "details", None) or ():
        found = _COLUMN.search(value) if key in ("PG_DIAG_CONTEXT", b"PG_DIAG_CONTEXT") else None
        if found is not None:
            return f"column {found['name'].decode(errors='replace')!r}: {said}"
    return said
