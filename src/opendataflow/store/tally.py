"""How many stand in each status, without counting them: the tally, and what the history says came after it."""

from typing import Any

from opendataflow.store.loop import LoopStore, Transaction

FOLD_AT = 2000  # changes that a look may have to add up before somebody folds them in


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
    found: dict[str, dict[str, dict[str, int]]] = {"jobs": {}, "datasets": {}}
    names = store.read("names", {"project": project}, file="registry")
    several = len({row[1] for row in names}) > 1
    shown: dict[tuple[Any, ...], dict[str, int]] = {}
    for kind, owner, name in names:
        section = found["jobs" if kind == "job" else "datasets"]
        shown[kind, owner, name] = section.setdefault(f"{owner}.{name}" if several else name, {})
    for kind, owner, name, status, number in store.read("tally_counts", {"project": project, "now": store.time()}):
        if (kind, owner, name) in shown:
            shown[kind, owner, name][status] = int(number)
    return found
