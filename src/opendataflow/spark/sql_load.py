"""A load: Parquet files into a table with nothing in between, so Spark's rows are left out altogether.

Spark's tasks read the files themselves, as Arrow, and what they read is what they stage. It is taken only where Arrow
reads what Spark would have read: see `find_load`.
"""

from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from opendataflow.spark import bucket_tasks
from opendataflow.spark.files_local import require_files
from opendataflow.spark.spec import ChunkSpec
from opendataflow.spark.sql_read import cores_of, is_here

_BATCH_ROWS = 65_536
_TASKS_PER_CORE = 2
_VERSION = b"org.apache.spark.version"
_OLD_DAYS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


class Load(NamedTuple):
    """Numbers of row groups, and what makes rows of them in a task."""

    units: DataFrame
    read: bucket_tasks.Batches


def find_load(spark: SparkSession, spec: ChunkSpec, schema: StructType) -> Load | None:
    """How tasks can read the source with this schema; None where that is left to Spark.

    It is for one Parquet source here that is written as it is. Not for files whose times Spark would turn: of another
    calendar, or in an older form (INT96), nor where a check watches the rows pass.
    """
    if spec.transformations or spec.checks or spec.profile or spec.explain or len(spec.sources) != 1:
        return None
    (source,) = spec.sources
    if source.database is not None or source.format != "parquet" or not source.is_local or source.options:
        return None
    if not is_here(spark):
        return None
    wanted = to_arrow_schema(schema, timezone="UTC")
    units: list[tuple[str, int]] = []
    for path in require_files(source):
        groups = _readable_groups(path, wanted)
        if groups is None:
            return None
        units += [(path, group) for group in range(groups)]
    if not units:
        return None
    numbers = spark.range(0, len(units), 1, min(len(units), _TASKS_PER_CORE * cores_of(spark)))
    read = bucket_tasks.parquet_reader(bucket_tasks.HERE, units, wanted, batch_rows=_BATCH_ROWS)
    return Load(numbers, read)


def _readable_groups(path: str, wanted: Any) -> int | None:
    """How many row groups a file has, if Arrow reads its columns as these."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        footer = parquet.read_metadata(path)
        found = footer.schema.to_arrow_schema()
    except (OSError, pa.ArrowException):
        return None  # Spark tells better what is wrong with it
    written = footer.metadata or {}
    if any(mark in written for mark in _OLD_DAYS) or written.get(_VERSION, b"4").split(b".")[0] in (b"1", b"2"):
        return None
    if any(found.get_field_index(field.name) < 0 or found.field(field.name).type != field.type for field in wanted):
        return None
    return int(footer.num_row_groups)
