"""Columns that are not as declared, or not the same in all files of a chunk: found before any row is read."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from opendataflow.checks.arrow_types import from_arrow
from opendataflow.domain.types.spark import spark_type
from opendataflow.errors import JobFailed
from opendataflow.spark.files_csv import open_bytes
from opendataflow.spark.files_local import escaped
from opendataflow.spark.spec import Place
from opendataflow.spark.types import type_name, types_of
from opendataflow.storage.buckets.files import at_once
from opendataflow.storage.buckets.opened import arrow_source

SAMPLE_BYTES = 256 * 1024  # of each JSON file, to see the keys it has
_ALL_SAMPLES = 64 * 1024 * 1024  # of very many files, less of each
_LEAST_SAMPLE = 4 * 1024
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"

Types = Mapping[str, str]  # column → type; '' where a file does not tell


class Footers(NamedTuple):
    """What the footers of Parquet or ORC files say."""

    types: Sequence[tuple[str, Types]]  # by file
    schema: StructType | None  # as Spark itself wrote it, the same in all of them


def check_columns(
    place: Place, found: Sequence[tuple[str, Types]], wanted: Types, *,
    in_order: Sequence[str] = (), model: str | None = None,
) -> None:  # fmt: skip
    """Raise JobFailed that names every new, missing and retyped column of the first file that has such.

    `wanted` is what is declared, or what the file `model` has.
    """
    for path, types in found:
        problems = twice(in_order)
        for name, type_ in wanted.items():
            if name not in types:
                problems.append(_missing(name, type_, model))
            elif types[name] and type_ and not _is_read_alike(types[name], type_):
                as_wanted = f"is declared as {type_}" if model is None else f"is {type_} in {model}"
                problems.append(f"column {name!r} {as_wanted}, but is {types[name]}")
        problems += [_new(name, type_, model) for name, type_ in types.items() if name not in wanted]
        if problems:
            raise JobFailed(f"{place.datasetid}: {'; '.join(problems)}: {path}")


def _missing(name: str, type_: str, model: str | None) -> str:
    told = f"column {name!r}{f' ({type_})' if type_ else ''}"
    return f"{told} is declared, but not there" if model is None else f"{told} of {model} is not there"


def _new(name: str, type_: str, model: str | None) -> str:
    told = f"column {name!r}{f' ({type_})' if type_ else ''}"
    return f"{told} is there, but not declared" if model is None else f"{told} is new, {model} has none"


def _is_read_alike(one: str, other: str) -> bool:
    return _read_as(one) == _read_as(other)


def _read_as(type_: str) -> str:
    found = spark_type(type_)
    return "string" if found.name in ("varchar", "char") and found.parameters else str(found)


def twice(header: Sequence[str]) -> list[str]:
    """A sentence for each name that is there twice; to Spark `ID` is `id`, and columns may do without a name."""
    lower = [name.lower() for name in header]
    again = [name for number, name in enumerate(header) if name and name.lower() in lower[:number]]
    return [f"column {name!r} stands twice in the header" for name in again]


# Parquet and ORC --------------------------------------------------------------------------------------------------
def find_footers(place: Place, files: Sequence[str]) -> Footers:
    """The footers of all files; raise JobFailed when they disagree. Spark takes one file's word for all the others."""
    if place.format == "orc":
        if len(files) > 1:
            _check_alike(place, list(zip(files, map(_arrow_types, read_footers(place, files)), strict=True)))
        return Footers([], None)
    footers = dict(zip(files, read_footers(place, files), strict=True))
    written = {(schema.metadata or {}).get(_SPARK_SCHEMA) for schema in footers.values()}
    if len(written) == 1 and None not in written:
        (text,) = written
        schema = StructType.fromJson(json.loads(text))  # type: ignore[arg-type]
        return Footers([(next(iter(footers)), types_of(schema))], schema)
    found = [(path, _spark_types(schema)) for path, schema in footers.items()]
    _check_alike(place, found)
    return Footers(found, None)


def _check_alike(place: Place, found: Sequence[tuple[str, Types]]) -> None:
    if place.schema is not None and place.format == "parquet":
        return  # each is compared with what is declared
    for other in found[1:]:
        check_columns(place, [other], found[0][1], model=found[0][0])


