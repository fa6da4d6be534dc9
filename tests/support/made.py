"""Runs of a pipeline without Spark: claimed, written and ended through the store, as the runner does it."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from opendataflow.domain.dataset import output_location
from opendataflow.domain.job import Job
from opendataflow.domain.runs.questions import Answer, Question, Verdict
from opendataflow.domain.runs.run import Claim, Ending, Owner, Result
from opendataflow.execution.export import show
from opendataflow.storage.files import manifest_of
from opendataflow.store import open_store
from opendataflow.store.claims import LoopStore
from support.projects import Project

YES = Verdict(tuple(Answer(question, True, "seen by the test") for question in Question))
OWNER = Owner("anna@host-1:1", "host-1", 1, 1, 2, 2)

Write = Callable[[str], None]


def opened(project: Project) -> LoopStore:
    return open_store(project.store, actor="tests")


def parquet(**columns: list[object]) -> Write:
    """Writes the run's directory as Spark does: one part and its hidden companions."""

    def write(location: str) -> None:
        os.makedirs(location, exist_ok=True)
        pq.write_table(pa.table(columns), f"{location}/part-00000.snappy.parquet")
        Path(location, "_SUCCESS").touch()

    return write


def text(content: str) -> Write:
    def write(location: str) -> None:
        Path(location).parent.mkdir(parents=True, exist_ok=True)
        Path(location).write_text(content)

    return write


def begin(store: LoopStore, jobid: str, dataid: str) -> tuple[Job, Claim, str]:
    """Claim the dataid; the job, the claim, and where the run writes."""
    job = store.get_job(jobid)
    if store.find_candidate(job, dataid) is None:
        store.expect_one(job, dataid)
    candidate = store.find_candidate(job, dataid)
    assert candidate is not None
    claim = store.claim(job, candidate, YES, OWNER)
    assert claim is not None
    (output,) = job.outputs
    place = output_location(job.kind, output.dataset, dataid, root=job.root, runid=claim.runid)
    assert place is not None
    return job, claim, place


def make(
    project: Project, jobid: str, dataid: str, write: Write, *, schema: str | None = None, rows: int | None = None,
    fails: str = "",
) -> int:  # fmt: skip
    """One run of the pipeline on the dataid, published or failed; its number."""
    with closing(opened(project)) as store:
        row = project.sql(f"SELECT status FROM job_status WHERE jobid = '{jobid}' AND dataid = '{dataid}'")
        if row and row[0][0] in ("COMPLETE", "FAILED"):
            project.sql(f"UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = '{jobid}' AND dataid = '{dataid}'")
        job, claim, place = begin(store, jobid, dataid)
        write(place)
        if fails:
            store.finish(claim, Result(Ending.FAILED, 1, message=fails))
            return claim.runid
        (output,) = job.outputs
        manifest = manifest_of(place)._replace(schema=schema, rows=rows)
        store.finish(claim, Result(Ending.COMPLETE, 0, manifests=((*output.dataset[:2], manifest),)))
        show(output.dataset, place, claim)
        return claim.runid
