"""What the server has child processes do: commands that load a project's code, one at a time, their output kept."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading

from opendataflow.errors import StoreUnavailable
from opendataflow.store import open_store
from opendataflow.store.requests import end_request

TIMEOUT_SECONDS = 1800.0
_ONE = threading.Lock()


def start(store_url: str, number: int, argv: list[str], *, home: str, environment: str) -> None:
    """Begin a command of ours in the project's folder, for this request; its end is recorded whatever it is."""
    threading.Thread(
        target=_run, args=(store_url, number, argv, home, environment), name=f"request {number}", daemon=True
    ).start()


def _run(store_url: str, number: int, argv: list[str], home: str, environment: str) -> None:
    with _ONE:  # each has a Spark
        code, output = run_command(argv, home=home, environment=environment)
    with contextlib.suppress(StoreUnavailable):
        store = open_store(store_url, actor="server")
        try:
            end_request(store, number, exit_code=code, output=output)
        finally:
            store.close()


def run_command(
    argv: list[str], *, home: str, environment: str, timeout: float = TIMEOUT_SECONDS
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
            code = child.wait(timeout)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            code, told = None, f"\nit took longer than {timeout:g} s and was ended"
        said.seek(0)
        return code, said.read().decode(errors="replace") + told
