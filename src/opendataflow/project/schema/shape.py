"""project.yml in the shape that schema.py describes, and what pydantic finds wrong with it in plain words."""

import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from opendataflow.domain.variables import STORE, is_platform_variable, named_variables, why_refused
from opendataflow.errors import ConfigurationError
from opendataflow.project.problems import Problems
from opendataflow.project.schema.jobs import JobEntry
from opendataflow.project.schema.notify import LONG, SHORT
from opendataflow.project.schema.project import DatasetEntry, ProjectFile, with_variable
from opendataflow.project.source import Path, Source, suggestion

Bound = Mapping[str, Mapping[str, Any]]  # dataset → field → value: what was bound in the store


class Shaped(NamedTuple):
    """What of a project.yml is in shape, as an environment has it."""

    source: Source
    project: ProjectFile | None  # None: too little of it is
    positions: tuple[int, ...]  # of its pipelines, in the file
    broken: frozenset[str]  # datasets that are declared, but out of shape
    problems: Problems


def read_project(folder: str) -> tuple[Source, ProjectFile]:
    """What every RunJob needs of the project.yml in this folder, valid in shape: name, environments, openlineage."""
    source = Source(folder)
    wanted = ("name", "environments", "openlineage")
    data: dict[str, Any] = {key: source.data[key] for key in wanted if key in source.data}
    problems = Problems(source.file)
    _refuse_platform_variables(source, data, problems)
    project = _Sieve(source, data, "", problems).run()
    if problems or project is None:
        raise ConfigurationError(problems.text())
    return source, project


def read_shape(folder: str, environment: str, *, text: str | None = None, bound: Bound | None = None) -> Shaped:
    """project.yml of this folder as this environment has it; what is out of shape is left out, and told.

    `text` stands for what the file holds. What it leaves open is taken from `bound`. A text that is no YAML is a
    ConfigurationError.
    """
    source = Source(folder, text)
    source.bound = {key: frozenset(fields) for key, fields in (bound or {}).items()}
    problems = Problems(source.file)
    _refuse_platform_variables(source, source.data, problems)
    sieve = _Sieve(source, {}, environment, problems)
    sieve.data = _as_in(source, environment, sieve, bound or {})
    project = sieve.run()
    if project is not None:
        if environment not in project.environments:
            known, near = ", ".join(project.environments), suggestion(environment, project.environments)
            told = f"there is no environment {environment!r}; known are {known}{near}"
            problems.add(str(source.error(("environments",), told)))
            project = None
        else:
            _check_changes(source, project, sieve.broken, problems)
    return Shaped(source, project, tuple(sieve.positions), frozenset(sieve.broken), problems)


class _Sieve:
    """Takes out what is out of shape, entry by entry, until the rest is a project."""

    def __init__(self, source: Source, data: dict[str, Any], environment: str, problems: Problems) -> None:
        self.source, self.data, self.environment, self.problems = source, data, environment, problems
        self.positions: list[int] = []
        self.broken: set[str] = set()

    def run(self) -> ProjectFile | None:
        pipelines = self.data.get("pipelines")
        self.positions = list(range(len(pipelines))) if isinstance(pipelines, list) else []
        while True:
            try:
                return ProjectFile.model_validate(self.data)
            except ValidationError as invalid:
                errors = invalid.errors(include_url=False)
            for error in errors:
                self.problems.add(_explain(self.source, error, self.positions))
            places = list(dict.fromkeys(tuple(error["loc"][:2]) for error in errors))
            for place in sorted(places, key=_last_first):
                if not self._take_out(place):
                    return None

    def _take_out(self, place: Path) -> bool:
        """Leave this entry out of the data; False when nothing sensible would be left."""
        if not place:
            return False
        section, entry = str(place[0]), place[1] if len(place) > 1 else None
        held = self.data.get(section)
        if section == "name":
            self.data = {**self.data, "name": "project"}
        elif section == "environments" and isinstance(held, dict) and entry in held:
            own: dict[str, Any] = {self.environment: {}} if entry == self.environment else {}
            self.data = {**self.data, section: {**{key: one for key, one in held.items() if key != entry}, **own}}
            return bool(held[entry] != {})
        elif isinstance(held, dict) and section in ("datasets", "jobs") and entry in held:
            self.data = {**self.data, section: {key: one for key, one in held.items() if key != entry}}
            if section == "datasets":
                self.broken.add(str(entry))
        elif isinstance(held, list) and section == "pipelines" and isinstance(entry, int):
            if isinstance(held[entry], dict) and isinstance(held[entry].get("destination"), str):
                self.broken.add(held[entry]["destination"].removesuffix(".csv"))
            self.data = {**self.data, section: held[:entry] + held[entry + 1 :]}
            del self.positions[entry]
        elif section in self.data and section not in ("environments", "datasets"):
            self.data = {key: one for key, one in self.data.items() if key != section}
        else:
            return False
        return True


