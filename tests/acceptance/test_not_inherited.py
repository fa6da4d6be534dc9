"""What the original got wrong, one test for each: see the issue's section "It must not inherit"."""

import json
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from support.jobs import (
    end_of,
    ends_of,
    history,
    job_status,
    lines,
    one_job,
    processes_of,
    publishes,
    runs,
    start_and_wait_for,
    wait_until_gone,
)
from support.processes import is_alive, wait_for
from support.projects import RUNJOB, Project

NASTY = [
    "$(touch pwned)",
    "`touch pwned`",
    "${HOME} $HOME ~ * ?",
    "it's \"quoted\" 'twice'",
    "two\nlines\nand a last one\n",
    "  spaces   kept  ",
    "trailing backslash\\",
    "a;b|c&d>e<f #g !h",
    "tab\tand = sign",
    "naïve 日本 🦆",
    "",
]

FAN_OUT = """\
name: Fan out
environments:
  dev: {root: ./data}
datasets:
  raw: {path: "raw/{dataid}.txt", partitions: {shards: 1..2}}
  base: {path: "base/{dataid}.txt"}
  left: {path: "left/{dataid}.txt"}
  right: {path: "right/{dataid}.txt"}
jobs:
  make_base: {script: jobs/make_base.sh, inputs: [raw], outputs: [base]}
  make_left: {script: jobs/make_left.sh, inputs: [base], outputs: [left]}
  make_right: {script: jobs/make_right.sh, inputs: [base], outputs: [right]}
"""


def fan_out(project: Project) -> tuple[Path, Path, Path]:
    """make_base feeds make_left, which waits while the file `hold` is there, and make_right, which does not."""
    project.apply(FAN_OUT)
    for shard in ("1", "2"):
        project.write(f"data/raw/{shard}.txt", shard)
        project.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('raw', '{shard}', 'READY')")
    return (
        project.script("jobs/make_base.sh", 'cp "$raw_location" "$base_location"'),
        project.script(
            "jobs/make_left.sh",
            'touch reading; while [ -e hold ]; do sleep 0.02; done; cp "$base_location" "$left_location"',
        ),
        project.script("jobs/make_right.sh", 'cp "$base_location" "$right_location"'),
    )


def test_a_failed_script_exits_1_and_is_failed(project: Project) -> None:
    script = one_job(project, "exit 3")
    failed = project.runjob(script)
    assert failed.returncode == 1
    assert "it exited 3" in failed.stderr
    assert job_status(project) == {"1": "FAILED"}
    assert project.runjob(script).returncode == 1, "a second call must not hide that it failed"
    assert len(runs(project, "runid")) == 1


@pytest.mark.parametrize(
    "url", ["sqlite:////nonexistent/state.db", "postgresql:///nothing?host=/nonexistent&connect_timeout=3"]
)
def test_without_a_database_it_exits_75_and_does_not_run(sqlite_project: Project, url: str) -> None:
    script = one_job(sqlite_project, "touch ran")
    away = sqlite_project.runjob(script, env={"DATAFLOW_STORE": url})
    assert away.returncode == 75
    assert "nonexistent" in away.stderr
    assert "Traceback" not in away.stderr
    assert not (sqlite_project.folder / "ran").exists()


def test_without_arguments_it_exits_2_and_says_how_it_is_called(sqlite_project: Project) -> None:
    bare = sqlite_project.runjob()
    assert bare.returncode == 2
    assert "usage: RunJob" in bare.stderr
    assert bare.stdout == ""


