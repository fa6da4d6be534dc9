"""A worker and its slots, as real processes over both stores."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opendataflow.scheduling.worker import LOOK_ANYWAY_SECONDS
from support.jobs import end_of, job_status, lines, one_job, processes_of, publishes, runs, wait_until_gone
from support.postgres import Server, postgres
from support.processes import forks_in, is_alive, wait_for
from support.projects import DATAFLOW, Project, with_settings
from support.relay import Relay

TWO_JOBS = """\
name: Two jobs
environments: {{dev: {{root: ./data}}}}
datasets:
  raw: {{path: "raw/{{dataid}}.txt", partitions: {{shards: 1..{shards}}}}}
  out: {{path: "out/{{dataid}}.txt"}}
jobs:
  extract: {{script: jobs/extract.sh, outputs: [raw], lease: 60s}}
  work: {{script: jobs/work.sh, inputs: [raw], outputs: [out], lease: 60s}}
"""


def two_jobs(project: Project, shards: int, *, pause: str = "true") -> list[str]:
    """extract → work over so many shards; both write into the journal when they begin."""
    project.apply(TWO_JOBS.format(shards=shards))
    note = 'echo "$jobid $dataid" >> journal; mkdir -p live; touch "live/$jobid.$dataid"; ls live | wc -l >> widths'
    project.script("jobs/extract.sh", f'{note}; {pause}; echo "$dataid" > "$raw_location"; rm "live/$jobid.$dataid"')
    project.script("jobs/work.sh", f'{note}; {pause}; cp "$raw_location" "$out_location"; rm "live/$jobid.$dataid"')
    return [str(number) for number in range(1, shards + 1)]


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start_worker() -> Iterator[Start]:
    """Starts workers that the test does not leave behind, however it ends."""
    with contextlib.ExitStack() as ends:

        def start(project: Project, *options: str) -> subprocess.Popen[str]:
            worker = ends.enter_context(project.start(DATAFLOW, "worker", *options))
            ends.callback(worker.kill)
            return worker

        yield start


def completed(project: Project, jobid: str = "work") -> int:
    return Counter(job_status(project, jobid).values())["COMPLETE"]


def is_idle(project: Project) -> bool:
    return [row[0] for row in project.sql("SELECT is_idle FROM worker")] == [1]


# The work ---------------------------------------------------------------------------------------------------------
def test_four_slots_run_two_jobs_of_fifty_dataids_each_exactly_once(project: Project) -> None:
    shards = two_jobs(project, 50)
    done = project.run(DATAFLOW, "worker", "--once", "--slots", "4", "--json")
    assert done.returncode == 0, done.stderr
    journal = lines(project.folder / "journal")
    assert Counter(journal) == {f"{job} {shard}": 1 for job in ("extract", "work") for shard in shards}
    for shard in shards:
        assert journal.index(f"extract {shard}") < journal.index(f"work {shard}")
    assert publishes(project, "out") == dict.fromkeys(shards, 1)
    assert journal.index("work 1") < journal.index("extract 50"), "neither job waits for the other's end"
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert Counter(one["status"] for one in events if one["event"] == "ended") == {"COMPLETE": 100}
    assert {owner for (owner,) in runs(project, "owner")} == {owner for (owner,) in runs(project, "owner", "extract")}
    assert len({guard for (guard,) in runs(project, "guard_pid")}) == 4, "every slot had its share"
    assert project.sql("SELECT count(*) FROM worker") == [(0,)], "it said that it has gone"
    assert processes_of(project) == []
    assert project.dataflow("db", "check").returncode == 0


def test_a_drain_in_slots_exits_as_a_drain_does_and_passes_arguments(sqlite_project: Project) -> None:
    one_job(sqlite_project, '[ "$dataid" = 3 ] && exit 7; echo "$1 $dataid" >> ran', partitions="{shards: 1..6}")
    done = sqlite_project.dataflow("run", "work", "--drain", "--slots", "3", "--", "--fast")
    assert done.returncode == 1, done.stderr
    assert "work/3 FAILED" in done.stderr
    assert "it exited 7" in done.stderr
    assert sorted(lines(sqlite_project.folder / "ran")) == [f"--fast {n}" for n in (1, 2, 4, 5, 6)]
    again = sqlite_project.dataflow("run", "work", "--drain", "--slots", "3")
    assert (again.returncode, "nothing else is left to do" in again.stderr) == (1, True)
    assert sqlite_project.dataflow("run", "work", "--slots", "3").returncode == 2
    assert sqlite_project.dataflow("run", "nosuch", "--drain", "--slots", "3").returncode == 2


def test_an_idle_worker_notices_new_work_before_it_would_look_anyway(project: Project, start_worker: Start) -> None:
    assert LOOK_ANYWAY_SECONDS > 30, "for as long the work is waited for here"
    project.apply(TWO_JOBS.format(shards=3).replace("extract: ", "# extract: "))
    project.script("jobs/work.sh", 'cp "$raw_location" "$out_location"')
    for shard in "123":
        project.write(f"data/raw/{shard}.txt", shard)
    worker = start_worker(project, "--slots", "2")
    wait_for(lambda: is_idle(project), "the worker is idle")
    for shard in "123":
        wait_for(lambda: is_idle(project), "the worker rests")
        project.sql(
            f"INSERT INTO datastatus (datasetid, dataid, locktype, status) VALUES ('raw', '{shard}', 'OUT', 'READY')"
        )
        wait_for(lambda: completed(project) == int(shard), f"shard {shard} is done")  # noqa: B023
    worker.terminate()
    code, _, err = end_of(worker)
    assert code == 0, f"told to stop with nothing at work: {err}"


# Faults -----------------------------------------------------------------------------------------------------------
def test_killed_workers_and_children_cost_nothing_but_time(project: Project, start_worker: Start) -> None:
    shards = two_jobs(project, 20, pause="sleep 0.1")
    first, second = (start_worker(project, "--slots", "3") for _ in range(2))
    by_whom = "SELECT DISTINCT owner FROM run WHERE status = 'COMPLETE'"
    wait_for(lambda: len(project.sql(by_whom)) == 2, "both have done some")
    of_second = f"SELECT guard_pid FROM run WHERE status = 'RUNNING' AND pid = {second.pid}"
    guard = wait_for(lambda: project.sql(of_second), "the second one has work")[0][0]
    children = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    first.kill()
    end_of(first)
    wait_for(lambda: completed(project) == len(shards), "all is done", seconds=60)
    second.terminate()
    assert end_of(second)[0] == 0
    assert publishes(project, "out") == dict.fromkeys(shards, 1)
    assert publishes(project, "raw") == dict.fromkeys(shards, 1)
    assert project.sql("SELECT count(*) FROM run WHERE status = 'LOST'")[0][0] >= 1, "the first one held something"
    assert {status for (status,) in project.sql("SELECT DISTINCT status FROM run")} <= {"COMPLETE", "LOST", "RESUBMIT"}
    wait_until_gone(project)


def test_the_row_of_a_worker_that_was_killed_here_goes_when_another_starts(
    sqlite_project: Project, start_worker: Start
) -> None:
    one_job(sqlite_project, "true")
    killed = start_worker(sqlite_project)
    wait_for(lambda: is_idle(sqlite_project), "it is idle")
    killed.kill()
    killed.wait()
    other = start_worker(sqlite_project)
    pids = "SELECT pid FROM worker"
    wait_for(lambda: sqlite_project.sql(pids) == [(other.pid,)], "only the other one is there")


def test_a_script_that_is_away_for_a_while_costs_no_attempt(sqlite_project: Project, start_worker: Start) -> None:
    path = one_job(sqlite_project, "sleep 0.1", partitions="{shards: 1..30}", settings="retries: {max: 3, backoff: 1s}")
    worker = start_worker(sqlite_project, "--slots", "2")
    wait_for(lambda: completed(sqlite_project) > 3, "it is at work")
    path.rename(path.with_suffix(".away"))
    assert worker.stderr is not None
    gone = "work: its script jobs/work.sh is gone; it waits until it is there again"
    while gone not in (line := worker.stderr.readline()):
        assert line, "the worker has ended"
    before = completed(sqlite_project)
    path.with_suffix(".away").rename(path)
    wait_for(lambda: completed(sqlite_project) == 30, "all are done")
    worker.terminate()
    assert gone not in worker.stderr.read(), "it was said once"
    worker.wait(60)
    assert before < 30
    bad = [message for status, message in runs(sqlite_project, "status", "message") if status != "COMPLETE"]
    assert len(bad) <= 2, "only those that were being started in that very moment"


def test_a_killed_guard_ends_its_child_and_the_slot_gets_another(sqlite_project: Project, start_worker: Start) -> None:
    one_job(sqlite_project, "[ -e healed ] || { echo $$ > pid; touch healed started; exec sleep 300; }")
    worker = start_worker(sqlite_project, "--slots", "1")
    wait_for((sqlite_project.folder / "started").exists, "the script has started")
    pid = int((sqlite_project.folder / "pid").read_text())
    [(guard,)] = runs(sqlite_project, "guard_pid")
    os.kill(int(guard), signal.SIGKILL)
    wait_for(lambda: completed(sqlite_project) == 1, "it is done again")
    assert not is_alive(pid)
    assert [status for (status,) in runs(sqlite_project, "status")] == ["RESUBMIT", "COMPLETE"]
    worker.terminate()
    assert end_of(worker)[0] == 0


def test_a_worker_told_to_stop_lets_what_runs_finish_and_hands_the_rest_back(
    sqlite_project: Project, start_worker: Start
) -> None:
    one_job(
        sqlite_project,
        'touch "started.$dataid"; while [ ! -e "go.$dataid" ]; do sleep 0.02; done',
        partitions="{shards: 1..9}",
    )
    worker = start_worker(sqlite_project, "--slots", "2", "--grace", "2")
    for number in "12":
        wait_for((sqlite_project.folder / f"started.{number}").exists, f"{number} runs")
    worker.terminate()
    time.sleep(0.2)
    (sqlite_project.folder / "go.1").touch()
    wait_for(lambda: job_status(sqlite_project)["1"] == "COMPLETE", "the first one finishes")
    assert worker.poll() is None, "the second one still has time"
    code, _, err = end_of(worker)
    assert code == 128 + signal.SIGTERM, err
    statuses = job_status(sqlite_project)
    assert (statuses["2"], Counter(statuses.values())["PENDING"]) == ("RESUBMIT", 7)
    assert processes_of(sqlite_project) == []
    hasty = start_worker(sqlite_project, "--slots", "1", "--grace", "100")
    wait_for(lambda: job_status(sqlite_project)["2"] == "RUNNING", "it is taken again")
    hasty.terminate()
    time.sleep(0.2)
    hasty.terminate()
    assert end_of(hasty, seconds=20)[0] == 128 + signal.SIGTERM, "a second signal ends it at once"
    assert job_status(sqlite_project)["2"] == "RESUBMIT"


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A server that tests may stop, if they start it again."""
    with postgres() as server:
        yield server


