"""A Spark job ends with its run, however the run ends: nothing goes on in the driver for a run that is over."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from support.drivers import keepers
from support.jobs import end_of, publishes
from support.keepers import Client
from support.pipelines import (
    SLOW,
    SLUG,
    STEP,
    chunks,
    drain,
    draining,
    expected,
    find_child,
    messages,
    pipeline,
    states,
)
from support.processes import wait_for
from support.projects import Project

SETTINGS = "lease: 10s\n    timeout: {}"
HOURS, SHORT = "2h", "5s"
# Each line asked for is answered with the Spark jobs that go on in the driver.
LOOKS = """
tracker = spark.sparkContext._jsc.statusTracker()
while True:
    wait()
    tell(jobs=list(tracker.getActiveJobIds()))
"""
LONG = 2.0  # seconds; small jobs, such as a look at a file, come before the one that goes on for hours

Jobs = Callable[[], list[int]]


@contextlib.contextmanager
def spark_jobs() -> Iterator[Jobs]:
    """Tells the jobs of the driver that is kept warm, from a run of its own."""
    (keeper,) = keepers()
    with Client({"master": "local[2]"}, LOOKS, run="look", identity="look", folder=keeper["folder"]) as observer:
        observer.hear("attached")

        def look() -> list[int]:
            observer.go_on()
            return list(observer.hear("jobs")["jobs"])

        yield look


def is_busy(jobs: Jobs) -> bool:
    before = jobs()
    if before:
        time.sleep(LONG)
    return bool(before) and jobs() == before


@contextlib.contextmanager
def working(project: Project, jobs: Jobs) -> Iterator["subprocess.Popen[str]"]:
    """A drain whose first chunk is in the midst of its Spark job."""
    with draining(project) as runner:
        wait_for(lambda: is_busy(jobs) or runner.poll() is not None, "a Spark job goes on", seconds=90)
        assert runner.poll() is None, runner.communicate()
        yield runner


def assert_ended(jobs: Jobs) -> None:
    # On a machine with nothing else to do it takes a second or two; the promise is five.
    wait_for(lambda: not jobs(), "no Spark job goes on", seconds=30)


def set_timeout(project: Project, before: str, after: str) -> None:
    text = (project.folder / "project.yml").read_text()
    assert f"timeout: {before}" in text
    project.apply(text.replace(f"timeout: {before}", f"timeout: {after}"))


def is_complete(project: Project) -> bool:
    return states(project) == dict.fromkeys(["1", "2", "3"], "COMPLETE")


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("own_driver")
def test_a_run_that_is_aborted_times_out_or_loses_its_lease_leaves_no_spark_job(sqlite_project: Project) -> None:
    project = pipeline(sqlite_project, SLOW, chunks=3, settings=SETTINGS.format(HOURS))
    assert project.dataflow("run", SLUG, "--dataid", "3", timeout=180).returncode == 0  # starts the driver
    slow = project.write(f"{STEP.rpartition('/')[0]}/slow", "")
    with spark_jobs() as jobs:
        with working(project, jobs) as runner:
            assert project.dataflow("abort", SLUG, "1", "--wait", "60").returncode == 0
            assert_ended(jobs)
            assert messages(project, "1")[-1].startswith("aborted by ")
            wait_for(lambda: is_busy(jobs), "the next chunk has begun", seconds=90)
            runner.kill()  # its guard notices
            assert_ended(jobs)
            end_of(runner)

        set_timeout(project, HOURS, SHORT)
        with working(project, jobs) as runner:
            child = find_child(runner.pid)
            assert child is not None
            os.kill(child, signal.SIGSTOP)  # it cannot end itself, nor say that it should be ended
            assert_ended(jobs)
            end_of(runner)
        assert "longer than its timeout of 5 s" in messages(project, "2")[-1]
        set_timeout(project, SHORT, HOURS)

        assert project.dataflow("resubmit", SLUG, "1", "2").returncode == 0
        with working(project, jobs) as runner:
            runner.send_signal(signal.SIGSTOP)
            assert_ended(jobs)  # the guard has ended the child before anybody else could begin
            slow.unlink()
            wait_for(lambda: drain(project).returncode == 0 and is_complete(project), "its lease is over")
            runner.send_signal(signal.SIGCONT)
            code, _, told = end_of(runner)
            assert code in (0, 5), told
    assert is_complete(project)
    assert chunks(project) == expected([1, 2, 3])
    assert publishes(project, "totals") == dict.fromkeys(["1", "2", "3"], 1)
