"""The first page: what needs a person now."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from opendataflow.server.access import Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.overview.api import overview_facts
from opendataflow.server.templates import render

router = APIRouter(include_in_schema=False)


@router.get("/")
async def overview(
    request: Request, user: Viewer, context: Ctx, project: Annotated[str | None, Query(max_length=200)] = None
) -> Response:
    facts = await overview_facts(context, project or None)
    return render(request, "overview.html", user=user, project=project or None, **facts)
