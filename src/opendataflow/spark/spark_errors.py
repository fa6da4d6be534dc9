"""What Spark reports, as a sentence for the person whose code it is; frequent errors in plain words.

An error is known by Spark's error condition and its message parameters. Text is read only where there are none: what
the operating system, Java, the scheduler or a Python worker say, and inner causes on a Spark Connect server, which
sends them as Java prints them.
"""

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pyspark.errors import PySparkException

from opendataflow.project.shared_names import RefusedCall

_MOST_CAUSES = 20
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_FILE = re.compile(r"\Afile:/+")
_SERVER_STACK = "\n\nJVM stacktrace:"  # Connect adds it where the server's settings say so
_TRACEBACK = "Traceback (most recent call last):"


@dataclass(frozen=True, slots=True)
class Cause:
    """An error of Spark, or one of its causes. Errors that are not Spark's own have no condition."""

    text: str  # in one line
    condition: str = ""  # such as CAST_INVALID_INPUT, or FAILED_READ_FILE.NO_HINT
    parameters: Mapping[str, str] = field(default_factory=dict)
    java_class: str = ""

    def is_a(self, condition: str) -> bool:
        return self.condition == condition or self.condition.startswith(f"{condition}.")


def message(error: BaseException) -> str:
    """One sentence, without the place in the user's code."""
    if isinstance(error, SystemExit):
        return f"the code ended its interpreter: sys.exit({error.code!r})"
    if isinstance(error, RefusedCall):
        return str(error)
    text = _text(error)
    if not is_from_spark(error):
        return f"{type(error).__name__}: {one_line(text)}" if text else type(error).__name__
    said = causes(error)
    known = next((told for sentence in _SENTENCES if (told := sentence(said))), None)
    if known is not None:
        return known
    if (raised := _raised_by_python(said, text)) is not None:
        return raised
    if isinstance(error, PySparkException):
        return one_line(_SQLSTATE.sub("", text)) or type(error).__name__
    return _each_once(said) or one_line(text)


def is_from_spark(error: BaseException) -> bool:
    return isinstance(error, PySparkException) or getattr(error, "java_exception", None) is not None


def causes(error: BaseException) -> list[Cause]:
    """An error of Spark and its causes, outermost first; of another error, what it says itself."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    said: list[Cause] = []
    try:
        while java is not None and len(said) < _MOST_CAUSES:
            inner = java.getCause()
            if (cause := _java_cause(java, inner)) is not None:
                said.append(cause)
            java = inner
    except Exception:  # noqa: BLE001, S110  the JVM may be gone; what it said so far is what is left
        pass
    return said or [_python_cause(error), *_causes_on_server(error)]


def sql_fragments(error: BaseException) -> list[str]:
    """The parts of SQL text that could not be evaluated."""
    if not isinstance(error, PySparkException):
        return []
    try:
        contexts = error.getQueryContext()
        return [text for one in contexts if one.contextType().name == "SQL" and (text := one.fragment())]
    except Exception:  # noqa: BLE001  the JVM may be gone
        return []


def _java_cause(java: Any, inner: Any) -> Cause | None:
    text = one_line(_SQLSTATE.sub("", java.getMessage() or ""))
    # Without a message of its own, Java repeats its cause's.
    if inner is not None and (not text or text == one_line(inner.toString())):
        return None
    condition, parameters = _java_condition(java)
    return Cause(text or one_line(java.toString()), condition, parameters, java.getClass().getName())


def _java_condition(java: Any) -> tuple[str, Mapping[str, str]]:
    try:
        return java.getCondition() or "", dict(java.getMessageParameters() or {})
    except Exception:  # noqa: BLE001  not one of Spark's own, which alone have these methods
        return "", {}


def _python_cause(error: BaseException) -> Cause:
    text = one_line(_SQLSTATE.sub("", _text(error)))
    if not isinstance(error, PySparkException):
        return Cause(text)
    return Cause(text, error.getCondition() or "", error.getMessageParameters() or {})


def _causes_on_server(error: BaseException) -> list[Cause]:
    """The inner causes of an error on a Spark Connect server."""
    stack = str(getattr(error, "_stacktrace", None) or "") if isinstance(error, PySparkException) else ""
    found = []
    for java_class, words in _CAUSED_BY.findall(stack):
        text = one_line(_SQLSTATE.sub("", words))
        condition = _CONDITION.match(text)
        name = condition[1] if condition is not None else ""
        pattern = _PARAMETERS.get(name.partition(".")[0])
        values = pattern.search(text) if pattern is not None else None
        found.append(Cause(text, name, values.groupdict() if values is not None else {}, java_class))
    return found


_CAUSED_BY = re.compile(r"^Caused by: ([\w.$]+): (.*)$", re.MULTILINE)
_CONDITION = re.compile(r"\[([A-Z0-9_.]+)\]")
# Of inner causes on a Spark Connect server, under the names of Spark's own message parameters.
_PARAMETERS = {
    "CAST_INVALID_INPUT": re.compile(
        r'The value (?P<expression>.+?) of the type "\w+" cannot be cast to (?P<targetType>".+?")'
    ),
    "FAILED_READ_FILE": re.compile(r"while reading file (?P<path>\S+?)\.(?:\s|\Z)"),
    "TASK_WRITE_FAILED": re.compile(r"writing rows to (?P<path>\S+?)\.?\Z"),
}


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


def _each_once(said: Sequence[Cause]) -> str:
    told = dict.fromkeys(cause.text for cause in said if not cause.text.startswith("Job aborted"))
    return "; ".join(text.rstrip(".") for text in told)


def _raised_by_python(said: Sequence[Cause], text: str) -> str | None:
    """The last line of a Python worker's traceback, which says what was raised."""
    traceback = next((one.parameters.get("traceback") for one in said if one.is_a("PYTHON_EXCEPTION")), None)
    if not traceback and _TRACEBACK not in text:  # a Spark Connect server sends the text alone
        return None
    lines = [line for line in map(str.strip, (traceback or text).splitlines()) if line and line[:9] != "SQLSTATE:"]
    return one_line(lines[-1]).removeprefix("opendataflow.errors.JobFailed: ")  # ours says it already


