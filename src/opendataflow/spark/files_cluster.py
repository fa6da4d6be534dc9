"""Chunks in object stores on a cluster whose Spark has no connector for them: its Python tasks read and write them.

Parquet and CSV only. Every task opens its own files in the store; nothing goes through the driver but their footers
and headers. CSV records are parsed by Spark's own parser (`from_csv`), with the options and the strictness that files
of this machine have.
"""

import importlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from opendataflow.errors import JobFailed
from opendataflow.spark import bucket_tasks
from opendataflow.spark.drift import check_columns, find_footers
from opendataflow.spark.files_csv import CsvForm
from opendataflow.spark.spec import Place
from opendataflow.spark.types import types_of
from opendataflow.storage.buckets import files
from opendataflow.storage.buckets.address import S3, parse
from opendataflow.storage.buckets.connect import settings_of

MOST_TASKS = 10_000
HEADER_BYTES = 1024 * 1024  # no header is longer
_ROW_METADATA = "org.apache.spark.sql.parquet.row.metadata"
_TASKS = "_tasks"  # hidden: what tasks have written, before it is known which of them count
# What says how a file is cut into records, which is done before the parser sees them.
_NOT_OF_A_RECORD = (
    "header", "multiline", "recursivefilelookup", "enforceschema", "inferschema", "encoding", "charset",
    "columnpruning",
)  # fmt: skip

Files = Sequence[str]  # their locations


def why_not(place: Place, *, form: CsvForm | None = None) -> str:
    """Why tasks cannot read this place; empty when they can."""
    if place.format == "parquet":
        return ""
    if place.format != "csv":
        return f"it is {place.format}"
    if place.schema is None:
        return "its CSV has no declared `schema:`"
    if form is None or form.encoding not in ("utf-8", "ascii") or form.escape not in ("", form.quote):
        return "its CSV has options that only Spark's own reader knows"
    return ""


def data_files(place: Place) -> list[str]:
    """The files of the chunk, or of a window of chunks; raise JobFailed."""
    found = []
    for location in place.locations:
        try:
            found += [files.below(location, one.name) for one in files.find(location)]
        except OSError as error:
            told = f"{error.filename or location} cannot be read: {error.strerror}"
            raise JobFailed(f"{place.datasetid}: {told}") from error
    return found


def _by_value() -> None:
    cloudpickle.register_pickle_by_value(importlib.import_module(bucket_tasks.__name__))


def _tasks(spark: SparkSession, number: int) -> DataFrame:
    """A row for each unit of work, and a task for each row where that is not too many."""
    return spark.range(0, number, 1, min(number, MOST_TASKS))


def _path(location: str) -> str:
    return parse(location).path


# Parquet --------------------------------------------------------------------------------------------------------------
def read_parquet(spark: SparkSession, place: Place, found: Files, declared: StructType | None) -> DataFrame:
    """The rows, with the types that the footers tell, which must be those declared; raise JobFailed."""
    _by_value()
    footers = find_footers(place, found)
    types = dict(footers.types[0][1])
    if declared is not None:
        check_columns(place, footers.types, types_of(declared))
    schema = footers.schema or StructType.fromDDL(_ddl(types))
    groups = files.at_once(_row_groups, found)
    units = [(_path(one), group) for one, number in zip(found, groups, strict=True) for group in range(number)]
    if not units:
        return spark.createDataFrame([], schema)
    arrow = to_arrow_schema(schema, timezone="UTC")
    read = bucket_tasks.parquet_reader(settings_of(place.location), units, arrow)
    return _tasks(spark, len(units)).mapInArrow(read, schema)


def _row_groups(location: str) -> int:
    from pyarrow import parquet

    with files.open_file(location) as file:
        return int(parquet.read_metadata(file).num_row_groups)


def _ddl(types: Mapping[str, str]) -> str:
    # Times of older writers (INT96) tell no type; Spark reads them as with a zone.
    return ", ".join(f"`{name.replace('`', '``')}` {type_ or 'timestamp'}" for name, type_ in types.items())


