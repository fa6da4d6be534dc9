"""The JSON Schema of project.yml, made from the models that check it: editors complete keys and show what is wrong.

An editor must never underline what `dataflow apply` takes. So where the models accept a short form (`orders` for
`{orders: {map: same}}`), text for a number, or `${NAME}`, the schema does too. What only the models can tell (unknown
datasets, keys that exclude each other) is left to `dataflow check-project`.
"""

import copy
import json
from typing import Any

from opendataflow.project.schema.descriptions import KEYS
from opendataflow.project.schema.project import ProjectFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]

_VARIABLE = r"\$\{[A-Za-z_]"
_NUMBER = r"[0-9]{1,12}(\.[0-9]{1,12})?"
_ONE_KEY: Schema = {"minProperties": 1, "maxProperties": 1}
_TEXT: Schema = {"type": ["string", "number", "boolean"]}  # whatever is written is the text
_SPAN: Schema = {"type": ["string", "number"]}
_NAMES: Schema = {"type": "array", "items": _TEXT}
_DATE = r"[0-9]{4}-[0-9]{2}"


def _text(pattern: str, *examples: str) -> Schema:
    return {"type": "string", "pattern": f"^\\s*({pattern})\\s*$|{_VARIABLE}", "examples": list(examples)}


def _either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


_DURATION = _either({"type": "number", "minimum": 0}, _text(rf"{_NUMBER}\s*(s|m|h|d)?", "30s", "5m", "2h", "1d"))
_INPUT = _either(
    {"type": "string", "minLength": 1},
    {"type": "object", "additionalProperties": _either(_ref("InputEntry"), {"type": "null"}), **_ONE_KEY},
)
_PARTITIONS = _either(
    {"enum": ["none"]},
    {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "daily": {**_text(rf"{_DATE}-.*", "2025-01-01", "2025-01-01..2025-12-31"), "description": "FIRST[..LAST]"},
            "hourly": {**_text(rf"{_DATE}-.*", "2025-01-01", "2025-01-01T00"), "description": "FIRST[..LAST]"},
            "monthly": {**_text(rf"{_DATE}.*", "2025-01"), "description": "FIRST[..LAST]"},
            "sequence": {**_SPAN, "description": "1, 2, 3, … as far as they have come"},
            "shards": {**_SPAN, "description": "FIRST..LAST, with leading zeros as written", "examples": ["1..100"]},
            "values": {**_NAMES, "minItems": 1, "description": "these dataids"},
        },
        **_ONE_KEY,
    },
    {"type": "string", "pattern": _VARIABLE},
)
_BY_COLUMN: Schema = {"type": "object", "minProperties": 1, "properties": {"on_fail": {}, "columns": {}}}

# What the models take in a shorter or other form than they keep, by model and key.
_SHAPES: dict[str, dict[str, Schema]] = {
    "ArrivalEntry": {"stable": _DURATION},
    "Freshness": {"max_age": _DURATION},
    "Rows": {"within": _text(rf"{_NUMBER}\s*\.\.\s*{_NUMBER}", "0.5..2")},
    "Retries": {"backoff": _DURATION},
    "InputEntry": {
        "map": _either(
            {"enum": ["same", "full", "rollup", "all"]},
            {"type": "string", "pattern": "^(offset|window):"},
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {"offset": {"type": "integer"}, "window": {"type": "integer", "minimum": 1}},
                **_ONE_KEY,
            },
        )
    },
    "JobEntry": {"lease": _DURATION, "timeout": _DURATION, "inputs": {"type": "array", "items": _INPUT}},
    "PipelineEntry": {
        "lease": _DURATION,
        "timeout": _DURATION,
        "sources": _either({"type": "array", "items": _INPUT}, {"type": "string"}),
        "transformations": _either(_NAMES, {"type": "string"}),
        "notify": _either(_NAMES, {"type": "string"}),
    },
    "StreamEntry": {
        "every": _either({"type": "number"}, _text(rf"{_NUMBER}\s*(ms|s|m|h|d)?", "200ms", "5s")),
        "retention": _DURATION,
        "body": _either({"type": "integer"}, _text(r"[0-9]+\s*([kKmMgG]?[bB])?", "64KB", "10MB")),
        "from": _either({"enum": ["intake"]}, _ref("FromEntry")),
        "schema": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": _either({"type": "string"}, _ref("FieldEntry")),
        },
    },
    "KafkaEntry": {"servers": _either({"type": "string"}, _NAMES)},
    "DatasetEntry": {"partitions": _PARTITIONS},
    "Environment": {
        "datasets": {"type": "object", "additionalProperties": _either(_ref("DatasetEntry"), {"type": "null"})}
    },
}
# Of a whole model: forms beside the mapping that it is kept as.
_FORMS: dict[str, list[Schema]] = {
    "CheckEntry": [{"enum": ["exists", "schema", "checksum"]}],
    "Plain": [{"enum": [True]}, {"type": "null"}],
    "Checksum": [{"type": "null"}],
    "Columns": [{"type": "string"}, _NAMES],
    "Values": [{**_BY_COLUMN, "additionalProperties": {"type": "array", "minItems": 1}}],
    "Between": [{**_BY_COLUMN, "additionalProperties": {"type": "array", "minItems": 2, "maxItems": 2}}],
    "Pattern": [{**_BY_COLUMN, "additionalProperties": {"type": "string"}}],
}


