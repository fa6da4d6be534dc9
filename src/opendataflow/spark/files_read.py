"""A chunk's files as a DataFrame, strictly: with the declared schema, or failing with what is not as declared."""

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from opendataflow.errors import JobFailed
from opendataflow.spark.drift import check_columns, check_json_keys, find_footers, twice
from opendataflow.spark.files_csv import CsvForm, find_form, is_compressed, look, look_at_head
from opendataflow.spark.files_local import escaped, is_true, merged, option, require_files
from opendataflow.spark.files_remote import Way, for_connector, home_of, is_remote, kept_copy, way_to
from opendataflow.spark.files_scan import can_scan, cores_of, look_by_tasks, may_assume, not_assumed, watched
from opendataflow.spark.spec import Place
from opendataflow.spark.types import types_of
from opendataflow.storage.buckets.files import at_once

LOOK_BYTES = 256 * 1024 * 1024  # of a chunk: up to here its files are looked through before Spark reads them, in 0.2 s
LARGE_BYTES = 64 * 1024 * 1024  # of a file: from here it matters that several tasks can read it
_UNPACKED = 16  # times as large as a compressed file, at most

# Directories' names are not data: Spark would make a column of `dataid=00042`, and a number of its value.
_ANY = {"recursiveFileLookup": True}
# RFC 4180, as Excel and pandas write it, and strict: Spark's own defaults end a record at a quoted newline, take a
# backslash for an escape, make what does not fit the schema null, match a declared schema by position only, keep the
# quotes of `"a"b` as text, do not see surplus fields of a row when no step uses the last column, and do not know
# infinity as pandas writes it.
_CSV = {
    **_ANY, "header": True, "multiLine": True, "escape": '"', "mode": "FAILFAST", "enforceSchema": False,
    "unescapedQuoteHandling": "RAISE_ERROR", "columnPruning": False,
    "positiveInf": "inf", "negativeInf": "-inf",
}  # fmt: skip
DEFAULTS: dict[str, dict[str, Any]] = {"csv": _CSV, "json": {**_ANY, "mode": "FAILFAST"}}


class Part(NamedTuple):
    """Files that are read alike."""

    paths: list[str]
    schema: StructType | None
    options: dict[str, Any]  # Spark's
    watch: CsvForm | None = None  # a CSV of which something is assumed that each row must show


class CsvFacts(NamedTuple):
    """What is known of a chunk's CSV files before they are read."""

    headers: Mapping[tuple[str, ...], list[str]]  # the files by their header
    is_one_line: bool = False  # several tasks are to read a file, since no value of it runs over several lines
    is_assumed: bool = False  # as far as the beginnings of the files tell, no quote is there


def read_chunk(spark: SparkSession, place: Place, *, can_read_again: bool = False) -> DataFrame:
    """The chunk, or a window of chunks, as one DataFrame: with the declared schema, the files' own, or the inferred.

    Raises JobFailed for what is seen without reading the rows: missing files, columns that are not as declared or not
    the same in all files, a CSV that is not text. Who `can_read_again` asks `must_read_again` when something fails that
    uses the rows, and saves a pass over a large CSV: it is taken to be as its files begin.
    """
    if place.database is not None:
        from opendataflow.spark.sql_read import read_table

        return read_table(spark, place)
    if is_remote(place):
        match way_to(spark, place):
            case Way.COPY:
                return _read_copy(spark, kept_copy(place))
            case Way.TASKS:
                return _read_in_tasks(spark, place)
            case Way.CONNECTOR:
                place = for_connector(place)
    parts = read_parts(spark, place, can_read_again=can_read_again)
    df = load_part(spark, place, parts[0])
    for part in parts[1:]:
        df = df.unionByName(load_part(spark, place, part))
    if place.format in ("parquet", "orc") and place.schema is not None and parts[0].schema is None:
        check_columns(place, [(place.locations[0], types_of(df.schema))], types_of(parse_schema(ddl(place.schema))))
    return _decode_binary(df, place) if place.format == "csv" else df


def _read_copy(spark: SparkSession, place: Place) -> DataFrame:
    try:
        return read_chunk(spark, place)
    except JobFailed as error:
        raise JobFailed(home_of(str(error))) from error


