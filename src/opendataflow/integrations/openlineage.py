"""Sends the events that runs left in the queue of a folder, in order, and ends.

What cannot be sent stays; an event that the backend does not take is dropped, and the reason kept in `refused.log`.
"""

import contextlib
import fcntl
import http.client
import os
import sys
import time
import urllib.parse
from collections.abc import Iterator

from opendataflow.domain.variables import is_platform_variable
from opendataflow.own_process import protect
from opendataflow.private_files import opener

LINGER_SECONDS = 1.0  # how long a sender waits for more
GIVE_UP_SECONDS = 60.0  # and how long for a backend that is away
TIMEOUT_SECONDS = 5.0
TRY_AGAIN = (408, 425, 429)
REFUSED_BYTES = 1024 * 1024


class Backend:
    """One connection to the endpoint, opened again when it broke."""

    def __init__(self, url: str, key: str | None) -> None:
        parts = urllib.parse.urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
        self._path = parts.path + (f"?{parts.query}" if parts.query else "")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    def send(self, line: bytes) -> str | None:
        """None when it was taken, or why it never will be; raises OSError when it may be later."""
        try:
            self._connection.request("POST", self._path, body=line, headers=self._headers)
            answer = self._connection.getresponse()
            text = answer.read(1000)
        except (http.client.HTTPException, OSError) as error:
            self._connection.close()
            raise OSError(str(error)) from error
        if answer.status < 300:
            return None
        if answer.status >= 500 or answer.status in TRY_AGAIN:
            self._connection.close()
            raise OSError(f"HTTP {answer.status}")
        return f"HTTP {answer.status}: {text.decode(errors='replace')}"


def send_all(folder: str, backend: Backend) -> None:
    """Until nothing is left, or the backend has been away for too long."""
    taken = os.path.join(folder, "sending.jsonl")
    give_up, pause, idle_since = time.monotonic() + GIVE_UP_SECONDS, 0.2, time.monotonic()
    while True:
        if not os.path.exists(taken) and not _take(folder, taken):
            if time.monotonic() - idle_since > LINGER_SECONDS:
                return
            time.sleep(0.05)
            continue
        try:
            for line in _lines(taken):
                reason = backend.send(line)
                if reason is not None:
                    _note(folder, reason)
                give_up, pause = time.monotonic() + GIVE_UP_SECONDS, 0.2
            os.unlink(taken)
            idle_since = time.monotonic()
        except OSError:
            if time.monotonic() + pause > give_up:
                return
            time.sleep(pause)
            pause = min(pause * 2, 10.0)


def _take(folder: str, taken: str) -> bool:
    """Take the queue away from the writers, between two of their lines."""
    queue = os.path.join(folder, "queue.jsonl")
    with contextlib.suppress(FileNotFoundError), open(queue, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.rename(queue, taken)
        return True
    return False


def _lines(path: str) -> Iterator[bytes]:
    """Each line, remembered as sent when the next one is asked for: sent twice at worst, never lost."""
    mark = f"{path}.sent"
    done = 0
    with contextlib.suppress(OSError, ValueError), open(mark, encoding="ascii") as file:
        done = int(file.read() or 0)
    with open(path, "rb") as file:
        file.seek(done)
        while line := file.readline():
            if line.strip():
                yield line.strip()
            with open(mark, "w", encoding="ascii", opener=opener) as note:
                note.write(str(file.tell()))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(mark)


def _note(folder: str, reason: str) -> None:
    path = os.path.join(folder, "refused.log")
    with contextlib.suppress(OSError):
        if not os.path.exists(path) or os.path.getsize(path) < REFUSED_BYTES:
            with open(path, "a", encoding="utf-8", opener=opener) as file:
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {reason}\n")


def main(folder: str) -> int:
    with open(os.path.join(folder, "sender.lock"), "a", opener=opener) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0  # another is at it
        key = os.environ.get("OPENLINEAGE_API_KEY") or os.environ.get("OPENLINEAGE__TRANSPORT__AUTH__APIKEY")
        send_all(folder, Backend(os.environ["DATAFLOW_LINEAGE_URL"], key))
    return 0


if __name__ == "__main__":
    protect(is_platform_variable)
    sys.exit(main(sys.argv[1]))
