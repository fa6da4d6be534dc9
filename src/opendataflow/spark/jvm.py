"""Spark's Java process as seen from Python: what it prints while it starts, and how it ended.

A JVM that starts prints several lines that say nothing about the job, and no option silences all of them. So its
stderr comes through us: held while it starts (and shown only if it does not), passed on from then on.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from opendataflow.errors import ConfigurationError

_HELD_BYTES = 65_536
_OUT_OF_MEMORY = 52  # Spark's own code for it
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
        if self.code == _OUT_OF_MEMORY:
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


def looks_cut_off(error: BaseException) -> bool:
    """True when the error may come from a JVM that is no longer there to answer."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

    # A name that means nothing (localhost, where /etc/hosts is missing) is no line that broke.
    return isinstance(error, Py4JError | OSError | EOFError) and not isinstance(error, Py4JJavaError | socket.gaierror)


def is_going_down() -> bool:
    """True when Spark has stopped inside its JVM, but not by Python's `stop()`: the JVM was asked to end, and will.

    Whatever fails meanwhile fails for that, in whichever words.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        return False
    try:
        return bool(context._jsc.sc().isStopped())
    except Exception:  # noqa: BLE001  it does not answer any more
        return True


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
