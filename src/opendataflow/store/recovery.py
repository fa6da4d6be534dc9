"""After an outage: what it touched, in which order it is done again, and how long a job's open work takes."""

import math
import statistics
from collections import defaultdict
from typing import Any

from opendataflow.domain.job import Job, JobStatus
from opendataflow.domain.partitions.scheme import natural_key
from opendataflow.domain.runs.refusals import find_refusal, scaled_name
from opendataflow.store.claims import LoopStore
from opendataflow.store.operations import (
    FILE,
    LONGEST_RUN_DAYS,
    NEWEST,
    Key,
    find_failed,
    find_readers,
    first_run_since,
    first_since,
    list_runs,
    reader,
)
from opendataflow.store.records.workers import list_workers
from opendataflow.store.reports.stuck import count_behind_failed
from opendataflow.store.rows import Row, new_gates, utc_text

LOOKED_AT = 500  # runs from which a plan learns how long one takes
SHOWN = 5
LAST = "~"  # after every time
_BEGUN = frozenset({JobStatus.COMPLETE, JobStatus.FAILED, JobStatus.RUNNING})
_BAD = ("FAILED", "LOST")


# What an outage touched -----------------------------------------------------------------------------------------------
def find_outage(store: LoopStore, *, project: str, jobid: str | None, since: float, until: float) -> dict[Key, str]:
    """All that ran, failed, was blocked or was published in the window (seconds since the epoch), and which of these.

    What was done again since, and is not what that window left, is not among them.
    """
    window = {"since": utc_text(since), "until": utc_text(until)}
    of_job = {"project": project, "jobid": jobid}
    runs = {
        "lowest": first_run_since(store, utc_text(since - LONGEST_RUN_DAYS * 86_400)),
        "before": first_run_since(store, utc_text(until + 0.001)),
    }
    found: dict[Key, str] = {}
    for owner, job, dataid, status in store.read("outage_runs", {**of_job, **window, **runs}, file=FILE):
        found[Key(owner, job, dataid)] = "failed" if status in _BAD else "ran"
    for key in find_failed(store, project=project, jobid=jobid, **window):
        found.setdefault(key, "failed")
    for row in store.read("outage_blocked", {**of_job, **window}, file=FILE):
        found.setdefault(Key(*row), "blocked")
    for key in _published(store, project, since, until):
        if jobid in (None, key.jobid):
            found.setdefault(key, "published")
    return found


def _published(store: LoopStore, project: str, since: float, until: float) -> list[Key]:
    """Who made what turned READY in the window; of data from outside, who read it."""
    wanted = {
        "project": project, "since": utc_text(since), "until": utc_text(until),
        "lowest": first_since(store, "history", utc_text(since)),
        "before": first_since(store, "history", utc_text(until + 0.001)),
    }  # fmt: skip
    found = []
    published = store.read("outage_published", wanted, file=FILE)
    for owner, datasetid, dataid, producer_project, producer in published:
        if producer is not None:
            found.append(Key(producer_project, producer, dataid))
            continue
        chunk = {"project": owner, "datasetid": datasetid, "dataid": dataid}
        for reader_project, job, of_dataid, status, _, _ in store.read("readers_of_chunk", chunk, file=FILE):
            if status in _BEGUN:
                found.append(Key(reader_project, job, of_dataid))
    return found


