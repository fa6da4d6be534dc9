"""`GET /v1/overview`: what needs a person now, what goes on, and how everything stands."""

from typing import Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from opendataflow.server.access import Viewer
from opendataflow.server.cached import Kept, kept
from opendataflow.server.context import Context, Ctx
from opendataflow.server.overview.facts import standing
from opendataflow.store.reports.live import rates
from opendataflow.store.rows import utc_text

router = APIRouter(tags=["overview"])
RATES_SECONDS = 10.0


class Need(BaseModel):
    """One root of trouble: `number` dataids are at it, and it blocks so many of `jobs`."""

    cause: str
    title: str
    project: str
    name: str
    says: str
    number: int
    dataids: list[str]
    blocks: int
    jobs: list[str]
    fix: str
    needs_a_person: bool


class Rates(BaseModel):
    """Runs that ended in the last hour and day, by outcome; `since`: from when on they are all counted."""

    hour: dict[str, int]
    day: dict[str, int]
    since: str | None


class RunningRun(BaseModel):
    project: str
    jobid: str
    dataid: str
    runid: int
    owner: str
    claimed_at: str
    lease_until: str
    expired: bool
    attempt: int
    abort_asked_by: str | None


class PauseFacts(BaseModel):
    project: str
    name: str
    by: str
    until: str | None


class WorkersCounted(BaseModel):
    alive: int
    gone: int
    slots: int


class Counted(BaseModel):
    project: str
    name: str
    counts: dict[str, int]


class StaleCounted(BaseModel):
    """Published dataids that are older than what they should be made from."""

    direct: int
    upstream: int


class OverviewFacts(BaseModel):
    as_of: str
    environment: str
    needs: list[Need]
    needs_all: bool  # false: more is blocked than was looked at; `needs` may lack what some of it waits for
    rates: Rates
    running: list[RunningRun]
    running_total: int
    pauses: list[PauseFacts]
    workers: WorkersCounted
    stale: StaleCounted
    jobs: list[Counted]
    datasets: list[Counted]


async def overview_facts(context: Context, project: str | None) -> dict[str, Any]:
    """The facts of the last two seconds, with their moment; asked of the store once for all who look."""

    async def ask() -> dict[str, Any]:
        return await context.stores.ask(lambda store: standing(store, context.address, project=project))

    async def count() -> dict[str, Any]:
        return await context.stores.ask(lambda store: rates(store, project=project))

    found: Kept = await kept(context.stores, ("overview", project), ask)
    counted = await kept(context.stores, ("rates", project), count, keep_seconds=RATES_SECONDS, behind=True)
    return {**found.answer, "rates": counted.answer, "as_of": utc_text(found.asked_at)}


@router.get("/v1/overview")
async def overview(
    _user: Viewer, context: Ctx, project: str | None = Query(None, max_length=200, description="Only this project.")
) -> OverviewFacts:
    """What needs a person now, by root; rates, running work, pauses, counts."""
    return OverviewFacts.model_validate(await overview_facts(context, project))
