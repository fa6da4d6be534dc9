"""Values that several parts of project.yml share: durations, names, texts; and the model that refuses unknown keys."""

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from opendataflow.domain.partitions.clocks import find_clock
from opendataflow.errors import UsageError

MOST_BYTES = 200  # of an id: several of them make up the key of a table
MOST_SECONDS = 3650 * 86400
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(s|m|h|d)?")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, None: 1}


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
    check_line(name, "a name")
    if name != name.strip():
        raise ValueError(f"a name has no blanks before or after it; {name!r} has")
    if "/" in name or not name.strip("."):
        raise ValueError(f"{name!r} cannot be a name: it holds a `/`" if "/" in name else f"{name!r} cannot be a name")
    return name


def check_line(text: str, what: str) -> None:
    """Raise ValueError unless the text is short and printable."""
    if not text.isprintable():
        raise ValueError(f"{what} is one line of printable characters; {text!r} is not")
    if len(text.encode()) > MOST_BYTES:
        raise ValueError(f"{what} has at most {MOST_BYTES} bytes; this one has {len(text.encode())}")


def check_dataset_id(name: str) -> str:
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


def _given(value: object) -> object:
    if value is None:
        raise ValueError('has no value; an empty text is ""')
    return value


Duration = Annotated[float, BeforeValidator(seconds), Field(gt=0)]
Id = Annotated[str, AfterValidator(check_id)]
DatasetId = Annotated[str, AfterValidator(check_dataset_id)]
Filled = Annotated[str, AfterValidator(_filled)]
Scalar = Annotated[Any, BeforeValidator(_scalar)]
Setting = Annotated[str, BeforeValidator(_given)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, data: Any) -> Any:
        """A known key with nothing after it counts as left out."""
        if not isinstance(data, dict) or None not in data.values():
            return data
        known = {field.alias or name for name, field in cls.model_fields.items()}
        return {key: value for key, value in data.items() if value is not None or key not in known}
