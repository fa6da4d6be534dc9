"""The guard and the supervision of a script, with tiny real children."""

import datetime
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from support.jobs import end_of, job_status, lines, one_job, processes_of, runs, start_and_wait_for, wait_until_gone
from support.processes import is_alive, wait_for
from support.projects import RUNJOB, Project, with_settings

# RunJob as it is installed, but less patient with a child that does not obey.
IMPATIENT = with_settings(RUNJOB, "execution.supervise.GRACE_SECONDS = 0.3")
ECHO_PIDS = (
    'echo $$ >> pids; (echo $BASHPID >> pids; exec sleep 300) & setsid sh -c "echo \\$\\$ >> pids; exec sleep 300" &'
)
WAIT = "while [ $(wc -l < pids) -lt 3 ]; do sleep 0.01; done; touch started; sleep 300"


def pids(project: Project) -> list[int]:
    return [int(line) for line in lines(project.folder / "pids")]


def wait_until_its_lease_would_be_over(project: Project) -> None:
    """The run has been kept for longer than the lease that it began with."""
    [(first,)] = project.sql("SELECT lease_until FROM job_status")
    over_at = datetime.datetime.fromisoformat(str(first))
    wait_for(lambda: datetime.datetime.now(datetime.UTC) > over_at, "the first lease is over")
    assert project.sql("SELECT lease_until FROM job_status")[0][0] > first, "the lease is renewed"


# Nothing outlives its owner ---------------------------------------------------------------------------------------
def test_a_sigkilled_runner_takes_child_grandchildren_and_other_sessions_along(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, f"{ECHO_PIDS}\n{WAIT}")
    runner = start_and_wait_for(sqlite_project, sqlite_project.folder / "started", script)
    below = pids(sqlite_project)
    assert len(below) == 3
    assert all(is_alive(pid) for pid in below)
    runner.kill()
    end_of(runner)
    wait_for(lambda: not any(is_alive(pid) for pid in below), "all of them die with the runner")
    wait_until_gone(sqlite_project)


def test_a_killed_guard_ends_the_child_and_counts_as_a_death(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "if [ ! -e healed ]; then touch started; exec sleep 300; fi")
    runner = start_and_wait_for(sqlite_project, sqlite_project.folder / "started", script)
    [(guard,)] = runs(sqlite_project, "guard_pid")
    os.kill(int(guard), signal.SIGKILL)
    code, _, err = end_of(runner, seconds=20)
    assert code == 128 + signal.SIGKILL, err
    wait_until_gone(sqlite_project)
    assert job_status(sqlite_project) == {"1": "RESUBMIT"}
    (sqlite_project.folder / "healed").touch()
    assert sqlite_project.runjob(script).returncode == 0


def test_a_drain_whose_guard_was_killed_does_not_fail_the_dataids_that_follow(sqlite_project: Project) -> None:
    script = one_job(
        sqlite_project,
        'if [ ! -e started ]; then touch started; exec sleep 300; fi; echo "$dataid" >> ran',
        partitions="{shards: 1..3}",
    )
    runner = start_and_wait_for(sqlite_project, sqlite_project.folder / "started", "--drain", script)
    [(guard,)] = runs(sqlite_project, "guard_pid")
    os.kill(int(guard), signal.SIGKILL)
    code, _, err = end_of(runner, seconds=30)
    assert code != 0, err
    assert "FAILED" not in job_status(sqlite_project).values(), err
    assert sqlite_project.runjob("--drain", script).returncode == 0
    assert lines(sqlite_project.folder / "ran") == ["1", "2", "3"]


def test_what_a_script_leaves_behind_is_killed_and_the_run_is_complete(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "sleep 300 & setsid sleep 300 & nohup sleep 300 > /dev/null 2>&1 &")
    done = sqlite_project.runjob(script, timeout=30)
    assert done.returncode == 0, done.stderr
    assert processes_of(sqlite_project) == []


