"""Operating through the real commands: runs, logs, env, resubmit, hold, force, cleaning up."""

import contextlib
import datetime
import json
import os
import pty
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator

import psycopg
import pytest

from opendataflow.operations.log_follow import added
from support import projects
from support.chain import CHAIN, WAITS, drain, made_chain, ok
from support.jobs import end_of, job_status, one_job, runs
from support.processes import wait_for
from support.projects import RUNJOB, Project


@pytest.fixture
def chain(project: Project) -> Project:
    return made_chain(project)


@contextlib.contextmanager
def everything_locked(project: Project) -> Iterator[None]:
    """Nobody can write: a read that takes a lock would wait."""
    if project.store.startswith("sqlite"):
        connection = sqlite3.connect(project.store.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.close()
        return
    with psycopg.connect(project.store) as held:
        tables = "store, project, dataset, job, job_dataset, job_status, datastatus, run, history, tally"
        held.execute(f"LOCK TABLE {tables} IN EXCLUSIVE MODE")
        yield
        held.rollback()


# Looking ------------------------------------------------------------------------------------------------------------
def test_runs_lists_the_newest_first_and_filters(chain: Project) -> None:
    (chain.folder / "broken.first.2").touch()
    drain(chain, "first", "second")
    listed = chain.json("runs")
    assert [one["runid"] for one in listed] == sorted((one["runid"] for one in listed), reverse=True)
    assert [(one["jobid"], one["dataid"], one["status"]) for one in listed] == [
        ("second", "3", "COMPLETE"), ("second", "1", "COMPLETE"), ("first", "3", "COMPLETE"), ("first", "2", "FAILED"),
        ("first", "1", "COMPLETE"),
    ]  # fmt: skip
    [failed] = chain.json("runs", "first", "--status", "FAILED")
    assert (failed["exit_code"], failed["message"], failed["forced"]) == (7, "it exited 7", False)
    assert failed["seconds"] >= 0
    assert [one["runid"] for one in chain.json("runs", "first", "2")] == [failed["runid"]]
    assert len(chain.json("runs", "--limit", "2")) == 2
    assert len(chain.json("runs", "--since", "1h")) == 5
    tomorrow = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=2)
    assert chain.json("runs", "--since", str(tomorrow)) == []
    table = chain.dataflow("runs")
    assert "it exited 7" in table.stdout
    assert "no run is like that" in chain.dataflow("runs", "--since", str(tomorrow)).stderr
    for argv, told in (
        (["runs", "--status", "BROKEN"], "is not a run's status"),
        (["runs", "nobody"], "job 'nobody' is not registered"),
        (["runs", "--since", "yesterday"], "is not a time like"),
    ):
        refused = chain.dataflow(*argv)
        assert (refused.returncode, told in refused.stderr) == (2, True), refused.stderr


def test_logs_by_dataid_run_and_number(sqlite_project: Project) -> None:
    project = sqlite_project
    script = one_job(project, 'echo "attempt of $DATAFLOW_RUN_ID"; [ -e mended ] || exit 1')
    assert project.runjob(script).returncode == 1
    (project.folder / "mended").touch()
    ok(project.dataflow("resubmit", "work", "1"))
    assert project.runjob(script).returncode == 0
    first, second = (runid for (runid,) in runs(project, "runid"))
    assert project.dataflow("logs", "work", "1").stdout == f"attempt of {second}\n"
    assert project.dataflow("logs", "--run", str(first)).stdout == f"attempt of {first}\n"
    assert project.dataflow("logs", str(first)).stdout == f"attempt of {first}\n"
    assert project.json("logs", "work", "1")["runid"] == second
    assert project.dataflow("logs", "-f", "work", "1").stdout == f"attempt of {second}\n"
    for argv, told in (
        (["logs"], "which run?"),
        (["logs", "work"], "give JOB DATAID"),
        (["logs", "work", "77"], "there is no run of work/77"),
        (["logs", "work", "1", "--run", "1"], "not both"),
        (["logs", "work", "1", "-f", "--json"], "leave out --json"),
    ):
        refused = project.dataflow(*argv)
        assert (refused.returncode, told in refused.stderr) == (2, True), refused.stderr


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_logs_follow_a_live_run_to_its_end(project: Project, where: str) -> None:
    script = one_job(project, WAITS, settings="lease: 5s")
    runner = project.start(RUNJOB, script)
    wait_for(lambda: project.sql("SELECT 1 FROM run WHERE log_tail LIKE 'hello%'"), "the tail is in the store")
    if where == "elsewhere":  # the file is on another host
        shutil.rmtree(project.folder / ".dataflow/logs")
    follower = project.start(projects.DATAFLOW, "logs", "-f", "work", "1")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "hello\n", "it comes while the run goes on"
    assert follower.poll() is None
    (project.folder / "go").touch()
    assert end_of(runner)[0] == 0
    code, rest, told = end_of(follower)
    assert (code, rest) == (0, "bye\n")
    assert "of work/1 is COMPLETE" in told


