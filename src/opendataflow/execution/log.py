"""A run's output: shown live, kept in a file, and its tail for the store."""

import binascii
import json
import os
import select
from collections.abc import Iterable, Iterator

from opendataflow.private_files import FILE, make_folder

TAIL_BYTES = 16_384
PENDING_BYTES = 262_144
MASK = b"***"
MASKED_FROM = 4  # shorter "secrets" would mask half of every word
_BASE64_FROM = 5  # characters of base64, of which each says less than one of the secret
_UNRESERVED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~"
_PIPE_BUF = 4096  # a pipe that can take anything takes as much as this without blocking


def find_spellings(secrets: Iterable[str]) -> list[str]:
    """What to mask, the longest first: each secret, its lines, and both as programs write them when they encode text.

    That is: with what is not UTF-8 escaped (`\\xe9`, `\\udce9`), in JSON, in an address (%2F), in hex, in base64,
    where it may be a part of something longer (`user:password` of a header).
    """
    found: set[str] = set()
    for secret in secrets:
        for part in {secret, *secret.splitlines()}:
            if len(part) >= MASKED_FROM:
                shown = os.fsencode(part).decode("utf-8", "backslashreplace")
                found |= {part, shown, part.encode("utf-8", "backslashreplace").decode(), *_encoded(part)}
    return sorted(found, key=len, reverse=True)


def _encoded(text: str) -> Iterator[str]:
    raw = os.fsencode(text)
    for is_ascii in (True, False):
        yield json.dumps(text, ensure_ascii=is_ascii)[1:-1]
    for kept in (_UNRESERVED, _UNRESERVED + b"/", _UNRESERVED + b"/:@"):
        for form in ("%%%02X", "%%%02x"):
            quoted = "".join(chr(byte) if byte in kept else form % byte for byte in raw)
            yield from (quoted, quoted.replace("%20", "+"))
    yield from (raw.hex(), raw.hex().upper())
    for before, start in ((0, 0), (1, 2), (2, 3)):  # by how many bytes stand before it in their group of three
        bits = binascii.b2a_base64(bytes(before) + raw, newline=False).decode()
        inner = bits[start : (before + len(raw)) * 8 // 6]  # characters that nothing beside it has a part in
        for one in (bits, inner) if before == 0 else (inner,):
            if len(one) >= _BASE64_FROM:
                yield from (one, one.replace("+", "-").replace("/", "_"))


class Shown:
    """Our own standard output and error: they get the child's output as fast as they take it.

    A reader that pauses (`| less`, Ctrl-S) must hold up the child only, never the runner: it has a lease to renew.
    """

    def __init__(self, *, out_fd: int = 1, err_fd: int = 2) -> None:
        self._fds = {1: out_fd, 2: err_fd}
        self._pending = {1: bytearray(), 2: bytearray()}

    def add(self, stream: int, data: bytes) -> None:
        if self._fds[stream] >= 0:
            self._pending[stream] += data
            self._flush(stream)

    def is_full(self, stream: int) -> bool:
        """True while no more of the child's output should be read."""
        return len(self._pending[stream]) > PENDING_BYTES

    def waiting(self) -> set[int]:
        """The descriptors for which something is pending."""
        return {self._fds[stream] for stream, pending in self._pending.items() if pending}

    def flush(self) -> None:
        """Pass on what is pending, as far as that is possible without waiting."""
        for stream in self._pending:
            self._flush(stream)

    def _flush(self, stream: int) -> None:
        pending, fd = self._pending[stream], self._fds[stream]
        poll = select.poll()
        if pending:
            poll.register(fd, select.POLLOUT)
        while pending and poll.poll(0):
            try:
                del pending[: os.write(fd, pending[:_PIPE_BUF])]
            except BlockingIOError:
                return
            except OSError:  # a closed terminal, a reader that went away: the log has it all
                self._fds[stream] = -1
                pending.clear()


class RunLog:
    """Passes what a child writes on to our own output, a log file and a bounded tail; secrets are masked in all.

    A full disk or a closed terminal never stops the job: the loss is noted in the tail.
    """

    def __init__(self, path: str, shown: Shown, *, secrets: tuple[str, ...] = ()) -> None:
        self.path = path
        self.shown = shown
        self._secrets = [os.fsencode(spelling) for spelling in find_spellings(secrets)]
        self._held = {1: b"", 2: b""}
        self._file: int | None = None
        self._broken = False
        self._tail = bytearray()
        self.changed = False

    def write(self, stream: int, data: bytes) -> None:
        """Take output of the child's stream 1 or 2."""
        if self._secrets:
            data = self._masked(stream, data)
        self._pass_on(stream, data)

    def _pass_on(self, stream: int, data: bytes) -> None:
        self.shown.add(stream, data)
        self._keep(data)
        self.changed = True
        self._tail += data
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    def _masked(self, stream: int, data: bytes) -> bytes:
        """The data without secrets; an end that may be the first part of one is held back until more is known."""
        data = self._held[stream] + data
        for secret in self._secrets:
            data = data.replace(secret, MASK)
        held = max((_overlap(data, secret) for secret in self._secrets), default=0)
        self._held[stream] = data[len(data) - held :]
        return data[: len(data) - held]

    def end(self) -> None:
        """Nothing more comes: what was held back was no secret."""
        for stream, held in self._held.items():
            if held:
                self._held[stream] = b""
                self._pass_on(stream, held)

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

    def _keep(self, data: bytes) -> None:
        if self._broken or not data:
            return
        try:
            if self._file is None:
                make_folder(os.path.dirname(self.path))
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE)
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self._broken = True
            self._tail += f"\n[dataflow: the log file cannot be written: {error.strerror}]\n".encode()


def _overlap(data: bytes, secret: bytes) -> int:
    """The length of the longest end of the data that a secret starts with."""
    for length in range(min(len(secret) - 1, len(data)), 0, -1):
        if data.endswith(secret[:length]):
            return length
    return 0
