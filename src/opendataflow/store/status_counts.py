"""How many stand in each status, without counting them: the tally, and what the history says came after it."""

import time
from typing import Any

from opendataflow.store.claims import LoopStore, Transaction

FOLD_AT = 2000  # changes that a look may have to add up before somebody folds them in
COUNT_SHARE = 20  # times as long as counting took, nobody counts again


def fold_tally(tx: Transaction) -> None:
    """Bring the tally up to the history's end. Before history is deleted, and once more after it."""
    tx.run("freeze_history", {})  # a change that is on its way has a number already, and must not be passed over
    tx.run("fold_tally", {})
    tx.run("tally_upto", {})


def fold_if_due(store: LoopStore) -> None:
    def fold() -> None:
        with store.transaction() as tx:
            fold_tally(tx)

    if store.read("tally_behind", {})[0][0] >= FOLD_AT:
        store.again(fold)


def rebuild_tally(tx: Transaction) -> None:
    """Count everything anew."""
    tx.run("freeze_chunks", {})
    tx.run("freeze_history", {})
    tx.run("empty_tally", {})
    tx.run("count_all", {})
    tx.run("tally_upto", {})


def counts(store: LoopStore, *, project: str | None) -> dict[str, dict[str, dict[str, int]]]:
    """How many dataids of each job, and chunks of each dataset, stand in each status; several projects by `p.name`."""
    return _named(store, project, store.read("tally_counts", {"project": project, "now": store.time()}))


def _named(store: LoopStore, project: str | None, rows: list[Any]) -> dict[str, dict[str, dict[str, int]]]:
    found: dict[str, dict[str, dict[str, int]]] = {"jobs": {}, "datasets": {}}
    names = store.read("names", {"project": project}, file="registry")
    several = len({row[1] for row in names}) > 1
    shown: dict[tuple[Any, ...], dict[str, int]] = {}
    for kind, owner, name in names:
        section = found["jobs" if kind == "job" else "datasets"]
        shown[kind, owner, name] = section.setdefault(f"{owner}.{name}" if several else name, {})
    for kind, owner, name, status, number in rows:
        if (kind, owner, name) in shown:
            shown[kind, owner, name][status] = int(number)
    return found


class Counting:
    """The dataids of each job, again and again. Those that wait are really counted now and then, as that takes long
    where they are many; in between they are what is left when all others are taken away."""

    def __init__(self, project: str | None) -> None:
        self._project = project
        self._of_all: dict[str, int] = {}
        self._next = float("-inf")

    def jobs(self, store: LoopStore) -> dict[str, dict[str, int]]:
        started = time.monotonic()
        if started < self._next:
            rows = store.read("counts", {"project": self._project}, file="grid")
            found = _named(store, self._project, rows)["jobs"]
            if found.keys() == self._of_all.keys():
                for job, of in found.items():
                    of["PENDING"] = max(0, self._of_all[job] - sum(of.values()))
                return found
        found = counts(store, project=self._project)["jobs"]
        self._of_all = {job: sum(n for status, n in of.items() if status != "EXPIRED") for job, of in found.items()}
        now = time.monotonic()
        self._next = now + COUNT_SHARE * (now - started)
        return found
