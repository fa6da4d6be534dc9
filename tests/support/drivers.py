"""Warm Spark drivers of the tests: where their keepers are, and their end."""

import os
import shutil
from typing import Any

from opendataflow.spark.keeper_client import list_keepers, stop_keeper, wait_for_end

VARIABLE = "DATAFLOW_RUNTIME_DIR"


def keepers() -> list[dict[str, Any]]:
    """Those that this test's commands find."""
    return list(list_keepers()) if os.path.isdir(os.environ[VARIABLE]) else []


def stop_drivers() -> None:
    """End them, and remove their folder."""
    for keeper in keepers():
        try:
            stop_keeper(keeper["folder"], force=True)
        except OSError:
            continue  # it has ended meanwhile
        if "pid" in keeper:  # one that does not answer tells none
            wait_for_end(keeper["pid"], seconds=20)
    shutil.rmtree(os.environ[VARIABLE], ignore_errors=True)
