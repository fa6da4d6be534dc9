"""Removing what pipelines wrote: published chunks that are taken back, and run directories that nobody needs.

The store comes first, the files after it: killed at any point, this leaves files that nothing points at, and those are
what `--superseded` removes. Never the other way round, a chunk that is READY without its files.
"""

import contextlib
import filecmp
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.dataset import (
    Dataset,
    chunk_location,
    is_below,
    output_location,
    template_location,
    why_no_place,
)
from opendataflow.domain.job import Job
from opendataflow.domain.runs.questions import CODES, Question
from opendataflow.domain.runs.run import RunStatus
from opendataflow.domain.tables import find_table
from opendataflow.errors import Refused, UsageError
from opendataflow.storage.buckets.address import is_in_bucket
from opendataflow.storage.files import is_reachable
from opendataflow.store.claims import LoopStore
from opendataflow.store.published import (
    Published,
    dataids_read,
    find_producer,
    find_run_end,
    list_chunks,
    list_versions,
    live_runs,
    seconds,
    take_back,
)

RUNS = "_runs"


class Made(NamedTuple):
    """A dataset that a pipeline makes, on this machine or in an object store."""

    dataset: Dataset
    job: Job
    root: str


class RunFolder(NamedTuple):
    """What one run wrote, and is that run's alone."""

    run: int
    dataid: str | None  # None: no longer known
    path: str
    bytes: int


class Chunk(NamedTuple):
    """A chunk to be taken back, with everything that its runs wrote."""

    dataid: str
    status: ChunkStatus
    run: int | None
    location: str | None
    folders: tuple[RunFolder, ...]

    @property
    def bytes(self) -> int:
        return sum(folder.bytes for folder in self.folders)


class Unneeded(NamedTuple):
    folders: list[RunFolder]
    too_young: int  # those that would go, were they older


def made_by_pipeline(store: LoopStore, dataset: Dataset, root: str) -> Made:
    """The dataset with the pipeline that makes it, or raise UsageError: other people's files are not ours to remove."""
    job = find_producer(store, dataset)
    name = dataset.datasetid
    if job is None:
        raise UsageError(f"{name} arrives from outside; only what a pipeline makes can be cleared")
    if job.kind != "pipeline":
        raise UsageError(
            f"{name} is written by the script {job.jobid}, to the place it chose; `dataflow resubmit {job.jobid} "
            "DATAID` has it made again"
        )
    if find_table(dataset) is not None:
        raise UsageError(
            f"{name} is a table; delete its rows there, or `dataflow resubmit {job.jobid} DATAID` replaces them"
        )
    if dataset.location is None or not is_reachable(template_location(dataset, root=root)):
        raise UsageError(f"{name} is at {root}/{dataset.location or ''}, not on this machine; clear it where it is")
    return Made(dataset, job, root)


# Taking back ----------------------------------------------------------------------------------------------------------
def find_chunks(store: LoopStore, made: Made, dataids: Iterable[str] | None) -> list[Chunk]:
    """These chunks, or all that have something to clear, as they are now; UsageError for one that is not there."""
    known = {chunk.dataid: chunk for chunk in list_chunks(store, made.dataset)}
    folders: dict[str, list[RunFolder]] = {}
    for folder in run_folders(store, made, known):
        if folder.dataid is not None:
            folders.setdefault(folder.dataid, []).append(folder)
    if dataids is None:
        wanted = [one for one, chunk in known.items() if chunk.location or chunk.status is ChunkStatus.READY]
    else:
        wanted = list(dict.fromkeys(dataids))
    name = made.dataset.datasetid
    for dataid in wanted:
        if dataid not in known:
            raise UsageError(f"{name} has no chunk {dataid!r}; see `dataflow status {name}`")
    return [_chunk(made, known[dataid], folders.get(dataid, [])) for dataid in wanted]


def _chunk(made: Made, chunk: Published, folders: list[RunFolder]) -> Chunk:
    return Chunk(chunk.dataid, chunk.status, chunk.run, chunk.find_place(made.dataset, root=made.root), tuple(folders))


def clear(store: LoopStore, made: Made, chunks: list[Chunk]) -> None:
    """Take the chunks back in one transaction, or raise Refused (LOCKED); then remove their files."""
    take_back(store, made.dataset, made.job, [chunk.dataid for chunk in chunks])
    for chunk in chunks:
        for folder in chunk.folders:
            remove(made, folder, taken_back=True)
    if made.dataset.is_export:
        _export_rest(store, made)


