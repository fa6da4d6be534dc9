"""The zygote: a process that has imported what pipelines need, and forks guards whose children begin with it.

Importing PySpark, pyarrow and pandas takes a second, and a chunk may take less. So one process imports them once, and
never runs a project's code or opens anything. For each guard that a runner asks for, it forks itself; that guard forks
itself for each run. Such a child has its own environment, working directory, output and process group, as a script
has. Guards share the zygote's memory with it until somebody writes to it.

The runner sends JSON messages over a socket: `{"guard": true}` with the guard's descriptors, answered with its pid and
what was imported, or `{"prepare": …}`, which is passed on to the program before a child starts. The zygote ends when
the socket closes. What it writes to its standard error the runner keeps, to say why it ended.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

from opendataflow.domain.variables import without_platform_variables
from opendataflow.errors import JobFailed
from opendataflow.execution.guard import Guard, GuardProcess
from opendataflow.execution.processes import ZYGOTE, is_stopped
from opendataflow.own_process import protect

ANSWER_SECONDS = 60.0  # in which a zygote that works has answered; the first answer comes after its imports
_WHAT = "the process from which chunks of pipelines are forked"
_LOOK_SECONDS = 0.5  # between two looks at one that is waited for
_END_SECONDS = 2.0  # in which one that closed its socket has ended
_MESSAGE_BYTES = 1 << 20
_STDERR_BYTES = 4096
_DESCRIPTORS = 6


class ZygoteFailed(JobFailed):
    """No zygote gives guards; the message says why."""


class Program(Protocol):
    """What a zygote imports: a module with these functions."""

    def preload(self) -> list[str]:
        """Import what every child needs; return the files that change when any of it is replaced on disk."""

    def prepare(self, what: Any) -> None:
        """Do what cannot be done below a guard, whose descendants end with it."""

    def main(self, argv: list[str]) -> int:
        """Be the child of a run; returns its exit code."""


class Zygote:
    """The runner's end. Guards that come from here start children with `forks=True`. It never waits for long."""

    def __init__(self, program: str) -> None:
        """Start it; `program` is the name of a module (see Program)."""
        self.program = program
        self._imported: dict[str, list[int]] = {}  # file → what it was
        self._status: int | None = None  # as waitpid gives it, once it has ended
        self._reaping = threading.Lock()
        self.asking = threading.RLock()  # held by who waits for an answer
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._stderr = os.memfd_create("stderr of the zygote")
        for end in (self._socket, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
        self._socket.setblocking(False)
        with theirs:
            theirs.set_inheritable(True)
            # -P: what lies in the caller's folder must not stand in for a library of the same name.
            argv = [sys.executable, "-P", "-m", ZYGOTE, str(theirs.fileno()), program]
            # A descendant can read this environment, whatever its own is.
            self.pid = os.posix_spawn(
                sys.executable, argv, without_platform_variables(os.environ),
                file_actions=[(os.POSIX_SPAWN_DUP2, self._stderr, 2)],
            )  # fmt: skip

    def is_of_use(self) -> bool:
        """False when it has ended, was stopped, or imported what has been replaced since."""
        return not self._has_ended() and not is_stopped(self.pid) and self.is_current()

    def is_current(self) -> bool:
        """True while the files that it imported are those on the disk."""
        return all(_seen(path) == before for path, before in self._imported.items())

    def _has_ended(self) -> bool:
        with self._reaping:
            if self._status is None:
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # of a process that this one is a copy of
                    pid, status = self.pid, 0
                self._status = status if pid else None
            return self._status is not None

    def new_guard(self) -> Guard:
        """A guard that is a fork of the zygote; OSError when the zygote does not give one."""
        guard = Guard(forked_by=self._fork_guard)
        guard.is_current = self.is_current
        return guard

    def _fork_guard(self, fds: Sequence[int]) -> int:
        socket.send_fds(self._socket, [json.dumps({"guard": True}).encode()], list(fds))
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        give_up_at = time.monotonic() + ANSWER_SECONDS
        while not poll.poll(min(_LOOK_SECONDS, ANSWER_SECONDS) * 1000):
            if is_stopped(self.pid) or time.monotonic() >= give_up_at:
                raise TimeoutError
        data = self._socket.recv(_MESSAGE_BYTES)
        if not data:
            raise ChildProcessError
        answer = json.loads(data)
        self._imported = answer["imported"]
        return int(answer["guard"])

    def prepare(self, what: Any) -> None:
        """Have the program prepare for a child; it does so before it forks another guard, and nobody waits for it."""
        try:
            self._socket.send(json.dumps({"prepare": what}).encode())
        except OSError:
            pass  # it is gone, or has been busy for long: the child says what it misses

    def why_failed(self, error: OSError) -> str:
        """How it ended, and what it wrote last; ends it if it has not. For one that did not give a guard."""
        give_up_at = time.monotonic() + _END_SECONDS
        while not isinstance(error, TimeoutError | BlockingIOError) and time.monotonic() < give_up_at:
            if self._has_ended():
                break
            time.sleep(0.02)
        how = "was stopped" if is_stopped(self.pid) else f"did not answer for {ANSWER_SECONDS:g} s"
        if self._status is not None:
            code = os.waitstatus_to_exitcode(self._status)
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        lines = os.pread(self._stderr, _STDERR_BYTES, max(0, os.fstat(self._stderr).st_size - _STDERR_BYTES))
        last = (lines.decode(errors="replace").strip().splitlines() or ["it wrote nothing to its standard error"])[-1]
        return f"{_WHAT} {how}: {last.strip()}"

    def close(self) -> None:
        """End it; its guards end when their own runner lets them go."""
        while not self._has_ended():
            with self._reaping:  # until it is reaped, its pid is nobody else's
                if self._status is None:
                    os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.002)
        with self.asking:  # who waits has noticed by now
            self._socket.close()
            if self._stderr >= 0:
                os.close(self._stderr)
                self._stderr = -1


