"""One project on a standalone cluster and on Spark Connect: the same chunks as on this machine, also when parts die.

Every Spark takes seconds to start: a test here tells a whole story.
"""

import datetime
import json
import os
import signal
import subprocess
import sys
import zoneinfo
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from opendataflow.errors import JobFailed
from opendataflow.execution.processes import ZYGOTE
from opendataflow.spark.cluster import Executors, require_answer
from opendataflow.spark.project_modules import why_missing
from opendataflow.spark.spec import ChunkSpec, Place
from support.clusters import CONF, Cluster, connect, free_port, standalone
from support.keepers import Client
from support.pipelines import find_child
from support.postgres import Server
from support.processes import is_alive, wait_for
from support.projects import DATAFLOW, Project

DAYS = [f"2025-11-0{day}" for day in range(1, 7)]
PROJECT = """\
name: Clusters
environments: {{dev: {{root: ./data}}}}
spark:
  master: {master}
  conf: {conf}
datasets:
  orders:
    path: "orders/{{dataid}}.csv"
    format: csv
    schema: {{order_id: int, item: string, amount: double, ordered_at: timestamp}}
    partitions: {{daily: 2025-11-01..2025-11-06}}
  rates: {{path: rates.csv, format: csv, schema: {{item: string, rate: double}}, partitions: none}}
  priced:
    path: priced
    format: parquet
    checks:
      - not_null: [order_id, price]
      - unique: [order_id]
      - rows: {{min: 2}}
      - partition: {{column: ordered_at}}
  summary: {{path: summary, format: parquet, checks: [{{rows: {{min: 1}}}}]}}
pipelines:
  - slug: price
    sources: [orders, rates]
    destination: priced
    transformations: [join, price]
    rowwise: true
    chunks_per_job: 4
  - slug: summarise
    sources: [priced]
    destination: summary
    transformations: [total]
    chunks_per_job: 3
"""
# The same without sharing: each chunk is a process of its own. And chunks from a table and into one.
FORKED = (
    PROJECT.replace("    rowwise: true\n    chunks_per_job: 4\n", "").replace("    chunks_per_job: 3\n", "")
    + """\
  - slug: count
    sources: [stock]
    destination: counted
    transformations: [twice]
"""
).replace(
    "pipelines:\n",
    """\
  stock: {{url: "{database}", table: stock, partitions: none}}
  counted: {{url: "{database}", table: counted, write: replace_table, partitions: none}}
pipelines:
""",
)
TWICE = """\
from pyspark.sql import functions as F


def run(df):
    df = df.cache()
    df.count()
    with open("session", "w") as file:
        file.write(getattr(df.sparkSession, "session_id", ""))
    return df.select("item", (F.col("number") * 2).alias("number"))
"""
JOIN = """\
from pyspark.sql import functions as F


def run(orders, rates):
    return orders.join(F.broadcast(rates), on="item", how="left")
"""
# One module goes with the function, the other one is imported by the worker itself.
PRICE = """\
from pyspark.sql import functions as F

from shop.prices import HERE, price


def run(df):
    with open("/proc/self/cmdline", "rb") as mine, open(f"{HERE}/ran", "ab") as ran:
        ran.write(mine.read() + b"\\n")
    return df.select("order_id", "item", "ordered_at", price("amount", "rate").alias("price"))
"""
PRICES = """\
import os
import time

from pyspark.sql import functions as F

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@F.udf("double")
def price(amount, rate):
    from shop.rounding import rounded

    while os.path.exists(f"{HERE}/hold"):
        open(f"{HERE}/held.{os.getpid()}", "w").close()
        time.sleep(0.05)
    return rounded(amount * rate)
"""
# A chunk has three rows: a worker that is called more often served another chunk before.
ROUNDING = """\
CALLS = []


def rounded(value):
    CALLS.append(value)
    return round(value, 1) if len(CALLS) <= 3 else -1.0
"""
TOTAL = """\
import os
import time

import pandas as pd

from shop.rounding import rounded

HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(df):
    while os.path.exists(f"{HERE}/hold"):
        open(f"{HERE}/held.{os.getpid()}", "w").close()
        time.sleep(0.05)
    totals = df.groupby("item", as_index=False)["price"].sum()
    return totals.assign(price=totals["price"].map(rounded), day=pd.Timestamp(df["ordered_at"].min()))
"""


