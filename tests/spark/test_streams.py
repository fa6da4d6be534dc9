"""A stream with a real Spark: every accepted item exactly once in its destination, whoever is killed on the way.

Each Spark takes seconds to start: a test here tells a whole story.
"""

import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable

import pytest

from opendataflow.faults import BEFORE_PUBLISH, CHILD_PUBLISHED, CHILD_STAGING
from support.jobs import publishes, wait_until_gone
from support.pipelines import Stops, find_child, find_jvm, kill
from support.processes import wait_for
from support.projects import Project
from support.streams import SLUG, Stream, running

BAD = (13, 57)
EVERY_FAULT = "DATAFLOW_EVERY_FAULT" in os.environ  # `make faults`: each death costs the start of another Spark


def test_every_item_is_published_once_though_the_checkpoint_is_lost_and_the_runner_is_killed(
    sqlite_project: Project,
) -> None:
    stream = Stream(sqlite_project)
    stream.send(60, bad=BAD)
    stops = Stops(sqlite_project, "DATAFLOW_FAULT_POINT", BEFORE_PUBLISH)
    with running(stream, env=stops.env) as runner:
        _let_go_until(stops, stream, runner, 60)
        assert [row["id"] for row in stream.rows()] == stream.good
        assert {row["country"] for row in stream.rows()} == {"Norway"}
        _check_set_aside(stream)

        _pause_holds_it_and_resume_lets_it_go_on(stream, stops, runner)

        # A static source has a new version: the next batch has it.
        stream.set_country("Noreg")
        stream.send(5)
        _let_go_until(stops, stream, runner, stream.durable)
        assert stream.rows()[-1]["country"] == "Noreg"

        # The checkpoint goes, and an old one comes back, in mid-run: the store decides.
        checkpoint = stream.folder / "checkpoint"
        stale = stream.folder / "stale"
        shutil.copytree(checkpoint, stale)
        shutil.rmtree(checkpoint)
        stream.send(30)
        _let_go_until(stops, stream, runner, stream.durable)
        shutil.rmtree(checkpoint, ignore_errors=True)
        shutil.copytree(stale, checkpoint)
        stream.send(30)
        _let_go_until(stops, stream, runner, stream.durable)

        # The runner itself is killed between the audit and the publish.
        stream.send(20)
        stops.wait(runner)
        os.kill(runner.pid, signal.SIGKILL)
    stops.let_go()
    wait_until_gone(sqlite_project)
    done = sqlite_project.dataflow("run", SLUG, "--drain", timeout=120)
    assert done.returncode == 0, done.stderr
    assert stream.committed == stream.durable
    assert [row["id"] for row in stream.rows()] == stream.good
    assert set(publishes(sqlite_project, "leads_live").values()) == {1}


KILLS = [
    pytest.param(CHILD_STAGING, find_child, id="nothing staged, child"),
    pytest.param(CHILD_PUBLISHED, find_child, id="published in the table, child"),
    pytest.param(CHILD_PUBLISHED, find_jvm, id="published in the table, JVM"),
    pytest.param(CHILD_PUBLISHED, None, id="published in the table, runner"),
]


if EVERY_FAULT:

    @pytest.mark.parametrize(("point", "find"), KILLS)
    def test_a_table_gets_every_item_once_whoever_is_killed_while_it_is_published(
        sqlite_project: Project, point: str, find: Callable[[int], int | None] | None
    ) -> None:
        target = sqlite_project.folder / "data/leads.db"
        stream = Stream(sqlite_project, destination="url: 'sqlite:///leads.db', table: leads")
        stream.send(30, bad=(4,))
        stops = Stops(sqlite_project, "DATAFLOW_CHILD_FAULT_POINT", point)
        with running(stream, env=stops.env) as runner:
            stops.wait(runner)
            if find is None:
                os.kill(runner.pid, signal.SIGKILL)
            else:
                kill(find, runner)
                stream.send(10)  # the range that was begun stays as it was
                _let_go_until(stops, stream, runner, 40)
        stops.let_go()
        wait_until_gone(sqlite_project)
        done = sqlite_project.dataflow("run", SLUG, "--drain", timeout=120)
        assert done.returncode == 0, done.stderr
        with sqlite3.connect(target) as connection:
            assert sorted(row[0] for row in connection.execute("SELECT id FROM leads")) == stream.good
        assert [one["offset"] for one in sqlite_project.json("stream", "failed", SLUG)] == [4]


def _let_go_until(stops: Stops, stream: Stream, runner: object, end: int) -> None:
    def done() -> bool:
        stops.let_go()
        return stream.committed >= end or runner.poll() is not None  # type: ignore[attr-defined]

    wait_for(done, f"{end} items are published", seconds=180)
    assert stream.committed >= end, runner.communicate()  # type: ignore[attr-defined]


def _check_set_aside(stream: Stream) -> None:
    failed = stream.project.json("stream", "failed", SLUG)
    assert sorted(one["offset"] for one in failed) == list(BAD)
    assert "no address: nobody 13" in failed[0]["error"]


def _pause_holds_it_and_resume_lets_it_go_on(stream: Stream, stops: Stops, runner: object) -> None:
    assert stream.project.dataflow("stream", "pause", SLUG).returncode == 0
    before = stream.committed
    stream.send(5)
    time.sleep(1.0)
    stops.let_go()
    assert stream.committed == before
    assert stream.project.dataflow("stream", "resume", SLUG).returncode == 0
    _let_go_until(stops, stream, runner, stream.durable)
