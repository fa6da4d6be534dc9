"""What is in a chunk, for somebody who looks: its first rows, and all of its files as one download."""

import asyncio
import os
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from opendataflow.buckets.files import below
from opendataflow.buckets.opened import open_binary
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.questions import CODES, Question
from opendataflow.errors import Refused, UsageError
from opendataflow.runner.files import find_files, is_local, is_reachable
from opendataflow.runner.preview import Preview, Shown, find_published, read_rows
from opendataflow.server.context import Context
from opendataflow.server.facts_datasets import get_declared
from opendataflow.store.loop import LoopStore

BLOCK = 1 << 18
MOST_ROWS = 300


class Download(NamedTuple):
    name: str  # of the file
    size: int | None  # None: not known before it was sent
    parts: Iterator[bytes]


class Place(NamedTuple):
    """A READY chunk, and where it is: found in the store, read elsewhere, so that a slow disk holds up no question."""

    dataset: Dataset
    shown: Shown


def find_place(store: LoopStore, project: str, datasetid: str, dataid: str) -> Place:
    """Where the chunk is; raises a DataflowError that says why it cannot be read."""
    dataset, root = get_declared(store, project, datasetid)
    return Place(dataset, find_published(store, dataset, dataid, root=root))


async def preview(context: Context, project: str, datasetid: str, dataid: str, *, rows: int) -> Preview:
    """The first rows of a READY chunk, without Spark; raises a DataflowError that says why not."""
    place = await context.stores.ask(lambda store: find_place(store, project, datasetid, dataid))
    return await asyncio.to_thread(read_rows, place.dataset, place.shown, rows=min(rows, MOST_ROWS), columns=None)


async def find_download(context: Context, project: str, datasetid: str, dataid: str) -> Download:
    """The files of a READY chunk: the one file as it is, several as a zip that is made while it is sent."""
    place = await context.stores.ask(lambda store: find_place(store, project, datasetid, dataid))
    return await asyncio.to_thread(_download, place)


def _download(place: Place) -> Download:
    location, told = place.shown.location, f"{place.dataset.datasetid}/{place.shown.dataid}"
    if not is_reachable(location):
        raise UsageError(f"{told} is at {location}, where this server does not read")
    try:
        found = find_files(location)
    except OSError as error:
        code = CODES[Question.LOCATION][1]
        raise Refused(f"{told}: {location}: {error.strerror or error}", exit_code=code) from error
    if not found.files:
        raise UsageError(f"{told}: there are no data files in {location}")
    name = f"{place.dataset.datasetid}_{place.shown.dataid}"
    if len(found.files) == 1:
        path = _path(location, found.files[0][0])
        return Download(_safe(f"{name}_{os.path.basename(path)}"), found.files[0][1], _blocks(path))
    return Download(_safe(f"{name}.zip"), None, _zipped(location, [name for name, *_ in found.files]))


def _path(place: str, name: str) -> str:
    if not name:
        return place
    return os.path.join(place, name) if is_local(place) else below(place, name)


def _safe(name: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else "_" for char in name)


def _blocks(path: str) -> Iterator[bytes]:
    with open_binary(path) as file:
        while block := file.read(BLOCK):
            yield bytes(block)


class _Sink:
    """What a zip is written to: kept until it is taken; nobody can go back in it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def take(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken


def _zipped(place: str, names: list[str]) -> Iterator[bytes]:
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:  # type: ignore[call-overload]
        for name in names:
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as entry:
                for block in _blocks(_path(place, name)):
                    entry.write(block)
                    yield sink.take()
    yield sink.take()
