"""A wire to PostgreSQL that can be cut: connections stay and nothing passes, or they end; then it is whole again."""

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit


class Wire:
    """A TCP port in front of a server that listens on a socket file."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._listening = socket.create_server(("127.0.0.1", 0))
        port = self._listening.getsockname()[1]
        self.url = f"postgresql://{parts.username}@127.0.0.1:{port}/{parts.path.strip('/')}"
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._is_silent = threading.Event()
        self._is_closed = False
        self._wake_r, self._wake_w = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def silence(self) -> None:
        """From now on nothing passes and nobody is told; new connections wait."""
        self._is_silent.set()
        self._wake()

    def drop(self) -> None:
        """End every connection there is."""
        for end in list(self._pairs):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._is_silent.clear()
        self._wake()

    def close(self) -> None:
        self._is_closed = True
        self.mend()
        self._thread.join(5)
        for end in (self._listening, self._wake_r, self._wake_w):
            end.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_w.send(b"x")

    def _serve(self) -> None:
        while not self._is_closed:
            watched = [self._wake_r]
            if not self._is_silent.is_set():
                watched += [self._listening, *self._pairs]
            for end in select.select(watched, [], [], 1.0)[0]:
                if end is self._wake_r:
                    end.recv(1024)
                elif self._is_silent.is_set():
                    continue
                elif end is self._listening:
                    self._accept()
                elif end in self._pairs:
                    self._pass_on(end)
        for end in list(self._pairs):
            end.close()

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self._target)
        except OSError:  # it is away
            client.close()
            server.close()
            return
        self._pairs[client], self._pairs[server] = server, client

    def _pass_on(self, one: socket.socket) -> None:
        other = self._pairs[one]
        with contextlib.suppress(OSError):
            if data := one.recv(65536):
                other.sendall(data)
                return
        for end in (one, other):
            self._pairs.pop(end, None)
            end.close()


@contextlib.contextmanager
def wire(url: str) -> Iterator[Wire]:
    one = Wire(url)
    try:
        yield one
    finally:
        one.close()
