"""The shape of `stream:` in a pipeline of project.yml."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, field_validator, model_validator

from opendataflow.domain.streams import STATE_BYTES
from opendataflow.domain.types import OTHER, family, parts_of, plain_name
from opendataflow.project.schema.values import Duration, Filled, Strict, check_line, seconds
from opendataflow.project.source import suggestion

MOST_ITEMS = 10_000_000
_MILLISECONDS = re.compile(r"([0-9]{1,9})\s*ms")
_SIZE = re.compile(r"([0-9]{1,12})\s*(B|KB|MB|GB)?", re.IGNORECASE)
_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
_WORDS = ("string", "boolean", "int", "bigint", "smallint", "tinyint", "float", "double", "date", "timestamp")


class _Strict(Strict, BaseModel):  # BaseModel again: linters look for models file by file
    pass


def _field_type(text: str) -> str:
    """The type in its plain name: `Decimal (10, 2)` → `decimal(10,2)`, `struct<a: integer>` → `struct<a:int>`."""
    name = re.sub(r"\s+", "", text)
    nested = re.fullmatch(r"(?i)(array|map|struct)<(.*)>", name)
    if nested is None:
        return _simple_type(text)
    word, parts = nested[1].lower(), parts_of(nested[2])
    if word == "array" and len(parts) == 1:
        return f"array<{_field_type(parts[0])}>"
    if word == "map" and len(parts) == 2:
        if _field_type(parts[0]) != "string":
            raise ValueError(f"{text!r}: the keys of a map are strings, as JSON has them")
        return f"map<string,{_field_type(parts[1])}>"
    if word == "struct" and all(re.fullmatch(r"\w+:.+", part) for part in parts):
        fields = (part.partition(":") for part in parts)
        return f"struct<{','.join(f'{name}:{_field_type(inner)}' for name, _, inner in fields)}>"
    raise ValueError(f"{text!r} is not a type like array<string>, map<string,int> or struct<street:string,number:int>")


def _simple_type(text: str) -> str:
    name = plain_name(text)
    if family(name) == OTHER and name != "binary":
        raise ValueError(
            f"{text!r} is not a type of an item's field like string, int, double, decimal(10,2), date, timestamp or "
            f"array<string>{suggestion(name, _WORDS)}"
        )
    if name.startswith("decimal("):
        precision, scale = (int(part) for part in [*name[8:-1].split(","), "0"][:2])
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise ValueError(f"{text!r}: a decimal has 1 to 38 digits, and no more of them after the point than in all")
    return name


def _field_name(name: str) -> str:
    if not name.strip():
        raise ValueError("a field's name cannot be empty")
    check_line(name, "a field's name")
    return name


class FieldEntry(_Strict):
    type: Annotated[Filled, AfterValidator(_field_type)]
    required: bool = True


def _field(value: object) -> object:
    """`string`, or `{type: int, required: false}`."""
    return {"type": value} if isinstance(value, str) else value


def _every(value: object) -> float:
    found = _MILLISECONDS.fullmatch(str(value).strip())
    if found is not None:
        return int(found[1]) / 1000
    try:
        return seconds(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a duration like 200ms, 1s or 5m") from None


def _size(value: object) -> int:
    found = _SIZE.fullmatch(str(value).strip())
    if found is None or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a size like 64KB or 10MB")
    return int(found[1]) * _UNITS[(found[2] or "B").upper()]


class KafkaEntry(_Strict):
    servers: Annotated[Filled, BeforeValidator(lambda value: ",".join(value) if isinstance(value, list) else value)]
    topic: Filled


class FromEntry(_Strict):
    """Where items come from, if not from callers."""

    folder: Filled | None = None
    format: Literal["csv", "ndjson"] | None = None
    kafka: KafkaEntry | None = None

    @model_validator(mode="after")
    def _one(self) -> "FromEntry":
        if (self.folder is None) == (self.kafka is None):
            raise ValueError("give `intake`, or {folder: incoming, format: csv}, or {kafka: {servers: …, topic: …}}")
        if self.kafka is not None and self.format is not None:
            raise ValueError("has a `format`, which is for files; what Kafka holds is JSON")
        parts = (self.folder or "").split("/")
        if self.folder is not None and (self.folder.startswith("/") or ".." in parts or "://" in self.folder):
            raise ValueError(f"the folder {self.folder!r} is not below the environment's root")
        return self


def _from(value: object) -> object:
    if value is None or value == "intake":
        return None
    if isinstance(value, str):
        near = suggestion(value, ("intake",))
        raise ValueError(  # noqa: TRY004  pydantic reports these
            f"should be intake, a mapping with `folder`, or one with `kafka`, not {value!r}{near}"
        )
    return value


class StreamEntry(_Strict):
    schema_: dict[Annotated[str, AfterValidator(_field_name)], Annotated[FieldEntry, BeforeValidator(_field)]] = Field(
        alias="schema", min_length=1
    )
    max_batch: int = Field(default=10_000, ge=1, le=MOST_ITEMS)
    seal: Literal["hourly", "daily"] = "hourly"
    every: Annotated[float, BeforeValidator(_every), Field(ge=0.01, le=86_400)] = 0.2
    retention: Duration = 7 * 86_400.0
    backlog: int = Field(default=1_000_000, ge=1, le=1_000_000_000)
    body: Annotated[int, BeforeValidator(_size), Field(ge=1024, le=2**30)] = 10 * 2**20
    on_error: Literal["set_aside", "fail"] = "set_aside"
    returns: Literal["items", "dataset"] | None = None
    max_size: Annotated[int, BeforeValidator(_size), Field(ge=2**10, le=2**40)] = STATE_BYTES
    from_: Annotated[FromEntry | None, BeforeValidator(_from)] = Field(default=None, alias="from")

    @field_validator("schema_")
    @classmethod
    def _each_once(cls, schema: dict[str, FieldEntry]) -> dict[str, FieldEntry]:
        seen: dict[str, str] = {}
        for name in schema:
            other = seen.setdefault(name.casefold(), name)
            if other != name:
                raise ValueError(f"{other!r} and {name!r} are the same column for Spark; rename one of them")
        return schema

    @property
    def source(self) -> dict[str, Any]:
        """Where items come from, as the job's definition keeps it."""
        if self.from_ is None:
            return {"intake": True}
        if self.from_.kafka is not None:
            return {"kafka": {"servers": self.from_.kafka.servers, "topic": self.from_.kafka.topic}}
        return {"folder": self.from_.folder, "format": self.from_.format or "csv"}

    def definition(self) -> dict[str, Any]:
        """What runners, server and commands need of it; without the names of its datasets."""
        return {
            "schema": [[name, field.type, field.required] for name, field in self.schema_.items()],
            "max_batch": self.max_batch, "seal": self.seal, "every": self.every, "retention": self.retention,
            "backlog": self.backlog, "body": self.body, "on_error": self.on_error, "from": self.source,
            "max_size": self.max_size,
        }  # fmt: skip
