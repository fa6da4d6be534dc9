"""SQL text of a chunk: names and values quoted as the database wants them, and the condition that is the chunk.

Values are literals here, quoted by `literal`, and not parameters. PostgreSQL types a literal by the column that it is
compared with, so that `'00042'` is a number where the column is one; and rows leave it over COPY, which takes none.

PostgreSQL, SQLite and BigQuery are written here; how other databases quote is sqlglot's to know, which is loaded for
them alone. A database that sqlglot does not know is written to as the SQL standard has it.
"""

import datetime
import decimal
import os
import re
from collections.abc import Sequence
from typing import Any

from opendataflow.domain.partitions.scheme import find_kind, slot_of
from opendataflow.domain.types.databases import is_number, is_text
from opendataflow.errors import ConfigurationError
from opendataflow.spark.spec import Database

ALL_ROWS = "1 = 1"
_PARTS = re.compile(r'"(?:[^"]|"")*"|`[^`]*`|[^.]+')
_STANDARD = ("postgresql", "sqlite", "jdbc")
_SQLGLOT = {"mariadb": "mysql", "mssql": "tsql", "sqlserver": "tsql", "hive2": "hive", "ch": "clickhouse"}
_TEXT_FORMS = {"monthly": ("%Y-%m",), "daily": ("%Y-%m-%d",), "hourly": ("%Y-%m-%d %H", "%Y-%m-%dT%H")}


def dialect(database: Database, url: str | None = None) -> str:
    """Whose SQL it speaks: postgresql, sqlite, bigquery, jdbc, or the name of another driver."""
    if url is None:
        url = os.environ.get(database.url_variable, "") if database.url_variable else database.url
    if database.url_variable and not url:
        return "postgresql"  # an address that is not known here is Heroku's kind
    scheme = url.partition(":")[0].lower()
    if scheme in ("postgresql", "postgres"):
        return "postgresql"
    if scheme in ("sqlite", "bigquery", "jdbc"):
        return scheme
    for known in ("postgresql", "sqlite", "bigquery"):
        if database.driver and known in database.driver:
            return known
    return (database.driver or scheme).rpartition("/")[2].removeprefix("adbc_driver_")


def quoted(name: str, kind: str = "postgresql") -> str:
    """A table's name as it is written: public.customers is "public"."customers"; a part may be quoted already."""
    parts = _PARTS.findall(name)
    if not parts or "\0" in name:
        raise ConfigurationError(f"{name!r} is no name of a table")
    return ".".join(identifier(_bare(part), kind) for part in parts)


def identifier(name: str, kind: str = "postgresql") -> str:
    """One name, of a column for example, dots and all."""
    if kind == "bigquery":
        return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"
    if known := _find_dialect(kind):
        from sqlglot import exp

        return exp.to_identifier(name, quoted=True).sql(dialect=known)
    return '"' + name.replace('"', '""') + '"'


def _bare(part: str) -> str:
    if part[:1] == part[-1:] == '"':
        return part[1:-1].replace('""', '"')
    return part.strip("`")


def literal(value: Any, kind: str = "postgresql") -> str:
    """A value in SQL text; nothing in it can end it."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | decimal.Decimal():
            return str(value)
        case float():
            return repr(value)
        case datetime.datetime() if value.tzinfo is not None:
            return _quoted_text(value.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f+00"), kind)
        case datetime.datetime():
            return _quoted_text(value.isoformat(sep=" "), kind)
        case datetime.date():
            return _quoted_text(value.isoformat(), kind)
    return _quoted_text(str(value), kind)


def _find_dialect(kind: str) -> str | None:
    """sqlglot's name for the database; None for those that quote as the standard has it, or that it does not know."""
    if kind in _STANDARD:
        return None
    from sqlglot.dialects.dialect import Dialect

    name = _SQLGLOT.get(kind, kind)
    return name if Dialect.get(name) is not None else None


