"""The pages of jobs and pipelines."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from opendataflow.domain.job import JobStatus
from opendataflow.server.access import Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.jobs.facts import JobsAsked, count_dataids, dataids_of, find_jobs, one_job, script_text
from opendataflow.server.templates import render
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.accounts import Role

router = APIRouter(include_in_schema=False)
PAGE_JOBS = 100
PAGE_DATAIDS = 60
STATUSES = ("", *(str(one) for one in JobStatus), "paused")
Offset = Annotated[int, Query(ge=0, le=1_000_000)]


@router.get("/jobs")
async def list_all(
    request: Request,
    user: Viewer,
    context: Ctx,
    project: str = "",
    name: str = "",
    status: str = "",
    offset: Offset = 0,
) -> Response:
    asked = JobsAsked(
        project or None, name or None, status if status in STATUSES and status else None, PAGE_JOBS, offset
    )

    counts = await count_dataids(context.stores)

    def ask(store: LoopStore) -> Any:
        return find_jobs(store, asked, counts), [row[0] for row in store.read("projects", {}, file="operations")]

    page, projects = await context.stores.ask(ask)
    return render(
        request, "jobs.html", user=user, page=page, projects=projects, asked=asked, statuses=STATUSES,
        can_act=user.may(Role.OPERATOR),
    )  # fmt: skip


@router.get("/jobs/{project}/{job}")
async def show(
    request: Request, project: str, job: str, user: Viewer, context: Ctx, status: str = "", offset: Offset = 0
) -> Response:
    wanted = status if status in STATUSES[1:-1] else None
    counts = await count_dataids(context.stores)

    def ask(store: LoopStore) -> Any:
        return (
            one_job(store, project, job, counts), script_text(store, project, job),
            dataids_of(store, project, job, status=wanted, limit=PAGE_DATAIDS, offset=offset),
        )  # fmt: skip

    found, script, dataids = await context.stores.ask(ask)
    slowest = max((run["seconds"] or 0.0 for run in found["runs"]), default=0.0)
    return render(
        request, "job.html", user=user, job=found, script=script, dataids=dataids, wanted=wanted or "",
        statuses=STATUSES[:-1], slowest=slowest, can_act=user.may(Role.OPERATOR), is_admin=user.may(Role.ADMIN),
    )  # fmt: skip
