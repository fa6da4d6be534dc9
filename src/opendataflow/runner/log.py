"""A run's output: shown live, kept in a file, and its tail for the store."""

import os

TAIL_BYTES = 16_384


class RunLog:
    """Passes what a child writes on to our own output, a log file and a bounded tail.

    A full disk or a closed terminal never stops the job: the loss is noted in the tail.
    """

    def __init__(self, path: str, *, out_fd: int = 1, err_fd: int = 2) -> None:
        self.path = path
        self._shown_on = {1: out_fd, 2: err_fd}
        self._file: int | None = None
        self._broken = False
        self._tail = bytearray()
        self.changed = False

    def write(self, stream: int, data: bytes) -> None:
        """Take output of the child's stream 1 or 2."""
        self._show(stream, data)
        self._keep(data)
        self.changed = True
        self._tail += data
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    def tail(self) -> str:
        """The last part of the output as text; what is not UTF-8, and NUL, shows as a replacement character."""
        self.changed = False
        text = bytes(self._tail[-TAIL_BYTES:]).decode("utf-8", errors="replace")
        return text.replace("\0", "\N{REPLACEMENT CHARACTER}")

    @property
    def path_if_written(self) -> str | None:
        return self.path if self._file is not None else None

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def _show(self, stream: int, data: bytes) -> None:
        fd = self._shown_on[stream]
        try:
            while data and fd >= 0:
                data = data[os.write(fd, data) :]
        except OSError:
            self._shown_on[stream] = -1

    def _keep(self, data: bytes) -> None:
        if self._broken:
            return
        try:
            if self._file is None:
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self._broken = True
            self._tail += f"\n[dataflow: the log file cannot be written: {error.strerror}]\n".encode()
