"""Sessions of Spark Connect whose process has died, given back to their server.

A server goes on with the work of a client that was killed, for minutes. So the zygote (chunk.py) forks a watcher, once.
A run's process connects to it, names each of its sessions as it begins, and keeps the connection open. When that closes
without `{"released": true}`, however the process ended, the watcher releases those sessions. It ends when the zygote
has ended and no run is left.
"""

import contextlib
import importlib
import json
import os
import selectors
import shutil
import socket
import threading
from typing import Any, NoReturn

from opendataflow.spark.connect import release
from opendataflow.spark.keeper_client import short_path

_BYTES = 65_536


class Watcher:
    """The zygote's end."""

    def __init__(self, folder: str) -> None:
        """`folder` is for its socket; it is made when the watcher starts."""
        self.folder = folder
        self._alive = self._end_of_zygote = -1

    def ensure(self) -> None:
        """Start it unless it runs."""
        if self._alive >= 0:
            with selectors.DefaultSelector() as ended:
                ended.register(self._alive, selectors.EVENT_READ)
                if not ended.select(0):
                    return
            os.close(self._alive)
            os.close(self._end_of_zygote)
        shutil.rmtree(self.folder, ignore_errors=True)  # of a process that had the same number
        os.mkdir(self.folder, 0o700)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_path(self.folder) as path:
            listener.bind(path)
        listener.listen(64)
        ended_r, self._end_of_zygote = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                _watch(self.folder, listener, ended_r)
            finally:
                os._exit(70)
        listener.close()
        os.close(ended_r)
        self._alive = os.pidfd_open(pid)


def _watch(folder: str, listener: socket.socket, ended: int) -> NoReturn:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)  # whoever reads the zygote's output must not wait for this process
    kept = sorted({2, listener.fileno(), ended})
    for low, high in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)
    threading.Thread(target=importlib.import_module, args=("pyspark.sql.connect.client.core",)).start()
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(ended, selectors.EVENT_READ)
    runs: dict[int, _Run] = {}
    releases: list[threading.Thread] = []
    is_zygote_alive = True
    while is_zygote_alive or runs:
        for key, _events in selector.select():
            if key.fd == ended:
                is_zygote_alive = False
                selector.unregister(ended)
            elif key.fd == listener.fileno():
                connected, _ = listener.accept()
                runs[connected.fileno()] = _Run(connected)
                selector.register(connected, selectors.EVENT_READ)
            elif not runs[key.fd].hear():
                selector.unregister(key.fd)
                releases.append(threading.Thread(target=runs.pop(key.fd).end))
                releases[-1].start()
        releases = [one for one in releases if one.is_alive()]
    shutil.rmtree(folder, ignore_errors=True)
    for one in releases:
        one.join()
    os._exit(0)


class _Run:
    def __init__(self, connected: socket.socket) -> None:
        self._socket, self._unread = connected, b""
        self._sessions: list[dict[str, Any]] = []

    def hear(self) -> bool:
        """Take what its process says; False when the connection is closed."""
        try:
            data = self._socket.recv(_BYTES)
        except ConnectionError:
            data = b""
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "released" in message:
                self._sessions.clear()
            else:
                self._sessions.append(message)
        return bool(data)

    def end(self) -> None:
        self._socket.close()
        for one in self._sessions:
            with contextlib.suppress(Exception):
                release(one["master"], one["session"], one["user"])
