"""The ways in which a project comes to its outputs, through the installed commands alone."""

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from oracle.published import READY, asked, assert_as_told, assert_chunks, visible
from oracle.told import Told
from support.pipelines import descendants
from support.processes import is_alive, wait_for
from support.projects import DATAFLOW, Project

SECONDS = 280.0  # after which something hangs
DONE = (0, 10)  # all is done; or what is left waits for data that is not there
FAILED = "SELECT jobid, dataid FROM job_status WHERE status = 'FAILED'"
# Of whatever comes here first, the first fails and the next waits for as long as there is a file `hold`.
HELD_TOOL = """\
#!/bin/bash
if mv '{signs}/fail' '{signs}/failed' 2>/dev/null; then exit 9; fi
if [ -e '{signs}/hold' ]; then touch '{signs}/held'; fi
while [ -e '{signs}/hold' ]; do sleep 0.02; done
exec '{program}' "$@"
"""
HELD_STEP = """\
import os as _os
import time as _time

if _os.path.exists({signs!r} + "/fail"):
    _os.rename({signs!r} + "/fail", {signs!r} + "/failed")
    raise ValueError("the first one fails")
if _os.path.exists({signs!r} + "/hold"):
    open({signs!r} + "/held", "w").close()
while _os.path.exists({signs!r} + "/hold"):
    _time.sleep(0.02)
"""


def run(project: Project, told: Told, *argv: str, codes: tuple[int, ...] = (0,)) -> None:
    done = project.dataflow(*argv, env=told.env, timeout=SECONDS)
    assert done.returncode in codes, f"{argv}: {done.stdout}{done.stderr}"


def alone(project: Project, told: Told, _signs: Path) -> None:
    """Each dataid by a command of its own."""
    for job, dataids in told.jobs.items():
        for dataid in dataids:
            run(project, told, "run", job, "--dataid", dataid)
    for stream in told.streams:
        run(project, told, "stream", "run", stream, "--drain")


def drained(project: Project, told: Told, _signs: Path) -> None:
    """Job after job, each with all that is ready."""
    for job in told.jobs:
        run(project, told, "run", job, "--drain", codes=DONE)
    for stream in told.streams:
        run(project, told, "stream", "run", stream, "--drain")


def by_a_worker(project: Project, told: Told, _signs: Path) -> None:
    run(project, told, "worker", "--once", "--slots", "4", codes=DONE)


def after_an_outage(project: Project, told: Told, signs: Path) -> None:
    """The first run fails and is resubmitted; the worker is killed while it has work; another one heals all of it."""
    env = {**told.env, **_catch(project, told, signs)}
    for name in ("fail", "hold"):
        (signs / name).touch()
    with working(project, env) as worker:
        failed = wait_for_worker(worker, lambda: asked(project, FAILED), "the first run has failed")
        for job, dataid in failed:
            run(project, told, "resubmit", job, dataid)
        wait_for_worker(worker, (signs / "held").exists, "a run is in the middle of its work")
        at_work = descendants(worker.pid)
        worker.kill()
        worker.wait()
        wait_for(lambda: not any(is_alive(pid) for pid in at_work), "nothing of it is left", seconds=60)
    assert_chunks(project, told, set(asked(project, READY)))
    (signs / "hold").unlink()
    by_a_worker(project, told, signs)


WAYS = {"alone": alone, "drained": drained, "by a worker": by_a_worker, "after an outage": after_an_outage}
Way = Callable[[Project, Told, Path], None]


@contextlib.contextmanager
def working(project: Project, env: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """A worker in the background, until the block ends."""
    with open(project.folder.parent / "worker.log", "w") as log:
        worker = subprocess.Popen(
            [DATAFLOW, "worker", "--slots", "4"], cwd=project.folder, env=project.env(**env), stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, text=True,
        )  # fmt: skip
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def wait_for_worker(worker: "subprocess.Popen[str]", condition: Callable[[], object], what: str) -> object:
    found = wait_for(lambda: condition() or worker.poll() is not None, what, seconds=SECONDS)
    assert worker.poll() is None, f"the worker ended with {worker.returncode} before: {what}"
    return found


def _catch(project: Project, told: Told, signs: Path) -> dict[str, str]:
    """Have the programs of its scripts, or one of its transformations, look for the signs."""
    if told.step:
        step = project.folder / told.step
        step.write_text(HELD_STEP.format(signs=str(signs)) + step.read_text())
        return {}
    path = told.env.get("PATH", project.env()["PATH"])
    for name in told.tools:
        tool = signs / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(HELD_TOOL.format(signs=signs, program=shutil.which(name, path=path)))
        tool.chmod(0o755)
    return {"PATH": f"{signs / 'bin'}:{path}"}


def go(way: str, project: Project, told: Told, signs: Path) -> None:
    """Register the project, take in what is there, run it all, and compare."""
    signs.mkdir()
    run(project, told, "apply")
    for command in told.arrive:
        run(project, told, *command)
    for stream, live in told.streams.items():
        run(project, told, "stream", "send", stream, live.items)
    before = visible(project.folder)
    WAYS[way](project, told, signs)
    assert_as_told(project, told, before)
