"""`/v1/workers` and `/v1/limits`: who works here, what runs where, and how much may run at once."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from opendataflow.server.access import Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.workers.facts import find_limits, find_workers, running_now

router = APIRouter(tags=["workers"])


class Worker(BaseModel):
    name: str
    host: str
    pid: int
    slots: int
    running: int
    is_idle: bool
    jobs: list[str] = Field(description="That it serves; none: all.")
    started_at: str
    seen_at: str
    is_gone: bool


class Workers(BaseModel):
    items: list[Worker]
    alive: int
    slots: int
    running: int
    all_paused_by: str | None
    all_paused_until: str | None


class LiveRun(BaseModel):
    owner: str
    host: str
    runid: int
    project: str
    job: str
    dataid: str
    attempt: int
    claimed_at: str
    lease_until: str | None
    expired: bool


class LiveRuns(BaseModel):
    items: list[LiveRun]
    limit: int
    offset: int
    more: bool


class JobLimit(BaseModel):
    project: str
    jobid: str
    declared: int | None
    scaled_to: int | None
    braked_to: int | None
    max_runs: int | None
    running: int
    paused_by: str | None
    paused_until: str | None


class ConnectionLimit(BaseModel):
    name: str
    declared: int | None
    scaled_to: int | None
    max_runs: int | None
    running: int


class Limits(BaseModel):
    jobs: list[JobLimit]
    connections: list[ConnectionLimit]


@router.get("/v1/workers")
async def list_workers(user: Viewer, context: Ctx) -> Workers:
    """Who works on this store, also those that have gone lately."""
    return Workers.model_validate(await context.stores.ask(find_workers))


@router.get("/v1/workers/runs")
async def list_live(
    user: Viewer,
    context: Ctx,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> LiveRuns:
    """What runs where, the oldest first."""
    return LiveRuns.model_validate(
        await context.stores.ask(lambda store: running_now(store, limit=limit, offset=offset))
    )


@router.get("/v1/limits")
async def list_limits(user: Viewer, context: Ctx, project: str | None = None) -> Limits:
    """How much may run at once: of each job that has a limit, and over each connection."""
    return Limits.model_validate(await context.stores.ask(lambda store: find_limits(store, project=project)))
