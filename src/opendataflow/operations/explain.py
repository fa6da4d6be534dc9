"""Why a dataid ran, failed or did not run: answers, blocker, next step."""

import datetime
import json
from typing import Any

from opendataflow.domain.job import Candidate, Job, JobStatus, Limit
from opendataflow.domain.runs.questions import Question, Verdict
from opendataflow.domain.runs.refusals import next_step, scaled_name
from opendataflow.domain.streams import find_settings
from opendataflow.domain.tables import find_table
from opendataflow.errors import UsageError
from opendataflow.execution.prepare import prepare
from opendataflow.execution.root_marker import why_wrong_root
from opendataflow.operations.staleness import find_staleness
from opendataflow.operations.verify import find_damage
from opendataflow.operations.verify import next_step as next_step_of
from opendataflow.store.claims import LoopStore
from opendataflow.store.operations import Key
from opendataflow.store.registry import find_job_row, history_of, runs_of
from opendataflow.store.reports.verify import Damage


def explain(store: LoopStore, job: Job, dataid: str) -> dict[str, Any]:
    """Everything known about a dataid: status, the five answers (of the run, or as they are now), runs, next step."""
    candidate = store.find_candidate(job, dataid)
    row = find_job_row(store, job.project, job.jobid, dataid)
    if candidate is None or row is None:
        raise UsageError(f"{job.jobid} has no dataid {dataid!r} yet; see `dataflow status {job.jobid}`")
    stale = find_staleness(store, Key(job.project, job.jobid, dataid))
    runs = runs_of(store, job.project, job.jobid, dataid)
    for run in runs:
        run["seconds"] = _seconds(run["claimed_at"], run["ended_at"])
    is_published = candidate.status is JobStatus.COMPLETE
    keys = [output.key for output in candidate.outputs] + [chunk.key for chunk in candidate.inputs]
    damage = find_damage(store, keys)
    waits = candidate.status in (JobStatus.PENDING, JobStatus.RESUBMIT, JobStatus.HOLD)
    verdict = prepare(job, candidate)
    if waits or not runs:
        answers, asked = verdict.as_json(), "The five questions, asked now"
    else:
        answers, asked = (
            json.loads(runs[0]["answers"]),
            f"The five questions, as answered before run {runs[0]['runid']}",
        )
    return {
        "jobid": job.jobid,
        "dataid": dataid,
        "status": str(candidate.status),
        "detail": _detail(candidate, row, runs),
        "schedule": _schedule(store, job),
        "sharing": find_sharing(store, job),
        "asked": asked,
        "answers": answers,
        "last_refusal": json.loads(row["refusal"]) if row["refusal"] else None,
        "runs": [{key: run[key] for key in run if key not in ("answers", "log_tail")} for run in runs],
        "history": history_of(store, job.project, "job", job.jobid, dataid),
        "log_tail": runs[0]["log_tail"] if runs and runs[0]["status"] in ("FAILED", "RESUBMIT", "LOST") else "",
        "stale": stale,
        "damage": [
            {"chunk": str(one.key), "finding": one.finding, "seen_at": one.seen_at, "fix": next_step_of(one)}
            for one in damage
        ],
        "fix": _fix(job, candidate, verdict if waits else None) or _fix_data(damage, stale if is_published else None),
    }


def find_sharing(store: LoopStore, job: Job) -> str:
    """Why its chunks share no Spark job although it says so; empty where they may."""
    from opendataflow.project.code_digest import code_digest
    from opendataflow.store.reports.pipelines import find_unshared

    noted = find_unshared(store, job.project, job.jobid) if job.definition.get("chunks_per_job") else None
    if noted is None or noted[0] != code_digest(job.home):
        return ""
    return f"its chunks share no Spark job until its code changes: {noted[2]} (run {noted[1]})"


