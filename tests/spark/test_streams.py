"""A stream with a real Spark: every accepted item exactly once in its destination, whoever is killed on the way.

Each Spark takes seconds to start: a test here tells a whole story.
"""

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opendataflow.faults import BEFORE_PUBLISH, CHILD_PUBLISHED, CHILD_STAGING
from support import clusters
from support.drivers import keepers
from support.jobs import publishes, wait_until_gone
from support.pipelines import Stops, find_child, find_jvm, kill
from support.processes import is_alive, wait_for
from support.projects import DATAFLOW, Project
from support.streams import SLUG, Stream, running

BAD = (13, 57)
HOUR = 3600.0
EVERY_FAULT = "DATAFLOW_EVERY_FAULT" in os.environ  # `make faults`: each death costs the start of another Spark


@pytest.mark.usefixtures("own_driver")
def test_every_item_is_published_once_though_driver_child_and_runner_are_killed(sqlite_project: Project) -> None:
    stream = Stream(sqlite_project)
    stream.send(60, bad=BAD, ago=3 * HOUR)
    stops = Stops(sqlite_project, "DATAFLOW_FAULT_POINT", BEFORE_PUBLISH)
    with running(stream, env=stops.env) as runner:
        _let_go_until(stops, stream, runner, 60)
        assert [row["id"] for row in stream.rows()] == stream.good
        assert {row["country"] for row in stream.rows()} == {"Norway"}
        _check_set_aside(stream)

        # The hour is over: one chunk of the destination. What is accepted in it later does not change it.
        _let_go_until_sealed(stops, stream)
        assert [row["id"] for row in stream.rows("leads")] == stream.good
        _pause_holds_it_and_resume_lets_it_go_on(stream, stops, runner, ago=3 * HOUR)

        # A static source has a new version: the next batch has it.
        stream.set_country("Noreg")
        stream.send(5)
        _let_go_until(stops, stream, runner, stream.durable)
        assert stream.rows()[-1]["country"] == "Noreg"

        # Between two batches the driver dies, then the child: the next batch gets new ones.
        for find in (find_jvm, find_child):
            kill(find, runner)
            stream.send(30)
            _let_go_until(stops, stream, runner, stream.durable)
        # The keeper ends when it is asked to, though the stream stays; its next batch starts another.
        assert stream.project.dataflow("spark", "stop").returncode == 0
        wait_for(lambda: keepers() == [], "the keeper has ended", seconds=60)
        stream.send(5)
        _let_go_until(stops, stream, runner, stream.durable)

        # The runner itself is killed between the audit and the publish.
        stream.send(20)
        stops.wait(runner)
        os.kill(runner.pid, signal.SIGKILL)
    stops.let_go()
    wait_until_gone(sqlite_project)
    assert set(publishes(sqlite_project, "leads_live").values()) == {1}
    _everything_is_made_again_and_a_file_comes_after_it(stream)
    _what_is_sealed_is_cleaned(stream)


def _everything_is_made_again_and_a_file_comes_after_it(stream: Stream) -> None:
    """By one Spark: the batch that was killed, all batches since four hours, the hours sealed of them, a sample."""
    project = stream.project
    assert project.dataflow("stream", "replay", SLUG, "--since", "4h", "--yes").returncode == 0
    first = len(stream.sent)
    project.write("sample.csv", f"email,id,city\nOne@x,{first},Oslo\nnobody,{first + 1},Oslo\nTwo@x,{first + 2},\n")
    done = project.dataflow("run", SLUG, "--stream", "sample.csv", timeout=180)
    assert done.returncode == 0, done.stderr
    assert f"{SLUG}-{first + 1} was set aside: " in done.stderr
    assert done.stderr.endswith("2 rows\n")
    stream.sent += [first, -1, first + 2]
    assert stream.committed == stream.durable == first + 3
    rows = stream.rows()
    assert [row["id"] for row in rows] == stream.good
    assert [row["country"] for row in rows] == ["Noreg"] * (len(rows) - 1) + [None]
    sealed = stream.rows("leads")
    assert [row["id"] for row in sealed] == stream.good[: len(sealed)]
    assert len(sealed) >= 60 - len(BAD)
    assert {row["country"] for row in sealed} == {"Noreg"}
    slots = dict(project.sql("SELECT start_offset, slot FROM stream_batch"))
    assert slots[0] == slots[40] < slots[60], "what was late is in the hour that was open by then"


def _what_is_sealed_is_cleaned(stream: Stream) -> None:
    project, sealed, end = stream.project, stream.rows("leads"), stream.committed
    (cleaned,) = project.json("clean", "--yes")["sealed_batches"]
    assert cleaned["batches"] >= 2
    live = stream.rows()
    assert [row["id"] for row in [*sealed, *live]][-len(live) :] == stream.good[-len(live) :]
    assert stream.rows("leads") == sealed
    assert len(sealed) + len(live) >= len(stream.good), "nothing is gone that is not sealed"
    assert stream.committed == end
    done = project.dataflow("stream", "replay", SLUG, "--since", "4h", "--yes")
    assert done.returncode == 2
    assert "what can be made again with item 60: `dataflow clean` removed the rest" in done.stderr