def schema_text() -> str:
    """The schema as a file holds it."""
    return json.dumps(project_schema(), indent=1, ensure_ascii=False) + "\n"


def project_schema() -> Schema:
    """The schema, the same for the same models: its keys are in the models' order."""
    made = ProjectFile.model_json_schema(by_alias=True)
    definitions = made.pop("$defs")
    models = {name: _model(name, one) for name, one in {"ProjectFile": made, **definitions}.items()}
    models["CheckEntry"]["anyOf"][0] |= _ONE_KEY
    models["PipelineEntry"] |= {
        "required": ["slug", "destination"],
        "if": {"properties": {"mode": {"const": "stream"}}, "required": ["mode"]},
        "then": {"required": ["stream"]},
        "else": {"required": ["sources"]},
    }
    whole = models.pop("ProjectFile")
    return {
        "$schema": DIALECT,
        "title": "project.yml of OpenDataFlow",
        **{key: value for key, value in whole.items() if key != "title"},
        "$defs": dict(sorted(models.items())),
    }


def _model(name: str, schema: Schema) -> Schema:
    properties = {key: _property(name, key, one) for key, one in schema["properties"].items()}
    mapping: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    if schema.get("required"):
        mapping["required"] = schema["required"]
    forms = _FORMS.get(name)
    return {"anyOf": [mapping, *copy.deepcopy(forms)]} if forms else mapping


def _property(model: str, key: str, schema: Schema) -> Schema:
    shape = _SHAPES.get(model, {}).get(key)
    made = copy.deepcopy(shape) if shape is not None else _lenient(schema)
    default = schema.get("default")
    told = {"default": default} if isinstance(default, str | bool | int) and shape is None else {}
    return {"description": KEYS.get(model, {}).get(key, ""), **_or_nothing(made), **told}


def _lenient(schema: Schema) -> Schema:
    """The same, and what project.yml also takes there: text for a number, a number for text, `${NAME}`."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    if "anyOf" in schema:
        options = [_lenient(one) for one in schema["anyOf"] if one.get("type") != "null"]
        return options[0] if len(options) == 1 else {"anyOf": options}
    if "enum" in schema:
        return _either({"enum": schema["enum"]}, {"type": "string", "pattern": _VARIABLE})
    match schema.get("type"):
        case "string" if "pattern" in schema:
            return {"type": "string", "pattern": schema["pattern"]}
        case "string":
            return dict(_TEXT)
        case "integer" | "number" as kind:
            limits = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
            number = {"type": kind} | {name: schema[name] for name in limits if name in schema}
            return _either(number, {"type": "string", "pattern": f"^[0-9.]+$|{_VARIABLE}"})
        case "boolean":
            return {"type": ["boolean", "string"]}  # yes, no, on and off are text for an editor
        case "array":
            least = {"minItems": schema["minItems"]} if "minItems" in schema else {}
            return {"type": "array", "items": _lenient(schema["items"]), **least}
        case "object":
            inner = schema.get("additionalProperties", True)
            return {"type": "object", "additionalProperties": _entry(inner) if isinstance(inner, dict) else _TEXT}
    return {}


def _entry(schema: Schema) -> Schema:
    """An entry under a name; a name with nothing after it is an entry that says nothing."""
    made = _lenient(schema)
    return _either(made, {"type": "null"}) if "$ref" in made else made


def _or_nothing(schema: Schema) -> Schema:
    """A key with nothing after it counts as left out. Where a word is chosen, editors would offer `null` for it."""
    if "pattern" in schema or any("enum" in one for one in schema.get("anyOf", ())):
        return schema
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return {**schema, "type": [*kinds, "null"]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return _either(schema, {"type": "null"}) if schema else schema
