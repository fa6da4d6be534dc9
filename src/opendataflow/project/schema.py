"""The shape of project.yml, checked by pydantic; unknown keys are errors."""

import base64
import math
import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from opendataflow.domain.clocks import find_clock
from opendataflow.domain.maps import PLAIN, canonical_map
from opendataflow.domain.partitions import SCHEMES, check_scheme
from opendataflow.errors import UsageError
from opendataflow.project.check_schema import ArrivalEntry, CheckEntry
from opendataflow.project.secrets import PREFIX, is_encrypted
from opendataflow.project.source import suggestion

MOST_BYTES = 200  # of an id: several of them make up the key of a table
MOST_SHARDS = 10_000_000
MOST_SECONDS = 3650 * 86400
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(s|m|h|d)?")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, None: 1}
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_SECRET_OPTION = re.compile(r"(?i)(?:^|[._-])(?:password|passwd|passphrase|pwd)$")
_SECRET_PARAMETER = re.compile(r"(?i)[?&;](?:password|passwd|pwd|sslpassword)=[^&;]")
_VARIABLE = re.compile(r"\$\{[^}]*\}")
_TYPES = (
    "string", "varchar", "char", "boolean", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint",
    "float", "real", "double", "decimal", "dec", "numeric", "date", "timestamp", "timestamp_ntz", "timestamp_ltz",
    "binary", "interval", "array", "map", "struct", "variant", "void",
)  # fmt: skip


# Values ---------------------------------------------------------------------------------------------------------------
def seconds(value: object) -> float:
    """A duration like 30s, 5m, 2h, 1d, or a number of seconds."""
    match = _DURATION.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a duration like 30s, 5m, 2h or 1d")
    found = float(match.group(1)) * _UNITS[match.group(2)]
    if found > MOST_SECONDS:
        raise ValueError(f"{value!r} is longer than ten years")
    return found


def check_id(name: str) -> str:
    """The name of a dataset, job or environment, or ValueError with the reason why it cannot be one."""
    if not name.strip():
        raise ValueError("a name cannot be empty")
    _check_line(name, "a name")
    if name != name.strip():
        raise ValueError(f"a name has no blanks before or after it; {name!r} has")
    if "/" in name or not name.strip("."):
        raise ValueError(f"{name!r} cannot be a name: it holds a `/`" if "/" in name else f"{name!r} cannot be a name")
    return name


def _check_line(text: str, what: str) -> None:
    """Raise ValueError unless the text is short and printable."""
    if not text.isprintable():
        raise ValueError(f"{what} is one line of printable characters; {text!r} is not")
    if len(text.encode()) > MOST_BYTES:
        raise ValueError(f"{what} has at most {MOST_BYTES} bytes; this one has {len(text.encode())}")


def _check_dataset_id(name: str) -> str:
    check_id(name)
    try:
        clock = find_clock(name)
    except UsageError:
        raise ValueError("names that begin with `every` or `cron` are for clocks; choose another") from None
    if clock is not None:
        raise ValueError("is a clock, which is always there; leave it out, or choose another name")
    return name


