"""A DataFrame as the files of a run: in the declared format, of a sensible size, durable before anybody sees them."""

import contextlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StringType, StructType, VariantType

from opendataflow.errors import JobFailed
from opendataflow.spark.files_local import data_files, fsync, merged, option, sync, total_bytes
from opendataflow.spark.files_remote import Way, for_connector, is_remote, way_to
from opendataflow.spark.spark_errors import causes
from opendataflow.spark.spec import Place
from opendataflow.spark.types import types_of
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
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bzip2"}
_NOT_IN_CSV = (ArrayType, MapType, StructType, NullType, VariantType)


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What a write left behind; what could not be seen without another scan is None."""

    rows: int | None
    schema: str  # JSON: column → type, in order
    bytes: int | None = None
    files: int | None = None


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
    if place.single_file:
        _write_one_file(df, place)
    else:
        most = most_files(place, sources, cores=lambda: _cores(df))
        save(df if most is None else df.coalesce(most), place, place.location)
        if place.is_local:
            sync(place.location)
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


def most_files(place: Place, sources: Sequence[Place], *, cores: Callable[[], int]) -> int | None:
    """How many tasks may write; None when that is left to Spark.

    Known from the input alone: the output's size is only known when it is written, and asking for it (a count, a
    rebalance) costs a pass over the data: of 5 million rows, 50 s with a rebalance, 13 s without. Never fewer than
    cores and a multiple of them, since joining tasks joins their work, too.
    """
    forced = option(place.options, "files")
    if forced is not None:
        return int(forced)
    total = total_bytes(sources)
    if total is None:
        return None
    if total <= SMALL_BYTES:
        return 1
    at_once = cores()
    return -(-total // (FILE_BYTES * at_once)) * at_once


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


def _write_one_file(df: DataFrame, place: Place) -> None:
    """Write beside the file, then move: under its name there is the whole file or none."""
    if not place.is_local:
        raise JobFailed(
            f"{place.datasetid}: {place.location} is one file on another machine, which cannot be moved there as a "
            "whole; give the destination a folder as its `path`"
        )
    folder, name = os.path.split(place.location)
    parts = os.path.join(folder, f".{name}.parts")
    try:
        save(df.coalesce(1), place, parts, **one_file_options(place))
        (part,) = data_files(parts)
        fsync(part)
        os.replace(part, place.location)
    finally:
        shutil.rmtree(parts, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, f".{name}.crc"))
    fsync(folder)
    fsync(os.path.dirname(folder))


def one_file_options(place: Place) -> dict[str, Any]:
    """What a destination of one file is written with; nothing for a folder."""
    if not place.single_file:
        return {}
    compression = next((how for suffix, how in _COMPRESSIONS.items() if place.location.endswith(suffix)), None)
    return {"maxRecordsPerFile": 0, **({} if compression is None else {"compression": compression})}


def _encode_binary(df: DataFrame) -> DataFrame:
    """Bytes as base64, as in JSON; Spark would write `[00 FF]`."""
    binary = [field.name for field in df.schema if field.dataType.typeName() == "binary"]
    if not binary:
        return df
    encoded = {name: F.base64(F.col(f"`{name.replace('`', '``')}`")) for name in binary}
    return df.withColumns(encoded)


def _cores(df: DataFrame) -> int:
    context = getattr(df.sparkSession, "_sc", None)
    return int(context.defaultParallelism) if context is not None else 200  # Connect does not tell; it is a cluster


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

        return sum(int(parquet.read_metadata(arrow_source(path)).num_rows) for path in paths)
    from pyarrow import orc

    return sum(int(orc.ORCFile(arrow_source(path)).nrows) for path in paths)


def schema_json(schema: StructType) -> str:
    """Columns and types in the form that project.yml declares them."""
    return json.dumps(types_of(schema), ensure_ascii=False)
