"""What a job reads and writes: from the names in project.yml to links with datasets and clocks."""

import json
import re
from typing import Any

from opendataflow.domain.dataset import Dataset, check_prefixes, variable_prefix
from opendataflow.domain.partitions.clocks import Clock, find_clock
from opendataflow.domain.registration import JobSpec, LinkSpec
from opendataflow.errors import UsageError
from opendataflow.project.schema.jobs import InputEntry, JobEntry, PipelineEntry
from opendataflow.project.schema.shape import not_declared
from opendataflow.project.source import Path, Source, suggestion

CLOCKS = ("today", "hourly")


def project_id(name: str) -> str:
    """The namespace of a project: its name in lower case, words joined by dashes."""
    return re.sub(r"[^\w]+", "-", name.lower()).strip("-") or "project"


def get_link(
    source: Source, path: Path, me: str, itemtype: str, name: str, datasets: dict[str, Dataset], map_: str = "same"
) -> LinkSpec:
    """The link to the dataset of that name, or a ConfigurationError that suggests another name."""
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


def get_clock(source: Source, path: Path, me: str, name: str, options: InputEntry, datasets: dict[str, Dataset]) -> str:
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


def job_spec(
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
        jobid, kind_, script, json.dumps({**definition, **entry.kept}, sort_keys=True), None, entry.lease,
        entry.timeout, entry.retries.max, entry.retries.backoff, entry.concurrency, tuple(links),
        int(entry.order == "strict"), entry.catchup,
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
