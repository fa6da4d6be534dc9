"""Checks in the write's own pass: what they cost in passes, what they take out, and what Spark does not tell them."""

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from opendataflow.domain.checks.check import FAIL, QUARANTINE, WARN, Check, Finding, passed
from opendataflow.errors import JobFailed
from opendataflow.spark import checks as module
from opendataflow.spark.check_columns import compile_check
from opendataflow.spark.check_counts import repeated
from opendataflow.spark.checks import Audit, audit_files
from opendataflow.spark.files import read_chunk, write_chunk
from opendataflow.spark.quarantine import quarantine_folder
from opendataflow.spark.spec import Place
from support.patterns import SHARED

EVERY_FAULT = "DATAFLOW_EVERY_FAULT" in os.environ
SCHEMA = {"carrier": "string", "flight": "int", "delay": "double"}
ROWS = [("AA", 1, 2.5), ("UA", 2, None), (None, 3, -4.0), ("XX", 3, 9.0)]
NOT_NULL = Check("not_null", {"columns": ["carrier"]})
VALUES = Check("values", {"columns": {"carrier": ["AA", "UA"]}})
BETWEEN = Check("between", {"columns": {"delay": [-10, 5]}})
UNIQUE = Check("unique", {"columns": ["flight"]})


def expression(sql: str, at_least: float = 1.0, on_fail: str = FAIL) -> Check:
    return Check("expression", {"sql": sql, "at_least": at_least}, on_fail)


def frame(spark: SparkSession, rows: list[tuple[Any, ...]] = ROWS) -> DataFrame:
    return spark.createDataFrame(rows, "carrier string, flight int, delay double")


def place_at(folder: Path, format_: str = "parquet", **fields: Any) -> Place:
    return Place(datasetid="x", location=str(folder), format=format_, options={}, schema=SCHEMA, **fields)


def audited(
    spark: SparkSession, df: DataFrame, place: Place, *checks: Check, earlier_rows: tuple[int, ...] = ()
) -> tuple[Finding, ...]:
    audit = Audit(checks, dataid="2013-01-01", schema=SCHEMA, place=place)
    written = write_chunk(audit.watch(df), place, ())
    return audit.findings(spark, place, rows=written.rows, earlier_rows=earlier_rows)


def results(findings: tuple[Finding, ...]) -> list[str]:
    return [one.result for one in findings]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_at(tmp_path / "out")


def kept(spark: SparkSession, place: Place) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in read_chunk(spark, place).collect()), key=repr)


def jobs_of(spark: SparkSession, work: Any) -> int:
    """How many Spark jobs the work starts."""
    context = spark.sparkContext
    context.setJobGroup(f"counted-{id(work)}", "")
    try:
        work()
        return len(context.statusTracker().getJobIdsForGroup(f"counted-{id(work)}"))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


# What is found --------------------------------------------------------------------------------------------------------
def test_findings_come_in_the_order_of_the_checks_with_counts_and_an_example(spark: SparkSession, place: Place) -> None:
    checks = (
        NOT_NULL, VALUES._replace(on_fail=WARN), BETWEEN, UNIQUE, Check("rows", {"min": 4}), Check("schema", {}),
        Check("exists", {}), Check("bytes", {"min": 1}), Check("freshness", {"max_age": 60.0}),
        Check("checksum", {"file": "x", "algorithm": "sha256"}), expression("flight > 0"),
        Check("rows", {"within": [0.5, 2.0], "of": "median", "last": 2}),
        Check("header", {"columns": ["carrier", "flight", "delay"]}),
    )  # fmt: skip
    found = audited(spark, frame(spark), place, *checks, earlier_rows=(4, 5, 100))
    assert [(one.check, one.detail) for one in found[:4]] == [
        ("not_null carrier", "carrier is null in 1 of 4 rows"),
        ("values carrier", "carrier is not one of AA, UA in 1 of 4 rows: 'XX'"),
        ("between delay", "delay is not between -10 and 5 in 1 of 4 rows: '9.0'"),
        ("unique flight", "flight repeats an earlier row in 1 rows: (3)"),
    ]
    assert results(found) == ["failed", "warned", "failed", "failed", *["passed"] * 5, "skipped", *["passed"] * 3]
    assert found[11].detail == "4 rows; 2.25 to 9 were expected, by the median 4.5 of 2 before"


