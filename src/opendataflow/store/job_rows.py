"""The rows of one registered job: itself, its links, and the dataids that it expects."""

import datetime
import json
from typing import Any

from opendataflow.domain.partitions.scheme import expected_dataids, is_dataid
from opendataflow.domain.registration import JobSpec, LinkSpec
from opendataflow.store.base import Transaction


def apply_job(
    tx: Transaction,
    project: str,
    job: JobSpec,
    known: tuple[Any, ...] | None,
    known_links: list[tuple[Any, ...]],
    changes: list[str],
    now: Any,
) -> None:
    """Register the job as it is declared; `known` and `known_links` are what the store has of it."""
    of = {"project": project, "jobid": job.jobid}
    fields = job._asdict()
    links: tuple[LinkSpec, ...] = fields.pop("links")
    declared = tuple(fields.values())[1:]
    relinked = [tuple(link) for link in sorted(links, key=lambda one: one.itemtype)] != known_links
    if known != declared:
        tx.run("put_job", {**of, **fields, "now": now})
    elif not relinked:
        return
    changes.append(f"{'+' if known is None else '~'} job {job.jobid}")
    if relinked:
        # Counters can be counted only while no chunk moves.
        tx.run("freeze_chunks", {})
        if known_links:
            tx.run("delete_links", of)
        tx.run_many("put_link", [{**of, **link._asdict(), "position": at} for at, link in enumerate(links)])
        tx.run("forget_inputs", {**of, "dataid": None})
        tx.run("recount_shared", of)
        tx.run("adopt_ready", of)
        tx.run("unmap", of)
        tx.run("recount", {**of, "dataid": None})
    if known is not None and known[3] != job.partitions and job.partitions is not None:
        scheme = json.loads(job.partitions)
        for row in tx.rows("untouched_rows", of):
            if not is_dataid(scheme, row[0]):
                tx.run("delete_untouched", {**of, "dataid": row[0]})


def relink(tx: Transaction, project: str, was: JobSpec, becomes: JobSpec, *, now: Any) -> None:
    """Register a job otherwise than it is; what it waits for is counted anew."""
    known = tuple(value for name, value in was._asdict().items() if name not in ("jobid", "links"))
    apply_job(tx, project, becomes, known, [tuple(link) for link in was.links], [], now)


def expect_dataids(tx: Transaction, project: str, job: JobSpec, now: datetime.datetime) -> None:
    """Give every dataid that the job's scheme expects by now its row."""
    if job.partitions is None:
        return
    of = {"project": project, "jobid": job.jobid}
    upto = tx.rows("expected_upto", of)[0][0]
    dataids = list(expected_dataids(json.loads(job.partitions), now=now, after=upto))
    tx.run_many("expect", [{**of, "dataid": dataid} for dataid in dataids])
    if dataids:
        tx.run("set_expected_upto", {**of, "dataid": dataids[-1]})