def test_what_a_later_tail_has_more_is_found_and_a_gap_is_shown() -> None:
    assert added("", "abc") == "abc"
    assert added("abc", "abcdef") == "def"
    assert added("abc", "abc") == ""
    assert added("xxok\nok\n", "ok\nok\nok\n") == "ok\n", "the tail moved on by two characters"
    assert added("a" * 100 + "b" * 100, "b" * 100 + "c") == "c"
    assert added("abc", "xyz") == "\n[…]\nxyz"


def test_ctrl_c_ends_following_and_not_the_run(sqlite_project: Project) -> None:
    project = sqlite_project
    runner = project.start(RUNJOB, one_job(project, WAITS))
    wait_for((project.folder / "started").exists, "the script has started")
    follower = project.start(projects.DATAFLOW, "logs", "-f", "work", "1")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "hello\n"
    follower.send_signal(signal.SIGINT)
    code, _, told = end_of(follower)
    assert code == 130
    assert "Traceback" not in told
    (project.folder / "go").touch()
    assert end_of(runner)[0] == 0


def test_env_shows_what_a_run_would_get_without_a_passkey(chain: Project) -> None:
    encrypted = chain.run(projects.DATAFLOW, "crypt", "encrypt", env={"DATAFLOW_PASSKEY": "key"}, input="hush\n")
    text = CHAIN.replace(
        'feed: {path: "feed/{dataid}.txt",',
        f'feed: {{username: anna, encryptedpass: "{encrypted.stdout.strip()}", path: "feed/{{dataid}}.txt",',
    )
    chain.apply(text.replace('mid: {path: "mid/{dataid}.txt"}', "mid: {path: mid}"))
    before = chain.sql("SELECT count(*) FROM history"), sorted(os.listdir(chain.folder / "data"))
    shown = chain.json("env", "first", "2")
    assert shown["dataid"] == shown["feed_dataid"] == "2"
    assert (shown["feed_username"], shown["feed_password"], shown["feed_PASSWORD"]) == ("anna", "***", "***")
    assert shown["feed_location"] == str(chain.folder / "data/feed/2.txt")
    assert shown["mid_location"] == str(chain.folder / "data/mid/dataid=2/_runs/N")
    assert (shown["DATAFLOW_RUN_ID"], shown["COLOUR"], shown["API_KEY"]) == ("N", "blue", "***")
    assert "PATH" not in shown
    assert "feed_username=anna\n" in chain.dataflow("env", "first", "2").stdout
    assert "hush" not in json.dumps(shown)
    assert (chain.sql("SELECT count(*) FROM history"), sorted(os.listdir(chain.folder / "data"))) == before
    refused = chain.dataflow("env", "first", "99")
    assert (refused.returncode, "has no dataid '99'" in refused.stderr) == (2, True)


@pytest.mark.both_stores
def test_looking_never_waits_for_a_lock_and_so_never_delays_a_claim(chain: Project) -> None:
    (chain.folder / "broken.first.2").touch()
    drain(chain, "first")
    with everything_locked(chain):
        for argv in (
            ["runs"], ["runs", "first"], ["runs", "first", "2"], ["logs", "first", "2"], ["env", "first", "1"],
            ["resubmit", "--failed", "--cascade", "--dry-run"], ["history", "clean", "--dry-run"], ["doctor"],
        ):  # fmt: skip
            ok(chain.dataflow(*argv, timeout=30))


