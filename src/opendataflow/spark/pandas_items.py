"""The items of a stream's batch in pandas: the chain runs once for each, in order.

What it returns is what the stream says. Only the items that came: each starts from the sources as they are, and the
results are put together, to be added to the destination. Or the whole dataset with the item in it: then each item
starts from what the one before it came to.

It stands alone but for its neighbours that do too: it runs in Spark's workers, where OpenDataFlow may not be installed.
"""

from collections.abc import Callable
from typing import Any

Item = dict[str, Any]
SNAPSHOT_ITEMS = 64  # what the code has half changed when it fails is made again from so many items before it


def run_items(
    items: list[tuple[int, Item]], sources: list[Any], one: Callable[[list[Any], Item], Any],
    told: Callable[[BaseException], str], *, set_aside: bool,
) -> tuple[Any, list[list[Any]]]:  # fmt: skip
    """What `one(sources, item)` returns for all items, and the offsets and errors of those that it failed on.

    The result is None when there is nothing: all of them failed.
    """
    import pandas

    made, aside = [], []
    for offset, item in items:
        first = pandas.DataFrame([item]) if not sources else sources[0].copy()
        try:
            made.append(one([first, *sources[1:]], dict(item)))
        except (Exception, SystemExit) as error:
            if not set_aside:
                raise
            aside.append([offset, told(error)])
    filled = [frame for frame in made if len(frame)] or made[:1]  # a frame without rows would change the types
    if not filled:
        return None, aside
    return pandas.concat(filled, ignore_index=True), aside


def fold_items(
    items: list[tuple[int, Item]], state: Any, others: list[Any], one: Callable[[list[Any], Item], Any],
    told: Callable[[BaseException], str], *, set_aside: bool,
) -> tuple[Any, list[list[Any]]]:  # fmt: skip
    """The state after `state = one([state, *others], item)` for each item, without those that it failed on."""
    aside: list[list[Any]] = []
    snapshot = state.copy()
    since: list[Item] = []  # what came after the snapshot
    for offset, item in items:
        try:
            state = one([state, *others], dict(item))
        except (Exception, SystemExit) as error:
            if not set_aside:
                raise
            aside.append([offset, told(error)])
            state = snapshot.copy()
            for before in since:
                state = one([state, *others], dict(before))
            continue
        since.append(item)
        if len(since) == SNAPSHOT_ITEMS:
            snapshot, since = state.copy(), []
    return state, aside
