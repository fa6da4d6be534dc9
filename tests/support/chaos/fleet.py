"""The workers of a storm: started, hit, and started again as systemd would."""

import contextlib
import functools
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from support import projects
from support.chaos.plan import GUARD, SCRIPT, TREE, WORKER, Size
from support.processes import is_alive
from support.projects import Project

RESTART_SECONDS = 0.1


class Hit(NamedTuple):
    """A fault that took hold of processes, and when."""

    kind: str  # kill or stop
    whom: str
    worker_pid: int
    pids: tuple[int, ...]
    guards: tuple[int, ...]  # those of them that are guards
    at: float


@functools.cache
def can_be_other_hosts() -> bool:
    """True when a worker can be given a host name of its own here."""
    return subprocess.run(["unshare", "--uts", "true"], capture_output=True).returncode == 0


class Member:
    """One worker that is always started again."""

    def __init__(self, project: Project, number: int, slots: int, *, store: str, host: str | None) -> None:
        self._project, self.number, self._slots, self._store, self._host = project, number, slots, store, host
        self.log = project.folder / f"worker{number}.log"
        self.pids: list[int] = []
        self.ended_by_itself: list[str] = []
        self._expected = False
        self._again_at = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        argv = [projects.DATAFLOW, "worker", "--slots", str(self._slots), "--grace", "20"]
        if self._host is not None:
            argv = ["unshare", "--uts", "sh", "-c", 'hostname "$1" && shift && exec "$@"', "sh", self._host, *argv]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                argv,
                cwd=self._project.folder,
                env=self._project.env(DATAFLOW_STORE=self._store),
                stdout=log,
                stderr=log,
            )
        self.pids.append(self.process.pid)
        self._expected = False

    def tend(self) -> None:
        """Start it again when it has ended; what ended without being hit is noted."""
        if self.process is not None and self.process.poll() is not None:
            # 75: the store was away when it began; whatever starts services tries again.
            if not self._expected and self.process.returncode != 75:
                tail = self.log.read_text(errors="replace")[-1500:]
                self.ended_by_itself.append(f"worker {self.number} exited {self.process.returncode}: {tail}")
            self.process = None
            self._again_at = time.monotonic() + RESTART_SECONDS
        if self.process is None and time.monotonic() >= self._again_at:
            self.start()

    # Its processes ------------------------------------------------------------------------------------------------
    @property
    def guards(self) -> list[int]:
        return children_of(self.process.pid) if self.process is not None else []

    @property
    def scripts(self) -> list[int]:
        return [script for guard in self.guards for script in children_of(guard)]

    def targets(self, whom: str) -> list[tuple[int, ...]]:
        """What a fault of this kind could hit here: processes that go together."""
        if self.process is None:
            return []
        if whom == WORKER:
            return [(self.process.pid,)]
        if whom == TREE:
            return [(self.process.pid, *self.guards)]
        return [(pid,) for pid in {GUARD: self.guards, SCRIPT: self.scripts}[whom]]

    def hit(self, kind: str, whom: str, pids: tuple[int, ...]) -> Hit | None:
        """Send the signal to all of them; None when they had ended before it came."""
        guards = tuple(self.guards)
        number = signal.SIGKILL if kind == "kill" else signal.SIGSTOP
        worker = self.process.pid if self.process is not None else 0
        at = time.time()
        reached = [pid for pid in pids if _send(pid, number)]
        if kind == "kill" and worker in reached:
            self._expected = True
        return Hit(kind, whom, worker, tuple(reached), guards, at) if reached else None

    def stop(self, *, seconds: float) -> str:
        """Tell it to go, and say what was wrong with how it went."""
        if self.process is None:
            return ""
        self.process.terminate()
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"worker {self.number} did not end within {seconds:g} s of SIGTERM"
        return "" if code == 0 else f"worker {self.number} exited {code} when it was told to stop"

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()


class Fleet:
    def __init__(self, project: Project, size: Size, *, stores: list[str]) -> None:
        others = can_be_other_hosts()
        self.members = [
            Member(project, number, slots, store=store, host=f"host{number}" if others and number > 2 else None)
            for number, (slots, store) in enumerate(zip(size.slots, stores, strict=True), 1)
        ]
        self.hosts = 1 + (len(self.members) > 2 and others) * (len(self.members) - 2)

    def tend(self) -> None:
        for member in self.members:
            member.tend()

    def hit(self, kind: str, whom: str, pick: float) -> Hit | None:
        """Hit one of those that are there; None when there is none just now."""
        found = [(member, pids) for member in self.members for pids in member.targets(whom)]
        if not found:
            return None
        member, pids = found[int(pick * len(found))]
        return member.hit(kind, whom, pids)

    @property
    def pids(self) -> set[int]:
        return {pid for member in self.members for pid in member.pids}

    def stop(self, *, seconds: float = 40.0) -> list[str]:
        """Tell all of them to go; what was wrong with how they went."""
        for member in self.members:
            member.tend()
        return [problem for member in self.members if (problem := member.stop(seconds=seconds))]

    def kill(self) -> None:
        for member in self.members:
            member.kill()


def go_on(hit: Hit) -> None:
    for pid in hit.pids:
        _send(pid, signal.SIGCONT)


def children_of(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split() if is_alive(int(one))]
    return []


def _send(pid: int, number: int) -> bool:
    if not is_alive(pid):
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
