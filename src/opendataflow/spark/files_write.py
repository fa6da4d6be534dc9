"""A DataFrame as the files of a run: in the declared format, of a sensible size, durable before anybody sees them."""

import contextlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StringType, StructType, VariantType

from opendataflow.errors import JobFailed
from opendataflow.spark.files_join import COLUMNAR, COMPRESSED, can_join, has_header, join_files
from opendataflow.spark.files_local import data_files, fsync, merged, option, sync, total_bytes
from opendataflow.spark.files_remote import Way, committed_in_store, for_connector, is_remote, way_to
from opendataflow.spark.files_scan import cores_of
from opendataflow.spark.jvm import logical_plan
from opendataflow.spark.spark_errors import causes
from opendataflow.spark.spec import Place
from opendataflow.spark.types import types_of
from opendataflow.storage.buckets.files import at_once
from opendataflow.storage.buckets.opened import arrow_source

SMALL_BYTES = 16 * 1024 * 1024  # input up to here is written as one file: one task copes with it
FILE_BYTES = 128 * 1024 * 1024  # what a file should have at least, where there are many
MAX_RECORDS_PER_FILE = 5_000_000

# Spark's own formats keep milliseconds only.
_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    # Quotes doubled as in RFC 4180; blanks belong to the value, though Spark would cut them off.
    "csv": {"header": True, "escape": '"', "ignoreLeadingWhiteSpace": False, "ignoreTrailingWhiteSpace": False}
    | _TIMES,
    # A column that is null in every row is a column all the same.
    "json": {"ignoreNullFields": False} | _TIMES,
}
_MOST_PARTS = 64  # that are joined to one file
_PARTS_FOR_EACH_CORE = 4
# Operators of a plan that make no more rows than they take. A Python function may take long for each, and who asks for
# a repartition wants several tasks.
_LIGHT = frozenset(
    {
        "Relation", "LocalRelation", "LogicalRelation", "OneRowRelation", "Project", "Filter", "Union", "Aggregate",
        "Distinct", "Deduplicate", "Sort", "Window", "WindowGroupLimit", "Sample", "LocalLimit", "GlobalLimit", "Limit",
        "Offset", "CollectMetrics", "SubqueryAlias", "View", "ResolvedHint",
    }
)  # fmt: skip
_OPERATOR = re.compile(r"\A[ :+-]*(\w+)")
_PYTHON_FUNCTION = re.compile(r"\)#\d")  # `f(id#1)#2`; a column that is named `max(n)` is taken for one, too
_NOT_IN_CSV = (ArrayType, MapType, StructType, NullType, VariantType)


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What a write left behind; what could not be seen without another scan is None."""

    rows: int | None
    schema: str  # JSON: column → type, in order
    bytes: int | None = None
    files: int | None = None
    fingerprint: str | None = None  # of files that only Spark can reach


def write_chunk(df: DataFrame, place: Place, sources: Sequence[Place]) -> Written:
    """Write the run's directory or its one file, which is this run's alone, and make it durable.

    Raises JobFailed for columns that the format cannot hold, before anything is written.
    """
    schema = df.schema
    check_writable(schema, place)
    if is_remote(place):
        if way_to(df.sparkSession, place) is Way.TASKS:
            return _write_in_tasks(df, place)
        place = for_connector(place)
    most = most_tasks(df, place, sources)
    if place.single_file:
        _write_one_file(df, place, is_one_task=most == 1)
        return describe(place, schema)
    with committed_in_store(df.sparkSession, place):
        save(df if most is None else df.coalesce(most), place, place.location)
    if place.is_local:
        if most is None:
            _join_small(df.sparkSession, place, schema)
        sync(place.location)
    elif not is_remote(place):
        return _describe_elsewhere(df.sparkSession, place, schema)
    return describe(place, schema)


def _write_in_tasks(df: DataFrame, place: Place) -> Written:
    from opendataflow.spark import files_cluster

    if place.format != "parquet" or place.single_file:
        why = "it is one file" if place.single_file else f"it is written as {place.format}, not as Parquet"
        raise files_cluster.needs_connector(place, why)
    forced = option(place.options, "files")
    rows, size, count = files_cluster.write_parquet(
        df if forced is None else df.coalesce(int(forced)), place, most_rows=MAX_RECORDS_PER_FILE
    )
    return Written(rows=rows, schema=schema_json(df.schema), bytes=size, files=count)


def most_tasks(df: DataFrame, place: Place, sources: Sequence[Place]) -> int | None:
    """How many tasks may write, each a file; None when that is left to Spark.

    Joining tasks joins their work, too. So the input says how many there are only where the plan has no more rows than
    the input: never fewer than cores and a multiple of them, but for little input. Else the output decides, when it is
    there: asking for its size before (a count, a rebalance) costs a pass over the data; of 5 million rows, 50 s with a
    rebalance, 13 s without.
    """
    forced = option(place.options, "files")
    if forced is not None and not place.single_file:
        return int(forced)
    if not sources:
        return 1
    total = total_bytes(sources)
    if total is None or not is_light(logical_plan(df)):
        return None
    if total <= SMALL_BYTES:
        return 1
    at_once = cores_of(df.sparkSession)
    return -(-total // (FILE_BYTES * at_once)) * at_once


def is_light(plan: str) -> bool:
    """True when no operator of a logical plan makes more rows of its input, or runs Python for each."""
    if _PYTHON_FUNCTION.search(plan):
        return False
    return all(operator[0] in _LIGHT for line in plan.splitlines() if (operator := _OPERATOR.findall(line)))


def check_writable(schema: StructType, place: Place) -> None:
    """Raise JobFailed, naming the columns, when the format cannot hold them."""
    if not schema.fields:
        raise JobFailed(f"{place.datasetid}: the last transformation returned no columns")
    counted = Counter(name.lower() for name in schema.names)
    for name in (name for name, times in counted.items() if times > 1):
        same = [column for column in schema.names if column.lower() == name]
        told = " and ".join(repr(column) for column in dict.fromkeys(same))
        how = "differ only in upper and lower case" if len(set(same)) > 1 else f"is there {len(same)} times"
        raise JobFailed(
            f"{place.datasetid}: column{'s' if len(set(same)) > 1 else ''} {told} {how}; rename or drop one"
        )
    if place.format == "text" and [field.dataType for field in schema] != [StringType()]:
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
        raise JobFailed(f"{place.datasetid}: text takes exactly one column, of type string; there are: {columns}")
    for field in schema if place.format == "csv" else ():
        if isinstance(field.dataType, _NOT_IN_CSV):
            raise JobFailed(f"{place.datasetid}: column {field.name!r} {_cannot(field.dataType)}")


def _cannot(type_: DataType) -> str:
    if isinstance(type_, NullType):
        return "has no type, since it is null throughout; cast it"
    return f"is {type_.simpleString()}, which a CSV cannot hold; make it text with `to_json`, or write Parquet or JSON"


# How --------------------------------------------------------------------------------------------------------------
def save(df: DataFrame, place: Place, path: str, **more: Any) -> None:
    """Write files of the place's format and options there, as many as there are partitions."""
    defaults = {"maxRecordsPerFile": MAX_RECORDS_PER_FILE, **_DEFAULTS.get(place.format, {})}
    if place.format == "csv":
        if len(df.columns) == 1:
            defaults["nullValue"] = '""'  # a row that is nothing but null would be an empty line, which is no row
        df = _encode_binary(df)
    options = merged(defaults, place.options) | more
    try:
        df.write.format(place.format).mode("overwrite").options(**options).save(path)
    except Exception as error:
        if any("No space left on device" in cause.text for cause in causes(error)):
            raise JobFailed(f"{place.datasetid}: no space left on device while writing {place.location}") from error
        raise