def _refuse_platform_variables(source: Source, value: Any, problems: Problems, at: Path = ()) -> None:
    """A problem for each ${NAME} of OpenDataFlow's own secrets, anywhere; a store may be ${DATAFLOW_STORE}."""
    if isinstance(value, str):
        is_store = len(at) == 3 and at[0] == "environments" and at[2] == "store"
        for name in named_variables(value) if "${" in value else ():
            if is_platform_variable(name) and not (is_store and name == STORE):
                problems.add(str(source.error(at, why_refused(name))))
    elif isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            _refuse_platform_variables(source, one, problems, (*at, key))


def _last_first(place: Path) -> int:
    """Items of a list are taken out from its end, so that the others stay where they are."""
    return -place[1] if len(place) > 1 and isinstance(place[1], int) else 0


def _as_in(source: Source, environment: str, sieve: _Sieve, bound: Bound) -> dict[str, Any]:
    """The file's data as this environment has it: its datasets, variables filled in, and what was bound."""
    data = dict(source.data)
    environments, datasets = data.get("environments"), data.get("datasets")
    if isinstance(environments, dict) and isinstance(here := environments.get(environment), dict):
        changes = here.get("datasets")
        if isinstance(changes, dict):
            source.use_changes(environment, {key: one for key, one in changes.items() if isinstance(one, dict)})
        # What the store's address needs is filled in where the store is opened; DATAFLOW_STORE may replace it all.
        own = {}
        for key, value in here.items():
            with sieve.problems.kept():
                is_kept = key in ("store", "datasets")
                own[key] = value if is_kept else source.filled(value, ("environments", environment, key))
        data["environments"] = {**environments, environment: own}
    if "spark" in data:
        spark = data.pop("spark")
        with sieve.problems.kept():
            data["spark"] = source.filled(spark, ("spark",))
    datasets = {} if datasets is None and bound else datasets
    if isinstance(datasets, dict):
        data["datasets"] = {}
        for key, entry in {**datasets, **{key: {} for key in bound if key not in datasets}}.items():
            sieve.broken.add(key)
            with sieve.problems.kept():
                data["datasets"][key] = _dataset_here(source, key, entry, bound.get(key, {}))
                sieve.broken.discard(key)
    return data


def _dataset_here(source: Source, datasetid: str, entry: Any, bound: Mapping[str, Any]) -> Any:
    entry = {} if entry is None else entry
    if not isinstance(entry, dict):
        return entry
    whole = with_variable({**entry, **source.changes.get(datasetid, {})})
    filled = {key: source.filled(value, ("datasets", datasetid, key)) for key, value in whole.items()}
    # A bound value is taken as it is: it names no variable of whoever applies the project.
    return {**filled, **{key: value for key, value in bound.items() if filled.get(key) is None}}


def not_declared(name: str, known: Iterable[str]) -> str:
    return f"dataset {name!r} is not declared{suggestion(name, known)}"


def _check_changes(source: Source, project: ProjectFile, broken: set[str], problems: Problems) -> None:
    """What differs in an environment must exist, also in those that nobody uses now."""
    known = _keys_of(DatasetEntry)
    for environment, entry in project.environments.items():
        for datasetid, changes in entry.datasets.items():
            at: Path = ("environments", environment, "datasets", datasetid)
            if datasetid not in project.datasets and datasetid not in broken:
                problems.add(str(source.error(at, not_declared(datasetid, project.datasets))))
            for unknown in (key for key in changes if key not in known):
                problems.add(str(source.error((*at, unknown), _unknown_key(unknown, known))))


# Errors ---------------------------------------------------------------------------------------------------------------
def _explain(source: Source, error: Any, positions: list[int]) -> str:
    """One line for an error that pydantic found; `positions` are those of the pipelines in the file."""
    path = tuple(part for part in error["loc"] if part not in ("[key]", SHORT, LONG))
    if path[:1] == ("pipelines",) and len(path) > 1:
        path = ("pipelines", positions[path[1]], *path[2:])
    near = None
    message = str(error["msg"]).removeprefix("Value error, ")
    if misplaced := _misplaced(source, path):
        return str(source.error(path, misplaced))
    if error["type"] == "extra_forbidden":
        message = _unknown_key(str(path[-1]), _keys_beside(path))
    elif error["type"] == "value_error":
        unknown = re.match(r"unknown key `([^`]+)`", message)
        near = (*path, unknown.group(1)) if unknown else None
    else:
        message = _in_plain_words(error, message)
    return str(source.error(path, message, near=near))


