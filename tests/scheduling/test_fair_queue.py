"""The queue of a worker: whose turn it is, when a job is looked at again, and what is shared with other workers."""

from collections.abc import Callable
from typing import Any

import pytest

from opendataflow.domain.chunk import ChunkKey, Output
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.job import Candidate, JobStatus
from opendataflow.domain.runs.questions import CODES, Answer, Question, Verdict
from opendataflow.scheduling.fair_queue import (
    AHEAD,
    AHEAD_SECONDS,
    LOOK_AGAIN_SECONDS,
    MISSED_SECONDS,
    Lanes,
    Share,
)
from support.looped import Looped, job

Make = Callable[..., Looped]
FIVE = [str(number) for number in range(1, 6)]


@pytest.fixture
def three(looped: Make) -> Looped:
    """Three jobs with five dataids each."""
    made = looped(*(job(name, [f"in_{name}"]) for name in "abc"))
    for name in "abc":
        made.ready(f"in_{name}", *FIVE)
    return made


# Turns ----------------------------------------------------------------------------------------------------------------
def test_jobs_take_turns_and_each_gives_its_lowest_first(three: Looped) -> None:
    assert three.pick(7) == ["a/1", "b/1", "c/1", "a/2", "b/2", "c/2", "a/3"]


def test_the_next_turn_begins_after_the_job_that_the_last_one_ended_with(three: Looped) -> None:
    assert three.pick(1) == ["a/1"]
    assert three.pick(1) == ["b/1"]
    assert three.pick(2) == ["c/1", "a/2"]
    assert three.pick(4) == ["b/2", "c/2", "a/3", "b/3"]


def test_a_job_with_much_work_does_not_keep_the_others_from_theirs(looped: Make) -> None:
    made = looped(job("many", ["x"]), job("few", ["y"]), slots=4)
    made.ready("x", *(str(number) for number in range(1, 40)))
    made.ready("y", "1", "2")
    assert made.pick(6) == ["many/1", "few/1", "many/2", "few/2", "many/3", "many/4"]


def test_without_room_nothing_is_picked_and_nobody_loses_a_turn(three: Looped) -> None:
    assert three.pick(0) == []
    assert three.pick(2) == ["a/1", "b/1"]


def test_a_look_reads_two_for_each_slot_and_never_few(looped: Make) -> None:
    made = looped(job("a", ["x"]), slots=AHEAD)
    made.ready("x", *(str(number) for number in range(1, 3 * AHEAD)))
    assert len(made.pick(1000)) == 2 * AHEAD
    few = Lanes(made.store, slots=1, put_aside=lambda *_: None, say=made.said.append)
    few.set([made.lane("a")])
    assert len(few.pick(1000, {})) == AHEAD


# Order and limits -----------------------------------------------------------------------------------------------------
def test_of_a_job_in_strict_order_one_is_given_and_none_while_it_runs(looped: Make) -> None:
    made = looped(job("a", ["x"], strict=True), job("b", ["x"]))
    made.ready("x", *FIVE)
    assert made.pick(4) == ["a/1", "b/1", "b/2", "b/3"]
    made.lanes.running["p", "a"] += 1
    assert made.pick(2) == ["b/4", "b/5"]
    assert made.lanes.next_at <= made.clock.now, "b may have more"
    made.lanes.set([made.lane("a")])
    assert made.pick(2) == []
    assert made.lanes.next_at == float("inf"), "only the end of its run brings the next"
    made.lanes.running["p", "a"] -= 1
    assert made.pick(2) == ["a/1"]


def test_behind_a_failed_dataid_a_strict_job_rests_and_nothing_is_put_aside(looped: Make) -> None:
    made = looped(job("a", ["x"], strict=True))
    made.ready("x", "1", "2")
    made.go()
    made.end("1", 1)
    assert made.status("a", "1") == "FAILED"
    made.go()
    assert (made.running, made.aside) == ([], [])
    assert made.row("a", "2")["refusal"] is None
    assert made.lanes.next_at == made.clock.now + LOOK_AGAIN_SECONDS


def test_of_a_limited_job_no_more_is_given_than_there_is_room_for(looped: Make) -> None:
    made = looped(job("a", ["x"], concurrency=2), job("b", ["x"]))
    made.ready("x", *FIVE)
    assert made.pick(6) == ["a/1", "b/1", "a/2", "b/2", "b/3", "b/4"]


def test_room_that_an_end_is_about_to_make_counts(looped: Make) -> None:
    made = looped(job("a", ["x"], concurrency=1))
    made.ready("x", *FIVE)
    made.go()
    assert made.running == ["a/1"]
    made.lanes.wake_all()
    assert made.pick(1) == []
    made.lanes.wake_all()
    assert made.pick(1, a=1) == ["a/2"]


