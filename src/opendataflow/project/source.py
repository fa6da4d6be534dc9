"""The YAML text of project.yml as plain values, each with its line: errors name file, line and key.

YAML's guesses are made only where a value may be a number or a truth (options, checks, Spark's settings); everywhere
else a value is the text that was written, so that 010, 1:30, no and 2025-01-01 stay what they are. Keys always do.
"""

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import yaml

from opendataflow.domain.words import number_of
from opendataflow.errors import ConfigurationError
from opendataflow.project import PROJECT_FILE
from opendataflow.project.variables import expand

Path = tuple[str | int, ...]

MOST_LEVELS = 100
MOST_VALUES = 1_000_000  # aliases counted as what they stand for
_TEXT, _TYPED = "text", "typed"
_DATASET = {"options": _TYPED, "checks": _TYPED, "*": _TEXT}
_SPARK = {"conf": _TYPED, "*": _TEXT}
_JOB = {"inputs": {"*": {"*": {"map": _TYPED, "*": _TEXT}}}, "*": _TEXT}
_PIPELINE = {"sources": _JOB["inputs"], "checks": _TYPED, "*": _TEXT}
_SHAPE = {  # `*` is any other key, or any item of a list
    "environments": {"*": {"datasets": {"*": _DATASET}, "spark": _SPARK, "*": _TEXT}},
    "spark": _SPARK,
    "datasets": {"*": _DATASET},
    "jobs": {"*": _JOB},
    "pipelines": {"*": _PIPELINE},
    "*": _TEXT,
}
_UNQUOTED = re.compile(  # a value with {dataid} in it, without quotes
    r"""(?P<key>[\w.-]+):\s+(?P<value>[^\s"'#,{\[]*\{dataid[^{}"']*\}[^\s,}"']*)"""
)
_NULLS = ("", "~", "null", "Null", "NULL")
_TRUTHS = {
    spelled: truth
    for word, truth in {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}.items()
    for spelled in (word, word.capitalize(), word.upper())
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,99})")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?")
_SPECIAL = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}
_PLAIN_TAGS = {"!", *(f"tag:yaml.org,2002:{name}" for name in ("str", "map", "seq"))}


class Node:
    """A value of the file: where it stands, and what lies below it."""

    __slots__ = ("height", "items", "keys", "line", "size", "value")

    def __init__(self, line: int, value: Any) -> None:
        self.line, self.value = line, value
        self.keys: dict[str, int] = {}  # of a mapping: the line of each key
        self.items: Any = None  # of a mapping: key → Node; of a list: [Node]
        self.size, self.height = 1, 1


class _Open:
    """A mapping or list whose end has not come yet."""

    __slots__ = ("anchor", "key", "key_is_plain", "merged", "node", "shape")

    def __init__(self, node: Node, shape: Any, anchor: str | None) -> None:
        self.node, self.shape, self.anchor = node, shape, anchor
        self.key: str | None = None
        self.key_is_plain = False
        self.merged: list[Node] = []


class Source:
    """A parsed project.yml that can say on which line a key stands."""

    def __init__(self, folder: str, text: str | None = None) -> None:
        """Read the file of this folder, or take `text` for what it holds."""
        self.file = os.path.join(folder, PROJECT_FILE)
        self.tree = _Reader(self.file).read(self._read() if text is None else text)
        self.data: dict[str, Any] = self.tree.value
        self.environment = ""
        self.changes: dict[str, dict[str, Any]] = {}  # what differs in this environment, by dataset
        self.bound: Mapping[str, Collection[str]] = {}  # fields that were bound in the store, by dataset

    def _read(self) -> str:
        try:
            with open(self.file, "rb") as source:
                raw = source.read()
        except OSError as error:
            raise ConfigurationError(f"{self.file}: {error.strerror}") from error
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise ConfigurationError(
                f"{self.file}:{line}: is not UTF-8 text: byte 0x{raw[error.start]:02x}; save it as UTF-8"
            ) from None

    def line(self, path: Path) -> int:
        """The line of the key, or of the nearest key above it that exists."""
        node, line = self.tree, 1
        for part in path:
            if isinstance(node.items, dict) and str(part) in node.items:
                line, node = node.keys[str(part)], node.items[str(part)]
            elif isinstance(node.items, list) and isinstance(part, int) and part < len(node.items):
                node = node.items[part]
                line = node.line
            else:
                break
        return line

    def use_changes(self, environment: str, changes: dict[str, dict[str, Any]]) -> None:
        """From now on, errors about what differs in this environment name the place where it stands."""
        self.environment, self.changes = environment, changes

    def _written_at(self, path: Path) -> Path:
        if path[:1] != ("datasets",) or len(path) == 1:
            return path
        changes = self.changes.get(str(path[1]), {})
        is_changed = bool(changes) and (len(path) == 2 or path[2] in changes)
        return ("environments", self.environment, *path) if is_changed else path

    def error(self, path: Path, message: str, *, near: Path | None = None) -> ConfigurationError:
        """An error about the key at this path; `near` is where to look, if elsewhere."""
        bound = self.bound.get(str(path[1]), ()) if path[:1] == ("datasets",) and len(path) > 1 else ()
        if bound and (len(path) == 2 or path[2] in bound):
            message += f" ({', '.join(sorted(bound))} bound in the store: see `dataflow source list`)"
        path = self._written_at(path)
        line = self.line(path if near is None else self._written_at(near))
        return ConfigurationError(f"{self.file}:{line}: {shown_path(path)}{message}")

    def filled(self, value: Any, at: Path) -> Any:
        """The value with every ${NAME} replaced from the environment; a missing one is an error at its key."""
        if isinstance(value, str):
            try:
                return _storable(expand(value)) if "${" in value else value
            except ConfigurationError as error:
                raise self.error(at, str(error).replace(", and project.yml asks for it", "")) from None
        if isinstance(value, dict):
            return {key: self.filled(one, (*at, key)) for key, one in value.items()}
        if isinstance(value, list):
            return [self.filled(one, (*at, number)) for number, one in enumerate(value)]
        return value


