"""What the checks of a dataset ask of a DataFrame's rows, made once for all chunks that have the same columns.

Every Spark column costs a dozen calls to the JVM to make, which a small chunk notices; a chunk after the first one of
its pipeline makes none.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from opendataflow.domain.checks.check import ON_EACH_ROW, Check
from opendataflow.errors import JobFailed
from opendataflow.spark.check_columns import Compiled, Condition, compile_check
from opendataflow.spark.check_counts import any_of, count_where, staying

ROWS, OUT, BROKEN = "rows", "out", "broken"  # metrics: all rows, those taken out, those that stay and break a check
_KEPT_PLANS = 64


@dataclass(frozen=True)
class Asked:
    """Which checks, on which columns, written how. What is not compared follows from what is."""

    checks: tuple[Check, ...] = field(compare=False)
    schema: StructType = field(compare=False)
    dataid: str = field(compare=False)
    format: str
    has_footers: bool
    csv_null: str | None
    is_same: tuple[Any, ...] = ()  # made here


def find_plan(asked: Asked) -> "CheckPlan":
    """The plan, the one of an earlier chunk where nothing differs."""
    depends = any(check.kind == "partition" for check in asked.checks)
    jvm = SparkContext._gateway  # columns live in one; a process whose Spark was replaced must not mix them
    is_same = (repr(asked.checks), asked.schema.json(), asked.dataid if depends else "", jvm)
    return _make_plan(Asked(asked.checks, asked.schema, asked.dataid, asked.format, asked.has_footers,
                            asked.csv_null, is_same))  # fmt: skip


class CheckPlan:
    """The conditions of the checks, and the few numbers that tell whether any row breaks one."""

    def __init__(self, asked: Asked) -> None:
        self.checks = asked.checks
        self._format, self._has_footers = asked.format, asked.has_footers
        self.compiled: dict[int, Compiled] = {
            number: compile_check(check, asked.schema, asked.dataid, csv_null=asked.csv_null)
            for number, check in enumerate(asked.checks)
            if check.kind in ON_EACH_ROW
        }
        self.judged = self._conditions(takes_out_rows=False)
        self.taking_out = self._conditions(takes_out_rows=True)
        self.taken_out = any_of(one.broken for _, one in self.taking_out)
        self._is_tried = False

    @property
    def is_watched(self) -> bool:
        """True when something must be counted while it is written."""
        counts_rows = any(check.kind == "rows" for check in self.checks) and self._format not in ("parquet", "orc")
        return counts_rows or any(not self.is_in_footers(one) for _, one in self.judged) or bool(self.taking_out)

    def is_in_footers(self, condition: Condition) -> bool:
        return self._has_footers and condition.within is not None

    def check_of(self, name: str) -> Check:
        """The check that a condition of this name is of."""
        return self.checks[int(name.partition(".")[0])]

    def try_expressions(self, df: DataFrame) -> None:
        """Raise JobFailed when the SQL of an expression does not go with the DataFrame."""
        if self._is_tried:
            return
        for number, compiled in self.compiled.items():
            if self.checks[number].kind == "expression":
                try:
                    _ = df.select(compiled.conditions[0].broken.alias("broken")).schema
                except PySparkException as error:
                    raise JobFailed(f"check {self.checks[number]}: {first_line(error)}") from error
        self._is_tried = True

    @cached_property
    def metrics(self) -> list[Column]:
        """Few, since each costs every row: rows, rows taken out, rows that stay and break a check that all must hold.

        An expression with a tolerance has a count of its own: rows that break it are nothing unusual.
        """
        out = self.taken_out
        metrics = [F.count(F.lit(1)).alias(ROWS)]
        if out is not None:
            metrics.append(count_where(out).alias(OUT))
        judged = [(name, one) for name, one in self.judged if not self.is_in_footers(one)]
        broken = any_of(one.broken for name, one in judged if not self._is_tolerant(name))
        if broken is not None:
            metrics.append(count_where(staying(broken, out)).alias(BROKEN))
        for name, one in judged:
            if self._is_tolerant(name):
                metrics.append(count_where(staying(one.broken, out)).alias(name))
        return metrics

    def _conditions(self, *, takes_out_rows: bool) -> Sequence[tuple[str, Condition]]:
        """By name: `2.0` is the first one of the third check."""
        return [
            (f"{number}.{at}", condition)
            for number, compiled in self.compiled.items()
            if self.checks[number].takes_out_rows == takes_out_rows
            for at, condition in enumerate(compiled.conditions)
        ]

    def _is_tolerant(self, name: str) -> bool:
        check = self.check_of(name)
        return check.kind == "expression" and check.options["at_least"] < 1


_make_plan = lru_cache(maxsize=_KEPT_PLANS)(CheckPlan)


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
