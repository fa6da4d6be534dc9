"""BigQuery as a destination, as far as it goes without the service: a stand-in below the driver does its statements.

Rows go through real Spark to real Parquet files; the configuration takes buckets only, so the folder is given below it.
"""

import datetime
import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from adbc_driver_manager import dbapi
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType, _parse_datatype_string

from opendataflow.domain.checks.check import Check, Finding, passed
from opendataflow.domain.tables import target_database
from opendataflow.errors import ConfigurationError, JobFailed
from opendataflow.project.registration.load import load_registration
from opendataflow.spark import adbc, sql_publish
from opendataflow.spark.adbc import explain, is_lost, resolve
from opendataflow.spark.bigquery_files import StagedFiles
from opendataflow.spark.bigquery_target import Script
from opendataflow.spark.bigquery_types import bigquery_type, fitted_bigquery, is_clustered
from opendataflow.spark.pipeline import Task, read_codes
from opendataflow.spark.spec import ChunkSpec, Database, Place, chunk_spec
from opendataflow.spark.sql_columns import unwritable
from opendataflow.spark.sql_publish import Destination
from opendataflow.spark.sql_target import STAGING
from opendataflow.spark.types import data_type
from support.bigquery import BigQuery, failure
from support.object_store import BUCKET, object_store

URL = "bigquery://my-project/sales?location=EU"
MOMENT = datetime.datetime(2025, 1, 31, 23, 59, 59, 123456)  # noqa: DTZ001  as a time without zone has it
ROWS = {"id": (pa.int32(), [1, 2, 3]), "item": (pa.string(), ["nut", "bolt", None])}
TYPES: dict[str, tuple[pa.DataType, list[Any], str, list[Any]]] = {
    "tiny": (pa.int8(), [-128], "INT64", [-128]),
    "number": (pa.int32(), [2**31 - 1], "INT64", [2**31 - 1]),
    "big": (pa.int64(), [-(2**63)], "INT64", [-(2**63)]),
    "single": (pa.float32(), [1.5], "FLOAT64", [1.5]),
    "double": (pa.float64(), [math.pi], "FLOAT64", [math.pi]),
    "money": (pa.decimal128(12, 2), [Decimal("-1.10")], "NUMERIC(12, 2)", ["-1.10"]),
    "exact": (pa.decimal128(38, 10), [Decimal("0.1000000001")], "BIGNUMERIC(38, 10)", ["0.1000000001"]),
    "flag": (pa.bool_(), [True], "BOOL", [1]),
    "day": (pa.date32(), [datetime.date(2025, 2, 28)], "DATE", ["2025-02-28"]),
    "at": (
        pa.timestamp("us", tz="UTC"), [MOMENT.replace(tzinfo=datetime.UTC)], "TIMESTAMP",
        ["2025-01-31 23:59:59.123456+00:00"],
    ),
    "local": (pa.timestamp("us"), [MOMENT], "DATETIME", ["2025-01-31 23:59:59.123456"]),
    "Text 'quoted'": (pa.string(), ['żółw "x" \\ \n\t'], "STRING", ['żółw "x" \\ \n\t']),
    "bytes": (pa.binary(), [b"\x00\xff"], "BYTES", [b"\x00\xff"]),
    "numbers": (pa.list_(pa.int32()), [[1, 3]], "ARRAY<INT64>", ["[1, 3]"]),
    "pairs": (
        pa.list_(pa.struct([("k", pa.string()), ("v", pa.list_(pa.float64()))])), [[{"k": "a", "v": [0.5]}]],
        "ARRAY<STRUCT<`k` STRING, `v` ARRAY<FLOAT64>>>", ['[{"k": "a", "v": [0.5]}]'],
    ),
}  # fmt: skip


