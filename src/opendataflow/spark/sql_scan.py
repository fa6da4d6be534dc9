"""One read of a source: what is selected from where, frozen when it is planned, and how a task gets its rows.

A scan travels to planning processes and executors, which may have none of this package: what it takes there is sent
along with it.
"""

import contextlib
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from adbc_driver_manager import dbapi

from opendataflow.errors import JobFailed
from opendataflow.spark.adbc import ATTEMPTS, Access, Connection, explain, is_lost, open_access
from opendataflow.spark.sql_batches import conform, same_types
from opendataflow.spark.sql_chunk import ALL_ROWS
from opendataflow.spark.sql_types import Column, sqlite_first_row

# The driver's own hint is 16 MB; with this one a task holds less and is as quick.
_BATCH = {"adbc.postgresql.batch_size_hint_bytes": str(4 * 1024 * 1024)}
_BEGIN = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scan:
    """A read of one source, with the schema it has in this run."""

    datasetid: str
    access: Access
    source: str  # of the FROM: a quoted name, or a query in brackets
    columns: tuple[Column, ...]
    wire: pa.Schema | None  # of the result as the driver gave it when it was planned; None where it has no types
    target: pa.Schema  # of what is handed on
    condition: str = ALL_ROWS
    table: str | None = None  # a literal of its quoted name, for PostgreSQL's catalogue
    catalogue: tuple[tuple[Any, ...], ...] = ()  # what that said
    catalogue_query: str = ""
    snapshot: str | None = None
    rows: int = 0  # about so many, as the database estimates
    parts: int = 1  # at most so many at once
    range_column: str | None = None  # of a chunk that is a slot of time
    ranges: tuple[tuple[datetime.datetime, datetime.datetime], ...] = ()
    range_type: str = ""
    note: str | None = None  # the file that says what the query at hand needs, while there is one

    def select(self, conditions: Sequence[str] = (), *, only: Sequence[str] | None = None) -> str:
        """The SQL text. `only`: the columns that somebody looks at; the others are selected as null."""
        selected = ", ".join(f"{self._expression(one, only)} AS {one.sql_name}" for one in self.columns)
        every = [f"({one})" for one in (self.condition, *conditions) if one != ALL_ROWS]
        where = f" WHERE {' AND '.join(every)}" if every else ""
        text = f"SELECT {selected} FROM {self.source}{where}"
        return f"{sqlite_first_row(self.columns)} UNION ALL {text}" if self.access.dialect == "sqlite" else text

    def _expression(self, column: Column, only: Sequence[str] | None) -> str:
        if only is None or column.name in only or not column.selected_as:
            return column.expression
        # The result keeps its shape, so that nobody needs to know what was left out; nulls cost next to nothing.
        return f"NULL::{column.selected_as}"


def read_rows(scan: Scan, sql: str, connection: Connection | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a statement of this scan, in the scan's types. `connection`: the one that described it.

    A connection that is lost before the first row is made again; JobFailed tells everything else in one sentence.
    """
    for attempt in range(1, ATTEMPTS + 1):
        is_begun = False
        try:
            with _opened(scan) if connection is None else contextlib.nullcontext(connection) as used:
                for batch in _batches(used, scan, sql):
                    is_begun = True
                    yield batch
            return
        except (dbapi.Error, pa.ArrowException, OSError) as error:  # OSError: in the midst of the rows
            if is_begun or attempt == ATTEMPTS or not is_lost(error):
                raise JobFailed(f"{scan.datasetid}: {explain(error, scan.access)}") from None
            connection = None


@contextlib.contextmanager
def _opened(scan: Scan) -> Iterator[Connection]:
    with open_access(scan.access, must_exist=True) as connection:
        if scan.access.dialect == "postgresql":
            join_snapshot(connection, scan.snapshot)
            check_unchanged(connection, scan)
        yield connection


def _batches(connection: Connection, scan: Scan, sql: str) -> Iterator[pa.RecordBatch]:
    is_postgres, skip = scan.access.dialect == "postgresql", int(scan.access.dialect == "sqlite")
    options = {**(_BATCH if is_postgres else {}), **scan.access.statement_options}
    with connection.cursor(adbc_stmt_kwargs=options) as cursor:
        cursor.execute(sql)
        reader = cursor.fetch_record_batch()
        if scan.wire is not None and not same_types(reader.schema, scan.wire):
            raise changed(scan, reader.schema)
        for batch in reader:
            left, skip = batch.slice(skip), max(0, skip - batch.num_rows)
            if left.num_rows:
                yield conform(left, scan.columns, scan.target, where=scan.datasetid)


def join_snapshot(connection: Connection, snapshot: str | None) -> None:
    """Begin to read what the database held at one moment, the snapshot's where there is one."""
    run(connection, _BEGIN)
    if snapshot is not None:
        run(connection, f"SET TRANSACTION SNAPSHOT '{snapshot}'")


def check_unchanged(connection: Connection, scan: Scan) -> None:
    """Raise JobFailed when the table is not what it was when the run began; from here on it cannot change."""
    if scan.table is None:
        return
    # Reading nothing of it locks it against changes until the transaction ends.
    run(connection, f"SELECT 1 FROM {scan.source} LIMIT 0")
    now = tuple(map(tuple, rows_of(connection, scan.catalogue_query)))
    if now != scan.catalogue:
        raise changed(scan, None, now)


def changed(scan: Scan, schema: pa.Schema | None, catalogue: Sequence[Sequence[Any]] = ()) -> JobFailed:
    before = {row[0]: row[4] for row in scan.catalogue} or {one.name: str(one.type) for one in scan.wire or ()}
    after = {one.name: str(one.type) for one in schema} if schema is not None else {row[0]: row[4] for row in catalogue}
    names = [name for name in before | after if before.get(name) != after.get(name)]
    told = [f"{name} was {before.get(name, 'not there')}, is {after.get(name, 'not there')}" for name in names]
    return JobFailed(
        f"{scan.datasetid}: its columns changed during the run: {'; '.join(told) or 'their order'}; run it again"
    )


def run(connection: Connection, sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def rows_of(connection: Connection, sql: str, **options: str) -> list[tuple[Any, ...]]:
    """The few rows of a question about the database."""
    with connection.cursor(adbc_stmt_kwargs=options or None) as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())
