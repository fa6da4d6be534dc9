"""Types of databases as Spark's: what each column is selected as, what arrives, and what it is made of that.

Nothing is lost silently: a value that the Spark type cannot hold is an error that names column and type, and so is a
type that has no like in Spark.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from opendataflow.checks.arrow_types import from_arrow
from opendataflow.domain.types.databases import COMPARED, OPEN_DECIMAL, POSTGRESQL_READ, find_type
from opendataflow.domain.types.datatype import ARRAY, STRUCT, DataType
from opendataflow.domain.types.spark import DECIMAL, MOST_DIGITS, as_compared, is_decimal, spark_type
from opendataflow.errors import JobFailed
from opendataflow.spark.sql_chunk import identifier

_INT64_DIGITS = 18


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column of a source, frozen for the run."""

    name: str
    source_type: str  # in the database's words
    spark_type: str
    expression: str  # what is selected for it
    selected_as: str = ""  # PostgreSQL's type of that
    scale: int | None = None  # of a decimal that arrives as a whole number, so many times ten
    compared: str = ""  # how a filter may compare it in the database; empty: for null only
    quoted: str = ""  # its name, where that is quoted in another way than PostgreSQL and SQLite do

    @property
    def sql_name(self) -> str:
        """The name in the database's SQL. What plans a read on another machine may have no sqlglot to ask."""
        return self.quoted or identifier(self.name)


def unsupported(where: str, name: str, type_: str, more: str = "") -> JobFailed:
    """The error for a type that has no like in Spark."""
    return JobFailed(
        f"{where}: column {name} is {type_}, which is not supported{more}; leave it out, or cast it in `query:`, "
        f"for example {identifier(name)}::text"
    )


# PostgreSQL -----------------------------------------------------------------------------------------------------------
# Domains are followed to their base type, which has the typmod that counts.
POSTGRES_COLUMNS = """
WITH RECURSIVE base AS (
    SELECT a.attnum, a.attname::text AS name, a.atttypid AS oid, a.atttypmod AS typmod, false AS is_domain
    FROM pg_attribute a
    WHERE a.attrelid = to_regclass({table}) AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT b.attnum, b.name, t.typbasetype, t.typtypmod, true
    FROM base b JOIN pg_type t ON t.oid = b.oid AND t.typtype = 'd'
)
SELECT b.name, t.typname::text, t.typtype::text, b.typmod, format_type(b.oid, b.typmod),
       CASE WHEN t.typcategory = 'A' THEN e.typname::text END, e.typtype::text, b.is_domain
FROM base b JOIN pg_type t ON t.oid = b.oid AND t.typtype <> 'd' LEFT JOIN pg_type e ON e.oid = t.typelem
ORDER BY b.attnum
"""


def postgres_columns(
    rows: Sequence[Sequence[Any]], declared: Mapping[str, str] | None, *, where: str, from_table: bool
) -> tuple[Column, ...]:
    """The columns of `POSTGRES_COLUMNS`, or those that are declared, in that order."""
    found = {row[0]: row for row in rows}
    return tuple(
        _postgres_column(found[name], (declared or {}).get(name), where, from_table)
        for name in _chosen(list(found), declared, where)
    )


def _postgres_column(row: Sequence[Any], declared: str | None, where: str, from_table: bool) -> Column:
    name, type_, kind, typmod, shown, element, element_kind, is_domain = row
    own = identifier(name)
    base = f"{own}::{shown}" if is_domain else own
    if element is not None and kind == "b" and type_ not in POSTGRESQL_READ:
        return _postgres_array(name, shown, element, element_kind, typmod, where)
    if kind == "e":
        return Column(
            name=name, source_type=shown, spark_type=declared or "string", expression=f"{own}::text", selected_as="text"
        )
    if type_ == "numeric":
        return _postgres_numeric(name, base, shown, typmod, declared, where, from_table)
    if type_ not in POSTGRESQL_READ or kind not in ("b", "p"):
        raise unsupported(where, name, shown)
    found, cast, compared = POSTGRESQL_READ[type_]
    return Column(
        name=name, source_type=shown, spark_type=declared or found, compared="" if is_domain else compared,
        expression=f"{own}::{cast}" if cast else base, selected_as=cast or shown,
    )  # fmt: skip


