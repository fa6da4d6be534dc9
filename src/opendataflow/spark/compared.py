"""A chunk that was written in a shared job, and the same chunk produced alone: are they the same?

Rows are compared as what they are: values exactly, with their types, each as often as it is there; in their order,
where the chunk is one file and was written as one. Formats without types are compared as their lines.
"""

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from tempfile import TemporaryDirectory
from typing import Any

from opendataflow.spark.files_local import data_files
from opendataflow.spark.files_remote import Hear, Result, Run, run_staged
from opendataflow.spark.spec import ChunkSpec, Place

_TYPED = ("parquet", "orc")
_MOST_SHOWN = 200  # characters of a row
_BATCH_ROWS = 10_000


def compared(spark: Any, spec: ChunkSpec, written: Result, run: Run, *, hear: Hear) -> Result:
    """Produce the chunk alone, beside what a shared job wrote, and compare: `written`, with `differs` if it does."""
    place = spec.destination
    with _beside(place) as folder:
        alone = replace(place, location=os.path.join(folder, os.path.basename(place.location)))
        # As a source, what was written is copied to this machine if need be.
        asked = replace(spec, sources=(*spec.sources, place), destination=alone, checks=())

        def run_and_compare(specs: Sequence[ChunkSpec], hear: Hear) -> Iterator[tuple[ChunkSpec, Result]]:
            (one,) = specs
            ((_, result),) = run([replace(one, sources=one.sources[:-1])], hear)
            if not result.get("error"):
                in_order = len(list(data_files(one.sources[0].location))) == 1
                result = {**result, "differs": find_difference(one.sources[-1], alone, in_order=in_order)}
            yield one, result

        ((_, result),) = run_staged(spark, [asked], run_and_compare, hear=hear)
    if result.get("error"):
        return result
    differs = result["differs"]
    if differs is None and written.get("schema") != result.get("schema"):
        differs = f"its columns are {result.get('schema')}, not {written.get('schema')}"
    return written if differs is None else {**written, "differs": differs}


@contextmanager
def _beside(place: Place) -> Iterator[str]:
    """A folder on this machine, below that of the run where that is here."""
    if not place.is_local:
        with TemporaryDirectory() as folder:
            yield folder
        return
    folder = os.path.join(os.path.dirname(place.location) if place.single_file else place.location, "_alone")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_difference(shared: Place, alone: Place, *, in_order: bool) -> str | None:
    """A sentence about the first difference between what lies in the two places, if there is one."""
    ours, theirs = list(data_files(shared.location)), list(data_files(alone.location))
    one, other = _columns(shared, ours), _columns(alone, theirs)
    if ours and theirs and one != other:
        return f"its columns are {other}, not {one}"
    if in_order and len(ours) == len(theirs) == 1:
        for number, (mine, its) in enumerate(itertools.zip_longest(_rows(shared, ours), _rows(alone, theirs)), 1):
            if mine != its:
                return f"row {number} is {_short(its)}, not {_short(mine)}"
        return None
    counted: Counter[bytes] = Counter()
    for row in _rows(shared, ours):
        counted[_digest(row)] += 1
    for row in _rows(alone, theirs):
        digest = _digest(row)
        if not counted[digest]:
            return f"it has the row {_short(row)}"
        counted[digest] -= 1
    left = sum(counted.values())
    return f"{left} of the rows of the shared job are not in it" if left else None


def _columns(place: Place, paths: Sequence[str]) -> list[str]:
    """Names and types of the columns, as the files have them."""
    if not paths or place.format not in _TYPED:
        return []
    if place.format == "parquet":
        from pyarrow import parquet

        schema = parquet.read_schema(paths[0])
    else:
        from pyarrow import orc

        schema = orc.ORCFile(paths[0]).schema
    return [f"{field.name} {field.type}" for field in schema]


def _rows(place: Place, paths: Sequence[str]) -> Iterator[str]:
    """Each row as text that is the same for the same values only."""
    for path in paths:
        if place.format == "parquet":
            from pyarrow import parquet

            batches = parquet.ParquetFile(path).iter_batches(batch_size=_BATCH_ROWS)
        elif place.format == "orc":
            from pyarrow import orc

            file = orc.ORCFile(path)
            batches = (file.read_stripe(number) for number in range(file.nstripes))
        else:
            yield from _lines(path)
            continue
        for batch in batches:
            columns = [column.to_pylist() for column in batch.columns]
            yield from map(repr, zip(*columns, strict=True)) if columns else ()


def _lines(path: str) -> Iterator[str]:
    import pyarrow

    with pyarrow.input_stream(path, compression="detect") as stream:
        text = stream.read()
    yield from text.decode("utf-8", "surrogateescape").split("\n")


def _digest(row: str) -> bytes:
    return blake2b(row.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def _short(row: str | None) -> str:
    if row is None:
        return "not there"
    return row if len(row) <= _MOST_SHOWN else f"{row[:_MOST_SHOWN]}…"
