"""The overview: counts, the latest slots of every dataset as a grid, and what is expected but not there."""

import datetime
import json
from typing import Any

from opendataflow.domain.partitions.scheme import (
    TIME_KINDS,
    count_expected,
    find_kind,
    is_dataid,
    is_open_sequence,
    kind,
    latest_expected,
    natural_key,
)
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.workers import find_pause_of_all
from opendataflow.store.reports.stale import count_stale
from opendataflow.store.status_counts import counts

GAP = "GAP"  # expected, and nothing is known of it


def overview(store: LoopStore, *, project: str | None, columns: int) -> dict[str, Any]:
    """Whether all is paused, counts of every job and dataset, grids of the latest slots (one per kind), and gaps."""
    totals = counts(store, project=project)
    datasets = store.read("datasets", {"project": project}, file="overview")
    several = len({row[0] for row in datasets}) > 1
    now = datetime.datetime.fromtimestamp(store.clock(), datetime.UTC)
    cells: dict[str, dict[str, dict[str, str]]] = {}
    gaps: dict[str, dict[str, Any]] = {}
    for owner, datasetid, partitions, _clock, _producer in datasets:
        name = f"{owner}.{datasetid}" if several else datasetid
        scheme = json.loads(partitions) if partitions else None
        of_dataset = {"project": owner, "datasetid": datasetid}
        ready = totals["datasets"].get(name, {}).get("READY", 0)
        slots = scheme is None or kind(scheme) in TIME_KINDS
        known = store.read("latest_chunks", {**of_dataset, "limit": columns}, file="overview") if slots else []
        latest = {str(row[0]): str(row[1]) for row in known}
        expected = latest_expected(scheme, now=now, limit=columns) if scheme is not None and slots else []
        for dataid in {*latest, *expected}:
            form = find_kind(dataid)
            if form in TIME_KINDS:
                cells.setdefault(form, {}).setdefault(name, {})[dataid] = latest.get(dataid, GAP)
        if scheme is not None and not is_open_sequence(scheme):
            gap = _gap(count_expected(scheme, now=now), ready, [one for one in expected if latest.get(one) != "READY"])
            if gap:
                gaps[name] = gap
    grids = {form: _grid(rows, columns) for form, rows in sorted(cells.items())}
    by, until = find_pause_of_all(store)
    paused = {"paused_by": by, "paused_until": until}
    stale = count_stale(store, project=project).values()
    return {
        "environment": store.environment, **paused, **totals, "grids": grids, "gaps": gaps,
        "stale": {"direct": sum(one.direct for one in stale), "upstream": sum(one.upstream for one in stale)},
    }  # fmt: skip


def _gap(expected: int, ready: int, seen: list[str]) -> dict[str, Any]:
    missing = max(expected - ready, len(seen))
    return {"expected": expected, "ready": ready, "missing": missing, "latest": seen[-5:]} if missing else {}


def _grid(rows: dict[str, dict[str, str]], columns: int) -> dict[str, Any]:
    dataids = sorted({dataid for cells in rows.values() for dataid in cells}, key=natural_key)[-columns:]
    shown = {name: [cells.get(dataid, "") for dataid in dataids] for name, cells in rows.items()}
    return {"dataids": dataids, "rows": shown}


def chunks(store: LoopStore, project: str, datasetid: str, partitions: str | None) -> dict[str, Any]:
    """Every chunk of a dataset, in order, and the expected dataids that have none."""
    names = ["dataid", "status", "version", "location", "fingerprint", "validated_at", "problem", "modified"]
    rows = store.read("chunks_of", {"project": project, "datasetid": datasetid}, file="overview")
    found = sorted((dict(zip(names, row, strict=True)) for row in rows), key=lambda one: natural_key(one["dataid"]))
    for one in found:
        one["location"] = store.whole_location(project, one["location"])
    known = {one["dataid"] for one in found}
    gaps: list[str] = []
    if partitions is not None:
        from opendataflow.domain.partitions.scheme import expected_dataids

        scheme = json.loads(partitions)
        now = datetime.datetime.fromtimestamp(store.clock(), datetime.UTC)
        inside = [dataid for dataid in known if is_dataid(scheme, dataid)]
        highest = max(inside, key=natural_key, default=None)
        gaps = [one for one in expected_dataids(scheme, now=now, highest=highest) if one not in known]
    return {"datasetid": datasetid, "chunks": found, "gaps": gaps}
