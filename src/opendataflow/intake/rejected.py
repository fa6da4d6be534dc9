"""What did not fit into a stream: rows of watched files and records of a topic, kept beside its log with the reason.

Callers of the intake are told at once, and nothing is kept of what they sent.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from opendataflow.private_files import opener

FILE = "rejected.ndjson"  # in the stream's folder


class Rejected(NamedTuple):
    file: str  # or the topic and the partition
    line: int  # or the offset there; 0: the file as a whole
    error: str
    row: str


class RejectedRows:
    """Writes them down, those of a key once: a part of a file may be read again after a crash."""

    def __init__(self, folder: str, *, clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = os.path.join(folder, FILE), clock
        self._keys = {one["key"] for one in read_lines(self.path)}

    def add(self, key: str, rows: Sequence[Rejected]) -> bool:
        """Durable when it returns; False when they were there."""
        if key in self._keys:
            return False
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        append_lines(self.path, [{**row._asdict(), "at": at, "key": key} for row in rows])
        self._keys.add(key)
        return True


def list_rejected(folder: str, *, limit: int | None = None) -> list[dict[str, Any]]:
    """The oldest first: file, line, error, row, at, key."""
    return list(islice(read_lines(os.path.join(folder, FILE)), limit))


def count_rejected(folder: str) -> int:
    with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, FILE), "rb") as file:
        return sum(1 for _ in file)
    return 0


# Files of lines -------------------------------------------------------------------------------------------------------
def read_lines(path: str) -> Iterator[Any]:
    """The lines of such a file; one that was torn by a crash is passed over."""
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
        for line in file:
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def append_lines(path: str, values: Sequence[Any]) -> None:
    """Append them, durable when it returns."""
    text = "".join(f"{json.dumps(value, ensure_ascii=False)}\n" for value in values)
    with open(path, "a", encoding="utf-8", errors="replace", opener=opener) as file:
        if file.tell() and not _ends_with_break(path):
            file.write("\n")  # a line that was torn stays alone
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _ends_with_break(path: str) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
