"""A process's private line to whoever started it."""

import json
import os
import threading
from typing import IO, Any


class Channel:
    """Where messages to whoever started this process go, whole lines from whichever thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, **fields: Any) -> None:
        data = json.dumps(fields).encode() + b"\n"
        with self._lock:
            while data and self._fd >= 0:
                data = data[os.write(self._fd, data) :]

    def drop(self) -> None:
        """Close this process's copy, for one that was forked: nobody else may speak for the run."""
        self._lock = threading.Lock()  # another thread may have held it
        os.close(self._fd)
        self._fd = -1


def private_channels(answers_fd: int) -> tuple[IO[str], Channel]:
    """Our input and our answers, out of reach of the user's code and of every process it starts."""
    asked, answers = os.dup(0), os.dup(answers_fd)  # a duplicate is not inherited
    os.close(answers_fd)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return open(asked, encoding="utf-8"), Channel(answers)


def write_atomically(path: str, value: dict[str, Any]) -> None:
    """The whole file or none of it, also after a power cut."""
    handle = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
