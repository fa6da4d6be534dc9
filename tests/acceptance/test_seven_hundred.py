"""The outage of the seeds: 700 jobs in 6 layers, all of them down for one dataid; one statement and the usual ticks."""

import collections
import os
import signal

import pytest

from support.processes import wait_for
from support.projects import RUNJOB, Project

DAY = "2025-11-12"
LAYERS = (200, 150, 120, 110, 80, 40)
INTERRUPTED = 6


def names(share: int) -> list[list[str]]:
    return [[f"l{layer}_{number}" for number in range(size // share)] for layer, size in enumerate(LAYERS)]


def project_text(layers: list[list[str]]) -> str:
    lines = ["name: Nightly", "datasets:", "  feed: {}"]
    lines += [f"  d_{job}: {{}}" for layer in layers for job in layer]
    lines.append("jobs:")
    for number, layer in enumerate(layers):
        for place, job in enumerate(layer):
            before = layers[number - 1] if number else []
            # Two inputs each: every job of a layer depends on the one above it.
            inputs = (
                [f"d_{before[place % len(before)]}", f"d_{before[(place + 1) % len(before)]}"] if before else ["feed"]
            )
            lines.append(f"  {job}: {{script: jobs/{job}.sh, inputs: [{', '.join(inputs)}], outputs: [d_{job}]}}")
    return "\n".join(lines) + "\n"


@pytest.mark.timeout(600)
def test_one_statement_and_the_usual_ticks_heal_all_jobs(project: Project) -> None:
    # A server takes twice as long as a file: there it is a fifth of them.
    layers = names(1 if project.store.startswith("sqlite") else 5)
    everything = [job for layer in layers for job in layer]
    assert len(everything) in (700, 140)
    project.apply(project_text(layers))
    outage = project.folder / "outage"
    outage.touch()
    for job in everything:
        project.script(f"jobs/{job}.sh", f'[ -e "{project.folder}/slow" ] && sleep 60\n[ ! -e "{outage}" ]')
    project.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('feed', '{DAY}', 'READY')")

    # Some are interrupted: runner and child die with the machine.
    (project.folder / "slow").touch()
    runners = [project.start(RUNJOB, f"jobs/l0_{number}.sh") for number in range(INTERRUPTED)]
    running = "SELECT count(*) FROM job_status WHERE status = 'RUNNING'"
    wait_for(lambda: project.sql(running) == [(INTERRUPTED,)], "they all run", seconds=60)
    for runner in runners:
        os.kill(runner.pid, signal.SIGKILL)
        runner.communicate()
    (project.folder / "slow").unlink()

    # The others of the first layer really fail, and whoever schedules the rest has written them off.
    failed = project.dataflow("tick", timeout=300)
    assert failed.returncode == 1
    project.sql(
        "INSERT INTO job_status (project, jobid, dataid, status) "
        f"SELECT project, jobid, '{DAY}', 'FAILED' FROM job WHERE jobid NOT LIKE 'l0%'"
    )
    assert project.sql("SELECT status, count(*) FROM job_status GROUP BY status") == [("FAILED", len(everything))]
    assert project.sql("SELECT count(DISTINCT jobid) FROM run WHERE status = 'LOST'") == [(INTERRUPTED,)]

    # Back online: one statement, the scheduler's usual call.
    outage.unlink()
    project.sql(f"UPDATE job_status SET status = 'RESUBMIT' WHERE dataid = '{DAY}'")
    before = project.sql("SELECT max(id) FROM history")[0][0]
    for _ in range(len(LAYERS)):
        assert project.dataflow("tick", timeout=300).returncode == 0
        if project.sql("SELECT count(*) FROM job_status WHERE status <> 'COMPLETE'") == [(0,)]:
            break
    assert project.sql("SELECT status, count(*) FROM job_status GROUP BY status") == [("COMPLETE", len(everything))]

    ready_at: dict[str, int] = {}
    started_at: dict[str, list[int]] = collections.defaultdict(list)
    for number, kind, name, status in project.sql(
        f"SELECT id, kind, name, new_status FROM history WHERE dataid = '{DAY}' AND id > {before} ORDER BY id"
    ):
        if kind == "chunk" and status == "READY":
            ready_at[name] = number
        if kind == "job" and status == "RUNNING":
            started_at[name].append(number)
    assert {job: len(times) for job, times in started_at.items()} == dict.fromkeys(everything, 1), "each ran once"
    reads = collections.defaultdict(list)
    for jobid, datasetid in project.sql("SELECT jobid, datasetid FROM job_dataset WHERE itemtype = 'IN'"):
        reads[jobid].append(datasetid)
    for layer in layers[1:]:
        for job in layer:
            for datasetid in reads[job]:
                assert ready_at[datasetid] < started_at[job][0], f"{job} ran before {datasetid}"
    assert project.dataflow("why").stdout.strip() == "Nothing failed and nothing is blocked."
    assert project.json("status")["jobs"][layers[-1][0]] == {"COMPLETE": 1}
