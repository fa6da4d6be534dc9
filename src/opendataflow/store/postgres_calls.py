"""What the functions of PostgreSQL are given, and what their answers mean: claim and finish are one call each."""

import json

from opendataflow.domain.runs.ending import End
from opendataflow.domain.runs.run import Claim, Ending, Finished, Result, RunStatus
from opendataflow.errors import LeaseLost
from opendataflow.store.claims import Next
from opendataflow.store.rows import Row, claim_key, inputs_read, lease_lost, new_claim, verdict_json


def claim_request(wanted: Next) -> tuple[str, str]:
    """One JSON text instead of twenty parameters: cheaper to send, and to take apart once."""
    job, candidate, verdict, owner, forced = wanted
    flags = {name: True for name, is_set in (("forced", forced), ("strict", job.strict and not forced)) if is_set}
    return (
        json.dumps(
            {
                **flags,
                "project": job.project,
                "jobid": job.jobid,
                "dataid": candidate.dataid,
                "inputs": inputs_read(candidate),
                "outputs": [output.key for output in candidate.outputs],
                "owner": owner.name,
                "host": owner.host,
                "pid": owner.pid,
                "pid_started": owner.pid_started,
                "guard_pid": owner.guard_pid,
                "guard_started": owner.guard_started,
                "lease_seconds": job.lease_seconds,
            }
        ),
        verdict_json(verdict),
    )


def claimed(wanted: Next, row: Row) -> Claim | None:
    runid, attempt, deaths = row
    return None if runid is None else new_claim(wanted.job, wanted.candidate, runid, attempt, deaths)


def finish_request(claim: Claim, result: Result, ends: tuple[End, End]) -> tuple[str]:
    return (
        json.dumps(
            {
                **claim_key(claim),
                "ends": [
                    {
                        "status": end.status,
                        "run_status": end.run_status,
                        "attempts": end.attempts,
                        "deaths": end.deaths,
                        "retry_in": end.retry_in,
                        "message": end.explain(result.message),
                    }
                    for end in ends
                ],
                "complete": result.ending is Ending.COMPLETE,
                "exit_code": result.exit_code,
                "log_path": result.log_path,
                "log_tail": result.log_tail,
                "code": result.code,
                "checks": result.checks,
                "manifests": [
                    {"project": p, "datasetid": d, **manifest._asdict()} for p, d, manifest in result.manifests
                ],
                "inputs": claim.inputs,
            }
        ),
    )


def finished(claim: Claim, ends: tuple[End, End], row: Row) -> Finished:
    found = find_end(claim, ends, row)
    if isinstance(found, LeaseLost):
        raise found
    return found


def find_end(claim: Claim, ends: tuple[End, End], row: Row) -> Finished | LeaseLost:
    case, earlier = row
    if case is not None:
        return Finished(ends[case].status, ends[case].note)
    if earlier is not None and earlier not in (RunStatus.RUNNING, RunStatus.LOST):
        return Finished(earlier, "recorded before")
    return lease_lost(claim)
