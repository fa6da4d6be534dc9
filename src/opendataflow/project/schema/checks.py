"""The shape of a dataset's `checks:` and `arrival:` in project.yml, and the canonical JSON that the store keeps.

checks_json → [{"kind": "rows", "options": {"min": 1}, "on_fail": "fail"}, …]
arrival_json → {"done": "flights/{dataid}.done"} or {"stable": 10.0}
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from opendataflow.domain.checks.check import ON_EACH_ROW
from opendataflow.domain.checks.patterns import re2_pattern, why_refused
from opendataflow.domain.types.spark import family
from opendataflow.domain.types.values import HAVE_TEXT
from opendataflow.project.schema.values import Duration

Scalar = bool | int | float | str


Count = Annotated[int, Field(ge=0)]
OnFail = Literal["fail", "warn", "quarantine"]


class _Strict(BaseModel):
    """Unknown keys are errors that suggest the nearest one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in data:
                if key not in known:
                    near = difflib.get_close_matches(str(key), known, n=1)
                    hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"
                    raise ValueError(f"unknown key `{key}`; {hint}")
        return data


class _Option(_Strict):
    on_fail: OnFail = "fail"


class Plain(_Option):
    """`- exists`, `- exists: true` or `- exists: {on_fail: warn}`."""

    @model_validator(mode="before")
    @classmethod
    def _alone(cls, data: Any) -> Any:
        if data is False:
            raise ValueError("leave the check out instead of `false`")
        return {} if data is True or data is None else data


class Sizes(_Option):
    min: Count | None = None
    max: Count | None = None

    @model_validator(mode="after")
    def _some(self) -> "Sizes":
        if self.min is None and self.max is None:
            raise ValueError("give min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is greater than max {self.max}")
        return self


class Rows(_Option):
    min: Count | None = None
    max: Count | None = None
    within: tuple[float, float] | None = None
    of: Literal["median"] | None = None
    last: int | None = Field(default=None, ge=1, le=1000)

    @field_validator("within", mode="before")
    @classmethod
    def _range(cls, value: Any) -> Any:
        low, dots, high = str(value).partition("..")
        try:
            found = float(low), float(high)
        except ValueError:
            found = math.nan, math.nan
        if not dots or not 0 <= found[0] <= found[1] < math.inf:
            raise ValueError(f"{value!r} is not a range of factors like 0.5..2")
        return found

    @model_validator(mode="after")
    def _one_kind(self) -> "Rows":
        if self.within is None:
            if self.of is not None or self.last is not None:
                raise ValueError("`of` and `last` go with `within`, like {within: 0.5..2, of: median, last: 7}")
            Sizes(min=self.min, max=self.max)
        elif self.min is not None or self.max is not None:
            raise ValueError("min and max are a check of their own; `within` is another")
        return self


class Columns(_Option):
    """`[a, b]`, `a`, or `{columns: [a, b], on_fail: warn}`."""

    columns: list[str] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, data: Any) -> Any:
        if isinstance(data, str):
            data = [data]
        return {"columns": data} if isinstance(data, list) else data

    @field_validator("columns")
    @classmethod
    def _different(cls, columns: list[str]) -> list[str]:
        twice = [column for column in columns if columns.count(column) > 1]
        if twice:
            raise ValueError(f"{twice[0]!r} stands here twice")
        return columns


class _ByColumn(_Option):
    """`{column: […], on_fail: warn}`: a column's value is a list, so `on_fail: warn` cannot be one.

    With patterns, whose values are texts, a column named on_fail needs the long form, `{columns: {on_fail: …}}`.
    """

    columns: dict[str, list[Any]] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _split(cls, data: Any) -> Any:
        if not isinstance(data, dict) or isinstance(data.get("columns"), dict):
            return data
        option = {key: value for key, value in data.items() if key == "on_fail" and not isinstance(value, list)}
        columns = {str(key): value for key, value in data.items() if key not in option}
        for column, value in columns.items():
            if not isinstance(value, list):
                raise ValueError(f"{column}: give a list")  # noqa: TRY004  pydantic reports ValueErrors
        return {"columns": columns, **option}