# In which order -------------------------------------------------------------------------------------------------------
def in_order(store: LoopStore, done: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What `resubmit` would do, each with its `step`: after everything whose output it reads."""
    read = reader(store)
    links: dict[tuple[str, str], list[Row]] = {}
    nodes = {Key(one["project"], one["jobid"], one["dataid"]): one for one in done}
    after: dict[Key, list[Key]] = defaultdict(list)
    open_inputs = dict.fromkeys(nodes, 0)
    for key in nodes:
        for other in set(find_readers(read, key, links)):
            if other in nodes and other != key:
                after[key].append(other)
                open_inputs[other] += 1
    steps: dict[Key, int] = {}
    level = [key for key, number in open_inputs.items() if not number]
    while level:
        number, following = max(steps.values(), default=0) + 1, []
        for key in level:
            steps[key] = number
            for other in after[key]:
                open_inputs[other] -= 1
                if not open_inputs[other]:
                    following.append(other)
        level = following
    last = max(steps.values(), default=0) + 1
    listed = [{"step": steps.get(key, last), **one} for key, one in nodes.items()]
    return sorted(listed, key=lambda one: (one["step"], one["project"], one["jobid"], natural_key(one["dataid"])))


# How long -------------------------------------------------------------------------------------------------------------
def plan(store: LoopStore, job: Job, *, slots: int | None = None) -> dict[str, Any]:
    """What would run of the job, how many, and how long that takes, by its latest runs. Changes nothing.

    Without `slots`: those of the live workers that serve the job, or one.
    """
    of_job = {"project": job.project, "jobid": job.jobid}
    counts = _open_counts(store, job)
    first = [str(row[0]) for row in store.read("plan_next", {**of_job, "limit": SHOWN}, file="overview")]
    pauses, limits = new_gates(store.read("gates_of", {**of_job, "now": store.time()}))
    pause = max(pauses, key=lambda one: one.until or LAST, default=None)
    tightest = min(limits, key=lambda one: one.max_runs, default=None)
    serving = [one for one in list_workers(store) if not one.is_gone and (not one.jobs or job.jobid in one.jobs)]
    chosen = slots if slots is not None else sum(one.slots for one in serving) or 1
    width = chosen if tightest is None else min(chosen, tightest.max_runs)
    past = learn(store, job)
    everything = sum(counts[name] for name in ("ready", "waiting", "parked", "retrying"))
    return {
        "jobid": job.jobid, "slots": chosen, "workers": len(serving) if slots is None else None,
        "limit": tightest and tightest.max_runs, "limited_by": tightest and scaled_name(tightest),
        "paused_by": pause and pause.by, "paused_until": pause and pause.until,
        "paused": pause and (pause.jobid or "all"), **counts, "next": first[: counts["ready"]], **past,
        "seconds_ready": _estimate(counts["ready"], width, past, job),
        "seconds_all": _estimate(everything, width, past, job),
    }  # fmt: skip


def _open_counts(store: LoopStore, job: Job) -> dict[str, Any]:
    """What is not done of the job, by what it waits for; `refused`: until somebody acts, by the reason."""
    of_job = {"project": job.project, "jobid": job.jobid}
    counts: dict[str, Any] = {str(name): int(n) for name, n in store.read("plan_counts", of_job, file="overview")}
    if store.read("plan_shared", of_job, file="overview")[0][0] > 0:
        counts |= {"waiting": counts["waiting"] + counts["ready"], "ready": 0}
    behind = (
        count_behind_failed(store, project=job.project).get((job.project, job.jobid), 0) if counts["waiting"] else 0
    )
    counts["behind_failed"] = min(behind, counts["waiting"])
    counts["waiting"] -= counts["behind_failed"]
    refused: dict[str, dict[str, Any]] = {}
    for dataid, text in store.read("parked_refusals", of_job, file="overview") if counts["parked"] else []:
        refusal = find_refusal(text)
        if refusal is not None and refusal.needs_a_person:
            first = {"code": refusal.code, "count": 0, "first": str(dataid), "next_step": refusal.next_step}
            refused.setdefault(refusal.code, first)["count"] += 1
    counts["parked"] = max(0, counts["parked"] - sum(one["count"] for one in refused.values()))
    return {**counts, "refused": list(refused.values())}


def learn(store: LoopStore, job: Job) -> dict[str, Any]:
    """How the job's latest runs went: how many, how long one takes (the middle, nine of ten), how many failed."""
    runs, _ = list_runs(
        store, project=job.project, jobid=job.jobid, status=None, since=None, before=NEWEST, limit=LOOKED_AT
    )
    took = sorted(_seconds(run) for run in runs if run["status"] == "COMPLETE" and run["ended_at"])
    bad = sum(run["status"] in _BAD for run in runs)
    ended = len(took) + bad
    return {
        "runs": ended,
        "median_seconds": round(statistics.median(took), 3) if took else None,
        "p90_seconds": round(took[math.ceil(len(took) * 0.9) - 1], 3) if took else None,
        "failure_rate": round(bad / ended, 4) if ended else None,
    }


def _seconds(run: dict[str, Any]) -> float:
    import datetime

    start, end = (datetime.datetime.fromisoformat(run[name]) for name in ("claimed_at", "ended_at"))
    return (end - start).total_seconds()


def _estimate(number: int, width: int, past: dict[str, Any], job: Job) -> float | None:
    """So many runs, so many at a time, each as long as usual; what fails is tried again where the job retries."""
    if past["median_seconds"] is None or width < 1:
        return None
    tries = 1.0
    if job.retries_max:
        rate = past["failure_rate"] or 0.0
        tries = sum(rate**attempt for attempt in range(job.retries_max + 1))
    return round(float(math.ceil(number / width) * past["median_seconds"] * tries), 3)