def test_output_through_tee_is_complete_although_tee_ends_after_the_script(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "exec > >(sleep 0.2; tee copy) 2>&1; seq 1 20000; echo the end")
    done = sqlite_project.runjob(script)
    assert done.returncode == 0, done.stderr
    expected = "".join(f"{n}\n" for n in range(1, 20001)) + "the end\n"
    assert done.stdout == expected
    assert (sqlite_project.folder / "copy").read_text() == expected
    [(path,)] = runs(sqlite_project, "log_path")
    assert Path(str(path)).read_text() == expected


# Signals ------------------------------------------------------------------------------------------------------------
TRAPPING = """\
if [ -e healed ]; then echo again; else
trap 'echo "script got TERM" >> traps; exit 1' TERM
trap 'echo "script got INT" >> traps; exit 1' INT
(trap 'echo "child got TERM" >> traps; exit 0' TERM; trap 'echo "child got INT" >> traps; exit 0' INT
 touch started; while true; do sleep 0.02; done) &
while true; do sleep 0.02; done
fi
"""


@pytest.mark.parametrize(
    ("number", "name", "code", "status"),
    [(signal.SIGTERM, "TERM", 143, "RESUBMIT"), (signal.SIGINT, "INT", 130, "FAILED")],
)
def test_a_signal_reaches_the_whole_group_and_decides_the_end(
    project: Project, number: int, name: str, code: int, status: str
) -> None:
    script = one_job(project, TRAPPING)
    runner = start_and_wait_for(project, project.folder / "started", script)
    runner.send_signal(number)
    ended, _, err = end_of(runner)
    assert ended == code, err
    assert job_status(project) == {"1": status}
    assert "script got " + name in lines(project.folder / "traps")
    if name == "TERM":  # a background child of a shell without job control ignores SIGINT from its start
        assert "child got TERM" in lines(project.folder / "traps")
    assert processes_of(project) == []
    [(run_status, exit_code, attempts)] = project.sql(
        "SELECT r.status, r.exit_code, j.attempts FROM run r JOIN job_status j ON j.dataid = r.dataid"
    )
    assert (run_status, exit_code) == (status, code)
    assert attempts == (0 if status == "RESUBMIT" else 1), "work that was handed back used no attempt"


def test_sighup_hands_the_work_back(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "touch started; sleep 300")
    runner = start_and_wait_for(sqlite_project, sqlite_project.folder / "started", script)
    runner.send_signal(signal.SIGHUP)
    assert end_of(runner)[0] == 128 + signal.SIGHUP
    assert job_status(sqlite_project) == {"1": "RESUBMIT"}


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "trap '' TERM; touch started; while true; do sleep 0.02; done")
    runner = sqlite_project.start(*IMPATIENT, script)
    wait_for((sqlite_project.folder / "started").exists, "the script has started")
    runner.terminate()
    code, _, err = end_of(runner, seconds=20)
    assert code == 143, err
    assert processes_of(sqlite_project) == []
    assert job_status(sqlite_project) == {"1": "RESUBMIT"}


def test_a_drain_that_is_told_to_stop_takes_no_further_dataid(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, 'echo "$dataid" >> ran; touch started; sleep 300', partitions="{shards: 1..5}")
    runner = start_and_wait_for(sqlite_project, sqlite_project.folder / "started", "--drain", script)
    runner.terminate()
    assert end_of(runner)[0] == 143
    assert lines(sqlite_project.folder / "ran") == ["1"]
    assert set(job_status(sqlite_project).values()) == {"RESUBMIT", "PENDING"}


def test_a_drain_told_to_stop_says_so_even_if_its_script_ends_well(sqlite_project: Project) -> None:
    script = one_job(
        sqlite_project,
        "trap '' TERM; touch started; while [ ! -e go ]; do sleep 0.02; done; echo \"$dataid\" >> ran",
        partitions="{shards: 1..3}",
    )
    runner = start_and_wait_for(sqlite_project, sqlite_project.folder / "started", "--drain", script)
    runner.terminate()
    (sqlite_project.folder / "go").touch()
    code, _, err = end_of(runner)
    assert code == 143, err
    assert len(lines(sqlite_project.folder / "ran")) == 1


