"""A dataset as a source in words: what kind it is and where, without anything secret."""

from typing import NamedTuple

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.tables import find_table, table_place
from opendataflow.store.records.sources import Source, Tested

_DATABASES = {"postgresql": "PostgreSQL", "postgres": "PostgreSQL", "sqlite": "SQLite", "bigquery": "BigQuery"}
OPEN = "open"  # nobody has said yet where it is


class Described(NamedTuple):
    """One line of the list of sources."""

    project: str
    dataset: str
    kind: str
    place: str
    test: str  # in words; empty: never
    tested: Tested | None
    bound: tuple[str, ...]
    makers: tuple[str, ...]
    readers: tuple[str, ...]


def describe_source(source: Source) -> Described:
    dataset, tested = source.dataset, source.tested
    word = "" if tested is None else "answers" if tested.answered else "does not answer"
    return Described(
        dataset.project, dataset.datasetid, kind_of(dataset), place_of(dataset, source.root),
        f"{word} {tested.tested_at[:19].replace('T', ' ')}" if tested else "", tested, source.bound, source.makers,
        source.readers,
    )  # fmt: skip


def kind_of(dataset: Dataset) -> str:
    table = find_table(dataset)
    if table is not None:
        if table.url_env is not None:
            return "database"
        return _DATABASES.get(table.scheme, "JDBC" if table.scheme == "jdbc" else f"{table.scheme} database")
    if dataset.location is not None:
        return f"{dataset.format} files" if dataset.format else "files"
    return "connection" if dataset.hostname or dataset.database or dataset.tablename else OPEN


def place_of(dataset: Dataset, root: str) -> str:
    """Without user and password."""
    table = find_table(dataset)
    if table is not None:
        return table_place(table, root=root)
    if dataset.location is not None:
        return dataset.location
    names = ".".join(part for part in (dataset.database, dataset.schemaname, dataset.tablename) if part)
    return "/".join(part for part in (dataset.hostname, names) if part)