class Values(_ByColumn):
    @field_validator("columns")
    @classmethod
    def _allowed(cls, columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for column, values in columns.items():
            if not values:
                raise ValueError(f"{column}: the list of allowed values is empty")
            if any(not isinstance(value, Scalar) for value in values):
                raise ValueError(f"{column}: allowed values are texts, numbers or true and false")
            if any(isinstance(value, float) and math.isnan(value) for value in values):
                raise ValueError(f"{column}: nothing equals NaN; leave it out")
            if any(isinstance(value, bool) for value in values) and any(isinstance(value, str) for value in values):
                raise ValueError(
                    f"{column}: true or false stands among texts; YAML reads an unquoted NO or YES so: quote it"
                )
        return columns


class Between(_ByColumn):
    @field_validator("columns")
    @classmethod
    def _bounds(cls, columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for column, bounds in columns.items():
            if len(bounds) != 2 or bounds == [None, None]:
                raise ValueError(f"{column}: give [lowest, highest]; one of them may be null")
            given = [bound for bound in bounds if bound is not None]
            numbers = [isinstance(bound, int | float) and not isinstance(bound, bool) for bound in given]
            if not all(numbers) and not all(isinstance(bound, str) for bound in given):
                raise ValueError(f"{column}: both bounds are numbers, or both are texts like 2025-11-12")
            if len(given) == 2 and given[0] > given[1]:
                raise ValueError(f"{column}: {given[0]!r} is greater than {given[1]!r}")
            if any(isinstance(bound, float) and not math.isfinite(bound) for bound in given):
                raise ValueError(f"{column}: leave an open end as null")
        return columns


class Pattern(_Option):
    """`{column: regex}`: the whole value must match."""

    columns: dict[str, str] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _split(cls, data: Any) -> Any:
        if not isinstance(data, dict) or isinstance(data.get("columns"), dict):
            return data
        columns = {str(key): value for key, value in data.items() if key != "on_fail"}
        return {"columns": columns, **({"on_fail": data["on_fail"]} if "on_fail" in data else {})}

    @field_validator("columns")
    @classmethod
    def _common(cls, columns: dict[str, str]) -> dict[str, str]:
        for column, pattern in columns.items():
            if not pattern:
                raise ValueError(f"{column}: the pattern is empty")
            problem = why_refused(pattern) or _re2_problem(pattern)
            if problem:
                raise ValueError(f"{column}: {pattern!r}: {problem}")
        return columns


def _re2_problem(pattern: str) -> str:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), re2_pattern(pattern))
    except pa.ArrowInvalid as error:
        return str(error)
    return ""


class Checksum(_Option):
    file: str = "{path}.sha256"
    algorithm: Literal["sha256", "md5", "sha1"] = "sha256"

    @field_validator("file")
    @classmethod
    def _inside(cls, file: str) -> str:
        return _below_root(file)


class Freshness(_Option):
    max_age: Duration


class Partition(_Option):
    column: str


class Expression(_Option):
    sql: str = Field(min_length=1)
    at_least: float = Field(default=1.0, gt=0, le=1)


class CheckEntry(_Strict):
    """One item of `checks:`: a mapping with one key, or the bare name of a check without options."""

    exists: Plain | None = None
    bytes: Sizes | None = None
    rows: Rows | None = None
    header: Columns | None = None
    schema_: Plain | None = Field(default=None, alias="schema")
    checksum: Checksum | None = None
    freshness: Freshness | None = None
    not_null: Columns | None = None
    unique: Columns | None = None
    values: Values | None = None
    between: Between | None = None
    pattern: Pattern | None = None
    partition: Partition | None = None
    expression: Expression | None = None

    @model_validator(mode="before")
    @classmethod
    def _one(cls, data: Any) -> Any:
        if isinstance(data, str):
            data = {data: {}}
        if isinstance(data, dict):
            if len(data) != 1:
                raise ValueError("a check is one key with its options; start the next one with a dash of its own")
            data = {key: {} if value is None else value for key, value in data.items()}
        return data

    @model_validator(mode="after")
    def _rows_to_take_out(self) -> "CheckEntry":
        if self.option.on_fail == "quarantine" and self.kind not in ON_EACH_ROW:
            raise ValueError(
                f"{self.kind}: on_fail: quarantine takes out rows, and this check does not say which; "
                f"it goes with {', '.join(ON_EACH_ROW)}"
            )
        return self

    @property
    def kind(self) -> str:
        return next(iter(self.model_fields_set)).rstrip("_")

    @property
    def option(self) -> Any:
        return getattr(self, next(iter(self.model_fields_set)))


