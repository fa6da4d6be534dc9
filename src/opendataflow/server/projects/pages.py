"""The pages of projects."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from opendataflow.deploy.webhook import HOOK_PATH
from opendataflow.server.access import Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.projects.facts import find_project, find_projects
from opendataflow.server.templates import render
from opendataflow.store.records.accounts import Role
from opendataflow.store.records.git import NEWEST

router = APIRouter(include_in_schema=False)
PAGE = 100


@router.get("/projects")
async def show_all(
    request: Request, user: Viewer, context: Ctx, offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0
) -> Response:
    def ask(store: Any) -> dict[str, Any]:
        return find_projects(store, limit=PAGE, offset=offset)

    found = await context.stores.ask(ask)
    return render(
        request, "projects.html", user=user, found=found, can_act=user.may(Role.OPERATOR), is_admin=user.may(Role.ADMIN)
    )


@router.get("/projects/{project}")
async def show(
    request: Request, user: Viewer, context: Ctx, project: str, before: Annotated[int, Query(ge=1, le=NEWEST)] = NEWEST
) -> Response:
    def ask(store: Any) -> dict[str, Any]:
        return find_project(store, project, before=before)

    found = await context.stores.ask(ask)
    return render(
        request, "project.html", user=user, one=found, can_act=user.may(Role.OPERATOR), is_admin=user.may(Role.ADMIN),
        hook=HOOK_PATH.format(project=project),
    )  # fmt: skip
