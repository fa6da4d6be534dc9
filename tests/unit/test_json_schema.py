"""The published JSON Schema of project.yml: made from the models, complete, and never stricter than the commands."""

import datetime
import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from pydantic import BaseModel

from opendataflow.project.schema import json_schema
from opendataflow.project.schema.descriptions import KEYS
from opendataflow.project.schema.json_schema import project_schema, schema_text
from opendataflow.project.schema.project import ProjectFile

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "docs/reference/project.schema.json"
VALIDATOR = jsonschema_rs.Draft202012Validator(project_schema())
TOP = {"name", "environments", "spark", "openlineage", "datasets", "jobs", "pipelines", "limits"}


def as_an_editor_reads(text: str) -> Any:
    """YAML 1.2, as editors have it: numbers and truths are such, a date is text."""

    def plain(value: Any) -> Any:
        match value:
            case dict():
                return {str(key): plain(one) for key, one in value.items()}
            case list():
                return [plain(one) for one in value]
            case datetime.date():
                return value.isoformat()
        return value

    return plain(yaml.safe_load(text))


def problems(text: str) -> list[str]:
    return [f"{list(one.instance_path)}: {one.message}" for one in VALIDATOR.iter_errors(as_an_editor_reads(text))]


def models() -> dict[str, type[BaseModel]]:
    """Every model of project.yml, by its name."""
    names = set(ProjectFile.model_json_schema()["$defs"]) | {"ProjectFile"}
    found: dict[str, type[BaseModel]] = {}
    waiting: list[type[BaseModel]] = [BaseModel]
    while waiting:
        for one in waiting.pop().__subclasses__():
            waiting.append(one)
            if one.__module__.startswith("opendataflow.project") and one.__name__ in names:
                found[one.__name__] = one
    assert found.keys() == names
    return found


def keys_of(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def test_the_published_file_is_what_the_models_make() -> None:
    assert PUBLISHED.read_text() == schema_text(), "write it anew: dataflow schema > docs/reference/project.schema.json"


def test_every_key_is_explained_and_nothing_else_is() -> None:
    assert {name: set(keys) for name, keys in KEYS.items()} == {name: keys_of(one) for name, one in models().items()}


def test_every_other_shape_is_of_a_key_that_there_is() -> None:
    known = models()
    for name, shapes in json_schema._SHAPES.items():
        assert shapes.keys() <= keys_of(known[name]), name
    assert json_schema._FORMS.keys() <= known.keys()


def test_patterns_are_of_the_kind_that_editors_know() -> None:
    assert not re.search(r"\(\?[^:]|\\\\[AZ]", json.dumps(project_schema()))


@pytest.mark.parametrize("file", sorted(ROOT.glob("examples/*/project.yml")), ids=lambda file: file.parent.name)
def test_the_examples_are_valid(file: Path) -> None:
    assert problems(file.read_text()) == []


def yaml_blocks() -> list[tuple[str, str]]:
    """Every project.yml of the documentation, and every part that could stand in one alone."""
    found = []
    for page in [
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted(ROOT.glob("examples/*/README.md")),
    ]:
        for number, text in enumerate(re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)):
            if isinstance(shown := as_an_editor_reads(text), dict) and shown.keys() <= TOP:  # not a piece of one
                whole = text if "name" in shown else f"name: x\n{text}"
                found.append((f"{page.relative_to(ROOT)}-{number}", whole))
    return found


@pytest.mark.parametrize("text", [pytest.param(text, id=where) for where, text in yaml_blocks()])
def test_what_the_documentation_shows_is_valid(text: str) -> None:
    assert problems(text) == []


GOOD = """\
name: 7
environments: {dev: , prod: {store: "${DATAFLOW_STORE}", limits: {crm: 3}, datasets: {crm: {hostname: }}}}
spark: {conf: {spark.sql.shuffle.partitions: 8}}
limits:
datasets:
  bare:
  crm: {url: "${CRM}", table: t, connections: "${N:-4}", partitions: {monthly: 2025-01}}
  files:
    path: a/{dataid}.csv
    format: ${FORMAT}
    options: {header: true, sep: ";"}
    partitions: {values: [1, eu]}
    checks: [exists, exists: , {schema: true}, {header: a}, {not_null: {columns: [a], on_fail: warn}}, checksum,
             {values: {on_fail: quarantine, a: [1]}}, {between: {a: [null, 2]}}, {rows: {within: 0.5..2}}]
jobs:
  load: {inputs: [today, {crm: }, {crm: {map: {window: 7}}}], outputs: [files], lease: 90, timeout: 2h,
         env: {A: 1, B: no}, retries: {max: "2", backoff: 0.5, retry_on: [75]}}
pipelines:
  - {slug: a, sources: files, destination: b, transformations: one.py, profile: yes, notify: "mailto://a@b.c"}
  - {slug: s, mode: stream, destination: t, stream: {schema: {a: int, b: {type: int, required: no}}, every: 200ms,
     body: 64KB, from: {kafka: {servers: [a, b], topic: t}}}}
"""
BAD = {
    "unknown key": "name: x\ndataset: {}",
    "unknown key of a dataset": "name: x\ndatasets: {a: {pth: b}}",
    "unknown format": "name: x\ndatasets: {a: {path: b, format: xls}}",
    "two schemes": "name: x\ndatasets: {a: {partitions: {daily: 2025-01-01, shards: 1..2}}}",
    "an unknown scheme": "name: x\ndatasets: {a: {partitions: weekly}}",
    "no output": "name: x\njobs: {a: {inputs: [b]}}",
    "not a duration": "name: x\njobs: {a: {outputs: [b], lease: soon}}",
    "an unknown check": "name: x\ndatasets: {a: {path: b, checks: [{nonnull: [a]}]}}",
    "two checks in one": "name: x\ndatasets: {a: {path: b, checks: [{not_null: [a], unique: [a]}]}}",
    "no source": "name: x\npipelines: [{slug: a, destination: b}]",
    "a stream without its schema": "name: x\npipelines: [{slug: a, mode: stream, destination: b}]",
    "a list of destinations": "name: x\npipelines: [{slug: a, sources: [b], destination: [c, d]}]",
    "an unknown map": "name: x\njobs: {a: {inputs: [{b: {map: weekly}}], outputs: [c]}}",
    "no name": "datasets: {}",
}


def test_every_short_form_is_valid() -> None:
    assert problems(GOOD) == []


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_what_apply_refuses_by_its_shape_is_underlined(text: str) -> None:
    assert problems(text)