def test_a_worker_survives_a_restart_of_the_database(own_server: Server, tmp_path: Path, start_worker: Start) -> None:
    project = Project(tmp_path / "project", own_server.new_database())
    shards = two_jobs(project, 12, pause="sleep 0.2")
    worker = start_worker(project, "--slots", "4")
    wait_for(lambda: completed(project, "extract") >= 4, "some are done")
    own_server.halt("immediate")
    wait_for(lambda: not list((project.folder / "live").iterdir()), "ends that cannot be recorded now")
    own_server.start_again()
    wait_for(lambda: completed(project) == len(shards), "all is done", seconds=60)
    worker.terminate()
    code, _, err = end_of(worker)
    assert code == 0, err
    assert "the store is back" in err
    assert Counter(lines(project.folder / "journal")) == {
        f"{job} {n}": 1 for job in ("extract", "work") for n in shards
    }
    assert publishes(project, "out") == dict.fromkeys(shards, 1)


class Loses(Relay):
    """A relay that loses an answer when it is told to: what was asked was done, but who asked never hears of it."""

    def __init__(self, url: str) -> None:
        self.lose = threading.Event()
        super().__init__(url)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                for one, other in ((client, server), (server, client)):
                    thread = threading.Thread(target=self._pass_on, args=(one, other, one is server), daemon=True)
                    thread.start()
                    self._threads.append(thread)

    def _pass_on(self, one: socket.socket, other: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if is_answer and self.lose.is_set():
                    self.lose.clear()
                    break
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def test_answers_that_are_lost_on_the_way_leave_nothing_undone_or_done_twice(
    postgres_project: Project, start_worker: Start
) -> None:
    shards = two_jobs(postgres_project, 24, pause="sleep 0.05")
    with contextlib.closing(Loses(postgres_project.store)) as wire:
        worker = start_worker(Project(postgres_project.folder, wire.url()), "--slots", "4")
        for number in (6, 12, 18):
            wait_for(lambda: completed(postgres_project, "extract") >= number, f"{number} are done")  # noqa: B023
            wire.lose.set()
        wait_for(lambda: completed(postgres_project) == len(shards), "all is done before a lease ran out", seconds=50)
        worker.terminate()
        code, _, err = end_of(worker)
    assert code == 0, err
    assert "the store is back" in err
    assert publishes(postgres_project, "out") == dict.fromkeys(shards, 1)
    assert set(Counter(lines(postgres_project.folder / "journal")).values()) == {1}, "a lost claim was never begun"


def test_ends_that_outlast_their_leases_are_kept_and_recorded_by_the_worker_itself(
    own_server: Server, tmp_path: Path, start_worker: Start
) -> None:
    project = Project(tmp_path / "project", own_server.new_database())
    one_job(project, "touch started; while [ ! -e go ]; do sleep 0.02; done; echo ran >> ran", settings="lease: 3s")
    worker = start_worker(project, "--slots", "1")
    wait_for((project.folder / "started").exists, "it runs")
    own_server.halt("immediate")
    (project.folder / "go").touch()
    kept = project.folder / ".dataflow/unreported"
    wait_for(lambda: list(kept.glob("*.json")), "the end is kept on this host")
    own_server.start_again()
    wait_for(lambda: completed(project) == 1, "and recorded when the database is back")
    worker.terminate()
    code, _, err = end_of(worker)
    assert code == 0, err
    assert "recorded now: COMPLETE" in err
    assert lines(project.folder / "ran") == ["ran"], "what was done is not done again"


def test_a_worker_that_was_stopped_past_its_leases_has_lost_them_and_goes_on(
    sqlite_project: Project, start_worker: Start
) -> None:
    one_job(
        sqlite_project, "[ -e healed ] || { echo $$ >> pids; touch started; exec sleep 300; }", settings="lease: 2s"
    )
    worker = start_worker(sqlite_project, "--slots", "1")
    wait_for((sqlite_project.folder / "started").exists, "it runs")
    worker.send_signal(signal.SIGSTOP)
    pid = int(lines(sqlite_project.folder / "pids")[0])
    wait_for(lambda: not is_alive(pid), "its guard ends the script in time")
    (sqlite_project.folder / "healed").touch()
    worker.send_signal(signal.SIGCONT)
    wait_for(lambda: completed(sqlite_project) == 1, "it is done again")
    worker.terminate()
    assert end_of(worker)[0] == 0
    assert publishes(sqlite_project, "out") == {"1": 1}


# Audits -----------------------------------------------------------------------------------------------------------
CHECKED = """\
name: Checked
environments: {dev: {root: ./data}}
datasets:
  out: {path: "out/{dataid}.csv", format: csv, options: {header: true}, partitions: {shards: 1..6},
        checks: [{rows: {min: 2}}]}
jobs:
  work: {script: jobs/work.sh, outputs: [out]}
"""


def test_outputs_with_checks_are_audited_and_only_the_wrong_one_fails(project: Project) -> None:
    project.apply(CHECKED)
    project.script("jobs/work.sh", '{ echo n; echo 1; [ "$dataid" = 3 ] || echo 2; } > "$out_location"')
    done = project.run(DATAFLOW, "worker", "--once", "--slots", "3")
    assert done.returncode == 1, done.stderr
    assert "work/3 FAILED" in done.stderr
    assert "its data are not right" in done.stderr
    assert job_status(project) == {**dict.fromkeys("12456", "COMPLETE"), "3": "FAILED"}
    assert len(project.sql("SELECT 1 FROM datastatus WHERE validated_at IS NOT NULL")) == 5


# Limits -----------------------------------------------------------------------------------------------------------
def test_limits_hold_while_they_are_changed_and_take_effect_at_once(project: Project, start_worker: Start) -> None:
    one_job(
        project,
        'mkdir -p live; touch "live/$dataid"; ls live | wc -l >> widths; sleep 0.05; rm "live/$dataid"',
        partitions="{shards: 1..1000}",
        settings="concurrency: 2",
    )
    workers = [start_worker(project, "--slots", "3") for _ in range(2)]
    widths = project.folder / "widths"

    def widest_after(limit: int, enough: int) -> int:
        project.sql(f"UPDATE job SET scaled_to = {limit}")
        live = "SELECT count(*) FROM job_status WHERE status = 'RUNNING'"
        wait_for(lambda: project.sql(live)[0][0] <= limit, "what ran before has finished")
        before = len(lines(widths))
        wait_for(lambda: len(lines(widths)) >= before + enough, f"{enough} more runs")
        return max(int(width) for width in lines(widths)[before:])

    wait_for(lambda: len(lines(widths)) >= 10, "some ran")
    assert max(int(width) for width in lines(widths)) <= 2
    assert 2 < widest_after(5, 25) <= 5
    assert widest_after(1, 5) == 1
    for worker in workers:
        worker.terminate()
    for worker in workers:
        assert end_of(worker)[0] == 0


def test_a_job_that_asks_for_it_is_braked_when_it_fails_and_released_when_it_heals(
    sqlite_project: Project, start_worker: Start
) -> None:
    one_job(sqlite_project, "sleep 0.02; [ -e healed ] || exit 3", partitions="{shards: 1..400}")
    brake = json.dumps({"brake": {"failures": 0.5, "window": 5}})
    sqlite_project.sql(f"UPDATE job SET definition = '{brake}', concurrency = 8")
    worker = start_worker(sqlite_project, "--slots", "8")
    braked = "SELECT braked_to FROM job"
    wait_for(lambda: sqlite_project.sql(braked) == [(1,)], "8, 4, 2, 1")
    (sqlite_project.folder / "healed").touch()
    wait_for(lambda: sqlite_project.sql(braked) == [(None,)], "the brake is released")
    worker.terminate()
    _, _, err = end_of(worker)
    assert "work is braked to 4 at a time: " in err
    assert "work is braked no longer" in err
    changes = sqlite_project.sql("SELECT was, becomes, reason FROM limit_history WHERE what = 'brake' ORDER BY id")
    assert [(was, becomes) for was, becomes, _ in changes[:3]] == [(None, "4"), ("4", "2"), ("2", "1")]
    assert all(reason for _, _, reason in changes)
    assert changes[-1][1] is None


# Pipelines that no process can be forked for --------------------------------------------------------------------------
SCRIPT_AND_PIPELINE = """\
name: Both
environments: {dev: {root: ./data}}
datasets:
  orders: {path: "orders/{dataid}.csv", format: csv, schema: {order: int}, partitions: {shards: 1..3}}
  totals: {path: "totals/{dataid}.csv"}
jobs:
  extract: {script: jobs/extract.sh, outputs: [orders], lease: 3s}
pipelines:
  - {slug: add_up, sources: [orders], destination: totals, transformations: [step]}
"""
_PROGRAM = "scheduling.worker_loop.PROGRAM = 'support.forked'"


def script_and_pipeline(project: Project, zygote: str) -> dict[str, str]:
    """The environment in which zygotes execute this code when they start."""
    project.apply(SCRIPT_AND_PIPELINE)
    project.script("jobs/extract.sh", 'sleep 2; echo "order" > "$orders_location"')
    project.write("pipelines/add_up/step.py", "def run(df):\n    return df\n")
    code = project.write("zygote.py", zygote)
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(Path(__file__).parents[1])])
    return {"FAILS_FILE": str(code), "PYTHONPATH": path}


