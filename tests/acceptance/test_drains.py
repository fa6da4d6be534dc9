"""A drain goes on while what is left comes without anybody's doing: its own retries, and room under a limit."""

import signal

import pytest

from support.jobs import end_of, job_status, one_job, runs
from support.processes import wait_for
from support.projects import DATAFLOW, RUNJOB, Project

FAILS_ONCE = "[ -e tried.$dataid ] || { touch tried.$dataid; exit 3; }"
WAITS = 'touch "started.$dataid"; until [ -e go ]; do sleep 0.05; done'
DRAINS = [
    (RUNJOB, "--drain", "jobs/work.sh"),
    (DATAFLOW, "run", "work", "--drain"),
    (DATAFLOW, "run", "work", "--drain", "--slots", "2"),
]


@pytest.mark.both_stores
@pytest.mark.parametrize("drain", DRAINS, ids=["RunJob", "run", "slots"])
def test_a_drain_runs_the_retries_of_its_own_runs(project: Project, drain: tuple[str, ...]) -> None:
    one_job(project, FAILS_ONCE, partitions="{shards: 1..3}", settings="retries: {max: 1, backoff: 2s}")
    done = project.run(*drain)
    assert job_status(project) == dict.fromkeys("123", "COMPLETE"), done.stderr
    assert done.returncode == 0, done.stderr
    assert len(runs(project, "runid")) == 6
    assert "is tried again at" in done.stderr


def test_a_drain_fails_when_the_last_attempt_of_a_dataid_fails(sqlite_project: Project) -> None:
    one_job(
        sqlite_project, "[ $dataid != 2 ] || exit 3", partitions="{shards: 1..3}",
        settings="retries: {max: 1, backoff: 0.1s}",
    )  # fmt: skip
    done = sqlite_project.runjob("--drain", "jobs/work.sh")
    assert done.returncode == 1
    assert job_status(sqlite_project) == {"1": "COMPLETE", "2": "FAILED", "3": "COMPLETE"}
    assert runs(sqlite_project, "dataid").count(("2",)) == 2


@pytest.mark.parametrize("drain", DRAINS, ids=["RunJob", "run", "slots"])
def test_a_drain_does_not_wait_for_the_retry_of_another(sqlite_project: Project, drain: tuple[str, ...]) -> None:
    script = one_job(sqlite_project, FAILS_ONCE, settings="retries: {max: 1, backoff: 5h}")
    assert sqlite_project.runjob(script).returncode == 1
    done = sqlite_project.run(*drain)
    assert done.returncode == 1
    assert "it is tried again at" in done.stderr
    assert job_status(sqlite_project) == {"1": "FAILED"}


@pytest.mark.parametrize("drain", DRAINS, ids=["RunJob", "run", "slots"])
def test_with_wait_a_drain_waits_for_the_retry_of_another_too(sqlite_project: Project, drain: tuple[str, ...]) -> None:
    script = one_job(sqlite_project, FAILS_ONCE, settings="retries: {max: 1, backoff: 3s}")
    assert sqlite_project.runjob(script).returncode == 1
    argv = [drain[0], "--wait", "60", *drain[1:]] if drain[0] == RUNJOB else [*drain, "--wait", "60"]
    done = sqlite_project.run(*argv)
    assert done.returncode == 0, done.stderr
    assert job_status(sqlite_project) == {"1": "COMPLETE"}


@pytest.mark.both_stores
@pytest.mark.parametrize("drain", DRAINS, ids=["RunJob", "run", "slots"])
def test_a_drain_beyond_the_limit_waits_for_room_and_takes_part(project: Project, drain: tuple[str, ...]) -> None:
    one_job(project, WAITS, partitions="{shards: 1..3}", settings="concurrency: 1")
    first = project.start(RUNJOB, "--drain", "jobs/work.sh")
    wait_for((project.folder / "started.1").exists, "the first drain has a run")
    second = project.start(*drain)
    assert second.stderr is not None
    told = ""
    while "waits for room: the limit of work is 1" not in told and second.poll() is None:
        told += second.stderr.readline()
    assert second.poll() is None, told
    first.send_signal(signal.SIGTERM)
    assert end_of(first)[0] == 143
    (project.folder / "go").touch()
    code, _, rest = end_of(second)
    assert code == 0, told + rest
    assert job_status(project) == dict.fromkeys("123", "COMPLETE")


def test_a_drain_does_not_wait_under_a_limit_of_none(sqlite_project: Project) -> None:
    one_job(sqlite_project, "", settings="concurrency: 1")
    assert sqlite_project.dataflow("scale", "work", "0").returncode == 0
    assert sqlite_project.runjob("--drain", "jobs/work.sh").returncode == 14
