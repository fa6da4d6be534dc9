"""What is in a chunk, for somebody who looks: its first rows, and all of its files as one download."""

import asyncio
from typing import NamedTuple

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.runs.questions import CODES, Question
from opendataflow.errors import Refused, UsageError
from opendataflow.operations.preview import Preview, Shown, find_published, read_rows
from opendataflow.server.context import Context
from opendataflow.server.datasets.facts import get_declared
from opendataflow.server.downloads import Download, File, download, files_of
from opendataflow.store.claims import LoopStore

MOST_ROWS = 300


class Place(NamedTuple):
    """A READY chunk, and where it is: found in the store, read elsewhere, so that a slow disk holds up no question."""

    dataset: Dataset
    shown: Shown
    root: str

    @property
    def told(self) -> str:
        return f"{self.dataset.datasetid}/{self.shown.dataid}"


def find_place(store: LoopStore, project: str, datasetid: str, dataid: str) -> Place:
    """Where the chunk is; raises a DataflowError that says why it cannot be read."""
    dataset, root = get_declared(store, project, datasetid)
    return Place(dataset, find_published(store, dataset, dataid, root=root), root)


async def preview(context: Context, project: str, datasetid: str, dataid: str, *, rows: int) -> Preview:
    """The first rows of a READY chunk, without Spark; raises a DataflowError that says why not."""
    place = await context.stores.ask(lambda store: find_place(store, project, datasetid, dataid))
    most = min(rows, MOST_ROWS)
    return await asyncio.to_thread(read_rows, place.dataset, place.shown, root=place.root, rows=most, columns=None)


async def find_download(context: Context, project: str, datasetid: str, dataid: str) -> Download:
    """The files of a READY chunk: the one file as it is, several as a zip that is made while it is sent."""
    place = await context.stores.ask(lambda store: find_place(store, project, datasetid, dataid))
    return await asyncio.to_thread(_download, place)


def _download(place: Place) -> Download:
    files = _files(place)
    if not files:
        raise UsageError(f"{place.told}: there are no data files in {place.shown.location}")
    return download(f"{place.dataset.datasetid}_{place.shown.dataid}", files)


def _files(place: Place) -> list[File]:
    location = place.shown.location
    try:
        return files_of(location, root=place.root, told=place.told)
    except OSError as error:
        code = CODES[Question.LOCATION][1]
        raise Refused(f"{place.told}: {location}: {error.strerror or error}", exit_code=code) from error
