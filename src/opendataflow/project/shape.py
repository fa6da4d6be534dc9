"""project.yml in the shape that schema.py describes, and what pydantic finds wrong with it in plain words."""

import re
import types
import typing
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError

from opendataflow.errors import ConfigurationError
from opendataflow.project.schema import DatasetEntry, ProjectFile
from opendataflow.project.source import Path, Source, suggestion


def read_project(folder: str, environment: str | None = None, *, text: str | None = None) -> tuple[Source, ProjectFile]:
    """project.yml of this folder, valid in shape, as this environment has it; all errors of shape are told at once.

    Without an environment only its name and its environments are read. `text` stands for what the file holds.
    """
    source = Source(folder, text)
    if environment is None:
        return source, _validated(
            source, {key: source.data[key] for key in ("name", "environments") if key in source.data}
        )
    project = _validated(source, _as_in(source, environment))
    if environment not in project.environments:
        known, near = ", ".join(project.environments), suggestion(environment, project.environments)
        raise source.error(("environments",), f"there is no environment {environment!r}; known are {known}{near}")
    _check_changes(source, project)
    return source, project


def _validated(source: Source, data: dict[str, Any]) -> ProjectFile:
    try:
        return ProjectFile.model_validate(data)
    except ValidationError as invalid:
        lines = [_explain(source, error) for error in invalid.errors(include_url=False)]
        raise ConfigurationError("\n".join(dict.fromkeys(lines))) from None


def _as_in(source: Source, environment: str) -> dict[str, Any]:
    """The file's data as this environment has it: its datasets, and variables filled in."""
    data = dict(source.data)
    environments, datasets = data.get("environments"), data.get("datasets")
    if isinstance(environments, dict) and isinstance(here := environments.get(environment), dict):
        changes = here.get("datasets")
        if isinstance(changes, dict):
            source.use_changes(environment, {key: one for key, one in changes.items() if isinstance(one, dict)})
        # What the store's address needs is filled in where the store is opened; DATAFLOW_STORE may replace it all.
        own = {
            key: value if key in ("store", "datasets") else source.filled(value, ("environments", environment, key))
            for key, value in here.items()
        }
        data["environments"] = {**environments, environment: own}
    if "spark" in data:
        data["spark"] = source.filled(data["spark"], ("spark",))
    if isinstance(datasets, dict):
        data["datasets"] = {key: _dataset_here(source, key, entry) for key, entry in datasets.items()}
    return data


def _dataset_here(source: Source, datasetid: str, entry: Any) -> Any:
    entry = {} if entry is None else entry
    if not isinstance(entry, dict):
        return entry
    whole = {**entry, **source.changes.get(datasetid, {})}
    return {key: source.filled(value, ("datasets", datasetid, key)) for key, value in whole.items()}


def not_declared(name: str, known: Iterable[str]) -> str:
    return f"dataset {name!r} is not declared{suggestion(name, known)}"


def _check_changes(source: Source, project: ProjectFile) -> None:
    """What differs in an environment must exist, also in those that nobody uses now."""
    known = _keys_of(DatasetEntry)
    for environment, entry in project.environments.items():
        for datasetid, changes in entry.datasets.items():
            at: Path = ("environments", environment, "datasets", datasetid)
            if datasetid not in project.datasets:
                raise source.error(at, not_declared(datasetid, project.datasets))
            unknown = next((key for key in changes if key not in known), None)
            if unknown is not None:
                raise source.error((*at, unknown), _unknown_key(unknown, known))


# Errors ---------------------------------------------------------------------------------------------------------------
def _explain(source: Source, error: Any) -> str:
    """One line for an error that pydantic found."""
    path = tuple(part for part in error["loc"] if part != "[key]")
    near = None
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        message = _unknown_key(str(path[-1]), _keys_beside(path))
    elif error["type"] == "value_error":
        unknown = re.match(r"unknown key `([^`]+)`", message)
        near = (*path, unknown.group(1)) if unknown else None
    else:
        message = _in_plain_words(error, message)
    return str(source.error(path, message, near=near))


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
            return f"should be a text, not {what}"
        case "int_type" | "int_parsing" | "int_from_float" | "int_parsing_size":
            return f"should be a whole number, not {_scalar_or(given, what)}"
        case "float_type" | "float_parsing" | "finite_number":
            return f"should be a number, not {_scalar_or(given, what)}"
        case "literal_error":
            known = re.findall(r"'([^']*)'", str(limits.get("expected", "")))
            near = suggestion(given, known, quote=lambda name: f"`{name}`") if isinstance(given, str) else ""
            return f"should be {' or '.join((', '.join(known[:-1]), known[-1]))}, not {_scalar_or(given, what)}{near}"
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
