"""Pipelines with tiny chunks on a quick local Spark, disturbed while they run, and what became of them."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from opendataflow.execution.processes import ZYGOTE
from support.drivers import keepers
from support.processes import is_alive, wait_for
from support.projects import DATAFLOW, Project

SLUG = "add_up"
STEP = f"pipelines/{SLUG}/step.py"
PROJECT = """\
name: Faults
environments: {{dev: {{root: ./data}}}}
spark: {{master: "local[2]"}}
datasets:
  orders:
    path: "orders/{{dataid}}.csv"
    format: csv
    schema: {{order: int, item: string, amount: int}}
    partitions: {{shards: 1..{chunks}}}
  totals: {{path: {path}}}
pipelines:
  - slug: add_up
    sources: [orders]
    destination: totals
    transformations: [step]
    {settings}
"""
TWICE = """\
from pyspark.sql import functions as F


def run(df):
    return df.withColumn("twice", F.col("amount") * 2)
"""
# So many chunks in one task of the child: of a Spark job, if the code lets them share one.
TOGETHER = "rowwise: true\n    chunks_per_job: {}"
# As long as there is a file `sleep`.
SLEEPS = """\
import os
import time

from pyspark.sql import functions as F


def run(df):
    open(f"sleeping.{os.environ['DATAFLOW_RUN_ID']}", "w").close()
    while os.path.exists("sleep"):
        time.sleep(0.1)
    return df.withColumn("twice", F.col("amount") * 2)
"""

# While a file `slow` lies beside it, its Spark job goes on for hours.
SLOW = """\
import os

from pyspark.sql import functions as F


def run(df):
    df = df.withColumn("twice", F.col("amount") * 2)
    if os.path.exists(os.path.join(os.path.dirname(__file__), "slow")):
        many = df.sparkSession.range(10**13)
        df = df.crossJoin(many.filter("id % 1000000007 = 5").select())
    return df
"""


def pipeline(
    project: Project, code: str = TWICE, *, chunks: int = 4, path: str = "totals.csv", settings: str = ""
) -> Project:
    """The pipeline `add_up` with one transformation; `amount` is the chunk's number and ten times it."""
    project.apply(PROJECT.format(chunks=chunks, path=path, settings=settings))
    project.write(STEP, code)
    for number in range(1, chunks + 1):
        rows = f"1,nut,{number}\n2,bolt,{number * 10}\n"
        project.write(f"data/orders/{number}.csv", f"order,item,amount\n{rows}")
        project.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('orders', '{number}', 'READY')")
    return project


