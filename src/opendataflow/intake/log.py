"""Writing the log of a stream: what `append` has returned survives a power cut.

Any number of processes may append: a server, `stream send`, a replay. The lock is held for one group of requests only;
who takes it first looks at what others have appended since, and cuts off what one that died has left in part.
"""

import contextlib
import errno
import fcntl
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from opendataflow.errors import DataflowError
from opendataflow.intake.entry import Head, encode_parts, find_head, is_whole, moment
from opendataflow.intake.keys import Keys, Known, sum_of
from opendataflow.intake.refusals import KeyReused, LogDamaged, LogFull
from opendataflow.intake.segments import (
    End,
    end_of_text,
    end_path,
    end_text,
    keys_path,
    list_segments,
    log_folder,
    segment_path,
)
from opendataflow.private_files import make_folder

SEGMENT_BYTES = 16 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Request:
    """Items to append; the key stands for these very bytes."""

    items: bytes  # a JSON array without a line break in it
    count: int
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    first: int
    count: int
    repeated: bool  # the key was known: these are the items of the first time

    @property
    def end(self) -> int:
        return self.first + self.count


class IntakeLog:
    """The log in a stream's folder, open for appending. Several threads may use it; a forked child may not."""

    def __init__(
        self, folder: str, *, begin: int = 0, clock: Callable[[], float] = time.time, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        """Open it, make it if need be, and repair its end. `begin`: no item gets a lower offset (a disk was lost)."""
        self.log = log_folder(folder)
        self.clock, self.segment_bytes, self.begin = clock, segment_bytes, begin
        self.keys = Keys()
        self._end = End(0, 0, 0)
        self._last_at = 0.0
        self._fd = -1
        self._threads = threading.Lock()
        self._make_folder()
        self._lock_fd = os.open(os.path.join(self.log, "writer"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._end_fd = os.open(end_path(self.log), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with self._locked():
                self._open()
        except BaseException:
            self.close()
            raise

    @property
    def end(self) -> int:
        """The offset after the last item that this writer knows to be durable."""
        return self._end.offset

    def close(self) -> None:
        for fd in (self._fd, self._end_fd, self._lock_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._end_fd = self._lock_fd = -1

    # Appending ------------------------------------------------------------------------------------------------
    def append(self, items: bytes, count: int, *, key: str | None = None) -> Accepted:
        """Append the items of one request, all of them durably, or raise KeyReused, LogFull or OSError and none."""
        (result,) = self.append_all([Request(items, count, key)])
        if isinstance(result, Exception):
            raise result
        return result

    def append_all(self, requests: Sequence[Request]) -> list[Accepted | Exception]:
        """Append many requests with one fdatasync; each gets its own answer, in their order."""
        try:
            with self._locked():
                self._catch_up()
                return self._append(requests)
        except (OSError, DataflowError) as error:
            refused = self._refusal(error)
            return [refused] * len(requests)

    def _append(self, requests: Sequence[Request]) -> list[Accepted | Exception]:
        at = max(self.clock(), self._last_at)
        text = moment(at)
        offset = self._end.offset
        lines: list[bytes] = []  # in parts
        heads: dict[str, Head] = {}
        results: list[Accepted | Exception] = []
        for one in requests:
            sum_ = sum_of(one.items) if one.key is not None else None
            known = self._find_known(one.key, heads) if one.key is not None else None
            if known is None:
                lines += encode_parts(offset, one.count, text, one.key, sum_, one.items)
                if one.key is not None:
                    heads[one.key] = Head(offset, one.count, at, one.key, sum_)
                results.append(Accepted(offset, one.count, repeated=False))
                offset += one.count
            elif (known.sum, known.count) == (sum_, one.count):
                results.append(Accepted(known.first, known.count, repeated=True))
            else:
                results.append(KeyReused(f"the key {one.key!r} was used for other items; take a new one"))
        if lines:
            self._write(b"".join(lines), offset)
            self._last_at = at
            for head in heads.values():
                self.keys.add(head)
        return results

    def _find_known(self, key: str, heads: dict[str, Head]) -> Known | None:
        head = heads.get(key)
        return Known(head.first, head.count, head.sum or "") if head is not None else self.keys.find(key)

    def _write(self, data: bytes, offset: int) -> None:
        """Make the lines durable, then say so in `end`; whatever goes wrong, the log is as before."""
        before = self._end
        is_new = before.byte >= self.segment_bytes or self._fd < 0
        start = End(before.offset, before.offset, 0) if before.byte >= self.segment_bytes else before
        try:
            if is_new:
                self._begin_segment(start)
            _write_all(self._fd, data, start.byte)
            os.fdatasync(self._fd)
            end = End(offset, start.segment, start.byte + len(data))
            self._put_end(end)
        except OSError:
            self._take_back(before)
            raise
        if start is not before:
            self._close_keys(before)
        self._end = end

    def _close_keys(self, end: End) -> None:
        """The segment that ended there is complete."""
        self.keys.save(keys_path(self.log, end.segment), end.byte, self._last_at)
        self.keys.begin_segment()

    def _begin_segment(self, start: End) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        path = segment_path(self.log, start.segment)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _sync_folder(self.log)

    def _put_end(self, end: End) -> None:
        # Not synced: after a power cut it may be behind, and opening the log reads on from there.
        _write_all(self._end_fd, end_text(end), 0)

    def _take_back(self, before: End) -> None:
        """Remove what was written in part; if even that fails, the next writer does it."""
        try:
            self._put_end(before)
            fresh = segment_path(self.log, before.offset)
            if before.segment != before.offset and os.path.exists(fresh):
                os.truncate(fresh, 0)
                os.unlink(fresh)
            elif self._fd >= 0:
                os.ftruncate(self._fd, before.byte)
                os.fdatasync(self._fd)
        except OSError:
            pass
        self._forget_segment()

    def _forget_segment(self) -> None:
        """The next group looks at the disk anew."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _refusal(self, error: Exception) -> Exception:
        if isinstance(error, OSError) and error.errno in _FULL:
            return LogFull(f"no room for the items: {error.strerror} at {self.log}; make room and send them again")
        return error

    # What others did ------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._threads:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def _catch_up(self) -> None:
        """Know the log as it is: nothing to do unless others wrote, or died while they did."""
        if self._fd >= 0 and self._is_as_known():
            return
        if not os.path.isdir(self.log) or os.fstat(self._end_fd).st_nlink == 0:
            raise LogDamaged(f"{self.log} was removed while it was in use; start again what serves it")
        told = end_of_text(os.pread(self._end_fd, 100, 0))
        known = self._end
        if told is None or told.offset < known.offset or not os.path.exists(segment_path(self.log, known.segment)):
            self._open()  # not what we have left: from the beginning
            return
        self._read_on(known)

    def _is_as_known(self) -> bool:
        seen = os.fstat(self._fd)
        if seen.st_nlink == 0 or seen.st_size != self._end.byte:
            return False
        if os.pread(self._end_fd, 100, 0) != end_text(self._end):
            return False
        # One that died may have begun a segment and said nothing of it.
        return self._end.segment == self._end.offset or not os.path.exists(segment_path(self.log, self._end.offset))

    def _open(self) -> None:
        """Read all there is: keys, and where it ends."""
        self.keys = Keys()
        segments = list_segments(self.log)
        if segments:
            self._read_on(End(segments[0], segments[0], 0))
        else:
            self._begin_at(self._lowest())
        os.fsync(self._end_fd)

    def _lowest(self) -> int:
        """Offsets are never given twice, not even those of items that were lost."""
        told = end_of_text(os.pread(self._end_fd, 100, 0))
        return max(self.begin, told.offset if told is not None else 0)

    def _begin_at(self, offset: int) -> None:
        """The next item has this offset, and begins a segment."""
        self._forget_segment()
        self._end = End(offset, offset, 0)
        self._put_end(self._end)

    def _read_on(self, start: End) -> None:
        """Read the lines from there on; what is torn at the end is cut off, and the rest made durable."""
        told = end_of_text(os.pread(self._end_fd, 100, 0))
        lowest = self._lowest()
        end, size = start, start.byte
        segments = [first for first in list_segments(self.log) if first >= start.segment]
        for first in segments:
            if first != start.segment:
                end = End(max(end.offset, first), first, 0)
                self.keys.begin_segment()
            if end.byte == 0 and first != segments[-1] and self._load_keys(first):
                continue
            end, size = self._read_segment(end)
            was_durable = first != segments[-1] or (told is not None and told.offset > end.offset)
            if end.byte < size and was_durable:
                raise LogDamaged(
                    f"{segment_path(self.log, first)} is damaged at byte {end.byte}: restore it from a backup, or "
                    f"remove {end_path(self.log)} and cut the file there to go on without what follows"
                )
            if first != segments[-1]:
                self._close_keys(end)
        if end.offset < lowest:
            self._begin_at(lowest)
        else:
            self._settle(end, size)

    def _load_keys(self, first: int) -> bool:
        """True when the keys of a complete segment are kept beside it: it need not be read."""
        last_at = self.keys.load(keys_path(self.log, first), os.stat(segment_path(self.log, first)).st_size)
        self._last_at = max(self._last_at, last_at or 0.0)
        return last_at is not None

    def _read_segment(self, start: End) -> tuple[End, int]:
        """The end after the last whole line, and the file's size; the keys are remembered."""
        offset, first, byte = start
        with open(segment_path(self.log, first), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(byte)
            for line in file:
                head = find_head(line) if is_whole(line) else None
                if head is None or head.first != offset:
                    break
                self.keys.add(head)
                self._last_at = max(self._last_at, head.at)
                offset, byte = head.end, byte + len(line)
        return End(offset, first, byte), size

    def _settle(self, end: End, size: int) -> None:
        self._forget_segment()
        self._fd = os.open(segment_path(self.log, end.segment), os.O_RDWR | os.O_CLOEXEC)
        if size > end.byte:
            os.ftruncate(self._fd, end.byte)
        # Whole lines of a writer that died may be in memory only.
        os.fsync(self._fd)
        _sync_folder(self.log)
        self._put_end(end)
        self._end = end

    def _make_folder(self) -> None:
        make_folder(self.log)
        for folder in (self.log, os.path.dirname(self.log), os.path.dirname(os.path.dirname(self.log))):
            _sync_folder(folder)

    # Retention ------------------------------------------------------------------------------------------------
    def drop(self, *, committed: int, before: float) -> int:
        """Remove segments whose items are all committed and were accepted before then; returns how many went."""
        with self._locked():
            self._catch_up()
            if self._end.byte > 0 and self._end.offset <= committed and self._last_at < before:
                end = End(self._end.offset, self._end.offset, 0)
                self._begin_segment(end)
                self._put_end(end)
                self._close_keys(self._end)
                self._end = end
            segments = list_segments(self.log)
            gone = 0
            for first, following in itertools.pairwise(segments):
                if following > committed or self._begun_at(following) >= before:
                    break
                os.unlink(segment_path(self.log, first))
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(keys_path(self.log, first))
                gone += 1
            if gone:
                self.keys.forget_before(segments[gone])
                _sync_folder(self.log)
            return gone

    def _begun_at(self, first: int) -> float:
        """When the segment's first item was accepted: what stands before it is not younger."""
        with open(segment_path(self.log, first), "rb") as file:
            head = find_head(file.readline())
        return head.at if head is not None else self._last_at


def _write_all(fd: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written


def _sync_folder(folder: str) -> None:
    fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