class World:
    """A dataset of BigQuery's, a folder of sources, a folder that files are loaded from, and runs."""

    def __init__(self, spark: SparkSession, folder: Path, service: BigQuery) -> None:
        self.spark, self.folder, self.service = spark, folder, service
        self.bucket = folder / "bucket"
        self.told: list[str] = []

    def source(self, columns: dict[str, Any]) -> Place:
        location = self.folder / f"source_{len(list(self.folder.glob('source_*')))}"
        location.mkdir(parents=True)
        made = {name: pa.array(of[1], of[0]) for name, of in columns.items()}
        pq.write_table(pa.table(made), location / "part-0.parquet")
        return Place(datasetid="orders", location=str(location), format="parquet", options={}, schema=None)

    def spec(
        self, columns: dict[str, Any], *, run: int, dataid: str = "1", table: str = "totals", write: str = "replace",
        column: str | None = None, published: int | None = None, inputs: str = "same", checks: Sequence[Check] = (),
        codes: Sequence[str] = (),
    ) -> ChunkSpec:  # fmt: skip
        database = Database(
            url=URL, options={"query.max_bytes_billed": "1000000"}, table=table, write=write, partition_column=column,
            dataids=(dataid,), staging=str(self.bucket),
        )  # fmt: skip
        place = Place(datasetid="totals", location=URL, format="sql", options={}, schema=None, database=database)
        return ChunkSpec(
            home=str(self.folder), slug="add_up", transformations=tuple(codes), dataid=dataid, runid=run, spark={},
            environment={}, sources=(self.source(columns),), destination=place, checks=tuple(checks),
            published_run=published, inputs_digest=inputs,
        )  # fmt: skip

    def run(self, columns: dict[str, Any], **more: Any) -> dict[str, Any]:
        spec = self.spec(columns, **more)
        task = Task(self.spark, read_codes(spec), hear=lambda _spec, **said: self.told.append(str(said)))
        ((_, result),) = task.run([spec])
        if passed([Finding(*one) for one in result["findings"]]):  # the others' rows stay for people to look at
            assert self.left() == [], "nothing stays staged, however it ends"
        return result

    def done(self, columns: dict[str, Any], **more: Any) -> int:
        result = self.run(columns, **more)
        assert result["error"] is None, result["error"]
        rows: int = result["rows"]
        return rows

    def refused(self, columns: dict[str, Any], **more: Any) -> str:
        result = self.run(columns, **more)
        assert result["error"] is not None
        return str(result["error"])

    def left(self) -> list[str]:
        tables = [name for name in self.service.types if name.startswith(STAGING)]
        return tables + [str(path) for path in self.bucket.glob("*")]

    def staged(self, columns: dict[str, Any], **more: Any) -> Destination:
        spec = self.spec(columns, **more)
        destination = Destination(spec, ()).__enter__()
        destination.stage(destination.fit(self.spark.read.parquet(spec.sources[0].location)))
        return destination

    def ledger(self, dataid: str = "1") -> tuple[Any, ...]:
        (row,) = self.service.sql(f"SELECT run, token, rows FROM dataflow_ledger WHERE dataid = '{dataid}'")
        return row

    def ids(self) -> list[int]:
        return [row[0] for row in self.service.sql("SELECT id FROM totals ORDER BY id")]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> BigQuery:
    """In place of connections; the driver itself is loaded, and sees the options."""
    running = BigQuery()

    def connect(handle: Any) -> Any:
        handle.close()
        return running.connect()

    monkeypatch.setattr(adbc, "_own_connection", connect)
    monkeypatch.setattr(sql_publish, "_PAUSE_SECONDS", 0.01)
    return running


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, service: BigQuery) -> World:
    return World(spark, tmp_path, service)


