"""The head of a request, before anybody knows what it asks: neither endless nor for ever on its way."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD = 64 << 10  # bytes of address and headers; what comes in one piece may be more
HEAD_SECONDS = 30.0


class Bounded(HttpToolsProtocol):
    """A connection that is closed when a head is too long, or takes too long. Heads of one piece pay nothing."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_in_head, self._head = False, 0
        self._closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._is_in_head
        super().data_received(data)
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
        self._is_in_head = False
        super().on_headers_complete()

    def _wait(self) -> None:
        self._closing = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
