"""Chunks into tables, in one Spark: every type as it was, each dataid once, clear words for what a table refuses."""

import datetime
import math
import os
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from opendataflow.domain.checks.check import Check, Finding
from opendataflow.errors import ConfigurationError, DataflowError
from opendataflow.spark.adbc import resolve
from opendataflow.spark.pipeline import Task, read_codes
from opendataflow.spark.spec import ChunkSpec, Database, Place
from opendataflow.spark.sql_ledger import Entry, Publication, Step, decide
from opendataflow.spark.sql_publish import Destination
from opendataflow.spark.sql_target import STAGING
from opendataflow.spark.sql_write import write_batches
from support.postgres import Server

RACERS = 4 if "DATAFLOW_EVERY_FAULT" in os.environ else 3  # `make faults`: one more
UTC = datetime.UTC
MOMENT = datetime.datetime(2025, 1, 31, 23, 59, 59, 123456)  # noqa: DTZ001  as a time without zone has it
OLD = datetime.datetime(1066, 10, 14, 9, 0)  # noqa: DTZ001
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [-128, 127]),
    "small": (pa.int16(), [-32768, 32767]),
    "number": (pa.int32(), [-(2**31), 2**31 - 1]),
    "big": (pa.int64(), [-(2**63), 2**63 - 1]),
    "single": (pa.float32(), [1.5, -0.25]),
    "double": (pa.float64(), [math.pi, -math.inf]),
    "money": (pa.decimal128(38, 10), [Decimal("-1234567890123456789012345678.0000000001"), Decimal("0.1000000000")]),
    "flag": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [datetime.date(2025, 2, 28), datetime.date(1, 1, 1)]),
    "at": (pa.timestamp("us", tz="UTC"), [MOMENT.replace(tzinfo=UTC), OLD.replace(tzinfo=UTC)]),
    "local": (pa.timestamp("us"), [MOMENT, OLD]),
    "Text, “quoted”": (pa.string(), ['żółw 🐢 "x" \\ \n\t', ""]),
    "bytes": (pa.binary(), [b"\x00\xff", b""]),
    "numbers": (pa.list_(pa.int32()), [[1, None, 3], []]),
    "words": (pa.list_(pa.string()), [["a", "ż,{}", None], [""]]),
}
ROWS = {"id": (pa.int32(), [1, 2, 3]), "item": (pa.string(), ["nut", "bolt", None])}


