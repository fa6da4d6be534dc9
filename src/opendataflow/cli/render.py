"""What people see: tables, colours on terminals only, JSON for scripts."""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from opendataflow.errors import UsageError

STYLES = {
    "COMPLETE": "green",
    "READY": "green",
    "RUNNING": "blue",
    "PENDING": "dim",
    "FAILED": "bold red",
    "RESUBMIT": "yellow",
    "HOLD": "magenta",
    "EXPIRED": "bold red",
    "LOST": "red",
    "GAP": "red",
}
MARKS = {"READY": "R", "RUNNING": "r", "PENDING": "p", "FAILED": "F", "RESUBMIT": "S", "HOLD": "H", "GAP": "·", "": " "}


# What a terminal obeys: titles, the clipboard, keys that are answered, text that hides other text. Colours may stay.
_CONTROLS = re.compile("(\x1b\\[[0-9;]{0,20}m)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def as_text(text: str) -> str:
    """The text without what a terminal would obey: scripts wrote it, or somebody who pushed a commit."""
    return _CONTROLS.sub(lambda found: found[1] or f"\\x{ord(found[0]):02x}", text)


def say(message: str) -> None:
    """A message for a person: to stderr. If nobody listens any more, the work goes on."""
    try:
        sys.stdout.flush()  # what was put before it stands before it, also where both go into one file
    except (OSError, AttributeError):
        pass
    try:
        sys.stderr.write(f"{as_text(message) if sys.stderr.isatty() else message}\n")
        sys.stderr.flush()
    except (OSError, AttributeError):  # a pipe whose reader is gone; a stream that was closed from the start
        pass


def put(text: str) -> None:
    """Data: to stdout; a file or a pipe gets every byte of it."""
    sys.stdout.write(f"{as_text(text) if sys.stdout.isatty() else text}\n")


def put_now(text: str) -> None:
    """A line of something that goes on: whoever reads it, also through a pipe, need not wait for the next ones."""
    put(text)
    sys.stdout.flush()


def put_json(value: object) -> None:
    put(json.dumps(value, indent=2, default=str, ensure_ascii=False))


FORMULA = ("=", "+", "-", "@", "\t", "\r")


def put_csv(names: Sequence[str], batches: Iterable[Sequence[Sequence[Any]]], *, safe: bool) -> None:
    """Rows as CSV to stdout, batch by batch. `safe`: no text can be taken for a formula; numbers stay as they are."""
    import csv
    import io

    def cell(value: Any) -> Any:
        if safe and isinstance(value, str) and value.startswith(FORMULA):
            return f"'{value}"
        return value

    sys.stdout.flush()
    text = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", errors="backslashreplace", newline="")
    try:
        writer = csv.writer(text, lineterminator="\n")  # None is an empty field
        writer.writerow([cell(name) for name in names])
        for rows in batches:
            writer.writerows([cell(value) for value in row] for row in rows) if safe else writer.writerows(rows)
    finally:
        text.detach()  # flushes


def put_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table; statuses in colour on a terminal, plain text elsewhere (rich honours NO_COLOR)."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        texts = ["" if cell is None else as_text(str(cell)) for cell in row]
        table.add_row(*(Text(text, style=STYLES.get(text, "")) for text in texts))
    console = Console()
    Console(width=None if console.is_terminal else 200).print(table)


def put_grid(title: str, dataids: Sequence[str], rows: dict[str, Sequence[str]]) -> None:
    """Datasets down, slots across, one mark a chunk; the heads share what all slots have in common."""
    import os.path

    from rich.console import Console
    from rich.text import Text

    common = os.path.commonprefix(list(dataids)) if len(dataids) > 1 else ""  # noqa: RUF071  texts, not paths
    common = common[: max(common.rfind("-"), common.rfind("T")) + 1]
    heads = [dataid[len(common) :] for dataid in dataids]
    width = max((len(head) for head in heads), default=1) + 1
    left = max((len(name) for name in rows), default=0)
    console = Console()
    console = console if console.is_terminal else Console(width=200)
    used = {cell for cells in rows.values() for cell in cells if cell}
    legend = ", ".join(
        f"{MARKS[one]} {'expected, nothing there' if one == 'GAP' else one}" for one in MARKS if one in used
    )
    console.print(Text(f"{title}{f' of {common}…' if common else ''}   ({legend})", style="italic"))
    console.print(Text(" " * left + "".join(head.rjust(width) for head in heads), style="bold"))
    for name, cells in rows.items():
        line = Text(name.ljust(left))
        for cell in cells:
            line.append(MARKS.get(cell, "?").rjust(width), style=STYLES.get(cell, ""))
        console.print(line)
    console.print()


def confirm(what: str, *, yes: bool) -> None:
    """Ask a person; where nobody is there to ask, raise UsageError."""
    import typer

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"this would {what}, and nobody is there to ask; give --yes")
    typer.confirm(f"{what}?", abort=True, err=True)


def ask_secret(prompt: str) -> str:
    """A password, from a person who is asked or from standard input: never from an argument, which others see."""
    if sys.stdin.isatty():
        import getpass

        given = getpass.getpass(prompt)
    else:
        given = sys.stdin.readline().rstrip("\r\n")
    if not given:
        raise UsageError("nothing was given on standard input")
    return given
