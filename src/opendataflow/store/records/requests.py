"""What people ask of runs that are under way, and what child processes do for pages.

To abort a run is to ask its owner to end it: the owner ends the child, and records the run as FAILED. A run that ends
before its owner hears of it stays as it ended; one whose owner is gone returns by itself when its lease has run out.
"""

from typing import Any, NamedTuple

from opendataflow.errors import UsageError
from opendataflow.store.claims import LoopStore
from opendataflow.store.operations import Key

FILE = "requests"
MOST_OUTPUT = 256 * 1024
LOST_SECONDS = 60.0  # whoever does a request is gone when it was not heard of for so long
_REQUEST = (
    "id", "kind", "project", "name", "status", "asked_by", "asked_at", "ended_at", "exit_code", "output",
)  # fmt: skip


class Live(NamedTuple):
    """A run that is under way."""

    key: Key
    runid: int
    owner: str
    lease_until: str
    is_expired: bool
    again: bool  # RESUBMIT was set while it ran


def find_live(store: LoopStore, key: Key) -> Live | None:
    """The live run of a dataid."""
    rows = store.read("run_of_dataid", {**key._asdict(), "now": store.time()}, file=FILE)
    if not rows:
        return None
    runid, owner, lease_until, is_expired, again = rows[0]
    return Live(key, runid, owner, lease_until, bool(is_expired), bool(again))


def get_live(store: LoopStore, runid: int) -> Live:
    """The run, or raise UsageError that says how it ended."""
    rows = store.read("live_run", {"runid": runid}, file=FILE)
    if not rows:
        raise UsageError(f"there is no run {runid}; see `dataflow runs`")
    project, jobid, dataid, status, _ = rows[0]
    live = find_live(store, Key(project, jobid, dataid))
    if live is None or live.runid != runid:
        raise UsageError(f"run {runid} of {jobid}/{dataid} is not running any more: it is {status}")
    return live


def ask_abort(store: LoopStore, live: Live) -> bool:
    """Ask the run's owner to end it; False when it has ended by now."""

    def ask() -> bool:
        with store.transaction(file=FILE) as tx:
            tx.run("forget_aborts", {})
            wanted = {**live.key._asdict(), "runid": live.runid, "asked_by": store.actor, "now": store.time()}
            return bool(tx.run("ask_abort", wanted))

    return store.again(ask)


def find_abort(store: LoopStore, runid: int) -> tuple[str, str] | None:
    """Who has asked for the end of a run, and when."""
    rows = store.read("abort_of", {"runid": runid}, file=FILE)
    return (rows[0][0], rows[0][1]) if rows else None


def try_now(store: LoopStore, key: Key) -> bool:
    """Let a parked dataid be tried at once; False when it is not parked."""

    def change() -> bool:
        with store.transaction(file=FILE) as tx:
            return bool(tx.run("try_now", key._asdict()))

    return store.again(change)


# What child processes do ----------------------------------------------------------------------------------------------
def add_request(store: LoopStore, kind: str, project: str, name: str = "") -> int:
    """The number of something that is done for a page from now on."""

    def add() -> int:
        with store.transaction(file=FILE) as tx:
            row = {"kind": kind, "project": project, "name": name, "asked_by": store.actor, "now": store.time()}
            return int(tx.rows("add_request", row)[0][0])

    return store.again(add)


def beat_request(store: LoopStore, number: int) -> None:
    """It is still being done."""

    def beat() -> None:
        with store.transaction(file=FILE) as tx:
            tx.run("beat_request", {"id": number, "now": store.time()})

    store.again(beat)


def end_request(store: LoopStore, number: int, *, exit_code: int | None, output: str) -> None:
    """What became of it; of a long output the beginning and the end are kept."""
    text = output.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if len(text) > MOST_OUTPUT:
        text = f"{text[: MOST_OUTPUT // 2]}\n…\n{text[-MOST_OUTPUT // 2 :]}"
    status = "COMPLETE" if exit_code == 0 else "FAILED"
    row = {"id": number, "status": status, "exit_code": exit_code, "output": text, "now": store.time()}

    def end() -> None:
        with store.transaction(file=FILE) as tx:
            tx.run("end_request", row)

    store.again(end)


def find_request(store: LoopStore, number: int) -> dict[str, Any] | None:
    """What it is, and has come to; FAILED, too, when the server that did it has died."""
    rows = store.read("request", {"id": number, "lost": store.time(-LOST_SECONDS)}, file=FILE)
    return dict(zip(_REQUEST, rows[0], strict=True)) if rows else None


def list_requests(
    store: LoopStore, *, project: str | None = None, name: str | None = None, limit: int = 20
) -> list[dict[str, Any]]:
    """The newest first, without what they said."""
    asked = {"project": project, "name": name, "limit": limit, "lost": store.time(-LOST_SECONDS)}
    rows = store.read("requests", asked, file=FILE)
    return [dict(zip(_REQUEST, row, strict=True)) for row in rows]
