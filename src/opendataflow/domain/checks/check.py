"""Checks that a dataset declares, and what came of them. Nothing here looks at data.

checks/perform.py does so on files, spark/checks.py in the pass that writes them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from opendataflow.domain.types.values import DATE, HAVE_TEXT, INTEGER, NUMERIC, TEXT, TIMESTAMP, VOID, moment, number

FAIL, WARN, QUARANTINE = "fail", "warn", "quarantine"
ON_FILES = ("exists", "bytes", "checksum", "freshness")  # need no row
ON_SPARK = ("expression",)  # cannot be evaluated without Spark
ON_EACH_ROW = ("not_null", "values", "between", "pattern", "expression", "partition")  # can say which rows break them
CANNOT_TAKE_OUT = "only pipelines on Spark can take rows out"
READABLE = "readable"  # the finding when rows were to be read and could not
SHOWN_CHARACTERS = 40
SHOWN_VALUES = 5


class Check(NamedTuple):
    """One declared check, as a dataset's definition keeps it."""

    kind: str
    options: dict[str, Any]
    on_fail: str = FAIL

    @property
    def takes_out_rows(self) -> bool:
        """True when the rows that break it are to be left out, and the others published."""
        return self.on_fail == QUARANTINE and self.kind in ON_EACH_ROW

    def __str__(self) -> str:
        return f"{self.kind} {_brief(self.kind, self.options)}".rstrip()


class Finding(NamedTuple):
    """What came of one check: `skipped` ones say in `detail` why nobody looked."""

    check: str
    ok: bool
    skipped: bool
    detail: str
    on_fail: str = FAIL

    @property
    def failed(self) -> bool:
        """True when it keeps the chunk from being READY."""
        return self.result == "failed"

    @property
    def warned(self) -> bool:
        return self.result == "warned"

    @property
    def quarantined(self) -> bool:
        """True when rows broke it and were left out of the chunk."""
        return self.result == "quarantined"

    @property
    def result(self) -> str:
        """One word: passed, failed, warned, quarantined or skipped."""
        if self.skipped:
            return "skipped"
        return "passed" if self.ok else _RESULTS.get(self.on_fail, "failed")

    def __str__(self) -> str:
        return f"{self.check}: {self.detail}" if self.detail else self.check


_RESULTS = {FAIL: "failed", WARN: "warned", QUARANTINE: "quarantined"}


class Checked(NamedTuple):
    """The findings on one chunk, and what was seen of its rows on the way."""

    findings: tuple[Finding, ...] = ()
    rows: int | None = None
    schema: str | None = None  # JSON: column → type, in order


class ChecksFailed(Exception):
    """What a run wrote does not pass the checks of its dataset; the message names them. The data stays."""


def checks_of(definition: str | None) -> tuple[Check, ...]:
    """The checks in a dataset's definition, in their order."""
    if not definition or '"checks"' not in definition:
        return ()
    return tuple(
        Check(one["kind"], one.get("options") or {}, one.get("on_fail", FAIL))
        for one in json.loads(definition).get("checks") or ()
    )


def texts_of(declared: Iterable[Mapping[str, Any]] | None) -> list[str]:
    """Declared checks for people to read, in their order."""
    checks = [Check(one["kind"], one.get("options") or {}, one.get("on_fail", FAIL)) for one in declared or ()]
    return [f"{check}{' (only warns)' if check.on_fail == WARN else ''}" for check in checks]


def passed(findings: Iterable[Finding]) -> bool:
    """True when nothing failed that must not fail; warnings, rows left out and skipped checks do not count."""
    return not any(finding.failed for finding in findings)


def is_validated(findings: Iterable[Finding]) -> bool:
    """True when all passed and somebody really looked: what was only skipped proves nothing."""
    seen = tuple(findings)
    return passed(seen) and any(not finding.skipped for finding in seen)


def failures(findings: Iterable[Finding]) -> str:
    """The failed checks as one text."""
    return "; ".join(str(finding) for finding in findings if finding.failed)


def remarks(findings: Iterable[Finding]) -> list[str]:
    """What a person should see although nothing failed: warnings, rows left out, and checks that nobody did."""
    words = {"warned": "warning", "quarantined": "quarantined", "skipped": "not checked"}
    seen = tuple(findings)
    return [f"{word}: {one}" for result, word in words.items() for one in seen if one.result == result]


