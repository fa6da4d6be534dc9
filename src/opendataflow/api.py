"""`from opendataflow import Project`: published data for notebooks and for Spark code of one's own.

>>> from opendataflow import Project
>>> project = Project(".")  # the project.yml here, or in a folder above
>>> df = project.read(spark, "orders", since="2025-11-01")
"""

import contextlib
import datetime
import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.dataset import Dataset, is_below
from opendataflow.domain.runs.questions import CODES, Question
from opendataflow.domain.variables import STORE
from opendataflow.errors import ConfigurationError, Refused, UsageError
from opendataflow.project.address import Address, absolute_store, find_project_folder, get_address
from opendataflow.project.variables import expand
from opendataflow.storage.files import find_inside, is_local
from opendataflow.store.claims import LoopStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from opendataflow.spark.published import Source
    from opendataflow.store.published import Published

Bound = str | int | datetime.date | datetime.datetime

STATUS_COLUMNS = 10


class NotReady(Refused):
    """There is nothing to read: no chunk is READY, or not the one that was asked for."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=CODES[Question.READY][1])


class Chunk(NamedTuple):
    """One chunk of a dataset as it stands: consumers read those that are READY."""

    dataid: str
    status: str
    location: str | None
    rows: int | None  # None: not counted
    bytes: int | None
    run: int | None  # None: it was declared from outside
    published_at: datetime.datetime | None  # None: it is not READY


class Project:
    """A project and its state, for reading. Every call asks the store anew; nothing is kept open.

    Safe to use from several threads, and after a fork.
    """

    def __init__(
        self, path: str | os.PathLike[str] = ".", *, environment: str | None = None, store: str | None = None
    ) -> None:
        """The project whose project.yml is in this folder, or in the nearest one above it.

        `environment` stands for DATAFLOW_ENV and `store` for DATAFLOW_STORE. Raises ConfigurationError when there is no
        such project, environment or store address.

        >>> Project("/", environment="prod")
        Traceback (most recent call last):
        opendataflow.errors.ConfigurationError: found no project.yml in / or above
        """
        self._address = _address(os.fspath(path), environment, store)

    def __repr__(self) -> str:
        return f"Project({self.home or self.name!r}, environment={self.environment!r})"

    @property
    def name(self) -> str | None:
        """The project's id in the store; None without a project.yml."""
        return self._address.project

    @property
    def home(self) -> str | None:
        """The project's folder."""
        return self._address.home

    @property
    def environment(self) -> str | None:
        return self._address.environment

    # Looking ----------------------------------------------------------------------------------------------------------
    @property
    def datasets(self) -> tuple[str, ...]:
        """The names of the project's datasets, clocks left out.

        >>> "orders" in project.datasets
        True
        """
        from opendataflow.store.reports.listing import list_datasets

        with self._store() as store:
            return tuple(one["datasetid"] for one in list_datasets(store, project=self.name) if not one["clock"])

    def chunks(self, dataset: str) -> list[Chunk]:
        """Every chunk of the dataset, whatever its status, in the order of their dataids.

        >>> [(chunk.dataid, chunk.status, chunk.rows) for chunk in project.chunks("orders")]
        [('2025-11-01', 'READY', 2), ('2025-11-02', 'READY', 3), ('2025-11-03', 'FAILED', None)]
        """
        with self._store() as store:
            of, root, found = self._chunks(store, dataset)
            return [_chunk(one, of, root) for one in found]

    def status(self) -> dict[str, Any]:
        """What `dataflow status --json` shows: counts of jobs and datasets, the latest slots, gaps, streams.

        >>> project.status()["datasets"]["orders"]["READY"]
        2
        """
        from opendataflow.store.reports.overview import overview
        from opendataflow.streams.state import all_streams

        with self._store() as store:
            told = overview(store, project=self.name, columns=STATUS_COLUMNS)
            return {**told, "streams": [one._asdict() for one in all_streams(store, self._address, project=self.name)]}

    # Reading ----------------------------------------------------------------------------------------------------------
    def read(
        self,
        spark: "SparkSession",
        dataset: str,
        since: Bound | None = None,
        until: Bound | None = None,
        dataids: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        *,
        with_dataid: bool = False,
        merge: bool = False,
    ) -> "DataFrame":
        """Exactly the chunks that are READY at this moment, as one DataFrame.

        `dataset` may be another project's of the same store: `other.orders`. `since` and `until` choose chunks by their
        dataids, both included; a day counts with all its hours, a month with all its days. `dataids` names them one by
        one. `columns` reads no others; `with_dataid` adds a column `dataid` (string).

        Types are those the dataset declares, else those of the chunks; chunks that differ are an error that names chunk
        and column, unless `merge`: then they are put together by name, with nulls.

        Raises NotReady when no chunk is there to read, or one of `dataids` is not READY: an empty result would look as
        if there were no data. Raises UsageError for a dataset or column that does not exist.

        No lock is held. A chunk that is published anew meanwhile does not disturb: the version that was found stays for
        as long as `dataflow output clear --superseded` leaves it, an hour if nothing else is said.

        >>> df = project.read(spark, "orders", since="2025-11-01", with_dataid=True)
        >>> df.groupBy("dataid").count().orderBy("dataid").collect()
        [Row(dataid='2025-11-01', count=2), Row(dataid='2025-11-02', count=3)]
        >>> project.read(spark, "orders", dataids=["2025-11-02"], columns=["id"]).columns
        ['id']
        """
        from opendataflow.spark.published import read_published
        from opendataflow.spark.spec import Place, format_of

        with self._store() as store:
            of, root, found = self._chunks(store, dataset)
            has_pipeline = _is_made_by_pipeline(store, of)
        chosen = _choose(dataset, found, since, until, dataids)
        sources = [_source(one, of, root, has_pipeline=has_pipeline) for one in chosen]
        declared = json.loads(of.definition or "{}")
        place = Place(
            datasetid=of.datasetid,
            location="",
            format=of.format or format_of(sources[0].location),
            options=declared.get("options") or {},
            schema=declared.get("schema"),
        )
        return read_published(spark, place, sources, columns=columns, with_dataid=with_dataid, merge=merge)

    # The store --------------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _store(self) -> Iterator[LoopStore]:
        from opendataflow.execution.session import own_name
        from opendataflow.store import open_store

        address = self._address
        store = open_store(address.store, actor=own_name(), environment=self.environment, here=address.here)
        try:
            yield store
        finally:
            store.close()

    def _chunks(self, store: LoopStore, dataset: str) -> "tuple[Dataset, str, list[Published]]":
        from opendataflow.store.published import find_dataset, list_chunks

        of, root = find_dataset(store, dataset, project=self.name)
        if of.clock is not None:
            raise UsageError(f"{dataset} is a clock and has no data")
        return of, root, list_chunks(store, of)


