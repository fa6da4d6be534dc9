"""Limits, pauses and workers through the real commands."""

import datetime
import json

import pytest

from support.chain import made_chain
from support.jobs import end_of
from support.processes import wait_for
from support.projects import DATAFLOW, Project


@pytest.fixture
def chain(project: Project) -> Project:
    return made_chain(project)


def told(project: Project, *argv: str) -> str:
    done = project.dataflow(*argv)
    assert done.returncode == 0, done.stderr
    return done.stderr


def refused(project: Project, *argv: str) -> str:
    done = project.dataflow(*argv)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_a_job_is_scaled_while_it_runs_and_why_says_so(chain: Project) -> None:
    assert told(chain, "scale", "first", "1", "--reason", "a slow disk") == "first: at most 1 at once; 0 running now\n"
    copy = 'cp "$feed_location" "$mid_location"'
    chain.script("jobs/first.sh", f'while [ -e "wait.$dataid" ]; do sleep 0.02; done; {copy}')
    (chain.folder / "wait.1").touch()
    running = chain.start(DATAFLOW, "run", "first", "--dataid", "1")
    wait_for(lambda: [one["running"] for one in chain.json("scale", "first")] == [1], "the run to begin")
    second = chain.dataflow("run", "first", "--dataid", "2")
    assert second.returncode == 14
    assert "1 runs of first are live and its limit is 1, scaled by" in second.stderr
    why = chain.dataflow("why", "first", "2")
    assert "a slow disk" in why.stdout
    assert told(chain, "scale", "first", "2") == "first: at most 2 at once; 1 running now\n"
    assert chain.dataflow("run", "first", "--dataid", "2").returncode == 0
    (chain.folder / "wait.1").unlink()
    assert end_of(running)[0] == 0
    assert told(chain, "scale", "first", "default") == "first: no limit; 0 running now\n"
    listed = chain.json("scale")
    assert [one["job"] for one in listed][:2] == ["first", "second"]
    assert set(listed[0]) == {"job", "project", "declared", "scaled", "braked", "limit", "running", "paused"}
    assert "first" in chain.dataflow("scale").stdout


def test_a_pause_has_an_end_and_a_reason(sqlite_project: Project) -> None:
    chain = made_chain(sqlite_project)
    assert "first is paused until 20" in told(chain, "pause", "first", "--until", "2h", "--reason", "rebuild")
    waits = chain.dataflow("run", "first")
    assert waits.returncode == 14
    assert "first is held by" in waits.stderr
    assert "rebuild until 20" in waits.stderr
    told(chain, "pause", "all", "--until", "23:59")
    assert told(chain, "resume", "first").startswith("first goes on\nbut everything is paused by ")
    both = chain.dataflow("run", "first")
    assert (both.returncode, "everything is paused by" in both.stderr) == (14, True)
    assert "everything is paused" in chain.dataflow("scale").stderr
    assert {str(row["paused"]).partition(" by ")[0] for row in chain.json("scale")} == {"everything,"}
    why = chain.dataflow("why").stdout
    assert "PAUSED  everything/all: nothing is started: paused by" in why
    assert "next: `dataflow resume all`" in why
    assert told(chain, "resume", "all") == "everything goes on\n"
    assert told(chain, "resume", "all") == "everything was not paused\n"
    assert chain.dataflow("run", "first").returncode == 0
    told(chain, "hold", "first")
    assert told(chain, "resume", "first") == "first goes on\n"


def test_a_pause_of_everything_is_seen_wherever_somebody_looks(chain: Project) -> None:
    told(chain, "pause", "all", "--until", "2h", "--reason", "rebuild")
    status = chain.dataflow("status").stdout.splitlines()[0]
    assert status.startswith("everything is paused by ")
    assert "rebuild until 20" in status
    assert "`dataflow resume all` ends it" in status
    shown = chain.json("status")
    assert (shown["paused_by"].endswith(": rebuild"), shown["paused_until"][:2]) == (True, "20")
    assert "everything is paused by" in told(chain, "status", "first")
    for options in ((), ("--dry-run",), ("--json",)):
        assert "everything is paused by" in told(chain, "tick", *options)
    plan = chain.dataflow("plan", "first").stdout
    assert "nothing starts: everything is paused by" in plan
    assert "rebuild until 20" in plan
    assert chain.json("plan", "first")["paused"] == "all"
    (cause,) = chain.json("why")
    assert (cause["cause"], cause["blocks"], cause["jobs"]) == ("PAUSED", 6, ["first", "second"])
    told(chain, "resume", "all")
    told(chain, "pause", "first", "--until", "2h")
    assert "nothing starts: the job is held by" in chain.dataflow("plan", "first").stdout
    assert chain.json("status")["paused_by"] is None
    assert "paused" not in told(chain, "tick")


