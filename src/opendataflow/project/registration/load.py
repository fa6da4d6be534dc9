"""From project.yml to a Registration: what it declares for one environment, checked as a whole."""

import json
import os
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from opendataflow.domain.dataset import VARIABLE_SUFFIXES, Dataset, variable_prefix
from opendataflow.domain.registration import JobSpec, LinkSpec, Registration
from opendataflow.domain.tables import SQL
from opendataflow.errors import ConfigurationError
from opendataflow.project.problems import Problems
from opendataflow.project.registration.cross_checks import check_places, in_order, producers, with_schemes
from opendataflow.project.registration.links import get_clock, get_link, job_spec, project_id
from opendataflow.project.registration.pipelines import Undeclared, pipeline_job
from opendataflow.project.registration.streams import with_streams
from opendataflow.project.registration.tables import check_tables, read_whole
from opendataflow.project.schema.checks import arrival_json, check_fit, checks_json
from opendataflow.project.schema.notify import with_notify
from opendataflow.project.schema.project import DatasetEntry, JobEntry, ProjectFile, Spark
from opendataflow.project.schema.shape import Bound, Shaped, read_project, read_shape
from opendataflow.project.source import Path, Source
from opendataflow.project.version import base_of

__all__ = ["Bound", "Loaded", "load_registration", "project_id", "read_addresses", "read_project", "read_registration"]


class Loaded(NamedTuple):
    """A project.yml as far as it could be read."""

    source: Source
    registration: Registration | None  # None where too little is in shape; without the wrong parts where there are some
    undeclared: dict[str, Path]  # datasets that only pipelines name, and where they do
    problems: Problems


def read_addresses(folder: str) -> dict[str, Any]:
    """What RunJob needs of a project: its id, and the store's address in each environment, not yet expanded."""
    _, project = read_project(folder)
    stores = {name: entry.store for name, entry in project.environments.items()}
    found = {"project": project_id(project.name), "environments": stores, "first": next(iter(stores), "default")}
    folders = {name: entry.streams for name, entry in project.environments.items() if entry.streams is not None}
    if folders:
        found["streams"] = folders
    if project.openlineage is not None:
        found["openlineage"] = project.openlineage.model_dump(exclude_none=True)
    return found


def load_registration(
    folder: str, environment: str, *, text: str | None = None, bound: Bound | None = None
) -> Registration:
    """Everything the project declares for this environment, checked as a whole; `text` stands for the file's.

    What it leaves open is taken from `bound`, what was bound in the store. All that is wrong is told in one
    ConfigurationError, a line each.
    """
    loaded = read_registration(folder, environment, text=text, bound=bound)
    if loaded.problems or loaded.registration is None:
        raise ConfigurationError(loaded.problems.text())
    return loaded.registration


def read_registration(folder: str, environment: str, *, text: str | None = None, bound: Bound | None = None) -> Loaded:
    """The same, with what is wrong beside what is right; only a text that is no YAML is a ConfigurationError."""
    shaped = read_shape(folder, environment, text=text, bound=bound)
    if shaped.project is None:
        return Loaded(shaped.source, None, {}, shaped.problems)
    loaded = _Loading(shaped, shaped.project, folder, environment).run()
    if loaded.registration is None or bound is None:
        return loaded
    return loaded._replace(registration=loaded.registration._replace(bound=bound))


