"""What runs must not share in Spark, kept from the code of a run: names in its catalog, files added to it, its cache.

On the keeper's driver a run has a catalog and a cache of its own (attach.py). A Spark Connect server has one of each
for all: there, every read carries the run among its options, so that plans of two runs are never equal, and what one
has cached does not fit the other.
"""

import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from opendataflow.errors import JobFailed
from opendataflow.project.shared_names import FILES, TABLES, VIEWS, RefusedCall, find_refusal_of_sql, refusal_of_method
from opendataflow.spark.connect import is_connect

RUN_OPTION = "dataflowRun"
_refusing: set[Any] = set()  # kinds of sessions
_CATALOG = "spark.sql.catalogImplementation"
_FILE_FORMATS = ("avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml")
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")


def refuse_shared_state(spark: SparkSession, *, run: int) -> None:
    """From now on, in this process: such names raise RefusedCall, and reads from a server are this run's."""
    session: Any = type(spark)
    if session in _refusing and not is_connect(spark):
        return
    _refusing.add(session)
    if is_connect(spark):
        from pyspark.sql.connect import catalog, dataframe, readwriter
        from pyspark.sql.connect.streaming.readwriter import DataStreamWriter

        session.read = property(reader_of_run(readwriter.DataFrameReader, run))
        _refuse_relative_paths(readwriter.DataFrameReader, "load")
        _refuse_relative_paths(readwriter.DataFrameWriter, "save")
    else:
        from pyspark.sql import catalog, readwriter
        from pyspark.sql.classic import dataframe
        from pyspark.sql.streaming.readwriter import DataStreamWriter
    kinds = [dataframe.DataFrame, readwriter.DataFrameWriter, DataStreamWriter, catalog.Catalog]
    if not is_connect(spark):
        kinds.append(type(spark.sparkContext))
    for kind in kinds:
        for name in (*VIEWS, *TABLES, *FILES):
            if hasattr(kind, name):
                setattr(kind, name, _refused(refusal_of_method(name)))
    _refuse_statements(session)


def reader_of_run(kind: Any, run: int) -> Callable[..., Any]:
    """Makes readers whose plans are no other run's. JDBC drivers may refuse an option that they do not know."""

    class Reader(kind):  # type: ignore[misc]
        def format(self, source: str) -> Any:
            if source.lower() == "jdbc":
                self._options.pop(RUN_OPTION, None)
            return super().format(source)

    return lambda session: Reader(session).option(RUN_OPTION, str(run))


def refuse_names_left(spark: SparkSession) -> None:
    """Drop the names that the run's code has put into its catalog in some other way; JobFailed if there are any."""
    if is_connect(spark):
        return  # the names there may be of anybody
    shared: Any = spark._jsparkSession.sharedState()
    views = shared.globalTempViewManager()
    left = [f"global_temp.{name}" for name in _names(views.listViewNames("*"))]
    views.clear()
    if spark.conf.get(_CATALOG) == "in-memory":  # the names in another one were there before
        left += _drop_all(shared.externalCatalog())
    if left:
        raise JobFailed(
            f"the code makes {', '.join(sorted(left))} in Spark's catalog, which runs do not share; use "
            "createOrReplaceTempView(), or return the DataFrame"
        )


def _drop_all(catalog: Any) -> list[str]:
    dropped = []
    for database in _names(catalog.listDatabases()):
        for table in _names(catalog.listTables(database)):
            dropped.append(f"{database}.{table}")
            catalog.dropTable(database, table, True, True)
        for function in _names(catalog.listFunctions(database, "*")):
            dropped.append(f"{database}.{function}()")
            catalog.dropFunction(database, function)
        if database != "default":
            dropped.append(database)
            catalog.dropDatabase(database, True, True)
    return dropped


def _names(sequence: Any) -> list[str]:
    return [name for name in sequence.mkString("\n").split("\n") if name]


def _refused(sentence: str) -> Callable[..., None]:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise RefusedCall(sentence)

    return refuse


def _refuse_relative_paths(kind: Any, name: str) -> None:
    """On a Spark Connect server they would be those of its own folder; a driver of ours has none where they exist."""
    execute = getattr(kind, name)

    def call(own: Any, path: Any = None, format: str | None = None, *args: Any, **kwargs: Any) -> Any:
        source = format or getattr(own, "_format", None) or getattr(getattr(own, "_write", None), "source", None)
        if source is None or source.lower() in _FILE_FORMATS:
            options = getattr(own, "_options", None) or own._write.options
            for one in [path] if isinstance(path, str) else path or [options.get("path") or "/"]:
                if not _ABSOLUTE.match(str(one)):
                    raise RefusedCall(
                        f"{one} is a relative path, which the server would look for elsewhere; use os.path.abspath()"
                    )
        return execute(own, path, format, *args, **kwargs)

    setattr(kind, name, call)


def _refuse_statements(session: Any) -> None:
    execute = session.sql

    def sql(own: Any, sqlQuery: str, *args: Any, **kwargs: Any) -> Any:
        if (sentence := find_refusal_of_sql(sqlQuery)) is not None:
            raise RefusedCall(sentence)
        return execute(own, sqlQuery, *args, **kwargs)

    session.sql = sql
