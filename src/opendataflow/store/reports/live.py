"""What goes on now, and what ended lately: questions that cost the same however long the history is."""

from typing import Any

from opendataflow.store.claims import LoopStore
from opendataflow.store.operations import first_run_since
from opendataflow.store.rows import utc_text

FILE = "live"
HOUR, DAY = 3600.0, 86_400.0
LOOKED_AT = 10_000  # of the newest runs, for rates
_RUNNING = (
    "project", "jobid", "dataid", "runid", "owner", "claimed_at", "lease_until", "expired", "attempt", "abort_asked_by",
)  # fmt: skip
_MADE = (
    "project", "dataset", "dataid", "version", "location", "files", "bytes", "rows", "fingerprint", "validated_at",
    "created_at", "status", "current",
)  # fmt: skip


def running(store: LoopStore, *, project: str | None, limit: int) -> tuple[list[dict[str, Any]], int]:
    """The live runs, job by job, and how many there are in all."""
    rows = store.read("running", {"project": project, "now": store.time(), "limit": limit}, file=FILE)
    found = [dict(zip(_RUNNING, row, strict=True)) | {"expired": bool(row[7])} for row in rows]
    total = len(found)
    if total == limit:
        total = int(store.read("count_running", {"project": project}, file=FILE)[0][0])
    return found, total


def rates(store: LoopStore, *, project: str | None) -> dict[str, Any]:
    """How many runs ended in the last hour and the last day, by outcome.

    Of very many runs only the newest are counted; `since` says from when on the counts of the day are all there are.
    """
    day_ago = utc_text(store.clock() - DAY)
    newest = {"lowest": first_run_since(store, utc_text(store.clock() - 2 * DAY)), "limit": LOOKED_AT}
    asked = {**newest, "project": project, "hour": store.time(-HOUR), "day": store.time(-DAY)}
    hour: dict[str, int] = {}
    day: dict[str, int] = {}
    for status, number, within_hour, _ in store.read("ended", asked, file=FILE):
        day[status] = int(number)
        if within_hour:
            hour[status] = int(within_hour)
    number, oldest = store.read("count_newest", newest, file=FILE)[0]
    return {"hour": hour, "day": day, "since": oldest if number == LOOKED_AT else day_ago}


def made_by(store: LoopStore, run: dict[str, Any]) -> list[dict[str, Any]]:
    """What a run published, and whether that is still what consumers read."""
    of_run = {name: run[name] for name in ("project", "jobid", "dataid", "runid")}
    found = []
    for row in store.read("manifests_of_run", of_run, file=FILE):
        one = dict(zip(_MADE, row, strict=True))
        location = store.whole_location(one["project"], one["location"])
        is_current = one["current"] == run["runid"] and one["status"] == "READY"
        found.append({**one, "location": location, "current": is_current})
    return found
