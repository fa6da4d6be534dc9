"""`/datasets`: the grid of all; a dataset; a chunk."""

import datetime
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from opendataflow.errors import DataflowError, StoreUnavailable
from opendataflow.server.access import Viewer
from opendataflow.server.actions.registry import ACTIONS
from opendataflow.server.context import Ctx
from opendataflow.server.datasets import chunk_files
from opendataflow.server.datasets.api import DataId
from opendataflow.server.datasets.facts import LATEST, Found, chunk_facts, dataset_facts, find_in_status, list_chunks
from opendataflow.server.datasets.grid import KINDS, ORDER, Grid, Row, find_grid, read_block
from opendataflow.server.datasets.grid_api import Name, Text, told_block, told_window
from opendataflow.server.templates import render
from opendataflow.store.claims import LoopStore
from opendataflow.store.reports.grid import Then, find_then, newest, oldest_change
from opendataflow.store.rows import utc_text

router = APIRouter(include_in_schema=False)
TILE_ROWS, TILE_COLUMNS, TILE_CELLS = 40, 50, 2000  # as static/grid.js asks for them
LISTED = 50  # datasets on a page of the table
TIMES = ("daily", "hourly", "monthly")


def _moment(text: str) -> datetime.datetime | None:
    """What a person typed as a time, UTC."""
    if not text:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text)
        return moment.replace(tzinfo=datetime.UTC) if moment.tzinfo is None else moment.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise HTTPException(422, f"at: {text!r} is no time like 2026-11-17T02:30") from None


def _choice(name: str, given: str, known: tuple[str, ...]) -> str | None:
    if given and given not in known:
        raise HTTPException(422, f"{name}: {given!r} is none of {', '.join(known)}")
    return given or None


def _in_block(store: LoopStore, row: Row, then: Then | None, upto: int) -> BaseModel:
    """The first cells of a dataset; of one by time, the last."""
    is_time = row.kind in TIMES
    start = max(0, (row.size - 1) // TILE_CELLS - 1) * TILE_CELLS if is_time else 0
    block = read_block(store, row, start=start, count=2 * TILE_CELLS if is_time else TILE_CELLS, then=then)
    return told_block(row, block, at=then.moment if then else None, upto=upto)


def _first(store: LoopStore, grid: Grid) -> tuple[str, BaseModel]:
    """What the browser begins with: the corner of the grid that is looked at first, or the block of the one dataset."""
    if len(grid.rows) == 1 and grid.kind not in TIMES:
        return "block", _in_block(store, grid.rows[0], grid.then, grid.upto)
    tiles = max(0, (grid.columns - 1) // TILE_COLUMNS - 1) if grid.kind in TIMES else 0
    return "slots", told_window(
        store, grid, row=0, rows=TILE_ROWS, column=tiles * TILE_COLUMNS, columns=2 * TILE_COLUMNS
    )


@router.get("/datasets")
async def show_datasets(
    request: Request, user: Viewer, context: Ctx, project: Text = "", name: Text = "", status: Text = "",
    kind: Text = "", at: Text = "", offset: int = 0,
) -> Response:  # fmt: skip
    wanted, of_kind, moment = _choice("status", status, ORDER), _choice("kind", kind, KINDS), _moment(at)

    def read(store: LoopStore) -> dict[str, Any]:
        grid = find_grid(store, project=project or None, name=name, status=wanted, kind=of_kind, at=moment)
        mode, first = _first(store, grid)
        projects = [str(row[0]) for row in store.read("projects", {}, file="operations")]
        found = find_in_status(store, grid, wanted) if wanted is not None else Found([], False)
        return {
            "grid": grid, "mode": mode, "first": first.model_dump_json(), "projects": projects, "found": found,
            "oldest": oldest_change(store), "now": utc_text(store.clock()),
        }  # fmt: skip

    told = await context.stores.ask(read)
    grid: Grid = told["grid"]
    query = {"project": project, "name": name, "status": status, "kind": kind, "at": at}
    path = ""
    if told["mode"] == "block":
        path = "/" + "/".join(quote(part, safe="") for part in grid.rows[0].key)
    offset = max(0, min(offset, max(0, len(grid.rows) - 1)))
    asked = {key: value for key, value in query.items() if value and key != "kind"}
    return render(
        request, "datasets.html", user=user, **told, query=query, path=path, asked=urlencode(asked), order=ORDER,
        kinds=KINDS, listed=grid.rows[offset : offset + LISTED], offset=offset, page=LISTED, times=TIMES,
        refreshed=_rounded(told["now"]),
    )  # fmt: skip


def _rounded(moment: str) -> str:
    """To the minute, so that a page that did not change is not sent again."""
    return f"{moment[:16]}:00Z"


@router.get("/datasets/{project}/{dataset}")
async def show_dataset(
    request: Request, project: Name, dataset: Name, user: Viewer, context: Ctx, status: Text = "", at: Text = "",
    after: Text = "",
) -> Response:  # fmt: skip
    wanted, moment = _choice("status", status, ORDER), _moment(at)
    of_chunks = None if wanted is None or wanted == "GAP" else wanted

    def read(store: LoopStore) -> dict[str, Any]:
        upto = newest(store)
        facts = dataset_facts(store, project, dataset, at=moment)
        then = find_then(store, utc_text(moment.timestamp())) if moment is not None else None
        chunks, following = list_chunks(store, project, dataset, status=of_chunks, after=after, limit=LISTED)
        return {
            **facts, "first": _in_block(store, facts["row"], then, upto).model_dump_json(), "chunks": chunks,
            "following": following, "oldest": oldest_change(store), "now": utc_text(store.clock()),
        }  # fmt: skip

    told = await context.stores.ask(read)
    path = f"/{quote(project, safe='')}/{quote(dataset, safe='')}"
    return render(
        request, "dataset.html", user=user, **told, project=project, dataset=dataset, path=path, order=ORDER,
        query={"status": status, "at": at}, after=after, times=TIMES, refreshed=_rounded(told["now"]),
        latest=LATEST,
    )  # fmt: skip


@router.get("/datasets/{project}/{dataset}/{dataid:path}")
async def show_chunk(
    request: Request, project: Name, dataset: Name, dataid: DataId, user: Viewer, context: Ctx, rows: int = 0
) -> Response:
    told = await context.stores.ask(lambda store: chunk_facts(store, project, dataset, dataid))
    preview, refused = None, ""
    if rows > 0 and told["is_file"]:
        try:
            preview = await chunk_files.preview(context, project, dataset, dataid, rows=rows)
        except StoreUnavailable:
            raise
        except DataflowError as error:
            refused = str(error)
    shown = {name: value for name, value in told.items() if name not in ("dataset", "status")}
    return render(
        request, "chunk.html", user=user, **shown, declared=told["dataset"], dataset=dataset, word=told["status"],
        project=project, preview=preview, refused=refused, rows=rows, actions=frozenset(ACTIONS),
    )  # fmt: skip