@pytest.mark.parametrize(
    ("zygote", "why"),
    [
        ("raise ModuleNotFoundError('No module named pandas')", "ModuleNotFoundError: No module named pandas"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "was stopped"),
        ("import time; time.sleep(600)", "did not answer for 4 s"),
    ],
)
def test_scripts_go_on_beside_a_zygote_that_does_not_start(sqlite_project: Project, zygote: str, why: str) -> None:
    env = script_and_pipeline(sqlite_project, zygote)
    command = with_settings(DATAFLOW, _PROGRAM, "execution.zygote.ANSWER_SECONDS = 4.0")
    done = sqlite_project.run(*command, "worker", "--once", "--slots", "2", env=env)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert why in done.stderr
    assert job_status(sqlite_project, "extract") == dict.fromkeys("123", "COMPLETE")
    assert len(runs(sqlite_project, "owner", "extract")) == 3, "no lease was lost while the zygote was waited for"
    assert job_status(sqlite_project, "add_up") == dict.fromkeys("123", "PENDING")


def test_a_worker_goes_on_when_its_zygote_is_stopped_between_two_guards(sqlite_project: Project) -> None:
    env = script_and_pipeline(sqlite_project, "")
    command = with_settings(
        DATAFLOW, _PROGRAM, "execution.zygote.ANSWER_SECONDS = 4.0", "execution.zygote.is_stopped = lambda pid: False"
    )
    worker = sqlite_project.start(*command, "worker", "--slots", "2", env=env)
    try:
        (zygote,) = wait_for(lambda: forks_in(sqlite_project.folder)[:1], "there is a zygote")
        wait_for(lambda: len(forks_in(sqlite_project.folder)) == 3, "two guards come from it")
        guard = next(pid for pid in forks_in(sqlite_project.folder) if pid != zygote)
        os.kill(zygote, signal.SIGSTOP)
        os.kill(guard, signal.SIGKILL)
        wait_for(lambda: job_status(sqlite_project, "extract") == dict.fromkeys("123", "COMPLETE"), "scripts go on")
        wait_for(lambda: not is_alive(zygote), "it is replaced")
        wait_for(lambda: len(forks_in(sqlite_project.folder)) >= 3, "another guard is there")
        assert worker.poll() is None
    finally:
        worker.kill()
        worker.communicate()