def _address(path: str, environment: str | None, store: str | None) -> Address:
    if environment is None and store is None:
        return get_address(path)
    home = find_project_folder(path)
    if home is None:
        if store is None:
            raise ConfigurationError(f"found no project.yml in {os.path.abspath(path)} or above")
        work = os.path.join(os.path.expanduser("~"), ".dataflow")
        project = os.environ.get("DATAFLOW_PROJECT")
        return Address(absolute_store(store, os.getcwd()), environment, project, None, work)
    from opendataflow.project.registration.load import read_addresses
    from opendataflow.project.version import find_managed

    known = read_addresses(home)
    stores: dict[str, str] = known["environments"]
    environment = environment or os.environ.get("DATAFLOW_ENV") or known["first"]
    if environment not in stores:
        raise ConfigurationError(f"there is no environment {environment!r}; {home}/project.yml has {', '.join(stores)}")
    url = store or os.environ.get("DATAFLOW_STORE") or expand(stores[environment], allowed=STORE)
    project = os.environ.get("DATAFLOW_PROJECT") or known["project"]
    here = (known["project"], home) if find_managed(home) is None else None
    work = os.path.join(home, ".dataflow")
    return Address(absolute_store(url, home), environment, project, home, work, here=here)


def _chunk(found: "Published", dataset: Dataset, root: str) -> Chunk:
    is_ready = found.status is ChunkStatus.READY
    published_at = datetime.datetime.fromisoformat(found.published_at) if is_ready else None
    if not is_ready:
        return Chunk(found.dataid, found.status.value, None, None, None, None, None)
    place = found.find_place(dataset, root=root)
    return Chunk(found.dataid, found.status.value, place, found.rows, found.bytes, found.run, published_at)