def _postgres_numeric(
    name: str, base: str, shown: str, typmod: int, declared: str | None, where: str, from_table: bool
) -> Column:
    size = _numeric_size(typmod)
    if size is None or declared is not None:
        wanted = spark_type(declared or OPEN_DECIMAL)
        scale = wanted.parameters[1] if wanted.name == DECIMAL else 0
        # What has more places than anybody declared is rounded, as Spark's JDBC reader does it.
        expression = f"round({base}, {scale})::text" if size is None and wanted.name == DECIMAL else f"{base}::text"
        return Column(
            name=name, source_type=shown, spark_type=declared or OPEN_DECIMAL, expression=expression, selected_as="text"
        )
    precision, scale = size
    if precision > MOST_DIGITS:
        raise unsupported(where, name, shown, f" (Spark's decimals have at most {MOST_DIGITS} digits)")
    exact = f"decimal({precision},{scale})"
    if precision <= _INT64_DIGITS and from_table:
        # As a whole number it costs a third of what it costs as text. Only of a table: there the declared scale is
        # checked again when the rows are read.
        whole = f"({base} * {10**scale})::int8" if scale else f"({base})::int8"
        return Column(
            name=name, source_type=shown, spark_type=exact, expression=whole, selected_as="int8", scale=scale,
            compared="number",
        )  # fmt: skip
    return Column(
        name=name, source_type=shown, spark_type=exact, expression=f"{base}::text", selected_as="text",
        compared="number",
    )  # fmt: skip


def _numeric_size(typmod: int) -> tuple[int, int] | None:
    """Precision and scale, with the scale not below 0 and not above the precision; None where none is declared."""
    if typmod < 4:
        return None
    precision, scale = (typmod - 4) >> 16 & 0xFFFF, ((typmod - 4) & 0x7FF ^ 1024) - 1024
    if scale < 0:
        return precision - scale, 0
    return max(precision, scale), scale


def _postgres_array(name: str, shown: str, element: str, element_kind: str, typmod: int, where: str) -> Column:
    own = identifier(name)
    if element == "numeric":
        size = _numeric_size(typmod)
        precision, scale = size or (MOST_DIGITS, 18)
        found, cast = f"decimal({precision},{scale})", f"numeric({precision},{scale})[]::text"
        if precision > MOST_DIGITS:
            raise unsupported(where, name, shown)
    elif element_kind == "e":
        found, cast = "string", "text"
    elif element in POSTGRESQL_READ and element_kind == "b":
        found, cast, _ = POSTGRESQL_READ[element]
        cast = "text" if element in ("bpchar", "money") else cast
        found = "string" if cast == "text" else found
    else:
        raise unsupported(where, name, shown)
    selected = f"{own}::{cast}[]" if cast else own
    final = f"{cast}[]" if cast else shown
    # The driver would make one flat array of an array of arrays. The text is no array, so casting it is the error.
    checked = (
        f"CASE WHEN array_ndims({own}) > 1 "
        f"THEN (array_ndims({own})::text || ' dimensions in {_words(name)}')::{final} ELSE {selected} END"
    )
    return Column(name=name, source_type=shown, spark_type=f"array<{found}>", expression=checked, selected_as=final)


def _words(name: str) -> str:
    return re.sub(r"[^\w ]", "_", name)