def make(
    folder: Path,
    master: str,
    days: Sequence[str] = DAYS,
    config: str = PROJECT,
    database: str = "postgresql://nowhere/dw",
) -> Project:
    project = Project(folder, f"sqlite:///{folder}/state.db")
    for path, text in {
        "pipelines/price/join.py": JOIN, "pipelines/price/price.py": PRICE, "pipelines/summarise/total.py": TOTAL,
        "shop/prices.py": PRICES, "shop/rounding.py": ROUNDING, "data/rates.csv": "item,rate\nnut,0.5\nbolt,2\n",
    }.items():  # fmt: skip
        project.write(path, text)
    project.apply(
        config.format(master=master, conf=json.dumps(CONF), database=database).replace(f"..{DAYS[-1]}", f"..{days[-1]}")
    )
    ready = [("rates", "full")]
    for number, day in enumerate(days, 1):
        rows = f"1,nut,{number}.5,{day}T01:30:00Z\n2,bolt,{number},{day}T23:30:00Z\n3,nut,0.1,{day}T12:00:00Z\n"
        project.write(f"data/orders/{day}.csv", f"order_id,item,amount,ordered_at\n{rows}")
        ready.append(("orders", day))
    for dataset, dataid in ready:
        project.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('{dataset}', '{dataid}', 'READY')")
    return project


def run(project: Project, slug: str) -> "subprocess.CompletedProcess[str]":
    done = project.dataflow("run", slug, "--drain", timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def chunks(project: Project, dataset: str) -> dict[str, Any]:
    """dataid → schema and rows of every published chunk, as another reader of Parquet sees them."""
    from pyarrow import parquet

    ready = project.sql(
        f"SELECT dataid, location FROM chunk_location WHERE datasetid = '{dataset}' AND status = "
        "'READY' ORDER BY dataid"
    )
    tables = {dataid: parquet.read_table(location, partitioning=None) for dataid, location in ready}
    return {
        dataid: (str(table.schema.remove_metadata()), sorted(map(str, table.to_pylist())))
        for dataid, table in tables.items()
    }


def published_once(project: Project, slug: str) -> bool:
    """Every day is COMPLETE by exactly one run."""
    done = project.sql(f"SELECT dataid FROM run WHERE jobid = '{slug}' AND status = 'COMPLETE' ORDER BY dataid")
    return [dataid for (dataid,) in done] == DAYS


def hold(project: Project) -> None:
    project.write("hold", "")


def wait_until_held(project: Project, runner: "subprocess.Popen[str]") -> int:
    """Until a Python worker is in the midst of a chunk; its process id."""

    def find() -> str | None:
        assert runner.poll() is None, runner.communicate()
        return next((path.suffix[1:] for path in project.folder.glob("held.*")), None)

    return int(wait_for(find, "a worker is held", seconds=90))


def forget_held(project: Project) -> None:
    for old in project.folder.glob("held.*"):
        old.unlink()


def let_go(project: Project) -> None:
    (project.folder / "hold").unlink()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), f"process {pid} is gone")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster") / "standalone") as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if "CI" not in os.environ:
        pytest.importorskip("grpc", reason="Spark Connect needs `pip install 'opendataflow[connect]'`")
    with connect(tmp_path_factory.mktemp("connect") / "server") as made:
        yield made


def priced(days: Sequence[str] = DAYS) -> dict[str, Any]:
    """The chunks as every Spark must make them."""
    schema = "order_id: int32\nitem: string\nordered_at: timestamp[us, tz=UTC]\nprice: double"
    made = {}
    for number, day in enumerate(days, 1):
        rows = [
            (1, "nut", "01:30", (number + 0.5) * 0.5),
            (2, "bolt", "23:30", number * 2.0),
            (3, "nut", "12:00", 0.05),
        ]
        made[day] = (
            schema,
            [
                str({"order_id": order, "item": item, "ordered_at": _moment(day, at), "price": round(price, 1)})
                for order, item, at, price in rows
            ],
        )
    return made


