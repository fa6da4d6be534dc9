"""Where a chunk came from and what was made of it, by the records of runs; and the same of datasets, as declared."""

import json
from typing import Any

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.lineage.graph import Graph, Node
from opendataflow.errors import UsageError
from opendataflow.store.claims import LoopStore
from opendataflow.store.operations import FILE, Key
from opendataflow.store.published import find_chunk
from opendataflow.store.reports.stale import find_stale

LIMIT = 1000  # nodes of a graph: more is nothing to look at


class _Names:
    """How datasets and jobs are called: those of other projects by `project.name`."""

    def __init__(self, store: LoopStore, project: str) -> None:
        self._project = project
        self.makers: dict[tuple[str, str], tuple[str, str]] = {}
        self.sides: dict[tuple[str, str], list[tuple[str, str, str, str]]] = {}
        self.readers: dict[tuple[str, str], list[tuple[tuple[str, str], str]]] = {}
        links = store.read("links", {"project": None}, file="listing")
        for owner, jobid, itemtype, dataset_project, datasetid, map_ in links:
            if itemtype == "OUT":
                self.makers[dataset_project, datasetid] = (owner, jobid)
            else:
                self.readers.setdefault((dataset_project, datasetid), []).append(((owner, jobid), map_))
            self.sides.setdefault((owner, jobid), []).append((itemtype, dataset_project, datasetid, map_))

    def shown(self, project: str, name: str) -> str:
        return name if project == self._project else f"{project}.{name}"


# As declared ----------------------------------------------------------------------------------------------------------
def dataset_lineage(store: LoopStore, dataset: Dataset, *, depth: int | None = None, limit: int | None = None) -> Graph:
    """All datasets and jobs before and after this one, as they are registered; or so many steps of them, or nodes."""
    names = _Names(store, dataset.project)
    graph = Graph(_dataset_id(dataset.project, dataset.datasetid))
    graph.add(_dataset_node(names, (dataset.project, dataset.datasetid)))
    for upstream in (True, False):
        queue = [(dataset.project, dataset.datasetid)]
        seen = set(queue)
        steps = 0
        while queue and (depth is None or steps < depth):
            found = [one for key in queue for one in _declared_step(graph, names, key, upstream=upstream, limit=limit)]
            queue = list(dict.fromkeys(one for one in found if one not in seen))
            seen.update(queue)
            steps += 1
    return graph


def project_lineage(store: LoopStore, project: str, *, limit: int) -> Graph:
    """All datasets and jobs of a project, and what else they read, as registered; no more nodes than so many."""
    names = _Names(store, project)
    graph = Graph("")
    for owner, jobid in names.sides:
        if owner != project:
            continue
        for upstream in (True, False):
            _link_job(graph, names, (owner, jobid), upstream=upstream, limit=limit)
    for line in store.read("dataset_names", {}, file="published"):
        key = (str(line[0]), str(line[1]))
        if key[0] == project:
            _add(graph, _dataset_node(names, key), limit)
    return graph


def _declared_step(
    graph: Graph, names: _Names, key: tuple[str, str], *, upstream: bool, limit: int | None
) -> list[tuple[str, str]]:
    here = _dataset_id(*key)
    if upstream:
        maker = names.makers.get(key)
        jobs = [(maker, "")] if maker is not None else []
    else:
        jobs = names.readers.get(key, [])
    found = []
    for job, map_ in jobs:
        node = _declared_job(names, job)
        if not _add(graph, node, limit):
            continue
        graph.link(*((node.id, here) if upstream else (here, node.id)), map_)
        found += _link_job(graph, names, job, upstream=upstream, limit=limit)
    return found


def _link_job(
    graph: Graph, names: _Names, job: tuple[str, str], *, upstream: bool, limit: int | None
) -> list[tuple[str, str]]:
    """The job with what it reads, or what it makes."""
    node = _declared_job(names, job)
    if not _add(graph, node, limit):
        return []
    found = []
    for side, owner, datasetid, map_ in names.sides[job]:
        if side != ("IN" if upstream else "OUT"):
            continue
        other = _dataset_node(names, (owner, datasetid))
        if _add(graph, other, limit):
            graph.link(*((other.id, node.id) if upstream else (node.id, other.id)), map_ if upstream else "")
            found.append((owner, datasetid))
    return found


def _add(graph: Graph, node: Node, limit: int | None) -> bool:
    """True when it is in the graph now."""
    if node.id not in graph.nodes and limit is not None and len(graph.nodes) >= limit:
        graph.cut += 1
        return False
    graph.add(node)
    return True


def _declared_job(names: _Names, job: tuple[str, str]) -> Node:
    return Node(f"job {job[0]}.{job[1]}", "job", names.shown(*job), key=job)


def _dataset_node(names: _Names, key: tuple[str, str]) -> Node:
    return Node(_dataset_id(*key), "dataset", names.shown(*key), key=key)


def _dataset_id(project: str, datasetid: str) -> str:
    return f"dataset {project}.{datasetid}"


