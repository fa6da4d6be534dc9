"""Where messages arrive: a real SMTP server and a real webhook, each on a port of its own."""

import email
import email.policy
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller

FROM, TO = "dataflow@example.com", "ops@example.com"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class Mailbox:
    """An SMTP server that keeps what it was sent."""

    def __init__(self, port: int | None = None) -> None:
        self.port = port or free_port()
        self.messages: list[Any] = []
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port)

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        self.messages.append(email.message_from_bytes(envelope.content, policy=email.policy.default))
        return "250 taken"

    @property
    def address(self) -> str:
        return f"mailto://127.0.0.1:{self.port}?from={FROM}&to={TO}"

    @property
    def titles(self) -> list[str]:
        return [one["Subject"] for one in self.messages]

    @property
    def texts(self) -> list[str]:
        return [one.get_body(preferencelist=("plain", "html")).get_content() for one in self.messages]

    def __enter__(self) -> "Mailbox":
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()


class Webhook:
    """An HTTP server that keeps what was posted; `hangs` as long as it is told to."""

    def __init__(self, *, status: int = 200) -> None:
        self.posted: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.status = status
        self.hold = threading.Event()
        self.hold.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.posted.append(told)
                outer.paths.append(self.path)
                outer.hold.wait(60)
                self.send_response(outer.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port

    @property
    def address(self) -> str:
        return f"json://127.0.0.1:{self.port}/hook"

    @property
    def titles(self) -> list[str]:
        return [one["title"] for one in self.posted]

    def __enter__(self) -> "Webhook":
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()


class Silence:
    """Takes connections, and never says a word."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self.connections: list[socket.socket] = []

    @property
    def address(self) -> str:
        return f"mailto://127.0.0.1:{self.port}?from={FROM}&to={TO}"

    def _accept(self) -> None:
        while True:
            try:
                self.connections.append(self._socket.accept()[0])
            except OSError:
                return

    def __enter__(self) -> "Silence":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for one in self.connections:
            one.close()


def wait_until(is_so: Any, what: str, *, seconds: float = 60.0) -> None:
    """Wait for a state; a machine that is busy only takes longer."""
    give_up = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < give_up, f"not within {seconds} s: {what}"
        time.sleep(0.1)


__all__ = ["FROM", "TO", "Mailbox", "Silence", "Webhook", "free_port", "wait_until"]
