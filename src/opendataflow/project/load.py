"""From project.yml to a Registration: errors name the file, the line and the key."""

import difflib
import json
import os
import re
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from opendataflow.domain.dataset import Dataset, check_prefixes, is_below
from opendataflow.domain.registration import JobSpec, LinkSpec, Registration
from opendataflow.errors import ConfigurationError, UsageError
from opendataflow.project.address import PROJECT_FILE, expand
from opendataflow.project.schema import DatasetEntry, InputEntry, JobEntry, PipelineEntry, ProjectFile, Spark

Path = tuple[str | int, ...]


def project_id(name: str) -> str:
    """The namespace of a project: its name in lower case, words joined by dashes."""
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-") or "project"


class Source:
    """A parsed project.yml that can say on which line a key stands."""

    def __init__(self, folder: str) -> None:
        self.file = os.path.join(folder, PROJECT_FILE)
        try:
            with open(self.file, encoding="utf-8") as source:
                text = source.read()
            loader = yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader
            self.tree = yaml.compose(text, Loader=loader)
            self.data = yaml.load(text, Loader=_text_loader())  # noqa: S506  a SafeLoader
        except OSError as error:
            raise ConfigurationError(f"{self.file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{self.file}: is not UTF-8 text: {error}") from error
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise ConfigurationError(f"{self.file}:{line}: not valid YAML: {error.problem}") from error
        except yaml.YAMLError as error:
            raise ConfigurationError(f"{self.file}: not valid YAML: {error}") from error
        if not isinstance(self.data, dict):
            raise ConfigurationError(f"{self.file}:1: a project needs at least `name: …`")
        self._refuse_twice(self.tree, ())

    def line(self, path: Path) -> int:
        """The line of the key, or of the nearest key above it that exists."""
        node, line = self.tree, 1
        for part in path:
            found = None
            if isinstance(node, yaml.MappingNode):
                found = next(((k, v) for k, v in node.value if k.value == str(part)), None)
                if found:
                    line, node = found[0].start_mark.line + 1, found[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line, found = node.start_mark.line + 1, (node, node)
            if not found:
                break
        return int(line)

    def error(self, path: Path, message: str) -> ConfigurationError:
        where = ".".join(str(part) for part in path)
        return ConfigurationError(f"{self.file}:{self.line(path)}: {where}: {message}")

    def _refuse_twice(self, node: Any, path: Path) -> None:
        if isinstance(node, yaml.MappingNode):
            seen = set()
            for key, value in node.value:
                if key.value in seen:
                    raise ConfigurationError(f"{self.file}:{key.start_mark.line + 1}: {key.value}: stands here twice")
                seen.add(key.value)
                self._refuse_twice(value, (*path, key.value))
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self._refuse_twice(item, path)


def _text_loader() -> type[yaml.SafeLoader]:
    """A loader that leaves dates as the text that was written: `2013-01-01..2013-12-31` and `2013-01-01` alike."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.yaml_implicit_resolvers = {
        first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def read_project(folder: str) -> tuple[Source, ProjectFile]:
    """project.yml of this folder, valid in shape; the first error is raised with its line, the others follow."""
    source = Source(folder)
    try:
        return source, ProjectFile.model_validate(source.data)
    except ValidationError as invalid:
        lines = [_explain(source, error) for error in invalid.errors()]
        raise ConfigurationError("\n".join(dict.fromkeys(lines))) from None


def _explain(source: Source, error: Any) -> str:
    # pydantic puts the name of a union's branch into the path; keys of the file are what a reader knows.
    loc = error["loc"]
    branch = [at for at in range(2, len(loc)) if loc[at - 2] == "inputs" and isinstance(loc[at - 1], int)]
    path = tuple(part for at, part in enumerate(loc) if at not in branch)
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(path[-1]), _keys_beside(path), n=1)
        message = "unknown key" + (
            f"; did you mean `{near[0]}`?" if near else f"; known are {', '.join(_keys_beside(path))}"
        )
    elif error["type"] == "missing":
        message = "is missing"
    return str(source.error(path, message))


def _keys_beside(path: Path) -> list[str]:
    model: Any = ProjectFile
    sections: dict[str, type[BaseModel]] = {"datasets": DatasetEntry, "jobs": JobEntry, "pipelines": PipelineEntry}
    if len(path) > 1:
        model = sections.get(str(path[0]))
    if len(path) > 3 and model is not None:
        field = model.model_fields.get(str(path[2]))
        model = field.annotation if field else None
    if path[0] == "environments":
        model = ProjectFile.model_fields["environments"].annotation.__args__[1]  # type: ignore[union-attr]
    if "inputs" in path:
        model = InputEntry
    fields = getattr(model, "model_fields", {})
    return [field.alias or name for name, field in fields.items()]


def read_addresses(folder: str) -> dict[str, Any]:
    """What RunJob needs of a project: its id, and the store's address in each environment, not yet expanded."""
    _, project = read_project(folder)
    stores = {name: entry.store for name, entry in project.environments.items()}
    return {"project": project_id(project.name), "environments": stores, "first": next(iter(stores), "default")}


def load_registration(folder: str, environment: str) -> Registration:
    """Everything the project declares for this environment, checked as a whole."""
    source, project = read_project(folder)
    declared = project.environments.get(environment)
    if declared is None:
        raise ConfigurationError(
            f"{source.file}: there is no environment {environment!r}; known are {', '.join(project.environments)}"
        )
    me = project_id(project.name)
    root = expand(declared.root)
    if "://" not in root:
        root = os.path.normpath(os.path.join(folder, os.path.expanduser(root)))
    datasets = {key: _dataset(me, key, entry) for key, entry in project.datasets.items()}
    jobs = [_script_job(source, me, key, entry, datasets) for key, entry in project.jobs.items()]
    jobs += [
        _pipeline_job(source, me, index, entry, datasets, _spark(project.spark, declared.spark))
        for index, entry in enumerate(project.pipelines)
    ]
    _check_whole(source, me, jobs, datasets, root)
    return Registration(
        me, project.name, root, folder, environment, tuple(datasets.values()), _with_schemes(jobs, datasets)
    )


def _spark(common: Spark, here: Spark) -> dict[str, Any]:
    """What all environments share, and on top of it what this one says."""
    return {"master": here.master or common.master, "conf": {**common.conf, **here.conf}}


def _dataset(project: str, datasetid: str, entry: DatasetEntry) -> Dataset:
    rest = {"options": entry.options, "schema": entry.schema_}
    return Dataset(
        project, datasetid, entry.hostname, entry.database, entry.schemaname, entry.tablename, entry.username,
        entry.encryptedpass, entry.path, entry.format,
        json.dumps(entry.partitions) if entry.partitions is not None else None,
        json.dumps({key: value for key, value in rest.items() if value}),  # a schema's columns have an order
    )  # fmt: skip


def _link(
    source: Source, path: Path, me: str, itemtype: str, name: str, datasets: dict[str, Dataset], map_: str = "same"
) -> LinkSpec:
    if name in datasets:
        if datasets[name].partitions == '"none"' and itemtype == "IN":
            map_ = "full"
        return LinkSpec(itemtype, me, name, map_)
    other, dot, theirs = name.partition(".")
    if dot and other != me and itemtype == "IN":
        return LinkSpec(itemtype, other, theirs, map_)
    near = difflib.get_close_matches(name, datasets, n=1)
    raise source.error(path, f"dataset {name!r} is not declared" + (f"; did you mean {near[0]!r}?" if near else ""))


def _script_job(source: Source, me: str, jobid: str, entry: JobEntry, datasets: dict[str, Dataset]) -> JobSpec:
    at: Path = ("jobs", jobid)
    links = []
    for index, item in enumerate(entry.inputs):
        named = {item: InputEntry()} if isinstance(item, str) else item
        for name, options in named.items():
            links.append(_link(source, (*at, "inputs", index), me, "IN", name, datasets, options.map))
    for index, name in enumerate(entry.outputs):
        links.append(_link(source, (*at, "outputs", index), me, "OUT", name, datasets))
    if entry.script is not None and os.path.splitext(os.path.basename(entry.script))[0] != jobid:
        raise source.error(
            (*at, "script"), f"RunJob takes the job's id from the script's name, so {jobid!r} does not fit"
        )
    return _spec(source, at, entry, jobid, "script", entry.script, {"env": entry.env}, links)


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
    kind: str,
    script: str | None,
    definition: dict[str, Any],
    links: list[LinkSpec],
) -> JobSpec:
    names = [link.datasetid for link in links]
    if len(set(names)) < len(names):
        raise source.error(at, f"a dataset stands twice among its inputs and outputs: {', '.join(sorted(names))}")
    try:
        check_prefixes(names)
    except UsageError as error:
        raise source.error(at, str(error)) from None
    return JobSpec(
        jobid, kind, script, json.dumps(definition, sort_keys=True), None, entry.lease, entry.timeout,
        entry.retries.max, entry.retries.backoff, entry.concurrency, tuple(links),
    )  # fmt: skip


