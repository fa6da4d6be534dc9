"""When a failed run is tried again: backoff, spread, and exit codes for which it is not."""

import pytest

from opendataflow.domain.runs.ending import (
    LONGEST_PAUSE_SECONDS,
    SPREAD,
    decide_end,
    decide_ends,
    ending_of,
    retry_pause,
)
from opendataflow.domain.runs.run import Claim, Ending


def claim(*, runid: int = 1, attempt: int = 1, retries: int = 3, backoff: float = 10.0) -> Claim:
    return Claim("p", "load", "1", runid, attempt, 0, 60.0, retries, backoff, ())


def test_pauses_double_and_never_come_early() -> None:
    for attempt, least in ((1, 10), (2, 20), (3, 40)):
        for runid in range(1, 200):
            pause = retry_pause(claim(runid=runid, attempt=attempt))
            assert least <= pause <= least * (1 + SPREAD)


def test_what_failed_together_is_not_tried_together() -> None:
    pauses = [retry_pause(claim(runid=runid)) for runid in range(100, 200)]
    assert len(set(pauses)) == 100
    assert max(pauses) - min(pauses) > 10 * SPREAD * 0.9, "spread over all of it"


def test_the_same_run_always_gets_the_same_pause() -> None:
    decided = decide_end(claim(runid=77), Ending.FAILED, again=False).retry_in
    assert {retry_pause(claim(runid=77)) for _ in range(5)} == {decided}


@pytest.mark.parametrize("attempt", [20, 1000, 5000])
def test_pauses_are_bounded_however_many_attempts_there_are(attempt: int) -> None:
    assert retry_pause(claim(attempt=attempt)) <= LONGEST_PAUSE_SECONDS * (1 + SPREAD)
    assert retry_pause(claim(attempt=attempt, backoff=7200)) >= 7200, "a longer first pause is the job's own wish"


@pytest.mark.parametrize(
    ("definition", "tried_again"),
    [
        ({}, {1, 2, 75}),
        ({"retry_on": [75]}, {75}),
        ({"give_up_on": [2]}, {1, 75}),
        ({"retry_on": [2, 75], "give_up_on": [2]}, {75}),
    ],
)
def test_exit_codes_decide_what_is_tried_again(definition: dict[str, object], tried_again: set[int]) -> None:
    for code in (1, 2, 75):
        end = decide_end(claim(), ending_of(code, definition), again=False)
        assert end.status == "FAILED"
        assert (end.retry_in is not None) == (code in tried_again), code


def test_giving_up_says_so_where_there_would_have_been_another_attempt() -> None:
    assert "not tried again" in decide_end(claim(), Ending.GIVEN_UP, again=False).note
    assert decide_end(claim(retries=0), Ending.GIVEN_UP, again=False).note == ""
    assert decide_end(claim(), Ending.GIVEN_UP, again=True).status == "RESUBMIT", "a person's word counts more"


@pytest.mark.parametrize("ending", [Ending.ABORTED, Ending.GIVEN_UP, Ending.COMPLETE, Ending.HANDED_BACK, Ending.DIED])
def test_only_a_failure_has_a_pause_before_the_next_attempt(ending: Ending) -> None:
    assert decide_end(claim(), ending, again=False).retry_in is None
    assert decide_end(claim(), Ending.FAILED, again=False).retry_in is not None


def test_both_possible_ends_are_those_with_and_without_a_persons_word() -> None:
    for ending in Ending:
        as_it_is, again = decide_ends(claim(), ending)
        assert vars(as_it_is) == vars(decide_end(claim(), ending, again=False))
        assert vars(again) == vars(decide_end(claim(), ending, again=True))


def test_an_end_is_explained_by_what_happened_and_what_comes_next() -> None:
    end = decide_end(claim(runid=0), Ending.FAILED, again=False)
    assert end.explain("it exited 1") == "it exited 1; attempt 1 of 4, next in 10 s"
    assert end.explain("") == "attempt 1 of 4, next in 10 s"
    assert decide_end(claim(), Ending.COMPLETE, again=False).explain("") == ""