@pytest.mark.both_stores
def test_a_killed_wrapper_takes_its_child_along_and_the_next_call_heals_it(project: Project) -> None:
    script = one_job(
        project,
        "if [ ! -e healed ]; then echo $$ > child.new; mv child.new child; sleep 300 & sleep 300; fi",
    )
    runner = start_and_wait_for(project, project.folder / "child", script)
    child = int((project.folder / "child").read_text())
    assert is_alive(child)
    runner.kill()
    end_of(runner)
    wait_for(lambda: not is_alive(child), "the child dies with its wrapper")
    wait_until_gone(project)
    assert job_status(project) == {"1": "RUNNING"}
    (project.folder / "healed").touch()
    healed = project.runjob(script)
    assert healed.returncode == 0, healed.stderr
    assert "was lost (its process is gone)" in healed.stderr
    assert job_status(project) == {"1": "COMPLETE"}
    assert runs(project, "status, attempt") == [("LOST", 1), ("COMPLETE", 1)], "no attempt is used up"


@pytest.mark.both_stores
def test_resubmit_by_sql_is_not_blocked_by_the_lock_of_a_dead_run(project: Project) -> None:
    base, left, _ = fan_out(project)
    assert project.runjob(base).returncode == 0
    (project.folder / "hold").touch()
    runner = start_and_wait_for(project, project.folder / "reading", left)
    runner.kill()
    end_of(runner)
    (project.folder / "hold").unlink()
    assert project.sql("SELECT count(*) FROM datastatus WHERE locktype = 'IN' AND status = 'RUNNING'") == [(1,)]
    project.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE dataid = '1'")
    for script in (base, left):
        done = project.runjob(script)
        assert done.returncode == 0, done.stderr
    assert job_status(project, "make_base")["1"] == "COMPLETE"
    assert job_status(project, "make_left")["1"] == "COMPLETE"
    assert publishes(project, "base")["1"] == 2
    assert project.sql("SELECT count(*) FROM datastatus WHERE locktype = 'IN'") == [(0,)]


def test_the_input_lock_of_one_job_does_not_block_another_job(project: Project) -> None:
    base, left, right = fan_out(project)
    assert project.runjob(base).returncode == 0
    (project.folder / "hold").touch()
    reading = start_and_wait_for(project, project.folder / "reading", left)
    assert project.runjob(right).returncode == 0
    assert job_status(project, "make_left")["1"] == "RUNNING"
    assert job_status(project, "make_right")["1"] == "COMPLETE"
    (project.folder / "hold").unlink()
    assert end_of(reading)[0] == 0


def test_a_chunk_is_not_made_again_while_it_is_read_and_the_other_chunks_are(project: Project) -> None:
    base, left, _ = fan_out(project)
    assert project.runjob("--drain", base).returncode == 0
    (project.folder / "hold").touch()
    reading = start_and_wait_for(project, project.folder / "reading", left)
    project.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'make_base'")
    drained = project.runjob("--drain", base)
    assert "LOCKED: base/1 is being read by make_left" in drained.stderr
    assert job_status(project, "make_base") == {"1": "RESUBMIT", "2": "COMPLETE"}
    locked = project.runjob("--dataid", "1", base)
    assert locked.returncode == 14
    (project.folder / "hold").unlink()
    assert end_of(reading)[0] == 0
    assert project.runjob(base).returncode == 0


REFUSE_END = {
    "sqlite": """CREATE TRIGGER refuse_end BEFORE UPDATE ON run WHEN NEW.status = 'COMPLETE'
                 BEGIN SELECT RAISE(ABORT, 'refused by the test'); END""",
    "postgres": """CREATE FUNCTION refuse_end() RETURNS trigger LANGUAGE plpgsql AS $$
                   BEGIN RAISE EXCEPTION 'refused by the test'; END $$;
                   CREATE TRIGGER refuse_end BEFORE UPDATE ON run FOR EACH ROW
                   WHEN (NEW.status = 'COMPLETE') EXECUTE FUNCTION refuse_end()""",
}


