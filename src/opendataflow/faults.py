"""Named points at which tests stop a process for real: DATAFLOW_FAULT_POINT=after_claim:/path/to/marker.

A runner's child does not see that variable; DATAFLOW_CHILD_FAULT_POINT is for points in the Spark child.

There the process says that it has arrived by making the marker file, and stays until it gets a signal or the file goes.
"""

import os
import time

AFTER_CLAIM = "after_claim"
WHILE_RUNNING = "while_running"
BEFORE_PUBLISH = "before_publish"
AFTER_PUBLISH = "after_publish"
POINTS = (AFTER_CLAIM, WHILE_RUNNING, BEFORE_PUBLISH, AFTER_PUBLISH)
CHILD_WRITTEN = "child_written"
CHILD_AUDITED = "child_audited"
CHILD_POINTS = (CHILD_WRITTEN, CHILD_AUDITED)


def point(name: str) -> None:
    """Stop here if a test asked for it."""
    variable = "DATAFLOW_CHILD_FAULT_POINT" if name in CHILD_POINTS else "DATAFLOW_FAULT_POINT"
    wanted = os.environ.get(variable)
    if wanted is None:
        return
    at, _, marker = wanted.partition(":")
    if at == name:
        with open(marker, "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
        while os.path.exists(marker):
            time.sleep(0.01)
