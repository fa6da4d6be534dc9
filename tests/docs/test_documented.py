"""Every command, status and exit code is documented, and the README's commands run."""

import os
import re
import socket
import subprocess
from pathlib import Path

import typer

from opendataflow.cli.exit_codes import EXIT_CODES
from opendataflow.cli.main import app
from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.job import JobStatus
from opendataflow.domain.runs.questions import CODES
from support.projects import Project

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EVERY_FAULT = "DATAFLOW_EVERY_FAULT" in os.environ


def command_names() -> list[str]:
    group = typer.main.get_command(app)
    found = []
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found += [f"{name} {sub}" for sub in inner] if inner else [name]
    return found


def test_every_command_is_in_the_reference() -> None:
    text = (DOCS / "reference/commands.md").read_text()
    missing = [name for name in command_names() if f"`dataflow {name}" not in text]
    assert missing == []
    assert "`RunJob " in text


def test_every_command_says_what_it_does_and_how_it_is_used() -> None:
    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        for sub, one in (getattr(command, "commands", None) or {name: command}).items():
            assert one.help, f"{name} {sub} has no help"


def test_every_exit_code_is_documented_with_its_meaning() -> None:
    text = (DOCS / "reference/exit-codes.md").read_text()
    for code, meaning in EXIT_CODES.items():
        said = meaning.removeprefix("128+n: ")
        row = f"| 128+n | {said} |" if code == 128 else f"| {code} | {said} |"
        assert row in text, row


def test_every_refusal_code_has_its_exit_code_in_the_readme_and_the_reference() -> None:
    readme, reference = (ROOT / "README.md").read_text(), (DOCS / "reference/exit-codes.md").read_text()
    for code, number in CODES.values():
        assert f"| `{code}` | {number} |" in readme
        assert f"| {number} | {code}:" in reference


def test_every_status_is_in_the_state_machine_page() -> None:
    text = (DOCS / "state-machine.md").read_text()
    for status in {*JobStatus, *ChunkStatus}:
        assert f"| {status} |" in text, status


def test_links_between_the_pages_lead_somewhere() -> None:
    broken = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_the_readme_opens_with_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()[:8]
    assert any(line.startswith("make demo") for line in lines)
    assert any(line.startswith("make test") for line in lines)


def test_the_readmes_60_seconds_run_as_they_are_written(sqlite_project: Project) -> None:
    text = (ROOT / "README.md").read_text()
    section = text[text.index("## RunJob in 60 seconds") : text.index("## A nightly cycle")]
    project_yml, script, commands = re.findall(r"```(?:yaml|bash)\n(.*?)```", section, flags=re.DOTALL)
    sqlite_project.write("project.yml", project_yml)
    sqlite_project.write("myETL.sh", script).chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", commands],
        cwd=sqlite_project.folder,
        env=sqlite_project.env(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "done with 2025-11-01\n" in done.stdout
    assert done.stdout.endswith("10\n")
    assert "COMPLETE" in done.stdout
    (statement,) = re.findall(r"```sql\n(.*?);?\n```", section, flags=re.DOTALL)
    sqlite_project.sql(statement)
    assert sqlite_project.statuses("myETL")["2025-11-01"] == "RESUBMIT"


def test_the_readmes_stream_runs_as_it_is_written(sqlite_project: Project) -> None:
    """With Spark, whose start takes longer than all the rest, in `make faults`."""
    text = (ROOT / "README.md").read_text()
    section = text[text.index("## A stream in 60 seconds") : text.index("## The server")]
    project_yml, code, commands = re.findall(r"```(?:yaml|python|bash)\n(.*?)```", section, flags=re.DOTALL)
    sqlite_project.write("project.yml", project_yml)
    sqlite_project.write("pipelines/leads/clean_lead.py", code)
    if not EVERY_FAULT:
        commands = re.sub(r"^dataflow (stream run|preview) .*\n", "", commands, flags=re.MULTILINE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    end_server = "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n"
    done = sqlite_project.run("bash", "-ec", end_server + commands.replace("8321", port), timeout=180)
    assert done.returncode == 0, done.stderr
    assert '"first": "leads-0"' in done.stdout
    (status,) = sqlite_project.json("stream", "status")
    assert (status["accepted"], status["processed"]) == (2, 2 if EVERY_FAULT else 0)
    assert not EVERY_FAULT or "ann@x.org" in done.stdout
