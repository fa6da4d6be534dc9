"""A pipeline's processes killed while it writes, audits and publishes: the usual call heals it, nothing is done twice.

Each Spark takes seconds to start: a test here tells a whole story.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opendataflow.faults import AFTER_PUBLISH, BEFORE_PUBLISH, CHILD_AUDITED, CHILD_WRITTEN
from support.jobs import end_of, publishes, runs, wait_until_gone
from support.pipelines import (
    SLEEPS,
    SLOW,
    SLUG,
    STEP,
    TWICE,
    Stops,
    chunks,
    drain,
    draining,
    expected,
    find_child,
    find_jvm,
    find_keeper,
    find_zygote,
    kill,
    left_behind,
    pipeline,
    states,
    visible,
    wait_until_asleep,
)
from support.postgres import postgres
from support.processes import wait_for
from support.projects import Project

CHUNKS = 10
# The first of them every time, beside a kill in the midst of a write; all of them by `make faults`.
POINTS = [
    ("DATAFLOW_FAULT_POINT", BEFORE_PUBLISH, find_keeper),
    ("DATAFLOW_CHILD_FAULT_POINT", CHILD_WRITTEN, find_jvm),
    ("DATAFLOW_CHILD_FAULT_POINT", CHILD_WRITTEN, find_keeper),
    ("DATAFLOW_CHILD_FAULT_POINT", CHILD_AUDITED, find_child),
    ("DATAFLOW_CHILD_FAULT_POINT", CHILD_AUDITED, find_zygote),
    ("DATAFLOW_FAULT_POINT", AFTER_PUBLISH, find_jvm),
]


@pytest.mark.timeout(600)  # it starts many Sparks
@pytest.mark.usefixtures("own_driver")
def test_killed_at_every_point_it_heals_to_what_an_undisturbed_run_makes(sqlite_project: Project) -> None:
    project = pipeline(sqlite_project, chunks=CHUNKS)
    _kill_while_it_writes(project)
    for variable, point, find in POINTS if "DATAFLOW_EVERY_FAULT" in os.environ else POINTS[:1]:
        _kill_at(project, Stops(project, variable, point), find)

    published = dict(publishes(project, "totals"))
    left = set(states(project).values())  # RUNNING, unless the supervisor had the time to hand it back
    assert left & {"RUNNING", "RESUBMIT"}, left
    healed = drain(project)
    assert healed.returncode == 0, healed.stderr
    assert ("was lost" in healed.stderr) == ("RUNNING" in left)
    assert set(states(project).values()) == {"COMPLETE"}
    assert chunks(project) == expected(range(1, CHUNKS + 1))
    assert (project.folder / "data/totals.csv").read_text().count("\n") == 1 + 2 * CHUNKS
    assert visible(project) == {"totals.csv"}
    assert publishes(project, "totals") == dict.fromkeys(states(project), 1)
    assert published.items() <= publishes(project, "totals").items()
    assert left_behind(project) == []
    wait_until_gone(project)
    again = project.dataflow("run", SLUG)
    assert (again.returncode, "caught up" in again.stderr) == (0, True)


def _kill_while_it_writes(project: Project) -> None:
    """The child and then the supervisor, in the midst of several writes."""
    project.write(STEP, SLOW)
    slow = project.write(f"{STEP.rpartition('/')[0]}/slow", "")
    with draining(project) as runner:
        before = _wait_until_it_writes(project, runner, set())
        kill(find_child, runner)
        _wait_until_it_writes(project, runner, before)
        _kill(project, runner)
    assert chunks(project) == {}
    slow.unlink()
    project.write(STEP, TWICE)


def _wait_until_it_writes(project: Project, runner: "subprocess.Popen[str]", before: set[Path]) -> set[Path]:
    def writes() -> set[Path]:
        try:
            return set(project.folder.glob("data/**/_temporary")) - before
        except FileNotFoundError:  # a folder went while it was looked into
            return set()

    wait_for(lambda: writes() or runner.poll() is not None, "a write has begun", seconds=90)
    assert runner.poll() is None, runner.communicate()
    return writes()


def _kill_at(project: Project, stops: Stops, find: Callable[[int], int | None]) -> None:
    """At this point the child or its JVM, and when another Spark is there too, the supervisor."""
    with draining(project, stops.env) as runner:
        stops.wait(runner)
        kill(find, runner)
        stops.let_go()
        stops.wait(runner)
        _kill(project, runner)
    stops.let_go()
    assert chunks(project).items() <= expected(range(1, CHUNKS + 1)).items(), "nothing half-written is visible"


def _kill(project: Project, runner: "subprocess.Popen[str]") -> None:
    runner.kill()
    assert end_of(runner)[0] == -signal.SIGKILL
    wait_until_gone(project)


def test_a_store_that_is_away_for_less_than_a_lease_ends_no_chunk(tmp_path: Path) -> None:
    with postgres() as server:
        project = Project(tmp_path / "project", server.new_database())
        pipeline(project, SLEEPS, chunks=2, settings="lease: 24s")
        sleep = project.write("sleep", "")
        with draining(project) as runner:
            wait_until_asleep(project, runner)
            server.halt("immediate")
            time.sleep(9)  # a third of the lease: somebody has asked the store by now
            assert runner.poll() is None, runner.communicate()
            server.start_again()
            sleep.unlink()
            code, _, told = end_of(runner)
        assert code == 0, told
        assert states(project) == {"1": "COMPLETE", "2": "COMPLETE"}
        assert runs(project, "dataid, status", SLUG) == [("1", "COMPLETE"), ("2", "COMPLETE")], "nothing was run twice"
        assert chunks(project) == expected([1, 2])
