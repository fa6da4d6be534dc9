"""What hangs together with what, and how it stands: a project, around a dataset, or around a chunk."""

from typing import NamedTuple

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.lineage.graph import Graph, Node
from opendataflow.server.datasets.facts import get_declared
from opendataflow.server.datasets.grid import ORDER
from opendataflow.server.problems import NotThere
from opendataflow.store.claims import LoopStore
from opendataflow.store.published import find_chunk
from opendataflow.store.reports.grid import Counts, Key, count_chunks
from opendataflow.store.reports.lineage import chunk_lineage, dataset_lineage, impact, project_lineage

MOST = 150  # boxes of a drawing: more is nothing to look at
DEPTH = 2
_JOBS = ("FAILED", "HOLD", "RESUBMIT", "RUNNING", "COMPLETE")  # the worst first


class Around(NamedTuple):
    """What is asked for: without a dataset the whole project, without a dataid the dataset as declared."""

    project: str
    dataset: str | None = None
    dataid: str | None = None
    depth: int | None = DEPTH  # None: to the ends


def find_graph(store: LoopStore, around: Around, *, limit: int = MOST) -> Graph:
    """The graph, each box with its worst status. Raises NotThere."""
    if around.dataset is None:
        if not any(row[0] == around.project for row in store.read("projects", {}, file="operations")):
            raise NotThere(f"there is no project {around.project!r}")
        return _with_states(store, project_lineage(store, around.project, limit=limit))
    dataset, _ = get_declared(store, around.project, around.dataset)
    if around.dataid is None:
        return _with_states(store, dataset_lineage(store, dataset, depth=around.depth, limit=limit))
    _must_be_there(store, around)
    graph = chunk_lineage(store, dataset, around.dataid, limit=max(1, limit // 2))
    after = impact(store, dataset, around.dataid, limit=max(1, limit // 2))
    for node in after.nodes.values():
        graph.add(node)
    for (source, target), label in after.edges.items():
        graph.link(source, target, label)
    graph.cut += after.cut
    return graph


def find_impact(store: LoopStore, around: Around, *, limit: int) -> Graph:
    """What would have to be done again if the chunk changed."""
    dataset, _ = get_declared(store, around.project, around.dataset or "")
    _must_be_there(store, around)
    return impact(store, dataset, around.dataid or "", limit=limit)


def _must_be_there(store: LoopStore, around: Around) -> None:
    dataset, _ = get_declared(store, around.project, around.dataset or "")
    if find_chunk(store, dataset, around.dataid or "") is None:
        raise NotThere(f"{around.dataset} has no chunk {around.dataid!r}")


def _with_states(store: LoopStore, graph: Graph) -> Graph:
    """Datasets and jobs by the worst that is in them."""
    chunks, jobs = count_chunks(store, project=None)
    for node in list(graph.nodes.values()):
        graph.nodes[node.id] = _stated(node, jobs, _JOBS) if node.kind == "job" else _stated(node, chunks, ORDER)
    return graph


def _stated(node: Node, counts: Counts, order: tuple[str, ...]) -> Node:
    key: Key = (node.key[0], node.key[1])
    mine = counts.get(key, {})
    present = [(status, mine[status]) for status in order if mine.get(status)]
    if not present:
        return node
    status, number = present[0]
    rest = "" if len(present) == 1 else f" of {sum(mine.values()):,}"
    return node._replace(status=status, detail=f"{number:,}{rest}")


def in_trouble(store: LoopStore, project: str, *, limit: int = 50) -> list[tuple[str, str, int]]:
    """Where to begin in a project that is too large to be drawn: datasets, the worst first, with status and number."""
    chunks, _ = count_chunks(store, project=project)
    found = []
    for (_, name), counts in chunks.items():
        status = next((one for one in ORDER if counts.get(one)), ChunkStatus.PENDING.value)
        found.append((name, status, counts.get(status, 0)))
    return sorted(found, key=lambda one: (ORDER.index(one[1]), -one[2], one[0]))[:limit]