def _write_one_file(df: DataFrame, place: Place, *, is_one_task: bool) -> None:
    """Write beside the file, then move: under its name there is the whole file or none."""
    if not place.is_local:
        raise JobFailed(
            f"{place.datasetid}: {place.location} is one file on another machine, which cannot be moved there as a "
            "whole; give the destination a folder as its `path`"
        )
    folder, name = os.path.split(place.location)
    parts = os.path.join(folder, f".{name}.parts")
    joined = os.path.join(folder, f".joined-{name}")
    more = one_file_options(place)
    try:
        if is_one_task or not can_join(place, df.schema) or ("compression" in more and place.format in COLUMNAR):
            save(df.coalesce(1), place, parts, **more)
            (part,) = data_files(parts)
        else:
            if place.format not in COLUMNAR:
                more["compression"] = "none"
            save(df.coalesce(min(_MOST_PARTS, cores_of(df.sparkSession) * _PARTS_FOR_EACH_CORE)), place, parts, **more)
            part = _joined(df.sparkSession, place, df.schema, parts, joined)
        fsync(part)
        os.replace(part, place.location)
    finally:
        shutil.rmtree(parts, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(joined)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, f".{name}.crc"))
    fsync(folder)
    fsync(os.path.dirname(folder))


def _joined(spark: SparkSession, place: Place, schema: StructType, folder: str, target: str) -> str:
    """The one file of a folder, or that which is made of all of them."""
    parts = list(data_files(folder))
    if len(parts) == 1 and not target.endswith(tuple(COMPRESSED)):
        return parts[0]
    header = has_header(place, _DEFAULTS.get(place.format, {}))
    join_files(spark, place, schema, parts, target, has_header=header, save=save)
    return target