_zygotes: dict[str, Zygote] = {}
_lock = threading.RLock()  # a worker asks for guards in a thread of its own


def get_zygote(program: str) -> Zygote:
    """This process's zygote for the program: started when first asked for, and again if it is of no use any more.

    This does not wait for its imports; `new_guard` does.
    """
    with _lock:
        zygote = _zygotes.get(program)
        if zygote is not None and not zygote.is_of_use():
            zygote.close()
            zygote = None
        if zygote is None:
            zygote = _zygotes[program] = Zygote(program)
        return zygote


def new_guard(program: str) -> Guard:
    """A guard that is a fork of this process's zygote, or of a new one when that gives none. Raises ZygoteFailed."""
    why = ""
    for _ in range(2):
        try:
            zygote = get_zygote(program)
        except OSError as error:
            raise ZygoteFailed(f"{_WHAT} cannot start: {error}") from error
        with zygote.asking:
            try:
                return zygote.new_guard()
            except OSError as error:
                why = zygote.why_failed(error)
        with _lock:
            zygote.close()
    raise ZygoteFailed(why)


def prepare(program: str, what: Any) -> None:
    """Have this process's zygote prepare for a child. Without one the child says what it misses."""
    with contextlib.suppress(OSError):
        get_zygote(program).prepare(what)


class GuardMaker:
    """Makes guards beside the loop of a worker: a zygote takes seconds to start, and one that hangs takes longer.

    `wake_fd` becomes readable when there is news.
    """

    def __init__(self, program: str, *, retry_seconds: float = 30.0) -> None:
        self.wake_fd, self._write = os.pipe()
        for fd in (self.wake_fd, self._write):
            os.set_blocking(fd, False)
        self._program, self._retry_seconds = program, retry_seconds
        self._made: list[Guard] = []
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._retry_at = 0.0
        self.obstacle = ""  # why there is no guard; empty while nothing is wrong

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def ask(self, number: int) -> None:
        """So many guards are wanted, unless they are being made, or could not be a moment ago."""
        if not self.is_busy and not self._made and time.monotonic() >= self._retry_at:
            self._thread = threading.Thread(target=self._make, args=(number,), name="guards", daemon=True)
            self._thread.start()

    def take(self) -> Guard | None:
        """One that has been made."""
        while self._made:
            guard = self._made.pop()
            if guard.is_current():
                return guard
            guard.close()
        return None

    def _make(self, number: int) -> None:
        try:
            for _ in range(number):
                self._made.append(new_guard(self._program))
            self.obstacle = ""
        except (ZygoteFailed, OSError) as error:
            self.obstacle = str(error)
            self._retry_at = time.monotonic() + self._retry_seconds
        if not self._is_closed:
            os.write(self._write, b"!")

    def close(self) -> None:
        """Let go what nobody has taken. A thread that still waits for a zygote is left to the end of the process."""
        self._is_closed = True
        while self._made:
            self._made.pop().close()


def _seen(path: str) -> list[int]:
    """What tells one version of a file from another."""
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_ino, found.st_mtime_ns, found.st_size]


# The zygote's own side ------------------------------------------------------------------------------------------------
def main(fd: int, name: str) -> NoReturn:
    protect()
    program: Program = importlib.import_module(name)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # the runner decides; without it, the socket closes
    requests = socket.socket(fileno=fd)
    requests.set_inheritable(False)
    for low, high in ((3, fd), (fd + 1, os.sysconf("SC_OPEN_MAX"))):
        os.closerange(low, high)  # what another thread of the runner was just about to give to a guard
    imported = {path: _seen(path) for path in program.preload()}
    gc.collect()
    gc.freeze()  # the collector of a fork writes to no page of what was imported
    while True:
        data, fds, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES, _DESCRIPTORS)
        if not data:
            os._exit(0)
        message = json.loads(data)
        _reap()
        if "guard" in message:
            pid = _fork_guard(requests, fds, program)
            requests.send(json.dumps({"guard": pid, "imported": imported}).encode())
        else:
            program.prepare(message["prepare"])


def _fork_guard(requests: socket.socket, fds: list[int], program: Program) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            requests.close()
            GuardProcess(*fds, program=program.main).serve()
        finally:
            os._exit(70)
    for fd in fds:
        os.close(fd)
    return pid


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
