"""The page of workers."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from opendataflow.server.access import Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.templates import render
from opendataflow.server.workers.facts import find_limits, find_workers, running_now
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.accounts import Role

router = APIRouter(include_in_schema=False)
PAGE_RUNS = 100


@router.get("/workers")
async def show(
    request: Request, user: Viewer, context: Ctx, offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0
) -> Response:
    def ask(store: LoopStore) -> Any:
        return find_workers(store), running_now(store, limit=PAGE_RUNS, offset=offset), find_limits(store)

    workers, runs, limits = await context.stores.ask(ask)
    return render(
        request, "workers.html", user=user, workers=workers, runs=runs, limits=limits, can_act=user.may(Role.OPERATOR)
    )
