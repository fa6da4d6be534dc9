"""Arrow batches as a driver gives them, made exactly what the run's frozen schema says."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from opendataflow.checks.arrow_types import to_arrow
from opendataflow.domain.types.spark import spark_type
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
def arrow_schema(columns: Sequence[Column], *, where: str) -> pa.Schema:
    """The columns' Spark types as Spark itself has them in Arrow."""
    return pa.schema([pa.field(column.name, _arrow_type(column, where)) for column in columns])


def _arrow_type(column: Column, where: str) -> pa.DataType:
    found = to_arrow(spark_type(column.spark_type))
    if found is None:
        told = f"column {column.name} is declared as {column.spark_type}"
        raise JobFailed(f"{where}: {told}, which a source in a database cannot give")
    return found


def same_types(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether two results have the same columns and types."""
    return bool(one.names == other.names and [str(field.type) for field in one] == [str(field.type) for field in other])
