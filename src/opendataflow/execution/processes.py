"""Processes of this machine: who we are, who is still alive, and killing a tree for good."""

import os
import signal
import time

from opendataflow.own_process import prctl

TYPE_CHECKING = False
if TYPE_CHECKING:  # a guard is as small as can be
    from collections.abc import Callable

WITH_PARENT = "DATAFLOW_WITH_PARENT"  # the pid of a worker that its pipeline's process must not outlive
ZYGOTE = "opendataflow.execution.zygote"  # the program of which pipelines' guards and children are forks
_PR_SET_PDEATHSIG = 1
_SESSION_FIELD = 3  # of /proc/<pid>/stat after the command's name
_TICKS_FIELD = 19  # of /proc/<pid>/stat after the command's name: when the process started


def host_identity() -> str:
    """This machine, boot and pid namespace: only within it does a pid mean what it says."""
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        boot = file.read().strip()[:8]
    namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    return f"{os.uname().nodename}/{boot}/{namespace}"


def _stat(pid: int | str) -> list[str] | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(") ")[2].split()
    except OSError:
        return None


def start_time(pid: int) -> int | None:
    """When the process started, in ticks since boot; with the pid it names one process for ever."""
    fields = _stat(pid)
    return int(fields[_TICKS_FIELD]) if fields else None


def is_alive(pid: int, started: int) -> bool:
    """True while this very process runs; a zombie has ended."""
    fields = _stat(pid)
    return fields is not None and int(fields[_TICKS_FIELD]) == started and fields[0] != "Z"


def is_stopped(pid: int) -> bool:
    """True while the process does nothing because of SIGSTOP, SIGTSTP or a debugger."""
    fields = _stat(pid)
    return fields is not None and fields[0] in "Tt"


def descendants(pid: int) -> list[int]:
    """Every living process below this one, by one look at /proc."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = _stat(entry)
            if fields and fields[0] != "Z":
                children.setdefault(int(fields[1]), []).append(int(entry))
    found, open_ = [], [pid]
    while open_:
        below = children.get(open_.pop(), [])
        found += below
        open_ += below
    return found


def kill_tree(root: int) -> None:
    """Kill everything below the process, again until nothing new appears; the root itself stays."""
    for _ in range(100):
        below = descendants(root)
        if not below:
            return
        for pid in below:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.005)


def kill_marked(mark: bytes, *, spare: int) -> list[int]:
    """Kill every process whose environment holds the mark: what escaped its guard still carries its run's name."""
    return _kill_those(lambda pid: pid != spare and mark in _entries(pid, "environ"))


def kill_forks(session: int, program: bytes) -> list[int]:
    """Kill every process of this session whose command line names the program: forks carry no mark of their own."""

    def is_fork(pid: int) -> bool:
        fields = _stat(pid)
        return fields is not None and int(fields[_SESSION_FIELD]) == session and program in _entries(pid, "cmdline")

    return _kill_those(is_fork)


def _kill_those(are_meant: "Callable[[int], bool]") -> list[int]:
    killed = []
    for pid in [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]:
        try:
            handle = os.pidfd_open(pid)  # from here on the pid cannot come to mean another process
        except OSError:
            continue
        try:
            if are_meant(pid):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                killed.append(pid)
        except OSError:
            pass
        finally:
            os.close(handle)
    return killed


def _entries(pid: int, file: str) -> list[bytes]:
    with open(f"/proc/{pid}/{file}", "rb") as opened:
        return opened.read().split(b"\0")


def end_with_parent() -> None:
    """When the worker that started this process is gone, it gets SIGTERM: so it hands its work back."""
    parent = os.environ.pop(WITH_PARENT, None)
    if parent is None:
        return
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGTERM)
