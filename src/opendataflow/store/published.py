"""What is published of a dataset: its chunks as consumers see them, who makes them, and taking them back."""

import datetime
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.dataset import Dataset, chunk_location, why_no_place
from opendataflow.domain.job import Job, JobStatus
from opendataflow.domain.partitions.scheme import TIME_KINDS, find_kind, natural_key
from opendataflow.domain.runs.questions import CODES, Question
from opendataflow.errors import Refused, UsageError
from opendataflow.store.claims import LoopStore, Transaction
from opendataflow.store.registry import get_dataset
from opendataflow.store.rows import Params

FILE = "published"


class Published(NamedTuple):
    """A chunk as the store knows it; what is READY is what consumers read."""

    dataid: str
    status: ChunkStatus
    location: str | None  # where it was published; None: where the dataset's path says
    rows: int | None
    bytes: int | None
    run: int | None  # None for data that was declared from outside
    published_at: str
    version: int | None
    schema: str | None  # JSON: column → type
    problem: str | None
    modified: str

    def place(self, dataset: Dataset, *, root: str) -> str | None:
        """Where this very chunk is: as it was published, or as the template says.

        Raises UsageError where a row that was inserted by hand has a dataid that is none of the dataset's.
        """
        return self.location or chunk_location(dataset, self.dataid, root=root)

    def find_place(self, dataset: Dataset, *, root: str) -> str | None:
        """As `place`, for lists: None where that would raise."""
        return self.location if self.location or why_no_place(dataset, self.dataid) else self.place(dataset, root=root)


class Version(NamedTuple):
    """A version that was published once, and until when the store pointed at it."""

    dataid: str
    version: int
    superseded_at: str | None  # None: nothing was published after it


class RunEnd(NamedTuple):
    project: str
    jobid: str
    dataid: str
    status: str
    ended_at: str | None


# Datasets -------------------------------------------------------------------------------------------------------------
def find_dataset(store: LoopStore, name: str, *, project: str | None) -> tuple[Dataset, str]:
    """The dataset of that name and its project's root; `other.orders` is another project's.

    Raises UsageError with the nearest name that there is.
    """
    known = [(str(row[0]), str(row[1])) for row in store.read("dataset_names", {}, file=FILE)]
    owners = [owner for owner, datasetid in known if datasetid == name and project in (None, owner)]
    if len(owners) > 1:
        several = ", ".join(f"{owner}.{name}" for owner in owners)
        raise UsageError(f"several projects have a dataset {name!r}; say which: {several}")
    if owners:
        return get_dataset(store, name, project=owners[0])
    other, _, theirs = name.partition(".")
    if (other, theirs) in known:
        return get_dataset(store, theirs, project=other)
    names = [datasetid if project in (None, owner) else f"{owner}.{datasetid}" for owner, datasetid in known]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "see `dataflow dataset list`"
    hint = store.as_job(name, project) or hint
    raise UsageError(f"dataset {name!r} is not registered; {hint}")


def find_producer(store: LoopStore, dataset: Dataset) -> Job | None:
    """The job that makes the dataset; None for data that arrives from outside."""
    rows = store.read("producer_of", _of(dataset), file=FILE)
    return store.get_job(rows[0][1], project=rows[0][0]) if rows else None


# Chunks ---------------------------------------------------------------------------------------------------------------
def list_chunks(store: LoopStore, dataset: Dataset, *, status: ChunkStatus | None = None) -> list[Published]:
    """Every chunk of the dataset, or those in this status, as of one moment, in order."""
    rows = store.read("chunks", {**_of(dataset), "status": None if status is None else status.value}, file=FILE)
    return sorted((_published(store, dataset, row) for row in rows), key=lambda chunk: natural_key(chunk.dataid))


def find_chunk(store: LoopStore, dataset: Dataset, dataid: str) -> Published | None:
    rows = store.read("chunk", {**_of(dataset), "dataid": dataid}, file=FILE)
    return _published(store, dataset, rows[0]) if rows else None