# A chunk's way --------------------------------------------------------------------------------------------------------
def test_every_type_is_loaded_and_published_by_one_script(world: World) -> None:
    assert world.done(TYPES, run=7, dataid="it's \\ 1", table="sales.totals") == 1
    service = world.service
    assert service.types["totals"] == {**{name: of[2] for name, of in TYPES.items()}, "dataflow_dataid": "STRING"}
    assert service.clustered == {"totals": "dataflow_dataid"}
    (row,) = service.sql("SELECT * FROM totals")
    assert list(row) == [*(of[3][0] for of in TYPES.values()), "it's \\ 1"]
    (staging,) = service.expires
    assert staging.startswith("dataflow_staging_totals_7_")
    kinds = [" ".join(one.split()[:4]) for one in service.asked if not one.startswith("SELECT")]
    assert kinds == [
        f"LOAD DATA OVERWRITE `sales`.`{staging}`",
        "CREATE TABLE IF NOT",
        "CREATE TABLE IF NOT",
        "BEGIN TRANSACTION; UPDATE `sales`.`dataflow_ledger`",
        "DROP TABLE IF EXISTS",
    ]
    (script,) = service.scripts
    names = ", ".join(f"`{name}`" for name in TYPES)
    key = "tablename = 'totals' AND dataset = 'totals' AND dataid = 'it\\'s \\\\ 1'"
    lines = script.split(";\n")
    assert lines[:7] == [
        "BEGIN TRANSACTION",
        "UPDATE `sales`.`dataflow_ledger` SET published_at = CURRENT_TIMESTAMP() "
        "WHERE tablename = '' AND dataset = '' AND dataid = ''",
        "SELECT IF(@@row_count = 1, TRUE, ERROR('dataflow check 0'))",
        f"SELECT IF(NOT EXISTS (SELECT 1 FROM `sales`.`dataflow_ledger` WHERE {key}), TRUE, ERROR('dataflow check 1'))",
        "DELETE FROM `sales`.`totals` WHERE `dataflow_dataid` = 'it\\'s \\\\ 1'",
        f"INSERT INTO `sales`.`totals` ({names}, `dataflow_dataid`) SELECT {names}, 'it\\'s \\\\ 1' "
        f"FROM `sales`.`{staging}` WHERE 1 = 1",
        "SELECT IF(@@row_count = 1, TRUE, ERROR('dataflow check 2'))",
    ]
    assert lines[7].startswith("MERGE `sales`.`dataflow_ledger` AS l\n")
    assert "WHEN MATCHED AND l.token < 7 THEN UPDATE SET\n  run = 7, token = 7, `rows` = 1" in lines[7]
    assert lines[8:] == [
        "SELECT IF(@@row_count = 1, TRUE, ERROR('dataflow check 3'))",
        "COMMIT TRANSACTION",
        "SELECT TRUE AS committed",
    ]
    assert all(one["adbc.bigquery.sql.query.default_dataset_id"] == "sales" for one in service.options)
    assert all(one["adbc.bigquery.sql.query.max_bytes_billed"] == 1_000_000 for one in service.options)
    catalogue = [one for one in service.asked if "INFORMATION_SCHEMA" in one]
    assert all("FROM `my-project`.`sales`.INFORMATION_SCHEMA.COLUMNS" in one for one in catalogue)


def test_each_way_of_writing_leaves_what_it_says(world: World) -> None:
    fewer = {"id": (pa.int32(), [7]), "item": (pa.string(), ["cog"])}
    assert world.done(ROWS, run=1, dataid="1") == 3
    assert world.done(ROWS, run=2, dataid="2") == 3
    assert world.done(fewer, run=3, dataid="1", published=1) == 1
    assert world.service.sql("SELECT dataflow_dataid, id FROM totals ORDER BY 1, 2") == [
        ("1", 7), ("2", 1), ("2", 2), ("2", 3),
    ]  # fmt: skip
    assert world.done({"id": (pa.int32(), []), "item": (pa.string(), [])}, run=4, dataid="2", published=2) == 0
    assert (world.ids(), world.ledger("1"), world.ledger("2")) == ([7], (3, 3, 1), (4, 4, 0))
    # A run died before the store heard of it: its rows are the next one's, and nothing is computed or loaded.
    loads = sum(one.startswith("LOAD") for one in world.service.asked)
    assert world.done(ROWS, run=5, dataid="2", published=2) == 0
    assert world.ledger("2") == (4, 5, 0)
    assert sum(one.startswith("LOAD") for one in world.service.asked) == loads
    # Nothing is appended twice, and all of a table is replaced.
    assert world.done(ROWS, run=6, table="log", write="append") == 3
    told = world.refused(ROWS, run=7, table="log", write="append", published=6)
    assert told.startswith("totals/1: run 6 has appended its 3 rows to log, which does not tell them from others;")
    for run, dataid in ((8, "1"), (9, "2")):
        assert world.done(ROWS, run=run, dataid=dataid, table="whole", write="replace_table") == 3
    assert world.service.sql("SELECT count(*) FROM whole") == [(3,)]
    assert world.service.clustered == {"totals": "dataflow_dataid"}


