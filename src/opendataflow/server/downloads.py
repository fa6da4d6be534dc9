"""Files on their way out: one as it is, several as a zip that is made while it is sent. Memory stays small."""

import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from opendataflow.errors import UsageError
from opendataflow.storage.buckets.opened import open_binary
from opendataflow.storage.files import find_inside, is_reachable

BLOCK = 1 << 18


class Download(NamedTuple):
    name: str  # of the file
    size: int | None  # None: not known before it was sent
    parts: Iterator[bytes]

    @property
    def headers(self) -> dict[str, str]:
        sized = {} if self.size is None else {"Content-Length": str(self.size)}
        return {"Content-Disposition": f'attachment; filename="{safe_name(self.name)}"', **sized}


def safe_name(name: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else "_" for char in name)


class File(NamedTuple):
    name: str  # in what is sent
    path: str
    size: int
    root: str  # only if it is below this when it is opened


def files_of(location: str, *, root: str, told: str) -> list[File]:
    """The files of a chunk, `told` to people as this. None is outside of the root, wherever links lead.

    OSError when it is not there, UsageError or Refused when it may not be read.
    """
    if not is_reachable(location):
        raise UsageError(f"{told} is at {location}, where this server does not read")
    return [
        File(name or os.path.basename(location), f"{location.rstrip('/')}/{name}" if name else location, size, root)
        for name, size, _ in find_inside(location, root=root, told=told).files
    ]


def download(name: str, files: Sequence[File]) -> Download:
    """The only file as it is, else a zip."""
    if len(files) == 1:
        only = files[0]
        return Download(
            f"{name}_{os.path.basename(only.path)}", only.size, blocks(only.path, root=only.root, upto=only.size)
        )
    return Download(f"{name}.zip", None, zipped(files))


def blocks(path: str, *, root: str, upto: int | None = None) -> Iterator[bytes]:
    """A file's bytes; of one that grows, so many as were told. Raises OSError when it is not below the root."""
    left = float("inf") if upto is None else upto
    with open_binary(path, root=root) as file:
        while left > 0 and (block := file.read(int(min(BLOCK, left)))):
            left -= len(block)
            yield bytes(block)


class _Sink:
    """What a zip is written to: kept until it is taken; nobody can go back in it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def take(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken


def zipped(files: Iterable[File]) -> Iterator[bytes]:
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:  # type: ignore[call-overload]
        for file in files:
            with archive.open(zipfile.ZipInfo(file.name), "w", force_zip64=True) as entry:
                for block in blocks(file.path, root=file.root):
                    entry.write(block)
                    yield sink.take()
    yield sink.take()
