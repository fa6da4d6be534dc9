"""A file of a chunk, opened for reading wherever it is: on this machine, or in an object store."""

import os
from typing import Any

from opendataflow.storage.buckets.address import is_in_bucket

BUFFER_BYTES = 1 << 20
REMOTE_BUFFER_BYTES = 8 << 20  # a request costs as much as some megabytes


def open_binary(path: str) -> Any:
    """The bytes of a file, in any order."""
    if is_in_bucket(path):
        from opendataflow.storage.buckets.files import open_file

        return open_file(path)
    return open(path, "rb")


def open_stream(path: str) -> Any:
    """The bytes of a file from its beginning, as an Arrow stream; uncompressed, where its name says that it is."""
    if is_in_bucket(path):
        from opendataflow.storage.buckets.files import open_stream as open_remote

        return open_remote(path, compression="detect")
    import pyarrow as pa

    return pa.input_stream(path, compression="detect")


def arrow_source(path: str) -> Any:
    """What Arrow's readers of Parquet and ORC take."""
    return open_binary(path) if is_in_bucket(path) else path


def buffer_bytes(path: str) -> int:
    """How much of a file to read at a time."""
    return REMOTE_BUFFER_BYTES if is_in_bucket(path) else BUFFER_BYTES


def size_of(path: str) -> int:
    if is_in_bucket(path):
        from opendataflow.storage.buckets.files import find

        return sum(one.size for one in find(path))
    return os.path.getsize(path)