def test_a_dataid_is_found_by_its_partition_column_and_checks_are_done_on_the_files(world: World) -> None:
    def day(number: int) -> dict[str, Any]:
        at = [datetime.datetime(2025, 1, number, hour, tzinfo=datetime.UTC) for hour in (0, 23)]
        return {"at": (pa.timestamp("us", tz="UTC"), at), "n": (pa.int32(), [number, number])}

    unique = Check("unique", {"columns": ["at"]})
    for run, number in enumerate((1, 2, 1), 1):
        dataid = f"2025-01-0{number}"
        assert world.done(day(number), run=run, dataid=dataid, column="at", published=run - 1, checks=[unique]) == 2
    assert world.service.sql("SELECT n, count(*) FROM totals GROUP BY n ORDER BY n") == [(1, 2), (2, 2)]
    assert world.service.clustered == {"totals": "at"}
    assert (
        "DELETE FROM `totals` WHERE `at` >= '2025-01-01 00:00:00+00:00' AND `at` < '2025-01-02 00:00:00+00:00'"
        in world.service.scripts[-1]
    )
    told = world.refused(day(2), run=4, dataid="2025-01-01", column="at", published=3)
    assert told.startswith("totals/2025-01-01: column 'at' is '2025-01-02")
    twice = {"at": (pa.timestamp("us", tz="UTC"), [day(1)["at"][1][0]] * 2), "n": (pa.int32(), [5, 6])}
    result = world.run(twice, run=5, dataid="2025-01-01", column="at", published=3, checks=[unique])
    assert [Finding(*one).result for one in result["findings"]] == ["failed"]
    assert world.service.sql("SELECT n, count(*) FROM totals GROUP BY n ORDER BY n") == [(1, 2), (2, 2)]


def test_a_pipeline_on_pandas_writes_there_too(world: World) -> None:
    step = world.folder / "pipelines" / "add_up" / "step.py"
    step.parent.mkdir(parents=True)
    step.write_text("import pandas as pd\n\n\ndef run(df):\n    df['id'] = df['id'] * 10\n    return df\n")
    result = world.run({"id": (pa.int64(), [1, 2])}, run=1, codes=["step"])
    assert (result["error"], result["rows"], result["engine"]) == (None, 2, "pandas")
    assert world.ids() == [10, 20]


# Others at the same time ----------------------------------------------------------------------------------------------
def test_a_transaction_that_bigquery_gives_up_is_done_again(world: World) -> None:
    for said in (
        "Transaction is aborted due to concurrent update against table my-project:sales.dataflow_ledger",
        "Query error: Could not serialize access to table my-project:sales.totals due to concurrent update",
    ):
        world.service.say_once("BEGIN TRANSACTION", said)
    assert world.done(ROWS, run=1) == 3
    assert len(world.service.scripts) == 3
    assert (world.ids(), world.ledger()) == ([1, 2, 3], (1, 1, 3))


def test_giving_up_ends_with_a_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_publish, "CONFLICT_SECONDS", 0.0)
    world.service.say_once("BEGIN TRANSACTION", "Transaction is aborted due to concurrent update against table x")
    told = world.refused(ROWS, run=1)
    assert told.startswith("other runs publish at bigquery://my-project/sales?location=EU at the same time")
    assert world.service.sql("SELECT dataid FROM dataflow_ledger") == [("",)]


