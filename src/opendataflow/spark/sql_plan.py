"""Into which parts a read is split, so that several tasks can read at once. PostgreSQL is asked what each way costs.

Parts of the table's pages (`ctid` ranges) need no key, are even whatever the keys are, and each reads its own pages
only. A chunk that an index finds is better split along its slot of time, and a small one not at all. The planner's own
estimates decide: parts that together cost much more than the whole are not worth it.
"""

import datetime
import json
from collections.abc import Sequence
from itertools import pairwise

from opendataflow.spark.adbc import Connection, open_access
from opendataflow.spark.sql_chunk import identifier, time_literal
from opendataflow.spark.sql_scan import Scan, join_snapshot, rows_of, run

ROWS_PER_PART = 200_000  # at least: a task and its connection cost as much as reading 50 thousand
MOST_ROWS_PER_PART = 5_000_000
_WORTH = 1.5  # how much more than the whole all parts may cost
_MICROSECOND = datetime.timedelta(microseconds=1)

# Of a partitioned table, the pages of its largest partition: a range of pages is read of each.
_PAGES = """
SELECT max(pg_relation_size(relid) / current_setting('block_size')::bigint)::bigint
FROM (SELECT relid FROM pg_partition_tree(to_regclass({table})) UNION SELECT to_regclass({table})) AS every(relid)
"""
_KIND = "SELECT relkind::text FROM pg_class WHERE oid = to_regclass({table})"


def count_parts(rows: int, *, at_once: int) -> int:
    """How many parts: as many as can be read at once, each of a size that is worth a task."""
    if rows < 2 * ROWS_PER_PART:
        return 1
    waves = -(-rows // (MOST_ROWS_PER_PART * at_once))
    return min(waves * at_once, rows // ROWS_PER_PART)


def estimated(connection: Connection, sql: str) -> tuple[int, float]:
    """Rows and cost of a statement as PostgreSQL's planner sees them, without running it."""
    run(connection, "SET LOCAL max_parallel_workers_per_gather = 0")
    (text,) = rows_of(connection, f"EXPLAIN (FORMAT JSON) {sql}", **{"adbc.postgresql.use_copy": "false"})[0]
    plan = json.loads(text)[0]["Plan"]
    return int(plan["Plan Rows"]), float(plan["Total Cost"])


def conditions_of_parts(scan: Scan, filters: Sequence[str]) -> list[str]:
    """A condition for each part: together they are the whole read, and no row is in two."""
    if scan.snapshot is None or scan.parts < 2:
        return [""]
    with open_access(scan.access) as connection:
        join_snapshot(connection, scan.snapshot)
        rows, whole = estimated(connection, scan.select(filters))
        count = count_parts(rows, at_once=scan.parts)
        if count == 1:
            return [""]
        best, best_cost = [""], whole * _WORTH
        for ways in (_along_time(scan, count), _along_pages(connection, scan, count)):
            if not ways:
                continue
            # The second one: the first may be all that there is, where the pages are few.
            cost = estimated(connection, scan.select([*filters, ways[1]]))[1] * len(ways)
            if cost < best_cost:
                best, best_cost = ways, cost
        return best


def _along_pages(connection: Connection, scan: Scan, count: int) -> list[str]:
    if scan.table is None:
        return []
    kinds = rows_of(connection, _KIND.format(table=scan.table))
    if not kinds or kinds[0][0] not in ("r", "m", "p"):
        return []
    pages = int(rows_of(connection, _PAGES.format(table=scan.table))[0][0] or 0)
    if pages < count:
        return []
    edges = [pages * number // count for number in range(count)]
    parts = [f"ctid >= '({low},0)' AND ctid < '({high},0)'" for low, high in pairwise(edges)]
    return [f"ctid < '({edges[1]},0)'", *parts[1:], f"ctid >= '({edges[-1]},0)'"]


def _along_time(scan: Scan, count: int) -> list[str]:
    if scan.range_column is None or len(scan.ranges) != 1 or not scan.range_type.startswith("timestamp"):
        return []
    (start, end), name = scan.ranges[0], identifier(scan.range_column)
    edges = [start + (end - start) // _MICROSECOND * number // count * _MICROSECOND for number in range(1, count)]
    told = [time_literal(edge, scan.range_type, "postgresql") for edge in edges]
    between = [f"{name} >= {low} AND {name} < {high}" for low, high in pairwise(told)]
    return [f"{name} < {told[0]}", *between, f"{name} >= {told[-1]}"]
