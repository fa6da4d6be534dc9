"""The process that runs cases, one by one, on a warm driver: `python -m opendataflow.spark.validate_child FD`.

It reads each case as a line of JSON from its standard input, and forks a process for it, which has all that is
imported already and its own session on the driver. That answers on descriptor FD: "running" when the case's own time
begins, "starting" while Spark starts, which is not the case's time, and "done" with the outcome. What the code prints
goes to the standard streams, unseen by this module. When the fork is killed or ends by itself, so does this process.
"""

import contextlib
import ctypes
import faulthandler
import json
import os
import re
import resource
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

from opendataflow.spark.cases import Case
from opendataflow.spark.channel import Channel, private_channels
from opendataflow.spark.validate import WHERE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from opendataflow.spark.attach import Attachment

_PR_SET_PDEATHSIG = 1
_ZONE, _JAVA_OPTIONS = "spark.sql.session.timeZone", "spark.driver.extraJavaOptions"
# One core and one partition: examples are small, and their rows keep their order where Spark is free to change it.
_SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# Planning stage by stage costs a fifth of a case's time, and finds nothing to do; what the project says of it holds.
_WHOLE_PLAN = {"spark.sql.adaptive.enabled": "false"}
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_END_SECONDS = 10.0  # in which a driver that no longer answers is known to have ended


def main() -> int:
    _die_with_parent()  # a hanging case must not outlive who waits for it
    cases, answers = private_channels(int(sys.argv[1]))
    import pandas  # noqa: F401  once, and not in each fork
    import pyspark.sql.classic.dataframe
    import pyspark.testing.utils  # noqa: F401  PySpark itself imports it when Python first hands an object to Java

    from opendataflow.spark import attach, run_case, shared_state  # noqa: F401

    for line in cases:
        case = Case(**json.loads(line))
        pid = os.fork()
        if pid == 0:
            _end(_run(case, answers))
        signal.signal(WHERE, lambda *_, pid=pid: os.kill(pid, WHERE))
        _, status = os.waitpid(pid, 0)
        signal.signal(WHERE, signal.SIG_IGN)
        if os.WIFSIGNALED(status):
            _die_of(os.WTERMSIG(status))
        if code := os.waitstatus_to_exitcode(status):
            return code
    return 0


def _run(case: Case, answers: Channel) -> int:
    """Be the process of the case."""
    _die_with_parent()
    faulthandler.register(WHERE, all_threads=False)
    import numpy

    from opendataflow.spark.run_case import run_case

    numpy.random.seed()  # random numbers of forks would all be the same
    _use_zone(case)
    driver = _Driver()

    def get_spark() -> "SparkSession":
        answers.send(event="starting")
        started = driver.session(_settings(case))
        answers.send(event="running")
        return started

    answers.send(event="running")
    served_by = os.getpid()
    outcome = run_case(case, get_spark, driver.find_end)
    if os.getpid() == served_by:  # not a process that the code forked, which came back here
        _flush()
        answers.send(event="done", outcome=outcome.as_json())
    return 0


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _die_of(number: int) -> NoReturn:
    """End as the case's process did: that is what is told of it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it has left one, if at all
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)


class _Driver:
    """The warm driver, attached to if the case needs it."""

    def __init__(self) -> None:
        self._attached: Attachment | None = None
        self._end = ""
        self._ended = threading.Event()

    def session(self, settings: dict[str, Any]) -> "SparkSession":
        if self._attached is None:
            from opendataflow.spark.attach import attach
            from opendataflow.spark.shared_state import refuse_shared_state

            name = f"validate-{os.getpid()}"
            self._attached = attach(settings, run=name, group=name, identity=name, on_jvm_end=self._take_end)
            refuse_shared_state(self._attached.spark, run=os.getpid())
        return self._attached.spark

    def find_end(self, _error: BaseException) -> str | None:
        """How the driver ended, if that is what an error comes from."""
        from opendataflow.spark.jvm import is_going_down

        if self._attached is None:
            return None
        self._ended.wait(_END_SECONDS if is_going_down() else 0.0)
        return self._end or None

    def _take_end(self, end: dict[str, Any]) -> None:
        self._end = str(end["jvm_ended"])
        self._ended.set()


def _settings(case: Case) -> dict[str, Any]:
    """On this machine, whatever the project's master is."""
    return {"master": "local[1]", "conf": {_JAVA_OPTIONS: _QUICK_JVM, **_WHOLE_PLAN, **case.conf, **_SMALL}}


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


def _end(code: int) -> NoReturn:
    """No finalizers: every outcome is told, and nothing of the user's code may speak any more."""
    _flush()
    os._exit(code)


if __name__ == "__main__":
    _end(main())
