"""The server: pages, the API, and the intake of streams, each route with its owner."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from opendataflow import __version__
from opendataflow.alerts.watch import Watch
from opendataflow.errors import DataflowError
from opendataflow.server.access import Known, NotSignedIn, Viewer, ask_first, open_to_all, owners
from opendataflow.server.accounts.passwords import Passwords
from opendataflow.server.api_routes import ROUTERS as API
from opendataflow.server.context import Context
from opendataflow.server.http_limits import BodyRoom, Edge
from opendataflow.server.openapi import describe
from opendataflow.server.page_routes import ROUTERS as PAGES
from opendataflow.server.problems import answer_error, answer_gone, answer_http, answer_invalid
from opendataflow.server.projects import webhooks as hooks
from opendataflow.server.streams.intake import Intake
from opendataflow.server.templates import STATIC

_LOG = logging.getLogger("opendataflow.server")


def make_pages(context: Context, intake: Intake) -> FastAPI:
    """All but the fast way of the intake."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        alerts = Watch(context.stores.open, context.address, say=_LOG.warning)
        alerts.start()
        upkeep = asyncio.create_task(context.streams.keep_up())
        yield
        upkeep.cancel()
        await asyncio.to_thread(alerts.close)
        await context.streams.close()
        context.stores.close()

    app = FastAPI(title="OpenDataFlow", version=__version__, lifespan=lifespan, openapi_url=None, docs_url=None)
    app.state.context = context
    app.state.known, app.state.passwords = Known(), Passwords()
    app.state.hook_bodies = BodyRoom(hooks.MOST_HELD)
    app.add_route("/health", health, methods=["GET"])
    app.add_api_route("/v1/openapi.json", description, methods=["GET"], include_in_schema=False)
    app.routes.extend(intake.routes())
    for router in (*API, *PAGES):
        app.routes.extend(router.routes)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_exception_handler(HTTPException, answer_http)
    app.add_exception_handler(RequestValidationError, answer_invalid)
    app.add_exception_handler(ClientDisconnect, answer_gone)
    app.add_exception_handler(DataflowError, answer_error)
    app.add_exception_handler(NotSignedIn, _to_login)
    app.add_exception_handler(Exception, answer_error)
    list(owners(app))  # a route without an owner is not served
    ask_first(app)
    return app


def make_app(context: Context, *, project: str | None, root_path: str = "") -> ASGIApp:
    """The application; an address of the intake without a project means this one."""
    intake = Intake(context.streams, project)
    pages = make_pages(context, intake)
    base = root_path.rstrip("/")
    edge = Edge(pages, base=base, is_secure=context.is_secure, changed=pages.state.known.forget)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if base and scope["type"] == "http":
            path = scope["path"].removeprefix(base) or "/"
            scope = {**scope, "path": path if path.startswith("/") else scope["path"]}
        # Items come by the thousand a second, and what pages have around them costs as much as all that is done here.
        if intake.is_for(scope):
            await intake(scope, receive, send)
            return
        await edge(scope, receive, send)

    return app


async def _to_login(request: Request, error: Exception) -> Response:
    then = error.then if isinstance(error, NotSignedIn) else "/"
    return RedirectResponse(f"{request.scope.get('root_path', '')}/login?then={then}", 303)


@open_to_all
async def health(_request: Request) -> Response:
    """The server is there; open to everybody."""
    return JSONResponse({"status": "ok", "version": __version__})


async def description(request: Request, user: Viewer) -> Response:  # noqa: ARG001
    return JSONResponse(describe(request.app))
