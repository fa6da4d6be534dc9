"""Names in Spark's catalog that are for all its sessions: global temporary views, saved tables, functions, databases.

Runs share no such names: their data would depend on which of them ran before. So a run that makes one is refused, and
`check-project` finds those that can be seen in the code.
"""

import ast
import re
from collections.abc import Iterator

VIEWS = ("createGlobalTempView", "createOrReplaceGlobalTempView")
TABLES = ("saveAsTable", "insertInto", "writeTo", "mergeInto", "toTable", "createTable", "createExternalTable")
FILES = ("addFile", "addPyFile", "addArchive")
_NOT_SQL = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_STATEMENT = re.compile(
    r"\b(?:create|replace)\s+(?:or\s+replace\s+)?"
    r"(?:global\s+temp(?:orary)?\s+view|external\s+table|table|view|function|database|schema|namespace)\b",
    re.IGNORECASE,
)
_WRITE = re.compile(r"\b(?:insert\s+(?:into|overwrite)\b(?!\s+(?:local\s+)?directory\b)|merge\s+into\b)", re.IGNORECASE)
_IMMEDIATE = re.compile(r"\bexecute\s+immediate\b", re.IGNORECASE)
_ADD = re.compile(r"\A\s*add\s+(?:file|jar|archive)s?\b", re.IGNORECASE)


class RefusedCall(RuntimeError):
    """Raised by a run's own call, so that its place in the code is known."""


def refusal_of_method(name: str) -> str:
    """Why a run may not call this method of VIEWS, TABLES or FILES, and what to do instead."""
    if name in VIEWS:
        return f"{name}() makes a view for other sessions; use createOrReplaceTempView()"
    if name in FILES:
        return f"{name}() gives the file to all runs; let the code read it by its absolute path"
    return f"{name}() writes a table for other sessions; return the DataFrame, or use a temporary view"


def find_refusal_of_sql(query: str) -> str | None:
    """Why a run may not execute this SQL; None when it may."""
    statement = _NOT_SQL.sub(" ", query)
    if _ADD.search(statement):
        return "ADD gives the file to all runs; let the code read it by its absolute path"
    if found := _STATEMENT.search(statement):
        words = " ".join(found[0].upper().split())
        return f"{words} makes a name for other sessions; use CREATE TEMPORARY VIEW, or return the DataFrame"
    if found := _WRITE.search(statement):
        words = " ".join(found[0].upper().split())
        return f"{words} writes a table for other sessions; return the DataFrame"
    if _IMMEDIATE.search(statement):
        return next(filter(None, (find_refusal_of_sql(text[1:-1]) for text in _TEXT.findall(query))), None)
    return None


def _is_of_spark(called: ast.Attribute) -> bool:
    """False where another object is likely to have a method of that name."""
    owner = called.value.attr if isinstance(called.value, ast.Attribute) else getattr(called.value, "id", "")
    if called.attr in FILES:
        return owner in ("sc", "sparkContext", "context")
    return owner == "catalog" or not called.attr.startswith("createTable")


def find_refusals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and sentence of every call that a run would be refused."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        if name in (*VIEWS, *TABLES, *FILES) and _is_of_spark(node.func):
            yield node.lineno, refusal_of_method(name)
        elif name == "sql" and node.args and isinstance(query := node.args[0], ast.Constant | ast.JoinedStr):
            text = ast.unparse(query)[1:].strip("'\"") if isinstance(query, ast.JoinedStr) else str(query.value)
            if sentence := find_refusal_of_sql(text):
                yield node.lineno, sentence
