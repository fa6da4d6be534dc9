"""Progress: rates and times to go from counts."""

import pytest

from opendataflow.domain.runs.questions import Answer, Question, Verdict
from opendataflow.execution.work import Outcome
from opendataflow.operations.progress import HeldUp, Progress, duration, line
from opendataflow.scheduling.report import Codes


def test_the_rate_is_what_was_done_in_the_last_minute_and_says_when_it_is_over() -> None:
    progress = Progress()
    (first,) = progress.rows({"load": {"PENDING": 900, "COMPLETE": 100}}, now=0.0, brakes={})
    assert (first.rate, first.eta_seconds) == (0.0, None)
    (row,) = progress.rows({"load": {"PENDING": 690, "RUNNING": 10, "COMPLETE": 300}}, now=10.0, brakes={"load": 3})
    assert (row.done, row.running, row.left, row.rate, row.eta_seconds) == (300, 10, 690, 20.0, 35.0)
    assert line([row]) == "load: 300 done, 10 running, 690 left, 20.0/s, done in 35 s, braked to 3"
    for now in range(20, 120, 10):
        (row,) = progress.rows({"load": {"PENDING": 690, "RUNNING": 10, "COMPLETE": 300}}, now=float(now), brakes={})
    assert (row.rate, row.eta_seconds) == (0.0, None), "what was done before that minute counts no longer"


def test_what_does_not_go_on_by_itself_is_neither_left_nor_counted_in_the_time() -> None:
    progress, held_up = Progress(), HeldUp({"load": 2}, {"load": 40, "send": 9}, {"load": "the limit of load is 0"})
    counts = {"load": {"PENDING": 50, "FAILED": 3}, "send": {"PENDING": 8}}
    progress.rows(counts, now=0.0, brakes={}, held_up=held_up)
    load, send = progress.rows(
        {**counts, "load": {**counts["load"], "COMPLETE": 20}}, now=10.0, brakes={}, held_up=held_up
    )
    assert (load.left, load.blocked, load.failed, load.retrying, load.eta_seconds) == (10, 40, 1, 2, 5.0)
    assert (send.left, send.blocked, send.eta_seconds) == (0, 8, None), "one more was seen than there are now"
    assert line([load, send]) == (
        "load: 20 done, 0 running, 1 failed, 2 to be retried, 10 left, 40 behind what failed, 2.0/s, done in 5 s, "
        "the limit of load is 0; send: 0 done, 0 running, 8 behind what failed"
    )


def test_jobs_without_dataids_are_not_shown() -> None:
    assert Progress().rows({"idle": {}, "done": {"COMPLETE": 1}}, now=0.0, brakes={})[0].job == "done"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (4.4, "4 s"), (89, "89 s"), (300, "5 min"), (7200, "2 h"), (9000, "2 h 30 min"), (200000, "2 d 7 h")],
)
def test_durations_are_as_exact_as_a_person_wants_them(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def outcome(code: int, status: str, *, runid: int | None = 1, verdict: Verdict | None = None) -> Outcome:
    return Outcome(code, status, "load", "1", runid=runid, verdict=verdict)


LOCKED = Verdict(tuple(Answer(question, question is not Question.SAFE, "", "LOCKED") for question in Question))


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([outcome(0, "COMPLETE"), outcome(0, "CAUGHT_UP", runid=None)], 0),
        ([outcome(1, "FAILED"), outcome(10, "DATA_NOT_READY", runid=None)], 1),
        ([outcome(137, "RESUBMIT"), outcome(0, "COMPLETE"), outcome(0, "CAUGHT_UP", runid=None)], 0),
        ([outcome(143, "RESUBMIT")], 143),
        ([outcome(5, "LEASE_LOST"), outcome(0, "CAUGHT_UP", runid=None)], 5),
        ([outcome(0, "CAUGHT_UP", runid=None), outcome(12, "INVALID_PATH", runid=None)], 12),
        ([outcome(10, "DATA_NOT_READY", runid=None), outcome(12, "INVALID_PATH", runid=None)], 10),
        ([outcome(14, "LOCKED", runid=None, verdict=LOCKED)], 14),
        ([outcome(0, "COMPLETE"), outcome(14, "LOCKED", runid=None, verdict=LOCKED)], 0),
    ],
)
def test_the_exit_code_of_a_drain(outcomes: list[Outcome], code: int) -> None:
    codes = Codes(drain=True)
    for one in outcomes:
        codes.add(one)
    assert codes.code == code
