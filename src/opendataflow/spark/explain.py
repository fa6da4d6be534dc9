"""What went wrong, for the person whose code it is: a sentence, and the traceback cut to their own lines."""

import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence

from pyspark.errors import PySparkException

from opendataflow.errors import DataflowError
from opendataflow.spark.spark_errors import message

_CALL_SITE = re.compile(r"(?P<file>.+):(?P<line>\d+)\Z")


def explain(error: BaseException, *, home: str, files: Sequence[str] = ()) -> str:
    """One sentence that begins with the file and line of the user's code where that is known.

    `files` are those whose code was run; they help where Spark does not say where an expression was made.
    """
    if isinstance(error, DataflowError):
        return str(error)
    frames = _user_frames(error, home)
    place = (frames[-1].filename, frames[-1].lineno) if frames else late_place(error, home, files)
    return f"{_shown(place[0], home)}:{place[1]}: {message(error)}" if place else message(error)


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


def late_place(error: BaseException, home: str, files: Sequence[str] = ()) -> tuple[str, int] | None:
    """File and line that made what failed in Spark only later, at the write; None when that cannot be known.

    Spark remembers the line for methods of columns, PySpark sends the traceback of its workers; of functions only the
    name is kept, and of SQL the text. These are looked for in `files`, and count when they stand there once.
    """
    for frame in reversed(_user_frames(error, home)):  # of a worker: PySpark adds its frames to the error's
        return frame.filename, frame.lineno or 1
    fragments = []
    for site, fragment in _contexts(error):
        match = _CALL_SITE.match(site)
        if match is not None and _is_users(match["file"], home):
            return match["file"], int(match["line"])
        fragments.append(fragment)
    return _find_once(fragments, files)


def _contexts(error: BaseException) -> Iterator[tuple[str, str]]:
    """Call site and fragment of the expressions that Spark names; SQL text has no call site."""
    if not isinstance(error, PySparkException):
        return
    try:
        for context in error.getQueryContext():
            is_sql = context.contextType().name == "SQL"
            yield "" if is_sql else context.callSite(), context.fragment() if is_sql else f"{context.fragment()}("
    except Exception:  # noqa: BLE001  the JVM may be gone
        return


def _find_once(fragments: Sequence[str], files: Sequence[str]) -> tuple[str, int] | None:
    for fragment in fragments:
        found = [(file, number) for file in files for number, line in _lines(file) if fragment in line]
        if fragment.strip("(") and len(found) == 1:
            return found[0]
    return None


def _lines(file: str) -> Iterator[tuple[int, str]]:
    try:
        with open(file, encoding="utf-8", errors="replace") as text:
            yield from enumerate(text, start=1)
    except OSError:
        return


def _user_frames(error: BaseException, home: str) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename, home)]


def _is_users(file: str, home: str) -> bool:
    """True for files of the project; a virtual environment inside it is not the user's code."""
    inside = file.startswith(home.rstrip("/") + "/")
    return inside and not file.startswith((sys.prefix + "/", os.path.dirname(__file__) + "/"))


def _shown(file: str, home: str) -> str:
    return os.path.relpath(file, home)
