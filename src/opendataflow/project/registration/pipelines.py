"""Pipelines of project.yml as jobs, and the datasets that they name without declaring them.

A source `x` that nobody declares is sources/x.csv, a destination `y` is output/y.csv; both may be written with `.csv`.
"""

import contextlib
import json
import os
from typing import Any

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.registration import JobSpec, LinkSpec
from opendataflow.domain.streams import DATASET
from opendataflow.domain.tables import SQL, find_table
from opendataflow.project.inspect_code import find_engine
from opendataflow.project.problems import Problems
from opendataflow.project.registration.links import get_clock, get_link, job_spec
from opendataflow.project.registration.streams import stream_definition
from opendataflow.project.schema.checks import check_fit, checks_json
from opendataflow.project.schema.jobs import InputEntry, PipelineEntry
from opendataflow.project.schema.values import check_dataset_id
from opendataflow.project.source import Path, Source

SUFFIX = ".csv"
SOURCES, OUTPUT = "sources", "output"
# It is there or not, nobody waits for its end, and a new version of it is taken in: see arrivals/sources.py.
ARRIVAL = {"stable": 0.0, "again": True}


class Undeclared:
    """The datasets that pipelines name without declaring them, and where they do."""

    def __init__(self, source: Source, project: str, datasets: dict[str, Dataset], broken: frozenset[str]) -> None:
        self.source, self.project, self.datasets, self.broken = source, project, datasets, broken
        self.places: dict[str, Path] = {}

    def destination(self, at: Path, name: str) -> str:
        """The id of the dataset that a pipeline writes."""
        return self._known(name) or self._add(at, name, f"{OUTPUT}/{{}}{SUFFIX}", partitions=None, definition={})

    def source_of(self, at: Path, name: str) -> str:
        """The id of the dataset that a pipeline reads; another pipeline's destination, if it has that name."""
        found = self._known(name)
        return found or self._add(
            at, name, f"{SOURCES}/{{}}{SUFFIX}", partitions='"none"', definition={"arrival": ARRIVAL}
        )

    def _known(self, name: str) -> str | None:
        """The declared dataset of that name, with or without `.csv`; a name with a dot may be another project's."""
        own = name.removeprefix(f"{self.project}.")
        spellings = [one for text in (name, own) for one in (text, text.removesuffix(SUFFIX), f"{text}{SUFFIX}")]
        found = next((one for one in spellings if one in self.datasets), None)
        if found is None and "." in name and not name.endswith(SUFFIX):
            return name
        return found

    def _add(self, at: Path, name: str, path: str, *, partitions: str | None, definition: dict[str, Any]) -> str:
        datasetid = name.removesuffix(SUFFIX)
        try:
            check_dataset_id(datasetid)
            if "{" in datasetid or "}" in datasetid:
                raise ValueError(f"{datasetid!r} cannot be the name of a file here")
        except ValueError as error:
            how = f"declare it: `datasets: {{name: {{path: {name}}}}}`" if "/" in name else "or declare the dataset"
            raise self.source.error(at, f"{error}; {how}") from None
        self.places[datasetid] = at
        self.datasets[datasetid] = Dataset(
            self.project, datasetid, location=path.format(datasetid), format="csv", partitions=partitions,
            definition=json.dumps(definition),
        )  # fmt: skip
        return datasetid


