"""One chunk in one Python task of Spark: a forked child runs the chain, so that whatever becomes of it stays its own.

`sys.exit`, a segmentation fault, a hang and too much memory end the child; the worker, its executor and the other
chunks of the job go on. Stands alone but for its neighbours that do too: OpenDataFlow need not be on the executors.
"""

import codecs
import contextlib
import faulthandler
import json
import os
import re
import resource
import select
import signal
import sys
import time
from typing import Any

from opendataflow.spark.kept import Kept
from opendataflow.spark.pandas_chain import printer, run_chain, teller
from opendataflow.spark.pandas_files import DataError
from opendataflow.spark.pandas_room import WAY_OUT, in_bytes, number_in, require_room
from opendataflow.spark.pandas_write import remove_leftover

_PR_SET_PDEATHSIG = 1
_WHERE = signal.SIGUSR2  # asks the child which line it is at


def run_task(chunk: dict[str, Any], codes: list[dict[str, str]]) -> dict[str, Any]:
    """Produce the chunk and say what came of it; nothing that the chunk's code does is an error of the task."""
    chunk = {**chunk, "attempt": f"{chunk['runid']}-{os.urandom(4).hex()}"}
    watch = _Watch(chunk, codes)
    try:
        require_room(chunk)
        _require_pandas()
        try:
            watch.run()
        finally:
            remove_leftover(chunk["destination"], chunk["attempt"])
    except Exception as error:  # noqa: BLE001  one chunk must not fail the job of all
        text = str(error) if isinstance(error, DataError) else f"{type(error).__name__}: {error}"
        watch.fail(text)
    return watch.result()


def _require_pandas() -> None:
    """Import it before the fork, and report here what is missing."""
    try:
        import pandas  # noqa: F401
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise DataError(
            f"pandas cannot be imported by {sys.executable} on {os.uname().nodename}: {error}; install it there"
        ) from error