def test_whoever_comes_between_is_noticed_and_it_is_decided_again(world: World) -> None:
    """Another run of the same dataid publishes after this one has looked: an earlier one, then a later one."""
    other = world.staged({"id": (pa.int32(), [100])}, run=1, inputs="other")
    world.service.before.append(("BEGIN TRANSACTION", lambda: _publish(other)))
    assert world.done({"id": (pa.int32(), [200])}, run=2, inputs="new") == 1
    assert (world.ids(), world.ledger()) == ([200], (2, 2, 1))
    assert len(world.service.scripts) == 3, "the other's, this one's in vain, and this one's"
    later = world.staged({"id": (pa.int32(), [400])}, run=4, inputs="later")
    world.service.before.append(("BEGIN TRANSACTION", lambda: _publish(later)))
    told = world.refused({"id": (pa.int32(), [300])}, run=3, published=2)
    assert told.startswith("totals/1: run 4 has published it in totals already, so run 3 changes nothing there;")
    assert (world.ids(), world.ledger()) == ([400], (4, 4, 1))


def test_an_append_that_comes_between_is_never_there_twice(world: World) -> None:
    other = world.staged(ROWS, run=1, write="append")
    world.service.before.append(("BEGIN TRANSACTION", lambda: _publish(other)))
    assert world.done(ROWS, run=2, write="append") == 3
    assert (world.ids(), world.ledger()) == ([1, 2, 3], (1, 2, 3)), "the other's rows are taken over"


def _publish(destination: Destination) -> None:
    """As another process does: without this one's lock."""
    from opendataflow.spark import bigquery_target

    mine = dict(bigquery_target._publishing)
    bigquery_target._publishing.clear()
    try:
        destination.publish(())
        destination.__exit__()
    finally:
        bigquery_target._publishing.update(mine)


def test_chunks_of_one_process_publish_one_after_the_other(world: World) -> None:
    destinations = [world.staged(ROWS, run=run, dataid=str(run)) for run in range(1, 4)]
    threads = [threading.Thread(target=destination.publish, args=((),)) for destination in destinations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for destination in destinations:
        destination.__exit__()
    assert len(world.ids()) == 9
    assert len(world.service.scripts) == 3, "none of them in vain"
    assert world.left() == []


def test_tables_that_two_runs_make_at_once_are_one(world: World) -> None:
    """BigQuery may say that the table is there already, though it was told to mind that."""
    said = failure("Already Exists: Table my-project:sales.totals")
    for words in ("EXISTS `dataflow_ledger`", "EXISTS `totals`"):
        world.service.after.append((words, _raise(said)))
    assert world.done(ROWS, run=1) == 3
    assert (world.ids(), world.ledger()) == ([1, 2, 3], (1, 1, 3))


# What is lost ---------------------------------------------------------------------------------------------------------
def test_an_answer_that_is_lost_after_the_commit_is_found_in_the_ledger(world: World) -> None:
    world.service.after.append(("BEGIN TRANSACTION", _raise(failure('Post "https://…": unexpected EOF'))))
    assert world.done(ROWS, run=1) == 3
    assert (world.ids(), len(world.service.scripts)) == ([1, 2, 3], 1)


def _raise(error: Exception) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


def test_rows_that_are_gone_from_the_staging_table_are_staged_again(world: World) -> None:
    def lose() -> None:
        (name,) = [one for one in world.service.types if one.startswith(STAGING)]
        world.service.sql(f'DELETE FROM "{name}" WHERE id = 2')

    world.service.before.append(("BEGIN TRANSACTION", lose))
    assert world.done(ROWS, run=1) == 3
    assert "of 3 rows that were staged in bigquery://my-project/sales?location=EU, others are there now" in "".join(
        world.told
    )
    assert world.ids() == [1, 2, 3]


def test_a_ledger_without_its_guard_is_told(world: World) -> None:
    assert world.done(ROWS, run=1) == 3
    world.service.sql("DELETE FROM dataflow_ledger WHERE tablename = ''")
    told = world.refused(ROWS, run=2, published=1)
    assert "dataflow_ledger beside totals has lost its first row, whose names are empty" in told
    assert world.ledger() == (1, 1, 3)


@pytest.mark.parametrize("words", ["INFORMATION_SCHEMA", "LOAD DATA", "CREATE TABLE", "BEGIN TRANSACTION"])
def test_whatever_is_refused_is_told_in_one_sentence_and_leaves_nothing(world: World, words: str) -> None:
    world.service.say_once(words, "Access Denied: Table my-project:sales.totals: User does not have permission")
    told = world.refused(ROWS, run=1)
    assert told.startswith("this user has no permission for totals at bigquery://my-project/sales?location=EU")
    assert "totals" not in world.service.types or world.ids() == []


def test_an_error_that_shows_the_script_is_not_taken_for_a_check_of_it() -> None:
    script = Script()
    script.check("@@row_count = 1", lambda: JobFailed("the first"))
    script.check("1 = 0", lambda: JobFailed("the second"))
    shown = dbapi.ProgrammingError(f"Syntax error in: {script.text}", status_code=1)
    assert script.meant(shown, "x") is shown
    assert str(script.meant(failure("Query error: dataflow check 1 at [4:1]"), "x")) == "the second"


# Types ----------------------------------------------------------------------------------------------------------------
def _type(text: str) -> DataType:
    return _parse_datatype_string(text)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ("tinyint", "INT64"), ("bigint", "INT64"), ("float", "FLOAT64"), ("decimal(38,9)", "NUMERIC(38, 9)"),
        ("decimal(38,8)", "BIGNUMERIC(38, 8)"), ("decimal(10,10)", "BIGNUMERIC(10, 10)"), ("boolean", "BOOL"),
        ("timestamp", "TIMESTAMP"), ("timestamp_ntz", "DATETIME"), ("binary", "BYTES"), ("string", "STRING"),
        ("array<date>", "ARRAY<DATE>"), ("struct<a:int,`b c`:array<string>>", "STRUCT<`a` INT64, `b c` ARRAY<STRING>>"),
        ("array<array<int>>", None), ("map<string,int>", None), ("array<map<string,int>>", None), ("struct<>", None),
        ("interval day to second", None), ("struct<a:int,b:variant>", None),
    ],
)  # fmt: skip
def test_each_type_has_one_of_bigquery_or_is_refused(spark: SparkSession, found: str, wanted: str | None) -> None:
    assert bigquery_type(data_type(_type(found))) == wanted
    assert is_clustered(wanted) == (wanted is not None and "<" not in wanted and wanted not in ("FLOAT64", "BYTES"))


