"""What is wrong and was told, and the messages that told it."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from opendataflow.server.access import Viewer
from opendataflow.server.alerts.facts import get_message, messages, open_alerts, undelivered
from opendataflow.server.context import Ctx
from opendataflow.server.templates import render

router = APIRouter(include_in_schema=False)
ALERTS, MESSAGES = 200, 50
Cursor = Annotated[int | None, Query(ge=1, le=2**63 - 1)]


@router.get("/alerts")
async def alerts(request: Request, user: Viewer, context: Ctx, before: Cursor = None) -> Response:
    found, told, waiting = await context.stores.ask(
        lambda store: (
            open_alerts(store, project=None, limit=ALERTS),
            messages(store, project=None, limit=MESSAGES, before=before),
            undelivered(store),
        )
    )
    return render(request, "alerts.html", user=user, alerts=found, messages=told, undelivered=waiting, before=before)


@router.get("/alerts/{messageid}")
async def message(
    request: Request, messageid: Annotated[int, Path(ge=1, le=2**63 - 1)], user: Viewer, context: Ctx
) -> Response:
    found = await context.stores.ask(lambda store: get_message(store, messageid))
    return render(request, "alert_message.html", user=user, message=found)
