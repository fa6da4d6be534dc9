"""Sends the messages that are due, and ends: a process of its own, so that no address that hangs delays a run.

It is told where the store is on its standard input. Each message is sent in a thread with a limit of time; what does
not go is tried again, later and later.
"""

import json
import logging
import os
import queue
import sys
import threading
import time
import warnings
from typing import Any, NamedTuple

from opendataflow.alerts.wording import Words, words
from opendataflow.domain.variables import is_platform_variable
from opendataflow.errors import ConfigurationError, DataflowError, StoreUnavailable
from opendataflow.own_process import protect
from opendataflow.project.notify_address import masked, read_address
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.alert_messages import Message, claim_message, mark_failed, mark_sent
from opendataflow.store.records.alerts import watched
from opendataflow.store.records.sources import find_home

SEND_SECONDS = 60.0
AT_ONCE = 4
STEP_SECONDS = 0.2
AWAY_SECONDS = 60.0  # while the store is away, for so long
MISSING = "apprise is missing; pip install 'opendataflow[alerts]'"


class _Lines(logging.Handler):
    """Keeps what apprise says in one thread: it is the only one who knows why it did not go."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.lines.append(record.getMessage())


def send(address: str, text: Words) -> str:
    """Send it now; empty when it went, or why not, without any part of the address."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import apprise
    except ImportError:
        return MISSING
    logger, said = logging.getLogger("apprise"), _Lines()
    logger.propagate = False
    logger.addHandler(said)
    scheme = address.partition("://")[0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            to = apprise.Apprise.instantiate(address)
            if to is None:
                return f"the {scheme}:// address is not one that apprise can send to; see its documentation"
            to.notify_format = apprise.NotifyFormat.TEXT
            # Not by a list of services: that sends in a thread of its own, and nobody says why it did not go.
            went = to.notify(title=text.title, body=text.body, notify_type=apprise.NotifyType.INFO)
    except Exception as error:  # noqa: BLE001  whatever a plugin raises, the message did not go
        return f"{scheme}://: {type(error).__name__}: {masked(str(error), address)}"
    finally:
        logger.removeHandler(said)
    if went:
        return ""
    return f"{scheme}://: " + ("; ".join(masked(line, address) for line in said.lines) or "it was not taken")


def send_within(address: str, text: Words, seconds: float = SEND_SECONDS) -> str:
    """The same, but for no longer than so."""
    told: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: told.put(send(address, text)), daemon=True).start()
    try:
        return told.get(timeout=seconds)
    except queue.Empty:
        return f"{address.partition('://')[0]}://: no answer within {seconds:g} s"


class _Done(NamedTuple):
    message: Message
    text: Words
    error: str


class Sender:
    """Sends what is due; several at a time, as one that hangs must not keep the others waiting."""

    def __init__(self, store: LoopStore, *, name: str, project: str | None, linger: float) -> None:
        self._store, self._name, self._project = store, name, project
        self._done: queue.Queue[_Done] = queue.Queue()
        self._running = 0
        self._until = time.monotonic() + linger

    def run(self) -> None:
        """Until nothing is due any more within the time to linger."""
        while True:
            message = claim_message(self._store, self._name, project=self._project) if self._running < AT_ONCE else None
            if message is not None:
                self._begin(message)
                continue
            if self._running:
                self._take(STEP_SECONDS)
                continue
            left = watched(self._store).message_in
            if left is None or time.monotonic() + left > self._until:
                return
            time.sleep(min(max(left, STEP_SECONDS), 1.0))

    def _begin(self, message: Message) -> None:
        self._running += 1
        text = words(self._store, message.project, message.messageid)
        home = find_home(self._store, message.project)
        try:
            if home is None:
                raise ConfigurationError(f"project {message.project} is not registered any more")
            address = read_address(home, message.place)
        except DataflowError as error:
            self._done.put(_Done(message, text, str(error)))
            return
        threading.Thread(
            target=lambda: self._done.put(_Done(message, text, send_within(address, text))), daemon=True
        ).start()

    def _take(self, seconds: float) -> None:
        try:
            message, text, error = self._done.get(timeout=seconds)
        except queue.Empty:
            return
        self._running -= 1
        if error:
            mark_failed(self._store, message, self._name, error=error, title=text.title, body=text.body)
        else:
            mark_sent(self._store, message, self._name, title=text.title, body=text.body)


def main() -> int:
    from opendataflow.execution.session import own_name
    from opendataflow.store import open_store

    given: dict[str, Any] = json.loads(sys.stdin.read())
    name = f"{own_name()} sender"
    give_up = time.monotonic() + AWAY_SECONDS
    while True:
        try:
            store = open_store(given["store"], actor=name, here=tuple(given["here"]) if given.get("here") else None)
            Sender(store, name=name, project=given["project"], linger=given["linger"]).run()
            store.close()
            return 0
        except StoreUnavailable:
            if time.monotonic() > give_up:
                return StoreUnavailable.exit_code
            time.sleep(1.0)


if __name__ == "__main__":
    protect(is_platform_variable)
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a thread that still hangs is nobody's any more