class World:
    """A database, a folder of sources, and runs that go from one to the other."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.spark, self.url, self.folder = spark, url, folder
        self.is_postgres = url.startswith("postgresql")

    def source(self, columns: dict[str, tuple[pa.DataType, list[Any]]], *, files: int = 1) -> Place:
        location = self.folder / f"source_{len(list(self.folder.glob('source_*')))}"
        location.mkdir(parents=True)
        table = pa.table({name: pa.array(values, type_) for name, (type_, values) in columns.items()})
        for number in range(files):
            pq.write_table(table, location / f"part-{number}.parquet")
        return Place(datasetid="orders", location=str(location), format="parquet", options={}, schema=None)

    def spec(
        self, source: Place, *, run: int, dataid: str = "1", table: str = "totals", write: str = "replace",
        column: str | None = None, published: int | None = None, schema: dict[str, str] | None = None,
        checks: Sequence[Check] = (), codes: Sequence[str] = (), inputs: str = "same",
    ) -> ChunkSpec:  # fmt: skip
        database = Database(
            url=self.url, options={}, table=table, write=write, partition_column=column, dataids=(dataid,)
        )
        place = Place(datasetid="totals", location=self.url, format="sql", options={}, schema=schema, database=database)
        return ChunkSpec(
            home=str(self.folder), slug="add_up", transformations=tuple(codes), dataid=dataid, runid=run, spark={},
            environment={}, sources=(source,), destination=place, checks=tuple(checks), published_run=published,
            inputs_digest=inputs,
        )  # fmt: skip

    def run(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        spec = self.spec(*args, **kwargs)
        self.told: list[str] = []
        task = Task(self.spark, read_codes(spec), hear=lambda _spec, **said: self.told.append(str(said)))
        ((_, result),) = task.run([spec])
        return result

    def done(self, *args: Any, **kwargs: Any) -> int:
        result = self.run(*args, **kwargs)
        assert result["error"] is None, result["error"]
        rows: int = result["rows"]
        return rows

    def refused(self, *args: Any, **kwargs: Any) -> str:
        """The sentence, and nothing else is left of the run."""
        before = self.staging()
        result = self.run(*args, **kwargs)
        assert result["error"] is not None
        assert self.staging() == before
        return str(result["error"])

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        if self.is_postgres:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute("SET timezone = 'UTC'")
                found = connection.execute(text)
                return found.fetchall() if found.description else []
        with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None)) as lite:
            return lite.execute(text).fetchall()

    def staging(self) -> list[str]:
        names = "relname FROM pg_class WHERE relkind = 'r' AND" if self.is_postgres else "name FROM sqlite_master WHERE"
        column = "relname" if self.is_postgres else "name"
        found = [name for (name,) in self.sql(f"SELECT {names} {column} LIKE '{STAGING}%'")]
        return found + [str(path) for path in self.folder.glob("*.lock")]

    def ledger(self, dataid: str = "1") -> tuple[Any, ...]:
        (row,) = self.sql(f"SELECT run, token, rows FROM dataflow_ledger WHERE dataid = '{dataid}'")
        return row


@pytest.fixture
def pg(spark: SparkSession, postgres_server: Server, tmp_path: Path) -> World:
    return World(spark, postgres_server.new_database(), tmp_path)


@pytest.fixture(params=["postgresql", "sqlite"])
def world(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> World:
    if request.param == "sqlite":
        return World(spark, f"sqlite:///{tmp_path / 'target.db'}", tmp_path)
    return World(spark, request.getfixturevalue("postgres_server").new_database(), tmp_path)


# Values ---------------------------------------------------------------------------------------------------------------
def test_every_type_arrives_in_postgresql_value_by_value(pg: World) -> None:
    source = pg.source({name: (type_, [*values, None]) for name, (type_, values) in TYPES.items()})
    assert pg.done(source, run=1) == 3
    names = ", ".join(f'"{name}"' for name in TYPES)
    found = pg.sql(f"SELECT {names} FROM totals ORDER BY tiny")
    assert [list(row) for row in found[:2]] == [[values[row] for _, values in TYPES.values()] for row in (0, 1)]
    assert set(found[2]) == {None}
    types = dict(pg.sql("SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'totals'"))
    assert types["money"] == "numeric"
    assert types["at"] == "timestamp with time zone"
    assert types["local"] == "timestamp without time zone"
    assert types["words"] == "ARRAY"


def test_every_type_that_sqlite_has_arrives_and_is_read_back_the_same(spark: SparkSession, tmp_path: Path) -> None:
    lite = World(spark, f"sqlite:///{tmp_path / 'target.db'}", tmp_path)
    types = {name: of for name, of in TYPES.items() if not pa.types.is_list(of[0])}
    unique = Check("unique", {"columns": ["money"]})  # it reads back what was staged
    result = lite.run(
        lite.source({name: (of[0], [*of[1], None]) for name, of in types.items()}), run=1, checks=[unique]
    )
    assert (result["error"], result["rows"]) == (None, 3)
    assert [Finding(*one).result for one in result["findings"]] == ["passed"]
    ((money, day, at, flag, data, text),) = lite.sql(
        'SELECT money, day, at, flag, bytes, "Text, “quoted”" FROM totals WHERE tiny = -128'
    )
    assert (money, day, flag) == ("-1234567890123456789012345678.0000000001", "2025-02-28", 1)
    assert (at, data, text) == ("2025-01-31T23:59:59.123456", b"\x00\xff", TYPES["Text, “quoted”"][1][0])


def test_text_goes_into_json_uuid_and_narrow_columns_of_a_table_that_is_there(pg: World) -> None:
    pg.sql("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    pg.sql(
        "CREATE TABLE totals (id bigserial PRIMARY KEY, doc jsonb, key uuid, mood mood, code varchar(3),"
        " n numeric(12,2), at timestamp, made timestamptz DEFAULT now(), keys uuid[], dataflow_dataid text)"
    )
    key = "11111111-2222-3333-4444-555555555555"
    columns = {
        "doc": (pa.string(), ['{"a": 1}']), "key": (pa.string(), [key]), "mood": (pa.string(), ["ok"]),
        "CODE": (pa.string(), ["abc"]), "n": (pa.decimal128(10, 2), [Decimal("1.10")]),
        "at": (pa.timestamp("us", tz="UTC"), [MOMENT.replace(tzinfo=UTC)]), "keys": (pa.list_(pa.string()), [[key]]),
    }  # fmt: skip
    assert pg.done(pg.source(columns), run=1) == 1
    found = pg.sql("SELECT doc->>'a', key::text, mood::text, code, n, at, made IS NOT NULL, keys::text FROM totals")
    assert found == [("1", key, "ok", "abc", Decimal("1.10"), MOMENT, True, f"{{{key}}}")]
    long = pg.refused(pg.source({**columns, "CODE": (pa.string(), ["abcd"])}), run=2, published=1)
    assert "value too long for type character varying(3)" in long
    assert pg.sql("SELECT code FROM totals") == [("abc",)]


def test_what_the_database_does_not_take_is_told_with_its_column(pg: World) -> None:
    told = pg.refused(pg.source({"id": (pa.int32(), [1, 2]), "a b": (pa.string(), ["x", "x\0y"])}), run=1)
    assert told.startswith("column 'a b': ")
    assert "invalid byte sequence" in told
    assert pg.sql("SELECT to_regclass('totals') IS NULL") == [(True,)]


# Modes ----------------------------------------------------------------------------------------------------------------
def test_replace_takes_the_place_of_exactly_the_dataids_rows(world: World) -> None:
    assert world.done(world.source(ROWS, files=3), run=1, dataid="1") == 9
    assert world.done(world.source(ROWS), run=2, dataid="2") == 3
    fewer = {"id": (pa.int32(), [7]), "item": (pa.string(), ["cog"])}
    assert world.done(world.source(fewer), run=3, dataid="1", published=1) == 1
    found = world.sql("SELECT dataflow_dataid, id FROM totals ORDER BY 1, 2")
    assert found == [("1", 7), ("2", 1), ("2", 2), ("2", 3)]
    assert (world.ledger("1"), world.ledger("2")) == ((3, 3, 1), (2, 2, 3))
    empty = {"id": (pa.int32(), []), "item": (pa.string(), [])}
    assert world.done(world.source(empty), run=4, dataid="2", published=2) == 0
    assert world.sql("SELECT dataflow_dataid, id FROM totals") == [("1", 7)]
    assert world.staging() == []


def test_replace_by_a_partition_column_takes_nothing_but_its_own_rows(world: World) -> None:
    def day(number: int) -> Place:
        at = [datetime.datetime(2025, 1, number, hour, tzinfo=UTC) for hour in (0, 23)]
        return world.source({"at": (pa.timestamp("us", tz="UTC"), at), "n": (pa.int32(), [number, number])})

    for run, number in enumerate((1, 2, 1), 1):
        assert world.done(day(number), run=run, dataid=f"2025-01-0{number}", column="at", published=run - 1) == 2
    assert world.sql("SELECT n, count(*) FROM totals GROUP BY n ORDER BY n") == [(1, 2), (2, 2)]
    told = world.refused(day(2), run=4, dataid="2025-01-01", column="at", published=3)
    assert told.startswith("totals/2025-01-01: column 'at' is '2025-01-02")
    assert "in 2 of 2 rows, which are not this dataid's" in told
    missing = world.refused(world.source(ROWS), run=5, dataid="2025-01-01", column="at", published=3)
    assert "`partition_column: at` is none of the columns that are written: id, item" in missing
    assert world.sql("SELECT n, count(*) FROM totals GROUP BY n ORDER BY n") == [(1, 2), (2, 2)]


def test_nothing_is_appended_twice(world: World) -> None:
    assert world.done(world.source(ROWS), run=1, dataid="1", write="append") == 3
    assert world.done(world.source(ROWS), run=2, dataid="2", write="append") == 3
    told = world.refused(world.source(ROWS), run=3, dataid="1", write="append", published=1)
    assert told.startswith("totals/1: run 1 has appended its 3 rows to totals, which does not tell them from others;")
    assert world.sql("SELECT count(*) FROM totals") == [(6,)]
    # A run died after the target's commit: the store does not know run 1. Its rows count as this run's.
    assert world.done(world.source(ROWS), run=4, dataid="1", write="append") == 3
    assert world.sql("SELECT count(*) FROM totals") == [(6,)]
    assert world.ledger("1") == (1, 4, 3)
    assert "run 1 had published it" in "".join(world.told)
    # A table that tells who wrote a row can have it taken out again.
    world.sql("CREATE TABLE told (id int, item text, dataflow_run bigint)")
    rows = world.source(ROWS)
    assert world.done(rows, run=5, dataid="1", write="append", table="told") == 3
    assert world.done(rows, run=6, dataid="1", write="append", table="told", published=5, inputs="new") == 3
    assert world.sql("SELECT DISTINCT dataflow_run FROM told") == [(6,)]
    assert world.sql("SELECT count(*) FROM told") == [(3,)]


def test_replace_table_leaves_nothing_but_the_runs_rows(world: World) -> None:
    for run, dataid in enumerate(("1", "2"), 1):
        assert world.done(world.source(ROWS, files=run), run=run, dataid=dataid, write="replace_table") == 3 * run
    assert world.sql("SELECT count(*) FROM totals") == [(6,)]
    assert world.ledger("2") == (2, 2, 6)


def test_names_are_data_and_no_sql(world: World) -> None:
    table = 'o"dd; DROP TABLE x' if world.is_postgres else "o'dd; DROP TABLE x"
    columns = {'a"b': (pa.int32(), [1]), "c;--'": (pa.string(), ["'); DROP TABLE x; --"])}
    quoted = '"' + table.replace('"', '""') + '"'
    for run in (1, 2):
        assert world.done(world.source(columns), run=run, table=quoted, dataid="d'; --", published=run - 1) == 1
    assert world.sql(f"SELECT * FROM {quoted}") == [(1, "'); DROP TABLE x; --", "d'; --")]


# Tables that do not fit ---------------------------------------------------------------------------------------------
def test_a_table_with_other_columns_is_named_before_anything_is_staged(world: World) -> None:
    assert world.done(world.source(ROWS), run=1) == 3
    other = {"id": (pa.string(), ["x"]), "price": (pa.float64(), [1.0])}
    told = world.refused(world.source(other), run=2, published=1)
    is_a = "integer" if world.is_postgres else "INTEGER"
    assert told.startswith(
        f"totals: column 'id' is {is_a} in the table, but is string now; "
        "column 'price' (double) is new, the table has none; column 'item' ("
    )
    assert "of the table is missing (table totals at " in told
    world.sql("CREATE TABLE plain (id int, item text)")
    told = world.refused(world.source(ROWS), run=3, table="plain")
    assert "does not tell which of its rows are a dataid's" in told
    assert "`partition_column:`" in told


def test_a_declared_schema_makes_the_table_and_is_kept_to(pg: World) -> None:
    declared = {"item": "varchar(10)", "id": "int"}
    assert pg.done(pg.source(ROWS), run=1, schema=declared) == 3
    made = pg.sql(
        "SELECT column_name, data_type, character_maximum_length FROM information_schema.columns"
        " WHERE table_name = 'totals' ORDER BY ordinal_position"
    )
    assert made[:2] == [("item", "character varying", 10), ("id", "integer", None)]
    told = pg.refused(pg.source(ROWS), run=2, published=1, schema={"id": "bigint", "item": "string", "at": "date"})
    assert "column 'id' is declared as bigint, but is int" in told
    assert "column 'at' (date) is declared, but not there" in told


def test_columns_that_no_table_holds_are_named_with_their_type(world: World) -> None:
    columns = {
        "point": (pa.struct([("x", pa.int32())]), [{"x": 1}]),
        "dataflow_run": (pa.int32(), [1]),
    }
    told = world.refused(world.source(columns), run=1)
    assert "column 'dataflow_run' is named as one that pipelines add; rename it" in told
    assert "column 'point' is struct<x:int>, which " in told
    assert "cannot hold; make it text with `to_json`" in told


# Exactly once -------------------------------------------------------------------------------------------------------
def _entry(token: int, digest: str = "d") -> Entry:
    return Entry(run=token, token=token, rows=3, inputs_digest=digest, columns="{}")


@pytest.mark.parametrize(
    ("entry", "published", "write", "can_undo", "step"),
    [
        (None, None, "append", False, Step.WRITE),
        (_entry(5), None, "append", False, Step.ADOPT),  # the store knows of none
        (_entry(5), 4, "replace", False, Step.ADOPT),  # or of one before
        (_entry(5, "other"), 4, "replace", False, Step.WRITE),
        (_entry(5, "other"), 4, "append", True, Step.UNDO),
        (_entry(5), 5, "replace", False, Step.WRITE),  # asked for again
        (_entry(5), 5, "append", True, Step.UNDO),
        (_entry(5), 6, "replace_table", False, Step.WRITE),  # the target is older than the store
        (_entry(9), 5, "append", False, Step.DONE),  # the answer to the commit was lost
    ],
)
def test_the_ledger_decides(entry: Entry | None, published: int | None, write: str, can_undo: bool, step: Step) -> None:
    asked = Publication(dataset="d", table="t", dataid="1", token=9, published_run=published, digest="d", write=write)
    assert decide(entry, asked, can_undo=can_undo) is step


def test_a_run_that_is_too_late_changes_nothing(world: World) -> None:
    assert world.done(world.source(ROWS), run=7, inputs="new") == 3
    other = {"id": (pa.int32(), [0]), "item": (pa.string(), ["old"])}
    told = world.refused(world.source(other), run=5)
    assert told.startswith("totals/1: run 7 has published it in totals already, so run 5 changes nothing there;")
    assert world.sql("SELECT count(*) FROM totals") == [(3,)]
    assert world.ledger() == (7, 7, 3)


def test_of_two_runs_at_once_the_later_one_wins_whoever_is_first(world: World) -> None:
    """Both are staged before either publishes; first the later one is quicker, then the earlier one."""
    for number, order in enumerate([(2, 1), (3, 4)]):
        destinations = {run: _staged(world, run, dataid="1", inputs=f"{number} {run}") for run in order}
        ended: dict[int, str] = {}
        for run in order:
            ended[run] = _end(destinations[run])
        winner = max(order)
        assert ended.pop(winner) == "published"
        assert all(told == ("published" if order[0] < winner else "LeaseLost") for told in ended.values())
        assert world.sql("SELECT DISTINCT id FROM totals") == [(winner,)]
        assert world.ledger() == (winner, winner, 1)


def test_publishers_that_race_for_one_dataid_leave_one_of_them(world: World) -> None:
    for write in ("replace", "append", "replace_table"):
        table = f"of_{write}"
        destinations = [_staged(world, run, write=write, table=table) for run in range(1, RACERS + 1)]
        with ThreadPoolExecutor(len(destinations)) as pool:
            ended = set(pool.map(_end, destinations))
        assert ended <= {"published", "LeaseLost"}
        (last,) = world.sql(f"SELECT run, token, rows FROM dataflow_ledger WHERE tablename = '{table}'")
        assert world.sql(f"SELECT id FROM {table}") == [(last[0],)], (
            "the rows are those of the run that the ledger names"
        )
        assert last[1:] == (RACERS, 1), "runs on the same inputs take over what is there; in the end it is the last's"
        assert world.staging() == []


def _staged(world: World, run: int, **more: Any) -> Destination:
    spec = world.spec(world.source({"id": (pa.int32(), [run])}), run=run, **more)
    destination = Destination(spec, ()).__enter__()
    destination.stage(destination.fit(world.spark.read.parquet(spec.sources[0].location)))
    return destination


def _end(destination: Destination) -> str:
    try:
        destination.publish(())
    except DataflowError as error:
        return type(error).__name__
    else:
        return "published"
    finally:
        destination.__exit__()


def test_rows_of_an_attempt_that_spark_did_not_take_are_not_published(world: World) -> None:
    destination = _staged(world, 1)
    again = pa.record_batch({"id": pa.array([99], pa.int32()), "dataflow_attempt": pa.array([12345], pa.int64())})
    (staging,) = [name for name in world.staging() if not name.endswith(".lock")]
    write_batches(iter([again]), resolve(destination._database), [], staging)
    assert _end(destination) == "published"
    assert world.sql("SELECT id FROM totals") == [(1,)]


def test_staging_tables_of_the_dead_are_removed_and_those_of_the_living_kept(world: World) -> None:
    living, dead = _staged(world, 1, dataid="1"), _staged(world, 2, dataid="2")
    dead._target.close()  # as its end closes it, whatever that is
    (left,) = [name for name in world.staging() if "_2_" in name and not name.endswith(".lock")]
    assert world.done(world.source(ROWS), run=3, dataid="3", table="others") == 3
    now = [name for name in world.staging() if not name.endswith(".lock")]
    assert left not in now
    assert len(now) == 1
    assert _end(living) == "published"
    assert world.staging() == []


def test_the_ledger_gives_a_later_run_the_findings_too(world: World) -> None:
    """The first run died before the store heard of it, the second finds all that is to be told of the chunk."""
    checks = [Check("rows", {"min": 1}), Check("not_null", {"columns": ["item"]}, "warn")]
    first = world.run(world.source(ROWS), run=1, checks=checks)
    again = world.run(world.source({"id": (pa.int32(), [])}), run=2, checks=checks)
    assert again["findings"] == first["findings"]
    assert (again["rows"], again["schema"], again["error"]) == (3, first["schema"], None)
    assert world.ledger() == (1, 2, 3)


# Checks -------------------------------------------------------------------------------------------------------------
def test_what_fails_its_checks_is_not_published(world: World) -> None:
    assert world.done(world.source(ROWS), run=1) == 3
    twice = {"id": (pa.int32(), [1, 1, 2]), "item": (pa.string(), ["a", None, "c"])}
    checks = [
        Check("unique", {"columns": ["id"]}), Check("not_null", {"columns": ["item"]}), Check("rows", {"min": 1}),
        Check("expression", {"sql": "id < 2", "at_least": 1}, "warn"),
    ]  # fmt: skip
    result = world.run(world.source(twice), run=2, published=1, checks=checks)
    found = [Finding(*one) for one in result["findings"]]
    assert [one.result for one in found] == ["failed", "failed", "passed", "warned"]
    assert "id repeats an earlier row in 1 rows: (1)" in found[0].detail
    assert "in 1 of 3 rows" in found[1].detail
    assert (result["error"], result["rows"]) == (None, 3)
    assert world.sql("SELECT id FROM totals ORDER BY id") == [(1,), (2,), (3,)]
    assert world.ledger() == (1, 1, 3)
    # They stay for people to look at, until the next run there.
    (kept,) = world.staging()
    assert world.sql(f"SELECT id, item FROM {kept} ORDER BY id, item IS NULL") == [(1, "a"), (1, None), (2, "c")]
    assert kept in "".join(world.told)
    assert world.done(world.source(ROWS), run=3, published=1, inputs="other") == 3
    assert world.staging() == []
    told = world.refused(world.source(ROWS), run=4, checks=[Check("not_null", {"columns": ["id"]}, "quarantine")])
    assert "`on_fail: quarantine`, which keeps rows in files beside the chunk's, and a table has none" in told


# Engines and settings -------------------------------------------------------------------------------------------------
def test_a_pipeline_on_pandas_writes_to_a_table(world: World) -> None:
    step = world.folder / "pipelines" / "add_up" / "step.py"
    step.parent.mkdir(parents=True)
    step.write_text("import pandas as pd\n\n\ndef run(df):\n    df['id'] = df['id'] * 10\n    return df\n")
    rows = world.source({"id": (pa.int64(), [1, 2]), "item": (pa.string(), ["a", "ż"])})
    checks = [Check("rows", {"min": 2})]
    result = world.run(rows, run=1, codes=["step"], checks=checks)
    assert (result["error"], result["rows"], result["engine"]) == (None, 2, "pandas")
    assert world.sql("SELECT id, item, dataflow_dataid FROM totals ORDER BY id") == [(10, "a", "1"), (20, "ż", "1")]
    assert world.run(rows, run=2, codes=["step"], checks=checks)["findings"] == result["findings"]
    assert world.ledger() == (1, 2, 2)
    few = world.run(rows, run=3, codes=["step"], published=2, checks=[Check("rows", {"min": 3})])
    assert [Finding(*one).result for one in few["findings"]] == ["failed"]
    assert world.ledger() == (1, 2, 2)


def test_passwords_are_used_and_never_told(pg: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("totals_password", "s3cret-Xy")
    spec = pg.spec(pg.source(ROWS), run=1)
    assert spec.destination.database is not None
    address = pg.url.replace("postgres:@", "nobody@")
    database = replace(spec.destination.database, url=address, password_variable="totals_password")
    place = replace(spec.destination, database=database)
    task = Task(pg.spark, (), hear=lambda _spec, **said: pg.told.append(str(said)))
    pg.told = []
    ((_, result),) = task.run([replace(spec, destination=place)])
    assert "nobody" in result["error"]
    assert "s3cret-Xy" not in f"{result} {pg.told}"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"url": "mysql://localhost/x", "driver": "adbc_driver_mysql"}, "pipelines write to PostgreSQL and SQLite"),
        ({"table": None, "query": "SELECT 1"}, "needs `table:`, not a query"),
        ({"write": "merge"}, "`write: merge` is not one of replace, append, replace_table"),
        ({"connections": 1}, "needs two connections at least"),
    ],
)
def test_what_cannot_be_a_destination_is_said_at_once(pg: World, change: dict[str, Any], told: str) -> None:
    spec = pg.spec(pg.source(ROWS), run=1)
    assert spec.destination.database is not None
    place = replace(spec.destination, database=replace(spec.destination.database, **change))
    with pytest.raises(ConfigurationError) as refused, Destination(replace(spec, destination=place), ()):
        pass
    assert told in str(refused.value)
