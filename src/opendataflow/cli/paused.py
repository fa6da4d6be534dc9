"""A pause of everything, in the words that all commands use."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opendataflow.store.claims import LoopStore


def pause_of_all(store: "LoopStore") -> str:
    """That nothing starts, by whom and until when, and how to end it; empty when nobody has paused everything."""
    from opendataflow.store.records.workers import find_pause_of_all

    by, until = find_pause_of_all(store)
    if by is None:
        return ""
    return f"everything is paused by {by}{until_text(until)}; `dataflow resume all` ends it"


def until_text(until: str | None) -> str:
    return f" until {until}" if until else ""
