"""`/v1/datasets`: what is declared, how it stands, its chunks, and what is in them."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.server.access import Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.datasets import chunk_files
from opendataflow.server.datasets.facts import chunk_facts, dataset_facts, list_chunks
from opendataflow.server.datasets.grid import find_grid
from opendataflow.server.datasets.grid_api import At, Kind, Name, ProjectName, Status, Text
from opendataflow.server.runs.api import StaleFacts
from opendataflow.store.claims import LoopStore

router = APIRouter(tags=["datasets"])
DataId = Annotated[str, Path(min_length=1, max_length=1000, pattern=r"^[^\x00]*$")]


class DatasetListed(BaseModel):
    project: str
    dataset: str
    kind: str
    worst: str
    counts: dict[str, int]


class DatasetPage(BaseModel):
    total: int
    datasets: list[DatasetListed]


class Gap(BaseModel):
    first: str
    last: str
    count: int
    status: str
    reason: str
    next_step: str


class DatasetChange(BaseModel):
    id: int
    at: str
    dataid: str
    old_status: str | None
    new_status: str | None
    runid: int | None
    actor: str


class DatasetTold(BaseModel):
    project: str
    dataset: str
    kind: str
    worst: str
    counts: dict[str, int]
    declared: dict[str, Any]
    gaps: list[Gap]
    all_gaps: bool
    changes: list[DatasetChange]
    stale: dict[str, int]  # direct: by themselves; upstream: because of what they read


class ChunkListed(BaseModel):
    dataid: str
    status: ChunkStatus
    version: int | None
    location: str | None
    problem: str | None
    validated_at: str | None
    modified: str | None
    files: int | None
    bytes: int | None
    rows: int | None


class ChunkPage(BaseModel):
    chunks: list[ChunkListed]
    after: str | None  # ask for what comes after it; null: that was all


class Reader(BaseModel):
    project: str
    job: str
    dataid: str
    status: str
    run: int | None
    version: int | None


class ChunkTold(BaseModel):
    project: str
    dataset: str
    dataid: str
    status: str
    version: int | None
    location: str | None
    problem: str | None
    modified: str | None
    manifest: dict[str, Any] | None
    versions: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    checks: list[Any]
    producer: dict[str, str] | None
    made_of: list[dict[str, Any]]
    stale: StaleFacts | None
    reading: list[dict[str, Any]]
    readers: list[Reader]
    more_readers: bool
    history: list[dict[str, Any]]


class Previewed(BaseModel):
    dataid: str
    status: str
    location: str
    rows: int | None
    bytes: int | None
    columns: dict[str, str]
    first: list[dict[str, Any]]
    note: str


@router.get("/v1/datasets")
async def get_datasets(
    _user: Viewer, context: Ctx, project: ProjectName = None, name: Text = "", status: Status | None = None,
    kind: Kind | None = None, limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> DatasetPage:  # fmt: skip
    """Datasets with how many of their chunks stand in each status; those that have any in `status`."""

    def read(store: LoopStore) -> DatasetPage:
        wanted = None if status is None else str(status)
        grid = find_grid(store, project=project, name=name, status=wanted, kind=kind)
        rows = grid.every if kind is None else grid.rows
        told = [
            DatasetListed(project=row.project, dataset=row.datasetid, kind=row.kind, worst=row.worst, counts=row.counts)
            for row in rows[offset : offset + limit]
        ]
        return DatasetPage(total=len(rows), datasets=told)

    return await context.stores.ask(read)


@router.get("/v1/datasets/{project}/{dataset}")
async def get_dataset(project: Name, dataset: Name, _user: Viewer, context: Ctx, at: At = None) -> DatasetTold:
    """One dataset: declaration, producer, consumers, counts, gaps, recent changes."""
    told = await context.stores.ask(lambda store: dataset_facts(store, project, dataset, at=at))
    row = told["row"]
    return DatasetTold(
        project=project, dataset=dataset, kind=row.kind, worst=row.worst, counts=row.counts, declared=told["declared"],
        gaps=told["gaps"], all_gaps=told["all_gaps"], changes=told["changes"],
        stale=told["stale"],
    )  # fmt: skip


@router.get("/v1/datasets/{project}/{dataset}/chunks")
async def get_chunks(
    project: Name, dataset: Name, _user: Viewer, context: Ctx, status: ChunkStatus | None = None, after: Text = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> ChunkPage:  # fmt: skip
    """Chunks by the text of their dataids. Of a rare status a page may be empty and yet have an `after`: go on."""

    def read(store: LoopStore) -> ChunkPage:
        wanted = None if status is None else status.value
        found, following = list_chunks(store, project, dataset, status=wanted, after=after, limit=limit)
        return ChunkPage(chunks=[ChunkListed(**one) for one in found], after=following)

    return await context.stores.ask(read)


@router.get("/v1/datasets/{project}/{dataset}/chunks/{dataid:path}")
async def get_chunk(project: Name, dataset: Name, dataid: DataId, _user: Viewer, context: Ctx) -> ChunkTold:
    """One chunk: status, location, manifest, findings, producer, readers, history."""
    told = await context.stores.ask(lambda store: chunk_facts(store, project, dataset, dataid))
    chunk = told["chunk"]
    shared = {name: value for name, value in told.items() if name in ChunkTold.model_fields and name != "dataset"}
    return ChunkTold(
        project=project, dataset=dataset, version=chunk and chunk.version, problem=chunk and chunk.problem,
        modified=chunk and chunk.modified, **shared,
    )  # fmt: skip


@router.get("/v1/datasets/{project}/{dataset}/preview/{dataid:path}")
async def get_preview(
    project: Name, dataset: Name, dataid: DataId, _user: Viewer, context: Ctx,
    rows: Annotated[int, Query(ge=0, le=chunk_files.MOST_ROWS)] = 20,
) -> Previewed:  # fmt: skip
    """The first rows of a READY chunk of files."""
    found = await chunk_files.preview(context, project, dataset, dataid, rows=rows)
    shown = found.shown
    return Previewed(
        dataid=shown.dataid, status=shown.status, location=shown.location, rows=shown.rows, bytes=shown.bytes,
        columns=found.schema, first=found.rows, note=shown.note,
    )  # fmt: skip


@router.get("/v1/datasets/{project}/{dataset}/data/{dataid:path}", response_class=StreamingResponse)
async def get_data(project: Name, dataset: Name, dataid: DataId, _user: Viewer, context: Ctx) -> StreamingResponse:
    """The files of a READY chunk: one as it is, several as a zip."""
    found = await chunk_files.find_download(context, project, dataset, dataid)
    return StreamingResponse(found.parts, headers=found.headers, media_type="application/octet-stream")
