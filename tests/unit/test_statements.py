"""Named statements, times as text, and the error tree."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow import errors
from opendataflow.store.rows import utc_text
from opendataflow.store.sqlite import split_script
from opendataflow.store.statements import statements


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
@pytest.mark.parametrize("file", ["claims", "registry"])
def test_every_named_statement_is_one_statement(dialect: str, file: str) -> None:
    found = statements(dialect, file)
    assert len(found) > 10
    for name, sql in found.items():
        assert re.fullmatch(r"[a-z_]+", name)
        assert re.match(r"(SELECT|INSERT|UPDATE|DELETE|CREATE|LOCK|WITH)\b", sql), name
        assert ";" not in sql
        assert not sql.startswith("--")
    assert statements(dialect, file) is found


def test_each_dialect_has_its_own_parameters() -> None:
    assert ":project" in statements("sqlite", "claims")["renew"]
    assert "%(project)s" in statements("postgres", "claims")["renew"]


def test_an_unknown_file_of_statements_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        statements("sqlite", "nothing")


def test_a_script_is_split_into_statements_with_triggers_whole() -> None:
    parts = split_script(
        "CREATE TABLE a (x);\n-- why; because\nCREATE TRIGGER t AFTER INSERT ON a\nBEGIN\n"
        "    DELETE FROM a;\n    SELECT 1;\nEND;\nINSERT INTO a VALUES (';');\n"
    )
    assert [part.split("\n")[-2] for part in parts] == ["CREATE TABLE a (x);", "END;", "INSERT INTO a VALUES (';');"]


def test_a_moment_is_text_that_sorts_as_time() -> None:
    assert utc_text(0) == "1970-01-01T00:00:00.000Z"
    assert utc_text(1762913400.1239) == "2025-11-12T02:10:00.123Z"


@given(st.floats(0, 4e9), st.floats(0, 4e9))
def test_earlier_moments_are_smaller_texts(one: float, other: float) -> None:
    if one <= other:
        assert utc_text(one) <= utc_text(other)
    else:
        assert utc_text(one) >= utc_text(other)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("x"), 2),
        (errors.ConfigurationError("x"), 2),
        (errors.SecretError("x"), 2),
        (errors.LeaseLost("x"), 5),
        (errors.StoreUnavailable("x"), 75),
        (errors.JobFailed("x"), 1),
        (errors.Refused("x", exit_code=14), 14),
        (errors.DataflowError("x"), 70),
    ],
)
def test_every_error_has_the_exit_code_of_the_design(error: errors.DataflowError, code: int) -> None:
    assert error.exit_code == code
    assert isinstance(error, errors.DataflowError)
