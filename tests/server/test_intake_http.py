"""The intake of a real server: what it accepts is durable, what it refuses it says why, and nothing is ever a 5xx."""

import contextlib
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opendataflow.intake.reader import IntakeReader
from support.processes import wait_for
from support.projects import Project
from support.servers import LEADS, Client, Server, new_token

ITEM = {"email": "a@b", "name": "Ann"}


def made_project(folder: Path, text: str = LEADS) -> Project:
    project = Project(folder / "project", f"sqlite:///{folder / 'state.db'}")
    project.apply(text)
    return project


def stream(project: Project, slug: str = "leads") -> IntakeReader:
    return IntakeReader(str(project.folder / ".dataflow" / "streams" / "crm" / slug))


def accepted_items(project: Project, start: int = 0) -> list[dict[str, object]]:
    reader = stream(project)
    return [one.item for one in reader.items(start, reader.durable_end())]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    project = made_project(tmp_path_factory.mktemp("served"))
    with Server(project) as server:
        yield server
        assert server.stop() == (0, ""), "it ends in peace and had nothing to complain about"


@pytest.fixture(scope="module")
def token(served: Server) -> str:
    return new_token(served.project)


@pytest.fixture
def client(served: Server, token: str) -> Iterator[Client]:
    with Client(served.port, token) as client:
        yield client


def test_an_object_an_array_and_lines_are_accepted_with_their_ids(client: Client, served: Server) -> None:
    start = stream(served.project).durable_end()
    assert client.post(json.dumps(ITEM)) == (
        202, {"count": 1, "first": f"leads-{start}", "last": f"leads-{start}", "ids": [f"leads-{start}"]},
    )  # fmt: skip
    status, told = client.post(json.dumps([ITEM, {**ITEM, "age": 7}], indent=2), path="/v1/streams/crm/leads")
    assert (status, told["ids"]) == (202, [f"leads-{start + 1}", f"leads-{start + 2}"])
    lines = "\n".join(json.dumps({**ITEM, "name": f"'{n}'\n"}) for n in range(1500))
    status, told = client.post(lines, content_type="application/x-ndjson; charset=utf-8")
    assert (status, told) == (202, {"count": 1500, "first": f"leads-{start + 3}", "last": f"leads-{start + 1502}"})
    found = accepted_items(served.project, start)
    assert found[:3] == [ITEM, ITEM, {**ITEM, "age": 7}]
    assert [one["name"] for one in found[3:]] == [f"'{n}'\n" for n in range(1500)]


def test_one_bad_item_of_many_is_named_and_none_is_accepted(client: Client, served: Server) -> None:
    before = stream(served.project).durable_end()
    status, told = client.post(json.dumps([ITEM, ITEM, {"email": "a", "name": "b", "age": "old"}]))
    assert status == 422
    assert told["errors"] == [{"index": 2, "field": "age", "reason": '"old" is not an int'}]
    assert client.headers["Content-Type"] == "application/problem+json"
    assert stream(served.project).durable_end() == before


def test_a_key_gives_the_same_ids_again_and_is_refused_for_other_items(client: Client, served: Server) -> None:
    status, first = client.post(json.dumps([ITEM, ITEM]), idempotency_key="monday")
    assert client.post(json.dumps([ITEM, ITEM]), idempotency_key="monday") == (status, {**first, "repeated": True})
    status, told = client.post(json.dumps(ITEM), idempotency_key="monday")
    assert (status, "used for other items" in told["detail"]) == (422, True)
    assert client.post(json.dumps(ITEM), idempotency_key="x" * 201)[0] == 422


