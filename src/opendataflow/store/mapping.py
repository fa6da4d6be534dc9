"""Inputs by offset, window, rollup or all: which chunks a dataid reads, written down as rows of job_input."""

import datetime
import json

from opendataflow.domain.job import Job, Link
from opendataflow.domain.partitions.maps import mapped_dataids
from opendataflow.domain.streams import find_sealed_stream
from opendataflow.store.base import BaseStore, Transaction


def reads(store: BaseStore, job: Job, dataid: str) -> list[tuple[Link, tuple[str, ...]]]:
    """For each such input of the job, the dataids that this one reads, as things are now."""
    found = []
    if (stream := find_sealed_stream(job)) is not None:
        slot = {"project": job.project, "jobid": stream, "slot": dataid}
        batches = tuple(str(row[0]) for row in store.read("batches_of_slot", slot, file="streams"))
        return [(link, batches) for link in job.mapped]
    for link in job.mapped:
        scheme = link.dataset.partitions
        known: list[str] = []
        if link.map == "all" and (scheme is None or "sequence" in scheme):
            of_dataset = {"project": link.dataset.project, "datasetid": link.dataset.datasetid}
            known = [row[0] for row in store.read("known_dataids", of_dataset)]
        dataids = mapped_dataids(
            link.map, dataid, scheme=json.loads(job.partitions or "null"), input_scheme=json.loads(scheme or "null"),
            now=datetime.datetime.fromtimestamp(store.clock(), datetime.UTC), known=known,
        )  # fmt: skip
        found.append((link, dataids))
    return found


def map_in(store: BaseStore, tx: Transaction, job: Job, dataid: str) -> None:
    """Write down what the dataid reads and count what of it is missing. Chunks must be frozen."""
    key = {"project": job.project, "jobid": job.jobid, "dataid": dataid}
    tx.run("forget_inputs", key)
    position = 0
    for link, dataids in reads(store, job, dataid):
        of_link = {"dataset_project": link.dataset.project, "datasetid": link.dataset.datasetid}
        for one in dataids:
            edge = {**of_link, "project": job.project, "jobid": job.jobid, "job_dataid": dataid}
            tx.run("add_input", {**edge, "dataid": one, "position": position})
            position += 1
    tx.run("mapped", key)
    tx.run("recount", key)


def has_grown(store: BaseStore, job: Job, dataid: str) -> bool:
    """True when more is expected by now than was written down: `all` of an input that goes on."""
    of_dataid = {"project": job.project, "jobid": job.jobid, "dataid": dataid}
    number = sum(len(dataids) for _, dataids in reads(store, job, dataid))
    return bool(store.read("count_inputs", of_dataid)[0][0] != number)
