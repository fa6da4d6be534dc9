"""Parquet and ORC: what their footers know, and their rows batch by batch."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from opendataflow.storage.buckets.opened import arrow_source, buffer_bytes

Footer = tuple[dict[str, Any], int, dict[str, int]]  # types, rows, null counts of columns whose statistics are complete


def footer(path: str, format_: str, *, root: str | None = None) -> Footer:
    """What can be known without reading a row."""
    if format_ == "orc":
        from pyarrow import orc

        read = orc.ORCFile(arrow_source(path, root=root))
        return {field.name: field.type for field in read.schema}, int(read.nrows), {}
    from pyarrow import parquet

    with parquet.ParquetFile(arrow_source(path, root=root)) as reader:
        types = {field.name: field.type for field in reader.schema_arrow}
        return types, int(reader.metadata.num_rows), _null_counts(reader.metadata)


def _null_counts(metadata: Any) -> dict[str, int]:
    """How often each column is null, of those where every row group says so."""
    counts: dict[str, int] = {}
    unknown = set()
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            seen = column.statistics
            if seen is None or not seen.has_null_count:
                unknown.add(column.path_in_schema)
            else:
                counts[column.path_in_schema] = counts.get(column.path_in_schema, 0) + seen.null_count
    return {name: count for name, count in counts.items() if name not in unknown}


def parquet_batches(
    path: str, columns: set[str], batch_rows: int, *, root: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:  # fmt: skip
    from pyarrow import parquet

    # A row group may be as large as the file; with a buffer it is read page by page.
    with parquet.ParquetFile(arrow_source(path, root=root), buffer_size=buffer_bytes(path), pre_buffer=False) as reader:
        wanted = [name for name in reader.schema_arrow.names if name in columns]
        for batch in reader.iter_batches(batch_size=batch_rows, columns=wanted):
            yield batch.num_rows, {name: _plain(batch.column(name)) for name in wanted}


def orc_batches(path: str, columns: set[str], *, root: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Stripe by stripe, which writers keep at some 64 MB."""
    from pyarrow import orc

    reader = orc.ORCFile(arrow_source(path, root=root))
    wanted = [name for name in reader.schema.names if name in columns]
    for stripe in range(reader.nstripes):
        batch = reader.read_stripe(stripe, columns=wanted or None)
        yield batch.num_rows, {name: _plain(batch.column(name)) for name in wanted}


def _plain(column: Any) -> Any:
    """One kind of text instead of Arrow's four, and numbers that Arrow can compare."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        return column.cast(pa.string())
    if pa.types.is_uint64(column.type):  # as Spark reads it: beyond what an int64 holds
        return column.cast(pa.decimal128(20, 0))
    return column.cast(pa.float32()) if pa.types.is_float16(column.type) else column
