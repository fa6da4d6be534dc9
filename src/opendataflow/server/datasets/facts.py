"""Datasets and their chunks: what is declared, how it stands, who makes and reads it, and what is in it."""

import datetime
import json
import re
from typing import Any, NamedTuple

from opendataflow.domain.checks.check import texts_of
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.job import Job
from opendataflow.domain.partitions.scheme import is_dataid
from opendataflow.domain.tables import find_table
from opendataflow.errors import UsageError
from opendataflow.operations.staleness import find_staleness
from opendataflow.server.datasets.grid import Grid, Row, find_row, read_block
from opendataflow.server.problems import NotThere
from opendataflow.store.claims import LoopStore
from opendataflow.store.operations import FILE as OPERATIONS
from opendataflow.store.operations import Key as JobKey
from opendataflow.store.published import FILE as PUBLISHED
from opendataflow.store.published import find_chunk, find_producer
from opendataflow.store.registry import find_job_row, get_dataset, history_of
from opendataflow.store.reports.check_results import find_findings
from opendataflow.store.reports.gaps import find_gaps
from opendataflow.store.reports.grid import (
    GAP,
    STATUSES,
    Key,
    chunks_by_producer,
    list_manifests,
    list_readers,
    page_chunks,
    recent_changes,
)
from opendataflow.store.reports.listing import list_datasets
from opendataflow.store.reports.stale import Count, count_stale

WHOLE = 5_000  # chunks of which all gaps are looked up, with the reason of each
LATEST = 1_000  # the last cells, in which gaps of a larger dataset are looked for
LOOK = 10_000  # chunks that a page may pass over in search of a status
CHANGES = 5_000  # changes of the store among which a dataset's newest are looked for
MOST = 100  # readers, versions and changes that are told
_PASSWORD = re.compile(r"(://[^:/@\s]+):[^@/\s]+@")
_SECRET = re.compile(r"pass|secret|token|credential|key", re.IGNORECASE)
_DONE = ("READY",)


class Found(NamedTuple):
    """Chunks in a status, or gaps; `more` says that there are others."""

    chunks: list[dict[str, Any]]
    more: bool


# Datasets -------------------------------------------------------------------------------------------------------------
def get_declared(store: LoopStore, project: str, datasetid: str) -> tuple[Dataset, str]:
    """The dataset and its project's root, or NotThere."""
    try:
        return get_dataset(store, datasetid, project=project)
    except UsageError:
        raise NotThere(f"project {project!r} has no dataset {datasetid!r}") from None


def dataset_facts(
    store: LoopStore, project: str, datasetid: str, *, at: datetime.datetime | None = None
) -> dict[str, Any]:
    """All about one dataset: definition, producer, consumers, counts, gaps, recent changes."""
    get_declared(store, project, datasetid)
    declared = next(one for one in list_datasets(store, project=project) if _key(one) == (project, datasetid))
    row = find_row(store, project, datasetid, at=at)
    if row is None:
        raise NotThere(f"project {project!r} has no dataset {datasetid!r}")
    gaps, all_gaps = dataset_gaps(store, row)
    return {
        "declared": without_secrets(declared),
        "checks": texts_of([*declared["checks"], *declared["pipeline_checks"]]),
        "row": row,
        "gaps": gaps,
        "all_gaps": all_gaps,
        "changes": recent_changes(store, row.key, look=CHANGES, limit=30),
        "stale": _count_stale(store, find_producer(store, get_declared(store, project, datasetid)[0]))._asdict(),
    }


def _count_stale(store: LoopStore, producer: Job | None) -> Count:
    """How many of its chunks are older than what they should be made from: what arrives from outside never is."""
    if producer is None:
        return Count(0, 0)
    found = count_stale(store, project=producer.project, jobid=producer.jobid)
    return found.get((producer.project, producer.jobid), Count(0, 0))


def _key(one: dict[str, Any]) -> Key:
    return one["project"], one["datasetid"]


def without_secrets(declared: dict[str, Any]) -> dict[str, Any]:
    """The declaration as anybody who may look may see it."""
    told = {name: value for name, value in declared.items() if name != "encryptedpass"}
    told["has_password"] = bool(declared["encryptedpass"])
    if told["url"]:
        told["url"] = _PASSWORD.sub(r"\1:***@", told["url"])
    told["options"] = {
        name: "***" if _SECRET.search(name) else value for name, value in (told["options"] or {}).items()
    }
    return told


def dataset_gaps(store: LoopStore, row: Row) -> tuple[list[dict[str, Any]], bool]:
    """What is expected, or known, and not READY, as ranges; False: only among its last cells, without the reasons."""
    if row.size <= WHOLE:
        return find_gaps(store, project=row.project, name=f"{row.project}.{row.datasetid}"), True
    start = max(0, row.size - LATEST)
    block = read_block(store, row, start=start, count=LATEST)
    found: list[dict[str, Any]] = []
    for dataid, letter in zip(block.dataids, block.cells, strict=True):
        status = STATUSES.get(letter, "")
        if not status or status in _DONE:
            found.append({})
        elif found and found[-1].get("status") == status:
            found[-1] |= {"last": dataid, "count": found[-1]["count"] + 1}
        else:
            found.append({"first": dataid, "last": dataid, "count": 1, "status": status, "reason": "", "next_step": ""})
    return [one for one in found if one], False


