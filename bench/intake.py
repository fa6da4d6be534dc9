"""The intake: durable items a second over HTTP, against the same server doing nothing, and against bare append+fsync.

Run: .venv/bin/python bench/intake.py   (about three minutes)
One process sends over 1 or 32 connections, one item or a hundred a request; the server is another. The no-op reads the
body and answers 202, in the same framework. Bare: the same lines, one fdatasync for as many requests as connections.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from measure import show, verdict

ROUNDS, SECONDS = 7, 1.2
BIN = Path(sys.executable).parent
PROJECT = """
name: bench
datasets: {leads: {path: leads, format: parquet}}
pipelines:
  - slug: leads
    mode: stream
    destination: leads
    stream: {schema: {email: string, name: string, age: {type: int, required: false}}, backlog: 10000000}
"""
ITEM = {"email": "ann.ohara@example.com", "name": "Ann O'Hara, of the " + "long " * 22 + "street", "age": 42}


def body(count: int) -> bytes:
    return json.dumps(ITEM if count == 1 else [ITEM] * count).encode()


# Load -----------------------------------------------------------------------------------------------------------------
class Caller(asyncio.Protocol):
    """A connection that sends its request again as soon as it is answered."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.answered = 0
        self.waiting = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        data = self.waiting + data
        head, found, rest = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0) if found else 0
        if not found or len(rest) < length:
            self.waiting = data
            return
        assert head.startswith(b"HTTP/1.1 202"), data[:500]
        self.waiting = b""
        self.answered += 1
        self.transport.write(self.request)


def requests_per_second(port: int, path: str, token: str, clients: int, count: int) -> float:
    data = body(count)
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    request = head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(data), data)

    async def load() -> float:
        loop = asyncio.get_running_loop()
        opened = [await loop.create_connection(lambda: Caller(request), "127.0.0.1", port) for _ in range(clients)]
        await asyncio.sleep(0.2)
        before, start = sum(one.answered for _, one in opened), time.perf_counter()
        await asyncio.sleep(SECONDS)
        done, took = sum(one.answered for _, one in opened) - before, time.perf_counter() - start
        for transport, _ in opened:
            transport.abort()
        return done / took

    return uvloop.run(load())


def bare_per_second(folder: str, clients: int, count: int) -> float:
    """Requests a second of lines alone: one fdatasync for one request of each connection."""
    from opendataflow.intake.entry import encode

    data = body(count)
    line = encode(10**9, count, "2026-11-16T13:05:00.123Z", None, None, data if count > 1 else b"[%b]" % data)
    fd = os.open(os.path.join(folder, "bare"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        os.write(fd, line * clients)
        os.fdatasync(fd)
        done += clients
    os.close(fd)
    return done / (time.perf_counter() - start)


# Servers --------------------------------------------------------------------------------------------------------------
def serve_nothing() -> None:
    """A server of the same kind that reads a body and answers."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from opendataflow.server.serve import listen, serve

    async def accept(request: Request) -> Response:
        await request.body()
        return Response(b'{"count": 1}', 202, media_type="application/json")

    at = listen("127.0.0.1", 0)
    app = Starlette(routes=[Route("/v1/streams/{pipeline}", accept, methods=["POST"])])
    serve(app, at, lambda: print(json.dumps({"url": f"http://127.0.0.1:{at.getsockname()[1]}"}), flush=True))


def started(argv: list[str], folder: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])


def main() -> None:
    # Beside this file and not in /tmp, which may be memory.
    with tempfile.TemporaryDirectory(prefix="intake-", dir=Path(__file__).parent) as folder:
        Path(folder, "project.yml").write_text(PROJECT)
        subprocess.run([BIN / "dataflow", "apply"], cwd=folder, check=True, capture_output=True)
        made = subprocess.run(
            [BIN / "dataflow", "stream", "token", "leads"], cwd=folder, check=True, capture_output=True, text=True
        )
        intake, port = started([str(BIN / "dataflow"), "serve", "--port", "0", "--json"], folder)
        nothing, noop_port = started([sys.executable, os.path.abspath(__file__), "noop"], folder)
        try:
            measure(folder, port, noop_port, made.stdout.strip())
        finally:
            for process in (intake, nothing):
                process.terminate()
                process.wait(30)


def measure(folder: str, port: int, noop_port: int, token: str) -> None:
    path = "/v1/streams/leads"
    for count in (1, 100):
        for clients in (1, 32):
            found: dict[str, list[float]] = {"intake": [], "no-op": [], "bare": []}
            for _ in range(ROUNDS):
                found["intake"].append(requests_per_second(port, path, token, clients, count))
                found["no-op"].append(requests_per_second(noop_port, path, token, clients, count))
                found["bare"].append(bare_per_second(folder, clients, count))
            print(f"{clients} clients, {count} items a request ({len(body(count)):,} bytes); items a second:")
            for name, rates in found.items():
                show(name, [rate * count for rate in rates], unit="/s", scale=1.0)
            to_noop = sorted(a / b for a, b in zip(found["intake"], found["no-op"], strict=True))[ROUNDS // 2]
            to_bare = sorted(a / b for a, b in zip(found["intake"], found["bare"], strict=True))[ROUNDS // 2]
            if (clients, count) == (32, 100):
                verdict("durable items in batches, of the server's own no-op rate", to_noop, at_least=0.5)
            else:
                print(f"  of the no-op's rate {to_noop:.2f}")
            print(f"  of bare append+fsync {to_bare:.2f}")


if __name__ == "__main__":
    serve_nothing() if sys.argv[1:] == ["noop"] else main()
