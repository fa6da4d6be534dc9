"""The server's log: whoever reads it slowly, or not at all, keeps nobody from being answered."""

import fcntl
import logging
import os
import socket
import threading

import pytest

from opendataflow.server.log import MOST_WAITING, logging_to
from support.projects import Project
from support.web import Site

_LOG = logging.getLogger("opendataflow.server")
_SMALLEST = 4096  # bytes of a pipe


def test_senders_that_go_away_in_mid_body_are_not_logged_and_others_are_answered(sqlite_project: Project) -> None:
    sqlite_project.apply("name: other\n")
    with Site(sqlite_project) as site:
        assert site.process.stderr is not None
        fcntl.fcntl(site.process.stderr, fcntl.F_SETPIPE_SZ, _SMALLEST)
        for path in ("/v1/hooks/git/shop", "/login", "/v1/actions/resubmit"):
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", site.port), timeout=60) as line:
                    line.sendall(f"{head}Content-Length: 20\r\n\r\nuser".encode())
                assert site.visitor(None).get("/health").status == 200
        assert site.stop() == (0, "")


def test_what_nobody_reads_holds_nobody_up_and_what_was_dropped_is_counted() -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _SMALLEST)
    try:
        with logging_to(writer):
            logs = threading.Thread(
                target=lambda: [_LOG.error("%d %s", one, "x" * 100) for one in range(2 * MOST_WAITING)], daemon=True
            )
            logs.start()
            logs.join(60)
            assert not logs.is_alive(), "it waits for the reader"
            said = _read_until(reader, b"\n900 ")  # from here on there is room, and nobody else logs
            _LOG.error("2000 the last")
            said += _read_until(reader, b"2000 the last\n")
    finally:
        os.close(reader)
        os.close(writer)
    lines = said.decode().splitlines()
    dropped = [int(line.split(": ")[1].split()[0]) for line in lines if "messages were dropped" in line]
    numbers = [int(line.split()[0]) for line in lines if "messages were dropped" not in line]
    assert numbers[:MOST_WAITING] == list(range(MOST_WAITING)), "what comes first is kept"
    assert numbers == sorted(numbers)
    assert dropped
    assert sum(dropped) + len(numbers) == 2 * MOST_WAITING + 1


def _read_until(reader: int, text: bytes) -> bytes:
    said = b""
    while text not in said:
        said += os.read(reader, 1 << 16)
    return said


def test_a_log_whose_reader_has_gone_ends_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with logging_to(writer):
        for _ in range(3):
            _LOG.error("nobody reads this")
    os.close(writer)
    assert capfd.readouterr() == ("", "")
