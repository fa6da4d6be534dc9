"""What the verbs of a store stand on: named statements, transactions, the clock, news; opening it, and its jobs."""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.job import Job, Link, Mark
from opendataflow.domain.locations import stored_location, whole_location
from opendataflow.domain.runs.run import Result
from opendataflow.errors import ConfigurationError, UsageError
from opendataflow.store.places import Here, Place, resolve
from opendataflow.store.rows import Params, Row, utc_text

_T = TypeVar("_T")


# A database's own shell may write: triggers keep the state whole.
READ_ONLY = (
    "; `dataflow sql` only reads: see `dataflow resubmit`, `hold` and `release`, or use the database's own shell"
)


class Transaction(Protocol):
    """An open write transaction: run named statements, read their rows."""

    def run(self, name: str, params: Params) -> int: ...
    def run_many(self, name: str, params: list[Params]) -> None: ...
    def rows(self, name: str, params: Params) -> list[Row]: ...
    def next_token(self) -> int:
        """A number greater than any given out before."""
        ...


class BaseStore(ABC):
    """A connection to a store of either kind, and what a subclass brings of it."""

    dialect = ""
    store_id = ""
    environment = ""
    url = ""
    folder: str | None = None  # of a SQLite store's file
    here: Here | None = None  # the project in whose folder the command works

    def __init__(self, *, actor: str, clock: Callable[[], float]) -> None:
        self.actor = actor
        self.clock = clock
        self._roots: dict[str, str] = {}  # of the projects that were asked for, as they were last seen

    # What a subclass brings -----------------------------------------------------------------------------------
    @abstractmethod
    def read(self, name: str, params: Params, *, file: str = "claims") -> list[Row]:
        """Rows of one named statement, outside any transaction of ours."""

    @abstractmethod
    def transaction(self, *, file: str = "claims", actor: str | None = None) -> AbstractContextManager[Transaction]:
        """One write transaction, recorded under our actor's name; an exception leaves nothing of it."""

    @abstractmethod
    def bare_transaction(self) -> AbstractContextManager[Transaction]:
        """A write transaction of the registry's statements before there is a `store` table to sign in."""

    @abstractmethod
    def script(self, sql: str) -> None:
        """Run a migration's statements inside the open transaction."""

    @abstractmethod
    def select(self, sql: str) -> tuple[list[str], list[Row]]:
        """Columns and rows of a query of the user's, where nothing can be written."""

    @abstractmethod
    def integrity(self) -> list[str]:
        """What the database's own check finds wrong; empty when it is sound."""

    def time(self, seconds_from_now: float = 0.0) -> Any:
        """A moment by the clock that leases use, in the form that statements take."""
        return utc_text(self.clock() + seconds_from_now)

    def sign(self, actor: str) -> None:
        """What is done from now on is recorded under this name."""
        self.actor = actor

    @abstractmethod
    def close(self) -> None:
        """Let the connection go."""

    # News of work ---------------------------------------------------------------------------------------------
    @abstractmethod
    def has_news(self) -> bool:
        """True when there may be work that was not there at the last call; the first call starts listening, and is."""

    @abstractmethod
    def wait_for_news(self, seconds: float, wake_fd: int | None = None) -> bool:
        """Wait until `has_news`; False when so many seconds have passed, or `wake_fd` can be read.

        On PostgreSQL a word is sent only while some worker says that it is idle: say so, look once more, then wait.
        """

    def news_fd(self) -> int | None:
        """What becomes readable when there is news, for a caller with a select of its own; None where nothing does."""
        return None

    @abstractmethod
    def hears_of_aborts(self) -> bool:
        """True when somebody may have asked for the end of a run since the last call; the first one is, and costs most.

        Without a round trip otherwise: for those who have runs under way, about once a second.
        """

    def find_aborts(self) -> dict[int, str]:
        """The runs that are to be ended, and who asked for it."""
        return {int(runid): str(by) for runid, by in self.read("aborts", {}, file="requests")}

    def again(self, action: Callable[[], _T]) -> _T:
        """Do it; where transactions can clash, once more after a clash."""
        return action()

    # Opening --------------------------------------------------------------------------------------------------
    def has_tables(self) -> bool:
        return bool(self.read("has_tables", {}, file="registry")[0][0])

    def check_schema(self, version: int) -> None:
        """Raise ConfigurationError unless the store's schema is the one this version works with."""
        rows = self.read("get_store", {}) if self.has_tables() else []
        if not rows:
            raise ConfigurationError(f"the store {self.url} is empty; run `dataflow apply`")
        self.store_id, self.environment, found = rows[0]
        if found != version:
            step = "run `dataflow db upgrade`" if found < version else "install a newer opendataflow"
            raise ConfigurationError(f"the store {self.url} has schema {found}, this version needs {version}; {step}")

    def check_environment(self, environment: str) -> None:
        if self.environment != environment:
            raise ConfigurationError(
                f"the store {self.url} belongs to environment {self.environment!r}, not {environment!r}; "
                "set DATAFLOW_ENV or DATAFLOW_STORE so that both agree"
            )

    # Places ---------------------------------------------------------------------------------------------------
    def list_places(self, project: str | None = None) -> list[Place]:
        """Where the projects are for this process; of one project, an empty list when it is not registered."""
        return [self._resolve(row) for row in self.read("places", {"project": project})]

    def get_place(self, project: str) -> Place:
        found = self.list_places(project)
        if not found:
            raise UsageError(f"project {project!r} is not registered; run `dataflow apply`")
        return found[0]

    def get_mark(self, project: str, root: str) -> Mark:
        """What the marker of the project's root must say, if this is to be its root from now on."""
        places = self.list_places(project)
        if not places:
            return Mark(self.store_id, self._path, is_expected=False)
        place, has_published = places[0], bool(self.read("has_published", {"project": project})[0][0])
        mark = place.mark(store_id=self.store_id, store=self._path, has_published=has_published)
        return mark if root == place.root else mark._replace(other_root=place.root)

    @property
    def _path(self) -> str:
        """Of a SQLite store's file; '' for others."""
        return os.path.abspath(self.url.removeprefix("sqlite:///")) if self.folder is not None else ""

    def note_place(self, project: str) -> None:
        """Write down that the project's root is marked, and where it is, if it has moved together with the store."""
        place = self.get_place(project)
        root, home = (place.root, place.home) if place.moves_with_store else (place.row_root, place.row_home)
        with self.transaction(file="registry") as tx:
            tx.run("note_place", {"project": project, "root": root, "home": home})

    def count_live_runs(self, project: str) -> int:
        return int(self.read("count_running", {"project": project}, file="live")[0][0])

    def _resolve(self, row: Row) -> Place:
        place = resolve(row, store_folder=self.folder, here=self.here)
        self._roots[place.project] = place.root
        return place

    def _root(self, project: str) -> str | None:
        if project not in self._roots:
            self.list_places(project)
        return self._roots.get(project)

    def whole_location(self, project: str, location: str | None) -> str | None:
        """Where a chunk of the project is, of which the store keeps this location."""
        root = self._root(project) if location is not None else None
        return location if location is None or root is None else whole_location(location, root)

    def stored_location(self, project: str, location: str | None) -> str | None:
        """What the store keeps of a location: what is below the project's root is relative to it."""
        root = self._root(project) if location is not None else None
        return location if location is None or root is None else stored_location(location, root)

    def stored_result(self, result: Result) -> Result:
        """The result with the locations as the store keeps them."""
        if not result.manifests:
            return result
        return result._replace(
            manifests=tuple(
                (project, datasetid, manifest._replace(location=self.stored_location(project, manifest.location)))
                for project, datasetid, manifest in result.manifests
            )
        )

    # Jobs -----------------------------------------------------------------------------------------------------
    def get_job(self, jobid: str, *, project: str | None = None) -> Job:
        """The job with its datasets, or raise UsageError that names the next step."""
        rows = self.read("find_job", {"jobid": jobid, "project": project})
        if not rows:
            hint = self._as_dataset(jobid, project) or (
                f"{self.suggestion(jobid, 'jobs_of', project)}"
                "add it to project.yml under jobs or pipelines and run `dataflow apply`"
            )
            raise UsageError(f"job {jobid!r} is not registered; {hint}")
        if len(rows) > 1:
            owners = ", ".join(sorted(str(row[0]) for row in rows))
            raise UsageError(f"several projects have a job {jobid!r}: {owners}; set DATAFLOW_PROJECT to one of them")
        row = rows[0]
        links = tuple(
            Link(itemtype, Dataset(*dataset), map_)
            for itemtype, map_, *dataset in self.read("links_of", {"project": row[0], "jobid": jobid})
        )
        place = self._resolve(row[14:21])
        mark = place.mark(store_id=self.store_id, store=self._path, has_published=bool(row[21]))
        return Job(*row[:4], json.loads(row[4]), *row[5:14], place.root, place.home, links, mark)  # type: ignore[call-arg]

    def suggestion(self, name: str, statement: str, project: str | None) -> str:
        """The nearest name among the jobs (`jobs_of`) or datasets (`datasets_of`) of the project, as a question."""
        import difflib

        rows = self.read(statement, {"project": project}, file="registry") if project is not None else []
        near = difflib.get_close_matches(name, [str(row[1]) for row in rows], n=1)
        return f"did you mean {near[0]!r}? Or " if near else ""

    def _as_dataset(self, name: str, project: str | None) -> str:
        """What a dataset of that name is to jobs; nothing when there is none."""
        rows = self.read("find_dataset", {"datasetid": name, "project": project}, file="registry")
        if not rows:
            return ""
        makers = self.read("producer_of", {"project": rows[0][0], "datasetid": name}, file="published")
        return f"it is a dataset, and {makers[0][1]!r} makes it" if makers else "it is a dataset, and no job makes it"

    def as_job(self, name: str, project: str | None) -> str:
        """What the job of that name makes; nothing when there is none, or several projects have one."""
        if len(self.read("find_job", {"jobid": name, "project": project})) != 1:  # of several, which is not known
            return ""
        made = ", ".join(repr(one.dataset.datasetid) for one in self.get_job(name, project=project).outputs)
        return f"it is a job, and makes {made or 'no dataset'}"

    def has_job(self, jobid: str, *, project: str | None = None) -> bool:
        return bool(self.read("find_job", {"jobid": jobid, "project": project}))


def without_password(url: str) -> str:
    """The address as it may be shown."""
    scheme, separator, rest = url.partition("://")
    credentials, at, host = rest.rpartition("@")
    if at and ":" in credentials:
        url = f"{scheme}{separator}{credentials.partition(':')[0]}:***@{host}"
    if "password=" in url:
        import re

        url = re.sub(r"([?&]password=)[^&]*", r"\1***", url)
    return url
