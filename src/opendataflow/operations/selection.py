"""What is to be done again, as people say it: dataids, what failed, what a window or an outage touched."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from opendataflow.domain.job import JobStatus
from opendataflow.errors import UsageError
from opendataflow.operations.time_parsing import moment, window
from opendataflow.store.claims import LoopStore
from opendataflow.store.operations import Key, find_failed, find_ran, get_project
from opendataflow.store.recovery import find_outage
from opendataflow.store.reports.stale import find_stale_roots
from opendataflow.store.rows import utc_text


class Chosen(NamedTuple):
    """What is to be done again, in which statuses, and what chose each."""

    keys: list[Key]
    only: frozenset[JobStatus] | None
    reasons: dict[Key, str]
    window: tuple[str, str] | None = None  # of an outage, UTC

    def why(self, one: dict[str, Any]) -> str:
        return self.reasons.get(Key(one["project"], one["jobid"], one["dataid"]), "cascade" if one["cascade"] else "")


def choose(
    store: LoopStore, project: str | None, job: str | None, dataids: Sequence[str], *, failed: bool = False,
    since: str | None = None, until: str | None = None, all_runs: bool = False, outage: str | None = None,
    stale: bool = False, made_by: str | None = None,
) -> Chosen:  # fmt: skip
    """The dataids that these options mean, or raise UsageError."""
    if sum((bool(dataids), failed or bool(since or until or all_runs), outage is not None, stale)) > 1:
        raise UsageError("give dataids, or --failed or --since, or --outage, or --stale, not both")
    if made_by is not None and not stale:
        raise UsageError("--made-by goes with --stale")
    if (until or all_runs) and not since:
        raise UsageError("give the beginning of the window too: --since 2025-11-12T02:00, or --since 2h")
    if job is not None:
        store.get_job(job, project=project)
    if not (dataids or failed or since or outage is not None or stale):
        whose = f" of {job}" if job else ""
        raise UsageError(f"which dataids{whose}? give some, or --failed, or --stale, or --outage 02:10..03:40")
    if job is None:
        owner = get_project(store, project)
    else:
        owner = store.get_job(job, project=project).project
        if dataids:
            return Chosen([Key(owner, job, dataid) for dataid in dict.fromkeys(dataids)], None, {})
    if stale:
        roots = find_stale_roots(store, project=owner, jobid=job, made_by=made_by)
        return Chosen(roots, frozenset({JobStatus.COMPLETE, JobStatus.RESUBMIT}), dict.fromkeys(roots, "stale"))
    if outage is not None:
        start, end = window(outage)
        reasons = find_outage(store, project=owner, jobid=job, since=start, until=end)
        return Chosen(
            list(reasons), frozenset(set(JobStatus) - {JobStatus.HOLD}), reasons, (utc_text(start), utc_text(end))
        )
    is_failed = frozenset({JobStatus.FAILED})
    if not since:
        return Chosen(find_failed(store, project=owner, jobid=job), is_failed, {})
    start, end = moment(since), moment(until, end=True) if until else time.time()
    if start > end:
        raise UsageError(f"the window ends before it begins: {utc_text(start)} to {utc_text(end)}")
    if all_runs:
        ran = frozenset({JobStatus.COMPLETE, JobStatus.FAILED, JobStatus.RUNNING})
        return Chosen(find_ran(store, project=owner, jobid=job, since=start, until=end), ran, {})
    keys = find_failed(store, project=owner, jobid=job, since=utc_text(start), until=utc_text(end))
    return Chosen(keys, is_failed, {})
