"""Named points at which tests stop a process for real: DATAFLOW_FAULT_POINT=after_claim:/path/to/marker.

A runner's child does not see that variable; DATAFLOW_CHILD_FAULT_POINT is for points in the Spark child. Several points
are separated by commas, and one may be for a dataid alone: child_written@1:/path/to/one,child_audited@2:/path/to/other.

There the process says that it has arrived by making the marker file, and stays until it gets a signal or the file goes.
"""

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

AFTER_CLAIM = "after_claim"
WHILE_RUNNING = "while_running"
BEFORE_PUBLISH = "before_publish"
AFTER_PUBLISH = "after_publish"
STREAM_EXPECTED = "stream_expected"  # of a stream: the range has its row, nothing is claimed
POINTS = (AFTER_CLAIM, WHILE_RUNNING, BEFORE_PUBLISH, AFTER_PUBLISH)
CHILD_WRITTEN = "child_written"
CHILD_AUDITED = "child_audited"
CHILD_STAGING = "child_staging"  # of a table: nothing is staged yet
CHILD_PUBLISHED = "child_published"  # of a table: the target has it, the store does not know
CHILD_UPLOADING = "child_uploading"  # to an object store: some of it is there
CHILD_POINTS = (CHILD_WRITTEN, CHILD_AUDITED, CHILD_STAGING, CHILD_PUBLISHED, CHILD_UPLOADING)


def point(name: str) -> None:
    """Stop here if a test asked for it."""
    variable = "DATAFLOW_CHILD_FAULT_POINT" if name in CHILD_POINTS else "DATAFLOW_FAULT_POINT"
    for wanted in filter(None, os.environ.get(variable, "").split(",")):
        at, _, marker = wanted.partition(":")
        if at in (name, f"{name}@{os.environ.get('dataid')}"):  # noqa: SIM112  the chunk's own
            _stop(marker)


def when_running() -> "Callable[[], None] | None":
    """What to call when a child has started; None unless a test asks for that point."""
    is_asked = WHILE_RUNNING in os.environ.get("DATAFLOW_FAULT_POINT", "")
    return (lambda: point(WHILE_RUNNING)) if is_asked else None


def _stop(marker: str) -> None:
    with open(marker, "w", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    while os.path.exists(marker):
        time.sleep(0.01)
