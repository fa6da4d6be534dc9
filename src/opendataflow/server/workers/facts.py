"""Workers: who is there, what runs where, and how much may run over each connection."""

from typing import Any

from opendataflow.server.jobs.facts import FILE
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.workers import find_pause_of_all, list_connections, list_limits, list_workers

_RUNNING = (
    "owner", "host", "runid", "project", "job", "dataid", "attempt", "claimed_at", "lease_until", "expired",
)  # fmt: skip


def find_workers(store: LoopStore) -> dict[str, Any]:
    """Every worker that is known, those that are there first."""
    found = [one._asdict() | {"jobs": list(one.jobs)} for one in list_workers(store)]
    alive = [one for one in found if not one["is_gone"]]
    by, until = find_pause_of_all(store)
    return {
        "items": sorted(found, key=lambda one: (one["is_gone"], one["name"])), "alive": len(alive),
        "slots": sum(one["slots"] for one in alive), "running": sum(one["running"] for one in alive),
        "all_paused_by": by, "all_paused_until": until,
    }  # fmt: skip


def running_now(store: LoopStore, *, limit: int, offset: int) -> dict[str, Any]:
    """Live runs with who holds them, the oldest first."""
    of = {"now": store.time(), "project": None, "limit": limit + 1, "offset": offset}
    rows = [dict(zip(_RUNNING, row, strict=True)) for row in store.read("running_now", of, file=FILE)]
    shown = [{**row, "expired": bool(row["expired"])} for row in rows[:limit]]
    return {"items": shown, "limit": limit, "offset": offset, "more": len(rows) > limit}


def find_limits(store: LoopStore, *, project: str | None = None) -> dict[str, Any]:
    """How much may run at once: of each job that has a limit, and over each connection."""
    jobs = [one._asdict() for one in list_limits(store, project=project) if one.max_runs is not None]
    return {"jobs": jobs, "connections": [one._asdict() for one in list_connections(store)]}
