"""Which published data is older than what it should be made from: expanded from events, batch by batch.

A publish only appends an event, or on SQLite its row of the history. Whoever does maintenance works events in:
it writes down what a dataid was made from, compares those that read it with what there is now, and goes on with their
readers where that changes something.
"""

import json
import time
from collections.abc import Iterable
from typing import Any

from opendataflow.store.base import Transaction
from opendataflow.store.claims import LoopStore
from opendataflow.store.rows import Row

FILE = "stale"
EVENTS = 200  # worked in by one transaction, which takes some milliseconds
HISTORY = 2_000  # rows of the history that are gone through for events at once
READERS = 500  # compared by it at most: a chunk that all dataids read is gone through page by page


# Expanding ------------------------------------------------------------------------------------------------------------
def is_behind(store: LoopStore) -> bool:
    """True while there are events that are not worked in."""
    return bool(store.read("is_behind", {}, file=FILE)[0][0])


def expand(store: LoopStore, *, seconds: float = float("inf")) -> bool:
    """Work in what has happened, for about so many seconds; True when nothing is left."""
    give_up = time.monotonic() + seconds
    while is_behind(store):
        if not store.again(lambda: _expand_batch(store)):
            return False
        if time.monotonic() >= give_up:
            return not is_behind(store)
    return True


def _expand_batch(store: LoopStore) -> bool:
    """One batch; False when another process is at it."""
    with store.transaction(file=FILE) as tx:
        if not tx.rows("only_one", {})[0][0]:
            return False
        tx.run("take_events", {"limit": HISTORY})
        tx.run("events_taken", {"limit": HISTORY})
        events = tx.rows("events", {"limit": EVENTS})
        if not events:
            return True
        ids = {"ids": json.dumps([row[0] for row in events])}
        nodes: dict[tuple[str, str, str], None] = {}
        for key in _record_made(tx, ids) if any(row[1] == "chunk" for row in events) else ():
            nodes[key] = None
        readers = tx.rows("readers_page", {**ids, "limit": READERS})
        nodes |= {(project, jobid, dataid): None for _, project, jobid, dataid in readers}
        # The last event of a full page may have more readers, and those behind it have not been looked at.
        unfinished = readers[-1][0] if len(readers) == READERS else None
        done = []
        for id_, kind, project, name, dataid, after in events:
            if kind in ("chunk", "readers"):
                if unfinished is None or id_ < unfinished:
                    done.append(id_)
            elif kind == "dataid":
                nodes[project, name, dataid] = None
                done.append(id_)
            elif len(nodes) < READERS:
                page = tx.rows("made_page", {"project": project, "jobid": name, "after": after, "limit": READERS})
                nodes |= {(project, name, row[0]): None for row in page}
                if len(page) < READERS:
                    done.append(id_)
                else:
                    tx.run("move_on", _place(id_, "", "", page[-1][0]))
        if unfinished is not None:
            tx.run("move_on", _place(*readers[-1]))
        _compare(tx, list(nodes))
        tx.run("delete_events", {"ids": json.dumps(done)})
    return True


def _place(id_: int, project: str, jobid: str, dataid: str) -> dict[str, Any]:
    return {"id": id_, "after_project": project, "after_jobid": jobid, "after_dataid": dataid}


def _record_made(tx: Transaction, ids: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Write down what the published chunks of these events were made from; who makes them."""
    tx.run("forget_asserted", ids)
    tx.run("record_made", ids)
    made = tx.rows("made_by_events", ids)
    keys = [(row[0], row[1], row[2]) for row in made if row[0] is not None]
    if not keys:
        return []
    nodes = {"nodes": json.dumps(keys)}
    tx.run("forget_made_from", nodes)
    tx.run("record_made_from", nodes)
    newest: dict[tuple[str, str], Row] = {}
    for row in made:
        if row[0] is not None and row[6] and (row[0], row[1]) in newest:
            newest[row[0], row[1]] = max(newest[row[0], row[1]], row, key=lambda one: one[3])
        elif row[0] is not None and row[6]:
            newest[row[0], row[1]] = row
    for (project, jobid), row in newest.items():
        tx.run("put_job_code", {"project": project, "jobid": jobid, "code": row[4], "checks": row[5], "runid": row[3]})
        tx.run("add_event", {"kind": "job", "project": project, "name": jobid, "dataid": ""})
    return keys


def _compare(tx: Transaction, nodes: list[tuple[str, str, str]]) -> None:
    """Set right what is said of these dataids; the readers of those that became stale, or are no more, are next."""
    if not nodes:
        return
    put, gone, turned = [], [], []
    for project, jobid, dataid, *found in tx.rows("compare", {"nodes": json.dumps(nodes)}):
        key = {"project": project, "jobid": jobid, "dataid": dataid}
        now = [int(bool(flag)) for flag in found[:4]]
        before = None if found[4] is None else list(found[4:])
        if any(now) and now != before:
            put.append({**key, **dict(zip(("by_input", "by_code", "by_check", "upstream"), now, strict=True))})
        elif not any(now) and before is not None:
            gone.append(key)
        if any(now) != (before is not None):
            turned.append(key)
    tx.run_many("put_stale", put)
    tx.run_many("delete_stale", gone)
    tx.run_many("add_readers", turned)


# Code and checks ------------------------------------------------------------------------------------------------------
def record_codes(store: LoopStore, codes: Iterable[tuple[str, str, str | None, str | None]]) -> None:
    """Record code and checks of jobs (project, job, code, checks) as they are now, and have what they made compared."""
    known = {(row[0], row[1]): tuple(row[2:]) for row in store.read("job_codes", {"project": None}, file=FILE)}
    changed = [one for one in codes if known.get(one[:2]) != (one[2], one[3], None)]
    if not changed:
        return

    def change() -> None:
        with store.transaction(file=FILE) as tx:
            for project, jobid, code, checks in sorted(changed):
                key = {"project": project, "jobid": jobid}
                tx.run("put_job_code", {**key, "code": code, "checks": checks, "runid": None})
                tx.run("add_event", {"kind": "job", "project": project, "name": jobid, "dataid": ""})

    store.again(change)
