"""The intake: durable items a second over HTTP, against the same server doing nothing, and against bare append+fsync.

Run: .venv/bin/python bench/intake.py   (about four minutes)
One process sends over 1 or 32 connections, one item or a hundred a request; the server is another. The no-op is a route
of the same framework in the same server: it reads the same bodies and answers 202 with as many bytes as the intake
does. How the intake compares with a bare ASGI function that does the same is told, too. Bare: the same lines, one
fdatasync for as many requests as connections.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

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
    stream: {schema: {email: string, name: string, age: {type: int, required: false}}, backlog: 100000000}
"""
ITEM = {"email": "ann.ohara@example.com", "name": "Ann O'Hara, of the " + "long " * 22 + "street", "age": 42}


def body(count: int) -> bytes:
    return json.dumps(ITEM if count == 1 else [ITEM] * count).encode()


# Load -----------------------------------------------------------------------------------------------------------------
class Caller(asyncio.Protocol):
    """A connection that sends its request again as soon as it is answered."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.answered, self.size = 0, 0
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
        self.answered, self.size = self.answered + 1, length
        self.transport.write(self.request)


class Rate(NamedTuple):
    requests: float  # a second
    answer: int  # bytes


def measured(port: int, path: str, token: str, clients: int, count: int) -> Rate:
    data = body(count)
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    request = head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(data), data)

    async def load() -> Rate:
        loop = asyncio.get_running_loop()
        opened = [await loop.create_connection(lambda: Caller(request), "127.0.0.1", port) for _ in range(clients)]
        await asyncio.sleep(0.2)
        before, start = sum(one.answered for _, one in opened), time.perf_counter()
        await asyncio.sleep(SECONDS)
        done, took = sum(one.answered for _, one in opened) - before, time.perf_counter() - start
        for transport, _ in opened:
            transport.abort()
        return Rate(done / took, opened[0][1].size)

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
    from starlette.types import Receive, Scope, Send

    from opendataflow.server.serve import listen, serve

    answer = b" " * 1_000_000

    async def route(request: Request) -> Response:
        await request.body()
        return Response(answer[: int(request.path_params["size"])], 202, media_type="application/json")

    pages = Starlette(routes=[Route("/v1/streams/{size}", route, methods=["POST"])])

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/bare/"):
            await pages(scope, receive, send)
            return
        parts, more = [], True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        size = scope["path"].removeprefix("/bare/")
        headers = [(b"content-type", b"application/json"), (b"content-length", size.encode())]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": answer[: int(size)]})

    at = listen("127.0.0.1", 0)
    serve(app, at, lambda: print(json.dumps({"url": f"http://127.0.0.1:{at.getsockname()[1]}"}), flush=True))


def started(argv: list[str], folder: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])


def main() -> None:
    # Beside this file and not in /tmp, which may be memory; in a folder that git passes over.
    beside = Path(__file__).parent / ".dataflow"
    beside.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="intake-", dir=beside) as folder:
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
    for count in (1, 100):
        for clients in (1, 32):
            found: dict[str, list[float]] = {"intake": [], "no-op": [], "bare ASGI": [], "append+fsync": []}
            for _ in range(ROUNDS):
                intake, size = measured(port, "/v1/streams/leads", token, clients, count)
                found["intake"].append(intake)
                found["no-op"].append(measured(noop_port, f"/v1/streams/{size}", token, clients, count).requests)
                found["bare ASGI"].append(measured(noop_port, f"/bare/{size}", token, clients, count).requests)
                found["append+fsync"].append(bare_per_second(folder, clients, count))
            print(f"{clients} clients, {count} items a request ({len(body(count)):,} bytes); items a second:")
            for name, rates in found.items():
                show(name, [rate * count for rate in rates], unit="/s", scale=1.0)
            to = {name: middle_ratio(found["intake"], rates) for name, rates in found.items()}
            if (clients, count) == (32, 100):
                verdict("durable items in batches, of the server's own no-op rate", to["no-op"], at_least=0.5)
            else:
                print(f"  of the no-op's rate {to['no-op']:.2f}")
            print(f"  of a bare ASGI function's {to['bare ASGI']:.2f}, of append+fsync {to['append+fsync']:.2f}")


def middle_ratio(over: list[float], under: list[float]) -> float:
    """The median of the ratios of each round."""
    return statistics.median(one / other for one, other in zip(over, under, strict=True))


if __name__ == "__main__":
    serve_nothing() if sys.argv[1:] == ["noop"] else main()
