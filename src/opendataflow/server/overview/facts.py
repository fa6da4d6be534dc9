"""What needs a person now, what goes on, and how everything stands: the first page, and `/v1/overview`."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from opendataflow.domain.partitions.scheme import TIME_KINDS, kind
from opendataflow.operations.blockers import Root, find_blockers, next_step
from opendataflow.project.address import Address
from opendataflow.server.jobs.facts import dataids_of
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.streams import list_streams
from opendataflow.store.records.workers import find_pause_of_all, list_limits, list_workers
from opendataflow.store.registry import get_run
from opendataflow.store.reports.live import running
from opendataflow.store.reports.overview import overview
from opendataflow.store.status_counts import fold_if_due
from opendataflow.streams.state import stream_blockers

LOOKED_AT = 2_000  # failed, and blocked dataids that are grouped by root; what failed or is held is counted whole
NAMED = 20  # dataids that a group names
SHOWN_RUNS = 50
_GRAVE = {
    "FAILED": 0, "STREAM_FAILED": 0, "EXPIRED": 1, "REJECTED": 2, "GONE": 2, "CHANGED": 2, "MISSING": 3, "LATE": 3,
    "NO_WORKER": 4, "STREAM_LAGS": 4, "HOLD": 6, "PAUSED": 6, "LIMIT": 6, "RUNNING": 8, "NOT_RUN": 8,
}  # fmt: skip
_TITLES = {
    "FAILED": "Failed", "STREAM_FAILED": "Stream failed", "STREAM_LAGS": "Stream lags", "EXPIRED": "Lease ran out",
    "GONE": "Published data is gone", "CHANGED": "Published data has changed",
    "REJECTED": "Rejected on arrival", "MISSING": "Not arrived", "LATE": "Late feed", "NO_WORKER": "No worker",
    "HOLD": "On hold", "PAUSED": "Paused", "LIMIT": "Limit of 0", "RUNNING": "Waits for a run",
    "NOT_RUN": "Waits for its turn", "DATA_NOT_READY": "Data not ready", "WRONG_DATA": "Wrong data",
    "INVALID_PATH": "Invalid path", "NOT_VALIDATED": "Not valid", "LOCKED": "Locked", "PARKED": "Parked",
    "PENDING": "Pending",
}  # fmt: skip


class Group(NamedTuple):
    """One root: what is the matter, with how many dataids, what it blocks, and the next step."""

    cause: str
    title: str
    project: str
    name: str  # a job, a dataset, a stream, or everything
    says: str
    number: int  # dataids at the root
    dataids: list[str]  # the first of them
    blocks: int
    jobs: list[str]
    fix: str  # the command
    needs_a_person: bool


def needs(
    store: LoopStore, address: Address, *, project: str | None, gaps: dict[str, Any], jobs: list[dict[str, Any]]
) -> tuple[list[Group], bool]:
    """What needs a person, by root, the gravest first; and whether all that waits was looked at.

    `jobs` are all of them, each with its counts.
    """
    roots, is_all = find_blockers(store, project=project, limit=LOOKED_AT)
    if list_streams(store, project=project):
        roots += stream_blockers(store, address, project=project)
    found = [_group(one) for one in roots]
    if not is_all:
        found = list(_counted(store, found, jobs))
    found += _expired(store, project)
    known = {(one.project, one.name) for one in found if one.cause in ("MISSING", "REJECTED")}
    found += [one for one in _late(store, project, gaps) if (one.project, one.name) not in known]
    found += _nobody_works(store, project)
    return sorted(found, key=lambda one: (_GRAVE.get(one.cause, 5), -one.blocks, -one.number, one.name)), is_all


def _counted(store: LoopStore, found: list[Group], jobs: list[dict[str, Any]]) -> Iterator[Group]:
    """Where more failed or is held than was looked at: every job of which something did, with the number of all."""
    numbers = {
        (status, one["project"], one["name"]): int(one["counts"].get(status, 0))
        for one in jobs for status in ("FAILED", "HOLD")
    }  # fmt: skip
    for one in found:
        yield one._replace(number=max(one.number, numbers.pop((one.cause, one.project, one.name), 0)))
    for (status, project, name), number in numbers.items():
        if not number:
            continue
        first = dataids_of(store, project, name, status=status, limit=NAMED, offset=0)["items"]
        if not first:  # since it was counted somebody has mended it
            continue
        dataids, runid = [one["dataid"] for one in first], first[0]["runid"]
        says = f"{name}/{dataids[0]} is on HOLD"
        if status == "FAILED":
            says = str(get_run(store, runid)["message"] if runid else "") or "it failed"
        fix = next_step(Root(status, project, name), dataids)
        yield Group(status, _TITLES.get(status, status), project, name, says, number, dataids, 0, [], fix, True)


def _group(told: dict[str, Any]) -> Group:
    cause = told["cause"]
    return Group(
        cause, _TITLES.get(cause, cause), told["project"], told["name"], told["reason"], len(told["dataids"]),
        told["dataids"][:NAMED], told["blocks"], told["jobs"][:NAMED], told["fix"],
        cause not in ("RUNNING", "NOT_RUN"),
    )  # fmt: skip


def _expired(store: LoopStore, project: str | None) -> list[Group]:
    """Live runs whose owner was not heard of in time, job by job."""
    runs, _ = running(store, project=project, limit=LOOKED_AT)
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in runs:
        if run["expired"]:
            found.setdefault((run["project"], run["jobid"]), []).append(run)
    return [
        Group(
            "EXPIRED", _TITLES["EXPIRED"], owner, jobid,
            f"{first['owner']} has not renewed its lease on {jobid}/{first['dataid']} since {first['lease_until']}",
            len(late), [run["dataid"] for run in late[:NAMED]], 0, [],
            "a worker takes it back by itself: `dataflow worker`, or `dataflow tick`", True,
        )
        for (owner, jobid), late in found.items() if (first := late[0])
    ]  # fmt: skip


def _late(store: LoopStore, project: str | None, gaps: dict[str, Any]) -> list[Group]:
    """Data from outside that should be there by now; `gaps` are those of the overview."""
    rows = store.read("datasets", {"project": project}, file="overview")
    several = len({row[0] for row in rows}) > 1
    found = []
    for owner, datasetid, partitions, clock, producer in rows:
        gap = gaps.get(f"{owner}.{datasetid}" if several else datasetid)
        if gap is None or producer is not None or clock or kind(json.loads(partitions)) not in TIME_KINDS:
            continue
        latest = gap["latest"]
        since = f", the latest of them {latest[-1]}" if latest else ""
        says = f"{gap['missing']:,} of {gap['expected']:,} expected slots of {datasetid} are not there{since}"
        fix = f"`dataflow gaps {datasetid}` lists them; when it has arrived: `dataflow scan {datasetid}`"
        found.append(
            Group("LATE", _TITLES["LATE"], owner, datasetid, says, gap["missing"], latest, 0, [], fix, True)
        )  # fmt: skip
    return found


def _nobody_works(store: LoopStore, project: str | None) -> list[Group]:
    """Dataids that could run, and nobody is there to run them."""
    if any(not one.is_gone for one in list_workers(store)) or find_pause_of_all(store)[0] is not None:
        return []
    ready = [(str(row[1]), int(row[2])) for row in store.read("ready_jobs", {"project": project}, file="overview")]
    if not ready:
        return []
    number, jobs = sum(one for _, one in ready), [name for name, _ in ready]
    says = f"{number:,} {'dataid' if number == 1 else 'dataids'} could run, and no worker is alive"
    title, fix = _TITLES["NO_WORKER"], "`dataflow worker`"
    return [Group("NO_WORKER", title, "", "workers", says, 0, [], number, jobs[:NAMED], fix, True)]


def standing(store: LoopStore, address: Address, *, project: str | None) -> dict[str, Any]:
    """Everything the overview shows, but the rates: what was long ago costs more, and changes little."""
    fold_if_due(store)
    runs, total = running(store, project=project, limit=SHOWN_RUNS)
    told = overview(store, project=project, columns=5)
    names = store.read("names", {"project": project}, file="registry")
    several = len({row[1] for row in names}) > 1
    counts: dict[str, list[dict[str, Any]]] = {"job": [], "chunk": []}
    for word, owner, name in names:
        found = told["jobs" if word == "job" else "datasets"].get(f"{owner}.{name}" if several else name, {})
        counts[word].append({"project": owner, "name": name, "counts": found})
    by, until = told["paused_by"], told["paused_until"]
    pauses = [{"project": "", "name": "everything", "by": by, "until": until}] if by is not None else []
    pauses += [
        {"project": one.project, "name": one.jobid, "by": one.paused_by, "until": one.paused_until}
        for one in list_limits(store, project=project) if one.paused_by is not None
    ]  # fmt: skip
    workers = list_workers(store)
    found_needs, is_all = needs(store, address, project=project, gaps=told["gaps"], jobs=counts["job"])
    return {
        "environment": store.environment,
        "needs": [one._asdict() for one in found_needs],
        "needs_all": is_all,
        "running": runs,
        "running_total": total,
        "pauses": pauses,
        "workers": {
            "alive": sum(not one.is_gone for one in workers), "gone": sum(one.is_gone for one in workers),
            "slots": sum(one.slots for one in workers if not one.is_gone),
        },
        "stale": told["stale"],
        "jobs": counts["job"],
        "datasets": counts["chunk"],
    }  # fmt: skip
