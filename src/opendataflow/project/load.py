"""From project.yml to a Registration: what it declares for one environment, checked as a whole."""

import json
import os
import re
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from opendataflow.domain.clocks import Clock, find_clock
from opendataflow.domain.dataset import VARIABLE_SUFFIXES, Dataset, check_prefixes, variable_prefix
from opendataflow.domain.registration import JobSpec, LinkSpec, Registration
from opendataflow.errors import UsageError
from opendataflow.project.check_schema import arrival_json, check_fit, checks_json
from opendataflow.project.schema import DatasetEntry, InputEntry, JobEntry, PipelineEntry, Spark
from opendataflow.project.shape import not_declared, read_project
from opendataflow.project.source import Path, Source, suggestion
from opendataflow.project.whole import check_places, in_order, producers, with_schemes

__all__ = ["load_registration", "project_id", "read_addresses", "read_project"]
CLOCKS = ("today", "hourly")


def project_id(name: str) -> str:
    """The namespace of a project: its name in lower case, words joined by dashes."""
    return re.sub(r"[^\w]+", "-", name.lower()).strip("-") or "project"


def read_addresses(folder: str) -> dict[str, Any]:
    """What RunJob needs of a project: its id, and the store's address in each environment, not yet expanded."""
    _, project = read_project(folder)
    stores = {name: entry.store for name, entry in project.environments.items()}
    return {"project": project_id(project.name), "environments": stores, "first": next(iter(stores), "default")}


def load_registration(folder: str, environment: str, *, text: str | None = None) -> Registration:
    """Everything the project declares for this environment, checked as a whole; `text` stands for the file's."""
    source, project = read_project(folder, environment, text=text)
    declared = project.environments[environment]
    me = project_id(project.name)
    root = declared.root
    if "://" not in root:
        root = os.path.normpath(os.path.join(folder, os.path.expanduser(root)))
    datasets = {key: _dataset(source, me, key, entry) for key, entry in project.datasets.items()}
    places: dict[str, Path] = {}  # where each job stands
    jobs = []
    for jobid, job in project.jobs.items():
        places[jobid] = ("jobs", jobid)
        jobs.append(_script_job(source, me, jobid, job, datasets))
    spark = _spark(project.spark, declared.spark)
    for index, pipeline in enumerate(project.pipelines):
        if places.setdefault(pipeline.slug, ("pipelines", index)) != ("pipelines", index):
            other = ".".join(str(part) for part in places[pipeline.slug])
            raise source.error(
                ("pipelines", index, "slug"),
                f"{pipeline.slug!r} is the id of two jobs or pipelines: {other} has it too",
            )
        jobs.append(_pipeline_job(source, me, index, pipeline, datasets, spark))
    producer = producers(source, jobs)
    ordered = in_order(source, me, jobs, producer, places)
    whole = with_schemes(source, me, jobs, ordered, datasets, places)
    check_places(source, datasets, producer, root)
    return Registration(me, project.name, root, folder, environment, tuple(datasets.values()), whole)


def _spark(common: Spark, here: Spark) -> dict[str, Any]:
    """What all environments share, and on top of it what this one says."""
    return {"master": here.master or common.master, "conf": {**common.conf, **here.conf}}


