"""Looking at sources in children: the same commands as on a shell, which alone open databases and decrypt passwords.

A child is told where the store is by its environment; nothing secret is among its arguments. What it says is bounded,
and it ends with the request that it was started for.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from opendataflow.errors import StoreUnavailable, UsageError
from opendataflow.project.address import Address

AT_ONCE = 8  # children of all requests together
MOST_BYTES = 16 * 1024 * 1024  # of an answer that is kept in memory
PIECE = 64 * 1024  # of a stream
_LOG = logging.getLogger("opendataflow.server")


class Failed(UsageError):
    """The child's own sentence: what is wrong with the source."""


class Running(NamedTuple):
    process: asyncio.subprocess.Process
    words: asyncio.Task[str]  # what it says to people

    async def end(self) -> None:
        """End it now; what it holds open is given back."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await self.process.wait()
        await asyncio.gather(self.words, return_exceptions=True)


class Children:
    """Starts children, at most so many at once."""

    def __init__(self) -> None:
        self._running = 0

    @contextlib.asynccontextmanager
    async def start(self, address: Address, project: str, *argv: str) -> AsyncIterator[Running]:
        """A `dataflow` command on this project; it is ended at the end of the block."""
        if self._running >= AT_ONCE:
            raise HTTPException(429, f"{AT_ONCE} sources are being looked at; try again", headers={"Retry-After": "5"})
        self._running += 1
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "opendataflow.cli.main", *argv, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=os.sep,
                env=environment(address, project), limit=PIECE,
            )  # fmt: skip
            child = Running(process, asyncio.create_task(_tail(process)))
            try:
                yield child
            finally:
                await asyncio.shield(child.end())
        finally:
            self._running -= 1

    async def ask(self, address: Address, project: str, *argv: str, seconds: float) -> bytes:
        """All that the command prints, or Failed with its sentence."""
        async with self.start(address, project, *argv) as child:
            try:
                async with asyncio.timeout(seconds):
                    text = await _all(child)
                    code = await child.process.wait()
                    words = await child.words
            except TimeoutError:
                raise Failed(f"there was no answer within {seconds:g} s") from None
            if code:
                raise explain(code, words)
            return text


def environment(address: Address, project: str) -> dict[str, str]:
    own = {"DATAFLOW_STORE": address.store, "DATAFLOW_PROJECT": project, "NO_COLOR": "1"}
    env = {name: value for name, value in os.environ.items() if name not in ("DATAFLOW_ENV", "DATAFLOW_NEW_PASSKEY")}
    return {**env, **own, **({"DATAFLOW_ENV": address.environment} if address.environment else {})}


def explain(code: int, words: str) -> Exception:
    """What the child said, as our own error."""
    sentence = words.rpartition("dataflow: ")[2].strip() or f"the command ended with exit code {code}"
    if code == StoreUnavailable.exit_code:
        return StoreUnavailable(sentence)
    if "internal error" in sentence or "Traceback" in words:
        _LOG.error("looking at a source failed: %s", words)
        return Failed("looking at it failed; see the server's log")
    return Failed(sentence)


async def _all(child: Running) -> bytes:
    stdout = child.process.stdout
    found = bytearray()
    while stdout is not None and (piece := await stdout.read(PIECE)):
        found += piece
        if len(found) > MOST_BYTES:
            raise Failed(f"this is more than {MOST_BYTES // 1024 // 1024} MB; take fewer rows, or download it")
    return bytes(found)


async def _tail(process: asyncio.subprocess.Process) -> str:
    """The last of what it says to people."""
    kept = b""
    while process.stderr is not None and (piece := await process.stderr.read(PIECE)):
        kept = (kept + piece)[-8_000:]
    return kept.decode(errors="replace")


class Stream(Response):
    """What a child prints, piece by piece: it goes no faster than the browser takes it, and ends when that goes.

    A child that fails in the midst breaks the answer off: it can be told from a whole one.
    """

    def __init__(self, stack: contextlib.AsyncExitStack, child: Running, first: bytes, headers: dict[str, str]) -> None:
        super().__init__(None, headers=headers)
        del self.headers["content-length"]
        self._stack, self._child, self._first = stack, child, first

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            gone = asyncio.create_task(_until_gone(receive))
            sent = asyncio.create_task(self._send(send))
            try:
                await asyncio.wait({gone, sent}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                sent.cancel()
                await asyncio.gather(gone, sent, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        stdout = self._child.process.stdout
        while stdout is not None and (piece := await stdout.read(PIECE)):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if await self._child.process.wait() == 0:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            _LOG.error("a download broke off: %s", (await self._child.words).strip())


async def first_of(child: Running, receive: Receive) -> bytes:
    """The beginning of what it prints, however long that takes; Failed when the browser goes before that."""
    stdout = child.process.stdout
    if stdout is None:
        return b""
    gone = asyncio.create_task(_until_gone(receive))
    read = asyncio.create_task(stdout.read(PIECE))
    try:
        await asyncio.wait({gone, read}, return_when=asyncio.FIRST_COMPLETED)
        if not read.done():
            raise Failed("nobody waits for it any more")
        return read.result()
    finally:
        gone.cancel()
        read.cancel()
        await asyncio.gather(gone, read, return_exceptions=True)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