@pytest.mark.parametrize("command", [("run", "add_up"), ("tick",)])
def test_a_command_whose_zygote_does_not_start_says_why(sqlite_project: Project, command: tuple[str, ...]) -> None:
    env = script_and_pipeline(sqlite_project, "raise ModuleNotFoundError('No module named pandas')")
    assert sqlite_project.dataflow("run", "extract").returncode == 0  # there is something to claim
    program = with_settings(DATAFLOW, "execution.pipeline.PROGRAM = 'support.forked'")
    done = sqlite_project.run(*program, *command, env=env)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "ModuleNotFoundError: No module named pandas" in done.stderr
    assert job_status(sqlite_project, "add_up") == dict.fromkeys("123", "PENDING")


def test_a_worker_replaces_its_zygote_and_guards_when_what_they_imported_was_upgraded(sqlite_project: Project) -> None:
    env = script_and_pipeline(sqlite_project, "")
    # A chunk of it would start the zygote of the real program, too.
    assert sqlite_project.dataflow("hold", "add_up").returncode == 0
    worker = sqlite_project.start(*with_settings(DATAFLOW, _PROGRAM), "worker", "--slots", "2", env=env)
    try:
        wait_for(lambda: len(forks_in(sqlite_project.folder)) == 3, "there are a zygote and two guards")
        before = set(forks_in(sqlite_project.folder))
        sqlite_project.write("zygote.py", "upgraded = True")
        wait_for(lambda: not before & set(forks_in(sqlite_project.folder)), "the old ones are gone")
        wait_for(lambda: len(forks_in(sqlite_project.folder)) == 3, "there are new ones")
        wait_for(lambda: job_status(sqlite_project, "extract") == dict.fromkeys("123", "COMPLETE"), "scripts go on")
        assert worker.poll() is None
    finally:
        worker.kill()
        worker.communicate()
