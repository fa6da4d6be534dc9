"""Small jobs for tests: one script with its dataids, and what the store remembers of them."""

import subprocess
from collections import Counter
from pathlib import Path

from support.processes import forks_in, processes_with, wait_for
from support.projects import RUNJOB, Project

ONE_JOB = """\
name: One job
environments:
  dev: {{root: ./data}}
datasets:
  out: {{path: "out/{{dataid}}.txt", partitions: {partitions}}}
jobs:
  work: {{script: jobs/work.sh, outputs: [out]{settings}}}
"""


def one_job(
    project: Project, body: str, *, partitions: str = "{shards: 1..1}", settings: str = "", writes: bool = True
) -> Path:
    """Register the job `work` without inputs; its script runs the body and then writes its output."""
    project.apply(ONE_JOB.format(partitions=partitions, settings=f", {settings}" if settings else ""))
    return project.script("jobs/work.sh", body + ('\necho "made by $dataid" > "$out_location"' if writes else ""))


def history(project: Project, kind: str, name: str) -> list[tuple[str, str, str]]:
    """dataid, old and new status of every change, in order."""
    return project.sql(
        f"SELECT dataid, old_status, new_status FROM history WHERE kind = '{kind}' AND name = '{name}' ORDER BY id"
    )


def publishes(project: Project, datasetid: str) -> Counter[str]:
    """How often each chunk of the dataset went from RUNNING to READY."""
    changes = history(project, "chunk", datasetid)
    return Counter(dataid for dataid, old, new in changes if (old, new) == ("RUNNING", "READY"))


def job_status(project: Project, jobid: str = "work") -> dict[str, str]:
    """dataid → status, straight from the table."""
    return dict(project.sql(f"SELECT dataid, status FROM job_status WHERE jobid = '{jobid}'"))


def runs(project: Project, columns: str, jobid: str = "work") -> list[tuple[object, ...]]:
    return project.sql(f"SELECT {columns} FROM run WHERE jobid = '{jobid}' ORDER BY runid")


def processes_of(project: Project) -> list[int]:
    """Living processes that some run of this project's store has started."""
    marked = processes_with(f"DATAFLOW_STORE_ID={project.sql('SELECT store_id FROM store')[0][0]}")
    return marked + forks_in(project.folder)


def wait_until_gone(project: Project, *, seconds: float = 20.0) -> None:
    wait_for(lambda: not processes_of(project), "every process of the run is gone", seconds=seconds)


def start_and_wait_for(project: Project, file: Path, *argv: str | Path, **options: object) -> subprocess.Popen[str]:
    """Start RunJob, and return when its script has made this file."""
    runner = project.start(RUNJOB, *argv, **options)
    wait_for(lambda: file.exists() or runner.poll() is not None, f"{file.name} appears")
    assert file.exists(), runner.communicate()
    return runner


def end_of(runner: subprocess.Popen[str], *, seconds: float = 60.0) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a started command."""
    out, err = runner.communicate(timeout=seconds)
    return runner.returncode, out, err


def ends_of(runners: list[subprocess.Popen[str]], *, seconds: float = 240.0) -> list[tuple[int, str, str]]:
    """The ends of all of them, before any of them is judged."""
    return [end_of(runner, seconds=seconds) for runner in runners]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
