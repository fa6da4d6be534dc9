"""Where a dataid stands in a path: `{dataid}` as it is, or parts of its time, as in `{dataid:%Y%m%d}`.

Both ways: a path is built from a dataid, and a dataid is read from the names of a path.
"""

import datetime
import functools
import re
from collections.abc import Mapping

from opendataflow.domain.partitions.scheme import TIME_KINDS, kind_of, slot_of_json
from opendataflow.errors import UsageError

MARK = "{dataid}"
PLACEHOLDER = re.compile(r"\{dataid(?::([^{}]*))?\}")
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_WIDTHS = {"Y": 4, "m": 2, "d": 2, "H": 2, "j": 3}
_TELLING = {  # parts that together are a dataid
    "daily": ({"Y", "m", "d"}, {"Y", "j"}),
    "hourly": ({"Y", "m", "d", "H"}, {"Y", "j", "H"}),
    "monthly": ({"Y", "m"},),
}


def has_mark(path: str) -> bool:
    """True when the dataid is part of the path."""
    return "{dataid" in path and PLACEHOLDER.search(path) is not None


def has_form(path: str) -> bool:
    """True when parts of the dataid's time are part of the path."""
    return "{dataid:" in path


def split_forms(path: str) -> str:
    """The path with no `/` inside a placeholder: {dataid:%Y/%m} becomes {dataid:%Y}/{dataid:%m}."""

    def split(mark: re.Match[str]) -> str:
        return mark[0] if mark[1] is None else "/".join(f"{{dataid:{form}}}" for form in mark[1].split("/"))

    return PLACEHOLDER.sub(split, path)


def why_no_template(path: str, partitions: str | None) -> str:
    """Why the forms in this path do not fit a dataset whose scheme is this JSON; empty when they do."""
    forms = [form for form in PLACEHOLDER.findall(path) if form]
    if not has_form(path):
        return ""
    given = [one for form in forms for one in _DIRECTIVE.findall(form)]
    if len(forms) < path.count("{dataid:") or not all(_DIRECTIVE.search(form) for form in forms):
        return "an empty form tells nothing; write it like {dataid:%Y%m%d}"
    if (unknown := next((one for one in given if one not in _WIDTHS), None)) is not None:
        return f"%{unknown} has no meaning in a path; known are {', '.join(f'%{one}' for one in _WIDTHS)}"
    kind = kind_of(partitions) if partitions is not None else ""
    if kind not in TIME_KINDS:
        return "a form like {dataid:%Y%m%d} needs `partitions` of days, hours or months"
    if MARK not in path and not any(telling <= set(given) for telling in _TELLING[kind]):
        needed = " ".join(f"%{one}" for one in _WIDTHS if one in _TELLING[kind][0])
        return f"does not tell which dataid a file is of; {kind} partitions need {needed}"
    return ""


def fill(path: str, dataid: str, partitions: str | None) -> str:
    """The path with this dataid in it. Raises UsageError where its time is asked for and it is none."""
    if not has_form(path):
        return path.replace(MARK, dataid)
    fields = _fields_of(dataid, partitions)

    def put(mark: re.Match[str]) -> str:
        return dataid if mark[1] is None else _DIRECTIVE.sub(lambda one: fields[one[1]], mark[1])

    return PLACEHOLDER.sub(put, path)


@functools.lru_cache(maxsize=4096)
def _fields_of(dataid: str, partitions: str | None) -> Mapping[str, str]:
    slot = slot_of_json(dataid, partitions)
    if slot is None:
        raise UsageError(f"the dataid {dataid!r} is no day, hour or month, and its path asks for one")
    start = slot[0]
    return {
        "Y": f"{start.year:04d}", "m": f"{start.month:02d}", "d": f"{start.day:02d}", "H": f"{start.hour:02d}",
        "j": f"{start.timetuple().tm_yday:03d}",
    }  # fmt: skip


# From names to dataids ------------------------------------------------------------------------------------------------
Fields = Mapping[str, str]  # what is known of a dataid by the names so far: `dataid` itself, or directive → digits


def is_settled(part: str, fields: Fields) -> bool:
    """True when what is known says which name this part of the path has."""
    return all(name in fields for name in _asked(part))


def settle(part: str, fields: Fields) -> str:
    """The name of this part of the path."""
    return PLACEHOLDER.sub(
        lambda mark: fields["dataid"] if mark[1] is None else _DIRECTIVE.sub(lambda one: fields[one[1]], mark[1]), part
    )


def _asked(part: str) -> list[str]:
    found: list[str] = []
    for form in PLACEHOLDER.finditer(part):
        found += ["dataid"] if form[1] is None else _DIRECTIVE.findall(form[1])
    return found


def pattern_of(part: str, fields: Fields) -> re.Pattern[str]:
    """Matches the names that this part of the path can have; its groups are what they tell."""
    text, at, seen = "", 0, set(fields)

    def group(name: str, pattern: str) -> str:
        if name in fields:
            return re.escape(fields[name])
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return f"(?P<{name}>{pattern})"

    for mark in PLACEHOLDER.finditer(part):
        text += re.escape(part[at : mark.start()])
        at = mark.end()
        if mark[1] is None:
            text += group("dataid", ".+")
            continue
        literals = _DIRECTIVE.split(mark[1])
        text += re.escape(literals[0])
        for name, literal in zip(literals[1::2], literals[2::2], strict=True):
            text += group(name, f"[0-9]{{{_WIDTHS[name]}}}") + re.escape(literal)
    return re.compile(text + re.escape(part[at:]), re.DOTALL)


def complete(fields: Fields, partitions: str | None) -> Fields | None:
    """The fields with the dataid that they tell and all parts of it; None where they contradict each other.

    A dataid that is told may be none of the scheme: whoever takes it checks that.
    """
    kind = kind_of(partitions) if partitions is not None else ""
    if kind not in TIME_KINDS:
        return fields
    dataid = fields.get("dataid")
    if dataid is None and any(telling <= fields.keys() for telling in _TELLING[kind]):
        dataid = _told(kind, fields)
    if dataid is None:
        return fields
    try:
        parts = _fields_of(dataid, partitions)
    except UsageError:
        return {**fields, "dataid": dataid}
    if any(parts[name] != value for name, value in fields.items() if name != "dataid"):
        return None
    return {**parts, "dataid": dataid}


def _told(kind: str, fields: Fields) -> str:
    year, month, day = fields["Y"], fields.get("m", ""), fields.get("d", "")
    if kind != "monthly" and not (month and day):
        try:
            date = datetime.date(int(year), 1, 1) + datetime.timedelta(days=int(fields["j"]) - 1)
        except (ValueError, OverflowError):
            return f"{year}-{fields['j']}"
        if date.year != int(year):
            return f"{year}-{fields['j']}"
        month, day = f"{date.month:02d}", f"{date.day:02d}"
    text = f"{year}-{month}"
    if kind != "monthly":
        text += f"-{day}"
    return f"{text}T{fields['H']}" if kind == "hourly" else text


def could_meet(one: str, other: str) -> bool:
    """False when two names made only of digits and texts can never be the same."""
    if MARK in one or MARK in other:
        return True
    shapes = [
        PLACEHOLDER.sub(lambda mark: _DIRECTIVE.sub(lambda d: "\0" * _WIDTHS.get(d[1], 1), mark[1] or ""), part)
        for part in (one, other)
    ]
    return len(shapes[0]) == len(shapes[1]) and all(
        a == b or (a == "\0" and (b == "\0" or b.isdigit())) or (b == "\0" and a.isdigit())
        for a, b in zip(*shapes, strict=True)
    )
