"""Pages whose commands a test types: READMEs of examples, the tutorial, how-tos.

A ```sh block holds commands, one a line (a here-document and a \\ at the end go on), with `# exit N` behind one
that does not end with 0. The ```text block after it is what they print: … stands for anything, alone on a line for any
lines. A block after a line that ends with a name (… `jobs/load.sh`:) is that file.
"""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(r"(?:^(?P<before>[^\n]*)\n)?\n*^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"`([\w./-]+\.\w+)`[^`]*:$")


class Step(NamedTuple):
    """A block of commands, and the text that they print."""

    commands: list[str]
    text: str


def steps_of(page: str) -> list[Step]:
    steps: list[Step] = []
    for found in _BLOCK.finditer(page):
        body, file = found["body"], _FILE.search(found["before"] or "")
        if found["language"] == "sh":
            steps.append(Step(commands_of(body), ""))
        elif found["language"] == "text" and steps:
            steps[-1] = steps[-1]._replace(text=body)
        elif file is not None:
            folder = Path(file[1]).parent
            steps.append(Step([f"mkdir -p {folder} && cat > {file[1]} <<'END_OF_FILE'\n{body}END_OF_FILE"], ""))
    return steps


def commands_of(block: str) -> list[str]:
    """The lines, with those together that are one command."""
    found: list[str] = []
    end = ""
    goes_on = False
    for line in block.splitlines():
        if end or goes_on:
            found[-1] += f"\n{line}"
        elif line.strip():
            found.append(line)
        if end:
            end = "" if line == end else end
        elif opened := re.search(r"<<-?'?(\w+)'?", line):
            end = opened[1]
        goes_on = not end and line.endswith("\\")
    return found


def told_code(command: str) -> int:
    found = re.search(r"# exit (\d+)", command)
    return int(found[1]) if found else 0


def plain_lines(text: str) -> list[str]:
    """The lines that say something, each blank and rule as short as it can be."""
    lines = (re.sub(r"─+", "─", re.sub(r"\s+", " ", line)).strip() for line in text.splitlines())
    return [line for line in lines if line]


def pattern_of(text: str) -> str:
    lines = plain_lines(text)
    return "".join(r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in lines)


def run_commands(
    commands: list[str], folder: Path, env: dict[str, str], *, shell: str = "sh", timeout: float = 250
) -> list[tuple[int, str]]:
    """All in one shell, as a person would type them: for each its exit code and what it printed."""
    script = "\n".join(f"{command}\nprintf '\\036%s\\n' $?" for command in commands)
    done = subprocess.run(
        [shell, "-c", script], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=timeout,
    )  # fmt: skip
    *parts, rest = re.split(r"\x1e(\d+)\n", done.stdout)
    assert (len(parts), rest) == (2 * len(commands), ""), f"the shell ended early:\n{done.stdout}"
    return [(int(code), text) for text, code in zip(parts[::2], parts[1::2], strict=True)]


def follow_page(
    page: str, folder: Path, env: dict[str, str], *, shell: str = "sh", all_is_shown: bool = False
) -> list[tuple[int, str]]:
    """Do what the page says in this folder; everything must be as it says. What each command ended with and printed.

    `all_is_shown`: commands without a text after them print nothing.
    """
    steps = steps_of(page)
    commands = [command for step in steps for command in step.commands]
    results = rest = run_commands(commands, folder, env, shell=shell)
    for command, (code, text) in zip(commands, results, strict=True):
        assert code == told_code(command), f"{command}\n{text}"
    for step in steps:
        of_step, rest = rest[: len(step.commands)], rest[len(step.commands) :]
        printed = "".join(text for _, text in of_step)
        shown = "".join(f"{line}\n" for line in plain_lines(printed))
        is_as_told = re.fullmatch(pattern_of(step.text), shown) is not None
        assert is_as_told or not (step.text or all_is_shown), f"{step.commands} print:\n{printed}\nnot:\n{step.text}"
    return results
