"""Expected and not there: the dataids of datasets and jobs that should be done by now, as ranges with the reason."""

import datetime
import json
from collections.abc import Iterable, Iterator
from typing import Any

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.job import Job
from opendataflow.domain.partitions import expected_dataids, is_dataid, natural_key
from opendataflow.store.loop import LoopStore
from opendataflow.store.published import find_dataset, find_producer

FILE = "overview"


def find_gaps(store: LoopStore, *, project: str | None, name: str | None) -> list[dict[str, Any]]:
    """The gaps of one job or dataset, or of every dataset that has any, in order.

    A gap is a range of dataids that follow each other: where it is, how many, how they stand and why.
    """
    if name is None:
        rows = store.read("datasets", {"project": project}, file=FILE)
        named = [str(row[1]) if project is not None else f"{row[0]}.{row[1]}" for row in rows if row[2] and not row[3]]
        return [gap for one in named for gap in _of_dataset(store, find_dataset(store, one, project=project)[0])]
    if store.has_job(name, project=project):
        return list(_of_job(store, store.get_job(name, project=project)))
    return list(_of_dataset(store, find_dataset(store, name, project=project)[0]))


def _of_job(store: LoopStore, job: Job) -> Iterator[dict[str, Any]]:
    scheme = json.loads(job.partitions or "null")
    found = _open(store, job)
    expected = _expected(store, scheme, found) if scheme is not None else sorted(found, key=natural_key)
    upto = natural_key(job.expected_upto) if job.expected_upto is not None else None

    def told(dataid: str) -> tuple[str, str] | None:
        # What has no open row is done, unless nobody has made its row: a run makes those of all slots that are over.
        is_new = scheme is not None and (upto is None or natural_key(dataid) > upto)
        return found.get(dataid, ("GAP", "no run has looked for it yet") if is_new else None)

    yield from _ranges({"job": job.jobid, "project": job.project}, ((one, told(one)) for one in expected))


def _of_dataset(store: LoopStore, dataset: Dataset) -> Iterator[dict[str, Any]]:
    scheme = json.loads(dataset.partitions or "null")
    of_dataset = {"project": dataset.project, "datasetid": dataset.datasetid}
    chunks = {
        str(dataid): (str(status), problem)
        for dataid, status, problem in store.read("chunk_statuses", of_dataset, file=FILE)
    }
    producer = find_producer(store, dataset)
    made = _open(store, producer) if producer is not None else {}
    expected = _expected(store, scheme, chunks) if scheme is not None else sorted(chunks, key=natural_key)

    def told(dataid: str) -> tuple[str, str] | None:
        status, problem = chunks.get(dataid, ("GAP", None))
        if status == "READY":
            return None
        if producer is None:
            return status, str(problem or "it has not arrived")
        if dataid not in made:
            return status, f"{producer.jobid} has no run for it yet"
        return status, f"{producer.jobid} is {made[dataid][0]}{made[dataid][1] and ', '}{made[dataid][1]}"

    yield from _ranges(
        {"dataset": dataset.datasetid, "project": dataset.project}, ((one, told(one)) for one in expected)
    )


def _open(store: LoopStore, job: Job) -> dict[str, tuple[str, str]]:
    """What of the job is not done: its status and what it waits for."""
    rows = store.read("open_rows", {"project": job.project, "jobid": job.jobid}, file=FILE)
    return {str(dataid): (str(status), _why(waiting, parked_until)) for dataid, status, waiting, parked_until in rows}


def _why(waiting: int, parked_until: str | None) -> str:
    if waiting > 0:
        return f"waits for {waiting} inputs" if waiting > 1 else "waits for an input"
    return "is tried again by itself" if parked_until else ""


def _expected(store: LoopStore, scheme: Any, known: Iterable[str]) -> list[str]:
    now = datetime.datetime.fromtimestamp(store.clock(), datetime.UTC)
    inside = [dataid for dataid in known if is_dataid(scheme, dataid)]
    highest = max(inside, key=natural_key, default=None)
    return list(expected_dataids(scheme, now=now, highest=highest))


def _ranges(of: dict[str, str], dataids: Iterable[tuple[str, tuple[str, str] | None]]) -> Iterator[dict[str, Any]]:
    """Neighbours that stand alike, as one."""
    current: dict[str, Any] | None = None
    for dataid, told in dataids:
        if current is not None and (told is None or told != (current["status"], current["reason"])):
            yield current
            current = None
        if told is None:
            continue
        if current is None:
            current = {**of, "first": dataid, "last": dataid, "count": 0, "status": told[0], "reason": told[1]}
        current |= {"last": dataid, "count": current["count"] + 1}
    if current is not None:
        yield current