def test_what_is_refused_is_put_aside_and_the_next_is_given(looped: Make) -> None:
    made = looped(job("a", ["x"]), datasets=[Dataset("p", "x", location="x/{dataid}.txt")])
    made.ready("x", "1", "2", "3")
    (made.folder / "x").mkdir()
    (made.folder / "x" / "3.txt").write_text("here")
    assert made.pick(5) == ["a/3"]
    assert made.aside == ["1", "2"]
    assert made.row("a", "1")["parked_until"] is not None, "it is tried again later"


def test_a_lane_in_which_all_is_refused_is_looked_at_again_almost_at_once(looped: Make) -> None:
    made = looped(job("a", ["x"]), datasets=[Dataset("p", "x", location="x/{dataid}.txt")])
    made.ready("x", "1")
    assert made.pick(1) == []
    assert made.lanes.next_at == pytest.approx(made.clock.now + MISSED_SECONDS)


def asked(question: Question | None, *, readers: str = "", earlier: str | None = None) -> tuple[Candidate, Verdict]:
    outputs = (Output(ChunkKey("p", "out", "1"), None, readers),)
    candidate = Candidate("a", "1", JobStatus.PENDING, 0, 0, None, None, None, 0, (), outputs, (), earlier)
    answers = [Answer(one, one is not question, "", "" if one is not question else CODES[one][0]) for one in Question]
    return candidate, Verdict(tuple(answers))


@pytest.mark.parametrize(
    ("seen", "is_about_the_job"),
    [
        (asked(Question.SAFE), True),
        (asked(Question.SAFE, readers="report (run 9)"), False),
        (asked(Question.READY), False),
        (asked(Question.LOCATION), False),
        (asked(Question.RIGHT, earlier="0"), True),
        (asked(Question.LOCATION, earlier="1"), False),
        (asked(None), False),
    ],
)
def test_a_limit_a_pause_and_an_order_are_the_jobs_a_reader_and_a_place_the_dataids(
    seen: tuple[Candidate, Verdict], is_about_the_job: bool
) -> None:
    assert Lanes._is_about_the_job(*seen) is is_about_the_job


