"""A process's own Spark, and its private line to whoever started the process."""

import contextlib
import json
import os
import threading
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:  # pyspark takes its time; what is wrong with the code is said without it
    from pyspark.sql import SparkSession

    from opendataflow.spark.cluster import Executors


class OwnSpark:
    """Spark, started when it is first asked for; its JVM and what it put aside go at the end."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._executors: Executors | None = None

    def __enter__(self) -> "OwnSpark":
        return self

    def __exit__(self, *_error: object) -> None:
        self._open.close()

    def session(self, settings: Mapping[str, Any], *, name: str) -> "SparkSession":
        """The session; whoever asks first decides its settings."""
        with self._lock:
            if self._session is None:
                self._session = self._start(settings, name)
            return self._session

    @property
    def executors(self) -> "Executors":
        """Those of the session, once there is one."""
        if self._executors is None:
            raise RuntimeError("Spark has not been started yet")
        return self._executors

    def has_ended(self) -> bool:
        """True when there was a JVM and it is gone, whoever killed it."""
        if self._session is None:
            return False
        from opendataflow.spark.jvm import find_end, find_process

        return find_end(find_process()) is not None

    def _start(self, settings: Mapping[str, Any], name: str) -> "SparkSession":
        from opendataflow.spark import connect
        from opendataflow.spark.cluster import Executors
        from opendataflow.spark.jvm import JvmOutput, end_process, find_process, require_java
        from opendataflow.spark.scratch import scratch_folder
        from opendataflow.spark.session import DEFAULT_MASTER, start_session

        master = str(settings.get("master") or DEFAULT_MASTER)
        if not connect.is_address(master):
            require_java()
        output = JvmOutput()
        with contextlib.ExitStack() as started:
            scratch = started.enter_context(scratch_folder())
            started.callback(output.finish)
            started.callback(lambda: end_process(find_process()))
            with output.held():
                spark = start_session(settings, name=name, scratch=scratch)
            started.callback(spark.stop)
            self._executors = Executors(master, scratch)
            self._open = started.pop_all()
        return spark


class Channel:
    """Where messages to whoever started this process go, whole lines from whichever thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, **fields: Any) -> None:
        data = json.dumps(fields).encode() + b"\n"
        with self._lock:
            while data and self._fd >= 0:
                data = data[os.write(self._fd, data) :]

    def drop(self) -> None:
        """Close this process's copy, for one that was forked: nobody else may speak for the run."""
        self._lock = threading.Lock()  # another thread may have held it
        os.close(self._fd)
        self._fd = -1


def private_channels(answers_fd: int) -> tuple[IO[str], Channel]:
    """Our input and our answers, out of reach of the user's code and of every process it starts."""
    asked, answers = os.dup(0), os.dup(answers_fd)  # a duplicate is not inherited
    os.close(answers_fd)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return open(asked, encoding="utf-8"), Channel(answers)


def write_atomically(path: str, value: dict[str, Any]) -> None:
    """The whole file or none of it, also after a power cut."""
    handle = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
