"""What people bind to a dataset in a store: the fields that project.yml leaves open, read and checked as it reads them.

What project.yml declares cannot be bound; a bound value is taken as it is, and names no variable.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from opendataflow.domain.variables import is_platform_variable, why_refused
from opendataflow.errors import ConfigurationError, UsageError
from opendataflow.project.secrets import encrypt, get_passkey, is_encrypted
from opendataflow.project.source import Source, suggestion

FIELDS = (
    "path", "format", "url", "url_env", "table", "query", "username", "password", "partition_column", "partitions",
    "schema", "options", "hostname", "database", "schemaname", "tablename", "encryptedpass", "write", "staging",
    "connections", "driver", "driver_options",
)  # fmt: skip
SECRETS = ("password", "encryptedpass")
_STRUCTURED = ("partitions", "schema", "options", "driver_options")
_NAME = "bound"
MOST_CHARACTERS = 20_000


class Declared(NamedTuple):
    """A field as project.yml has it, variables not filled in."""

    value: Any
    where: str  # project.yml, or its environment
    line: int


def declared_fields(folder: str, environment: str, datasetid: str) -> dict[str, Declared]:
    """The fields that project.yml gives to this dataset in this environment; what it leaves empty is open."""
    source = Source(folder)
    found: dict[str, Declared] = {}
    for path, where in (
        (("datasets", datasetid), "project.yml"),
        (("environments", environment, "datasets", datasetid), f"project.yml, environment {environment}"),
    ):
        node: Any = source.data
        for part in path:
            node = node.get(part) if isinstance(node, dict) else None
        for field, value in node.items() if isinstance(node, dict) else ():
            if value is not None:
                found[field] = Declared(value, where, source.line((*path, field)))
    return found


def read_bindings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values as project.yml would hold them, credentials encrypted; None stays None: it unbinds.

    Texts of `partitions`, `schema` and options are read as YAML. Raises UsageError that names the field.
    """
    return {field: None if value is None else _read(field, value) for field, value in given.items()}


def _read(field: str, value: Any) -> Any:
    if field not in FIELDS:
        hint = suggestion(field, FIELDS, quote=lambda name: f"`{name}`") or f"; there are {', '.join(FIELDS)}"
        raise UsageError(f"{field}: cannot be bound{hint}")
    if field in SECRETS:
        return _sealed(field, value)
    text = str(value)
    if len(text) > MOST_CHARACTERS:
        raise UsageError(f"{field}: has more than {MOST_CHARACTERS:,} characters")
    raw = json.dumps(value, ensure_ascii=False, default=str)
    if "\\u0000" in raw or raw.encode(errors="replace") != raw.encode(errors="surrogatepass"):
        raise UsageError(f"{field}: holds a character that no store can keep")
    if field == "url_env" and is_platform_variable(text):
        raise UsageError(f"{field}: {why_refused(text)}")
    if "${" in text:
        raise UsageError(f"{field}: a bound value is taken as it is; `url_env` names a variable that holds an address")
    if field in _STRUCTURED and isinstance(value, str):
        return _parsed(field, value)
    return value


def _sealed(field: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{field}: should be a text")
    if len(value) > MOST_CHARACTERS:
        raise UsageError(f"{field}: has more than {MOST_CHARACTERS:,} characters")
    is_sealed = value.startswith("enc:v1:") or (field == "encryptedpass" and is_encrypted(value))
    return value if is_sealed else encrypt(value, get_passkey())


def _parsed(field: str, text: str) -> Any:
    """The text as the value of that key in project.yml; `daily:2025-01-01` is short for {daily: 2025-01-01}."""
    text = text.strip()
    if field == "partitions" and (short := re.fullmatch(r"([a-z]+):\s*([^\s{\[].*)", text)):
        kind, rest = short[1], short[2].strip()
        return {kind: [one.strip() for one in rest.split(",")] if kind == "values" else rest}
    if "\n" in text and not text.startswith("{"):
        text = "\n" + "\n".join(f"      {line}" for line in text.splitlines())
    else:
        text = " ".join(text.split("\n"))
    try:
        data = Source("", f"name: {_NAME}\ndatasets:\n  {_NAME}:\n    {field}: {text}\n").data
    except ConfigurationError as error:
        raise UsageError(f"{field}: {str(error).rpartition('project.yml:')[2].partition(': ')[2]}") from None
    entry = data.get("datasets", {}).get(_NAME)
    if set(data) != {"name", "datasets"} or not isinstance(entry, dict) or set(entry) != {field}:
        raise UsageError(f"{field}: is more than one value")
    return entry[field]
