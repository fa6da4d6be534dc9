"""The shape of `stream:` in a pipeline of project.yml."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, field_validator, model_validator

from opendataflow.domain.streams import STATE_BYTES
from opendataflow.domain.types.datatype import ARRAY, MAP, STRUCT, DataType, parse_type
from opendataflow.domain.types.spark import (
    DECIMAL,
    MOST_DIGITS,
    SIMPLE,
    as_compared,
    family,
    in_sparks_words,
    is_decimal,
)
from opendataflow.domain.types.values import OTHER
from opendataflow.project.schema.values import Duration, Filled, Strict, check_line, seconds
from opendataflow.project.source import suggestion

MOST_ITEMS = 10_000_000
_MILLISECONDS = re.compile(r"([0-9]{1,9})\s*ms")
_SIZE = re.compile(r"([0-9]{1,12})\s*(B|KB|MB|GB)?", re.IGNORECASE)
_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
OWN_OPTIONS = ("bootstrap.servers", "group.id", "enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset")
_WORDS = (*SIMPLE, DECIMAL)


class _Strict(Strict, BaseModel):  # BaseModel again: linters look for models file by file
    pass


def _field_type(text: str) -> str:
    """The type in its plain name: `Decimal (10, 2)` → `decimal(10,2)`, `struct<a: integer>` → `struct<a:int>`."""
    try:
        found = as_compared(in_sparks_words(parse_type(text)))
    except ValueError:
        raise _no_type(text, text.partition("<")[0].strip().lower()) from None
    _check_type(found, text)
    return str(found)


def _check_type(found: DataType, text: str) -> None:
    """Raise ValueError for a type that no field of an item can have; `text` is how it is written."""
    if found.name == MAP and str(found.inner[0]) != "string":
        raise ValueError(f"{text!r}: the keys of a map are strings, as JSON has them")
    if found.name == STRUCT and not (found.fields and all(re.fullmatch(r"\w+", name) for name in found.fields)):
        raise _no_type(text, STRUCT)
    for type_ in found.inner:
        _check_type(type_, str(type_))
    if not found.is_nested and family(found) == OTHER and str(found) != "binary":
        raise _no_type(text, found.name)
    if found.name == DECIMAL and not is_decimal(found):
        raise ValueError(
            f"{text!r}: a decimal has 1 to {MOST_DIGITS} digits, and no more of them after the point than in all"
        )


def _no_type(text: str, name: str) -> ValueError:
    if name in (ARRAY, MAP, STRUCT):
        return ValueError(
            f"{text!r} is not a type like array<string>, map<string,int> or struct<street:string,number:int>"
        )
    return ValueError(
        f"{text!r} is not a type of an item's field like string, int, double, decimal(10,2), date, timestamp or "
        f"array<string>{suggestion(name, _WORDS)}"
    )


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
    lost: Literal["fail", "skip"] = "fail"
    options: dict[str, str] = Field(default_factory=dict)

    @field_validator("options", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        """Numbers and truths as the client has them: 5, true."""
        if not isinstance(value, dict):
            return value
        return {
            key: str(one).lower() if isinstance(one, bool) else str(one) if isinstance(one, int | float) else one
            for key, one in value.items()
        }

    @field_validator("options")
    @classmethod
    def _no_secrets(cls, options: dict[str, str]) -> dict[str, str]:
        for key, value in options.items():
            if key in OWN_OPTIONS:
                raise ValueError(f"{key} is OpenDataFlow's own; leave it out")
            if "password" in key and not value.startswith("env:"):
                raise ValueError(f"{key} does not belong into a file; name a variable: `{key}: env:KAFKA_PASSWORD`")
        return options


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
            kafka = self.from_.kafka
            return {
                "kafka": {"servers": kafka.servers, "topic": kafka.topic, "lost": kafka.lost, "options": kafka.options}
            }
        return {"folder": self.from_.folder, "format": self.from_.format or "csv"}

    def definition(self) -> dict[str, Any]:
        """What runners, server and commands need of it; without the names of its datasets."""
        return {
            "schema": [[name, field.type, field.required] for name, field in self.schema_.items()],
            "max_batch": self.max_batch, "seal": self.seal, "every": self.every, "retention": self.retention,
            "backlog": self.backlog, "body": self.body, "on_error": self.on_error, "from": self.source,
            "max_size": self.max_size,
        }  # fmt: skip
