"""Pipelines under a worker: beside its scripts, in a Spark of their own, whoever of them is killed."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

from support.jobs import end_of, job_status, processes_of, publishes, wait_until_gone
from support.pipelines import PROJECT, SLEEPS, STEP, chunks, column, expected, find_jvm, states
from support.processes import wait_for
from support.projects import DATAFLOW, Project

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


def test_a_killed_jvm_and_a_killed_worker_take_only_their_chunk_with_them(sqlite_project: Project) -> None:
    project = sqlite_project
    extract_add_up_load(project)
    asleep = project.folder / "sleep"
    asleep.touch()
    with worker(project) as here:
        jvm = wait_for_spark(project, here, runs=1)
        wait_for(lambda: job_status(project, "extract") == dict.fromkeys(CHUNKS, "COMPLETE"), "scripts go on beside it")
        os.kill(jvm, signal.SIGKILL)
        wait_for_spark(project, here, runs=2)
        assert column(project, "deaths")["1"] == 1
        here.kill()
        assert end_of(here)[0] == -signal.SIGKILL
        wait_until_gone(project, seconds=60)  # nobody adds up for a worker that is gone
    with worker(project) as here:
        wait_for_spark(project, here, runs=3)
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
