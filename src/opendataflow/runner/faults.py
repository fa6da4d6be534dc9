"""Named points at which tests stop a runner for real: DATAFLOW_FAULT_POINT=after_claim:/path/to/marker.

There the process says that it has arrived by making the marker file, and stays until it gets a signal or the file goes.
"""

import os
import time

AFTER_CLAIM = "after_claim"
WHILE_RUNNING = "while_running"
BEFORE_PUBLISH = "before_publish"
AFTER_PUBLISH = "after_publish"
POINTS = (AFTER_CLAIM, WHILE_RUNNING, BEFORE_PUBLISH, AFTER_PUBLISH)


def point(name: str) -> None:
    """Stop here if a test asked for it."""
    wanted = os.environ.get("DATAFLOW_FAULT_POINT")
    if wanted is None:
        return
    at, _, marker = wanted.partition(":")
    if at == name:
        with open(marker, "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
        while os.path.exists(marker):
            time.sleep(0.01)
