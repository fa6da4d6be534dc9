"""Which idempotency keys a log knows, and what they stand for: as long as their items are in it."""

import hashlib
import os
import struct
import zlib
from dataclasses import dataclass

from opendataflow.intake.entry import Head
from opendataflow.private_files import opener

_DIGEST = 16
_PACKED = struct.Struct(">QQ16s")  # bytes and not tuples: there may be millions of them
_HEAD = struct.Struct(">4sIQd")  # of a file of keys: checksum of what follows the first eight bytes, size, last moment
_MARK = b"key1"


@dataclass(frozen=True, slots=True)
class Known:
    first: int
    count: int
    sum: str


class Keys:
    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}
        self._segment: list[bytes] = []  # those of the segment that is being written or read

    def __len__(self) -> int:
        return len(self._known)

    def add(self, head: Head) -> None:
        """Remember what the key of an entry stands for; one without a key is passed over."""
        if head.key is not None and head.sum is not None:
            digest, packed = _digest(head.key), _PACKED.pack(head.first, head.count, bytes.fromhex(head.sum))
            self._known[digest] = packed
            self._segment.append(digest + packed)

    def find(self, key: str) -> Known | None:
        packed = self._known.get(_digest(key))
        if packed is None:
            return None
        first, count, sum_ = _PACKED.unpack(packed)
        return Known(first, count, sum_.hex())

    def forget_before(self, offset: int) -> None:
        """Those whose items are gone."""
        self._known = {key: one for key, one in self._known.items() if _PACKED.unpack(one)[0] >= offset}

    # Beside a segment that is complete: opening the log need not read the segment again ----------------------
    def begin_segment(self) -> None:
        self._segment = []

    def save(self, path: str, size: int, last_at: float) -> None:
        """Keep the keys of a segment of this size in a file; where that fails, the segment is read instead."""
        body = b"".join(self._segment)
        rest = _HEAD.pack(_MARK, 0, size, last_at)[8:] + body
        try:
            with open(f"{path}.{os.getpid()}", "wb", opener=opener) as file:
                file.write(_MARK + struct.pack(">I", zlib.crc32(rest)) + rest)
            os.replace(f"{path}.{os.getpid()}", path)
        except OSError:
            pass

    def load(self, path: str, size: int) -> float | None:
        """Remember the keys of a segment of this size; its last moment, or None when the file does not fit it."""
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            return None
        if len(data) < _HEAD.size or zlib.crc32(memoryview(data)[8:]) != struct.unpack_from(">I", data, 4)[0]:
            return None
        mark, _, of_size, last_at = _HEAD.unpack_from(data)
        if (mark, of_size) != (_MARK, size):
            return None
        for at in range(_HEAD.size, len(data), _DIGEST + _PACKED.size):
            self._known[data[at : at + _DIGEST]] = data[at + _DIGEST : at + _DIGEST + _PACKED.size]
        return float(last_at)


def sum_of(items: bytes) -> str:
    """What tells items from others under the same key."""
    return hashlib.sha256(items).digest()[:16].hex()


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=_DIGEST).digest()
