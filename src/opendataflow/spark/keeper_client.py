"""Starting, finding and asking keepers, without pyspark.

Folder of a keeper, for its owner alone:

    lock            flock, held by the keeper that new runs find
    socket          where it listens
    settings.json   what it is started with; `suspects.json`: the runs that get Spark alone
    log, log.1      what the keeper and its JVM print
    <instance>/     of one keeper process: `lock`, `tmp/`, `cwd/`, and `socket` once it has been replaced
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from opendataflow.errors import JobFailed
from opendataflow.spark.keeper_settings import SETTINGS_FILE, KeeperSettings, runtime_folder, runtime_path

LOCK, SOCKET, LOG = "lock", "socket", "log"
PREFIX = "spark-"
_STARTING_SECONDS = 2.0  # until a keeper listens
ANSWER_SECONDS = 30.0  # a keeper that lives says something every few seconds
_LOG_BYTES = 4000
_LONGEST_LINE = 1 << 20


class KeeperEnded(JobFailed):
    """The keeper ended, was stopped, or hangs before a run was attached to it: the run has done nothing yet."""


# Starting -------------------------------------------------------------------------------------------------------------
class _Detached(subprocess.Popen[bytes]):
    """A process that is meant to outlive this one, of which Python would otherwise warn."""

    def __del__(self, *_more: object) -> None:
        pass


_started: dict[str, tuple[_Detached, float]] = {}  # the last one of each folder, and when
_to_reap: list[_Detached] = []
_starting = threading.Lock()


def ensure_keeper(settings: KeeperSettings | Mapping[str, Any]) -> str:
    """Start the keeper for these settings unless it runs, and return its folder at once.

    Call it outside of every process tree that ends with a run. Of several starters at the same moment, one keeper
    stays. Raises ConfigurationError when there is no folder for it.
    """
    wanted = settings if isinstance(settings, KeeperSettings) else KeeperSettings.from_project(settings)
    folder = wanted.folder
    with _starting:
        if _is_listening(folder) or _is_starting(folder):
            return folder
        os.makedirs(folder, mode=0o700, exist_ok=True)
        os.utime(folder)  # in use: it is not swept away now
        _write_settings(folder, wanted)
        log = os.open(os.path.join(folder, LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            process = _Detached(
                keeper_command(folder), cwd="/", env=dict(wanted.environment), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
            _started[folder] = process, time.monotonic()
            _to_reap[:] = [*(one for one in _to_reap if one.poll() is None), process]
        finally:
            os.close(log)
    return folder


def keeper_command(folder: str) -> list[str]:
    return [sys.executable, "-P", "-m", "opendataflow.spark.keeper", folder]


def _is_starting(folder: str) -> bool:
    """True when this process has just started it; a second one would end by itself, but is not needed."""
    process, at = _started.get(folder, (None, 0.0))
    return process is not None and process.poll() is None and time.monotonic() - at < _STARTING_SECONDS


def has_failed(folder: str) -> bool:
    """True when the keeper that this process started there has ended with an error."""
    process, _at = _started.get(folder, (None, 0.0))
    return process is not None and bool(process.poll())


def _is_listening(folder: str) -> bool:
    """True when a keeper listens there; it will not stop for idleness now."""
    try:
        with connect(folder) as line:
            line.send({"expect": True})
    except OSError:
        return False
    return True


def _write_settings(folder: str, settings: KeeperSettings) -> None:
    path = os.path.join(folder, SETTINGS_FILE)
    partial = f"{path}.{os.getpid()}.{threading.get_ident()}"
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(settings.to_json())
    os.replace(partial, path)


# Asking ---------------------------------------------------------------------------------------------------------------
class Line:
    """A connection to a keeper: JSON lines in both directions."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._received = bytearray()

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def send(self, message: Mapping[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, *, seconds: float | None = ANSWER_SECONDS) -> dict[str, Any] | None:
        """The next message; None when the keeper has closed the connection. Raises TimeoutError."""
        self._socket.settimeout(seconds)
        while b"\n" not in self._received:
            try:
                data = self._socket.recv(65_536)
            except ConnectionError:
                data = b""
            if not data or len(self._received) > _LONGEST_LINE:
                return None
            self._received += data
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received[:] = rest
        message: dict[str, Any] = json.loads(line)
        return message

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads
        self._socket.close()

    def drop(self) -> None:
        """Close this process's copy alone: for one that was forked."""
        self._socket.close()


def connect(folder: str) -> Line:
    """A connection to the keeper that listens in this folder. Raises OSError when there is none."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.settimeout(ANSWER_SECONDS)
        with short_path(folder) as path:
            connected.connect(path)
    except BaseException:
        connected.close()
        raise
    return Line(connected)


@contextlib.contextmanager
def short_path(folder: str) -> Iterator[str]:
    """The path of the folder's socket in a form that is short enough for an address of a socket."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{SOCKET}"
    finally:
        os.close(opened)


# All keepers of this user ---------------------------------------------------------------------------------------------
def list_keepers() -> Iterator[dict[str, Any]]:
    """The status of every keeper of this user that runs, with its `folder`; one that does not answer says so."""
    for folder in _listening_folders():
        try:
            with connect(folder) as line:
                line.send({"status": True})
                answer = line.receive(seconds=5.0)
        except TimeoutError:
            answer = {"state": "not answering"}
        except OSError:
            continue  # a leftover of a keeper that was killed
        if answer is not None:
            yield {**answer, "folder": folder}


def stop_keeper(folder: str, *, force: bool) -> None:
    """Ask the keeper to end after its runs, or at once. Raises OSError when it does not listen any more."""
    with connect(folder) as line:
        line.send({"stop": True, "force": force})
        line.receive()


def wait_for_end(pid: int, *, seconds: float) -> bool:
    """Wait until this process has ended; False when it still runs after so long."""
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        try:
            started_at(pid)
        except OSError:
            return True
        time.sleep(0.05)
    return False


def started_at(pid: int) -> int:
    """When the process started, in the kernel's ticks: with the pid, this names it for good.

    Raises OSError when there is no such process, or only what nobody has reaped of it.
    """
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        state, *fields = file.read().rpartition(")")[2].split()
    if state in "ZX":
        raise ProcessLookupError(f"process {pid} has ended")
    return int(fields[18])


def keeper_folders() -> list[str]:
    """The folders of all keepers of this user, also of those that have ended. Raises as `runtime_folder` does."""
    if not os.path.lexists(runtime_path()):
        return []
    base = runtime_folder()
    return sorted(os.path.join(base, name) for name in os.listdir(base) if name.startswith(PREFIX))


def _listening_folders() -> Iterator[str]:
    for folder in keeper_folders():
        with contextlib.suppress(OSError):
            for one in (folder, *(entry.path for entry in os.scandir(folder) if entry.is_dir())):
                if os.path.exists(os.path.join(one, SOCKET)):
                    yield one


def last_lines(folder: str, *, most: int = _LOG_BYTES, since: int = 0) -> str:
    """The end of the keeper's log, from this byte on at most."""
    try:
        with open(os.path.join(folder, LOG), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = max(since if since <= size else 0, size - most)
            file.seek(begin)
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return text if begin in (0, since) else text.partition("\n")[2]
