"""The shape of project.yml, checked by pydantic; unknown keys are errors."""

import base64
import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, field_validator, model_validator

from opendataflow.domain.partitions.scheme import SCHEMES, check_scheme
from opendataflow.domain.tables import REPLACE_TABLE
from opendataflow.domain.types.datatype import parse_type
from opendataflow.domain.types.spark import WORDS
from opendataflow.domain.variables import is_platform_variable, why_refused
from opendataflow.errors import UsageError
from opendataflow.project.schema.checks import ArrivalEntry, CheckEntry
from opendataflow.project.schema.jobs import InputEntry, JobEntry, PipelineEntry
from opendataflow.project.schema.notify import Notify
from opendataflow.project.schema.values import DatasetId, Duration, Filled, Id, Scalar, Strict, check_line, seconds
from opendataflow.project.secrets import PREFIX, is_encrypted
from opendataflow.project.source import suggestion

__all__ = [
    "DatasetEntry", "Environment", "InputEntry", "JobEntry", "PipelineEntry", "ProjectFile", "Spark", "seconds",
]  # fmt: skip
MOST_SHARDS = 10_000_000
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_SECRET_OPTION = re.compile(r"(?i)(?:^|[._-])(?:password|passwd|passphrase|pwd)$")
_SECRET_PARAMETER = re.compile(r"(?i)[?&;](?:password|passwd|pwd|sslpassword)=[^&;]")
_VARIABLE = re.compile(r"\$\{[^}]*\}")
_ONE_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ABOUT_DATABASES = ("table", "query", "driver", "driver_options", "connections", "write", "staging")
_PARTS_OF_ADDRESS = ("hostname", "database", "username")


class _Strict(Strict, BaseModel):  # BaseModel again: linters look for models file by file
    pass


# Credentials ----------------------------------------------------------------------------------------------------------
def _option_name(name: str) -> str:
    if _SECRET_OPTION.search(name):
        raise ValueError("is a credential in plain text; give `password: enc:v1:…` beside `url`")
    return name


def _is_whole(credential: str) -> bool:
    """True when an encrypted text can be all of it; only the passkey can tell for sure."""
    try:
        raw = base64.b64decode(credential.removeprefix(PREFIX), validate=True)
    except ValueError:
        return False
    return len(raw) >= (44 if credential.startswith(PREFIX) else 28)  # salt, nonce and tag; or without the salt


