"""Between rows and domain values, the same for both stores."""

import functools
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from opendataflow.domain.chunk import ChunkKey, ChunkStatus, Input, Manifest, Output
from opendataflow.domain.job import Candidate, Job, JobStatus, Limit, Pause
from opendataflow.domain.runs.questions import Verdict
from opendataflow.domain.runs.run import Claim
from opendataflow.errors import LeaseLost

Row = Sequence[Any]
Params = dict[str, Any]


@functools.lru_cache(maxsize=8)
def _utc_second(whole: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))


def utc_text(seconds: float) -> str:
    """Seconds since the epoch as the text that the SQLite store keeps and all stores show."""
    whole = int(seconds // 1)
    return f"{_utc_second(whole)}.{int((seconds - whole) * 1000):03d}Z"


def new_gates(rows: list[Row]) -> tuple[tuple[Pause, ...], tuple[Limit, ...]]:
    """What stands between a job and its next run: pauses, and limits."""
    pauses = tuple(Pause(name, by, until) for kind, name, by, until, *_ in rows if kind == "pause")
    limits = (
        Limit(kind, name, most, running, why or "") for kind, name, why, _, most, running in rows if kind != "pause"
    )
    return pauses, tuple(limits)


def new_candidate(
    job: Job, row: Row, facts: list[Row], *, whole_location: Callable[[str, str | None], str | None],
    pauses: tuple[Pause, ...] = (), limits: tuple[Limit, ...] | None = None, earlier: str | None = None,
) -> Candidate:  # fmt: skip
    dataid, status, waiting, attempts, deaths, parked_until, owner, lease_until = row[:8]
    inputs, outputs = [], []
    for itemtype, project, datasetid, of_dataid, chunk, *rest, readers in facts:
        key, state = ChunkKey(project, datasetid, of_dataid), ChunkStatus(chunk) if chunk else None
        if itemtype == "IN":
            version, location, *others = rest
            inputs.append(Input(key, state, version, whole_location(project, location), *others))
        else:
            outputs.append(Output(key, state, readers or ""))
    running = next((limit.running for limit in limits or () if limit.kind == "job"), 0)
    return Candidate(
        job.jobid, dataid, JobStatus(status), waiting, attempts, parked_until, owner, lease_until, running,
        tuple(inputs), tuple(outputs), pauses, earlier, deaths, limits,
    )  # fmt: skip


def new_claim(job: Job, candidate: Candidate, runid: int, attempt: int, deaths: int) -> Claim:
    return Claim(
        job.project, job.jobid, candidate.dataid, runid, attempt, deaths, job.lease_seconds, job.retries_max,
        job.backoff_seconds, tuple(chunk.key for chunk in candidate.inputs),
    )  # fmt: skip


def claim_key(claim: Claim) -> Params:
    return {"project": claim.project, "jobid": claim.jobid, "dataid": claim.dataid, "runid": claim.runid}


def verdict_json(verdict: Verdict) -> str:
    """What json.dumps makes of verdict.as_json(), without the dictionaries in between: every claim needs it."""
    quote = json.encoder.encode_basestring_ascii
    answers = [
        f'{{"question": "{asked}", "yes": {"true" if yes else "false"}, "code": "{code}", "evidence": {quote(seen)}}}'
        for asked, yes, seen, code in verdict.answers
    ]
    return f"[{', '.join(answers)}]"


def key_params(key: ChunkKey) -> Params:
    return {"project": key[0], "datasetid": key[1], "dataid": key[2]}


def inputs_read(candidate: Candidate) -> list[list[Any]]:
    """The versions a run reads, as its record keeps them."""
    return [[*chunk.key, chunk.version, chunk.fingerprint] for chunk in candidate.inputs]


def inputs_json(candidate: Candidate) -> str:
    """What json.dumps makes of inputs_read(candidate); every claim needs it."""
    quote = json.encoder.encode_basestring_ascii
    read = [
        f"[{quote(project)}, {quote(datasetid)}, {quote(dataid)}, {'null' if version is None else version}, "
        f"{'null' if fingerprint is None else quote(fingerprint)}]"
        for (project, datasetid, dataid), _, version, _, fingerprint, *_ in candidate.inputs
    ]
    return f"[{', '.join(read)}]"


def manifest_params(manifest: Manifest, now: Any) -> Params:
    location, files, size, rows, schema, fingerprint, validated = manifest
    return {
        "location": location, "files": files, "bytes": size, "rows": rows, "schema": schema, "fingerprint": fingerprint,
        "validated_at": now if validated else None, "now": now,
    }  # fmt: skip


def lease_lost(claim: Claim) -> LeaseLost:
    return LeaseLost(
        f"run {claim.runid} of {claim.jobid}/{claim.dataid} no longer holds its lease: "
        "another owner may have the work; "
        f"nothing was changed; see `dataflow why {claim.jobid} {claim.dataid}`"
    )