def _is_made_by_pipeline(store: LoopStore, dataset: Dataset) -> bool:
    from opendataflow.store.published import find_producer

    job = find_producer(store, dataset)
    return job is not None and job.kind == "pipeline"


def _source(found: "Published", dataset: Dataset, root: str, *, has_pipeline: bool) -> "Source":
    from opendataflow.spark.published import Source

    place = found.place(dataset, root=root)
    name = f"{dataset.datasetid}/{found.dataid}"
    if place is None:
        raise UsageError(f"{name} is known by its connection, not by a path; read it with a reader of Spark's own")
    if not is_below(place, root):
        told = f"{name}: {place} is not below {root}, the root of this environment"
        raise Refused(told, exit_code=CODES[Question.LOCATION][1])
    if is_local(place) and os.path.lexists(place):
        try:
            find_inside(place, root=root, told=name)
        except OSError as error:
            raise UsageError(f"{name}: {place}: {error.strerror}") from error
    is_own = has_pipeline and found.run is not None and found.schema is not None
    schema = json.loads(found.schema or "{}") if is_own else None
    return Source(dataid=found.dataid, location=place, schema=schema)


# Choosing -------------------------------------------------------------------------------------------------------------
def _choose(
    name: str,
    found: "list[Published]",
    since: Bound | None,
    until: Bound | None,
    dataids: Sequence[str] | None,
) -> "list[Published]":
    ready = {one.dataid: one for one in found if one.status is ChunkStatus.READY}
    if isinstance(dataids, str):
        raise UsageError(f"dataids is a list of dataids: [{dataids!r}]")
    if dataids is not None:
        known = {one.dataid: one.status.value for one in found}
        missing = [f"{one} is {known.get(one, 'not there')}" for one in dataids if one not in ready]
        if missing:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise NotReady(f"{name}: {', '.join(missing[:5])}{more}; see `dataflow status {name}`")
    wanted = list(ready) if dataids is None else dict.fromkeys(dataids)
    chosen = [ready[dataid] for dataid in wanted if _is_within(dataid, since, until)]
    if not chosen:
        window = " ".join(f"{word} {_text(bound)}" for word, bound in (("since", since), ("until", until)) if bound)
        told = f"no chunk of {name} is READY{f' {window}' if window else ''}"
        raise NotReady(f"{told}; {len(ready)} are in all; see `dataflow status {name}`")
    return chosen


def _is_within(dataid: str, since: Bound | None, until: Bound | None) -> bool:
    if since is not None and _key(dataid) < _key(_text(since)):
        return False
    if until is None:
        return True
    last = _text(until)
    # The hours of a day and the days of a month are within it.
    return _key(dataid) <= _key(last) or (_is_time(last) and dataid.startswith((f"{last}-", f"{last}T", f"{last}:")))


def _text(bound: Bound) -> str:
    if isinstance(bound, datetime.datetime):
        at = bound.astimezone(datetime.UTC) if bound.tzinfo else bound
        return f"{at:%Y-%m-%dT%H}" if at.minute == 0 else f"{at:%Y-%m-%dT%H:%M}"
    return bound.isoformat() if isinstance(bound, datetime.date) else str(bound)


def _key(dataid: str) -> str:
    from opendataflow.domain.partitions.scheme import natural_key

    return dataid if _is_time(dataid) else natural_key(dataid)[0]


def _is_time(dataid: str) -> bool:
    return dataid[:4].isdecimal() and dataid[4:5] == "-"
