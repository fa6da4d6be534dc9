"""For streams and chunks that share a job: what one leaves in process, cache and catalog is not the next one's."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from opendataflow.spark.connect import is_connect

_CATALOG = "spark.sql.catalogImplementation"


@contextlib.contextmanager
def nothing_left(spark: SparkSession) -> Iterator[None]:
    """Restore the process, Spark's catalog and the files that were added to Spark afterwards."""
    with process_restored(), catalog_restored(spark), added_files_removed(spark):
        yield


@contextlib.contextmanager
def process_restored() -> Iterator[None]:
    """Restore the working directory, the places that Python imports from, and the umask."""
    folder = os.open(".", os.O_PATH | os.O_CLOEXEC)  # by descriptor: its path may be gone by then
    path, umask = list(sys.path), _umask()
    try:
        yield
    finally:
        sys.path[:] = path
        os.umask(umask)
        try:
            os.fchdir(folder)
        finally:
            os.close(folder)


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


@contextlib.contextmanager
def cache_cleared(spark: SparkSession) -> Iterator[None]:
    """What a transformation cached is of no use to the next chunk, which would read it in place of its own data."""
    try:
        yield
    finally:
        if not is_connect(spark):  # a server's cache is not ours alone
            spark.catalog.clearCache()


@contextlib.contextmanager
def catalog_restored(spark: SparkSession) -> Iterator[None]:
    """The catalog is one for all sessions: global views, tables and functions of a chunk are not the next one's."""
    if is_connect(spark):
        views = set(_global_views(spark))
        try:
            yield
        finally:
            for name in set(_global_views(spark)) - views:  # those of other clients of the server stay
                spark.catalog.dropGlobalTempView(name)
        return
    shared = spark._jsparkSession.sharedState()
    shared.globalTempViewManager().clear()  # a thread that an earlier chunk left behind may have made one since
    # A catalog in memory is this process's own; what lies in another one is not ours to drop.
    catalog: Any = shared.externalCatalog() if spark.conf.get(_CATALOG) == "in-memory" else None
    before = _databases(catalog)
    try:
        yield
    finally:
        shared.globalTempViewManager().clear()
        for database, (tables, functions) in _databases(catalog).items():
            if database not in before:
                catalog.dropDatabase(database, True, True)
                continue
            for table in tables - before[database][0]:
                catalog.dropTable(database, table, True, True)
            for function in functions - before[database][1]:
                catalog.dropFunction(database, function)


def _databases(catalog: Any) -> dict[str, tuple[set[str], set[str]]]:
    """By database, the names of its tables and views, and of its functions."""
    if catalog is None:
        return {}
    return {
        name: (_names(catalog.listTables(name)), _names(catalog.listFunctions(name, "*")))
        for name in _names(catalog.listDatabases())
    }


@contextlib.contextmanager
def added_files_removed(spark: SparkSession) -> Iterator[None]:
    """Remove what the code adds by `addFile`, `addPyFile` or `addArchive`: of a path, Spark keeps the first content.

    Executors on other machines keep their copy until a file of the same name is added.
    """
    if is_connect(spark):
        yield  # each session has its own
        return
    context: Any = spark.sparkContext
    folder = context._jvm.org.apache.spark.SparkFiles.getRootDirectory()
    before, there, includes = _added(context), set(os.listdir(folder)), list(context._python_includes)
    try:
        yield
    finally:
        for name, (files, paths) in _added(context).items():
            for path in paths - (before[name][1] if name in before else set()):
                files.remove(path)
        for path in (os.path.join(folder, name) for name in set(os.listdir(folder)) - there):
            shutil.rmtree(path, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # a file, or a link
        context._python_includes[:] = includes


def _added(context: Any) -> dict[str, tuple[Any, set[str]]]:
    """Spark's own maps of files and of archives, and the paths in each."""
    found = {}
    for kind, maps in (("files", context._jsc.sc().addedFiles()), ("archives", context._jsc.sc().addedArchives())):
        for session in _names(maps.keySet()):
            files = maps.apply(session)
            found[f"{kind} of {session}"] = files, _names(files.keySet())
    return found


def _names(sequence: Any) -> set[str]:
    return set(filter(None, sequence.mkString("\n").split("\n")))


def _global_views(spark: SparkSession) -> list[str]:
    return [row["viewName"] for row in spark.sql("SHOW VIEWS IN global_temp").collect() if row["namespace"]]
