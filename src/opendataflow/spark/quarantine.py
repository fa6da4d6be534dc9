"""Rows that break a check and are left out of their chunk: where they go, and why each of them did."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from opendataflow.errors import JobFailed
from opendataflow.spark.files import write_chunk
from opendataflow.spark.spec import Place

FOLDER = "_quarantine"
FAILED = "_failed"  # the column that says why a row was taken out
ROWS_PER_FILE = 1_000_000


def quarantine_folder(place: Place) -> str:
    """Where the rows go that were left out of a chunk: hidden from whoever reads the chunk itself."""
    if place.single_file:
        folder, _, name = place.location.rpartition("/")
        return f"{folder}/{FOLDER}/{name}"
    return f"{place.location}/{FOLDER}"


def quarantine_place(place: Place) -> Place:
    location = quarantine_folder(place)
    return Place(datasetid=place.datasetid, location=location, format="parquet", options={}, schema=None)


def write_quarantine(bad: DataFrame, why: Sequence[tuple[str, Column]], place: Place, *, rows: int) -> int | None:
    """Write these rows with their reasons, which are true of those that have them; how many there were now."""
    if FAILED in bad.columns:
        raise JobFailed(f"a column is named {FAILED}, which quarantined rows get from their checks; rename it")
    reasons = [F.when(is_so, F.lit(text)) for text, is_so in why]
    named = bad.withColumn(FAILED, F.concat_ws("; ", *reasons))
    return write_chunk(named.repartition(1 + rows // ROWS_PER_FILE), quarantine_place(place), ()).rows