def printable(text: str) -> str:
    """The text as it can be shown and stored: a file's name may hold bytes that are no text."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


# The words for what is found, the same wherever it is found -----------------------------------------------------------
def new_finding(check: Check, problems: Sequence[str], *, on_fail: str | None = None) -> Finding:
    """The finding of a check that somebody did."""
    return Finding(str(check), not problems, False, "; ".join(problems), on_fail or check.on_fail)


def skipped(check: Check, why: str) -> Finding:
    return Finding(str(check), False, True, why, check.on_fail)


def what_breaks(check: Check, column: str, dataid: str, *, is_slot: bool = False) -> str:
    """What a row that breaks the check in this column is: `carrier is null`."""
    match check.kind:
        case "not_null":
            return f"{column} is null"
        case "values":
            allowed = [str(value) for value in check.options["columns"][column]]
            more = f", … {len(allowed) - SHOWN_VALUES} more" if len(allowed) > SHOWN_VALUES else ""
            return f"{column} is not one of {', '.join(allowed[:SHOWN_VALUES])}{more}"
        case "between":
            low, high = check.options["columns"][column]
            if low is None or high is None:
                return f"{column} is not at {f'most {high}' if low is None else f'least {low}'}"
            return f"{column} is not between {low} and {high}"
        case "pattern":
            return f"{column} does not match {brief(check.options['columns'][column])}"
        case "expression":
            return "it is not true"
    return f"{column} is not in {dataid}" if is_slot else f"{column} is not {dataid}"


def missing_column(column: str, names: Sequence[str], *, file: str = "") -> str:
    return f"{f'{file} has' if file else 'there is'} no column {column!r}; it has {', '.join(names[:20])}"


def unfit_bounds(column: str, type_: str, bounds: Sequence[Any]) -> str:
    """Why values of this type cannot lie between these bounds; empty when they can."""
    from opendataflow.domain.types.spark import family  # a script without checks does without the table

    given, kind = [bound for bound in bounds if bound is not None], family(type_)
    if kind in (DATE, TIMESTAMP):
        unfit = [bound for bound in given if not isinstance(bound, str) or moment(bound) is None]
        return f"{column} holds times, and {unfit[0]!r} is none" if unfit else ""
    if kind in (INTEGER, NUMERIC):
        unfit = [bound for bound in given if number(bound) is None]
        return f"{column} holds numbers, and {unfit[0]!r} is none" if unfit else ""
    return "" if kind == TEXT or type_ == VOID else f"{column} is {type_}, which has no order"


def without_text(column: str, type_: str) -> str:
    """Why values of this type match no pattern; empty when they can."""
    from opendataflow.domain.types.spark import family

    if family(type_) in HAVE_TEXT or type_ == VOID:
        return ""
    return f"{column} is {type_}; a pattern needs text, whole numbers, dates or true and false"


def count_finding(check: Check, rows: int, earlier_rows: Sequence[int]) -> Finding:
    """The finding of `rows`; `earlier_rows` are those of the chunks before, the nearest first."""
    options = check.options
    if "within" not in options:
        return Finding(str(check), is_within(rows, options), False, f"{rows} rows", check.on_fail)
    before = earlier_rows[: options["last"]]
    if not before:
        # Done, as far as it can be: if the first chunk were not valid, no other would ever have one before it.
        return Finding(str(check), True, False, f"{rows} rows, and no chunk before to compare with", check.on_fail)
    from statistics import median  # which is slow to import

    middle = median(before)
    low, high = (factor * middle for factor in options["within"])
    detail = f"{rows} rows; {low:g} to {high:g} were expected, by the median {middle:g} of {len(before)} before"
    return Finding(str(check), low <= rows <= high, False, detail, check.on_fail)


def age_finding(check: Check, age_seconds: float) -> Finding:
    """The finding of `freshness`."""
    limit = check.options["max_age"]
    ok = age_seconds <= limit
    return Finding(
        str(check), ok, False, f"{age_seconds:.0f} s old" + ("" if ok else f", more than {limit:g} s"), check.on_fail
    )


def is_within(size: int, options: dict[str, Any]) -> bool:
    low, high = options.get("min"), options.get("max")
    return (low is None or size >= low) and (high is None or size <= high)


def brief(text: str) -> str:
    """A value as a message shows it: short, and on one line."""
    text = repr(text)[1:-1]
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def _brief(kind: str, options: dict[str, Any]) -> str:
    match kind:
        case "rows" | "bytes":
            if within := options.get("within"):
                low, high = within
                return f"within {low:g}..{high:g} of the {options['of']} of the last {options['last']}"
            return ", ".join(f"{key} {options[key]}" for key in ("min", "max") if options.get(key) is not None)
        case "header" | "not_null" | "unique" | "values" | "between" | "pattern":
            return ", ".join(options["columns"])
        case "partition":
            return str(options["column"])
        case "checksum":
            return str(options["algorithm"])
        case "freshness":
            return f"at most {options['max_age']:g} s old"
        case "expression":
            return str(options["sql"])
    return ""
