"""Which tests run over which kind of store: each over both, or the tests of a story by turns."""

import os
from collections.abc import Iterable
from typing import Any

KINDS = ("sqlite", "postgres")
EVERY_FAULT = "DATAFLOW_EVERY_FAULT" in os.environ  # `make faults`


def by_turns(values: Iterable[Any], *, first: int = 0) -> list[tuple[Any, str]]:
    """Each value with one kind of store, PostgreSQL `first` or not (1); in `make faults` each with both."""
    if EVERY_FAULT:
        return [(value, kind) for value in values for kind in KINDS]
    return [(value, KINDS[(number + first + 1) % 2]) for number, value in enumerate(values)]