def find_latest(store: LoopStore, dataset: Dataset) -> Published | None:
    """The last READY chunk: of the latest slot, or with the highest number."""
    rows = store.read("last_ready", _of(dataset), file=FILE)
    if not rows:
        return None
    dataid = str(rows[0][0])
    if find_kind(dataid) not in TIME_KINDS:  # as text, 9 comes after 10
        dataids = [str(row[0]) for row in store.read("ready_dataids", _of(dataset), file=FILE)]
        dataid = max(dataids, key=natural_key, default=dataid)
    return find_chunk(store, dataset, dataid)


def _published(store: LoopStore, dataset: Dataset, row: Sequence[Any]) -> Published:
    dataid, status, kept, rows, size, run, published_at, version, *rest = row
    location = store.whole_location(dataset.project, kept)
    if run is None and version is not None and location and f"/_runs/{version}" in location:
        run = version  # its record was cleaned away
    return Published(dataid, ChunkStatus(status), location, rows, size, run, published_at, version, *rest)


# Versions that nobody needs -------------------------------------------------------------------------------------------
def live_runs(store: LoopStore, job: Job) -> set[int]:
    """The runs of the job that are under way."""
    rows = store.read("live_runs", {"project": job.project, "jobid": job.jobid}, file=FILE)
    return {int(row[0]) for row in rows}


def dataids_read(store: LoopStore, dataset: Dataset) -> set[str]:
    """The chunks that live runs read now."""
    return {str(row[0]) for row in store.read("dataids_read", _of(dataset), file=FILE)}


def list_versions(store: LoopStore, dataset: Dataset) -> list[Version]:
    """Every version that was published, by chunk, the oldest first."""
    rows = store.read("versions", _of(dataset), file=FILE)
    following = [*rows[1:], (None, None, None)][: len(rows)]
    return [
        Version(dataid, version, after[2] if after[0] == dataid else None)
        for (dataid, version, _), after in zip(rows, following, strict=True)
    ]


def find_run_end(store: LoopStore, runid: int) -> RunEnd | None:
    """How a run ended; None when there is no record of it."""
    rows = store.read("run_end", {"runid": runid}, file=FILE)
    return RunEnd(*rows[0]) if rows else None


def seconds(text: str) -> float:
    """Seconds since the epoch of a time as stores show it."""
    return datetime.datetime.fromisoformat(text).timestamp()


# Taking back ----------------------------------------------------------------------------------------------------------
def take_back(store: LoopStore, dataset: Dataset, job: Job, dataids: Iterable[str]) -> None:
    """Close the chunks to consumers, have their job make them again, and point at their files no more: all or none.

    Refused (LOCKED) while one of them is being made or read.
    """
    wanted = list(dataids)

    def change() -> None:
        with store.transaction(file=FILE, actor=f"{store.actor} output clear") as tx:
            for dataid in wanted:
                _take_back_in(tx, store, dataset, job, dataid)

    store.again(change)


def _take_back_in(tx: Transaction, store: LoopStore, dataset: Dataset, job: Job, dataid: str) -> None:
    chunk = {**_of(dataset), "dataid": dataid}
    at_job = {"project": job.project, "jobid": job.jobid, "dataid": dataid}
    rows = tx.rows("hold_job_row", at_job)
    if rows and rows[0][0] == JobStatus.RUNNING:
        raise _locked(f"{job.jobid}/{dataid} is RUNNING by {rows[0][1]}")
    held = tx.rows("hold_chunk", chunk)
    if held and held[0][0] == ChunkStatus.RUNNING:
        raise _locked(f"{dataset.datasetid}/{dataid} is being made")
    if readers := tx.rows("live_readers", chunk):
        who = ", ".join(f"{jobid} (run {run})" for jobid, run in readers)
        raise _locked(f"{dataset.datasetid}/{dataid} is being read by {who}")
    now = store.time()
    if rows:
        tx.run("resubmit_producer", {**at_job, "now": now})
    tx.run("take_back", {**chunk, "now": now})


def _locked(what: str) -> Refused:
    code, exit_code = CODES[Question.SAFE]
    return Refused(f"{code}: {what}; nothing was cleared; try again when that has ended", exit_code=exit_code)


def _of(dataset: Dataset) -> Params:
    return {"project": dataset.project, "datasetid": dataset.datasetid}
