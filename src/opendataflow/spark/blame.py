"""Whose line it was: Spark raises late, when it writes, what an earlier transformation made wrong."""

import os
import re
from collections.abc import Iterator, Sequence

from opendataflow.spark.explain import explain, late_place, user_traceback
from opendataflow.spark.steps import ERROR, PENDING, Step, Steps

_PYTHON_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')


def blame(error: BaseException, steps: Steps, home: str, files: Sequence[str] = ()) -> Step | None:
    """The transformation whose line caused what Spark raised, now ERROR; None, and no change, when none is to blame.

    Those before it stay DONE, and those after it go back to PENDING: nothing they asked for was ever computed. A step
    that is ERROR already stays the one to blame. `files` are those of the transformations.
    """
    known = next((step for step in steps.steps if step.status == ERROR), None)
    if known is not None:
        return known
    for file, line in _places(error, home, files):
        step = _find_step(os.path.relpath(file, home), steps)
        if step is not None:
            _mark(step, steps, _told(error, f"{os.path.relpath(file, home)}:{line}", home, files))
            return step
    return None


def _told(error: BaseException, place: str, home: str, files: Sequence[str]) -> str:
    """The sentence, after the traceback where Spark brings one: of a Python function, from its worker."""
    sentence = explain(error, home=home, files=files)
    sentence = sentence if sentence.startswith(place) else f"{place}: {sentence}"
    return user_traceback(error, home=home) + sentence


def _mark(blamed: Step, steps: Steps, error: str) -> None:
    for step in steps.steps:
        if step.position > blamed.position and step.status != PENDING:
            step.status = PENDING
            steps.changed(step)
    steps.end(blamed, error=error)


def _find_step(shown: str, steps: Steps) -> Step | None:
    """The step of a file `pipelines/<slug>/<name>.py`."""
    _folder, _, inside = shown.partition("/")
    name = inside.partition("/")[2]
    return next((step for step in steps.steps if name == f"{step.name.removesuffix('.py')}.py"), None)


def _places(error: BaseException, home: str, files: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Lines of code that the error names, the nearest first."""
    place = late_place(error, home, files)
    if place is not None:
        yield place
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  Spark's exceptions ask the JVM for their text, and it may be gone
        return
    # A Python UDF that raises: the worker's traceback is in the message. The innermost frame, which is the last one,
    # may be in code that several transformations share.
    yield from reversed([(match["file"], int(match["line"])) for match in _PYTHON_FRAME.finditer(text)])
