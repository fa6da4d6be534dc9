"""Before a job runs: its sources that are simply there, like the sources/x.csv of a project or a table, are taken in.

Files of datasets that say how theirs arrive (`arrival:`) are looked for as a scan does. A source that nobody declares
is READY as soon as it is there; when it was changed since, its new version is declared READY, and what was made of
the whole of it is made again. What reads it day by day goes on with the new version, and keeps what it has made.

The chunks of a table that nobody makes are READY by themselves: a slot of time once it is over, all others at once.
They are read as they are when a job runs, and not looked at before.
"""

import datetime
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from opendataflow.arrivals.scan import Arrival, State, scan_dataset, why_not
from opendataflow.domain.dataset import Dataset, chunk_location
from opendataflow.domain.job import Job
from opendataflow.domain.partitions.scheme import FULL, expected_dataids
from opendataflow.domain.tables import find_table, is_taken_in, table_location
from opendataflow.errors import Refused, UsageError
from opendataflow.storage.files import manifest_of
from opendataflow.store.arrivals import known_chunks, open_chunks
from opendataflow.store.claims import LoopStore
from opendataflow.store.operations import Key, resubmit
from opendataflow.store.registry import assert_ready


def take_in_sources(store: LoopStore, job: Job, *, say: Callable[[str], None]) -> None:
    """Take in the files and tables of this job's own inputs; what is new, missing or wrong is told.

    Cheap when nothing changed: a stat for each file. Inputs of other projects are theirs to take in.
    """
    own = [link.dataset for link in job.inputs if link.dataset.project == job.project]
    take_in_datasets(store, own, job.root, say=say)


def take_in_datasets(store: LoopStore, datasets: Iterable[Dataset], root: str, *, say: Callable[[str], None]) -> None:
    """Look for what is new of those of the datasets that say how theirs arrive, that nobody declares, or are tables."""
    waited_for = [one for one in datasets if is_taken_in(one)]
    if not waited_for:
        return
    producers = {(row[0], row[1]): str(row[3]) for row in store.read("producers", {}, file="registry")}
    for dataset in waited_for:
        if find_table(dataset) is not None:
            _tell_opened(dataset, open_table(store, dataset, root, producers.get(dataset[:2])), say)
            continue
        if why_not(dataset, root, producers.get(dataset[:2])):
            continue
        for arrival in scan_dataset(store, dataset, root, now=store.clock()):
            if arrival.state is State.CHANGED and _is_taken_again(dataset):
                _take_again(store, dataset, arrival.dataid, root, say)
            else:
                _tell(dataset, arrival, say)
        _tell_missing(dataset, root, say)


# Tables ---------------------------------------------------------------------------------------------------------------
def open_table(
    store: LoopStore, dataset: Dataset, root: str, producer: str | None, *, dry_run: bool = False
) -> list[Arrival]:
    """Declare READY what is due of a table that nobody makes; what the store knows of already stays as it is."""
    if producer is not None or dataset.partitions is None or find_table(dataset) is None:
        return []
    now = datetime.datetime.fromtimestamp(store.clock(), datetime.UTC)
    known = known_chunks(store, dataset)
    due = [one for one in expected_dataids(json.loads(dataset.partitions), now=now) if one not in known]
    if due and not dry_run:
        open_chunks(store, dataset, due)
    return [
        Arrival(dataset.datasetid, dataid, State.READY, table_location(dataset, dataid, root=root) or "")
        for dataid in due
    ]


def _tell_opened(dataset: Dataset, opened: list[Arrival], say: Callable[[str], None]) -> None:
    if opened:
        first, last = opened[0].dataid, opened[-1].dataid
        which = first if first == last else f"{first} to {last}, {len(opened)} chunks"
        say(f"{dataset.datasetid}/{which} READY: a table is read as it is when a job runs")


# Files ----------------------------------------------------------------------------------------------------------------
def _is_taken_again(dataset: Dataset) -> bool:
    arrival: dict[str, Any] = json.loads(dataset.definition or "{}").get("arrival") or {}
    return bool(arrival.get("again"))


def _tell(dataset: Dataset, arrival: Arrival, say: Callable[[str], None]) -> None:
    waits = arrival.state is State.WAITING and _is_taken_again(dataset)
    if arrival.state is State.READY or arrival.code or waits:
        what = f"{arrival.datasetid}/{arrival.dataid}".rstrip("/")
        text = f": {arrival.text}" if arrival.text else ""
        say(f"{what} {arrival.state}{f' {arrival.code}' if arrival.code else ''}{text}")


def _tell_missing(dataset: Dataset, root: str, say: Callable[[str], None]) -> None:
    if not _is_taken_again(dataset):
        return
    place = chunk_location(dataset, FULL, root=root)
    if place is not None and not os.path.lexists(place):
        say(f"{dataset.datasetid} is {place}, and there is no such file; put it there")


# A new version --------------------------------------------------------------------------------------------------------
def _take_again(store: LoopStore, dataset: Dataset, dataid: str, root: str, say: Callable[[str], None]) -> None:
    """Declare READY what the file is now. Its readers are resubmitted first: a crash in between repeats both."""
    place = chunk_location(dataset, dataid, root=root) or ""
    again, kept = _readers(store, dataset, dataid)
    resubmit(store, again)
    try:
        assert_ready(store, dataset, dataid, manifest_of(place))
    except (Refused, UsageError) as error:
        say(f"{dataset.datasetid}/{dataid} changed, and is taken in later: {error}")
        return
    except OSError as error:
        say(f"{dataset.datasetid}/{dataid}: {place}: {error.strerror}")
        return
    made_again = f"; to be made again: {', '.join(f'{key.jobid}/{key.dataid}' for key in again)}" if again else ""
    say(f"{dataset.datasetid}/{dataid} changed, and was taken in anew{made_again}")
    for jobid, number in kept.items():
        say(f"{number} dataids of {jobid} keep what the version before made; `dataflow resubmit {jobid} DATAID…`")


def _readers(store: LoopStore, dataset: Dataset, dataid: str) -> tuple[list[Key], dict[str, int]]:
    """What was made of the whole, with what was made of that; and how many dataids other jobs made with it."""
    reads: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    makes: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for project, jobid, itemtype, *data in store.read("all_links", {"project": None}, file="overview"):
        if itemtype == "IN":
            reads[data[0], data[1]].append((project, jobid))
        else:
            makes[project, jobid].append((data[0], data[1]))
    again: dict[Key, None] = {}
    kept: dict[str, int] = {}
    waiting = [(dataset.project, dataset.datasetid)]
    while waiting:
        for project, jobid in reads[waiting.pop()]:
            key = Key(project, jobid, dataid)
            if key in again:
                continue
            if store.read("row_of", key._asdict(), file="operations"):
                again[key] = None
                waiting += makes[project, jobid]
            elif not any(link.dataset.clock for link in store.get_job(jobid, project=project).inputs):
                made = store.read("begun_rows", {"project": project, "jobid": jobid}, file="operations")
                kept |= {jobid: len(made)} if made else {}
    return list(again), kept