def test_a_limit_of_0_says_what_lets_it_go_on(sqlite_project: Project) -> None:
    chain = made_chain(sqlite_project)
    assert chain.dataflow("run", "first", "--dataid", "1").returncode == 0
    told(chain, "scale", "first", "0")
    plan = chain.dataflow("plan", "first").stdout
    assert "first: 2 are ready to run, first 2, 3\n" in plan
    assert "nothing starts: the limit of first is 0; `dataflow scale first N` lets it go on" in plan
    assert "The last run: " in plan
    assert "not known" not in plan
    why = chain.dataflow("why")
    assert "LIMIT  first/all: nothing is started: the limit of first is 0" in why.stdout
    assert "blocks 4 dataids of first, second" in why.stdout
    assert "next: `dataflow scale first N`" in why.stdout
    assert "1 cause, 4 dataids blocked by it" in why.stderr
    assert chain.json("why", "first", "2")["fix"] == "nothing starts at a limit of 0: `dataflow scale first 1`"
    told(chain, "scale", "first", "1")
    assert "With 1 slot (no worker is live; see --slots): about" in chain.dataflow("plan", "first").stdout


def test_a_run_too_short_to_measure_is_an_estimate_too(sqlite_project: Project) -> None:
    chain = made_chain(sqlite_project)
    assert chain.dataflow("run", "first", "--dataid", "1").returncode == 0
    chain.sql("UPDATE run SET ended_at = claimed_at")
    plan = chain.dataflow("plan", "first").stdout
    assert "The last run: 0 ms in the middle, nine of ten within 0 ms" in plan
    assert "With 1 slot (no worker is live; see --slots): about 0 ms for what is ready now" in plan


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (("scale", "first", "many"), "'many' is no limit; give a number from 0 to 1,000,000, or `default`"),
        (("scale", "first", "-1"), "'-1' is no limit; give a number from 0"),
        (("scale", "first", "9" * 20), "is no limit; give a number from 0 to 1,000,000"),
        (("scale", "nobody", "2"), "job 'nobody' is not registered"),
        (("scale", "connection:nowhere", "2"), "no job uses a connection 'nowhere'"),
        (("scale", "nobody"), "there is no job or connection 'nobody'"),
        (("pause", "first", "--until", "soon"), "'soon' is not an end like 2h (from now), 06:30"),
        (("pause", "first", "--until", "2001-01-01"), "2001-01-01 is over already"),
        (("resume", "nobody"), "job 'nobody' is not registered"),
    ],
)
def test_what_makes_no_sense_is_said(sqlite_project: Project, argv: tuple[str, ...], word: str) -> None:
    assert word in refused(made_chain(sqlite_project), *argv)


def test_limits_declared_in_the_project_count(sqlite_project: Project) -> None:
    project = sqlite_project
    project.script("jobs/load.sh", "true")
    project.write(
        "project.yml",
        "name: P\nlimits: {db/dw: 0}\ndatasets:\n  dw: {hostname: db, database: dw, partitions: {shards: 1..2}}\n"
        "jobs:\n  load: {script: jobs/load.sh, outputs: [dw]}\n",
    )
    applied = project.dataflow("apply")
    assert "+ limit db/dw" in applied.stdout + applied.stderr
    done = project.dataflow("run", "load")
    assert done.returncode == 14, done.stderr
    assert "0 runs over the connection db/dw are live and its limit is 0" in done.stderr
    assert "next: `dataflow scale connection:db/dw N`" in project.dataflow("why").stdout
    assert project.json("plan", "load")["limited_by"] == "connection:db/dw"
    told(project, "scale", "connection:db/dw", "1")
    assert project.dataflow("run", "load").returncode == 0


def test_workers_are_shown(sqlite_project: Project) -> None:
    from opendataflow.domain.runs.run import Owner
    from opendataflow.store import open_store
    from opendataflow.store.records import workers

    made_chain(sqlite_project)
    assert "no worker has been here" in told(sqlite_project, "workers")
    store = open_store(sqlite_project.store, actor="test")
    workers.register_worker(store, Owner("anna@etl-3:7", "etl-3", 7, 1, 8, 1), slots=4, jobs=["first"])
    ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
    with store.transaction() as tx:
        tx._cursor.execute("UPDATE worker SET seen_at = ?", (ago.strftime("%Y-%m-%dT%H:%M:%S.000Z"),))
    workers.register_worker(store, Owner("carl@etl-4:7", "etl-4", 7, 1, 8, 1), slots=2)
    store.close()
    shown = sqlite_project.dataflow("workers").stdout.splitlines()
    assert [line.split()[-1] for line in shown if "etl-" in line] == ["gone", "all"]
    listed = json.loads(sqlite_project.dataflow("workers", "--json").stdout)
    assert [(one["name"], one["slots"], one["is_gone"]) for one in listed] == [
        ("anna@etl-3:7", 4, True), ("carl@etl-4:7", 2, False)
    ]  # fmt: skip


def test_a_limit_set_by_hand_lifts_the_brake_and_what_became_of_it_is_shown(sqlite_project: Project) -> None:
    chain = made_chain(sqlite_project)
    chain.sql("UPDATE job SET braked_to = 1 WHERE jobid = 'first'")
    assert (
        told(chain, "scale", "first", "7", "--reason", "the source is well")
        == "first: at most 7 at once; 0 running now\n"
    )
    shown = chain.dataflow("scale", "first").stdout
    assert "the source is well" in shown
    (row,) = chain.json("scale", "first")
    assert [(one["what"], one["was"], one["becomes"]) for one in row["changes"]] == [
        ("brake", "1", None), ("scale", None, "7"), ("brake", None, "1"),
    ]  # fmt: skip