def _export_rest(store: LoopStore, made: Made) -> None:
    """The one file that shows all chunks together: without those that are gone."""
    from opendataflow.execution.export import export

    if is_in_bucket(made.root):
        _export_rest_in_bucket(store, made)
        return
    target = template_location(made.dataset, root=made.root)
    ready = list_chunks(store, made.dataset, status=ChunkStatus.READY)
    parts = [(one.dataid, one.run or 0, one.location) for one in ready if one.location]
    if not os.path.exists(target):
        return
    if parts:
        export(target, parts, has_header=_has_header(made.dataset))
        return
    _unlink(target)


def _export_rest_in_bucket(store: LoopStore, made: Made) -> None:
    from opendataflow.execution import export_remote as shown_remote

    target = template_location(made.dataset, root=made.root)
    ready = list_chunks(store, made.dataset, status=ChunkStatus.READY)
    parts = [(one.dataid, one.run or 0, one.location) for one in ready if one.location]
    if parts:
        shown_remote.export(target, parts, has_header=_has_header(made.dataset))
    else:
        shown_remote.remove_export(target)


def _has_header(dataset: Dataset) -> bool:
    options = json.loads(dataset.definition or "{}").get("options") or {}
    is_csv = (dataset.format or "csv") == "csv"
    return is_csv and str(options.get("header", True)).lower() == "true"


# What nobody needs ----------------------------------------------------------------------------------------------------
def find_unneeded(store: LoopStore, made: Made, *, before: float, dataids: Iterable[str] | None = None) -> Unneeded:
    """Run directories that the store does not point at, and has not since `before` (seconds since the epoch).

    Never one that a live run writes, nor any of a chunk that is being read.
    """
    # In this order: a run that ends in between is still among the live ones, or already what a chunk points at.
    known = {chunk.dataid: chunk for chunk in list_chunks(store, made.dataset)}
    listed = list(run_folders(store, made, known))
    live = live_runs(store, made.job)
    pointed_at = {_folder_of(chunk.location) for chunk in list_chunks(store, made.dataset) if chunk.location}
    being_read = dataids_read(store, made.dataset)
    superseded = {(one.dataid, one.version): one.superseded_at for one in list_versions(store, made.dataset)}
    only = None if dataids is None else set(dataids)
    found = Unneeded([], 0)
    for folder in listed:
        if folder.path in pointed_at or folder.run in live or folder.dataid in being_read:
            continue
        if only is not None and folder.dataid not in only:
            continue
        since = _unneeded_since(store, folder, known.get(folder.dataid or ""), superseded)
        if since is None or since > before:
            found = found._replace(too_young=found.too_young + (since is not None))
        else:
            found.folders.append(folder)
    return found


def _folder_of(location: str) -> str:
    """The run's own directory, where a location has one."""
    head, runs, tail = location.rpartition(f"/{RUNS}/")
    return f"{head}{runs}{tail.partition('/')[0]}"


def _unneeded_since(
    store: LoopStore, folder: RunFolder, chunk: Published | None, superseded: dict[tuple[str, int], str | None]
) -> float | None:
    """Since when nothing points at it; None while its run may still write."""
    version = (folder.dataid or "", folder.run)
    if version in superseded:
        # Whoever asked the store before that moment may still be reading it.
        moment = superseded[version] or (chunk.modified if chunk else None)
        if moment is not None:
            return seconds(moment)
    end = find_run_end(store, folder.run)
    if end is not None and end.status == RunStatus.RUNNING:
        return None
    written = _last_written(folder.path)
    return max(written, seconds(end.ended_at)) if end is not None and end.ended_at else written


# The directories ------------------------------------------------------------------------------------------------------
def run_folders(store: LoopStore, made: Made, dataids: Iterable[str]) -> Iterator[RunFolder]:
    """The directories that runs of this dataset wrote, of these dataids, in no order."""
    seen: set[str] = set()
    owners = {one.version: one.dataid for one in list_versions(store, made.dataset)} if made.dataset.is_export else {}
    for dataid in dataids:
        if why_no_place(made.dataset, dataid):
            continue  # inserted by hand: no run wrote there
        place = output_location("pipeline", made.dataset, dataid, root=made.root, runid=0) or ""
        head, _, name = place.rpartition(f"/{RUNS}/0")
        runs = f"{head}/{RUNS}"
        if f"{runs}{name}" in seen or not is_below(runs, made.root):
            continue
        seen.add(f"{runs}{name}")
        for run, path in _numbered(runs):
            if not name or _is_of(path, name.lstrip("/")):
                owner = (owners.get(run) or _dataid_of(store, run)) if made.dataset.is_export else dataid
                yield RunFolder(run, owner, path, _bytes(path))


