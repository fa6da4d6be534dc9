"""What hangs together with what: chunks, datasets and jobs as nodes, reading and making as edges."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Node(NamedTuple):
    id: str
    kind: str  # dataset, chunk or job
    name: str  # what a person calls it
    status: str = ""
    detail: str = ""
    key: tuple[str, ...] = ()  # project, name, and the dataid of a chunk or of a job on one


@dataclass(slots=True)
class Graph:
    """Grows while it is found; `cut` counts what was left out because there was too much."""

    root: str
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[tuple[str, str], str] = field(default_factory=dict)  # from, to → label; data flows this way
    cut: int = 0

    def add(self, node: Node) -> bool:
        """False when it is there already."""
        if node.id in self.nodes:
            return False
        self.nodes[node.id] = node
        return True

    def link(self, source: str, target: str, label: str = "") -> None:
        self.edges.setdefault((source, target), label)

    def neighbours(self, *, upstream: bool) -> dict[str, list[tuple[str, str]]]:
        """For each node what comes before (or after) it, with the label of the edge, as it was found."""
        found: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for (source, target), label in self.edges.items():
            if upstream:
                found[target].append((source, label))
            else:
                found[source].append((target, label))
        return found

    def layers(self) -> dict[str, int]:
        """How far from the left each node is drawn: one further than the furthest that it comes from."""
        before = self.neighbours(upstream=True)
        after = self.neighbours(upstream=False)
        left = {node: len(before[node]) for node in self.nodes}
        ready = [node for node, number in left.items() if not number]
        found: dict[str, int] = {}
        while ready:
            node = ready.pop(0)
            found[node] = max((found[source] + 1 for source, _ in before[node] if source in found), default=0)
            for target, _ in after[node]:
                left[target] -= 1
                if not left[target]:
                    ready.append(target)
        return {node: found.get(node, 0) for node in self.nodes}

    def as_json(self) -> dict[str, Any]:
        edges = [{"from": source, "to": target, "map": label} for (source, target), label in self.edges.items()]
        return {
            "root": self.root, "nodes": [_told(node) for node in self.nodes.values()], "edges": edges,
            "left_out": self.cut,
        }  # fmt: skip


def _told(node: Node) -> dict[str, Any]:
    """Without what its id says already."""
    told = node._asdict()
    del told["key"]
    return told
