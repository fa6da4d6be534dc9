"""Who the next child is for, and how each run of it ends."""

from typing import Any

import pytest

from opendataflow.domain.runs.run import Claim
from opendataflow.execution.log import RunLog, Shown
from opendataflow.execution.shared_runs import OF_ANOTHER, SharedRuns, Turn
from opendataflow.execution.supervise import Aborted, Exited, GivenBack, Killed, Lost, NotRun, Stopped, TimedOut
from opendataflow.execution.work import Flight, Forked, Sharing, Taken

WRITTEN = {"compare": True, "error": None}
ALONE = {"alone": "it is an aggregate", "in_vain": True}


class Three:
    """Three runs, and what their children are said to have written."""

    def __init__(self, *results: dict[str, Any]) -> None:
        self.results = dict(enumerate(results, 1))
        self.said: list[str] = []
        self.refused: list[tuple[int, str]] = []
        self.in_vain = 0
        sharing = Sharing(
            lambda: 3, lambda claim: self.results.get(claim.runid, {}), lambda *_: [],
            lambda claim, why: self.refused.append((claim.runid, why)), self._in_vain,
        )  # fmt: skip
        forked = Forked(
            "", {}, lambda _: [], lambda _: None, lambda *_: None, lambda *_: None,
            lambda claim: self.results.get(claim.runid, {}).get("given_back"), lambda _: 0, sharing,
        )  # fmt: skip
        self.flights = [flight(number) for number in (1, 2, 3)]
        self.runs = SharedRuns(forked, self.flights, say=self.said.append)

    def _in_vain(self) -> None:
        self.in_vain += 1

    def begin(self) -> list[int]:
        return [one.claim.runid for one in self.runs.begin()]

    def end(self, end: Any, **more: Any) -> dict[int, Any]:
        return {one.claim.runid: how for one, how in self.runs.ended(end, **more)}


def flight(number: int) -> Flight:
    claim = Claim("p", "job", f"d{number}", number, 1, 0, 60.0, 0, 0.0, ())
    return Flight(Taken(None, claim, 0.0), RunLog("/dev/null", Shown(out_fd=-1, err_fd=-1)))  # type: ignore[arg-type]


def test_what_was_written_together_ends_when_one_of_it_is_the_same_alone() -> None:
    three = Three(WRITTEN, WRITTEN, WRITTEN)
    assert three.begin() == [1, 2, 3]
    assert three.end(Exited(0)) == {}
    assert three.runs.turn is Turn.COMPARED
    (drawn,) = three.begin()
    assert drawn in {1, 2, 3}
    assert three.end(Exited(0)) == dict.fromkeys((1, 2, 3), Exited(0))
    assert three.begin() == []


def test_each_of_them_is_drawn_now_and_then() -> None:
    drawn = set()
    for _ in range(200):
        three = Three(WRITTEN, WRITTEN, WRITTEN)
        three.begin()
        three.end(Exited(0))
        drawn.update(three.begin())
    assert drawn == {1, 2, 3}


def test_when_it_differs_alone_nothing_of_the_job_ends_and_each_has_a_child_of_its_own() -> None:
    three = Three(WRITTEN, WRITTEN, WRITTEN)
    three.begin()
    three.end(Exited(0))
    (drawn,) = three.begin()
    three.results[drawn] = {**WRITTEN, "differs": "row 1 is 2, not 1"}
    assert three.end(Exited(0)) == {}
    assert [(runid, "row 1 is 2, not 1" in why) for runid, why in three.refused] == [(drawn, True)]
    for number in (1, 2, 3):
        assert three.begin() == [number]
        assert three.end(Exited(0)) == {number: Exited(0)}
    assert three.begin() == []


@pytest.mark.parametrize("end", [Exited(1), Killed(9), TimedOut(5.0)])
def test_one_that_fails_alone_ends_so_and_the_others_are_produced_alone(end: Any) -> None:
    three = Three(WRITTEN, WRITTEN, WRITTEN)
    three.begin()
    three.end(Exited(0))
    (drawn,) = three.begin()
    assert three.end(end) == {drawn: end}
    assert three.refused == []
    left = [number for number in (1, 2, 3) if number != drawn]
    assert three.begin() == left[:1]
    assert three.end(Exited(0)) == {left[0]: Exited(0)}


