"""One PySpark chunk through the installed command: claimed, run on Spark, audited, published, healed.

Each run starts a JVM, which takes seconds: a test here tells a whole story.
"""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from support.pipelines import SLUG, TOGETHER, find_child, find_jvm, gone, pipeline
from support.projects import DATAFLOW, Project

DAY, NEXT, THIRD = "2025-11-01", "2025-11-02", "2025-11-03"
PROJECT = """\
name: Shop
environments:
  dev: {root: ./data}
spark: {master: "local[2]"}
datasets:
  orders:
    path: "orders/{dataid}.csv"
    format: csv
    schema: {order: int, item: string, amount: double, at: timestamp}
    partitions: {daily: 2025-11-01..2025-11-03}
  prices: {path: prices.csv, format: csv, partitions: none}
  priced: {path: priced}
  report: {path: "report/{dataid}.txt"}
jobs:
  tell:
    script: jobs/tell.sh
    inputs: [priced]
    outputs: [report]
pipelines:
  - slug: price_orders
    sources: [orders, prices]
    destination: priced
    transformations: [drop_returns, add_price.py]
"""
DROP_RETURNS = """\
import os

from pyspark.sql import functions as F


def run(df):
    print("dropping returns of", os.environ["dataid"], "in", os.getpid())
    return df.filter(F.col("amount") > 0)
"""
ADD_PRICE = """\
from pyspark.sql import functions as F


def run(df, prices):
    total = (F.col("amount") * F.col("price")).alias("total")
    return df.join(prices, on="item", how="inner").select("order", "item", "at", total)
"""
# Where a file `slow` lies in the project, the write goes on for hours.
SLOW = """\
import os


def run(df):
    if os.path.exists(os.path.join(os.path.dirname(__file__), "slow")):
        many = df.sparkSession.range(10**13)
        df = df.crossJoin(many.filter("id % 1000000007 = 5").select())
    return df
"""


@pytest.fixture
def shop(sqlite_project: Project) -> Project:
    sqlite_project.apply(PROJECT)
    sqlite_project.write("pipelines/price_orders/drop_returns.py", DROP_RETURNS)
    sqlite_project.write("pipelines/price_orders/add_price.py", ADD_PRICE)
    sqlite_project.write("data/prices.csv", "item,price\nnut,0.5\nbolt,2\n")
    for day in (DAY, NEXT, THIRD):
        sqlite_project.write(
            f"data/orders/{day}.csv",
            f"order,item,amount,at\n1,nut,4,{day}T10:00:00Z\n2,bolt,-1,{day}T11:00:00Z\n3,bolt,3,{day}T12:00:00Z\n",
        )
        assert sqlite_project.dataflow("ready", "orders", day).returncode == 0
    assert sqlite_project.dataflow("ready", "prices", "full").returncode == 0
    return sqlite_project


def published(project: Project, dataid: str) -> dict[str, Any]:
    """The chunk as the store knows it, with the manifest of its version."""
    columns = "c.status c.version c.location m.files m.bytes m.rows m.schema c.fingerprint m.fingerprint".split()  # noqa: SIM905
    rows = project.sql(
        f"SELECT {', '.join(columns)} FROM datastatus c LEFT JOIN data_manifest m ON m.project = c.project AND "
        "m.datasetid = c.datasetid AND m.dataid = c.dataid AND m.version = c.version "
        f"WHERE c.locktype = 'OUT' AND c.datasetid = 'priced' AND c.dataid = '{dataid}'"
    )
    found = dict(zip(columns, rows[0], strict=True))
    location = found["c.location"]  # kept from the root; None before the first publish
    return {**found, "c.location": location and str(project.folder / "data" / location)}


def read(location: str) -> list[dict[str, Any]]:
    return sorted(pyarrow.parquet.read_table(location).to_pylist(), key=lambda row: row["order"])