def pipeline_job(
    at: Path, entry: PipelineEntry, destination: str, undeclared: Undeclared, spark: dict[str, Any], problems: Problems
) -> JobSpec | None:
    """The job of this pipeline, or None when something is wrong with it."""
    source, me, datasets = undeclared.source, undeclared.project, undeclared.datasets
    before = len(problems)
    links: list[LinkSpec] = []
    for number, item in enumerate(entry.sources):
        ((name, options),) = item.items()
        with problems.kept():
            links.append(_source(undeclared, (*at, "sources", number), name, options, entry))
    if entry.clock is not None:
        place = (*at, "frequency" if entry.frequency is not None else "cron")
        with problems.kept():
            clock = get_clock(source, place, me, entry.clock, InputEntry(timezone=entry.timezone), datasets)
            links.append(LinkSpec("IN", me, clock))
    with problems.kept():
        links.append(get_link(source, (*at, "destination"), me, "OUT", destination, datasets))
        _check_checks(source, at, entry, datasets[links[-1].datasetid], undeclared.broken)
    of_data = [link for link in links[:-1] if not _is_clock(link, me, datasets)]
    if len(problems) == before and not of_data and (entry.stream is None or links[:-1]):
        problems.add(str(source.error((*at, "sources"), "a clock is no data; give a dataset that is read")))
    if len(problems) > before:
        return None
    with problems.kept():
        definition = _definition(entry, spark)
        if entry.stream is not None:
            made = datasets[links[-1].datasetid]
            engine = entry.engine or _engine_of(source, entry)
            try:
                definition["stream"] = stream_definition(entry.stream, made, engine)
            except ValueError as error:
                raise source.error((*at, "stream"), str(error)) from None
            if definition["stream"]["returns"] == DATASET and made.partitions is None:
                datasets[made.datasetid] = made._replace(partitions='"none"')
        return job_spec(source, at, entry, entry.slug, "pipeline", None, definition, links)
    return None


def _engine_of(source: Source, entry: PipelineEntry) -> str | None:
    """What the pipeline's transformations are written for, as far as their files are there."""
    folder = os.path.join(os.path.dirname(source.file), "pipelines", entry.slug)
    for name in entry.transformations:
        with (
            contextlib.suppress(OSError),
            open(os.path.join(folder, f"{name}.py"), encoding="utf-8", errors="replace") as file,
        ):
            if (engine := find_engine(file.read())) is not None:
                return engine
    return None


def _source(undeclared: Undeclared, at: Path, name: str, options: InputEntry, entry: PipelineEntry) -> LinkSpec:
    source, me, datasets = undeclared.source, undeclared.project, undeclared.datasets
    known = get_clock(source, at, me, name, options, datasets)
    if known not in datasets or datasets[known].clock is None:
        known = undeclared.source_of(at, name)
    map_ = options.map
    if entry.stream is not None:
        map_ = "full"
    elif entry.clock is not None and "map" not in options.model_fields_set:
        # Its dataids are the clock's slots, which no source has: each time it reads all there is.
        map_ = "full" if known in datasets and datasets[known].partitions == '"none"' else "all"
    return get_link(source, at, me, "IN", known, datasets, map_)


def _is_clock(link: LinkSpec, me: str, datasets: dict[str, Dataset]) -> bool:
    return link.dataset_project == me and datasets[link.datasetid].clock is not None


def _check_checks(source: Source, at: Path, entry: PipelineEntry, destination: Dataset, broken: frozenset[str]) -> None:
    if not entry.checks or destination.datasetid in broken:
        return
    declared = json.loads(destination.definition or "{}")
    try:
        check_fit(
            entry.checks, None, path=destination.location,
            format_=SQL if find_table(destination) is not None else destination.format,
            options=declared.get("options") or {}, schema=declared.get("schema"),
        )  # fmt: skip
    except ValueError as error:
        key, _, problem = str(error).partition(": ")
        below = (int(part) if part.isdecimal() else part for part in key.split("."))
        raise source.error((*at, *below), problem) from None


def _definition(entry: PipelineEntry, spark: dict[str, Any]) -> dict[str, Any]:
    """What only the runner needs: beside transformations and spark, what is set."""
    rest = {
        "engine": entry.engine, "at_once": entry.at_once, "checks": checks_json(entry.checks),
        "chunks_per_job": entry.chunks_per_job if "chunks_per_job" in entry.model_fields_set else None,
        "profile": entry.profile, "replace": entry.replace, "rowwise": entry.rowwise,
    }  # fmt: skip
    return {
        "transformations": entry.transformations,
        "spark": spark,
        **{key: value for key, value in rest.items() if value},
    }
