"""`GET /v1/streams`: how streams stand, their batches and the items that were set aside. (POST there brings items.)"""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from opendataflow.server.access import Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.streams.facts import batches_of, failed_of, list_stands, one_stream

router = APIRouter(tags=["streams"])
ProjectId = Annotated[str, Path(max_length=500, description="The project's id.")]
Pipeline = Annotated[str, Path(max_length=500, description="The stream pipeline.")]
Limit = Annotated[int, Query(ge=1, le=1_000)]
Offset = Annotated[int, Query(ge=0, le=10**15)]


class StreamItem(BaseModel):
    project: str
    stream: str
    state: str = Field(
        description="NEW, RUNNING, STOPPED, FAILED, PAUSED, or GONE: its runner is not heard of any more"
    )
    reason: str
    told: str
    accepted: int
    processed: int
    failed: int = Field(description="Items that are set aside and were not sent again.")
    replayed: int
    rejected: int
    lag_items: int
    lag_seconds: float
    rate: float = Field(description="Items a second, over the last minute.")
    sealed_to: str | None
    has_token: bool
    owner: str | None
    seen_at: str | None
    blocked_by: str
    fix: str


class SchemaField(BaseModel):
    name: str
    type: str
    required: bool


class Rate(BaseModel):
    at: str
    rate: float


class StreamDetail(StreamItem):
    model_config = ConfigDict(protected_namespaces=())

    source: str
    takes_posts: bool
    log_is_here: bool = Field(description="The log of its items is on the server's machine: items can be sent again.")
    fields: list[SchemaField]
    destination: str
    seal: str
    seal_job: str
    max_batch: int
    every_seconds: float
    retention_seconds: float
    backlog: int
    on_error: str
    rates: list[Rate] = Field(description="Items a second over the last quarter of an hour, the oldest first.")


class Batch(BaseModel):
    dataid: str
    start: int
    end: int
    items: int
    at: str
    slot: str
    status: str | None
    runid: int | None
    published_at: str | None


class BatchPage(BaseModel):
    items: list[Batch]
    limit: int
    offset: int
    more: bool


class SetAside(BaseModel):
    id: str
    offset: int
    at: str
    runid: int | None
    error: str
    item: Any
    replayed_at: str | None
    replayed_as: str | None


class RejectedRow(BaseModel):
    file: str
    line: int
    at: str
    error: str
    row: str


class FailedPage(BaseModel):
    items: list[SetAside]
    next: int | None = Field(description="The `first` of the next page; null at the end.")
    rejected: list[RejectedRow] = Field(description="Of a folder or a topic: what did not fit the schema.")


@router.get("/v1/streams")
async def list_streams(user: Viewer, context: Ctx, project: str | None = None) -> list[StreamItem]:
    """How every stream stands."""
    found = await context.stores.ask(lambda store: list_stands(store, context.address, project=project))
    return [StreamItem.model_validate(one) for one in found]


@router.get("/v1/streams/{project}/{pipeline}")
async def get_stream(project: ProjectId, pipeline: Pipeline, user: Viewer, context: Ctx) -> StreamDetail:
    """How one stream stands, with its rate over time."""
    found = await context.stores.ask(lambda store: one_stream(store, context.address, project, pipeline))
    return StreamDetail.model_validate({**found, "fields": found["schema"]})


@router.get("/v1/streams/{project}/{pipeline}/batches")
async def list_batches(
    project: ProjectId, pipeline: Pipeline, user: Viewer, context: Ctx, limit: Limit = 100, offset: Offset = 0
) -> BatchPage:
    """Its batches, the newest first."""
    found = await context.stores.ask(lambda store: batches_of(store, project, pipeline, limit=limit, offset=offset))
    return BatchPage.model_validate(found)


@router.get("/v1/streams/{project}/{pipeline}/failed")
async def list_failed(
    project: ProjectId,
    pipeline: Pipeline,
    user: Viewer,
    context: Ctx,
    first: Annotated[int, Query(ge=0, le=10**15, description="From this item on.")] = 0,
    limit: Limit = 100,
    replayed: Annotated[bool, Query(description="Also those that were sent again.")] = False,
) -> FailedPage:
    """Items on which a transformation failed, each with its error and as it was sent."""
    found = await context.stores.ask(
        lambda store: failed_of(store, context.address, project, pipeline, first=first, limit=limit, replayed=replayed)
    )
    return FailedPage.model_validate(found)
