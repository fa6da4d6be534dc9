"""What must hold for the tables that pipelines read and write: which rows are a dataid's, and who may write what."""

import json
from collections.abc import Iterable, Iterator, Mapping

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.partitions.scheme import kind
from opendataflow.domain.registration import JobSpec
from opendataflow.domain.tables import (
    DRIVERS,
    REPLACE_TABLE,
    WHOLE,
    Table,
    find_table,
    sqlite_file,
    table_place,
)
from opendataflow.project.problems import Problems
from opendataflow.project.registration.streams import live_of
from opendataflow.project.source import Path, Source

Problem = tuple[Path, str]


def read_whole(datasets: dict[str, Dataset], read: Iterable[str], made: Iterable[str]) -> None:
    """A table that pipelines read, that nobody makes and that says nothing of partitions is one chunk."""
    for datasetid in set(read) - set(made):
        dataset = datasets.get(datasetid)
        table = find_table(dataset) if dataset is not None else None
        if dataset is not None and table is not None and not dataset.partitions and not table.partition_column:
            datasets[datasetid] = dataset._replace(partitions=WHOLE)


def check_tables(
    source: Source,
    jobs: Iterable[JobSpec],
    datasets: Mapping[str, Dataset],
    producer: Mapping[str, JobSpec],
    places: Mapping[str, Path],
    root: str,
    problems: Problems,
) -> None:
    """All that is wrong with tables, once everything else is right; `places` says where each job stands."""
    found: list[Problem] = []
    for datasetid, dataset in datasets.items():
        table = find_table(dataset)
        if table is not None:
            found += _of_table(dataset, table, producer.get(datasetid))
    for job in jobs:
        for link in job.links if job.kind == "pipeline" else ():
            dataset = datasets.get(link.datasetid, Dataset("", ""))
            table = find_table(dataset)
            if table is None or dataset.project != link.dataset_project:
                continue
            found += _of_address(dataset, table, root)
            if link.itemtype == "OUT":
                found += _of_target(job, dataset, table, (*places[job.jobid], "destination"))
            else:
                found += _of_source(dataset, table)
    found += _same_places(datasets, producer, root)
    for path, told in dict.fromkeys(found):
        problems.add(str(source.error(path, told)))


def _of_table(dataset: Dataset, table: Table, producer: JobSpec | None) -> Iterator[Problem]:
    at: Path = ("datasets", dataset.datasetid)
    if producer is None and table.partition_column is not None and dataset.partitions is None:
        told = "tells which rows are a dataid's, but not which dataids there are; give `partitions` too"
        yield (*at, "partition_column"), told
    if producer is None and table.write is not None:
        yield (*at, "write"), "is for a destination, and no pipeline makes this dataset"
    if producer is None and table.staging is not None:
        yield (*at, "staging"), "is for a destination, and no pipeline makes this dataset"
    if dataset.declares("checks") and (producer is None or producer.kind != "pipeline"):
        told = "of a table are done while a pipeline writes it; give them to the pipeline that reads this one"
        yield (*at, "checks"), told


def _of_address(dataset: Dataset, table: Table, root: str) -> Iterator[Problem]:
    at: Path = ("datasets", dataset.datasetid, "url")
    if table.url and table.scheme not in (*DRIVERS, "jdbc") and table.driver is None:
        told = (
            f"no driver is known for {table.scheme}:; give `driver`, an ADBC driver that is installed, or a jdbc: url"
        )
        yield at, told
    file = sqlite_file(table.url, root)
    if table.scheme != "sqlite":
        return
    if file is None or file.endswith(("/", ":memory:")):
        yield at, "names no file; write sqlite:///crm.db, below the environment's root, or sqlite:////path/of/crm.db"
    elif "://" in file:
        yield at, f"is below {root}, and SQLite needs a file of this machine: sqlite:////path/of/crm.db"
    elif ".." in file.split("/"):
        yield at, "leads out of the environment's root; give the whole path: sqlite:////path/of/crm.db"


def _of_source(dataset: Dataset, table: Table) -> Iterator[Problem]:
    is_chunked = dataset.partitions is not None and dataset.partitions != WHOLE
    if is_chunked and table.partition_column is None:
        how = kind(json.loads(dataset.partitions or ""))
        told = f"it is partitioned ({how}), so it needs a `partition_column`: which rows are those of a dataid?"
        yield ("datasets", dataset.datasetid), told


def _of_target(job: JobSpec, dataset: Dataset, table: Table, at: Path) -> Iterator[Problem]:
    name = dataset.datasetid
    if table.query is not None:
        yield at, f"{name!r} is a query; only a table can be written"
        return
    if table.scheme == "jdbc":
        yield at, f"{name!r} has a jdbc: url, which can only be read; give the database's own, like postgresql://…"
    if table.scheme == "bigquery" and table.staging is None:
        told = "a destination in BigQuery needs `staging: gs://bucket/folder`, where chunks are put for it to load"
        yield ("datasets", name), told
    if table.connections == 1:
        yield ("datasets", name, "connections"), "a destination needs two at least, one of which publishes"
    definition = json.loads(job.definition)
    if definition.get("replace") and table.write not in (None, REPLACE_TABLE):
        told = f"{name!r} has `write: {table.write}`, and the pipeline `replace: true`, which replaces the whole table"
        yield at, told
    checks = [*(json.loads(dataset.definition or "{}").get("checks") or ()), *(definition.get("checks") or ())]
    if any(one["on_fail"] == "quarantine" for one in checks):
        yield at, f"{name!r} is a table, and `on_fail: quarantine` keeps rows in files beside others; use fail or warn"


def _same_places(datasets: Mapping[str, Dataset], producer: Mapping[str, JobSpec], root: str) -> Iterator[Problem]:
    """A table that a pipeline writes is one dataset: under another name nobody would wait for it."""
    seen: dict[str, str] = {}
    for datasetid, dataset in datasets.items():
        table = find_table(dataset)
        if table is None or table.table is None or live_of(dataset) is not None:
            continue
        other = seen.setdefault(table_place(table, root=root), datasetid)
        if other != datasetid and (other in producer or datasetid in producer):
            yield ("datasets", datasetid, "table"), f"is the same table as that of {other!r}; use one dataset for both"
