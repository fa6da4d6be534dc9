"""The shape of `checks:` and `arrival:`, their canonical form, and what findings mean."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from opendataflow.domain.checks.check import (
    Check,
    Finding,
    checks_of,
    failures,
    is_validated,
    passed,
    printable,
    remarks,
)
from opendataflow.project.schema.checks import ArrivalEntry, CheckEntry, arrival_json, check_fit, checks_json

_CHECKS = TypeAdapter(list[CheckEntry])


def canonical(*written: Any) -> list[dict[str, Any]]:
    found = checks_json(_CHECKS.validate_python(list(written)))
    json.dumps(found, allow_nan=False)
    return found


# What can be written --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("written", "kind", "options", "on_fail"),
    [
        ("exists", "exists", {}, "fail"),
        ({"exists": None}, "exists", {}, "fail"),
        ({"exists": {"on_fail": "warn"}}, "exists", {}, "warn"),
        ("schema", "schema", {}, "fail"),
        ({"schema": True}, "schema", {}, "fail"),
        ({"bytes": {"min": 1, "max": 9}}, "bytes", {"min": 1, "max": 9}, "fail"),
        ({"rows": {"min": 1}}, "rows", {"min": 1}, "fail"),
        (
            {"rows": {"within": "0.5..2", "of": "median", "last": 3, "on_fail": "warn"}},
            "rows",
            {"within": [0.5, 2.0], "of": "median", "last": 3},
            "warn",
        ),
        ({"rows": {"within": "0..1.5"}}, "rows", {"within": [0.0, 1.5], "of": "median", "last": 7}, "fail"),
        ({"header": ["a", "b"]}, "header", {"columns": ["a", "b"]}, "fail"),
        ({"not_null": {"columns": ["a"], "on_fail": "warn"}}, "not_null", {"columns": ["a"]}, "warn"),
        ({"unique": "a"}, "unique", {"columns": ["a"]}, "fail"),
        (
            {"values": {"c": ["AA", "B6"], "on_fail": "warn"}},
            "values",
            {"columns": {"c": ["AA", "B6"]}},
            "warn",
        ),
        ({"values": {"on_fail": ["x"]}}, "values", {"columns": {"on_fail": ["x"]}}, "fail"),
        ({"values": {"columns": ["x"]}}, "values", {"columns": {"columns": ["x"]}}, "fail"),
        ({"values": {"columns": {"c": [1]}, "on_fail": "warn"}}, "values", {"columns": {"c": [1]}}, "warn"),
        ({"between": {"d": [-120, None]}}, "between", {"columns": {"d": [-120, None]}}, "fail"),
        (
            {"between": {"d": ["2025-01-01", "2025-12-31"]}},
            "between",
            {"columns": {"d": ["2025-01-01", "2025-12-31"]}},
            "fail",
        ),
        ({"checksum": None}, "checksum", {"file": "{path}.sha256", "algorithm": "sha256"}, "fail"),
        (
            {"checksum": {"file": "s/{dataid}", "algorithm": "md5"}},
            "checksum",
            {"file": "s/{dataid}", "algorithm": "md5"},
            "fail",
        ),
        ({"freshness": {"max_age": "2d"}}, "freshness", {"max_age": 172800.0}, "fail"),
        ({"partition": {"column": "t"}}, "partition", {"column": "t"}, "fail"),
        ({"pattern": {"c": "[A-Z]+"}}, "pattern", {"columns": {"c": "[A-Z]+"}}, "fail"),
        ({"pattern": {"c": "x", "on_fail": "quarantine"}}, "pattern", {"columns": {"c": "x"}}, "quarantine"),
        ({"pattern": {"columns": {"on_fail": "x"}}}, "pattern", {"columns": {"on_fail": "x"}}, "fail"),
        (
            {"not_null": {"columns": ["a"], "on_fail": "quarantine"}},
            "not_null",
            {"columns": ["a"]},
            "quarantine",
        ),
        (
            {"expression": {"sql": "a > 0", "at_least": 0.999}},
            "expression",
            {"sql": "a > 0", "at_least": 0.999},
            "fail",
        ),
    ],
)
def test_every_check_has_one_canonical_form(written: Any, kind: str, options: dict[str, Any], on_fail: str) -> None:
    assert canonical(written) == [{"kind": kind, "options": options, "on_fail": on_fail}]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("exist", "unknown key `exist`; did you mean `exists`?"),
        ({"rws": {"min": 1}}, "unknown key `rws`; did you mean `rows`?"),
        ({"rows": {"mni": 1}}, "unknown key `mni`; did you mean `min`?"),
        ({"rows": {"min": 1}, "unique": ["a"]}, "a check is one key with its options"),
        ({}, "a check is one key"),
        ({"rows": {}}, "give min, max or both"),
        ({"rows": {"min": 3, "max": 2}}, "min 3 is greater than max 2"),
        ({"rows": {"min": -1}}, "greater than or equal to 0"),
        ({"rows": {"min": 1, "within": "1..2"}}, "min and max are a check of their own"),
        ({"rows": {"min": 1, "last": 7}}, "go with `within`"),
        ({"rows": {"within": "2..0.5"}}, "'2..0.5' is not a range of factors like 0.5..2"),
        ({"rows": {"within": 2}}, "is not a range of factors"),
        ({"rows": {"within": "0.5..inf"}}, "is not a range of factors"),
        ({"rows": {"within": "0.5..2", "of": "mean"}}, "median"),
        ({"exists": False}, "leave the check out"),
        ({"not_null": []}, "at least 1 item"),
        ({"not_null": ["a", "a"]}, "'a' stands here twice"),
        ({"not_null": None}, "Field required"),
        ({"values": {"c": []}}, "c: the list of allowed values is empty"),
        ({"values": {"c": "AA"}}, "c: give a list"),
        ({"values": {"c": ["SE", False]}}, "quote it"),
        ({"values": {"c": [None]}}, "c: allowed values are texts, numbers or true and false"),
        ({"between": {"d": [1]}}, "d: give [lowest, highest]"),
        ({"between": {"d": [None, None]}}, "d: give [lowest, highest]"),
        ({"between": {"d": [1, "2"]}}, "both bounds are numbers, or both are texts"),
        ({"between": {"d": [2, 1]}}, "d: 2 is greater than 1"),
        ({"between": {"d": [0, float("inf")]}}, "leave an open end as null"),
        ({"between": {"d": [True, 2]}}, "both bounds are numbers"),
        ({"checksum": {"file": "../x"}}, "below the environment's root"),
        ({"checksum": {"algorithm": "crc32"}}, "sha256"),
        ({"freshness": {"max_age": "soon"}}, "is not a duration"),
        ({"freshness": {}}, "Field required"),
        ({"partition": "t"}, "valid dictionary"),
        ({"expression": {"sql": "a", "at_least": 2}}, "less than or equal to 1"),
        ({"rows": {"min": 1, "on_fail": "ignore"}}, "'fail', 'warn' or 'quarantine'"),
        ({"rows": {"min": 1, "on_fail": "quarantine"}}, "rows: on_fail: quarantine takes out rows"),
        ({"unique": {"columns": ["a"], "on_fail": "quarantine"}}, "this check does not say which"),
        ({"values": {"c": [float("nan")]}}, "nothing equals NaN"),
        ({"pattern": {"c": ""}}, "c: the pattern is empty"),
        ({"pattern": {"c": ["x"]}}, "valid string"),
        ({"pattern": {"c": "(?=x)y"}}, "looks ahead or behind"),
        ({"pattern": {"c": "[z-a]"}}, "invalid character class range"),
    ],
)
def test_what_cannot_be_meant_is_refused(written: Any, told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        canonical(written)
    assert told in str(refused.value)


def test_errors_name_the_place_in_the_list() -> None:
    with pytest.raises(ValidationError) as refused:
        canonical("exists", {"rows": {"min": "many"}})
    assert [error["loc"] for error in refused.value.errors()] == [(1, "rows", "min")]


def test_an_arrival_is_a_marker_or_a_time() -> None:
    assert arrival_json(ArrivalEntry.model_validate({"done": "f/{dataid}.done"})) == {"done": "f/{dataid}.done"}
    assert arrival_json(ArrivalEntry.model_validate({"stable": "1m"})) == {"stable": 60.0}
    assert arrival_json(None) is None
    for bad in (
        {},
        {"done": "x", "stable": "1s"},
        {"done": "/x"},
        {"done": "a/../b"},
        {"stable": "0s"},
        {"stabel": "1s"},
    ):
        with pytest.raises(ValidationError):
            ArrivalEntry.model_validate(bad)


def fit(*written: Any, arrival: dict[str, Any] | None = None, **dataset: Any) -> str:
    """The reason why the checks do not go with the dataset, or nothing."""
    given = {"path": "f/{dataid}.csv", "format_": None, "options": {}, "schema": None, **dataset}
    try:
        check_fit(
            _CHECKS.validate_python(list(written)),
            None if arrival is None else ArrivalEntry.model_validate(arrival),
            **given,
        )
    except ValueError as error:
        return str(error)
    return ""


def test_checks_must_go_with_the_rest_of_the_dataset() -> None:
    schema = {"carrier": "string", "t": "timestamp"}
    assert fit("schema", {"not_null": ["carrier"]}, {"partition": {"column": "t"}}, schema=schema) == ""
    assert fit({"unique": ["whatever"]}) == "", "without a schema any column may be there"
    told = fit("exists", {"not_null": ["carier"]}, schema=schema)
    assert told == "checks.1: not_null: column 'carier' is not in `schema:`; did you mean 'carrier'?"
    assert "column 'x' is not in" in fit({"values": {"x": [1]}}, schema=schema)
    assert "column 'x' is not in" in fit({"partition": {"column": "x"}}, schema=schema)
    assert "column 'x' is not in" in fit({"pattern": {"x": "y"}}, schema=schema)
    assert "column 't' is timestamp; a pattern needs text" in fit({"pattern": {"t": "y"}}, schema=schema)
    assert fit({"pattern": {"carrier": "y"}}, schema=schema) == ""
    assert "declares no `schema:`" in fit("schema")
    assert "only CSV files" in fit({"header": ["a"]}, format_="json")
    assert "only CSV files" in fit({"header": ["a"]}, options={"header": False})
    assert "has no path" in fit("checksum", path=None)
    assert "has no path" in fit(arrival={"stable": "1s"}, path=None)
    assert "one marker cannot stand for all" in fit(arrival={"done": "all.done"})
    assert fit(arrival={"done": "planes.done"}, path="planes.csv") == ""


# What findings mean ---------------------------------------------------------------------------------------------------
GOOD = Finding("rows min 1", True, False, "5 rows")
BAD = Finding("rows min 9", False, False, "5 rows")
WARNED = BAD._replace(on_fail="warn")
TAKEN_OUT = Finding("not_null a", False, False, "a is null in 1 of 5 rows", "quarantine")
SKIPPED = Finding("expression a > 0", False, True, "not checked here, needs Spark")


@pytest.mark.parametrize(
    ("findings", "is_passed", "is_valid"),
    [
        ((), True, False), ((GOOD,), True, True), ((BAD, GOOD), False, False), ((WARNED,), True, True),
        ((TAKEN_OUT,), True, True), ((TAKEN_OUT, BAD), False, False),
        ((SKIPPED,), True, False), ((SKIPPED, GOOD), True, True), ((SKIPPED, BAD), False, False),
    ],
)  # fmt: skip
def test_passing_and_being_valid_are_not_the_same(
    findings: tuple[Finding, ...], is_passed: bool, is_valid: bool
) -> None:
    assert passed(findings) is is_passed
    assert is_validated(findings) is is_valid


def test_findings_as_people_read_them() -> None:
    assert failures((GOOD, BAD, WARNED, SKIPPED)) == "rows min 9: 5 rows"
    assert remarks((GOOD, BAD, WARNED, SKIPPED, TAKEN_OUT)) == [
        "warning: rows min 9: 5 rows",
        "quarantined: not_null a: a is null in 1 of 5 rows",
        "not checked: expression a > 0: not checked here, needs Spark",
    ]


def test_every_finding_has_one_word_for_its_result() -> None:
    findings = (GOOD, BAD, WARNED, TAKEN_OUT, SKIPPED, SKIPPED._replace(on_fail="quarantine"))
    assert [one.result for one in findings] == ["passed", "failed", "warned", "quarantined", "skipped", "skipped"]
    assert [one.quarantined for one in findings] == [False, False, False, True, False, False]
    assert BAD._replace(on_fail="of a newer version").failed, "what is not known is not let through"


def test_a_definition_gives_its_checks_back_with_a_short_text_each() -> None:
    written = canonical(
        "exists", {"bytes": {"min": 1}}, {"rows": {"min": 1, "max": 5}}, {"rows": {"within": "0.5..2"}},
        {"header": ["a", "b"]}, "schema", "checksum", {"freshness": {"max_age": 60}}, {"unique": ["a", "b"]},
        {"values": {"a": [1], "b": [2]}}, {"partition": {"column": "t"}}, {"expression": {"sql": "a > 0"}},
        {"pattern": {"c": "x", "d": "y"}},
    )  # fmt: skip
    found = checks_of(json.dumps({"checks": written, "schema": {}}))
    assert [str(check) for check in found] == [
        "exists", "bytes min 1", "rows min 1, max 5", "rows within 0.5..2 of the median of the last 7", "header a, b",
        "schema", "checksum sha256", "freshness at most 60 s old", "unique a, b", "values a, b", "partition t",
        "expression a > 0", "pattern c, d",
    ]  # fmt: skip
    assert checks_of(None) == checks_of("{}") == checks_of('{"checks": null}') == ()
    assert checks_of('{"checks": [{"kind": "exists"}]}') == (Check("exists", {}, "fail"),)


def test_names_that_are_no_text_can_still_be_shown() -> None:
    assert printable("a\udcff.csv") == "a\\udcff.csv"
    assert printable("Zoë") == "Zoë"
