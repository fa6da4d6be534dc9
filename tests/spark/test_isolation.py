"""Chunks that one warm driver produces, several at a time, see nothing of each other, whatever their code keeps."""

import csv
import os
from collections.abc import Sequence
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
from shared.days import DAY


@F.udf("string")
def on_the_worker(_order):
    import plain

    return plain.KEPT.setdefault("worker", DAY)


def run(df):
    import plain
    from outside_of_it import LIST
    from shared import days

    LIST.append(days.DAY)
    return (
        df.withColumn("again", F.lit(" ".join(days.seen)))  # what the first one left in this very chunk
        .withColumn("first", F.lit(plain.KEPT["first"]))
        .withColumn("lib", F.lit(" ".join(LIST)))
        .withColumn("worker", on_the_worker("order"))
    )
""",
}
SESSION = {
    "first": """\
import os

from pyspark.sql import functions as F


def run(df):
    spark, day = df.sparkSession, os.environ["dataid"]
    if spark.catalog.tableExists("day"):
        return spark.table("day").crossJoin(df)
    one = spark.createDataFrame([(day,)], "module string")
    one.createOrReplaceTempView("day")
    spark.sql(f"CACHE TABLE kept AS SELECT '{day}' AS cached")
    spark.sql("CREATE TEMPORARY VIEW `create table` AS SELECT module AS saved FROM day")
    spark.conf.set("spark.sql.caseSensitive", str(not spark.conf.get("spark.sql.caseSensitive") == "true").lower())
    here = os.environ["HERE"] = os.environ.get("HERE", "") + day
    os.chdir("/")
    os.umask(0)
    return df.crossJoin(spark.table("day")).withColumn("variable", F.lit(here))
""",
    "second": """\
def run(df):
    tables = [df.sparkSession.table(name) for name in ("kept", "`create table`")]
    for table in tables:
        df = df.crossJoin(table)
    return df
""",
}
PIPELINES = {"at_import": AT_IMPORT, "imported": IMPORTED, "session": SESSION}


def three_pipelines(project: Project, *, settings: str = "") -> None:
    project.write("shared/days.py", "import os\n\nDAY = os.environ['dataid']\nseen = []\n")  # no __init__.py
    project.write("plain/__init__.py", "KEPT = {}\n")
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


def assert_each_is_its_own(project: Project, made: Sequence[str] = tuple(PIPELINES)) -> None:
    for number, day in enumerate(DAYS, 1):
        plain = [{"order": "1", "amount": str(number)}, {"order": "2", "amount": str(number * 10)}]
        own = {
            "at_import": {"module": day, "input": day, "path": day, "udf": day, "worker": "nothing"},
            "imported": {"module": day, "kept": day, "again": day, "first": day, "lib": day, "worker": day},
            "session": {"module": day, "variable": day, "cached": day, "saved": day},
        }
        for slug in made:
            assert rows(project, slug, day) == [{**row, **own[slug]} for row in plain]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A module that is neither the project's nor a library's; in one folder for all tests, which share a driver."""
    folder = tmp_path_factory.mktemp("lib")
    (folder / "outside_of_it.py").write_text("LIST = []\n")
    return {"PYTHONPATH": str(folder)}


def test_a_worker_produces_eighteen_chunks_each_of_them_its_own(
    sqlite_project: Project, elsewhere: dict[str, str]
) -> None:
    project = sqlite_project
    three_pipelines(project)
    done = project.dataflow("worker", "--once", "--slots", "4", env=elsewhere, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for slug in PIPELINES:
        assert project.statuses(slug) == dict.fromkeys(DAYS, "COMPLETE")
    assert_each_is_its_own(project)
    # Any bytes are fine in a log, and in what the store keeps of a transformation.
    said = "this is caf\\xe9 \0 of 2025-11-03"
    logs = [Path(path).read_text() for path in (project.folder / ".dataflow" / "logs" / "at_import").glob("*")]
    assert len([text for text in logs if said in text]) == 1, logs
    listed = project.sql("SELECT output FROM transformation WHERE output LIKE '%2025-11-03%'")
    assert [output for (output,) in listed] == [said.replace("\0", "\N{REPLACEMENT CHARACTER}") + "\n"]


@pytest.mark.parametrize("how", ["tick", "at_once", "--slots"])
def test_however_chunks_are_started_each_is_its_own(
    sqlite_project: Project, elsewhere: dict[str, str], how: str
) -> None:
    project = sqlite_project
    three_pipelines(project, settings="at_once: 6" if how == "at_once" else "")
    if how == "tick":
        done = project.dataflow("tick", env=elsewhere, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    made = list(PIPELINES) if how == "tick" or "DATAFLOW_EVERY_FAULT" in os.environ else ["session"]
    for slug in made if how != "tick" else ():
        more = ("--slots", "4") if how == "--slots" else ()
        done = project.dataflow("run", slug, "--drain", *more, env=elsewhere, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    assert_each_is_its_own(project, made)


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


ROW_BY_ROW = """\
import os

from pyspark.sql import functions as F


def run(df):
    print(f"this is {os.fsdecode(b'caf' + bytes([0xE9]))}")
    return df.withColumn("twice", F.col("amount") * 2)
"""


def test_chunks_that_share_a_spark_job_may_print_any_bytes(sqlite_project: Project) -> None:
    project = sqlite_project
    three_pipelines(project, settings="rowwise: true\n    chunks_per_job: 6")
    project.write("pipelines/session/first.py", ROW_BY_ROW)
    project.write("pipelines/session/second.py", "def run(df):\n    return df\n")
    done = project.dataflow("run", "session", "--drain", timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.statuses("session") == dict.fromkeys(DAYS, "COMPLETE")
    assert project.sql("SELECT count(DISTINCT job_runid), count(job_runid) FROM pipeline_run") == [(1, len(DAYS))]
    logs = [Path(path).read_text() for path in (project.folder / ".dataflow" / "logs" / "session").glob("*")]
    assert any("this is caf\\xe9\n" in text for text in logs), logs
    outputs = project.sql("SELECT DISTINCT output FROM transformation WHERE name = 'first'")
    assert outputs == [("this is caf\\xe9\n",)]


IMPORTS_LATE = """\
from pyspark.sql import functions as F


@F.udf("string")
def name(_order):
    import names

    return names.NAME


def run(df):
    return df.withColumn("name", name("order"))
"""


def test_two_projects_on_one_driver_import_their_own_modules(tmp_path: Path) -> None:
    """A worker that has imported one project's module serves the other project next."""
    projects = {name: Project(tmp_path / name, f"sqlite:///{tmp_path / name}.db") for name in ("one", "two")}
    for name, project in projects.items():
        three_pipelines(project)
        project.write("names.py", f"NAME = {name!r}\n")
        project.write("pipelines/session/first.py", IMPORTS_LATE)
        project.write("pipelines/session/second.py", "def run(df):\n    return df\n")
    for day in DAYS[:2]:
        for name, project in projects.items():
            done = project.dataflow("run", "session", "--dataid", day, timeout=180)
            assert done.returncode == 0, done.stdout + done.stderr
            assert {row["name"] for row in rows(project, "session", day)} == {name}


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