# Frequent errors, under the names that Spark's documents give them ----------------------------------------------------
def _relative(said: Sequence[Cause]) -> str | None:
    for cause in said:
        for text in (*cause.parameters.values(), cause.text):
            if (found := _RELATIVE.search(text)) is not None:
                return f"`{found['path']}` is {_NO_FOLDER}"
            if "Parent path is not a directory: file:/dev/null" in text:  # where it was to be written
                return f"this is {_NO_FOLDER}"
    return None


def _no_space(said: Sequence[Cause]) -> str | None:
    if not any("No space left on device" in cause.text for cause in said):  # the operating system's words
        return None
    writing = next((cause.parameters.get("path") for cause in said if cause.is_a("TASK_WRITE_FAILED")), None)
    where = f" while writing {plain_path(writing.partition('/_temporary/')[0])}" if writing else ""
    return f"no space left on device{where}"


def _no_memory(said: Sequence[Cause]) -> str | None:
    # Of a task, the scheduler repeats Java's text.
    if not any(cause.java_class in _MEMORY_CLASSES or _MEMORY.search(cause.text) for cause in said):
        return None
    return "Spark ran out of memory; raise `spark.driver.memory`, or `spark.executor.memory` on a cluster"


def _worker_died(said: Sequence[Cause]) -> str | None:
    if not any("Python worker exited unexpectedly" in cause.text for cause in said):  # this error has no condition
        return None
    return "a Python worker died: killed for lack of memory, ended by the code, or crashed in a native library"


def _executor_lost(said: Sequence[Cause]) -> str | None:
    found = next((found for cause in said if (found := _LOST.search(cause.text))), None)  # nor has this one
    return found and f"executor {found['executor']} was lost: {found['reason'].rstrip('.')}"


def _no_column(cause: Cause) -> str:
    proposal = cause.parameters.get("proposal")
    near = f"; the nearest are {proposal}" if proposal else ""
    return f"[UNRESOLVED_COLUMN] there is no column {cause.parameters['objectName']}{near}"


def _no_cast(cause: Cause) -> str:
    value, target = cause.parameters["expression"], cause.parameters["targetType"].strip('"')
    return (
        f"[CAST_INVALID_INPUT] The value {value} cannot be cast to {target}; `try_cast` makes null of what does not fit"
    )


def _no_path(cause: Cause) -> str:
    return f"[PATH_NOT_FOUND] there is no file or folder {plain_path(cause.parameters['path'])}"


def _unread(said: Sequence[Cause]) -> str | None:
    cause = next((one for one in said if one.is_a("FAILED_READ_FILE") and "path" in one.parameters), None)
    if cause is None:
        return None
    reason = "Spark does not say why" if said[-1].is_a("FAILED_READ_FILE") else said[-1].text
    return f"{plain_path(cause.parameters['path'])} cannot be read: {reason}"


def _of(condition: str, parameter: str, sentence: Callable[[Cause], str]) -> "Sentence":
    """The sentence for this condition, where it comes with the parameter."""

    def told(said: Sequence[Cause]) -> str | None:
        cause = next((one for one in said if one.is_a(condition) and parameter in one.parameters), None)
        return None if cause is None else sentence(cause)

    return told


_NO_FOLDER = (  # keeper_jvm.py sees to it
    "a relative path; Spark's driver has no folder of its own: give an absolute one, such as `os.path.abspath(…)`"
)
_RELATIVE = re.compile(r"file:/dev/null/relative-path/(?P<path>\S+?)\.?(?:\s|\Z)")
_LOST = re.compile(r"ExecutorLostFailure \(executor (?P<executor>\S+) .*?Reason: (?P<reason>.+?)(?: Driver stack.*|\Z)")
_MEMORY_CLASSES = ("java.lang.OutOfMemoryError", "org.apache.spark.memory.SparkOutOfMemoryError")
_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError|\AJava heap space|GC overhead limit exceeded|SparkOutOfMemoryError")

Sentence = Callable[[Sequence[Cause]], str | None]
_SENTENCES: tuple[Sentence, ...] = (
    _relative, _no_space, _no_memory, _worker_died, _executor_lost,
    _of("UNRESOLVED_COLUMN", "objectName", _no_column),
    _of("CAST_INVALID_INPUT", "expression", _no_cast),
    _of("PATH_NOT_FOUND", "path", _no_path),
    _unread,
)  # fmt: skip
