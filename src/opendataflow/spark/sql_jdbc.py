"""`jdbc:` addresses: Spark's own JDBC reader, with the user's jar (`spark.jars` or `spark.driver.extraClassPath`).

User and password go to Spark as connection properties, which it keeps out of its plans. The chunk is a filter that
Spark puts into the database's own SQL.
"""

import datetime
import os
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, IntegralType, TimestampNTZType, TimestampType

from opendataflow.errors import ConfigurationError, JobFailed
from opendataflow.spark.adbc import CONNECT_SECONDS
from opendataflow.spark.spark_errors import causes
from opendataflow.spark.spec import Database, Place
from opendataflow.spark.sql_chunk import quoted, slots
from opendataflow.spark.sql_words import explain_error, without_secrets

FETCH_ROWS = 10_000  # PostgreSQL's driver would hold all rows in memory, and Oracle's would ask for ten at a time
_NO_CLASS = ("java.lang.ClassNotFoundException", "org.apache.spark.SparkClassNotFoundException")


def read_jdbc(spark: SparkSession, place: Place) -> DataFrame:
    """The chunk's rows through Spark's JDBC reader, or JobFailed in one sentence."""
    database = place.database
    if database is None or (database.table is None) == (database.query is None):
        raise ConfigurationError(f"{place.datasetid}: a source in a database has either `table:` or `query:`")
    options = _options(database)
    try:
        df = _chunk(spark, place, database, options)
        return df if place.schema is None else df.select(_declared(place))
    except PySparkException as error:
        raise JobFailed(f"{place.datasetid}: {explain_jdbc(error, database, options)}") from None
    except Exception as error:
        if getattr(error, "java_exception", None) is None:
            raise
        raise JobFailed(f"{place.datasetid}: {explain_jdbc(error, database, options)}") from None


def explain_jdbc(error: BaseException, database: Database, options: dict[str, Any]) -> str:
    """What the JDBC driver says, in one sentence without secrets."""
    said, shown = causes(error), without_secrets(str(options["url"]))
    if any(cause.java_class in _NO_CLASS or "No suitable driver" in cause.text for cause in said):  # java.sql's words
        return (
            f"there is no JDBC driver for {shown}; name its jar in `spark: {{conf: {{spark.jars: …}}}}`, "
            "and its class in `driver:` if Spark does not find it"
        )
    told = RuntimeError(" ".join(cause.text for cause in said))
    secrets = tuple(str(options[name]) for name in ("password",) if options.get(name))
    return explain_error(told, dialect="jdbc", shown=shown, table=database.table, secrets=secrets)


def _options(database: Database) -> dict[str, Any]:
    url = os.environ.get(database.url_variable) if database.url_variable else database.url
    if not url:
        raise ConfigurationError(f"the environment variable {database.url_variable}, with the address, is not set")
    source = (
        quoted(database.table, url.split(":")[1].lower())  # jdbc:mysql://…
        if database.table is not None
        else f"({(database.query or '').strip().rstrip(';')}\n) dataflow_query"
    )
    options = {"url": url, "dbtable": source, "fetchsize": FETCH_ROWS, "loginTimeout": CONNECT_SECONDS}
    options |= dict(database.options)
    if database.password_variable:
        password = os.environ.get(database.password_variable)
        if not password:
            raise ConfigurationError(f"the environment variable {database.password_variable}, its password, is not set")
        options["password"] = password
    if database.driver:
        options["driver"] = database.driver
    return options


def _declared(place: Place) -> list[Column]:
    return [_column(name).cast(type_).alias(name) for name, type_ in (place.schema or {}).items()]


def _column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def _chunk(spark: SparkSession, place: Place, database: Database, options: dict[str, Any]) -> DataFrame:
    whole = spark.read.format("jdbc").options(**options).load()
    column = database.partition_column
    if column is None:
        return whole
    if column not in whole.columns:
        raise JobFailed(f"{place.datasetid}: there is no column {column}, which is its `partition_column`")
    type_, times = whole.schema[column].dataType, slots(database.dataids)
    bounds = _bounds(whole, column, type_, times, is_all=not database.dataids)
    if bounds is not None:
        low, high = bounds
        split = {
            "partitionColumn": column, "lowerBound": str(low), "upperBound": str(high),
            "numPartitions": max(1, min(_cores(spark), database.connections or _cores(spark))),
        }  # fmt: skip
        whole = spark.read.format("jdbc").options(**options, **split).load()
    return whole.where(_condition(column, type_, database, times)) if database.dataids else whole


def _bounds(
    whole: DataFrame, column: str, type_: DataType, times: list[tuple[datetime.datetime, datetime.datetime]],
    *, is_all: bool,
) -> tuple[Any, Any] | None:  # fmt: skip
    """Between which values the read is split; None for a chunk that is one value."""
    if times and isinstance(type_, DateType | TimestampType | TimestampNTZType):
        low, high = times[0][0], times[-1][1]
        form = "%Y-%m-%d" if isinstance(type_, DateType) else "%Y-%m-%d %H:%M:%S"
        return low.strftime(form), high.strftime(form)
    if is_all and isinstance(type_, IntegralType | DateType | TimestampType | TimestampNTZType):
        found = whole.agg(F.min(_column(column)), F.max(_column(column))).first()  # one row, made by the database
        if found is not None and found[0] is not None and found[0] < found[1]:
            return found[0], found[1]
    return None


def _condition(
    column: str, type_: DataType, database: Database, times: list[tuple[datetime.datetime, datetime.datetime]]
) -> Column:
    name = _column(column)
    if times and isinstance(type_, DateType | TimestampType | TimestampNTZType):
        found = [(name >= _moment(start, type_)) & (name < _moment(end, type_)) for start, end in times]
        every = found[0]
        for one in found[1:]:
            every = every | one
        return every
    return name.isin([F.lit(dataid).cast(type_) for dataid in database.dataids])


def _moment(moment: datetime.datetime, type_: DataType) -> Column:
    return F.lit(moment.strftime("%Y-%m-%d %H:%M:%S")).cast(type_)


def _cores(spark: SparkSession) -> int:
    context = getattr(spark, "_sc", None)
    return int(context.defaultParallelism) if context is not None else 8
