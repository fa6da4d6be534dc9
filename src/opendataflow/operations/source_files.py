"""Files of a dataset, read without Spark as what they are now: are they there, their first rows, all of them.

What is published is what consumers read, and is read here. Of a source that nobody makes, the file itself is read, also
before a run has taken it in.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.dataset import Dataset, chunk_location
from opendataflow.domain.partitions.scheme import FULL, check_dataid
from opendataflow.errors import Refused, UsageError
from opendataflow.operations.preview import Preview, Shown, find_published, open_files, read_rows
from opendataflow.storage.files import find_files, is_reachable
from opendataflow.store.claims import LoopStore
from opendataflow.store.published import find_producer, list_chunks

Rows = Iterator[list[tuple[Any, ...]]]


def find_shown(store: LoopStore, dataset: Dataset, dataid: str | None, *, root: str) -> Shown:
    """The chunk, or the latest one; of files that nobody makes, what lies there. Raises Refused that says why not."""
    try:
        return find_published(store, dataset, dataid, root=root)
    except Refused as error:
        place = _own_place(store, dataset, dataid, root)
        if place is None:
            raise
        if not _has_files(place):
            raise Refused(
                f"{dataset.datasetid} is {place}, and there is no such file; put it there", exit_code=error.exit_code
            ) from None
        return Shown(dataid or FULL, "not taken in yet", None, place, None, None, None, None)


def _own_place(store: LoopStore, dataset: Dataset, dataid: str | None, root: str) -> str | None:
    if dataset.location is None or (dataid is None and "{dataid}" in dataset.location):
        return None
    if find_producer(store, dataset) is not None:
        return None
    if dataid is not None:
        check_dataid(dataset.datasetid, dataset.partitions, dataid)
    return chunk_location(dataset, dataid or FULL, root=root)


def _has_files(place: str) -> bool:
    if not is_reachable(place):
        return True  # reading it says what is wrong
    try:
        return bool(find_files(place).files)
    except OSError:
        return False


def look_at_files(store: LoopStore, dataset: Dataset, *, root: str) -> dict[str, Any]:
    """How its files can be read, or raise the sentence why they cannot."""
    shown = find_shown(store, dataset, None, root=root)
    told = read_rows(dataset, shown, root=root, rows=1, columns=None)
    return {
        "address": shown.location, "server": "files", "what": f"{dataset.format or 'files'} {shown.dataid}",
        "columns": len(told.schema), "partition_column": None, "connect_ms": 0.0, "answer_ms": 0.0,
    }  # fmt: skip


def first_rows_of(store: LoopStore, dataset: Dataset, dataid: str | None, rows: int, *, root: str) -> Preview:
    return read_rows(dataset, find_shown(store, dataset, dataid, root=root), root=root, rows=rows, columns=None)


def all_rows_of(store: LoopStore, dataset: Dataset, dataid: str | None, *, root: str) -> tuple[list[str], Rows]:
    """The columns, and the rows batch by batch: of one chunk, or of all that are READY, one after the other."""
    shown = [find_shown(store, dataset, dataid, root=root)]
    if dataid is None:
        chunks = list_chunks(store, dataset, status=ChunkStatus.READY)
        places = {chunk.dataid: chunk.place(dataset, root=root) or "" for chunk in chunks}
        shown = [shown[0]._replace(dataid=one, location=place) for one, place in places.items()] or shown
    files = [_open(dataset, one, root) for one in shown]
    names: dict[str, None] = {}
    for name, one in files:
        names |= dict.fromkeys(_names(name, one))
    return list(names), _rows(files, list(names))


def _open(dataset: Dataset, shown: Shown, root: str) -> tuple[str, Any]:
    name = f"{dataset.datasetid}/{shown.dataid}"
    if not is_reachable(shown.location):
        read = "`python -m pydoc opendataflow.Project.read`"
        raise UsageError(f"{name} is at {shown.location}, where only Spark reads; read it with Project.read: {read}")
    try:
        return name, open_files(dataset, shown, root=root)
    except OSError as error:
        raise UsageError(f"{name}: {shown.location}: {error.strerror or error}") from error


def _names(name: str, files: Any) -> list[str]:
    """The columns of a chunk: as its files say, or for JSON, where every row may have its own, as all of them do."""
    from opendataflow.checks.chunk_reader import NeedsSpark, Unreadable

    found: dict[str, None] = dict.fromkeys(files.schema or {})
    try:
        for opening in files.openings():
            found |= dict.fromkeys(opening.names or ())
        if files.format == "json":
            found |= dict.fromkeys(_keys(files))
    except (Unreadable, NeedsSpark, OSError) as error:
        raise UsageError(f"{name}: {error}") from error
    return list(found)


def _keys(files: Any) -> Iterator[str]:
    import io

    from opendataflow.storage.buckets.opened import open_stream

    for _, path in files.files:
        with open_stream(path, root=files.root) as source:
            for line in io.TextIOWrapper(io.BufferedReader(source), encoding="utf-8-sig", errors="replace"):
                try:
                    row = json.loads(line) if line.strip() else {}
                except ValueError:
                    continue  # told with its place when the rows are read
                yield from row if isinstance(row, dict) else ()


def _rows(files: list[tuple[str, Any]], names: list[str]) -> Rows:
    from opendataflow.checks.chunk_reader import NeedsSpark, Unreadable

    for name, one in files:
        try:
            for batch in one.batches(set(names)):
                size = max((len(column) for column in batch.columns.values()), default=0)
                nothing = [None] * size
                columns = [
                    [plain(value) for value in batch.columns[column].to_pylist()]
                    if column in batch.columns
                    else nothing
                    for column in names
                ]
                yield list(zip(*columns, strict=True))
        except (Unreadable, NeedsSpark, OSError) as error:
            raise UsageError(f"{name}: {error}") from error


def plain(value: Any) -> Any:
    """As a CSV's field has it: bytes in hex, what is nested as JSON."""
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=_in_json, ensure_ascii=False)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _in_json(value: Any) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)
