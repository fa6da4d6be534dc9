"""One line of the log: the items of one request, all or nothing.

{"crc":"5e1c2b9a","o":42,"n":2,"at":"2026-11-16T13:05:00.123Z","key":"k1","sum":"…","items":[{…},{…}]}

`o` is the offset of its first item, `n` how many there are. The checksum is of all that stands behind it. The items are
as they were accepted: UTF-8 without a line break.
"""

import datetime
import json
import re
import zlib
from dataclasses import dataclass
from typing import Any

from opendataflow.errors import UsageError

_CRC_AT, _REST_AT = 8, 18  # of `{"crc":"`, and of what the checksum is of
_ITEMS = b',"items":'
_HEAD = re.compile(
    rb'\{"crc":"([0-9a-f]{8})","o":([0-9]{1,19}),"n":([0-9]{1,19}),"at":"([0-9TZ:.-]{24})",'
    rb'"key":(null|"(?:[^"\\]|\\.)*"),"sum":(null|"[0-9a-f]{32}")'
)
_AT_ONCE = 4096
HEAD_BYTES = 4096  # a head is never longer: keys are short
MOST_KEY = 200  # characters


@dataclass(frozen=True, slots=True)
class Entry:
    first: int
    count: int
    at: float  # when it was accepted; never decreases along the log
    key: str | None
    items: bytes  # a JSON array

    @property
    def end(self) -> int:
        return self.first + self.count

    def objects(self) -> list[dict[str, Any]]:
        return list(json.loads(self.items))


@dataclass(frozen=True, slots=True)
class Head:
    """What stands before the items."""

    first: int
    count: int
    at: float
    key: str | None
    sum: str | None

    @property
    def end(self) -> int:
        return self.first + self.count


def encode(first: int, count: int, at: str, key: str | None, sum_: str | None, items: bytes) -> bytes:
    """The line of a request, with its line break."""
    return b"".join(encode_parts(first, count, at, key, sum_, items))


def encode_parts(
    first: int, count: int, at: str, key: str | None, sum_: str | None, items: bytes
) -> tuple[bytes, bytes, bytes]:
    """The same in parts, so that many lines are put together by copying their items once."""
    told = f'"key":{json.dumps(key)},"sum":"{sum_}"' if key is not None else '"key":null,"sum":null'
    rest = f'"o":{first},"n":{count},"at":"{at}",{told},"items":'.encode()
    crc = zlib.crc32(b"}", _crc(items, zlib.crc32(rest)))
    return b'{"crc":"%08x",%b' % (crc, rest), items, b"}\n"


def _crc(data: bytes, crc: int) -> int:
    """The checksum in small steps: for a larger one zlib lets other threads run, and the writer waits for its turn."""
    if len(data) <= _AT_ONCE:
        return zlib.crc32(data, crc)
    view = memoryview(data)
    for start in range(0, len(data), _AT_ONCE):
        crc = zlib.crc32(view[start : start + _AT_ONCE], crc)
    return crc


def is_whole(line: bytes) -> bool:
    """True when the line is as it was written, to its end."""
    if line[-2:] != b"}\n" or line[_REST_AT - 2 : _REST_AT] != b'",':
        return False
    return line[_CRC_AT : _CRC_AT + 8] == b"%08x" % zlib.crc32(memoryview(line)[_REST_AT:-1])


def find_head(line: bytes) -> Head | None:
    """What a line says before its items; None when it is no line of a log."""
    found = _HEAD.match(line, 0, HEAD_BYTES)
    if found is None:
        return None
    key, sum_ = found[5], found[6]
    return Head(
        int(found[2]), int(found[3]), seconds(found[4].decode()), None if key == b"null" else json.loads(key),
        None if sum_ == b"null" else sum_[1:-1].decode(),
    )  # fmt: skip


def decode(line: bytes) -> Entry | None:
    """The entry of a whole line, or None."""
    head = find_head(line) if is_whole(line) else None
    if head is None:
        return None
    # A key cannot hold these bytes: a quote in it is written with a backslash.
    items = line[line.index(_ITEMS) + len(_ITEMS) : -2]
    return Entry(head.first, head.count, head.at, head.key, items)


def check_key(key: str) -> str:
    """The key, or raise UsageError when it cannot be one."""
    if not 0 < len(key) <= MOST_KEY or not key.isprintable() or not key.isascii():
        raise UsageError(f"an idempotency key has 1 to {MOST_KEY} printable ASCII characters")
    return key


def moment(at: float) -> str:
    """`2026-11-16T13:05:00.123Z`: milliseconds, so that the same text gives the same number again."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="milliseconds")[:23] + "Z"


def seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()