def test_findings_go_into_a_childs_answer_and_back(spark: SparkSession, place: Place) -> None:
    found = audited(spark, frame(spark), place, NOT_NULL, VALUES)
    assert tuple(Finding(*one) for one in json.loads(json.dumps(found))) == found


def test_without_checks_nothing_is_watched(spark: SparkSession, place: Place) -> None:
    df = frame(spark)
    audit = Audit((), dataid="1", schema=None, place=place)
    assert audit.watch(df) is df
    assert audit.findings(spark, place) == ()


def test_checks_that_pass_cost_no_job_after_the_write(spark: SparkSession, place: Place) -> None:
    checks = (NOT_NULL, VALUES, BETWEEN, expression("flight > 0"), Check("rows", {"min": 1}), Check("schema", {}))
    audit = Audit(checks, dataid="1", schema=SCHEMA, place=place)
    written = write_chunk(audit.watch(frame(spark, ROWS[:2])), place, ())
    found: list[tuple[Finding, ...]] = []
    assert jobs_of(spark, lambda: found.append(audit.findings(spark, place, rows=written.rows))) == 0
    assert results(found[0]) == ["passed"] * 6


def test_rows_are_counted_in_the_pass_where_files_have_no_footer(spark: SparkSession, tmp_path: Path) -> None:
    place = place_at(tmp_path / "out", "json")
    audit = Audit((Check("rows", {"max": 3}),), dataid="1", schema=SCHEMA, place=place)
    assert write_chunk(audit.watch(frame(spark)), place, ()).rows is None
    found: list[tuple[Finding, ...]] = []
    assert jobs_of(spark, lambda: found.append(audit.findings(spark, place))) == 0
    assert (found[0][0].ok, found[0][0].detail) == (False, "4 rows")


def test_a_check_that_looks_at_no_data_asks_spark_nothing(spark: SparkSession, place: Place) -> None:
    df = frame(spark).drop("delay").withColumnRenamed("flight", "Flight")
    (found,) = audited(spark, df, place, Check("schema", {}))
    assert found.detail == (
        "there is no column 'flight'; it has carrier, Flight; there is no column 'delay'; it has carrier, Flight"
    )
    (found,) = audited(spark, df.selectExpr("carrier", "1L as flight", "1 as delay"), place, Check("schema", {}))
    assert found.detail == "column 'flight' is bigint, not int; column 'delay' is int, not double"


def test_a_csv_has_no_other_columns_and_other_formats_may(spark: SparkSession, tmp_path: Path) -> None:
    df = frame(spark).selectExpr("*", "1 as more")
    assert results(audited(spark, df, place_at(tmp_path / "a"), Check("schema", {}))) == ["passed"]
    (found,) = audited(spark, df, place_at(tmp_path / "b", "csv"), Check("schema", {}))
    assert found.detail == "there is a column 'more' that is not declared"


def test_names_that_need_quotes_are_columns_like_others(spark: SparkSession, place: Place) -> None:
    df = frame(spark).selectExpr("carrier as `a.b`", "flight as `c``d e`")
    checks = (Check("not_null", {"columns": ["a.b"]}), Check("unique", {"columns": ["c`d e", "a.b"]}),
              Check("between", {"columns": {"c`d e": [1, 2]}}))  # fmt: skip
    found = audited(spark, df, place, *checks)
    assert [one.detail for one in found] == [
        "a.b is null in 1 of 4 rows",
        "",
        "c`d e is not between 1 and 2 in 2 of 4 rows: '3'",
    ]


