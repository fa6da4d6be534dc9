"""The columns of a DataFrame in a database's words, and whether a table that is there can take them.

Nothing is lost on the way: a value that the table's column cannot hold as it is makes the column a retyped one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from opendataflow.spark.bigquery_types import bigquery_type, fitted_bigquery, refused_names
from opendataflow.spark.sql_chunk import identifier

ATTEMPT = "dataflow_attempt"  # in a staging table: the task attempt that wrote the row
DATAID = "dataflow_dataid"  # in a table without a partition column: whose row it is
RUN = "dataflow_run"  # in a table that has it: who appended the row
OWN = (ATTEMPT, DATAID, RUN)
TYPES_OF_OWN = {ATTEMPT: LongType(), DATAID: StringType(), RUN: LongType()}

_POSTGRES: dict[type[DataType], str] = {
    ByteType: "smallint",
    ShortType: "smallint",
    IntegerType: "integer",
    LongType: "bigint",
    FloatType: "real",
    DoubleType: "double precision",
    BooleanType: "boolean",
    DateType: "date",
    TimestampType: "timestamp with time zone",
    TimestampNTZType: "timestamp without time zone",
    StringType: "text",
    BinaryType: "bytea",
}
# DATE, TIMESTAMP and BOOLEAN tell readers what it is; SQLite keeps ISO text and 0 or 1 in them.
_SQLITE: dict[type[DataType], str] = {
    ByteType: "INTEGER",
    ShortType: "INTEGER",
    IntegerType: "INTEGER",
    LongType: "INTEGER",
    FloatType: "REAL",
    DoubleType: "REAL",
    BooleanType: "BOOLEAN",
    DateType: "DATE",
    TimestampType: "TIMESTAMP",
    TimestampNTZType: "TIMESTAMP",
    StringType: "TEXT",
    CharType: "TEXT",
    VarcharType: "TEXT",
    BinaryType: "BLOB",
}
_WIDER: dict[str, tuple[str, ...]] = {
    "smallint": ("smallint", "integer", "bigint", "numeric"),
    "integer": ("integer", "bigint", "numeric"),
    "bigint": ("bigint", "numeric"),
    "real": ("real", "double precision"),
    "text": ("text", "character varying", "character", "citext"),
    "character varying": ("text", "character varying", "character", "citext"),
    "character": ("text", "character varying", "character", "citext"),
}
# Types that Spark has as text. PostgreSQL does not make them of text by itself.
_AS_TEXT = ("json", "jsonb", "uuid", "xml", "inet", "cidr", "macaddr", "interval", "time without time zone", "hstore")
_ZONED, _LOCAL = "timestamp with time zone", "timestamp without time zone"
_MODIFIER = re.compile(r"\((?P<inside>[^)]*)\)")
_EXACT_DIGITS = 15  # of a number that SQLite keeps as a binary fraction


@dataclass(frozen=True, kw_only=True, slots=True)
class TableColumn:
    """A column of a table that is there, as the database tells it."""

    name: str
    type: str
    is_optional: bool = False  # the database has a value for it where none is given
    is_enum: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """How a column comes from the staging table to its own."""

    name: str  # in the table
    sql: str  # over the staging table


def column_type(kind: str, found: DataType) -> str | None:
    """The type of a new column for these values; None where the database has none."""
    if kind == "bigquery":
        return bigquery_type(found)
    if isinstance(found, DecimalType):
        # Text by its affinity: as a number SQLite would make a binary fraction of it.
        name = "numeric" if kind == "postgresql" else "DECIMAL_TEXT"
        return f"{name}({found.precision},{found.scale})"
    if kind == "sqlite":
        return _SQLITE.get(type(found))
    if isinstance(found, ArrayType):
        inner = None if isinstance(found.elementType, ArrayType) else column_type(kind, found.elementType)
        return None if inner is None else f"{inner}[]"
    if isinstance(found, CharType | VarcharType):
        return f"{'character' if isinstance(found, CharType) else 'character varying'}({found.length})"
    return _POSTGRES.get(type(found))


def plain_type(type_: str) -> str:
    """The type without precision and the like: numeric of numeric(10,2)."""
    return _MODIFIER.sub("", type_)


def unwritable(schema: StructType, kind: str) -> list[str]:
    """A sentence for each column that no table of this kind can hold."""
    problems = [
        f"column {name!r} is named as one that pipelines add; rename it" for name in schema.names if name in OWN
    ]
    if kind == "bigquery":
        problems += [f"{name!r} is no name that BigQuery has for a column; rename it" for name in refused_names(schema)]
    for field in schema:
        if isinstance(field.dataType, NullType):
            problems.append(f"column {field.name!r} has no type, since it is null throughout; cast it")
        elif column_type(kind, field.dataType) is None:
            told = field.dataType.simpleString()
            problems.append(
                f"column {field.name!r} is {told}, which {_names[kind]} cannot hold; make it text with `to_json`"
            )
    return problems


def definitions(schema: StructType, kind: str, own: Sequence[str]) -> str:
    """The columns of a new table: of the DataFrame, and our own."""
    columns = [f"{identifier(field.name, kind)} {column_type(kind, field.dataType)}" for field in schema]
    columns += [f"{identifier(name, kind)} {column_type(kind, TYPES_OF_OWN[name])} NOT NULL" for name in own]
    return ", ".join(columns)


def moves(schema: StructType, table: Sequence[TableColumn], kind: str) -> tuple[list[Move], list[str]]:
    """How each column gets into the table, and a sentence for each that is missing, new or retyped there.

    Names are compared as Spark does: `ID` is `id` where the table has no other such.
    """
    left = {column.name: column for column in table if column.name not in OWN}
    found, problems = [], []
    for field in schema:
        column = left.pop(field.name, None) or left.pop(_same(field.name, left), None)
        if column is None:
            problems.append(f"column {field.name!r} ({field.dataType.simpleString()}) is new, the table has none")
            continue
        sql = fitted(field, column, kind)
        if sql is None:
            told = field.dataType.simpleString()
            problems.append(f"column {field.name!r} is {column.type} in the table, but is {told} now")
            continue
        found.append(Move(name=column.name, sql=sql))
    problems += [
        f"column {column.name!r} ({column.type}) of the table is missing"
        for column in left.values()
        if not column.is_optional
    ]
    return found, problems


def _same(name: str, left: dict[str, TableColumn]) -> str:
    alike = [other for other in left if other.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else ""


def fitted(field: StructField, column: TableColumn, kind: str) -> str | None:
    """The staged column as the table's column takes it, or None when it does not without loss."""
    quoted = identifier(field.name, kind)
    if kind == "bigquery":
        return fitted_bigquery(field.dataType, column.type, quoted)
    if kind == "sqlite":
        return quoted if _affinity(column.type) in _affinities(field.dataType) else None
    return _fitted_postgres(field.dataType, column, quoted)


