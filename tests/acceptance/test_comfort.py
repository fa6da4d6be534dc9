"""Small things that people meet all day: completion, colours, help, what an error ends with, the container's file."""

import os
import pty
import re
import subprocess
import time
from pathlib import Path

import pytest

from support.projects import DATAFLOW, Project

ROOT = Path(__file__).resolve().parents[2]
PROJECT = """\
name: Shop
environments: {dev: {root: ./data}}
datasets: {orders: {path: "orders/{dataid}.csv", partitions: {values: [x]}}, out: {path: "out/{dataid}"}}
jobs: {load_orders: {inputs: [orders], outputs: [out]}}
"""


# Completion -----------------------------------------------------------------------------------------------------------
def completed(project: Project, words: str, **env: str) -> list[str]:
    """What bash would offer for the last word."""
    number = len(words.split()) - (not words.endswith(" "))
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(number), "_DATAFLOW_COMPLETE": "complete_bash", **env}
    done = project.run(DATAFLOW, env=asked)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(sqlite_project: Project, shell: str) -> None:
    done = sqlite_project.run(DATAFLOW, env={"_DATAFLOW_COMPLETE": f"source_{shell}"})
    assert done.returncode == 0, done.stderr
    assert f"_DATAFLOW_COMPLETE=complete_{shell}" in done.stdout
    if shell == "bash":
        loaded = f"{done.stdout}\ncomplete -p dataflow"
        assert "dataflow" in subprocess.run(["bash", "-c", loaded], capture_output=True, text=True).stdout


def test_commands_and_names_of_the_store_are_completed(project: Project) -> None:
    project.apply(PROJECT)
    assert completed(project, "dataflow res") == ["resubmit", "resume"]
    assert completed(project, "dataflow run l") == ["load_orders"]
    assert completed(project, "dataflow preview ") == ["orders", "out"]
    assert completed(project, "dataflow status o") == ["orders", "out"]
    assert completed(project, "dataflow stream ") != []


def test_a_store_that_is_not_there_or_does_not_answer_completes_to_nothing(sqlite_project: Project) -> None:
    assert completed(sqlite_project, "dataflow run ") == []
    sqlite_project.write("project.yml", "name: [")
    assert completed(sqlite_project, "dataflow run ") == []
    begun = time.monotonic()
    silent = "postgresql://192.0.2.1:5432/none"  # an address that nobody has
    assert completed(sqlite_project, "dataflow run ", DATAFLOW_STORE=silent) == []
    assert time.monotonic() - begun < 60, "nobody waits for such an address until the network gives up"


# Colours --------------------------------------------------------------------------------------------------------------
def on_a_terminal(project: Project, *argv: str, **env: str) -> str:
    ours, theirs = pty.openpty()
    whole = {**project.env(), "TERM": "xterm-256color", **env}
    if not env.get("NO_COLOR"):
        del whole["NO_COLOR"]
    with subprocess.Popen([DATAFLOW, *argv], cwd=project.folder, env=whole, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            said += part
            if not part:
                break
        assert process.wait() == 0
    os.close(ours)
    return said.decode()


def test_colour_is_for_terminals_only_and_no_color_is_honoured(sqlite_project: Project) -> None:
    sqlite_project.apply(PROJECT)
    coloured = re.compile(r"\x1b\[[0-9;]*(3[0-9]|9[0-9]|38)")
    sqlite_project.write("data/orders/x.csv", "a\n")
    assert sqlite_project.dataflow("ready", "orders", "x").returncode == 0
    assert coloured.search(on_a_terminal(sqlite_project, "status", "orders"))
    assert not coloured.search(on_a_terminal(sqlite_project, "status", "orders", NO_COLOR="1"))
    plain = sqlite_project.env()
    del plain["NO_COLOR"]
    piped = subprocess.run([DATAFLOW, "status"], cwd=sqlite_project.folder, env=plain, capture_output=True, text=True)
    assert "\x1b" not in piped.stdout + piped.stderr


# Errors ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("argv", "next_step"),
    [
        (["status"], "`dataflow init DIR`"),
        (["run", "load"], "`dataflow init DIR`"),
        (["apply"], "`dataflow init DIR`"),
        (["check-project"], "`dataflow init DIR` makes a project"),
    ],
)
def test_outside_of_a_project_the_next_step_is_named(tmp_path: Path, argv: list[str], next_step: str) -> None:
    nowhere = Project(tmp_path / "nowhere", "")
    env = nowhere.env()
    del env["DATAFLOW_STORE"]
    done = subprocess.run([DATAFLOW, *argv], cwd=nowhere.folder, env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert next_step in done.stderr


def test_errors_end_with_the_next_step(sqlite_project: Project) -> None:
    sqlite_project.write("project.yml", PROJECT)
    asked = {
        ("status",): "`dataflow apply`",
        ("run", "load_orders"): "`dataflow apply`",
    }
    for argv, step in asked.items():
        done = sqlite_project.dataflow(*argv)
        assert (done.returncode != 0, step in done.stderr) == (True, True), done.stderr
    sqlite_project.apply(PROJECT)
    known = {
        ("run", "load_order"): "did you mean 'load_orders'?",
        ("why", "load_orders", "2025"): "dataflow status load_orders",
        ("preview", "order"): "did you mean 'orders'?",
    }
    for argv, step in known.items():
        done = sqlite_project.dataflow(*argv)
        assert done.returncode == 2
        assert step in done.stderr, done.stderr


# The container --------------------------------------------------------------------------------------------------------
def test_the_container_is_made_of_what_is_there() -> None:
    text = (ROOT / "Containerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE) for name in line.split()]
    assert {"pyproject.toml", "README.md", "LICENSE", "src"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
    assert re.search(r'^ENTRYPOINT \["dataflow"\]$', text, re.MULTILINE)
    assert re.search(r"^USER (?!root)", text, re.MULTILINE)
    words = {line.split()[0] for line in re.sub(r"\\\n", " ", text).splitlines() if line and not line.startswith("#")}
    assert words == {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "USER", "ENTRYPOINT", "CMD"}