def summary() -> dict[str, Any]:
    schema = "item: string\nprice: double\nday: timestamp[us, tz=UTC]"
    made = {}
    for number, day in enumerate(DAYS, 1):
        prices = {"bolt": number * 2.0, "nut": round(round((number + 0.5) * 0.5, 1) + 0.1, 1)}
        made[day] = (
            schema,
            [str({"item": item, "price": price, "day": _moment(day, "01:30")}) for item, price in prices.items()],
        )
    return made


def _moment(day: str, at: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(f"{day}T{at}").replace(tzinfo=zoneinfo.ZoneInfo("UTC"))


# Standalone -----------------------------------------------------------------------------------------------------------
def test_a_standalone_cluster_makes_the_same_chunks_though_an_executor_and_a_driver_are_killed(
    cluster: Cluster, tmp_path: Path, own_driver: None
) -> None:
    project = make(tmp_path / "project", cluster.master)
    hold(project)
    runner = project.start(DATAFLOW, "run", "price", "--drain")
    worker = wait_until_held(project, runner)
    executor = parent(parent(worker))
    assert executor in cluster.executors()
    kill(executor)
    forget_held(project)
    wait_until_held(project, runner)  # by another executor
    assert project.sql("SELECT count(*) FROM run WHERE status <> 'RUNNING'") == [(0,)]  # it has cost time alone

    child = find_child(runner.pid)
    assert child is not None
    kill(child)
    let_go(project)
    out, err = runner.communicate(timeout=120)

    assert runner.returncode == 0, out + err
    assert published_once(project, "price")
    assert chunks(project, "priced") == priced()

    # Undisturbed, more tasks than cores: one worker for each, or some prices are -1.
    assert project.dataflow("resubmit", "price", *DAYS).returncode == 0
    run(project, "price")
    assert chunks(project, "priced") == priced()


# Spark Connect --------------------------------------------------------------------------------------------------------
def test_spark_connect_makes_the_same_chunks(server: Cluster, tmp_path: Path) -> None:
    project = make(tmp_path / "project", f"{server.master}/;user_id=tester")
    run(project, "price")
    assert chunks(project, "priced") == priced()
    assert published_once(project, "price")
    run(project, "summarise")
    assert chunks(project, "summary") == summary()
    assert published_once(project, "summarise")
    shared = (
        "SELECT count(DISTINCT p.job_runid) FROM pipeline_run p JOIN run r USING (runid) WHERE r.jobid = 'summarise'"
    )
    assert project.sql(shared) == [(2,)]  # three chunks in each Spark job
    if "DATAFLOW_EVERY_FAULT" in os.environ:  # `make faults`
        killed_costs_a_death(server, make(tmp_path / "again", f"{server.master}/;user_id=tester"))


def killed_costs_a_death(server: Cluster, project: Project) -> None:
    """The server is killed in mid-run and started again: what ran there is given back, and done again."""
    hold(project)
    runner = project.start(DATAFLOW, "run", "price", "--drain")
    wait_until_held(project, runner)
    server.kill()
    let_go(project)
    server.start_again()
    out, err = runner.communicate(timeout=120)

    assert runner.returncode == 0, out + err
    assert f"the Spark Connect server at {server.master} does not answer any more, or was started anew" in err
    assert "tester" not in out + err
    assert chunks(project, "priced") == priced()
    assert published_once(project, "price")
    ended = project.sql("SELECT DISTINCT status FROM run WHERE jobid = 'price' ORDER BY status")
    assert ended == [("COMPLETE",), ("RESUBMIT",)]


# A process for each chunk ---------------------------------------------------------------------------------------------
_ASKS = """
import tempfile
from opendataflow.errors import JobFailed
from opendataflow.spark import cluster, shared_state
from opendataflow.spark.spec import ChunkSpec, Place

def prepare(location, scratch):
    place = Place(datasetid="priced", location=location, format="parquet", options={}, schema=None)
    spec = ChunkSpec(
        home="/nowhere", slug="price", transformations=(), dataid="1", runid=1, spark={}, environment={}, sources=(),
        destination=place,
    )
    try:
        cluster.Executors(use.master, scratch).prepare(spark, [spec])
    except JobFailed as error:
        return str(error).partition("; ")[0]

folder, known = tempfile.mkdtemp(), tempfile.mkdtemp()
"""
ASKS = {
    "cluster": _ASKS
    + """
asked = [prepare(folder, known)]
(file,) = os.listdir(known)
asked.append(sorted(open(f"{known}/{file}").read().split()))
look_at, executors = cluster.look_at, cluster._executors
cluster.look_at = None  # by another process of this driver, nobody is asked again
asked.append(prepare(folder, known))
cluster.look_at = look_at
cluster._executors = lambda spark: executors(spark) | {"99"}  # there, but it gets no task
cluster.VERIFY_SECONDS = 1.0
asked.append(prepare("/tmp", known))
tell(asked=asked)
""",
    "server": _ASKS
    + """
os.chdir(folder)
asked = [prepare(folder, known), prepare("/proc/self/cwd", known)]
shared_state.refuse_shared_state(spark, run=1)
for act in (
    lambda: spark.read.csv("prices.csv"), lambda: spark.read.option("path", "prices.csv").format("csv").load(),
    lambda: spark.range(1).write.parquet("out"), lambda: spark.read.parquet("file:///nowhere.parquet").schema,
):
    try:
        act()
    except Exception as error:
        asked.append(type(error).__name__)
from pyspark.sql.connect.session import SparkSession
try:
    SparkSession(connection=f"{use.master}/;session_id={os.environ['SESSION']}").range(1).count()
except Exception as error:
    asked.append("SESSION_CLOSED" in str(error))
tell(asked=asked)
""",
}
ANSWERS = {
    "cluster": [
        None,
        ["0", "1"],
        None,
        "priced: these executors ran no task within 1 seconds, so it is unknown whether they see /tmp: 99 on an "
        "unknown host",
    ],
    "server": [
        None,
        "priced: the Spark Connect server does not see /proc/self/cwd",
        *["RefusedCall"] * 3,
        "AnalysisException",
        True,  # the session of a run that has ended is closed
    ],
}


def test_modules_that_were_too_large_to_be_sent_are_named_where_one_is_missing(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "prices.py").write_text("#" * 5_000_000)
    told = why_missing("ModuleNotFoundError: No module named 'shop'", str(tmp_path))
    assert told is not None
    assert told.startswith("the project's Python files have 5.0 MB; more than 4.2 MB are not sent")
    assert why_missing("ModuleNotFoundError: No module named 'numpy'", str(tmp_path)) is None
    (tmp_path / "shop" / "prices.py").write_text("")
    assert why_missing("ModuleNotFoundError: No module named 'shop'", str(tmp_path)) is None


@pytest.mark.parametrize("where", ["cluster", "server"])
def test_files_sql_and_pandas_chunks_are_forks_that_leave_nothing_at_their_spark(
    where: str, request: pytest.FixtureRequest, tmp_path: Path, own_driver: None, postgres_server: Server
) -> None:
    spark: Cluster = request.getfixturevalue(where)
    database = postgres_server.new_database()
    project = make(tmp_path / "project", spark.master, DAYS[:2], FORKED, database)
    project.write("pipelines/count/twice.py", TWICE)
    with psycopg.connect(database) as stock:
        stock.execute("CREATE TABLE stock (item text, number integer)")
        stock.execute("INSERT INTO stock VALUES ('nut', 3), ('bolt', 4)")
    run(project, "price")
    assert chunks(project, "priced") == priced(DAYS[:2])
    assert [ZYGOTE.encode() in ran for ran in (project.folder / "ran").read_bytes().splitlines()] == [True] * 2
    run(project, "summarise")
    assert chunks(project, "summary") == {day: summary()[day] for day in DAYS[:2]}
    run(project, "count")
    with psycopg.connect(database) as counted:
        assert counted.execute("SELECT item, number FROM counted ORDER BY item").fetchall() == [("bolt", 8), ("nut", 6)]
    session = (project.folder / "session").read_text()
    with Client({"master": spark.master, "conf": CONF}, ASKS[where], env={"SESSION": session}) as client:
        assert client.hear("asked") == {"asked": ANSWERS[where]}
    if where == "server":
        assert "Removing RDD" in spark.log("server")  # what the chunk cached


def test_a_server_that_is_killed_is_not_the_runs_failure_and_a_killed_runs_work_ends_there(
    server: Cluster, tmp_path: Path
) -> None:
    project = make(tmp_path / "project", f"{server.master}/;user_id=tester", DAYS[:1], FORKED)
    hold(project)
    runner = project.start(DATAFLOW, "run", "price", "--drain")
    worker = wait_until_held(project, runner)
    child = find_child(runner.pid)
    assert child is not None
    os.kill(runner.pid, signal.SIGKILL)  # the guard ends the child; what it began at the server ends, too
    wait_for(lambda: not is_alive(child), "the child has ended")
    wait_for(lambda: not is_alive(worker), "its work at the server has ended", seconds=5)
    runner.communicate()

    forget_held(project)
    project.dataflow("resubmit", "price", DAYS[0])
    runner = project.start(DATAFLOW, "run", "price", "--drain")
    wait_until_held(project, runner)
    server.kill()
    let_go(project)
    server.start_again()
    out, err = runner.communicate(timeout=120)
    assert runner.returncode == 0, out + err
    assert f"the Spark Connect server at {server.master} does not answer any more, or was started anew" in err
    assert "tester" not in out + err
    assert chunks(project, "priced") == priced(DAYS[:1])


# What is asked before -------------------------------------------------------------------------------------------------
def test_an_address_where_nobody_answers_is_told_without_its_parameters() -> None:
    port = free_port()
    with pytest.raises(
        JobFailed, match=f"no Spark Connect server answers at sc://127.0.0.1:{port}: Connection refused"
    ):
        require_answer(f"sc://127.0.0.1:{port}/;token=secret", seconds=0)
    with pytest.raises(JobFailed, match=f"no Spark master answers at spark://127.0.0.1:{port},127.0.0.1:1: "):
        require_answer(f"spark://127.0.0.1:{port},127.0.0.1:1", seconds=0)


def test_an_executor_that_does_not_see_the_files_is_named_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Executors("spark://elsewhere", str(tmp_path)).prepare(spark, [writes_to(str(tmp_path / "priced"))])
    with pytest.raises(JobFailed, match=f"priced: the executor on {os.uname().nodename} does not see /proc/self/cwd; "):
        # Each process has another one.
        Executors("spark://elsewhere", str(tmp_path)).prepare(spark, [writes_to("/proc/self/cwd/priced")])
    assert list(tmp_path.iterdir()) == []


def test_what_a_function_imports_when_it_is_called_is_never_stale_and_never_stands_in_for_a_library(
    spark: SparkSession, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / "tariffs" / "deep").mkdir(parents=True)
    (home / "random.py").write_text("raise ImportError('this is no library')\n")
    executors = Executors("local[2]", str(tmp_path))
    before = list(sys.path)

    def rate(number):  # PySpark takes hints for another kind of function
        import random

        from tariffs.deep.rates import RATE

        return random.choice([RATE])

    for value in (2, 3, 2):
        (home / "tariffs" / "deep" / "rates.py").write_text(f"RATE = {value}\n")
        executors.prepare(spark, [writes_to(str(home / "data" / "priced"), home=str(home))])
        seen = spark.range(0, 8, 1, 4).select(F.udf(rate, "int")("id").alias("rate")).distinct().collect()
        assert [row["rate"] for row in seen] == [value]
    assert len(list(tmp_path.glob("dataflow_code_*.zip"))) == 2  # named by their content
    assert sys.path == before


def writes_to(location: str, home: str = "/nowhere") -> ChunkSpec:
    place = Place(datasetid="priced", location=location, format="parquet", options={}, schema=None)
    return ChunkSpec(
        home=home, slug="price", transformations=(), dataid="1", runid=1, spark={}, environment={}, sources=(),
        destination=place,
    )  # fmt: skip
