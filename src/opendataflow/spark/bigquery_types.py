"""The columns of a DataFrame in BigQuery's words, and whether a column that is there can take them without loss."""

import re
from collections.abc import Iterator

from pyspark.sql.types import ArrayType, StructType
from pyspark.sql.types import DataType as SparkType

from opendataflow.domain.types.databases import (
    BIGQUERY_CLUSTERED,
    BIGQUERY_DIGITS,
    decimal_of,
    find_type,
    most_digits,
)
from opendataflow.domain.types.datatype import ARRAY, STRUCT, DataType
from opendataflow.domain.types.spark import DECIMAL, names_of
from opendataflow.spark.sql_chunk import identifier

_NAME = re.compile(r"\w[\w &%=+:'<>#|-]*")
_OWN_NAMES = re.compile(r"(?i)_table_|_file_|_partition|_row_timestamp|__root__|_colidentifier|_change_")
_NAME_LETTERS = 300


def bigquery_type(found: DataType) -> str | None:
    """The type of a new column for these values; None where BigQuery has none."""
    match found.name:
        case "decimal":
            precision, scale = found.parameters
            whole, places = BIGQUERY_DIGITS["numeric"]
            name = "NUMERIC" if scale <= places and precision - scale <= whole else "BIGNUMERIC"
            return f"{name}({precision}, {scale})"
        case "char" | "varchar":
            return f"STRING({found.parameters[0]})"
        case "array":
            inner = None if found.inner[0].name == ARRAY else bigquery_type(found.inner[0])
            return None if inner is None else f"ARRAY<{inner}>"
        case "struct":
            types = [bigquery_type(type_) for type_ in found.inner]
            if not types or None in types:
                return None
            fields = [f"{_identifier(name)} {type_}" for name, type_ in zip(found.fields, types, strict=True)]
            return f"STRUCT<{', '.join(fields)}>"
    names = names_of(found)
    return None if names is None else names.bigquery


def _identifier(name: str) -> str:
    return identifier(name, "bigquery")


def is_clustered(type_: str | None) -> bool:
    """True when rows can be kept together by a column of this type, so that a chunk's are found quickly."""
    found = find_type(type_ or "")
    return found is not None and found.name in BIGQUERY_CLUSTERED


# Names ----------------------------------------------------------------------------------------------------------------
def refused_names(schema: StructType) -> list[str]:
    """The names of columns, and of what is inside of them, that BigQuery does not take."""
    return [name for name in _names(schema) if not _is_name(name)]


def _names(found: SparkType) -> Iterator[str]:
    if isinstance(found, ArrayType):
        yield from _names(found.elementType)
    for field in found if isinstance(found, StructType) else ():
        yield field.name
        yield from _names(field.dataType)


def _is_name(name: str) -> bool:
    return len(name) <= _NAME_LETTERS and _NAME.fullmatch(name) is not None and not _OWN_NAMES.match(name)


# A table that is there ------------------------------------------------------------------------------------------------
def fitted_bigquery(found: DataType, wanted: str, quoted: str) -> str | None:
    """The staged column as the table's column takes it, or None when it does not without loss.

    `wanted` is the type as INFORMATION_SCHEMA tells it: NUMERIC(10, 2), ARRAY<STRUCT<a INT64, b STRING>>.
    """
    there = find_type(wanted)
    return None if there is None else _fitted(found, there, quoted)


def _fitted(found: DataType, there: DataType, quoted: str) -> str | None:
    if ARRAY in (found.name, there.name) or STRUCT in (found.name, there.name):
        return quoted if _has_same_parts(found, there) else None
    mine = find_type(bigquery_type(found) or "")
    if mine is None:
        return None
    if there.name in BIGQUERY_DIGITS:
        return quoted if _holds(there, found) else None
    if (mine.name, there.name) in (("timestamp", "datetime"), ("datetime", "timestamp")):
        return f"{there.name.upper()}({quoted}, 'UTC')"  # a time without zone is UTC's, as everywhere
    if mine.name == "string" and there.name == "json":
        return f"PARSE_JSON({quoted})"
    if mine.name == "string" and there.name == "time":
        return f"CAST({quoted} AS TIME)"
    return quoted if mine.name == there.name else None  # a text that is too long for STRING(n) is refused by BigQuery


def _has_same_parts(found: DataType, there: DataType) -> bool:
    """True when values inside of others fit as they are: nothing there can be converted on the way."""
    if found.name != there.name or len(found.inner) != len(there.inner) or not found.inner:
        return False
    if [name.lower() for name in found.fields] != [name.lower() for name in there.fields]:
        return False
    parts = zip(found.inner, there.inner, strict=True)
    return all(bigquery_type(mine) is not None and _fitted(mine, other, "x") == "x" for mine, other in parts)


def _holds(there: DataType, found: DataType) -> bool:
    names = names_of(found)
    if names is not None and names.bits:
        wanted = most_digits(names.bits), 0
    elif found.name == DECIMAL:
        wanted = decimal_of(found) or (0, 0)
    else:
        return False
    room = decimal_of(there) or BIGQUERY_DIGITS[there.name]
    return wanted[0] <= room[0] and wanted[1] <= room[1]
