"""Chunks that share a process, and code that behaves badly in it: who is blamed, who goes on, and what is said.

Each Spark takes seconds to start: a test here tells a whole story. An abort in a shared job only in `make faults`.
"""

import contextlib
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opendataflow.execution.recover import recover_lost_runs
from opendataflow.store import open_store
from support.jobs import end_of, processes_of, publishes, runs, wait_until_gone
from support.pipelines import (
    SLEEPS,
    SLUG,
    STEP,
    TOGETHER,
    TWICE,
    chunks,
    column,
    drain,
    draining,
    expected,
    find_child,
    left_behind,
    messages,
    pipeline,
    states,
    visible,
    wait_until_asleep,
)
from support.processes import wait_for
from support.projects import Project


def heal(project: Project, code: str = TWICE) -> None:
    """The code is mended, all that failed is resubmitted and drained."""
    project.write(STEP, code)
    assert project.dataflow("resubmit", "--failed").returncode == 0
    healed = drain(project)
    assert healed.returncode == 0, healed.stderr
    assert set(states(project).values()) == {"COMPLETE"}
    assert left_behind(project) == []
    wait_until_gone(project)


# One chunk kills the child --------------------------------------------------------------------------------------------
# By a value in the data, in the midst of a Spark job that all chunks share.
KILLS_JVM = """\
import os

from pyspark.sql import functions as F


@F.udf("int")
def twice(amount):
    if amount == 40:
        daemon = os.getppid()
        with open(f"/proc/{daemon}/stat") as file:
            os.kill(int(file.read().rpartition(") ")[2].split()[1]), 9)
    return amount * 2


def run(df):
    return df.withColumn("twice", twice("amount"))
"""


EVERY_FAULT = "DATAFLOW_EVERY_FAULT" in os.environ  # `make faults`


def test_the_chunk_that_kills_spark_is_found_and_nobody_else_is_blamed(sqlite_project: Project) -> None:
    project = pipeline(sqlite_project, KILLS_JVM, settings=TOGETHER.format(4))
    done = drain(project)
    assert done.returncode != 0
    assert states(project) == {"1": "COMPLETE", "2": "COMPLETE", "3": "COMPLETE", "4": "FAILED"}, done.stderr
    assert column(project, "deaths") == {"1": 0, "2": 0, "3": 0, "4": 3}
    assert column(project, "attempts") == {"1": 1, "2": 1, "3": 1, "4": 1}
    given_back, *deaths = messages(project, "4")
    assert given_back == ("Spark's Java process was killed by signal 9 while 4 runs used it; each is repeated alone")
    assert [told.partition(";")[0] for told in deaths] == ["Spark's Java process was killed by signal 9"] * 3, deaths
    assert "died 3 times in a row" in deaths[-1]
    assert messages(project, "3") == [given_back, ""]
    assert chunks(project) == expected([1, 2, 3])
    assert publishes(project, "totals") == {"1": 1, "2": 1, "3": 1}
    assert left_behind(project) == []
    wait_until_gone(project)


# It never ends --------------------------------------------------------------------------------------------------------
# The second one goes on for ever.
HANGS = """\
import os
import time

from pyspark.sql import functions as F


def run(df):
    dataid = os.environ["dataid"]
    for number in range(1, 21):
        print("chunk", dataid, "line", number)
    while dataid == "2":
        time.sleep(0.1)
    return df.withColumn("twice", F.col("amount") * 2)
"""


def test_a_chunk_that_never_ends_is_ended_alone_and_every_chunk_has_its_own_output(sqlite_project: Project) -> None:
    project = pipeline(sqlite_project, HANGS, settings="timeout: 20s")
    done = drain(project)
    assert done.returncode == 1, done.stderr
    assert states(project) == {"1": "COMPLETE", "2": "FAILED", "3": "COMPLETE", "4": "COMPLETE"}
    assert messages(project, "2")[-1] == "it ran longer than its timeout of 20 s and was ended"
    assert chunks(project) == expected([1, 3, 4])
    for dataid in ("1", "2"):
        log = project.dataflow("logs", SLUG, dataid)
        own = "".join(f"chunk {dataid} line {number}\n" for number in range(1, 21))
        assert log.stdout == own
    runid, *_ = next(row for row in runs(project, "runid, dataid, status", SLUG) if row[1:] == ("1", "COMPLETE"))
    shown = project.dataflow("transformations", "--run", str(runid)).stdout
    assert "chunk 1 line 20" in shown
    assert "chunk 2" not in shown


