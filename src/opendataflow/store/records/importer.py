"""The original OpenDataFlow's state in PostgreSQL: read as of one moment, and its READY chunks brought into a store."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import psycopg

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.partitions.scheme import natural_key
from opendataflow.errors import ConfigurationError, Refused, StoreUnavailable, UsageError
from opendataflow.store.base import without_password
from opendataflow.store.claims import LoopStore
from opendataflow.store.registry import assert_ready, get_dataset
from opendataflow.store.statements import statements

CONNECT_SECONDS = 10


class OriginalDataset(NamedTuple):
    datasetid: str
    hostname: str | None
    database: str | None
    schemaname: str | None
    tablename: str | None
    username: str | None
    encryptedpass: str | None


class OriginalItem(NamedTuple):
    jobid: str
    itemtype: str  # IN, OUT, or the name of an environment item
    datasetid: str | None
    itemvalue: str | None


class OriginalStatus(NamedTuple):
    datasetid: str
    jobid: str
    dataid: str
    locktype: str | None
    status: str | None


class Original(NamedTuple):
    """The three tables, as of one moment."""

    datasets: tuple[OriginalDataset, ...]
    items: tuple[OriginalItem, ...]
    statuses: tuple[OriginalStatus, ...]


def read_original(url: str, *, search_path: str) -> Original:
    """Everything the original knows, in one read-only transaction that changes and locks nothing."""
    shown = without_password(url)
    try:
        connection: psycopg.Connection[Any] = psycopg.connect(
            url,
            connect_timeout=CONNECT_SECONDS,
            application_name="dataflow import-opendataflow",
            options=f"-c search_path={search_path}",
        )
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"{shown} cannot be used: {str(error).strip().splitlines()[0]}") from None
    except psycopg.Error:  # its text may repeat a piece of the address
        raise ConfigurationError(f"{shown} is not an address that PostgreSQL understands") from None
    named = statements("postgres", "original")
    with connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        try:
            return Original(
                tuple(OriginalDataset(*row) for row in connection.execute(named["datasets"])),
                tuple(OriginalItem(*row) for row in connection.execute(named["items"])),
                tuple(OriginalStatus(*row) for row in connection.execute(named["statuses"])),
            )
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            raise ConfigurationError(
                f"{shown}: schema {search_path} does not hold the original's tables: "
                f"{error.diag.message_primary}; give theirs with --schema"
            ) from None
        except psycopg.OperationalError as error:
            raise StoreUnavailable(f"{shown} cannot be used: {str(error).strip().splitlines()[0]}") from None
        except psycopg.errors.InsufficientPrivilege as error:
            raise ConfigurationError(f"{shown}: {error.diag.message_primary}") from None


class Found(NamedTuple):
    """What the original's statuses mean here."""

    ready: tuple[tuple[str, str], ...]  # dataset, dataid; what others are made from comes last
    left: tuple[OriginalStatus, ...]  # to be run again, or looked at


def judge_statuses(original: Original) -> Found:
    """Chunks are READY where every job that wrote them says READY or COMPLETE; everything else is left.

    Outputs come before the inputs they were made from: a job is then complete before it could be claimed.
    """
    written: dict[tuple[str, str], list[OriginalStatus]] = {}
    left = []
    for row in original.statuses:
        if row.locktype == "OUT":
            written.setdefault((row.datasetid, row.dataid), []).append(row)
        elif row.status != "DONE":
            left.append(row)
    ready = []
    for chunk, rows in written.items():
        unfinished = [row for row in rows if row.status not in ("READY", "COMPLETE")]
        left += unfinished
        if not unfinished:
            ready.append(chunk)
    depth = _depths(original.items)
    ready.sort(key=lambda chunk: (-depth.get(chunk[0], 0), chunk[0], natural_key(chunk[1])))
    return Found(tuple(ready), tuple(left))


def _depths(items: Iterable[OriginalItem]) -> dict[str, int]:
    """How many jobs stand before each dataset at most; jobs that wait for each other are counted once."""
    made_from: dict[str, set[str]] = {}
    reads: dict[str, set[str]] = {}
    items = [item for item in items if item.datasetid]
    for item in items:
        if item.itemtype == "IN":
            reads.setdefault(item.jobid, set()).add(item.datasetid or "")
    for item in items:
        if item.itemtype == "OUT":
            made_from.setdefault(item.datasetid or "", set()).update(reads.get(item.jobid, ()))
    depth: dict[str, int] = {}

    def of(dataset: str, trail: frozenset[str]) -> int:
        if dataset in trail:
            return 0
        if dataset not in depth:
            before = made_from.get(dataset, ())
            depth[dataset] = 1 + max((of(one, trail | {dataset}) for one in before), default=-1)
        return depth[dataset]

    for dataset in made_from:
        of(dataset, frozenset())
    return depth


class Brought(NamedTuple):
    ready: tuple[tuple[str, str], ...]
    already: tuple[tuple[str, str], ...]
    refused: tuple[str, ...]  # why, one line each


def bring_ready(
    store: LoopStore, chunks: Iterable[tuple[str, str]], *, project: str | None, dry_run: bool = False
) -> Brought:
    """Declare the chunks READY, each in a transaction of its own; those that are READY already stay untouched.

    A dataset with a path is left out: `dataflow ready` looks at its files.
    """
    known = {(row[0], row[1], row[2]) for row in store.read("ready_chunks", {}, file="importer")}
    ready, already, refused = [], [], []
    for datasetid, dataid in chunks:
        try:
            dataset, _ = get_dataset(store, datasetid, project=project)
            if (dataset.project, datasetid, dataid) in known:
                already.append((datasetid, dataid))
                continue
            if dataset.location is not None:
                raise UsageError(f"has a path here; use `dataflow ready {datasetid} {dataid}`")
            if not dry_run:
                assert_ready(store, dataset, dataid, Manifest())
            ready.append((datasetid, dataid))
        except (UsageError, Refused) as error:
            refused.append(f"{datasetid}/{dataid}: {error}")
    return Brought(tuple(ready), tuple(already), tuple(refused))
