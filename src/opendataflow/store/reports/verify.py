"""Chunks as they were published, to be compared with what is there; and what was found gone or changed."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from opendataflow.domain.chunk import ChunkKey
from opendataflow.store.claims import LoopStore
from opendataflow.store.rows import Row

FILE = "verify"
PAGE = 500
FIRST = ChunkKey("", "", "")
NAMED = 1_000


class Version(NamedTuple):
    """What is published of a chunk."""

    key: ChunkKey
    version: int | None
    location: str | None
    fingerprint: str | None


class Damage(NamedTuple):
    """A published chunk that is gone or changed, and the job that makes it (None: it arrives from outside)."""

    key: ChunkKey
    finding: str
    seen_at: str
    version: int | None
    jobid: str | None


def page_versions(
    store: LoopStore, after: ChunkKey, *, project: str | None, datasetid: str | None = None, limit: int = PAGE
) -> list[Version]:
    """The next READY chunks that have a fingerprint, by dataset and dataid."""
    start = {"after_project": after.project, "after_datasetid": after.datasetid, "after_dataid": after.dataid}
    wanted = {**start, "project": project, "datasetid": datasetid, "limit": limit}
    return [_version(store, row) for row in store.read("ready_page", wanted, file=FILE)]


def list_versions(store: LoopStore, *, project: str | None, datasetid: str | None) -> Iterator[Version]:
    """All of them, page by page."""
    after = FIRST
    while page := page_versions(store, after, project=project, datasetid=datasetid):
        yield from page
        after = page[-1].key


def find_version(store: LoopStore, key: ChunkKey) -> Version | None:
    rows = store.read("ready_chunk", key._asdict(), file=FILE)
    return _version(store, rows[0]) if rows else None


def _version(store: LoopStore, row: Row) -> Version:
    project, datasetid, dataid, version, location, fingerprint = row
    return Version(ChunkKey(project, datasetid, dataid), version, store.whole_location(project, location), fingerprint)


def record_findings(store: LoopStore, findings: Iterable[tuple[Version, str | None]]) -> None:
    """Keep what is `gone` or `changed` of these versions; None: it is as it was published."""
    found = list(findings)

    def change() -> None:
        with store.transaction(file=FILE) as tx:
            for one, finding in found:
                if finding is None:
                    tx.run("delete_damage", one.key._asdict())
                else:
                    tx.run("put_damage", {**one.key._asdict(), "version": one.version, "finding": finding})

    if found:
        store.again(change)


def list_damage(
    store: LoopStore, *, project: str | None, datasetid: str | None = None, dataid: str | None = None,
    limit: int = NAMED,
) -> list[Damage]:  # fmt: skip
    """What was found gone or changed and has not been published again since."""
    wanted = {"project": project, "datasetid": datasetid, "dataid": dataid, "limit": limit}
    return [Damage(ChunkKey(*row[:3]), *row[3:]) for row in store.read("list_damage", wanted, file=FILE)]