class _Loading:
    def __init__(self, shaped: Shaped, project: ProjectFile, folder: str, environment: str) -> None:
        self.shaped, self.project, self.folder, self.environment = shaped, project, folder, environment
        self.source, self.problems = shaped.source, shaped.problems
        self.me = project_id(project.name)
        self.broken = set(shaped.broken)
        self.datasets: dict[str, Dataset] = {}
        self.jobs: list[JobSpec] = []
        self.places: dict[str, Path] = {}  # where each job stands

    def run(self) -> Loaded:
        declared = self.project.environments[self.environment]
        root = declared.root
        root_moves = "://" not in root and not os.path.isabs(os.path.expanduser(root))
        if "://" not in root:
            root = os.path.normpath(os.path.join(base_of(self.folder), os.path.expanduser(root)))
        self._read_datasets()
        undeclared = Undeclared(self.source, self.me, self.datasets, frozenset(self.broken))
        destinations = self._find_destinations(undeclared)
        self._settle_tables(destinations)
        self._read_jobs()
        self._read_pipelines(undeclared, destinations, _spark(self.project.spark, declared.spark))
        entries = {**self.project.jobs, **{one.slug: one for one in self.project.pipelines}}
        jobs = self._check_whole(undeclared, root)
        jobs = with_notify(self.source, self.project.notify, entries, jobs, self.places, self.problems)
        made = Registration(
            self.me, self.project.name, root, self.folder, self.environment, tuple(self.datasets.values()), jobs,
            tuple({**self.project.limits, **declared.limits}.items()), root_moves=root_moves,
        )  # fmt: skip
        return Loaded(self.source, made, undeclared.places, self.problems)

    def _read_datasets(self) -> None:
        for key, entry in self.project.datasets.items():
            self.datasets[key] = Dataset(self.me, key)  # what refers to a wrong one is right
            before = len(self.problems)
            with self.problems.kept():
                self.datasets[key] = _dataset(self.source, self.me, key, entry)
            if len(self.problems) > before:
                self.broken.add(key)
        for key in self.broken:
            self.datasets.setdefault(key, Dataset(self.me, key))

    def _find_destinations(self, undeclared: Undeclared) -> list[str | None]:
        """Before any source is looked for: a source may be the destination of a pipeline further down."""
        found: list[str | None] = []
        for index, entry in zip(self.shaped.positions, self.project.pipelines, strict=True):
            found.append(None)
            with self.problems.kept():
                found[-1] = undeclared.destination(("pipelines", index, "destination"), entry.destination)
        return found

    def _settle_tables(self, destinations: list[str | None]) -> None:
        """Before anything is mapped: which tables are one chunk."""
        read = [
            name.removeprefix(f"{self.me}.") for one in self.project.pipelines for item in one.sources for name in item
        ]
        made = [name.removeprefix(f"{self.me}.") for job in self.project.jobs.values() for name in job.outputs]
        read_whole(self.datasets, read, [*made, *(name for name in destinations if name is not None)])

    def _read_jobs(self) -> None:
        for jobid, entry in self.project.jobs.items():
            self.places[jobid] = ("jobs", jobid)
            job = _script_job(self.source, self.me, jobid, entry, self.datasets, self.problems)
            if job is not None:
                self.jobs.append(job)

    def _read_pipelines(self, undeclared: Undeclared, destinations: list[str | None], spark: dict[str, Any]) -> None:
        entries = zip(self.shaped.positions, self.project.pipelines, destinations, strict=True)
        for index, entry, destination in entries:
            at: Path = ("pipelines", index)
            other = self.places.setdefault(entry.slug, at)
            if other != at:
                where = ".".join(str(part) for part in other)
                told = f"{entry.slug!r} is the id of two jobs or pipelines: {where} has it too"
                self.problems.add(str(self.source.error((*at, "slug"), told)))
            if destination is None:
                continue
            job = pipeline_job(at, entry, destination, undeclared, spark, self.problems)
            if job is not None and other == at:
                self.jobs.append(job)

    def _check_whole(self, undeclared: Undeclared, root: str) -> tuple[JobSpec, ...]:
        """What must hold between them; what could be wrong only because a part is missing is not asked."""
        written_at = {key: ("datasets", key) for key in self.datasets} | undeclared.places
        whole = tuple(self.jobs)
        complete = not self.problems
        producer = producers(self.source, self.jobs, written_at, self.problems)
        ordered = None
        with self.problems.kept():
            ordered = in_order(self.source, self.me, self.jobs, producer, self.places)
        if ordered is not None and not self.problems:
            whole = with_schemes(self.source, self.me, self.jobs, ordered, self.datasets, self.places, self.problems)
        if not self.problems:
            whole = with_streams(self.source, whole, self.datasets, self.places, undeclared.places, self.problems)
            producer = {link.datasetid: job for job in whole for link in job.links if link.itemtype == "OUT"}
        check_places(self.source, self.datasets, producer if complete else None, root, undeclared.places, self.problems)
        if not self.problems:
            check_tables(self.source, whole, self.datasets, producer, self.places, root, self.problems)
        return whole


def _spark(common: Spark, here: Spark) -> dict[str, Any]:
    """What all environments share, and on top of it what this one says."""
    idle = common.idle if here.idle is None else here.idle
    kept = {} if idle is None else {"idle": idle}
    return {"master": here.master or common.master, "conf": {**common.conf, **here.conf}, **kept}