# Resubmit -----------------------------------------------------------------------------------------------------------
def test_resubmit_failed_of_all_jobs_after_a_look(chain: Project) -> None:
    for name in ("broken.first.2", "broken.second.3"):
        (chain.folder / name).touch()
    drain(chain, "first", "second")
    would = ok(chain.dataflow("resubmit", "--failed", "--dry-run"))
    assert would.stdout.splitlines() == ["first/2: FAILED → RESUBMIT", "second/3: FAILED → RESUBMIT"]
    assert "would be: 2 RESUBMIT" in would.stderr
    assert job_status(chain, "first")["2"] == "FAILED"
    assert "1 RESUBMIT" in ok(chain.dataflow("resubmit", "second", "--failed")).stderr
    [one] = chain.json("resubmit", "--failed")
    assert (one["jobid"], one["dataid"], one["before"], one["status"]) == ("first", "2", "FAILED", "RESUBMIT")
    nothing = ok(chain.dataflow("resubmit", "--failed"))
    assert nothing.stderr == "nothing to do\n"
    for name in ("broken.first.2", "broken.second.3"):
        (chain.folder / name).unlink()
    drain(chain, "first", "second")
    assert {*job_status(chain, "first").values(), *job_status(chain, "second").values()} == {"COMPLETE"}


def test_an_outage_window_heals_across_all_jobs(chain: Project) -> None:
    for name in ("broken.first.1", "broken.first.2", "broken.first.3"):
        (chain.folder / name).touch()
    drain(chain, "first")
    moved = "'2025-11-12T03:00:00.000Z'"
    chain.sql(f"UPDATE run SET ended_at = {moved} WHERE dataid IN ('1', '2')")
    window = ("--since", "2025-11-12T02:00", "--until", "2025-11-12T04:00")
    assert [one["dataid"] for one in chain.json("resubmit", *window, "--dry-run")] == ["1", "2"]
    assert chain.json("resubmit", "--since", "2025-11-11", "--until", "2025-11-11", "--dry-run") == []
    by_day = ("--since", "2025-11-12", "--until", "2025-11-12")
    assert [one["dataid"] for one in chain.json("resubmit", *by_day, "--dry-run")] == ["1", "2"]
    assert [one["dataid"] for one in chain.json("resubmit", "second", *window, "--dry-run")] == []
    assert len(chain.json("resubmit", *window)) == 2
    assert job_status(chain, "first") == {"1": "RESUBMIT", "2": "RESUBMIT", "3": "FAILED"}
    assert [one["dataid"] for one in chain.json("resubmit", "--since", "1h", "--all-runs", "--dry-run")] == ["3"]


def test_cascade_closes_everything_that_read_it(chain: Project) -> None:
    drain(chain, "first", "second")
    told = ok(chain.dataflow("resubmit", "first", "1", "--all-downstream"))
    assert "second/1: COMPLETE → RESUBMIT (cascade)" in told.stderr
    assert "2 RESUBMIT" in told.stderr
    chunks = chain.sql("SELECT datasetid, dataid FROM datastatus WHERE status = 'RESUBMIT' AND locktype = 'OUT'")
    assert sorted(chunks) == [("mid", "1"), ("out", "1")]
    chain.write("data/feed/1.txt", "1")
    drain(chain, "first", "second")
    assert set(job_status(chain, "second").values()) == {"COMPLETE"}


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["resubmit"], "which dataids?"),
        (["resubmit", "first"], "which dataids of first?"),
        (["resubmit", "first", "1", "--failed"], "not both"),
        (["resubmit", "--until", "1h"], "give the beginning of the window"),
        (["resubmit", "--failed", "--all-runs"], "give the beginning of the window"),
        (["resubmit", "--since", "1h", "--until", "2h"], "ends before it begins"),
        (["resubmit", "--since", "soon"], "is not a time like"),
        (["resubmit", "nobody", "--failed"], "job 'nobody' is not registered"),
        (["resubmit", "first", "99"], "first has no dataid '99'"),
        (["hold", "first", "99"], "first has no dataid '99'"),
        (["hold", "nobody"], "job 'nobody' is not registered"),
        (["release", "first", "1"], "cannot release"),
        (["force", "first", "99"], "'99' is not a dataid of first"),
        (["force", "first", "1", "--", "no-such-command"], "there is no command 'no-such-command'"),
        (["delete-run", "1", "--yes"], "there is no run 1"),
        (["history", "clean", "--job", "nobody", "--yes"], "job 'nobody' is not registered"),
        (["history", "clean"], "give --yes"),
    ],
)
def test_bad_input_exits_2_with_a_helpful_text(shared_chain: Project, argv: list[str], told: str) -> None:
    status = job_status(shared_chain, "first")
    if argv[0] == "release":
        shared_chain.sql("UPDATE job_status SET status = 'COMPLETE' WHERE jobid = 'first' AND dataid = '1'")
        status["1"] = "COMPLETE"
    refused = shared_chain.dataflow(*argv, stdin=subprocess.DEVNULL)
    assert refused.returncode == 2, refused.stderr
    assert told in refused.stderr
    assert "Traceback" not in refused.stderr
    assert job_status(shared_chain, "first") == status


