"""Pipelines under a worker: in the slots of its scripts, on one warm driver, whoever of them is killed."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from support.jobs import end_of, job_status, processes_of, publishes, wait_until_gone
from support.pipelines import PROJECT, SLEEPS, STEP, chunks, column, expected, find_jvm, messages, pipeline, states
from support.processes import wait_for
from support.projects import DATAFLOW, Project, with_settings

CHUNKS = ("1", "2", "3")
SCRIPTS = """\
jobs:
  extract: {script: jobs/extract.sh, outputs: [orders]}
  load: {script: jobs/load.sh, inputs: [totals], outputs: [loaded]}
"""
EXTRACT = """\
printf 'order,item,amount\\n1,nut,%s\\n2,bolt,%s0\\n' "$dataid" "$dataid" > "$orders_location"
"""
# As long as there is a file `sleep`; the JVM is asked all the time, so that its end is noticed.
ASKS = SLEEPS.replace("        time.sleep(0.1)\n", '        df.sparkSession.sql("select 1")\n        time.sleep(0.1)\n')
LOAD = """\
cat "$totals_location" > "$loaded_location"
"""


def extract_add_up_load(project: Project) -> None:
    """A script makes the orders, Spark adds them up, a script loads the totals."""
    text = PROJECT.format(chunks=len(CHUNKS), path='"totals/{{dataid}}.csv"', settings="")
    text = text.replace("pipelines:\n", '  loaded: {path: "loaded/{dataid}.csv"}\npipelines:\n')
    project.write(STEP, ASKS)
    project.script("jobs/extract.sh", EXTRACT)
    project.script("jobs/load.sh", LOAD)
    project.apply(text + SCRIPTS)


@contextlib.contextmanager
def worker(project: Project) -> Iterator["subprocess.Popen[str]"]:
    here = project.start(DATAFLOW, "worker", "--slots", "2", "--grace", "20")
    try:
        yield here
    finally:
        here.kill()
        here.communicate(timeout=60)


def wait_for_spark(project: Project, here: "subprocess.Popen[str]", *, runs: int) -> int:
    """Until the pipeline's code runs for the so-many-th time; returns its JVM."""
    wait_for(
        lambda: here.poll() is not None or len(list(project.folder.glob("sleeping.*"))) >= runs,
        f"the pipeline's code has begun {runs} times", seconds=90,
    )  # fmt: skip
    assert here.poll() is None, here.communicate()
    jvm = find_jvm(here.pid)
    assert jvm is not None
    return jvm


@pytest.mark.usefixtures("own_driver")
def test_a_killed_jvm_and_a_killed_worker_take_only_their_chunk_with_them(sqlite_project: Project) -> None:
    project = sqlite_project
    extract_add_up_load(project)
    asleep = project.folder / "sleep"
    asleep.touch()
    with worker(project) as here:
        jvm = wait_for_spark(project, here, runs=2)
        wait_for(lambda: job_status(project, "extract") == dict.fromkeys(CHUNKS, "COMPLETE"), "scripts go on beside it")
        os.kill(jvm, signal.SIGKILL)
        other = wait_for_spark(project, here, runs=3)
        assert other != jvm
        assert set(column(project, "deaths").values()) == {0}, "nobody is blamed"
        handed_back = project.sql("SELECT message FROM run WHERE jobid = 'add_up' AND status <> 'RUNNING'")
        told = "Spark's Java process was killed by signal 9 while 2 runs used it; each is repeated alone"
        assert handed_back == [(told,), (told,)]
        assert len(list(project.folder.glob("sleeping.*"))) == 3, "one at a time now"
        here.kill()
        assert end_of(here)[0] == -signal.SIGKILL
        wait_until_gone(project, seconds=60)  # nobody adds up for a worker that is gone
    with worker(project) as here:
        wait_for_spark(project, here, runs=4)
        asleep.unlink()
        wait_for(
            lambda: job_status(project, "load") == dict.fromkeys(CHUNKS, "COMPLETE") or here.poll() is not None,
            "all is loaded", seconds=60,
        )  # fmt: skip
        here.terminate()
        code, _, err = end_of(here)
        assert code == 0, err
    assert states(project) == dict.fromkeys(CHUNKS, "COMPLETE")
    assert chunks(project) == expected([1, 2, 3])
    for made in ("orders", "totals", "loaded"):
        assert publishes(project, made) == dict.fromkeys(CHUNKS, 1), made
    assert job_status(project, "extract") == dict.fromkeys(CHUNKS, "COMPLETE")
    assert processes_of(project) == []


