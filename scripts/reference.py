"""The parts of the reference that are made from the code: `make reference` writes them, a test compares them.

A whole page (command-line.md, statuses.md, project.schema.json), or the part of a page between two marks:
<!-- made by scripts/reference.py --> … <!-- end -->
"""

import re
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from opendataflow.cli.exit_codes import EXIT_CODES
from opendataflow.cli.main import app
from opendataflow.cli.runjob import HELP
from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.job import JobStatus
from opendataflow.domain.runs.questions import CODES
from opendataflow.domain.runs.transitions import CHUNK_TRANSITIONS, JOB_TRANSITIONS, ChunkEvent, JobEvent
from opendataflow.project.schema.json_schema import schema_text
from opendataflow.store import open_store
from opendataflow.store.migrate import upgrade

DOCS = Path(__file__).resolve().parents[1] / "docs"
BEGIN, END = "<!-- made by scripts/reference.py -->", "<!-- end -->"

JOB_EVENTS = {
    JobEvent.CLAIM: "a run is claimed",
    JobEvent.COMPLETE: "the run published its outputs",
    JobEvent.FAIL: "the run failed",
    JobEvent.GIVE_BACK: "handed back, lease lost, the child died with tries left, or again after this run",
    JobEvent.RETRY: "the backoff of a failed attempt has passed",
    JobEvent.RESUBMIT: "RESUBMIT is set",
    JobEvent.HOLD: "a person holds it",
    JobEvent.RELEASE: "a person lets it go on",
    JobEvent.ASSERT: "all its outputs were declared READY from outside",
}
CHUNK_EVENTS = {
    ChunkEvent.PRODUCE: "its producer starts",
    ChunkEvent.PUBLISH: "its producer committed",
    ChunkEvent.FAIL: "its producer failed",
    ChunkEvent.CLOSE: "its producer will make it again",
    ChunkEvent.ASSERT: "declared READY from outside",
}


def pages() -> dict[Path, str]:
    """Every page with a part that is made, as it should be."""
    reference = DOCS / "reference"
    return {
        reference / "command-line.md": command_line(),
        reference / "statuses.md": statuses(),
        reference / "project.schema.json": schema_text(),
        reference / "exit-codes.md": _with_part(reference / "exit-codes.md", exit_codes()),
        reference / "tables.md": _with_part(reference / "tables.md", columns()),
    }


def _with_part(page: Path, part: str) -> str:
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page}: there is no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{part}{END}{after}"


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


# Commands -------------------------------------------------------------------------------------------------------------
def command_line() -> str:
    parts = [
        "# The command line\n\nEvery command with its arguments and options, as `--help` has them; this page is made "
        "from the code. [commands.md](commands.md) has\nthem on one page, by what they are for.\n",
        "## RunJob\n\n```text\n" + HELP + "```\n",
    ]
    parts += [_command(name, command) for name, command in commands()]
    return "\n".join(parts)


def commands() -> list[tuple[str, Any]]:
    """Every command with its whole name, those of groups among them, by name."""

    def walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
        else:
            for sub, one in inner.items():
                yield from walk(one, f"{name} {sub}")

    found = walk(typer.main.get_command(app), "dataflow")
    return sorted((name, one) for name, one in found if not one.hidden)


def _command(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument" and not one.hidden]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    said = re.sub(r"[ \t]*\n[ \t]*", "\n", command.help or "")
    text, _, examples = said.partition("Example")
    usage = " ".join([name, *(_argument(one) for one in arguments), *(["[OPTIONS]"] if options else [])])
    made = [f"## {name}\n", f"`{usage}`\n", _plain(text.strip()) + "\n"]
    rows = [(f"`{_name(one)}`", _plain(one.help or "")) for one in arguments]
    rows += [(f"`{_option(one)}`", _plain(one.help or "") + _default(one)) for one in options]
    if rows:
        made.append(_table(("argument or option", "meaning"), rows))
    typed = [one.strip() for one in re.sub(r"\s+", " ", examples.removeprefix("s").removeprefix(":")).split(";  ")]
    typed = [one for part in typed for one in re.split(r";\s+(?=dataflow |RunJob )", part) if one]
    if typed:
        made.append("```bash\n" + "\n".join(typed) + "\n```\n")
    return "\n".join(made)


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper()).strip("[]")


def _argument(argument: Any) -> str:
    name = _name(argument) + ("…" if argument.nargs == -1 and "..." not in _name(argument) else "")
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {option.metavar or option.name.upper()}"


def _default(option: Any) -> str:
    is_told = option.default not in (None, "", 0.0, False, True) and not option.is_flag and not callable(option.default)
    return f" Default: `{option.default}`." if is_told else ""


def _plain(text: str) -> str:
    """As Markdown shows it: what stands outside of `…` means nothing special."""
    parts = re.split(r"(`[^`]*`)", text)
    made = "".join(
        one if one.startswith("`") else re.sub(r"([*_\[\]])", r"\\\1", one).replace("<", "&lt;") for one in parts
    )
    return made.replace("|", "\\|")


# Statuses, exit codes, tables -----------------------------------------------------------------------------------------
def statuses() -> str:
    by_job = [(f"{status}", JOB_EVENTS[event], f"{after}") for (status, event), after in JOB_TRANSITIONS.items()]
    by_chunk = [(f"{status}", CHUNK_EVENTS[event], f"{after}") for (status, event), after in CHUNK_TRANSITIONS.items()]
    return (
        "# Statuses\n\nEvery change of status that there is; this page is made from "
        "`src/opendataflow/domain/runs/transitions.py`, and the triggers of both databases are\nproved to follow it. "
        "What they mean: [the state machine](../state-machine.md).\n\n"
        f"A job on a dataid is {_listed(JobStatus)}; a chunk is {_listed(ChunkStatus)}.\n\n"
        "## A job on a dataid\n\n"
        + _table(("from", "when", "to"), by_job)
        + "\n## A chunk\n\n"
        + _table(("from", "when", "to"), by_chunk)
        + "\n## Answers that are no\n\n"
        + _table(
            ("question", "code", "exit"),
            [(str(one), f"`{code}`", str(number)) for one, (code, number) in CODES.items()],
        )
    )


def _listed(kinds: Any) -> str:
    *first, last = (str(one) for one in kinds)
    return f"{', '.join(first)} or {last}"


def exit_codes() -> str:
    rows = [("128+n" if code == 128 else str(code), said.removeprefix("128+n: ")) for code, said in EXIT_CODES.items()]
    return _table(("code", "meaning"), rows)


def columns() -> str:
    """Tables and views of a store with their columns; both databases have the same."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/state.db"
        store = open_store(f"sqlite:///{file}", actor="reference", must_exist=False, check=False)
        upgrade(store)
        store.close()
        connection = sqlite3.connect(file)
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%' ORDER BY name"
        ).fetchall()
        rows = []
        for (name,) in names:
            held = connection.execute("SELECT name FROM pragma_table_info(?)", (name,)).fetchall()
            rows.append((f"`{name}`", ", ".join(f"`{column}`" for (column,) in held)))
        connection.close()
    return _table(("table", "columns"), rows)


def main() -> int:
    """Write what is not as it should be; with --check only name it."""
    stale = {page: text for page, text in pages().items() if not page.exists() or page.read_text() != text}
    for page, text in stale.items():
        sys.stdout.write(f"{page.relative_to(DOCS.parent)}\n")
        if "--check" not in sys.argv:
            page.write_text(text)
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