def test_a_pipeline_publishes_a_chunk_that_a_script_consumes_and_resubmit_repoints(shop: Project) -> None:
    done = shop.dataflow("run", "price_orders")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"dropping returns of {DAY} in ")
    assert f"price_orders/{DAY}" in done.stderr
    told = [line for line in done.stderr.splitlines() if " tasks of " not in line]  # how far it is, on a slow machine
    assert len(told) == 1, f"Spark's noise is in the log:\n{done.stderr}"

    chunk = published(shop, DAY)
    run = chunk["c.version"]
    folder = shop.folder / "data" / "priced" / f"dataid={DAY}"
    assert (chunk["c.status"], chunk["c.location"]) == ("READY", str(folder / "_runs" / str(run)))
    table = pyarrow.parquet.read_table(chunk["c.location"])
    assert {field.name: str(field.type) for field in table.schema} == {
        "order": "int32", "item": "string", "at": "timestamp[us, tz=UTC]", "total": "double",
    }  # fmt: skip
    assert [(row["order"], row["item"], row["total"]) for row in read(chunk["c.location"])] == [
        (1, "nut", 2.0),
        (3, "bolt", 6.0),
    ]
    parts = list(Path(chunk["c.location"]).glob("*.parquet"))
    assert (chunk["m.files"], chunk["m.bytes"], chunk["m.rows"]) == (1, parts[0].stat().st_size, 2)
    assert json.loads(chunk["m.schema"]) == {
        "order": "int",
        "item": "string",
        "at": "timestamp",
        "total": "double",
    }
    assert chunk["c.fingerprint"] == chunk["m.fingerprint"] is not None

    tell = shop.script("jobs/tell.sh", 'echo "$priced_location" > "$report_location"')
    told = shop.runjob(tell)
    assert told.returncode == 0, told.stderr
    assert (shop.folder / "data" / "report" / f"{DAY}.txt").read_text().strip() == chunk["c.location"]

    assert shop.dataflow("resubmit", "price_orders", DAY).returncode == 0
    assert published(shop, DAY)["c.status"] != "READY"
    again = shop.dataflow("run", "price_orders", "--drain")
    assert again.returncode == 0, again.stderr
    served = [line.removeprefix("dropping returns of ").split(" in ") for line in again.stdout.splitlines()]
    assert sorted(dataid for dataid, _ in served) == [DAY, NEXT, THIRD]
    assert len({child for _, child in served}) == 3, "each chunk is a process of its own"
    assert [published(shop, day)["m.rows"] for day in (DAY, NEXT, THIRD)] == [2, 2, 2]
    assert {row["at"].day for row in read(published(shop, THIRD)["c.location"])} == {3}
    second = published(shop, DAY)
    assert second["c.version"] > run
    assert second["c.location"] == str(folder / "_runs" / str(second["c.version"]))
    assert read(second["c.location"]) == read(chunk["c.location"])
    assert os.readlink(folder / "current") == f"_runs/{second['c.version']}"
    assert list((shop.folder / ".dataflow" / "runs").iterdir()) == []
    assert not {"spark-warehouse", "metastore_db", "derby.log", "artifacts"} & set(os.listdir(shop.folder))


BROKEN = """\
import os
import sys


def run(df, prices):
    if os.environ["dataid"] == "2025-11-01":
        raise ValueError("no price for 7 items")
    if os.environ["dataid"] == "2025-11-02":
        sys.exit(0)
    df.join(prices, on="item", how="inner")
"""


def test_a_transformation_that_fails_is_told_in_a_sentence_and_nothing_becomes_visible(shop: Project) -> None:
    file = "pipelines/price_orders/add_price.py"
    broken = shop.write(file, BROKEN)
    failed = shop.dataflow("run", "price_orders", "--drain")
    assert failed.returncode == 1, failed.stderr
    assert f"price_orders/{DAY}: {file}:7: ValueError: no price for 7 items\n" in failed.stderr
    assert f'  File "{file}", line 7, in run\n    raise ValueError("no price for 7 items")\n' in failed.stderr
    assert f"price_orders/{NEXT}: {file}:9: the code ended its interpreter: sys.exit(0)\n" in failed.stderr
    assert f"price_orders/{THIRD}: {file}:5: `run` returned None; end it with `return df`\n" in failed.stderr
    assert "site-packages" not in failed.stderr

    broken.unlink()
    assert shop.dataflow("resubmit", "price_orders", DAY).returncode == 0
    missing = shop.dataflow("run", "price_orders")
    assert missing.returncode == 1
    assert f"price_orders/{DAY}: {file}: there is no transformation 'add_price' here: No such file" in missing.stderr

    assert set(shop.statuses("price_orders").values()) == {"FAILED"}
    detail = shop.json("why", "price_orders", THIRD)["detail"]
    assert detail == f"{file}:5: `run` returned None; end it with `return df`"
    for day in (DAY, NEXT, THIRD):
        chunk = published(shop, day)
        assert (chunk["c.status"], chunk["m.rows"]) == ("FAILED", None)
    assert list(shop.folder.glob("data/priced/**/*.parquet")) == []
    assert list((shop.folder / ".dataflow" / "runs").iterdir()) == []


