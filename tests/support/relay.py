"""A TCP port in front of a PostgreSQL that listens on a socket file; it can lose connections when it is told to."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit


class Relay:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self.database, self.user = parts.path.strip("/"), parts.username
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.to_lose = 0  # so many of the next connections end at once
        self.lose_after: int | None = None  # bytes from the server, after which a connection ends
        self.seen = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def url(self, *, scheme: str = "postgresql", user: str | None = None) -> str:
        return f"{scheme}://{user or self.user}@127.0.0.1:{self.port}/{self.database}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self.seen += 1
                if self.to_lose:
                    self.to_lose -= 1
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                for one, other, limit in ((client, server, None), (server, client, self.lose_after)):
                    thread = threading.Thread(target=_pass_on, args=(one, other, limit), daemon=True)
                    thread.start()
                    self._threads.append(thread)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(timeout=5)


def _pass_on(one: socket.socket, other: socket.socket, limit: int | None) -> None:
    passed = 0
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
            passed += len(data)
            if limit is not None and passed > limit:
                break
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextlib.contextmanager
def relay(url: str) -> Iterator[Relay]:
    one = Relay(url)
    try:
        yield one
    finally:
        one.close()