def with_variable(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry of a dataset with `url: ${NAME}` as `url_env: NAME`: what the variable holds is never written down."""
    whole = _ONE_VARIABLE.fullmatch(entry["url"].strip()) if isinstance(entry.get("url"), str) else None
    if whole is None or "url_env" in entry or is_platform_variable(whole[1]):
        return entry
    return {("url_env" if key == "url" else key): whole[1] if key == "url" else value for key, value in entry.items()}


def holds_password(url: str) -> bool:
    """True when a password stands in the address, before the host or among its parameters."""
    place, _, _ = url.partition("://")[2].partition("?")
    _, _, password = place.rpartition("@")[0].partition(":")
    return bool(password) or _SECRET_PARAMETER.search(url) is not None


Runs = Annotated[int, Field(ge=0, le=1_000_000)]


# Environments ---------------------------------------------------------------------------------------------------------
class Spark(_Strict):
    master: str | None = None
    conf: dict[str, Scalar] = {}
    idle: Duration | None = None


class Environment(_Strict):
    root: Filled = "."
    store: Filled = "sqlite:///.dataflow/state.db"
    spark: Spark = Spark()
    streams: Filled | None = None  # the folder of the logs of its streams, on a disk that server and runners share
    datasets: dict[str, dict[str, Any]] = {}  # what differs there; checked as part of the dataset
    limits: dict[Filled, Runs] = {}

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
    if name not in WORDS:
        raise ValueError(f"{text!r} is not a type like string, int, double, date or timestamp{suggestion(name, WORDS)}")
    try:
        found = parse_type(text)
    except ValueError:
        like = "decimal(10,2), array<string>, map<string,int> or struct<street:string,number:int>"
        raise ValueError(f"{text!r} is not a type like {like}") from None
    for part in found.parts():
        name = part.name.partition(" ")[0]
        if name not in WORDS:
            raise ValueError(f"{text!r} is not a type: it holds {name!r}{suggestion(name, WORDS)}")
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
    url_env: str | None = None  # the environment variable that holds the address, with its password
    password: str | None = None
    table: Filled | None = None
    query: Filled | None = None
    partition_column: Filled | None = None
    driver: Filled | None = None
    driver_options: dict[Annotated[str, AfterValidator(_option_name)], str] = {}
    connections: int | None = Field(default=None, ge=1, le=10_000)
    write: Literal["replace", "append", "replace_table"] | None = None
    staging: Filled | None = None  # the folder of a bucket that BigQuery loads chunks from
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

    @field_validator("staging")
    @classmethod
    def _in_a_bucket(cls, staging: str | None) -> str | None:
        if staging is not None and not re.fullmatch(r"gs://[a-z0-9][a-z0-9._-]+(/[^/*?\s]+)*/?", staging):
            raise ValueError("is not a folder of a bucket that BigQuery loads from, like gs://bucket/folder")
        return staging

    @field_validator("url_env")
    @classmethod
    def _a_variable(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            # What stands there may be the address itself: it is not shown.
            raise ValueError("is not the name of an environment variable, like DATABASE_URL")
        if name is not None and is_platform_variable(name):
            raise ValueError(why_refused(name))
        return name

    @model_validator(mode="after")
    def _one_source(self) -> "DatasetEntry":
        for one, other in (
            ("path", "url"), ("path", "url_env"), ("url", "url_env"), ("table", "query"),
            ("password", "encryptedpass"), ("table", "tablename"), ("query", "tablename"),
        ):  # fmt: skip
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ValueError(f"has both `{one}` and `{other}`; give one of them")
        if self.url is None and self.url_env is None:
            for needs in _ABOUT_DATABASES:
                if getattr(self, needs):
                    article = "" if needs in ("driver_options", "connections", "write", "staging") else "a "
                    raise ValueError(f"has {article}`{needs}`, but no `url` of its database")
        if self.arrival is not None and self.path is None:
            raise ValueError("has `arrival`, but no `path` where files could arrive")
        self._check_table()
        return self

    def _check_table(self) -> None:
        """Raise ValueError for what makes no sense together in a database."""
        if self.url_env is not None:
            for part in _PARTS_OF_ADDRESS:
                if getattr(self, part) is not None:
                    raise ValueError(f"has a `{part}`, and a whole address in the variable {self.url_env}; give one")
        if self.format is not None and (self.url or self.url_env):
            raise ValueError("has a `format`, which is for files, and the address of a database")
        if self.write is not None and self.query is not None:
            raise ValueError(f"has `write: {self.write}`, and a query; only a table can be written")
        if self.staging is not None and self.url is not None and not self.url.startswith("bigquery://"):
            raise ValueError("has `staging`, which is for BigQuery; other databases take rows as they are")
        if self.partition_column is None:
            return
        if self.path is not None:
            raise ValueError(
                "has a `partition_column`, which is for tables; a file's dataid is the {dataid} in its path, "
                "and the check `partition: {column: …}` looks at its rows"
            )
        if self.partitions == "none":
            raise ValueError("has a `partition_column`, and `partitions: none`, where the whole is one chunk")
        if self.write == REPLACE_TABLE:
            raise ValueError("has a `partition_column`, and `write: replace_table`, which replaces all rows")

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
            check_line(value, "a dataid")
    elif "shards" in scheme or "sequence" in scheme:
        first, _, last = str(next(iter(scheme.values()))).partition("..")
        if max(len(first), len(last)) > 100 or (last.strip() and int(last) - int(first) >= MOST_SHARDS):
            raise ValueError(f"these are more than {MOST_SHARDS:,} dataids")


# The whole ------------------------------------------------------------------------------------------------------------
class OpenLineage(_Strict):
    """Where events of runs go: an HTTP endpoint or a file."""

    url: Filled | None = None
    endpoint: Filled | None = None
    file: Filled | None = None
    namespace: Filled | None = None

    @model_validator(mode="after")
    def _one_place(self) -> "OpenLineage":
        if (self.url is None) == (self.file is None):
            raise ValueError("openlineage: give `url:` or `file:`")
        return self


class ProjectFile(_Strict):
    name: Filled
    environments: dict[Id, Environment] = {"default": Environment()}
    spark: Spark = Spark()
    openlineage: OpenLineage | None = None
    datasets: dict[DatasetId, DatasetEntry] = {}
    jobs: dict[Id, JobEntry] = {}
    pipelines: list[PipelineEntry] = []
    limits: dict[Filled, Runs] = {}  # of connections, by name: live runs at once
    notify: Notify | None = None  # of all jobs that say nothing else

    @field_validator("name")
    @classmethod
    def _short(cls, name: str) -> str:
        check_line(name.strip(), "a name")
        return name

    @model_validator(mode="before")
    @classmethod
    def _empty_sections(cls, data: Any) -> Any:
        """A name with nothing after it is an entry that says nothing; `environments: {}` leaves the default."""
        if not isinstance(data, dict):
            return data
        cleaned = dict(data)
        if cleaned.get("limits") is None:
            cleaned.pop("limits", None)
        for section in ("environments", "datasets", "jobs"):
            if isinstance(cleaned.get(section), dict):
                cleaned[section] = {key: {} if one is None else one for key, one in cleaned[section].items()}
        if cleaned.get("environments") == {}:
            del cleaned["environments"]
        return cleaned
