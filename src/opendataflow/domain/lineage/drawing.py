"""A graph as a person sees it: a tree of lines, a drawing (SVG), or text for Graphviz."""

from collections.abc import Callable, Iterator
from html import escape

from opendataflow.domain.lineage.graph import Graph, Node

WIDE, HIGH, ACROSS, DOWN, EDGE = 220, 44, 90, 16, 20  # of a box, between boxes, and around them
CHARACTERS = 30  # that fit into a box
FILLS = {
    "READY": "#d7f0d8", "COMPLETE": "#d7f0d8", "RUNNING": "#d6e6fb", "FAILED": "#f9d2d0", "RESUBMIT": "#fbecc0",
    "HOLD": "#ead8f5", "PENDING": "#eeeeee",
}  # fmt: skip


# Text -----------------------------------------------------------------------------------------------------------------
def tree(graph: Graph, *, upstream: bool) -> Iterator[str]:
    """The graph from its root on, indented; what was shown before is only named again."""
    following = graph.neighbours(upstream=upstream)
    seen: set[str] = set()

    def lines(node: str, label: str, head: str, rest: str) -> Iterator[str]:
        is_new = node not in seen
        seen.add(node)
        below = following[node] if is_new else []
        again = "  (see above)" if not is_new and following[node] else ""
        yield f"{head}{_line(graph.nodes[node], label)}{again}"
        for number, (one, its_label) in enumerate(below, start=1):
            branch, rest_of_it = ("└─ ", "   ") if number == len(below) else ("├─ ", "│  ")
            yield from lines(one, its_label, rest + branch, rest + rest_of_it)

    yield from lines(graph.root, "", "", "")


def _line(node: Node, label: str) -> str:
    facts = ", ".join(one for one in (node.status, node.detail, "" if label == "same" else label) if one)
    kind = "job " if node.kind == "job" else ""
    return f"{kind}{node.name}{f'  {facts}' if facts else ''}"


# Graphviz -------------------------------------------------------------------------------------------------------------
def dot(graph: Graph) -> str:
    """For `dot -Tpng` and the like."""
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [fontname="sans-serif", style=filled];']
    for node in graph.nodes.values():
        shape = "box" if node.kind == "job" else "note" if node.kind == "chunk" else "cylinder"
        told = "\\n".join(_quoted(text) for text in _texts(node))
        lines.append(f'  "{_quoted(node.id)}" [label="{told}", shape={shape}, fillcolor="{_fill(node)}"];')
    for (source, target), label in graph.edges.items():
        shown = f' [label="{_quoted(label)}"]' if label and label != "same" else ""
        lines.append(f'  "{_quoted(source)}" -> "{_quoted(target)}"{shown};')
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


# SVG ------------------------------------------------------------------------------------------------------------------
def svg(graph: Graph) -> str:
    """A drawing, data flowing from left to right; jobs have round corners, the one asked about has a thick frame."""
    places = _places(graph)
    wide, high = _size(places)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" '
        'font-family="sans-serif" font-size="12">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#777"/></marker></defs>',
        f'<rect width="{wide}" height="{high}" fill="#ffffff"/>',
    ]
    drawn += [_curve(places[source], places[target], label) for (source, target), label in graph.edges.items()]
    drawn += [_box(node, places[node.id], is_root=node.id == graph.root) for node in graph.nodes.values()]
    return "\n".join([*drawn, "</svg>", ""])


def inline_svg(graph: Graph, *, title: str, link: Callable[[Node], str]) -> str:
    """The same for a page: its colours are the page's style sheet's (by class), and each box is a link."""
    places = _places(graph)
    wide, high = _size(places)
    drawn = [
        f'<svg class="lineage" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" role="group" '
        f'aria-label="{escape(title)}">',
        '<defs><marker id="tip" class="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>',
    ]
    for (source, target), label in graph.edges.items():
        line = _path(places[source], places[target])
        drawn.append(f'<path class="edge" d="{line}" marker-end="url(#tip)"/>')
        if label and label != "same":
            x, y = _middle(places[source], places[target])
            drawn.append(f'<text class="map" x="{x}" y="{y}" text-anchor="middle">{escape(label)}</text>')
    for node in graph.nodes.values():
        kind = f"node k-{node.kind} s-{node.status.lower() or 'none'}{' root' if node.id == graph.root else ''}"
        drawn.append(f'<a class="{escape(kind)}" href="{escape(link(node))}">{_inside(node, places[node.id])}</a>')
    return "\n".join([*drawn, "</svg>"])