def test_columns_that_cannot_be_compared_are_findings(spark: SparkSession, place: Place) -> None:
    df = frame(spark).selectExpr("map(1, 2) as m", "array(1) as a", "*")
    checks = (
        Check("unique", {"columns": ["m"]}), Check("between", {"columns": {"a": [1, 2]}}),
        Check("pattern", {"columns": {"delay": "x"}}), Check("values", {"columns": {"a": [1]}}),
    )  # fmt: skip
    found = audited(spark, df, place, *checks)
    assert [one.detail for one in found] == [
        "m is map<int,int>, which cannot be compared",
        "a is array<int>, which has no order",
        "delay is double; a pattern needs text, whole numbers, dates or true and false",
        "a is not one of 1 in 4 of 4 rows",
    ]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_the_sessions_zone_does_not_move_the_day(spark: SparkSession, place: Place, zone: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    df = session.sql(
        "select timestamp_micros(1356998400000000 + id * 86399999999) as at, "  # 2013-01-01 in UTC, first and last
        "to_timestamp_ntz('2013-01-01 23:30:00') as written, date '2013-01-01' as day, '2013-01-01 23:30' as text "
        "from range(2)"
    )
    checks = [Check("partition", {"column": column}) for column in df.columns]
    checks.append(Check("between", {"columns": {"at": ["2013-01-01", "2013-01-01T23:59:59.999999Z"]}}))
    assert results(audited(session, df, place, *checks)) == ["passed"] * 5


# Expressions ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("sql", "at_least", "ok", "detail"),
    [
        ("flight > 0", 1.0, True, ""),
        ("delay < 5", 1.0, False, "it is not true in 2 of 4 rows"),
        ("delay < 5", 0.5, True, "it is not true in 2 of 4 rows; at least 0.5 must pass"),
        ("delay < 5", 0.51, False, "it is not true in 2 of 4 rows; at least 0.51 must pass"),
        ("delay is null or delay < 5", 0.75, True, "it is not true in 1 of 4 rows; at least 0.75 must pass"),
        ("try_divide(1, flight - 1) > 0", 0.75, True, "it is not true in 1 of 4 rows; at least 0.75 must pass"),
    ],
)
def test_a_row_passes_where_the_expression_is_true(
    spark: SparkSession, place: Place, sql: str, at_least: float, ok: bool, detail: str
) -> None:
    (found,) = audited(spark, frame(spark), place, expression(sql, at_least))
    assert (found.ok, found.detail) == (ok, detail)


def test_an_expression_of_no_rows_holds(spark: SparkSession, place: Place) -> None:
    assert results(audited(spark, frame(spark, []), place, expression("flight > 99", 0.5))) == ["passed"]


@pytest.mark.parametrize("sql", ["nowhere > 1", "flight >", "carrier + 1", "count(flight) > 1", "flight"])
def test_sql_that_does_not_go_with_the_data_stops_before_the_write(spark: SparkSession, place: Place, sql: str) -> None:
    with pytest.raises(JobFailed, match="check"):
        Audit((expression(sql),), dataid="1", schema=None, place=place).watch(frame(spark))


def test_sql_that_fails_on_a_row_is_blamed_and_other_failures_are_not(spark: SparkSession, place: Place) -> None:
    audit = Audit((NOT_NULL, expression("1 / (flight - 1) > 0")), dataid="1", schema=None, place=place)
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO") as failed:
        write_chunk(audit.watch(frame(spark)), place, ())
    told = audit.blame(failed.value)
    assert told.startswith("check expression 1 / (flight - 1) > 0 could not be evaluated: [DIVIDE_BY_ZERO]")
    assert "try_ functions" in told
    other = Audit((expression("flight > 0"),), dataid="1", schema=None, place=place)
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO") as failed:
        write_chunk(other.watch(frame(spark).selectExpr("1 / (flight - 1) as x", "flight")), place, ())
    assert other.blame(failed.value) == ""


