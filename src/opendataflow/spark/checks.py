"""The checks of a chunk in the pass that writes it, and what they found.

    audit = Audit(spec.checks, dataid=spec.dataid, schema=spec.destination.schema, place=spec.destination)
    written = write_chunk(audit.watch(df), spec.destination, spec.sources)
    findings = audit.findings(spark, spec.destination, rows=written.rows, earlier_rows=spec.earlier_rows)

Most of `not_null`, `between` and `partition` is answered by the footers of the Parquet files that were written. For the
others `watch` puts one Observation under the write: how many rows there are, and how many break any check at all. When
none does, that is all there is to know. When some do, another pass over the written files counts them for each check,
and finds an example. `unique` is always a pass of its own.
"""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.types import MapType, StructType

from opendataflow.domain.checks.check import (
    CANNOT_TAKE_OUT,
    FAIL,
    ON_EACH_ROW,
    READABLE,
    Check,
    Finding,
    age_finding,
    brief,
    count_finding,
    is_within,
    missing_column,
    new_finding,
    printable,
    skipped,
    what_breaks,
)
from opendataflow.errors import JobFailed
from opendataflow.spark.check_columns import schema_problems
from opendataflow.spark.check_counts import Broken, look, repeated
from opendataflow.spark.check_plan import BROKEN, OUT, ROWS, Asked, CheckPlan, find_plan, first_line
from opendataflow.spark.files import explain_read_failure, must_read_again, read_chunk
from opendataflow.spark.files_local import data_files
from opendataflow.spark.footers import find_extents
from opendataflow.spark.quarantine import quarantine_folder, quarantine_place, write_quarantine
from opendataflow.spark.spark_errors import is_from_spark, sql_fragments
from opendataflow.spark.spec import Place
from opendataflow.spark.types import types_of

WAIT_SECONDS = 30.0  # Spark gives an observation's numbers a moment after the write, and sometimes never
Metrics = dict[str, Any]


