"""What a cluster needs that one machine does not: its address answers, its executors see the data, and have the code.

Paths without a scheme are on a file system that the driver and all executors share. One that does not share it would
write its part of a chunk to a disk of its own, and Spark would call that a success: so each is asked before it is
trusted.
"""

import contextlib
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession

from opendataflow.errors import JobFailed
from opendataflow.spark import connect, project_modules
from opendataflow.spark.spec import ChunkSpec

ANSWER_SECONDS = 20.0  # a master that is started anew is back by then
_MOST_TRIES = 5
_TASKS_EACH = 2  # for each core, so that every executor gets some
_CORES_UNKNOWN = 8  # Connect does not tell
_CODE = "DATAFLOW_CODE"  # Python workers with another value are other processes: none has imported what was replaced
_DEFAULT_PORTS = {"spark://": 7077, connect.SCHEME: 15002}
_HOST = re.compile(r"\A(?P<host>\[[^\]]+\]|[^:/]+)(?::(?P<port>\d+))?")


def is_cluster(master: str) -> bool:
    """True when tasks may run on other machines than this one."""
    return not master.startswith("local")


# Whether somebody is there --------------------------------------------------------------------------------------------
def require_answer(master: str, *, seconds: float = ANSWER_SECONDS) -> None:
    """Raise JobFailed when no master, or no Spark Connect server, answers at this address for so long.

    Spark itself would try for a minute, or for ten, and then say something else.
    """
    scheme = next((one for one in _DEFAULT_PORTS if master.startswith(one)), None)
    if scheme is None:
        return
    give_up_at = time.monotonic() + seconds
    while True:
        problem = _find_problem(list(_addresses(master, scheme)))
        if problem is None:
            return
        if time.monotonic() >= give_up_at:
            what = "Spark Connect server" if scheme == connect.SCHEME else "Spark master"
            raise JobFailed(
                f"no {what} answers at {connect.shown(master)}: {problem}; is it running, and reachable from here?"
            )
        time.sleep(0.5)


def _addresses(master: str, scheme: str) -> Iterator[tuple[str, int]]:
    for one in connect.shown(master).removeprefix(scheme).split(","):
        found = _HOST.match(one)
        if found is not None:
            yield found["host"].strip("[]"), int(found["port"] or _DEFAULT_PORTS[scheme])


def _find_problem(addresses: Sequence[tuple[str, int]]) -> str | None:
    problem = "it names no host"
    for address in addresses:
        try:
            socket.create_connection(address, timeout=5.0).close()
        except OSError as error:
            problem = error.strerror or str(error)
        else:
            return None
    return problem


# Its executors --------------------------------------------------------------------------------------------------------
class Executors:
    """What a warm Spark's executors must have and see before they work on a chunk. One for a process."""

    def __init__(self, master: str, folder: str) -> None:
        """`folder` is for files that are sent there."""
        self._is_elsewhere, self._folder = is_cluster(master), folder
        self._lock = threading.Lock()
        self._asked: dict[int, set[str]] = {}  # by device: executors that were asked whether they see it
        self._sent: set[str] = set()

    def prepare(self, spark: SparkSession, specs: Sequence[ChunkSpec]) -> None:
        """Give them the project's modules; raise JobFailed when one does not see where a chunk is to be written."""
        with self._lock:
            self._send(spark, specs)
            self._require_shared(spark, specs[0])

    def find_trouble(self, spark: SparkSession, spec: ChunkSpec) -> str | None:
        """After a write: why it cannot be trusted, if an executor that came meanwhile does not see the files."""
        try:
            with self._lock:
                self._require_shared(spark, spec)
        except JobFailed as error:
            return str(error)
        return None

    # Whether all see the same files -------------------------------------------------------------------------------
    def _require_shared(self, spark: SparkSession, spec: ChunkSpec) -> None:
        if not self._is_elsewhere or not spec.destination.is_local:
            return
        folder = _existing(spec.destination.location)
        device = os.stat(folder).st_dev
        for _ in range(_MOST_TRIES):  # more may come while some are asked
            there = _executors(spark)
            if device in self._asked and there <= self._asked[device]:
                return
            for host, sees in blind_or_not(spark, folder):
                if not sees:
                    raise JobFailed(
                        f"{spec.destination.datasetid}: the executor on {host} does not see {folder}; the machines of "
                        "a cluster must share the file system of such a path: mount it there, or use an object store"
                    )
            self._asked.setdefault(device, set()).update(there)

    # Their code -----------------------------------------------------------------------------------------------------
    def _send(self, spark: Any, specs: Sequence[ChunkSpec]) -> None:
        """For what a function imports only when it is called; what it refers to goes with it anyway."""
        first = specs[0]
        data = [location for place in (*first.sources, first.destination) for location in place.locations]
        packed = project_modules.pack(first.home, self._folder, besides=data)
        if packed is None:
            return
        if connect.is_connect(spark):
            connect.add_code(packed)
            return
        context, name = spark._sc, os.path.basename(packed)
        if packed not in self._sent:
            with project_modules.path_unchanged():
                context.addPyFile(packed)
            self._sent.add(packed)
        includes = context._python_includes
        includes[:] = [other for other in includes if os.path.join(self._folder, other) not in self._sent] + [name]
        context.environment[_CODE] = name


def _executors(spark: Any) -> set[str]:
    """Those that there are now; none where Spark does not say."""
    context = getattr(spark, "_sc", None)
    if context is None:
        return set()
    return set(context._jsc.sc().getExecutorMemoryStatus().keySet().mkString("\n").split("\n"))


def _existing(location: str) -> str:
    while not os.path.isdir(location):
        location = os.path.dirname(location)
    return location


def blind_or_not(spark: SparkSession, folder: str) -> set[tuple[str, bool]]:
    """Tasks on as many executors as there are: on which machine each was, and whether it saw this folder's content."""
    marker = os.path.join(folder, f".dataflow-{uuid.uuid4().hex}")
    tasks = _TASKS_EACH * max(2, _cores(spark))
    with open(marker, "xb"):
        pass
    try:
        numbers = spark.range(0, tasks, 1, tasks)
        looks = numbers.mapInArrow(_looker(marker), "host string, sees boolean")
        return {(row["host"], row["sees"]) for row in looks.collect()}  # a few short rows
    finally:
        with contextlib.suppress(OSError):
            os.unlink(marker)


def _looker(marker: str) -> Any:
    """It stands alone: OpenDataFlow need not be on the executors."""

    def look(batches: Any) -> Any:
        import os
        import time

        import pyarrow

        for _ in batches:
            time.sleep(0.02)  # so that one executor does not take all tasks before another one has begun
        sees = os.path.exists(marker)
        yield pyarrow.RecordBatch.from_pydict({"host": [os.uname().nodename], "sees": [sees]})

    return look


def _cores(spark: Any) -> int:
    context = getattr(spark, "_sc", None)
    return int(context.defaultParallelism) if context is not None else _CORES_UNKNOWN
