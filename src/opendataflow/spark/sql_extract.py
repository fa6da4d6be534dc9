"""An extract: rows of a database as Parquet files with nothing in between, so Spark's rows are left out altogether.

The files are as Spark writes them: its names, its types and its own description of them in the footer.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from opendataflow.errors import JobFailed
from opendataflow.spark.files_local import fsync, option
from opendataflow.spark.files_write import Written, check_writable, schema_json
from opendataflow.spark.spec import ChunkSpec, Place
from opendataflow.spark.sql_chunk import dialect
from opendataflow.spark.sql_describe import described
from opendataflow.spark.sql_files import write_part
from opendataflow.spark.sql_read import cores_of, prepare, spark_schema, sql_reads, with_snapshot
from opendataflow.spark.sql_scan import Scan
from opendataflow.spark.sql_source import statements

_SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"
_COMPRESSIONS = ("snappy", "gzip", "zstd", "lz4", "none", "uncompressed")
_OPTIONS = ("compression",)
SMALL_ROWS = 200_000  # up to here a Spark job costs more than it helps


def is_extract(spec: ChunkSpec) -> bool:
    """True for a chunk that `extract` can produce: one SQL source, nothing done to it, a folder of Parquet here.

    Checks are answered by the files afterwards; one that takes rows out needs a pass of Spark.
    """
    if spec.transformations or len(spec.sources) != 1 or spec.profile or spec.explain:
        return False
    database, place = spec.sources[0].database, spec.destination
    return (
        database is not None
        and dialect(database) != "jdbc"
        and place.database is None
        and place.format == "parquet"
        and place.is_local
        and not place.single_file
        and all(name.lower() in _OPTIONS for name in place.options)
        and _compression(place) in _COMPRESSIONS
        and not any(check.takes_out_rows for check in spec.checks)
    )


def extract(spark: SparkSession, source: Place, destination: Place) -> Written:
    """Write the source's chunk to the run's folder, durably, or raise JobFailed; all parts are of one moment."""
    prepare(spark)
    with sql_reads(), contextlib.ExitStack() as open_ones:
        scan, connection = open_ones.enter_context(described(source, cores=cores_of(spark)))
        schema = spark_schema(scan)
        check_writable(schema, destination)
        folder = destination.location
        os.makedirs(folder, exist_ok=True)
        how: dict[str, Any] = {"metadata": {_SPARK_SCHEMA: schema.json()}, "compression": _compression(destination)}
        try:
            if scan.parts == 1 and scan.rows <= SMALL_ROWS:
                parts = [write_part(scan, scan.select(), folder, 0, connection=connection, **how)]
            else:
                open_ones.close()
                parts = _in_tasks(spark, with_snapshot(scan), folder, how)
        except OSError as error:
            raise JobFailed(f"{destination.datasetid}: {folder} cannot be written: {error.strerror}") from error
    _take(folder, parts)
    return Written(
        rows=sum(part["rows"] for part in parts),
        schema=schema_json(schema),
        bytes=sum(part["bytes"] for part in parts),
        files=len(parts),
    )


def _compression(place: Place) -> str:
    return str(option(place.options, "compression") or "snappy").lower()


def _in_tasks(spark: SparkSession, scan: Scan, folder: str, how: dict[str, Any]) -> list[dict[str, Any]]:
    sent = statements(scan)

    def tasks(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part = write_part(scan, sent[number], folder, number, **how)
                yield pa.RecordBatch.from_pydict({"part": [json.dumps(part)]})

    numbers = spark.range(0, len(sent), 1, len(sent))
    rows = numbers.mapInArrow(tasks, "part string").collect()  # one short row for each file
    return [json.loads(row["part"]) for row in rows]


def _take(folder: str, parts: list[dict[str, Any]]) -> None:
    """Give the files their names; those of tasks that were tried in vain go. Empty ones too, but for one."""
    parts.sort(key=lambda part: int(part["number"]))
    empty = [part for part in parts if not part["rows"]]
    for part in empty if len(empty) < len(parts) else empty[1:]:
        parts.remove(part)
    for part in parts:
        path = os.path.join(folder, part["name"])
        fsync(os.path.join(folder, f".{part['name']}"))
        os.replace(os.path.join(folder, f".{part['name']}"), path)
    for name in os.listdir(folder):
        if name.startswith(".part-"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))
    fsync(folder)
    fsync(os.path.dirname(folder))
