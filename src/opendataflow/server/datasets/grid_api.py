"""`GET /v1/grid`: windows of dataset × dataid, now or at a moment of the past, and what changed since a look."""

import datetime
from enum import StrEnum
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, BaseModel, Field

from opendataflow.server.access import Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.datasets.grid import Block, Grid, Row, find_grid, find_index, find_row, read_block, read_window
from opendataflow.server.problems import NotThere
from opendataflow.store.claims import LoopStore
from opendataflow.store.reports.grid import (
    LETTERS,
    NOTHING,
    find_then,
    list_changes,
    newest,
    oldest_change,
    run_length,
)
from opendataflow.store.rows import utc_text

router = APIRouter(tags=["grid"])

MOST_ROWS, MOST_COLUMNS, MOST_CELLS, MOST_CHANGES = 100, 400, 4_000, 2_000
_PLAIN = r"^[^\x00]*$"


def _as_utc(moment: datetime.datetime) -> datetime.datetime:
    """A time without a zone is UTC."""
    try:
        return moment.replace(tzinfo=datetime.UTC) if moment.tzinfo is None else moment.astimezone(datetime.UTC)
    except (OverflowError, ValueError):
        raise ValueError("there is no such time") from None


Name = Annotated[str, Path(min_length=1, max_length=400, pattern=_PLAIN)]
Text = Annotated[str, Query(max_length=400, pattern=_PLAIN)]
ProjectName = Annotated[str | None, Query(max_length=400, pattern=_PLAIN, description="Only this project.")]
At = Annotated[
    datetime.datetime | None, AfterValidator(lambda one: one and _as_utc(one)),
    Query(description="As it was at this moment (UTC unless it says otherwise)."),
]  # fmt: skip
Kind = Literal["daily", "hourly", "monthly", "numbered", "other"]
Status = StrEnum("Status", {status: status for status in LETTERS})  # type: ignore[misc]


class GridLine(BaseModel):
    project: str
    dataset: str
    counts: dict[str, int]
    cells: str = Field(description="Run-length: a number before what comes more than once.", examples=["3RF2G"])
    dataids: list[str] | None = Field(description="Of these cells, where the lines do not share their columns.")


class GridWindow(BaseModel):
    """Some lines and columns of the grid. A small letter is not certain: its history was cleaned away."""

    kind: Kind
    kinds: dict[str, dict[str, int]]
    rows: int = Field(description="How many lines there are in all.")
    columns: int = Field(description="How many columns there are in all.")
    row: int
    column: int
    counts: dict[str, int]
    dataids: list[str] = Field(description="Of the columns of this window; empty where each line has its own.")
    lines: list[GridLine]
    letters: dict[str, str]
    at: str | None
    known_since: str | None = Field(description="The oldest change that the history still has.")
    upto: int = Field(description="The newest change that is in it: ask for the changes since.")


class BlockWindow(BaseModel):
    project: str
    dataset: str
    size: int = Field(description="How many cells there are in all.")
    start: int
    cells: str
    first_number: int | None = Field(description="Cells are numbers that follow each other from here; no dataids then.")
    width: int = Field(description="Of such numbers, with leading zeros; 0: without.")
    dataids: list[str]
    counts: dict[str, int]
    letters: dict[str, str]
    at: str | None
    upto: int


class GridChange(BaseModel):
    project: str
    dataset: str
    dataid: str
    cell: str


class Changes(BaseModel):
    changes: list[GridChange]
    upto: int
    complete: bool = Field(description="False: there was more; look at the windows anew.")


class Place(BaseModel):
    index: int
    dataid: str


