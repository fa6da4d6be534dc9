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
from typing import Any, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from opendataflow.errors import JobFailed
from opendataflow.spark import connect, project_modules
from opendataflow.spark.spec import ChunkSpec

ANSWER_SECONDS = 20.0  # a master that is started anew is back by then
VERIFY_SECONDS = 60.0  # in which every executor must have run a task: other runs may keep it busy
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 0.5
_TASKS_EACH = 2  # for each core, so that every executor gets some
_CORES_UNKNOWN = 8  # Connect does not tell
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
class Look(NamedTuple):
    """What one task saw: on which machine it ran, in which executor ('' where it has no number), and whether it saw."""

    host: str
    executor: str
    sees: bool


class Executors:
    """What a warm Spark's executors must have and see before they work on a chunk. One for a process."""

    def __init__(self, master: str, folder: str) -> None:
        """`folder` is for files that are sent there, and for what is known of the driver's executors."""
        self._is_elsewhere, self._folder = is_cluster(master), folder
        self._lock = threading.Lock()
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
        folder, dataset = _existing(spec.destination.location), spec.destination.datasetid
        if connect.is_connect(spark):
            _require_shared_by_server(spark, folder, dataset)
            return
        # All processes of one driver add to this file: an executor is asked once, not by each chunk.
        known = os.path.join(self._folder, f"executors-{spark.sparkContext.applicationId}-{os.stat(folder).st_dev}")
        pause, give_up_at = _PAUSE_SECONDS, time.monotonic() + VERIFY_SECONDS
        has_asked = False
        while True:
            there = _executors(spark)
            missing = there - _read_lines(known)
            if not missing and (there or has_asked):
                return
            if has_asked and time.monotonic() >= give_up_at:
                raise JobFailed(_unverified(spark, missing, folder, dataset))
            looks = look_at(spark, folder, tasks=_TASKS_EACH * max(2, _cores(spark)), pause=pause)
            _require_sight(looks, folder, dataset)
            if answered := {look.executor for look in looks if look.executor}:
                _add_lines(known, answered)
            has_asked, pause = True, min(2 * pause, _LONGEST_PAUSE_SECONDS)

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


def _require_shared_by_server(spark: Any, folder: str, dataset: str) -> None:
    """The same for Spark Connect, which does not list its executors.

    The server itself is asked first. Executors on other machines are asked until a round of tasks meets no new one.
    """
    with _marker(folder) as marker:
        try:
            spark.read.text(marker).schema  # noqa: B018  it makes the server look
        except AnalysisException as error:
            raise JobFailed(_blind("the Spark Connect server", folder, dataset)) from error
    if not is_cluster(str(spark.conf.get("spark.master", "local"))):
        return
    met: set[Look] = set()
    pause, give_up_at = _PAUSE_SECONDS, time.monotonic() + VERIFY_SECONDS
    while time.monotonic() < give_up_at:
        looks = look_at(spark, folder, tasks=_TASKS_EACH * _CORES_UNKNOWN, pause=pause)
        _require_sight(looks, folder, dataset)
        if looks <= met:
            return
        met, pause = met | looks, min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _require_sight(looks: set[Look], folder: str, dataset: str) -> None:
    for look in looks:
        if not look.sees:
            raise JobFailed(_blind(f"the executor on {look.host}", folder, dataset))


def _blind(who: str, folder: str, dataset: str) -> str:
    return (
        f"{dataset}: {who} does not see {folder}; the machines of a cluster must share the file system of such a path: "
        "mount it there, or use an object store"
    )


def _unverified(spark: Any, missing: set[str], folder: str, dataset: str) -> str:
    listed = spark._jsc.sc().statusStore().executorList(True)
    places = {(one := listed.apply(number)).id(): one.hostPort() for number in range(listed.size())}
    names = ", ".join(f"{one} on {places.get(one, 'an unknown host')}" for one in sorted(missing))
    return (
        f"{dataset}: these executors ran no task within {VERIFY_SECONDS:.0f} seconds, so it is unknown whether they "
        f"see {folder}: {names}; look at their logs in Spark's UI, or end them, and run it again"
    )


def _executors(spark: Any) -> set[str]:
    """The numbers of the executors that there are now; none where the driver itself runs the tasks."""
    return {one for one in spark._jsc.sc().getExecutorIds().mkString("\n").split("\n") if one}


def _read_lines(path: str) -> set[str]:
    try:
        with open(path, encoding="ascii") as file:
            return set(file.read().split())
    except FileNotFoundError:
        return set()


def _add_lines(path: str, lines: set[str]) -> None:
    """In one write to the end of the file: others may do the same at this moment."""
    with open(path, "a", encoding="ascii") as file:
        file.write("".join(f"{line}\n" for line in sorted(lines)))


def _existing(location: str) -> str:
    while not os.path.isdir(location):
        location = os.path.dirname(location)
    return location


@contextlib.contextmanager
def _marker(folder: str) -> Iterator[str]:
    """An empty file in this folder, for as long as somebody looks for it."""
    path = os.path.join(folder, f".dataflow-{uuid.uuid4().hex}")
    with open(path, "xb"):
        pass
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def look_at(spark: SparkSession, folder: str, *, tasks: int, pause: float) -> set[Look]:
    """So many tasks that look whether they see this folder's content."""
    with _marker(folder) as marker:
        numbers = spark.range(0, tasks, 1, tasks)
        looks = numbers.mapInArrow(_looker(marker, pause), "host string, executor string, sees boolean")
        return {Look(row["host"], row["executor"], row["sees"]) for row in looks.collect()}  # a few short rows


def _looker(marker: str, pause: float) -> Any:
    """It stands alone: OpenDataFlow need not be on the executors."""

    def look(batches: Any) -> Any:
        import os
        import time

        import pyarrow

        for _ in batches:
            time.sleep(pause)  # so that one executor does not take all tasks before another one has begun
        sees, executor, pid = os.path.exists(marker), "", os.getpid()
        try:
            while pid > 1 and not executor:  # the executor's Java process is the parent, or the parent's
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    arguments = file.read().split(b"\0")
                if b"--executor-id" in arguments:
                    executor = arguments[arguments.index(b"--executor-id") + 1].decode()
                with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                    pid = int(file.read().rpartition(") ")[2].split()[1])
        except OSError:
            pass
        yield pyarrow.RecordBatch.from_pydict({"host": [os.uname().nodename], "executor": [executor], "sees": [sees]})

    return look


def _cores(spark: Any) -> int:
    return int(spark._sc.defaultParallelism)
