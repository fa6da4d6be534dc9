"""The types that a dataset declares, in Spark's names, and what a check's bound or value is when a column has one."""

import datetime
import math
import re

_ALIASES = {
    "integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "real": "float", "dec": "decimal",
    "numeric": "decimal", "timestamp_ltz": "timestamp", "timestamp_ntz": "timestamp",
}  # fmt: skip
# What a text must look like to be taken for a number or a moment, by Python, Arrow and Spark alike.
NUMBER = r"(?i)^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?$|^[+-]?(nan|inf|infinity)$"
MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?$"
ZONED = r"[0-9]:.*(Z|[+-][0-9]{2}:[0-9]{2})$"
_FRACTION = re.compile(r"[.]([0-9]+)")

INTEGER, NUMERIC, TEXT, BOOLEAN, DATE, TIMESTAMP, OTHER = (
    "integer",
    "number",
    "text",
    "boolean",
    "date",
    "timestamp",
    "other",
)
_FAMILIES = {
    "string": TEXT, "boolean": BOOLEAN, "tinyint": INTEGER, "smallint": INTEGER, "int": INTEGER, "bigint": INTEGER,
    "float": NUMERIC, "double": NUMERIC, "date": DATE, "timestamp": TIMESTAMP,
}  # fmt: skip
VOID = "void"  # the type of a column that is null throughout
HAVE_TEXT = (TEXT, INTEGER, BOOLEAN, DATE)  # families whose values are written in one way only


def plain_name(declared: str) -> str:
    """A declared type in one spelling: `DECIMAL (10, 2)` → `decimal(10,2)`, `integer` → `int`."""
    name = re.sub(r"\s+", "", declared.lower())
    name = re.sub(r"\b(?:var)?char\(\d+\)", "string", name)
    name = re.sub(r"[a-z_]+", lambda word: _ALIASES.get(word[0], word[0]), name)
    return re.sub(r"\bdecimal\b(?!\()", "decimal(10,0)", name)


def family(declared: str) -> str:
    """How values of such a type are compared."""
    name = plain_name(declared)
    return NUMERIC if name.startswith("decimal(") else _FAMILIES.get(name, OTHER)


def moment(text: str) -> datetime.datetime | None:
    """The moment that such a text names, in UTC where it gives a zone and as written where not; None if it is none."""
    if not re.fullmatch(MOMENT, text):
        return None
    text = _FRACTION.sub(lambda found: f".{found[1][:6]:0<6}", text)
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.astimezone(datetime.UTC).replace(tzinfo=None) if found.tzinfo else found


def number(value: object) -> float | None:
    """The number that a value of a check is or writes; None if it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str) and re.fullmatch(NUMBER, value):
        found = float(value)
        return None if math.isnan(found) else found
    return None


def parts_of(inside: str) -> list[str]:
    """What stands between the commas that are in no brackets, of a type like `map<string,decimal(10,2)>`."""
    parts, depth = [""], 0
    for char in inside:
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts
