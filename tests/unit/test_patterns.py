"""Patterns that mean the same to Java and to RE2."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.domain.checks.patterns import re2_pattern, why_refused
from opendataflow.domain.types.spark import family
from opendataflow.domain.types.values import moment, number
from support.patterns import SHARED


@pytest.mark.parametrize("pattern", SHARED)
def test_what_both_share_is_taken_and_compiles(pattern: str) -> None:
    assert why_refused(pattern) == ""
    pc.match_substring_regex(pa.array(["x"]), re2_pattern(pattern))


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("(?=a)", "looks ahead or behind"),
        ("(?!a)", "looks ahead or behind"),
        ("(?<=a)b", "looks ahead or behind"),
        ("(?<!a)b", "looks ahead or behind"),
        (r"(a)\1", r"\1 refers back to a group"),
        ("(?<name>a)", "is a group, which Spark and Arrow do not share"),
        ("(?P<name>a)", "is a group"),
        ("(?>a)", "is a group"),
        ("(?x) a", "is a group"),
        ("a++", "+ at 3 has nothing before it"),
        ("a**", "* at 3 has nothing before it"),
        ("*a", "* at 1 has nothing before it"),
        ("(*a)", "has nothing before it"),
        ("a{,3}", "is no count"),
        ("a{3,2}", "is no count up to 1000"),
        ("a{1001}", "is no count up to 1000"),
        ("{", "is no count"),
        ("a}", "closes nothing"),
        ("]", "closes nothing"),
        ("a)", "closes nothing"),
        ("(a", "never closed"),
        ("[a", "never closed"),
        ("[a&&b]", "inside [ ]"),
        ("[a[b]]", "inside [ ]"),
        ("[[:alpha:]]", "inside [ ]"),
        ("[]a]", "inside [ ]"),
        (r"\bword", r"\b does not mean the same"),
        (r"\u0041", r"\u does not mean the same"),
        (r"\h", "does not mean the same"),
        (r"\p{IsGreek}", "does not mean the same"),
        ("a\\", "does not mean the same"),
    ],
)
def test_what_they_do_not_share_is_refused_with_the_place(pattern: str, told: str) -> None:
    assert told in why_refused(pattern)


@given(st.text(alphabet="ab1(){}[]*+?|^$.\\,:!=<", min_size=1, max_size=12))
def test_whatever_is_taken_is_a_pattern_to_re2(pattern: str) -> None:
    if why_refused(pattern) == "":
        pc.match_substring_regex(pa.array(["x"]), re2_pattern(pattern))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2013-01-01", "2013-01-01T00:00:00"),
        ("2013-01-01 05:30", "2013-01-01T05:30:00"),
        ("2013-01-01T05:30:10.5", "2013-01-01T05:30:10.500000"),
        ("2013-01-01T05:30:10.123456789Z", "2013-01-01T05:30:10.123456"),
        ("2013-01-01T05:30:00+02:00", "2013-01-01T03:30:00"),
        ("2013-02-30", None),
        ("20130101", None),
        ("2013-01-01T25:00", None),
        ("5", None),
    ],
)
def test_a_moment_is_written_in_one_way(text: str, found: str | None) -> None:
    read = moment(text)
    assert (read and read.isoformat()) == found


@pytest.mark.parametrize(
    ("value", "found"),
    [(1, 1.0), ("1e3", 1000.0), ("+.5", 0.5), (True, None), ("nan", None), (" 1", None), ("1d", None), (None, None)],
)
def test_a_number_is_written_in_one_way(value: object, found: float | None) -> None:
    assert number(value) == found


def test_types_are_compared_by_family() -> None:
    names = ("INTEGER", "decimal(5, 2)", "varchar(3)", "timestamp_ntz", "date", "boolean", "array<int>", "binary")
    assert [family(name) for name in names] == [
        "integer", "number", "text", "timestamp", "date", "boolean", "other", "other",
    ]  # fmt: skip
