"""What Spark's tasks do with files in an object store, where Spark has no connector for it: read them, write them.

It stands alone (no import of ours), because it runs in Spark's workers, where OpenDataFlow may not be installed. The
credentials are those of the machine it runs on; `store` says which store, and holds no secret.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Store = dict[str, Any]  # kind (s3 | gs | here), endpoint, region, anonymous
Batches = Callable[[Iterator[Any]], Iterator[Any]]

HERE: Store = {"kind": "here"}  # files of the machine that the task runs on
BATCH_ROWS = 10_000
BLOCK_BYTES = 8 * 1024 * 1024
GROUP_BYTES = 64 * 1024 * 1024  # of a row group in memory


class BadFile(Exception):
    """What is wrong with a file, as one sentence that names it."""


def open_store(store: Store) -> Any:
    import datetime

    from pyarrow import fs

    if store["kind"] == "here":
        return fs.LocalFileSystem()
    if store["kind"] == "gs":
        limit = datetime.timedelta(seconds=60)
        if store["endpoint"] is None:
            return fs.GcsFileSystem(retry_time_limit=limit)
        scheme, _, host = store["endpoint"].rpartition("://")
        return fs.GcsFileSystem(
            anonymous=True, scheme=scheme or "http", endpoint_override=host, retry_time_limit=limit
        )  # fmt: skip
    return fs.S3FileSystem(
        endpoint_override=store["endpoint"], region=store["region"], anonymous=store["anonymous"],
        connect_timeout=5.0, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=6), allow_delayed_open=True,
    )  # fmt: skip


# Reading --------------------------------------------------------------------------------------------------------------
def parquet_reader(
    store: Store, units: Sequence[tuple[str, int]], schema: Any, *, batch_rows: int = BATCH_ROWS
) -> Batches:  # fmt: skip
    """For rows that are numbers of units (path, row group): the rows of those, as this Arrow schema has them."""

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import parquet

        system = open_store(store)
        for number in _numbers(batches):
            path, group = units[number]
            with system.open_input_file(path) as file, parquet.ParquetFile(file, pre_buffer=True) as source:
                for batch in source.iter_batches(batch_size=batch_rows, row_groups=[group], columns=schema.names):
                    yield from pa.Table.from_batches([batch]).select(schema.names).cast(schema).to_batches()

    return read


def record_reader(
    store: Store, paths: Sequence[tuple[str, str]], *, quote: bytes, has_header: bool
) -> Batches:  # fmt: skip
    """For rows that are numbers of files (path, as it is told): the records of those CSV files, as text."""

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        system = open_store(store)
        for number in _numbers(batches):
            path, told = paths[number]
            with system.open_input_stream(path, compression="detect") as stream:
                skip = has_header
                for first_line, found in records(stream, told, quote):
                    kept = found[1:] if skip else found
                    skip = False
                    for start in range(0, len(kept), BATCH_ROWS):
                        some = [record for record in kept[start : start + BATCH_ROWS] if record.strip()]
                        yield pa.RecordBatch.from_arrays([_text(some, told, first_line)], names=["value"])

    return read


def records(stream: Any, told: str, quote: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """The records of a CSV, some at a time, with the line where the first of them begins; values may hold newlines."""
    line, rest, is_first = 1, b"", True
    while block := stream.read(BLOCK_BYTES):
        if is_first:
            block, is_first = block.removeprefix(b"\xef\xbb\xbf"), False
        *lines, rest = (rest + block).split(b"\n")
        found, rest = _joined(lines, rest, quote)
        if found:
            yield line, [record.rstrip(b"\r") for record in found]
        line += len(lines) - rest.count(b"\n")
    if rest.count(quote) % 2:
        raise BadFile(f"{told} line {line}: a quote is opened and never closed")
    if rest.strip():
        yield line, [rest.rstrip(b"\r")]


def _joined(lines: list[bytes], rest: bytes, quote: bytes) -> tuple[list[bytes], bytes]:
    """Lines that belong to one record as one; what is open at the end goes before the rest."""
    if not any(quote in line for line in lines):
        return lines, rest
    found: list[bytes] = []
    open_lines: list[bytes] = []
    is_open = False
    for line in lines:
        open_lines.append(line)
        is_open ^= bool(line.count(quote) % 2)
        if not is_open:
            found.append(b"\n".join(open_lines))
            open_lines = []
    return found, b"\n".join([*open_lines, rest])


def _text(some: list[bytes], told: str, first_line: int) -> Any:
    import pyarrow as pa

    try:
        return pa.array(some, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        for record in some:
            try:
                record.decode()
            except UnicodeDecodeError as error:
                raise BadFile(
                    f"{told} after line {first_line} is not UTF-8: {error.reason}; `options: {{encoding: …}}` says "
                    "what it is"
                ) from None
        raise


def _numbers(batches: Iterator[Any]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


# Writing --------------------------------------------------------------------------------------------------------------
def parquet_writer(store: Store, folder: str, metadata: dict[str, str], most_rows: int) -> Batches:
    """Writes its rows to files of names that nobody else has; a row for each: name, rows, bytes.

    A task may be done twice, or end in the middle: only files that are told by the tasks that count are of the chunk.
    """

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        parts = _Parts(open_store(store), folder, metadata)
        for batch in batches:
            parts.add(batch)
            if parts.rows >= most_rows:
                parts.close()
        parts.close()
        columns = list(zip(*parts.done, strict=True)) or [(), (), ()]
        types = (pa.string(), pa.int64(), pa.int64())
        arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=["name", "rows", "bytes"])

    return write


class _Parts:
    """The files of one task, one after the other; `done` has name, rows and bytes of those that are whole."""

    def __init__(self, system: Any, folder: str, metadata: dict[str, str]) -> None:
        self._system, self._folder, self._metadata = system, folder, metadata
        self._name, self._stream, self._writer = "", None, None
        self._waiting: list[Any] = []  # batches of one row group
        self._bytes = 0
        self.rows = 0
        self.done: list[tuple[str, int, int]] = []

    def add(self, batch: Any) -> None:
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._waiting:
            return
        writer = self._writer or self._open(self._waiting[0].schema)
        group = pa.Table.from_batches(self._waiting)
        writer.write_table(group, row_group_size=max(1, group.num_rows))
        self._waiting, self._bytes = [], 0

    def _open(self, schema: Any) -> Any:
        from pyarrow import parquet

        self._name = f"{uuid.uuid4().hex}.parquet"
        self._stream = self._system.open_output_stream(f"{self._folder}/{self._name}")
        self._writer = parquet.ParquetWriter(
            self._stream, schema.with_metadata(self._metadata), compression="snappy", store_schema=False
        )
        return self._writer

    def close(self) -> None:
        self._flush()
        stream: Any = self._stream
        writer: Any = self._writer
        if writer is None:
            return
        writer.close()
        size = stream.tell()
        stream.close()
        self.done.append((self._name, self.rows, size))
        self._stream, self._writer, self.rows = None, None, 0
