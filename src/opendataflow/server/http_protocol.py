"""The connections of the server: neither endless heads nor bodies that never come, and always room for one more.

A connection *waits* while it is the other side's turn: to send a request, the rest of one, or to read an answer. When
there are too many connections, or too many of one address wait, the one that has waited longest is closed: half-sent
requests, however many, keep nobody else out.
"""

import asyncio
import resource
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

MOST_HEAD = 64 << 10  # bytes of address and headers; what comes in one piece may be more
HEAD_SECONDS = 30.0
BODY_SECONDS = 60.0  # for all of a body to come
MOST_CONNECTIONS = 2000
MOST_FILES = 4096  # of this process, where the system allows so many
OF_ONE_ADDRESS = 4  # one address may hold this part of the connections: a fourth


def count_connections() -> int:
    """How many connections there may be: half of the files that this process may open, and raises that limit first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, max(8, soft // 2))


class Waiting:
    """The connections of a server that wait, those of an address in the order in which they began to."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Bounded, None]] = {}

    def add(self, one: "Bounded") -> None:
        self._of.setdefault(one.address, {})[one] = None

    def remove(self, one: "Bounded") -> None:
        of = self._of.get(one.address)
        if of is not None:
            of.pop(one, None)
            if not of:
                del self._of[one.address]

    def count(self, address: str) -> int:
        return len(self._of.get(address, ()))

    def find_oldest(self, address: str | None = None) -> "Bounded | None":
        """Of this address, or of the one with the most that wait."""
        of = self._of.get(address) if address is not None else max(self._of.values(), key=len, default=None)
        return next(_each(of), None)


def _each(of: "dict[Bounded, None] | None") -> "Iterator[Bounded]":
    return iter(of or ())


_WAITING: WeakKeyDictionary[ServerState, Waiting] = WeakKeyDictionary()


class Bounded(HttpToolsProtocol):
    """A connection whose heads and bodies have a limit and a deadline. Requests of one piece pay nothing for it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.address = ""
        self._is_in_head, self._head, self._is_in_body = False, 0, False
        self._closing: asyncio.TimerHandle | None = None
        self._body_ends: asyncio.TimerHandle | None = None
        self._waiting = _WAITING.setdefault(self.server_state, Waiting())

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._waiting.add(self)
        self._make_room()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.remove(self)
        self._stop_waiting()
        self._body_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._is_in_head
        super().data_received(data)
        if self._is_in_body and self._body_ends is None and not self.transport.is_closing():
            self._body_ends = self.loop.call_later(BODY_SECONDS, self._body_is_late)
        if not self._is_in_head:
            self._stop_waiting()
            return
        if self._closing is None:
            self._wait()
        self._head += len(data) if was_in_head else 0
        if self._head > MOST_HEAD and not self.transport.is_closing():
            self.send_400_response("the address and the headers are too long")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._head = True, 0

    def on_headers_complete(self) -> None:
        self._is_in_head, self._is_in_body = False, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._body_came()
        super().on_message_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            self._waiting.remove(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.pipeline:
            self._waiting.add(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._waiting.add(self)  # the answer is not read

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.cycle is not None and not self.cycle.response_complete and not self._is_in_body:
            self._waiting.remove(self)

    # Deadlines ------------------------------------------------------------------------------------------------
    def _wait(self) -> None:
        self._closing = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    def _body_came(self) -> None:
        if self._body_ends is not None:
            self._body_ends.cancel()
            self._body_ends = None

    def _body_is_late(self) -> None:
        self._body_ends = None
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_started:
            text = b'{"title": "Request Timeout", "status": 408, "detail": "the body did not come within %d s"}'
            text %= int(BODY_SECONDS)
            head = b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
            self.transport.write(head + b"content-length: %d\r\n\r\n" % len(text) + text)
        self.transport.close()

    # Room -----------------------------------------------------------------------------------------------------
    def _make_room(self) -> None:
        """Close what has waited longest while there are more connections than there may be."""
        most = self.config.limit_concurrency
        if most is None:
            return
        is_proxy = self.config.proxy_headers and self.address in str(self.config.forwarded_allow_ips).split(",")
        if not is_proxy and self._waiting.count(self.address) > max(4, most // OF_ONE_ADDRESS):
            self._close_one(self.address)
        while len(self.connections) >= most:
            if not self._close_one():
                return  # all of them are being answered: this one is told to come again

    def _close_one(self, address: str | None = None) -> bool:
        oldest = self._waiting.find_oldest(address)
        if oldest is None or oldest is self:
            return False
        self._waiting.remove(oldest)
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True
