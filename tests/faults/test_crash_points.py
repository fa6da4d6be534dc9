"""Signals at every named point of a run: whatever happens there, the usual call heals it and nothing is done twice.

Over SQLite and PostgreSQL by turns, so that each point has both; each signal at each point over both in `make faults`.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from opendataflow.faults import AFTER_CLAIM, AFTER_PUBLISH, BEFORE_PUBLISH, POINTS, WHILE_RUNNING
from support.jobs import end_of, history, job_status, lines, one_job, processes_of, publishes, runs, wait_until_gone
from support.processes import wait_for
from support.projects import RUNJOB, Project
from support.stores import by_turns

FEED = """\
name: Crash points
environments: {dev: {root: data}}
datasets:
  feed: {path: "feed/{dataid}.txt", partitions: {shards: 1..1}}
  out: {path: "out/{dataid}.txt"}
jobs:
  work: {script: jobs/work.sh, inputs: [feed], outputs: [out], lease: 2s}
"""
# While the file `slow` is there the script does not end by itself, nor does what it left in a session of its own.
BODY = """\
echo "$DATAFLOW_RUN_ID" >> journal
if [ -e slow ]; then setsid sleep 300 & sleep 300; fi
cp "$feed_location" "$out_location"
"""


@pytest.fixture
def script(project: Project) -> Path:
    project.apply(FEED)
    project.write("data/feed/1.txt", "the feed")
    project.sql("INSERT INTO datastatus (datasetid, dataid, status) VALUES ('feed', '1', 'READY')")
    return project.script("jobs/work.sh", BODY)


class At:
    """A RunJob that has arrived at a crash point and stays there until `resume`."""

    def __init__(self, project: Project, script: Path, point: str) -> None:
        self.project, self.point = project, point
        self.slow = project.folder / "slow"
        if point in (AFTER_CLAIM, WHILE_RUNNING):
            self.slow.touch()
        self.marker = project.folder / "marker"
        self.runner: subprocess.Popen[str] = project.start(
            RUNJOB, script, env={"DATAFLOW_FAULT_POINT": f"{point}:{self.marker}"}
        )
        wait_for(lambda: self.marker.exists() and self.marker.read_text(), f"RunJob arrives at {point}")
        assert int(self.marker.read_text()) == self.runner.pid
        if point == WHILE_RUNNING:
            wait_for(lambda: lines(project.folder / "journal"), "the script has started")

    def resume(self) -> None:
        self.marker.unlink()

    def mend(self) -> None:
        """From now on the script ends by itself."""
        self.slow.unlink(missing_ok=True)


def assert_healed(project: Project, script: Path) -> None:
    """One usual call, and everything is as if nothing had happened."""
    healed = project.runjob(script)
    assert healed.returncode == 0, healed.stderr
    assert job_status(project) == {"1": "COMPLETE"}
    assert publishes(project, "out") == {"1": 1}
    assert (project.folder / "data/out/1.txt").read_text() == "the feed"
    assert project.sql("SELECT count(*) FROM datastatus WHERE locktype = 'IN'") == [(0,)]
    assert [status for (status,) in runs(project, "status")].count("COMPLETE") == 1
    assert processes_of(project) == []
    again = project.runjob(script)
    assert (again.returncode, "caught up" in again.stderr) == (0, True)


@pytest.mark.parametrize(("point", "store_url"), by_turns(POINTS), indirect=["store_url"])
def test_after_sigkill_the_usual_call_heals_it(project: Project, script: Path, point: str) -> None:
    at = At(project, script, point)
    at.runner.kill()
    assert end_of(at.runner)[0] == -signal.SIGKILL
    wait_until_gone(project)
    at.resume()
    at.mend()
    assert job_status(project) == {"1": "COMPLETE" if point == AFTER_PUBLISH else "RUNNING"}
    assert_healed(project, script)
    lost = [] if point == AFTER_PUBLISH else ["LOST"]
    assert [status for (status,) in runs(project, "status")] == [*lost, "COMPLETE"]


@pytest.mark.parametrize(("point", "store_url"), by_turns(POINTS, first=1), indirect=["store_url"])
def test_sigterm_hands_the_work_back_or_lets_it_be_published(project: Project, script: Path, point: str) -> None:
    at = At(project, script, point)
    at.runner.terminate()
    at.resume()
    code, _, err = end_of(at.runner)
    assert processes_of(project) == []
    at.mend()
    if point in (AFTER_CLAIM, WHILE_RUNNING):
        assert code == 143, err
        assert job_status(project) == {"1": "RESUBMIT"}
        assert publishes(project, "out") == {}
        assert runs(project, "status, exit_code") == [("RESUBMIT", 143)]
    else:
        assert code == 0, err
        assert job_status(project) == {"1": "COMPLETE"}
    assert_healed(project, script)


@pytest.mark.parametrize(("point", "store_url"), by_turns(POINTS), indirect=["store_url"])
def test_a_runner_stopped_past_its_lease_changes_nothing_when_it_resumes(
    project: Project, script: Path, point: str
) -> None:
    at = At(project, script, point)
    at.runner.send_signal(signal.SIGSTOP)
    if point != AFTER_PUBLISH:
        expired = f"SELECT 1 FROM job_status WHERE status = 'RUNNING' AND lease_until <= {_now(project)}"
        wait_for(lambda: project.sql(expired), "its lease runs out")
    wait_until_gone(project)  # the guard ends the child of a runner that does not renew
    at.mend()
    assert_healed(project, script)
    before = history(project, "job", "work"), history(project, "chunk", "out"), runs(project, "*")
    started = lines(project.folder / "journal")
    (project.folder / "data/out/1.txt").write_text("the healed output")
    at.resume()
    at.runner.send_signal(signal.SIGCONT)
    code, _, err = end_of(at.runner)
    assert code == (0 if point == AFTER_PUBLISH else 5), err
    assert (history(project, "job", "work"), history(project, "chunk", "out"), runs(project, "*")) == before
    assert lines(project.folder / "journal") == started, "a runner without its lease starts no script"
    assert (project.folder / "data/out/1.txt").read_text() == "the healed output"
    assert processes_of(project) == []


def test_a_paused_runner_that_resumes_within_its_lease_goes_on(project: Project, script: Path) -> None:
    at = At(project, script, BEFORE_PUBLISH)
    at.runner.send_signal(signal.SIGSTOP)
    at.runner.send_signal(signal.SIGCONT)
    at.resume()
    assert end_of(at.runner)[0] == 0
    assert publishes(project, "out") == {"1": 1}


def test_what_a_lost_run_left_on_this_host_is_killed_by_the_next_claimant(project: Project, script: Path) -> None:
    at = At(project, script, WHILE_RUNNING)
    [(guard,)] = runs(project, "guard_pid")
    script_itself = _child_of(int(guard))
    [survivor, *_] = wait_for(
        lambda: [pid for pid in processes_of(project) if _is_session_leader(pid, but_not=script_itself)],
        "the script has left something in a session of its own",
    )
    at.runner.send_signal(signal.SIGSTOP)  # so that it cannot tidy up
    os.kill(int(guard), signal.SIGKILL)
    at.runner.kill()
    end_of(at.runner)
    assert survivor in processes_of(project), "nobody was left to end it"
    at.resume()
    at.mend()
    assert_healed(project, script)


# A drain takes its next dataid in the transaction that publishes the one before ---------------------------------
@pytest.mark.parametrize(
    ("number", "store_url"), by_turns([signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP]), indirect=["store_url"]
)
def test_a_dataid_that_a_drain_took_and_did_not_start_is_healed_too(project: Project, number: int) -> None:
    script = one_job(project, 'echo "$dataid" >> journal', partitions="{shards: 1..3}", settings="lease: 2s")
    marker = project.folder / "marker"
    runner = project.start(RUNJOB, "--drain", script, env={"DATAFLOW_FAULT_POINT": f"{AFTER_PUBLISH}:{marker}"})
    wait_for(lambda: marker.exists() and marker.read_text(), "the first dataid is published")
    runner.send_signal(number)
    if number == signal.SIGSTOP:
        expired = f"SELECT 1 FROM job_status WHERE status = 'RUNNING' AND lease_until > {_now(project)}"
        wait_for(lambda: not project.sql(expired), "its lease runs out")
    else:
        # What is handed back passes the point once more.
        wait_for(lambda: marker.unlink(missing_ok=True) or runner.poll() is not None, "the runner ends")
        assert end_of(runner)[0] == (-signal.SIGKILL if number == signal.SIGKILL else 143)
        if number == signal.SIGTERM:
            assert "RUNNING" not in job_status(project).values()
            assert "FAILED" not in job_status(project).values()
    healed = project.runjob("--drain", script)
    assert healed.returncode == 0, healed.stderr
    if number == signal.SIGSTOP:
        runner.send_signal(signal.SIGCONT)
        wait_for(lambda: marker.unlink(missing_ok=True) or runner.poll() is not None, "the runner ends")
        code, _, err = end_of(runner)
        assert code in (0, 5), err
    assert sorted(lines(project.folder / "journal")) == ["1", "2", "3"], "no script was started twice"
    assert publishes(project, "out") == {"1": 1, "2": 1, "3": 1}
    assert set(job_status(project).values()) == {"COMPLETE"}
    assert processes_of(project) == []


def _now(project: Project) -> str:
    return "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')" if project.store.startswith("sqlite") else "now()"


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()


def _is_session_leader(pid: int, *, but_not: int) -> bool:
    return pid != but_not and int(_stat(pid)[3]) == pid


def _child_of(guard: int) -> int:
    return int(Path(f"/proc/{guard}/task/{guard}/children").read_text().split()[0])


def test_the_points_are_those_that_the_issue_names() -> None:
    assert POINTS == (AFTER_CLAIM, WHILE_RUNNING, BEFORE_PUBLISH, AFTER_PUBLISH)