def _filled(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return value


def _scalar(value: object) -> object:
    """A text, number or truth, as options and settings take them."""
    if value is None or isinstance(value, dict | list):
        raise ValueError('should be a text, a number, true or false; an empty text is ""')
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("should be a finite number")
    return value


def _option_name(name: str) -> str:
    if _SECRET_OPTION.search(name):
        raise ValueError("is a credential in plain text; give `password: enc:v1:…` beside `url`")
    return name


def _variable_name(name: str) -> str:
    if not name or "=" in name:
        raise ValueError(f"{name!r} cannot be an environment variable")
    if name in ("dataid", "jobid"):
        raise ValueError("is set by every run; choose another name")
    return name


def _is_whole(credential: str) -> bool:
    """True when an encrypted text can be all of it; only the passkey can tell for sure."""
    try:
        raw = base64.b64decode(credential.removeprefix(PREFIX), validate=True)
    except ValueError:
        return False
    return len(raw) >= (44 if credential.startswith(PREFIX) else 28)  # salt, nonce and tag; or without the salt


def _given(value: object) -> object:
    if value is None:
        raise ValueError('has no value; an empty text is ""')
    return value


def holds_password(url: str) -> bool:
    """True when a password stands in the address, before the host or among its parameters."""
    place, _, _ = url.partition("://")[2].partition("?")
    _, _, password = place.rpartition("@")[0].partition(":")
    return bool(password) or _SECRET_PARAMETER.search(url) is not None


Duration = Annotated[float, BeforeValidator(seconds), Field(gt=0)]
Id = Annotated[str, AfterValidator(check_id)]
DatasetId = Annotated[str, AfterValidator(_check_dataset_id)]
Filled = Annotated[str, AfterValidator(_filled)]
Scalar = Annotated[Any, BeforeValidator(_scalar)]
Setting = Annotated[str, BeforeValidator(_given)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, data: Any) -> Any:
        """A known key with nothing after it counts as left out."""
        if not isinstance(data, dict) or None not in data.values():
            return data
        known = {field.alias or name for name, field in cls.model_fields.items()}
        return {key: value for key, value in data.items() if value is not None or key not in known}


# Environments ---------------------------------------------------------------------------------------------------------
class Spark(_Strict):
    master: str | None = None
    conf: dict[str, Scalar] = {}


class Environment(_Strict):
    root: Filled = "."
    store: Filled = "sqlite:///.dataflow/state.db"
    spark: Spark = Spark()
    datasets: dict[str, dict[str, Any]] = {}  # what differs there; checked as part of the dataset

    @model_validator(mode="before")
    @classmethod
    def _nothing_differs(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("datasets"), dict):
            data = {**data, "datasets": {key: value or {} for key, value in data["datasets"].items()}}
        return data

    @field_validator("store")
    @classmethod
    def _without_password(cls, store: str) -> str:
        if holds_password(_VARIABLE.sub("", store)):
            raise ValueError("holds a password; let the address come from the environment: ${DATAFLOW_STORE}")
        return store


# Datasets -------------------------------------------------------------------------------------------------------------
def _column_type(text: str) -> str:
    word = re.match(r"[a-z_]*", text.strip().lower())
    name = word.group() if word else ""
    if name not in _TYPES:
        raise ValueError(
            f"{text!r} is not a type like string, int, double, date or timestamp{suggestion(name, _TYPES)}"
        )
    return text


class DatasetEntry(_Strict):
    path: str | None = None
    format: Literal["csv", "json", "parquet", "orc", "text"] | None = None
    options: dict[Annotated[str, AfterValidator(_option_name)], Scalar] = {}
    schema_: dict[Filled, Annotated[str, AfterValidator(_column_type)]] | None = Field(default=None, alias="schema")
    partitions: Any = None
    hostname: str | None = None
    database: str | None = None
    schemaname: str | None = None
    tablename: str | None = None
    username: str | None = None
    encryptedpass: str | None = None
    url: str | None = None
    password: str | None = None
    table: str | None = None
    query: str | None = None
    partition_column: str | None = None
    arrival: ArrivalEntry | None = None
    checks: list[CheckEntry] = []

    @field_validator("partitions")
    @classmethod
    def _known_scheme(cls, scheme: Any) -> Any:
        if scheme is None:
            return None
        if isinstance(scheme, str) or (isinstance(scheme, dict) and len(scheme) == 1):
            _check_kind(scheme)
        try:
            check_scheme(scheme)
        except UsageError as error:
            raise ValueError(str(error).removeprefix("partitions: ")) from None
        if isinstance(scheme, dict):
            _check_size(scheme)
        return scheme

    @field_validator("encryptedpass", "password")
    @classmethod
    def _encrypted(cls, value: str | None) -> str | None:
        if value is not None and not is_encrypted(value):
            raise ValueError("is not encrypted; make it with `dataflow crypt encrypt`")
        if value is not None and not _is_whole(value):
            raise ValueError("is damaged: it is not text made by `dataflow crypt encrypt`")
        return value

    @field_validator("url")
    @classmethod
    def _an_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        if holds_password(url):
            raise ValueError("holds a password; take it out and give `password: enc:v1:…`")
        try:
            place = urlsplit(url.removeprefix("jdbc:"))
            whole = bool(place.scheme) and place.port != 0 and ("://" in url or url.startswith("jdbc:"))
        except ValueError:
            whole = False
        if not whole:
            raise ValueError("is not an address like postgresql://reader@localhost:5432/crm")
        return url

    @model_validator(mode="after")
    def _one_source(self) -> "DatasetEntry":
        for one, other in (("path", "url"), ("table", "query"), ("password", "encryptedpass"), ("table", "tablename")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ValueError(f"has both `{one}` and `{other}`; give one of them")
        for needs in ("table", "query"):
            if getattr(self, needs) is not None and self.url is None:
                raise ValueError(f"has a `{needs}`, but no `url` of its database")
        if self.arrival is not None and self.path is None:
            raise ValueError("has `arrival`, but no `path` where files could arrive")
        return self

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str | None) -> str | None:
        if path is None:
            return None
        if not path.strip() or path.startswith(("/", "~")) or ".." in path.split("/") or "://" in path:
            raise ValueError("give a path below the environment's root, without a leading / and without ..")
        if not path.isprintable():
            raise ValueError(f"a path is one line of printable characters; {path!r} is not")
        other = next((one for one in _PLACEHOLDER.findall(path) if one != "{dataid}"), None)
        if other is not None:
            raise ValueError(f"{other} has no meaning in a path; the place of the dataid is {{dataid}}")
        return path


def _check_kind(scheme: str | dict[str, Any]) -> None:
    """Raise ValueError for a scheme whose name is not known, or that says nothing more than its name."""
    name = scheme if isinstance(scheme, str) else next(iter(scheme))
    known = re.findall(r"\{([a-z]+):", SCHEMES)
    if name in known and (isinstance(scheme, str) or scheme[name] is None):
        raise ValueError(f"{name!r} alone does not say which dataids there are; known are {SCHEMES}")
    if name not in (*known, "none"):
        raise ValueError(f"{name!r} is no scheme{suggestion(name, (*known, 'none')) or f'; known are {SCHEMES}'}")


def _check_size(scheme: dict[str, Any]) -> None:
    """Raise ValueError for shards that nobody could count, and for values that are no dataids."""
    if "values" in scheme:
        for value in scheme["values"]:
            _check_line(value, "a dataid")
    elif "shards" in scheme or "sequence" in scheme:
        first, _, last = str(next(iter(scheme.values()))).partition("..")
        if max(len(first), len(last)) > 100 or (last.strip() and int(last) - int(first) >= MOST_SHARDS):
            raise ValueError(f"these are more than {MOST_SHARDS:,} dataids")


# Jobs -----------------------------------------------------------------------------------------------------------------
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


class Retries(_Strict):
    max: int = Field(default=0, ge=0, le=1000)
    backoff: Duration = 30.0

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        if isinstance(data, str) and data.isdecimal():
            raise ValueError(f"give the number as {{max: {data}}}")
        return data


class _Runnable(_Strict):
    retries: Retries = Retries()
    lease: Annotated[float, BeforeValidator(seconds), Field(ge=1)] = 60.0
    timeout: Duration | None = None
    concurrency: int | None = Field(default=None, ge=1, le=1_000_000)


class JobEntry(_Runnable):
    script: Filled | None = None
    inputs: list[Annotated[dict[str, InputEntry], BeforeValidator(_one_input)]] = []
    outputs: list[str] = Field(min_length=1)
    env: dict[Annotated[str, AfterValidator(_variable_name)], Setting] = {}
    order: Literal["any", "strict"] = "any"
    catchup: Literal["all", "latest"] = "all"


class PipelineEntry(_Runnable):
    slug: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    sources: list[str] = Field(min_length=1)
    destination: str
    transformations: list[str] = []


class ProjectFile(_Strict):
    name: Filled
    environments: dict[Id, Environment] = {"default": Environment()}
    spark: Spark = Spark()
    datasets: dict[DatasetId, DatasetEntry] = {}
    jobs: dict[Id, JobEntry] = {}
    pipelines: list[PipelineEntry] = []

    @field_validator("name")
    @classmethod
    def _short(cls, name: str) -> str:
        _check_line(name.strip(), "a name")
        return name

    @model_validator(mode="before")
    @classmethod
    def _empty_sections(cls, data: Any) -> Any:
        """A name with nothing after it is an entry that says nothing; `environments: {}` leaves the default."""
        if not isinstance(data, dict):
            return data
        cleaned = dict(data)
        for section in ("environments", "datasets", "jobs"):
            if isinstance(cleaned.get(section), dict):
                cleaned[section] = {key: {} if one is None else one for key, one in cleaned[section].items()}
        if cleaned.get("environments") == {}:
            del cleaned["environments"]
        return cleaned
