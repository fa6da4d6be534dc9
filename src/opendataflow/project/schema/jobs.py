"""The shape of jobs and pipelines in project.yml."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from opendataflow.domain.partitions.maps import PLAIN, canonical_map
from opendataflow.errors import UsageError
from opendataflow.project.schema.checks import CheckEntry
from opendataflow.project.schema.notify import Notify
from opendataflow.project.schema.streams import StreamEntry
from opendataflow.project.schema.values import MOST_BYTES, Duration, Filled, Setting, Strict, seconds
from opendataflow.project.source import suggestion

STREAM_RETRIES, STREAM_BACKOFF = 3, 2.0
# What makes no sense beside `mode: stream`, which runs all the time and in the order of its items.
_OF_BATCHES = (
    "frequency", "cron", "timezone", "replace", "rowwise", "chunks_per_job", "at_once", "order", "catchup",
    "concurrency", "brake", "on_change",
)  # fmt: skip


class _Strict(Strict, BaseModel):  # BaseModel again: linters look for models file by file
    pass


# Jobs -----------------------------------------------------------------------------------------------------------------
def _variable_name(name: str) -> str:
    if not name or "=" in name:
        raise ValueError(f"{name!r} cannot be an environment variable")
    if name in ("dataid", "jobid"):
        raise ValueError("is set by every run; choose another name")
    return name


def _map(value: object) -> str:
    try:
        return canonical_map(value)
    except UsageError as error:
        name = next(iter(value)) if isinstance(value, dict) and value else str(value).partition(":")[0]
        known = (*PLAIN, "offset", "window")
        near = suggestion(name, known) if name not in known else ""
        raise ValueError(str(error).removeprefix("map: ") + near) from None


class InputEntry(_Strict):
    map: Annotated[str, BeforeValidator(_map)] = "same"
    timezone: str | None = None  # of a clock


def _one_input(value: object) -> object:
    """`orders`, or one name with its options: `{orders: {map: full}}`."""
    match value:
        case str() if value.strip():
            return {value: {}}
        case dict() if len(value) == 1:
            ((name, options),) = value.items()
            if isinstance(options, str):
                raise ValueError(f"give the map as {{{name}: {{map: {options}}}}}")  # noqa: TRY004  pydantic reports these
            return {name: {} if options is None else options}
        case dict() if {"map", "timezone"} & value.keys():
            raise ValueError("options stand below the dataset's name, one step further to the right")
    raise ValueError("an input is a dataset's name, or one name with its options, like {rates: {map: full}}")


ExitCode = Annotated[int, Field(ge=1, le=255)]


class Retries(_Strict):
    max: int = Field(default=0, ge=0, le=1000)
    backoff: Duration = 30.0
    retry_on: list[ExitCode] | None = Field(default=None, min_length=1)  # only these exit codes are tried again
    give_up_on: list[ExitCode] | None = Field(default=None, min_length=1)  # these never are

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        if isinstance(data, str) and data.isdecimal():
            raise ValueError(f"give the number as {{max: {data}}}")
        return data


class BrakeEntry(_Strict):
    """When fewer may run at once: by the part of the last runs that failed, or by how much slower they are."""

    failures: float | None = Field(default=None, gt=0, le=1)
    slower: float | None = Field(default=None, gt=1, le=1000)
    window: int = Field(default=20, ge=2, le=10_000)


class _Runnable(_Strict):
    retries: Retries = Retries()
    brake: BrakeEntry | None = None
    notify: Notify | None = None
    lease: Annotated[float, BeforeValidator(seconds), Field(ge=1)] = 60.0
    timeout: Duration | None = None
    concurrency: int | None = Field(default=None, ge=1, le=1_000_000)
    order: Literal["any", "strict"] = "any"
    catchup: Literal["all", "latest"] = "all"
    on_change: Literal["wait", "rerun"] = "wait"

    @property
    def kept(self) -> dict[str, Any]:
        """What only the runner needs of these settings: a part of the job's definition."""
        found: dict[str, Any] = {"retry_on": self.retries.retry_on, "give_up_on": self.retries.give_up_on}
        found |= {"brake": self.brake.model_dump(exclude_none=True) if self.brake is not None else None}
        found |= {"on_change": self.on_change if self.on_change != "wait" else None}
        return {name: value for name, value in found.items() if value is not None}


