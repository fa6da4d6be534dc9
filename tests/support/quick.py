"""`dataflow` commands without the wait for Python's imports, which most tests spend most of their time in.

A process that has imported the command line forks for each command: what runs is still a process of its own, with its
own arguments, environment, folder and streams, and the same `main`. Commands that supervise others (`run`, `tick`) and
those whose own start is looked at are started for real, by support/projects.py.
"""

import contextlib
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from typing import Any

_MOST_BYTES = 1 << 20
_LEFT_OUT = ("opendataflow.spark", "opendataflow.pytest_plugin", "opendataflow.__main__")


class Forks:
    """The process that forks, as whoever uses it sees it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._line, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )

    def run(
        self, argv: list[str], *, env: dict[str, str], cwd: str, given: str | None, timeout: float
    ) -> subprocess.CompletedProcess[str] | None:
        """The command to its end; None when another thread is using the process."""
        if not self._lock.acquire(blocking=False):
            return None
        streams = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
        try:
            if given is not None:
                os.pwrite(streams[0], given.encode(), 0)
            asked = json.dumps({"argv": argv, "env": env, "cwd": cwd}).encode()
            socket.send_fds(self._line, [asked], streams)
            pid = int(self._line.recv(64))
            if not select.select([self._line], [], [], timeout)[0]:
                os.kill(pid, signal.SIGKILL)
                self._line.recv(64)
                raise subprocess.TimeoutExpired(argv, timeout)
            code = int(self._line.recv(64))
            out, err = (os.pread(fd, os.fstat(fd).st_size, 0).decode() for fd in streams[1:])
            return subprocess.CompletedProcess(argv, code, out, err)
        finally:
            for fd in streams:
                os.close(fd)
            self._lock.release()

    def close(self) -> None:
        self._line.close()
        self._process.wait()


def _serve(line: socket.socket) -> None:
    import opendataflow

    for module in pkgutil.walk_packages(opendataflow.__path__, "opendataflow."):
        if not module.name.startswith(_LEFT_OUT):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    for name in ("rich.table", "psycopg", "pydantic", "yaml", "cryptography.fernet"):
        importlib.import_module(name)
    while True:
        asked, streams, _, _ = socket.recv_fds(line, _MOST_BYTES, 3)
        if not asked:
            return
        pid = os.fork()
        if pid == 0:
            line.close()
            _become(json.loads(asked), streams)
        for fd in streams:
            os.close(fd)
        line.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        line.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(asked: dict[str, Any], streams: list[int]) -> None:
    """Be the command, to the end."""
    code = 70
    try:
        for fd, stream in enumerate(streams):
            os.dup2(stream, fd)
            os.close(stream)
        os.chdir(asked["cwd"])
        for name in set(os.environ) - set(asked["env"]):
            del os.environ[name]
        os.environ.update(asked["env"])
        time.tzset()
        sys.argv = asked["argv"]
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
        from opendataflow.cli.main import main

        code = main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001  as Python does at its end
        traceback.print_exc()
        code = 1
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