@pytest.mark.parametrize(
    ("found", "there", "sql"),
    [
        ("int", "INT64", "`c`"), ("int", "NUMERIC", "`c`"), ("int", "NUMERIC(9)", None),
        ("bigint", "NUMERIC(19, 0)", "`c`"), ("bigint", "FLOAT64", None),
        ("double", "FLOAT64", "`c`"), ("double", "NUMERIC", None),
        ("decimal(10,2)", "NUMERIC(12, 2)", "`c`"), ("decimal(10,2)", "NUMERIC(10, 1)", None),
        ("decimal(30,0)", "NUMERIC", None), ("decimal(38,9)", "BIGNUMERIC", "`c`"), ("string", "STRING(3)", "`c`"),
        ("string", "BYTES", None), ("string", "JSON", "PARSE_JSON(`c`)"), ("string", "TIME", "CAST(`c` AS TIME)"),
        ("string", "GEOGRAPHY", None), ("timestamp", "DATETIME", "DATETIME(`c`, 'UTC')"),
        ("timestamp_ntz", "TIMESTAMP", "TIMESTAMP(`c`, 'UTC')"), ("date", "DATETIME", None),
        ("array<int>", "ARRAY<INT64>", "`c`"), ("array<int>", "INT64", None), ("int", "ARRAY<INT64>", None),
        ("array<timestamp>", "ARRAY<DATETIME>", None),
        ("struct<a:int,b:array<struct<c:string>>>", "STRUCT<A INT64, `b` ARRAY<STRUCT<c STRING(3)>>>", "`c`"),
        ("struct<a:int,b:int>", "STRUCT<b INT64, a INT64>", None), ("struct<a:int>", "STRUCT<a INT64, b INT64>", None),
        ("struct<a:decimal(5,2),b:string>", "STRUCT<a NUMERIC(5, 2), b STRING>", "`c`"),
        ("struct<a:int>", "JSON", None), ("map<string,int>", "JSON", None),
    ],
)  # fmt: skip
def test_a_column_that_is_there_takes_what_it_can_hold(
    spark: SparkSession, found: str, there: str, sql: str | None
) -> None:
    assert fitted_bigquery(data_type(_type(found)), there, "`c`") == sql