# As it was ------------------------------------------------------------------------------------------------------------
def chunk_lineage(store: LoopStore, dataset: Dataset, dataid: str, *, limit: int = LIMIT) -> Graph:
    """The chunks that this one was made of, and theirs, in the versions that were read."""
    get_chunk_status(store, dataset, dataid)
    names = _Names(store, dataset.project)
    start = (dataset.project, dataset.datasetid, dataid)
    graph = Graph(_chunk_id(*start))
    queue = [start]
    graph.add(_chunk_node(store, names, start))
    while queue:
        chunk = queue.pop(0)
        maker = names.makers.get(chunk[:2])
        if maker is None:
            continue
        job = _job_node(store, names, Key(*maker, chunk[2]))
        graph.add(job)
        graph.link(job.id, _chunk_id(*chunk))
        for owner, datasetid, of_dataid, version in _inputs(store, chunk, maker):
            other = (owner, datasetid, of_dataid)
            if len(graph.nodes) >= limit and _chunk_id(*other) not in graph.nodes:
                graph.cut += 1
                continue
            if graph.add(_chunk_node(store, names, other)):
                queue.append(other)
            graph.link(_chunk_id(*other), job.id, "" if version is None else f"version {version}")
    return graph


def _inputs(store: LoopStore, chunk: tuple[str, str, str], maker: tuple[str, str]) -> list[tuple[str, str, str, Any]]:
    """What the run read that made the chunk; where there is none (any more), what one would read now."""
    rows = store.read("made_of", {"project": chunk[0], "datasetid": chunk[1], "dataid": chunk[2]}, file=FILE)
    if rows:
        return [(owner, datasetid, dataid, version) for owner, datasetid, dataid, version, _ in json.loads(rows[0][0])]
    candidate = store.find_candidate(store.get_job(maker[1], project=maker[0]), chunk[2])
    return [(*one.key, None) for one in candidate.inputs] if candidate is not None else []


def impact(store: LoopStore, dataset: Dataset, dataid: str, *, limit: int = LIMIT) -> Graph:
    """Everything that reads this chunk, and what is made of that: what would have to be done again if it changed."""
    get_chunk_status(store, dataset, dataid)
    names = _Names(store, dataset.project)
    start = (dataset.project, dataset.datasetid, dataid)
    graph = Graph(_chunk_id(*start))
    queue = [start]
    graph.add(_chunk_node(store, names, start))
    while queue:
        chunk = queue.pop(0)
        of_chunk = {"project": chunk[0], "datasetid": chunk[1], "dataid": chunk[2]}
        for owner, jobid, of_dataid, *_ in store.read("readers_of_chunk", of_chunk, file=FILE):
            job = _job_node(store, names, Key(owner, jobid, of_dataid))
            if len(graph.nodes) >= limit and job.id not in graph.nodes:
                graph.cut += 1
                continue
            graph.add(job)
            graph.link(_chunk_id(*chunk), job.id)
            for side, dataset_project, datasetid, _ in names.sides[owner, jobid]:
                if side == "OUT":
                    made = (dataset_project, datasetid, of_dataid)
                    if graph.add(_chunk_node(store, names, made)):
                        queue.append(made)
                    graph.link(job.id, _chunk_id(*made))
    return graph


def get_chunk_status(store: LoopStore, dataset: Dataset, dataid: str) -> str:
    """How the chunk stands, or raise UsageError."""
    chunk = find_chunk(store, dataset, dataid)
    if chunk is None:
        name = dataset.datasetid
        raise UsageError(f"{name} has no chunk {dataid!r}; see `dataflow status {name}` and `dataflow gaps {name}`")
    return chunk.status.value


def _chunk_id(project: str, datasetid: str, dataid: str) -> str:
    return f"chunk {project}.{datasetid}/{dataid}"


def _chunk_node(store: LoopStore, names: _Names, chunk: tuple[str, str, str]) -> Node:
    of_chunk = {"project": chunk[0], "datasetid": chunk[1], "dataid": chunk[2]}
    rows = store.read("chunk_stands", of_chunk, file=FILE)
    status, version, rows_of = rows[0] if rows else ("PENDING", None, None)
    maker = names.makers.get(chunk[:2])
    stale = find_stale(store, Key(*maker, chunk[2])) if maker is not None and status == "READY" else None
    told = ["" if version is None else f"version {version}", "" if rows_of is None else f"{rows_of:,} rows"]
    if stale is not None:
        told.append("stale" if stale.direct else "stale because of what it was made from")
    name = f"{names.shown(chunk[0], chunk[1])}/{chunk[2]}"
    return Node(_chunk_id(*chunk), "chunk", name, str(status), ", ".join(one for one in told if one), chunk)


def _job_node(store: LoopStore, names: _Names, key: Key) -> Node:
    rows = store.read("job_stands", key._asdict(), file=FILE)
    status, runid = rows[0] if rows else ("PENDING", None)
    name = f"{names.shown(key.project, key.jobid)}/{key.dataid}"
    detail = "" if runid is None else f"run {runid}"
    return Node(f"job {key.project}.{key.jobid}/{key.dataid}", "job", name, str(status), detail, tuple(key))
