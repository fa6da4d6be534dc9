"""Files that several tasks have written, as fewer of them: in the order of the tasks, which is that of the rows."""

import bz2
import gzip
import os
import shutil
from collections.abc import Callable, Sequence
from functools import reduce
from typing import IO, Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from opendataflow.spark.files_local import data_files, escaped, is_true, option
from opendataflow.spark.spec import Place

COLUMNAR = ("parquet", "orc")
COMPRESSED: dict[str, tuple[str, Callable[..., Any]]] = {".gz": ("gzip", gzip.open), ".bz2": ("bzip2", bz2.open)}
_BLOCK_BYTES = 4 * 1024 * 1024
_OF_BYTES = ("compression", "codec", "encoding", "charset", "lineSep")  # options that say how text becomes bytes


class Save(Protocol):
    """Writes a DataFrame there, in the place's format."""

    def __call__(self, df: DataFrame, place: Place, path: str, **more: Any) -> None: ...


def can_join(place: Place, schema: StructType) -> bool:
    """True when the bytes of two files can be put together, or their rows be read back as they were written."""
    if place.format in COLUMNAR:
        return True
    in_header = place.format == "csv" and any("\n" in name or "\r" in name for name in schema.names)
    return not in_header and option(place.options, *_OF_BYTES) is None


def join_files(
    spark: SparkSession, place: Place, schema: StructType, parts: Sequence[str], target: str, *, has_header: bool,
    save: Save,
) -> None:  # fmt: skip
    """Make one file of these, which stay."""
    if place.format in COLUMNAR:
        # A read of all would take the largest first.
        reads = [spark.read.schema(schema).format(place.format).load(escaped([part])) for part in parts]
        folder = f"{target}.parts"
        try:
            save(reduce(DataFrame.unionAll, reads).coalesce(1), place, folder, maxRecordsPerFile=0)
            (joined,) = data_files(folder)
            os.replace(joined, target)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    opened = next((how for suffix, (_, how) in COMPRESSED.items() if target.endswith(suffix)), open)
    with opened(target, "wb") as file:
        _concatenate(parts, file, skip_first_line=has_header)


def has_header(place: Place, defaults: Any) -> bool:
    header = option(place.options, "header")
    return place.format == "csv" and is_true(defaults.get("header") if header is None else header)


def _concatenate(parts: Sequence[str], target: IO[bytes], *, skip_first_line: bool) -> None:
    for number, part in enumerate(parts):
        with open(part, "rb") as source:
            if skip_first_line and number:
                source.readline()
            shutil.copyfileobj(source, target, _BLOCK_BYTES)
