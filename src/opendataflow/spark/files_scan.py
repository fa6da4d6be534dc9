"""What a CSV holds that is too large to be looked through on the driver: found by Spark's tasks.

Two things decide how such a chunk is read: whether a value runs over several lines (then one task reads the file), and
whether it is text of its encoding with all quotes closed (Spark says neither).

- Where the beginnings of its files have no quote, a run assumes none in the rest: values cannot run over lines, and
  each row is watched while the pipeline reads it (`watched`). A row with a quote, or with bytes that are not of the
  encoding, ends that read; `must_read_again` then makes sure of it, and the next read knows better.
- Else, and for whoever cannot read again, one pass over the lines by as many tasks as there are cores finds both out
  first (`scan`).
"""

import os
import re
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from opendataflow.errors import DataflowError, JobFailed
from opendataflow.spark.files_csv import BYTE_ENCODINGS, SECOND_LOOK_BYTES, CsvForm, find_quote_fault, look
from opendataflow.spark.files_local import escaped, is_true, is_within, option
from opendataflow.spark.spark_errors import causes, plain_path
from opendataflow.spark.spec import Place

UNREADABLE = (  # conditions of Spark
    "FAILED_READ_FILE", "MALFORMED_RECORD_IN_PARSING", "UNSUPPORTED_FEATURE.QUERY_ONLY_CORRUPT_RECORD_COLUMN",
)  # fmt: skip
_REPLACED = "\ufffd"  # what Java makes of bytes that are not of the encoding
_UNEXPECTED = (
    "a value holds a quote or bytes that are not of the encoding, of which the beginnings of the files have none"
)

_assumed: set[str] = set()  # locations that were read so in this process
_refuted: set[str] = set()  # of these, the ones where it was wrong


class Scan(NamedTuple):
    """What the lines of a chunk hold."""

    quotes: int
    open_lines: int  # if asked for: where a quoted value begins or ends that runs over several, or a quote is misplaced
    bad_file: str | None  # the first with bytes that are not of the encoding
    bad_lines: int  # in that file
    odd_file: str | None  # the first with an odd number of quotes


def cores_of(spark: SparkSession) -> int:
    context = getattr(spark, "_sc", None)
    return int(context.defaultParallelism) if context is not None else 200  # Connect does not tell; it is a cluster


# Assumed, and watched -------------------------------------------------------------------------------------------------
def may_assume(place: Place, form: CsvForm, options: dict[str, Any]) -> bool:
    """True when a quote or a wrong byte, if there is one, would be seen in a row."""
    types = " ".join(place.schema.values()).lower() if place.schema is not None else ""
    return (
        form.encoding in ("utf-8", "ascii")
        and not is_true(option(place.options, "multiLine"))
        and str(option(options, "mode")).upper() == "FAILFAST"  # else a number in quotes is null
        and option(options, "singleVariantColumn") is None
        and "variant" not in types
        and form.quote not in str(option(options, "nullValue") or "")
        and place.location not in _refuted
    )


def watched(df: DataFrame, place: Place, form: CsvForm) -> DataFrame:
    """The rows, which fail to be read where one is not as assumed."""
    _assumed.add(place.location)
    texts = [f"`{field.name.replace('`', '``')}`" for field in df.schema if field.dataType.typeName() == "string"]
    if not texts:
        return df  # other types do not take a quote
    unexpected = [F.contains(text, F.lit(mark)) for text in map(F.col, texts) for mark in (form.quote, _REPLACED)]
    told = F.raise_error(F.lit(f"{place.datasetid}: {_UNEXPECTED}"))
    # What Spark takes for undetermined stays below every filter of the pipeline: each row is seen by it.
    return df.where(F.when(reduce(lambda a, b: a | b, unexpected), told).otherwise(F.spark_partition_id() >= 0))


def not_assumed(place: Place) -> None:
    """Nothing is assumed of these files (any more)."""
    _assumed.discard(place.location)


def must_read_again(spark: SparkSession, places: Sequence[Place], error: BaseException) -> bool:
    """True when a read of these places failed for an assumption that was wrong: reading them again will do better."""
    assumed = [place for place in places if place.location in _assumed - _refuted]
    if not assumed or isinstance(error, DataflowError):
        return False
    said = causes(error)
    if any(_UNEXPECTED in cause.text for cause in said):
        found = assumed
    elif any(cause.is_a(condition) for cause in said for condition in UNREADABLE):
        path = next((plain_path(uri) for one in said if (uri := one.parameters.get("path"))), None)
        found = [place for place in assumed if _was_wrong(spark, place, path)]
    else:
        return False
    _refuted.update(place.location for place in found)
    return bool(found)


