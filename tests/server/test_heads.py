"""Heads of requests: what never ends is cut off, what is only long or comes in pieces is answered."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from opendataflow.server import http_protocol as heads
from opendataflow.server.serve import listen


async def hello(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def port() -> Iterator[int]:
    """A server with our connections, and nothing behind them."""
    at = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(hello, http=heads.Bounded, lifespan="off", log_config=None, ws="none"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[at])))
    thread.start()
    yield at.getsockname()[1]
    server.should_exit = True
    thread.join(30)


def end_of(line: socket.socket) -> bytes:
    """What comes until the other side closes; empty when it was cut."""
    said = b""
    try:
        while piece := line.recv(1000):
            said += piece
    except ConnectionError:
        pass
    return said


def test_a_head_that_does_not_end_is_cut_off(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(b"GET / HTTP/1.1\r\nhost: here\r\n")
        try:
            for number in range(100):
                line.sendall(b"x-%d: " % number + b"a" * 100_000 + b"\r\n")
        except ConnectionError:
            return
        assert end_of(line)[:12] in (b"", b"HTTP/1.1 400")


def test_a_head_that_comes_in_pieces_and_those_after_it_are_answered(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        for _ in range(3):
            line.sendall(b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 200000\r\nx: ")
            for _ in range(5):
                line.sendall(b"a" * 8_000)
                time.sleep(0.01)
            line.sendall(b"\r\n\r\n" + b"b" * 200_000)
            assert line.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nhost:"])
def test_whoever_does_not_come_to_the_point_is_sent_away(
    monkeypatch: pytest.MonkeyPatch, port: int, begun: bytes
) -> None:
    monkeypatch.setattr(heads, "HEAD_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(begun)
        assert end_of(line) == b""
