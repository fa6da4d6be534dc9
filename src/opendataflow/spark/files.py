"""The files of a chunk through Spark: read them, write them, and say what was written without reading it again."""

from opendataflow.spark.files_bad import explain_read_failure
from opendataflow.spark.files_read import ddl, read_chunk
from opendataflow.spark.files_scan import must_read_again
from opendataflow.spark.files_write import Written, find_rows, schema_json, write_chunk

__all__ = [
    "Written", "ddl", "explain_read_failure", "find_rows", "must_read_again", "read_chunk", "schema_json",
    "write_chunk",
]  # fmt: skip