@pytest.mark.parametrize(
    ("status", "path", "headers", "body"),
    [
        (401, None, {"authorization": ""}, b"{}"),
        (401, None, {"authorization": "Basic abc"}, b"{}"),
        (403, None, {"authorization": "Bearer wrong"}, b"{}"),
        (403, "/v1/streams/nothing", {}, b"{}"),
        (403, "/v1/streams/other/leads", {}, b"{}"),
        (404, "/v1/streams/..%2F..%2Fetc", {}, b"{}"),
        (404, "/v2", {}, b"{}"),
        (413, None, {}, b" " * 1_048_577),
        (415, None, {"content_type": "text/csv"}, b"a,b"),
        (415, None, {"content_type": "application/json; charset=latin-1"}, b"{}"),
        (415, None, {"content_encoding": "gzip"}, b"\x1f\x8b"),
        (400, None, {}, b"[" * 100_000),
        (400, None, {}, b'{"email": "\xff"}'),
        (422, None, {}, b'{"email": "a", "email": "b", "name": "c"}'),
        (422, None, {}, b'{"email": NaN, "name": "c"}'),
        (422, None, {}, b""),
    ],
)
def test_what_is_refused_is_refused_with_its_reason(
    client: Client, status: int, path: str | None, headers: dict[str, str], body: bytes
) -> None:
    found, told = client.post(body, path=path, **headers)
    assert (found, told["status"]) == (status, status), told
    assert told["detail"]
    client.close()


def test_chunked_bodies_are_cut_off_at_the_limit(served: Server, token: str) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as sender:
        head = f"POST /v1/streams/leads HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        sender.sendall(head.encode() + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(12):
            sender.sendall(b"186a0\r\n" + b" " * 100_000 + b"\r\n")
        assert b" 413 " in sender.recv(100)


def test_a_new_token_replaces_the_one_before_within_seconds(served: Server, client: Client) -> None:
    assert client.post(json.dumps(ITEM))[0] == 202
    fresh = new_token(served.project)
    client.token, old = fresh, client.token
    wait_for(lambda: client.post(json.dumps(ITEM))[0] == 202, "the new token is known")
    client.token = old
    assert client.post(json.dumps(ITEM))[0] == 403
    client.token = fresh
    assert served.project.dataflow("stream", "token", "leads", "--revoke").returncode == 0
    wait_for(lambda: client.post(json.dumps(ITEM))[0] == 403, "the revoked token is refused")


def test_a_full_backlog_asks_for_patience(served: Server) -> None:
    with Client(served.port, new_token(served.project, "few"), "/v1/streams/few") as client:
        assert [client.post(json.dumps([ITEM] * 2))[0] for _ in range(3)] == [202, 202, 429]
        assert int(client.headers["Retry-After"]) > 0
        assert client.post(json.dumps(ITEM))[0] == 202


def test_sending_a_file_over_http_and_locally_beside_a_server(served: Server) -> None:
    project = served.project
    project.write("leads.csv", "email,name,age\n" + "".join(f"p{n}@x,Ann,{n}\n" for n in range(2500)))
    token = new_token(project, "sent")
    told = project.json(
        "stream", "send", "sent", "leads.csv", "--url", served.url, "--key", "k", env={"DATAFLOW_STREAM_TOKEN": token}
    )
    assert (told["items"], told["first"], told["last"], told["repeated"]) == (2500, "sent-0", "sent-2499", 0)
    again = project.json("stream", "send", "sent", "leads.csv", "--key", "k")
    assert again == {**told, "repeated": 2500}, "what a server accepted is known to the one that writes the log itself"
    assert project.json("stream", "send", "sent", "leads.csv")["first"] == "sent-2500"
    with Client(served.port, token, "/v1/streams/sent") as client:
        assert client.post(json.dumps(ITEM))[1]["ids"] == ["sent-5000"]
    project.write("bad.csv", "email,name,age\na,b,1\na,b,x\n")
    done = project.dataflow("stream", "send", "sent", "bad.csv")
    assert (done.returncode, "line 3: age" in done.stderr) == (2, True)
    done = project.dataflow("stream", "send", "sent", "leads.csv", "--url", served.url)
    assert (done.returncode, "DATAFLOW_STREAM_TOKEN" in done.stderr) == (2, True)
    assert stream(project, "sent").durable_end() == 5001


