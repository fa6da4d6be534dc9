"""What every request passes before the pages and the API see it, and what every answer carries."""

from collections.abc import Callable
from typing import Any

from fastapi import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from opendataflow.server.access import SAFE
from opendataflow.server.problems import problem

MOST_BODY = 1 << 20
MOST_BODY_OF = {"/v1/hooks/": 26 << 20}  # what the forges send of a large push
HEADERS = (
    (b"content-security-policy", b"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
                                 b"form-action 'self'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)  # fmt: skip
HSTS = (b"strict-transport-security", b"max-age=31536000")
NOT_KEPT = (b"cache-control", b"no-store")
KEPT = (b"cache-control", b"public, max-age=86400")  # files change their address with their text
FILES = "/static/"


class Edge:
    """An application around another one."""

    def __init__(self, app: ASGIApp, *, base: str, is_secure: bool, changed: Callable[[], None]) -> None:
        """`changed` is called before the answer to whatever may have changed something."""
        self._app, self._base, self._changed = app, base, changed
        self._headers = (*HEADERS, HSTS) if is_secure else HEADERS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        more = (*self._headers, KEPT if path.startswith(FILES) else NOT_KEPT)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                if scope["method"] not in SAFE:
                    self._changed()
                told = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(one for one in more if one[0] not in told)]
            await send(message)

        most = next((most for start, most in MOST_BODY_OF.items() if path.startswith(start)), MOST_BODY)
        refusal = _why_not(scope, most)
        if refusal is not None:
            await problem(*refusal)(scope, receive, with_headers)
            return
        inner = {**scope, "root_path": self._base, "path": self._base + path}
        await self._app(inner, _limited(receive, most), with_headers)


def _why_not(scope: Scope, most: int) -> tuple[int, str] | None:
    # No name of ours has this character, and PostgreSQL takes it in no text at all.
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        return 400, "an address with a null character in it means nothing here"
    told = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if told.isdigit() and int(told) > most:
        return 413, f"the body has more than {most:,} bytes"
    return None


def _limited(receive: Receive, most: int) -> Receive:
    """Bodies are read before it is known who sends them: nobody may fill the memory with one."""
    size = 0

    async def limited() -> Any:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > most:
            raise HTTPException(413, f"the body has more than {most:,} bytes")
        return message

    return limited


class BodyRoom:
    """Memory for bodies of senders whom nobody knows yet: one address gets a fourth of it at most."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._of: dict[str, int] = {}

    async def read(self, request: Request, address: str) -> bytes:
        """The body, counted as it comes and until it is there; HTTPException 503 when there is no room for it."""
        parts: list[bytes] = []
        size = 0
        try:
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                self._take(address, len(part))
                if self._held > self._most or self._of.get(address, 0) > self._most // 4:
                    raise HTTPException(503, "too much is being sent at once; send it again", {"Retry-After": "5"})
            return b"".join(parts)
        finally:
            self._take(address, -size)

    def _take(self, address: str, size: int) -> None:
        self._held += size
        self._of[address] = self._of.get(address, 0) + size
        if not self._of[address]:
            del self._of[address]