def _misplaced(source: Source, path: Path) -> str:
    """What to do about an entry of `datasets` or `jobs` that is a key of the entry before it, indented too little."""
    models: dict[str, type[BaseModel]] = {"datasets": DatasetEntry, "jobs": JobEntry}
    section = str(path[0]) if len(path) == 2 else ""
    entries, model = source.data.get(section), models.get(section)
    if model is None or not isinstance(entries, dict) or path[1] not in _keys_of(model):
        return ""
    names = list(entries)
    before = names[: names.index(path[1])] if path[1] in entries else []
    owner = next((name for name in reversed(before) if name not in _keys_of(model)), None)
    if owner is None:
        return ""
    return f"is a key of {path[0]}.{owner}: indent it further than `{owner}`"


def _in_plain_words(error: Any, message: str) -> str:
    given, limits = error["input"], error.get("ctx") or {}
    what = {dict: "a mapping", list: "a list", str: "a text", type(None): "nothing"}.get(type(given), repr(given))
    match error["type"]:
        case "missing":
            return "is missing"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"should be a mapping like {{key: value}}, not {what}"
        case "list_type":
            example = given if isinstance(given, str) and given.isprintable() and len(given) < 40 else "a, b"
            return f"should be a list like [{example}], not {what}"
        case "string_type":
            return f"should be a text, not {what}{_unquoted(given)}"
        case "int_type" | "int_parsing" | "int_from_float" | "int_parsing_size":
            return f"should be a whole number, not {_scalar_or(given, what)}"
        case "bool_type" | "bool_parsing":
            return f"should be true or false, not {_scalar_or(given, what)}"
        case "string_too_long":
            return f"has at most {limits['max_length']} characters"
        case "float_type" | "float_parsing" | "finite_number":
            return f"should be a number, not {_scalar_or(given, what)}"
        case "literal_error":
            known = re.findall(r"'([^']*)'", str(limits.get("expected", "")))
            near = suggestion(given, known, quote=lambda name: f"`{name}`") if isinstance(given, str) else ""
            choice = " or ".join(part for part in (", ".join(known[:-1]), known[-1]) if part)
            return f"should be {choice}, not {_scalar_or(given, what)}{near}"
        case "greater_than":
            return f"should be greater than {limits['gt']:g}"
        case "greater_than_equal":
            return f"should be at least {limits['ge']:g}"
        case "less_than_equal":
            return f"should be at most {limits['le']:g}"
        case "too_short":
            return "is empty; it needs at least one"
        case "string_too_short":
            return "is empty"
        case "string_pattern_mismatch":
            return f"{given!r} should be letters, digits, `_`, `-` and `.`, and begin with none of the last two"
    return message


def _unquoted(given: Any) -> str:
    """A hint for {dataid} without quotes, which YAML takes for a mapping of its own."""
    if not isinstance(given, dict) or not given or not all(str(key).startswith("dataid") for key in given):
        return ""
    return '; `{` begins a mapping in YAML, so quote the text: "{dataid}"'


def _scalar_or(given: Any, what: str) -> str:
    return what if isinstance(given, dict | list) or given is None else repr(given)


def _unknown_key(key: str, known: Iterable[str]) -> str:
    near = suggestion(key, known, quote=lambda name: f"`{name}`")
    return "unknown key" + (near or f"; known are {', '.join(known)}")


def _keys_of(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _keys_beside(path: Path) -> list[str]:
    """The keys that could stand where the last key of the path does."""
    here: Any = ProjectFile
    for part in path[:-1]:
        if isinstance(here, type) and issubclass(here, BaseModel):
            fields = {field.alias or name: field.annotation for name, field in here.model_fields.items()}
            here = _bare(fields.get(str(part)))
        else:
            here = _bare(typing.get_args(here)[-1] if typing.get_args(here) else None)
    return _keys_of(here) if isinstance(here, type) and issubclass(here, BaseModel) else []


def _bare(annotation: Any) -> Any:
    """The type in `Annotated[type, …]` or `type | None`."""
    while typing.get_origin(annotation) in (typing.Annotated, typing.Union, types.UnionType):
        annotation = typing.get_args(annotation)[0]
    return annotation