def drain(project: Project, *more: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return project.dataflow("run", SLUG, "--drain", *more, env=env, timeout=180)


@contextlib.contextmanager
def draining(project: Project, env: dict[str, str] | None = None) -> Iterator["subprocess.Popen[str]"]:
    """A drain in the background; whatever is left of it at the end is killed."""
    runner = project.start(DATAFLOW, "run", SLUG, "--drain", env=env)
    try:
        yield runner
    finally:
        runner.kill()
        runner.communicate(timeout=60)


class Stops:
    """A point at which a process of the run stops, each time it comes there, until it is let go."""

    def __init__(self, project: Project, variable: str, point: str) -> None:
        self._marker = project.folder / f"{point}.marker"
        self.env = {variable: f"{point}:{self._marker}"}

    def wait(self, runner: "subprocess.Popen[str]") -> None:
        """Until a process is there, and Spark is alive."""

        def arrived() -> bool:
            if runner.poll() is not None:
                return True
            if not self._marker.exists() or not self._marker.read_text():
                return False
            if find_jvm(runner.pid):
                return True
            self.let_go()  # somewhere on its way from the child before to the next
            return False

        wait_for(arrived, f"{self._marker.stem} is reached", seconds=90)
        assert runner.poll() is None, runner.communicate()

    def let_go(self) -> None:
        self._marker.unlink(missing_ok=True)

    def let_all_go(self, runner: "subprocess.Popen[str]", *, seconds: float = 120) -> None:
        """Until the command has ended."""
        wait_for(lambda: self.let_go() or runner.poll() is not None, "the command ends", seconds=seconds)


# Processes ------------------------------------------------------------------------------------------------------------
def descendants(pid: int) -> dict[int, str]:
    """Living processes below this one: pid → command line."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,args=", "-ww"], capture_output=True, text=True, check=True)
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    found: dict[int, str] = {}
    parents = {pid}
    while parents:
        below = {int(row[0]): row[2] for row in rows if int(row[1]) in parents}
        found |= below
        parents = set(below)
    return found


def find_child(runner: int) -> int | None:
    """The process of a run: a fork of a guard that is a fork of the zygote."""
    zygote = find_zygote(runner)
    forks = [pid for guard in _children(zygote) for pid in _children(guard)] if zygote is not None else []
    return forks[0] if forks else None


def find_jvm(runner: int) -> int | None:
    """Spark's driver: of a stream, below its runner; else the keeper's."""
    below = _find(runner, "org.apache.spark.deploy.SparkSubmit")
    return below or next((keeper["jvm_pid"] for keeper in keepers()), None)


def find_zygote(runner: int) -> int | None:
    return _find(runner, f"-m {ZYGOTE}")


def find_keeper(_runner: int) -> int | None:
    return next((keeper["pid"] for keeper in keepers()), None)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def _find(runner: int, word: str) -> int | None:
    return next((pid for pid, command in descendants(runner).items() if word in command), None)


def kill(find: Callable[[int], int | None], runner: "subprocess.Popen[str]") -> None:
    """SIGKILL, and wait until it is gone."""
    pid = find(runner.pid)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), f"process {pid} is gone")


def gone(pid: int) -> bool:
    wait_for(lambda: not is_alive(pid), f"process {pid} is gone", seconds=60)
    return True


def wait_until_asleep(project: Project, runner: "subprocess.Popen[str]", number: int = 1) -> None:
    """Until so many runs are inside their transformations."""

    def asleep() -> bool:
        running = project.sql(f"SELECT runid FROM job_status WHERE jobid = '{SLUG}' AND status = 'RUNNING'")
        found = [runid for (runid,) in running if (project.folder / f"sleeping.{runid}").exists()]
        return len(found) == number or runner.poll() is not None

    wait_for(asleep, f"{number} runs are asleep", seconds=90)
    assert runner.poll() is None, runner.communicate()


# What became of it ----------------------------------------------------------------------------------------------------
def states(project: Project) -> dict[str, str]:
    """dataid → status of the pipeline on it."""
    return dict(project.sql(f"SELECT dataid, status FROM job_status WHERE jobid = '{SLUG}' ORDER BY sortkey, dataid"))


def column(project: Project, name: str) -> dict[str, Any]:
    """dataid → a column of the pipeline's state."""
    return dict(project.sql(f"SELECT dataid, {name} FROM job_status WHERE jobid = '{SLUG}' ORDER BY sortkey, dataid"))


def messages(project: Project, dataid: str) -> list[str]:
    """What the runs of this dataid ended with, in order."""
    told = project.sql(f"SELECT message FROM run WHERE jobid = '{SLUG}' AND dataid = '{dataid}' ORDER BY runid")
    return [str(message) for (message,) in told]


def chunks(project: Project) -> dict[str, str]:
    """dataid → the text of every chunk that is published."""
    ready = project.sql("SELECT dataid, location FROM chunk_location WHERE datasetid = 'totals' AND status = 'READY'")
    return {dataid: _text(Path(location)) for dataid, location in ready}


def _text(location: Path) -> str:
    if location.is_file():
        return location.read_text()
    return "".join(path.read_text() for path in sorted(location.glob("[!_.]*")))


def visible(project: Project) -> set[str]:
    """What a reader of the project's data finds without asking the store; the sources apart."""
    root = project.folder / "data"
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    shown = (path for path in found if not any(part.startswith(("_", ".")) for part in path.parts))
    return {str(path) for path in shown if path.parts[0] != "orders"}


def expected(numbers: range | list[int]) -> dict[str, str]:
    """The chunks as `TWICE` makes them."""
    return {
        str(n): f"order,item,amount,twice\n1,nut,{n},{n * 2}\n2,bolt,{n * 10},{n * 20}\n" for n in numbers
    }  # fmt: skip


def left_behind(project: Project) -> list[str]:
    """Files between runner and child that nobody needs any more."""
    return sorted(path.name for path in (project.folder / ".dataflow" / "runs").glob("*"))