def _detail(candidate: Candidate, row: dict[str, Any], runs: list[dict[str, Any]]) -> str:
    if candidate.status is JobStatus.RUNNING:
        again = "; RESUBMIT was set, so it runs again afterwards" if row["again"] else ""
        return f"by {candidate.owner}, lease until {candidate.lease_until}{again}"
    if candidate.parked_until:
        return f"parked until {candidate.parked_until}"
    if candidate.status is JobStatus.FAILED and runs:
        return str(runs[0]["message"])
    return f"since {row['modified']}"


def _schedule(store: LoopStore, job: Job) -> str:
    """By which clock it goes and who said so; empty for a job that goes by none."""
    if not any(link.dataset.clock for link in job.inputs):
        return ""
    from opendataflow.store.schedules import schedule_of, told

    return told(schedule_of(store, job))


def _fix_data(damage: list[Damage], stale: dict[str, Any] | None) -> str:
    """What would make published data whole, or new."""
    if damage:
        return next_step_of(damage[0])
    return f"`{stale['fix']}`" if stale is not None else ""


def _fix(job: Job, candidate: Candidate, verdict: Verdict | None) -> str:
    jobid, dataid = job.jobid, candidate.dataid
    if candidate.status is JobStatus.FAILED:
        return f"mend the cause, then `dataflow resubmit {jobid} {dataid}`"
    if verdict is None:
        return ""
    refusal = verdict.refusal
    if refusal is None and find_settings(job) is not None:
        return f"nothing blocks it: `dataflow stream run {jobid}`"
    if refusal is None:
        return f"nothing blocks it: `dataflow run {jobid} --dataid {dataid}`"
    if refusal.question is Question.READY:
        return _fix_missing(job, candidate)
    if refusal.question is Question.RIGHT and candidate.earlier not in (None, dataid):
        return f"`dataflow why {jobid} {candidate.earlier}`"
    chunk = next((one for one in candidate.inputs if str(one.key) in refusal.evidence), None)
    if refusal.question is Question.SAFE:
        if candidate.paused_by:
            return f"`dataflow release {jobid}`"
        if candidate.status is JobStatus.HOLD:
            return f"`dataflow release {jobid} {dataid}`"
        if candidate.pauses:
            return "`dataflow resume all`"
        full = [one for one in candidate.limits or () if one.running >= one.max_runs]
        if full:
            return _fix_full(min(full, key=lambda one: one.max_runs))
        return "wait for the run that is in the way, or look at it with `dataflow runs --status RUNNING`"
    if refusal.question is Question.LOCATION and why_wrong_root(job):
        return "bring the data to the root, or give the project another one; then `dataflow apply --move`"
    return next_step(refusal.question, *(chunk.key[1:] if chunk else ()))


def _fix_full(limit: Limit) -> str:
    scale = f"`dataflow scale {scaled_name(limit)} {limit.max_runs + 1}`"
    return f"wait for a run to end, or {scale}" if limit.max_runs else f"nothing starts at a limit of 0: {scale}"


def _fix_missing(job: Job, candidate: Candidate) -> str:
    chunk = next((one for one in candidate.inputs if one.status != "READY"), None)
    if chunk is None:
        return f"look at what it reads: `dataflow job show {job.jobid}`"
    if chunk.producer:
        return f"`dataflow why {chunk.producer} {chunk.key.dataid}`"
    if chunk.problem:
        return f"put the right data there, then `dataflow scan {chunk.key.datasetid}`"
    dataset = next((link.dataset for link in job.inputs if link.dataset[:2] == chunk.key[:2]), None)
    can_scan = dataset is not None and (dataset.location is not None or find_table(dataset) is not None)
    scan = f"`dataflow scan {chunk.key.datasetid}` or " if can_scan else ""
    return f"when it has arrived: {scan}`dataflow ready {chunk.key.datasetid} {chunk.key.dataid}`"


def _seconds(start: Any, end: Any) -> float | None:
    if start is None or end is None:
        return None
    if isinstance(start, str):
        start, end = (datetime.datetime.fromisoformat(text) for text in (start, end))
    return round(float((end - start).total_seconds()), 3)
