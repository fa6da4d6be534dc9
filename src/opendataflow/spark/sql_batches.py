"""Arrow batches as a driver gives them, made exactly what the run's frozen schema says."""

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from opendataflow.errors import JobFailed
from opendataflow.spark.sql_types import Column

# PostgreSQL's times begin in 4714 BC; below that are only its infinities, as the driver gives them.
_FIRST_DAY = -2_440_589
_FIRST_MICROSECOND = _FIRST_DAY * 86_400_000_000


def conform(batch: pa.RecordBatch, columns: Sequence[Column], target: pa.Schema, *, where: str) -> pa.RecordBatch:
    """The batch with the target's types, or JobFailed naming the column whose values do not fit."""
    arrays = []
    for array, column, field in zip(batch.columns, columns, target, strict=True):
        try:
            arrays.append(_conform(array, column, field.type))
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise JobFailed(
                f"{where}: column {column.name} ({column.source_type}) has a value that is no {column.spark_type} "
                f"({str(error).strip()}); declare another type in `schema:`, or convert it in `query:`"
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _conform(array: Any, column: Column, type_: pa.DataType) -> Any:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if column.scale is not None and pa.types.is_decimal(type_):
        return _scaled(array, type_)
    _check_finite(array)
    if array.type == type_:
        return array
    if pa.types.is_list(array.type) and isinstance(array.type.value_type, pa.BaseExtensionType):
        array = pa.ListArray.from_arrays(array.offsets, array.values.storage, mask=array.is_null())
    if pa.types.is_timestamp(type_):
        return _timestamps(array, type_)
    if pa.types.is_date(type_) and pa.types.is_string(array.type):
        return pc.cast(array, pa.date32())
    if pa.types.is_decimal(type_) and pa.types.is_string(array.type):
        return pc.cast(pc.replace_substring_regex(array, r"^\s+|\s+$", ""), type_) if len(array) else array.cast(type_)
    return pc.cast(array, type_)


def _scaled(array: Any, type_: pa.DataType) -> Any:
    """Whole numbers as decimals with that many places: the same digits, so only the type changes."""
    wide = pc.cast(array, pa.decimal128(19, 0))
    return pa.Array.from_buffers(type_, len(wide), wide.buffers(), offset=wide.offset)


def _timestamps(array: Any, type_: pa.TimestampType) -> Any:
    """Times without zone are UTC's, as the session's are."""
    if pa.types.is_string(array.type):
        return _parsed(array, type_)
    if array.type.tz is None and type_.tz is not None:
        return pc.cast(pc.cast(array, pa.timestamp(type_.unit)), type_)
    return pc.cast(array, type_)


def _parsed(array: Any, type_: pa.TimestampType) -> Any:
    """Text as ISO writes times, with or without zone."""
    if not pc.any(pc.match_substring_regex(array, r"(Z|[+-]\d\d:?\d\d)$")).as_py():
        return pc.cast(pc.cast(array, pa.timestamp(type_.unit)), type_)
    return pc.cast(pc.cast(array, pa.timestamp(type_.unit, tz="UTC")), type_)


def _check_finite(array: Any) -> None:
    if pa.types.is_timestamp(array.type) and array.type.unit == "us":
        lowest = pc.min(array.view(pa.int64())).as_py()
        limit = _FIRST_MICROSECOND
    elif pa.types.is_date32(array.type):
        lowest, limit = pc.min(array.view(pa.int32())).as_py(), _FIRST_DAY
    else:
        return
    if lowest is not None and lowest < limit:
        raise ValueError("it is infinity")


# Spark's types ------------------------------------------------------------------------------------------------------
_PLAIN = {
    "boolean": pa.bool_(), "bool": pa.bool_(), "tinyint": pa.int8(), "byte": pa.int8(), "smallint": pa.int16(),
    "short": pa.int16(), "int": pa.int32(), "integer": pa.int32(), "bigint": pa.int64(), "long": pa.int64(),
    "float": pa.float32(), "real": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(),
    "date": pa.date32(), "timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"), "decimal": pa.decimal128(10, 0),
}  # fmt: skip
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def arrow_schema(columns: Sequence[Column], *, where: str) -> pa.Schema:
    """The columns' Spark types as Spark itself has them in Arrow."""
    return pa.schema([pa.field(column.name, _arrow_type(column.spark_type, column.name, where)) for column in columns])


def _arrow_type(text: str, name: str, where: str) -> pa.DataType:
    type_ = text.strip().lower()
    if type_ in _PLAIN:
        return _PLAIN[type_]
    if found := _DECIMAL.fullmatch(type_):
        return pa.decimal128(int(found[1]), int(found[2] or 0))
    if type_.startswith("array<") and type_.endswith(">"):
        return pa.list_(pa.field("element", _arrow_type(text.strip()[6:-1], name, where)))
    if type_.startswith("struct<") and type_.endswith(">"):
        return pa.struct([_arrow_field(one, name, where) for one in _members(text.strip()[7:-1])])
    raise JobFailed(f"{where}: column {name} is declared as {text}, which a source in a database cannot give")


def _arrow_field(member: str, name: str, where: str) -> pa.Field:
    inner, _, type_ = member.partition(":")
    return pa.field(inner.strip().strip("`"), _arrow_type(type_, name, where))


def _members(text: str) -> list[str]:
    """What is between the commas that are in no brackets."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return found


def same_types(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether two results have the same columns and types."""
    return bool(one.names == other.names and [str(field.type) for field in one] == [str(field.type) for field in other])
