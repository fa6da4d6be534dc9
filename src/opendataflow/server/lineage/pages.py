"""`/lineage`: a drawing with states, each box a link; and the same as a table."""

from typing import Any
from urllib.parse import quote

from fastapi import APIRouter
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from opendataflow.domain.lineage.drawing import inline_svg
from opendataflow.domain.lineage.graph import Graph, Node
from opendataflow.server.access import Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.datasets.grid_api import Text
from opendataflow.server.lineage.facts import DEPTH, MOST, Around, find_graph, in_trouble
from opendataflow.server.templates import render
from opendataflow.store.claims import LoopStore

router = APIRouter(include_in_schema=False)
DEPTHS = (1, 2, 3, 5, 10)


def address_of(node: Node, base: str = "") -> str:
    """The page of a box."""
    kind = "jobs" if node.kind == "job" else "datasets"
    return f"{base}/{kind}/{'/'.join(quote(part, safe='') for part in node.key)}"


@router.get("/lineage")
async def show_lineage(
    request: Request, user: Viewer, context: Ctx, project: Text = "", dataset: Text = "", dataid: Text = "",
    depth: int = DEPTH,
) -> Response:  # fmt: skip
    depth = min(max(depth, 1), 50)

    def read(store: LoopStore) -> dict[str, Any]:
        projects = [str(row[0]) for row in store.read("projects", {}, file="operations")]
        shown = project or context.address.project or (projects[0] if projects else "")
        if not projects:
            return {"graph": None, "projects": [], "project": "", "names": [], "worst": []}
        around = Around(shown, dataset or None, dataid or None, depth)
        graph = find_graph(store, around)
        names = [str(row[1]) for row in store.read("dataset_names", {}, file="published") if row[0] == shown]
        worst = in_trouble(store, shown) if graph.cut and not dataset else []
        return {"graph": graph, "projects": projects, "project": shown, "names": names[:2000], "worst": worst}

    told = await context.stores.ask(read)
    graph: Graph | None = told["graph"]
    base = request.scope.get("root_path", "")
    drawing = Markup("")
    if graph is not None and graph.nodes and not (graph.cut and not dataset):
        title = f"Lineage of {dataset or told['project']}{'/' if dataid else ''}{dataid}: {len(graph.nodes)} boxes"
        drawing = Markup(inline_svg(graph, title=title, link=lambda node: address_of(node, base)))  # noqa: S704 – it escapes
    return render(
        request, "lineage.html", user=user, **told, dataset=dataset, dataid=dataid, depth=depth, depths=DEPTHS,
        drawing=drawing, rows=_rows(graph) if drawing else [], most=MOST, address_of=address_of,
    )  # fmt: skip


def _rows(graph: Graph | None) -> list[tuple[Node, list[Node], list[Node]]]:
    """Each box with what comes before and after it, from left to right."""
    if graph is None:
        return []
    before, after, layers = graph.neighbours(upstream=True), graph.neighbours(upstream=False), graph.layers()
    nodes = sorted(graph.nodes.values(), key=lambda node: (layers[node.id], node.name))
    return [
        (node, [graph.nodes[one] for one, _ in before[node.id]], [graph.nodes[one] for one, _ in after[node.id]])
        for node in nodes
    ]
