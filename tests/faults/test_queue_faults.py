"""The faults of a queue, one by one: workers go on, or stop with a clear word, and in the end all is done once."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opendataflow.errors import StoreUnavailable
from opendataflow.store import open_store
from support import projects
from support.chaos.fleet import children_of
from support.chaos.stores import hold_open
from support.chaos.wire import wire
from support.jobs import job_status, lines, one_job, publishes, runs, wait_until_gone
from support.postgres import Server, postgres
from support.processes import wait_for
from support.projects import Project

SHARDS = 40
DROP = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'dataflow %'
"""
NOTE = 'echo "$dataid" >> journal; sleep 0.05'


class Worker:
    """A worker whose words go to a file."""

    def __init__(self, project: Project, name: str, *options: str, store: str | None = None) -> None:
        self._file = project.folder / f"{name}.said"
        argv = [projects.DATAFLOW, "worker", "--slots", "2", "--grace", "10", *options]
        env = project.env(DATAFLOW_STORE=store or project.store)
        with self._file.open("ab") as said:
            self.process = subprocess.Popen(argv, cwd=project.folder, env=env, stdout=said, stderr=said)

    @property
    def said(self) -> str:
        return self._file.read_text()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        return self.process.wait(120)


Start = Callable[..., Worker]


@pytest.fixture
def start_worker() -> Iterator[Start]:
    """Starts workers that the test does not leave behind, however it ends."""
    with contextlib.ExitStack() as ends:

        def start(project: Project, name: str = "worker", *options: str, store: str | None = None) -> Worker:
            worker = Worker(project, name, *options, store=store)
            ends.callback(worker.process.wait)
            ends.callback(worker.process.kill)
            return worker

        yield start


def make(project: Project, body: str = NOTE, *, shards: int = SHARDS, settings: str = "lease: 10s") -> list[str]:
    one_job(project, body, partitions=f"{{shards: 1..{shards}}}", settings=settings)
    return [str(number) for number in range(1, shards + 1)]


def done(project: Project) -> int:
    return sum(status == "COMPLETE" for status in job_status(project).values())


def wait_until_done(project: Project, n: int, *, seconds: float = 60.0) -> None:
    wait_for(lambda: done(project) >= n, f"{n} are done", seconds=seconds)


def assert_each_once(project: Project, shards: list[str]) -> None:
    assert job_status(project) == dict.fromkeys(shards, "COMPLETE")
    assert publishes(project, "out") == dict.fromkeys(shards, 1)
    wait_until_gone(project)
    assert project.dataflow("db", "check").returncode == 0


def test_dropped_connections_are_said_and_nothing_is_done_twice(postgres_project: Project, start_worker: Start) -> None:
    shards = make(postgres_project)
    worker = start_worker(postgres_project)
    for part in (5, 15, 25):
        wait_until_done(postgres_project, part)
        postgres_project.sql(DROP)
    wait_until_done(postgres_project, SHARDS)
    assert worker.stop() == 0, worker.said
    assert "cannot be used" in worker.said
    assert "the store is back after" in worker.said
    assert "Traceback" not in worker.said
    assert sorted(lines(postgres_project.folder / "journal"), key=int) == shards, "no script ran a second time"
    assert_each_once(postgres_project, shards)


def test_a_reader_that_holds_a_transaction_open_holds_nobody_up(project: Project, start_worker: Start) -> None:
    shards = make(project)
    worker = start_worker(project)
    wait_until_done(project, 5)
    reader = hold_open(project.store)
    try:
        wait_until_done(project, SHARDS)
        assert reader.poll() is None, "it still reads what there was at the beginning"
    finally:
        reader.kill()
        reader.communicate()
    assert worker.stop() == 0, worker.said
    assert "cannot be used" not in worker.said
    assert_each_once(project, shards)


