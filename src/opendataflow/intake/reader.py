"""Reading the log of a stream, up to where it is durable and never further."""

import bisect
import contextlib
import datetime
import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from opendataflow.errors import UsageError
from opendataflow.intake.entry import HEAD_BYTES, Entry, Head, decode, find_head
from opendataflow.intake.refusals import ItemsGone, LogDamaged
from opendataflow.intake.segments import End, find_end, list_segments, log_folder, segment_path

_NEAR = 1 << 16  # bytes within which lines are read one by one
_PLACES = 64  # where reading stopped, so that it goes on there without a search
_SLOTS = {"hourly": "%Y-%m-%dT%H", "daily": "%Y-%m-%d"}


class Item(NamedTuple):
    offset: int
    at: float
    item: dict[str, Any]


class IntakeReader:
    """The log in a stream's folder, for one thread; there may be nothing there yet."""

    def __init__(self, folder: str) -> None:
        self.log = log_folder(folder)
        self._places: dict[int, tuple[int, int]] = {}  # offset → segment and byte, where lines begin

    def durable_end(self) -> int:
        """The offset after the last item that is durable: the first that is not there."""
        return self._end().offset

    def first_offset(self) -> int:
        """The lowest offset that is still there; the end's when there is none."""
        end = self._end()
        segments = self._segments(end)
        return segments[0] if segments else end.offset

    def read(self, start: int, end: int) -> Iterator[Entry]:
        """The entries that hold items of [start, end), whole, in their order.

        Raises UsageError when some of them are not durable yet, ItemsGone when some are no more, LogDamaged when what
        is there is not what was written.
        """
        durable = self._end()
        if end > durable.offset:
            raise UsageError(f"items up to {end} are asked for; {self.log} is durable up to {durable.offset}")
        while start < end:
            entry = None
            for entry in self._entries(start, durable):
                if entry.first >= end:
                    return
                yield entry
                start = entry.end
            if entry is None:
                raise ItemsGone(
                    f"items from {start} on are not in {self.log} any more; it begins at {self.first_offset()}"
                )

    def items(self, start: int, end: int) -> Iterator[Item]:
        """The items of [start, end), each with its offset and the time when it was accepted."""
        for entry in self.read(start, end):
            for offset, item in enumerate(entry.objects(), entry.first):
                if start <= offset < end:
                    yield Item(offset, entry.at, item)

    def boundary(self, start: int, most: int, seal: str | None) -> int:
        """Where a batch that begins at `start` ends: at most so many items, of one hour or day, splitting no request.

        A request that is larger goes alone. It is `start` itself when there is nothing more.
        """
        durable = self._end()
        end, slot = start, None
        while end < durable.offset:
            before = end
            for entry in self._entries(end, durable):
                own = slot_of(entry.at, seal)
                if end > start and (entry.end > start + most or own != slot):
                    return end
                end, slot = entry.end, own
            if end == before:
                raise ItemsGone(
                    f"items from {end} on are not in {self.log} any more; it begins at {self.first_offset()}"
                )
        return end

    def accepted_at(self, offset: int) -> float | None:
        """When the item was accepted; None when it is not there."""
        durable = self._end()
        if offset >= durable.offset:
            return None
        return next((entry.at for entry in self._entries(offset, durable)), None)

    def offset_since(self, moment: float) -> int:
        """The first offset that was accepted then or later."""
        end = self._end()
        found = end.offset
        for first in reversed(self._segments(end)):
            place = self._find(first, self._limit(first, end), lambda head: head.at < moment)
            for entry in self._lines(first, place, end):
                if entry.at >= moment:
                    found = entry.first
                    break
            else:
                return found
            if entry.first != first:
                return found
        return found

    # Finding --------------------------------------------------------------------------------------------------
    def _end(self) -> End:
        end = find_end(self.log)
        if end is not None:
            return end
        segments = list_segments(self.log)  # nobody has said yet that any of it is durable
        return End(segments[0], segments[0], 0) if segments else End(0, 0, 0)

    def _segments(self, end: End) -> list[int]:
        """The segments with durable items."""
        return [first for first in list_segments(self.log) if first < end.offset]

    def _limit(self, first: int, end: End) -> int:
        return end.byte if first == end.segment else os.stat(segment_path(self.log, first)).st_size

    def _entries(self, offset: int, end: End) -> Iterator[Entry]:
        """Entries of one segment, from the one with this offset on; none when it is not there."""
        found = False
        place = self._places.get(offset)
        if place is not None:
            with contextlib.suppress(FileNotFoundError):  # removed since, by retention
                for entry in self._lines(*place, end, offset):
                    found = True
                    yield entry
        if not found:  # reading has not been here, or it goes on in a new segment
            self._places.pop(offset, None)
            with contextlib.suppress(FileNotFoundError):
                yield from self._lines(*self._search(offset, end), end, offset)

    def _search(self, offset: int, end: End) -> tuple[int, int]:
        segments = self._segments(end)
        number = bisect.bisect_right(segments, offset) - 1
        if number < 0:
            raise FileNotFoundError(offset)
        first = segments[number]
        return first, self._find(first, self._limit(first, end), lambda head: head.first <= offset)

    def _find(self, first: int, limit: int, is_before: Callable[[Head], bool]) -> int:
        """Where a line begins that is before what is sought, and near it; by halving, since lines are in order."""
        low, high = 0, limit
        with open(segment_path(self.log, first), "rb") as file:
            while high - low > _NEAR:
                middle = (low + high) // 2
                file.seek(middle)
                file.readline()
                byte = file.tell()
                head = find_head(file.read(HEAD_BYTES)) if byte < high else None
                if head is not None and is_before(head):
                    low = byte
                else:
                    high = middle
        return low

    # Reading --------------------------------------------------------------------------------------------------
    def _lines(self, first: int, byte: int, end: End, offset: int = 0) -> Iterator[Entry]:
        """The entries from a line on that hold this offset or later ones, up to the end of what is durable here."""
        with open(segment_path(self.log, first), "rb") as file:
            limit = end.byte if first == end.segment else os.fstat(file.fileno()).st_size
            file.seek(byte)
            while byte < limit:
                entry, size = self._next(file, byte)
                byte += size
                if entry.end > offset:
                    self._keep_place(entry.end, first, byte)
                    yield entry

    def _next(self, file: BinaryIO, byte: int) -> tuple[Entry, int]:
        line = file.readline()
        entry = decode(line)
        if entry is None:
            raise LogDamaged(f"{file.name} is damaged at byte {byte}: what stands there is not what was written")
        return entry, len(line)

    def _keep_place(self, offset: int, first: int, byte: int) -> None:
        self._places[offset] = (first, byte)
        if len(self._places) > _PLACES:
            del self._places[next(iter(self._places))]


def slot_of(at: float, seal: str | None) -> str:
    """The hour or day of a moment; everything is one when nothing is sealed."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime(_SLOTS[seal]) if seal is not None else ""
