"""Spark's types, in whose names datasets declare theirs: one table of what each system calls them."""

from typing import NamedTuple

from opendataflow.domain.types.datatype import DataType, parse_type
from opendataflow.domain.types.values import BOOLEAN, DATE, INTEGER, NUMERIC, OTHER, TEXT, TIMESTAMP, VOID

DECIMAL, MOST_DIGITS = "decimal", 38
TIMESTAMP_NTZ = "timestamp_ntz"


class Names(NamedTuple):
    """A type without parameters: how its values are compared, and its name in other systems."""

    family: str
    arrow: str
    postgresql: str  # of a new table's column, as are the next two
    sqlite: str
    bigquery: str
    pandas: str = ""  # the dtype that a CSV is read with; empty: as text
    bits: int = 0  # of a whole number


# SQLite keeps ISO text and 0 or 1 in DATE, TIMESTAMP and BOOLEAN; the names tell readers what it is.
SIMPLE = {
    "boolean": Names(BOOLEAN, "bool", "boolean", "BOOLEAN", "BOOL", "boolean"),
    "tinyint": Names(INTEGER, "int8", "smallint", "INTEGER", "INT64", "Int8", 8),
    "smallint": Names(INTEGER, "int16", "smallint", "INTEGER", "INT64", "Int16", 16),
    "int": Names(INTEGER, "int32", "integer", "INTEGER", "INT64", "Int32", 32),
    "bigint": Names(INTEGER, "int64", "bigint", "INTEGER", "INT64", "Int64", 64),
    "float": Names(NUMERIC, "float32", "real", "REAL", "FLOAT64", "float32"),
    "double": Names(NUMERIC, "float64", "double precision", "REAL", "FLOAT64", "float64"),
    "string": Names(TEXT, "string", "text", "TEXT", "STRING"),
    "binary": Names(OTHER, "binary", "bytea", "BLOB", "BYTES"),
    "date": Names(DATE, "date32", "date", "DATE", "DATE"),
    "timestamp": Names(TIMESTAMP, "timestamp[us, tz=UTC]", "timestamp with time zone", "TIMESTAMP", "TIMESTAMP"),
    TIMESTAMP_NTZ: Names(TIMESTAMP, "timestamp[us]", "timestamp without time zone", "TIMESTAMP", "DATETIME"),
}
ALIASES = {
    "integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "real": "float", "dec": DECIMAL,
    "numeric": DECIMAL, "timestamp_ltz": "timestamp",
}  # fmt: skip
WORDS = (*SIMPLE, *ALIASES, DECIMAL, "varchar", "char", "interval", "array", "map", "struct", "variant", VOID)
# Arrow's other types, as Spark reads them from a file.
FROM_ARROW = {
    "large_string": "string", "string_view": "string", "large_binary": "binary", "binary_view": "binary",
    "uint8": "smallint", "uint16": "int", "uint32": "bigint", "uint64": "decimal(20,0)", "float16": "float",
    "date64": "date", "null": VOID,
}  # fmt: skip


def spark_type(declared: str) -> DataType:
    """A declared type in Spark's own words: `INTEGER` is int, `numeric(10)` is decimal(10,0).

    A text that is no type is one of that name.
    """
    try:
        return in_sparks_words(parse_type(declared))
    except ValueError:
        return DataType(name=declared.strip().lower())


def in_sparks_words(found: DataType) -> DataType:
    name, parameters = ALIASES.get(found.name, found.name), found.parameters
    if name == DECIMAL:
        parameters = (*parameters, *(10, 0)[len(parameters) :])
    inner = tuple(in_sparks_words(type_) for type_ in found.inner)
    return DataType(name=name, parameters=parameters, inner=inner, fields=found.fields)


def as_compared(found: DataType) -> DataType:
    """The type with whose values it is compared: a text of any length is a string, a time has a zone or none."""
    if found.name in ("varchar", "char") and found.parameters:
        return DataType(name="string")
    name = "timestamp" if found.name == TIMESTAMP_NTZ else found.name
    inner = tuple(as_compared(type_) for type_ in found.inner)
    return DataType(name=name, parameters=found.parameters, inner=inner, fields=found.fields)


def plain_name(declared: str) -> str:
    """The one spelling of all types that are compared alike: `DECIMAL (10, 2)` is decimal(10,2), `integer` is int."""
    return str(as_compared(spark_type(declared.lower())))


def family(declared: str | DataType) -> str:
    """How values of such a type are compared."""
    if isinstance(declared, str) and declared in SIMPLE:
        return SIMPLE[declared].family
    found = as_compared(declared if isinstance(declared, DataType) else spark_type(declared))
    if found.name == DECIMAL:
        return NUMERIC
    return SIMPLE[found.name].family if found.name in SIMPLE else OTHER


def names_of(found: DataType) -> Names | None:
    """What other systems call it, of a type without parameters; a string's collation does not count."""
    return None if found.parameters else SIMPLE.get(found.name.partition(" collate ")[0])


def is_decimal(found: DataType) -> bool:
    """True for a decimal with as many digits as Spark has for one."""
    if found.name != DECIMAL or len(found.parameters) != 2:
        return False
    precision, scale = found.parameters
    return 0 < precision <= MOST_DIGITS and 0 <= scale <= precision