def _check_whole(source: Source, me: str, jobs: list[JobSpec], datasets: dict[str, Dataset], root: str) -> None:
    ids = [job.jobid for job in jobs]
    for jobid in ids:
        if ids.count(jobid) > 1:
            raise source.error(("pipelines",), f"{jobid!r} is the id of two jobs or pipelines")
    producer: dict[str, str] = {}
    for job in jobs:
        for link in job.links:
            if link.itemtype == "OUT" and producer.setdefault(link.datasetid, job.jobid) != job.jobid:
                raise source.error(
                    ("datasets", link.datasetid), f"is produced by both {producer[link.datasetid]} and {job.jobid}"
                )
    for datasetid, dataset in datasets.items():
        if dataset.location is None:
            continue
        if not is_below(os.path.join(root, dataset.location), root):
            raise source.error(("datasets", datasetid, "path"), "leads out of the environment's root")
        if dataset.has_own_runs and datasetid not in producer and dataset.partitions is not None:
            raise source.error(("datasets", datasetid, "path"), "is partitioned, so its path needs a {dataid}")
    _check_cycle(source, jobs, producer, me)


def _check_cycle(source: Source, jobs: list[JobSpec], producer: dict[str, str], me: str) -> None:
    reads = {
        job.jobid: [
            producer[link.datasetid]
            for link in job.links
            if link.itemtype == "IN" and link.dataset_project == me and link.datasetid in producer
        ]
        for job in jobs
    }
    done: set[str] = set()

    def visit(jobid: str, trail: tuple[str, ...]) -> None:
        if jobid in trail:
            raise source.error((), f"jobs wait for each other: {' → '.join([*trail[trail.index(jobid) :], jobid])}")
        if jobid not in done:
            for before in reads[jobid]:
                visit(before, (*trail, jobid))
            done.add(jobid)

    for job in jobs:
        visit(job.jobid, ())


def _with_schemes(jobs: list[JobSpec], datasets: dict[str, Dataset]) -> tuple[JobSpec, ...]:
    """Each job with the scheme its dataids come from: its output's, or that of the first input that has one."""
    produced_by = {link.datasetid: job for job in jobs for link in job.links if link.itemtype == "OUT"}

    def scheme(job: JobSpec) -> str | None:
        outputs = [link.datasetid for link in job.links if link.itemtype == "OUT"]
        for datasetid in outputs:
            declared = datasets[datasetid].partitions
            if declared is not None:
                return declared
        same = [
            link for link in job.links if link.itemtype == "IN" and link.map == "same" and link.datasetid in datasets
        ]
        for link in same:
            declared = datasets[link.datasetid].partitions
            if declared is None and link.datasetid in produced_by:
                declared = scheme(produced_by[link.datasetid])
            if declared is not None:
                return declared
        # Nothing is mapped dataid by dataid: the whole is one chunk.
        return None if any(link.map == "same" for link in job.links if link.itemtype == "IN") else '"none"'

    return tuple(job._replace(partitions=scheme(job)) for job in jobs)
