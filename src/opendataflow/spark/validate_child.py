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
from typing import IO, TYPE_CHECKING, Any

from opendataflow.spark.cases import Case
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
    cases, answers = _private_channels(int(sys.argv[1]))
    from opendataflow.spark.run_case import run_case

    with Session() as session:
        for line in cases:
            case = Case(**json.loads(line))
            _use_zone(case)

            def get_spark(case: Case = case) -> "SparkSession":
                _send(answers, event="starting")
                started = session.get(case.conf)
                _send(answers, event="running")
                return started

            _send(answers, event="running")
            outcome = run_case(case, get_spark)
            _flush()
            _send(answers, event="done", outcome=outcome.as_json())
            if session.has_ended():
                return 1  # the next case gets a new process, and a new Spark
    return 0


def _private_channels(given: int) -> tuple[IO[str], int]:
    """Our input and our answers, out of reach of the user's code and of every process it starts."""
    cases, answers = os.dup(0), os.dup(given)  # a duplicate is not inherited
    os.close(given)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return open(cases, encoding="utf-8"), answers


def _send(answers: int, **message: Any) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(answers, data) :]


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


class Session:
    """The Spark session of all cases, started when the first one needs it, on this machine whatever the master is."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._session: SparkSession | None = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_error: object) -> None:
        self._open.close()

    def get(self, conf: Any) -> "SparkSession":
        if self._session is None:
            self._session = self._start(conf)
        return self._session

    def has_ended(self) -> bool:
        """True when the JVM is gone, whoever killed it."""
        if self._session is None:
            return False
        from opendataflow.spark.jvm import find_end, find_process

        return find_end(find_process()) is not None

    def _start(self, conf: Any) -> "SparkSession":
        from opendataflow.spark.jvm import JvmOutput, end_process, find_process, require_java
        from opendataflow.spark.scratch import scratch_folder
        from opendataflow.spark.session import start_session

        require_java()
        settings = {"master": "local[1]", "conf": {_JAVA_OPTIONS: _QUICK_JVM, **conf, **_SMALL}}
        output = JvmOutput()
        with contextlib.ExitStack() as started:
            scratch = started.enter_context(scratch_folder())
            started.callback(output.finish)
            started.callback(lambda: end_process(find_process()))
            with output.held():
                spark = start_session(settings, name="validate", scratch=scratch)
            started.callback(spark.stop)
            self._open = started.pop_all()
        return spark


if __name__ == "__main__":
    exit_code = main()
    _flush()
    # No finalizers: every outcome is told, and nothing of the user's code may speak any more.
    os._exit(exit_code)
