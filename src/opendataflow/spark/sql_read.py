"""A SQL source as a DataFrame: a Spark Python Data Source whose tasks get Arrow batches over ADBC.

Password and address go from this process into the pickled source, never into an option, so that planning processes and
executors, which do not have the chunk's environment, can connect, and no plan shows them.

    with sql_reads():                     # holds the snapshots that parallel tasks share
        df = transformed(read_table(spark, place))
        with pushed_down(df):             # the database filters, and gives only columns that are needed
            df.write…
"""

import contextlib
import dataclasses
import itertools
import os
import tempfile
import uuid
from collections.abc import Iterator
from contextvars import ContextVar

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from opendataflow import errors
from opendataflow.spark import (
    adbc,
    bigquery,
    sql_batches,
    sql_chunk,
    sql_files,
    sql_plan,
    sql_pushdown,
    sql_scan,
    sql_slots,
    sql_source,
    sql_types,
    sql_words,
)
from opendataflow.spark.files_read import ddl, parse_schema
from opendataflow.spark.spec import Place
from opendataflow.spark.sql_describe import describe
from opendataflow.spark.sql_pushed import remember
from opendataflow.spark.sql_scan import Scan, join_snapshot, rows_of, run
from opendataflow.spark.sql_source import source_class

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_CONNECT_CORES = 8  # Spark Connect does not tell how many there are
_numbers = itertools.count(1)
_holders: ContextVar[list[adbc.Connection] | None] = ContextVar("holders", default=None)


def send_along() -> None:
    """From here on what tasks run is sent to the executors with it: there, only pyarrow and the driver are needed."""
    for module in (
        errors, adbc, bigquery, sql_batches, sql_chunk, sql_files, sql_plan, sql_pushdown, sql_scan, sql_slots,
        sql_source, sql_types, sql_words,
    ):  # fmt: skip
        cloudpickle.register_pickle_by_value(module)


@contextlib.contextmanager
def sql_reads() -> Iterator[None]:
    """While this lasts, the parts of each read see the same moment of their database."""
    holders: list[adbc.Connection] = []
    token = _holders.set(holders)
    try:
        yield
    finally:
        _holders.reset(token)
        for connection in holders:
            with contextlib.suppress(Exception):  # its server may be gone, and with it what it held
                connection.close()


def read_table(spark: SparkSession, place: Place) -> DataFrame:
    """The chunk's rows, with the schema that the database has now, or JobFailed in one sentence.

    Inside `sql_reads` a large read is split, and all of its parts see one moment; outside it is one part. Inside
    `pushed_down` the database filters, where it decides as Spark does, and gives only columns that are needed.
    """
    if place.database is not None and sql_chunk.dialect(place.database) == "jdbc":
        from opendataflow.spark.sql_jdbc import read_jdbc

        return read_jdbc(spark, place)
    name = f"sql_{os.getpid()}_{next(_numbers)}"
    note = os.path.join(tempfile.gettempdir(), f"dataflow_{name}_{uuid.uuid4()}.json")
    prepare(spark)
    scan = dataclasses.replace(with_snapshot(describe(place, cores=cores_of(spark))), note=note)
    source = source_class(scan, name)
    remember(name, note)
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(source)
    return spark.read.format(source.name()).schema(spark_schema(scan)).load()


def prepare(spark: SparkSession) -> None:
    """What tasks on other machines need is sent there."""
    if not is_here(spark):
        send_along()


def with_snapshot(scan: Scan) -> Scan:
    """The scan, with a snapshot that all of its parts will see if it is to be split."""
    return dataclasses.replace(scan, snapshot=_hold_snapshot(scan)) if scan.parts > 1 else scan


def spark_schema(scan: Scan) -> StructType:
    return parse_schema(ddl({column.name: column.spark_type for column in scan.columns}))


def is_here(spark: SparkSession) -> bool:
    """Whether tasks run on this machine, with this very package."""
    context = getattr(spark, "_sc", None)
    return context is not None and str(context.master).startswith("local")


def cores_of(spark: SparkSession) -> int:
    context = getattr(spark, "_sc", None)
    return int(context.defaultParallelism) if context is not None else _CONNECT_CORES


def _hold_snapshot(scan: Scan) -> str | None:
    """The name of a snapshot that lasts until `sql_reads` ends; None when nobody says when that is, or none is free."""
    holders = _holders.get()
    if holders is None:
        return None
    try:
        connection = adbc.open_access(scan.access, holding=True)
    except sql_slots.NoSlot:
        return None
    holders.append(connection)
    join_snapshot(connection, None)
    # It does nothing until the last part is read, and must not be ended for that.
    run(connection, "SET LOCAL idle_in_transaction_session_timeout = 0")
    return str(rows_of(connection, "SELECT pg_export_snapshot()")[0][0])
