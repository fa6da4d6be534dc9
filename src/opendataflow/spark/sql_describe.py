"""What a source is, asked of its database once for each run: columns and types, how many rows, how it may be split."""

import contextlib
import dataclasses
import datetime
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from adbc_driver_manager import dbapi

from opendataflow.checks.arrow_types import from_arrow
from opendataflow.domain.types.databases import POSTGRESQL_SHORT
from opendataflow.domain.types.spark import DECIMAL, names_of, spark_type
from opendataflow.errors import ConfigurationError, JobFailed
from opendataflow.spark.adbc import Access, Connection, explain, open_access, resolve
from opendataflow.spark.spec import Database, Place
from opendataflow.spark.sql_batches import arrow_schema
from opendataflow.spark.sql_chunk import ALL_ROWS, chunk_condition, dialect, literal, quoted, slots
from opendataflow.spark.sql_plan import count_parts, estimated
from opendataflow.spark.sql_scan import Scan, rows_of, run
from opendataflow.spark.sql_types import (
    POSTGRES_COLUMNS,
    Column,
    arrow_columns,
    postgres_columns,
    sqlite_column,
)

_SAMPLE_ROWS = 1000
_VIEW = "dataflow_columns"


def describe(place: Place, *, cores: int = 1) -> Scan:
    """The scan of a source as its database has it now, or JobFailed in one sentence."""
    with described(place, cores=cores) as (scan, _):
        return scan


@contextlib.contextmanager
def described(place: Place, *, cores: int = 1) -> Iterator[tuple[Scan, Connection]]:
    """As `describe`, with the connection that was asked: in its transaction a table cannot change any more."""
    database = _database(place)
    access = resolve(database)
    if place.schema is not None:
        place = dataclasses.replace(place, schema={name: str(spark_type(text)) for name, text in place.schema.items()})
    if database.url_variable:  # only now the address is known, and with it whose SQL it is
        database = dataclasses.replace(database, url=access.shown)
    try:
        with open_access(access, must_exist=True) as connection:
            match access.dialect:
                case "postgresql":
                    scan = _postgres(connection, place, database, access, cores)
                case "sqlite":
                    scan = _sqlite(connection, place, database, access)
                case _:
                    scan = _other(connection, place, database, access)
            yield scan, connection
    except (dbapi.Error, pa.ArrowException, OSError) as error:
        raise JobFailed(f"{place.datasetid}: {explain(error, access)}") from None


def _database(place: Place) -> Database:
    database = place.database
    if database is None or (database.table is None) == (database.query is None):
        raise ConfigurationError(f"{place.datasetid}: a source in a database has either `table:` or `query:`")
    return database


def _source(database: Database, kind: str) -> str:
    if database.table is not None:
        return quoted(database.table, kind)
    return f"({(database.query or '').strip().rstrip(';')}\n) AS dataflow_query"  # a query may end in a comment


def _chunk(database: Database, types: Mapping[str, str], where: str) -> dict[str, Any]:
    """The chunk's condition, and the time it covers if it is a slot of time."""
    column = database.partition_column
    if column is None or not database.dataids:
        return {"condition": ALL_ROWS}
    if column not in types:
        raise JobFailed(f"{where}: there is no column {column}, which is its `partition_column`")
    ranges: list[tuple[datetime.datetime, datetime.datetime]] = slots(database.dataids)
    return {
        "condition": chunk_condition(database, types[column])[0],
        "range_column": column if ranges else None,
        "ranges": tuple(ranges),
        "range_type": types[column],
    }


# PostgreSQL -----------------------------------------------------------------------------------------------------------
def _postgres(connection: Connection, place: Place, database: Database, access: Access, cores: int) -> Scan:
    where, source = place.datasetid, _source(database, access.dialect)
    is_table = database.table is not None
    question = POSTGRES_COLUMNS.format(table=literal(source if is_table else f"pg_temp.{_VIEW}"))
    if is_table:
        # From here it cannot change; and this says why it cannot be read.
        run(connection, f"SELECT 1 FROM {source} LIMIT 0")
    catalogue = rows_of(connection, question) if is_table else _query_columns(connection, source, question)
    if catalogue:
        columns = postgres_columns(catalogue, place.schema, where=where, from_table=is_table)
        types = {row[0]: str(row[4]) for row in catalogue}
    else:
        columns, types = _by_result(connection, place, source)
    scan = Scan(
        datasetid=where, access=access, source=source, columns=columns, wire=None,
        target=arrow_schema(columns, where=where),
        table=literal(source) if is_table else None, catalogue=tuple(map(tuple, catalogue)) if is_table else (),
        catalogue_query=question if is_table else "", **_chunk(database, types, where),
    )  # fmt: skip
    wire = _result_schema(connection, f"{scan.select()} LIMIT 0")
    rows, _ = estimated(connection, scan.select())
    # One connection holds the snapshot that the others join.
    at_once = cores if database.connections is None else max(1, min(cores, database.connections - 1))
    return dataclasses.replace(scan, wire=wire, rows=rows, parts=min(at_once, count_parts(rows, at_once=at_once)))