# SQLite ---------------------------------------------------------------------------------------------------------------
def sqlite_column(name: str, declared_type: str, wanted: str | None, where: str) -> Column:
    """A column of a table: its declared type tells more than the values that happen to come first."""
    type_, own = declared_type.strip().lower(), identifier(name)
    written, compared = find_type(type_), ""
    if "int" in type_:
        found, compared = "bigint", "number"
    elif type_.startswith("bool"):
        found = "boolean"
    elif written is not None and written.name in ("decimal", "numeric") and written.parameters:
        found = str(spark_type(type_))
    elif any(word in type_ for word in ("char", "clob", "text", "json", "uuid")):
        found, compared = "string", "text"
    elif type_.startswith(("datetime", "timestamp")):
        found = "timestamp"
    elif type_ == "date":
        found = "date"
    elif any(word in type_ for word in ("real", "floa", "doub", "numeric", "decimal")):
        found, compared = "double", "float"
    elif type_ in ("blob", "binary", "varbinary"):
        found = "binary"
    elif not type_ or type_ == "time":
        found = "string"
    else:
        raise unsupported(where, name, declared_type)
    target = wanted or found
    is_text = target.startswith(("decimal", "timestamp", "date", "string"))
    return Column(
        name=name, source_type=declared_type or "untyped", spark_type=target, compared=compared if not wanted else "",
        expression=f"CAST({own} AS TEXT)" if is_text else own,
    )  # fmt: skip


_SQLITE_FIRST = {"string": "''", "binary": "x''", "double": "0.0", "float": "0.0"}


def sqlite_first_row(columns: Sequence[Column]) -> str:
    """A row that is left out again: SQLite has no types of columns, and its driver goes by the first values."""
    values = []
    for column in columns:
        kind = "string" if column.expression.startswith("CAST") else column.spark_type
        values.append(f"{_SQLITE_FIRST.get(kind, '0')} AS {identifier(column.name)}")
    return f"SELECT {', '.join(values)}"


# Whatever speaks Arrow ------------------------------------------------------------------------------------------------
def arrow_columns(
    schema: Any, declared: Mapping[str, str] | None, *, where: str, kind: str, numbers_only: bool
) -> tuple[Column, ...]:
    """The columns of a result, by the Arrow types that its driver gives them."""
    fields = {field.name: field for field in schema}
    columns = []
    for name in _chosen(list(fields), declared, where):
        type_ = fields[name].type
        found, compared = _from_arrow(where, name, type_)
        if numbers_only and compared not in ("number", "float", "bool"):
            compared = ""  # equal text is not equal everywhere: collations may fold upper and lower case
        columns.append(
            Column(
                name=name,
                quoted=identifier(name, kind),
                source_type=str(type_),
                spark_type=(declared or {}).get(name) or str(found),
                expression=identifier(name, kind),
                compared=compared,
            )
        )
    return tuple(columns)


def _from_arrow(where: str, name: str, type_: Any) -> tuple[DataType, str]:
    """The Spark type of a result's column, and how a filter may compare it."""
    if isinstance(type_, pa.BaseExtensionType):
        return _from_arrow(where, name, type_.storage_type)[0], ""
    if pa.types.is_decimal256(type_) and type_.precision > MOST_DIGITS:
        return spark_type(OPEN_DECIMAL), ""  # BigQuery's BIGNUMERIC; what does not fit is an error
    if pa.types.is_time(type_) or pa.types.is_null(type_):
        return DataType(name="string"), ""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return DataType(name=ARRAY, inner=(_from_arrow(where, name, type_.value_type)[0],)), ""
    if pa.types.is_struct(type_):
        inner = tuple(_from_arrow(where, name, field.type)[0] for field in type_)
        return DataType(name=STRUCT, inner=inner, fields=tuple(field.name for field in type_)), ""
    found = from_arrow(type_)
    if found is None or (found.name != DECIMAL and found.name not in COMPARED and found.name != "binary"):
        raise unsupported(where, name, str(type_))
    if found.name == DECIMAL and not is_decimal(found):
        raise unsupported(where, name, str(type_))
    return as_compared(found), "" if pa.types.is_uint64(type_) else COMPARED.get(found.name, "")


def _chosen(found: list[str], declared: Mapping[str, str] | None, where: str) -> list[str]:
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise JobFailed(f"{where}: column {twice[0]} is there more than once; name them apart in `query:`")
    if declared is None:
        return found
    missing = [name for name in declared if name not in found]
    if missing:
        told = ", ".join(missing)
        raise JobFailed(f"{where}: there is no column {told}, which `schema:` declares; there are {', '.join(found)}")
    return list(declared)
