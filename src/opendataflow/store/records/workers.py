"""Who works here, how much may run at once, and pauses: what people and workers say to each other through the store.

Every limit is a number in a row that a claim reads and counts under; nothing here starts or stops a run.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from opendataflow.domain.job import Job
from opendataflow.domain.runs.run import Owner
from opendataflow.errors import UsageError
from opendataflow.store.claims import LoopStore
from opendataflow.store.rows import Params

FILE = "workers"
GONE_SECONDS = 60.0  # a worker that nobody has seen for so long
FORGET_SECONDS = 7 * 86_400.0  # and for so long that nobody will ask any more
SETTLE_SECONDS = 2.0  # for claims that were under way when a limit was changed


# Workers --------------------------------------------------------------------------------------------------------------
class WorkerRow(NamedTuple):
    """A worker as it was last seen."""

    name: str
    host: str
    pid: int
    slots: int
    running: int
    is_idle: bool
    jobs: tuple[str, ...]  # empty: all
    started_at: str
    seen_at: str
    is_gone: bool


def register_worker(store: LoopStore, owner: Owner, *, slots: int, jobs: Sequence[str] = ()) -> None:
    """Say that this worker is here, under its owner's name; rows of workers that are long gone are removed."""
    row = {
        "name": owner.name, "host": owner.host, "pid": owner.pid, "pid_started": owner.pid_started, "slots": slots,
        "jobs": " ".join(jobs), "now": store.time(),
    }  # fmt: skip

    def register() -> None:
        with store.transaction(file=FILE) as tx:
            tx.run("forget_gone", {"before": store.time(-FORGET_SECONDS)})
            tx.run("wake_gone", {"before": store.time(-GONE_SECONDS)})
            tx.run("register_worker", row)

    store.again(register)


def beat_worker(store: LoopStore, name: str, *, running: int, is_idle: bool) -> bool:
    """Say that it is still here, and whether it waits to be told of work; False when its row is gone."""
    row = {"name": name, "running": running, "is_idle": int(is_idle), "now": store.time()}
    return bool(_write(store, "beat_worker", row))


def forget_worker(store: LoopStore, name: str) -> None:
    """Say that it has gone."""
    _write(store, "forget_worker", {"name": name})


def list_workers(store: LoopStore) -> list[WorkerRow]:
    """Every worker that is known, also those that have not been seen for a while."""
    rows = store.read("workers", {"before": store.time(-GONE_SECONDS)}, file=FILE)
    return [
        WorkerRow(name, host, pid, slots, running, bool(idle), tuple(jobs.split()), started, seen, bool(gone))
        for name, host, pid, slots, running, idle, jobs, started, seen, gone in rows
    ]


def seconds_until_due(store: LoopStore) -> float | None:
    """Until a parked dataid may be tried again or a pause is over; None when nothing waits for the clock."""
    found = store.read("seconds_until_due", {"now": store.time()}, file=FILE)[0][0]
    return None if found is None else max(float(found), 0.0)


# Limits ---------------------------------------------------------------------------------------------------------------
class Limits(NamedTuple):
    """A job's limits; `max_runs` is the one that counts, and None where there is none."""

    project: str
    jobid: str
    declared: int | None
    scaled_to: int | None
    braked_to: int | None
    max_runs: int | None
    running: int
    paused_by: str | None
    paused_until: str | None


class ConnectionLimits(NamedTuple):
    name: str
    declared: int | None
    scaled_to: int | None
    max_runs: int | None
    running: int


def list_limits(store: LoopStore, *, project: str | None, jobid: str | None = None) -> list[Limits]:
    """The limits of every job, or of one."""
    params = {"project": project, "jobid": jobid, "now": store.time()}
    return [Limits(*row) for row in store.read("job_limits", params, file=FILE)]


def limits_of(store: LoopStore, job: Job) -> Limits:
    return list_limits(store, project=job.project, jobid=job.jobid)[0]


def list_connections(store: LoopStore) -> list[ConnectionLimits]:
    """Every connection that a job uses or that has a limit."""
    return [ConnectionLimits(*row) for row in store.read("connection_limits", {}, file=FILE)]


