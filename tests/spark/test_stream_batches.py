"""Batches of a stream as the Spark child makes them: types, items that fail, pandas, tables that have them already."""

import datetime
import json
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from opendataflow.domain.streams import Field
from opendataflow.intake.log import IntakeLog
from opendataflow.spark.pipeline import Task, read_codes
from opendataflow.spark.spec import ChunkSpec, Database, ItemRange, Place
from opendataflow.spark.stream_batch import Statics, read_batch

FIELDS = (Field("id", "bigint", True), Field("email", "string", True))
CLEAN = """\
from pyspark.sql import functions as F


def run(df, stream=None):
    checked = F.when(F.col("email") == "bad", F.raise_error(F.lit("no address"))).otherwise(F.upper("email"))
    return stream.withColumn("email", checked).join(df, "id", "left")
"""
PANDAS = """\
import pandas as pd


def run(df, df2, stream=None):
    if stream["email"] == "bad":
        raise ValueError("no address")
    return pd.DataFrame([{**stream, "name": df2["name"].iloc[0], "before": len(df)}])
"""


class World:
    """A project folder with a log, and specs of runs on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stream = folder / "stream"

    def accept(self, *emails: str) -> None:
        items = [{"id": number, "email": email} for number, email in enumerate(emails)]
        log = IntakeLog(str(self.stream))
        log.append(json.dumps(items).encode(), len(items))
        log.close()

    def code(self, text: str) -> None:
        path = self.folder / "pipelines/leads/clean.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def source(self, name: str, text: str) -> Place:
        path = self.folder / f"{name}.csv"
        path.write_text(text)
        return Place(datasetid=name, location=str(path), format="csv", options={}, schema=None)

    def spec(self, sources: tuple[Place, ...], *, end: int, runid: int = 1, **more: Any) -> ChunkSpec:
        place = Place(datasetid="leads_live", location=str(self.folder / f"out{runid}"), format="parquet", options={},
                      schema=None)  # fmt: skip
        items = ItemRange(folder=str(self.stream), start=0, end=end, fields=FIELDS)
        settings: dict[str, Any] = {"destination": place, "items": items, "inputs_digest": f"digest {runid}", **more}
        return ChunkSpec(
            home=str(self.folder), slug="leads", transformations=("clean",), dataid=f"{0:012d}-{end - 1:012d}",
            runid=runid, spark={}, environment={}, sources=sources, **settings,
        )  # fmt: skip


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def run(spark: SparkSession, spec: ChunkSpec, statics: Statics | None = None) -> dict[str, Any]:
    task = Task(
        spark, read_codes(spec), hear=lambda _spec, **_fields: None, group="tests", statics=statics or Statics()
    )
    ((_, result),) = task.run([spec])
    return result


def written(spec: ChunkSpec) -> list[dict[str, Any]]:
    from pyarrow import parquet

    rows: list[dict[str, Any]] = []
    for file in sorted(Path(spec.destination.location).glob("*.parquet")):
        rows += parquet.read_table(file).to_pylist()
    return rows


def test_items_that_fail_are_found_by_halves_and_the_others_are_written(spark: SparkSession, world: World) -> None:
    world.accept("a", "bad", "c", "d", "e", "bad", "g")
    world.code(CLEAN)
    names = world.source("names", "id,name\n0,Ann\n4,Eve\n")
    spec = world.spec((names,), end=7)
    result = run(spark, spec)
    assert result["error"] is None
    assert [offset for offset, _ in result["aside"]] == [1, 5]
    assert all("no address" in error for _, error in result["aside"])
    rows = sorted(written(spec), key=lambda row: int(row["id"]))
    assert [(row["id"], row["email"], row["name"]) for row in rows] == [
        (0, "A", "Ann"), (2, "C", None), (3, "D", None), (4, "E", "Eve"), (6, "G", None),
    ]  # fmt: skip

    # What fails without any item is the code's fault, and no item is set aside for it.
    world.code(CLEAN.replace("return stream", "return stream.missing"))
    result = run(spark, world.spec((names,), end=7, runid=2))
    assert "missing" in result["error"]
    assert result["aside"] == []


def test_a_batch_sees_no_view_or_setting_of_the_one_before_and_static_sources_are_read_once(
    spark: SparkSession, world: World
) -> None:
    world.accept("a@x", "b@x")
    world.code(
        "def run(df, stream=None):\n    spark = stream.sparkSession\n    assert df.sparkSession is spark\n"
        "    if spark.catalog.tableExists('names') or spark.conf.get('spark.sql.caseSensitive') == 'true':\n"
        "        raise RuntimeError('seen before')\n"
        "    df.createTempView('names')\n    stream.createTempView('items')\n"
        "    spark.conf.set('spark.sql.caseSensitive', 'true')\n"
        "    return spark.sql('SELECT id, email, name FROM items JOIN names USING (id)')\n"
    )
    sources = (world.source("names", "id,name\n0,Ann\n1,Bob\n"),)
    statics = Statics()
    for runid in (1, 2):
        spec = world.spec(sources, end=2, runid=runid, inputs_digest="the same")
        assert run(spark, spec, statics)["error"] is None
        assert [row["name"] for row in written(spec)] == ["Ann", "Bob"]
        (world.folder / "names.csv").write_text("id,name\n0,New\n1,New\n")
    spec = world.spec(sources, end=2, runid=3, inputs_digest="another")
    assert run(spark, spec, statics)["error"] is None
    assert [row["name"] for row in written(spec)] == ["New", "New"]
    statics.forget()


def test_a_function_on_the_worker_finds_nothing_of_the_batch_before(spark: SparkSession, world: World) -> None:
    world.accept("a@x", "b@x")
    world.code(
        "from pyspark.sql import functions as F\n\n\n@F.udf('int')\ndef calls(_id):\n    import string\n\n"
        "    string.calls = getattr(string, 'calls', 0) + 1\n    return string.calls\n\n\n"
        "def run(df, stream=None):\n    return df.coalesce(1).withColumn('calls', calls('id'))\n"
    )
    for runid in (1, 2, 3):
        spec = world.spec((), end=2, runid=runid)
        assert run(spark, spec)["error"] is None
        assert [row["calls"] for row in written(spec)] == [1, 2]


def test_pandas_gets_one_dict_per_call_and_what_it_returns_is_what_is_added(spark: SparkSession, world: World) -> None:
    world.accept("a", "bad", "c")
    world.code(PANDAS)
    earlier = world.source("earlier", "id,email\n90,x\n91,y\n92,z\n")
    names = world.source("names", "name\nAnn\n")
    spec = world.spec((earlier, names), end=3)
    result = run(spark, spec)
    assert result["error"] is None, result
    assert [offset for offset, _ in result["aside"]] == [1]
    assert "clean.py:6: ValueError: no address" in result["aside"][0][1]
    rows = [(row["id"], row["email"], row["name"], row["before"]) for row in written(spec)]
    assert rows == [(0, "a", "Ann", 3), (2, "c", "Ann", 3)], "each item finds the sources as they are"


def test_a_table_that_has_the_batch_already_does_not_get_it_again(spark: SparkSession, world: World) -> None:
    """A run published it in the table and died before the store knew; by now the code is another."""
    world.accept("a", "bad", "c")
    world.code(CLEAN)
    names = world.source("names", "id,name\n0,Ann\n")
    file = world.folder / "leads.db"
    with sqlite3.connect(file) as target:
        target.execute("CREATE TABLE leads (id bigint, email text, name text)")
    database = Database(url=f"sqlite:///{file}", options={}, table="leads", write="append")
    place = Place(datasetid="leads_live", location=f"sqlite:///{file}", format="sql", options={}, schema=None,
                  database=database)  # fmt: skip
    first = run(spark, world.spec((names,), end=3, runid=1, destination=place))
    world.code(CLEAN.replace("upper", "lower"))
    again = run(spark, world.spec((names,), end=3, runid=2, destination=place))
    assert (first["error"], again["error"]) == (None, None)
    assert first["aside"] == again["aside"]
    assert [offset for offset, _ in again["aside"]] == [1]
    with sqlite3.connect(file) as target:
        assert sorted(target.execute("SELECT id, email, name FROM leads")) == [(0, "A", "Ann"), (2, "C", None)]


def test_items_have_the_declared_types(spark: SparkSession, world: World) -> None:
    fields = tuple(
        Field(name, type_, False)
        for name, type_ in (
            ("n", "int"), ("big", "bigint"), ("price", "decimal(10,2)"), ("day", "date"), ("at", "timestamp"),
            ("tags", "array<string>"), ("place", "struct<street:string,number:int>"), ("ok", "boolean"),
            ("x", "double"),
        )
    )  # fmt: skip
    item = {
        "n": 1, "big": 2**60, "price": "12.30", "day": "2026-11-16", "at": "2026-11-16T13:05:00.123Z",
        "tags": ["a", "b"], "place": {"street": "Main", "number": 7}, "ok": True, "x": 1,
    }  # fmt: skip
    log = IntakeLog(str(world.stream))
    log.append(json.dumps([item, {}]).encode(), 2)
    log.close()
    batch = read_batch(ItemRange(folder=str(world.stream), start=0, end=2, fields=fields))
    df = batch.frame(spark)
    assert [field.dataType.simpleString() for field in df.schema] == [field.type for field in fields]
    first, second = df.collect()
    assert first["price"] == Decimal("12.30")
    assert first["day"] == datetime.date(2026, 11, 16)
    assert first["place"]["number"] == 7
    assert list(first["tags"]) == ["a", "b"]
    assert set(second.asDict().values()) == {None}
