"""Looking without touching: the variables that a run would get, and a run's output while it comes."""

import codecs
import os
import re
import time
from collections.abc import Callable
from typing import Any, cast

from opendataflow.domain.dataset import output_location, path_segment
from opendataflow.domain.job import Job
from opendataflow.domain.runs.run import Claim, Owner, RunStatus
from opendataflow.errors import UsageError
from opendataflow.execution.environment import child_environment, dataids_of
from opendataflow.execution.prepare import check_foreign, input_location
from opendataflow.execution.work import Locations
from opendataflow.store.claims import LoopStore
from opendataflow.store.operations import watch_run

MASK = "***"
NUMBER = cast(int, "N")  # what is not known before a claim: the run's number, and who guards it
POLL_SECONDS = 0.25
_SECRET_NAME = re.compile(r"pass|secret|token|credential|key", re.IGNORECASE)


def preview_environment(store: LoopStore, job: Job, dataid: str) -> dict[str, str]:
    """What a run of the dataid would find in its environment now, apart from what the caller's has; secrets masked."""
    candidate = store.find_candidate(job, dataid)
    if candidate is None:
        raise UsageError(f"{job.jobid} has no dataid {dataid!r} yet; see `dataflow status {job.jobid}`")
    check_foreign(job, candidate)
    claim = Claim(
        job.project, job.jobid, dataid, NUMBER, candidate.attempts + 1, 0, job.lease_seconds, job.retries_max,
        job.backoff_seconds, tuple(chunk.key for chunk in candidate.inputs),
    )  # fmt: skip
    return child_environment(
        {},
        job=_masked(job),
        claim=claim,
        owner=Owner("", "", NUMBER, NUMBER, NUMBER, NUMBER),
        store_id=store.store_id,
        locations=_locations(job, claim, candidate.inputs),
        dataids=dataids_of(chunk.key for chunk in candidate.inputs),
        passwords={link.dataset[:2]: MASK for link in job.links if link.dataset.encryptedpass},
    )


def _masked(job: Job) -> Job:
    """The job without the values of its own variables that sound like secrets."""
    extra = job.definition.get("env")
    if not isinstance(extra, dict):
        return job
    shown = {name: MASK if _SECRET_NAME.search(str(name)) else value for name, value in extra.items()}
    return job._replace(definition={**job.definition, "env": shown})


def shown_items(job: Job) -> dict[str, str]:
    """The job's own environment items; values that sound like secrets masked."""
    extra = _masked(job).definition.get("env")
    return {str(name): str(value) for name, value in extra.items()} if isinstance(extra, dict) else {}


def _locations(job: Job, claim: Claim, inputs: tuple[Any, ...]) -> Locations:
    found: Locations = {}
    datasets = {link.dataset[:2]: link.dataset for link in job.inputs}
    for chunk in inputs:
        key = chunk.key[:2]
        place = input_location(chunk, datasets[key], root=job.root)
        found[key] = f"{found[key]}\n{place}" if found.get(key) and place else place
    for link in job.outputs:
        place = output_location(job.kind, link.dataset, claim.dataid, root=job.root, runid=claim.runid)
        found[link.dataset[:2]] = place
    return found


# Following a log ----------------------------------------------------------------------------------------------------
def follow(
    store: LoopStore, run: dict[str, Any], *, work: str, write: Callable[[str], None], say: Callable[[str], None]
) -> dict[str, Any]:
    """Write the run's output as it comes, until the run has ended; returns how it stands then.

    From the file where it is on this host; otherwise the last part that the run keeps in the store.
    """
    paths = [os.path.join(work, _log_name(run))]
    file, tail = _GrowingFile(), ""
    warned = False
    while True:
        now = watch_run(store, run["runid"])  # before the file is read: what comes after that is for the next look
        if now["log_path"] and now["log_path"] not in paths:
            paths.insert(0, now["log_path"])
        if not tail and file.find([path for path in paths if is_log_of(path, run)]):
            write(file.read())
        elif now["log_tail"] != tail:
            write(added(tail, now["log_tail"]))
            tail = now["log_tail"]
        if now["status"] != RunStatus.RUNNING:
            write(file.end())
            return now
        if now["expired"] and not warned:
            warned = True
            say(f"its lease ran out at {now['lease_until']}: its owner is gone, or cut off from the store")
        time.sleep(POLL_SECONDS)


def is_log_of(path: str, run: dict[str, Any]) -> bool:
    """True when the file is this run's log, wherever links lead: the store's word alone gives no other file away."""
    return os.path.realpath(path).endswith(f"/{_log_name(run)}")


def _log_name(run: dict[str, Any]) -> str:
    return f"logs/{path_segment(run['jobid'])}/{run['runid']}.log"


class _GrowingFile:
    """A text file that somebody appends to."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._at = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def find(self, paths: list[str]) -> bool:
        if self._path is None:
            self._path = next((path for path in paths if os.path.isfile(path)), None)
        return self._path is not None

    def read(self) -> str:
        """What came since the last time."""
        try:
            with open(self._path or "", "rb") as file:
                file.seek(self._at)
                data = file.read()
        except OSError:
            return ""
        self._at += len(data)
        return self._decoder.decode(data)

    def end(self) -> str:
        return self._decoder.decode(b"", final=True)


def added(old: str, new: str) -> str:
    """What the later of two tails of the same output has more; a gap between them shows as […]."""
    if not old:
        return new
    at = old.find(new[:1])
    while 0 <= at < len(old):
        if new.startswith(old[at:]):
            return new[len(old) - at :]
        at = old.find(new[:1], at + 1)
    return f"\n[…]\n{new}"
