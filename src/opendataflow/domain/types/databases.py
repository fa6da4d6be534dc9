"""The types of databases: what their columns are to Spark, and which columns hold which values without loss."""

import re
from typing import NamedTuple

from opendataflow.domain.types.datatype import DataType, parse_type
from opendataflow.domain.types.spark import DECIMAL

OPEN_DECIMAL = "decimal(38,18)"  # of a numeric that declares no precision, as Spark's JDBC reader has it


class Read(NamedTuple):
    """How a column of PostgreSQL is read."""

    spark: str
    cast: str = ""  # what it is selected as; empty: as it is
    compared: str = ""  # how a filter may compare it; empty: for null only


_AS_TEXT = Read("string", "text")
# By PostgreSQL's short names.
POSTGRESQL_READ = {
    "bool": Read("boolean", "", "bool"),
    "int2": Read("smallint", "", "number"),
    "int4": Read("int", "", "number"),
    "int8": Read("bigint", "", "number"),
    "float4": Read("float", "", "float"),
    "float8": Read("double", "", "float"),
    "oid": Read("bigint", "int8", "number"),
    "money": Read("decimal(19,2)", "numeric(19,2)"),
    "text": Read("string", "", "text"),
    "varchar": Read("string", "", "text"),
    "bpchar": Read("string"),  # blanks at its end count in Spark and not in PostgreSQL: no filter compares it
    "bytea": Read("binary"),
    "date": Read("date", "", "date"),
    "timestamp": Read("timestamp", "", "timestamp"),
    "timestamptz": Read("timestamp", "", "timestamptz"),
    "uuid": Read("string", "text", "uuid"),
    **dict.fromkeys(("name", "char", "citext", "unknown", "time", "timetz", "interval", "json", "jsonb"), _AS_TEXT),
    **dict.fromkeys(("xml", "inet", "cidr", "macaddr", "macaddr8", "bit", "varbit"), _AS_TEXT),
}
# The short name of what a result's column is, where only the result tells.
POSTGRESQL_SHORT = {
    "boolean": "bool", "smallint": "int2", "int": "int4", "bigint": "int8", "float": "float4", "double": "float8",
    "string": "text", "binary": "bytea", "date": "date", "timestamp_ntz": "timestamp", "timestamp": "timestamptz",
}  # fmt: skip
# What takes each type's values as they are; by the long names, as they are told of a table that is there.
_TEXTS = ("text", "character varying", "character", "citext")
POSTGRESQL_WIDER = {
    "smallint": ("smallint", "integer", "bigint", "numeric"), "integer": ("integer", "bigint", "numeric"),
    "bigint": ("bigint", "numeric"), "real": ("real", "double precision"), **dict.fromkeys(_TEXTS[:3], _TEXTS),
}  # fmt: skip
# Types that Spark has as text. PostgreSQL does not make them of text by itself.
POSTGRESQL_OF_TEXT = (
    "json", "jsonb", "uuid", "xml", "inet", "cidr", "macaddr", "interval", "time without time zone", "hstore",
)  # fmt: skip
# How a filter may compare a column of another driver, by its Spark type.
COMPARED = {
    "boolean": "bool", "tinyint": "number", "smallint": "number", "int": "number", "bigint": "number",
    DECIMAL: "number", "float": "float", "double": "float", "string": "text", "date": "date",
    "timestamp_ntz": "timestamp", "timestamp": "timestamptz",
}  # fmt: skip

# SQLite tells the affinity of a column by what its declared type contains.
_AFFINITIES = (
    (("INT",), "INTEGER"), (("CHAR", "CLOB", "TEXT"), "TEXT"), (("BLOB",), "BLOB"), (("REAL", "FLOA", "DOUB"), "REAL"),
)  # fmt: skip

# Digits before and after the point of BigQuery's decimals without parameters.
BIGQUERY_DIGITS = {"numeric": (29, 9), "bignumeric": (38, 38)}
BIGQUERY_CLUSTERED = ("int64", "numeric", "bignumeric", "bool", "date", "timestamp", "datetime", "string")
_MODIFIER = re.compile(r"\([^)]*\)")
# Of any database.
_NUMBER = re.compile(r"(small|big|tiny)?int(eger|2|4|8|64)?|(big)?numeric.*|decimal.*|real|double.*|float.*")
_TEXT = re.compile(r"text|string|(n?var)?char(acter)?( varying)?\b.*|name|citext|clob|bpchar")


def find_type(text: str) -> DataType | None:
    """The type in the database's own words; None for a text that is written as types mostly are not."""
    try:
        return parse_type(text)
    except ValueError:
        return None


def plain_type(type_: str) -> str:
    """The type without precision and the like: numeric of numeric(10,2); what is inside of others stays."""
    return type_ if "<" in type_ else _MODIFIER.sub("", type_).strip()


def is_number(type_: str) -> bool:
    """Whether a type, in lower case, is one of numbers, whichever database calls it so."""
    return _NUMBER.fullmatch(type_) is not None


def is_text(type_: str) -> bool:
    return _TEXT.fullmatch(type_) is not None


def most_digits(bits: int) -> int:
    """How many digits a whole number of so many bits may have."""
    return len(str(1 << (bits - 1)))


def decimal_of(found: DataType) -> tuple[int, int] | None:
    """Digits before and after the point that such a column may hold; None where it declares none."""
    if not found.parameters:
        return None
    precision, scale = (*found.parameters, 0)[:2]
    return precision - scale, scale


def affinity(type_: str) -> str:
    """As SQLite itself tells it from the declared type."""
    text = type_.upper()
    named = next((name for words, name in _AFFINITIES if any(word in text for word in words)), None)
    return named or ("NUMERIC" if text else "BLOB")
