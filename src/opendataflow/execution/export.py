"""What people see of a pipeline's output, beside what the store points at: `current`, or the file that was asked for.

The store knows where each chunk is; these names only follow it, never back to an older run. A run that died before it
could show its output is made up for by the next one.
"""

import contextlib
import fcntl
import gzip
import json
import os
import shutil
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Literal

from opendataflow.checks.csv_records import skip_record
from opendataflow.domain.dataset import Dataset, template_location
from opendataflow.domain.job import Job
from opendataflow.domain.runs.run import Claim
from opendataflow.storage.buckets.address import is_in_bucket

if TYPE_CHECKING:
    from opendataflow.store.claims import LoopStore


def show(dataset: Dataset, location: str, claim: Claim) -> None:
    """Show what this run has published, unless a newer one is shown already."""
    if dataset.is_export:
        return  # shown together, when the others are done too
    if is_in_bucket(location):
        if dataset.is_one_file:
            from opendataflow.execution import export_remote as shown_remote

            shown_remote.show_file(location, claim.runid)
        return
    if "://" in location:
        return
    if dataset.is_one_file:
        show_file(location, claim.runid)
    else:
        show_current(location, claim.runid)


def show_current(location: str, runid: int) -> None:
    """Let `current` beside `_runs/` lead to this run."""
    folder = os.path.dirname(os.path.dirname(location))
    link = os.path.join(folder, "current")
    if os.path.lexists(link) != os.path.islink(link):
        return  # somebody's own file
    shown = os.path.basename(os.readlink(link)) if os.path.islink(link) else "0"
    if shown.isdigit() and int(shown) >= runid:
        return
    with contextlib.suppress(OSError):  # a file system without symlinks
        os.symlink(f"_runs/{runid}", f"{link}.{runid}")
        os.replace(f"{link}.{runid}", link)


def show_file(location: str, runid: int) -> None:
    """Let the file beside `_runs/` be the one of this run: `_runs/7/clean.csv` is shown as `clean.csv`."""
    runs = os.path.dirname(os.path.dirname(location))
    folder, name = os.path.dirname(runs), os.path.basename(location)
    target = os.path.join(folder, name)
    if _shown_run(runs, name, target) >= runid:
        return
    new = os.path.join(runs, str(runid), f".{name}.shown")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    try:
        os.link(location, new)
    except OSError:  # a file system without links
        shutil.copyfile(location, new)
    os.replace(new, target)
    with contextlib.suppress(FileNotFoundError):  # a rename onto another name of the same file leaves both
        os.unlink(new)


def _shown_run(runs: str, name: str, target: str) -> int:
    """The run whose file is shown; 0 when it is none of ours."""
    found = 0
    with contextlib.suppress(FileNotFoundError):
        shown = os.stat(target)
        for run in os.listdir(runs):
            if run.isdigit():
                with contextlib.suppress(OSError):
                    seen = os.stat(os.path.join(runs, run, name))
                    if (seen.st_dev, seen.st_ino) == (shown.st_dev, shown.st_ino):
                        found = max(found, int(run))
    return found


def show_together(store: "LoopStore", job: Job) -> None:
    """Where the output is one file of all chunks (`path: totals.csv`): bring it up to what is published now.

    With `replace`, the file is the last chunk alone.
    """
    (output,) = job.outputs
    target = template_location(output.dataset, root=job.root)
    if is_in_bucket(target) and output.dataset.is_export:
        _show_together_in_bucket(store, job, output.dataset, target)
        return
    if not output.dataset.is_export or "://" in target:
        return
    folder, name = os.path.split(target)
    os.makedirs(os.path.join(folder, "_runs"), exist_ok=True)
    with open(os.path.join(folder, "_runs", f".{name}.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # looked up and written by one at a time: the last one knows most
        if parts := _published_parts(store, job, output.dataset):
            export(target, parts, has_header=_has_header(output.dataset))


def _show_together_in_bucket(store: "LoopStore", job: Job, dataset: Dataset, target: str) -> None:
    """Until what is shown is what is published: there is no lock, and the last one knows most."""
    from opendataflow.execution import export_remote as shown_remote

    for _ in range(shown_remote.MOST_ROUNDS):
        parts = _published_parts(store, job, dataset)
        if not parts or not shown_remote.export(target, parts, has_header=_has_header(dataset)):
            return


def _published_parts(store: "LoopStore", job: Job, dataset: Dataset) -> list[tuple[str, int, str]]:
    from opendataflow.domain.chunk import ChunkStatus
    from opendataflow.store.published import list_chunks

    chunks = list_chunks(store, dataset, status=ChunkStatus.READY)
    parts = [(chunk.dataid, chunk.version or 0, chunk.location) for chunk in chunks if chunk.location]
    return parts[-1:] if job.definition.get("replace") else parts


def _has_header(dataset: Dataset) -> bool:
    options = json.loads(dataset.definition or "{}").get("options") or {}
    header = next((value for name, value in options.items() if name.lower() == "header"), True)
    is_csv = (dataset.format or "csv") == "csv" and ".csv" in (dataset.location or "")
    return is_csv and str(header).lower() == "true"


def export(target: str, chunks: Iterable[tuple[str, int, str]], *, has_header: bool) -> bool:
    """Make one file of all chunks (dataid, run, location), in this order, in one step; False when it is as it was."""
    parts = [list(chunk) for chunk in chunks]
    folder, name = os.path.split(target)
    known = os.path.join(folder, "_runs", f".{name}.parts")
    with contextlib.suppress(OSError, ValueError), open(known, encoding="utf-8") as file:
        if json.load(file) == parts and os.path.exists(target):
            return False
    new = os.path.join(folder, "_runs", f".{name}.new")
    try:
        with _opened(target, new, "wb") as out:
            for number, (_, _, location) in enumerate(parts):
                with _opened(target, str(location), "rb") as part:
                    if number and has_header:
                        skip_record(part)
                    shutil.copyfileobj(part, out, 1 << 20)
        _sync(new)
        os.replace(new, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
    with open(known, "w", encoding="utf-8") as file:
        json.dump(parts, file)
    return True


def _opened(target: str, path: str, mode: Literal["rb", "wb"]) -> "gzip.GzipFile | IO[bytes]":
    return gzip.open(path, mode) if target.endswith(".gz") else open(path, mode)


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
