"""A look at a source in a database, without Spark: does it answer, what are its columns, which are its first rows?"""

from collections.abc import Callable, Iterator
from typing import Any

from adbc_driver_manager import dbapi

from opendataflow.errors import ConfigurationError, JobFailed
from opendataflow.spark.adbc import connect, explain_failure, resolve
from opendataflow.spark.spec import Database, Place
from opendataflow.spark.sql_describe import describe
from opendataflow.spark.sql_scan import read_rows

_AT_ONCE = 10_000  # rows as Python's values
_LIMITED = ("postgresql", "sqlite", "bigquery")  # others may have another word for LIMIT


def look_at(place: Place, *, clock: Callable[[], float]) -> dict[str, Any]:
    """How it answers, or raise JobFailed with the sentence why it does not. `clock` counts seconds."""
    database = _database(place)
    began = clock()
    try:
        with connect(database, autocommit=True, must_exist=True) as connection:
            connected = clock()
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
                cursor.fetchall()
            answered = clock()
            server = _server(connection)
    except dbapi.Error as error:
        raise JobFailed(explain_failure(error, database)) from None
    return {
        "address": resolve(database).shown,
        "server": server,
        "connect_ms": round((connected - began) * 1000, 1),
        "answer_ms": round((answered - connected) * 1000, 1),
        "what": database.table or "the query",
        "columns": len(describe(place).columns),
        "partition_column": database.partition_column,
    }


def _server(connection: dbapi.Connection) -> str:
    try:
        info = connection.adbc_get_info()
    except dbapi.Error:  # not every driver tells
        return "a database"
    name, version = str(info.get("vendor_name") or "a database"), str(info.get("vendor_version") or "")
    if name == "PostgreSQL" and version.isdecimal():  # 150004 is 15.4
        version = f"{int(version) // 10000}.{int(version) % 10000}"
    return f"{name} {version}".strip()


def columns_of(place: Place) -> list[dict[str, str]]:
    """Its columns, with the database's type and Spark's; JobFailed also for a type that Spark does not have."""
    return [
        {"column": one.name, "type": one.source_type, "spark": one.spark_type} for one in describe(place).columns
    ]  # fmt: skip


def first_rows(place: Place, rows: int) -> tuple[list[str], list[list[Any]]]:
    """The names of its columns, and its first rows as they will come to Spark."""
    scan = describe(place)
    sql, found = scan.select(), list[list[Any]]()
    if scan.access.dialect in _LIMITED:
        sql = f"{sql} LIMIT {rows + int(scan.access.dialect == 'sqlite')}"  # its first one is never handed on
    for batch in read_rows(scan, sql):
        columns = [[_plain(value) for value in column.to_pylist()] for column in batch.columns]
        found += [list(row) for row in zip(*columns, strict=True)]
        if len(found) >= rows:
            break
    return [column.name for column in scan.columns], found[:rows]


def all_rows(place: Place) -> tuple[list[str], Iterator[list[tuple[Any, ...]]]]:
    """The names of its columns, and all of its rows batch by batch, as the database gives them."""
    scan = describe(place)

    def batches() -> Iterator[list[tuple[Any, ...]]]:
        for batch in read_rows(scan, scan.select()):
            for start in range(0, batch.num_rows, _AT_ONCE):
                part = batch.slice(start, _AT_ONCE)
                yield list(zip(*([_plain(one) for one in column.to_pylist()] for column in part.columns), strict=True))

    return [column.name for column in scan.columns], batches()


def _plain(value: Any) -> Any:
    """Bytes in hex; everything else has a text of its own."""
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _database(place: Place) -> Database:
    if place.database is None:
        raise ConfigurationError(f"{place.datasetid} is in no database")
    return place.database