def test_a_worker_takes_a_folder_into_a_table_and_tries_again_what_failed(postgres_project: Project) -> None:
    """PostgreSQL as the store and as the target."""
    project = postgres_project
    stream = Stream(
        project, destination=f"url: '{project.store}', table: leads", source="from: {folder: incoming, format: csv}"
    )
    stream.send(10, bad=(4,), ago=3 * HOUR)
    file = project.write("data/incoming/a.csv", "id,email,city\n10,TEN@x,Oslo\nten,X@x,Oslo\n11,nobody,Oslo\n12,T@x,\n")
    os.utime(file, (1, 1))
    broken = project.write("broken", "")
    worker = project.start(DATAFLOW, "worker", "--once")
    wait_for(lambda: project.sql("SELECT 1 FROM run WHERE status = 'FAILED'") != [], "it fails", seconds=90)
    broken.unlink()
    _, said = worker.communicate(timeout=120)
    assert worker.returncode == 0, said  # the last attempt at each batch worked
    assert "FAILED, and is tried again in " in said
    assert "resubmit" not in said
    assert "a.csv line 3 is rejected: " in said
    rows = project.sql("SELECT id, email, country FROM leads ORDER BY id")
    assert [row[0] for row in rows] == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 12]
    assert rows[-2:] == [(10, "ten@x", "Norway"), (12, "t@x", None)]
    told = project.json("stream", "failed", SLUG)
    assert [(one["id"], one.get("file"), one.get("line")) for one in told] == [
        ("leads-4", None, None), ("leads-11", None, None), (None, "a.csv", 3),
    ]  # fmt: skip
    (status,) = project.json("stream", "status")
    assert (status["state"], status["accepted"], status["failed"], status["rejected"]) == ("STOPPED", 13, 2, 1)
    first = project.json("why", SLUG, "000000000000-000000000009")
    assert "items 0 to 9 are durable in " in first["answers"][0]["evidence"]
    # The hour is sealed by a record: its rows are in the table since their batch was published.
    assert project.sql("SELECT rows FROM data_manifest WHERE datasetid = 'leads'") == [(9,)]


@pytest.mark.timeout(400)
def test_a_batch_that_times_out_or_loses_its_lease_ends_with_its_child(sqlite_project: Project) -> None:
    project = sqlite_project
    stream = Stream(project, settings="lease: 10s\n    timeout: 20s")
    slow = project.folder / "slow"
    with running(stream) as runner:
        _hold_a_batch(stream)
        child = find_child(runner.pid)
        assert child is not None
        wait_for(lambda: project.sql("SELECT 1 FROM run WHERE status = 'FAILED'") != [], "it times out", seconds=120)
        slow.unlink()
        assert not is_alive(child)
        stream.wait_until_published(runner)
        _set_timeout(project, "20s", "2h")
    with running(stream) as runner:
        stream.send(5)
        stream.wait_until_published(runner)
        child = find_child(runner.pid)
        assert child is not None
        _hold_a_batch(stream)
        os.kill(runner.pid, signal.SIGSTOP)
        wait_for(lambda: not is_alive(child), "the guard ends the child at the end of the lease", seconds=60)
        slow.unlink()
        os.kill(runner.pid, signal.SIGCONT)
        stream.wait_until_published(runner)
    assert [row["id"] for row in stream.rows()] == stream.good
    assert set(publishes(project, "leads_live").values()) == {1}


def _set_timeout(project: Project, before: str, after: str) -> None:
    text = (project.folder / "project.yml").read_text()
    assert f"timeout: {before}" in text
    project.apply(text.replace(f"timeout: {before}", f"timeout: {after}"))


def _hold_a_batch(stream: Stream) -> None:
    """Until one is inside its transformation, for as long as the file `slow` is there."""
    held = stream.project.folder / "held"
    held.unlink(missing_ok=True)
    stream.project.write("slow", "")
    stream.send(5)
    wait_for(held.exists, "a batch is held up", seconds=90)


@pytest.mark.usefixtures("own_driver")
def test_a_stream_without_items_lets_the_driver_stop_and_the_next_item_starts_another(sqlite_project: Project) -> None:
    stream = Stream(sqlite_project, master="local[2]\n  idle: 2s")
    with running(stream) as runner:
        stream.send(5)
        stream.wait_until_published(runner)
        wait_for(lambda: keepers() == [], "the keeper has stopped", seconds=60)
        assert runner.poll() is None
        stream.send(5)
        stream.wait_until_published(runner)
    assert [row["id"] for row in stream.rows()] == stream.good


@pytest.mark.timeout(400)
def test_a_stream_on_spark_connect_has_a_child_for_each_batch(sqlite_project: Project, tmp_path: Path) -> None:
    with clusters.connect(tmp_path / "server") as server:
        stream = Stream(sqlite_project, master=server.master)
        stream.send(45, bad=(4,))
        done = sqlite_project.dataflow("run", SLUG, "--drain", timeout=240)
        assert done.returncode == 0, done.stderr
        assert [row["id"] for row in stream.rows()] == stream.good
        assert {row["country"] for row in stream.rows()} == {"Norway"}
        assert [one["offset"] for one in sqlite_project.json("stream", "failed", SLUG)] == [4]


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


def _let_go_until_sealed(stops: Stops, stream: Stream) -> None:
    def done() -> bool:
        stops.let_go()
        return stream.project.sql("SELECT 1 FROM datastatus WHERE datasetid = 'leads' AND status = 'READY'") != []

    wait_for(done, "the hour is sealed", seconds=60)


def _pause_holds_it_and_resume_lets_it_go_on(stream: Stream, stops: Stops, runner: object, *, ago: float) -> None:
    assert stream.project.dataflow("stream", "pause", SLUG).returncode == 0
    before = stream.committed
    stream.send(5, ago=ago)
    time.sleep(1.0)
    stops.let_go()
    assert stream.committed == before
    assert stream.project.dataflow("stream", "resume", SLUG).returncode == 0
    _let_go_until(stops, stream, runner, stream.durable)
