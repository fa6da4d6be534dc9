"""What a drain waits for without being asked to: room under a limit, and the retries of its own runs."""

from collections.abc import Callable

from opendataflow.domain.job import Job
from opendataflow.execution.work import Outcome
from opendataflow.store.claims import LoopStore

ALL_END = 1_000_000_000  # as if every live run ended: what then is claimable waits for room only


class DrainWaits:
    """Of the jobs that a drain runs: what will be claimable without anybody's doing, so that the drain goes on."""

    def __init__(self, store: LoopStore, *, say: Callable[[str], None]) -> None:
        self._store, self._say = store, say
        self._failed: dict[tuple[str, str], dict[str, None]] = {}  # by job: dataids whose own runs failed last
        self._said: dict[tuple[str, str], str] = {}

    def ran(self, job: Job, outcome: Outcome) -> None:
        """A run of the drain ended."""
        if outcome.runid is None or outcome.dataid is None:
            return
        self._said.pop(job[:2], None)
        failed = self._failed.setdefault(job[:2], {})
        if outcome.status == "FAILED":
            failed[outcome.dataid] = None
        else:
            failed.pop(outcome.dataid, None)

    def must_wait(self, job: Job) -> bool:
        """True while one of its own failed runs is to be tried again, or only a limit is in the way; says so once."""
        reason = self._find_retry(job) or self._find_full_limit(job)
        if reason and self._said.get(job[:2]) != reason:
            self._say(f"{job.jobid}: {reason}")
            self._said[job[:2]] = reason
        return bool(reason)

    def _find_retry(self, job: Job) -> str:
        failed = self._failed.get(job[:2], {})
        while failed:
            dataid = next(iter(failed))
            candidate = self._store.find_candidate(job, dataid)
            if candidate is not None and candidate.status == "FAILED" and candidate.parked_until:
                return f"waits for {dataid}, which is tried again at {candidate.parked_until}"
            del failed[dataid]  # it is claimable, or somebody else's, or FAILED for good
        return ""

    def _find_full_limit(self, job: Job) -> str:
        waiting = self._store.list_claimable(job, limit=1, ending=ALL_END)
        candidate = self._store.find_candidate(job, waiting[0].dataid) if waiting else None
        limits = (candidate.limits or ()) if candidate is not None else ()
        full = [one for one in limits if one.running >= one.max_runs]
        if not full or any(one.max_runs == 0 for one in limits):
            return ""
        return f"waits for room: the limit of {full[0].name} is {full[0].max_runs}, and so many runs are live"
