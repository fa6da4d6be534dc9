"""The grid of dataset × dataid: which lines and columns there are, and windows of its cells.

Nothing here looks at all chunks: lines are datasets, columns are counted by arithmetic, counts come from the tally, and
cells are sought. The one exception are numbers without leading zeros and without a declared end: how far they go is
looked up once, and kept.
"""

import datetime
import functools
import json
from typing import NamedTuple

from opendataflow.domain.partitions.scheme import (
    TIME_KINDS,
    Axis,
    dataid_at,
    find_axis,
    last_expected_place,
    natural_key,
    place_of,
)
from opendataflow.store.claims import LoopStore
from opendataflow.store.reports.grid import (
    GAP,
    LETTERS,
    NOTHING,
    Counts,
    Key,
    Line,
    Then,
    count_before,
    count_chunks,
    counts_then,
    find_then,
    list_lengths,
    list_lines,
    newest,
    read_cells,
    read_listed,
)
from opendataflow.store.rows import utc_text

KINDS = ("daily", "hourly", "monthly", "numbered", "other")
ORDER = ("FAILED", "HOLD", "RESUBMIT", "RUNNING", GAP, "PENDING", "READY")  # the worst first
SPARSE = 4  # numbers with more holes than so many times what is there are listed, not counted
_STEP = 2000  # numbers that are tried after the highest one known


class Row(NamedTuple):
    """A dataset as a line of cells: the chunks at the places from `first` to `last`."""

    project: str
    datasetid: str
    kind: str  # of the table that it stands in
    axis: Axis | None  # None: by the text of its dataids
    first: int
    last: int
    expected: int  # up to here a missing chunk is a gap; below `first`: nothing is expected
    counts: dict[str, int]  # by status, and gaps; of now where those of then are not known
    is_clock: bool

    @property
    def key(self) -> Key:
        return self.project, self.datasetid

    @property
    def size(self) -> int:
        return max(0, self.last - self.first + 1)

    @property
    def worst(self) -> str:
        return next((status for status in ORDER if self.counts.get(status)), "")


class Grid(NamedTuple):
    """All that was asked for, without its cells."""

    kind: str
    rows: list[Row]  # of this kind
    every: list[Row]  # of all kinds
    kinds: dict[str, dict[str, int]]  # for each: datasets, FAILED, GAP
    counts: dict[str, int]  # of all kinds, in every status
    first: int
    last: int
    then: Then | None
    is_counted: bool  # False: too much has changed since then to say how many there were
    upto: int  # the newest change that is in it

    @property
    def columns(self) -> int:
        return max(0, self.last - self.first + 1)


class Block(NamedTuple):
    """A run of cells of one dataset, in order."""

    start: int
    cells: list[str]
    dataids: list[str]


# Which lines ----------------------------------------------------------------------------------------------------------
def find_grid(
    store: LoopStore, *, project: str | None = None, name: str = "", status: str | None = None, kind: str | None = None,
    at: datetime.datetime | None = None,
) -> Grid:  # fmt: skip
    """The lines in this status whose name has this in it, by kind; without a kind, the one with most chunks."""
    upto = newest(store)
    then = find_then(store, utc_text(at.timestamp())) if at is not None else None
    lines = [line for line in list_lines(store, project=project) if name.lower() in line.datasetid.lower()]
    lines.sort(key=lambda line: (line.project, natural_key(line.datasetid)))
    rows, is_counted = _rows(store, lines, project, at, then)
    totals: dict[str, int] = {}
    for row in rows:
        for one, number in row.counts.items():
            totals[one] = totals.get(one, 0) + number
    if status is not None and is_counted:
        rows = [row for row in rows if row.counts.get(status)]
    kinds = {one: {"datasets": 0, "FAILED": 0, GAP: 0} for one in KINDS}
    for row in rows:
        told = kinds[row.kind]
        told["datasets"] += 1
        for one in ("FAILED", GAP):
            told[one] += row.counts.get(one, 0)
    chunks = dict.fromkeys(KINDS, 0)
    for row in rows:
        chunks[row.kind] += sum(row.counts.values())
    shown = kind or max(KINDS, key=lambda one: (chunks[one], kinds[one]["datasets"]))
    of_kind = [row for row in rows if row.kind == shown]
    some = [row for row in of_kind if row.size] or of_kind
    first, last = min((row.first for row in some), default=0), max((row.last for row in some), default=-1)
    return Grid(shown, of_kind, rows, kinds, totals, first, last, then, is_counted, upto)


