"""Processes that attach to a keeper of Spark, and what the kernel says of processes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from opendataflow.spark import keeper_client

_PRELUDE = """
import json, os, sys, time, warnings
warnings.simplefilter("ignore")
from opendataflow.spark.attach import attach
def tell(**facts):
    print(json.dumps(facts), flush=True)
def wait():
    sys.stdin.readline()
settings, run, identity, folder = json.loads(sys.argv[1])
def attached(**more):
    return attach(
        settings, run=run, group=f"run-{run}", identity=identity, folder=folder,
        on_wait=lambda ahead: tell(waiting=ahead), on_jvm_end=lambda end: tell(**end), **more,
    )
"""


class Client:
    """A process that runs some code with `spark`; what the code tells comes as dicts."""

    def __init__(
        self, settings: dict[str, Any], code: str, *, run: str = "1", identity: str = "store/job/day",
        folder: str | None = None, env: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        attach = "" if "attached(" in code else "use = attached(); spark = use.spark; tell(attached=True)\n"
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PRELUDE + attach + textwrap.dedent(code),
             json.dumps([settings, run, identity, folder])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})},
        )  # fmt: skip

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def hear(self, *names: str) -> dict[str, Any]:
        """The next message with one of these names."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if not names or any(name in message for name in names):
                return message
        raise AssertionError(f"the process ended with {self.process.wait()} and told nothing of {names}")

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def find_keeper(folder: str) -> dict[str, Any] | None:
    return next((one for one in keeper_client.list_keepers() if one["folder"] == folder), None)


def get_keeper(folder: str) -> dict[str, Any]:
    found = find_keeper(folder)
    assert found is not None
    return found


def until(is_so: Callable[[], Any], *, seconds: float = 30.0) -> Any:
    """Wait for something to be true, and return it."""
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        if found := is_so():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come true in time")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def count_threads(pid: int, prefix: str) -> int:
    """How many threads of the process have a name that begins so."""
    found = 0
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it has just ended
            found += path.read_text().startswith(prefix)
    return found


def processes_below(folder: str) -> list[int]:
    """The processes that work in this folder: keepers, JVMs, Python workers."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.readlink(entry / "cwd").startswith(f"{folder}/"):
                found.append(int(entry.name))
    return found


@contextlib.contextmanager
def runtime_folder(path: Path) -> Iterator[Path]:
    """A folder for keepers, of which none is left at the end."""
    before = os.environ.get("DATAFLOW_RUNTIME_DIR")
    os.environ["DATAFLOW_RUNTIME_DIR"] = str(path)
    try:
        yield path
    finally:
        for one in list(keeper_client.list_keepers()):
            with contextlib.suppress(OSError):
                keeper_client.stop_keeper(one["folder"], force=True)
        until(lambda: not processes_below(str(path)))
        if before is None:
            del os.environ["DATAFLOW_RUNTIME_DIR"]
        else:
            os.environ["DATAFLOW_RUNTIME_DIR"] = before