@pytest.mark.both_stores
def test_the_end_of_a_run_is_one_transaction_all_of_it_or_nothing(project: Project) -> None:
    script = one_job(project, "")
    project.sql(REFUSE_END["sqlite" if project.store.startswith("sqlite") else "postgres"])
    broken = project.runjob(script)
    assert broken.returncode == 70
    assert "refused by the test" in broken.stderr
    assert job_status(project) == {"1": "RUNNING"}
    assert project.sql("SELECT status FROM datastatus WHERE datasetid = 'out'") == [("RUNNING",)]
    assert publishes(project, "out") == {}
    assert project.sql("SELECT count(*) FROM data_manifest") == [(0,)]
    project.sql("DROP TRIGGER refuse_end" + (" ON run" if project.store.startswith("postgres") else ""))
    assert project.runjob(script).returncode == 0
    assert publishes(project, "out") == {"1": 1}


@pytest.mark.both_stores
def test_nobody_ever_sees_a_job_and_its_output_disagree(project: Project) -> None:
    script = one_job(project, "", partitions="{shards: 1..30}")
    seen: list[tuple[str, ...]] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.extend(
                project.sql(
                    "SELECT j.dataid, j.status, c.status FROM job_status j JOIN datastatus c"
                    " ON c.dataid = j.dataid AND c.locktype = 'OUT' WHERE j.jobid = 'work'"
                )
            )

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert project.runjob("--drain", script).returncode == 0
    finally:
        done.set()
        watcher.join()
    pairs = {(job, chunk) for _, job, chunk in seen}
    assert pairs <= {("RUNNING", "RUNNING"), ("COMPLETE", "READY")}
    assert len(seen) > 30, "the watcher saw the work while it was done"


def test_values_of_descriptors_and_env_arrive_exactly_as_they_were_written(project: Project) -> None:
    fields = ("hostname", "database", "schemaname", "tablename", "username")
    datasets = {
        # ${NAME} in a dataset means the environment's value, so it is written without the braces here.
        f"d{number}": dict.fromkeys(fields, value.replace("${HOME}", "$HOME")) | {"partitions": "none"}
        for number, value in enumerate(NASTY)
    }
    text = {
        "name": "Values",
        "datasets": {**datasets, "out": {"path": "out.txt", "partitions": "none"}},
        "jobs": {
            "show": {
                "inputs": list(datasets),
                "outputs": ["out"],
                "env": {f"VALUE_{number}": value for number, value in enumerate(NASTY)},
            }
        },
    }
    project.apply(json.dumps(text, ensure_ascii=False))  # JSON is YAML
    for datasetid in datasets:
        project.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('{datasetid}', 'full', 'READY')")
    script = project.script("show.sh", 'env -0 > "$out_location"')
    done = project.runjob(script)
    assert done.returncode == 0, done.stderr
    written = (project.folder / "out.txt").read_bytes().split(b"\0")
    got = dict(entry.decode().split("=", 1) for entry in written if entry)
    for number, value in enumerate(NASTY):
        assert got[f"VALUE_{number}"] == value
        for field in fields:
            assert got[f"d{number}_{field}"] == value.replace("${HOME}", "$HOME")
            assert got[f"d{number}_{field.upper()}"] == value.replace("${HOME}", "$HOME")
    assert not (project.folder / "pwned").exists()


@pytest.mark.parametrize("command", ["RunJob", "dataflow run"])
def test_arguments_arrive_one_by_one_and_are_not_split_again(sqlite_project: Project, command: str) -> None:
    project = sqlite_project
    script = one_job(project, 'printf "%s\\0" "$@" > got')
    arguments = [*NASTY, "--drain", "-x", "--dataid", "--"]
    if command == "RunJob":
        done = project.runjob(script, *arguments)
    else:
        done = project.dataflow("run", "work", "--", *arguments)
    assert done.returncode == 0, done.stderr
    assert (project.folder / "got").read_text().split("\0")[:-1] == arguments
    assert not (project.folder / "pwned").exists()


def test_a_script_without_arguments_gets_none(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "echo $# > got")
    assert sqlite_project.runjob(script).returncode == 0
    assert (sqlite_project.folder / "got").read_text() == "0\n"


