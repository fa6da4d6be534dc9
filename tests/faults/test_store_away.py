"""The database goes away: nothing is lost silently, nothing is done twice."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.jobs import end_of, job_status, lines, one_job, publishes, runs, start_and_wait_for, wait_until_gone
from support.postgres import Server, postgres
from support.processes import is_alive, wait_for
from support.projects import Project

BODY = 'echo "$DATAFLOW_RUN_ID" >> journal; echo $$ > pid; touch started; while [ ! -e go ]; do sleep 0.02; done'


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A PostgreSQL that only these tests stop and start."""
    with postgres() as server:
        yield server


@pytest.fixture
def away(own_server: Server, tmp_path: Path) -> Iterator[Project]:
    """A project over that server, which is there again when the test ends."""
    yield Project(tmp_path / "project", own_server.new_database())
    start_again(own_server)


def start_again(server: Server) -> None:
    if not (server.data / "postmaster.pid").exists():
        server.start_again()


def unreported(project: Project) -> list[Path]:
    return sorted((project.folder / ".dataflow/unreported").glob("*.json"))


def child_ended(project: Project) -> None:
    pid = int((project.folder / "pid").read_text())
    wait_for(lambda: not is_alive(pid), "the script has ended")


def test_an_end_during_a_restart_is_recorded_when_the_database_is_back_in_time(
    away: Project, own_server: Server
) -> None:
    script = one_job(away, BODY, settings="lease: 60s")
    runner = start_and_wait_for(away, away.folder / "started", script)
    own_server.halt("immediate")
    (away.folder / "go").touch()
    child_ended(away)
    own_server.start_again()
    code, _, err = end_of(runner)
    assert code == 0, err
    assert job_status(away) == {"1": "COMPLETE"}
    assert publishes(away, "out") == {"1": 1}
    assert unreported(away) == []


def test_a_script_goes_on_over_a_restart_that_is_shorter_than_its_lease(away: Project, own_server: Server) -> None:
    script = one_job(away, BODY, settings="lease: 9s")
    runner = start_and_wait_for(away, away.folder / "started", script)
    own_server.halt("immediate")
    own_server.start_again()
    [(lease,)] = away.sql("SELECT lease_until FROM job_status")
    wait_for(lambda: away.sql("SELECT lease_until FROM job_status")[0][0] > lease, "the lease is renewed again")
    (away.folder / "go").touch()
    code, _, err = end_of(runner)
    assert code == 0, err
    assert len(lines(away.folder / "journal")) == 1


def test_an_end_that_could_not_be_recorded_is_kept_and_reported_by_the_next_run(
    away: Project, own_server: Server
) -> None:
    script = one_job(away, BODY, settings="lease: 2s")
    runner = start_and_wait_for(away, away.folder / "started", script)
    own_server.halt("immediate")
    (away.folder / "go").touch()
    code, _, err = end_of(runner)
    assert code == 75
    assert "the next run here records it" in err
    [record] = unreported(away)
    assert str(record) in err
    assert record.stat().st_mode & 0o077 == 0
    still_away = away.runjob(script)
    assert still_away.returncode == 75
    assert unreported(away) == [record]
    own_server.start_again()
    assert job_status(away) == {"1": "RUNNING"}
    reported = away.runjob(script)
    assert reported.returncode == 0
    assert "of work/1 ended COMPLETE while the store was away; recorded now: COMPLETE" in reported.stderr
    assert job_status(away) == {"1": "COMPLETE"}
    assert publishes(away, "out") == {"1": 1}
    assert len(lines(away.folder / "journal")) == 1, "work that was done is not done again"
    assert unreported(away) == []
    assert "while the store was away" not in away.runjob(script).stderr, "it is said once"


def test_a_kept_end_whose_work_another_host_has_redone_changes_nothing(
    away: Project, own_server: Server, tmp_path: Path
) -> None:
    script = one_job(away, BODY, settings="lease: 2s")
    text = (away.folder / "project.yml").read_text()
    assert "./data" in text
    away.apply(text.replace("./data", str(away.folder / "data")))  # a folder that both hosts have
    runner = start_and_wait_for(away, away.folder / "started", script)
    own_server.halt("immediate")
    (away.folder / "go").touch()
    assert end_of(runner)[0] == 75
    own_server.start_again()
    elsewhere = Project(tmp_path / "other host", away.store)  # has no such record
    elsewhere.write("project.yml", (away.folder / "project.yml").read_text())
    (elsewhere.folder / "go").touch()
    taken = elsewhere.runjob(script)
    assert taken.returncode == 0, taken.stderr
    before = away.sql("SELECT * FROM history ORDER BY id"), runs(away, "*")
    late = away.runjob(script)
    assert late.returncode == 0
    assert "its lease was lost since" in late.stderr
    assert (away.sql("SELECT * FROM history ORDER BY id"), runs(away, "*")) == before
    assert publishes(away, "out") == {"1": 1}
    assert unreported(away) == []


