"""A check as Spark columns: for each of its columns, a condition that is true of the rows that break it.

A condition is true or false, never null, and never raises: it goes into the write's own pass, which ANSI mode would
stop. The exception is `expression`, whose SQL is the project's own. What each kind means is the same as in
checks/row_checks.py, where files are checked without Spark.
"""

import datetime
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampNTZType

from opendataflow.domain.checks.check import Check, missing_column, unfit_bounds, what_breaks, without_text
from opendataflow.domain.checks.pattern_words import matching_words
from opendataflow.domain.checks.patterns import java_pattern
from opendataflow.domain.partitions.scheme import slot_of
from opendataflow.domain.types.spark import family, plain_name
from opendataflow.domain.types.values import (
    BOOLEAN,
    DATE,
    HAVE_TEXT,
    INTEGER,
    MOMENT,
    NUMBER,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    VOID,
    ZONED,
    moment,
    number,
)
from opendataflow.spark.footers import Within
from opendataflow.spark.types import types_of

_MOST_WORDS = 2000


class Condition(NamedTuple):
    """One column of one check."""

    what: str  # what a row is that breaks it
    broken: Column
    shown: Column | None = None  # the value to name, as text
    column: str = ""
    within: Within | None = None  # where the extent of the column, as footers tell it, is answer enough


class Compiled(NamedTuple):
    """A check on a DataFrame of a known schema: what can be asked of its rows, and what is wrong whatever they are."""

    conditions: tuple[Condition, ...] = ()
    problems: tuple[str, ...] = ()


class _Values(NamedTuple):
    """A column of the DataFrame: its values, and how they are compared."""

    name: str
    values: Column
    kind: str
    type: str
    is_zoneless: bool


def compile_check(check: Check, schema: StructType, dataid: str, *, csv_null: str | None = None) -> Compiled:
    """The check as conditions on the rows of such a DataFrame.

    `csv_null`: the rows go to a CSV where this text stands for null, so that it is null for whoever reads it.
    """
    if check.kind == "expression":
        passing = F.coalesce(F.expr(check.options["sql"]), F.lit(False))
        return Compiled((Condition(what_breaks(check, "", dataid), ~passing),))
    asked = [check.options["column"]] if check.kind == "partition" else list(check.options["columns"])
    conditions, problems = [], []
    for name in asked:
        if name not in schema.names:
            problems.append(missing_column(name, schema.names))
            continue
        column = _values(name, schema, csv_null)
        found = _COMPILERS[check.kind](column, check.options, dataid)
        if isinstance(found, str):
            problems.append(found)
        else:
            what = what_breaks(check, name, dataid, is_slot=slot_of(dataid, None) is not None)
            is_shown = check.kind != "not_null" and column.kind in (*HAVE_TEXT, NUMERIC, TIMESTAMP)
            shown = column.values.cast("string") if is_shown else None
            conditions.append(Condition(what, found, shown, name, _within(column, check, dataid)))
    return Compiled(tuple(conditions), tuple(problems))


def schema_problems(declared: Mapping[str, str] | None, found: StructType, *, is_exact: bool) -> tuple[str, ...]:
    """How the DataFrame differs from the declared schema; others may be there unless it `is_exact`."""
    if not declared:
        return ("the dataset declares no schema",)
    types = types_of(found)
    problems = [missing_column(name, found.names) for name in declared if name not in types]
    problems += [
        f"column {name!r} is {types[name]}, not {wanted}"
        for name, wanted in declared.items()
        if name in types and plain_name(types[name]) != plain_name(wanted)
    ]
    if is_exact:
        problems += [f"there is a column {name!r} that is not declared" for name in types if name not in declared]
    return tuple(problems)


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _values(name: str, schema: StructType, csv_null: str | None) -> _Values:
    type_ = schema[name].dataType
    values = F.col(quoted(name))
    kind = TEXT if type_.simpleString() == VOID else family(type_.simpleString())
    if csv_null is not None and kind == TEXT:
        values = F.nullif(values, F.lit(csv_null))
    return _Values(name, values, kind, type_.simpleString(), isinstance(type_, TimestampNTZType))


def _within(column: _Values, check: Check, dataid: str) -> Within | None:
    """The same check as a condition on the column's lowest and highest value, and on its nulls."""
    times = column.kind in (DATE, TIMESTAMP)
    if "." in column.name or not (times or column.kind == INTEGER or column.type in ("float", "double")):
        return None  # nested, or of a type whose extent is not kept, or not to the last digit
    if check.kind == "not_null":
        return Within(may_be_null=False)
    if check.kind == "between":
        low, high = (_bound(bound, times=times) for bound in check.options["columns"][column.name])
        return Within(low, high)
    slot = slot_of(dataid, None) if check.kind == "partition" and times else None
    if slot is None:
        return None
    start, end = (one.replace(tzinfo=None) for one in slot)
    return Within(_day(start) if column.kind == DATE else start, below=end, may_be_null=False)


def _bound(bound: Any, *, times: bool) -> Any:
    if bound is None or type(bound) is int:
        return bound
    return moment(bound) if times else number(bound)


# One function for each kind: the condition, or what is wrong whatever the rows are ------------------------------------
def _not_null(column: _Values, _options: Mapping[str, Any], _dataid: str) -> Column:
    return column.values.isNull()


