"""What a caller did wrong, or what is not well here: problem+json with the next step (RFC 9457)."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"


def problem(status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """An answer that says what is wrong; `more` are fields of its own, such as the errors of items."""
    told = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    text = json.dumps(told, ensure_ascii=True)
    return Response(text, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


async def as_problem(_request: Request, error: Exception) -> Response:
    """What the routes refuse: no such page, no such method."""
    if not isinstance(error, HTTPException):
        return problem(500, "an internal error; see the server's log")
    return problem(error.status_code, str(error.detail), headers=error.headers)