class Audit:
    """The checks of one chunk, from before its write to its findings. Use it for one write, by one thread."""

    def __init__(
        self, checks: Sequence[Check], *, dataid: str, schema: Mapping[str, str] | None, place: Place | None = None
    ) -> None:
        self.checks = tuple(checks)
        self._dataid, self._declared = dataid, schema
        self._format = place.format if place is not None else "parquet"
        self._has_footers = place is not None and place.is_local and place.format == "parquet"
        self._options = dict(place.options) if place is not None else {}
        self._schema = StructType()
        self._plan = CheckPlan(Asked((), self._schema, dataid, self._format, self._has_footers, None))
        self._before: DataFrame | None = None
        self._observation: Observation | None = None

    # Before the write -------------------------------------------------------------------------------------------------
    def watch(self, df: DataFrame) -> DataFrame:
        """The DataFrame to write: watched by the checks, without the rows that a check takes out.

        Raises JobFailed when the SQL of an expression does not go with the DataFrame.
        """
        self._schema, self._before = df.schema, df
        null = str(self._options.get("nullValue", "")) if self._format == "csv" else None
        self._plan = find_plan(Asked(self.checks, df.schema, self._dataid, self._format, self._has_footers, null))
        self._plan.try_expressions(df)
        if not self._plan.is_watched:
            return df
        self._observation = Observation()
        try:
            watched = df.observe(self._observation, *self._plan.metrics)
        except PySparkException as error:  # an aggregate, say, which is no condition on a row
            raise JobFailed(f"the checks do not go with the data: {first_line(error)}") from error
        out = self._plan.taken_out
        return watched if out is None else watched.where(~out)

    def blame(self, error: BaseException) -> str:
        """When a write failed because the SQL of an expression could not be evaluated: a sentence that says so."""
        fragments = sql_fragments(error)
        for check in self.checks:
            if check.kind == "expression" and any(part in check.options["sql"] for part in fragments):
                return f"check {check} could not be evaluated: {first_line(error)}; try_ functions give null instead"
        return ""

    # After the write --------------------------------------------------------------------------------------------------
    def findings(
        self, spark: SparkSession, place: Place, *, rows: int | None = None, earlier_rows: Sequence[int] = (),
        written_at: float | None = None,
    ) -> tuple[Finding, ...]:  # fmt: skip
        """What the checks say of the chunk that was written there, in their order. Only after a write that succeeded.

        `rows`: how many were written, if the files' footers say. Rows that were taken out are written to
        quarantine_folder(place) now.
        """
        metrics = self._seen(rows)
        if not metrics or (rows is not None and _kept(metrics) != rows):
            metrics = self._counted_again(spark, place, rows)
        kept, out = _kept(metrics) if rows is None else rows, int(metrics.get(OUT, 0))
        counts = self._counts(spark, place, metrics)
        trouble = self._quarantine(spark, place, out, counts) if out else ""
        found = []
        for number, check in enumerate(self.checks):
            if check.kind in ON_EACH_ROW:
                one = self._row_finding(number, counts, kept + out if check.takes_out_rows else kept, place, trouble)
            elif check.kind == "rows":
                one = count_finding(check, kept, earlier_rows)
            elif check.kind == "unique":
                one = new_finding(check, self._unique_problems(spark, place, check))
            else:
                one = self._other_finding(check, place, written_at)
            found.append(one._replace(detail=printable(one.detail)))
        return tuple(found)

    # The numbers ------------------------------------------------------------------------------------------------------
    def _seen(self, rows: int | None) -> Metrics:
        """The numbers, as far as they are known without another pass; empty when they are not."""
        if rows == 0 and not self._plan.taking_out:
            return self._nothing()
        if self._observation is not None:
            return self._observed(self._observation)
        is_needed = any(check.kind == "rows" or check.kind in ON_EACH_ROW for check in self.checks)
        return {} if rows is None and is_needed else {**self._nothing(), ROWS: rows or 0}

    def _observed(self, observation: Observation) -> Metrics:
        """The observation's numbers; empty when Spark gives none: it drops the node where it knows there is no row."""
        got: list[Metrics] = []

        def get() -> None:
            try:
                got.append(dict(observation.get))
            except Exception:  # noqa: BLE001  Spark's own assertion, when there are no numbers
                got.append({})

        # A thread that nobody waits for at the end: after some failures `get` waits for ever.
        thread = threading.Thread(target=get, daemon=True, name="observation")
        thread.start()
        thread.join(WAIT_SECONDS)
        return got[0] if got and ROWS in got[0] else {}

    def _nothing(self) -> Metrics:
        """The numbers of no row at all."""
        return dict.fromkeys([ROWS, OUT, BROKEN, *(name for name, _ in self._plan.judged)], 0)

    def _counted_again(self, spark: SparkSession, place: Place, rows: int | None) -> Metrics:
        """The same numbers by a pass of their own: over what was written, or over all rows where some were left out."""
        if rows == 0 and not self._plan.taking_out:
            return self._nothing()
        source = self._before if self._plan.taking_out else None
        source = self._read_back(spark, place) if source is None else source
        row = source.agg(*self._plan.metrics).head()
        return row.asDict() if row is not None else self._nothing()

    def _read_back(self, spark: SparkSession, place: Place) -> DataFrame:
        """What was written, with the types that it had."""
        return read_chunk(spark, _as_written(place, self._schema))

    def _counts(self, spark: SparkSession, place: Place, metrics: Metrics) -> dict[str, Broken]:
        """For each condition that a staying row breaks, how many do, and one of the values: one pass over the files."""
        counts = {name: Broken(int(metrics[name])) for name, _ in self._plan.judged if metrics.get(name)}
        if not metrics.get(BROKEN) and not self._is_doubtful(place):
            return counts
        found = look(self._read_back(spark, place), self._plan.judged)
        if found or not metrics.get(BROKEN):
            return counts | found
        if self._before is not None:  # what the format does not keep, such as parts of a second
            found = look(self._before, self._plan.judged)
        return found or dict.fromkeys([name for name, _ in self._plan.judged], Broken(int(metrics[BROKEN])))

    def _is_doubtful(self, place: Place) -> bool:
        """True unless the footers say that every condition which was left to them holds."""
        asked = [one for _, one in self._plan.judged if self._plan.is_in_footers(one)]
        extents = find_extents(place, {one.column for one in asked}) if asked else {}
        return any(
            one.column not in extents or (one.within is not None and not one.within.holds(extents[one.column]))
            for one in asked
        )

    # One check --------------------------------------------------------------------------------------------------------
    def _row_finding(
        self, number: int, counts: Mapping[str, Broken], rows: int, place: Place, trouble: str
    ) -> Finding:  # fmt: skip
        check, compiled = self.checks[number], self._plan.compiled[number]
        if check.kind == "expression":
            return self._expression_finding(check, counts.get(f"{number}.0", Broken(0)).rows, rows, place, trouble)
        problems = []
        for at, condition in enumerate(compiled.conditions):
            broken = counts.get(f"{number}.{at}")
            if broken is not None:
                told = "" if broken.example is None else f": '{brief(broken.example)}'"
                problems.append(f"{condition.what} in {broken.rows} of {rows} rows{told}")
        if compiled.problems or not (problems and check.takes_out_rows):
            on_fail = FAIL if check.takes_out_rows else None  # nothing that rows could be taken out for
            return new_finding(check, [*compiled.problems, *problems], on_fail=on_fail)
        return self._quarantined(check, problems, place, trouble)

    def _expression_finding(self, check: Check, broken: int, rows: int, place: Place, trouble: str) -> Finding:
        at_least = Decimal(str(check.options["at_least"]))
        if not broken:
            return new_finding(check, [])
        told = f"{what_breaks(check, '', self._dataid)} in {broken} of {rows} rows"
        is_enough = rows - broken >= at_least * rows
        if check.takes_out_rows:
            if at_least < 1 and not is_enough:
                return new_finding(check, [f"{told}; at least {at_least} must pass"], on_fail=FAIL)
            return self._quarantined(check, [told], place, trouble)
        told = told if at_least == 1 else f"{told}; at least {at_least} must pass"
        return Finding(str(check), is_enough, False, told, check.on_fail)

    def _quarantined(self, check: Check, problems: list[str], place: Place, trouble: str) -> Finding:
        if trouble:
            return new_finding(check, [*problems, trouble], on_fail=FAIL)
        return new_finding(check, [*problems, f"they were left out, and are in {quarantine_folder(place)}"])

    def _other_finding(self, check: Check, place: Place, written_at: float | None) -> Finding:
        """Checks that need no row."""
        match check.kind:
            case "schema":
                is_exact = self._format == "csv"
                return new_finding(check, schema_problems(self._declared, self._schema, is_exact=is_exact))
            case "header":
                names, wanted = ", ".join(self._schema.names), ", ".join(check.options["columns"])
                return new_finding(check, [] if names == wanted else [f"it begins with {names}, not {wanted}"])
            case "freshness":
                return age_finding(check, max(0.0, time.time() - written_at) if written_at is not None else 0.0)
            case "checksum":
                return skipped(check, "Spark writes no checksum file")
            case "exists" | "bytes" if not place.is_local:
                return skipped(check, f"{place.location} is not on this machine")
            case "exists":
                files = len(_sizes(place))
                return Finding(str(check), files > 0, False, f"{files} files", check.on_fail)
            case "bytes":
                size = sum(_sizes(place))
                return Finding(str(check), is_within(size, check.options), False, f"{size} bytes", check.on_fail)
        return skipped(check, "this version does not know it; was the store written by a newer one?")

    def _unique_problems(self, spark: SparkSession, place: Place, check: Check) -> list[str]:
        """A pass over the key columns of what was written: it needs a shuffle, which a write cannot carry."""
        keys: list[str] = check.options["columns"]
        problems = [missing_column(key, self._schema.names) for key in keys if key not in self._schema.names]
        problems += [
            f"{key} is {self._schema[key].dataType.simpleString()}, which cannot be compared"
            for key in keys
            if key in self._schema.names and isinstance(self._schema[key].dataType, MapType)
        ]
        if problems:
            return problems
        row = repeated(self._read_back(spark, place), keys).head()
        if row is None or not row["repeated"]:
            return []
        values = ", ".join("" if value is None else str(value) for value in row["example"])
        return [f"{', '.join(keys)} repeats an earlier row in {row['repeated']} rows: ({brief(values)})"]

    # Quarantine -------------------------------------------------------------------------------------------------------
    def _quarantine(self, spark: SparkSession, place: Place, count: int, counts: dict[str, Broken]) -> str:
        """Write the rows that were left out and count them for each check; what is wrong with that, if anything is."""
        out, before = self._plan.taken_out, self._before
        if out is None or before is None:
            return ""
        conditions = self._plan.taking_out
        why = [(f"{self._plan.check_of(name)}: {one.what}", one.broken) for name, one in conditions]
        found = write_quarantine(before.where(out), why, place, rows=count)
        counts |= look(read_chunk(spark, quarantine_place(place)), conditions)
        if found is None or found == count:
            return ""
        counts.setdefault(conditions[0][0], Broken(count))
        return (
            f"{count} rows were left out, but {found} were found when they were to be kept; "
            "transformations must give the same rows each time"
        )


