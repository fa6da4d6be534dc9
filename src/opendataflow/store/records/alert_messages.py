"""Messages of alerts: claimed by the one who sends, sent or tried again, and shown to people."""

from typing import Any, NamedTuple

from opendataflow.domain.alerts import GIVE_UP_SECONDS, MOST_DEATHS, in_order, retry_in
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.alerts import FILE, MOST_TEXT, read_alerts, write_alerts
from opendataflow.store.rows import Params, Row

SENDER_SECONDS = 120.0  # a sender that has not said how it went by then is gone
OVERDUE_SECONDS = 30.0  # then a sender of another project takes it, too
MOST_BODY = 20_000


class Message(NamedTuple):
    """A message that we are to send."""

    messageid: int
    project: str
    place: str
    attempts: int
    deaths: int
    age: float


# Sending --------------------------------------------------------------------------------------------------------------
def claim_message(store: LoopStore, sender: str, *, project: str | None) -> Message | None:
    """The next message that is due, ours to send until SENDER_SECONDS have passed; None when there is none.

    Messages of other projects are taken only when nobody else does. One in whose middle two senders died is given up.
    """
    while True:
        rows = _rows(
            store, "claim_message", sender=sender, project=project, now=store.time(), until=store.time(SENDER_SECONDS),
            overdue=store.time(-OVERDUE_SECONDS),
        )  # fmt: skip
        if not rows:
            return None
        found = Message(*rows[0])
        if found.deaths < MOST_DEATHS:
            return found
        told = f"{found.deaths} senders died in the middle of it; whether it went is not known"
        write_alerts(store, "mark_failed", **_ended(store, found, sender, "GIVEN_UP", told, "", ""))


def mark_sent(store: LoopStore, message: Message, sender: str, *, title: str, body: str) -> bool:
    """It went; False when another has taken it since."""
    row = {"messageid": message.messageid, "sender": sender, "title": title, "body": body[:MOST_BODY]}

    def mark() -> bool:
        with store.transaction(file=FILE) as tx:
            told = {str(event) for event, _ in tx.rows("message_counts", {"messageid": message.messageid})}
            is_ours = bool(tx.run("mark_sent", {**row, "events": in_order(told), "now": store.time()}))
            if is_ours:
                tx.run("mark_told", {"messageid": message.messageid})
            return is_ours

    return store.again(mark)


def mark_failed(store: LoopStore, message: Message, sender: str, *, error: str, title: str, body: str) -> bool:
    """It did not go: it is tried again later, or given up after a day."""
    state = "GIVEN_UP" if message.age > GIVE_UP_SECONDS else "WAITING"
    return bool(write_alerts(store, "mark_failed", **_ended(store, message, sender, state, error, title, body)))


def _ended(store: LoopStore, message: Message, sender: str, state: str, error: str, title: str, body: str) -> Params:
    due = store.time(retry_in(message.attempts))
    return {
        "messageid": message.messageid, "sender": sender, "state": state, "due": due, "error": error[:MOST_TEXT],
        "title": title, "body": body[:MOST_BODY],
    }  # fmt: skip


def message_counts(store: LoopStore, messageid: int) -> dict[str, int]:
    return {event: int(number) for event, number in read_alerts(store, "message_counts", messageid=messageid)}


def name_counts(store: LoopStore, messageid: int, *, limit: int) -> list[Row]:
    """Event, subject, project, name, how many, lowest and highest dataid, and one reason; most first."""
    return read_alerts(store, "name_counts", messageid=messageid, limit=limit)


# Showing --------------------------------------------------------------------------------------------------------------
_MESSAGE = (
    "messageid",
    "project",
    "place",
    "state",
    "events",
    "created_at",
    "due_at",
    "attempts",
    "sent_at",
    "error",
    "title",
)
_ALERT = ("alertid", "project", "place", "event", "subject", "owner", "name", "dataid", "reason", "at", "message_state")


def list_messages(
    store: LoopStore, *, project: str | None, limit: int, before: int | None = None
) -> list[dict[str, Any]]:
    """The newest first, without their texts."""
    rows = read_alerts(store, "messages", project=project, limit=limit, before=before)
    return [dict(zip(_MESSAGE, row, strict=True)) for row in rows]


def find_message(store: LoopStore, messageid: int) -> dict[str, Any] | None:
    rows = read_alerts(store, "message", messageid=messageid)
    return dict(zip((*_MESSAGE, "body"), rows[0], strict=True)) if rows else None


def list_alerts(
    store: LoopStore, *, project: str | None, limit: int, before: int | None = None
) -> list[dict[str, Any]]:
    """What is wrong and was told, or is about to be, the newest first."""
    rows = read_alerts(store, "open_alerts", project=project, limit=limit, before=before)
    return [dict(zip(_ALERT, row, strict=True)) for row in rows]


def count_undelivered(store: LoopStore) -> int:
    """Messages that could not be sent so far."""
    return int(read_alerts(store, "undelivered")[0][0])


def count_open(store: LoopStore) -> list[tuple[str, str, int]]:
    """Project, event, and how many are so now."""
    return [(project, event, int(number)) for project, event, number in read_alerts(store, "open_counts")]


def find_history_end(store: LoopStore) -> int:
    """How many changes there were, about."""
    return int(read_alerts(store, "history_end")[0][0])


def _rows(store: LoopStore, name: str, **params: Any) -> list[Row]:
    def write() -> list[Row]:
        with store.transaction(file=FILE) as tx:
            return tx.rows(name, params)

    return store.again(write)
