"""Whoever is there watches: a thread beside a worker or the server, or one look at the end of a tick.

The thread has a connection to the store of its own, and sending is done by another process: neither can hold up a run.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable

from opendataflow.alerts.find import Pauses, look
from opendataflow.domain.job import Job
from opendataflow.errors import DataflowError
from opendataflow.project.address import Address
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.alerts import list_notified

IDLE_SECONDS = 15.0  # between two questions whether anything has changed
REGISTRY_SECONDS = 60.0  # between two looks at who tells whom
LINGER_SECONDS = 15.0  # a sender beside us stays so long for what comes next
LAST_LINGER_SECONDS = 180.0  # one that stays behind when we go: longer than a message is gathered
CLOSE_SECONDS = 10.0

Say = Callable[[str], None]


def tells_somebody(jobs: Iterable[Job]) -> bool:
    return any(job.definition.get("notify") for job in jobs)


class Watch:
    """Looks again and again, and starts a sender when a message is due."""

    def __init__(self, open_store: Callable[[], LoopStore], address: Address, *, say: Say) -> None:
        self._open, self._address, self._say = open_store, address, say
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._sender: subprocess.Popen[bytes] | None = None
        self._told = ""

    def start(self) -> None:
        """From now on; once is enough."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Look once more, leave what is to be sent to a process that stays behind, and stop."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        store: LoopStore | None = None
        jobs_at, jobs = float("-inf"), {}
        while True:
            is_last = self._stop.is_set()
            pause = IDLE_SECONDS
            try:
                store = store or self._open()
                if is_last or time.monotonic() >= jobs_at + REGISTRY_SECONDS:
                    jobs, jobs_at = list_notified(store), time.monotonic()
                at = look(store, jobs=jobs, whatever=is_last)
                self._told = ""
                pause = _pause(Pauses(jobs), at.message_in, at.history_end != at.history_upto)
                if at.message_in is not None and at.message_in <= (LAST_LINGER_SECONDS if is_last else 0.0):
                    self._send(LAST_LINGER_SECONDS if is_last else LINGER_SECONDS)
            except Exception as error:  # noqa: BLE001  whatever it is: without this thread nobody is told of anything
                _let_go(store)
                store = None
                told = str(error) if isinstance(error, DataflowError) else f"{type(error).__name__}: {error}"
                if told != self._told:
                    self._told = told
                    self._say(f"alerts: {told}")
            if is_last:
                _let_go(store)
                return
            self._stop.wait(pause)

    def _send(self, linger: float) -> None:
        if self._sender is not None and self._sender.poll() is None:
            return
        self._sender = start_sender(self._address, linger=linger)


def _let_go(store: LoopStore | None) -> None:
    if store is not None:
        with contextlib.suppress(DataflowError):
            store.close()


def _pause(pauses: Pauses, message_in: float | None, has_more: bool) -> float:
    wanted = pauses.look if has_more or message_in is not None else min(IDLE_SECONDS, pauses.clock)
    return max(0.2, min(wanted, message_in)) if message_in is not None and message_in > 0 else wanted


def start_sender(address: Address, *, linger: float) -> subprocess.Popen[bytes]:
    """A process that sends what is due; it outlives us, and no signal to us reaches it."""
    argv = [sys.executable, "-P", "-m", "opendataflow.alerts.send"]
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        cwd=address.home if address.home and os.path.isdir(address.home) else None,
    )  # fmt: skip
    # Not among the arguments: everybody can read those, and the store's address may hold a password.
    given = json.dumps(
        {"store": address.store, "project": address.project, "here": address.here, "linger": linger}
    ).encode()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.write(given)
            process.stdin.close()
    return process


def look_once(store: LoopStore, address: Address) -> None:
    """For one who does not stay: look, and leave what is to be told to a process that sends it and ends."""
    jobs = list_notified(store)
    if not jobs:
        return
    at = look(store, jobs=jobs, whatever=True)
    if at.message_in is not None and at.message_in <= LAST_LINGER_SECONDS:
        start_sender(address, linger=LAST_LINGER_SECONDS)
