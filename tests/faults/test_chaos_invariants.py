"""The judges of a storm see what they are there to see: each of them fails on a history that breaks its rule."""

from types import SimpleNamespace
from typing import Any

import pytest

from support.chaos import invariants
from support.chaos.fleet import Hit
from support.chaos.invariants import Change, Facts, Invariant, Run
from support.chaos.plan import SMALL, TREE, WORKER
from support.chaos.work import Note


def facts(**given: Any) -> Facts:
    """Nothing but what is given was written down."""
    found = Facts.__new__(Facts)
    found.__dict__.update({"runs": [], "changes": [], "notes": [], "hits": [], "size": SMALL, "seed": 1}, **given)
    return found


def claim(id_: int, runid: int, *, at: float, dataid: str = "1") -> Change:
    return Change(id_, at, "extract", dataid, "PENDING", "RUNNING", runid)


def end(id_: int, runid: int, *, at: float, dataid: str = "1") -> Change:
    return Change(id_, at, "extract", dataid, "RUNNING", "RESUBMIT", runid)


def run(runid: int, *, status: str = "LOST", code: int | None = None) -> Run:
    return Run(runid, "extract", "1", status, "me@here:7", 7, 70 + runid, 10.0, 20.0, code)


def note(what: str, runid: int, *more: str) -> Note:
    return Note(what, "extract", "1", runid, 100 + runid, 15.0, more)


def test_a_second_claim_before_the_first_has_ended_is_seen() -> None:
    good = [claim(1, 1, at=1.0), end(2, 1, at=2.0), claim(3, 2, at=3.0), end(4, 2, at=4.0)]
    assert invariants.one_live_owner(facts(changes=good)).wrong == ()
    overlapping = [good[0], good[2], good[1], good[3]]
    assert "while run 1 held it" in invariants.one_live_owner(facts(changes=overlapping)).wrong[0]
    again = [claim(1, 5, at=1.0), end(2, 5, at=2.0), claim(3, 5, at=3.0), end(4, 5, at=4.0)]
    assert "token 5 after 5" in invariants.one_live_owner(facts(changes=again)).wrong[0]
    assert invariants.one_live_owner(facts(changes=good[:3])).wrong == ("extract/1 is still held",)


ALIVE = ("1", "101", "S", "4194304", "0")  # run, pid, state, flags, pending signals


@pytest.mark.parametrize(
    ("notes", "is_seen"),
    [
        ([note("start", 1), note("start", 2), note("end", 2)], False),
        ([note("start", 1), note("alive", 2, *ALIVE), note("start", 2)], True),
        ([note("start", 1), note("alive", 2, *ALIVE[:3], "4194308", "0"), note("start", 2)], False),  # it is exiting
        ([note("start", 1), note("alive", 2, *ALIVE[:4], "256"), note("start", 2)], False),  # SIGKILL is on its way
        ([note("start", 1), note("start", 2), note("end", 1)], True),
        ([note("start", 1), note("start", 2), note("fail", 1)], True),
    ],
)
def test_a_script_beside_a_later_one_is_seen_unless_it_is_dying(notes: list[Note], *, is_seen: bool) -> None:
    runs = [run(1), run(2)]
    assert bool(invariants.one_live_script(facts(notes=notes, runs=runs)).wrong) is is_seen


def test_only_a_run_whose_worker_and_guard_were_both_hit_is_excused() -> None:
    notes = [note("start", 1), note("alive", 2, *ALIVE), note("start", 2)]
    whole = Hit("kill", TREE, 7, (7, 71), (71,), 12.0)
    assert invariants.one_live_script(facts(notes=notes, runs=[run(1)], hits=[whole])).wrong == ()
    only_worker = Hit("kill", WORKER, 7, (7,), (71,), 12.0)
    assert invariants.one_live_script(facts(notes=notes, runs=[run(1)], hits=[only_worker])).wrong
    too_late = whole._replace(at=30.0)
    assert invariants.one_live_script(facts(notes=notes, runs=[run(1)], hits=[too_late])).wrong


def limits_of(changes: list[Change], steps: list[tuple[str, str | None]], *, now: int) -> Invariant:
    """With a limit of 2 as it is declared, and these changes of it."""

    def sql(statement: str) -> list[tuple[Any, ...]]:
        if "FROM job" in statement:
            return [("extract", 2, now), ("load", 2, 2)]
        return [(at, "extract", becomes) for at, becomes in steps]

    return invariants.within_limits(facts(changes=changes, project=SimpleNamespace(sql=sql)))


def test_one_run_too_many_is_seen_and_what_ran_before_a_limit_fell_is_not() -> None:
    second = 1_700_000_000.0
    three = [claim(n, n, at=second + n, dataid=str(n)) for n in (1, 2, 3)]
    assert limits_of(three[:2], [], now=2).wrong == ()
    assert "3 runs of extract" in limits_of(three, [], now=2).wrong[0]
    raised = [("2023-11-14T22:13:22.500Z", "3")]  # second + 2.5
    assert limits_of(three, raised, now=3).wrong == ()
    lowered = [("2023-11-14T22:13:22.500Z", "1")]
    assert limits_of(three[:2], lowered, now=1).wrong == (), "scaling down lets what runs finish"
    ended = [*three[:2], end(3, 1, at=second + 2.6, dataid="1"), claim(4, 4, at=second + 2.7, dataid="4")]
    assert "with a limit of 1" in limits_of(ended, lowered, now=1).wrong[0]


def test_failures_that_the_seed_does_not_know_and_deaths_that_nobody_dealt_are_seen() -> None:
    expected = invariants.failures_expected(SMALL, 1)
    failed = [run(n, status="FAILED", code=3) for n in range(expected)]
    assert invariants.failures_as_drawn(facts(runs=failed)).wrong == ()
    assert invariants.failures_as_drawn(facts(runs=failed[1:])).wrong
    other = [*failed[1:], run(99, status="FAILED", code=1)]
    assert "FAILED with 1" in invariants.failures_as_drawn(facts(runs=other)).wrong[0]
    died = [*failed, run(99, status="RESUBMIT", code=137)]
    assert "0 were killed" in invariants.failures_as_drawn(facts(runs=died)).wrong[0]


def test_the_time_to_the_next_claim_is_that_of_the_chunk_that_was_lost() -> None:
    lost, taken = run(1), run(2)._replace(claimed_at=13.5, pid=8, status="COMPLETE")
    hit = Hit("kill", WORKER, 7, (7,), (71,), 12.0)
    assert invariants.recovery(facts(runs=[lost, taken], hits=[hit])) == {"kill of a worker": [1.5]}
