"""Housekeeping: superseded versions of chunks, old logs and old records, each only when nobody can need it."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from opendataflow.errors import UsageError
from opendataflow.operations.clear import Made, RunFolder, find_unneeded, made_by_pipeline, remove
from opendataflow.store.claims import LoopStore
from opendataflow.store.operations import clean_history
from opendataflow.store.published import find_dataset
from opendataflow.store.rows import utc_text


class Versions(NamedTuple):
    """What runs of one dataset wrote and nobody needs."""

    made: Made
    folders: list[RunFolder]


class Log(NamedTuple):
    path: str
    bytes: int


class Cleaning(NamedTuple):
    """All that is older than the moment; the records are counted only while they go, or for a dry run."""

    versions: list[Versions]
    logs: list[Log]
    elsewhere: list[str]  # datasets whose files are not on this machine

    @property
    def bytes(self) -> int:
        return sum(folder.bytes for one in self.versions for folder in one.folders) + sum(
            log.bytes for log in self.logs
        )


def find_old(store: LoopStore, *, project: str, before: float, work: str) -> Cleaning:
    """Files that nobody has needed since `before` (seconds since the epoch). Changes nothing."""
    versions, elsewhere = [], []
    for owner, datasetid, kind in store.read("made_datasets", {"project": project}, file="published"):
        if kind != "pipeline":
            continue  # scripts write where they want
        try:
            made = made_by_pipeline(store, *find_dataset(store, str(datasetid), project=str(owner)))
        except UsageError:
            elsewhere.append(str(datasetid))
            continue
        folders = find_unneeded(store, made, before=before).folders
        if folders:
            versions.append(Versions(made, sorted(folders)))
    return Cleaning(versions, sorted(_old_logs(store, work, before)), elsewhere)


def _old_logs(store: LoopStore, work: str, before: float) -> Iterator[Log]:
    """Logs of this machine that nobody has written to since. Of what runs, or is FAILED, the log stays."""
    kept = {int(row[0]) for row in store.read("logs_kept", {}, file="published") if row[0] is not None}
    for folder in _folders(os.path.join(work, "logs")):
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                number = entry.name.removesuffix(".log")
                if not (entry.name.endswith(".log") and number.isdecimal()) or int(number) in kept:
                    continue
                with contextlib.suppress(FileNotFoundError):
                    seen = entry.stat(follow_symlinks=False)
                    if seen.st_mtime < before:
                        yield Log(entry.path, seen.st_size)


def _folders(logs: str) -> list[str]:
    try:
        with os.scandir(logs) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def clean_records(
    store: LoopStore, *, project: str, before: float, dry_run: bool, pause: Callable[[], None] = lambda: None
) -> tuple[int, int]:
    """Delete (or count) ended runs and history older than that, batch by batch; how many of each."""
    runs = changes = 0
    for batch in clean_history(store, project, jobid=None, before=utc_text(before), dry_run=dry_run):
        runs, changes = runs + batch.runs, changes + batch.history
        if not dry_run:
            pause()
    return runs, changes


def remove_files(found: Cleaning) -> None:
    """What is gone already is no error."""
    for one in found.versions:
        for folder in one.folders:
            remove(one.made, folder)
    for log in found.logs:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(log.path)
        with contextlib.suppress(OSError):  # not empty yet
            os.rmdir(os.path.dirname(log.path))


def as_json(found: Cleaning, records: tuple[int, int], *, dry_run: bool) -> dict[str, Any]:
    folders = [
        {"dataset": one.made.dataset.datasetid, **folder._asdict()} for one in found.versions for folder in one.folders
    ]
    return {
        "dry_run": dry_run, "versions": folders, "logs": [log._asdict() for log in found.logs], "runs": records[0],
        "changes": records[1], "bytes": found.bytes, "elsewhere": found.elsewhere,
    }  # fmt: skip
