"""A file of a chunk, opened for reading wherever it is: on this machine, or in an object store.

With a `root`, OSError unless the file that was opened is below it; an object store has no links that lead elsewhere.
"""

import os
from typing import Any

from opendataflow.storage.below import opener_below
from opendataflow.storage.buckets.address import is_in_bucket

BUFFER_BYTES = 1 << 20
REMOTE_BUFFER_BYTES = 8 << 20  # a request costs as much as some megabytes
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


def open_binary(path: str, *, root: str | None = None) -> Any:
    """The bytes of a file, in any order."""
    if is_in_bucket(path):
        from opendataflow.storage.buckets.files import open_file

        return open_file(path)
    return open(path, "rb", opener=None if root is None else opener_below(root))


def open_stream(path: str, *, root: str | None = None) -> Any:
    """The bytes of a file from its beginning, as an Arrow stream; uncompressed, where its name says that it is."""
    if is_in_bucket(path):
        from opendataflow.storage.buckets.files import open_stream as open_remote

        return open_remote(path, compression="detect")
    import pyarrow as pa

    return pa.input_stream(arrow_source(path, root=root), compression=_CODECS.get(os.path.splitext(path)[1]))


def arrow_source(path: str, *, root: str | None = None) -> Any:
    """What Arrow's readers of Parquet and ORC take."""
    if root is None or is_in_bucket(path):
        return open_binary(path) if is_in_bucket(path) else path
    import pyarrow as pa

    with open_binary(path, root=root) as file:
        return pa.OSFile(f"/proc/self/fd/{file.fileno()}")  # the very file that was opened, read without Python


def buffer_bytes(path: str) -> int:
    """How much of a file to read at a time."""
    return REMOTE_BUFFER_BYTES if is_in_bucket(path) else BUFFER_BYTES


def size_of(path: str) -> int:
    if is_in_bucket(path):
        from opendataflow.storage.buckets.files import find

        return sum(one.size for one in find(path))
    return os.path.getsize(path)
