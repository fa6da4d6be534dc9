"""What the footers of a chunk's Parquet files say of its columns: a check that they answer costs its rows nothing."""

import datetime
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from opendataflow.spark.files_local import data_files
from opendataflow.spark.spec import Place
from opendataflow.storage.buckets.files import at_once

MOST_FILES = 10_000


class Extent(NamedTuple):
    """A column's nulls, lowest and highest value; both None where no row has a value."""

    nulls: int = 0
    low: Any = None
    high: Any = None


class Within(NamedTuple):
    """What a column's extent must be for a check to hold in every row."""

    low: Any = None
    high: Any = None
    below: Any = None
    may_be_null: bool = True

    def holds(self, extent: Extent) -> bool:
        if extent.nulls and not self.may_be_null:
            return False
        if extent.low is None:
            return True
        return (
            (self.low is None or extent.low >= self.low)
            and (self.high is None or extent.high <= self.high)
            and (self.below is None or extent.high < self.below)
        )


def find_extents(place: Place, columns: Iterable[str]) -> dict[str, Extent]:
    """The extents of these columns, of those where every row group of every file says it.

    Several footers are read at the same time. None is where there are so many that a pass by Spark is the quicker way.
    """
    wanted = list(dict.fromkeys(columns))
    paths = list(itertools.islice(data_files(place.location), MOST_FILES + 1))
    if len(paths) > MOST_FILES:
        return {}
    found = dict.fromkeys(wanted, Extent())
    for extents in at_once(lambda path: _extents(path, wanted), paths):
        found = {name: _joined(extent, extents[name]) for name, extent in found.items() if name in extents}
    return found


def _extents(path: str, columns: Sequence[str]) -> dict[str, Extent]:
    """Of one file; it is closed when this returns, whatever is found in it."""
    from pyarrow import parquet

    metadata = parquet.read_metadata(path)
    names = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    places = {name: names.index(name) for name in columns if name in names}
    found = dict.fromkeys(columns, Extent())
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows == 0:
            continue
        for name in list(found):
            extent = _extent(group.column(places[name]) if name in places else None, group.num_rows)
            if extent is None:
                del found[name]
            else:
                found[name] = _joined(found[name], extent)
    return found


def _extent(column: Any, rows: int) -> Extent | None:
    statistics = None if column is None else column.statistics
    if statistics is None or not statistics.has_null_count:
        return None
    nulls = int(statistics.null_count)
    if nulls == rows:
        return Extent(nulls)
    try:
        low, high = _plain(statistics.min), _plain(statistics.max)
    except (ValueError, OverflowError):  # a time that Python cannot say
        return None
    is_known = statistics.has_min_max and low is not None and low == low and high == high  # noqa: PLR0124  NaN is not
    return Extent(nulls, low, high) if is_known else None


def _plain(value: Any) -> Any:
    """Times without zone, in UTC; dates as their midnights."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, datetime.date):
        return datetime.datetime(value.year, value.month, value.day)  # noqa: DTZ001  compared with zoneless times
    return value


def _joined(one: Extent, other: Extent) -> Extent:
    if one.low is None or other.low is None:
        known = other if one.low is None else one
        return Extent(one.nulls + other.nulls, known.low, known.high)
    return Extent(one.nulls + other.nulls, min(one.low, other.low), max(one.high, other.high))