def _allowed(column: _Values, options: Mapping[str, Any], _dataid: str) -> Column:
    values, kind, allowed = column.values, column.kind, options["columns"][column.name]
    numbers_only = all(number(value) is not None and not isinstance(value, str) for value in allowed)
    if kind == INTEGER and all(type(value) is int for value in allowed):
        inside = values.isin([value for value in allowed if -(1 << 63) <= value < 1 << 63])
    elif kind in (INTEGER, NUMERIC) or (kind == TEXT and numbers_only):
        inside = _number(column).isin([one for value in allowed if (one := number(value)) is not None])
    elif kind in (DATE, TIMESTAMP):
        moments = [at for value in allowed if (at := moment(str(value))) is not None]
        inside = values.isin([_moment(column, at) for at in moments if kind == TIMESTAMP or at == _day(at)])
    elif kind in (TEXT, BOOLEAN):
        written = [str(value).lower() if isinstance(value, bool) else str(value) for value in allowed]
        inside = values.cast("string").isin(written)
    else:
        inside = F.lit(False)
    return values.isNotNull() & ~F.coalesce(inside, F.lit(False))


def _between(column: _Values, options: Mapping[str, Any], _dataid: str) -> Column | str:
    values, kind = column.values, column.kind
    low, high = options["columns"][column.name]
    problem = unfit_bounds(column.name, column.type, (low, high))
    if problem:
        return problem
    if kind in (DATE, TIMESTAMP):
        first, last = (None if bound is None else moment(bound) for bound in (low, high))
        if kind == DATE and first is not None and first != _day(first):
            first = _day(first) + datetime.timedelta(days=1)  # a date is its midnight
        low, high = (None if bound is None else _moment(column, bound) for bound in (first, last))
        compared = values
    elif kind == TEXT and (isinstance(low, str) or isinstance(high, str)):
        compared = values
    else:
        is_whole = all(bound is None or (type(bound) is int and abs(bound) < 1 << 63) for bound in (low, high))
        if kind == TEXT or not is_whole:
            compared, low, high = _number(column), number(low), number(high)
        else:
            compared = values
    inside = F.lit(True)
    for is_inside in ([] if low is None else [compared >= low]) + ([] if high is None else [compared <= high]):
        inside = inside & is_inside
    if kind in (NUMERIC, TEXT) and not isinstance(low, str) and not isinstance(high, str):
        inside = inside & ~F.isnan(compared.cast("double"))  # which Spark takes for greater than all others
    return values.isNotNull() & ~F.coalesce(inside, F.lit(False))


def _pattern(column: _Values, options: Mapping[str, Any], _dataid: str) -> Column | str:
    problem = without_text(column.name, column.type)
    if problem:
        return problem
    pattern = options["columns"][column.name]
    words = matching_words(pattern, _MOST_WORDS) if column.kind == TEXT else None
    if words and not any(sign in word for word in words for sign in "'\\"):
        # A pattern costs a thin pipeline a fifth of its time, a set of words next to nothing. As text: one call.
        listed = ", ".join(f"'{word}'" for word in words)
        matching = F.expr(f"{quoted(column.name)} IN ({listed})")
    else:
        matching = column.values.cast("string").rlike(java_pattern(pattern))
    return column.values.isNotNull() & ~F.coalesce(matching, F.lit(False))


def _partition(column: _Values, _options: Mapping[str, Any], dataid: str) -> Column:
    slot = slot_of(dataid, None)
    if slot is None:
        inside = _same(column, dataid)
    else:
        start, end = (one.replace(tzinfo=None) for one in slot)
        inside = _in_slot(column, start, end)
    return ~F.coalesce(inside, F.lit(False))


def _same(column: _Values, dataid: str) -> Column:
    values, kind = column.values, column.kind
    if kind == NUMERIC and (wanted := number(dataid)) is not None:
        return values.cast("double") == F.lit(wanted)
    if kind not in HAVE_TEXT:
        return F.lit(False)
    is_whole = kind == INTEGER and dataid.isascii() and dataid.isdigit()
    return values.cast("string") == F.lit(str(int(dataid)) if is_whole else dataid)


def _in_slot(column: _Values, start: datetime.datetime, end: datetime.datetime) -> Column:
    values = column.values
    if column.kind == DATE:  # which knows no hour
        last = end if end == _day(end) else _day(end) + datetime.timedelta(days=1)
        return (values >= _moment(column, _day(start))) & (values < _moment(column, last))
    if column.kind == TIMESTAMP:
        return (values >= _moment(column, start)) & (values < _moment(column, end))
    if column.kind != TEXT:
        return F.lit(False)
    zoned, zoneless = values.try_cast("timestamp"), values.try_cast("timestamp_ntz")
    as_zoned, as_zoneless = column._replace(is_zoneless=False), column._replace(is_zoneless=True)
    return values.rlike(MOMENT) & F.when(
        values.rlike(ZONED), (zoned >= _moment(as_zoned, start)) & (zoned < _moment(as_zoned, end))
    ).otherwise((zoneless >= _moment(as_zoneless, start)) & (zoneless < _moment(as_zoneless, end)))


_COMPILERS: dict[str, Callable[[_Values, Mapping[str, Any], str], Column | str]] = {
    "not_null": _not_null,
    "values": _allowed,
    "between": _between,
    "pattern": _pattern,
    "partition": _partition,
}


def _number(column: _Values) -> Column:
    """As a double; null for a text that is none."""
    if column.kind != TEXT:
        return column.values.cast("double")
    return F.when(column.values.rlike(NUMBER), column.values.try_cast("double"))


def _day(moment_: datetime.datetime) -> datetime.datetime:
    return moment_.replace(hour=0, minute=0, second=0, microsecond=0)


def _moment(column: _Values, at: datetime.datetime) -> Column:
    """As a literal of the column's type: an instant in UTC whatever the session's zone is, or as it is written."""
    if column.kind == DATE:
        return F.lit(at.date())
    text = at.isoformat(sep=" ")
    return F.lit(text).cast("timestamp_ntz") if column.is_zoneless else F.lit(f"{text}+00:00").cast("timestamp")
