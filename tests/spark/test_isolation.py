"""Chunks that one warm Spark produces see nothing of each other, whatever their code keeps."""

import csv
from pathlib import Path

import pytest

from support.projects import Project

DAYS = [f"2025-11-{day:02}" for day in range(1, 7)]
PROJECT = """\
name: Apart
environments: {{dev: {{root: ./data}}}}
spark:
  master: local[2]
  conf:
    spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC  # starts sooner
datasets:
  orders:
    path: "orders/{{dataid}}.csv"
    format: csv
    schema: {{order: int, amount: int}}
    partitions: {{daily: 2025-11-01..2025-11-06}}
{datasets}
pipelines:
{pipelines}
"""
DATASET = '  {slug}: {{path: "{slug}/{{dataid}}.csv", format: csv}}\n'
PIPELINE = """\
  - slug: {slug}
    sources: [orders]
    destination: {slug}
    transformations: [first, second]
    {settings}
"""
# What the code of three pipelines keeps beyond one chunk, if it is let: every column must be of the chunk's own day.
AT_IMPORT = {
    "first": """\
import os

from pyspark.sql import functions as F

DAY = os.environ["dataid"]
READ = os.environ["orders_dataid"]
PLACE = os.environ["orders_location"]


@F.udf("string")
def on_the_worker(_order):
    return DAY


def run(df):
    print(f"this is {os.fsdecode(b'caf' + bytes([0xE9]))} {chr(0)} of {DAY}")
    return (
        df.withColumn("module", F.lit(DAY))
        .withColumn("input", F.lit(READ))
        .withColumn("path", F.lit(PLACE.rpartition("/")[2].removesuffix(".csv")))
        .withColumn("udf", on_the_worker("order"))
    )
""",
    "second": """\
import os

from pyspark.sql import functions as F


@F.udf("string")
def of_the_process(_order):
    return os.environ.get("dataid", "nothing")


def run(df):
    return df.withColumn("worker", of_the_process("order"))
""",
}
IMPORTED = {
    "first": """\
from pyspark.sql import functions as F
from shared.days import DAY, seen

import plain


def run(df):
    seen.append(DAY)
    plain.KEPT.setdefault("first", DAY)
    return df.withColumn("module", F.lit(DAY)).withColumn("kept", F.lit(" ".join(seen)))
""",
    "second": """\
from pyspark.sql import functions as F


def run(df):
    import plain
    from outside_of_it import LIST
    from shared import days

    LIST.append(days.DAY)
    return (
        df.withColumn("again", F.lit(" ".join(days.seen)))  # what the first one left in this very chunk
        .withColumn("first", F.lit(plain.KEPT["first"]))
        .withColumn("lib", F.lit(" ".join(LIST)))
    )
""",
}
SESSION = {
    "first": """\
import os

from pyspark.sql import functions as F


def run(df):
    spark, day = df.sparkSession, os.environ["dataid"]
    if spark.catalog.tableExists("global_temp.day"):
        return spark.table("global_temp.day").crossJoin(df)
    one = spark.createDataFrame([(day,)], "module string")
    one.createOrReplaceGlobalTempView("day")
    spark.sql(f"CACHE TABLE kept AS SELECT '{day}' AS cached")
    one.withColumnRenamed("module", "saved").write.mode("append").saveAsTable("days")
    spark.sql("CREATE DATABASE IF NOT EXISTS mine")
    one.withColumnRenamed("module", "database").write.mode("append").saveAsTable("mine.days")
    return df.crossJoin(spark.table("global_temp.day"))
""",
    "second": """\
def run(df):
    tables = [df.sparkSession.table(name) for name in ("kept", "days", "mine.days")]
    for table in tables:
        df = df.crossJoin(table)
    return df
""",
}
PIPELINES = {"at_import": AT_IMPORT, "imported": IMPORTED, "session": SESSION}


def three_pipelines(project: Project, *, settings: str = "") -> None:
    project.write("shared/days.py", "import os\n\nDAY = os.environ['dataid']\nseen = []\n")  # no __init__.py
    project.write("plain/__init__.py", "KEPT = {}\n")
    project.write("lib/outside_of_it.py", "LIST = []\n")
    for slug, code in PIPELINES.items():
        for name, text in code.items():
            project.write(f"pipelines/{slug}/{name}.py", text)
    for number, day in enumerate(DAYS, 1):
        project.write(f"data/orders/{day}.csv", f"order,amount\n1,{number}\n2,{number * 10}\n")
    project.apply(
        PROJECT.format(
            datasets="".join(DATASET.format(slug=slug) for slug in PIPELINES),
            pipelines="".join(PIPELINE.format(slug=slug, settings=settings) for slug in PIPELINES),
        )
    )
    done = project.dataflow("ready", "orders", f"{DAYS[0]}..{DAYS[-1]}")
    assert done.returncode == 0, done.stderr