def _quoted_text(text: str, kind: str) -> str:
    if "\0" in text:
        raise ConfigurationError(f"{text!r} holds a zero byte, which no database takes in text")
    if kind == "bigquery":
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r") + "'"
    if known := _find_dialect(kind):
        from sqlglot import exp

        return exp.Literal.string(text).sql(dialect=known)
    doubled = text.replace("'", "''")
    if "\\" in text and kind == "postgresql":
        # Right whatever standard_conforming_strings is.
        return " E'" + doubled.replace("\\", "\\\\") + "'"
    return f"'{doubled}'"


# The chunk ------------------------------------------------------------------------------------------------------------
def chunk_condition(database: Database, column_type: str = "") -> tuple[str, tuple[Any, ...]]:
    """The WHERE of the database's dataids, and its parameters (none so far).

    A day, hour or month is the half-open range of its slot, in UTC; any other dataid is compared for equality, as the
    column's type has it. `column_type` is the database's name of that type; without it a column of text that holds
    times cannot be told from one of timestamps.
    """
    column = database.partition_column
    if column is None or not database.dataids:
        return ALL_ROWS, ()
    kind, name, type_ = dialect(database), identifier(column, dialect(database)), column_type.lower()
    is_time = all(find_kind(dataid) in ("daily", "hourly", "monthly") for dataid in database.dataids)
    if is_time and is_number(type_):
        raise ConfigurationError(
            f"`partition_column: {column}` is {column_type}, and {database.dataids[0]} is a time; "
            "make a date or a timestamp of it in `query:`"
        )
    if is_time:
        ranges = (
            _text_ranges(database.dataids)
            if kind == "sqlite" or is_text(type_)
            else _time_ranges(database.dataids, type_, kind)
        )
        return _any_of([f"{name} >= {low} AND {name} < {high}" for low, high in ranges]), ()
    values = [_value(dataid, type_, kind) for dataid in database.dataids]
    return (f"{name} = {values[0]}" if len(values) == 1 else f"{name} IN ({', '.join(values)})"), ()


def _any_of(conditions: Sequence[str]) -> str:
    return conditions[0] if len(conditions) == 1 else " OR ".join(f"({one})" for one in conditions)


def _value(dataid: str, type_: str, kind: str) -> str:
    if is_number(type_) and kind != "postgresql" and re.fullmatch(r"-?[0-9]+", dataid):
        return str(int(dataid))  # elsewhere a number is not compared with text
    return literal(dataid, kind)


def slots(dataids: Sequence[str]) -> list[tuple[datetime.datetime, datetime.datetime]]:
    """The time that dataids cover: adjoining slots are one."""
    found = sorted(slot for slot in (slot_of(dataid, None) for dataid in dataids) if slot is not None)
    merged: list[tuple[datetime.datetime, datetime.datetime]] = []
    for start, end in found:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _time_ranges(dataids: Sequence[str], type_: str, kind: str) -> list[tuple[str, str]]:
    return [(time_literal(start, type_, kind), time_literal(end, type_, kind)) for start, end in slots(dataids)]


def time_literal(moment: datetime.datetime, type_: str, kind: str) -> str:
    """A moment (UTC) as the column's type takes it: dates and local timestamps are UTC's."""
    if kind == "postgresql":
        # A date takes the day of it, and a timestamp without time zone leaves the zone out.
        return f"'{moment:%Y-%m-%d %H:%M:%S.%f}+00'"
    if type_.startswith("date") and type_ != "datetime":
        return f"'{moment:%Y-%m-%d}'"
    zone = "+00:00" if kind == "bigquery" and type_ == "timestamp" else ""
    return f"'{moment:%Y-%m-%d %H:%M:%S}{zone}'"


def _text_ranges(dataids: Sequence[str]) -> list[tuple[str, str]]:
    """Of times that are text as ISO writes them, with a space or a T before the hour."""
    ranges = []
    for dataid in dataids:
        start, end = slot_of(dataid, None) or (None, None)
        if start is None or end is None:
            continue
        forms = _TEXT_FORMS[str(find_kind(dataid))]
        ranges += [(f"'{start.strftime(form)}'", f"'{end.strftime(form)}'") for form in forms]
    return ranges
