"""What people see of a pipeline's output in an object store: the file that was asked for, put there as a whole.

There are no links: a folder has no `current`, its chunks are found through the store. Nothing is locked either, so
whoever has shown something looks again whether a newer run was shown meanwhile, and then shows that.
"""

import contextlib
import gzip
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Any

from opendataflow.checks.csv_records import skip_record
from opendataflow.storage.buckets.files import copy, entries, is_there, open_stream, put, remove

MOST_ROUNDS = 5


def show_file(location: str, runid: int) -> None:
    """Let the object beside `_runs/` be the one of this run, or of a newer one that is shown: `…/_runs/7/clean.csv`."""
    runs, name = location.rpartition("/")[0].rpartition("/")[0], location.rpartition("/")[2]
    target = f"{runs.rpartition('/')[0]}/{name}"
    _put_text("", f"{runs}/{runid}/{_mark(name)}")
    copied = 0
    for _ in range(MOST_ROUNDS):
        newest = max(shown_run(runs, name), runid)
        if newest == copied:
            return
        copy(f"{runs}/{newest}/{name}", target)
        copied = newest


def shown_run(runs: str, name: str) -> int:
    """The newest run that was shown under this name; 0 when none was."""
    found = 0
    with contextlib.suppress(FileNotFoundError):
        numbers = sorted((int(one.name) for one in entries(runs) if one.name.isdecimal()), reverse=True)
        found = next((run for run in numbers if is_there(f"{runs}/{run}/{_mark(name)}")), 0)
    return found


def remove_shown(target: str, runid: int) -> None:
    """Remove the object that people see, if it is this run's."""
    folder, _, name = target.rpartition("/")
    if shown_run(f"{folder}/_runs", name) == runid:
        remove(target)


def _mark(name: str) -> str:
    return f".{name}.shown"


def export(target: str, chunks: Iterable[tuple[str, int, str]], *, has_header: bool) -> bool:
    """Make one object of all chunks (dataid, run, location), in this order, in one step; False when it is as it was."""
    parts = [list(chunk) for chunk in chunks]
    folder, _, name = target.rpartition("/")
    known = f"{folder}/_runs/.{name}.parts"
    with contextlib.suppress(FileNotFoundError, ValueError), open_stream(known) as file:
        if json.loads(file.read()) == parts and is_there(target):
            return False
    with tempfile.NamedTemporaryFile(prefix="dataflow-export-") as new:
        with _written(target, new.name) as out:
            for number, (_, _, location) in enumerate(parts):
                with _read(target, str(location)) as part:
                    if number and has_header:
                        skip_record(part)
                    shutil.copyfileobj(part, out, 1 << 20)
        put(new.name, target)
    _put_text(json.dumps(parts), known)
    return True


def _written(target: str, path: str) -> "gzip.GzipFile | IO[bytes]":
    return gzip.open(path, "wb") if target.endswith(".gz") else open(path, "wb")


@contextlib.contextmanager
def _read(target: str, location: str) -> Iterator[Any]:
    with open_stream(location) as stream, io.BufferedReader(stream, 1 << 20) as lines:
        yield gzip.GzipFile(fileobj=lines) if target.endswith(".gz") else lines


def _put_text(text: str, location: str) -> None:
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="dataflow-export-") as file:
        file.write(text)
        file.flush()
        put(file.name, location)


def remove_export(target: str) -> None:
    folder, _, name = target.rpartition("/")
    remove(target)
    remove(f"{folder}/_runs/.{os.path.basename(name)}.parts")