# Quarantine -----------------------------------------------------------------------------------------------------------
def test_rows_that_break_a_check_are_left_out_and_kept_beside_with_the_reason(
    spark: SparkSession, place: Place
) -> None:
    checks = (
        NOT_NULL._replace(on_fail=QUARANTINE), VALUES._replace(on_fail=QUARANTINE), BETWEEN,
        Check("rows", {"min": 2, "max": 2}),
    )  # fmt: skip
    found = audited(spark, frame(spark), place, *checks)
    folder = f"{place.location}/_quarantine"
    assert [(one.result, one.detail) for one in found] == [
        ("quarantined", f"carrier is null in 1 of 4 rows; they were left out, and are in {folder}"),
        ("quarantined", f"carrier is not one of AA, UA in 1 of 4 rows: 'XX'; they were left out, and are in {folder}"),
        ("passed", ""),  # the row that breaks it is not in the chunk
        ("passed", "2 rows"),
    ]
    assert passed(found)
    assert kept(spark, place) == [("AA", 1, 2.5), ("UA", 2, None)]
    out = spark.read.parquet(folder).orderBy("flight", "delay")
    assert [tuple(row) for row in out.collect()] == [
        (None, 3, -4.0, "not_null carrier: carrier is null"),
        ("XX", 3, 9.0, "values carrier: carrier is not one of AA, UA"),
    ]


def test_where_nothing_breaks_nothing_is_quarantined(spark: SparkSession, place: Place) -> None:
    check = NOT_NULL._replace(on_fail=QUARANTINE)
    audit = Audit((check,), dataid="1", schema=None, place=place)
    written = write_chunk(audit.watch(frame(spark, ROWS[:2])), place, ())
    assert jobs_of(spark, lambda: audit.findings(spark, place, rows=written.rows)) == 0
    assert not Path(quarantine_folder(place)).exists()


def test_a_chunk_may_lose_all_its_rows_and_rows_says_whether_that_is_right(spark: SparkSession, place: Place) -> None:
    check = expression("flight > 99", on_fail=QUARANTINE)
    found = audited(spark, frame(spark), place, check, Check("rows", {"min": 1}))
    assert results(found) == ["quarantined", "failed"]
    assert found[0].detail.startswith("it is not true in 4 of 4 rows; they were left out")
    assert kept(spark, place) == []


def test_below_its_tolerance_an_expression_fails_instead(spark: SparkSession, place: Place) -> None:
    found = audited(spark, frame(spark), place, expression("delay < 5", 0.75, QUARANTINE))
    assert (found[0].result, found[0].detail) == ("failed", "it is not true in 2 of 4 rows; at least 0.75 must pass")
    found = audited(spark, frame(spark), place, expression("delay < 5", 0.5, QUARANTINE))
    assert results(found) == ["quarantined"]


def test_a_column_that_is_missing_fails_and_takes_nothing_out(spark: SparkSession, place: Place) -> None:
    check = Check("not_null", {"columns": ["nowhere"]}, QUARANTINE)
    assert results(audited(spark, frame(spark), place, check)) == ["failed"]
    assert len(kept(spark, place)) == 4


