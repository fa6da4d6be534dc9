"""Filters of a DataFrame as SQL, where the database is known to decide exactly as Spark would."""

import datetime
import decimal
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from opendataflow.spark.sql_chunk import literal
from opendataflow.spark.sql_types import Column

_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=", GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="
}  # fmt: skip
_ORDERS = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
_LIKES: dict[type[Filter], str] = {
    StringStartsWith: "{}%", StringEndsWith: "%{}", StringContains: "%{}%"
}  # fmt: skip
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAX_IN = 1000


def as_sql(filter_: Filter, columns: Mapping[str, Column], kind: str) -> str | None:
    """The filter as a condition, or None when Spark is to decide."""
    if isinstance(filter_, Not):
        inner = as_sql(filter_.child, columns, kind)
        return None if inner is None else f"NOT ({inner})"
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    column = columns.get(path[0]) if len(path) == 1 else None
    if column is None:
        return None
    if isinstance(filter_, IsNull):
        return f"{column.sql_name} IS NULL"
    if isinstance(filter_, IsNotNull):
        return f"{column.sql_name} IS NOT NULL"
    return _compared(filter_, column.sql_name, column, kind)


def _compared(filter_: Filter, name: str, column: Column, kind: str) -> str | None:
    if isinstance(filter_, In):
        values = [_value(value, column, kind) for value in filter_.value if value is not None]
        if not values or None in values or len(values) > _MAX_IN or len(values) != len(filter_.value):
            return None
        return f"{name} IN ({', '.join(filter(None, values))})"
    if type(filter_) in _LIKES and kind in ("postgresql", "bigquery"):
        return _like(filter_, name, column, kind)
    value = _value(getattr(filter_, "value", None), column, kind)
    if value is None:
        return None
    if isinstance(filter_, EqualNullSafe):
        return f"{name} IS NOT DISTINCT FROM {value}" if kind == "postgresql" else None
    operator = _OPERATORS.get(type(filter_))
    if operator is None or (column.compared == "uuid" and operator != "="):
        return None
    if column.compared == "text" and isinstance(filter_, _ORDERS):
        # Spark orders text by its bytes, whatever the database's language is.
        return f'{name} COLLATE "C" {operator} {value}' if kind == "postgresql" else None
    return f"{name} {operator} {value}"


def _like(filter_: Any, name: str, column: Column, kind: str) -> str | None:
    if column.compared != "text" or not isinstance(filter_.value, str) or "\0" in filter_.value:
        return None
    escaped = re.sub(r"([\\%_])", r"\\\1", filter_.value)
    return f"{name} LIKE {literal(_LIKES[type(filter_)].format(escaped), kind)}"


def _value(value: Any, column: Column, kind: str) -> str | None:
    """The value as the column's type takes it; None for one that is not of the column's own kind."""
    match column.compared, value:
        case "bool", bool():
            return literal(value, kind) if kind != "sqlite" else None
        case "number", int() | decimal.Decimal() if not isinstance(value, bool):
            return f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)
        case "float", float() | int() if not isinstance(value, bool) and math.isfinite(value):
            return f"'{value!r}'::float8" if kind == "postgresql" else repr(float(value))
        case "text", str() if "\0" not in value:
            return literal(value, kind) + (" COLLATE BINARY" if kind == "sqlite" else "")
        case "uuid", str() if _UUID.fullmatch(value):
            return literal(value, kind)
        case "date", datetime.date() if not isinstance(value, datetime.datetime):
            return _typed("DATE", value.isoformat(), kind)
        case "timestamptz", datetime.datetime():
            return _typed("TIMESTAMP", f"{_utc(value):%Y-%m-%d %H:%M:%S.%f}+00", kind)
        case "timestamp", datetime.datetime():
            return _typed("DATETIME", f"{_utc(value):%Y-%m-%d %H:%M:%S.%f}", kind)
    return None


def _utc(value: datetime.datetime) -> datetime.datetime:
    return value.astimezone(datetime.UTC) if value.tzinfo is not None else value


def _typed(type_: str, text: str, kind: str) -> str | None:
    if len(text.partition("-")[0]) != 4:
        return None
    if kind == "bigquery":
        return f"{type_} '{text}'"
    return f"'{text}'" if kind == "postgresql" else None


def split(filters: Iterable[Filter], columns: Iterable[Column], kind: str) -> tuple[list[str], list[Filter]]:
    """Conditions for the database, and the filters that are left to Spark."""
    by_name = {column.name: column for column in columns}
    conditions, left = [], []
    for one in filters:
        sql = as_sql(one, by_name, kind)
        if sql is None:
            left.append(one)
        else:
            conditions.append(sql)
    return conditions, left
