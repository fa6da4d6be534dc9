"""Items from a watched folder: files that appear there are taken into the stream's log, once, whatever crashes.

A file is known by its name and content. It is copied before it is read, and only if it did not change meanwhile; its
parts are appended under keys made of that content, so that a part which is appended again is the same part. What is
done is written down in `taken.ndjson` beside the log; rows that do not fit, with their errors, in `rejected.ndjson`.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from opendataflow.domain.checks.check import printable
from opendataflow.domain.job import Job
from opendataflow.domain.streams import get_settings
from opendataflow.errors import UsageError
from opendataflow.intake.files import Record, read_records
from opendataflow.intake.log import IntakeLog
from opendataflow.intake.refusals import LogFull
from opendataflow.intake.rejected import Rejected, RejectedRows, append_lines, read_lines
from opendataflow.intake.schema import Items, StreamSchema
from opendataflow.private_files import opener
from opendataflow.storage.below import opener_below
from opendataflow.storage.files import is_inside

LOOK_SECONDS = 0.5
SETTLED_SECONDS = 2.0  # a file that was changed more recently may still be written
STEP_SECONDS = 0.2  # of work before the caller has its turn
FULL_SECONDS = 5.0
PART_ROWS = 1_000
PART_BYTES = 8 << 20
COPIED_AT_ONCE = 1 << 20
TAKEN, COPY = "taken.ndjson", "file.copy"
_ENDS = {"csv": (".csv",), "ndjson": (".ndjson", ".jsonl", ".json")}
_UNFINISHED = (".tmp", ".part")


class Taken(NamedTuple):
    """A file as it was when it was taken."""

    size: int
    mtime_ns: int
    sha: str
    rows: int
    is_ended: bool  # its last line has a line break: what is added begins a new row


class FolderFeed:
    """Takes in what is new, a little at a time: a large file holds up nobody's heartbeat."""

    def __init__(
        self, job: Job, folder: str, log: IntakeLog, *, say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        settings = get_settings(job)
        self.place, self._root = os.path.join(job.root, settings.source["folder"]), job.root
        self.format: str = settings.source["format"]
        self.backlog = settings.backlog
        self._slug, self._folder, self._log, self._say, self._clock = job.jobid, folder, log, say, clock
        self._schema = StreamSchema(settings.schema)
        self._taken = {name: Taken(*rest) for name, *rest in read_lines(os.path.join(folder, TAKEN))}
        self._rejected = RejectedRows(folder, clock=clock)
        self._told: set[str] = set()
        self._work: Iterator[int] | None = None
        self._not_before = 0.0
        self._is_held_back = False
        self._has_fresh = True

    def close(self) -> None:
        self._log.close()

    def feed(self, *, committed: int | None = None) -> int:
        """Go on taking in what is new; returns how many items were appended. Cheap where nothing is."""
        if time.monotonic() < self._not_before:
            return 0
        until, appended = time.monotonic() + STEP_SECONDS, 0
        self._is_held_back = False
        self._work = self._work or self._take_all()
        try:
            while time.monotonic() < until:
                if committed is not None and self._log.end - committed >= self.backlog:
                    self._is_held_back = True
                    break
                number = next(self._work, None)
                if number is None:
                    self._work = None
                    break
                appended += number
        except LogFull as error:
            self._tell(str(error))
            self._work, self._not_before, self._has_fresh = None, time.monotonic() + FULL_SECONDS, True
        return appended

    @property
    def is_busy(self) -> bool:
        """True when there is more to take in at once."""
        return self._work is not None and not self._is_held_back

    @property
    def is_settled(self) -> bool:
        """True when the last look was to its end, and left no file for later."""
        return self._work is None and not self._has_fresh

    # Files ----------------------------------------------------------------------------------------------------------
    def _take_all(self) -> Iterator[int]:
        for name in self._new_files():
            try:
                yield from self._take(name)
            except OSError as error:
                if isinstance(error, FileNotFoundError):
                    continue  # taken away meanwhile
                self._tell(printable(f"{os.path.join(self.place, name)} is not taken in: {error.strerror}"))

    def _new_files(self) -> list[str]:
        """Those that are complete and not as they were when they were taken, the oldest first."""
        found = []
        self._has_fresh = False
        if not is_inside(self.place, self._root):
            self._tell(f"the folder {self.place} leads out of {self._root}; nothing in it is taken in")
            return []
        try:
            with os.scandir(self.place) as entries:
                for entry in entries:
                    name = entry.name
                    if name.startswith((".", "_")) or name.endswith(_UNFINISHED):
                        continue
                    if not name.lower().endswith(_ENDS[self.format]) or not entry.is_file(follow_symlinks=False):
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        seen = entry.stat(follow_symlinks=False)
                        known = self._taken.get(printable(name))
                        is_known = known is not None and (known.size, known.mtime_ns) == (
                            seen.st_size,
                            seen.st_mtime_ns,
                        )
                        is_fresh = self._clock() - seen.st_mtime < SETTLED_SECONDS
                        self._has_fresh |= is_fresh and not is_known
                        if not is_known and not is_fresh:
                            found.append((seen.st_mtime_ns, name))
        except FileNotFoundError:
            self._tell(f"the folder {self.place} is not there yet; files are taken in when it is")
        return [name for _, name in sorted(found)]

    def _take(self, entry: str) -> Iterator[int]:
        copy, name = os.path.join(self._folder, COPY), printable(entry)
        known = self._taken.get(name)
        seen: list[Taken] = []
        yield from self._copy(entry, copy, known, seen)
        if not seen:
            self._has_fresh = True  # it changed while it was copied: the next look
            return
        taken, grown = seen[0], known is not None and len(seen) > 1
        if known is not None and known.sha == taken.sha:
            self._write_down(name, taken._replace(rows=known.rows))  # touched, nothing else
            return
        skipped = known.rows if known is not None and grown else 0
        rows = 0
        mark = hashlib.sha256(f"{name}\0{taken.sha}\0{skipped}".encode()).hexdigest()[:40]
        try:
            records = islice(read_records(copy, self._schema, format_=self.format), skipped, None)
            for number, part in enumerate(_parts(records)):
                rows += len(part)
                yield self._append(name, f"file-{mark}-{number}", part)
        except UsageError as error:
            told = str(error).replace(copy, name)
            self._reject(f"file-{mark}-x", [Rejected(name, 0, told, "")])
        self._write_down(name, taken._replace(rows=skipped + rows))

    def _copy(self, name: str, copy: str, known: Taken | None, found: list[Taken]) -> Iterator[int]:
        """A copy, and the file as it was: once into `found`, and again if it is a taken one with more at its end."""
        path = os.path.join(self.place, name)
        whole, size, last, beginning = hashlib.sha256(), 0, b"", ""
        # A file that was looked at may be a link by now: to one that whoever put it there cannot read.
        with (
            open(path, "rb", opener=opener_below(self._root, follow=False)) as file,
            open(copy, "wb", opener=opener) as target,
        ):
            before = os.fstat(file.fileno())
            known_size = known.size if known is not None else 0
            while block := file.read(min(COPIED_AT_ONCE, known_size - size if size < known_size else COPIED_AT_ONCE)):
                whole.update(block)
                target.write(block)
                size, last = size + len(block), block[-1:]
                if size == known_size:
                    beginning = whole.hexdigest()
                yield 0
            after = os.stat(path)
        if _looks(before) != _looks(after) or after.st_size != size:
            return
        found.append(Taken(size, after.st_mtime_ns, whole.hexdigest(), 0, last == b"\n"))
        if known is not None and beginning == known.sha and size > known.size and known.is_ended:
            found.append(known)

    # Parts ----------------------------------------------------------------------------------------------------------
    def _append(self, name: str, key: str, part: list[Record]) -> int:
        """The rows of a part that fit into the log, the others among the rejected; how many items are new."""
        wrong = [Rejected(name, one.line, one.error, one.text) for one in part if not one.items]
        if wrong:
            self._reject(key, wrong)
        items = [one.items for one in part if one.items is not None]
        if not items:
            return 0
        joined = _joined(items)
        accepted = self._log.append(joined.data, joined.count, key=key)
        return 0 if accepted.repeated else accepted.count

    def _reject(self, key: str, rows: list[Rejected]) -> None:
        if not self._rejected.add(key, rows):
            return
        first = rows[0]
        more = f", and {len(rows) - 1} more rows" if len(rows) > 1 else ""
        where = f"{first.file} line {first.line}" if first.line else first.file
        error = first.error.removeprefix(f"{first.file}: ")
        self._say(f"{where} is rejected: {error}{more}; see `dataflow stream failed {self._slug}`")

    def _write_down(self, name: str, taken: Taken) -> None:
        append_lines(os.path.join(self._folder, TAKEN), [[name, *taken]])
        self._taken[name] = taken

    def _tell(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            self._say(message)


def _looks(seen: os.stat_result) -> tuple[int, int, int]:
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


def _parts(records: Iterator[Record]) -> Iterator[list[Record]]:
    """So many rows or bytes at a time; the same file gives the same parts each time."""
    part: list[Record] = []
    size = 0
    for one in records:
        length = len(one.items.data) if one.items is not None else 0
        if part and (len(part) >= PART_ROWS or size + length > PART_BYTES):
            yield part
            part, size = [], 0
        part.append(one)
        size += length
    if part:
        yield part


def _joined(items: list[Items]) -> Items:
    """One array of them all."""
    return Items(b"[%b]" % b",".join(one.data[1:-1] for one in items), sum(one.count for one in items))
