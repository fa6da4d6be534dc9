"""`make demo` on 14 days: real Spark, really killed, healed, and counted by the demo itself."""

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from support.processes import wait_for
from support.projects import Project

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/year_of_flights"


def start_demo(tmp_path: Path) -> "subprocess.Popen[str]":
    folder = tmp_path / "examples/year_of_flights"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", ".dataflow"), dirs_exist_ok=True)
    return subprocess.Popen(
        [sys.executable, folder / "demo.py", "--fortnight"], env=Project(tmp_path, "").env(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def processes_in(folder: Path) -> list[str]:
    """Those whose working directory is the folder or one below it."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(folder):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it has ended, or is not ours
    return found


def test_a_fortnight_of_flights_goes_through_the_outage_and_adds_up(tmp_path: Path) -> None:
    with start_demo(tmp_path) as demo:
        said, _ = demo.communicate(timeout=280)
    assert demo.returncode == 0, said[-3000:]
    flat = " ".join(said.split())  # its lines are broken where a terminal's would be
    assert re.search(r"rejected NOT_VALIDATED: .{1,600}rejected WRONG_DATA", flat), said
    assert re.search(r"clean_flights RUNNING [1-9]", flat), "nothing was at work when it was killed"
    assert "was lost (its process is gone); it will be done again" in flat
    assert "12,208 flights in them, as in the package ok" in flat
    assert "14 days and 1 month through a bad night, all COMPLETE" in flat
    assert "\033" not in said
    wait_for(lambda: not processes_in(tmp_path), "nothing is left running")


def test_an_interrupted_demo_leaves_nothing_running_and_begins_anew(tmp_path: Path) -> None:
    for end, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        with start_demo(tmp_path) as demo:
            assert demo.stdout is not None
            for line in demo.stdout:
                if line.startswith("3. A worker"):
                    break
            wait_for(lambda: any("worker" in one for one in processes_in(tmp_path)), "the worker runs")
            demo.send_signal(end)
            said, _ = demo.communicate(timeout=60)
        assert demo.returncode == code, said
        wait_for(lambda: not processes_in(tmp_path), f"nothing is left running after {end.name}")