def test_rows_that_are_other_ones_the_second_time_fail_the_check(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    counter = tmp_path / "runs"
    counter.write_text("")

    def changing(rows: Iterator[Any]) -> Iterator[Any]:
        with counter.open("a") as file:
            file.write("x")
        for batch in rows:
            batch["carrier"] = None if len(counter.read_text()) < 2 else "AA"
            yield batch

    df = frame(spark).coalesce(1).mapInPandas(changing, "carrier string, flight int, delay double")
    (found,) = audited(spark, df, place, NOT_NULL._replace(on_fail=QUARANTINE))
    assert found.failed
    assert "transformations must give the same rows each time" in found.detail


def test_a_column_named_as_the_reason_is_refused(spark: SparkSession, place: Place) -> None:
    df = frame(spark).selectExpr("*", "1 as _failed")
    with pytest.raises(JobFailed, match="a column is named _failed"):
        audited(spark, df, place, NOT_NULL._replace(on_fail=QUARANTINE))


def test_what_is_taken_out_of_a_single_file_lies_beside_it(tmp_path: Path) -> None:
    assert quarantine_folder(place_at(tmp_path / "x.csv", single_file=True)) == f"{tmp_path}/_quarantine/x.csv"


def test_files_that_are_there_lose_no_rows(spark: SparkSession, place: Place) -> None:
    write_chunk(frame(spark), place, ())
    (found,) = audit_files(spark, place, [NOT_NULL._replace(on_fail=QUARANTINE)], dataid="1")
    assert (found.result, found.detail) == (
        "failed",
        "carrier is null in 1 of 4 rows; only pipelines on Spark can take rows out",
    )


# What Spark does not tell ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("format_", ["parquet", "csv", "json", "orc"])
@pytest.mark.parametrize("condition", ["false", "flight > 99"])
def test_an_empty_chunk_passes_whether_spark_knows_that_it_is_empty_or_not(
    spark: SparkSession, tmp_path: Path, format_: str, condition: str
) -> None:
    place = place_at(tmp_path / "out", format_)
    checks = (
        NOT_NULL, VALUES, UNIQUE, expression("flight < 0"), Check("rows", {"max": 0}),
        BETWEEN._replace(on_fail=QUARANTINE),
    )  # fmt: skip
    assert results(audited(spark, frame(spark).where(condition), place, *checks)) == ["passed"] * 6


@pytest.mark.parametrize("format_", ["parquet", "csv"])
@pytest.mark.parametrize("on_fail", [FAIL, QUARANTINE])
def test_numbers_that_never_come_are_counted_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str, on_fail: str
) -> None:
    never = threading.Event()

    class Silent:
        """An observation as it is after some failures: asked for its numbers, it waits for ever."""

        @property
        def get(self) -> dict[str, Any]:
            never.wait()
            return {}

    place = place_at(tmp_path / "out", format_)
    checks = (NOT_NULL._replace(on_fail=on_fail), BETWEEN, Check("rows", {"min": 1}))
    audit = Audit(checks, dataid="1", schema=SCHEMA, place=place)
    written = write_chunk(audit.watch(frame(spark)), place, ())
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.1)
    monkeypatch.setattr(audit, "_observation", Silent())
    found = audit.findings(spark, place, rows=written.rows)
    never.set()
    assert [one.detail.split(";")[0] for one in found] == [
        "carrier is null in 1 of 4 rows",
        f"delay is not between -10 and 5 in 1 of {3 if on_fail == QUARANTINE else 4} rows: '9.0'",
        f"{3 if on_fail == QUARANTINE else 4} rows",
    ]


def test_numbers_of_another_write_are_not_believed(spark: SparkSession, place: Place) -> None:
    audit = Audit((NOT_NULL, Check("rows", {"min": 1})), dataid="1", schema=SCHEMA, place=place)
    written = write_chunk(audit.watch(frame(spark)).limit(2), place, ())  # a limit above leaves the numbers partial
    found = audit.findings(spark, place, rows=written.rows)
    assert [one.detail for one in found] == ["", "2 rows"]


def test_many_branches_of_one_job_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    branches = 20 if EVERY_FAULT else 6  # `make faults`: all of them
    audits = [Audit((NOT_NULL, Check("rows", {"min": 1})), dataid=str(n), schema=SCHEMA) for n in range(branches)]
    union = None
    for number, audit in enumerate(audits):
        rows = [(None if at < number else "AA", at, 0.0) for at in range(20)]
        watched = audit.watch(frame(spark, rows)).withColumn("chunk", F.lit(number))
        union = watched if union is None else union.unionAll(watched)
    assert union is not None
    union.write.partitionBy("chunk").parquet(str(tmp_path / "all"))
    for number, audit in enumerate(audits):
        one, counted = audit.findings(spark, place_at(tmp_path / "all" / f"chunk={number}"), rows=20)
        assert one.detail == (f"carrier is null in {number} of 20 rows" if number else "")
        assert counted.detail == "20 rows"


def test_audits_in_several_threads_do_not_mix(spark: SparkSession, tmp_path: Path) -> None:
    def work(number: int) -> tuple[Finding, ...]:
        rows = [(None if at < number else "AA", at, 0.0) for at in range(10)]
        return audited(spark, frame(spark, rows), place_at(tmp_path / str(number)), NOT_NULL, UNIQUE)

    many = 8 if EVERY_FAULT else 4  # `make faults`: two for each thread
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(many)))
    assert [one[0].detail for one in found] == ["", *(f"carrier is null in {n} of 10 rows" for n in range(1, many))]


