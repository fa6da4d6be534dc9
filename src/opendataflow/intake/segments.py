"""The files of a log: its segments, and `end`, which says how far it is durable.

An offset that was never durable may be given to another item after a power cut: nobody reads past `end`. It is
written in place after each fdatasync, so it may be behind after a power cut, and is never ahead.
"""

import os
import time
import zlib
from typing import NamedTuple

from opendataflow.intake.refusals import LogDamaged

SUFFIX = ".ndjson"
_TRIES = 50


class End(NamedTuple):
    offset: int  # the next item's
    segment: int  # the first offset of the segment that it is in
    byte: int


def log_folder(folder: str) -> str:
    """The log's folder in the folder of a stream."""
    return os.path.join(folder, "log")


def segment_path(log: str, first: int) -> str:
    return os.path.join(log, f"{first:020d}{SUFFIX}")


def keys_path(log: str, first: int) -> str:
    """The idempotency keys of a segment that is complete."""
    return os.path.join(log, f"{first:020d}.keys")


def list_segments(log: str) -> list[int]:
    """The first offsets of the segments, in order; none when there is no log."""
    try:
        names = os.listdir(log)
    except FileNotFoundError:
        return []
    stems = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdecimal())


def end_path(log: str) -> str:
    return os.path.join(log, "end")


def end_text(end: End) -> bytes:
    text = b"%020d %020d %020d" % end
    return b"%b %08x\n" % (text, zlib.crc32(text))


_LENGTH = len(end_text(End(0, 0, 0)))


def end_of_text(text: bytes) -> End | None:
    """What `end` says; None when it was written in part only."""
    if len(text) != _LENGTH or end_text_of(text) != text:
        return None
    return End(*(int(part) for part in text.split()[:3]))


def end_text_of(text: bytes) -> bytes:
    body = text[: 20 * 3 + 2]
    return b"%b %08x\n" % (body, zlib.crc32(body))


def find_end(log: str) -> End | None:
    """How far the log is durable, or None when nothing says so yet; raises LogDamaged when that cannot be read."""
    for _ in range(_TRIES):
        try:
            with open(end_path(log), "rb", buffering=0) as file:
                text = file.read(_LENGTH + 1)
        except FileNotFoundError:
            return None
        end = end_of_text(text)
        if end is not None:
            return end
        if not text:
            return None
        time.sleep(0.001)  # caught in the middle of a write
    raise LogDamaged(f"{end_path(log)} is damaged; the next `dataflow stream send` or `dataflow serve` repairs it")