def test_dataids_with_spaces_and_shell_characters_are_names_like_any_other(project: Project) -> None:
    dataids = ["north america", "côte d'ivoire", "$(touch pwned)", 'say "hi"', " leading", "back\\slash\\", "a=b"]
    script = one_job(
        project, 'printf "%s\\n" "$dataid" >> seen', partitions=json.dumps({"values": dataids}, ensure_ascii=False)
    )
    done = project.runjob("--drain", script)
    assert done.returncode == 0, done.stderr
    assert Counter(lines(project.folder / "seen")) == Counter(dataids)
    assert job_status(project) == dict.fromkeys(dataids, "COMPLETE")
    for dataid in dataids:
        assert (project.folder / f"data/out/{dataid}.txt").read_text() == f"made by {dataid}\n"
    assert not (project.folder / "pwned").exists()
    assert project.dataflow("resubmit", "work", "north america", "$(touch pwned)").returncode == 0
    again = project.runjob("--dataid", "north america", script)
    assert again.returncode == 0, again.stderr
    assert publishes(project, "out")["north america"] == 2


ODD_IDS = {"my-data": "my_data", "sales.daily": "sales_daily", "9x": "_9x", "today_x": "today_x", "größe": "gr__e"}


def test_dataset_ids_that_are_no_shell_names_get_mapped_variables(project: Project) -> None:
    datasets = {key: {"hostname": f"host of {key}", "partitions": "none"} for key in ODD_IDS}
    text = {
        "name": "Odd ids",
        "datasets": {**datasets, "out": {"path": "out.txt", "partitions": "none"}},
        "jobs": {"show": {"inputs": list(datasets), "outputs": ["out"]}},
    }
    project.apply(json.dumps(text, ensure_ascii=False))
    for datasetid in datasets:
        project.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('{datasetid}', 'full', 'READY')")
    shown = "; ".join(f'echo "${{{name}_datasetid}}: ${{{name}_HOSTNAME}}"' for name in ODD_IDS.values())
    script = project.script("show.sh", f'{{ {shown}; }} > "$out_location"')
    done = project.runjob(script)
    assert done.returncode == 0, done.stderr
    assert lines(project.folder / "out.txt") == [f"{key}: host of {key}" for key in ODD_IDS]


def test_two_dataset_ids_that_would_share_their_variables_are_refused(sqlite_project: Project) -> None:
    sqlite_project.write(
        "project.yml",
        "name: Clash\ndatasets: {my-data: {partitions: none}, my_data: {partitions: none}, out: {}}\n"
        "jobs: {show: {inputs: [my-data, my_data], outputs: [out]}}\n",
    )
    refused = sqlite_project.dataflow("apply")
    assert refused.returncode == 2
    assert "'my-data' and 'my_data' would share the variables my_data_…" in refused.stderr
    assert "project.yml:3: jobs.show" in refused.stderr


def test_a_job_that_is_not_registered_does_not_run_and_exits_2(project: Project) -> None:
    one_job(project, "")
    stranger = project.script("jobs/stranger.sh", "touch ran")
    for _ in range(2):
        refused = project.runjob(stranger)
        assert refused.returncode == 2
        assert "job 'stranger' is not registered" in refused.stderr
        assert "dataflow apply" in refused.stderr
    assert not (project.folder / "ran").exists()
    assert runs(project, "runid", "stranger") == []


def test_a_job_that_is_done_is_not_run_again_and_again(project: Project) -> None:
    script = one_job(project, "echo run >> ran")
    assert [project.runjob(script).returncode for _ in range(3)] == [0, 0, 0]
    assert lines(project.folder / "ran") == ["run"]