PANDAS = "import pandas\n\n\ndef run(df):\n    df['twice'] = df['amount'] * 2\n    return df\n"


@pytest.mark.parametrize(("umask", "mode"), [("022", 0o644), ("027", 0o640)])
def test_files_that_python_writes_have_the_mode_that_the_callers_umask_gives(
    sqlite_project: Project, umask: str, mode: int
) -> None:
    project = pipeline(sqlite_project, PANDAS, chunks=1, path='"totals/{dataid}.csv"')
    done = project.run("sh", "-c", f"umask {umask}; exec {DATAFLOW} run {SLUG}")
    assert done.returncode == 0, done.stderr
    [(location,)] = project.sql("SELECT location FROM chunk_location WHERE datasetid = 'totals' AND status = 'READY'")
    assert Path(location).stat().st_mode & 0o777 == mode


class SlowRun:
    """A run in the background that has begun to write and will not end by itself."""

    def __init__(self, project: Project) -> None:
        runs = project.folder / "data" / "priced" / f"dataid={DAY}" / "_runs"
        before = {path.name for path in runs.glob("*")}
        self.runner = project.start(DATAFLOW, "run", "price_orders", "--dataid", DAY)
        self.child, self.jvm = 0, 0
        try:
            self._wait_until_it_writes(runs, before)
        except BaseException:
            self.runner.kill()
            self.runner.communicate()
            raise

    def _wait_until_it_writes(self, runs: Path, before: set[str]) -> None:
        give_up = time.monotonic() + 90
        while time.monotonic() < give_up:
            if any((path / "_temporary").exists() for path in runs.glob("*") if path.name not in before):
                jvm, child = find_jvm(self.runner.pid), find_child(self.runner.pid)
                assert jvm is not None
                assert child is not None
                self.jvm, self.child = jvm, child
                return
            assert self.runner.poll() is None, self.runner.communicate()
            time.sleep(0.05)
        raise AssertionError("the run did not begin to write")

    def end(self) -> tuple[int, str]:
        _, stderr = self.runner.communicate(timeout=60)
        return self.runner.returncode, stderr


@pytest.mark.usefixtures("own_driver")
def test_killed_while_writing_a_single_run_dies_whole(shop: Project) -> None:
    shop.apply(PROJECT.replace("[drop_returns, add_price.py]", "[drop_returns, add_price.py, slow]"))
    shop.write("pipelines/price_orders/slow.py", SLOW)
    shop.write("pipelines/price_orders/slow", "")

    first = SlowRun(shop)
    os.kill(first.jvm, signal.SIGKILL)
    code, told = first.end()
    assert code == 128 + signal.SIGKILL, told
    assert "Spark's Java process was killed by signal 9" in told
    assert gone(first.child)

    assert shop.sql("SELECT status, deaths FROM job_status WHERE jobid = 'price_orders' AND dataid = '2025-11-01'") == [
        ("RESUBMIT", 1)
    ]
    assert published(shop, DAY)["c.status"] != "READY"

    assert list((shop.folder / ".dataflow" / "runs").iterdir()) == []


def test_one_chunk_of_a_pipeline_that_may_share_jobs_runs_on_the_warm_driver(sqlite_project: Project) -> None:
    """`dataflow run` of a single dataid has nobody to share with; a Spark of its own would cost it seconds."""
    code = """\
from pyspark.sql import SparkSession


def run(df):
    with open("applications", "a") as file:
        print(SparkSession.active().sparkContext.applicationId, file=file)
    return df
"""
    project = pipeline(sqlite_project, code, chunks=2, settings=TOGETHER.format(4))
    for number in ("1", "2"):
        done = project.dataflow("run", SLUG, "--dataid", number, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
    applications = (project.folder / "applications").read_text().split()
    assert len(applications) == 2, "produced once each"
    assert len(set(applications)) == 1, "by the same driver"


def test_a_library_that_cannot_be_imported_is_reported_and_nothing_is_claimed(shop: Project, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    (broken / "pandas").mkdir(parents=True)
    (broken / "pandas" / "__init__.py").write_text('raise RuntimeError("not today")\n')
    for command in (["run", "price_orders"], ["run", "price_orders", "--drain"], ["tick"]):
        failed = shop.dataflow(*command, env={"PYTHONPATH": str(broken)})
        assert failed.returncode == 1, failed.stderr
        assert "ended with exit code 1: RuntimeError: not today" in failed.stderr
    assert shop.json("runs") == []
    assert set(shop.statuses("price_orders").values()) == {"PENDING"}