# A person wants one of them ended -------------------------------------------------------------------------------------
if EVERY_FAULT:

    def test_an_abort_fails_the_one_that_was_meant_and_the_others_of_the_child_run_again(
        sqlite_project: Project,
    ) -> None:
        settings = f"{TOGETHER.format(2)}\n    retries: {{max: 5, backoff: 0.1s}}"
        project = pipeline(sqlite_project, SLEEPS, settings=settings)
        sleep = project.write("sleep", "")
        with draining(project) as runner:
            wait_until_asleep(project, runner)
            assert states(project) == {"1": "RUNNING", "2": "RUNNING", "3": "PENDING", "4": "PENDING"}
            done = project.dataflow("abort", SLUG, "1", "--wait", "60")
            assert done.returncode == 0, done.stderr
            assert states(project)["1"] == "FAILED"
            sleep.unlink()
            code, _, told = end_of(runner)
        assert code == 1, told
        assert states(project) == {"1": "FAILED", "2": "COMPLETE", "3": "COMPLETE", "4": "COMPLETE"}
        assert [text.startswith("aborted by ") for text in messages(project, "1")] == [True]
        assert column(project, "attempts")["2"] == 1  # what was ended with it is no attempt of its own
        assert set(column(project, "deaths").values()) == {0}
        assert chunks(project) == expected([2, 3, 4])
        assert left_behind(project) == []
        wait_until_gone(project)
        heal(project)
        assert chunks(project) == expected([1, 2, 3, 4])


# The runner is told to stop, or loses a lease -------------------------------------------------------------------------
def test_a_runner_that_is_stopped_or_loses_a_lease_gives_back_what_it_has(sqlite_project: Project) -> None:
    project = pipeline(sqlite_project, SLEEPS, settings=f"{TOGETHER.format(3)}\n    lease: 6s")
    sleep = project.write("sleep", "")

    with draining(project) as runner:  # told to stop: all is handed back
        wait_until_asleep(project, runner)
        runner.terminate()
        code, _, told = end_of(runner)
    assert code == 128 + signal.SIGTERM, told
    assert states(project) == {"1": "RESUBMIT", "2": "RESUBMIT", "3": "RESUBMIT", "4": "PENDING"}
    assert set(column(project, "attempts").values()) == {0}
    wait_until_gone(project)

    if EVERY_FAULT:
        one_is_taken_away(project)

    with draining(project) as stale:  # held up past its leases, while others do the work
        wait_until_asleep(project, stale)
        stop_between_writes(project, stale)
        wait_for(lambda: find_child(stale.pid) is None, "the guard has ended its child", seconds=60)
        sleep.unlink()
        done = drain(project)
        assert done.returncode == 0, done.stderr
        before = runs(project, "*", SLUG), chunks(project), publishes(project, "totals")
        stale.send_signal(signal.SIGCONT)
        code, _, told = end_of(stale)
    assert code == 5, told
    assert (runs(project, "*", SLUG), chunks(project), publishes(project, "totals")) == before
    assert chunks(project) == expected([1, 2, 3, 4])
    assert set(publishes(project, "totals").values()) == {1}
    assert left_behind(project) == []

    if EVERY_FAULT:
        sleep.touch()
        interrupted_by_a_person(project)


def one_is_taken_away(project: Project) -> None:
    with draining(project) as runner:  # another host takes one of them
        wait_until_asleep(project, runner)
        take_away(project, "2")
        code, _, told = end_of(runner)
    assert "LEASE_LOST" in told
    assert code == 5, told
    assert states(project) == {"1": "RESUBMIT", "2": "RESUBMIT", "3": "RESUBMIT", "4": "PENDING"}
    assert messages(project, "3")[-1] == "its process was ended because of another run"
    assert set(column(project, "deaths").values()) == {0}
    wait_until_gone(project)


def interrupted_by_a_person(project: Project) -> None:
    assert project.dataflow("resubmit", SLUG, "1", "2", "3").returncode == 0
    with draining(project) as runner:  # interrupted by a person
        wait_until_asleep(project, runner)
        runner.send_signal(signal.SIGINT)
        code, _, told = end_of(runner)
    assert code == 128 + signal.SIGINT, told
    assert states(project) == {"1": "FAILED", "2": "FAILED", "3": "FAILED", "4": "COMPLETE"}
    assert {messages(project, dataid)[-1] for dataid in "123"} == {"interrupted by a person"}
    assert processes_of(project) == []


def stop_between_writes(project: Project, process: "subprocess.Popen[str]") -> None:
    """SIGSTOP, but not while it holds SQLite's lock: then nobody could write, which is another story."""
    while True:
        process.send_signal(signal.SIGSTOP)
        with contextlib.closing(sqlite3.connect(project.store.removeprefix("sqlite:///"), timeout=0.2)) as store:
            try:
                store.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:
                process.send_signal(signal.SIGCONT)
                time.sleep(0.05)


def take_away(project: Project, dataid: str) -> None:
    """Let the lease of this dataid be over, and another host see it first."""
    store = open_store(project.store, actor="elsewhere", environment="dev")
    give_up = time.monotonic() + 10
    while True:
        project.sql(f"UPDATE job_status SET lease_until = '2025-01-01T00:00:00.000Z' WHERE dataid = '{dataid}'")
        if recover_lost_runs(store, host="elsewhere", say=print, own_host_too=False):
            break
        assert time.monotonic() < give_up
    store.close()


