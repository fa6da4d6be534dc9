"""How values are compared and written.

What a text must be to be taken for a number or a moment is the same for Python, Arrow and Spark.
"""

import datetime
import math
import re

INTEGER, NUMERIC, TEXT, BOOLEAN, DATE, TIMESTAMP, OTHER = (
    "integer",
    "number",
    "text",
    "boolean",
    "date",
    "timestamp",
    "other",
)
HAVE_TEXT = (TEXT, INTEGER, BOOLEAN, DATE)  # those whose values are written in one way only
VOID = "void"  # the type of a column that is null throughout
NUMBER = r"(?i)^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?$|^[+-]?(nan|inf|infinity)$"
MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?$"
ZONED = r"[0-9]:.*(Z|[+-][0-9]{2}:[0-9]{2})$"


def moment(text: str) -> datetime.datetime | None:
    """The moment that such a text names, in UTC where it gives a zone and as written where not; None if it is none."""
    if not re.fullmatch(MOMENT, text):
        return None
    text = re.sub(r"[.]([0-9]+)", lambda found: f".{found[1][:6]:0<6}", text)
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
