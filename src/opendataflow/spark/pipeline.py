"""One chunk of a pipeline, step by step: read its sources, run its transformations, write its run directory."""

import sys
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from opendataflow.spark.files import read_chunk, write_chunk
from opendataflow.spark.spec import ChunkSpec
from opendataflow.spark.transformations import Code, apply, load, read_code


def read_codes(spec: ChunkSpec) -> tuple[Code, ...]:
    """The code of every transformation as it is now; what is missing or not Python is found here, without Spark."""
    return tuple(read_code(spec.home, spec.slug, name) for name in spec.transformations)


def run_chunk(spark: SparkSession, spec: ChunkSpec, codes: Sequence[Code]) -> dict[str, Any]:
    """Produce the chunk and return what the runner publishes of it."""
    if spec.home not in sys.path:
        sys.path.append(spec.home)  # last, so that a project's files never replace a library's
    steps = [load(code) for code in codes]
    sources = [read_chunk(spark, place) for place in spec.sources]
    df = apply(steps, sources)
    try:
        written = write_chunk(df, spec.destination, spec.sources)
    finally:
        spark.catalog.clearCache()  # what a transformation cached is of no use to the next chunk
    return {
        "runid": spec.runid,
        "application": _application(spark),
        "location": spec.destination.location,
        "rows": written.rows,
        "schema": written.schema,
        "transformations": {code.name: code.digest for code in codes},
    }


def _application(spark: SparkSession) -> str | None:
    """Spark's own name for this run, as its history server shows it; Connect does not tell."""
    context = getattr(spark, "_sc", None)
    return context.applicationId if context is not None else None