def test_a_script_that_outlives_the_lease_of_a_cut_off_runner_is_ended(away: Project, own_server: Server) -> None:
    script = one_job(away, BODY, settings="lease: 2s")
    runner = start_and_wait_for(away, away.folder / "started", script)
    own_server.halt("immediate")
    code, _, err = end_of(runner)
    assert code in (5, 75), err
    child_ended(away)
    own_server.start_again()
    wait_until_gone(away)
    assert publishes(away, "out") == {}
    (away.folder / "go").touch()
    healed = away.runjob(script)
    assert healed.returncode == 0, healed.stderr
    assert job_status(away) == {"1": "COMPLETE"}
    assert publishes(away, "out") == {"1": 1}


def test_a_failure_that_could_not_be_recorded_is_a_failure_later(away: Project, own_server: Server) -> None:
    script = one_job(away, f"{BODY}; exit 3", settings="lease: 2s")
    runner = start_and_wait_for(away, away.folder / "started", script)
    own_server.halt("immediate")
    (away.folder / "go").touch()
    assert end_of(runner)[0] == 75
    own_server.start_again()
    assert away.runjob(script).returncode == 1
    assert job_status(away) == {"1": "FAILED"}
    assert runs(away, "status, exit_code") == [("FAILED", 3)]


def test_without_the_database_nothing_starts_and_the_exit_code_is_75(away: Project, own_server: Server) -> None:
    script = one_job(away, "touch ran")
    own_server.halt("fast")
    for command in (
        ("RunJob", str(script)),
        ("dataflow", "run", "work"),
        ("dataflow", "status"),
        ("dataflow", "apply"),
    ):
        refused = away.run(*command)
        assert refused.returncode == 75, command
        assert "cannot be used" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert not (away.folder / "ran").exists()


MID_TRANSACTION = """\
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # so that changed pages reach the file before the commit
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE job_status SET status = 'HOLD'")
connection.execute("UPDATE store SET actor = 'somebody'")
print("changed", connection.execute("SELECT count(*) FROM job_status WHERE status = 'HOLD'").fetchone()[0], flush=True)
time.sleep(300)
"""


def test_a_sqlite_writer_killed_in_mid_transaction_leaves_no_trace(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, 'echo "$dataid" >> ran', partitions="{shards: 1..300}")
    before = sqlite_project.sql("SELECT * FROM job_status ORDER BY dataid")
    database = sqlite_project.store.removeprefix("sqlite:///")
    with subprocess.Popen(
        [sys.executable, "-c", MID_TRANSACTION, database], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "changed 300\n"
        writer.send_signal(signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL
    done = sqlite_project.runjob(script)
    assert done.returncode == 0, done.stderr
    assert lines(sqlite_project.folder / "ran") == ["1"]
    after = sqlite_project.sql("SELECT * FROM job_status ORDER BY dataid")
    assert [row for row in after if row[2] != "1"] == [row for row in before if row[2] != "1"]
    assert sqlite_project.sql("SELECT count(*) FROM history WHERE new_status = 'HOLD'") == [(0,)]
    assert sqlite_project.sql("PRAGMA integrity_check") == [("ok",)]
    assert sqlite_project.dataflow("db", "check").returncode == 0


def test_a_claim_waits_for_a_sqlite_writer_that_is_at_work_and_then_goes_on(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, 'echo "$dataid" >> ran')
    database = sqlite_project.store.removeprefix("sqlite:///")
    with subprocess.Popen(
        [sys.executable, "-c", MID_TRANSACTION, database], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        runner = sqlite_project.start("RunJob", script)
        with pytest.raises(subprocess.TimeoutExpired):
            runner.wait(0.7)
        assert lines(sqlite_project.folder / "ran") == []
        writer.kill()
    code, _, err = end_of(runner)
    assert code == 0, err
    assert lines(sqlite_project.folder / "ran") == ["1"]