class JobEntry(_Runnable):
    script: Filled | None = None
    inputs: list[Annotated[dict[str, InputEntry], BeforeValidator(_one_input)]] = []
    outputs: list[str] = Field(min_length=1)
    env: dict[Annotated[str, AfterValidator(_variable_name)], Setting] = {}


# Pipelines ------------------------------------------------------------------------------------------------------------
def _listed(value: object) -> object:
    """One name stands for a list of one."""
    return [value] if isinstance(value, str) else value


def _one_destination(value: object) -> object:
    if isinstance(value, list):
        raise ValueError(  # noqa: TRY004  pydantic reports these
            "a pipeline has one destination, written without a list; give each further one a pipeline of its own"
        )
    return value


def _transformation(name: str) -> str:
    """The name without `.py`, or ValueError when it cannot be a file below pipelines/<slug>/."""
    stem = name.removesuffix(".py")
    if not stem.strip() or stem.startswith("/") or ".." in stem.split("/") or not stem.isprintable():
        raise ValueError(f"{name!r} is not the name of a transformation, a file in pipelines/<slug>/")
    return stem


Transformation = Annotated[str, AfterValidator(_transformation)]


class PipelineEntry(_Runnable):
    slug: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=MOST_BYTES)
    mode: Literal["batch", "stream"] = "batch"
    sources: Annotated[list[Annotated[dict[str, InputEntry], BeforeValidator(_one_input)]], BeforeValidator(_listed)]
    destination: Annotated[Filled, BeforeValidator(_one_destination)]
    transformations: Annotated[list[Transformation], BeforeValidator(_listed)] = []
    engine: Literal["spark", "pandas"] | None = None
    rowwise: bool = False
    chunks_per_job: int = Field(default=1, ge=1, le=10_000)
    at_once: int | None = Field(default=None, ge=1, le=64)
    checks: list[CheckEntry] = []
    profile: bool = False
    replace: bool = False
    frequency: Filled | None = None
    cron: Filled | None = None
    timezone: Filled | None = None  # of `cron`
    stream: StreamEntry | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_streams(cls, data: Any) -> Any:
        """A stream may have no source, and a batch of it is tried again before the stream stops."""
        if not isinstance(data, dict) or data.get("mode") != "stream":
            return data
        defaults = {"sources": [], "retries": {"max": STREAM_RETRIES, "backoff": STREAM_BACKOFF}}
        return {**data, **{key: value for key, value in defaults.items() if data.get(key) is None}}

    @field_validator("sources")
    @classmethod
    def _some(cls, sources: list[Any], info: ValidationInfo) -> list[Any]:
        if not sources and info.data.get("mode") == "batch":
            raise ValueError("is empty; it needs at least one")
        return sources

    @model_validator(mode="after")
    def _a_stream(self) -> "PipelineEntry":
        if self.mode == "batch":
            if self.stream is not None:
                raise ValueError("has `stream`, which goes with `mode: stream`")
            return self
        if self.stream is None:
            raise ValueError("has `mode: stream`, but no `stream: {schema: {email: string}}` that says what an item is")
        wrong = next((name for name in _OF_BATCHES if name in self.model_fields_set), None)
        if wrong is not None:
            raise ValueError(f"has `{wrong}`, which is for batches; a stream takes items as they come, in their order")
        for source in self.sources:
            ((name, options),) = source.items()
            if "map" in options.model_fields_set and options.map != "full":
                raise ValueError(f"reads {name!r} by `map: {options.map}`; a stream reads its sources whole")
        return self

    @model_validator(mode="after")
    def _one_clock(self) -> "PipelineEntry":
        if self.frequency is not None and self.cron is not None:
            raise ValueError("has both `frequency` and `cron`; give one of them")
        if self.timezone is not None and self.cron is None:
            raise ValueError("has a `timezone`, which goes with `cron`")
        return self

    @property
    def clock(self) -> str | None:
        """The clock that it goes by, as an input names it: `every 30m`, `cron 0 3 * * *`."""
        if self.frequency is not None:
            return f"every {self.frequency.strip()}"
        return None if self.cron is None else f"cron {self.cron.strip()}"
