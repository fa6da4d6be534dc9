"""`dataflow check-project`: all that is wrong with a project, found without running anything of it.

project.yml is read as `dataflow apply` reads it; transformations are read as text. No store is needed, nor Spark.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.registration import Registration
from opendataflow.domain.tables import find_table
from opendataflow.errors import ConfigurationError
from opendataflow.project import PROJECT_FILE
from opendataflow.project.inspect_code import Inspected, inspect_code
from opendataflow.project.registration.load import Bound, Loaded, read_addresses, read_registration
from opendataflow.project.registration.pipelines import SOURCES, SUFFIX
from opendataflow.project.source import Path, suggestion
from opendataflow.project.version import base_of

ERROR, WARNING = "error", "warning"
FOLDER = "pipelines"
EXPECTED = ("expected_inputs", "expected_output")


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    severity: str
    file: str  # from the project's folder
    line: int
    message: str
    next_step: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Pipeline:
    """A pipeline as it is written, also where something else of it is wrong."""

    at: Path
    slug: str
    sources: int  # DataFrames that its transformations can ask for
    transformations: tuple[str, ...]
    engine: str | None


def check_project(folder: str, environment: str | None = None, *, bound: Bound | None = None) -> list[Problem]:
    """Everything that is wrong, by file and line; errors as well as warnings. `bound`: what was bound in the store."""
    try:
        environment = environment or read_addresses(folder)["first"]
    except ConfigurationError:
        environment = environment or "default"  # what is wrong is found again below
    try:
        loaded = read_registration(folder, environment, bound=bound)
    except ConfigurationError as error:  # not even YAML
        place, _, message = str(error).removeprefix(f"{os.path.join(folder, PROJECT_FILE)}:").partition(": ")
        line = int(place) if place.isdecimal() else 1
        step = "correct it; the rest of the file is checked after that"
        return [Problem(severity=ERROR, file=PROJECT_FILE, line=line, message=message or str(error), next_step=step)]
    found = [_of_project_file(line, text) for line, text in loaded.problems.lines()]
    found += _Files(folder, loaded).check()
    known = dict.fromkeys(found)
    return sorted(known, key=lambda one: (one.file != PROJECT_FILE, one.file, one.line))


def _of_project_file(line: int, text: str) -> Problem:
    message, mean, rest = text.partition("; did you mean ")
    step = f"did you mean {rest}" if mean else "correct this line"
    return Problem(severity=ERROR, file=PROJECT_FILE, line=line, message=message, next_step=step)


class _Files:
    """What project.yml needs of the folder: sources, scripts and transformations."""

    def __init__(self, folder: str, loaded: Loaded) -> None:
        self.folder, self.loaded, self.base = folder, loaded, base_of(folder)
        self.pipelines = list(_pipelines(loaded.source.data.get("pipelines")))
        self.code: dict[str, Inspected | None] = {}
        self.found: list[Problem] = []

    def check(self) -> list[Problem]:
        made = self.loaded.registration
        if made is not None:
            self._check_sources(made)
            self._check_places(made)
            self._check_scripts(made)
        for pipeline in self.pipelines:
            inspected = [self._check_transformation(pipeline, at) for at in range(len(pipeline.transformations))]
            self._check_engines(pipeline, inspected)
            self._check_tables(pipeline, inspected)
        self._check_unused()
        return self.found

    def _add(self, severity: str, file: str, line: int, message: str, next_step: str) -> None:
        self.found.append(Problem(severity=severity, file=file, line=line, message=message, next_step=next_step))

    def _error_at(self, path: Path, message: str, next_step: str) -> None:
        self._add(ERROR, PROJECT_FILE, self.loaded.source.line(path), message, next_step)

    # project.yml against the folder -----------------------------------------------------------------------------------
    def _check_sources(self, made: Registration) -> None:
        """Sources that nobody declares are files that must be there."""
        declared = [one.datasetid for one in made.datasets if one.datasetid not in self.loaded.undeclared]
        for dataset in made.datasets:
            at = self.loaded.undeclared.get(dataset.datasetid)
            place = os.path.join(made.root, dataset.location or "")
            if at is None or not (dataset.location or "").startswith(f"{SOURCES}/") or "://" in place:
                continue
            brought = os.path.join(self.folder, os.path.relpath(place, self.base))  # with this version of a git project
            if any(os.path.isfile(one) and os.access(one, os.R_OK) for one in (place, brought)):
                continue
            names = [name.removesuffix(SUFFIX) for name in _names(os.path.dirname(brought)) if name.endswith(SUFFIX)]
            near = suggestion(dataset.datasetid, [*names, *declared])
            why = "cannot be read" if os.path.exists(place) else "is not there"
            step = near.removeprefix("; ") or f"put the file there, or declare {dataset.datasetid!r} under `datasets:`"
            self._error_at(at, f"source {dataset.datasetid!r}: {os.path.relpath(place, self.base)} {why}", step)

    def _check_places(self, made: Registration) -> None:
        datasets = {one.datasetid: one for one in made.datasets}
        at = {pipeline.slug: pipeline.at for pipeline in self.pipelines}
        for job in made.jobs:
            for link in job.links if job.kind == "pipeline" else ():
                dataset = datasets.get(link.datasetid) if link.dataset_project == made.project else None
                if dataset is not None and _is_elsewhere(dataset):
                    told = f"pipeline {job.jobid!r} uses {dataset.datasetid!r}, which has no path"
                    step = (
                        "give the dataset a `path`, or a `url` and a `table`; pipelines read and write files and tables"
                    )
                    self._error_at(at.get(job.jobid, ("pipelines",)), told, step)

    def _check_scripts(self, made: Registration) -> None:
        for job in made.jobs:
            if job.script is None:
                continue
            path, at = os.path.join(self.folder, job.script), ("jobs", job.jobid, "script")
            if not os.path.isfile(path):
                self._error_at(at, f"there is no script {job.script}", "write it, or correct the path")
            elif not os.access(path, os.X_OK):
                self._error_at(at, f"the script {job.script} is not executable", f"run `chmod +x {job.script}`")

    # Transformations --------------------------------------------------------------------------------------------------
    def _check_transformation(self, pipeline: Pipeline, number: int) -> Inspected | None:
        name = pipeline.transformations[number]
        file = f"{FOLDER}/{pipeline.slug}/{name}.py"
        if file not in self.code:
            self.code[file] = self._inspect(pipeline, number, file)
        inspected = self.code[file]
        if inspected is not None:
            for severity, line, message, step in _about(inspected, pipeline):
                self._add(severity, file, line, message, step)
        return inspected

    def _inspect(self, pipeline: Pipeline, number: int, file: str) -> Inspected | None:
        try:
            with open(os.path.join(self.folder, file), "rb") as opened:
                return inspect_code(opened.read())
        except OSError as error:
            folder = os.path.join(self.folder, FOLDER, pipeline.slug)
            names = [name.removesuffix(".py") for name in _names(folder) if name.endswith(".py")]
            near = suggestion(pipeline.transformations[number], names).removeprefix("; ")
            step = near or f"write {file} with `def run(df):`, or take it out of `transformations`"
            at = (*pipeline.at, "transformations", number)
            missing = f"there is no transformation {file}"
            why = missing if isinstance(error, FileNotFoundError) else f"{file}: {error.strerror}"
            self._error_at(at, why, step)
        except SyntaxError as error:
            self._add(ERROR, file, error.lineno or 1, f"is no Python: {error.msg}", "correct this line")
        except (ValueError, RecursionError) as error:
            self._add(ERROR, file, 1, f"is no Python: {error}", "save it as UTF-8 text")
        return None

    def _check_engines(self, pipeline: Pipeline, inspected: list[Inspected | None]) -> None:
        """One pipeline, one engine: declared, or recognised from all of its files."""
        files = [f"{FOLDER}/{pipeline.slug}/{name}.py" for name in pipeline.transformations]
        engines = {file: one.engine for file, one in zip(files, inspected, strict=True) if one and one.engine}
        if pipeline.engine is None and len(set(engines.values())) > 1:
            of = {engine: next(file for file in engines if engines[file] == engine) for engine in ("spark", "pandas")}
            told = f"{of['spark']} is written for Spark, and {of['pandas']} for pandas"
            self._error_at(pipeline.at, told, "write all transformations of a pipeline for one of them")
        for file, engine in engines.items():
            if pipeline.engine is not None and engine != pipeline.engine:
                line = next(one for name, one in zip(files, inspected, strict=True) if name == file)
                number = line.names.get("pyspark" if engine == "spark" else "pandas", 1) if line else 1
                told = f"is written for {engine}, and project.yml says `engine: {pipeline.engine}`"
                self._add(ERROR, file, number, told, f"write it for {pipeline.engine}, or change `engine`")
        if pipeline.engine is None and not engines:
            self._hint_at_pandas(files, inspected)

    def _check_tables(self, pipeline: Pipeline, inspected: list[Inspected | None]) -> None:
        """Transformations for pandas get their sources from files."""
        engines = {pipeline.engine} if pipeline.engine else {one.engine for one in inspected if one is not None}
        made = self.loaded.registration
        if made is None or "pandas" not in engines:
            return
        tables = {one.datasetid for one in made.datasets if find_table(one) is not None}
        for job in made.jobs:
            for link in job.links if job.jobid == pipeline.slug else ():
                if link.itemtype == "IN" and link.dataset_project == made.project and link.datasetid in tables:
                    told = f"{link.datasetid!r} is a table, and transformations for pandas read files"
                    step = "copy it to files first, with a pipeline without transformations, or write them for Spark"
                    self._error_at((*pipeline.at, "sources"), told, step)

    def _hint_at_pandas(self, files: list[str], inspected: list[Inspected | None]) -> None:
        for file, one in zip(files, inspected, strict=True):
            if one is not None and one.run is not None and one.run.assigned_line is not None:
                told = "sets a column as only pandas can, but imports neither pandas nor pyspark, so it gets Spark's"
                self._add(WARNING, file, one.run.assigned_line, told, "import pandas, or set `engine: pandas`")

    def _check_unused(self) -> None:
        used: dict[str, set[str]] = {}
        for pipeline in self.pipelines:
            used.setdefault(pipeline.slug, set()).update(f"{name}.py" for name in pipeline.transformations)
        top = os.path.join(self.folder, FOLDER)
        for slug in _names(top):
            if not os.path.isdir(os.path.join(top, slug)) or slug.startswith(("_", ".")):
                continue
            for name in _names(os.path.join(top, slug)):
                if name.endswith(".py") and not name.startswith(("_", ".")) and name not in used.get(slug, ()):
                    whose = "its pipeline does not name it" if slug in used else f"there is no pipeline {slug!r}"
                    step = f"add it to project.yml, or delete it; `_{name}` would be left alone"
                    self._add(WARNING, f"{FOLDER}/{slug}/{name}", 1, f"is never used: {whose}", step)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _is_elsewhere(dataset: Dataset) -> bool:
    return dataset.location is None and dataset.clock is None and find_table(dataset) is None


def _pipelines(written: Any) -> Iterator[Pipeline]:
    """Those whose slug and transformations can be read, whatever else is wrong with them."""
    for index, entry in enumerate(written if isinstance(written, list) else ()):
        slug = entry.get("slug") if isinstance(entry, dict) else None
        if not isinstance(slug, str) or not slug or "/" in slug or slug in (".", ".."):
            continue
        names = entry.get("transformations") or []
        sources = entry.get("sources") or []
        names = [names] if isinstance(names, str) else names if isinstance(names, list) else []
        kept = [one.removesuffix(".py") for one in names if isinstance(one, str) and ".." not in one.split("/")]
        yield Pipeline(
            at=("pipelines", index),
            slug=slug,
            sources=sum(not _is_clock(one) for one in ([sources] if isinstance(sources, str) else sources)),
            transformations=tuple(kept),
            engine=entry.get("engine") if entry.get("engine") in ("spark", "pandas") else None,
        )


def _is_clock(written: Any) -> bool:
    name = next(iter(written), "") if isinstance(written, dict) else str(written)
    return str(name).split(" ")[0] in ("today", "hourly", "every", "cron")


def _about(code: Inspected, pipeline: Pipeline) -> Iterator[tuple[str, int, str, str]]:
    """What is wrong with a module as a transformation of this pipeline: severity, line, message, next step."""
    if {"pandas", "pyspark"} <= code.imports:
        line = max(code.names.get("pandas", 1), code.names.get("pyspark", 1))
        yield WARNING, line, "imports both pandas and pyspark, so it gets Spark DataFrames", "import one of them"
    if code.star_line is None:
        for name in EXPECTED:
            if name not in code.names:
                step = "add an example, so that `dataflow validate` can test it"
                yield WARNING, code.run.line if code.run else 1, f"has no `{name}`", step
    for line, sentence in code.refusals if code.engine != "pandas" else ():
        told, _, step = sentence.partition("; ")
        yield ERROR, line, told, step
    run = code.run
    if run is None:
        if "run" not in code.names and code.star_line is None:
            yield ERROR, 1, "has no function `run`", "write `def run(df):` that returns a DataFrame"
        return
    if run.most == 0:
        wanted = "write `def run(df):`, or `def run(df, stream=None):` in a stream"
        yield ERROR, run.line, "`run` takes no DataFrame", wanted
    elif pipeline.sources and run.required > pipeline.sources:
        told = f"`run` asks for {run.required} sources, and pipeline {pipeline.slug!r} has {pipeline.sources}"
        yield ERROR, run.line, told, "add a source in project.yml, or take a parameter out"
    if run.keywords:
        told = f"`run` needs {', '.join(run.keywords)} by name, which nothing gives"
        yield ERROR, run.line, told, "give it a default, or take it out"
    if not run.stream_has_default:
        yield ERROR, run.line, "`stream` has no default, and a batch gives none", "write `stream=None`"
    if not run.stream_is_last:
        yield ERROR, run.line, "`stream` is not the last parameter", "move it to the end: `def run(df, stream=None):`"
    if run.is_async or run.is_generator:
        what = "is async" if run.is_async else "yields, so it is a generator"
        yield ERROR, run.line, f"`run` {what}", "write a plain function that returns a DataFrame"
    elif not run.returns:
        yield ERROR, run.line, "`run` returns nothing", "end it with `return df`"
    yield from _about_examples(code)


def _about_examples(code: Inspected) -> Iterator[tuple[str, int, str, str]]:
    run, inputs = code.run, code.inputs
    if run is None or inputs is None or run.most == 0:
        return
    line = code.names["expected_inputs"]
    if len(inputs) < run.required:
        told = f"`expected_inputs` has {len(inputs)} inputs, and `run` asks for {run.required}"
        yield ERROR, line, told, "give a list of inputs, each a list of rows: [[{…}], [{…}]]"
    elif run.most is not None and len(inputs) > run.most:
        told = f"`expected_inputs` has {len(inputs)} inputs, and `run` takes {run.most}"
        yield WARNING, line, told, "take the surplus ones out, or add a parameter"
