"""Counting the rows that break conditions, in aggregates of one row whatever the data is."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from opendataflow.spark.check_columns import Condition, quoted


class Broken(NamedTuple):
    """The rows that break a condition: how many, and a value of one of them."""

    rows: int
    example: str | None = None


def look(df: DataFrame, conditions: Sequence[tuple[str, Condition]]) -> dict[str, Broken]:
    """The conditions that some row breaks: by how many, and a value that does."""
    asked = []
    for name, one in conditions:
        asked.append(count_where(one.broken).alias(name))
        if one.shown is not None:
            asked.append(F.first(F.when(one.broken, one.shown), ignorenulls=True).alias(f"{name} value"))
    row = df.agg(*asked).head() if asked else None
    found = {} if row is None else row.asDict()
    return {name: Broken(found[name], found.get(f"{name} value")) for name, _ in conditions if found.get(name)}


def repeated(df: DataFrame, keys: Sequence[str]) -> DataFrame:
    """One row: how many rows repeat an earlier one in these columns, and one of the keys that do."""
    columns = [F.col(quoted(key)) for key in keys]
    present = df.select(*columns)
    for column in columns:
        present = present.where(column.isNotNull())
    groups = present.groupBy(*columns).agg(F.count(F.lit(1)).alias("__rows")).where("__rows > 1")
    example = F.first(F.struct(*(column.cast("string") for column in columns)))
    return groups.agg(F.sum(F.col("__rows") - 1).alias("repeated"), example.alias("example"))


def any_of(conditions: Iterable[Column]) -> Column | None:
    whole: Column | None = None
    for one in conditions:
        whole = one if whole is None else whole | one
    return whole


def staying(broken: Column, out: Column | None) -> Column:
    return broken if out is None else broken & ~out


def count_where(condition: Column) -> Column:
    """How many rows it is true of. Not count_if, for which Spark widens every row by the condition, and copies it."""
    return F.count(F.when(condition, F.lit(1)))