# Deaths -------------------------------------------------------------------------------------------------------------
def test_three_deaths_in_a_row_are_a_failure_and_no_attempt_is_used_before(project: Project) -> None:
    script = one_job(project, 'echo "$DATAFLOW_ATTEMPT" >> attempts; kill -KILL $$')
    for death, status in ((1, "RESUBMIT"), (2, "RESUBMIT"), (3, "FAILED")):
        done = project.runjob(script)
        assert done.returncode == 137, done.stderr
        assert "killed by signal 9" in done.stderr
        assert job_status(project) == {"1": status}, f"after death {death}"
    assert lines(project.folder / "attempts") == ["1", "1", "1"]
    assert project.runjob(script).returncode == 1
    assert len(runs(project, "runid")) == 3
    project.sql("UPDATE job_status SET status = 'RESUBMIT'")
    assert project.runjob(script).returncode == 137
    assert job_status(project) == {"1": "RESUBMIT"}, "RESUBMIT gives all three lives back"


def test_a_drain_gives_a_dying_dataid_its_three_lives_and_goes_on(sqlite_project: Project) -> None:
    script = one_job(
        sqlite_project, 'echo "$dataid" >> ran; [ "$dataid" = 1 ] && kill -SEGV $$', partitions="{shards: 1..2}"
    )
    done = sqlite_project.runjob("--drain", script)
    assert done.returncode == 128 + signal.SIGSEGV, done.stderr
    assert Counter(lines(sqlite_project.folder / "ran")) == {"1": 3, "2": 1}
    assert job_status(sqlite_project) == {"1": "FAILED", "2": "COMPLETE"}


def test_deaths_that_are_not_in_a_row_are_not_added_up(sqlite_project: Project) -> None:
    script = one_job(
        sqlite_project,
        "echo run >> ran; case $(wc -l < ran) in 1|2|4|5) kill -KILL $$;; esac",
    )
    assert [sqlite_project.runjob(script).returncode for _ in range(3)] == [137, 137, 0]
    sqlite_project.sql("UPDATE job_status SET status = 'RESUBMIT'")
    assert [sqlite_project.runjob(script).returncode for _ in range(3)] == [137, 137, 0]


# Time ---------------------------------------------------------------------------------------------------------------
def test_a_script_that_runs_past_its_timeout_is_ended_and_failed(project: Project) -> None:
    script = one_job(project, "setsid sleep 300 & sleep 300", settings="timeout: 0.5s")
    done = project.runjob(script)
    assert done.returncode == 1
    assert "longer than its timeout of 0.5 s" in done.stderr
    assert job_status(project) == {"1": "FAILED"}
    assert processes_of(project) == []


def test_a_script_that_never_stops_writing_is_still_ended_by_its_timeout(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "yes > /dev/stderr & yes", settings="timeout: 0.5s")
    with open(os.devnull, "w") as nowhere:
        done = subprocess.run(
            [RUNJOB, script],
            cwd=sqlite_project.folder,
            env=sqlite_project.env(),
            stdout=nowhere,
            stderr=nowhere,
            timeout=30,
        )
    assert done.returncode == 1
    assert job_status(sqlite_project) == {"1": "FAILED"}
    assert processes_of(sqlite_project) == []


def test_the_lease_is_renewed_for_as_long_as_the_script_runs(project: Project) -> None:
    script = one_job(project, "touch started; while [ ! -e go ]; do sleep 0.02; done", settings="lease: 4s")
    runner = start_and_wait_for(project, project.folder / "started", script)
    wait_until_its_lease_would_be_over(project)
    other = project.runjob(script)
    assert other.returncode == 14, other.stderr
    (project.folder / "go").touch()
    assert end_of(runner)[0] == 0
    assert len(runs(project, "runid")) == 1


# Output -------------------------------------------------------------------------------------------------------------
def test_binary_output_arrives_unchanged_and_its_tail_is_text(project: Project) -> None:
    script = one_job(project, r"printf 'a\0b\377\376c\200\n'; printf '\303\050\n' >&2; head -c 3000 /dev/urandom")
    done = subprocess.run([RUNJOB, script], cwd=project.folder, env=project.env(), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"a\0b\xff\xfec\x80\n")
    assert len(done.stdout) == 8 + 3000
    [(runid, path, tail)] = runs(project, "runid, log_path, log_tail")
    log = Path(str(path)).read_bytes()
    assert len(log) == 8 + 3000 + 3
    assert "a\N{REPLACEMENT CHARACTER}b" in str(tail)
    shown = project.dataflow("logs", str(runid))
    assert shown.returncode == 0, shown.stderr


