"""The files of a chunk through Spark: read them, write them, and say what was written without reading it again."""

import csv
import gzip
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from opendataflow.errors import JobFailed
from opendataflow.spark.spec import Place

SMALL_BYTES = 16 * 1024 * 1024  # input up to here is written as one file: one task copes with it
MAX_RECORDS_PER_FILE = 5_000_000

_TYPED_FORMATS = ("parquet", "orc")  # their files know their types
# RFC 4180, as Excel and pandas write it, and strict: Spark's own defaults end a record at a quoted newline, take a
# backslash for an escape, make what does not fit the schema null, and match a declared schema by position only.
_CSV = {"header": True, "multiLine": True, "escape": '"', "mode": "FAILFAST", "enforceSchema": False}
_READ_DEFAULTS: dict[str, dict[str, Any]] = {"csv": _CSV, "json": {"mode": "FAILFAST"}}
_WRITE_DEFAULTS: dict[str, dict[str, Any]] = {"csv": {"header": True, "escape": '"'}}
_GLOB = str.maketrans({char: f"\\{char}" for char in "{}[]*?\\"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What a write left behind; what could not be seen without another scan is None."""

    rows: int | None
    schema: str  # JSON: column → type, in order


# Read -------------------------------------------------------------------------------------------------------------
def read_chunk(spark: SparkSession, place: Place) -> DataFrame:
    """The chunk as a DataFrame: with the declared schema, the file's own, or for CSV the inferred one."""
    options = {**_READ_DEFAULTS.get(place.format, {}), **place.options}
    if place.schema is None and place.format == "csv":
        options.setdefault("inferSchema", True)
    path = place.location.translate(_GLOB)  # a dataid may hold characters that a path pattern gives a meaning
    reader = spark.read.format(place.format).options(**options)
    if place.schema is not None and place.format not in _TYPED_FORMATS:
        schema = place.schema
        if place.format == "csv" and _is_true(options["header"]):
            header = _find_header(place, options)
            if header is None:
                header = spark.read.format("csv").options(**options).load(path).columns
            schema = _in_order(place, header)
        reader = reader.schema(ddl(schema))
    df = reader.load(path)
    if place.schema is not None and place.format in _TYPED_FORMATS:
        _check_declared(place, df)
    return df


def ddl(schema: Mapping[str, str]) -> str:
    """`{flight: int}` as Spark writes a schema."""
    return ", ".join(f"`{column.replace('`', '``')}` {type_}" for column, type_ in schema.items())


def _in_order(place: Place, header: Sequence[str]) -> dict[str, str]:
    """The declared schema in the order of the file's header; Spark matches a CSV's columns by position only."""
    declared = dict(place.schema or {})
    if not header:
        return declared  # an empty file
    missing = [column for column in declared if column not in header]
    new = [column for column in header if column not in declared]
    if missing or new:
        problems = [f"column {column!r} is declared, but not there" for column in missing]
        problems += [f"column {column!r} is there, but not declared" for column in new]
        raise JobFailed(f"{place.datasetid}: {'; '.join(problems)}: {place.location}")
    return {column: declared[column] for column in header}


def _find_header(place: Place, options: Mapping[str, Any]) -> list[str] | None:
    """The first record of the chunk's first file, read without a Spark job; None where only Spark can read it."""
    if not place.is_local:
        return None
    first = min(_files(place.location), default="")
    if not first or first.endswith((".bz2", ".zst", ".lz4", ".snappy", ".deflate")):
        return None
    encoding = str(options.get("encoding") or options.get("charset") or "utf-8").lower()
    opened = gzip.open if first.endswith(".gz") else open
    with opened(first, "rt", encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline="") as file:
        separator = str(options.get("sep") or options.get("delimiter") or ",")
        if len(separator) != 1:
            return None
        return next(csv.reader(file, delimiter=separator, quotechar=str(options.get("quote") or '"')), None)


def _is_true(option: object) -> bool:
    return str(option).lower() == "true"


def _check_declared(place: Place, df: DataFrame) -> None:
    """Raise JobFailed when a declared column is not in the files, or has another type there."""
    found = {field.name: field.dataType for field in df.schema}
    for declared in StructType.fromDDL(ddl(place.schema or {})):
        if declared.name not in found:
            raise JobFailed(f"{place.datasetid}: column {declared.name!r} is declared, but not there: {place.location}")
        if found[declared.name] != declared.dataType:
            raise JobFailed(
                f"{place.datasetid}: column {declared.name!r} is declared as {declared.dataType.simpleString()}, "
                f"but is {found[declared.name].simpleString()} in {place.location}"
            )


# Write ------------------------------------------------------------------------------------------------------------
def write_chunk(df: DataFrame, place: Place, sources: Sequence[Place]) -> Written:
    """Write the run's directory, which is this run's alone, and make it durable before anybody publishes it."""
    if is_small(sources):
        df = df.coalesce(1)
    options = {
        "maxRecordsPerFile": MAX_RECORDS_PER_FILE,
        **_WRITE_DEFAULTS.get(place.format, {}),
        **place.options,
    }
    df.write.format(place.format).mode("overwrite").options(**options).save(place.location)
    if place.is_local:
        _sync(place.location)
    return Written(rows=find_rows(place), schema=schema_json(df.schema))


def is_small(sources: Sequence[Place]) -> bool:
    """True when so little is read that one file is enough; what is not on this machine is not known to be small.

    Known from the input alone: the output's size is only known when it is written, and asking for it (a count, a
    rebalance) costs a pass over the data.
    """
    total = 0
    for place in sources:
        if not place.is_local:
            return False
        for path in _files(place.location):
            total += os.path.getsize(path)
            if total > SMALL_BYTES:
                return False
    return True


def find_rows(place: Place) -> int | None:
    """Rows from the files' footers; None for formats without, and for files on other machines."""
    if not place.is_local or place.format not in _TYPED_FORMATS:
        return None
    paths = list(_files(place.location))
    if place.format == "parquet":
        from pyarrow import parquet

        return sum(int(parquet.read_metadata(path).num_rows) for path in paths)
    from pyarrow import orc

    return sum(int(orc.ORCFile(path).nrows) for path in paths)


def schema_json(schema: StructType) -> str:
    """Columns and types in the form that project.yml declares them."""
    return json.dumps({field.name: field.dataType.simpleString() for field in schema}, ensure_ascii=False)


def _files(location: str) -> Iterator[str]:
    """Data files of a chunk: hidden ones (`_SUCCESS`, checksums) are not."""
    if not os.path.isdir(location):
        yield location
        return
    for folder, subfolders, names in os.walk(location):
        subfolders[:] = [name for name in subfolders if not name.startswith(("_", "."))]
        yield from (os.path.join(folder, name) for name in names if not name.startswith(("_", ".")))


def _sync(location: str) -> None:
    """Spark leaves what it wrote in the page cache; a chunk that is READY must survive a power cut."""
    folders = {location, os.path.dirname(location)}
    for path in _files(location):
        _fsync(path)
        folders.add(os.path.dirname(path))
    for folder in folders:
        _fsync(folder)


def _fsync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