class ArrivalEntry(_Strict):
    """`{done: "flights/{dataid}.done"}` or `{stable: 10s}`."""

    done: str | None = None
    stable: Duration | None = None

    @field_validator("done")
    @classmethod
    def _inside(cls, done: str | None) -> str | None:
        return None if done is None else _below_root(done)

    @model_validator(mode="after")
    def _one(self) -> "ArrivalEntry":
        if (self.done is None) == (self.stable is None):
            raise ValueError("give either `done: path/of/{dataid}.done` or `stable: 10s`")
        return self


def _below_root(path: str) -> str:
    if not path or path.startswith(("/", "~")) or ".." in path.split("/"):
        raise ValueError("give a path below the environment's root, without a leading / and without ..")
    return path


# The canonical form ---------------------------------------------------------------------------------------------------
def checks_json(checks: Sequence[CheckEntry]) -> list[dict[str, Any]]:
    """As dataset.definition["checks"] keeps them: durations in seconds, defaults written out, nothing that is unset."""
    return [
        {
            "kind": entry.kind,
            "options": {
                **_defaults(entry),
                **entry.option.model_dump(mode="json", exclude={"on_fail"}, exclude_none=True),
            },
            "on_fail": entry.option.on_fail,
        }
        for entry in checks
    ]


def _defaults(entry: CheckEntry) -> dict[str, Any]:
    return {"of": "median", "last": 7} if entry.kind == "rows" and entry.option.within is not None else {}


def arrival_json(arrival: ArrivalEntry | None) -> dict[str, Any] | None:
    """As dataset.definition["arrival"] keeps it."""
    return None if arrival is None else arrival.model_dump(mode="json", exclude_none=True)


def check_fit(
    checks: Sequence[CheckEntry], arrival: ArrivalEntry | None, *, path: str | None, format_: str | None,
    options: Mapping[str, Any], schema: Mapping[str, str] | None,
) -> None:  # fmt: skip
    """Raise ValueError when a check or the arrival does not go with the rest of the dataset."""
    if arrival is not None:
        if path is None:
            raise ValueError("arrival: only files arrive; this dataset has no path")
        if arrival.done is not None and "{dataid}" in path and "{dataid}" not in arrival.done:
            raise ValueError("arrival: one marker cannot stand for all dataids; its path needs a {dataid}")
    for number, entry in enumerate(checks):
        problem = _misfit(entry, path=path, format_=format_, options=options, schema=schema)
        if problem:
            raise ValueError(f"checks.{number}: {entry.kind}: {problem}")


def _misfit(
    entry: CheckEntry, *, path: str | None, format_: str | None, options: Mapping[str, Any],
    schema: Mapping[str, str] | None,
) -> str:  # fmt: skip
    kind = entry.kind
    if kind == "checksum" and path is None:
        return "only files have a checksum file; this dataset has no path"
    if kind == "schema" and not schema:
        return "this dataset declares no `schema:`"
    if kind == "header" and (format_ not in (None, "csv") or str(options.get("header", True)).lower() == "false"):
        return "only CSV files with a header have one"
    if schema and kind in ("not_null", "unique", "values", "between", "pattern", "partition"):
        columns = [entry.option.column] if kind == "partition" else list(entry.option.columns)
        for column in columns:
            if column not in schema:
                near = difflib.get_close_matches(column, schema, n=1)
                return f"column {column!r} is not in `schema:`" + (f"; did you mean {near[0]!r}?" if near else "")
            if kind == "pattern" and family(schema[column]) not in HAVE_TEXT:
                return f"column {column!r} is {schema[column]}; a pattern needs text"
    return ""
