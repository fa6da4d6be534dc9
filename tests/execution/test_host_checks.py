"""What a host lacks is found before the claim: the job is not started, no attempt is used, and other jobs go on."""

import pytest

from support.jobs import job_status
from support.projects import DATAFLOW, RUNJOB, Project

YML = """\
name: Lacking
environments: {dev: {root: data}}
datasets:
  raw: {path: "raw/{dataid}.csv", partitions: {shards: 1..3}, format: csv, options: {header: true}}
  copied: {path: "copied/{dataid}.csv"}
jobs:
  copy: {script: copy.sh, inputs: [raw], outputs: [copied]}
  strange: {script: strange.sh, inputs: [raw], outputs: [named]}
pipelines:
  - slug: lines
    sources: [raw]
    destination: made
    transformations: [keep]
"""
NAMED = '  named: {path: "named/{dataid}.csv"}\n  made: {path: made, format: parquet}\n'


@pytest.fixture
def lacking(project: Project) -> Project:
    """Three jobs: a script that runs, one whose interpreter is missing, and a pipeline, which needs Java."""
    project.script("copy.sh", 'cp "$raw_location" "$copied_location"')
    project.write("strange.sh", "#!/opt/nosuch/perl9\n").chmod(0o755)
    project.write("pipelines/lines/keep.py", "def run(df):\n    return df\n")
    for number in "123":
        project.write(f"data/raw/{number}.csv", "a\n1\n")
    project.apply(YML.replace("jobs:\n", f"{NAMED}jobs:\n"))
    assert project.dataflow("ready", "raw", "1..3").returncode == 0
    return project


def assert_only_copy_has_run(project: Project) -> None:
    assert job_status(project, "copy") == dict.fromkeys("123", "COMPLETE")
    assert project.sql("SELECT DISTINCT jobid FROM run") == [("copy",)]
    assert project.sql("SELECT DISTINCT status, attempts FROM job_status WHERE jobid <> 'copy'") == [("PENDING", 0)]


@pytest.mark.both_stores
@pytest.mark.parametrize("command", [("tick",), ("worker", "--once")])
def test_the_others_go_on_and_it_is_said_once(lacking: Project, command: tuple[str, ...]) -> None:
    done = lacking.run(DATAFLOW, *command, env={"JAVA_HOME": "/nowhere"})
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("JAVA_HOME is /nowhere") == 1, done.stderr
    assert done.stderr.count("/opt/nosuch/perl9") == 1, done.stderr
    assert_only_copy_has_run(lacking)


def test_a_single_run_ends_before_it_claims_anything(lacking: Project) -> None:
    for argv in ((DATAFLOW, "run", "lines"), (RUNJOB, "./strange.sh")):
        done = lacking.run(*argv, env={"JAVA_HOME": "/nowhere"})
        assert done.returncode == 2, done.stderr
    assert lacking.sql("SELECT count(*) FROM run") == [(0,)]


def test_env_finds_the_interpreter_on_the_path_that_the_job_has(sqlite_project: Project) -> None:
    project = sqlite_project
    project.script("bin/own9", 'exec /bin/sh "$@"')
    project.write("odd.sh", '#!/usr/bin/env own9\necho x > "$out_location"\n').chmod(0o755)
    yml = "name: Odd\nenvironments: {dev: {root: data}}\ndatasets:\n  out: {path: out.txt, partitions: none}\njobs:\n"
    project.apply(f"{yml}  odd: {{script: odd.sh, outputs: [out]}}\n")
    done = project.run(RUNJOB, "./odd.sh")
    assert done.returncode == 2, done.stderr
    assert "own9, which is not on the PATH" in done.stderr
    project.apply(
        f'{yml}  odd: {{script: odd.sh, outputs: [out], env: {{PATH: "{project.folder}/bin:/usr/bin:/bin"}}}}\n'
    )
    assert project.run(RUNJOB, "./odd.sh").returncode == 0
