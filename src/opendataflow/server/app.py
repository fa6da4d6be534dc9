"""The server's pages, each list with its owner."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from opendataflow import __version__
from opendataflow.server.intake import Intake
from opendataflow.server.openapi import DESCRIPTION
from opendataflow.server.problems import as_problem
from opendataflow.server.streams import Streams


def make_app(streams: Streams, *, project: str | None) -> ASGIApp:
    """The application; an address without a project means this one."""
    intake = Intake(streams, project)
    routes = [
        *intake.routes(),
        Route("/health", health, methods=["GET"]),
        Route("/v1/openapi.json", description, methods=["GET"]),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        upkeep = [asyncio.create_task(one) for one in (streams.keep_up(), intake.watch())]
        yield
        for task in upkeep:
            task.cancel()
        await streams.close()

    handlers = {HTTPException: as_problem, Exception: as_problem}
    pages = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Items come by the thousand a second, and what pages have around them costs as much as all that is done here.
        await (intake if intake.is_for(scope) else pages)(scope, receive, send)

    return app


async def health(_request: Request) -> Response:
    """The server is there; open to everybody."""
    return JSONResponse({"status": "ok", "version": __version__})


async def description(_request: Request) -> Response:
    return JSONResponse(DESCRIPTION)
