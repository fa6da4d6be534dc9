"""`args:` of a job: what every way of running it gives to the script."""

import pytest

from support.jobs import lines, one_job
from support.projects import Project

SAYS = 'printf "%s|" "$@" >> said; echo >> said'
DECLARED = 'args: [--region, eu, "two words", "$HOME", "a;b", 10, "", "${HOME}"]'
ARGS = "--region|eu|two words|$HOME|a;b|10||${HOME}|"


@pytest.mark.both_stores
def test_every_way_of_running_gives_the_declared_arguments(project: Project) -> None:
    one_job(project, SAYS, partitions="{shards: 1..5}", settings=DECLARED)
    for argv in (["run", "work"], ["run", "work", "--", "--more", "x"], ["force", "work", "4"]):
        done = project.dataflow(*argv)
        assert done.returncode == 0, done.stderr
    assert project.runjob("jobs/work.sh", "last").returncode == 0
    assert project.dataflow("worker", "--once").returncode == 0
    assert lines(project.folder / "said") == [ARGS, f"{ARGS}--more|x|", ARGS, f"{ARGS}last|", ARGS]


def test_a_tick_gives_the_declared_arguments(sqlite_project: Project) -> None:
    one_job(sqlite_project, SAYS, settings=DECLARED)
    assert sqlite_project.dataflow("tick").returncode == 0
    assert lines(sqlite_project.folder / "said") == [ARGS]


def test_another_command_does_not_get_them(sqlite_project: Project) -> None:
    one_job(sqlite_project, SAYS, settings=DECLARED)
    repair = sqlite_project.script("repair.sh", f"{SAYS}; touch $out_location")
    assert sqlite_project.dataflow("force", "work", "1", "--", str(repair), "--full").returncode == 0
    assert lines(sqlite_project.folder / "said") == ["--full|"]


def test_they_are_shown_and_changed_by_apply(sqlite_project: Project) -> None:
    one_job(sqlite_project, SAYS, settings="args: [--region, eu]")
    shown = sqlite_project.dataflow("job", "show", "work").stdout
    assert [line.split() for line in shown.splitlines() if "args" in line or line.strip() == "eu"] == [
        ["args", "--region"], ["eu"],
    ]  # fmt: skip
    one_job(sqlite_project, SAYS, settings="args: [--region, us]")
    assert sqlite_project.json("job", "show", "work")["args"] == ["--region", "us"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ("--region", "jobs.work.args: should be a list like [--region]"),
        ("[{region: eu}]", "jobs.work.args.0: should be a text, not a mapping"),
        ("[null]", "jobs.work.args.0: has no value"),
    ],
)
def test_arguments_are_a_list_of_texts(sqlite_project: Project, args: str, told: str) -> None:
    one_job(sqlite_project, SAYS)
    text = (sqlite_project.folder / "project.yml").read_text()
    sqlite_project.write("project.yml", text.replace("outputs: [out]", f"outputs: [out], args: {args}"))
    refused = sqlite_project.dataflow("apply")
    assert refused.returncode == 2
    assert told in refused.stderr


def test_run_job_suggests_the_job_whose_script_is_elsewhere(sqlite_project: Project) -> None:
    one_job(sqlite_project, SAYS)
    for path in ("wrong/path/work.sh", "work", "wrk.sh"):
        refused = sqlite_project.runjob(path)
        assert refused.returncode == 2
        told = f"there is no script {path}; the job work is `RunJob jobs/work.sh`, or `dataflow run work`"
        assert told in refused.stderr
    assert sqlite_project.runjob("zzz.sh").stderr == "RunJob: there is no script zzz.sh\n"
    here = sqlite_project.runjob("jobs/work.sh", cwd=sqlite_project.folder / "jobs")
    assert "`RunJob work.sh`" in here.stderr