def _read_in_tasks(spark: SparkSession, place: Place) -> DataFrame:
    from opendataflow.spark import files_cluster

    options = merged(DEFAULTS.get(place.format, _ANY), place.options)
    form = find_form(options) if place.format == "csv" else None
    if why := files_cluster.why_not(place, form=form):
        raise files_cluster.needs_connector(place, why)
    declared = None if place.schema is None else parse_schema(ddl(place.schema))
    files = files_cluster.data_files(place)
    if not files and declared is None:
        raise _no_file(place)
    if not files and declared is not None:
        return spark.createDataFrame([], declared)
    if declared is None or form is None:
        return files_cluster.read_parquet(spark, place, files, declared)
    return _decode_binary(files_cluster.read_csv(spark, place, files, text_schema(declared), form, options), place)


def _no_file(place: Place) -> JobFailed:
    where = ", ".join(place.locations)
    return JobFailed(f"{place.datasetid}: there is no file in {where}, and no `schema:` that says what there would be")


def read_parts(spark: SparkSession, place: Place, *, can_read_again: bool = False) -> list[Part]:
    """What is to be read with which schema. More than one: CSV files with the same columns in another order."""
    files = require_files(place) if place.is_local else None
    options = merged(DEFAULTS.get(place.format, _ANY), place.options)
    declared = None if place.schema is None else parse_schema(ddl(place.schema))
    if files == [] and declared is None and place.format != "text":
        raise _no_file(place)
    match place.format:
        case "csv":
            return _csv_parts(spark, place, files, options, can_read_again=can_read_again)
        case "json":
            if files is not None and place.schema is not None and not is_true(option(options, "multiLine")):
                check_json_keys(spark, place, files)
            return [Part(list(place.locations), declared, options)]
        case "text":
            if declared is not None and [field.dataType for field in declared] != [StringType()]:
                raise JobFailed(f"{place.datasetid}: text has one column, of type string; its schema declares others")
            return [Part(list(place.locations), declared, options)]
        case _:
            if files == []:
                return [Part(list(place.locations), declared, options)]
            found = None if files is None else find_footers(place, files)
            if found and declared is not None and place.format == "parquet":
                check_columns(place, found.types, types_of(declared))
            return [Part(list(place.locations), found.schema if found else None, options)]


def load_part(spark: SparkSession, place: Place, part: Part) -> DataFrame:
    paths, schema, options, watch = part
    reader = spark.read.format(place.format).options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    df = reader.load(escaped(paths))
    return df if watch is None else watched(df, place, watch)


def ddl(schema: Mapping[str, str]) -> str:
    """`{flight: int}` as Spark writes a schema."""
    return ", ".join(f"`{column.replace('`', '``')}` {type_}" for column, type_ in schema.items())


@lru_cache(maxsize=256)
def parse_schema(text: str) -> StructType:
    """A schema in Spark's own words; the JVM parses it, and a warm child reads the same ones over and over."""
    return StructType.fromDDL(text)


# CSV --------------------------------------------------------------------------------------------------------------
def csv_form(place: Place) -> CsvForm | None:
    """How a file of this machine is read without Spark; None when that cannot be done."""
    if not place.is_local or place.format != "csv":
        return None
    return find_form(merged(_CSV, place.options))


