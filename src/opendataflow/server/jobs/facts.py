"""Jobs and pipelines: the list of them, and everything about one."""

import datetime
import json
from typing import Any, NamedTuple, cast

from opendataflow.arrivals.clock_slots import next_slot
from opendataflow.arrivals.due import next_slot_of
from opendataflow.domain.checks.check import texts_of
from opendataflow.domain.job import Job
from opendataflow.domain.schedules import get_clock
from opendataflow.domain.streams import find_sealed_stream, find_settings
from opendataflow.operations.log_follow import shown_items
from opendataflow.server.cached import kept
from opendataflow.server.jobs.code import CodeText, read_text, transformation_text
from opendataflow.server.problems import NotThere
from opendataflow.server.stores import Stores
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.workers import find_pause_of_all, limits_of, list_changes, list_limits
from opendataflow.store.reports.pipelines import list_steps
from opendataflow.store.reports.stale import Count, count_stale
from opendataflow.store.rows import Row
from opendataflow.store.schedules import list_set, schedule_of, told

FILE = "jobs"
LOOK = 1_000  # of the newest runs, for those of a job
LATEST = 200  # of a job's dataids, for its last run
RUNS = 20
CHANGES = 20
_RUN = ("runid", "dataid", "attempt", "status", "owner", "claimed_at", "ended_at", "exit_code", "message")
_LAST = ("project", "jobid", "runid", "dataid", "status", "claimed_at", "ended_at")
_DATAID = ("dataid", "status", "waiting", "attempts", "runid", "parked_until", "modified")
_BY_STATUS = {None: "dataids_all", "COMPLETE": "dataids_complete", "FAILED": "dataids_failed",
              "RUNNING": "dataids_running"}  # fmt: skip


Counts = dict[tuple[str, str], dict[str, int]]  # project and job → status → dataids


class JobsAsked(NamedTuple):
    """Which jobs; None: all."""

    project: str | None = None
    name: str | None = None  # a part of it
    status: str | None = None  # some dataid stands so, or `paused`
    limit: int = 100
    offset: int = 0


# All of them ----------------------------------------------------------------------------------------------------------
async def count_dataids(stores: Stores) -> Counts:
    """Of all jobs, by status. It takes a second where half a million wait; so it is asked once for all who look."""
    return cast("Counts", (await kept(stores, "dataids of jobs", lambda: stores.ask(_counts))).answer)


def find_jobs(store: LoopStore, asked: JobsAsked, counts: Counts) -> dict[str, Any]:
    """A page of the jobs, in order, with what is running, due and wrong of each."""
    paused_by, paused_until = find_pause_of_all(store)
    rows = store.read("all_jobs", {"project": asked.project}, file="overview")
    limits = {(one.project, one.jobid): one for one in list_limits(store, project=asked.project)}
    wanted = (asked.name or "").casefold()
    found = [
        (str(owner), str(jobid), str(kind)) for owner, jobid, kind, _ in rows
        if wanted in jobid.casefold()
        and _fits(asked.status, counts.get((owner, jobid), {}), limits.get((owner, jobid)))
    ]  # fmt: skip
    page = found[asked.offset : asked.offset + asked.limit]
    clocks = {(row[0], row[1]): str(row[2]) for row in store.read("job_clocks", {}, file=FILE)}
    set_ = list_set(store, project=asked.project)
    last = {(row[0], row[1]): _last(row) for row in store.read("latest_runs", {"look": LOOK}, file=FILE)}
    following = _following(store, {clocks[key] for key in {one[:2] for one in page} if key in clocks})
    shown = []
    for project, jobid, kind in page:
        key = (project, jobid)
        clock, limit = clocks.get(key), limits.get(key)
        shown.append({
            "project": project, "job": jobid, "kind": kind, "counts": counts.get(key, {}),
            "schedule": clock, "schedule_is_set": bool(set_.get(key, (None, None))[0]),
            "next_at": following.get(clock or ""), "last_run": last.get(key) or _older(store, project, jobid),
            "running": limit.running if limit else 0, "limit": limit.max_runs if limit else None,
            "paused_by": limit.paused_by if limit else None, "paused_until": limit.paused_until if limit else None,
        })  # fmt: skip
    return {
        "items": shown, "total": len(found), "limit": asked.limit, "offset": asked.offset,
        "all_paused_by": paused_by, "all_paused_until": paused_until,
    }  # fmt: skip


def _counts(store: LoopStore) -> Counts:
    found: Counts = {}
    for kind, owner, name, status, number in store.read("tally_counts", {"project": None, "now": store.time()}):
        if kind == "job" and number:
            found.setdefault((owner, name), {})[status] = int(number)
    return found


def _fits(status: str | None, counts: dict[str, int], limits: Any) -> bool:
    if status is None:
        return True
    if status == "paused":
        return limits is not None and limits.paused_by is not None
    return counts.get(status, 0) > 0


def _last(row: Row) -> dict[str, Any]:
    return dict(zip(_LAST, row, strict=True)) | {"seconds": seconds_between(row[5], row[6])}


def _older(store: LoopStore, project: str, jobid: str) -> dict[str, Any] | None:
    of = {"project": project, "jobid": jobid, "look": LATEST}
    rows = store.read("run_of_latest_dataids", of, file=FILE)
    return _last(rows[0]) if rows else None


