"""Requests that are sent in part and then left: they keep nobody else out, and their memory is counted."""

import contextlib
import json
import socket
from collections.abc import Iterator

import pytest

from support.people import Person
from support.processes import wait_for
from support.projects import DATAFLOW, Project
from support.servers import LEADS, Client, Server, new_token

FILES = 160  # that the server may open: 80 connections, 20 that wait of one address


@pytest.fixture
def small(sqlite_project: Project) -> Iterator[Server]:
    """A server that may open few files, whatever it asks for."""
    sqlite_project.apply(LEADS)
    with Server(sqlite_project, command=("prlimit", f"--nofile={FILES}:{FILES}", DATAFLOW)) as server:
        yield server


def half_of(server: Server, path: str, lines: contextlib.ExitStack, *, address: str = "127.0.0.1", **more: str) -> None:
    """A head that is whole and a body that is not."""
    line = socket.create_connection(("127.0.0.1", server.port), timeout=60, source_address=(address, 0))
    lines.enter_context(line)
    headers = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in more.items())
    line.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n{headers}\r\nuser".encode())


def is_well(server: Server) -> bool:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60, source_address=("127.0.0.9", 0)) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return line.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", ["/login", "/v1/hooks/git/shop", "/v1/streams/leads", "/nothing"])
def test_half_sent_bodies_keep_nobody_out(small: Server, path: str) -> None:
    with contextlib.ExitStack() as lines:
        for number in range(3 * FILES):
            half_of(
                small, path, lines, address=f"127.0.0.{1 + number % 6}", x_hub_signature_256="0" * 64,
                content_type="application/x-www-form-urlencoded", cookie="dataflow_guest=x",
            )  # fmt: skip
        for _ in range(5):
            assert is_well(small)


def test_half_sent_heads_and_silent_connections_keep_nobody_out(small: Server) -> None:
    with contextlib.ExitStack() as lines:
        for number in range(2 * FILES):
            line = socket.create_connection(("127.0.0.1", small.port), timeout=60)
            lines.enter_context(line)
            if number % 2:
                line.sendall(b"GET / HTTP/1.1\r\nHost:")
        for _ in range(5):
            assert is_well(small)


def test_one_address_holds_a_fourth_of_the_connections_at_most(small: Server) -> None:
    """The first of them are closed for the later ones; somebody else's connection stays."""
    with contextlib.ExitStack() as lines:
        other = socket.create_connection(("127.0.0.1", small.port), timeout=60, source_address=("127.0.0.7", 0))
        lines.enter_context(other)
        other.sendall(b"GET /health HTTP/1.1\r\nHost:")
        mine = [
            lines.enter_context(socket.create_connection(("127.0.0.1", small.port), timeout=60))
            for _ in range(FILES // 2 - 10)
        ]
        assert _is_closed(mine[0])
        other.sendall(b" x\r\n\r\n")
        assert other.recv(100).startswith(b"HTTP/1.1 200 ")


def _is_closed(line: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        return line.recv(1) == b""
    return True


def test_a_push_without_a_signature_is_refused_before_its_body_comes(small: Server) -> None:
    with socket.create_connection(("127.0.0.1", small.port), timeout=60) as line:
        line.sendall(b"POST /v1/hooks/git/shop HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n{")
        assert line.recv(100).startswith(b"HTTP/1.1 401 ")
    with socket.create_connection(("127.0.0.1", small.port), timeout=60) as line:
        head = b"POST /v1/hooks/git/shop HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n"
        line.sendall(head + b"X-Gitlab-Token: guessed\r\n\r\n{")
        assert line.recv(100).startswith(b"HTTP/1.1 401 ")


def test_bodies_that_have_come_in_part_count_against_the_memory(sqlite_project: Project) -> None:
    """Chunked bodies say nothing of their size beforehand."""
    sqlite_project.apply(LEADS)
    limited = "from opendataflow.cli.main import end\nfrom opendataflow.server.streams import intake\n"
    limited += "intake.MOST_HELD = 1_000_000\nend()"
    sqlite_project.write("limited.py", limited)
    with Server(sqlite_project, command=("python", "limited.py")) as server, contextlib.ExitStack() as lines:
        token = new_token(sqlite_project)
        head = f"POST /v1/streams/leads HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        head += "Transfer-Encoding: chunked\r\n\r\n"
        for _ in range(3):  # none of them is larger than a stream's body may be
            line = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            lines.enter_context(line)
            line.sendall(head.encode() + b"61a80\r\n" + b" " * 400_000 + b"\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 503 ")
        lines.close()

        def is_free() -> bool:
            with Client(server.port, token) as client:
                return client.post(json.dumps([{"email": "a", "name": "b" * 300_000}] * 2))[0] == 202

        wait_for(is_free, "the memory of those that went away is free again", seconds=60)


def test_a_sender_is_not_who_it_says_unless_its_proxy_was_named(sqlite_project: Project) -> None:
    """Else every attempt to sign in would come from another address."""
    sqlite_project.apply(LEADS)
    for options, last in (((), 429), (("--proxy", "127.0.0.1"), 401)):
        with Server(sqlite_project, options=options) as server:
            statuses = [
                Person(server.url).login("anna" + "".join(options), "a wrong guess", x_forwarded_for=f"10.0.0.{number}")
                for number in range(11)
            ]
            assert [one.status for one in statuses] == [401] * 10 + [last]
