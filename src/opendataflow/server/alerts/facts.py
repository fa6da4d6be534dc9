"""What is wrong and was told, and the messages that told it: for the page and the API."""

from typing import Any, NamedTuple

from opendataflow.server.problems import NotThere
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.alert_messages import count_undelivered, find_message, list_alerts, list_messages
from opendataflow.store.records.alerts import list_notified


class Part(NamedTuple):
    """Some of them, the newest first; `next` is the cursor of those after them."""

    items: list[dict[str, Any]]
    next: int | None


def open_alerts(store: LoopStore, *, project: str | None, limit: int, before: int | None = None) -> Part:
    rows = list_alerts(store, project=project, limit=limit, before=before)
    return Part(_with_address(store, rows), rows[-1]["alertid"] if len(rows) == limit else None)


def messages(store: LoopStore, *, project: str | None, limit: int, before: int | None = None) -> Part:
    rows = list_messages(store, project=project, limit=limit, before=before)
    for row in rows:
        row["events"] = str(row["events"]).split()
    return Part(_with_address(store, rows), rows[-1]["messageid"] if len(rows) == limit else None)


def get_message(store: LoopStore, messageid: int) -> dict[str, Any]:
    found = find_message(store, messageid)
    if found is None:
        raise NotThere(f"there is no message {messageid}")
    found["events"] = str(found["events"]).split()
    return _with_address(store, [found])[0]


def undelivered(store: LoopStore) -> int:
    """How many messages could not be sent so far."""
    return count_undelivered(store)


def _with_address(store: LoopStore, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With what of the address may be shown: its kind, and where in project.yml it stands."""
    shown = {(job.project, to.place): to.shown for job in list_notified(store).values() for to in job.settings.to}
    for row in rows:
        told = []
        for place in sorted(row.pop("place").split("\n")):
            kind, where = shown.get((row["project"], place), ""), place.replace("/", ".")
            told.append(f"{kind} ({where})" if kind else where)
        row["to"] = ", ".join(told)
    return rows
