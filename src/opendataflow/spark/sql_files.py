"""A part of a read as a Parquet file, written where the rows arrive: they are never anything but Arrow."""

import os
import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from opendataflow.spark.adbc import Connection
from opendataflow.spark.sql_scan import Scan, read_rows

GROUP_BYTES = 64 * 1024 * 1024  # of a row group, before it is compressed: what a task holds in memory at most

# In the usual megabyte, keys and amounts of a small file would all have room, for nothing: a column whose values recur
# has few of them. With less, files are smaller and written in two thirds of the time.
_DICTIONARY_BYTES = 128 * 1024


def write_part(
    scan: Scan, sql: str, folder: str, number: int, *, metadata: Mapping[str, str], compression: str,
    connection: Connection | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Write the rows of one statement to a hidden file there, and tell its name, rows and bytes.

    Hidden, and with a name of its own: of a task that was tried twice, one file is taken.
    """
    name = f"part-{number:05d}-{uuid.uuid4()}{_suffix(compression)}.parquet"
    path = os.path.join(folder, f".{name}")
    schema = scan.target.with_metadata(dict(metadata))
    rows, held, held_bytes = 0, list[pa.RecordBatch](), 0
    with parquet.ParquetWriter(
        path,
        schema,
        compression=compression,
        store_decimal_as_integer=True,
        dictionary_pagesize_limit=_DICTIONARY_BYTES,
    ) as writer:
        for batch in read_rows(scan, sql, connection):
            held.append(batch)
            rows += batch.num_rows
            held_bytes += batch.nbytes
            if held_bytes >= GROUP_BYTES:
                _write(writer, held, schema)
                held, held_bytes = [], 0
        if held:
            _write(writer, held, schema)
    return {"number": number, "name": name, "rows": rows, "bytes": os.path.getsize(path)}


def _write(writer: Any, batches: list[pa.RecordBatch], schema: pa.Schema) -> None:
    table = pa.Table.from_batches(batches).replace_schema_metadata(schema.metadata)
    writer.write_table(table, row_group_size=max(1, table.num_rows))


def _suffix(compression: str) -> str:
    return {"none": "", "uncompressed": "", "gzip": ".gz"}.get(compression, f".{compression}")
