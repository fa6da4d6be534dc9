"""What a child says may hold any character: it is read as text that every database and terminal takes."""

import json
from typing import Any

import pytest

from opendataflow.domain.runs.child_json import read_json

REPLACED = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("caf\udce9", "caf\\xe9"),
        ("\ud800 alone", "\\ud800 alone"),
        ("a\0b", f"a{REPLACED}b"),
        ({"caf\udce9": [{"deep": ["\udcff", 1, None, True]}]}, {"caf\\xe9": [{"deep": ["\\xff", 1, None, True]}]}),
        ("🦆 and é", "🦆 and é"),  # json.dumps writes the first as two halves
        ("a text that says \\udce9 and \\u0000", "a text that says \\udce9 and \\u0000"),
        ({"rows": 3, "schema": None}, {"rows": 3, "schema": None}),
    ],
)
def test_what_no_database_takes_is_replaced_and_all_else_stays(said: Any, read: Any) -> None:
    assert read_json(json.dumps(said).encode()) == read
    json.dumps(read, ensure_ascii=False).encode()
