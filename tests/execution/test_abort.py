"""A run that a person wants ended: its owner ends the child, and the run is FAILED; never that and COMPLETE."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from support.jobs import end_of, job_status, one_job, processes_of, publishes, runs, start_and_wait_for, wait_until_gone
from support.processes import wait_for
from support.projects import DATAFLOW, RUNJOB, Project, with_settings

SLEEPS = 'touch "begun-$dataid"; echo begun; sleep 300'


@contextmanager
def worker(project: Project, *options: str) -> Iterator[None]:
    process = project.start(DATAFLOW, "worker", *options)
    try:
        yield
    finally:
        process.terminate()
        process.communicate(timeout=60)


def abort(project: Project, *argv: str) -> tuple[int, str]:
    done = project.dataflow("abort", *argv)
    return done.returncode, done.stderr


def test_a_worker_ends_the_child_and_the_run_is_failed_by_whoever_asked_without_another_attempt(
    project: Project,
) -> None:
    one_job(project, SLEEPS, settings="retries: {max: 5, backoff: 0.01s}")
    with worker(project):
        wait_for((project.folder / "begun-1").exists, "the script runs")
        code, said = abort(project, "work", "1")
        wait_until_gone(project)
        again = project.run(DATAFLOW, "worker", "--once")
        assert (again.returncode, "nothing else is left to do" in again.stderr) == (1, True), again.stderr
    assert code == 0, said
    ((status, message, attempts),) = runs(project, "status, message, attempt")
    assert (status, attempts) == ("FAILED", 1)
    assert str(message).startswith("aborted by ")
    assert job_status(project) == {"1": "FAILED"}
    assert project.sql("SELECT status FROM datastatus WHERE datasetid = 'out'") == [("FAILED",)]


def test_runjob_ends_its_script_and_says_so(project: Project) -> None:
    script = one_job(project, SLEEPS)
    runner = start_and_wait_for(project, project.folder / "begun-1", script)
    ((runid,),) = runs(project, "runid")
    code, said = abort(project, str(runid))
    assert code == 0, said
    exit_code, _, told = end_of(runner)
    assert exit_code == 1
    assert "aborted by " in told
    assert processes_of(project) == []
    assert [status for (status,) in runs(project, "status")] == ["FAILED"]


def test_only_the_run_that_was_meant_is_ended(project: Project) -> None:
    one_job(project, 'touch "begun-$dataid"; while [ ! -e go ]; do sleep 0.05; done', partitions="{shards: 1..3}")
    with worker(project, "--slots", "3"):
        wait_for(lambda: all((project.folder / f"begun-{n}").exists() for n in (1, 2, 3)), "all three run")
        assert abort(project, "work", "2")[0] == 0
        (project.folder / "go").touch()
        wait_for(lambda: "RUNNING" not in job_status(project).values(), "the others end")
    assert job_status(project) == {"1": "COMPLETE", "2": "FAILED", "3": "COMPLETE"}


def test_a_child_that_does_not_obey_is_killed(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "trap '' TERM; touch begun; while true; do sleep 0.1; done")
    impatient = with_settings(RUNJOB, "execution.supervise.GRACE_SECONDS = 0.3")
    runner = sqlite_project.start(*impatient, script)
    wait_for((sqlite_project.folder / "begun").exists, "the script runs")
    code, said = abort(sqlite_project, "work", "1", "--wait", "60")
    assert code == 0, said
    end_of(runner)
    assert processes_of(sqlite_project) == []


def test_what_was_resubmitted_while_it_ran_runs_again_after_the_abort(sqlite_project: Project) -> None:
    one_job(sqlite_project, "if [ ! -e begun ]; then touch begun; sleep 300; fi")
    with worker(sqlite_project):
        wait_for((sqlite_project.folder / "begun").exists, "the script runs")
        sqlite_project.dataflow("resubmit", "work", "1")
        assert abort(sqlite_project, "work", "1")[0] == 0
        wait_for(lambda: job_status(sqlite_project) == {"1": "COMPLETE"}, "it runs again")
    assert [status for (status,) in runs(sqlite_project, "status")] == ["FAILED", "COMPLETE"]


def test_what_does_not_run_is_told_apart(sqlite_project: Project) -> None:
    one_job(sqlite_project, "true")
    code, said = abort(sqlite_project, "work", "1")
    assert (code, "is not running" in said) == (2, True)
    assert sqlite_project.runjob("jobs/work.sh").returncode == 0
    ((runid,),) = runs(sqlite_project, "runid")
    code, said = abort(sqlite_project, str(runid))
    assert (code, "it is COMPLETE" in said) == (2, True)
    assert "there is no run 99" in abort(sqlite_project, "99")[1]
    assert "give JOB DATAID" in abort(sqlite_project, "work")[1]


def test_the_work_of_a_dead_owner_returns_when_its_lease_is_over(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "if [ ! -e begun ]; then touch begun; sleep 300; fi", settings="lease: 2s")
    runner = start_and_wait_for(sqlite_project, sqlite_project.folder / "begun", script)
    os.kill(runner.pid, 9)
    runner.communicate(timeout=30)
    code, said = abort(sqlite_project, "work", "1", "--wait", "0.5")
    assert (code, "has not ended yet" in said) == (1, True)
    wait_until_gone(sqlite_project)
    assert sqlite_project.dataflow("tick").returncode == 0
    assert [status for (status,) in runs(sqlite_project, "status")] == ["LOST", "COMPLETE"]


def test_a_race_of_abort_and_completion_has_one_winner(project: Project) -> None:
    """Each of many runs ends just when somebody aborts it: it is COMPLETE and READY, or FAILED and neither."""
    number = 8
    ends_after = "$((80 + dataid * 4))e-2"  # seconds, from 0.84 to 1.12
    one_job(project, f'echo "$dataid" >> begun; sleep {ends_after}', partitions=f"{{shards: 1..{number}}}")
    with worker(project, "--slots", str(number)):
        wait_for(lambda: len(runs(project, "runid")) == number, "all run")
        asked = [project.start(DATAFLOW, "abort", "work", str(dataid), "--json") for dataid in range(1, number + 1)]
        for one in asked:
            one.communicate(timeout=60)
        wait_for(lambda: "RUNNING" not in job_status(project).values(), "all have ended")
    states = job_status(project)
    published = publishes(project, "out")
    ends = {str(dataid): (status, message) for dataid, status, message in runs(project, "dataid, status, message")}
    for dataid, status in states.items():
        is_complete = status == "COMPLETE"
        assert status in ("COMPLETE", "FAILED")
        assert ends[dataid][0] == status
        assert published[dataid] == int(is_complete)
        assert ("aborted by " in str(ends[dataid][1])) is not is_complete
    assert len(runs(project, "runid")) == number
