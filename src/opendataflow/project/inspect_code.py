"""What a transformation's file says about itself, read from its syntax tree: nothing of it is run or imported."""

import ast
import functools
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from opendataflow.project.shared_names import find_refusals

RUN = "run"
STREAM = "stream"  # the parameter that batch leaves at its default


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """The parameters of `def run(…)`."""

    line: int
    required: int  # DataFrames it cannot do without
    most: int | None  # DataFrames it takes; None: all there are
    keywords: tuple[str, ...]  # parameters without a default that only a name could give
    stream_is_last: bool  # True also where there is none
    stream_has_default: bool
    is_async: bool
    is_generator: bool
    returns: bool  # a `return` with a value stands in it
    assigned_line: int | None  # where it sets a column of a parameter, as only pandas can: df["a"] = …


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspected:
    """A module as its text shows it."""

    engine: str | None
    imports: frozenset[str]  # top-level packages
    run: Run | None
    names: dict[str, int]  # what is assigned, defined or imported at module level, with its line
    inputs: tuple[int, ...] | None  # rows of each expected input; None: not literal, or not there
    star_line: int | None  # of `from x import *`, which may bring any name
    refusals: tuple[tuple[int, str], ...] = ()  # line and sentence of what a run on Spark may not do


# Python 3.11 counts the depth of a tree for all threads together, and gives up when two make one at the same time.
_one_at_a_time = threading.Lock()


@functools.lru_cache(maxsize=512)  # asked for every chunk; the answer goes with the text
def find_engine(source_text: str) -> str | None:
    """`pandas` for a module that imports pandas and not pyspark, `spark` for one that imports pyspark, or None.

    Only imports that run with the module count: not those in functions, nor under `if TYPE_CHECKING`.
    A text that is no Python has none.
    """
    try:
        return _engine(_imports(_parse(source_text)))
    except (SyntaxError, ValueError, RecursionError):
        return None


def inspect_code(source: bytes | str) -> Inspected:
    """Everything that can be said of a module without running it; SyntaxError or ValueError if it is no Python."""
    tree = _parse(source)
    names, star_line = _names(tree)
    run = next((one for one in reversed(tree.body) if _is_run(one)), None)
    imports = _imports(tree)
    return Inspected(
        engine=_engine(imports),
        imports=imports,
        run=_run(run) if isinstance(run, ast.FunctionDef | ast.AsyncFunctionDef) else None,
        names=names,
        inputs=_inputs(tree),
        star_line=star_line,
        refusals=tuple(find_refusals(tree)),
    )


def _parse(source: bytes | str) -> ast.Module:
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python about the text, like an invalid escape: its run will tell
        return ast.parse(source)


def _engine(imports: frozenset[str]) -> str | None:
    if "pyspark" in imports:
        return "spark"
    return "pandas" if "pandas" in imports else None


def _imports(tree: ast.Module) -> frozenset[str]:
    found: set[str] = set()
    for node in _at_module_level(tree.body):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return frozenset(found)


def _at_module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when the module is loaded, also those in `if`, `try` and `with`."""
    waiting = list(reversed(body))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(node, ast.If) and _is_type_checking(node.test):
            waiting.extend(reversed(node.orelse))
            continue
        for field in ("finalbody", "orelse", "handlers", "body"):
            for one in reversed(getattr(node, field, None) or []):
                if isinstance(one, ast.ExceptHandler):
                    waiting.extend(reversed(one.body))
                elif isinstance(one, ast.stmt):
                    waiting.append(one)


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def _is_run(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == RUN


def _names(tree: ast.Module) -> tuple[dict[str, int], int | None]:
    names: dict[str, int] = {}
    star_line = None
    for node in _at_module_level(tree.body):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names[node.name] = node.lineno
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    if alias.name == "*":
                        star_line = node.lineno
                    else:
                        names[alias.asname or alias.name.partition(".")[0]] = node.lineno
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() if getattr(node, "value", None) is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    names |= {one.id: node.lineno for one in ast.walk(target) if isinstance(one, ast.Name)}
    return names, star_line


def _inputs(tree: ast.Module) -> tuple[int, ...] | None:
    """How many rows each expected input has, where the list is written out; one list of rows is one input."""
    found: ast.expr | None = None
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(one, ast.Name) and one.id == "expected_inputs" for one in targets):
                found = node.value
    if not isinstance(found, ast.List | ast.Tuple) or not found.elts:
        return None
    if all(isinstance(one, ast.Dict) for one in found.elts):
        return (len(found.elts),)
    if all(isinstance(one, ast.List | ast.Tuple) for one in found.elts):
        return tuple(len(one.elts) for one in found.elts if isinstance(one, ast.List | ast.Tuple))
    return None


def _run(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Run:
    arguments = node.args
    positional = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    first_default = len(positional) - len(arguments.defaults)
    required = most = 0
    for index, name in enumerate(positional):
        if name != STREAM:
            most += 1
            required = most if index < first_default else required
    pairs = list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    keywords = tuple(one.arg for one, default in pairs if default is None and one.arg != STREAM)
    everything = [*positional, *([arguments.vararg.arg] if arguments.vararg else []), *(one.arg for one, _ in pairs)]
    at = positional.index(STREAM) if STREAM in positional else None
    by_name = next((default is not None for one, default in pairs if one.arg == STREAM), True)
    own = list(_own_nodes(node))
    return Run(
        line=node.lineno,
        required=required,
        most=None if arguments.vararg else most,
        keywords=keywords,
        stream_is_last=STREAM not in everything or everything[-1] == STREAM,
        stream_has_default=by_name if at is None else at >= first_default,
        is_async=isinstance(node, ast.AsyncFunctionDef),
        is_generator=any(isinstance(one, ast.Yield | ast.YieldFrom) for one in own),
        returns=any(isinstance(one, ast.Return) and one.value is not None for one in own),
        assigned_line=next((line for one in own if (line := _sets_item(one, everything))), None),
    )


def _sets_item(node: ast.AST, names: list[str]) -> int | None:
    targets = node.targets if isinstance(node, ast.Assign) else []
    for one in targets:
        if isinstance(one, ast.Subscript) and isinstance(one.value, ast.Name) and one.value.id in names:
            return one.lineno
    return None


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function, but not in functions and classes within it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        yield child
        yield from _own_nodes(child)
