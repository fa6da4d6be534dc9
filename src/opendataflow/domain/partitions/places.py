"""Places of datasets: no two may share one, or the data of one would be taken for the other's."""

import bisect
import functools
import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from opendataflow.domain.partitions.path_template import MARK, complete, could_meet, has_form, has_mark, pattern_of
from opendataflow.domain.partitions.scheme import is_dataid


class _Place(NamedTuple):
    datasetid: str
    parts: tuple[str, ...]
    partitions: str | None  # the scheme's JSON; None: its dataids can be anything


class _Beginnings:
    """Names by how they begin, so that a folder of thousands is not searched name by name."""

    def __init__(self) -> None:
        self._sorted: list[str] = []
        self._names: dict[str, list[str]] = {}

    def add(self, beginning: str, name: str) -> None:
        if beginning not in self._names:
            bisect.insort(self._sorted, beginning)
        self._names.setdefault(beginning, []).append(name)

    def near(self, text: str, *, longer: bool) -> list[str]:
        """The names whose beginning the text begins with; with `longer`, also those whose beginning begins with it."""
        found = [name for end in range(len(text) + 1) for name in self._names.get(text[:end], ())]
        at = bisect.bisect_right(self._sorted, text)
        while longer and at < len(self._sorted) and self._sorted[at].startswith(text):
            found += self._names[self._sorted[at]]
            at += 1
        return found


class _Node:
    """A folder or file name on the way to places."""

    __slots__ = ("heads", "marked", "named", "places", "tails")

    def __init__(self) -> None:
        self.named: dict[str, _Node] = {}
        self.marked: dict[str, _Node] = {}  # names that hold a {dataid}
        self.heads: _Beginnings | None = None  # of those: what comes before the {dataid}
        self.tails: _Beginnings | None = None  # and what comes after it, backwards
        self.places: list[_Place] = []  # those that end here

    def below(self, part: str) -> "_Node":
        """The node of that name, made if there is none."""
        names = self.marked if has_mark(part) else self.named
        if part not in names:
            names[part] = _Node()
            if has_mark(part):
                self._index(part)
        return names[part]

    def _index(self, part: str) -> None:
        self.heads, self.tails = self.heads or _Beginnings(), self.tails or _Beginnings()
        head, tail = _ends(part)
        self.heads.add(head, part)
        self.tails.add(tail[::-1], part)

    def marked_like(self, part: str) -> Iterator["_Node"]:
        """Those below whose name with some dataid can be this one."""
        if self.heads is None or self.tails is None:
            return
        longer = has_mark(part)
        head, tail = _ends(part) if longer else (part, part)
        by_head, by_tail = self.heads.near(head, longer=longer), self.tails.near(tail[::-1], longer=longer)
        for name in min(by_head, by_tail, key=len):
            if _can_meet(name, part):
                yield self.marked[name]


def find_overlap(places: Iterable[tuple[str, str, str | None]]) -> tuple[str, str] | None:
    """Two datasets whose locations are equal or nested, or None; a place is (dataset, template, scheme's JSON)."""
    root = _Node()
    for datasetid, location, partitions in places:
        parts = tuple(part for part in location.split("/") if part not in ("", "."))
        place = _Place(datasetid, parts, partitions)
        other = next((one for one in _on_the_way(root, place) if _overlap(one, place)), None)
        if other is not None:
            return other.datasetid, datasetid
        node = root
        for part in parts:
            node = node.below(part)
        node.places.append(place)
    return None


def _on_the_way(root: _Node, place: _Place) -> Iterator[_Place]:
    """The places that this one could lie in or hold, as far as single names can tell."""
    pending = [(root, 0)]
    while pending:
        node, depth = pending.pop()
        yield from node.places
        if depth >= len(place.parts):
            pending += [(child, depth) for child in (*node.named.values(), *node.marked.values())]
            continue
        part = place.parts[depth]
        if has_mark(part):
            pending += [
                (child, depth + 1)
                for name, child in node.named.items()
                if _value(part, name, place.partitions) is not None
            ]
        elif part in node.named:
            pending.append((node.named[part], depth + 1))
        pending += [(child, depth + 1) for child in node.marked_like(part)]


def _overlap(one: _Place, other: _Place) -> bool:
    """True when some file could belong to both: the shorter path is the beginning of the longer, for some dataids."""
    values: dict[str, str] = {}  # the dataid that each place must have
    for mine, theirs in zip(one.parts, other.parts, strict=False):
        if has_mark(mine) == has_mark(theirs):
            if not _can_meet(mine, theirs):
                return False
            continue
        place, template, name = (one, mine, theirs) if has_mark(mine) else (other, theirs, mine)
        value = _value(template, name, place.partitions)
        if value is None or (value and values.setdefault(place.datasetid, value) != value):
            return False
    return True


def _can_meet(one: str, other: str) -> bool:
    """True when two names, with or without {dataid}, can be the same."""
    if has_mark(one) and has_mark(other):
        if not could_meet(one, other):
            return False
        (head, tail), (their_head, their_tail) = _ends(one), _ends(other)
        return (head.startswith(their_head) or their_head.startswith(head)) and (
            tail.endswith(their_tail) or their_tail.endswith(tail)
        )
    if has_mark(one) or has_mark(other):
        template, name = (one, other) if has_mark(one) else (other, one)
        return _value(template, name, None) is not None
    return one == other


def _ends(template: str) -> tuple[str, str]:
    """What comes before the first dataid and after the last: of a form, its digits are left out."""
    last = template.rindex("{dataid")
    return template[: template.index("{dataid")], template[template.index("}", last) + 1 :]


@functools.lru_cache(maxsize=65536)
def _value(template: str, name: str, partitions: str | None) -> str | None:
    """The dataid with which the template gives this name, or None; empty where the name tells a part of it only."""
    if has_form(template):
        match = pattern_of(template, {}).fullmatch(name)
        fields = complete(match.groupdict(), partitions) if match else None
        if fields is None:
            return None
        told = fields.get("dataid", "")
        return None if told and partitions is not None and not is_dataid(json.loads(partitions), told) else told
    head, *rest = template.split(MARK)
    if not name.startswith(head) or not name.endswith(rest[-1]):
        return None
    again = "(?P=dataid)".join(re.escape(part) for part in rest)
    found = re.fullmatch(f"{re.escape(head)}(?P<dataid>.+){again}", name, re.DOTALL)
    value = found["dataid"] if found else None
    if value is None or (partitions is not None and not is_dataid(json.loads(partitions), value)):
        return None
    return value
