"""What a caller did wrong, or what is not well here: problem+json with the next step (RFC 9457), or a page of it."""

import json
import logging
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from opendataflow.errors import DataflowError, Refused, StoreUnavailable, UsageError

MEDIA_TYPE = "application/problem+json"
_SECRET = re.compile(r"(/welcome/).*")  # what an address must not tell the log
_LOG = logging.getLogger("opendataflow.server")


class NotThere(UsageError):
    """What was asked for does not exist."""


def problem(status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """An answer that says what is wrong; `more` are fields of its own, such as the errors of items."""
    told = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    text = json.dumps(told, ensure_ascii=True)
    return Response(text, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def _answer(request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    base = request.scope.get("root_path", "")
    is_page = not request.url.path.removeprefix(base).startswith("/v1/")
    if is_page and "text/html" in request.headers.get("accept", ""):
        from opendataflow.server.templates import render

        page = render(request, "problem.html", user=None, status=status, title=HTTPStatus(status).phrase, detail=detail)
        page.headers.update(headers or {})
        return page
    return problem(status, detail, headers=headers)


async def answer_http(request: Request, error: Exception) -> Response:
    """What the routes refuse: no such page, no such method, not allowed."""
    if not isinstance(error, HTTPException):
        raise error
    return _answer(request, error.status_code, str(error.detail), error.headers)


async def answer_invalid(request: Request, error: Exception) -> Response:
    """Parameters that do not fit, each with its place."""
    if not isinstance(error, RequestValidationError):
        raise error
    texts = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return _answer(request, 422, "; ".join(texts))


async def answer_gone(_request: Request, _error: Exception) -> Response:
    """The sender went away before all of its body had come: nobody reads the answer, and nothing is wrong here."""
    return problem(400, "the connection was closed before the whole body had come")


async def answer_error(request: Request, error: Exception) -> Response:
    """Our own errors, by what they mean to a caller; anything else is ours to mend, and is logged."""
    match error:
        case NotThere():
            return _answer(request, 404, str(error))
        case StoreUnavailable():
            _LOG.error("the store cannot be reached: %s", error)
            return _answer(request, 503, "the store cannot be reached; try again in a moment", {"Retry-After": "5"})
        case UsageError() | Refused():
            return _answer(request, 409, str(error))
        case DataflowError():
            return _answer(request, 500, str(error))
    path = _SECRET.sub(r"\1…", request.url.path)
    _LOG.error("%s %s: %s: %s", request.method, path, type(error).__name__, error, exc_info=error)
    return _answer(request, 500, "an internal error; see the server's log")
