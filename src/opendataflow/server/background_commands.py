"""What the server has child processes do: commands that load a project's code, one at a time, their output kept."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

from opendataflow.errors import StoreUnavailable
from opendataflow.store import open_store
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.requests import LOST_SECONDS, beat_request, end_request

TIMEOUT_SECONDS = 1800.0
BEAT_SECONDS = LOST_SECONDS / 6
_ONE = threading.Lock()


def start(store_url: str, number: int, argv: list[str], *, home: str, environment: str) -> None:
    """Begin a command of ours in the project's folder, for this request; its end is recorded whatever it is."""
    threading.Thread(
        target=_run, args=(store_url, number, argv, home, environment), name=f"request {number}", daemon=True
    ).start()


def _run(store_url: str, number: int, argv: list[str], home: str, environment: str) -> None:
    def beat() -> None:
        _tell(store_url, lambda store: beat_request(store, number))

    while not _ONE.acquire(timeout=BEAT_SECONDS):  # each has a Spark
        beat()
    try:
        beat()
        code, output = run_command(argv, home=home, environment=environment, beat=beat)
    finally:
        _ONE.release()
    _tell(store_url, lambda store: end_request(store, number, exit_code=code, output=output))


def _tell(store_url: str, what: Callable[[LoopStore], None]) -> None:
    """Where the store is away nobody hears of it; the request is then taken for lost."""
    with contextlib.suppress(StoreUnavailable):
        store = open_store(store_url, actor="server")
        try:
            what(store)
        finally:
            store.close()


def run_command(
    argv: list[str], *, home: str, environment: str, beat: Callable[[], None], timeout: float = TIMEOUT_SECONDS
) -> tuple[int | None, str]:
    """A `dataflow` command to its end: exit code (None: it could not be run, or took too long) and what it said."""
    variables = {**os.environ, "NO_COLOR": "1"} | ({"DATAFLOW_ENV": environment} if environment else {})
    with tempfile.TemporaryFile() as said:
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "opendataflow.cli.main", *argv], cwd=home, env=variables,
                stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return None, f"it could not be started in {home}: {error}"
        told = ""
        code: int | None
        try:
            code = _end_of(child, timeout, beat)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            code, told = None, f"\nit took longer than {timeout:g} s and was ended"
        said.seek(0)
        return code, said.read().decode(errors="replace") + told


def _end_of(child: "subprocess.Popen[bytes]", seconds: float, beat: Callable[[], None]) -> int:
    """Its exit code; TimeoutExpired when it takes longer. Meanwhile it is told that somebody is there."""
    give_up = time.monotonic() + seconds
    while True:
        left = max(give_up - time.monotonic(), 0.0)
        try:
            return child.wait(min(left, BEAT_SECONDS))
        except subprocess.TimeoutExpired:
            if left <= BEAT_SECONDS:
                raise
            beat()