# The child --------------------------------------------------------------------------------------------------------
def _child(chunk: dict[str, Any], codes: list[dict[str, str]], parent: int, events: int, outputs: list[int]) -> bool:
    """Become a process of its own: it dies with its parent, alone, within its memory, and prints into the pipes."""
    import ctypes

    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return False  # it died before it could be watched
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    print_to = printer(outputs)
    print_to(None)
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    faulthandler.enable(file=2, all_threads=False)
    faulthandler.register(_WHERE, file=2, all_threads=False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_memory(chunk["memory_limit"])
    return run_chain(chunk, codes, teller(events), print_to)


def _limit_memory(limit: int | None) -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # if the machine runs out, let it be this process and not the executor
    if limit:
        # On top of what the interpreter and its libraries have: the user's data is what is limited.
        most = int(number_in("/proc/self/status", r"VmData:\s+(\d+)", 1024)) + limit
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


# Its parent -------------------------------------------------------------------------------------------------------
class _Watch:
    """Follows one child to its end and knows, whatever the end is, how far each transformation got."""

    def __init__(self, chunk: dict[str, Any], codes: list[dict[str, str]]) -> None:
        self._chunk, self._codes = chunk, codes
        self._status = ["PENDING"] * len(codes)
        self._told: list[dict[str, Any]] = [{} for _ in codes]
        self._output = [Kept() for _ in range(len(codes) + 1)]  # the last one is of no transformation
        self._decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in self._output]
        self._step: int | None = None
        self._written: dict[str, Any] | None = None
        self._error: dict[str, Any] | None = None
        self._unread = b""

    def run(self) -> None:
        pipes = [os.pipe() for _ in range(len(self._codes) + 2)]  # of each transformation, of none, of events
        *outputs, events = (writer for _, writer in pipes)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # or the child would print what is ours
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if _child(self._chunk, self._codes, parent, events, outputs) else 1
            finally:
                os._exit(code)  # never back into Spark's worker, of which this is a copy
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        for reader, writer in pipes:
            os.close(writer)
            os.set_blocking(reader, False)
        readers = [reader for reader, _ in pipes]
        try:
            self._ended(*self._follow(pid, readers))
        finally:
            for reader in readers:
                os.close(reader)

    def _follow(self, pid: int, readers: list[int]) -> tuple[int, bool]:
        """Read until the child has ended, then end whatever it started; its exit code, and whether it was too slow."""
        limit = self._chunk["timeout_seconds"]
        deadline = time.monotonic() + limit if limit else None
        late, is_open = False, dict(enumerate(readers))
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            ready, _, _ = select.select(is_open.values(), [], [], 0.1 if is_open else 0.005)
            is_open = {n: pipe for n, pipe in is_open.items() if pipe not in ready or self._read(n, pipe)}
            if deadline is not None and time.monotonic() > deadline and not late:
                late = True
                os.kill(pid, _WHERE)
                time.sleep(0.2)  # it writes the line it is at
                os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)  # what it started and left behind
        _, status = os.waitpid(pid, 0)
        for number, pipe in is_open.items():
            self._read(number, pipe)
        return os.waitstatus_to_exitcode(status), late

    def _read(self, number: int, pipe: int) -> bool:
        """Take what is there; False at its end."""
        while True:
            try:
                data = os.read(pipe, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            if number <= len(self._codes):
                self._output[number].add(self._decoders[number].decode(data))
                continue
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        step = event.pop("step", None)
        match event.pop("event"):
            case "load" | "begin" as kind:
                self._step = step
                self._status[step] = "RUNNING"
                if kind == "load" and step:
                    self._status[step - 1] = "PENDING"
            case "loaded":
                self._status = ["PENDING"] * len(self._codes)
                self._step = None
            case "end":
                self._status[step], self._told[step], self._step = "DONE", event, None
            case "written":
                self._written = event
            case "error":
                self._step = step
                self._error = event

    def _ended(self, code: int, late: bool) -> None:
        """Make a sentence of an end that the child could not tell itself."""
        if self._error is not None:
            told = self._error["error"]
            more = f": {self._memory()}" if "MemoryError" in told or "out of memory" in told else ""
            self.fail(told + more, self._error["traceback"])
        elif late:
            self.fail(f"{self._place()}not done after {self._chunk['timeout_seconds']:g} s, and ended")
        elif code < 0:
            told = f"{self._place()}its process was ended by {signal.Signals(-code).name}"
            if -code in (signal.SIGKILL, signal.SIGABRT):
                told += f", probably for want of memory: {self._memory()}"
            self.fail(told)
        elif self._written is None:
            self.fail(f"{self._place()}the code ended its interpreter: exit code {code}")

    def _memory(self) -> str:
        limit = self._chunk["memory_limit"]
        most = f"the task may take {in_bytes(limit)}; " if limit else ""
        return f"{most}{WAY_OUT}"

    def _place(self) -> str:
        """The line of the user's code that the child's last words name, or the file of the transformation."""
        if self._step is None:
            return ""
        inside = re.escape(self._chunk["home"].rstrip("/") + "/")
        text = self._output[self._step].text
        last = text.rpartition("(most recent call first)")[2]
        found = re.search(rf'File "{inside}([^"\n]+)", line (\d+)', last) if last != text else None
        return f"{found[1]}:{found[2]}: " if found else f"{self._codes[self._step]['shown']}: "

    def fail(self, sentence: str, traceback: str = "") -> None:
        self._written = None
        self._error = {"error": sentence, "traceback": traceback}
        if self._step is not None:
            self._status[self._step] = "ERROR"
            self._told[self._step] = {"error": traceback + sentence}

    def result(self) -> dict[str, Any]:
        steps = [
            {
                "position": number + 1,
                "name": code["name"],
                "digest": code["digest"],
                "status": self._status[number],
                "output": self._output[number].text,
                "error": self._told[number].get("error", ""),
                "rows": self._told[number].get("rows"),
                "seconds": self._told[number].get("seconds"),
            }
            for number, code in enumerate(self._codes)
        ]
        error = self._error or {}
        return {
            "runid": self._chunk["runid"],
            "rows": None,
            "schema": None,
            "aside": [],
            **(self._written or {}),
            "steps": steps,
            "output": self._output[-1].text,
            "error": error.get("error"),
            "traceback": error.get("traceback", ""),
        }