def test_columns_that_bigquery_does_not_have_are_named(spark: SparkSession) -> None:
    schema = _type("`a.b` int, ok struct<`x;y`:int>, _partitionX int, m map<string,int>, `ö 1` int")
    assert isinstance(schema, StructType)
    assert unwritable(schema, "bigquery") == [
        "'a.b' is no name that BigQuery has for a column; rename it",
        "'x;y' is no name that BigQuery has for a column; rename it",
        "'_partitionX' is no name that BigQuery has for a column; rename it",
        "column 'm' is map<string,int>, which BigQuery cannot hold; make it text with `to_json`",
    ]


def test_a_table_that_does_not_fit_is_told_before_anything_is_loaded(world: World) -> None:
    world.service.types["totals"] = {"id": "STRING", "gone": "INT64", "dataflow_dataid": "STRING"}
    told = world.refused(ROWS, run=1)
    assert told.startswith(
        "totals: column 'id' is STRING in the table, but is int now; column 'item' (string) is new, the table has "
        "none; column 'gone' (INT64) of the table is missing (table totals at bigquery://my-project/sales"
    )
    assert not any(one.startswith("LOAD") for one in world.service.asked)


# Words ----------------------------------------------------------------------------------------------------------------
ACCESS = resolve(Database(url=URL, options={}, table="sales.totals"))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("googleapi: Error 404: Not found: Dataset my-project:sales was not found in location US, notFound",
         "there is no dataset my-project:sales at bigquery://my-project/sales?location=EU in location US; "),
        ("Not found: Table my-project:sales.totals was not found in location EU",
         "there is no table my-project:sales.totals at bigquery://my-project/sales?location=EU; check `table:`"),
        ("googleapi: Error 403: Access Denied: Table my-project:sales.totals: User does not have permission",
         "this user has no permission for sales.totals at"),
        ("Access Denied: Project my-project: User does not have bigquery.jobs.create permission in project my-project",
         "this account may not run statements in bigquery://my-project/sales?location=EU; grant"),
        ("Access Denied: File gs://lake/x/part-0.parquet: Access Denied",
         "BigQuery may not read gs://lake/x/part-0.parquet for this account"),
        ("Arrow reader requires roles/bigquery.readSessionUser, see …", "this account may not read results of"),
        ("Cannot read and write in different locations: source: US, destination: EU",
         "bigquery://my-project/sales?location=EU is in EU, and what it is to read in US; let `staging:` be"),
        ("Query exceeded limit for bytes billed: 1000000. 20971520 or higher required., bytesBilledLimitExceeded",
         "would be billed 20971520 bytes, and `query.max_bytes_billed` allows 1000000; raise it in `driver_options:`"),
        ("Quota exceeded: Your table exceeded quota for imports or query appends per table", "has used up a quota ("),
        ("Billing has not been enabled for this project. DML queries are not allowed in the free tier.",
         "has no billing account"),
        ("Not found: URI gs://lake/x/*.parquet",
         "BigQuery finds no files gs://lake/x/*.parquet to load; check `staging:`"),
        ("Array cannot have a null element; error in writing field tags", "column tags has null inside of an array"),
        ("UPDATE or DELETE statement over table sales.totals would affect rows in the streaming buffer, which is not …",
         "cannot be replaced for up to 90 minutes"),
        ("google: could not find default credentials", "BigQuery gets no credentials that it takes for"),
    ],
)  # fmt: skip
def test_what_bigquery_says_is_told_with_the_next_step(said: str, told: str) -> None:
    sentence = explain(failure(said), ACCESS)
    assert told in sentence
    assert "\n" not in sentence


def test_what_passes_is_tried_again_and_what_does_not_is_not() -> None:
    for said in ("read tcp 10.0.0.1:443: i/o timeout", "googleapi: Error 503: backendError", "unexpected EOF"):
        assert is_lost(failure(said))
    for said in ("googleapi: Error 404: Not found: Table", "Quota exceeded: imports", "Query error: dataflow check 1"):
        assert not is_lost(failure(said))


