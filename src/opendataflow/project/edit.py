"""Adding an entry to project.yml as text: everything else in the file stays as it is, byte for byte."""

import contextlib
import json
import os
import re
import tempfile
from typing import Any

import yaml

from opendataflow.domain.registration import Registration
from opendataflow.errors import ConfigurationError
from opendataflow.project import PROJECT_FILE
from opendataflow.project.registration.load import Bound, load_registration
from opendataflow.project.source import Source

BOM = "\ufeff"
_STEP = 2  # blanks, where the file does not say
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*(?: [A-Za-z0-9_][A-Za-z0-9_./+-]*)*")
_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")  # other readers of YAML take them for values


def add_to_project(
    folder: str, environment: str, section: str, name: str, entry: dict[str, Any], *, bound: Bound | None = None
) -> Registration:
    """Add the entry to `datasets:` or `jobs:` of the project.yml, or raise ConfigurationError and write nothing.

    The file is replaced at once, and only by one that loads as a whole; returns what it declares then.
    """
    path = os.path.realpath(os.path.join(folder, PROJECT_FILE))
    source = Source(folder)
    with open(path, "rb") as file:
        before = file.read()
    known = source.data.get(section)
    if isinstance(known, dict) and name in known:
        raise source.error((section, name), "is there already; nothing was changed")
    text = before.decode("utf-8")
    after = with_entry(text, section, name, entry, source=source)
    try:
        made = load_registration(folder, environment, text=after, bound=bound)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}\nnothing was changed") from None
    replace_file(path, before, after.encode())
    return made


def with_entry(text: str, section: str, name: str, entry: dict[str, Any], *, source: Source) -> str:
    """The text with one entry more at the end of the section; `source` is the text as it was read."""
    head = BOM if text.startswith(BOM) else ""
    body = text.removeprefix(BOM)
    tree = yaml.compose(body, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    if not isinstance(tree, yaml.MappingNode) or tree.flow_style:
        raise source.error((), "is written as {…}; write its sections as blocks, one key a line, and try again")
    keys = [key for key, _ in tree.value]
    at = next((number for number, key in enumerate(keys) if key.value == section), None)
    newline = "\r\n" if "\r\n" in body else "\n"
    column = keys[0].start_mark.column if keys else 0
    step = _step_of(tree)
    if at is None:
        place, indent, lines = len(body), column + step, [" " * column + f"{section}:"]
        if body.strip() and not body.endswith(newline * 2):
            lines.insert(0, "")
    else:
        value = tree.value[at][1]
        indent = _indent_of(value, keys[at], step, section, source)
        end = _line_start(body, keys[at + 1].start_mark.index) if at + 1 < len(keys) else len(body)
        place, lines = _last_line_end(body, end, indent), []
    lines += entry_lines(name, entry, indent=indent, step=step)
    gap = newline if place and body[place - 1] != "\n" else ""
    made = head + body[:place] + gap + "".join(line + newline for line in lines) + body[place:]
    _check_nothing_else(source, section, name, entry, made, lines)
    return made


def _step_of(tree: yaml.MappingNode) -> int:
    """How far the file's own sections are indented."""
    for key, value in tree.value:
        if isinstance(value, yaml.MappingNode) and not value.flow_style and value.value:
            step = value.value[0][0].start_mark.column - key.start_mark.column
            if step > 0:
                return int(step)
    return _STEP


def _indent_of(value: Any, key: Any, step: int, section: str, source: Source) -> int:
    if isinstance(value, yaml.MappingNode) and not value.flow_style and value.start_mark.index > key.start_mark.index:
        return int(value.value[0][0].start_mark.column)
    if isinstance(value, yaml.ScalarNode) and value.start_mark.index == value.end_mark.index:
        return int(key.start_mark.column) + step
    raise source.error(
        (section,), "is not written as a block; put each name on a line of its own below it, and try again"
    )


def _line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def _last_line_end(text: str, end: int, indent: int) -> int:
    """Where the section's last line ends: blank lines, and comments further to the left, belong to what follows."""
    while end > 0:
        start = _line_start(text, end - 1)
        line = text[start:end]
        bare = line.lstrip(" ")
        if bare.strip() and not (bare.startswith("#") and len(line) - len(bare) < indent):
            break
        end = start
    return end


# The entry ------------------------------------------------------------------------------------------------------------
def entry_lines(name: str, entry: dict[str, Any], *, indent: int, step: int = _STEP) -> list[str]:
    """The entry as lines of YAML: a key a line, and what is below a key on that line."""
    lines = [" " * indent + f"{_scalar(name)}:{'' if entry else ' {}'}"]
    for key, value in entry.items():
        if isinstance(value, list) and any(isinstance(one, dict) for one in value):
            lines.append(" " * (indent + step) + f"{key}:")
            lines += [" " * (indent + 2 * step) + f"- {_item(one)}" for one in value]
        else:
            lines.append(" " * (indent + step) + f"{key}: {_flow(value)}")
    return lines


def _item(value: Any) -> str:
    if isinstance(value, dict) and len(value) == 1:
        ((key, below),) = value.items()
        return f"{_scalar(key)}: {_flow(below)}"
    return _flow(value)


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(below)}" for key, below in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(one) for one in value) + "]"
    return str(value) if isinstance(value, int) else _scalar(str(value))


def _scalar(text: str) -> str:
    """The text plain where every reader takes it for a text, else in quotes, as JSON writes it."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _check_nothing_else(
    source: Source, section: str, name: str, entry: dict[str, Any], made: str, lines: list[str]
) -> None:
    """Raise ConfigurationError unless the new text says what the old one said, and the entry."""
    expected = {**source.data, section: {**(source.data.get(section) or {}), name: entry}}
    try:
        found = Source(os.path.dirname(source.file), made).data
    except ConfigurationError:
        found = {}
    if found != expected or list(found[section])[-1] != name:
        shown = "\n".join(lines)
        raise source.error((section,), f"the entry cannot be added here by itself; put it in by hand:\n{shown}")


# The file -------------------------------------------------------------------------------------------------------------
def replace_file(path: str, before: bytes, after: bytes) -> None:
    """Put the new content in the file's place at once, or raise and leave the file as it was."""
    folder, name = os.path.split(path)
    beside = None
    try:
        with open(path, "rb") as file:
            if file.read() != before:
                raise ConfigurationError(f"{path} was changed meanwhile; nothing was changed, try again")
            mode = os.fstat(file.fileno()).st_mode & 0o7777
        handle, beside = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        with open(handle, "wb") as file:
            file.write(after)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(beside, path)
        beside = None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be replaced: {error.strerror}; nothing was changed") from error
    finally:
        if beside is not None:
            with contextlib.suppress(OSError):
                os.unlink(beside)