def _was_wrong(spark: SparkSession, place: Place, path: str | None) -> bool:
    """Look through the file that could not be read, or all where it is not known."""
    from opendataflow.spark.files_read import csv_form

    form = csv_form(place)
    if form is None or (path is not None and not any(is_within(path, location) for location in place.locations)):
        return False
    found = scan(spark, place.locations if path is None else [path], form, is_exact=False)
    return found.quotes > 0 or found.bad_lines > 0


# Looked through -------------------------------------------------------------------------------------------------------
def can_scan(form: CsvForm) -> bool:
    """True for encodings where a line end and a quote are the bytes that they are in ASCII."""
    return form.encoding in ("utf-8", "ascii", *BYTE_ENCODINGS) and form.quote.isascii()


def look_by_tasks(spark: SparkSession, place: Place, form: CsvForm, *, is_split: bool) -> bool:
    """Raise JobFailed as `files_csv.look` does; True where files are to be split and no value runs over lines."""
    found = scan(spark, place.locations, form, is_exact=is_split)
    if found.bad_file is not None:
        if os.path.getsize(found.bad_file) <= SECOND_LOOK_BYTES:
            look(place.datasetid, found.bad_file, form)  # raises, with the line
        raise JobFailed(
            f"{place.datasetid}: {found.bad_file} is not {form.encoding.upper()} in {found.bad_lines} of its lines; "
            "`options: {encoding: …}` says what it is"
        )
    if found.odd_file is not None and (fault := _quote_fault(spark, found.odd_file, form)):
        raise JobFailed(f"{place.datasetid}: {found.odd_file} {fault}")
    return is_split and not found.open_lines


def _quote_fault(spark: SparkSession, path: str, form: CsvForm) -> str | None:
    """Of a file with an odd number of quotes, which is most likely 5" of pipe."""
    if os.path.getsize(path) <= SECOND_LOOK_BYTES:
        return find_quote_fault(path, form)
    if not scan(spark, [path], form, is_exact=True).open_lines:
        return None
    return "has an odd number of quotes, and values that run over lines: a quote is opened and never closed"


def scan(spark: SparkSession, locations: Sequence[str], form: CsvForm, *, is_exact: bool) -> Scan:
    """One pass over all lines, by Spark's tasks; it costs a third less when open lines are not asked for."""
    lines = spark.read.format("text").option("recursiveFileLookup", True).load(escaped(locations))
    value, quote = F.col("value"), F.lit(form.quote)
    quotes = F.octet_length(value) - F.octet_length(F.replace(value, quote, F.lit("")))
    is_open = F.lit(False)
    if is_exact:
        is_open = F.when(F.contains(value, quote), ~value.rlike(f"^{closed_line(form)}\\z")).otherwise(False)
    by_file = lines.groupBy(F.input_file_name().alias("file")).agg(
        F.sum(quotes).alias("quotes"), F.count_if(is_open).alias("open"), F.count_if(_is_bad(form)).alias("bad")
    )
    is_odd, is_bad = F.col("quotes") % 2 == 1, F.col("bad") > 0
    totals = by_file.agg(
        F.sum("quotes"), F.sum("open"), F.min(F.when(is_odd, F.col("file"))),
        F.min_by(F.struct("file", "bad"), F.when(is_bad, F.col("file"))),
    ).first()  # fmt: skip
    assert totals is not None  # noqa: S101  an aggregate without keys is one row
    all_quotes, open_lines, odd_file, bad = totals
    return Scan(
        quotes=all_quotes or 0, open_lines=open_lines or 0, odd_file=None if odd_file is None else plain_path(odd_file),
        bad_file=None if bad is None else plain_path(bad["file"]), bad_lines=0 if bad is None else bad["bad"],
    )  # fmt: skip


def _is_bad(form: CsvForm) -> Any:
    value = F.col("value")
    if form.encoding == "utf-8":
        return ~F.is_valid_utf8(value)
    if form.encoding == "ascii":
        return value.rlike(r"[^\x00-\x7f]")
    return F.lit(False)


def closed_line(form: CsvForm) -> str:
    """A pattern of lines that are whole records: each value in quotes is closed, by a quote before a separator.

    A value that does not begin with a quote may hold some. The quantifiers take all they can and give nothing back:
    a long line costs no more than its length. Java and Python understand it alike.
    """
    separator, quote = (re.escape(char) for char in (form.separator, form.quote))
    if form.escape in ("", form.quote):
        quoted = f"{quote}[^{quote}]*+(?:{quote}{quote}[^{quote}]*+)*+{quote}"
    else:
        escape = re.escape(form.escape)
        quoted = f"{quote}[^{quote}{escape}]*+(?:{escape}.[^{quote}{escape}]*+)*+{quote}"
    value = f"(?:{quoted}|[^{quote}{separator}][^{separator}]*+|)"
    return f"{value}(?:{separator}{value})*+"
