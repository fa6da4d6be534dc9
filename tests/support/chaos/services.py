"""Processes that are always started again when they end, as systemd would: a server, the runner of a stream."""

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from support.processes import is_alive
from support.projects import Project

RESTART_SECONDS = 0.1


class StreamHit(NamedTuple):
    """A fault that took hold, and when."""

    whom: str
    pids: tuple[int, ...]
    at: float


class Service:
    def __init__(self, project: Project, name: str, argv: list[str], *, stops_with: int, env: dict[str, str]) -> None:
        """It is to exit with `stops_with` when it is told to stop."""
        self._project, self.name, self._argv, self._env = project, name, argv, env
        self._stops_with = stops_with
        self.log = project.folder / f"{name}.log"
        self.starts = 0
        self.ended_by_itself: list[str] = []
        self.is_hit = False  # its next end is nobody's fault
        self._again_at = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        self._start()

    def _start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._argv, cwd=self._project.folder, env=self._project.env(**self._env), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log,
            )  # fmt: skip
        self.starts += 1
        self.is_hit = False

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    def tend(self) -> None:
        """Start it again when it has ended; what ended without being hit is noted."""
        if self.process is not None and self.process.poll() is not None:
            if not self.is_hit:
                self.ended_by_itself.append(f"{self.name} exited {self.process.returncode}: {self.said[-1500:]}")
            self.process = None
            self._again_at = time.monotonic() + RESTART_SECONDS
        if self.process is None and time.monotonic() >= self._again_at:
            self._start()

    def stop(self, *, seconds: float = 60.0) -> list[str]:
        """Tell it to go, and say what was wrong with how it went."""
        self.tend()
        if self.process is None:
            return []
        self.process.terminate()
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return [f"{self.name} did not end within {seconds:g} s of SIGTERM"]
        return [] if code == self._stops_with else [f"{self.name} exited {code} when it was told to stop"]

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")


def processes_in(folder: Path) -> list[int]:
    """Living processes that work in this folder."""
    numbers = [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit()]
    return [pid for pid in numbers if _folder_of(pid) == str(folder) and is_alive(pid)]


def _folder_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/cwd")
    return ""
