"""A keeper's own folder, seen from the keeper: lock, socket, log, suspects, and what a killed one left."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping

from opendataflow.spark.keeper_client import (
    LOCK,
    LOG,
    PREFIX,
    SOCKET,
    keeper_command,
    last_lines,
    short_path,
    started_at,
)

_SUSPECTS = "suspects.json"
_ATTACHED = "attached.json"
_JVM = "jvm.json"
_MOST_SUSPECTS = 1000
_LOCK_SECONDS = 2.0  # somebody who sweeps holds a lock for a moment
_LOG_BYTES = 4 << 20
_BACKLOG = 1024
_KEPT_SECONDS = 86_400.0  # the log of a keeper that has ended is of use for a day


class KeeperFolder:
    """The folder of a running keeper, which holds its lock."""

    def __init__(self, path: str, lock: int) -> None:
        self.path, self._lock = path, lock
        self._is_ours = self._is_shown = False
        self._log_reader: threading.Thread | None = None
        self._log_from = os.fstat(2).st_size
        self.instance = os.path.join(path, f"{os.getpid()}-{started_at(os.getpid())}")
        for name in ("tmp", "cwd"):
            os.makedirs(os.path.join(self.instance, name), mode=0o700, exist_ok=True)
        self._instance_lock = os.open(os.path.join(self.instance, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._instance_lock, fcntl.LOCK_EX)
        os.chdir(os.path.join(self.instance, "cwd"))
        _sweep(os.path.dirname(path), except_for=path)
        if left := _attached_to_killed(path):
            with contextlib.suppress(OSError):
                self.write_suspects({*self.read_suspects(), *left})
        _sweep_instances(path)

    @classmethod
    def take(cls, path: str) -> "KeeperFolder | None":
        """The folder, locked; None when another keeper holds it."""
        lock = _lock(os.path.join(path, LOCK), seconds=_LOCK_SECONDS)
        return None if lock is None else cls(path, lock)

    # Socket -----------------------------------------------------------------------------------------------------------
    def listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_path(self.path) as address:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address)  # a leftover: the lock is ours
            listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        self._is_ours = self._is_shown = True
        return listener

    def hide(self) -> None:
        """New runs do not find this keeper now."""
        if self._is_shown:
            with contextlib.suppress(FileNotFoundError):
                os.rename(os.path.join(self.path, SOCKET), os.path.join(self.instance, SOCKET))
            self._is_shown = False

    def show(self) -> None:
        os.rename(os.path.join(self.instance, SOCKET), os.path.join(self.path, SOCKET))
        self._is_shown = True

    def is_found(self) -> bool:
        return not self._is_shown or os.path.exists(os.path.join(self.path, SOCKET))

    def leave(self) -> None:
        """Let another keeper have the folder; this one is still found by who lists all."""
        if self._is_ours:
            self.hide()
            self._is_ours = False
            os.close(self._lock)

    def start_another(self, environ: Mapping[str, str]) -> None:
        subprocess.Popen(
            keeper_command(self.path), cwd="/", env=dict(environ), start_new_session=True, stdin=subprocess.DEVNULL
        )

    # Log --------------------------------------------------------------------------------------------------------------
    def log_pipe(self) -> int:
        """What is written here, by the JVM, goes to the log, which stays bounded."""
        read, write = os.pipe()
        self._log_reader = threading.Thread(target=self._copy_to_log, args=(read,), name="log", daemon=True)
        self._log_reader.start()
        return write

    def last_output(self) -> str:
        """What this keeper and a JVM that has ended wrote last."""
        if self._log_reader is not None:
            self._log_reader.join(1.0)
        return last_lines(self.path, since=self._log_from).strip()

    def _copy_to_log(self, read: int) -> None:
        while data := os.read(read, 65_536):
            with contextlib.suppress(OSError):  # a full disk must not stop Spark
                os.write(2, data)
                if os.fstat(2).st_size > _LOG_BYTES and self._is_ours:
                    self._begin_log()

    def _begin_log(self) -> None:
        path = os.path.join(self.path, LOG)
        os.replace(path, f"{path}.1")
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, 1)
        os.dup2(opened, 2)
        os.close(opened)

    # Suspects ---------------------------------------------------------------------------------------------------------
    def read_suspects(self) -> list[str]:
        return _read_names(os.path.join(self.path, _SUSPECTS))

    def write_suspects(self, suspects: Iterable[str]) -> None:
        _write_names(os.path.join(self.path, _SUSPECTS), sorted(suspects)[:_MOST_SUSPECTS])

    def note_attached(self, identities: Iterable[str]) -> None:
        """The runs that use the driver now: should this process be killed, they are suspects."""
        _write_names(os.path.join(self.instance, _ATTACHED), identities)

    # What is left -----------------------------------------------------------------------------------------------------
    def note_jvm(self, pid: int) -> None:
        with open(os.path.join(self.instance, _JVM), "w", encoding="utf-8") as file:
            json.dump({"pid": pid, "started": started_at(pid)}, file)

    def remove_instance(self) -> None:
        shutil.rmtree(self.instance, ignore_errors=True)


def _lock(path: str, *, seconds: float) -> int | None:
    """The lock, unless somebody holds it for so long."""
    give_up_at = time.monotonic() + seconds
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), os.stat(path)):  # not of a folder that was swept away meanwhile
                return lock
        except OSError:
            if time.monotonic() >= give_up_at:
                os.close(lock)
                return None
            time.sleep(0.05)
        os.close(lock)


def _sweep(base: str, *, except_for: str) -> None:
    """Remove what keepers left that were killed, and the folders that nobody has used for long."""
    for entry in os.scandir(base):
        if entry.name.startswith(PREFIX) and entry.path != except_for and entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(OSError):
                _sweep_instances(entry.path)
                lock = _lock(os.path.join(entry.path, LOCK), seconds=0.0)
                if lock is None:
                    continue
                try:
                    if time.time() - os.stat(entry.path).st_mtime > _KEPT_SECONDS:
                        shutil.rmtree(entry.path, ignore_errors=True)
                finally:
                    os.close(lock)


def _read_names(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return [str(one) for one in json.load(file)]
    except (OSError, ValueError, TypeError):
        return []


def _write_names(path: str, names: Iterable[str]) -> None:
    partial = f"{path}.{os.getpid()}"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(list(names), file)
    os.replace(partial, path)


def _attached_to_killed(folder: str) -> list[str]:
    """The runs that used keepers of this folder which were killed: each of them may be the one that did it."""
    killed = (entry.path for entry in os.scandir(folder) if entry.is_dir() and not _is_alive(entry.name))
    return [name for instance in killed for name in _read_names(os.path.join(instance, _ATTACHED))]


def _sweep_instances(folder: str) -> None:
    for entry in os.scandir(folder):
        if not entry.is_dir(follow_symlinks=False) or _is_alive(entry.name):
            continue
        lock = _lock(os.path.join(entry.path, LOCK), seconds=0.0)
        if lock is None:
            continue  # its keeper lives
        try:
            _kill_jvm(entry.path)
            shutil.rmtree(entry.path, ignore_errors=True)
        finally:
            os.close(lock)


def _is_alive(instance: str) -> bool:
    pid, _, started = instance.partition("-")
    try:
        return started_at(int(pid)) == int(started)
    except (OSError, ValueError):
        return False


def _kill_jvm(instance: str) -> None:
    """A JVM ends with its keeper by itself, unless it hangs."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        with open(os.path.join(instance, _JVM), encoding="utf-8") as file:
            noted = json.load(file)
        if started_at(noted["pid"]) == noted["started"]:
            os.kill(noted["pid"], signal.SIGKILL)