def test_a_line_of_megabytes_without_an_end_is_kept_whole(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "head -c 3000000 /dev/zero | tr '\\0' x")
    done = sqlite_project.runjob(script)
    assert done.stdout == "x" * 3_000_000
    [(path, tail)] = runs(sqlite_project, "log_path, log_tail")
    assert Path(str(path)).stat().st_size == 3_000_000
    assert 0 < len(str(tail)) <= 16_384


def test_fifty_megabytes_of_output_pass_through_and_only_the_tail_is_in_the_store(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "yes 0123456789 | head -c 50000000; echo; echo the end")
    counted = sqlite_project.run("bash", "-c", f"'{RUNJOB}' '{script}' | wc -c; exit ${{PIPESTATUS[0]}}")
    assert (counted.returncode, counted.stdout.strip()) == (0, str(50_000_000 + 9))
    [(path, tail)] = runs(sqlite_project, "log_path, log_tail")
    assert Path(str(path)).stat().st_size == 50_000_000 + 9
    assert str(tail).endswith("the end\n")
    assert len(str(tail)) <= 16_384


def test_a_reader_that_goes_away_does_not_stop_the_job(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "seq 1 100000; echo the end")
    done = sqlite_project.run("bash", "-c", f"'{RUNJOB}' '{script}' | head -n 1; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    [(path,)] = runs(sqlite_project, "log_path")
    assert Path(str(path)).read_text().endswith("the end\n")


def test_standard_error_that_went_away_does_not_change_the_exit_code(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, 'sleep 0.2; echo "$dataid"; echo "$dataid" >> ran', partitions="{shards: 1..2}")
    done = sqlite_project.run("bash", "-c", f"'{RUNJOB}' --drain '{script}' 2>&1 | true; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == 0
    assert lines(sqlite_project.folder / "ran") == ["1", "2"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_not_harm_the_run(sqlite_project: Project, closed: str) -> None:
    script = one_job(sqlite_project, "echo to out; echo to err >&2; sleep 0.1; echo more")
    done = sqlite_project.run("bash", "-c", f"'{RUNJOB}' '{script}' {closed}")
    assert done.returncode == 0, done.stderr
    assert job_status(sqlite_project) == {"1": "COMPLETE"}
    [(path,)] = runs(sqlite_project, "log_path")
    assert Path(str(path)).read_text() == "to out\nto err\nmore\n"


def test_a_reader_that_does_not_read_does_not_cost_the_lease(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "head -c 1000000 /dev/zero | tr '\\0' x; touch written", settings="lease: 4s")
    runner = sqlite_project.start(RUNJOB, script)
    try:
        wait_for(lambda: runs(sqlite_project, "runid"), "the run is claimed")
        wait_until_its_lease_would_be_over(sqlite_project)
        assert processes_of(sqlite_project), "the script waits for its reader, it is not ended"
    finally:
        code, out, err = end_of(runner)
    assert (code, len(out)) == (0, 1_000_000), err
    assert job_status(sqlite_project) == {"1": "COMPLETE"}


def test_a_log_folder_that_cannot_be_written_does_not_stop_the_job(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "echo hello")
    (sqlite_project.folder / ".dataflow" / "logs").write_text("a file where the folder should be")
    done = sqlite_project.runjob(script)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    [(path, tail)] = runs(sqlite_project, "log_path, log_tail")
    assert path is None
    assert "hello" in str(tail)
    assert "the log file cannot be written" in str(tail)


def test_a_script_can_read_the_callers_standard_input(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "cat > got")
    assert sqlite_project.runjob(script, input="from the caller\n").returncode == 0
    assert (sqlite_project.folder / "got").read_text() == "from the caller\n"


def test_the_child_inherits_no_file_of_the_runner(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "ls /proc/$$/fd > fds")
    assert sqlite_project.runjob(script).returncode == 0
    assert set(lines(sqlite_project.folder / "fds")) <= {"0", "1", "2", "255"}
