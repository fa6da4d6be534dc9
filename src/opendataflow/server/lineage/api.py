"""`/v1/lineage` and `/v1/impact`: what hangs together with what, and what hangs on a chunk."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from opendataflow.domain.lineage.graph import Graph
from opendataflow.server.access import Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.datasets.grid_api import Text
from opendataflow.server.lineage.facts import DEPTH, MOST, Around, find_graph, find_impact

router = APIRouter(tags=["lineage"])
_PLAIN = r"^[^\x00]*$"
Wanted = Annotated[str, Query(min_length=1, max_length=400, pattern=_PLAIN)]
Limit = Annotated[int, Query(ge=2, le=1000, description="At most so many boxes.")]


class GraphNode(BaseModel):
    id: str
    kind: str
    name: str
    status: str
    detail: str


class GraphEdge(BaseModel):
    source: str = Field(alias="from")
    target: str = Field(alias="to")
    map: str


class GraphTold(BaseModel):
    root: str
    nodes: list[GraphNode]
    edges: list[GraphEdge]
    left_out: int


def _told(graph: Graph) -> GraphTold:
    return GraphTold.model_validate(graph.as_json())


@router.get("/v1/lineage")
async def get_lineage(
    _user: Viewer, context: Ctx, project: Wanted, dataset: Text = "", dataid: Text = "",
    depth: Annotated[int, Query(ge=0, le=1000)] = DEPTH, limit: Limit = MOST,
) -> GraphTold:  # fmt: skip
    """A project as declared; so many steps around a dataset; or what a chunk was made of, and what is made of it."""
    around = Around(project, dataset or None, dataid or None, depth)
    return _told(await context.stores.ask(lambda store: find_graph(store, around, limit=limit)))


@router.get("/v1/impact")
async def get_impact(
    _user: Viewer, context: Ctx, project: Wanted, dataset: Wanted, dataid: Wanted, limit: Limit = 1000
) -> GraphTold:
    """Everything that reads a chunk, and what is made of that."""
    around = Around(project, dataset, dataid)
    return _told(await context.stores.ask(lambda store: find_impact(store, around, limit=limit)))
