"""Columns as the types that a dataset declares in Spark's names: which values fit, and what they are.

A column comes as text (CSV), as what JSON knows (text, number, true and false) or with a type of its own (Parquet,
ORC). Every function takes a whole Arrow array and works on it at once; only one that does not fit is looked at closer.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from opendataflow.domain.types.datatype import ARRAY, MAP, STRUCT, DataType
from opendataflow.domain.types.spark import (
    DECIMAL,
    FROM_ARROW,
    SIMPLE,
    TIMESTAMP_NTZ,
    as_compared,
    family,
    is_decimal,
    spark_type,
)
from opendataflow.domain.types.values import NUMBER, OTHER, TEXT, VOID


def _by_alias(name: str) -> Any:
    unit, _, zone = name.partition(", tz=")
    return pa.timestamp("us", tz=zone.removesuffix("]")) if zone else pa.type_for_alias(unit)


_ARROW = {name: _by_alias(names.arrow) for name, names in SIMPLE.items()}
_SPARK = {_by_alias(name): spark_type(type_) for name, type_ in FROM_ARROW.items()} | {
    type_: DataType(name=name) for name, type_ in _ARROW.items()
}
_IN_JSON = {ARRAY: "[", STRUCT: "{", MAP: "{"}  # how a nested value begins there
_ZONED = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_PATTERNS = (
    (pa.types.is_integer, r"^[+-]?[0-9]+$"),
    (pa.types.is_floating, NUMBER),
    (pa.types.is_decimal, r"(?i)^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?$"),
    (pa.types.is_date, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    (pa.types.is_timestamp, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}.*)?$"),
)

Typed = tuple[Any, Any]  # the values, null where they do not fit; and a mask of those, or None when all fit


# Names ----------------------------------------------------------------------------------------------------------------
def to_arrow(found: DataType) -> Any:
    """The type as Spark itself has it in Arrow; None for maps, and for what is not known here."""
    if found.name == DECIMAL:
        return pa.decimal128(*found.parameters) if is_decimal(found) else None
    if found.name not in (ARRAY, STRUCT):
        return None if found.parameters else _ARROW.get(found.name)
    inner = [to_arrow(type_) for type_ in found.inner]
    if None in inner:
        return None
    if found.name == ARRAY:
        return pa.list_(pa.field("element", inner[0]))
    return pa.struct([pa.field(name, type_) for name, type_ in zip(found.fields, inner, strict=True)])


def from_arrow(found: Any) -> DataType | None:
    """An Arrow type as Spark reads it from a file; None for one that Spark has no like of, or not every version."""
    if found in _SPARK:
        return _SPARK[found]
    if pa.types.is_timestamp(found):
        return DataType(name=TIMESTAMP_NTZ if found.tz is None else "timestamp")
    if pa.types.is_decimal(found):
        return DataType(name=DECIMAL, parameters=(found.precision, found.scale))
    if pa.types.is_dictionary(found):
        return from_arrow(found.value_type)
    if pa.types.is_fixed_size_binary(found):
        return DataType(name="binary")
    if pa.types.is_map(found):
        return _nested(MAP, (found.key_type, found.item_type))
    if pa.types.is_struct(found):
        return _nested(STRUCT, tuple(field.type for field in found), tuple(field.name for field in found))
    if pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found):
        return _nested(ARRAY, (found.value_type,))
    return None


def _nested(name: str, types: tuple[Any, ...], fields: tuple[str, ...] = ()) -> DataType | None:
    inner = tuple(from_arrow(type_) for type_ in types)
    known = tuple(type_ for type_ in inner if type_ is not None)
    return DataType(name=name, inner=known, fields=fields) if len(known) == len(inner) else None


def spark_name(found: Any) -> str:
    """An Arrow type in Spark's words; in Arrow's where Spark has none. A time without zone is a timestamp, too."""
    known = from_arrow(found)
    return str(found) if known is None else str(as_compared(known))


def arrow_type(declared: str) -> Any:
    """What values of a declared type are compared as; None for nested ones and for those that are not known here."""
    found = as_compared(spark_type(declared))
    if found.is_nested:
        return None
    return pa.timestamp("us") if found.name == "timestamp" else to_arrow(found)


def is_known(declared: str) -> bool:
    return spark_type(declared).is_nested or arrow_type(declared) is not None


def is_text_in_json(declared: str | None) -> bool:
    """True when JSON may hold such a value in quotes: text, dates, times. Numbers and true/false it may not."""
    found = None if declared is None else arrow_type(declared)
    return found is None or not (_is_number(found) or pa.types.is_boolean(found))


def kind_of(found: Any) -> str:
    """How values of an Arrow type are compared; a column that is null throughout is compared as text."""
    known = from_arrow(found)
    return OTHER if known is None else TEXT if known.name == VOID else family(known)


# Values ---------------------------------------------------------------------------------------------------------------
def typed(column: Any, declared: str | None) -> Typed:
    """The column as its declared type."""
    if declared is None or pa.types.is_null(column.type):
        return column, None
    wanted = arrow_type(declared)
    if wanted is None:
        begin = _IN_JSON.get(spark_type(declared).name)
        if begin is None or pa.types.is_nested(column.type):
            return column, None
        return (column, _not(pc.starts_with(column, begin) if _is_text(column.type) else pc.is_null(column)))
    if pa.types.is_string(wanted) or pa.types.is_binary(wanted):
        return texts(column), None
    if pa.types.is_boolean(wanted):
        return _booleans(column)
    if pa.types.is_timestamp(wanted):
        return timestamps(column)
    if _is_text(column.type):
        return _parsed(column, wanted)
    if pa.types.is_date(wanted):
        return (column, None) if pa.types.is_date(column.type) else _none_fits(column, wanted)
    if not _is_number(column.type):
        return _none_fits(column, wanted)
    return _in_range(column, wanted)


def numbers(column: Any) -> Typed:
    """The column as numbers, whatever it was read as."""
    if _is_number(column.type) or pa.types.is_null(column.type):
        return column, None
    return _parsed(column, pa.float64()) if _is_text(column.type) else _none_fits(column, pa.float64())


def timestamps(column: Any) -> Typed:
    """The column as times without a zone: UTC where a zone is given, as written where none is."""
    wanted = pa.timestamp("us")
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(wanted), None
    if pa.types.is_date(column.type):
        return column.cast(wanted), None
    if pa.types.is_null(column.type):
        return column.cast(wanted), None
    if not _is_text(column.type):
        return _none_fits(column, wanted)
    zoned = pc.match_substring_regex(column, r"[0-9]:.*" + _ZONED)
    if not pc.any(zoned).as_py():
        return _parsed(column, wanted)
    here, bad_here = _parsed(pc.if_else(zoned, None, column), wanted)
    there, bad_there = _parsed(pc.if_else(zoned, column, None), pa.timestamp("us", "UTC"))
    return pc.coalesce(here, there.cast(wanted)), either(bad_here, bad_there)


def texts(column: Any) -> Any:
    """The column as text; bytes are shown as Python writes them."""
    if _is_text(column.type):
        return column
    if pa.types.is_null(column.type):
        return column.cast(pa.string())
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        try:
            return column.cast(pa.string())
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            pass
    return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())


def either(one: Any, other: Any) -> Any:
    """Both masks in one; None is a mask without a hit."""
    if one is None or other is None:
        return other if one is None else one
    return pc.or_(one, other)


def _parsed(column: Any, wanted: Any) -> Typed:
    try:
        return column.cast(wanted), None
    except pa.ArrowInvalid:
        pass
    # Something does not fit. First by a pattern, which is fast also when nothing fits; the rest, such as
    # 2025-02-30 or a number that is too large, value by value.
    pattern = next(regex for is_kind, regex in _PATTERNS if is_kind(wanted))
    bad = _not(pc.match_substring_regex(column, pattern))
    column = pc.replace_substring_regex(pc.if_else(bad, None, column), r"^\+|(\.[0-9]{6})[0-9]+", r"\1")
    try:
        return column.cast(wanted), bad
    except pa.ArrowInvalid:
        pass
    encoded = column.dictionary_encode()
    fits = pa.array([_fits(value, wanted) for value in encoded.dictionary], pa.bool_())
    bad = either(bad, _not(fits.take(encoded.indices)))
    return pc.if_else(bad, None, column).cast(wanted), bad


def _fits(value: Any, wanted: Any) -> bool:
    try:
        value.cast(wanted)
    except pa.ArrowInvalid:
        return False
    return True


def _booleans(column: Any) -> Typed:
    if pa.types.is_boolean(column.type):
        return column, None
    if not _is_text(column.type):
        return _none_fits(column, pa.bool_())
    lower = pc.utf8_lower(column)
    bad = _not(pc.is_in(lower, value_set=pa.array(["true", "false"])))
    bad = pc.and_(bad, pc.is_valid(column))
    return pc.equal(pc.if_else(bad, None, lower), "true"), bad


def _in_range(column: Any, wanted: Any) -> Typed:
    """Numbers that must also be numbers of the declared kind: whole, and not too large for it."""
    try:
        return column.cast(wanted), None
    except pa.ArrowInvalid:
        pass
    if not pa.types.is_integer(wanted):
        return _parsed(texts(column), wanted)
    if pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
    limit = 1 << (wanted.bit_width - 1)
    bad = _not(pc.and_(pc.greater_equal(column, -limit), pc.less_equal(column, limit - 1)))
    if pa.types.is_floating(column.type):
        bad = pc.or_(bad, _not(pc.equal(column, pc.floor(column))))
    return pc.if_else(bad, None, column).cast(wanted, safe=False), bad


def _none_fits(column: Any, wanted: Any) -> Typed:
    return pa.nulls(len(column), wanted), pc.is_valid(column)


def _not(mask: Any) -> Any:
    """The rows that were looked at and are not in the mask; null ones are not a hit either."""
    return pc.fill_null(pc.invert(mask), False)


def _is_text(found: Any) -> bool:
    return bool(pa.types.is_string(found))  # batches.py brings all text so


def _is_number(found: Any) -> bool:
    return bool(pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found))