@pytest.fixture(scope="module")
def shared_chain(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("shared")
    return made_chain(Project(folder / "project", f"sqlite:///{folder / 'state.db'}"))


# Hold and release ---------------------------------------------------------------------------------------------------
def test_a_held_dataid_and_a_held_job_wait_until_they_are_released(chain: Project) -> None:
    assert "first/1: PENDING → HOLD" in ok(chain.dataflow("hold", "first", "1", "--reason", "wrong feed")).stderr
    assert "first/1: is HOLD already" in ok(chain.dataflow("hold", "first", "1")).stderr
    refused = chain.dataflow("run", "first", "--dataid", "1")
    assert (refused.returncode, "LOCKED: first/1 is on HOLD" in refused.stderr) == (14, True)
    drain(chain, "first")
    assert job_status(chain, "first") == {"1": "HOLD", "2": "COMPLETE", "3": "COMPLETE"}
    assert chain.sql("SELECT actor FROM history WHERE new_status = 'HOLD'")[0][0].endswith(": wrong feed")
    refused = chain.dataflow("hold", "first", "2")
    assert (refused.returncode, "a job that is COMPLETE cannot hold" in refused.stderr) == (2, True)
    assert "first/1: HOLD → PENDING" in ok(chain.dataflow("release", "first", "1")).stderr
    assert "first is now held by" in ok(chain.dataflow("hold", "first", "--reason", "migration")).stderr
    refused = chain.dataflow("run", "first")
    assert refused.returncode == 14
    assert ": migration" in refused.stderr
    assert "already held by" in ok(chain.dataflow("hold", "first")).stderr
    assert "first is released" in ok(chain.dataflow("release", "first")).stderr
    assert "was not held" in ok(chain.dataflow("release", "first")).stderr
    ok(chain.dataflow("run", "first"))


# Force --------------------------------------------------------------------------------------------------------------
def test_force_runs_a_command_against_the_answers_and_is_recorded(chain: Project) -> None:
    ok(chain.dataflow("hold", "second", "1"))
    command = 'echo "forced on $dataid"; echo repaired > "$out_location"'
    done = ok(chain.dataflow("force", "second", "1", "--", "sh", "-c", command))
    assert done.stdout == "forced on 1\n"
    assert "second/1 COMPLETE" in done.stderr
    assert (chain.folder / "data/out/1.txt").read_text() == "repaired\n"
    assert job_status(chain, "second")["1"] == "COMPLETE"
    [run] = chain.json("runs", "second")
    assert run["forced"]
    assert "forced" in chain.dataflow("runs").stdout
    [(answers,)] = chain.sql("SELECT answers FROM run WHERE forced = 1")
    told = json.loads(answers) if isinstance(answers, str) else answers
    assert [answer["code"] for answer in told if not answer["yes"]] == ["DATA_NOT_READY", "", "", "", "LOCKED"]
    failed = chain.dataflow("force", "second", "1", "--", "false")
    assert failed.returncode == 1
    assert job_status(chain, "second")["1"] == "FAILED"
    assert chain.sql("SELECT count(*) FROM datastatus WHERE locktype = 'IN'") == [(0,)]


def test_force_without_a_command_runs_the_jobs_own_script_again(chain: Project) -> None:
    drain(chain, "first")
    done = ok(chain.dataflow("force", "first", "2", "--json"))
    assert json.loads(done.stdout)["status"] == "COMPLETE"
    assert [one["forced"] for one in chain.json("runs", "first", "2")] == [True, False]
    assert chain.json("status")["datasets"]["mid"] == {"READY": 3}


def test_force_on_a_held_job_runs_and_leaves_it_held(chain: Project) -> None:
    ok(chain.dataflow("hold", "first"))
    ok(chain.dataflow("force", "first", "1"))
    assert chain.dataflow("run", "first").returncode == 14


def test_force_is_refused_while_it_runs_or_its_output_is_read(chain: Project) -> None:
    chain.script("jobs/first.sh", WAITS + '; cp "$feed_location" "$mid_location"')
    live = chain.start(RUNJOB, "--dataid", "1", "jobs/first.sh")
    wait_for((chain.folder / "started").exists, "the script has started")
    refused = chain.dataflow("force", "first", "1", "--", "true")
    assert (refused.returncode, "first/1 is RUNNING by" in refused.stderr) == (14, True), refused.stderr
    (chain.folder / "go").touch()
    assert end_of(live)[0] == 0
    for name in ("go", "started"):
        (chain.folder / name).unlink()
    chain.script("jobs/second.sh", WAITS + '; cp "$mid_location" "$out_location"')
    reader = chain.start(RUNJOB, "--dataid", "1", "jobs/second.sh")
    wait_for((chain.folder / "started").exists, "the reader has started")
    refused = chain.dataflow("force", "first", "1", "--", "true")
    assert (refused.returncode, "its output is being read: mid by second" in refused.stderr) == (14, True)
    assert job_status(chain, "first")["1"] == "COMPLETE"
    (chain.folder / "go").touch()
    assert end_of(reader)[0] == 0


# Cleaning up --------------------------------------------------------------------------------------------------------
def test_delete_run_asks_first_and_removes_one_record(sqlite_project: Project) -> None:
    project = sqlite_project
    script = one_job(project, "echo hello", partitions="{shards: 1..2}")
    assert project.runjob("--drain", script).returncode == 0
    (first,), (second,) = runs(project, "runid")
    refused = project.dataflow("delete-run", str(first), stdin=subprocess.DEVNULL)
    assert (refused.returncode, "give --yes" in refused.stderr) == (2, True)
    assert answered(project, "n", "delete-run", str(first)) == 130
    assert len(runs(project, "runid")) == 2
    assert answered(project, "y", "delete-run", str(first)) == 0
    assert runs(project, "runid") == [(second,)]
    done = ok(project.dataflow("delete-run", str(second), "--yes"))
    assert f"removed run {second} of work/2 and 0 of its manifests" in done.stderr
    assert job_status(project) == {"1": "COMPLETE", "2": "COMPLETE"}
    assert project.sql("SELECT count(*) FROM data_manifest") == [(2,)]


def answered(project: Project, answer: str, *argv: str) -> int:
    """The command's exit code when a person at a terminal answers so."""
    ours, theirs = pty.openpty()
    started = project.start(projects.DATAFLOW, *argv, stdin=theirs)
    os.write(ours, f"{answer}\n".encode())
    code, _, _ = end_of(started)
    os.close(ours)
    os.close(theirs)
    return code


def test_history_clean_keeps_the_state_and_why_something_failed(chain: Project) -> None:
    (chain.folder / "broken.first.2").touch()
    drain(chain, "first", "second")
    before = chain.json("status")
    assert "would delete 0 runs" in ok(chain.dataflow("history", "clean", "--days-old", "1", "--dry-run")).stdout
    assert "would delete 4 runs" in ok(chain.dataflow("history", "clean", "--dry-run")).stdout
    assert "deleted 2 runs" in ok(chain.dataflow("history", "clean", "--job", "second", "--yes")).stderr
    assert "deleted 2 runs" in ok(chain.dataflow("history", "clean", "--yes")).stderr
    assert [(one["dataid"], one["status"]) for one in chain.json("runs")] == [("2", "FAILED")]
    assert chain.json("status") == before
    assert "first/2 is FAILED, it exited 7" in chain.dataflow("why", "first", "2").stdout
    ok(chain.dataflow("db", "check"))
