"""The server's pages, each list with its owner."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from opendataflow import __version__
from opendataflow.server.intake import Intake
from opendataflow.server.openapi import DESCRIPTION
from opendataflow.server.problems import as_problem
from opendataflow.server.streams import Streams


def make_app(streams: Streams, *, project: str | None) -> Starlette:
    """The application; an address without a project means this one."""
    routes = [
        *Intake(streams, project).routes(),  # first: it is called most
        Route("/health", health, methods=["GET"]),
        Route("/v1/openapi.json", description, methods=["GET"]),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        upkeep = asyncio.create_task(streams.keep_up())
        yield
        upkeep.cancel()
        await streams.close()

    handlers = {HTTPException: as_problem, Exception: as_problem}
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)


async def health(_request: Request) -> Response:
    """The server is there; open to everybody."""
    return JSONResponse({"status": "ok", "version": __version__})


async def description(_request: Request) -> Response:
    return JSONResponse(DESCRIPTION)