def _query_columns(connection: Connection, source: str, question: str) -> list[tuple[Any, ...]]:
    """Columns of a query, with the precision of its numerics: through a view that is never committed."""
    try:
        run(connection, f"CREATE TEMPORARY VIEW {_VIEW} AS SELECT * FROM {source}")
        return rows_of(connection, question)
    except dbapi.Error:
        return []  # a standby, or a user who may not; the result's own types will do
    finally:
        connection.rollback()


def _by_result(connection: Connection, place: Place, source: str) -> tuple[tuple[Column, ...], dict[str, str]]:
    """Columns of a query by what its result says: numerics have no precision there."""
    schema = _result_schema(connection, f"SELECT * FROM {source} LIMIT 0")
    rows = []
    for field in schema:
        name = _short_name(field.type)
        rows.append((field.name, name, "b", -1, name, None, None, False))
    columns = postgres_columns(rows, place.schema, where=place.datasetid, from_table=False)
    return columns, {row[0]: str(row[1]) for row in rows}


def _short_name(type_: pa.DataType) -> str:
    """PostgreSQL's name for what a result's column is."""
    if isinstance(type_, pa.BaseExtensionType):
        return str(getattr(type_, "type_name", None) or type_.extension_name.removeprefix("arrow."))
    if pa.types.is_time(type_):
        return "time"
    return POSTGRESQL_SHORT.get(str(from_arrow(type_)), str(type_))


def _result_schema(connection: Connection, sql: str) -> pa.Schema:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetch_record_batch().schema


# SQLite and others ----------------------------------------------------------------------------------------------------
def _sqlite(connection: Connection, place: Place, database: Database, access: Access) -> Scan:
    source, where = _source(database, "sqlite"), place.datasetid
    if database.table is not None:
        run(connection, f"SELECT 1 FROM {source} LIMIT 0")  # says so when there is none
        schema, _, table = database.table.rpartition(".")
        arguments = ", ".join(literal(one.strip('"'), "sqlite") for one in (table, schema) if one)
        found = {
            str(name): str(type_ or "") for name, type_ in rows_of(
                connection, f"SELECT name, type FROM pragma_table_xinfo({arguments}) WHERE hidden <> 1"
            )
        }  # fmt: skip
    else:
        sample = _result_schema(connection, f"SELECT * FROM {source} LIMIT {_SAMPLE_ROWS}")
        found = {field.name: _name_in("sqlite", field.type) or "text" for field in sample}
    wanted = place.schema or {}
    names = list(wanted) or list(found)
    missing = [name for name in names if name not in found]
    if missing:
        there = ", ".join(found)
        raise JobFailed(f"{where}: there is no column {missing[0]}, which `schema:` declares; there are {there}")
    columns = tuple(sqlite_column(name, found[name], wanted.get(name), where) for name in names)
    return Scan(
        datasetid=where, access=access, source=source, columns=columns, wire=None,
        target=arrow_schema(columns, where=where), **_chunk(database, found, where),
    )  # fmt: skip


def _other(connection: Connection, place: Place, database: Database, access: Access) -> Scan:
    kind = dialect(database)
    source = _source(database, kind)
    wire = _result_schema(connection, f"SELECT * FROM {source} WHERE 1 = 0")
    columns = arrow_columns(wire, place.schema, where=place.datasetid, kind=kind, numbers_only=kind != "bigquery")
    chosen = pa.schema([wire.field(column.name) for column in columns])
    types = {field.name: _name_in("bigquery", field.type) or str(field.type) for field in wire}
    return Scan(
        datasetid=place.datasetid, access=access, source=source, columns=columns, wire=chosen,
        target=arrow_schema(columns, where=place.datasetid), **_chunk(database, types, place.datasetid),
    )  # fmt: skip


def _name_in(kind: str, type_: pa.DataType) -> str | None:
    """What the database would call a column of this type; None where it has no name for it."""
    found = from_arrow(type_)
    if found is None:
        return None
    names = names_of(found)
    if names is None:
        return "numeric" if found.name == DECIMAL else None
    return str(getattr(names, kind)).lower()