def test_workers_that_are_killed_again_and_again_get_it_done(sqlite_project: Project, start_worker: Start) -> None:
    shards = make(sqlite_project)
    for part in (2, 8, 14, 20, 26):
        worker = start_worker(sqlite_project)
        wait_until_done(sqlite_project, part)
        worker.process.kill()
        worker.process.wait()
    last = start_worker(sqlite_project)
    wait_until_done(sqlite_project, SHARDS)
    assert last.stop() == 0, last.said
    assert "its process is gone" in last.said
    assert {status for (status,) in runs(sqlite_project, "status")} <= {"COMPLETE", "LOST"}
    assert_each_once(sqlite_project, shards)


@pytest.fixture
def full_disk(sqlite_project: Project) -> Iterator[Path]:
    """The folder of the logs, on a disk of 64 KiB."""
    folder = sqlite_project.folder / ".dataflow" / "logs"
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_of_logs_stops_no_script_and_is_noted_in_the_tail(
    sqlite_project: Project, start_worker: Start
) -> None:
    shards = make(sqlite_project, 'printf "%08000d\\nlast words of $dataid\\n" 0', shards=20)
    worker = start_worker(sqlite_project)
    wait_until_done(sqlite_project, 20)
    assert worker.stop() == 0, worker.said
    tails = [str(tail) for (tail,) in runs(sqlite_project, "log_tail")]
    noted = [tail for tail in tails if "the log file cannot be written: No space left on device" in tail]
    assert 5 < len(noted) < 20, "those that came after the disk was full"
    assert all("last words of" in tail for tail in tails), "the store has the end of every log"
    assert_each_once(sqlite_project, shards)


def test_a_worker_cut_off_loses_its_leases_to_another_and_goes_on_when_it_can(
    postgres_project: Project, start_worker: Start
) -> None:
    body = 'echo "$dataid $DATAFLOW_RUN_ID" >> journal; [ -e healed ] || { echo "$$" >> held; exec sleep 300; }'
    shards = make(postgres_project, body, shards=12, settings="lease: 2s")
    with wire(postgres_project.store) as line:
        cut_off = start_worker(postgres_project, "cut off", store=line.url)
        held = postgres_project.folder / "held"
        wait_for(lambda: len(lines(held)) == 2, "it has two")
        (postgres_project.folder / "healed").touch()
        line.silence()
        other = start_worker(postgres_project, "other")
        wait_until_done(postgres_project, 12)
        lost = runs(postgres_project, "message")[:2]
        assert all("its lease ran out" in str(message) for (message,) in lost), lost
        assert other.stop() == 0, other.said
        line.mend()
        postgres_project.dataflow("resubmit", "work", "3")
        wait_for(lambda: job_status(postgres_project)["3"] == "COMPLETE", "the one that was cut off works again")
        assert cut_off.stop() == 0, cut_off.said
    for word in ("Traceback", "internal error"):
        assert word not in cut_off.said
    published = publishes(postgres_project, "out")
    assert published == dict.fromkeys(shards, 1) | {"3": 2}


def test_an_idle_worker_whose_line_was_dropped_still_does_what_only_time_brings(
    postgres_project: Project, start_worker: Start
) -> None:
    make(
        postgres_project, "[ -e healed ] || { touch healed; exit 3; }", shards=1,
        settings="retries: {max: 1, backoff: 4s}",
    )  # fmt: skip
    worker = start_worker(postgres_project)
    idle = "SELECT count(*) FROM worker WHERE is_idle = 1"
    wait_for(lambda: job_status(postgres_project) == {"1": "FAILED"}, "the first attempt has failed")
    wait_for(lambda: postgres_project.sql(idle) == [(1,)], "the worker rests")
    postgres_project.sql(DROP)
    wait_until_done(postgres_project, 1, seconds=50)
    assert worker.stop() == 0, worker.said
    assert "the store is back after" in worker.said