def test_duration_attempts_and_history_are_recorded(project: Project) -> None:
    script = one_job(project, "sleep 0.3; [ -e mended ] || exit 7", settings="retries: {max: 1, backoff: 1h}")
    assert project.runjob(script).returncode == 1
    (project.folder / "mended").touch()
    project.sql("UPDATE job_status SET parked_until = NULL, status = 'RESUBMIT' WHERE jobid = 'work'")
    assert project.runjob(script).returncode == 0
    told = project.json("why", "work", "1")
    second, first = told["runs"]
    assert (first["status"], first["attempt"], first["exit_code"]) == ("FAILED", 1, 7)
    assert "attempt 1 of 2" in first["message"]
    assert (second["status"], second["attempt"], second["exit_code"]) == ("COMPLETE", 2, 0)
    assert 0.3 <= first["seconds"] < 30
    assert [change["new_status"] for change in told["history"]] == [
        "RUNNING", "FAILED", "RESUBMIT", "RUNNING", "COMPLETE",
    ]  # fmt: skip
    assert history(project, "chunk", "out")[-1] == ("1", "RUNNING", "READY")


def test_a_dataid_of_which_only_one_input_is_ready_does_not_run(project: Project) -> None:
    project.apply(
        "name: Two\nenvironments: {dev: {root: data}}\n"
        "datasets:\n  a: {partitions: {shards: 1..3}}\n  b: {partitions: {shards: 1..3}}\n"
        '  out: {path: "out/{dataid}.txt"}\n'
        "jobs: {join: {inputs: [a, b], outputs: [out]}}\n"
    )
    script = project.script("join.sh", 'echo "$dataid" >> ran; touch "$out_location"')
    for dataset, shard in (("a", "1"), ("b", "2"), ("a", "3"), ("b", "3")):
        project.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('{dataset}', '{shard}', 'READY')")
    drained = project.runjob("--drain", script)
    assert drained.returncode == 10
    assert "DATA_NOT_READY: b/1 is not there yet" in drained.stderr
    assert lines(project.folder / "ran") == ["3"]
    assert project.runjob("--dataid", "2", script).returncode == 10
    assert lines(project.folder / "ran") == ["3"]


@pytest.mark.both_stores
def test_the_open_transaction_of_a_reader_does_not_delay_a_claim(project: Project) -> None:
    script = one_job(project, "", partitions="{shards: 1..3}")
    look = "SELECT (SELECT count(*) FROM job_status), (SELECT count(*) FROM datastatus), (SELECT count(*) FROM store)"
    if project.store.startswith("sqlite"):
        import sqlite3

        reader = sqlite3.connect(project.store.removeprefix("sqlite:///"), isolation_level=None)
        reader.execute("BEGIN")
    else:
        import psycopg

        reader = psycopg.connect(project.store, autocommit=True)
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    try:
        before = reader.execute(look).fetchall()
        done = project.runjob("--drain", script, timeout=15)
        assert done.returncode == 0, done.stderr
        assert reader.execute(look).fetchall() == before, "the reader's transaction was open all the time"
    finally:
        reader.close()
    assert set(job_status(project).values()) == {"COMPLETE"}


@pytest.mark.both_stores
def test_two_runners_never_run_a_chunk_twice_and_never_see_locked(project: Project) -> None:
    script = one_job(project, 'echo "$dataid" >> journal', partitions="{shards: 1..40}")
    runners = [project.start(RUNJOB, "--drain", script) for _ in range(2)]
    for code, _, err in ends_of(runners):
        assert code == 0, err
        assert "is locked" not in err
        assert "Traceback" not in err
    assert Counter(lines(project.folder / "journal")) == {str(n): 1 for n in range(1, 41)}
    assert publishes(project, "out") == {str(n): 1 for n in range(1, 41)}


def test_a_runner_told_to_stop_leaves_nothing_running(project: Project) -> None:
    script = one_job(project, "touch started; sleep 300")
    runner = start_and_wait_for(project, project.folder / "started", script)
    runner.send_signal(signal.SIGTERM)
    assert end_of(runner)[0] == 143
    assert processes_of(project) == []
    assert job_status(project) == {"1": "RESUBMIT"}