def _fitted_postgres(found: DataType, column: TableColumn, quoted: str) -> str | None:
    if isinstance(found, ArrayType):
        if not column.type.endswith("[]"):
            return None
        inner = TableColumn(name=column.name, type=column.type.removesuffix("[]"), is_enum=column.is_enum)
        sql = _fitted_postgres(found.elementType, inner, quoted)
        if sql is None or sql == quoted:
            return sql
        return f"CAST({quoted} AS {column.type})" if sql.startswith("CAST(") else None
    mine = str(column_type("postgresql", found))
    base, wanted = plain_type(mine), plain_type(column.type)
    if isinstance(found, DecimalType):
        return quoted if wanted == "numeric" and _holds(column.type, found) else None
    if {base, wanted} == {_ZONED, _LOCAL}:
        return f"{quoted} AT TIME ZONE 'UTC'"  # a time without zone is UTC's, as everywhere
    if wanted in _WIDER.get(base, (base,)):
        return quoted  # and not CAST, which cuts off what is too long where INSERT refuses it
    if isinstance(found, StringType) and (column.is_enum or wanted in _AS_TEXT):
        return f"CAST({quoted} AS {column.type})"
    return None


def _holds(type_: str, found: DecimalType) -> bool:
    inside = _MODIFIER.search(type_)
    if inside is None:
        return True
    precision, _, scale = inside["inside"].partition(",")
    digits, places = int(precision), int(scale or 0)
    return bool(places >= found.scale and digits - places >= found.precision - found.scale)


def _affinity(type_: str) -> str:
    """As SQLite itself tells it from the declared type."""
    text = type_.upper()
    for words, affinity in (
        (("INT",), "INTEGER"),
        (("CHAR", "CLOB", "TEXT"), "TEXT"),
        (("BLOB",), "BLOB"),
        (("REAL", "FLOA", "DOUB"), "REAL"),
    ):
        if any(word in text for word in words):
            return affinity
    return "NUMERIC" if text else "BLOB"


def _affinities(found: DataType) -> tuple[str, ...]:
    """The affinities that keep these values as they are; BLOB keeps everything."""
    match found:
        case BooleanType() | ByteType() | ShortType() | IntegerType() | LongType():
            return ("INTEGER", "NUMERIC", "BLOB")
        case FloatType() | DoubleType():
            return ("REAL", "NUMERIC", "BLOB")
        case DecimalType():
            return ("TEXT", "BLOB") if found.precision > _EXACT_DIGITS else ("TEXT", "NUMERIC", "REAL", "BLOB")
        case DateType() | TimestampType() | TimestampNTZType():
            return ("TEXT", "NUMERIC", "BLOB")
        case BinaryType():
            return ("BLOB", "NUMERIC")
    return ("TEXT", "BLOB")


_names = {"postgresql": "PostgreSQL", "sqlite": "SQLite", "bigquery": "BigQuery"}
