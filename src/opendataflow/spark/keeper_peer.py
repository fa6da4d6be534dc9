"""Somebody connected to a keeper: messages in both directions, and whether the process still lives."""

import contextlib
import json
import os
import socket
import struct
from typing import Any

_LONGEST = 1 << 20
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class Peer:
    """One connection. The run behind it is over when it closes or when the process that opened it has ended."""

    def __init__(self, number: int, connected: socket.socket, pid: int) -> None:
        self.number = number
        self.socket = connected
        self.asked: dict[str, Any] | None = None
        self.since = 0.0
        self.has_gateway = False
        self.stays = False  # it uses Spark for many runs, and leaves when it is asked to
        self.is_asked_to_leave = False
        self._received = bytearray()
        # Processes that the run forked may hold the connection open after it.
        self._process: int | None = None
        if pid > 0:
            with contextlib.suppress(OSError):
                self._process = os.pidfd_open(pid)

    @classmethod
    def of(cls, number: int, connected: socket.socket) -> "Peer | None":
        """The peer; None, and the connection closed, when it belongs to another user."""
        connected.setblocking(False)
        found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _gid = _CREDENTIALS.unpack(found)
        if uid != os.getuid():
            connected.close()
            return None
        return cls(number, connected, pid)

    def watched(self) -> list[Any]:
        return [self.socket] if self._process is None else [self.socket, self._process]

    def receive(self) -> list[dict[str, Any]] | None:
        """The messages that have come; None when the connection is closed or makes no sense."""
        try:
            data = self.socket.recv(65_536)
        except BlockingIOError:
            return []
        except OSError:
            return None
        self._received += data
        if not data or len(self._received) > _LONGEST:
            return None
        *lines, rest = bytes(self._received).split(b"\n")
        self._received[:] = rest
        try:
            messages = [json.loads(line) for line in lines]
        except ValueError:
            return None
        return messages if all(isinstance(message, dict) for message in messages) else None

    def send(self, message: dict[str, Any]) -> bool:
        """False when the message does not go out, because nobody reads."""
        try:
            self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def close(self) -> None:
        self.socket.close()
        if self._process is not None:
            os.close(self._process)
            self._process = None