# Lists of chunks ------------------------------------------------------------------------------------------------------
def list_chunks(
    store: LoopStore, project: str, datasetid: str, *, status: str | None, after: str, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    """The next chunks by the text of their dataids, and from where to go on."""
    get_declared(store, project, datasetid)
    look = limit if status is None else LOOK
    return page_chunks(store, (project, datasetid), status=status, after=after, limit=limit, look=look)


def find_in_status(store: LoopStore, grid: Grid, status: str, *, limit: int = MOST) -> Found:
    """Chunks of the grid's lines in this status, line by line: by their producers, else near the ends."""
    found: list[dict[str, Any]] = []
    for row in grid.rows:
        wanted = row.counts.get(status, 0)
        if not wanted:
            continue
        if len(found) >= limit:
            return Found(found, True)
        mine = _in_status(store, row, status, min(wanted, limit - len(found)), grid)
        found += [{"project": row.project, "dataset": row.datasetid, **one} for one in mine]
        if len(mine) < min(wanted, limit):
            return Found(found[:limit], True)
    return Found(found[:limit], sum(row.counts.get(status, 0) for row in grid.rows) > len(found))


def _in_status(store: LoopStore, row: Row, status: str, wanted: int, grid: Grid) -> list[dict[str, Any]]:
    if status != GAP and grid.then is None:
        producer = find_producer(store, get_declared(store, *row.key)[0])
        if producer is not None:
            of = (producer.project, producer.jobid)
            mine = chunks_by_producer(store, row.key, of, status=status, limit=wanted)
            if len(mine) >= wanted:
                return mine
        return page_chunks(store, row.key, status=status, after="", limit=wanted, look=LOOK)[0]
    start = max(0, row.size - LATEST)
    block = read_block(store, row, start=start, count=LATEST, then=grid.then)
    cells = zip(block.dataids, block.cells, strict=True)
    return [{"dataid": one, "status": status} for one, letter in cells if STATUSES.get(letter.upper()) == status][
        -wanted:
    ]


# One chunk ------------------------------------------------------------------------------------------------------------
def chunk_facts(store: LoopStore, project: str, datasetid: str, dataid: str) -> dict[str, Any]:
    """All about one chunk; of one that is only expected, who would make it. NotThere when it cannot be."""
    dataset, root = get_declared(store, project, datasetid)
    chunk = find_chunk(store, dataset, dataid)
    if chunk is None and not (dataset.partitions and is_dataid(json.loads(dataset.partitions), dataid)):
        raise NotThere(f"{datasetid} has no chunk {dataid!r}, and none is expected")
    key = (project, datasetid)
    producer = find_producer(store, dataset)
    of_chunk = {"project": project, "datasetid": datasetid, "dataid": dataid}
    manifests = list_manifests(store, key, dataid, limit=MOST)
    current = next((one for one in manifests if chunk is not None and one["version"] == chunk.version), None)
    live = store.read("live_readers", of_chunk, file=PUBLISHED)
    readers = list(list_readers(store, key, dataid, limit=MOST + 1))
    return {
        "dataset": dataset,
        "dataid": dataid,
        "status": GAP if chunk is None else chunk.status.value,
        "chunk": chunk,
        "location": None if chunk is None else chunk.find_place(dataset, root=root),
        "manifest": current and {**current, "schema": json.loads(current["schema"]) if current["schema"] else None},
        "versions": manifests,
        "findings": find_findings(store, dataset, dataid),
        "checks": _checks(dataset, producer),
        "producer": producer and {"project": producer.project, "job": producer.jobid},
        "made_by": producer and find_job_row(store, producer.project, producer.jobid, dataid),
        "made_of": _made_of(store, of_chunk),
        "stale": producer and find_staleness(store, JobKey(producer.project, producer.jobid, dataid)),
        "reading": [{"job": jobid, "run": int(run)} for jobid, run in live],
        "readers": readers[:MOST],
        "more_readers": len(readers) > MOST,
        "history": history_of(store, project, "chunk", datasetid, dataid)[::-1][:MOST],
        "is_table": find_table(dataset) is not None,
        "is_file": dataset.location is not None and dataset.clock is None and find_table(dataset) is None,
    }


def _checks(dataset: Dataset, producer: Job | None) -> list[str]:
    """Those of the dataset and those of the pipeline that makes it."""
    own = json.loads(dataset.definition or "{}").get("checks") or ()
    of_pipeline: Any = producer.definition.get("checks") or () if producer is not None else ()
    return texts_of([*own, *of_pipeline])


def _made_of(store: LoopStore, of_chunk: dict[str, str]) -> list[dict[str, Any]]:
    rows = store.read("made_of", of_chunk, file=OPERATIONS)
    read = json.loads(rows[0][0]) if rows and isinstance(rows[0][0], str) else rows[0][0] if rows else []
    return [
        {"project": owner, "dataset": name, "dataid": dataid, "version": version}
        for owner, name, dataid, version, *_ in read[:MOST]
    ]