def test_a_refusal_that_is_about_the_job_makes_its_lane_rest(three: Looped, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_a(of: Any, _candidate: Candidate) -> Verdict:
        return asked(Question.SAFE if of.jobid == "a" else None)[1]

    monkeypatch.setattr("opendataflow.scheduling.fair_queue.prepare", refuse_a)
    assert three.pick(3) == ["b/1", "c/1", "b/2"]
    assert three.aside == []
    a = three.lanes.find(("p", "a"))
    assert a is not None
    assert (a.asleep_until, len(a.ahead)) == (three.clock.now + LOOK_AGAIN_SECONDS, 0)


# When a job is looked at again ----------------------------------------------------------------------------------------
def test_a_lane_without_work_is_looked_at_again_after_a_second(looped: Make) -> None:
    made = looped(job("a", ["x"]))
    assert not made.lanes.are_asleep
    assert made.pick(2) == []
    assert made.lanes.are_asleep
    made.ready("x", "1")
    assert made.pick(2) == [], "it sleeps"
    assert made.lanes.next_at == made.clock.now + LOOK_AGAIN_SECONDS
    made.advance(LOOK_AGAIN_SECONDS)
    assert not made.lanes.are_asleep
    assert made.pick(2) == ["a/1"]


def test_news_wakes_every_lane_at_once(three: Looped) -> None:
    three.pick(15)
    for lane in three.lanes:
        lane.asleep_until = three.clock.now + 100
    assert three.lanes.are_asleep
    three.lanes.wake_all()
    assert three.lanes.next_at <= three.clock.now
    assert not three.lanes.are_asleep


def test_the_end_of_a_run_wakes_its_job_and_its_readers_and_nobody_else(looped: Make) -> None:
    made = looped(job("make", [], ["x"]), job("read", ["x"], ["y"]), job("after", ["y"]), job("other", ["z"]))
    for lane in made.lanes:
        lane.asleep_until = made.clock.now + 100
    made.lanes.ended(("p", "make"))
    assert [lane.job.jobid for lane in made.lanes if lane.asleep_until <= made.clock.now] == ["make", "read"]
    made.lanes.ended(("p", "gone"))  # a job that is not registered any more


def test_without_news_all_sleep_but_those_whose_script_may_come_back(three: Looped) -> None:
    a, b, c = three.lanes
    a.is_missed = True
    c.asleep_until = three.clock.now + 50
    three.lanes.sleep()
    assert (a.asleep_until, b.asleep_until) == (0.0, three.clock.now + LOOK_AGAIN_SECONDS)
    assert c.asleep_until == three.clock.now + 50, "nobody is woken by it"


def test_what_was_seen_is_gone_by_for_half_a_second_only(three: Looped) -> None:
    assert three.pick(1) == ["a/1"]
    other = three.open()
    of = other.get_job("a", project="p")
    for dataid in ("2", "3"):
        candidate = other.find_candidate(of, dataid)
        assert candidate is not None
        assert other.claim(of, candidate, asked(None)[1], three._slots[0].runner.owner) is not None
    other.close()
    three.advance(AHEAD_SECONDS)
    assert three.pick(3) == ["b/1", "c/1", "a/2"], "not looked again; the claim would find out"
    three.advance(0.001)
    assert three.pick(3) == ["b/1", "c/1", "a/1"]
    assert three.pick(3) == ["b/2", "c/2", "a/4"], "2 and 3 are seen to be taken"


def test_lanes_that_stay_keep_what_they_know(three: Looped) -> None:
    a, b, _ = three.lanes
    a.asleep_until = three.clock.now + 100
    three.lanes.set([a, b])
    assert (len(three.lanes), three.lanes.find(("p", "c"))) == (2, None)
    assert three.pick(2) == ["b/1", "b/2"]


# Others are at it too -------------------------------------------------------------------------------------------------
def test_after_a_claim_that_failed_a_lane_forgets_and_waits_twice_as_long_each_time(three: Looped) -> None:
    assert three.pick(1) == ["a/1"]
    a = three.lanes.find(("p", "a"))
    assert a is not None
    assert not three.lanes.had_misses
    pauses = []
    for _ in range(12):
        three.lanes.missed(a)
        pauses.append(a.asleep_until - three.clock.now)
    assert three.lanes.had_misses
    assert not a.ahead
    expected = [min(MISSED_SECONDS * 2**number, LOOK_AGAIN_SECONDS) for number in range(1, 13)]
    assert pauses == pytest.approx(expected)
    assert pauses[-1] == LOOK_AGAIN_SECONDS


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_every_dataid_is_in_the_part_of_exactly_one_worker(workers: int) -> None:
    dataids = [f"2025-11-{day:02}" for day in range(1, 31)]
    parts = [{one for one in dataids if Share(rank, workers).holds(one)} for rank in range(workers)]
    assert sorted(one for part in parts for one in part) == dataids
    assert all(parts), "nobody is left without"


def test_a_worker_looks_at_its_own_part_first_and_then_at_anything(looped: Make) -> None:
    made = looped(job("a", ["x"]))
    dataids = [str(number) for number in range(1, 21)]
    made.ready("x", *dataids)
    made.lanes.share = Share(1, 2)
    own = [one for one in dataids if made.lanes.share.holds(one)]
    assert 0 < len(own) < 20
    assert made.pick(100) == [f"a/{one}" for one in own], "in order, and a look reaches over both parts"
    shares = [Share(rank, 100) for rank in range(100)]
    made.lanes.share = next(share for share in shares if not any(map(share.holds, dataids)))
    made.advance(1)
    assert sorted(made.pick(100)) == sorted(f"a/{one}" for one in dataids)


def test_in_strict_order_there_are_no_parts(looped: Make) -> None:
    made = looped(job("a", ["x"], strict=True))
    made.ready("x", *FIVE)
    made.lanes.share = Share(0, 2) if Share(1, 2).holds("1") else Share(1, 2)
    assert not made.lanes.share.holds("1")
    assert made.pick(1) == ["a/1"]


# A script that is not there -------------------------------------------------------------------------------------------
def test_a_script_that_is_away_is_said_once_and_its_work_waits_for_it(three: Looped) -> None:
    three.script.chmod(0o644)
    assert three.pick(3) == []
    assert len(three.said) == 3
    assert three.said[0] == "a: its script work.sh is gone; it waits until it is there again"
    assert three.lanes.next_at == three.clock.now + LOOK_AGAIN_SECONDS
    three.advance(LOOK_AGAIN_SECONDS)
    assert three.pick(3) == []
    assert len(three.said) == 3, "once for each job"
    three.script.chmod(0o755)
    three.advance(LOOK_AGAIN_SECONDS)
    assert three.pick(3) == ["a/1", "b/1", "c/1"]
    three.script.chmod(0o644)
    three.pick(1)
    assert len(three.said) > 3, "gone again is news"
