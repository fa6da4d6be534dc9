"""A dataid that is COMPLETE and is asked for: whether it has to run again, and because of what."""

from typing import NamedTuple

from opendataflow.domain.job import Candidate, Job, JobStatus
from opendataflow.domain.runs.questions import CODES, Question
from opendataflow.execution.prepare import find_changed
from opendataflow.execution.work import Outcome
from opendataflow.operations.staleness import bring_up_to_date
from opendataflow.operations.verify import describe_finding, look_at_chunk
from opendataflow.storage.verify import Finding
from opendataflow.store.claims import LoopStore
from opendataflow.store.operations import Key, resubmit
from opendataflow.store.published import find_chunk
from opendataflow.store.reports.stale import describe_stale, find_stale

_ENDED = frozenset({JobStatus.COMPLETE, JobStatus.FAILED})


class Again(NamedTuple):
    """What a run of an ended dataid is to do: it is claimable now because of `reasons`, or `outcome` says why not."""

    reasons: list[str]
    outcome: Outcome | None


def prepare_again(store: LoopStore, job: Job, dataid: str, *, again: bool) -> Again:
    """Set an ended dataid to RESUBMIT where it has to run again: its code, inputs or output changed, or `again` asks.

    What never ran, waits or runs is left as it is, and so is what FAILED, unless `again` asks for it.
    """
    candidate = store.find_candidate(job, dataid)
    if candidate is None or candidate.status not in _ENDED:
        return Again([], None)
    key = Key(job.project, job.jobid, dataid)
    if not again and candidate.status is JobStatus.FAILED:
        return Again([], None)
    if changed := find_changed(job, candidate.inputs):
        code, number = CODES[Question.RIGHT]
        chunk = changed[0].key
        told = (
            f"{code}: {chunk} is not what was declared; "
            f"`dataflow ready {chunk.datasetid} {chunk.dataid}` declares the new version"
        )
        return Again([], Outcome(number, code, job.jobid, dataid, told))
    reasons = ["--again"] if again else _reasons(store, job, candidate, key)
    if not reasons:
        run = _run_of(store, job, dataid)
        since = f" since run {run}" if run is not None else ": it was declared, no run made it"
        told = f"up to date{since}; `--again` runs it anyway"
        return Again([], Outcome(0, str(candidate.status), job.jobid, dataid, told))
    resubmit(store, [key], only=_ENDED, reason=f"run again: {'; '.join(reasons)}")
    return Again(reasons, None)


def _reasons(store: LoopStore, job: Job, candidate: Candidate, key: Key) -> list[str]:
    bring_up_to_date(store, project=job.project, jobid=job.jobid)
    found = find_stale(store, key)
    reasons = describe_stale(store, found._replace(upstream=False)) if found is not None else []
    for output in candidate.outputs:
        finding = look_at_chunk(store, output.key, contents=False)
        if finding in (Finding.GONE, Finding.CHANGED):
            reasons.append(describe_finding(output.key, finding))
    return reasons


def _run_of(store: LoopStore, job: Job, dataid: str) -> int | None:
    chunks = (find_chunk(store, link.dataset, dataid) for link in job.outputs)
    return next((chunk.run for chunk in chunks if chunk is not None and chunk.run is not None), None)