# The configuration ----------------------------------------------------------------------------------------------------
PROJECT = """\
name: x
environments: {dev: {root: data}}
datasets:
  a: {path: a, partitions: none}
  b: {url: "bigquery://p/d", table: t, staging: "gs://lake/staging/"}
pipelines:
  - {slug: load, sources: [a], destination: b}
"""


def test_the_folder_of_a_bucket_reaches_the_child(tmp_path: Path) -> None:
    (tmp_path / "project.yml").write_text(PROJECT)
    (dataset,) = [one for one in load_registration(str(tmp_path), "dev").datasets if one.datasetid == "b"]
    told = target_database(dataset, "full", root="/r", replaces_all=False)
    assert told["staging"] == "gs://lake/staging/"
    place = {"datasetid": "b", "location": "bigquery://p/d#t", "format": "sql", "database": told}
    fields = dict.fromkeys(("home", "slug", "dataid", "runid", "spark", "environment"))
    spec = chunk_spec({**fields, "transformations": [], "sources": [], "destination": json.loads(json.dumps(place))})
    assert spec.destination.database is not None
    assert spec.destination.database.staging == "gs://lake/staging/"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (', staging: "gs://lake/staging/"', "", "5: datasets.b: a destination in BigQuery needs `staging: gs://bucket/folder`"),
        ("gs://lake", "s3://lake", "5: datasets.b.staging: is not a folder of a bucket that BigQuery loads from"),
        ("gs://lake/staging/", "gs://lake/*", "5: datasets.b.staging: is not a folder of a bucket that"),
        ("bigquery://p/d", "postgresql://h/d", "has `staging`, which is for BigQuery"),
        ("destination: b", "destination: c", "5: datasets.b.staging: is for a destination, and no pipeline makes"),
        ('url: "bigquery://p/d", table: t', "path: t", "has `staging`, but no `url` of its database"),
    ],
)  # fmt: skip
def test_a_bucket_is_asked_for_where_it_is_needed_and_nowhere_else(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    assert old in PROJECT
    text = PROJECT.replace(old, new)
    (tmp_path / "project.yml").write_text(text.replace("pipelines:", "  c: {path: c}\npipelines:"))
    with pytest.raises(ConfigurationError) as refused:
        load_registration(str(tmp_path), "dev")
    assert told in str(refused.value)


def test_without_a_bucket_nothing_is_begun(tmp_path: Path, service: BigQuery, spark: SparkSession) -> None:
    spec = World(spark, tmp_path, service).spec(ROWS, run=1)
    assert spec.destination.database is not None
    place = replace(spec.destination, database=replace(spec.destination.database, staging=None))
    with pytest.raises(
        ConfigurationError, match="totals: a destination in BigQuery needs `staging: gs://bucket/folder`"
    ):
        Destination(replace(spec, destination=place), ())
    assert service.asked == []


# The bucket -----------------------------------------------------------------------------------------------------------
def test_files_go_to_the_bucket_and_are_gone_afterwards(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """On S3, which can be had here; the code is the same for gs://."""
    with object_store() as store:
        store.empty()
        for name, value in store.env.items():
            monkeypatch.setenv(name, value)
        staged = StagedFiles("totals", f"s3://{BUCKET}/staging/run_1")
        assert staged.pattern == f"s3://{BUCKET}/staging/run_1/*.parquet"
        assert staged.write(spark.range(0, 1000, 1, 2), ()) == 1000
        keys = store.keys("staging")
        assert keys
        assert all(key.startswith("staging/run_1/part-") and key.endswith(".parquet") for key in keys)
        assert staged.read(spark).agg({"id": "sum"}).first()[0] == 499500  # type: ignore[index]
        staged.remove()
        assert store.keys("staging") == []
        store.forget_bucket()
        with pytest.raises(JobFailed, match=r"totals: s3://lake/.* cannot be written: there is no bucket 'lake'"):
            StagedFiles("totals", f"s3://{BUCKET}/staging/run_2").write(spark.range(1), ())