def _csv_parts(
    spark: SparkSession, place: Place, files: Sequence[str] | None, options: dict[str, Any], *, can_read_again: bool
) -> list[Part]:  # fmt: skip
    form = find_form(options)
    facts = CsvFacts({})
    if files is not None and form is not None:
        assumes = can_read_again and may_assume(place, form, options)
        facts = _find_facts(spark, place, files, form, assumes=assumes)
    watch = form if facts.is_assumed else None
    if watch is None:
        not_assumed(place)
    if facts.is_one_line and option(place.options, "multiLine") is None:
        options["multiLine"] = False  # nothing is lost by it, and several tasks can read one file
    if watch is not None:
        options = {name: value for name, value in options.items() if name.lower() != "quote"} | {"quote": ""}
    headers = facts.headers
    if place.schema is None:
        options.setdefault("inferSchema", True)
        _check_alike(place, headers)
        return [Part(list(place.locations), None, options, watch)]
    if not is_true(option(options, "header")):
        return [Part(list(place.locations), text_schema(parse_schema(ddl(place.schema))), options, watch)]
    if not headers and files != []:
        seen = load_part(spark, place, Part(list(place.locations), None, options)).columns
        headers = {tuple(seen): list(place.locations)}
    for header, paths in headers.items():
        check_columns(place, [(paths[0], dict.fromkeys(header, ""))], dict.fromkeys(place.schema, ""), in_order=header)
    if len(headers) <= 1:
        header = next(iter(headers), ())
        return [Part(list(place.locations), _csv_schema(place, header), options, watch)]
    return [Part(paths, _csv_schema(place, header), options, watch) for header, paths in headers.items()]


def _find_facts(
    spark: SparkSession, place: Place, files: Sequence[str], form: CsvForm, *, assumes: bool
) -> CsvFacts:  # fmt: skip
    """From all bytes of a small chunk; of a large one from the beginning of each file, and then by Spark's tasks."""
    sizes = {path: os.path.getsize(path) for path in files}
    is_small = sum(size * (_UNPACKED if is_compressed(path) else 1) for path, size in sizes.items()) <= LOOK_BYTES
    found = at_once(lambda path: (look if is_small else look_at_head)(place.datasetid, path, form), files)
    looks = [seen for seen in found if seen is not None]
    if len(looks) < len(files):
        return CsvFacts({})
    headers: dict[tuple[str, ...], list[str]] = {}
    for path, seen in zip(files, looks, strict=True):
        if seen.header and form.has_header:
            headers.setdefault(seen.header, []).append(path)
    has_quotes = any(seen.has_quotes for seen in looks)
    # By lines, Spark's parser is less than half as fast.
    is_large = any(size >= LARGE_BYTES and not is_compressed(path) for path, size in sizes.items())
    is_split = is_large and 2 * len(files) <= cores_of(spark)
    if is_small:
        return CsvFacts(headers, is_one_line=is_split and not has_quotes and form.encoding in ("utf-8", "ascii"))
    if assumes and not has_quotes:
        return CsvFacts(headers, is_one_line=is_split, is_assumed=True)
    return CsvFacts(headers, is_one_line=can_scan(form) and look_by_tasks(spark, place, form, is_split=is_split))


def _check_alike(place: Place, headers: Mapping[tuple[str, ...], list[str]]) -> None:
    """Undeclared, the first file's columns are all there is to go by."""
    first = next(iter(headers), ())
    for header, (path, *_) in headers.items():
        if problems := twice(header):
            raise JobFailed(f"{place.datasetid}: {'; '.join(problems)}: {path}")
        model = headers[first][0]
        check_columns(place, [(path, dict.fromkeys(header, ""))], dict.fromkeys(first, ""), model=model)
        if header != first:
            raise JobFailed(
                f"{place.datasetid}: {path} has its columns in another order than {model}; "
                "with a `schema:` they are matched by name"
            )


def _csv_schema(place: Place, header: Sequence[str]) -> StructType:
    """The declared schema in the order of the file's header: Spark matches a CSV's columns by position only."""
    declared = parse_schema(ddl(place.schema or {}))
    return text_schema(StructType([declared[name] for name in header]) if header else declared)


def text_schema(schema: StructType) -> StructType:
    """As a CSV is parsed: binary is base64 there, which is text."""
    return StructType(
        [StructField(field.name, StringType()) if field.dataType.typeName() == "binary" else field for field in schema]
    )


def _decode_binary(df: DataFrame, place: Place) -> DataFrame:
    binary = {name for name, declared in (place.schema or {}).items() if declared.strip().lower() == "binary"}
    if not binary:
        return df
    quoted = {name: f"`{name.replace('`', '``')}`" for name in df.columns}
    return df.select(
        [
            F.to_binary(F.col(text), F.lit("base64")).alias(name) if name in binary else F.col(text)
            for name, text in quoted.items()
        ]
    )