# Its own servers ------------------------------------------------------------------------------------------------------
def test_a_full_disk_is_507_and_what_was_accepted_stays(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr}")
    try:
        (folder / "ballast").write_bytes(b"x" * 200_000)
        project = made_project(tmp_path)
        ids: list[str] = []
        with (
            Server(project, DATAFLOW_STREAMS=str(folder)) as server,
            Client(server.port, new_token(project)) as client,
        ):
            while True:
                status, told = client.post(json.dumps({**ITEM, "name": "y" * 20_000}))
                if status != 202:
                    break
                ids += told["ids"]
            assert (status, client.headers["Retry-After"]) == (507, "5")
            assert len(ids) > 5
            (folder / "ballast").unlink()
            status, told = client.post(json.dumps(ITEM))
            assert (status, told["ids"]) == (202, [f"leads-{len(ids)}"])
            client.close()
            code, said = server.stop()
        assert (code, said.count("the disk is full")) == (0, 1), said
        reader = IntakeReader(str(folder / "crm" / "leads"))
        assert len(list(reader.items(0, reader.durable_end()))) == len(ids) + 1
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


CLIENTS, EACH, KILLS = 8, 250, 5


class Sender(threading.Thread):
    """A client that sends its numbers one request after the other, each until it is acknowledged, under its own key."""

    def __init__(self, who: int, port: int, token: str) -> None:
        super().__init__(daemon=True)
        self.who, self.port, self.token = who, port, token
        self.acknowledged: dict[str, str] = {}
        self.wrong: list[object] = []
        self.is_wanted = True

    def run(self) -> None:
        with Client(self.port, self.token) as client:
            self.send_all(client)

    def send_all(self, client: Client) -> None:
        for number in range(EACH):
            item = {"email": f"{self.who}-{number}", "name": "'; DROP TABLE leads"}
            while self.is_wanted:
                try:
                    status, told = client.post(json.dumps(item), idempotency_key=item["email"])
                except OSError:
                    client.close()
                    time.sleep(0.02)
                    continue
                except Exception as error:  # noqa: BLE001  a half answer of one that was killed
                    client.close()
                    if "http.client" not in type(error).__module__:
                        self.wrong.append(error)
                    continue
                if status == 202:
                    self.acknowledged[item["email"]] = told["ids"][0]
                    break
                self.wrong.append((status, told))
                return


def test_a_server_killed_under_eight_clients_loses_and_doubles_nothing(tmp_path: Path) -> None:
    project = made_project(tmp_path)
    token = new_token(project)
    with contextlib.ExitStack() as ends:
        server = ends.enter_context(Server(project))
        senders = [Sender(who, server.port, token) for who in range(CLIENTS)]
        for sender in senders:
            ends.callback(setattr, sender, "is_wanted", False)
            sender.start()
        for kill in range(1, KILLS + 1):
            goal = CLIENTS * EACH * kill // (KILLS + 1)
            while sum(len(one.acknowledged) for one in senders) < goal:
                assert any(one.is_alive() for one in senders)
                time.sleep(0.005)
            server.kill()
            server = ends.enter_context(Server(project, port=server.port))
        for sender in senders:
            sender.join(60)
            assert not sender.is_alive()
            assert sender.wrong == []
        assert server.stop() == (0, "")
    reader = stream(project)
    found = {str(one.item["email"]): f"leads-{one.offset}" for one in reader.items(0, reader.durable_end())}
    assert reader.durable_end() == CLIENTS * EACH == len(found), "every item once"
    for sender in senders:
        assert sender.acknowledged == {email: found[email] for email in sender.acknowledged}
        places = [int(place.removeprefix("leads-")) for place in sender.acknowledged.values()]
        assert places == sorted(places), "in the order of its client"
