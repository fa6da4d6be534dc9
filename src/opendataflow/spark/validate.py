"""Validation: cases given to a process that forks one for each of them, and their outcomes.

The user's code may exit, hang, crash or flood its output: that fails its own case, and the next ones get a new process
to fork from. Each case has a session of its own on the warm driver.
"""

import codecs
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from opendataflow.domain.runs.child_json import read_json
from opendataflow.domain.variables import without_platform_variables
from opendataflow.extras import require
from opendataflow.spark.cases import Case, find_cases
from opendataflow.spark.kept import Kept
from opendataflow.spark.outcome import FAILED, Outcome, outcome_from

TIMEOUT_SECONDS = 300.0
CHILD = "opendataflow.spark.validate_child"
WHERE = signal.SIGUSR2  # asks the child which line it is at
_START_SECONDS = 300.0  # for Python to load PySpark, and for Spark to start
_END_SECONDS = 20.0
_WHERE_SECONDS = 2.0
_THREAD = re.compile(r"^(?:Stack|Current thread 0x\w+) [^\n]*most recent call first\):\n", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>[^"\n]+)", line (?P<line>\d+) in ', re.MULTILINE)


def validate(
    home: str, *wanted: str, environment: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS
) -> list[Outcome]:
    """Run every transformation of the project in `home`, or those that are named, on its expected inputs."""
    with Validation(timeout_seconds=timeout_seconds) as validation:
        return list(validation.run_all(find_cases(home, wanted, environment=environment)))


class Validation:
    """Runs cases; its process is started for the first one and ends with it."""

    def __init__(self, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        require("pyspark", "pyarrow", "pandas")
        self._timeout = timeout_seconds
        self._child: _Child | None = None

    def __enter__(self) -> "Validation":
        return self

    def __exit__(self, error: type[BaseException] | None, *_rest: object) -> None:
        if self._child is not None:
            self._child.end(at_once=error is not None)
            self._child = None

    def run_all(self, cases: Sequence[Case]) -> Iterator[Outcome]:
        for case in cases:
            yield self.run(case)

    def run(self, case: Case) -> Outcome:
        """The case's outcome, whatever its code does."""
        if self._child is not None and not self._child.serves(case):
            self._child.end()
            self._child = None
        was_there = self._child is not None
        child = self._child = self._child or _Child(case)
        outcome = child.run(case, self._timeout)
        if not child.is_alive:
            self._child = None
            if was_there and not child.has_begun:  # it ended after an earlier case: no fault of this one
                return self.run(case)
        return outcome


class _Child:
    """One process for many cases, with its answers and what it prints."""

    def __init__(self, case: Case) -> None:
        self._home, self._conf = case.home, case.conf
        self._answers, theirs = os.pipe()
        self._output, printed = os.pipe()
        kept = without_platform_variables(os.environ)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", CHILD, str(theirs)],
                cwd=case.home,
                env={**kept, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"},
                stdin=subprocess.PIPE, stdout=printed, stderr=printed, pass_fds=[theirs], start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(theirs)
            os.close(printed)
        for fd in (self._answers, self._output):
            os.set_blocking(fd, False)
        self._buffer = b""
        self._printed = _Printed()
        self.is_alive = True
        self.has_begun = False  # the case that it has now

    def serves(self, case: Case) -> bool:
        """Whether the case belongs to the same project, with the same settings of Spark."""
        return (case.home, case.conf) == (self._home, self._conf)

    def run(self, case: Case, timeout_seconds: float) -> Outcome:
        self._printed = _Printed()
        self.has_begun = False
        began = time.monotonic()
        deadline = began + _START_SECONDS
        self._tell(case)
        while time.monotonic() < deadline:
            for answer in self._wait(min(1.0, deadline - time.monotonic())):
                match answer["event"]:
                    case "done":
                        self._read_output(seconds=1.0)
                        return replace(outcome_from(answer["outcome"]), output=self._printed.text)
                    case "running":
                        self.has_begun = True
                        began = time.monotonic()
                        deadline = began + timeout_seconds
                    case "starting":
                        deadline = time.monotonic() + _START_SECONDS
            if self._has_exited():
                return self._died(case, time.monotonic() - began)
        return self._timed_out(case, time.monotonic() - began)

    def end(self, *, at_once: bool = False) -> None:
        """Let it stop Spark and go, or, `at_once`, kill it with all it has started."""
        if self.is_alive:
            self._close_input()
            try:
                self._process.wait(0 if at_once else _END_SECONDS)
                self._close()
            except subprocess.TimeoutExpired:
                self._kill()

    # Ends that no case wants --------------------------------------------------------------------------------------
    def _died(self, case: Case, seconds: float) -> Outcome:
        self._read_output(seconds=1.0)
        code = self._kill()
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"was ended, with exit code {code}"
        return self._failed(case, f"{case.file}: the process it ran in {how}", seconds)

    def _timed_out(self, case: Case, seconds: float) -> Outcome:
        place = self._find_place(case)
        self._kill()
        told = f"{place or case.file}: did not end within {seconds:.0f} s; `--timeout` allows more"
        return self._failed(case, told, seconds)

    def _find_place(self, case: Case) -> str | None:
        """File and line of the user's code where it is now; the child tells by its stderr."""
        try:
            os.kill(self._process.pid, WHERE)
        except ProcessLookupError:
            return None
        give_up_at = time.monotonic() + _WHERE_SECONDS
        while time.monotonic() < give_up_at:
            self._wait(0.1)
            before, told = self._printed.split()
            for frame in _FRAME.finditer(told):
                if frame["file"].startswith(f"{case.home}/{case.file.partition('/')[0]}/"):
                    self._printed = _Printed(before)
                    return f"{os.path.relpath(frame['file'], case.home)}:{frame['line']}"
        return None

    def _failed(self, case: Case, message: str, seconds: float) -> Outcome:
        return Outcome(
            id=case.id, file=case.file, status=FAILED, message=message, output=self._printed.text,
            seconds=round(seconds, 3),
        )  # fmt: skip

    # The process --------------------------------------------------------------------------------------------------
    def _tell(self, case: Case) -> None:
        stdin = self._process.stdin
        if stdin is None:
            raise TypeError("the child has no input")
        try:
            stdin.write(json.dumps(asdict(case)).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:  # it died since its last case; that is seen by who waits for it
            pass

    def _wait(self, seconds: float) -> list[dict[str, Any]]:
        """The answers that came, after so long at most; what was printed meanwhile is kept."""
        readable, _, _ = select.select([self._answers, self._output], [], [], max(0.0, seconds))
        if self._output in readable:
            self._read_output()
        if self._answers in readable:
            data = _read(self._answers)
            if not data:
                time.sleep(0.02)  # closed: it is about to end
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        return [read_json(line) for line in lines]

    def _read_output(self, *, seconds: float = 0.0) -> None:
        """What is there now. It all came before the answer that was read last; but a thread may go on printing."""
        give_up_at = time.monotonic() + seconds
        while data := _read(self._output):
            self._printed.add(data)
            if time.monotonic() >= give_up_at:
                return

    def _has_exited(self) -> bool:
        """Asked without taking its end: its group keeps its number until then."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _kill(self) -> int:
        """End it with all it has started; its exit code."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        code = self._process.wait()
        self._close_input()
        self._close()
        return code

    def _close_input(self) -> None:
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
        except BrokenPipeError:
            pass

    def _close(self) -> None:
        self.is_alive = False
        os.close(self._answers)
        os.close(self._output)


class _Printed:
    """What the code printed, of a bounded size."""

    def __init__(self, text: str = "") -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = Kept()
        self._kept.add(text)

    def add(self, data: bytes) -> None:
        self._kept.add(self._decoder.decode(data))

    @property
    def text(self) -> str:
        return self._kept.text

    def split(self) -> tuple[str, str]:
        """What was printed before the last account of a thread, and that account."""
        text = self.text
        found = [*_THREAD.finditer(text)]
        return (text[: found[-1].start()], text[found[-1].start() :]) if found else (text, "")


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65_536)
    except BlockingIOError:
        return b""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