def _dataset(source: Source, project: str, datasetid: str, entry: DatasetEntry) -> Dataset:
    if entry.checks or entry.arrival:
        _check_fit(source, datasetid, entry)
    url, place = _address(entry)
    rest = {
        "options": entry.options, "schema": entry.schema_, "url": url, "query": entry.query,
        "partition_column": entry.partition_column, "arrival": arrival_json(entry.arrival),
        "checks": checks_json(entry.checks),
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
    try:
        check_fit(
            entry.checks, entry.arrival, path=entry.path, format_=entry.format, options=entry.options,
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


def _link(
    source: Source, path: Path, me: str, itemtype: str, name: str, datasets: dict[str, Dataset], map_: str = "same"
) -> LinkSpec:
    other, dot, theirs = name.partition(".")
    if name not in datasets and other == me and theirs in datasets:
        name = theirs
    if name in datasets:
        if datasets[name].partitions == '"none"' and itemtype == "IN" and map_ == "same":
            map_ = "full"
        return LinkSpec(itemtype, me, name, map_)
    if not dot or other == me or not other or not theirs:
        raise source.error(path, not_declared(name, [*datasets, *CLOCKS] if itemtype == "IN" else datasets))
    if itemtype == "OUT":
        near = suggestion(name, datasets)
        raise source.error(path, f"dataset {name!r} is not declared; a job writes datasets of its own project{near}")
    if other != project_id(other):
        raise source.error(path, f"{other!r} is no project's id; did you mean '{project_id(other)}.{theirs}'?")
    return LinkSpec(itemtype, other, theirs, map_)


def _clock(source: Source, path: Path, me: str, name: str, options: InputEntry, datasets: dict[str, Dataset]) -> str:
    """The input's dataset; a clock that is read for the first time becomes one."""
    clock = None
    if name not in datasets or datasets[name].clock is not None:
        try:
            clock = find_clock(name, options.timezone)
        except UsageError as error:
            raise source.error(path, str(error)) from None
    if clock is None:
        if options.timezone is not None:
            raise source.error(path, "`timezone` is for clocks: today, hourly, every 30m, cron …")
        return name
    if options.map != "same":
        raise source.error(path, f"a clock gives the job its dataids; map: {options.map} does not go with it")
    if options.timezone is not None:
        _check_zone(source, path, name, clock)
    name = " ".join(name.split())
    datasetid = f"{name} {options.timezone}" if options.timezone else name
    text = f"{name} @{options.timezone}" if options.timezone else name
    datasets.setdefault(datasetid, Dataset(me, datasetid, clock=text))
    return datasetid


def _check_zone(source: Source, path: Path, name: str, clock: Clock) -> None:
    if clock.kind in ("hourly", "every"):
        raise source.error(path, f"{name!r} counts in UTC; a timezone goes with `today` and `cron`")
    if len(name.split()) == 7:
        raise source.error(path, f"{name!r} names its time zone already")


def _script_job(source: Source, me: str, jobid: str, entry: JobEntry, datasets: dict[str, Dataset]) -> JobSpec:
    at: Path = ("jobs", jobid)
    links = []
    for index, item in enumerate(entry.inputs):
        ((name, options),) = item.items()
        place = (*at, "inputs", index)
        known = _clock(source, place, me, name, options, datasets)
        links.append(_link(source, place, me, "IN", known, datasets, options.map))
    for index, name in enumerate(entry.outputs):
        place = (*at, "outputs", index)
        link = _link(source, place, me, "OUT", name, datasets)
        if datasets[link.datasetid].clock is not None:
            raise source.error(place, f"{name!r} is a clock; nothing can write it")
        links.append(link)
    if entry.script is not None and (found := os.path.splitext(os.path.basename(entry.script))[0]) != jobid:
        raise source.error(
            (*at, "script"),
            f"RunJob takes the job's id from the script's name, so {jobid!r} does not fit; "
            f"call the job {found!r} or the script otherwise",
        )
    spec = _spec(source, at, entry, jobid, "script", entry.script, {"env": entry.env}, links)
    _check_env(source, (*at, "env"), entry.env, links)
    return spec


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


def _pipeline_job(
    source: Source, me: str, index: int, entry: PipelineEntry, datasets: dict[str, Dataset], spark: dict[str, Any]
) -> JobSpec:
    at: Path = ("pipelines", index)
    links = [
        _link(source, (*at, "sources", number), me, "IN", name, datasets) for number, name in enumerate(entry.sources)
    ]
    links.append(_link(source, (*at, "destination"), me, "OUT", entry.destination, datasets))
    definition = {"transformations": entry.transformations, "spark": spark}
    return _spec(source, at, entry, entry.slug, "pipeline", None, definition, links)


def _spec(
    source: Source,
    at: Path,
    entry: JobEntry | PipelineEntry,
    jobid: str,
    kind_: str,
    script: str | None,
    definition: dict[str, Any],
    links: list[LinkSpec],
) -> JobSpec:
    _check_links(source, at, links)
    return JobSpec(
        jobid, kind_, script, json.dumps(definition, sort_keys=True), None, entry.lease, entry.timeout,
        entry.retries.max, entry.retries.backoff, entry.concurrency, tuple(links),
        int(isinstance(entry, JobEntry) and entry.order == "strict"),
        entry.catchup if isinstance(entry, JobEntry) else "all",
    )  # fmt: skip


def _check_links(source: Source, at: Path, links: list[LinkSpec]) -> None:
    """Every dataset once, and each with variables of its own."""
    seen: dict[str, LinkSpec] = {}
    for link in links:
        other = seen.setdefault(link.datasetid, link)
        if other is link:
            continue
        if other.dataset_project != link.dataset_project:
            raise source.error(
                at, f"two datasets called {link.datasetid!r} would share the variables "
                f"{variable_prefix(link.datasetid)}_…; rename one of them",
            )  # fmt: skip
        both = " it reads what it writes;" if other.itemtype != link.itemtype else ""
        raise source.error(
            at, f"a dataset stands twice among its inputs and outputs: {link.datasetid!r};{both} leave one out"
        )
    try:
        check_prefixes(list(seen))
    except UsageError as error:
        raise source.error(at, str(error)) from None