# How the code ends ----------------------------------------------------------------------------------------------------
ENDS = """\
import asyncio
import os
import signal
import sys

from pyspark.sql import functions as F


def run(df):
    match os.environ["dataid"]:
        case "1":
            os._exit(3)
        case "2":
            df.sparkSession._jvm.System.exit(5)
        case "3":
            sys.exit("enough")
        case "4":
            raise ValueError("no amount")
        case "5":
            return None
        case "6":
            raise asyncio.CancelledError
        case "7":
            if os.fork() == 0:
                sys.exit(2)
            os.wait()
        case "8" if not os.path.exists("killed"):
            open("killed", "w").close()
            context = df.sparkSession.sparkContext
            os.kill(context._jvm.java.lang.ProcessHandle.current().pid(), signal.SIGTERM)
            while not context._jsc.sc().isStopped():
                pass
        case "9":
            df.sparkSession.sparkContext.stop()
    return df.withColumn("twice", F.col("amount") * 2)
"""


@pytest.mark.usefixtures("own_driver")
def test_however_the_code_ends_it_is_told_in_a_sentence_and_resubmit_heals(sqlite_project: Project) -> None:
    project = pipeline(sqlite_project, ENDS, chunks=9, settings="")
    done = drain(project)
    assert done.returncode == 1, done.stderr
    told = {dataid: messages(project, dataid) for dataid in states(project)}
    assert told == {
        "1": ["it exited 3"],
        "2": [
            f"Spark's Java process ended by itself with exit code 5; {note}"
            for note in (
                "death 1 of 3 in a row, will be tried again",
                "death 2 of 3 in a row, will be tried again",
                "died 3 times in a row",
            )
        ],
        "3": [f"{STEP}:16: the code ended its interpreter: sys.exit('enough')"],
        "4": [f"{STEP}:18: ValueError: no amount"],
        "5": [f"{STEP}:9: `run` returned None; end it with `return df`"],
        "6": [f"{STEP}:22: CancelledError"],
        "7": [""],
        "8": ["Spark's Java process was killed by signal 15; death 1 of 3 in a row, will be tried again", ""],
        "9": [""],  # spark.stop() does nothing but warn
    }
    assert [dataid for dataid, status in states(project).items() if status == "COMPLETE"] == ["7", "8", "9"]
    assert chunks(project) == expected([7, 8, 9])
    heal(project)
    assert chunks(project) == expected(range(1, 10))
    assert (project.folder / "data/totals.csv").read_text().count("\n") == 1 + 2 * 9


PANDAS = """\
import ctypes
import os
import sys
import time

import pandas as pd


def run(df):
    match os.environ["dataid"]:
        case "2":
            ctypes.string_at(0)
        case "3":
            time.sleep(3600)
        case "4":
            sys.exit(4)
    df["twice"] = df["amount"] * 2
    return df
"""


def test_a_pandas_chunk_that_crashes_hangs_or_exits_fails_alone(sqlite_project: Project) -> None:
    project = pipeline(sqlite_project, PANDAS, chunks=6, settings="chunks_per_job: 6\n    timeout: 5s")
    done = drain(project)
    assert done.returncode == 1, done.stderr
    assert {dataid: messages(project, dataid) for dataid in states(project)} == {
        "1": [""],
        "2": [f"{STEP}:12: its process was ended by SIGSEGV"],
        "3": [f"{STEP}:14: not done after 5 s, and ended"],
        "4": [f"{STEP}:16: the code ended its interpreter: sys.exit(4)"],
        "5": [""],
        "6": [""],
    }
    assert chunks(project) == expected([1, 5, 6])
    assert left_behind(project) == []
    wait_until_gone(project)


# No room --------------------------------------------------------------------------------------------------------------
MANY = """\
from pyspark.sql import functions as F


def run(df):
    row = F.explode(F.sequence(F.lit(1), F.lit(20000)))
    return df.withColumn("twice", F.col("amount") * 2).withColumn("row", row)
"""


@pytest.fixture
def tiny_disk(sqlite_project: Project) -> Iterator[Path]:
    folder = sqlite_project.folder / "data" / "totals"
    folder.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_fails_the_run_with_the_place_and_more_room_heals_it(
    sqlite_project: Project, tiny_disk: Path
) -> None:
    project = pipeline(sqlite_project, MANY, chunks=2, path="totals, format: csv")
    done = drain(project)
    assert done.returncode == 1, done.stderr
    assert states(project) == {"1": "FAILED", "2": "FAILED"}
    for dataid in states(project):
        place = f"{tiny_disk}/dataid={dataid}/_runs/"
        assert messages(project, dataid)[-1].startswith(f"totals: no space left on device while writing {place}")
    assert (chunks(project), visible(project)) == ({}, set())
    subprocess.run(["mount", "-o", "remount,size=16m", str(tiny_disk)], check=True)
    heal(project, MANY)
    assert {dataid: text.count("\n") for dataid, text in chunks(project).items()} == {"1": 40001, "2": 40001}
    assert os.path.islink(tiny_disk / "dataid=1" / "current")
