"""The doctor: nothing wrong with a sound project, and for what is wrong the command that mends it."""

import json
from pathlib import Path

import pytest

from support import projects
from support.chain import CHAIN, WAITS, made_chain
from support.jobs import lines, one_job
from support.processes import wait_for
from support.projects import RUNJOB, Project


def states(project: Project, **env: str) -> tuple[int, dict[str, str], str]:
    """Exit code, each check's state, and everything that was said."""
    done = project.dataflow("doctor", "--json", env=env)
    return done.returncode, {one["check"]: one["state"] for one in json.loads(done.stdout)}, done.stdout


@pytest.mark.both_stores
def test_the_doctor_finds_nothing_wrong_with_a_sound_project(project: Project) -> None:
    chain = made_chain(project)
    code, found, said = states(chain)
    assert code == 0, said
    assert set(found.values()) == {"ok"}, said
    assert {"python", "packages", "java", "project", "scripts", "root", "store", "clock", "latency"} <= found.keys()
    assert "counters and locks" in chain.dataflow("doctor").stdout


def test_the_doctor_names_what_is_wrong_and_what_mends_it(sqlite_project: Project) -> None:
    project = made_chain(sqlite_project)
    (project.folder / "jobs/first.sh").chmod(0o644)
    code, found, said = states(project)
    assert (code, found["scripts"]) == (1, "problem")
    assert f"chmod +x {project.folder}/jobs/first.sh" in said
    (project.folder / "jobs/first.sh").chmod(0o755)
    project.write("project.yml", CHAIN.replace("outputs: [out]}", "outputs: [out], lease: 90s}"))
    code, found, said = states(project)
    assert (code, found["applied"]) == (0, "warning")
    assert "job second" in said
    project.write("project.yml", CHAIN)
    project.sql("UPDATE job_status SET waiting = 5 WHERE jobid = 'first' AND dataid = '1'")
    code, found, said = states(project)
    assert (code, found["counters and locks"]) == (1, "problem")
    assert "dataflow db check --repair" in said


def test_the_doctor_wants_java_and_transformations_only_for_pipelines(sqlite_project: Project) -> None:
    project = made_chain(sqlite_project)
    code, found, said = states(project, JAVA_HOME="/nowhere")
    assert (code, found["java"], found["pipelines"]) == (0, "ok", "ok"), said
    pipeline = "pipelines: [{slug: shape, sources: [mid], destination: done, transformations: [cut, glue.py]}]\n"
    text = CHAIN.replace("jobs:\n", "  done: {path: done, format: parquet}\njobs:\n")
    project.apply(text.replace('"mid/{dataid}.txt"', '"mid/{dataid}.txt", format: text') + pipeline)
    project.write("pipelines/shape/glue.py", "def run(df): return df")
    code, found, said = states(project, JAVA_HOME="/nowhere")
    assert (code, found["java"], found["pipelines"]) == (1, "problem", "problem")
    assert "pipelines/shape/cut.py" in said
    assert "glue.py" not in said
    project.write("pipelines/shape/cut.py", "def run(df): return df")
    assert states(project)[0] == 0


def test_the_doctor_tries_the_passkey_and_never_shows_what_it_opens(sqlite_project: Project) -> None:
    project = made_chain(sqlite_project)
    encrypted = project.run(projects.DATAFLOW, "crypt", "encrypt", env={"DATAFLOW_PASSKEY": "key"}, input="hush\n")
    credential = encrypted.stdout.strip()
    project.apply(
        CHAIN.replace('mid: {path: "mid/{dataid}.txt"}', f'mid: {{path: mid, encryptedpass: "{credential}"}}')
    )
    for env, state in (({}, "problem"), ({"DATAFLOW_PASSKEY": "no"}, "problem"), ({"DATAFLOW_PASSKEY": "key"}, "ok")):
        code, found, said = states(project, **env)
        assert (found["credentials"], code) == (state, 1 if state == "problem" else 0), said
        assert "hush" not in said
        assert credential not in said


def test_the_doctor_sees_a_lease_that_ran_out_and_a_store_that_is_not_there(sqlite_project: Project) -> None:
    project = sqlite_project
    runner = project.start(RUNJOB, one_job(project, WAITS, settings="lease: 1s"))
    wait_for((project.folder / "started").exists, "the script has started")
    runner.kill()
    runner.communicate()
    wait_for(lambda: states(project)[1]["leases"] == "warning", "the lease ran out")
    assert states(project)[0] == 0
    Path(project.store.removeprefix("sqlite:///")).unlink()
    code, found, said = states(project)
    assert (code, found["store"]) == (1, "problem")
    assert "dataflow apply" in said
    assert lines(project.folder / "ran") == []
