"""The columns of a DataFrame in BigQuery's words, and whether a column that is there can take them without loss."""

import re
from collections.abc import Iterator

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
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from opendataflow.spark.sql_chunk import identifier

_SCALARS: dict[type[DataType], str] = {
    ByteType: "INT64",
    ShortType: "INT64",
    IntegerType: "INT64",
    LongType: "INT64",
    FloatType: "FLOAT64",
    DoubleType: "FLOAT64",
    BooleanType: "BOOL",
    DateType: "DATE",
    TimestampType: "TIMESTAMP",
    TimestampNTZType: "DATETIME",
    StringType: "STRING",
    BinaryType: "BYTES",
}
_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
# Digits before and after the point, of the types without and with parameters.
_NUMERIC, _BIGNUMERIC = (29, 9), (38, 38)
_CLUSTERED = ("INT64", "NUMERIC", "BIGNUMERIC", "BOOL", "DATE", "TIMESTAMP", "DATETIME", "STRING")
_NAME = re.compile(r"\w[\w &%=+:'<>#|-]*")
_OWN_NAMES = re.compile(r"(?i)_table_|_file_|_partition|_row_timestamp|__root__|_colidentifier|_change_")
_NAME_LETTERS = 300
_MODIFIER = re.compile(r"\([^)]*\)")
_FIELD = re.compile(r"\s*(?:`(?P<quoted>[^`]*)`|(?P<plain>[^\s<(]+))\s+(?P<type>.+?)\s*", re.DOTALL)


def bigquery_type(found: DataType) -> str | None:
    """The type of a new column for these values; None where BigQuery has none."""
    match found:
        case DecimalType():
            is_small = found.scale <= _NUMERIC[1] and found.precision - found.scale <= _NUMERIC[0]
            return f"{'NUMERIC' if is_small else 'BIGNUMERIC'}({found.precision}, {found.scale})"
        case CharType() | VarcharType():
            return f"STRING({found.length})"
        case ArrayType():
            inner = None if isinstance(found.elementType, ArrayType) else bigquery_type(found.elementType)
            return None if inner is None else f"ARRAY<{inner}>"
        case StructType():
            fields = [(field.name, bigquery_type(field.dataType)) for field in found]
            if not fields or any(type_ is None for _, type_ in fields):
                return None
            return f"STRUCT<{', '.join(f'{_identifier(name)} {type_}' for name, type_ in fields)}>"
    return _SCALARS.get(type(found))


def _identifier(name: str) -> str:
    return identifier(name, "bigquery")


def is_clustered(type_: str | None) -> bool:
    """True when rows can be kept together by a column of this type, so that a chunk's are found quickly."""
    return _plain(type_ or "") in _CLUSTERED


# Names ----------------------------------------------------------------------------------------------------------------
def refused_names(schema: StructType) -> list[str]:
    """The names of columns, and of what is inside of them, that BigQuery does not take."""
    return [name for name in _names(schema) if not _is_name(name)]


def _names(found: DataType) -> Iterator[str]:
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
    mine, plain = bigquery_type(found), _plain(wanted)
    if isinstance(found, ArrayType):
        inner = _inside(wanted, "ARRAY")
        return quoted if inner is not None and _is_same(found.elementType, inner) else None
    if isinstance(found, StructType):
        return quoted if _has_fields(found, wanted) else None
    if mine is None:
        return None
    if type(found) in _DIGITS and plain in ("NUMERIC", "BIGNUMERIC"):
        return quoted if _holds(wanted, _DIGITS[type(found)], 0) else None
    if isinstance(found, DecimalType):
        is_number = plain in ("NUMERIC", "BIGNUMERIC")
        return quoted if is_number and _holds(wanted, found.precision - found.scale, found.scale) else None
    if (mine, plain) in (("TIMESTAMP", "DATETIME"), ("DATETIME", "TIMESTAMP")):
        return f"{plain}({quoted}, 'UTC')"  # a time without zone is UTC's, as everywhere
    if isinstance(found, StringType) and plain == "JSON":
        return f"PARSE_JSON({quoted})"
    if isinstance(found, StringType) and plain == "TIME":
        return f"CAST({quoted} AS TIME)"
    return quoted if _plain(mine) == plain else None  # a text that is too long for STRING(n) is refused by BigQuery


def _is_same(found: DataType, wanted: str) -> bool:
    """True when values inside of others fit as they are: nothing there can be converted on the way."""
    return bigquery_type(found) is not None and fitted_bigquery(found, wanted, "x") == "x"


def _has_fields(found: StructType, wanted: str) -> bool:
    inside = _inside(wanted, "STRUCT")
    if inside is None:
        return False
    there = [_FIELD.fullmatch(one) for one in _split(inside)]
    if len(there) != len(found.fields):
        return False
    for field, one in zip(found, there, strict=True):
        if one is None or (one["quoted"] or one["plain"] or "").lower() != field.name.lower():
            return False
        if not _is_same(field.dataType, one["type"]):
            return False
    return True


def _holds(wanted: str, whole: int, scale: int) -> bool:
    most_whole, most_scale = _BIGNUMERIC if _plain(wanted) == "BIGNUMERIC" else _NUMERIC
    given = _MODIFIER.search(wanted)
    if given is not None:
        precision, _, places = given[0].strip("()").partition(",")
        most_scale = int(places or 0)
        most_whole = int(precision) - most_scale
    return whole <= most_whole and scale <= most_scale


def _plain(type_: str) -> str:
    """The type without its length or precision: STRING of STRING(10); what is inside of others stays."""
    return type_ if "<" in type_ else _MODIFIER.sub("", type_).strip().upper()


def _inside(type_: str, outer: str) -> str | None:
    text = type_.strip()
    is_one = text.upper().startswith(f"{outer}<") and text.endswith(">")
    return text[len(outer) + 1 : -1] if is_one else None


def _split(text: str) -> list[str]:
    """The parts between commas that are in no brackets and in no quotes."""
    parts, depth, is_quoted = [""], 0, False
    for letter in text:
        is_quoted ^= letter == "`"
        if not is_quoted:
            depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0 and not is_quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