def find_row(store: LoopStore, project: str, datasetid: str, *, at: datetime.datetime | None = None) -> Row | None:
    """The line of one dataset."""
    then = find_then(store, utc_text(at.timestamp())) if at is not None else None
    lines = [line for line in list_lines(store, project=project) if line.datasetid == datasetid]
    rows, _ = _rows(store, lines, project, at, then)
    return rows[0] if rows else None


def _rows(
    store: LoopStore, lines: list[Line], project: str | None, at: datetime.datetime | None, then: Then | None
) -> tuple[list[Row], bool]:
    totals, _ = count_chunks(store, project=project)
    counts: Counts | None = totals if then is None else counts_then(store, totals, then)
    now = datetime.datetime.fromtimestamp(store.clock(), datetime.UTC)
    told = totals if counts is None else counts
    return [_row(store, line, totals, told.get(line.key, {}), now, at) for line in lines], counts is not None


@functools.lru_cache(maxsize=4096)
def _declared_axis(partitions: str) -> Axis | None:
    return find_axis(json.loads(partitions), None)


def _written_axis(line: Line) -> Axis | None:
    """How dataids without a scheme are counted: by how the last is written, or the first, where that has zeros."""
    padded = line.lowest is not None and line.lowest.startswith("0") and len(line.lowest) == len(line.highest or "")
    return find_axis(None, line.lowest if padded else line.highest)


def _row(
    store: LoopStore, line: Line, totals: Counts, counts: dict[str, int], now: datetime.datetime,
    at: datetime.datetime | None,
) -> Row:  # fmt: skip
    declared = _declared_axis(line.partitions) if line.partitions else None
    axis = declared or _written_axis(line)
    total = sum(totals.get(line.key, {}).values())
    bounds = _bounds(store, line, axis, total, now) if axis is not None else None
    if axis is None or bounds is None:
        return Row(*line.key, "other", None, 0, total - 1, -1, counts, line.clock is not None)
    first, last = bounds
    kind = axis.kind if axis.kind in TIME_KINDS else "numbered" if axis.kind in ("sequence", "shards") else "other"
    expected = first - 1
    if declared is not None and line.clock is None:
        expected = last if axis.kind == "sequence" and axis.last is None else last_expected_place(axis, now=at or now)
        if at is not None and axis.kind in TIME_KINDS:
            last = max(first - 1, min(last, expected + 2))  # what was then the latest stays in sight
    row = Row(*line.key, kind, axis, first, last, expected, counts, line.clock is not None)
    gaps = _count_gaps(row, line)
    return row._replace(counts={**counts, GAP: gaps}) if gaps else row


def _bounds(store: LoopStore, line: Line, axis: Axis, total: int, now: datetime.datetime) -> tuple[int, int] | None:
    """The places that the line shows; None: they cannot be counted."""
    declared = line.partitions is not None
    low, high = (place_of(axis, one) if one is not None else None for one in (line.lowest, line.highest))
    if axis.kind in TIME_KINDS:
        if declared:
            return axis.first, max(last_expected_place(axis, now=now), -1 if high is None else high)
        return (low, high) if low is not None and high is not None else None
    if axis.last is not None:
        return axis.first, axis.last
    if not total:
        return axis.first, axis.first - 1
    if axis.width > 1:  # leading zeros: text is in the order of the numbers
        if low is None or high is None:
            return None
        return axis.first if declared else low, high
    numbers = _number_bounds(store, line.key, axis, total)
    if numbers is None or numbers[1] - numbers[0] > SPARSE * total + _STEP:
        return None
    return axis.first if declared else numbers[0], numbers[1]


class _Seen(NamedTuple):
    total: int
    low: int
    high: int


_SEEN: dict[tuple[str, Key], _Seen] = {}


