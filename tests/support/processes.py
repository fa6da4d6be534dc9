"""Waiting for conditions instead of sleeping, and looking for the processes of a run in /proc."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from opendataflow.execution.processes import ZYGOTE

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, *, seconds: float = 30.0) -> T:
    """The first true value of the condition; fails the test when it does not come in time."""
    give_up = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        assert time.monotonic() < give_up, f"waited {seconds:g} s for: {what}"
        time.sleep(0.01)


def _read(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


def _is_zombie(folder: Path) -> bool:
    return _read(folder / "stat").rpartition(b") ")[2][:1] in (b"Z", b"X", b"")


def processes_with(mark: str) -> list[int]:
    """Living processes whose environment holds this entry (`NAME=value`)."""
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and mark.encode() in _read(folder / "environ").split(b"\0") and not _is_zombie(folder)
    ]


def forks_in(place: Path) -> list[int]:
    """Living zygotes, and forks of them, whose working directory is this folder: forks carry no mark of their own."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and ZYGOTE.encode() in _read(folder / "cmdline").split(b"\0"):
            with contextlib.suppress(OSError):
                if (folder / "cwd").resolve() == place.resolve() and not _is_zombie(folder):
                    found.append(int(folder.name))
    return found


def command_lines() -> bytes:
    """The argument lists of every process of this machine."""
    return b"\n".join(_read(folder / "cmdline") for folder in Path("/proc").iterdir() if folder.name.isdigit())


def is_alive(pid: int) -> bool:
    return not _is_zombie(Path(f"/proc/{pid}"))
