"""A server of many days, in seconds: its store falls silent, goes away and comes back, and what is old is removed."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.runs.questions import Answer, Question, Verdict
from opendataflow.domain.runs.run import Ending, Owner, Result
from opendataflow.intake.reader import IntakeReader
from opendataflow.store import open_store
from opendataflow.store.records import streams
from support.postgres import Server as Postgres
from support.postgres import postgres
from support.processes import wait_for
from support.projects import Project
from support.servers import LEADS, Client, Server, new_token

AWAY_SECONDS, SLOW_SECONDS = 3.0, 0.3
QUICKLY = f"""
from opendataflow.cli.main import main
from opendataflow.server import http_protocol, open_streams

http_protocol.BODY_SECONDS = 1.0
open_streams.AWAY_SECONDS, open_streams.SLOW_SECONDS = {AWAY_SECONDS}, {SLOW_SECONDS}
open_streams.UPKEEP_SECONDS = 0.2
raise SystemExit(main())
"""
YES = Verdict(tuple(Answer(question, True, "seen by the test") for question in Question))


class QuickServer(Server):
    """One for which minutes are seconds."""

    def __init__(self, project: Project) -> None:
        project.write("quickly.py", QUICKLY)
        super().__init__(project, command=(sys.executable, "quickly.py"))


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


def backends_of(url: str, process: int) -> list[int]:
    """The processes of PostgreSQL that serve this one."""
    with psycopg.connect(url) as connection:
        asked = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE %s"
        found = [int(pid) for (pid,) in connection.execute(asked, [f"%:{process}"]).fetchall()]
    assert found
    return found


def commit(url: str, start: int, end: int) -> None:
    """Publish a batch, as a runner does."""
    store = open_store(url, actor="test")
    job = store.get_job("leads", project="crm")
    dataid = streams.expect_batch(store, job, start, end, at="2026-11-16T13:05:00.000Z", slot="2026-11-16T13")
    candidate = store.find_candidate(job, dataid)
    assert candidate is not None
    claim = store.claim(job, candidate, YES, Owner("test", "host", 1, 1, 2, 2))
    assert claim is not None
    manifests = tuple((*link.dataset[:2], Manifest("/nowhere", rows=1, validated=True)) for link in job.outputs)
    store.finish(claim, Result(Ending.COMPLETE, 0, manifests=manifests))
    store.close()


def test_a_store_that_is_away_for_a_while_stops_nobody_and_old_items_go_once_they_are_published(
    own_postgres: Postgres, tmp_path: Path
) -> None:
    url = own_postgres.new_database()
    project = Project(tmp_path / "project", url)
    project.apply(LEADS.replace("body: 1MB", "body: 1MB, retention: 1s"))
    reader = IntakeReader(str(project.folder / ".dataflow" / "streams" / "crm" / "leads"))
    sent = 0

    def post() -> int:
        nonlocal sent
        status, told = client.post(json.dumps({"email": str(sent), "name": "n"}))
        assert status in (202, 503), told
        if status == 202:
            assert told["ids"] == [f"leads-{sent}"]
            sent += 1
        return status

    token = new_token(project)
    with (
        QuickServer(project) as server,
        Client(server.port, token) as client,
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as slow,
    ):
        assert post() == 202
        head = (
            f"POST /v1/streams/leads HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 9\r\n\r\n"
        )
        slow.sendall(head.encode() + b"{")
        # It falls silent: one sender waits a moment, then nobody does.
        silent = backends_of(url, server.process.pid)
        for backend in silent:
            os.kill(backend, signal.SIGSTOP)
        time.sleep(1.1)
        begun = time.monotonic()
        assert [post() for _ in range(20)] == [202] * 20
        assert time.monotonic() - begun < 15 * SLOW_SECONDS, "each of them has not waited"
        for backend in silent:
            os.kill(backend, signal.SIGCONT)
        assert slow.recv(100).startswith(b"HTTP/1.1 408 "), "its body did not come in time"
        # It goes away: what it said last holds for a while, and then it is said that nothing is accepted.
        assert post() == 202
        begun = time.monotonic()
        own_postgres.halt("immediate")
        while post() == 202:
            assert time.monotonic() - begun < AWAY_SECONDS + 60
            time.sleep(0.05)
        assert time.monotonic() - begun > AWAY_SECONDS - 1.5, "at most so old was what it had said"
        assert client.headers["Retry-After"] == "5"
        own_postgres.start_again()
        wait_for(lambda: post() == 202, "the store is heard again")
        assert [one.item["email"] for one in reader.items(0, reader.durable_end())] == [str(n) for n in range(sent)]
        # What is published and old goes by itself; the next item has the next number.
        time.sleep(1.2)
        assert reader.first_offset() == 0, "nothing is published yet"
        commit(url, 0, sent)
        wait_for(lambda: reader.first_offset() == sent, "the segment is gone")
        assert post() == 202
        assert [one.item["email"] for one in reader.items(sent - 1, sent)] == [str(sent - 1)]
        client.close()
        code, said = server.stop()
    assert (code, said.count("the store cannot be reached")) == (0, 1), said