def _following(store: LoopStore, clocks: set[str]) -> dict[str, str]:
    """When the next slot of each clock begins."""
    now = datetime.datetime.fromtimestamp(store.clock(), datetime.UTC)
    found = ((clock, next_slot(get_clock(clock), after=now)) for clock in clocks)
    return {clock: slot[1].isoformat() for clock, slot in found if slot is not None}


def seconds_between(start: str | None, end: str | None) -> float | None:
    if not start or not end:
        return None
    times = [datetime.datetime.fromisoformat(str(text)) for text in (start, end)]
    return round(max((times[1] - times[0]).total_seconds(), 0.0), 3)


# One of them ----------------------------------------------------------------------------------------------------------
def get_job(store: LoopStore, project: str, jobid: str) -> Job:
    """The job, or NotThere."""
    if not store.has_job(jobid, project=project):
        raise NotThere(f"there is no job {jobid} in project {project}; see the list of jobs")
    return store.get_job(jobid, project=project)


def one_job(store: LoopStore, project: str, jobid: str, counts: Counts) -> dict[str, Any]:
    """Everything that is known of a job but its dataids."""
    job = get_job(store, project, jobid)
    limits, schedule, following = limits_of(store, job), schedule_of(store, job), next_slot_of(store, job)
    all_by, all_until = find_pause_of_all(store)
    definition: dict[str, Any] = job.definition
    return {
        "project": project, "job": jobid, "kind": job.kind, "script": job.script,
        "is_stream": find_settings(job) is not None, "sealed_stream": find_sealed_stream(job),
        "partitions": json.loads(job.partitions) if job.partitions else None,
        "inputs": [_link(link) for link in job.inputs], "outputs": [_link(link) for link in job.outputs],
        "items": shown_items(job), "engine": definition.get("engine"),
        "checks": texts_of(definition.get("checks")),
        "retries": job.retries_max, "backoff_seconds": job.backoff_seconds, "timeout_seconds": job.timeout_seconds,
        "lease_seconds": job.lease_seconds, "order": "strict" if job.strict else "any", "catchup": job.catchup,
        "schedule": {
            **schedule._asdict(), "told": told(schedule), "next_slot": following[0] if following else None,
            "next_at": following[1].isoformat() if following else None,
        },
        "declared_limit": limits.declared, "scaled_to": limits.scaled_to, "braked_to": limits.braked_to,
        "max_runs": limits.max_runs, "running": limits.running,
        "paused_by": limits.paused_by, "paused_until": limits.paused_until,
        "all_paused_by": all_by, "all_paused_until": all_until,
        "counts": counts.get((project, jobid), {}),
        "transformations": _transformations(store, job), "runs": runs_of(store, job, limit=RUNS),
        "changes": list_changes(store, job=job, limit=CHANGES),
        "stale": count_stale(store, project=project, jobid=jobid).get((project, jobid), Count(0, 0))._asdict(),
    }  # fmt: skip


def _link(link: Any) -> dict[str, Any]:
    one = link.dataset
    return {
        "project": one.project, "dataset": one.datasetid, "map": link.map, "clock": one.clock, "path": one.location,
        "format": one.format, "partitions": json.loads(one.partitions) if one.partitions else None,
    }  # fmt: skip


def _transformations(store: LoopStore, job: Job) -> list[dict[str, Any]]:
    """In their order: the code as it is now, and what became of each in the last run."""
    names: Any = job.definition.get("transformations") or ()
    steps = {}
    if names:
        steps = {
            one["position"]: one
            for one in list_steps(store, project=job.project, jobid=job.jobid, status=None, limit=1)
        }
    found = []
    for position, name in enumerate(names, 1):
        step = steps.get(position)
        ran = step if step is not None and step["name"] == name else None
        code = transformation_text(job.home, job.jobid, name)
        keys = ("status", "run", "dataid", "output", "error", "rows", "seconds")
        found.append({
            "position": position, "name": name, "path": code.path, "code": code.text, "problem": code.problem,
            **{key: ran[key] if ran is not None else None for key in keys},
        })  # fmt: skip
    return found


def script_text(store: LoopStore, project: str, jobid: str) -> CodeText | None:
    """The script of a job; None for a pipeline."""
    job = get_job(store, project, jobid)
    return read_text(job.home, job.script) if job.script else None


def runs_of(store: LoopStore, job: Job, *, limit: int) -> list[dict[str, Any]]:
    """The latest runs of a job, without looking through those of all others."""
    of = {"project": job.project, "jobid": job.jobid, "look": LOOK, "limit": limit}
    rows = [dict(zip(_RUN, row, strict=True)) for row in store.read("runs_of_job", of, file=FILE)]
    return [{**row, "seconds": seconds_between(row["claimed_at"], row["ended_at"])} for row in rows]


def dataids_of(
    store: LoopStore, project: str, jobid: str, *, status: str | None, limit: int, offset: int
) -> dict[str, Any]:
    """A page of a job's dataids, the latest first."""
    get_job(store, project, jobid)
    of: dict[str, Any] = {"project": project, "jobid": jobid, "limit": limit + 1, "offset": offset}
    name = _BY_STATUS.get(status)
    if name is None:
        name, of = "dataids_open", {**of, "status": status, "most": limit + offset + 1}
    rows = [dict(zip(_DATAID, row, strict=True)) for row in store.read(name, of, file=FILE)]
    return {"items": rows[:limit], "limit": limit, "offset": offset, "more": len(rows) > limit}