def audit_files(
    spark: SparkSession, place: Place, checks: Sequence[Check], *, dataid: str, rows: int | None = None,
    earlier_rows: Sequence[int] = (), written_at: float | None = None,
) -> tuple[Finding, ...]:  # fmt: skip
    """The checks on files that are there, by one pass that writes nothing. Rows cannot be taken out of them."""
    kept = [check._replace(on_fail=FAIL) if check.takes_out_rows else check for check in checks]
    asked = {str(check) for check in checks if check.takes_out_rows}
    is_typed = place.format in ("parquet", "orc")  # their own types are compared, not asked for
    audit = Audit(kept, dataid=dataid, schema=place.schema, place=place)
    try:
        df = read_chunk(spark, _as_written(place, None) if is_typed else place, can_read_again=True)
        audit.watch(df).write.format("noop").mode("overwrite").save()
        found = audit.findings(spark, place, rows=rows, earlier_rows=earlier_rows, written_at=written_at)
        return tuple(
            one._replace(detail=f"{one.detail}; {CANNOT_TAKE_OUT}") if one.failed and one.check in asked else one
            for one in found
        )
    except Exception as error:
        if not isinstance(error, JobFailed) and not is_from_spark(error):
            raise
        if must_read_again(spark, [place], error):
            return audit_files(
                spark, place, checks, dataid=dataid, rows=rows, earlier_rows=earlier_rows, written_at=written_at
            )
        told = audit.blame(error) or explain_read_failure(spark, place, error) or first_line(error)
        unread = Finding(READABLE, False, False, printable(told))
        return (unread, *(skipped(check, "the rows could not be read to their end") for check in kept))


def _kept(metrics: Metrics) -> int:
    """Rows that were written, by these numbers."""
    return int(metrics[ROWS]) - int(metrics.get(OUT, 0))


def _as_written(place: Place, schema: StructType | None) -> Place:
    """To read it back: Parquet and ORC by their own types, the others by those of the DataFrame."""
    if schema is None or place.format in ("parquet", "orc", "text"):
        return replace(place, schema=None)
    return replace(place, schema=types_of(schema))


def _sizes(place: Place) -> list[int]:
    return [os.path.getsize(path) for path in data_files(place.location)] if os.path.exists(place.location) else []
