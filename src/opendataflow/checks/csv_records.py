"""Records of a CSV as bytes, where its text is only carried on."""

from typing import Any


def skip_record(file: Any) -> None:
    """Past the header, which may hold newlines in quotes."""
    quotes = 0
    while line := file.readline():
        quotes += line.count(b'"')
        if quotes % 2 == 0:
            return
