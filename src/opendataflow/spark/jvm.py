"""Spark's Java process as seen from Python: what it prints while it starts, and how it ended.

A JVM that starts prints several lines that say nothing about the job, and no option silences all of them. So its
stderr comes through us: held while it starts (and shown only if it does not), passed on from then on.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opendataflow.errors import ConfigurationError

_HELD_BYTES = 65_536
_OUT_OF_MEMORY = (52, 3)  # as Spark ends for it, and as Java does with -XX:+ExitOnOutOfMemoryError
_PROBE_SECONDS = 5.0
_SIGNALLED = 128  # a JVM that is asked to end by signal n runs its hooks and exits 128 + n


def require_java() -> None:
    """Raise ConfigurationError when there is no Java: Spark's own message for it is a page long."""
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        raise ConfigurationError(f"JAVA_HOME is {home}, but there is no bin/java in it; Spark needs Java 17 or newer")
    if not home and shutil.which("java") is None:
        raise ConfigurationError(
            "Spark needs Java 17 or newer, and there is no `java` here; "
            "`apt install openjdk-17-jre-headless` installs it, or set JAVA_HOME"
        )


@dataclass(frozen=True, slots=True)
class JvmEnd:
    """How the JVM ended: by a signal, or with a code of its own."""

    code: int

    @property
    def signal(self) -> int | None:
        if self.code < 0:
            return -self.code
        asked = self.code - _SIGNALLED
        return asked if asked in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT) else None

    def __str__(self) -> str:
        if self.code in _OUT_OF_MEMORY:
            return "Spark's Java process ran out of memory; raise `spark.driver.memory`"
        how = f"was killed by signal {self.signal}" if self.signal else f"ended by itself with exit code {self.code}"
        return f"Spark's Java process {how}"


class JvmOutput:
    """The stderr of a JVM that is started while `held`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: bytearray | None = bytearray()
        self._reader: threading.Thread | None = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Start the JVM in here: what it says is dropped when that works, and shown when it does not."""
        sys.stderr.flush()
        read, write = os.pipe()
        own = os.dup(2)
        os.dup2(write, 2)
        os.close(write)
        self._reader = threading.Thread(target=self._pass_on, args=(read,), name="jvm-stderr", daemon=True)
        self._reader.start()
        try:
            yield
        except BaseException:
            self._restore(own)
            self._reader.join(1.0)
            self._show()
            raise
        self._restore(own)
        with self._lock:
            self._held = None

    def finish(self) -> None:
        """Wait until everything is passed on; the JVM has ended."""
        if self._reader is not None:
            self._reader.join(1.0)

    def _restore(self, own: int) -> None:
        sys.stderr.flush()
        os.dup2(own, 2)
        os.close(own)

    def _show(self) -> None:
        with self._lock:
            if self._held is not None:
                os.write(2, bytes(self._held[-_HELD_BYTES:]))
                self._held = None

    def _pass_on(self, read: int) -> None:
        with open(read, "rb", buffering=0) as output:
            while data := output.read(65_536):
                with self._lock:
                    if self._held is None:
                        os.write(2, data)
                    elif len(self._held) < _HELD_BYTES:
                        self._held += data


def find_process() -> "subprocess.Popen[bytes] | None":
    """The JVM that this process started, if it started one (Spark Connect needs none)."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    return getattr(gateway, "proc", None)


def has_class(spark: Any, name: str) -> bool:
    """True when the class is on the class path of this driver."""
    return bool(spark.sparkContext._jvm.org.apache.spark.util.Utils.classIsLoadable(name))


def explained(df: Any) -> str:
    """Spark's plan as `df.explain("formatted")` prints it."""
    return str(df.sparkSession.sparkContext._jvm.PythonSQLUtils.explainString(df._jdf.queryExecution(), "formatted"))


def logical_plan(df: Any) -> str:
    """The logical plan of a DataFrame, an operator a line: as it was analysed; on Connect, as it is optimised."""
    plan = getattr(df, "_jdf", None)
    if plan is not None:
        return str(plan.queryExecution().analyzed().toString())
    text = str(df._explain_string(mode="extended"))
    return text.partition("== Optimized Logical Plan ==")[2].partition("== Physical Plan ==")[0]


def hadoop_setting(spark: Any, name: str) -> str | None:
    value = spark.sparkContext._jsc.hadoopConfiguration().get(name)
    return None if value is None else str(value)


def list_files(spark: Any, location: str) -> list[tuple[str, int, int]]:
    """Path below a folder, size and time (in ns) of each file in it, as Hadoop's file system of that scheme says."""
    context = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(location)
    system = path.getFileSystem(context._jsc.hadoopConfiguration())
    root = str(system.makeQualified(path).toString()).rstrip("/") + "/"
    listed = system.listFiles(path, True)
    found = []
    while listed.hasNext():
        status = listed.next()
        name = str(status.getPath().toString()).removeprefix(root)
        found.append((name, int(status.getLen()), int(status.getModificationTime()) * 1_000_000))
    return found


def is_going_down() -> bool:
    """True when the JVM no longer answers, or when Spark has stopped in it, but not by Python's `stop()`.

    It was asked to end, and will: whatever fails meanwhile fails for that, in whichever words. One that answers is not
    the cause of any error.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        return False
    answers: list[bool] = []

    def ask() -> None:
        with contextlib.suppress(Exception):
            answers.append(bool(context._jsc.sc().isStopped()))

    probe = threading.Thread(target=ask, name="probe", daemon=True)
    try:
        probe.start()
    except RuntimeError:  # the code has used up the threads that it may have
        return False
    probe.join(_PROBE_SECONDS)
    return answers != [False]


def find_end(process: "subprocess.Popen[bytes] | None", *, wait_seconds: float = 0.0) -> JvmEnd | None:
    """How the JVM ended, or None while it lives."""
    give_up = time.monotonic() + wait_seconds
    while process is not None:
        code = process.poll()
        if code is not None:
            return JvmEnd(code)
        if time.monotonic() >= give_up:
            return None
        time.sleep(0.02)
    return None


def end_process(process: "subprocess.Popen[bytes] | None", *, wait_seconds: float = 5.0) -> None:
    """Let the JVM go: it ends when its stdin closes; one that does not is killed."""
    if process is None:
        return
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(wait_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