def write_parquet(df: DataFrame, place: Place, *, most_rows: int) -> tuple[int, int, int]:
    """Write the chunk: rows, bytes, files. What tasks wrote that do not count is removed before this returns."""
    _by_value()
    tasks = f"{place.location}/{_TASKS}"
    metadata = {_ROW_METADATA: df.schema.json()}
    write = bucket_tasks.parquet_writer(settings_of(place.location), _path(tasks), metadata, most_rows)
    told = df.mapInArrow(write, "name string, rows bigint, bytes bigint").collect()  # a short row for each file
    numbered = [(f"{tasks}/{one['name']}", f"{place.location}/part-{at:05}.parquet") for at, one in enumerate(told)]
    files.at_once(lambda pair: files.copy(*pair), numbered)
    if not told:
        _write_nothing(df.schema, metadata, f"{place.location}/part-00000.parquet")
    files.remove(tasks)
    return sum(one["rows"] for one in told), sum(one["bytes"] for one in told), max(1, len(told))


def _write_nothing(schema: StructType, metadata: dict[str, str], location: str) -> None:
    """A chunk without a row has columns all the same."""
    import tempfile

    from pyarrow import parquet

    with tempfile.NamedTemporaryFile(prefix="dataflow-") as file:
        empty = to_arrow_schema(schema, timezone="UTC").with_metadata(metadata).empty_table()
        parquet.write_table(empty, file.name, store_schema=False)
        files.put(file.name, location)


# CSV ------------------------------------------------------------------------------------------------------------------
def read_csv(
    spark: SparkSession, place: Place, found: Files, declared: StructType, form: CsvForm, options: Mapping[str, Any]
) -> DataFrame:  # fmt: skip
    """The rows, with the declared types; files with the same columns in another order are read as they are."""
    _by_value()
    # Or a row with too many fields goes unseen where the last column is not used.
    spark.conf.set("spark.sql.optimizer.enableCsvExpressionOptimization", "false")
    headers: dict[tuple[str, ...], list[str]] = {}
    for location, header in zip(found, files.at_once(lambda one: _header(one, form), found), strict=True):
        if header and form.has_header:
            found_types, wanted = dict.fromkeys(header, ""), dict.fromkeys(declared.names, "")
            check_columns(place, [(location, found_types)], wanted, in_order=header)
        if header:
            headers.setdefault(header if form.has_header else tuple(declared.names), []).append(location)
    if not headers:
        return spark.createDataFrame([], declared)
    kept = {name: str(value) for name, value in options.items() if name.lower() not in _NOT_OF_A_RECORD}
    df: DataFrame | None = None
    for header, locations in headers.items():
        schema = StructType([declared[name] for name in header])
        part = _parsed(spark, place, locations, schema, form, kept)
        df = part if df is None else df.unionByName(part)
    assert df is not None  # noqa: S101  there is a header
    return df


def _parsed(
    spark: SparkSession, place: Place, locations: Files, schema: StructType, form: CsvForm, options: dict[str, str]
) -> DataFrame:  # fmt: skip
    paths = [(_path(location), location) for location in locations]
    read = bucket_tasks.record_reader(
        settings_of(place.location), paths, quote=form.quote.encode(), has_header=form.has_header
    )
    text = _tasks(spark, len(paths)).mapInArrow(read, "value string")
    return text.select(F.from_csv("value", _schema_text(schema), options).alias("row")).select("row.*")


def _schema_text(schema: StructType) -> str:
    return _ddl(types_of(schema))


def _header(location: str, form: CsvForm) -> tuple[str, ...]:
    with files.open_stream(location, compression="detect") as stream:
        text = io.TextIOWrapper(
            io.BytesIO(stream.read(HEADER_BYTES)), encoding="utf-8-sig", errors="replace", newline=""
        )
        return tuple(next((record for record in form.records(text) if record), ()))


def needs_connector(place: Place, why: str) -> JobFailed:
    is_s3 = parse(place.location).store == S3
    package = "the package org.apache.hadoop:hadoop-aws" if is_s3 else "Google's connector for Cloud Storage"
    return JobFailed(
        f"{place.datasetid}: {place.location} cannot be read or written by the machines of a cluster without Spark's "
        f"own connector, since {why}; give Spark {package} (spark.jars.packages), or use a `local` master"
    )
