"""Tables and queries of databases as datasets: what project.yml says of them, and where their chunks are.

A dataset is a table when it has an address (`url`, or `url_env`: the name of the variable that holds it) and a table or
a query there. Nothing here is secret: passwords, and addresses that hold one, stay in variables that are only named.
"""

import functools
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from opendataflow.domain.dataset import Dataset, variable_prefix

SQL = "sql"  # the format of such a place, as the Spark child is told
REPLACE, APPEND, REPLACE_TABLE = "replace", "append", "replace_table"
DRIVERS = ("postgresql", "postgres", "sqlite", "bigquery")  # schemes of addresses that need no `driver`
WHOLE = '"none"'  # the scheme of one chunk
_SQLITE = "sqlite:///"


class Table(NamedTuple):
    """What of a dataset is about its database."""

    url: str  # empty where a variable holds it
    url_env: str | None
    table: str | None  # one of these two
    query: str | None
    partition_column: str | None
    write: str | None  # None: as its pipeline says
    driver: str | None
    driver_options: dict[str, str]
    connections: int | None
    staging: str | None  # of BigQuery: where chunks lie that it loads

    @property
    def name(self) -> str:
        return self.table or "query"

    @property
    def scheme(self) -> str:
        """What the address begins with: postgresql, sqlite, jdbc, …; empty where only a variable knows."""
        return self.url.partition(":")[0]


@functools.lru_cache(maxsize=1024)
def find_table(dataset: Dataset) -> Table | None:
    """The table that the dataset is, or None: then it is files, a clock, or something that only scripts can use."""
    if dataset.definition is None or '"url' not in dataset.definition:
        return None
    declared = json.loads(dataset.definition)
    table = ".".join(part for part in (dataset.schemaname, dataset.tablename) if part) or None
    url, url_env, query = declared.get("url"), declared.get("url_env"), declared.get("query")
    if not (url or url_env) or not (dataset.tablename or query):
        return None
    return Table(
        url or "", url_env, None if query else table, query, declared.get("partition_column"), declared.get("write"),
        declared.get("driver"), declared.get("driver_options") or {}, declared.get("connections"),
        declared.get("staging"),
    )  # fmt: skip


def is_taken_in(dataset: Dataset) -> bool:
    """True when what is new of it is found without being declared: it says how its files arrive, or is a table."""
    return dataset.declares("arrival") or find_table(dataset) is not None


# Where ----------------------------------------------------------------------------------------------------------------
def sqlite_file(url: str, root: str) -> str | None:
    """The file of a SQLite database: below the environment's root, unless its path is absolute. None for others."""
    if not url.startswith(_SQLITE):
        return None
    path = url.removeprefix(_SQLITE).partition("?")[0]
    return path if path.startswith("/") else f"{root.rstrip('/')}/{path}"


def full_url(url: str, root: str) -> str:
    """The address as any process can use it, wherever it runs."""
    file = sqlite_file(url, root)
    return url if file is None else f"{_SQLITE}{file}"


def table_place(table: Table, *, root: str) -> str:
    """The table for people and for the record: address without user and password, then its name."""
    if table.url_env is not None:
        return f"env://{table.url_env}#{table.name}"
    url = full_url(table.url, root)
    prefix = "jdbc:" if url.startswith("jdbc:") else ""
    if "://" not in url:
        return f"jdbc://{url.removeprefix(prefix)}#{table.name}"
    from urllib.parse import urlsplit

    parts = urlsplit(url.removeprefix(prefix))
    host = parts.netloc.rpartition("@")[2]
    # Where no host is named, the options say which server it is: the folder of its socket.
    options = f"?{parts.query}" if parts.query and not host and parts.scheme != "sqlite" else ""
    return f"{prefix}{parts.scheme}://{host}{parts.path}{options}#{table.name}"


def table_location(dataset: Dataset, dataid: str, *, root: str) -> str | None:
    """Where a chunk of it is, as the store keeps it and people see it; None for what is no table."""
    table = find_table(dataset)
    if table is None:
        return None
    place = table_place(table, root=root)
    return place if _is_whole(dataset, table) else f"{place}?dataid={dataid}"


def _is_whole(dataset: Dataset, table: Table) -> bool:
    return dataset.partitions == WHOLE or table.write == REPLACE_TABLE


# What the Spark child is told -----------------------------------------------------------------------------------------
def source_database(dataset: Dataset, dataids: Iterable[str], *, root: str) -> dict[str, Any]:
    """How these chunks are read: `Database` of opendataflow.spark.spec, as JSON. Without dataids, all of it."""
    table = _get_table(dataset)
    is_chunked = table.partition_column is not None and not _is_whole(dataset, table)
    return _database(dataset, table, tuple(dataids) if is_chunked else (), root, REPLACE)


def target_database(dataset: Dataset, dataid: str, *, root: str, replaces_all: bool) -> dict[str, Any]:
    """How this chunk is written; `replaces_all`: its pipeline makes the whole destination each time."""
    table = _get_table(dataset)
    write = table.write or (REPLACE_TABLE if replaces_all else REPLACE)
    return {**_database(dataset, table, (dataid,), root, write), "staging": table.staging}


def _get_table(dataset: Dataset) -> Table:
    table = find_table(dataset)
    if table is None:
        raise ValueError(f"{dataset.datasetid} is no table")
    return table


def _database(dataset: Dataset, table: Table, dataids: tuple[str, ...], root: str, write: str) -> dict[str, Any]:
    has_password = dataset.encryptedpass is not None
    return {
        "url": full_url(table.url, root),
        "driver": table.driver,
        "options": table.driver_options,
        "password_variable": f"{variable_prefix(dataset.datasetid)}_password" if has_password else None,
        "url_variable": table.url_env,
        "table": table.table,
        "query": table.query,
        "partition_column": table.partition_column,
        "dataids": list(dataids),
        "write": write,
        "connections": table.connections,
    }
