"""The commands as people and schedulers call them: options, output, exit codes, helpful refusals."""

import json
import shutil
import time
from pathlib import Path

import pytest

from support.chain import CHAIN, made_chain
from support.jobs import end_of, job_status, lines, one_job, publishes, runs
from support.processes import wait_for
from support.projects import DATAFLOW, RUNJOB, Project

WITH_INPUT = """\
name: With input
environments: {dev: {root: data}}
datasets:
  feed: {path: "feed/{dataid}.txt", partitions: {shards: 1..2}}
  out: {path: "out/{dataid}.txt"}
jobs:
  work: {script: jobs/work.sh, inputs: [feed], outputs: [out]}
"""


# Waiting and choosing ---------------------------------------------------------------------------------------------
def test_wait_runs_as_soon_as_the_input_arrives(project: Project) -> None:
    project.apply(WITH_INPUT)
    script = project.script("jobs/work.sh", 'cp "$feed_location" "$out_location"')
    project.write("data/feed/1.txt", "1")
    waiting = project.start(RUNJOB, "--wait", "60", script)
    wait_for(lambda: project.sql("SELECT refusal FROM job_status WHERE dataid = '1'")[0][0], "it was refused at first")
    assert waiting.poll() is None
    project.sql("INSERT INTO datastatus (datasetid, dataid, status) VALUES ('feed', '1', 'READY')")
    code, _, err = end_of(waiting, seconds=50)
    assert code == 0, err
    assert job_status(project)["1"] == "COMPLETE"


def test_wait_ends_with_the_refusals_code_when_nothing_came(sqlite_project: Project) -> None:
    sqlite_project.apply(WITH_INPUT)
    script = sqlite_project.script("jobs/work.sh", "touch ran")
    started = time.monotonic()
    assert sqlite_project.runjob("--wait", "1", script).returncode == 10
    assert time.monotonic() - started > 0.5
    assert not (sqlite_project.folder / "ran").exists()


def test_a_signal_ends_waiting_at_once_with_its_code(sqlite_project: Project) -> None:
    sqlite_project.apply(WITH_INPUT)
    script = sqlite_project.script("jobs/work.sh", "touch ran")
    waiting = sqlite_project.start(RUNJOB, "--wait", "60", script)
    wait_for(lambda: sqlite_project.sql("SELECT refusal FROM job_status WHERE dataid = '1'")[0][0], "it waits")
    waiting.terminate()
    assert end_of(waiting, seconds=20)[0] == 143
    assert not (sqlite_project.folder / "ran").exists()


@pytest.mark.parametrize("command", ["RunJob", "dataflow run"])
def test_dataid_runs_that_one_and_says_what_became_of_it_later(sqlite_project: Project, command: str) -> None:
    project = sqlite_project
    script = one_job(project, 'echo "$dataid" >> ran', partitions="{shards: 1..3}")

    def run(dataid: str) -> tuple[int, str]:
        argv = (
            (RUNJOB, "--dataid", dataid, script)
            if command == "RunJob"
            else (DATAFLOW, "run", "work", "--dataid", dataid)
        )
        done = project.run(*argv)
        return done.returncode, done.stderr

    assert run("2")[0] == 0
    assert lines(project.folder / "ran") == ["2"]
    code, told = run("2")
    assert (code, lines(project.folder / "ran")) == (0, ["2"])
    again = "is COMPLETE already; `dataflow resubmit work 2` runs it again"
    up_to_date = "up to date since run 2; `--again` runs it anyway"
    assert f"work/2: {again if command == 'RunJob' else up_to_date}" in told
    code, told = run("17")
    assert code == 2
    assert "'17' is not a dataid of work" in told
    assert project.sql("SELECT count(*) FROM job_status") == [(3,)]


def test_json_gives_one_object_per_run_and_the_jobs_output_goes_to_stderr(sqlite_project: Project) -> None:
    project = sqlite_project
    one_job(project, 'echo "working on $dataid"; [ "$dataid" = 2 ] && exit 4; true', partitions="{shards: 1..3}")
    drained = project.dataflow("run", "work", "--drain", "--json")
    assert drained.returncode == 1
    told = [json.loads(line) for line in drained.stdout.splitlines()]
    assert [(one["dataid"], one["status"], one["exit_code"]) for one in told[:3]] == [
        ("1", "COMPLETE", 0), ("2", "FAILED", 1), ("3", "COMPLETE", 0),
    ]  # fmt: skip
    assert told[1]["message"] == "it exited 4"
    assert all(one["seconds"] >= 0 and one["runid"] for one in told[:3])
    assert "working on 1\n" in drained.stderr


