"""One piece of work on a repository at a time: taking its turn, saying how far it is, and how it ended."""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opendataflow.errors import UsageError
from opendataflow.execution.processes import host_identity, is_alive, start_time
from opendataflow.private_files import make_folder
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.git import OpenTask, beat_task, open_tasks, start_task, take_up

BEAT_SECONDS = 2.0


def is_lost(task: OpenTask, host: str) -> bool:
    """True when the process that did it is gone, as far as can be seen from here."""
    if task.pid is not None and task.host == host:
        return not is_alive(task.pid, task.pid_started or 0)
    return task.is_stale


def lost_tasks(store: LoopStore) -> list[int]:
    """Work whose process is gone."""
    host = host_identity()
    return [one.taskid for one in open_tasks(store) if is_lost(one, host)]


def start_work(taskid: int) -> None:
    """Have a process of its own do the task, found by its number in the same store; it outlives this one."""
    subprocess.Popen(
        [sys.executable, "-P", "-m", "opendataflow.cli.main", "project", "work", str(taskid)], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


class Working:
    """A task while this process does it."""

    def __init__(self, store: LoopStore, taskid: int, say: Callable[[str], None]) -> None:
        self.store, self.taskid, self._say = store, taskid, say
        self._step = self._detail = ""
        self._beaten_at = 0.0

    def wait_for_turn(self, project: str | None) -> None:
        """Until nothing else is done to the project; UsageError when the task is not waiting for anybody."""
        host, me = host_identity(), os.getpid()
        if not take_up(self.store, self.taskid, host=host, pid=me, started=start_time(me) or 0):
            raise UsageError(f"task {self.taskid} is being done by another, or was done")
        told = False
        while True:
            lost = [one.taskid for one in open_tasks(self.store) if one.taskid != self.taskid and is_lost(one, host)]
            other = start_task(self.store, self.taskid, project, lost=lost)
            if other is None:
                return
            if not told:
                self._say(f"{project}: {other.asked_by} has something done to it already; waiting")
                told = True
            self.beat("waits for other work on this project")
            time.sleep(0.2)

    def begin(self, step: str) -> None:
        """The next step, told at once."""
        self._step, self._detail = step, ""
        self._say(f"{step}…")
        self._write()

    def beat(self, detail: str) -> None:
        """Still here; the detail is what the step has come to."""
        self._detail = detail or self._detail
        if time.monotonic() - self._beaten_at > BEAT_SECONDS:
            self._write()

    def _write(self) -> None:
        self._beaten_at = time.monotonic()
        beat_task(self.store, self.taskid, f"{self._step}: {self._detail}" if self._detail else self._step)


@contextmanager
def locked(folder: str, beat: Callable[[str], None]) -> Iterator[None]:
    """Nobody else of this host touches the project's folder meanwhile."""
    make_folder(folder)
    handle = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                beat("waits for another process in its folder")
                time.sleep(0.2)
        yield
    finally:
        os.close(handle)
