"""Look whether published data is still there and still what was published; what is not is kept, with its fix."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from opendataflow.domain.chunk import ChunkKey
from opendataflow.domain.dataset import Dataset, chunk_location, why_no_place
from opendataflow.domain.tables import find_table
from opendataflow.storage.verify import Finding, verify_files
from opendataflow.store.claims import LoopStore
from opendataflow.store.published import find_dataset
from opendataflow.store.registry import get_dataset
from opendataflow.store.reports.verify import (
    PAGE,
    Damage,
    Version,
    find_version,
    list_damage,
    list_versions,
    record_findings,
)

_WRONG = (Finding.GONE, Finding.CHANGED)
Declared = Callable[[str, str], tuple[Dataset, str]]


class Verified(NamedTuple):
    version: Version
    finding: Finding


def verify(store: LoopStore, name: str | None, *, project: str | None, contents: bool) -> Iterator[Verified]:
    """Compare all published chunks, or those of one dataset; what is gone or changed is kept."""
    owner, datasetid = project, None
    if name is not None:
        dataset, _ = find_dataset(store, name, project=project)
        owner, datasetid = dataset.project, dataset.datasetid
    known = {one.key for one in list_damage(store, project=owner, datasetid=datasetid)}
    page: list[Verified] = []
    for one in look_at(store, list_versions(store, project=owner, datasetid=datasetid), contents=contents):
        yield one
        page.append(one)
        if len(page) >= PAGE:
            keep(store, page, known)
            page = []
    keep(store, page, known)


def look_at(store: LoopStore, versions: Iterable[Version], *, contents: bool) -> Iterator[Verified]:
    """Compare these versions with what is there; changes nothing."""
    declared: Declared = functools.cache(lambda project, name: get_dataset(store, name, project=project))
    for one in versions:
        yield Verified(one, _look(one, *declared(one.key.project, one.key.datasetid), contents=contents))


def keep(store: LoopStore, found: Iterable[Verified], known: set[ChunkKey]) -> None:
    """Record what is wrong, and what was (`known`) and is no more."""
    record_findings(
        store,
        [
            (one.version, one.finding.value if one.finding in _WRONG else None)
            for one in found
            if one.finding in _WRONG or one.version.key in known
        ],
    )


def look_at_chunk(store: LoopStore, key: ChunkKey, *, contents: bool) -> Finding:
    """Compare what is published of one chunk with what is there; changes nothing."""
    found = find_version(store, key)
    if found is None:
        return Finding.UNSEEN
    dataset, root = get_dataset(store, key.datasetid, project=key.project)
    return _look(found, dataset, root, contents=contents)


def _look(one: Version, dataset: Dataset, root: str, *, contents: bool) -> Finding:
    if find_table(dataset) is not None or dataset.clock is not None:
        return Finding.UNSEEN
    location = one.location
    if location is None and not why_no_place(dataset, one.key.dataid):
        location = chunk_location(dataset, one.key.dataid, root=root)
    return verify_files(location, one.fingerprint, root=root, name=str(one.key), contents=contents)


# What was found -------------------------------------------------------------------------------------------------------
def describe_finding(key: ChunkKey, finding: str) -> str:
    return f"{key} is gone" if finding == Finding.GONE else f"{key} is not what was published any more"


def next_step(damage: Damage) -> str:
    """The command that makes it whole."""
    key = damage.key
    if damage.jobid is not None:
        return f"`dataflow resubmit {damage.jobid} {key.dataid} --cascade`"
    if damage.finding == Finding.GONE:
        return f"put it back, then `dataflow verify {key.datasetid}`"
    return f"put it back, or `dataflow ready {key.datasetid} {key.dataid}` if this is the new version"


def list_damage_of(store: LoopStore, name: str | None, *, project: str | None) -> list[Damage]:
    """What was found wrong and still is, of all datasets or of one."""
    if name is None:
        return list_damage(store, project=project)
    dataset, _ = find_dataset(store, name, project=project)
    return list_damage(store, project=dataset.project, datasetid=dataset.datasetid)


def find_damage(store: LoopStore, chunks: Iterable[ChunkKey]) -> list[Damage]:
    """What was found wrong with these chunks."""
    return [
        one
        for key in chunks
        for one in list_damage(store, project=key.project, datasetid=key.datasetid, dataid=key.dataid)
    ]
