"""Checks that a dataset declares, and what came of them. Nothing here looks at data; runner/checks.py does."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

FAIL, WARN = "fail", "warn"
ON_FILES = ("exists", "bytes", "checksum", "freshness")  # need no row
ON_SPARK = ("expression",)  # cannot be evaluated without Spark
READABLE = "readable"  # the finding when rows were to be read and could not


class Check(NamedTuple):
    """One declared check, as a dataset's definition keeps it."""

    kind: str
    options: dict[str, Any]
    on_fail: str = FAIL

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
        return not self.ok and not self.skipped and self.on_fail == FAIL

    @property
    def warned(self) -> bool:
        return not self.ok and not self.skipped and self.on_fail == WARN

    def __str__(self) -> str:
        return f"{self.check}: {self.detail}" if self.detail else self.check


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


def passed(findings: Iterable[Finding]) -> bool:
    """True when nothing failed that must not fail; warnings and skipped checks do not count."""
    return not any(finding.failed for finding in findings)


def is_validated(findings: Iterable[Finding]) -> bool:
    """True when all passed and somebody really looked: what was only skipped proves nothing."""
    seen = tuple(findings)
    return passed(seen) and any(not finding.skipped for finding in seen)


def failures(findings: Iterable[Finding]) -> str:
    """The failed checks as one text."""
    return "; ".join(str(finding) for finding in findings if finding.failed)


def remarks(findings: Iterable[Finding]) -> list[str]:
    """What a person should see although nothing failed: warnings, and checks that nobody did."""
    seen = tuple(findings)
    return [f"warning: {one}" for one in seen if one.warned] + [f"not checked: {one}" for one in seen if one.skipped]


def printable(text: str) -> str:
    """The text as it can be shown and stored: a file's name may hold bytes that are no text."""
    return text.encode("utf-8", "backslashreplace").decode()


def _brief(kind: str, options: dict[str, Any]) -> str:
    match kind:
        case "rows" | "bytes":
            if within := options.get("within"):
                low, high = within
                return f"within {low:g}..{high:g} of the {options['of']} of the last {options['last']}"
            return ", ".join(f"{key} {options[key]}" for key in ("min", "max") if options.get(key) is not None)
        case "header" | "not_null" | "unique":
            return ", ".join(options["columns"])
        case "values" | "between":
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
