"""The shape of project.yml, checked by pydantic; unknown keys are errors."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from opendataflow.domain.partitions import check_scheme
from opendataflow.errors import UsageError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)?\Z")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, None: 1}


def seconds(value: object) -> float:
    """A duration like 30s, 5m, 2h, 1d, or a number of seconds."""
    match = _DURATION.match(str(value).strip())
    if match is None or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a duration like 30s, 5m, 2h or 1d")
    return float(match.group(1)) * _UNITS[match.group(2)]


def _text(value: object) -> object:
    """Numbers and dates of YAML back to the text that was written."""
    return value if isinstance(value, str) or value is None else str(value)


Duration = Annotated[float, BeforeValidator(seconds), Field(gt=0)]
Text = Annotated[str, BeforeValidator(_text)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Spark(_Strict):
    master: str | None = None
    conf: dict[str, str | int | float | bool] = {}


class Environment(_Strict):
    root: str = "."
    store: str = "sqlite:///.dataflow/state.db"
    spark: Spark = Spark()


class DatasetEntry(_Strict):
    path: str | None = None
    format: Literal["csv", "json", "parquet", "orc", "text"] | None = None
    options: dict[str, Any] = {}
    schema_: dict[str, str] | None = Field(default=None, alias="schema")
    partitions: Any = None
    hostname: Text | None = None
    database: Text | None = None
    schemaname: Text | None = None
    tablename: Text | None = None
    username: Text | None = None
    encryptedpass: str | None = None

    @field_validator("partitions")
    @classmethod
    def _known_scheme(cls, scheme: Any) -> Any:
        if isinstance(scheme, dict):
            scheme = {
                key: [_text(item) for item in value] if isinstance(value, list) else _text(value)
                for key, value in scheme.items()
            }
        if scheme is not None:
            try:
                check_scheme(scheme)
            except UsageError as error:
                raise ValueError(str(error)) from None
        return scheme

    @field_validator("encryptedpass")
    @classmethod
    def _encrypted(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("enc:v1:"):
            raise ValueError("is not encrypted; make it with `dataflow crypt encrypt`")
        return value

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str | None) -> str | None:
        if path is not None and (not path or path.startswith(("/", "~")) or ".." in path.split("/")):
            raise ValueError("give a path below the environment's root, without a leading / and without ..")
        return path


class InputEntry(_Strict):
    map: Literal["same", "full"] = "same"


class Retries(_Strict):
    max: int = Field(default=0, ge=0)
    backoff: Duration = 30.0


class _Runnable(_Strict):
    retries: Retries = Retries()
    lease: Annotated[float, BeforeValidator(seconds), Field(ge=1)] = 60.0
    timeout: Duration | None = None
    concurrency: int | None = Field(default=None, ge=1)


class JobEntry(_Runnable):
    script: str | None = None
    inputs: list[str | dict[str, InputEntry]] = []
    outputs: list[str] = Field(min_length=1)
    env: dict[str, Text] = {}

    @field_validator("env")
    @classmethod
    def _settable(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not name or "=" in name or "\0" in name or "\0" in value:
                raise ValueError(f"{name!r} cannot be an environment variable")
        return env


class PipelineEntry(_Runnable):
    slug: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    sources: list[str] = Field(min_length=1)
    destination: str
    transformations: list[str] = []


class ProjectFile(_Strict):
    name: str = Field(min_length=1)
    environments: dict[str, Environment] = {"default": Environment()}
    spark: Spark = Spark()
    datasets: dict[Text, DatasetEntry] = {}
    jobs: dict[Text, JobEntry] = {}
    pipelines: list[PipelineEntry] = []

    @model_validator(mode="before")
    @classmethod
    def _empty_sections(cls, data: Any) -> Any:
        """`datasets:` with nothing under it is an empty section, not an error."""
        if not isinstance(data, dict):
            return data
        cleaned = {key: value for key, value in data.items() if value is not None}
        if isinstance(cleaned.get("datasets"), dict):
            cleaned["datasets"] = {key: value or {} for key, value in cleaned["datasets"].items()}
        return cleaned