def _join_small(spark: SparkSession, place: Place, schema: StructType) -> None:
    """Little output of several tasks is one file."""
    parts = list(data_files(place.location))
    if not 1 < len(parts) <= _MOST_PARTS or not can_join(place, schema):
        return
    if any(path.endswith(tuple(COMPRESSED)) for path in parts) and place.format not in COLUMNAR:
        return
    if sum(map(os.path.getsize, parts)) > SMALL_BYTES:
        return
    joined = os.path.join(place.location, f".joined-{os.path.basename(parts[0])}")
    _joined(spark, place, schema, place.location, joined)
    for part in parts:
        folder, name = os.path.split(part)
        os.unlink(part)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, f".{name}.crc"))
    os.replace(joined, parts[0])


def one_file_options(place: Place) -> dict[str, Any]:
    """What a destination of one file is written with; nothing for a folder."""
    if not place.single_file:
        return {}
    compression = next((how for suffix, (how, _) in COMPRESSED.items() if place.location.endswith(suffix)), None)
    return {"maxRecordsPerFile": 0, **({} if compression is None else {"compression": compression})}


def _encode_binary(df: DataFrame) -> DataFrame:
    """Bytes as base64, as in JSON; Spark would write `[00 FF]`."""
    binary = [field.name for field in df.schema if field.dataType.typeName() == "binary"]
    if not binary:
        return df
    encoded = {name: F.base64(F.col(f"`{name.replace('`', '``')}`")) for name in binary}
    return df.withColumns(encoded)


# What -------------------------------------------------------------------------------------------------------------
def describe(place: Place, schema: StructType) -> Written:
    """What lies there now, written with this schema."""
    sizes = [os.path.getsize(path) for path in data_files(place.location)] if place.is_local else None
    return Written(
        rows=find_rows(place),
        schema=schema_json(schema),
        bytes=None if sizes is None else sum(sizes),
        files=None if sizes is None else len(sizes),
    )


def _describe_elsewhere(spark: SparkSession, place: Place, schema: StructType) -> Written:
    """Of a file system that the runner may have no way to (`hdfs://`, `abfss://`): seen here, where Spark has one."""
    from opendataflow.spark.files_elsewhere import find, fingerprint

    rows = None
    if place.format in COLUMNAR:  # of no column, Spark's tasks read the footers alone
        rows = spark.read.schema(schema).format(place.format).load(place.location).count()
    found = find(spark, place.location)
    if found is None:
        return Written(rows=rows, schema=schema_json(schema))
    return Written(
        rows=rows, schema=schema_json(schema), bytes=found.bytes, files=len(found.files),
        fingerprint=fingerprint(found),
    )  # fmt: skip


def find_rows(place: Place) -> int | None:
    """Rows from the files' footers; None for formats without, and for files that cannot be opened from here."""
    if not (place.is_local or is_remote(place)) or place.format not in ("parquet", "orc"):
        return None
    if place.is_local:
        paths = [path for location in place.locations for path in data_files(location)]
    else:
        from opendataflow.spark.files_cluster import data_files as remote_files

        paths = remote_files(place)
    if place.format == "parquet":
        from pyarrow import parquet

        return sum(at_once(lambda path: int(parquet.read_metadata(arrow_source(path)).num_rows), paths))
    from pyarrow import orc

    return sum(at_once(lambda path: int(orc.ORCFile(arrow_source(path)).nrows), paths))


def schema_json(schema: StructType) -> str:
    """Columns and types in the form that project.yml declares them."""
    return json.dumps(types_of(schema), ensure_ascii=False)
