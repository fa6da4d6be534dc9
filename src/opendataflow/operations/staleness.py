"""What is older than what it should be made from, for commands and server alike, and the step that heals it."""

from typing import Any

from opendataflow.errors import UsageError
from opendataflow.execution.made_by import record_jobs
from opendataflow.store.claims import LoopStore
from opendataflow.store.on_change import keep_up
from opendataflow.store.operations import Key
from opendataflow.store.published import find_dataset, find_producer
from opendataflow.store.reports.stale import (
    NAMED,
    Stale,
    count_stale,
    describe_stale,
    find_stale,
    list_stale,
    readers_behind,
)
from opendataflow.store.stale import expand, is_behind

NAMED_READERS = 3
CATCH_UP_SECONDS = 2.0  # that a command spends on what is not worked in yet


def bring_up_to_date(store: LoopStore, *, project: str | None, jobid: str | None = None) -> None:
    """Record what makes the data of the jobs now, and work in what was published; both as far as it is quick."""
    names = [(row[0], row[1]) for row in store.read("all_jobs", {"project": project}, file="overview")]
    record_jobs(store, [store.get_job(name, project=owner) for owner, name in names if jobid in (None, name)])
    keep_up(store, seconds=CATCH_UP_SECONDS)


def report_stale(store: LoopStore, name: str | None, *, project: str | None, limit: int = NAMED) -> dict[str, Any]:
    """The stale dataids of all jobs, of one, or of the one that makes a dataset; how many of each job; and whether all
    that was published is worked in."""
    of = _job_of(store, name, project)
    owner, jobid = of or (project, None)
    rows = [_as_row(store, one) for one in list_stale(store, project=owner, jobid=jobid, limit=limit)]
    counts = count_stale(store, project=owner, jobid=jobid)
    return {
        "stale": rows,
        "jobs": [
            {"project": key[0], "jobid": key[1], "direct": one.direct, "upstream": one.upstream}
            for key, one in counts.items()
        ],
        "complete": not is_behind(store),
    }


def _job_of(store: LoopStore, name: str | None, project: str | None) -> tuple[str, str] | None:
    if name is None:
        return None
    if store.has_job(name, project=project):
        job = store.get_job(name, project=project)
        return job.project, job.jobid
    dataset, _ = find_dataset(store, name, project=project)
    producer = find_producer(store, dataset)
    if producer is None:
        raise UsageError(f"no job makes {name}, so nothing of it can be stale; `dataflow stale` lists what is")
    return producer.project, producer.jobid


def _as_row(store: LoopStore, one: Stale) -> dict[str, Any]:
    flags = {"input": one.by_input, "code": one.by_code, "checks": one.by_check, "upstream": one.upstream}
    return {
        "project": one.project, "jobid": one.jobid, "dataid": one.dataid,
        "kind": "direct" if one.direct else "upstream",
        "by": [name for name, is_so in flags.items() if is_so],
        "reasons": describe_stale(store, one), "since": one.since, "runid": one.runid, "commit": one.git_commit,
    }  # fmt: skip


def find_staleness(store: LoopStore, key: Key) -> dict[str, Any] | None:
    """As a row of `report_stale`, with the step that heals it; None when nothing makes this dataid stale."""
    found = find_stale(store, key)
    if found is None:
        return None
    step = f"dataflow resubmit {key.jobid} {key.dataid} --cascade" if found.direct else "dataflow resubmit --stale"
    return {**_as_row(store, found), "fix": step}


def stale_kinds(store: LoopStore, *, project: str | None, jobid: str | None) -> dict[tuple[str, str, str], str]:
    """By project, job and dataid: `direct` or `upstream`, where it is stale."""
    found = list_stale(store, project=project, jobid=jobid)
    return {(one.project, one.jobid, one.dataid): "direct" if one.direct else "upstream" for one in found}


def describe_counts(direct: int, upstream: int) -> str:
    """`3 stale: 1 directly, 2 because of what they read`."""
    return f"{direct + upstream} stale: {direct} directly, {upstream} because of what they read"


def warn_of_older_readers(store: LoopStore, chunks: list[tuple[str, str, str]], *, step: str | None = None) -> str:
    """That published data was made from other versions of these chunks, and the command that makes it again; or ''.

    With a `step`, the chunks are about to be made again by it: all that read them have an older version then.
    """
    expand(store, seconds=CATCH_UP_SECONDS)
    keys = dict.fromkeys(key for one in chunks for key in readers_behind(store, *one, all_readers=step is not None))
    if not keys:
        return ""
    if step is None:
        jobs = {key.jobid for key in keys}
        dataids = " ".join(key.dataid for key in keys)
        one_job = len(jobs) == 1 and len(keys) <= NAMED_READERS
        step = f"dataflow resubmit {jobs.pop()} {dataids} --cascade" if one_job else "dataflow resubmit --stale"
    number = f"{len(keys):,}{' or more' if len(keys) >= NAMED else ''}"
    return f"{number} reader{'s have' if len(keys) > 1 else ' has'} the older version: `{step}`"
