"""How many files a chunk has: little is one file, and whatever makes many rows of few does so in several tasks."""

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.orc
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from opendataflow.spark import files_write
from opendataflow.spark.files import read_chunk, write_chunk
from opendataflow.spark.files_write import is_light
from opendataflow.spark.jvm import logical_plan
from opendataflow.spark.spec import Place, format_of


def place(location: Path, **fields: Any) -> Place:
    values = {"datasetid": "orders", "format": format_of(str(location)), "options": {}, "schema": None, **fields}
    return Place(location=str(location), **values)


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    """A small chunk of four files, which are read by four tasks."""
    spark.range(0, 8, 1, 4).write.parquet(str(tmp_path / "in"))
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "600")
    spark.conf.set("spark.sql.files.openCostInBytes", "600")
    yield place(tmp_path / "in")
    spark.conf.set("spark.sql.files.maxPartitionBytes", before)
    spark.conf.unset("spark.sql.files.openCostInBytes")


def exploded(df: DataFrame, rows: int = 1000) -> DataFrame:
    return df.select("id", F.explode(F.sequence(F.lit(1), F.lit(rows))).alias("n"))


def written(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name[0] not in "._")


def tasks_of(spark: SparkSession, group: str, action: Callable[[], object]) -> int:
    """How many tasks the widest stage had of the first Spark job that an action starts."""
    context = spark.sparkContext
    context.setJobGroup(group, group)
    try:
        action()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    tracker = context.statusTracker()
    job = tracker.getJobInfo(min(tracker.getJobIdsForGroup(group)))
    assert job is not None
    return max(stage.numTasks for number in job.stageIds if (stage := tracker.getStageInfo(number)))


def test_little_input_whose_rows_do_not_grow_is_written_by_one_task(
    spark: SparkSession, tmp_path: Path, source: Place
) -> None:
    df = read_chunk(spark, source).where("id > 0").withColumn("twice", F.col("id") * 2)
    assert tasks_of(spark, "light", lambda: write_chunk(df, place(tmp_path / "out"), [source])) == 1
    assert len(written(tmp_path / "out")) == 1
    assert read_chunk(spark, place(tmp_path / "out")).count() == 7


@pytest.mark.parametrize("format_", ["parquet", "orc", "csv", "json", "text"])
def test_little_input_that_explodes_is_worked_on_by_several_tasks_and_is_one_file_where_it_stays_little(
    spark: SparkSession, tmp_path: Path, source: Place, format_: str
) -> None:
    df = exploded(read_chunk(spark, source)).withColumn("word", F.format_string('%d, "%d"', "id", "n"))
    df = df.select("word") if format_ == "text" else df
    schema = None if format_ in ("parquet", "orc", "text") else dict(df.dtypes)
    out = place(tmp_path / "out", format=format_, schema=schema)
    assert tasks_of(spark, f"grows {format_}", lambda: write_chunk(df, out, [source])) == 4
    assert len(written(tmp_path / "out")) == 1
    assert sorted(os.listdir(tmp_path / "out")) == sorted(
        ["._SUCCESS.crc", "_SUCCESS", written(tmp_path / "out")[0].name]
    )
    back = read_chunk(spark, out)
    assert back.count() == 8000
    assert back.exceptAll(df.toDF(*back.columns)).count() == 0


def test_much_output_stays_in_the_files_of_its_tasks(
    spark: SparkSession, tmp_path: Path, source: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_write, "SMALL_BYTES", 10_000)
    found = write_chunk(exploded(read_chunk(spark, source), 20_000), place(tmp_path / "out"), [source])
    assert (found.files, found.rows) == (4, 160_000)
    assert len(written(tmp_path / "out")) == 4


def test_files_that_are_joined_keep_the_order_of_a_sort(spark: SparkSession, tmp_path: Path, source: Place) -> None:
    df = exploded(read_chunk(spark, source), 3000).repartition(4).orderBy(F.col("n").desc(), "id")
    for name in ("folder", "one.parquet", "one.csv", "one.orc"):
        out = place(
            tmp_path / "out" / name, format="parquet" if name == "folder" else name[4:], single_file=name != "folder"
        )
        with_files = {"spark.sql.adaptive.coalescePartitions.enabled": "false"}
        for key, value in with_files.items():
            spark.conf.set(key, value)
        try:
            write_chunk(df, out, [source])
        finally:
            for key in with_files:
                spark.conf.unset(key)
        path = out.location if out.single_file else str(written(Path(out.location))[0])
        if name.endswith("csv"):
            rows = [tuple(map(int, line.split(","))) for line in Path(path).read_text().splitlines()[1:]]
        else:
            module = pyarrow.orc if name.endswith("orc") else pyarrow.parquet
            rows = [tuple(row.values()) for row in module.read_table(path).to_pylist()]
        assert rows == sorted(rows, key=lambda row: (-row[1], row[0])), name
        assert len(rows) == 24_000


@pytest.mark.parametrize("name", ["all.csv", "all.csv.gz", "all.json", "all.parquet", "all.orc"])
def test_a_destination_of_one_file_is_worked_on_by_several_tasks(
    spark: SparkSession, tmp_path: Path, source: Place, name: str
) -> None:
    df = exploded(read_chunk(spark, source)).withColumn("word", F.concat(F.lit("a, "), "n"))
    out = place(
        tmp_path / "run" / name, single_file=True, schema=dict(df.dtypes) if "csv" in name or "json" in name else None
    )
    assert tasks_of(spark, name, lambda: write_chunk(df, out, [source])) == 4
    assert os.listdir(tmp_path / "run") == [name]
    back = read_chunk(spark, out)
    assert (back.count(), back.exceptAll(df).count()) == (8000, 0)
    if "csv" in name:
        data = Path(out.location).read_bytes()
        lines = (gzip.decompress(data) if name.endswith("gz") else data).decode().splitlines()
        assert [at for at, line in enumerate(lines) if "id" in line] == [0], "one header"


def test_a_header_that_runs_over_lines_is_written_by_one_task(
    spark: SparkSession, tmp_path: Path, source: Place
) -> None:
    df = exploded(read_chunk(spark, source)).withColumnRenamed("n", "two\nlines")
    out = place(tmp_path / "run" / "all.csv", single_file=True)
    write_chunk(df, out, [source])
    assert Path(out.location).read_text().count("lines") == 1
    folder = place(tmp_path / "folder", format="csv")
    assert write_chunk(df, folder, [source]).files == 4


def test_a_plan_is_light_when_nothing_in_it_makes_rows(spark: SparkSession, source: Place) -> None:
    df = read_chunk(spark, source)
    light = [
        df.where("id > 1"), df.groupBy("id").count(), df.union(df).distinct(), df.orderBy("id").limit(3),
        df.selectExpr("id", "sum(id) OVER (PARTITION BY id % 2) s"), df.dropDuplicates(["id"]),
    ]  # fmt: skip
    heavy = [
        exploded(df), df.crossJoin(df), df.join(df.withColumnRenamed("id", "other"), F.col("id") < F.col("other")),
        df.cube("id").count(), df.repartition(4), spark.range(10), df.mapInPandas(lambda frames: frames, df.schema),
        df.select(F.udf(lambda value: value, "long")("id")), spark.createDataFrame(df.rdd, df.schema),
    ]  # fmt: skip
    assert [is_light(logical_plan(one)) for one in light] == [True] * len(light)
    assert [is_light(logical_plan(one)) for one in heavy] == [False] * len(heavy)