# Footers --------------------------------------------------------------------------------------------------------------
def test_what_footers_answer_is_not_counted_in_the_pass(spark: SparkSession, place: Place) -> None:
    by_footers = (
        Check("not_null", {"columns": ["flight"]}), Check("between", {"columns": {"flight": [1, 3], "delay": [-4, 9]}}),
        Check("rows", {"min": 4}), Check("partition", {"column": "day"}),
    )  # fmt: skip
    df = frame(spark).selectExpr("*", "date '2013-01-01' as day")
    audit = Audit(by_footers, dataid="2013-01-01", schema=None, place=place)
    assert audit.watch(df) is df
    written = write_chunk(df, place, ())
    found: list[tuple[Finding, ...]] = []
    assert jobs_of(spark, lambda: found.append(audit.findings(spark, place, rows=written.rows))) == 0
    assert results(found[0]) == ["passed"] * 4
    wrong = Audit((by_footers[1],), dataid="2013-01-02", schema=None, place=place)
    wrong.checks[0].options["columns"]["delay"] = [-4, 8.5]
    wrong.watch(df)
    (found_wrong,) = wrong.findings(spark, place, rows=4)
    assert found_wrong.detail == "delay is not between -4 and 8.5 in 1 of 4 rows: '9.0'"


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_nan_is_found_wherever_it_stands(spark: SparkSession, place: Place, position: int) -> None:
    delays = [1.0, 2.0]
    delays.insert(position, float("nan"))
    df = frame(spark, [("AA", at, delay) for at, delay in enumerate(delays)]).coalesce(1)
    (found,) = audited(spark, df, place, BETWEEN)
    assert found.detail == "delay is not between -10 and 5 in 1 of 3 rows: 'NaN'"


@pytest.mark.parametrize("type_", ["timestamp", "timestamp_ntz", "date", "int", "float"])
def test_files_without_statistics_are_read(spark: SparkSession, place: Place, type_: str) -> None:
    Path(place.location).mkdir()
    values = "0" if type_ in ("int", "float") else "'2013-01-01'"
    df = frame(spark).selectExpr(f"if(flight = 1, null, cast({values} as {type_})) as x").coalesce(1)
    bounds = [0, 1] if type_ in ("int", "float") else ["2013-01-01", "2013-01-02"]
    checks = (Check("not_null", {"columns": ["x"]}), Check("between", {"columns": {"x": bounds}}))
    audit = Audit(checks, dataid="2013-01-01", schema=None, place=place)
    audit.watch(df)
    for statistics in (True, False):
        table = df.toArrow()
        parquet.write_table(table, Path(place.location, "x.parquet"), write_statistics=statistics)
        found = audit.findings(spark, place, rows=4)
        assert [one.detail for one in found] == ["x is null in 1 of 4 rows", ""]


# Plans ----------------------------------------------------------------------------------------------------------------
def plan(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().executedPlan().toString())


def test_the_observation_is_the_last_step_and_filters_still_reach_the_files(spark: SparkSession, place: Place) -> None:
    write_chunk(frame(spark), place, ())
    df = read_chunk(spark, place).where("flight > 1")
    audit = Audit((NOT_NULL, VALUES), dataid="1", schema=None, place=place)
    lines = plan(audit.watch(df)).splitlines()
    assert "CollectMetrics" in lines[0]
    assert "GreaterThan(flight,1)" in lines[-1]


def test_unique_reads_only_its_columns(spark: SparkSession, place: Place) -> None:
    write_chunk(frame(spark), place, ())
    told = plan(repeated(read_chunk(spark, place), ["flight"]))
    assert "ReadSchema: struct<flight:int>" in told
    assert "IsNotNull(flight)" in told


def test_every_shared_pattern_compiles_in_java(spark: SparkSession) -> None:
    df = spark.createDataFrame([("x",)], "c string")
    checks = [compile_check(Check("pattern", {"columns": {"c": pattern}}), df.schema, "1") for pattern in SHARED]
    found = df.select(*(one.conditions[0].broken.alias(str(at)) for at, one in enumerate(checks))).collect()
    assert len(found[0]) == len(SHARED)
