"""Types in Arrow: each of Spark's goes there and comes back, and each of Arrow's other types is what Spark reads."""

import pyarrow as pa
import pytest

from opendataflow.checks.arrow_types import arrow_type, from_arrow, is_known, spark_name, to_arrow
from opendataflow.domain.types.datatype import DataType
from opendataflow.domain.types.spark import FROM_ARROW, SIMPLE, spark_type


@pytest.mark.parametrize(
    "name",
    [*SIMPLE, "decimal(10,2)", "decimal(38,38)", "array<array<date>>", "struct<a:int,`b c`:array<timestamp_ntz>>"],
)
def test_each_type_comes_back_from_arrow(name: str) -> None:
    found = spark_type(name)
    assert from_arrow(to_arrow(found)) == found
    assert is_known(name)


def test_arrows_other_types_are_what_spark_reads_of_them() -> None:
    assert {name: str(from_arrow(pa.type_for_alias(name))) for name in FROM_ARROW} == FROM_ARROW
    more = {
        pa.timestamp("ns"): "timestamp_ntz", pa.timestamp("s", tz="Europe/Berlin"): "timestamp",
        pa.decimal256(40, 2): "decimal(40,2)", pa.dictionary(pa.int8(), pa.string()): "string",
        pa.binary(16): "binary", pa.map_(pa.string(), pa.int8()): "map<string,tinyint>",
        pa.large_list(pa.uint8()): "array<smallint>", pa.list_(pa.int64(), 3): "array<bigint>",
        pa.struct([("a b", pa.null())]): "struct<`a b`:void>",
    }  # fmt: skip
    assert {type_: str(from_arrow(type_)) for type_ in more} == more


@pytest.mark.parametrize(
    "type_", [pa.time64("us"), pa.duration("s"), pa.list_(pa.time32("s")), pa.month_day_nano_interval()]
)
def test_what_spark_has_no_like_of_keeps_arrows_name(type_: pa.DataType) -> None:
    assert from_arrow(type_) is None
    assert spark_name(type_) == str(type_)


@pytest.mark.parametrize("name", ["decimal(39,2)", "decimal(2,3)", "varchar(3)", "map<string,int>", "array<void>", "x"])
def test_a_type_that_arrow_cannot_hold_as_spark_does_has_none(name: str) -> None:
    assert to_arrow(spark_type(name)) is None


def test_values_are_compared_without_length_and_zone() -> None:
    assert arrow_type("varchar(3)") == pa.string()
    assert arrow_type("timestamp") == arrow_type("timestamp_ntz") == pa.timestamp("us")
    assert arrow_type("NUMERIC(12)") == pa.decimal128(12, 0)
    assert arrow_type("array<int>") is None
    assert to_arrow(DataType(name="timestamp")) == pa.timestamp("us", tz="UTC")
