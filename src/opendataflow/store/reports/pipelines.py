"""What the store keeps of a pipeline's runs beside the run itself: its code, its Spark, its transformations."""

from collections.abc import Iterable, Mapping
from typing import Any

from opendataflow.domain.runs.run import Claim
from opendataflow.store.claims import LoopStore

FILE = "pipelines"
_STEP = ("position", "name", "digest", "status", "output", "error", "rows", "seconds")
_RUN = ("engine", "git_commit", "dirty", "application", "job_runid", "rows", "bytes", "plan")
_LISTED = ("project", "jobid", "dataid", "run", *_STEP, "claimed_at")
_NEW_STEP = {"digest": None, "status": "PENDING", "output": "", "error": "", "rows": None, "seconds": None}
_NEW_RUN: dict[str, Any] = dict.fromkeys(_RUN)
MOST_TEXT = 64 * 1024  # of what a transformation printed

Details = Mapping[str, Any]


def record_runs(store: LoopStore, runs: Iterable[tuple[Claim, Details, Iterable[Mapping[str, Any]]]]) -> None:
    """Keep what is known of these runs and their transformations now; what was kept before is replaced."""
    runs = list(runs)

    def record() -> None:
        with store.transaction(file=FILE) as tx:
            for claim, details, steps in runs:
                known = {key: details[key] for key in _RUN if key in details}
                of_run = {"runid": claim.runid, "project": claim.project, "jobid": claim.jobid}
                tx.run("put_pipeline_run", {**_NEW_RUN, **known, **of_run})
                tx.run_many("put_step", [_step(claim.runid, one) for one in steps])

    store.again(record)


def record_steps(store: LoopStore, claim: Claim, steps: Iterable[Mapping[str, Any]]) -> None:
    """Keep how far the transformations of a run have come."""
    rows = [_step(claim.runid, one) for one in steps]

    def record() -> None:
        with store.transaction(file=FILE) as tx:
            tx.run_many("put_step", rows)

    store.again(record)


def record_unshared(store: LoopStore, claim: Claim, *, digest: str, reason: str) -> None:
    """Keep that the chunks of this run's pipeline share no Spark job while the digest of its code is this."""

    def record() -> None:
        with store.transaction(file=FILE) as tx:
            of = {"project": claim.project, "jobid": claim.jobid, "runid": claim.runid}
            tx.run("put_unshared", {**of, "digest": digest, "reason": reason, "now": store.time()})

    store.again(record)


def find_unshared(store: LoopStore, project: str, jobid: str) -> tuple[str, int, str] | None:
    """The digest of the code whose chunks share no Spark job, the run that was compared, and what differed."""
    rows = store.read("unshared_of", {"project": project, "jobid": jobid}, file=FILE)
    return (str(rows[0][0]), int(rows[0][1]), str(rows[0][2])) if rows else None


def find_run(store: LoopStore, runid: int) -> dict[str, Any] | None:
    """What a pipeline's run was made with, and its transformations; None for a script's run."""
    rows = store.read("pipeline_run_of", {"runid": runid}, file=FILE)
    if not rows:
        return None
    steps = store.read("steps_of", {"runid": runid}, file=FILE)
    found = dict(zip(_RUN, rows[0], strict=True))
    return {**found, "transformations": [dict(zip(_STEP, step, strict=True)) for step in steps]}


def list_steps(
    store: LoopStore, *, project: str | None, jobid: str | None, status: str | None, limit: int
) -> list[dict[str, Any]]:
    """The transformations of every pipeline's newest run; with a status, those of every dataid's newest run."""
    of: dict[str, Any] = {"project": project, "jobid": jobid}
    if status is None:
        rows = store.read("last_steps", of, file=FILE)
    else:
        rows = store.read("steps_by_status", {**of, "status": status, "limit": limit}, file=FILE)
    return [dict(zip(_LISTED, row, strict=True)) for row in rows]


def _step(runid: int, step: Mapping[str, Any]) -> dict[str, Any]:
    row = {**_NEW_STEP, **{key: step[key] for key in _STEP if key in step}, "runid": runid}
    for key in ("output", "error"):
        text = str(row[key]).replace("\0", "\N{REPLACEMENT CHARACTER}")
        row[key] = text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT // 4]}\n…\n{text[-MOST_TEXT // 2 :]}"
    return row