def _numbered(runs: str) -> Iterator[tuple[int, str]]:
    if is_in_bucket(runs):
        for name in _names(runs):
            if name.isdecimal():
                yield int(name), f"{runs}/{name}"
        return
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(runs) as entries:
        for entry in entries:
            if entry.name.isdecimal() and entry.is_dir(follow_symlinks=False):
                yield int(entry.name), entry.path


def _is_of(path: str, name: str) -> bool:
    """True when the directory holds that file, or what becomes of it: datasets of one folder share its `_runs`."""
    own = {name, f".{name}.parts", f".{name}.shown", f".{name}.crc"}
    return not own.isdisjoint(_names(path))


def _names(folder: str) -> list[str]:
    """What is in it; nothing where it is gone."""
    with contextlib.suppress(FileNotFoundError):
        if not is_in_bucket(folder):
            return os.listdir(folder)
        from opendataflow.storage.buckets.files import entries

        return [entry.name for entry in entries(folder)]
    return []


def _dataid_of(store: LoopStore, run: int) -> str | None:
    end = find_run_end(store, run)
    return None if end is None else end.dataid


def _files(path: str) -> Iterator[tuple[int, float]]:
    """Size and time of every file below it, hidden or not."""
    if is_in_bucket(path):
        from opendataflow.storage.buckets.files import find

        with contextlib.suppress(FileNotFoundError):
            yield from ((one.size, one.changed_ns / 1e9) for one in find(path, hidden=True))
        return
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                seen = os.stat(os.path.join(folder, name), follow_symlinks=False)
                yield seen.st_size, seen.st_mtime


def _bytes(path: str) -> int:
    return sum(size for size, _ in _files(path))


def _last_written(path: str) -> float:
    own = 0.0
    if not is_in_bucket(path):
        try:
            own = os.stat(path).st_mtime
        except FileNotFoundError:
            return 0.0
    return max([own, *(changed for _, changed in _files(path))])


# Removing -------------------------------------------------------------------------------------------------------------
def remove(made: Made, folder: RunFolder, *, taken_back: bool = False) -> None:
    """Remove the directory, and before it the names by which people see it. What is gone already is no error."""
    if os.path.basename(os.path.dirname(folder.path)) != RUNS or not is_below(folder.path, made.root):
        raise Refused(
            f"{folder.path} is no run's directory below {made.root}; nothing was removed there",
            exit_code=CODES[Question.LOCATION][1],
        )
    beside = os.path.dirname(os.path.dirname(folder.path))
    if is_in_bucket(folder.path):
        _remove_in_bucket(made, folder, beside)
        return
    if made.dataset.is_one_file:
        if not made.dataset.is_export:
            name = os.path.basename(chunk_location(made.dataset, folder.dataid or "", root=made.root) or "")
            _remove_shown(os.path.join(beside, name), os.path.join(folder.path, name), also_copies=taken_back)
    else:
        link = os.path.join(beside, "current")
        if os.path.islink(link) and os.readlink(link) == f"{RUNS}/{folder.run}":
            _unlink(link)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder.path)


def _remove_in_bucket(made: Made, folder: RunFolder, beside: str) -> None:
    from opendataflow.execution.export_remote import remove_shown
    from opendataflow.storage.buckets import files

    if made.dataset.is_one_file and not made.dataset.is_export:
        name = os.path.basename(chunk_location(made.dataset, folder.dataid or "", root=made.root) or "")
        remove_shown(f"{beside}/{name}", folder.run)
    files.remove(folder.path)


def _remove_shown(shown: str, ours: str, *, also_copies: bool) -> None:
    """The file that people see, if it is this run's: the same file, or a copy of it where there are no links."""
    with contextlib.suppress(FileNotFoundError):
        is_copy = also_copies and os.stat(shown).st_nlink == 1 and filecmp.cmp(shown, ours, shallow=False)
        if is_copy or os.path.samefile(shown, ours):
            _unlink(shown)


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
