"""Files on their way out: one as it is, several as a zip that is made while it is sent. Memory stays small."""

import os
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from opendataflow.buckets.opened import open_binary

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


def is_below(path: str, folder: str) -> bool:
    """True when the path, wherever its links lead, is in the folder."""
    inside, place = os.path.realpath(folder), os.path.realpath(path)
    return place == inside or place.startswith(inside.rstrip(os.sep) + os.sep)


def blocks(path: str, *, upto: int | None = None) -> Iterator[bytes]:
    """A file's bytes; of one that grows, so many as were told."""
    left = float("inf") if upto is None else upto
    with open_binary(path) as file:
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


def zipped(files: Iterable[tuple[str, str]]) -> Iterator[bytes]:
    """A zip of files: the name in it, and the path."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:  # type: ignore[call-overload]
        for name, path in files:
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as entry:
                for block in blocks(path):
                    entry.write(block)
                    yield sink.take()
    yield sink.take()