def _inside(node: Node, place: tuple[int, int]) -> str:
    x, y = place
    corner = 14 if node.kind == "job" else 4
    box = f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="{corner}"/>'
    bar = "" if node.kind == "job" else f'<rect class="bar" x="{x}" y="{y + 8}" width="4" height="{HIGH - 16}" rx="2"/>'
    bold = ' class="name"'
    texts = "".join(
        f'<text x="{x + 12}" y="{y + 18 + 16 * number}"{"" if number else bold}>{escape(_cut(text))}</text>'
        for number, text in enumerate(_texts(node))
    )
    return f"<title>{escape(f'{node.kind} ' + ' '.join(_texts(node)))}</title>{box}{bar}{texts}"


def _size(places: dict[str, tuple[int, int]]) -> tuple[int, int]:
    wide = max(x for x, _ in places.values()) + WIDE + EDGE
    return wide, max(y for _, y in places.values()) + HIGH + EDGE


def _places(graph: Graph) -> dict[str, tuple[int, int]]:
    """Columns from left to right; in each, beside what it comes from as far as there is room."""
    layers = graph.layers()
    before = graph.neighbours(upstream=True)
    columns: dict[int, list[str]] = {}
    for node, layer in layers.items():
        columns.setdefault(layer, []).append(node)
    rank: dict[str, float] = {}
    for layer in sorted(columns):
        known = {node: [rank[one] for one, _ in before[node] if one in rank] for node in columns[layer]}
        columns[layer].sort(key=lambda node, known=known: sum(known[node]) / len(known[node]) if known[node] else 0.0)  # type: ignore[misc]
        rank |= {node: float(number) for number, node in enumerate(columns[layer])}
    return {
        node: (EDGE + layer * (WIDE + ACROSS), EDGE + number * (HIGH + DOWN))
        for layer, nodes in columns.items()
        for number, node in enumerate(nodes)
    }


def _path(source: tuple[int, int], target: tuple[int, int]) -> str:
    x1, y1, x2, y2 = source[0] + WIDE, source[1] + HIGH // 2, target[0], target[1] + HIGH // 2
    middle = (x1 + x2) // 2
    return f"M{x1},{y1} C{middle},{y1} {middle},{y2} {x2},{y2}"


def _middle(source: tuple[int, int], target: tuple[int, int]) -> tuple[int, int]:
    return (source[0] + WIDE + target[0]) // 2, (source[1] + target[1] + HIGH) // 2 - 4


def _curve(source: tuple[int, int], target: tuple[int, int], label: str) -> str:
    line = f'<path d="{_path(source, target)}" fill="none" stroke="#777" marker-end="url(#tip)"/>'
    if not label or label == "same":
        return line
    x, y = _middle(source, target)
    look = 'text-anchor="middle" font-size="10" fill="#555"'
    return f'{line}<text x="{x}" y="{y}" {look}>{escape(label)}</text>'


def _box(node: Node, place: tuple[int, int], *, is_root: bool) -> str:
    x, y = place
    bold = ' font-weight="bold"'
    lines = "".join(
        f'<text x="{x + 10}" y="{y + 18 + 16 * number}"{"" if number else bold}>{escape(_cut(text))}</text>'
        for number, text in enumerate(_texts(node))
    )
    frame = 'stroke="#222" stroke-width="2.5"' if is_root else 'stroke="#777"'
    corner = 14 if node.kind == "job" else 2
    title = escape(" ".join(_texts(node)))
    return (
        f'<g><title>{title}</title><rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="{corner}" '
        f'fill="{_fill(node)}" {frame}/>{lines}</g>'
    )


def _cut(text: str) -> str:
    return text if len(text) <= CHARACTERS else f"{text[: CHARACTERS - 1]}…"


def _texts(node: Node) -> list[str]:
    facts = ", ".join(one for one in (node.status, node.detail) if one)
    return [node.name, *([facts] if facts else [])]


def _fill(node: Node) -> str:
    return FILLS.get(node.status, "#ffffff" if node.kind == "job" else "#f4f4f0")