def rows(project: Project, slug: str, day: str) -> list[dict[str, str]]:
    with open(project.folder / "data" / slug / f"{day}.csv", newline="") as file:
        return sorted(csv.DictReader(file), key=lambda row: row["order"])


def assert_each_is_its_own(project: Project) -> None:
    for number, day in enumerate(DAYS, 1):
        plain = [{"order": "1", "amount": str(number)}, {"order": "2", "amount": str(number * 10)}]
        made = {slug: rows(project, slug, day) for slug in PIPELINES}
        assert made["at_import"] == [
            {**row, "module": day, "input": day, "path": day, "udf": day, "worker": "nothing"} for row in plain
        ]
        assert made["imported"] == [
            {**row, "module": day, "kept": day, "again": day, "first": day, "lib": day} for row in plain
        ]
        assert made["session"] == [
            {**row, "module": day, "cached": day, "saved": day, "database": day} for row in plain
        ]


def elsewhere(project: Project) -> dict[str, str]:
    """A module that is neither the project's nor a library's."""
    return {"PYTHONPATH": str(project.folder / "lib")}


def test_a_worker_produces_eighteen_chunks_each_of_them_its_own(sqlite_project: Project) -> None:
    project = sqlite_project
    three_pipelines(project)
    done = project.dataflow("worker", "--once", "--slots", "4", env=elsewhere(project), timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for slug in PIPELINES:
        assert project.statuses(slug) == dict.fromkeys(DAYS, "COMPLETE")
    assert_each_is_its_own(project)
    # Any bytes are fine in a log, and in what the store keeps of a transformation.
    said = "this is caf\\xe9 \N{REPLACEMENT CHARACTER} of 2025-11-03"
    logs = [Path(path).read_text() for path in (project.folder / ".dataflow" / "logs" / "at_import").glob("*")]
    assert len([text for text in logs if said in text]) == 1, logs
    listed = project.sql("SELECT output FROM transformation WHERE output LIKE '%2025-11-03%'")
    assert [output for (output,) in listed] == [said + "\n"]


def test_at_once_is_ignored_with_a_line_that_says_so(sqlite_project: Project) -> None:
    project = sqlite_project
    three_pipelines(project, settings="at_once: 6")
    done = project.dataflow("run", "session", "--drain", timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("session: at_once is ignored: the chunks of a pipeline run one at a time") == 1
    for number, day in enumerate(DAYS, 1):
        assert [(row["module"], row["cached"], row["amount"]) for row in rows(project, "session", day)] == [
            (day, day, str(number)), (day, day, str(number * 10)),
        ]  # fmt: skip


@pytest.mark.parametrize("engine", ["spark", "pandas"])
def test_a_failure_may_have_any_bytes_in_its_text(project: Project, engine: str) -> None:
    """On both stores: PostgreSQL takes no NUL, and neither takes half a character."""
    three_pipelines(project, settings=f"engine: {engine}")
    fails = "import os\n\n\ndef run(df):\n    raise ValueError(os.fsdecode(b'caf\\xe9.csv') + chr(0) + chr(0xD800))\n"
    project.write("pipelines/session/first.py", fails)
    done = project.dataflow("run", "session", "--dataid", DAYS[0], timeout=180)
    assert done.returncode == 1, done.stdout + done.stderr
    told = "ValueError: caf\\xe9.csv\N{REPLACEMENT CHARACTER}\\ud800"
    assert told in done.stderr
    assert told in project.dataflow("why", "session", DAYS[0]).stdout.replace("\n", " ")


def test_without_the_promise_chunks_per_job_is_ignored_with_a_line_that_says_why(sqlite_project: Project) -> None:
    project = sqlite_project
    three_pipelines(project, settings="chunks_per_job: 6")
    done = project.dataflow("run", "at_import", "--drain", timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("at_import: chunks_per_job is ignored, and the chunks run one by one: it needs") == 1
    assert "`rowwise: true`" in done.stderr
    for day in DAYS:
        assert {row["module"] for row in rows(project, "at_import", day)} == {day}
    assert project.sql("SELECT count(*) FROM pipeline_run WHERE job_runid IS NOT NULL") == [(0,)]
