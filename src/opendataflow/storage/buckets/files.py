"""Looking at the files of a location in an object store, and moving them: whole files, several at a time.

A folder there is what its objects' names begin with; an object is seen by others when it is there as a whole, never
before. Every failure is an OSError with the location and one sentence.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from opendataflow.storage.buckets.address import Address, parse
from opendataflow.storage.buckets.connect import explained, file_system, no_bucket

AT_ONCE = 8  # requests; each of a copy holds one block in memory
BLOCK_BYTES = 4 * 1024 * 1024
READ_AHEAD_BYTES = 4 * 1024 * 1024
MOST_COPIED_BYTES = 5 * 1024**3  # by the store itself, in one request

T = TypeVar("T")


class Stored(NamedTuple):
    """A file below a location: its name from there ('' for the location itself), size, modification time."""

    name: str
    size: int
    changed_ns: int


class Entry(NamedTuple):
    """A name in a folder: a file, or a folder without size and time."""

    name: str
    stored: Stored | None


# Looking --------------------------------------------------------------------------------------------------------------
def find(location: str, *, hidden: bool = False) -> list[Stored]:
    """The file there, or the files below it; those whose names begin with `_` or `.` only if asked for.

    Raises FileNotFoundError when there is nothing, and says so when there is not even the bucket.
    """
    from pyarrow import fs

    where, system = parse(location), file_system(location)
    with explained(location):
        seen = system.get_file_info(where.path)
        if seen.type == fs.FileType.File:
            return [Stored("", seen.size, seen.mtime_ns)]
        if seen.type != fs.FileType.Directory:
            raise missing(location)
        listed = system.get_file_info(fs.FileSelector(where.path, recursive=True, allow_not_found=True))
    found = [_stored(one, where) for one in listed if one.type == fs.FileType.File]
    return sorted(one for one in found if hidden or not _is_hidden(one.name))


def entries(location: str) -> Iterator[Entry]:
    """What is directly in a folder; raises FileNotFoundError when nothing is."""
    from pyarrow import fs

    where, system = parse(location), file_system(location)
    with explained(location):
        listed = system.get_file_info(fs.FileSelector(where.path, allow_not_found=True))
    if not listed and not is_there(location):
        raise missing(location)
    for one in listed:
        is_file = one.type == fs.FileType.File
        yield Entry(one.base_name, Stored("", one.size, one.mtime_ns) if is_file else None)


def is_there(location: str) -> bool:
    from pyarrow import fs

    with explained(location):
        return bool(file_system(location).get_file_info(parse(location).path).type != fs.FileType.NotFound)


def missing(location: str) -> OSError:
    """Why nothing is there: no such bucket, or no such object in it."""
    where = parse(location)
    bucket = f"{location.partition('://')[0]}://{where.bucket}"
    if where.key and is_there(bucket):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), location)
    return no_bucket(location)


def etags(location: str, names: Sequence[str]) -> list[str]:
    """The store's own mark of each file's content; '' where it has none."""

    def etag(name: str) -> str:
        path = below(location, name)
        with explained(path), file_system(path).open_input_stream(parse(path).path) as stream:
            kept = stream.metadata() or {}
            return str(kept.get("ETag", b""), "utf-8", "replace").strip('"')

    return at_once(etag, names)


def below(location: str, name: str) -> str:
    return f"{location.rstrip('/')}/{name}" if name else location


def _stored(seen: Any, where: Address) -> Stored:
    return Stored(seen.path.removeprefix(where.path).lstrip("/"), seen.size, seen.mtime_ns)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(("_", ".")) for part in name.split("/"))


# Reading and writing --------------------------------------------------------------------------------------------------
def open_file(location: str) -> Any:
    """A file to be read in any order."""
    with explained(location):
        return file_system(location).open_input_file(parse(location).path)


def open_stream(location: str, *, compression: str | None = None) -> Any:
    """A file to be read from its beginning; `detect`: what its name says it is compressed with is undone."""
    with explained(location):
        return file_system(location).open_input_stream(
            parse(location).path, compression=compression, buffer_size=READ_AHEAD_BYTES
        )


def read_text(location: str) -> str:
    """A small file. Raises FileNotFoundError when it is not there."""
    if not is_there(location):
        raise missing(location)
    with explained(location), open_stream(location) as stream:
        return str(stream.read(), "utf-8")


def write_text(location: str, text: str) -> None:
    """Put a small file there."""
    import io

    _put_stream(io.BytesIO(text.encode()), location)


def fetch(location: str, name: str, path: str) -> None:
    """Copy one file to this machine."""
    source = below(location, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with explained(source), open_stream(source) as stream, open(path, "wb") as file:
        while block := stream.read(BLOCK_BYTES):
            file.write(block)


def put(path: str, location: str) -> None:
    """Copy one file of this machine there: under its name there is nothing until all of it is."""
    with open(path, "rb") as file:
        _put_stream(file, location)


def _put_stream(source: Any, location: str) -> None:
    with explained(location):
        target = file_system(location).open_output_stream(parse(location).path)
        # Not `with`: a stream that is closed is published, also after an error.
        while block := source.read(BLOCK_BYTES):
            target.write(block)
        target.close()


def copy(source: str, target: str) -> None:
    """Copy within the store, and without reading it here where the store can do that."""
    size = sum(one.size for one in find(source))
    if size <= MOST_COPIED_BYTES:
        with explained(source):
            file_system(source).copy_file(parse(source).path, parse(target).path)
        return
    with explained(source), open_stream(source) as stream:
        _put_stream(stream, target)


def remove(location: str) -> None:
    """Remove a file, or all that is below a folder. What is gone already is no error."""
    from pyarrow import fs

    where, system = parse(location), file_system(location)
    with explained(location), contextlib.suppress(FileNotFoundError):
        seen = system.get_file_info(where.path)
        if seen.type == fs.FileType.File:
            system.delete_file(where.path)
        elif seen.type == fs.FileType.Directory:
            system.delete_dir(where.path)


# Several --------------------------------------------------------------------------------------------------------------
def fetch_all(location: str, files: Iterable[Stored], folder: str) -> list[str]:
    """Copy files below a location to the same names below a folder; their paths."""

    def one(stored: Stored) -> str:
        path = os.path.join(folder, *stored.name.split("/")) if stored.name else folder
        fetch(location, stored.name, path)
        return path

    return at_once(one, files)


def put_all(files: Iterable[tuple[str, str]], *, after_each: Callable[[], None] = lambda: None) -> None:
    """Copy files of this machine (path, location) there."""

    def one(file: tuple[str, str]) -> None:
        put(*file)
        after_each()

    at_once(one, files)


def at_once(call: Callable[[Any], T], values: Iterable[Any]) -> list[T]:
    """The call for each value, several at the same time; the first failure stops those that have not begun."""
    from concurrent.futures import ThreadPoolExecutor

    given = list(values)
    if len(given) <= 1:
        return [call(value) for value in given]
    is_over = threading.Event()

    def guarded(value: Any) -> T | None:
        if is_over.is_set():
            return None
        try:
            return call(value)
        except BaseException:
            is_over.set()
            raise

    with ThreadPoolExecutor(min(AT_ONCE, len(given)), thread_name_prefix="bucket") as pool:
        waiting = [pool.submit(guarded, value) for value in given]
    errors = [error for one in waiting if (error := one.exception()) is not None]
    if errors:
        raise errors[0]
    return [one.result() for one in waiting]  # type: ignore[misc]
