"""The types of a stream's fields as validators: what JSON may stand in a field, and the Python value that it is."""

import base64
import binascii
import datetime
import decimal
import re
from collections.abc import Callable
from typing import Any

from pydantic_core import PydanticCustomError, core_schema

from opendataflow.domain.types.datatype import ARRAY, MAP, DataType
from opendataflow.domain.types.spark import SIMPLE, as_compared, is_decimal, plain_name, spark_type
from opendataflow.domain.types.values import MOMENT, moment
from opendataflow.errors import UsageError

_FLOAT_MAX = 3.4028234663852886e38
_NUMBER = re.compile(r"[+-]?([0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})([eE][+-]?[0-9]{1,3})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LIKE = {
    "date": "a text like 2026-11-16", "timestamp": "a text like 2026-11-16T13:05:00Z", "binary": "a text in base64",
    "boolean": "true or false", "string": "a text",
}  # fmt: skip
MOST_DEPTH = 32
Shape = core_schema.CoreSchema


class Number(float):
    """A number of JSON that knows how it was written: a decimal keeps all its digits."""

    text = ""

    @classmethod
    def of(cls, text: str) -> "Number":
        made = cls(text)
        made.text = text
        return made


def shape_of(declared: str) -> Shape:
    """The validator of a declared type; raises UsageError for one that no item can have."""
    return _shape(as_compared(spark_type(declared)), declared, 0)


def _shape(found: DataType, declared: str, depth: int) -> Shape:
    if depth > MOST_DEPTH:
        raise UsageError(f"a type of an item has at most {MOST_DEPTH} levels")
    name = found.name
    if found.is_nested:
        return _nested(found, depth + 1)
    if name in SIMPLE and SIMPLE[name].bits:
        most = 1 << (SIMPLE[name].bits - 1)
        return core_schema.int_schema(strict=True, ge=-most, le=most - 1)
    if name == "double":
        return core_schema.float_schema(strict=True, allow_inf_nan=False)
    if name == "float":
        return core_schema.float_schema(strict=True, allow_inf_nan=False, ge=-_FLOAT_MAX, le=_FLOAT_MAX)
    if name == "string":
        return core_schema.str_schema(strict=True)
    if name == "boolean":
        return core_schema.bool_schema(strict=True)
    if is_decimal(found):
        return core_schema.no_info_plain_validator_function(_decimal_reader(*found.parameters))
    if name in _READERS:
        return core_schema.no_info_after_validator_function(_READERS[name], core_schema.str_schema(strict=True))
    raise UsageError(f"a field of a stream cannot be {declared!r}; take string, int, double, date, timestamp or such")


def _nested(found: DataType, depth: int) -> Shape:
    inner = [core_schema.nullable_schema(_shape(type_, str(type_), depth)) for type_ in found.inner]
    if found.name == ARRAY:
        return core_schema.list_schema(inner[0], strict=True, fail_fast=True)
    if found.name == MAP:
        if found.inner[0].name != "string":
            raise UsageError(f"{found}: the keys of an item's map are texts: map<string,…>")
        return core_schema.dict_schema(core_schema.str_schema(), inner[1], strict=True, fail_fast=True)
    fields = {
        name: core_schema.typed_dict_field(shape, required=False)
        for name, shape in zip(found.fields, inner, strict=True)
    }
    return core_schema.typed_dict_schema(fields, extra_behavior="forbid", strict=True)


# Values that JSON writes as texts -------------------------------------------------------------------------------------
def _wrong(name: str) -> PydanticCustomError:
    return PydanticCustomError("value", "is not {like}", {"like": like(name)})


def like(declared: str) -> str:
    """What a value of the type looks like, for a message."""
    name = plain_name(declared)
    return _LIKE.get(name) or f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _date(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text if _DATE.fullmatch(text) else "")
    except ValueError:
        raise _wrong("date") from None


def _timestamp(text: str) -> datetime.datetime:
    """In UTC; a text without a zone is taken as UTC."""
    try:
        found = moment(text) if re.fullmatch(MOMENT, text) else None
    except OverflowError:
        found = None
    if found is None:
        raise _wrong("timestamp")
    return found.replace(tzinfo=datetime.UTC)


def _binary(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _wrong("binary") from None


_READERS: dict[str, Callable[[Any], Any]] = {"date": _date, "timestamp": _timestamp, "binary": _binary}


def _decimal_reader(precision: int, scale: int) -> Callable[[Any], decimal.Decimal]:
    name = f"decimal({precision},{scale})"

    def read(value: Any) -> decimal.Decimal:
        text = value.text if isinstance(value, Number) else str(value)
        if isinstance(value, bool) or not isinstance(value, int | float | str) or not _NUMBER.fullmatch(text):
            raise _wrong(name)
        found = decimal.Decimal(text)
        _, digits, exponent = found.normalize(decimal.Context(prec=1000)).as_tuple()
        whole = len(digits) + int(exponent)
        if found and (whole > precision - scale or -int(exponent) > scale):
            raise PydanticCustomError("value", "has more digits than {like}", {"like": name})
        return found.quantize(decimal.Decimal(1).scaleb(-scale), context=decimal.Context(prec=100))

    return read
