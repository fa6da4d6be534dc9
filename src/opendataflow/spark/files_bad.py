"""Why a chunk's rows could not be read, found out after the read has failed, and only then."""

import io
import json
import os
import textwrap
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from opendataflow.errors import DataflowError, JobFailed
from opendataflow.spark.files_csv import SECOND_LOOK_BYTES, CsvForm, find_line, find_quote_fault, open_bytes
from opendataflow.spark.files_local import data_files, is_within, merged
from opendataflow.spark.files_read import Part, csv_form, load_part, read_parts
from opendataflow.spark.files_scan import UNREADABLE
from opendataflow.spark.spark_errors import causes, plain_path
from opendataflow.spark.spec import Place
from opendataflow.spark.types import types_of

_BAD = "_dataflow_bad_record"


def explain_read_failure(spark: SparkSession, place: Place, error: BaseException) -> str | None:
    """A sentence with the file, the number of bad rows and the first of them; None when the error is another.

    Reads the place again, to count: call it when a run has failed and nothing else is waiting.
    """
    if isinstance(error, DataflowError):
        return None
    said = causes(error)
    named = (cause.parameters.get("path") for cause in said if cause.is_a("FAILED_READ_FILE"))
    path = next((plain_path(uri) for uri in named if uri), None)
    if path is None:
        is_unreadable = any(cause.is_a(condition) for cause in said for condition in UNREADABLE)
        if not is_unreadable or place.format not in ("csv", "json"):
            return None
    elif not any(is_within(path, location) for location in place.locations):
        return None
    try:
        told = _find_quote_fault(place, path) or _count(spark, place)
    except JobFailed as found:  # what a large chunk's beginning did not show
        return str(found)
    except Exception:  # noqa: BLE001  the failure is told all the same, with what Spark said of it
        told = None
    if told is None and path is not None:
        told = f"{path} cannot be read: {said[-1].text}"
    return None if told is None else f"{place.datasetid}: {told}"


# Counting ---------------------------------------------------------------------------------------------------------
def _find_quote_fault(place: Place, path: str | None) -> str | None:
    """In the file that could not be read, or in as many as are read in some seconds where that is not known."""
    form = csv_form(place)
    if form is None:
        return None
    left = SECOND_LOOK_BYTES
    for one in (path,) if path is not None else (file for location in place.locations for file in data_files(location)):
        left -= os.path.getsize(one)
        if left < 0:
            return None
        if fault := find_quote_fault(one, form):
            return f"{one} {fault}"
    return None


def _count(spark: SparkSession, place: Place) -> str | None:
    if place.format not in ("csv", "json"):
        return None
    rows = bad = 0
    first = ""
    for part in read_parts(spark, place):
        df = _load_leniently(spark, place, part)
        tally = _tally(df)
        rows, bad = rows + tally["rows"], bad + (tally["bad"] or 0)
        if tally["bad"] and not first:
            first = _describe(place, tally["first"], types_of(df.schema))
    if not bad:
        return None
    return f"{bad} of {rows} rows {'is' if bad == 1 else 'are'} malformed, the first in {first}"


def _load_leniently(spark: SparkSession, place: Place, part: Part) -> DataFrame:
    """The rows with a column that holds the text of those that do not fit."""
    lenient = merged(part.options, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD})
    schema = part.schema
    if schema is None:
        schema = load_part(spark, place, Part(part.paths, None, lenient)).schema
    fields = [field for field in schema if field.name != _BAD]
    return load_part(spark, place, Part(part.paths, StructType([*fields, StructField(_BAD, StringType())]), lenient))


def _tally(df: DataFrame) -> Row:
    """Rows, bad rows and the first of these: one row, whatever there is to count."""
    is_bad = F.col(_BAD).isNotNull()
    # All columns are asked for, because Spark only parses those.
    first = F.first(F.when(is_bad, F.struct(*[F.col(f"`{name.replace('`', '``')}`") for name in df.columns])), True)
    by_file = df.groupBy(F.input_file_name().alias("file")).agg(
        F.count(F.lit(1)).alias("rows"), F.count_if(is_bad).alias("bad"), first.alias("row")
    )
    of_first_file = F.min_by(F.struct("file", "row"), F.when(F.col("bad") > 0, F.col("file")))
    tally = by_file.agg(F.sum("rows").alias("rows"), F.sum("bad").alias("bad"), of_first_file.alias("first")).first()
    assert tally is not None  # noqa: S101  an aggregate without keys is one row
    return tally


# Describing -------------------------------------------------------------------------------------------------------
def _describe(place: Place, found: Row, types: Mapping[str, str]) -> str:
    """File, line and column of one bad row."""
    path = plain_path(found["file"])
    parsed = found["row"].asDict()
    text = parsed.pop(_BAD)
    declared = {name: type_ for name, type_ in types.items() if name != _BAD}
    if place.format == "json":
        return f"{path}{_at(_find_text_line(place, path, text))}: {_json_reason(text, parsed, declared)}"
    form = csv_form(place) or CsvForm(",", '"', '"', "utf-8", has_header=True)
    fields: list[str] = next(form.records(io.StringIO(text, newline="")), [])
    line = find_line(path, form, fields) if place.is_local else None
    if len(fields) != len(declared):
        return f"{path}{_at(line)} has {len(fields)} fields, not {len(declared)}"
    return f"{path}{_at(line)}: {_mismatch(dict(zip(declared, fields, strict=True)), parsed, declared)}"


def _json_reason(text: str, parsed: Mapping[str, Any], declared: Mapping[str, str]) -> str:
    try:
        values = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    if not isinstance(values, dict):
        return "not a JSON object"
    return _mismatch(values, parsed, declared)


def _mismatch(values: Mapping[str, Any], parsed: Mapping[str, Any], declared: Mapping[str, str]) -> str:
    for name, value in values.items():
        if name in declared and value not in ("", None) and parsed.get(name) is None:
            shown = textwrap.shorten(value if isinstance(value, str) else json.dumps(value), 60, placeholder=" …")
            return f"column {name!r} is declared as {declared[name]}, but is {shown!r}"
    return "it does not fit the schema"


def _find_text_line(place: Place, path: str, text: str) -> int | None:
    if not place.is_local or os.path.getsize(path) > SECOND_LOOK_BYTES:
        return None
    with open_bytes(path) as file:
        lines = (line.decode("utf-8-sig", "replace").rstrip("\r\n") for line in file)
        return next((number for number, line in enumerate(lines, 1) if line == text.rstrip("\r\n")), None)


def _at(line: int | None) -> str:
    return "" if line is None else f" line {line}"
