"""The server's log: records go to stderr from a thread of their own, so that a slow reader delays no request."""

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Iterator

MOST_WAITING = 1000  # records; later ones are dropped and counted
END_SECONDS = 1.0  # for the last records to be written


class _Waiting(logging.Handler):
    """Formats records and queues them; never waits."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{self.format(record)}\n"
        if self._dropped:
            text = f"the log was not read in time: {self._dropped} messages were dropped\n{text}"
        try:
            self.lines.put_nowait(text.encode(errors="backslashreplace"))
            self._dropped = 0
        except queue.Full:
            self._dropped += 1


def _write(lines: "queue.Queue[bytes | None]", fd: int) -> None:
    while (line := lines.get()) is not None:
        # Not through sys.stderr: its lock, held in a write that never ends, would keep the process from exiting.
        with contextlib.suppress(OSError):  # nobody reads it any more: the server goes on
            while line:
                line = line[os.write(fd, line) :]


@contextlib.contextmanager
def logging_to(fd: int) -> Iterator[None]:
    """Write the records of all loggers to this file descriptor while the block runs."""
    waiting = _Waiting()
    thread = threading.Thread(target=_write, args=(waiting.lines, fd), name="log", daemon=True)
    thread.start()
    root = logging.getLogger()
    root.addHandler(waiting)
    try:
        yield
    finally:
        root.removeHandler(waiting)
        with contextlib.suppress(queue.Full):
            waiting.lines.put(None, timeout=END_SECONDS)
            thread.join(END_SECONDS)
