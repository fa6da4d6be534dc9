"""Chunks as a grid: windows of it by seeks, now and as they were at any moment, and what changed since a look.

A cell is one character, see LETTERS; a small letter says that history which would tell for certain was cleaned away.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from opendataflow.store.claims import LoopStore
from opendataflow.store.operations import first_since
from opendataflow.store.status_counts import FOLD_AT, fold_if_due

FILE = "grid"
GAP, NOTHING = "GAP", "."  # expected and nothing is known of it; not expected either
LETTERS = {
    "READY": "R", "RUNNING": "U", "PENDING": "P", "FAILED": "F", "RESUBMIT": "S", "HOLD": "H", GAP: "G",
}  # fmt: skip
STATUSES = {letter: status for status, letter in LETTERS.items()}
MOST_UNDONE = 50_000  # changes that are taken off the counts of now to have those of then
_CHUNK = ("dataid", "status", "version", "location", "problem", "validated_at", "modified", "files", "bytes", "rows")
_MANIFEST = (
    "version", "location", "files", "bytes", "rows", "schema", "fingerprint", "validated_at", "created_at",
)  # fmt: skip
Key = tuple[str, str]  # project and dataset
Counts = dict[Key, dict[str, int]]


class Then(NamedTuple):
    """A moment of the past, and the first change that came after it."""

    moment: str
    since: int


class Line(NamedTuple):
    """A dataset with its first and last dataid, by text."""

    project: str
    datasetid: str
    partitions: str | None
    clock: str | None
    lowest: str | None
    highest: str | None

    @property
    def key(self) -> Key:
        return self.project, self.datasetid


class Change(NamedTuple):
    id: int
    project: str
    datasetid: str
    dataid: str
    status: str | None  # None: it is gone


# The whole ------------------------------------------------------------------------------------------------------------
def list_lines(store: LoopStore, *, project: str | None) -> list[Line]:
    """Every dataset, in order."""
    return [Line(*row) for row in store.read("lines", {"project": project}, file=FILE)]


def count_chunks(store: LoopStore, *, project: str | None) -> tuple[Counts, Counts]:
    """How many chunks of each dataset, and dataids of each job (those not PENDING), stand in each status."""
    if store.read("tally_behind", {})[0][0] >= 5 * FOLD_AT:  # nobody else does it: no worker is there
        fold_if_due(store)
    found: dict[str, Counts] = {"chunk": {}, "job": {}}
    for kind, owner, name, status, number in store.read("counts", {"project": project}, file=FILE):
        found[kind].setdefault((owner, name), {})[status] = int(number)
    return found["chunk"], found["job"]


def find_then(store: LoopStore, moment: str) -> Then:
    """Where in the history that moment is: a few seeks."""
    return Then(moment, first_since(store, "history", moment))


def counts_then(store: LoopStore, now: Counts, then: Then) -> Counts | None:
    """The counts of that moment, from those of now; None when too much has changed since."""
    if newest(store) - then.since >= MOST_UNDONE:
        return None
    found = {key: dict(counts) for key, counts in now.items()}
    for owner, name, status, number in store.read("counts_since", {"since": then.since}, file=FILE):
        counts = found.setdefault((owner, name), {})
        counts[status] = counts.get(status, 0) - int(number)
    return {key: {status: n for status, n in counts.items() if n > 0} for key, counts in found.items()}


def newest(store: LoopStore) -> int:
    """The number of the newest change."""
    return int(store.read("newest", {}, file=FILE)[0][0])


def oldest_change(store: LoopStore) -> str | None:
    """When the oldest change was that the history still has."""
    found = store.read("oldest_change", {}, file=FILE)[0][0]
    return None if found is None else str(found)


# Windows --------------------------------------------------------------------------------------------------------------
def read_cells(
    store: LoopStore, keys: Sequence[Key], dataids: Sequence[str], *, then: Then | None = None
) -> list[list[str]]:
    """For each dataset its letters at these dataids; NOTHING where there is no chunk."""
    found = [[NOTHING] * len(dataids) for _ in keys]
    asked = {"rows": json.dumps(keys), "dataids": json.dumps(dataids)}
    if then is None:
        for row, column, status in store.read("cells", asked, file=FILE):
            found[row][column] = LETTERS[status]
        return found
    at = {**asked, "since": then.since, "moment": then.moment}
    for row, column, *facts in store.read("cells_at", at, file=FILE):
        found[row][column] = _letter_then(*facts)
    return found


def _letter_then(
    now: str | None, is_old: bool, is_changed: bool, before_change: str | None, had_change: bool, after_had: str | None
) -> str:
    """What it was: what the first change since started from, or what it is where nothing changed since.

    Certain where the change before agrees, where it began to exist since, or where it has not been touched since.
    """
    status = before_change if is_changed else now
    untouched = before_change is None if is_changed else bool(is_old)
    is_certain = after_had == status if had_change else untouched
    if status is None:
        return NOTHING
    return LETTERS[status] if is_certain else LETTERS[status].lower()


def read_listed(
    store: LoopStore, key: Key, *, skip: int, limit: int, after: str = "", then: Then | None = None
) -> tuple[list[str], list[str]]:
    """Dataids by their text and their letters: of datasets whose dataids cannot be counted otherwise."""
    window = {"project": key[0], "datasetid": key[1], "after": after, "limit": limit, "skip": skip}
    rows = store.read("listed", window, file=FILE)
    dataids = [str(row[0]) for row in rows]
    if then is not None:
        return dataids, read_cells(store, [key], dataids, then=then)[0]
    return dataids, [LETTERS[row[1]] for row in rows]


def count_before(store: LoopStore, key: Key, dataid: str) -> int:
    """At which place of that list a dataid is, or would be."""
    of = {"project": key[0], "datasetid": key[1], "dataid": dataid}
    return int(store.read("listed_before", of, file=FILE)[0][0])


def list_lengths(store: LoopStore, key: Key) -> list[tuple[int, str, str, int]]:
    """How long the dataids are: length, lowest, highest, number. Looks at every chunk of the dataset."""
    rows = store.read("lengths", {"project": key[0], "datasetid": key[1]}, file=FILE)
    return [(int(length), str(low), str(high), int(number)) for length, low, high, number in rows]


def run_length(cells: Iterable[str]) -> str:
    """`RRRF` as `3RF`: a number before what comes more than once."""
    told: list[str] = []
    number, last = 0, ""
    for cell in [*cells, ""]:
        if cell == last:
            number += 1
            continue
        if last:
            told.append(f"{number}{last}" if number > 1 else last)
        number, last = 1, cell
    return "".join(told)


# Changes --------------------------------------------------------------------------------------------------------------
def list_changes(
    store: LoopStore, *, project: str | None, datasetid: str | None, since: int, limit: int
) -> list[Change]:
    """What chunks became after that change, the oldest first."""
    asked = {"project": project, "datasetid": datasetid, "since": since, "limit": limit}
    return [Change(*row) for row in store.read("changes", asked, file=FILE)]


def recent_changes(store: LoopStore, key: Key, *, look: int, limit: int) -> list[dict[str, Any]]:
    """The newest changes of a dataset among so many of the whole store."""
    asked = {"project": key[0], "datasetid": key[1], "look": look, "limit": limit}
    names = ("id", "at", "dataid", "old_status", "new_status", "runid", "actor")
    return [dict(zip(names, row, strict=True)) for row in store.read("recent_changes", asked, file=FILE)]


# The chunks of one dataset --------------------------------------------------------------------------------------------
def page_chunks(
    store: LoopStore, key: Key, *, status: str | None, after: str, limit: int, look: int
) -> tuple[list[dict[str, Any]], str | None]:
    """The next chunks by text, and from where to go on; None: that was the last.

    Of a rare status there may be none among those that it looked at, and more to come.
    """
    asked = {"project": key[0], "datasetid": key[1], "status": status, "after": after, "limit": limit, "look": look}
    rows = store.read("chunk_page", asked, file=FILE)
    found = [_located(store, key, _CHUNK, row) for row in rows]
    if len(found) == limit:
        return found, found[-1]["dataid"]
    last, looked = store.read("chunk_page_end", asked, file=FILE)[0]
    return found, str(last) if looked == look else None


def chunks_by_producer(store: LoopStore, key: Key, producer: Key, *, status: str, limit: int) -> list[dict[str, Any]]:
    """Chunks in a status that their producer has open work for: seeks."""
    asked = {
        "project": key[0], "datasetid": key[1], "job_project": producer[0], "jobid": producer[1], "status": status,
        "limit": limit,
    }  # fmt: skip
    return [_located(store, key, _CHUNK, row) for row in store.read("chunks_by_producer", asked, file=FILE)]


def list_manifests(store: LoopStore, key: Key, dataid: str, *, limit: int) -> list[dict[str, Any]]:
    """The versions of a chunk that were published, the newest first."""
    asked = {"project": key[0], "datasetid": key[1], "dataid": dataid, "limit": limit}
    return [_located(store, key, _MANIFEST, row) for row in store.read("manifests", asked, file=FILE)]


def _located(store: LoopStore, key: Key, names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    found = dict(zip(names, row, strict=True))
    return {**found, "location": store.whole_location(key[0], found["location"])}


def list_readers(store: LoopStore, key: Key, dataid: str, *, limit: int) -> Iterator[dict[str, Any]]:
    """Who reads a chunk: jobs on dataids, and the version that the last run of each has read, if recorded."""
    asked = {"project": key[0], "datasetid": key[1], "dataid": dataid, "limit": limit}
    for owner, jobid, of, status, runid, inputs in store.read("readers", asked, file=FILE):
        read = json.loads(inputs) if isinstance(inputs, str) else inputs or []
        version = next((one[3] for one in read if tuple(one[:3]) == (*key, dataid)), None)
        yield {"project": owner, "job": jobid, "dataid": of, "status": status, "run": runid, "version": version}
