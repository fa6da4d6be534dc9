"""Maps: which dataids of an input a job reads for its own dataid."""

import datetime
import re
from collections.abc import Sequence

from opendataflow.domain.partitions.scheme import (
    FULL,
    TIME_KINDS,
    dataids_within,
    expected_dataids,
    find_kind,
    is_dataid,
    is_open_sequence,
    kind,
    natural_key,
    shift,
    slot_of,
    window,
)
from opendataflow.errors import UsageError

PLAIN = ("same", "full", "rollup", "all")
NESTED = {"daily": ("hourly",), "monthly": ("daily", "hourly")}  # what a rollup collects
MOST = 999_999_999
_NUMBERED = re.compile(r"(offset|window):\s*([+-]?[0-9]{1,9})")


def canonical_map(value: object) -> str:
    """The map as the store keeps it: same, full, rollup, all, offset:-1 or window:7."""
    match value:
        case str(text) if text.strip() in PLAIN:
            return text.strip()
        case str(text) if found := _NUMBERED.fullmatch(text.strip()):
            name, number = found[1], int(found[2])
        case {"offset": int(number), **other} if not other and not isinstance(number, bool):
            name = "offset"
        case {"window": int(number), **other} if not other and not isinstance(number, bool):
            name = "window"
        case _:
            raise _not_a_map(value)
    if number == 0 or abs(number) > MOST or (name == "window" and number < 1):
        raise _not_a_map(value)
    return f"{name}:{number}"


def _not_a_map(value: object) -> UsageError:
    return UsageError(
        f"map: {value!r} is not same, full, rollup, all, {{offset: N}} with a whole number other than 0, "
        "or {window: N} with a whole number of 1 or more"
    )


def _parts(map_: str) -> tuple[str, int]:
    name, _, number = canonical_map(map_).partition(":")
    return name, int(number or 0)


def check_map(map_: str, *, scheme: object | None, input_scheme: object | None) -> None:
    """Raise UsageError when the map can never work between these schemes; None is a scheme that is not known."""
    name, _ = _parts(map_)
    mine = None if scheme is None else kind(scheme)
    theirs = None if input_scheme is None else kind(input_scheme)
    match name:
        case "same":
            if mine in TIME_KINDS and theirs in TIME_KINDS and mine != theirs:
                raise UsageError(
                    f"map: same does not fit: the job is {mine}, the input {theirs}; {_advice(mine, theirs)}"
                )
        case "full":
            if input_scheme is not None and not is_dataid(input_scheme, FULL):
                raise UsageError(f"map: full needs an input with partitions: none; this one is {theirs}")
        case "offset" | "window":
            if "none" in (mine, theirs):
                raise UsageError(f"map: {map_} does not fit: `none` has one chunk, with nothing before or after it")
            if mine is not None and theirs is not None and mine != theirs:
                raise UsageError(
                    f"map: {map_} needs the same kind of partitions; the job is {mine}, the input {theirs}"
                )
        case "rollup":
            if not _nest(mine, theirs):
                raise _no_rollup(mine, theirs)


def _nest(mine: str | None, theirs: str | None) -> bool:
    """True when the input's slots lie inside the job's, or may do so for all that is known."""
    return any(mine in (None, outer) and theirs in (None, *inner) for outer, inner in NESTED.items())


def _advice(mine: str, theirs: str) -> str:
    return "use rollup" if theirs in NESTED.get(mine, ()) else "give both the same partitions"


def _no_rollup(mine: str | None, theirs: str | None) -> UsageError:
    return UsageError(
        "map: rollup collects hours into days or months, or days into months; "
        f"the job is {mine or 'not known'}, the input {theirs or 'not known'}"
    )


def mapped_dataids(
    map_: str,
    dataid: str,
    *,
    scheme: object | None,
    input_scheme: object | None,
    now: datetime.datetime,
    known: Sequence[str] = (),
) -> tuple[str, ...]:
    """The dataids of the input that the job reads for its dataid, in order.

    `known` are the input's dataids seen so far; they count where no scheme says which ones there are.
    """
    name, number = _parts(map_)
    match name:
        case "same":
            return (dataid,)
        case "full":
            return (FULL,)
        case "offset":
            # The input's order counts first: it may begin earlier than the job.
            for order in _orders(scheme, input_scheme):
                shifted = shift(dataid, number, order)
                if shifted is not None:
                    return (shifted,)
            return ()
        case "window":
            for order in _orders(scheme, input_scheme):
                found = window(dataid, number, order)
                if found:
                    return tuple(one for one in found if input_scheme is None or is_dataid(input_scheme, one))
            return ()
        case "rollup":
            return _inside(dataid, scheme, input_scheme, known)
    if input_scheme is None:
        return tuple(sorted(known, key=natural_key))
    if is_open_sequence(input_scheme):
        return tuple(sorted((one for one in known if is_dataid(input_scheme, one)), key=natural_key))
    return tuple(expected_dataids(input_scheme, now=now))


def _orders(scheme: object | None, input_scheme: object | None) -> tuple[object | None, ...]:
    return tuple(one for one in (input_scheme, scheme) if one is not None) or (None,)


def _inside(dataid: str, scheme: object | None, input_scheme: object | None, known: Sequence[str]) -> tuple[str, ...]:
    mine = find_kind(dataid) if scheme is None else kind(scheme)
    theirs = None if input_scheme is None else kind(input_scheme)
    slot = slot_of(dataid, scheme)
    if slot is None or not _nest(mine, theirs):
        raise _no_rollup(mine, theirs)
    start, end = slot
    if input_scheme is not None:
        return dataids_within(input_scheme, start, end)
    slots = {one: slot_of(one, None) for one in known if find_kind(one) != mine}
    inside = [one for one, its in slots.items() if its is not None and start <= its[0] and its[1] <= end]
    return tuple(sorted(inside, key=natural_key))
