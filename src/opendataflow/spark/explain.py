"""What went wrong, for the person whose code it is: a sentence, and the traceback cut to their own lines."""

import os
import re
import sys
import textwrap
import traceback
from collections.abc import Iterator
from typing import Any

from pyspark.errors import PySparkException

from opendataflow.errors import DataflowError

_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_CALL_SITE = re.compile(r"(?P<file>.+):(?P<line>\d+)\Z")


def explain(error: BaseException, *, home: str) -> str:
    """One sentence that begins with the file and line of the user's code where that is known."""
    if isinstance(error, DataflowError):
        return str(error)
    place = _place(error, home)
    return f"{place}: {_message(error)}" if place else _message(error)


def user_traceback(error: BaseException, *, home: str) -> str:
    """The frames of the user's code, with their source lines; empty when none of it was running."""
    frames = _user_frames(error, home)
    if not frames:
        return ""
    shown = [
        traceback.FrameSummary(_shown(frame.filename, home), frame.lineno, frame.name, line=frame.line)
        for frame in frames
    ]
    return "Traceback (your code only):\n" + "".join(traceback.StackSummary.from_list(shown).format())


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the code ended its interpreter: sys.exit({error.code!r})"
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  Spark's exceptions ask the JVM for their text, and it may be gone
        text = ""
    if isinstance(error, PySparkException):
        return _one_line(_SQLSTATE.sub("", text)) or type(error).__name__
    java = getattr(error, "java_exception", None)
    if java is not None:
        return _causes(java) or _one_line(text)
    return f"{type(error).__name__}: {_one_line(text)}" if text else type(error).__name__


def _causes(java: Any) -> str:
    """What a Java exception and its causes say, outermost first, each thing once."""
    said: list[str] = []
    try:
        for _ in range(20):
            text = _one_line(_SQLSTATE.sub("", java.getMessage() or ""))
            inner = java.getCause()
            # Without a message of its own, Java repeats its cause's.
            if text and not (inner is not None and text == _one_line(inner.toString())) and text not in said:
                said.append(text)
            if inner is None:
                break
            java = inner
    except Exception:  # noqa: BLE001, S110  the JVM may be gone; what it said so far is what is left
        pass
    return "; ".join(text.rstrip(".") for text in said if not text.startswith("Job aborted"))


def _one_line(text: str) -> str:
    """The words of a message: without Java's stack, Spark's plan and Spark's own account of the place."""
    words: list[str] = []
    for line in text.strip().splitlines():
        if line.startswith(("\tat ", "== ", "'", "+- ")):
            break
        words += line.split()
    return textwrap.shorten(" ".join(words), 600, placeholder=" …").rstrip(" ;")


def _place(error: BaseException, home: str) -> str:
    frames = _user_frames(error, home)
    if frames:
        return f"{_shown(frames[-1].filename, home)}:{frames[-1].lineno}"
    # Spark raises late, at the write; it remembers which line made the expression that failed.
    for file, line in _call_sites(error):
        if _is_users(file, home):
            return f"{_shown(file, home)}:{line}"
    return ""


def _call_sites(error: BaseException) -> Iterator[tuple[str, str]]:
    if not isinstance(error, PySparkException):
        return
    try:
        sites = [context.callSite() for context in error.getQueryContext()]
    except Exception:  # noqa: BLE001  a context of SQL text has no call site, and the JVM may be gone
        return
    for site in sites:
        match = _CALL_SITE.match(site)
        if match:
            yield match["file"], match["line"]


def _user_frames(error: BaseException, home: str) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename, home)]


def _is_users(file: str, home: str) -> bool:
    """True for files of the project; a virtual environment inside it is not the user's code."""
    inside = file.startswith(home.rstrip("/") + "/")
    return inside and not file.startswith((sys.prefix + "/", os.path.dirname(__file__) + "/"))


def _shown(file: str, home: str) -> str:
    return os.path.relpath(file, home)