def test_a_database_that_goes_away_and_comes_back_is_said_once_each(
    own_server: Server, tmp_path: Path, start_worker: Start
) -> None:
    project = Project(tmp_path / "project", own_server.new_database())
    shards = make(project)
    worker = start_worker(project, "worker", "--json")
    wait_until_done(project, 5)
    own_server.halt("immediate")
    wait_for(lambda: "nothing is taken" in worker.said, "the worker notices")
    own_server.start_again()
    wait_until_done(project, SHARDS)
    assert worker.stop() == 0, worker.said
    events = [json.loads(line) for line in worker.said.splitlines()]
    said = [event["text"] for event in events if event["event"] == "said"]
    assert sum("runs go on while their leases last, nothing is taken" in text for text in said) == 1, said
    assert sum("the store is back after" in text for text in said) == 1, said
    assert_each_once(project, shards)


@pytest.fixture
def own_server() -> Iterator[Server]:
    with postgres() as server:
        yield server


ORPHANS = """
if [ -s "pid.$dataid" ]; then
    read -r pid < "pid.$dataid"
    if read -r -a other 2> /dev/null < "/proc/$pid/stat" && [[ ${other[2]} != Z ]] && ! (( other[8] & 4 )); then
        pending=0
        while read -r name value; do
            [[ $name == *Pnd: ]] && (( pending |= 16#$value ))
        done 2> /dev/null < "/proc/$pid/status"
        (( pending & 256 )) || echo "$dataid beside $pid" >> overlap
    fi
else
    echo $$ > "pid.$dataid"
    exec sleep 300
fi
"""


def test_orphans_of_a_killed_worker_and_its_guards_are_dead_before_their_work_is_given_back(
    postgres_project: Project, start_worker: Start
) -> None:
    shards = make(postgres_project, ORPHANS, shards=12, settings="lease: 60s")
    first = start_worker(postgres_project, "first", "--slots", "12")
    held = [postgres_project.folder / f"pid.{shard}" for shard in shards]
    wait_for(lambda: all(file.exists() for file in held), "all of them run")
    for number in range(3):  # they look at the same time: one gives back what another takes at once
        start_worker(postgres_project, f"other {number}")
    idle = "SELECT count(*) FROM worker WHERE is_idle = 1"
    wait_for(lambda: postgres_project.sql(idle) == [(3,)], "the others wait for work")
    for pid in (first.process.pid, *children_of(first.process.pid)):
        os.kill(pid, signal.SIGKILL)
    wait_until_done(postgres_project, 12)
    assert lines(postgres_project.folder / "overlap") == []


def test_a_store_that_falls_silent_is_away_and_its_line_is_given_up(
    postgres_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(postgres_project, shards=1)
    monkeypatch.setattr("opendataflow.store.postgres.SILENT_SECONDS", 0.5)
    with wire(postgres_project.store) as line:
        store = open_store(line.url, actor="test@here:1")
        line.silence()
        with pytest.raises(StoreUnavailable, match=r"no answer within 0.5 s"):
            store.read("get_store", {})
        line.mend()
        assert store.read("get_store", {}), "over a line of its own"
        store.close()


if "DATAFLOW_EVERY_FAULT" in os.environ:  # `make faults`: half a minute of silence

    def test_a_worker_whose_line_is_silent_stops_when_told_and_what_ran_is_run_again(
        postgres_project: Project, start_worker: Start
    ) -> None:
        make(postgres_project, "[ -e healed ] || { touch started; exec sleep 300; }", shards=2, settings="lease: 2s")
        with wire(postgres_project.store) as line:
            worker = start_worker(postgres_project, "silent", "--grace", "1", store=line.url)
            wait_for((postgres_project.folder / "started").exists, "something runs")
            line.silence()
            worker.process.terminate()
            worker.process.wait(60)
            wait_until_gone(postgres_project)
        assert "signal 15" in worker.said
        assert "no answer within" in worker.said
        (postgres_project.folder / "healed").touch()
        other = start_worker(postgres_project, "other")
        wait_until_done(postgres_project, 2)
        assert other.stop() == 0, other.said
        assert publishes(postgres_project, "out") == {"1": 1, "2": 1}
