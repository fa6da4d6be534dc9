"""The words of a simple pattern are exactly those that it matches."""

import itertools
import re

import pytest

from opendataflow.domain.checks.pattern_words import matching_words


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("AA", ["AA"]),
        ("(EUR|USD|GBP)", ["EUR", "GBP", "USD"]),
        ("Q[1-4]", ["Q1", "Q2", "Q3", "Q4"]),
        ("yes|no", ["no", "yes"]),
        ("a(?:b|c)?d", ["abd", "acd", "ad"]),
        (r"\d", list("0123456789")),
        ("x{2,3}", ["xx", "xxx"]),
        (r"a\.b", ["a.b"]),
        ("it's", ["it's"]),
        ("[a-]", ["-", "a"]),
        ("(a|b){2}", ["aa", "ab", "ba", "bb"]),
        ("", [""]),
    ],
)
def test_all_words_of_a_simple_pattern_are_told(pattern: str, words: list[str]) -> None:
    assert matching_words(pattern, 100) == tuple(words)


@pytest.mark.parametrize(
    "pattern",
    [
        "a*", "a+", ".", "[^a]", r"\w", "(?i)ab", "[A-Z]{3}", "é", "[é]", "a??", "^a", "a$", "(a", r"[\d]", "a{101}",
        "a)",         "[A-Z]{1000}", r"\p{L}", "[[:alpha:]]", "a{2}{3}", "(a|b){40}", "[a&&b]", "x{1000}{1000}",
    ],
)  # fmt: skip
def test_of_other_patterns_none_are_told(pattern: str) -> None:
    assert matching_words(pattern, 100) is None


@pytest.mark.parametrize("pattern", ["[0-9A-Z]{2}", "[ab]{0,3}", "(a|b|ab){1}", r"[1-3]\d?", "a?b?c?", "a|"])
def test_the_words_are_those_that_match_and_no_others(pattern: str) -> None:
    words = matching_words(pattern, 2000)
    assert words is not None
    alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ" if "A-Z" in pattern else "abc0123456789"
    longest = 2 if "A-Z" in pattern else 3
    texts = ("".join(one) for size in range(longest + 1) for one in itertools.product(alphabet, repeat=size))
    assert set(words) == {text for text in texts if re.fullmatch(pattern, text)}
