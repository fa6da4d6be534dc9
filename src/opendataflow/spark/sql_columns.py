"""The columns of a DataFrame in a database's words, and whether a table that is there can take them.

Nothing is lost on the way: a value that the table's column cannot hold as it is makes the column a retyped one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import StructField, StructType

from opendataflow.domain.types.databases import (
    POSTGRESQL_OF_TEXT,
    POSTGRESQL_WIDER,
    affinity,
    decimal_of,
    find_type,
    plain_type,
)
from opendataflow.domain.types.datatype import ARRAY, DataType
from opendataflow.domain.types.spark import DECIMAL, family, names_of
from opendataflow.domain.types.values import VOID
from opendataflow.spark.bigquery_types import bigquery_type, fitted_bigquery, refused_names
from opendataflow.spark.sql_chunk import identifier
from opendataflow.spark.types import data_type, type_name

ATTEMPT = "dataflow_attempt"  # in a staging table: the task attempt that wrote the row
DATAID = "dataflow_dataid"  # in a table without a partition column: whose row it is
RUN = "dataflow_run"  # in a table that has it: who appended the row
OWN = (ATTEMPT, DATAID, RUN)
TYPES_OF_OWN = {ATTEMPT: DataType(name="bigint"), DATAID: DataType(name="string"), RUN: DataType(name="bigint")}

_ZONED, _LOCAL = "timestamp with time zone", "timestamp without time zone"
_LENGTHS = {"char": "character", "varchar": "character varying"}
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
    if found.name == DECIMAL:
        # Text by its affinity: as a number SQLite would make a binary fraction of it.
        name = "numeric" if kind == "postgresql" else "DECIMAL_TEXT"
        return f"{name}({','.join(map(str, found.parameters))})"
    names = names_of(found)
    if kind == "sqlite":
        return "TEXT" if found.name in _LENGTHS else None if names is None else names.sqlite
    if found.name == ARRAY:
        inner = None if found.inner[0].name == ARRAY else column_type(kind, found.inner[0])
        return None if inner is None else f"{inner}[]"
    if found.name in _LENGTHS:
        return f"{_LENGTHS[found.name]}({found.parameters[0]})"
    return None if names is None else names.postgresql


def unwritable(schema: StructType, kind: str) -> list[str]:
    """A sentence for each column that no table of this kind can hold."""
    problems = [
        f"column {name!r} is named as one that pipelines add; rename it" for name in schema.names if name in OWN
    ]
    if kind == "bigquery":
        problems += [f"{name!r} is no name that BigQuery has for a column; rename it" for name in refused_names(schema)]
    for field in schema:
        type_ = data_type(field.dataType)
        if type_.name == VOID:
            problems.append(f"column {field.name!r} has no type, since it is null throughout; cast it")
        elif column_type(kind, type_) is None:
            problems.append(
                f"column {field.name!r} is {type_}, which {_names[kind]} cannot hold; make it text with `to_json`"
            )
    return problems


def definitions(schema: StructType, kind: str, own: Sequence[str]) -> str:
    """The columns of a new table: of the DataFrame, and our own."""
    columns = [f"{identifier(field.name, kind)} {column_type(kind, data_type(field.dataType))}" for field in schema]
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
            problems.append(f"column {field.name!r} ({type_name(field.dataType)}) is new, the table has none")
            continue
        sql = fitted(field, column, kind)
        if sql is None:
            told = type_name(field.dataType)
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
    quoted, found = identifier(field.name, kind), data_type(field.dataType)
    if kind == "bigquery":
        return fitted_bigquery(found, column.type, quoted)
    if kind == "sqlite":
        return quoted if affinity(column.type) in _affinities(found) else None
    return _fitted_postgres(found, column, quoted)


def _fitted_postgres(found: DataType, column: TableColumn, quoted: str) -> str | None:
    if found.name == ARRAY:
        if not column.type.endswith("[]"):
            return None
        inner = TableColumn(name=column.name, type=column.type.removesuffix("[]"), is_enum=column.is_enum)
        sql = _fitted_postgres(found.inner[0], inner, quoted)
        if sql is None or sql == quoted:
            return sql
        return f"CAST({quoted} AS {column.type})" if sql.startswith("CAST(") else None
    base, wanted = plain_type(str(column_type("postgresql", found))), plain_type(column.type)
    if found.name == DECIMAL:
        return quoted if wanted == "numeric" and _holds(column.type, found) else None
    if {base, wanted} == {_ZONED, _LOCAL}:
        return f"{quoted} AT TIME ZONE 'UTC'"  # a time without zone is UTC's, as everywhere
    if wanted in POSTGRESQL_WIDER.get(base, (base,)):
        return quoted  # and not CAST, which cuts off what is too long where INSERT refuses it
    if base == "text" and (column.is_enum or wanted in POSTGRESQL_OF_TEXT):
        return f"CAST({quoted} AS {column.type})"
    return None


def _holds(type_: str, found: DataType) -> bool:
    there, wanted = find_type(type_), decimal_of(found)
    room = None if there is None else decimal_of(there)
    return room is None or wanted is None or (room[0] >= wanted[0] and room[1] >= wanted[1])


def _affinities(found: DataType) -> tuple[str, ...]:
    """The affinities that keep these values as they are; BLOB keeps everything."""
    if found.name == DECIMAL:
        return ("TEXT", "BLOB") if found.parameters[0] > _EXACT_DIGITS else ("TEXT", "NUMERIC", "REAL", "BLOB")
    if found.name == "binary":
        return ("BLOB", "NUMERIC")
    match family(found):
        case "integer" | "boolean":
            return ("INTEGER", "NUMERIC", "BLOB")
        case "number":
            return ("REAL", "NUMERIC", "BLOB")
        case "date" | "timestamp":
            return ("TEXT", "NUMERIC", "BLOB")
    return ("TEXT", "BLOB")


_names = {"postgresql": "PostgreSQL", "sqlite": "SQLite", "bigquery": "BigQuery"}