# Heap is exhausted by the first chunk while the second one runs beside it.
EXHAUSTS = """\
import os
import time


def run(df):
    open(f"sleeping.{os.environ['DATAFLOW_RUN_ID']}", "w").close()
    jvm = df.sparkSession._jvm
    if os.environ["dataid"] == "1":
        while not os.path.exists("exhaust"):
            time.sleep(0.1)
        kept = jvm.java.util.ArrayList()
        while True:
            kept.add(jvm.java.nio.ByteBuffer.allocate(64 << 20))
    while not os.path.exists("exhaust") and not os.path.exists("alone"):
        time.sleep(0.1)
        jvm.java.lang.System.nanoTime()
    return df
"""
OUT_OF_MEMORY = "Spark's Java process ran out of memory; raise `spark.driver.memory`"


@pytest.mark.usefixtures("own_driver")
def test_a_chunk_that_exhausts_the_drivers_memory_dies_alone_and_its_neighbour_is_not_blamed(
    sqlite_project: Project,
) -> None:
    project = sqlite_project
    pipeline(project, EXHAUSTS, chunks=2)
    project.apply(
        (project.folder / "project.yml").read_text().replace("  conf:\n", "  conf:\n    spark.driver.memory: 512m\n")
    )
    with worker(project) as here:
        wait_for_spark(project, here, runs=2)
        (project.folder / "exhaust").touch()
        wait_for(lambda: set(states(project).values()) == {"FAILED", "COMPLETE"}, "both have ended", seconds=120)
        here.terminate()
        end_of(here)
    assert states(project) == {"1": "FAILED", "2": "COMPLETE"}
    assert column(project, "deaths") == {"1": 3, "2": 0}
    handed_back = f"{OUT_OF_MEMORY} while 2 runs used it; each is repeated alone"
    assert messages(project, "1") == [
        handed_back,
        f"{OUT_OF_MEMORY}; death 1 of 3 in a row, will be tried again",
        f"{OUT_OF_MEMORY}; death 2 of 3 in a row, will be tried again",
        f"{OUT_OF_MEMORY}; died 3 times in a row",
    ]
    waited = "the keeper of Spark ended before the run was attached"  # by the other one, while this one waited
    assert [told for told in messages(project, "2") if told != waited] == [handed_back, ""]


# The code kills the keeper, which is the parent of the driver.
KILLS_KEEPER = """\
import os
import time


def run(df):
    jvm = df.sparkSession._jvm.java.lang.ProcessHandle.current().pid()
    with open(f"/proc/{jvm}/stat") as file:
        os.kill(int(file.read().rpartition(")")[2].split()[1]), 9)
    time.sleep(60)
    return df
"""


@pytest.mark.usefixtures("own_driver")
def test_a_chunk_that_kills_the_keeper_each_time_fails_in_the_end(sqlite_project: Project) -> None:
    project = pipeline(sqlite_project, KILLS_KEEPER, chunks=1)
    few = [f"execution.{module}.MAX_HAND_BACKS = 1" for module in ("exit_audit", "pipeline")]
    done = project.run(*with_settings(DATAFLOW, *few), "run", "add_up", "--drain", timeout=240)
    assert done.returncode != 0
    assert states(project) == {"1": "FAILED"}, done.stderr
    killed = "the keeper of Spark was killed"
    assert [told.partition(";")[0] for told in messages(project, "1")] == [killed] * 6
    assert column(project, "deaths") == {"1": 3}


MISSES = """\
import os


def run(df):
    if os.environ["dataid"] != "1":
        open("no such file")
    return df
"""


@pytest.mark.usefixtures("own_driver")
def test_an_oserror_of_the_code_costs_no_time(sqlite_project: Project) -> None:
    project = pipeline(sqlite_project, MISSES, chunks=2)
    project.run(DATAFLOW, "run", "add_up", "--drain", timeout=120)
    assert states(project) == {"1": "COMPLETE", "2": "FAILED"}
    begun, ended = project.sql("SELECT julianday(claimed_at), julianday(ended_at) FROM run WHERE dataid = '2'")[0]
    assert (ended - begun) * 86_400 < 13.0