def test_what_could_not_be_written_together_is_produced_alone_after_the_others() -> None:
    three = Three(WRITTEN, {"alone": "it has no rows"}, WRITTEN)
    three.begin()
    three.end(Exited(0))
    assert three.said == ["job: 1 of 3 chunks are produced one by one: it has no rows"]
    assert three.begin() in ([1], [3])
    assert three.end(Exited(0)) == {1: Exited(0), 3: Exited(0)}
    assert three.begin() == [2]
    assert three.in_vain == 0


def test_code_that_cannot_share_is_noted_once() -> None:
    three = Three(ALONE, ALONE, ALONE)
    three.begin()
    assert three.end(Exited(0)) == {}
    assert three.in_vain == 1
    assert three.begin() == [1]


def test_results_of_tasks_that_need_no_comparison_are_final() -> None:
    three = Three({"error": None}, {"error": "it failed"}, {"error": None})
    three.begin()
    assert three.end(Exited(0)) == {1: Exited(0), 2: Exited(1), 3: Exited(0)}


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (Exited(3), "exited with status 3"),
        (Killed(9), "was killed by signal 9"),
        (TimedOut(5.0), "took longer than 5 s"),
    ],
)
def test_nobody_is_blamed_for_the_death_of_a_shared_child(end: Any, how: str) -> None:
    three = Three()
    three.begin()
    why = GivenBack(f"the process of 3 chunks {how}; each is tried again alone")
    assert three.end(end) == dict.fromkeys((1, 2, 3), why)
    assert three.runs.suspects == {"d1", "d2", "d3"}


def test_a_child_that_says_why_it_gives_its_runs_back_is_heard() -> None:
    gone = {"given_back": "Spark ended", "error": "Spark ended"}
    three = Three(gone, gone, gone)
    three.begin()
    assert three.end(Exited(1)) == dict.fromkeys((1, 2, 3), Exited(1))
    assert three.runs.suspects == {"d1", "d2", "d3"}


def test_an_abort_or_a_lost_lease_ends_one_and_hands_the_others_back() -> None:
    for reason in (Aborted("anna"), Lost("another has it")):
        three = Three()
        three.begin()
        assert three.runs.blame(three.flights[1], reason)
        assert three.end(reason) == {1: OF_ANOTHER, 2: reason, 3: OF_ANOTHER}
        assert three.runs.suspects == set()


def test_a_run_that_is_aborted_while_it_waits_ends_at_its_turn() -> None:
    three = Three(ALONE, ALONE, ALONE)
    three.begin()
    three.end(Exited(0))
    assert three.begin() == [1]
    assert not three.runs.blame(three.flights[2], Aborted("anna")), "the child of another goes on"
    assert three.end(Exited(0)) == {1: Exited(0)}
    three.begin()
    three.end(Exited(0))
    (waits,) = three.runs.begin()
    assert three.runs.why(waits) == Aborted("anna")


def test_a_signal_ends_those_that_wait_as_well() -> None:
    three = Three(ALONE, ALONE, ALONE)
    three.begin()
    three.end(Exited(0))
    three.begin()
    waits = Stopped(15, had_started=False)
    assert three.end(Stopped(15)) == {1: Stopped(15), 2: waits, 3: waits}


def test_leases_that_are_over_are_over_for_all() -> None:
    three = Three(ALONE, ALONE, ALONE)
    three.begin()
    three.end(Exited(0))
    three.begin()
    assert three.end(Lost("not renewed in time")) == dict.fromkeys((1, 2, 3), Lost("not renewed in time"))


def test_a_guard_that_is_killed_takes_the_claims_of_all_with_it() -> None:
    three = Three(ALONE, ALONE, ALONE)
    three.begin()
    three.end(Exited(0))
    three.begin()
    gone = GivenBack("its guard was killed")
    assert three.end(Killed(9), is_guard_gone=True) == {1: Killed(9), 2: gone, 3: gone}


def test_a_child_that_cannot_be_started_for_several_is_tried_for_each() -> None:
    three = Three()
    three.begin()
    assert three.end(NotRun("no space left on device")) == {}
    assert three.begin() == [1]
    assert three.end(NotRun("no space left on device")) == {1: NotRun("no space left on device")}


def test_a_run_alone_ends_as_its_child_does() -> None:
    runs = SharedRuns(None, [flight(1)], say=print)
    (one,) = runs.begin()
    assert runs.ended(Killed(11)) == [(one, Killed(11))]
    assert runs.begin() == []
