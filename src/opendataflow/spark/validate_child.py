"""The process that runs cases, one by one, in one Spark session: `python -m opendataflow.spark.validate_child FD`.

It reads each case as a line of JSON from its standard input, and answers on descriptor FD: "running" when the case's
own time begins, "starting" while Spark starts, which is not the case's time, and "done" with the outcome. What the code
prints goes to the standard streams, unseen by this module.
"""

import contextlib
import ctypes
import faulthandler
import json
import os
import re
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from opendataflow.spark.cases import Case
from opendataflow.spark.own_spark import OwnSpark, private_channels
from opendataflow.spark.validate import WHERE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PR_SET_PDEATHSIG = 1
_ZONE, _JAVA_OPTIONS = "spark.sql.session.timeZone", "spark.driver.extraJavaOptions"
# One core and one partition: examples are small, and their rows keep their order where Spark is free to change it.
_SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main() -> int:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a hanging case must not outlive who waits for it
    faulthandler.register(WHERE, all_threads=False)
    cases, answers = private_channels(int(sys.argv[1]))
    from opendataflow.spark.run_case import run_case

    with OwnSpark() as own:
        for line in cases:
            case = Case(**json.loads(line))
            _use_zone(case)

            def get_spark(case: Case = case) -> "SparkSession":
                answers.send(event="starting")
                started = own.session(_settings(case), name="validate")
                answers.send(event="running")
                return started

            answers.send(event="running")
            outcome = run_case(case, get_spark)
            _flush()
            answers.send(event="done", outcome=outcome.as_json())
            if own.has_ended():
                return 1  # the next case gets a new process, and a new Spark
    return 0


def _settings(case: Case) -> dict[str, Any]:
    """On this machine, whatever the project's master is."""
    return {"master": "local[1]", "conf": {_JAVA_OPTIONS: _QUICK_JVM, **case.conf, **_SMALL}}


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # the code closed or replaced it
            stream.flush()


def _use_zone(case: Case) -> None:
    """Times without a zone are the Spark session's, wherever the machine is: PySpark takes them for the process's."""
    zone = str(case.conf.get(_ZONE) or "UTC")
    offset = re.fullmatch(r"([+-])(\d\d?:\d\d)", zone)
    if offset:  # POSIX counts the other way round
        zone = f"<{zone}>{'-' if offset[1] == '+' else '+'}{offset[2]}"
    os.environ["TZ"] = zone
    time.tzset()


if __name__ == "__main__":
    exit_code = main()
    _flush()
    # No finalizers: every outcome is told, and nothing of the user's code may speak any more.
    os._exit(exit_code)
