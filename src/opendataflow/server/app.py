"""The server: pages, the API, and the intake of streams, each route with its owner."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from opendataflow import __version__
from opendataflow.errors import DataflowError
from opendataflow.server.access import SAFE, Known, NotSignedIn, open_to_all, owners
from opendataflow.server.api import ROUTERS as API
from opendataflow.server.context import Context
from opendataflow.server.intake import Intake
from opendataflow.server.openapi import describe
from opendataflow.server.pages import ROUTERS as PAGES
from opendataflow.server.passwords import Passwords
from opendataflow.server.problems import answer_error, answer_http, answer_invalid
from opendataflow.server.templates import STATIC

HEADERS = (
    (b"content-security-policy", b"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
                                 b"form-action 'self'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)  # fmt: skip
HSTS = (b"strict-transport-security", b"max-age=31536000")


def make_pages(context: Context, intake: Intake) -> FastAPI:
    """All but the fast way of the intake."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        upkeep = [asyncio.create_task(one) for one in (context.streams.keep_up(), intake.watch())]
        yield
        for task in upkeep:
            task.cancel()
        await context.streams.close()
        context.stores.close()

    app = FastAPI(title="OpenDataFlow", version=__version__, lifespan=lifespan, openapi_url=None, docs_url=None)
    app.state.context = context
    app.state.known, app.state.passwords = Known(), Passwords()
    app.add_route("/health", health, methods=["GET"])
    app.add_route("/v1/openapi.json", description, methods=["GET"])
    app.routes.extend(intake.routes())
    for router in (*API, *PAGES):
        app.routes.extend(router.routes)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_exception_handler(HTTPException, answer_http)
    app.add_exception_handler(RequestValidationError, answer_invalid)
    app.add_exception_handler(DataflowError, answer_error)
    app.add_exception_handler(NotSignedIn, _to_login)
    app.add_exception_handler(Exception, answer_error)
    list(owners(app))  # a route without an owner is not served
    return app


def make_app(context: Context, *, project: str | None, root_path: str = "") -> ASGIApp:
    """The application; an address of the intake without a project means this one."""
    intake = Intake(context.streams, project)
    pages = make_pages(context, intake)
    base = root_path.rstrip("/")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if base and scope["type"] == "http":
            path = scope["path"].removeprefix(base) or "/"
            scope = {**scope, "path": path if path.startswith("/") else scope["path"]}
        # Items come by the thousand a second, and what pages have around them costs as much as all that is done here.
        if intake.is_for(scope):
            await intake(scope, receive, send)
            return
        if scope["type"] == "http":
            scope = {**scope, "root_path": base, "path": base + scope["path"]}

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                if scope["method"] not in SAFE:
                    pages.state.known.forget()  # it may have been about who may do what
                told = {name for name, _ in message["headers"]}
                more = (*HEADERS, HSTS) if context.is_secure else HEADERS
                message["headers"] = [*message["headers"], *(one for one in more if one[0] not in told)]
            await send(message)

        await pages(scope, receive, with_headers)

    return app


async def _to_login(request: Request, error: Exception) -> Response:
    then = error.then if isinstance(error, NotSignedIn) else "/"
    return RedirectResponse(f"{request.scope.get('root_path', '')}/login?then={then}", 303)


@open_to_all
async def health(_request: Request) -> Response:
    """The server is there; open to everybody."""
    return JSONResponse({"status": "ok", "version": __version__})


@open_to_all
async def description(request: Request) -> Response:
    return JSONResponse(describe(request.app))
