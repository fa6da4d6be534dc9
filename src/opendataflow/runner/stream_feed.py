"""A watched folder as the source of a stream: every new file is read into the stream's log, once.

A file is taken when it has not changed for a moment, and never a part of one that has a bad line. Each part of it has
a key of the file's name, size and time, so a feed that died in the middle of a file goes on without doubling anything.
What was taken is noted beside the log: a file may stay in its folder longer than the log remembers keys.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from opendataflow.domain.job import Job
from opendataflow.domain.streams import get_settings
from opendataflow.errors import DataflowError
from opendataflow.intake.files import count_items, read_parts
from opendataflow.intake.log import IntakeLog
from opendataflow.intake.schema import StreamSchema

LOOK_SECONDS = 0.5
STABLE_SECONDS = 1.0
NOTES = "fed"  # in the stream's folder
_UNFINISHED = (".tmp", ".part", ".partial", ".crdownload")


class _File(NamedTuple):
    name: str  # below the folder
    size: int
    changed_ns: int

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self).encode()).hexdigest()[:32]


class FolderFeed:
    """Reads files in a thread of its own, while it is open. `committed` tells how far the stream is published."""

    def __init__(
        self, job: Job, folder: str, *, committed: Callable[[], int], say: Callable[[str], None]
    ) -> None:  # fmt: skip
        settings = get_settings(job)
        self._job, self._settings, self._schema = job, settings, StreamSchema(settings.schema)
        self._watched = os.path.join(job.root, settings.source["folder"])
        self._format: str | None = settings.source.get("format")
        self._folder, self._committed, self._say = folder, committed, say
        self._known = _read_notes(os.path.join(folder, NOTES))
        self._refused: set[_File] = set()
        self._seen: dict[_File, float] = {}
        self.is_settled = False  # all files that are there are taken, or refused
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __enter__(self) -> "FolderFeed":
        self._log = IntakeLog(self._folder, begin=self._committed())
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._log.close()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                self.look()
            except (OSError, DataflowError) as error:  # a full disk, a folder that is away: it may come back
                self._say(f"{self._job.jobid}: {self._watched} is not read: {error}; it is tried again")
                self._stop.wait(10 * LOOK_SECONDS)

    def look(self) -> None:
        """Take the files that are new, in the order of their names."""
        now = time.monotonic()
        there = self._files()
        self._seen = {one: self._seen.get(one, now) for one in there}
        for file, since in sorted(self._seen.items()):
            if self._stop.is_set():
                return
            if file not in self._refused and now - since >= STABLE_SECONDS:
                self._take(file)
        self.is_settled = all(one in self._refused or one.key in self._known for one in there)

    def _files(self) -> list[_File]:
        found = []
        try:
            entries = list(os.scandir(self._watched))
        except FileNotFoundError:
            return []  # nothing has come yet
        for entry in entries:
            if entry.name.startswith((".", "_")) or entry.name.endswith(_UNFINISHED) or not entry.is_file():
                continue
            seen = entry.stat()
            one = _File(entry.name, seen.st_size, seen.st_mtime_ns)
            if one.key not in self._known:
                found.append(one)
        return found

    def _take(self, file: _File) -> None:
        path, count = os.path.join(self._watched, file.name), 0
        try:
            count_items(path, self._schema, format_=self._format)
        except DataflowError as error:
            self._refused.add(file)
            self._say(f"{self._job.jobid}: nothing of {path} is taken: {error}; put a mended file there")
            return
        for number, part in enumerate(read_parts(path, self._schema, format_=self._format)):
            while self._log.end - self._committed() >= self._settings.backlog:
                if self._stop.wait(LOOK_SECONDS):
                    return  # the rest when it is opened again, under the same keys
            self._log.append(part.data, part.count, key=f"file-{file.key}-{number}")
            count += part.count
        _note(os.path.join(self._folder, NOTES), file)
        self._known.add(file.key)
        self._say(f"{self._job.jobid}: {count} items of {path} are accepted")


def _read_notes(path: str) -> set[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return {json.loads(line)["key"] for line in file if line.endswith("\n")}
    except FileNotFoundError:
        return set()


def _note(path: str, file: _File) -> None:
    with open(path, "a", encoding="utf-8") as notes:
        notes.write(json.dumps({"key": file.key, **file._asdict()}) + "\n")
        notes.flush()
        os.fsync(notes.fileno())
