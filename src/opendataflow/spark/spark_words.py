"""What Spark says, in the words of the person who reads it: the frequent errors as a sentence, the others as they are.

Everything goes by the text, because it is all that Spark Connect sends.
"""

import re
import textwrap
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from pyspark.errors import PySparkException

_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_FILE = re.compile(r"\Afile:/+")
_SERVER_STACK = "\n\nJVM stacktrace:"  # Connect adds it where the server's settings say so
_CAUSED_BY = re.compile(r"^Caused by: [\w.$]+: (.*)$", re.MULTILINE)


def message(error: BaseException) -> str:
    """One sentence, without the place in the user's code."""
    if isinstance(error, SystemExit):
        return f"the code ended its interpreter: sys.exit({error.code!r})"
    said = causes(error)
    known = _known(said) if is_from_spark(error) else None
    if known is not None:
        return known
    text = _text(error)
    if isinstance(error, PySparkException):
        if "Traceback (most recent call last):" in text:  # of a Python worker: its last line is what was raised
            lines = [line for line in text.splitlines() if line.strip() and not line.startswith("SQLSTATE:")]
            return one_line(lines[-1]).removeprefix("opendataflow.errors.JobFailed: ")  # ours says it already
        return one_line(_SQLSTATE.sub("", text)) or type(error).__name__
    if getattr(error, "java_exception", None) is not None:
        return _each_once(said) or one_line(text)
    return f"{type(error).__name__}: {one_line(text)}" if text else type(error).__name__


def is_from_spark(error: BaseException) -> bool:
    return isinstance(error, PySparkException) or getattr(error, "java_exception", None) is not None


def causes(error: BaseException) -> list[str]:
    """What an error of Spark and its causes say, outermost first; of another error, what it says itself."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    said: list[str] = [] if java is not None else _causes_on_server(error)
    try:
        for _ in range(20):
            if java is None:
                break
            text = one_line(_SQLSTATE.sub("", java.getMessage() or ""))
            inner = java.getCause()
            # Without a message of its own, Java repeats its cause's.
            if text and not (inner is not None and text == one_line(inner.toString())):
                said.append(text)
            elif not text and inner is None:
                said.append(one_line(java.toString()))
            java = inner
    except Exception:  # noqa: BLE001, S110  the JVM may be gone; what it said so far is what is left
        pass
    return said or [one_line(_SQLSTATE.sub("", _text(error)))]


def _causes_on_server(error: BaseException) -> list[str]:
    """Spark Connect sends the causes as Java prints them."""
    stack = getattr(error, "_stacktrace", None) if isinstance(error, PySparkException) else None
    inner = [one_line(_SQLSTATE.sub("", text)) for text in _CAUSED_BY.findall(str(stack or ""))]
    return [one_line(_SQLSTATE.sub("", _text(error))), *inner] if inner else []


def plain_path(uri: str) -> str:
    """A path as people write it, from Spark's `file:///a%20b`."""
    return unquote(_FILE.sub("/", uri)) if uri.startswith("file:") else uri


def one_line(text: str) -> str:
    """The words of a message: without Java's stack, Spark's plan and Spark's own account of the place."""
    words: list[str] = []
    for line in text.strip().splitlines():
        if words and line.startswith(("\tat ", "== ", "'", "+- ")):
            break
        words += line.split()
    return textwrap.shorten(" ".join(words), 600, placeholder=" …").rstrip(" ;")


def _text(error: BaseException) -> str:
    try:
        return str(error).partition(_SERVER_STACK)[0]
    except Exception:  # noqa: BLE001  Spark's exceptions ask the JVM for their text, and it may be gone
        return ""


def _each_once(said: list[str]) -> str:
    told = dict.fromkeys(text for text in said if not text.startswith("Job aborted"))
    return "; ".join(text.rstrip(".") for text in told)


# Frequent errors; the name in brackets is what Spark's documents call them ------------------------------------------
def _known(said: list[str]) -> str | None:
    for pattern, sentence in _SENTENCES:
        for text in said:
            found = pattern.search(text)
            if found is not None:
                return sentence(found, said)
    return None


def _no_space(_found: re.Match[str], said: list[str]) -> str:
    writing = next((found for text in said if (found := _WRITING.search(text))), None)
    return "no space left on device" + (f" while writing {plain_path(writing['path'])}" if writing else "")


def _no_column(found: re.Match[str], _said: list[str]) -> str:
    near = f"; the nearest are {found['near']}" if found["near"] else ""
    return f"[UNRESOLVED_COLUMN] there is no column {found['name']}{near}"


def _no_cast(found: re.Match[str], _said: list[str]) -> str:
    told = f"The value {found['value']} cannot be cast to {found['type']}"
    return f"[CAST_INVALID_INPUT] {told}; `try_cast` makes null of what does not fit"


def _no_path(found: re.Match[str], _said: list[str]) -> str:
    return f"[PATH_NOT_FOUND] there is no file or folder {plain_path(found['path'])}"


def _unread(found: re.Match[str], said: list[str]) -> str:
    reason = said[-1] if "FAILED_READ_FILE" not in said[-1] else "Spark does not say why"
    return f"{plain_path(found['path'])} cannot be read: {reason}"


def _lost(found: re.Match[str], _said: list[str]) -> str:
    return f"executor {found['executor']} was lost: {found['reason'].rstrip('.')}"


def _as(sentence: str) -> "Sentence":
    return lambda _found, _said: sentence


_WRITING = re.compile(r"writing rows to (?P<path>\S.*?)(?:/_temporary/.*)?\.?\Z")
_LOST = re.compile(r"ExecutorLostFailure \(executor (?P<executor>\S+) .*?Reason: (?P<reason>.+?)(?: Driver stack.*|\Z)")
_COLUMN = re.compile(
    r"with name (?P<name>`.+?`) cannot be resolved(?:\. Did you mean one of the following\? \[(?P<near>.*?)\])?"
)
_CAST = re.compile(
    r"CAST_INVALID_INPUT\] The value (?P<value>.+?) of the type \"\w+\" cannot be cast to \"(?P<type>.+?)\""
)
_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError|\AJava heap space|GC overhead limit exceeded|SparkOutOfMemoryError")

Sentence = Callable[[re.Match[str], list[str]], str]
_SENTENCES: tuple[tuple[re.Pattern[str], Sentence], ...] = (
    (re.compile("No space left on device"), _no_space),
    (_MEMORY, _as("Spark ran out of memory; raise `spark.driver.memory`, or `spark.executor.memory` on a cluster")),
    (
        re.compile("Python worker exited unexpectedly"),
        _as("a Python worker died: killed for lack of memory, ended by the code, or crashed in a native library"),
    ),
    (_LOST, _lost),
    (_COLUMN, _no_column),
    (_CAST, _no_cast),
    (re.compile(r"PATH_NOT_FOUND\] Path does not exist: (?P<path>.+?)\.?\Z"), _no_path),
    (re.compile(r"FAILED_READ_FILE\S* .*?while reading file (?P<path>.+?)\.?\Z"), _unread),
)