def shown_path(path: Path) -> str:
    """The path before a message: `jobs.load.inputs.0: `, nothing for the whole file."""
    parts = [str(part) if isinstance(part, int) or (part.isprintable() and part) else repr(part) for part in path]
    return f"{'.'.join(parts)}: " if parts else ""


def suggestion(name: str, known: Iterable[str], *, quote: Callable[[str], str] = repr) -> str:
    """`; did you mean 'x'?` for the nearest of the known names, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {quote(near[0])}?" if near else ""


def _storable(text: str) -> str:
    """The text, unless no database could keep it: a variable may hold bytes that are no UTF-8."""
    problem = _why_not_storable(text)
    if problem:
        raise ConfigurationError(f"a variable's value {problem}")
    return text


def _why_not_storable(text: str) -> str:
    if "\0" in text:
        return "holds a NUL character"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "holds a character that is no Unicode text"
    return ""


# Reading --------------------------------------------------------------------------------------------------------------
class _Reader:
    """Builds the nodes from YAML's events, without recursion: however deep the text nests, it ends with an error."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._open: list[_Open] = []
        self._anchors: dict[str, Node | None] = {}  # None: not complete yet
        self._root: Node | None = None

    def read(self, text: str) -> Node:
        takes: dict[type, Callable[[Any], None]] = {
            yaml.ScalarEvent: self._take_scalar,
            yaml.MappingStartEvent: self._begin,
            yaml.SequenceStartEvent: self._begin,
            yaml.MappingEndEvent: self._end,
            yaml.SequenceEndEvent: self._end,
            yaml.AliasEvent: self._take_alias,
            yaml.DocumentStartEvent: self._begin_document,
        }
        try:
            for event in _events(text):
                take = takes.get(type(event))
                if take is not None:
                    take(event)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise self._error(line, f"{self._open_path()}not valid YAML: {self._problem(error, text, line)}") from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise self._error(line, f"not valid YAML: {error.reason}") from None
        except yaml.YAMLError as error:
            raise self._error(1, f"not valid YAML: {error}") from None
        if self._root is None or not isinstance(self._root.value, dict):
            raise self._error(1, "a project needs at least `name: …`")
        return self._root

    def _open_path(self) -> str:
        """The keys below which the file could not be read further."""
        return shown_path(tuple(one.key if one.key is not None else len(one.node.items) for one in self._open[:-1]))

    def _problem(self, error: yaml.MarkedYAMLError, text: str, line: int) -> str:
        lines = text.splitlines()
        written = lines[line - 1] if line <= len(lines) else ""
        indent = len(written) - len(written.lstrip())
        if "\t" in written[:indent]:
            return "a tab stands where blanks are needed; YAML is indented with blanks"
        # What is wrong with a flow mapping may be found only on the next line.
        for number in (line, line - 1):
            before = lines[number - 1] if 0 < number <= len(lines) else ""
            if found := _UNQUOTED.search(before):
                at = "" if number == line else f" on line {number}"
                return f'`{found["key"]}`{at}: a text with braces is quoted: {found["key"]}: "{found["value"]}"'
        columns = {len(lines[at - 1]) - len(lines[at - 1].lstrip()): key for key, at in self._open_keys(lines)}
        has_colon = "mapping values are not allowed" in str(error.problem)
        if has_colon and written.count(": ") > 1:
            return f"{error.problem}; quote a value that holds `: `"
        if columns and indent not in columns and (has_colon or "expected" in str(error.problem)):
            others = ", ".join(f"`{key}` by {column}" for column, key in sorted(columns.items()))
            told = f"indented by {number_of(indent, 'blank')}, like no other key ({others})"
            return f"{told}; keys of one mapping begin in one column"
        return " ".join(part for part in (error.context, error.problem) if part)

    def _open_keys(self, lines: list[str]) -> Iterator[tuple[str, int]]:
        """Of each mapping that is open, the last key that begins a line, with that line."""
        for one in self._open:
            for key, at in reversed(one.node.keys.items()):
                if lines[at - 1].lstrip().startswith(key):
                    yield key, at
                    break

    def _error(self, line: int, message: str) -> ConfigurationError:
        return ConfigurationError(f"{self._file}:{line}: {message}")

    def _error_here(self, line: int, message: str) -> ConfigurationError:
        path = [one.key if one.key is not None else len(one.node.items) for one in self._open]
        return self._error(line, f"{shown_path(tuple(path[:-1] if self._awaits_key() else path))}{message}")

    def _awaits_key(self) -> bool:
        return bool(self._open) and self._open[-1].key is None and isinstance(self._open[-1].node.items, dict)

    def _begin_document(self, event: Any) -> None:
        if self._root is not None:
            raise self._error(event.start_mark.line + 1, "a second document begins here; a project is one")

    def _take_scalar(self, event: Any) -> None:
        line, text = event.start_mark.line + 1, event.value
        problem = _why_not_storable(text)
        if problem:
            raise self._error_here(line, f"{shown_path((text,)) if self._awaits_key() else ''}{problem}")
        self._check_tag(event, line)
        is_plain = not event.style and event.tag is None  # neither quoted nor tagged
        top = self._open[-1] if self._open else None
        if top is not None and self._awaits_key():
            first = top.node.keys.setdefault(text, line)
            top.key, top.key_is_plain = text, is_plain
            if first != line or text in top.node.items:
                raise self._error_here(line, f"stands here twice, on line {first} too")
            return
        node = Node(line, _resolved(text, self._shape_here()) if is_plain else text)
        self._add(node, event.anchor)

    def _check_tag(self, event: Any, line: int) -> None:
        if event.tag is not None and event.tag not in _PLAIN_TAGS:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise self._error_here(line, f"the tag {tag} has no meaning here; write the value without it")

    def _begin(self, event: Any) -> None:
        line = event.start_mark.line + 1
        self._check_tag(event, line)
        if self._awaits_key():
            raise self._error_here(line, "a key is a text, not a list or a mapping")
        if len(self._open) >= MOST_LEVELS:
            raise self._error(line, f"nests deeper than {MOST_LEVELS} levels")
        node = Node(line, None)
        node.items = {} if isinstance(event, yaml.MappingStartEvent) else []
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._open.append(_Open(node, self._shape_here(), event.anchor))

    def _end(self, _: Any) -> None:
        done = self._open.pop()
        node = done.node
        if done.merged:
            _merge(node, done.merged)
        below: Any = node.items.values() if isinstance(node.items, dict) else node.items
        node.size += sum(one.size for one in below)
        node.height += max((one.height for one in below), default=0)
        if node.size > MOST_VALUES or len(self._open) + node.height > MOST_LEVELS + 1:
            what = f"{MOST_VALUES:,} values" if node.size > MOST_VALUES else f"{MOST_LEVELS} levels"
            raise self._error_here(node.line, f"its aliases stand for more than {what}")
        if isinstance(node.items, dict):
            node.value = {key: one.value for key, one in node.items.items()}
        else:
            node.value = [one.value for one in node.items]
        self._add(node, done.anchor)

    def _take_alias(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if self._awaits_key():
            raise self._error_here(line, "a key is a text, not an alias")
        if event.anchor not in self._anchors:
            raise self._error_here(line, f"the alias *{event.anchor} has no anchor &{event.anchor} before it")
        node = self._anchors[event.anchor]
        if node is None:
            raise self._error_here(line, f"the alias *{event.anchor} stands inside what it stands for")
        self._add(node, None)

    def _add(self, node: Node, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._open:
            self._root = node
            return
        top = self._open[-1]
        if isinstance(top.node.items, list):
            top.node.items.append(node)
            return
        if top.key == "<<" and top.key_is_plain:
            sources = node.items if isinstance(node.items, list) else [node]
            if not all(isinstance(one.items, dict) for one in sources):
                raise self._error_here(node.line, "`<<` takes a mapping, or a list of them")
            top.merged = sources
        else:
            top.node.items[top.key] = node
        top.key = None

    def _shape_here(self) -> Any:
        """What the value that comes next may be."""
        if not self._open:
            return _SHAPE
        top = self._open[-1]
        if isinstance(top.shape, str):
            return top.shape
        return top.shape.get(top.key) or top.shape["*"]


def _merge(node: Node, sources: list[Node]) -> None:
    """Take over the keys of the sources that the mapping does not have; of two sources, the first counts."""
    items: dict[str, Node] = {}
    lines: dict[str, int] = {}
    for source in (*reversed(sources), node):
        items |= source.items
        lines |= source.keys
    node.items, node.keys = items, lines


def _events(text: str) -> Iterator[Any]:
    return iter(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def _resolved(text: str, shape: Any) -> Any:
    """The value of a plain scalar."""
    if text in _NULLS:
        return None
    if shape != _TYPED:
        return text
    if text in _TRUTHS:
        return _TRUTHS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return float(_SPECIAL[text.lower()]) if text.lower() in _SPECIAL else text