def _dataset(source: Source, project: str, datasetid: str, entry: DatasetEntry) -> Dataset:
    if entry.checks or entry.arrival:
        _check_fit(source, datasetid, entry)
    url, place = _address(entry)
    rest = {
        "options": entry.options, "schema": entry.schema_, "url": url, "url_env": entry.url_env, "query": entry.query,
        "partition_column": entry.partition_column, "write": entry.write, "driver": entry.driver,
        "driver_options": entry.driver_options, "connections": entry.connections, "staging": entry.staging,
        "arrival": arrival_json(entry.arrival), "checks": checks_json(entry.checks),
    }  # fmt: skip
    schemaname, _, tablename = (entry.table or "").rpartition(".")
    return Dataset(
        project, datasetid, entry.hostname or (place.hostname if place else None),
        entry.database or (unquote(place.path.lstrip("/")) or None if place else None),
        entry.schemaname or schemaname or None, entry.tablename or tablename or None,
        entry.username or (unquote(place.username) if place and place.username else None),
        entry.encryptedpass or entry.password, entry.path, entry.format,
        json.dumps(entry.partitions) if entry.partitions is not None else None,
        json.dumps({key: value for key, value in rest.items() if value}),  # a schema's columns have an order
    )  # fmt: skip


def _check_fit(source: Source, datasetid: str, entry: DatasetEntry) -> None:
    format_ = SQL if entry.url or entry.url_env else entry.format
    try:
        check_fit(
            entry.checks, entry.arrival, path=entry.path, format_=format_, options=entry.options,
            schema=entry.schema_,
        )  # fmt: skip
    except ValueError as error:
        key, _, problem = str(error).partition(": ")
        below = (int(part) if part.isdecimal() else part for part in key.split("."))
        raise source.error(("datasets", datasetid, *below), problem) from None


def _address(entry: DatasetEntry) -> tuple[str | None, SplitResult | None]:
    """The address of a dataset's database and its parts, with the host, database and user that are given beside it."""
    if entry.url is None:
        return None, None
    prefix = "jdbc:" if entry.url.startswith("jdbc:") else ""
    place = urlsplit(entry.url.removeprefix("jdbc:"))
    if "//" not in entry.url:
        return entry.url, None
    user = entry.username or (unquote(place.username) if place.username else "")
    host = entry.hostname or place.hostname or ""
    netloc = f"{quote(user, safe='')}@" if user else ""
    netloc += f"[{host}]" if ":" in host and not host.startswith("[") else host
    netloc += f":{place.port}" if place.port else ""
    path = f"/{quote(entry.database, safe='')}" if entry.database else place.path
    changed = entry.hostname or entry.username or entry.database
    place = place._replace(netloc=netloc, path=path) if changed else place
    return (f"{prefix}{place.geturl()}" if changed else entry.url), place


def _script_job(
    source: Source, me: str, jobid: str, entry: JobEntry, datasets: dict[str, Dataset], problems: Problems
) -> JobSpec | None:
    """The job, or None when something is wrong with it."""
    at: Path = ("jobs", jobid)
    before = len(problems)
    links: list[LinkSpec] = []
    for index, item in enumerate(entry.inputs):
        ((name, options),) = item.items()
        place = (*at, "inputs", index)
        with problems.kept():
            known = get_clock(source, place, me, name, options, datasets)
            links.append(get_link(source, place, me, "IN", known, datasets, options.map))
    for index, name in enumerate(entry.outputs):
        place = (*at, "outputs", index)
        with problems.kept():
            link = get_link(source, place, me, "OUT", name, datasets)
            if datasets[link.datasetid].clock is not None:
                raise source.error(place, f"{name!r} is a clock; nothing can write it")
            links.append(link)
    with problems.kept():
        _check_script(source, (*at, "script"), jobid, entry.script)
    spec = None
    if len(problems) == before:
        with problems.kept():
            spec = job_spec(source, at, entry, jobid, "script", entry.script, {"env": entry.env}, links)
            _check_env(source, (*at, "env"), entry.env, links)
    return spec if len(problems) == before else None


def _check_script(source: Source, at: Path, jobid: str, script: str | None) -> None:
    if script is not None and (found := os.path.splitext(os.path.basename(script))[0]) != jobid:
        raise source.error(
            at,
            f"RunJob takes the job's id from the script's name, so {jobid!r} does not fit; "
            f"call the job {found!r} or the script otherwise",
        )


def _check_env(source: Source, path: Path, env: dict[str, str], links: list[LinkSpec]) -> None:
    """A variable of a dataset would silently replace one of the job."""
    if not env:
        return
    for link in links:
        prefix = variable_prefix(link.datasetid)
        for suffix in VARIABLE_SUFFIXES:
            for name in (f"{prefix}_{suffix}", f"{prefix}_{suffix.upper()}"):
                if name in env:
                    raise source.error(
                        (*path, name), f"is a variable of dataset {link.datasetid!r}; choose another name"
                    )