def _number_bounds(store: LoopStore, key: Key, axis: Axis, total: int) -> tuple[int, int] | None:
    """The lowest and highest number. What came after the last look is tried first; else all dataids are looked at."""
    seen = _SEEN.get((store.store_id, key))
    if seen is not None and seen.total == total:
        return seen.low, seen.high
    if seen is not None and 0 < total - seen.total <= _STEP:
        tried = [dataid_at(axis, place) for place in range(seen.high + 1, seen.high + 1 + _STEP)]
        there = [place for place, cell in enumerate(read_cells(store, [key], tried)[0], 1) if cell != NOTHING]
        if len(there) == total - seen.total:
            seen = _SEEN[store.store_id, key] = _Seen(total, seen.low, seen.high + there[-1])
            return seen.low, seen.high
    places = []
    for _, low, high, _ in list_lengths(store, key):
        ends = place_of(axis, low), place_of(axis, high)
        if ends[0] is None or ends[1] is None:
            return None
        places += [ends[0], ends[1]]
    if not places:
        return None
    seen = _SEEN[store.store_id, key] = _Seen(total, min(places), max(places))
    return seen.low, seen.high


def _count_gaps(row: Row, line: Line) -> int:
    """Expected and not there; what is there already beyond what is expected is not counted against it."""
    if row.expected < row.first or row.axis is None:
        return 0
    high = place_of(row.axis, line.highest) if line.highest is not None else None
    beyond = max(0, high - row.expected) if high is not None and row.kind in TIME_KINDS else 0
    known = sum(row.counts.values()) - beyond
    return max(0, min(row.expected, row.last) - row.first + 1 - max(0, known))


# Windows --------------------------------------------------------------------------------------------------------------
def read_window(
    store: LoopStore, grid: Grid, *, row: int, rows: int, column: int, columns: int
) -> list[tuple[Row, list[str], list[str]]]:
    """Lines with their cells and dataids in these columns; NOTHING where a line has no place."""
    shown = grid.rows[row : row + rows]
    places = range(grid.first + column, min(grid.first + column + columns, grid.last + 1))
    by_axis: dict[Axis | None, list[Row]] = {}
    for one in shown:
        shared = one.axis._replace(first=0, last=None) if one.axis is not None and grid.kind != "other" else None
        by_axis.setdefault(shared, []).append(one)
    found: dict[Key, tuple[list[str], list[str]]] = {}
    for axis, alike in by_axis.items():
        if axis is None:
            for one in alike:
                block = read_block(store, one, start=column, count=columns, then=grid.then)
                found[one.key] = block.cells, block.dataids
            continue
        dataids = [dataid_at(axis, place) for place in places]
        cells = read_cells(store, [one.key for one in alike], dataids, then=grid.then)
        for one, letters in zip(alike, cells, strict=True):
            found[one.key] = _with_gaps(one, letters, places), dataids
    return [(one, *found[one.key]) for one in shown]


def read_block(store: LoopStore, row: Row, *, start: int, count: int, then: Then | None = None) -> Block:
    """The cells of one dataset from this one on."""
    if row.axis is None:
        dataids, cells = read_listed(store, row.key, skip=start, limit=count, then=then)
        return Block(start, cells, dataids)
    places = range(row.first + start, min(row.first + start + count, row.last + 1))
    dataids = [dataid_at(row.axis, place) for place in places]
    cells = read_cells(store, [row.key], dataids, then=then)[0]
    return Block(start, _with_gaps(row, cells, places), dataids)


def _with_gaps(row: Row, cells: list[str], places: range) -> list[str]:
    gap = LETTERS[GAP]
    return [
        gap if cell == NOTHING and row.first <= place <= row.expected else cell
        for cell, place in zip(cells, places, strict=True)
    ]


def find_index(store: LoopStore, row: Row, dataid: str) -> int | None:
    """At which place of its line a dataid is; None: at none."""
    if row.axis is None:
        at = count_before(store, row.key, dataid)
        return at if read_listed(store, row.key, skip=at, limit=1)[0] == [dataid] else None
    place = place_of(row.axis, dataid)
    return place - row.first if place is not None and row.first <= place <= row.last else None