def set_limit(store: LoopStore, of: Job | str, max_runs: int | None, *, reason: str = "") -> None:
    """At most so many live runs of the job, or over the connection of this name; None: as it is declared.

    What runs goes on. A brake is lifted: a person has decided. When this returns, no claim that knew only the limit
    before is under way.
    """
    if max_runs is not None and max_runs < 0:
        raise UsageError(f"a limit is 0 or more, not {max_runs}")
    if isinstance(of, Job):
        job = {"project": of.project, "jobid": of.jobid}
        unbraked = {**job, "max_runs": None, "was": None, "whatever": True}
        _change(store, reason, ("scale_job", {**job, "max_runs": max_runs}), ("brake_job", unbraked))
        return
    known = [one.name for one in list_connections(store)]
    if of not in known:
        raise UsageError(f"no job uses a connection {of!r}; known are: {', '.join(known) or '(none)'}")
    steps = [("scale_connection", {"name": of, "max_runs": max_runs})]
    _change(store, reason, *steps, *([("forget_connection", {"name": of})] if max_runs is None else []))


def set_brake(
    store: LoopStore, job: Job, max_runs: int | None, *, reason: str, was: int | str | None = "whatever"
) -> bool:
    """Brake the job to so many runs, or no longer; with `was`, only if nobody has changed the brake since."""
    seen = None if was == "whatever" else was
    row = {"project": job.project, "jobid": job.jobid, "max_runs": max_runs, "was": seen, "whatever": was == "whatever"}
    return bool(_change(store, reason, ("brake_job", row)))


def list_changes(
    store: LoopStore, *, job: Job | None = None, connection: str | None = None, limit: int = 50
) -> list[dict[str, Any]]:
    """What became of limits and pauses, the newest first."""
    names = ("at", "project", "jobid", "connection", "what", "was", "becomes", "reason", "actor")
    params = {
        "project": job and job.project, "jobid": job and job.jobid, "connection": connection, "limit": limit,
    }  # fmt: skip
    return [dict(zip(names, row, strict=True)) for row in store.read("limit_changes", params, file=FILE)]


# Pauses ---------------------------------------------------------------------------------------------------------------
def pause(store: LoopStore, job: Job | None, *, until: float | None = None, reason: str = "") -> str | None:
    """Claim nothing more of the job, or of any (None): until then (seconds since the epoch), or until it is resumed.

    What runs goes on. The same state as a held job, with an end; it replaces a pause or hold that is there. Returns the
    end as the store keeps it.
    """
    by = f"{store.actor}: {reason}" if reason else store.actor
    end = None if until is None else store.time(until - store.clock())
    row: Params = {"paused_by": by, "now": store.time(), "until": end}
    if job is None:
        _change(store, reason, ("pause_all", row))
        return find_pause_of_all(store)[1]
    _change(store, reason, ("pause_job", {**row, "project": job.project, "jobid": job.jobid}))
    return limits_of(store, job).paused_until


def resume(store: LoopStore, job: Job | None, *, reason: str = "") -> bool:
    """Let the job, or everything, go on; False when it was not paused. A pause of one job outlives `resume all`."""
    if job is None:
        return bool(_change(store, reason, ("resume_all", {})))
    return bool(_change(store, reason, ("resume_job", {"project": job.project, "jobid": job.jobid})))


def find_pause_of_all(store: LoopStore) -> tuple[str | None, str | None]:
    """Who has paused everything, and until when."""
    rows = store.read("all_paused", {"now": store.time()}, file=FILE)
    return (rows[0][0], rows[0][1]) if rows else (None, None)


# Writing --------------------------------------------------------------------------------------------------------------
def _write(store: LoopStore, name: str, params: Params) -> int:
    def write() -> int:
        with store.transaction(file=FILE) as tx:
            return tx.run(name, params)

    return store.again(write)


def _change(store: LoopStore, reason: str, *steps: tuple[str, Params]) -> int:
    """Do the steps, recorded with their reason; how many rows the first one changed."""

    def change() -> int:
        with store.transaction(file=FILE) as tx:
            tx.run("give_reason", {"reason": reason})
            done = [tx.run(name, params) for name, params in steps]
            tx.run("give_reason", {"reason": ""})
            return done[0]

    done = store.again(change)
    _settle(lambda: {str(row[0]) for row in store.read("claims_under_way", {}, file=FILE)})
    return done


def _settle(under_way: Callable[[], set[str]]) -> None:
    """Wait for the claims that may have read what was there before: a few milliseconds."""
    before = under_way()
    give_up = time.monotonic() + SETTLE_SECONDS
    while before and time.monotonic() < give_up:
        time.sleep(0.002)
        before &= under_way()
