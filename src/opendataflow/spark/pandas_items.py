"""The items of a stream's batch in pandas: the chain runs once for each, in order, and the results are put together.

Each item starts from the sources as they are. What comes out of it is added to the destination: without the rows of the
first source, if these stand before it, since transformations that were written to add to a DataFrame return all of it.

It stands alone but for its neighbours that do too: it runs in Spark's workers, where OpenDataFlow may not be installed.
"""

from collections.abc import Callable
from typing import Any

_LOOKS = 16  # rows by which the first source is known again


def run_items(
    items: list[tuple[int, dict[str, Any]]], sources: list[Any], one: Callable[[list[Any], dict[str, Any]], Any],
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
            result = one([first, *sources[1:]], dict(item))
        except (Exception, SystemExit) as error:
            if not set_aside:
                raise
            aside.append([offset, told(error)])
            continue
        made.append(added(result, sources[0]) if sources else result)
    filled = [frame for frame in made if len(frame)] or made[:1]  # a frame without rows would change the types
    if not filled:
        return None, aside
    return pandas.concat(filled, ignore_index=True), aside


def added(result: Any, first: Any) -> Any:
    """The result without the rows of the first source, if it begins with them."""
    rows = len(first)
    if rows == 0 or len(result) < rows or not set(first.columns) <= set(result.columns):
        return result
    at = sorted({rows - 1, *(rows * look // _LOOKS for look in range(_LOOKS))})
    before, after = (frame.iloc[at][list(first.columns)].astype(object) for frame in (first, result))
    pairs = zip(before.to_numpy().ravel(), after.to_numpy().ravel(), strict=True)
    return result.iloc[rows:] if all(_is_same(one, other) for one, other in pairs) else result


def _is_same(one: Any, other: Any) -> bool:
    try:
        return bool(one is other or one == other or (one != one and other != other))  # noqa: PLR0124  NaN
    except (TypeError, ValueError):  # of pandas.NA, of arrays in cells
        return str(one) == str(other)