def told_window(store: LoopStore, grid: Grid, *, row: int, rows: int, column: int, columns: int) -> GridWindow:
    """The window as it is sent; fewer columns where it would be too many cells."""
    columns = min(columns, max(1, MOST_ROWS * MOST_COLUMNS // 2 // max(rows, 1)))
    read = read_window(store, grid, row=row, rows=rows, column=column, columns=columns)
    is_shared = grid.kind != "other" and len({tuple(dataids) for _, _, dataids in read}) <= 1
    lines = [
        GridLine(
            project=one.project, dataset=one.datasetid, counts=one.counts, cells=run_length(cells),
            dataids=None if is_shared else dataids,
        )
        for one, cells, dataids in read
    ]  # fmt: skip
    width = grid.columns if grid.kind != "other" else max((one.size for one in grid.rows), default=0)
    return GridWindow(
        kind=grid.kind, kinds=grid.kinds, rows=len(grid.rows), columns=width, row=row, column=column,  # type: ignore[arg-type]
        counts=grid.counts, dataids=read[0][2] if read and is_shared else [], lines=lines, letters=LETTERS,
        at=grid.then.moment if grid.then else None, known_since=oldest_change(store) if grid.then else None,
        upto=grid.upto,
    )  # fmt: skip


def told_block(row: Row, block: Block, *, at: str | None, upto: int) -> BlockWindow:
    is_numbered = row.kind == "numbered" and row.axis is not None
    return BlockWindow(
        project=row.project, dataset=row.datasetid, size=row.size, start=block.start, cells=run_length(block.cells),
        first_number=row.first + block.start if is_numbered else None, width=row.axis.width if row.axis else 0,
        dataids=[] if is_numbered else block.dataids, counts=row.counts, letters=LETTERS, at=at, upto=upto,
    )  # fmt: skip


@router.get("/v1/grid")
async def get_grid(
    _user: Viewer, context: Ctx, project: ProjectName = None, name: Text = "", status: Status | None = None,
    kind: Kind | None = None, at: At = None, row: Annotated[int, Query(ge=0, le=10**9)] = 0,
    rows: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50, column: Annotated[int | None, Query(ge=0, le=10**12)] = None,
    columns: Annotated[int, Query(ge=1, le=MOST_COLUMNS)] = 60,
) -> GridWindow:  # fmt: skip
    """A window of the grid; without a column, the latest ones."""

    def read(store: LoopStore) -> GridWindow:
        wanted = None if status is None else str(status)
        grid = find_grid(store, project=project, name=name, status=wanted, kind=kind, at=at)
        start = max(0, grid.columns - columns) if column is None and grid.kind != "other" else column or 0
        return told_window(store, grid, row=row, rows=rows, column=start, columns=columns)

    return await context.stores.ask(read)


@router.get("/v1/grid/changes")
async def get_changes(
    _user: Viewer, context: Ctx, since: Annotated[int, Query(ge=0, le=2**62)], project: ProjectName = None,
    dataset: Text = "",
) -> Changes:  # fmt: skip
    """What chunks became after a look; the last change of each."""

    def read(store: LoopStore) -> Changes:
        upto = newest(store)
        found = list_changes(store, project=project, datasetid=dataset or None, since=since, limit=MOST_CHANGES + 1)
        latest = {(one.project, one.datasetid, one.dataid): one for one in found[:MOST_CHANGES]}
        told = [
            GridChange(
                project=one.project, dataset=one.datasetid, dataid=one.dataid,
                cell=LETTERS[one.status] if one.status else NOTHING,
            )
            for one in latest.values()
        ]  # fmt: skip
        return Changes(changes=told, upto=max(upto, since), complete=len(found) <= MOST_CHANGES)

    return await context.stores.ask(read)


@router.get("/v1/grid/{project}/{dataset}")
async def get_block(
    project: Name, dataset: Name, _user: Viewer, context: Ctx, at: At = None,
    start: Annotated[int, Query(ge=0, le=10**12)] = 0, count: Annotated[int, Query(ge=1, le=MOST_CELLS)] = 2000,
) -> BlockWindow:  # fmt: skip
    """The cells of one dataset, in order, from one of them on."""

    def read(store: LoopStore) -> BlockWindow:
        upto = newest(store)
        row = get_row(store, project, dataset, at=at)
        then = find_then(store, utc_text(at.timestamp())) if at is not None else None
        block = read_block(store, row, start=start, count=count, then=then)
        return told_block(row, block, at=then.moment if then else None, upto=upto)

    return await context.stores.ask(read)


@router.get("/v1/grid/{project}/{dataset}/place")
async def get_place(
    project: Name, dataset: Name, _user: Viewer, context: Ctx,
    dataid: Annotated[str, Query(min_length=1, max_length=400, pattern=_PLAIN)],
) -> Place:  # fmt: skip
    """At which place of its line a dataid is."""

    def read(store: LoopStore) -> Place:
        index = find_index(store, get_row(store, project, dataset), dataid)
        if index is None:
            raise NotThere(f"{dataset} has no place for {dataid!r}")
        return Place(index=index, dataid=dataid)

    return await context.stores.ask(read)


def get_row(store: LoopStore, project: str, dataset: str, *, at: datetime.datetime | None = None) -> Row:
    row = find_row(store, project, dataset, at=at)
    if row is None:
        raise NotThere(f"project {project!r} has no dataset {dataset!r}")
    return row
