"""Filters and columns pushed down into the database, for one query.

Spark's Python data sources take filters, not columns; and Spark keeps one plan for all uses of a source, so that of
two uses with two filters both would get the last one's rows. So the query is looked at first: what uses a source once
may push its filters down, and columns that nothing above it refers to are not fetched. What was found goes to Spark's
planning process, which runs on this machine, in a small file. Without it, or over Spark Connect, everything is fetched.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from opendataflow.spark.sql_source import LOOKING

_NAME = re.compile(r"\bsql_\d+_\d+\b")
_ID = re.compile(r"#(\d+)")
# Of these, a column that passes through is the same one above and below; what else they need, they refer to.
_TRANSPARENT = {
    "Project", "Filter", "Aggregate", "Join", "Sort", "Window", "Generate", "GlobalLimit", "LocalLimit",
    "CollectMetrics", "Repartition", "RepartitionByExpression", "RebalancePartitions", "Sample",
}  # fmt: skip
_MOST_KEPT = 10_000
_notes: dict[str, str] = {}


def remember(name: str, note: str) -> None:
    """The source of this name reads its note there."""
    while len(_notes) >= _MOST_KEPT:
        del _notes[next(iter(_notes))]
    _notes[name] = note


@contextlib.contextmanager
def pushed_down(df: DataFrame) -> Iterator[None]:
    """While this lasts, what writes `df` fetches what it needs only. No other query may use its sources meanwhile."""
    # Looked at in a copy: a DataFrame keeps the plan that it was given first.
    query = df.select("*")._jdf.queryExecution() if getattr(df, "_jdf", None) is not None else None
    names = _used_once(query.analyzed()) if query is not None else set()
    if query is None or not names:
        yield
        return
    notes = [_notes[name] for name in names]
    tables: list[Any] = []
    try:
        for note in notes:
            _write(note, LOOKING)
        plan = query.optimizedPlan()
        needed: dict[str, set[str]] = {}
        _look(plan, set(_ID.findall(plan.output().toString())), needed, tables)
        for name in names:
            if name in needed and name in _used_once(plan):
                _write(_notes[name], sorted(needed[name]))
            else:
                _remove(_notes[name])
        _forget_plans(tables)
        yield
    finally:
        for note in notes:
            _remove(note)
        _forget_plans(tables)


def _used_once(plan: Any) -> set[str]:
    """Sources that stand in the plan, its subqueries included, one time."""
    found = _NAME.findall(plan.treeString())
    return {name for name in found if name in _notes and found.count(name) == 1}


def _look(node: Any, wanted: set[str], needed: dict[str, set[str]], tables: list[Any]) -> None:
    """Which columns of the sources below are wanted, by the ids that Spark gives them."""
    children = node.children()
    if children.size() == 0:
        _look_at_leaf(node, wanted, needed, tables)
    for at in range(children.size()):
        child = children.apply(at)
        if node.nodeName() in _TRANSPARENT:
            _look(child, wanted | set(_ID.findall(node.references().toString())), needed, tables)
        else:
            _look(child, set(_ID.findall(child.output().toString())), needed, tables)


def _look_at_leaf(node: Any, wanted: set[str], needed: dict[str, set[str]], tables: list[Any]) -> None:
    name = _NAME.search(node.simpleString(1000))
    if name is None or name[0] not in _notes:
        return
    output = node.output()
    columns = [output.apply(at) for at in range(output.size())]
    needed[name[0]] = {column.name() for column in columns if str(column.exprId().id()) in wanted} or {
        columns[0].name()
    }
    relation = node.relation() if hasattr(node, "relation") else node
    tables.append(relation.table())


def _forget_plans(tables: list[Any]) -> None:
    """Spark has planned the sources for one query; the next one is another."""
    for table in tables:
        field = table.getClass().getDeclaredField("ds")
        field.setAccessible(True)
        field.get(table).setReadInfo(None)


def _write(note: str, columns: list[str]) -> None:
    with open(os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(columns, file)


def _remove(note: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(note)