def test_json_of_a_refusal_has_all_five_answers(sqlite_project: Project) -> None:
    sqlite_project.apply(WITH_INPUT)
    sqlite_project.script("jobs/work.sh", "true")
    refused = sqlite_project.dataflow("run", "work", "--json")
    assert refused.returncode == 10
    told = json.loads(refused.stdout)
    assert (told["status"], told["runid"], told["dataid"]) == ("DATA_NOT_READY", None, "1")
    assert [answer["question"] for answer in told["verdict"]] == ["ready", "right", "location", "valid", "safe"]
    assert [answer["code"] for answer in told["verdict"] if answer["code"]] == ["DATA_NOT_READY"]


# Scripts ----------------------------------------------------------------------------------------------------------
def test_relative_paths_are_those_of_the_callers_directory(sqlite_project: Project, tmp_path: Path) -> None:
    project = sqlite_project
    one_job(project, 'pwd > here; cat "$1" >> here')
    elsewhere = project.folder / "some where"
    elsewhere.mkdir()
    (elsewhere / "list.txt").write_text("a list\n")
    done = project.runjob("../jobs/work.sh", "list.txt", cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    assert (elsewhere / "here").read_text() == f"{elsewhere}\na list\n"
    assert (project.folder / "data/out/1.txt").exists()


def test_a_script_is_found_from_outside_the_project_too(sqlite_project: Project, tmp_path: Path) -> None:
    script = one_job(sqlite_project, "pwd > here")
    outside = tmp_path / "outside"
    outside.mkdir()
    assert sqlite_project.runjob(script, cwd=outside).returncode == 0
    assert (outside / "here").read_text() == f"{outside}\n"
    assert job_status(sqlite_project) == {"1": "COMPLETE"}


@pytest.mark.parametrize("command", ["RunJob", "dataflow run"])
@pytest.mark.parametrize(
    ("flaw", "told"), [("missing", "no script"), ("mode", "not executable"), ("folder", "no script")]
)
def test_a_script_that_cannot_run_is_found_before_the_claim(
    sqlite_project: Project, command: str, flaw: str, told: str
) -> None:
    project = sqlite_project
    script = one_job(project, "")
    if flaw == "mode":
        script.chmod(0o644)
    else:
        script.unlink()
    if flaw == "folder":
        script.mkdir()
    done = project.runjob(script) if command == "RunJob" else project.dataflow("run", "work")
    assert done.returncode == 2
    assert told in done.stderr
    assert runs(project, "runid") == []
    assert job_status(project) == {"1": "PENDING"}


def test_a_script_whose_interpreter_is_missing_is_not_begun(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "")
    script.write_text("#!/no/such/interpreter\n")
    done = sqlite_project.runjob(script)
    assert done.returncode == 2
    assert "is to be run by /no/such/interpreter, which this host does not have" in done.stderr
    assert job_status(sqlite_project) == {"1": "PENDING"}
    assert runs(sqlite_project, "runid") == []


def test_an_output_that_was_not_written_fails_the_run_and_is_not_published(sqlite_project: Project) -> None:
    project = sqlite_project
    script = one_job(project, "true", writes=False)
    done = project.runjob(script)
    assert done.returncode == 1
    assert "it exited 0, but an output is not there" in done.stderr
    assert publishes(project, "out") == {}
    assert project.sql("SELECT status FROM datastatus WHERE datasetid = 'out'") == [("FAILED",)]


def test_standard_output_and_standard_error_stay_apart(sqlite_project: Project) -> None:
    script = one_job(sqlite_project, "echo to out; echo to err >&2")
    done = sqlite_project.runjob(script)
    assert done.stdout == "to out\n"
    assert "to err\n" in done.stderr


# Reading ----------------------------------------------------------------------------------------------------------
def test_logs_come_from_the_file_and_elsewhere_from_the_store(project: Project) -> None:
    script = one_job(project, "echo first line; seq 1 10000; echo last line")
    assert project.runjob(script).returncode == 0
    [(runid, path)] = runs(project, "runid, log_path")
    whole = project.json("logs", str(runid))
    assert whole["whole"]
    assert whole["log"].startswith("first line\n1\n2\n")
    Path(path).unlink()  # as on a host that never had it
    tail = project.dataflow("logs", str(runid))
    assert tail.returncode == 0
    assert tail.stdout.endswith("10000\nlast line\n")
    assert "first line" not in tail.stdout
    assert "not on this host" in tail.stderr
    assert not project.json("logs", str(runid))["whole"]
    unknown = project.dataflow("logs", "999")
    assert unknown.returncode == 2
    assert "999" in unknown.stderr


def test_the_log_of_a_live_run_can_be_read_while_it_runs(project: Project) -> None:
    script = one_job(project, "echo hello; while [ ! -e go ]; do sleep 0.02; done", settings="lease: 5s")
    runner = project.start(RUNJOB, script)
    [(runid,)] = wait_for(
        lambda: project.sql("SELECT runid FROM run WHERE log_tail LIKE 'hello%'"), "the tail of a live run is kept"
    )
    shutil.rmtree(project.folder / ".dataflow/logs")
    assert project.dataflow("logs", str(runid)).stdout == "hello\n"
    (project.folder / "go").touch()
    assert end_of(runner)[0] == 0


@pytest.mark.both_stores
def test_sql_reads_and_cannot_write(project: Project) -> None:
    one_job(project, "", partitions="{shards: 1..2}")
    query = "SELECT jobid, status, count(*) AS n FROM job_status GROUP BY 1, 2"
    assert project.json("sql", query) == [{"jobid": "work", "status": "PENDING", "n": 2}]
    assert "PENDING" in project.dataflow("sql", query).stdout
    for statement in (
        "UPDATE job_status SET status = 'HOLD'",
        "DROP TABLE history",
        "SELECT 1; DELETE FROM job_status",
        "WITH gone AS (DELETE FROM job_status RETURNING 1) SELECT * FROM gone",
        "COMMIT; DELETE FROM job_status",
        "SELECT nonsense FROM nowhere",
    ):
        refused = project.dataflow("sql", statement)
        assert refused.returncode == 2, f"{statement!r}: {refused.stdout}{refused.stderr}"
        assert "Traceback" not in refused.stderr
    assert job_status(project) == {"1": "PENDING", "2": "PENDING"}


def test_status_counts_and_lists(project: Project) -> None:
    script = one_job(project, '[ "$dataid" = 2 ] && exit 1; true', partitions="{shards: 1..3}")
    project.runjob("--drain", script)
    totals = project.json("status")
    assert totals["jobs"] == {"work": {"COMPLETE": 2, "FAILED": 1}}
    assert totals["datasets"] == {"out": {"READY": 2, "FAILED": 1}}
    assert totals["environment"] == "dev"
    table = project.dataflow("status").stdout
    assert "COMPLETE" in table
    assert "work" in table
    [failed] = project.json("status", "work", "--status", "FAILED")
    assert (failed["dataid"], failed["status"], failed["attempts"]) == ("2", "FAILED", 1)
    assert len(project.json("status", "work", "--limit", "2")) == 2
    assert project.dataflow("status", "--status", "BROKEN").returncode == 2
    assert project.dataflow("status", "nobody").returncode == 2


def test_why_names_the_blocker_and_the_next_step_until_all_is_done(project: Project) -> None:
    project.apply(WITH_INPUT)
    script = project.script(
        "jobs/work.sh", '[ -e mended ] || { echo "no space left" >&2; exit 5; }; touch "$out_location"'
    )

    def why() -> str:
        done = project.dataflow("why", "work", "1")
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "work/1 is PENDING" in why()
    assert "Next step: when it has arrived: `dataflow scan feed` or `dataflow ready feed 1`" in why()
    project.write("data/feed/1.txt", "1")
    assert project.dataflow("ready", "feed", "1").returncode == 0
    assert "Next step: nothing blocks it: `dataflow run work --dataid 1`" in why()
    assert project.runjob(script).returncode == 1
    told = why()
    assert "work/1 is FAILED, it exited 5" in told
    assert "no space left" in told
    assert "Next step: fix the cause, then `dataflow resubmit work 1`" in told
    (project.folder / "mended").touch()
    resubmitted = project.dataflow("resubmit", "work", "1")
    assert "work/1: FAILED → RESUBMIT" in resubmitted.stderr
    assert project.runjob(script).returncode == 0
    assert "work/1 is COMPLETE" in why()
    answers = project.json("why", "work", "1")["answers"]
    assert [answer["yes"] for answer in answers] == [True] * 5


def test_why_names_the_producer_that_is_in_the_way(sqlite_project: Project) -> None:
    sqlite_project.apply(
        "name: Chain\ndatasets: {a: {path: 'a/{dataid}', partitions: {shards: 1..1}}, b: {path: 'b/{dataid}'}}\n"
        "jobs: {first: {outputs: [a]}, second: {inputs: [a], outputs: [b]}}\n"
    )
    assert sqlite_project.json("why", "second", "1")["fix"] == "`dataflow why first 1`"


def test_resubmit_is_all_or_nothing_and_tells_each(sqlite_project: Project) -> None:
    project = sqlite_project
    script = one_job(project, "", partitions="{shards: 1..3}")
    assert project.runjob("--drain", script).returncode == 0
    refused = project.dataflow("resubmit", "work", "1", "no-such")
    assert refused.returncode == 2
    assert "work has no dataid 'no-such'" in refused.stderr
    assert set(job_status(project).values()) == {"COMPLETE"}
    told = project.json("resubmit", "work", "1", "3")
    assert [(one["dataid"], one["before"], one["status"]) for one in told] == [
        ("1", "COMPLETE", "RESUBMIT"), ("3", "COMPLETE", "RESUBMIT"),
    ]  # fmt: skip
    assert dict(project.sql("SELECT dataid, status FROM datastatus")) == {
        "1": "RESUBMIT",
        "2": "READY",
        "3": "RESUBMIT",
    }


def test_resubmit_of_a_running_job_means_again_after_this_run(project: Project) -> None:
    script = one_job(project, "echo run >> ran; touch started; while [ ! -e go ]; do sleep 0.02; done")
    runner = project.start(RUNJOB, script)
    wait_for((project.folder / "started").exists, "the script has started")
    told = project.dataflow("resubmit", "work", "1")
    assert "RUNNING, again after this run" in told.stderr
    (project.folder / "go").touch()
    code, _, err = end_of(runner)
    assert code == 0, err
    assert job_status(project) == {"1": "RESUBMIT"}
    assert project.sql("SELECT status FROM datastatus") == [("RESUBMIT",)]
    assert project.runjob(script).returncode == 0
    assert lines(project.folder / "ran") == ["run", "run"]
    assert job_status(project) == {"1": "COMPLETE"}


# The five questions, as exit codes ---------------------------------------------------------------------------------
def test_wrong_data_missing_data_and_holds_have_codes_of_their_own(project: Project) -> None:
    project.apply(WITH_INPUT)
    script = project.script("jobs/work.sh", 'echo "$dataid" >> ran; touch "$out_location"')
    for shard in ("1", "2"):
        project.write(f"data/feed/{shard}.txt", f"as declared {shard}")
        assert project.dataflow("ready", "feed", shard).returncode == 0
    project.write("data/feed/1.txt", "changed behind our back")
    changed = project.runjob("--dataid", "1", script)
    assert changed.returncode == 11
    assert "WRONG_DATA: feed/1 changed after it was published" in changed.stderr
    (project.folder / "data/feed/1.txt").unlink()
    gone = project.runjob("--dataid", "1", script)
    assert gone.returncode == 12
    assert "INVALID_PATH: feed/1" in gone.stderr
    drained = project.runjob("--drain", script)
    assert lines(project.folder / "ran") == ["2"], "one bad chunk blocks nobody"
    assert drained.returncode in (12, 14), drained.stderr
    project.sql("UPDATE job_status SET status = 'HOLD' WHERE dataid = '1'")
    project.write("data/feed/1.txt", "as declared 1")
    held = project.runjob("--dataid", "1", script)
    assert held.returncode == 14
    assert "LOCKED: work/1 is on HOLD" in held.stderr


def test_an_input_that_was_touched_but_not_changed_is_still_right(sqlite_project: Project) -> None:
    sqlite_project.apply(WITH_INPUT)
    script = sqlite_project.script("jobs/work.sh", 'touch "$out_location"')
    file = sqlite_project.write("data/feed/1.txt", "same")
    assert sqlite_project.dataflow("ready", "feed", "1").returncode == 0
    file.unlink()
    sqlite_project.write("data/feed/1.txt", "same")
    assert sqlite_project.runjob(script).returncode == 0


# Refusals that help ------------------------------------------------------------------------------------------------
def test_an_option_behind_the_script_is_the_scripts_and_that_is_said(sqlite_project: Project) -> None:
    one_job(sqlite_project, 'echo "got $*"', partitions="{shards: 1..3}")
    done = sqlite_project.runjob("jobs/work.sh", "--drain")
    assert done.returncode == 0
    assert "RunJob: --drain is given to the script; for RunJob it stands before it: RunJob --drain" in done.stderr
    assert "got --drain" in done.stdout + done.stderr
    meant = sqlite_project.runjob("--", "jobs/work.sh", "--drain")
    assert meant.returncode == 0
    assert "for RunJob it stands before it" not in meant.stderr
    assert list(job_status(sqlite_project).values()) == ["COMPLETE", "COMPLETE", "PENDING"]


def test_a_range_of_dataids_is_declared_ready_at_once(project: Project) -> None:
    project.apply(CHAIN)
    for shard in ("1", "2", "3"):
        project.write(f"data/feed/{shard}.txt", shard)
    done = project.dataflow("ready", "feed", "1..3")
    assert done.returncode == 0, done.stderr
    assert project.sql("SELECT dataid, status FROM datastatus ORDER BY dataid") == [
        (shard, "READY") for shard in ("1", "2", "3")
    ]


def test_what_was_refused_is_tried_at_once_when_its_data_was_put_right(project: Project) -> None:
    made_chain(project)
    project.write("data/feed/1.txt", "changed behind everybody's back")
    assert project.dataflow("run", "first", "--dataid", "1").returncode == 11
    assert project.dataflow("run", "first").returncode == 0  # the second: the first is parked
    assert project.statuses("first") == {"1": "PENDING", "2": "COMPLETE", "3": "PENDING"}
    assert project.dataflow("ready", "feed", "1").returncode == 0
    assert project.dataflow("run", "first").returncode == 0
    assert project.statuses("first") == {"1": "COMPLETE", "2": "COMPLETE", "3": "PENDING"}


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that all the refusals below share: none of them may change anything."""
    folder = tmp_path_factory.mktemp("refusing")
    project = Project(folder / "project", f"sqlite:///{folder / 'state' / 'state.db'}")
    one_job(project, "touch ran")
    return project


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--wait", "soon", "jobs/work.sh"], "'soon' is not a number of seconds"),
        (["--wait"], "--wait needs a value"),
        (["--dataid"], "--dataid needs a value"),
        (["--drian", "jobs/work.sh"], "unknown option --drian"),
        (["--drain"], "which script?"),
        (["--drain", "--dataid", "1", "jobs/work.sh"], "leave out --dataid"),
        (["--dataid", "", "jobs/work.sh"], "is not a dataid"),
        (["jobs/absent.sh"], "there is no script jobs/absent.sh"),
        (["work"], "there is no script work; the job work is `RunJob jobs/work.sh`, or `dataflow run work`"),
        (["--wait", "nan", "jobs/work.sh"], "not a number of seconds"),
    ],
)
def test_bad_arguments_exit_2_with_a_helpful_text(refusing: Project, argv: list[str], told: str) -> None:
    refused = refusing.runjob(*argv)
    assert refused.returncode == 2
    assert told in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (refusing.folder / "ran").exists()
    assert job_status(refusing) == {"1": "PENDING"}


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["run"], "Missing argument"),
        (["run", "nobody"], "job 'nobody' is not registered"),
        (["run", "work", "--drain", "--dataid", "1"], "leave out --dataid"),
        (["ready", "nothing", "1"], "dataset 'nothing' is not registered"),
        (["ready", "out", "x"], "'x' is not a dataid of out"),
        (["ready", "out", "3..1"], "'3' is not a dataid of out"),
        (["ready", "work", "1"], "dataset 'work' is not registered; it is a job, and makes 'out'"),
        (["preview", "work"], "dataset 'work' is not registered; it is a job, and makes 'out'"),
        (["checks", "work"], "dataset 'work' is not registered; it is a job, and makes 'out'"),
        (["run", "out"], "job 'out' is not registered; it is a dataset, and 'work' makes it"),
        (["why", "nobody"], "job 'nobody' is not registered"),
        (["sql", "delete from job_status"], "`dataflow sql` only reads: see `dataflow resubmit`"),
        (["ready", "out", "1"], "No such file"),
        (["ready", "out", "1", "--location", "/etc/passwd"], "is not below"),
        (["why", "work", "77"], "work has no dataid '77'"),
        (["resubmit", "nobody", "1"], "job 'nobody' is not registered"),
        (["logs", "many"], "valid integer"),
        (["frobnicate"], "No such command"),
        (["status", "--jsn"], "No such option"),
    ],
)
def test_bad_input_to_dataflow_exits_2_with_a_helpful_text(refusing: Project, argv: list[str], told: str) -> None:
    refused = refusing.dataflow(*argv)
    assert refused.returncode == 2, refused.stderr
    assert told in refused.stderr
    assert "Traceback" not in refused.stderr
    assert job_status(refusing) == {"1": "PENDING"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: P\njobs: ]\n", "project.yml:2: not valid YAML"),
        ("datasets: {}\n", "name: is missing"),
        ("name: P\ndatasts: {}\n", "project.yml:2: datasts: unknown key; did you mean `datasets`?"),
        ("name: P\njobs:\n  j: {outputs: [gone]}\n", "project.yml:3: jobs.j.outputs.0: dataset 'gone' is not declared"),
        ("name: P\ndatasets: {o: {path: ../o}}\n", "without .."),
        ("name: P\ndatasets: {o: {partitions: {daily: soon}}}\n", "'soon' is not a date"),
        ("name: P\ndatasets: {o: {}}\njobs: {j: {outputs: [o], lease: never}}\n", "is not a duration"),
        (
            "name: P\ndatasets: {a: {}, b: {}}\n"
            "jobs: {j: {inputs: [a], outputs: [b]}, k: {inputs: [b], outputs: [a]}}\n",
            "jobs wait for each other: j → k → j",
        ),
        ("name: P\ndatasets: {o: {}}\njobs: {j: {outputs: [o]}, k: {outputs: [o]}}\n", "produced by both j and k"),
    ],
)
def test_a_project_file_that_is_wrong_exits_2_and_names_line_and_key(
    sqlite_project: Project, text: str, told: str
) -> None:
    sqlite_project.write("project.yml", text)
    refused = sqlite_project.dataflow("apply")
    assert refused.returncode == 2, refused.stderr
    assert told in refused.stderr
    assert "Traceback" not in refused.stderr


def test_without_a_project_and_a_store_the_way_out_is_named(sqlite_project: Project, tmp_path: Path) -> None:
    lonely = tmp_path / "lonely"
    lonely.mkdir()
    script = lonely / "work.sh"
    script.write_text("#!/bin/sh\ntouch ran\n")
    script.chmod(0o755)
    refused = sqlite_project.runjob(script, cwd=lonely, env={"DATAFLOW_STORE": ""})
    assert refused.returncode == 2
    assert "set DATAFLOW_STORE" in refused.stderr
    assert not (lonely / "ran").exists()


def test_a_store_of_another_environment_exits_2(sqlite_project: Project) -> None:
    project = sqlite_project
    one_job(project, "touch ran")
    project.write("project.yml", (project.folder / "project.yml").read_text().replace("dev:", "prod:"))
    refused = project.runjob("jobs/work.sh")
    assert refused.returncode == 2
    assert "belongs to environment 'dev', not 'prod'" in refused.stderr
    assert not (project.folder / "ran").exists()


@pytest.mark.both_stores
def test_a_store_that_was_never_set_up_is_named_with_the_next_step(project: Project) -> None:
    project.write("project.yml", "name: Empty\nenvironments: {dev: {root: data}}\n")
    script = project.script("work.sh", "touch ran")
    refused = project.runjob(script)
    assert refused.returncode == (75 if project.store.startswith("sqlite") else 2)
    assert "dataflow apply" in refused.stderr


def test_help_and_version_go_to_standard_output(sqlite_project: Project) -> None:
    for argv in ((RUNJOB, "--help"), (RUNJOB, "-h"), (DATAFLOW, "--help"), (DATAFLOW, "run", "--help")):
        shown = sqlite_project.run(*argv)
        assert shown.returncode == 0
        assert "usage" in shown.stdout.lower()
    for command in (RUNJOB, DATAFLOW):
        assert sqlite_project.run(command, "--version").stdout.strip().split()[1][0].isdigit()