def read_footers(place: Place, files: Sequence[str]) -> list[Any]:
    """The Arrow schema of each file, several read at the same time."""
    return at_once(lambda path: _footer(place, path), files)


def _footer(place: Place, path: str) -> Any:
    import pyarrow as pa
    from pyarrow import orc, parquet

    try:
        source = arrow_source(path)
        return orc.ORCFile(source).schema if place.format == "orc" else parquet.read_schema(source)
    except (OSError, pa.ArrowException) as error:
        raise JobFailed(f"{place.datasetid}: {path} cannot be read as {place.format}: {error}") from error


def _arrow_types(schema: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


def _spark_types(schema: Any) -> dict[str, str]:
    """Arrow's types in Spark's words; in Arrow's where Spark has none."""
    text = (schema.metadata or {}).get(_SPARK_SCHEMA)
    if text is not None:
        return types_of(StructType.fromJson(json.loads(text)))
    return {field.name: _spark_type(field.type) for field in schema}


def _spark_type(found: Any) -> str:
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_type

    if found == pa.timestamp("ns"):
        return ""  # INT96 of older writers, which Spark reads as with a zone, or nanoseconds without one
    known = from_arrow(found)
    if known is not None:
        return str(known)
    try:
        return type_name(from_arrow_type(found))  # times and intervals, which not every version of Spark has
    except Exception:  # noqa: BLE001  a type that only Arrow knows: shown as it is
        return str(found)


# JSON -------------------------------------------------------------------------------------------------------------
def check_json_keys(spark: SparkSession, place: Place, files: Sequence[str]) -> None:
    """Raise JobFailed for keys that are not declared in the first rows of a file, and for columns that no row has.

    Spark leaves the former out and makes the latter null. A row may do without a key; a chunk may not: Spark's tasks
    look for one that no file has in its first rows.
    """
    wanted = dict(place.schema or {})
    sample = min(SAMPLE_BYTES, max(_LEAST_SAMPLE, _ALL_SAMPLES // max(1, len(files))))
    seen: dict[str, str] = {}
    for path, names in zip(files, at_once(lambda path: _keys(path, sample), files), strict=True):
        for name in names:
            seen.setdefault(name, path)
    if not seen:
        return  # no rows, or nothing that is JSON: Spark will say
    new = {name: path for name, path in seen.items() if name not in wanted}
    missing = [name for name in wanted if name not in seen]
    if missing and any(os.path.getsize(path) > sample for path in files):
        missing = _without(spark, place, missing)
    if new or missing:
        problems = [_missing(name, wanted[name], None) for name in missing]
        problems += [_new(name, "", None) for name in new]
        path = next(iter(new.values()), place.locations[0])
        raise JobFailed(f"{place.datasetid}: {'; '.join(problems)}: {path}")


def _keys(path: str, sample: int) -> dict[str, None]:
    keys: dict[str, None] = {}
    try:
        with open_bytes(path) as file:
            lines = file.read(sample).removeprefix(b"\xef\xbb\xbf").split(b"\n")
            for line in lines[:-1] if len(lines) > 1 else lines:
                keys.update(dict.fromkeys(json.loads(line) if line.strip() else ()))
    except (ValueError, TypeError, OSError, EOFError):
        return keys  # what is no JSON is said with its line when Spark meets it
    return keys


def _without(spark: SparkSession, place: Place, names: Sequence[str]) -> list[str]:
    """Those keys that no line holds anywhere, as JSON writes them."""
    lines = spark.read.format("text").option("recursiveFileLookup", True).load(escaped(place.locations))
    forms = [(json.dumps(name), json.dumps(name, ensure_ascii=False)) for name in names]
    is_there = [
        F.coalesce(F.bool_or(F.contains("value", F.lit(plain)) | F.contains("value", F.lit(own))), F.lit(False))
        for plain, own in forms
    ]
    found = lines.agg(*(one.alias(str(at)) for at, one in enumerate(is_there))).first()
    return [name for at, name in enumerate(names) if found is None or not found[at]]
