"""What `dataflow validate` and the pytest plugin can run: every transformation of project.yml. Needs no Spark."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opendataflow.errors import UsageError
from opendataflow.project.registration.load import Bound, load_registration, read_addresses
from opendataflow.project.source import suggestion

FOLDER = "pipelines"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One transformation of one pipeline."""

    home: str  # the project's folder
    slug: str
    name: str
    transformations: tuple[str, ...]  # of the pipeline: all of them tell its engine
    engine: str | None  # as project.yml declares it
    conf: Mapping[str, Any]  # the project's settings of Spark
    rowwise: bool = False  # the pipeline's promise, which its examples must keep

    @property
    def id(self) -> str:
        return f"{self.slug}.{self.name}"

    @property
    def file(self) -> str:
        """From the project's folder."""
        return f"{FOLDER}/{self.slug}/{self.name}.py"


def find_cases(
    home: str, wanted: Sequence[str] = (), *, environment: str | None = None, bound: Bound | None = None
) -> list[Case]:
    """The cases of a project, or those that are named: `slug`, `slug.name` or the path of a file.

    `bound` is what was bound to its datasets in a store.

    UsageError for a name that is none, ConfigurationError when project.yml is not right.
    """
    registration = load_registration(home, environment or read_addresses(home)["first"], bound=bound)
    pipelines = {job.jobid: json.loads(job.definition) for job in registration.jobs if job.kind == "pipeline"}
    cases = [case for slug, definition in pipelines.items() for case in _cases(home, slug, definition)]
    if not wanted:
        return cases
    found = {case.id: case for name in wanted for case in _named(name, cases, list(pipelines))}
    return list(found.values())


def _cases(home: str, slug: str, definition: Mapping[str, Any]) -> list[Case]:
    names = tuple(dict.fromkeys(definition["transformations"]))  # one that is used twice is tested once
    conf = (definition.get("spark") or {}).get("conf") or {}
    return [
        Case(
            home=home,
            slug=slug,
            name=name,
            transformations=names,
            engine=definition.get("engine"),
            conf=conf,
            rowwise=bool(definition.get("rowwise")),
        )
        for name in names
    ]


def _named(wanted: str, cases: Sequence[Case], slugs: Sequence[str]) -> list[Case]:
    path = wanted.removeprefix("./").removeprefix(f"{FOLDER}/").removesuffix(".py")
    found = [case for case in cases if wanted == case.slug or path in (case.id, f"{case.slug}/{case.name}")]
    if found or wanted in slugs:
        return found
    slug = max((one for one in slugs if wanted.startswith(f"{one}.")), key=len, default=None)
    if slug is None:
        known = f"it has {', '.join(slugs)}" if slugs else "it has no pipelines"
        near = suggestion(wanted.partition(".")[0], slugs) or suggestion(wanted, [case.id for case in cases])
        raise UsageError(f"the project has no pipeline {wanted.partition('.')[0]!r}{near or f'; {known}'}")
    name = wanted.removeprefix(f"{slug}.").removesuffix(".py")
    names = [case.name for case in cases if case.slug == slug]
    known = f"; it has {', '.join(names)}" if names else "; it has none"
    raise UsageError(f"pipeline {slug!r} has no transformation {name!r}{suggestion(name, names) or known}")
