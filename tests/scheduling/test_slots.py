"""The slots of a worker: what is begun in them, how it ends, its lease, its retries, and a store that goes away."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.runs.ending import retry_pause
from opendataflow.errors import LeaseLost
from opendataflow.execution.log import RunLog, Shown
from opendataflow.execution.recover import report_kept
from opendataflow.execution.supervise import GRACE_SECONDS, START_SECONDS, Exited, Killed, Supervision, margin_of
from opendataflow.scheduling.worker_loop import AWAY_SECONDS, LOST_SECONDS
from opendataflow.scheduling.worker_slot import is_quickly_audited
from opendataflow.store.operations import Key
from opendataflow.store.records.requests import ask_abort, find_live
from support.looped import Away, Clock, HandGuard, Looped, job

Make = Callable[..., Looped]
LEASE = 60.0


@pytest.fixture
def two(looped: Make) -> Looped:
    """Two slots and a job of four dataids."""
    made = looped(job("work", ["x"], ["y"]), slots=2)
    made.ready("x", "1", "2", "3", "4")
    return made


def starts(guard: HandGuard) -> list[dict[str, Any]]:
    return [one for one in guard.told if "start" in one]


# What is begun --------------------------------------------------------------------------------------------------------
def test_each_free_slot_gets_one_run_and_the_rest_waits(two: Looped) -> None:
    assert two.go()
    assert two.running == ["work/1", "work/2"]
    assert [len(starts(guard)) for guard in two.guards] == [1, 1]
    assert not two.go(), "no slot is free"
    assert (two.loop.running, two.loop.is_busy, len(two.loop.held)) == (2, True, 2)
    assert two.status("work", "3") == "PENDING"


def test_a_child_gets_its_arguments_its_dataid_and_a_deadline_before_its_lease_ends(two: Looped) -> None:
    two.go()
    (told,) = starts(two.guard("2"))
    start = told["start"]
    assert start["argv"] == [str(two.script), "--fast"]
    assert start["cwd"] == str(two.folder)
    env = start["common"] | start["env"]
    assert (env["jobid"], env["dataid"], env["x_dataid"], env["DATAFLOW_ATTEMPT"]) == ("work", "2", "2", "1")
    assert env["DATAFLOW_RUN_ID"] == str(two.row("work", "2")["runid"])
    assert told["deadline"] == two.clock.now + LEASE - margin_of(LEASE)


def test_an_end_is_recorded_and_the_next_is_begun_in_one_transaction(
    two: Looped, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.go()
    calls = []
    settle = two.store.finish_and_claim_many

    def counted(ends: Any, wanted: Any) -> Any:
        calls.append((len(ends), len(wanted)))
        return settle(ends, wanted)

    monkeypatch.setattr(two.store, "finish_and_claim_many", counted)
    done = two.end("1")
    assert (done.status, done.exit_code, done.dataid) == ("COMPLETE", 0, "1")
    assert calls == [(1, 1)]
    assert two.running == ["work/3", "work/2"], "in the slot that became free"
    assert len(starts(two.guards[0])) == 2
    two.end("2")
    two.end("3")
    assert two.end("4").status == "COMPLETE"
    assert [two.status("work", dataid) for dataid in "1234"] == ["COMPLETE"] * 4
    assert (two.running, two.loop.is_busy, two.loop.held) == ([], False, set())
    assert two.lanes.running["p", "work"] == 0


def test_what_an_end_publishes_is_begun_by_its_reader_in_the_next_turn(looped: Make) -> None:
    made = looped(job("work", ["x"], ["y"]), job("after", ["y"]), slots=2)
    made.ready("x", "1")
    made.go()
    made.end("1")
    assert made.go()
    assert made.running == ["after/1"]


def test_a_dataid_that_another_worker_took_leaves_the_slot_free_for_the_next(two: Looped) -> None:
    settle = two.store.finish_and_claim_many

    def robbed(ends: Any, wanted: Any) -> Any:
        two.store.finish_and_claim_many = settle  # type: ignore[method-assign]
        other = two.open()
        assert other.claim(*wanted[0][:4]) is not None
        other.close()
        return settle(ends, wanted)

    two.store.finish_and_claim_many = robbed  # type: ignore[method-assign]
    two.go()
    assert two.running == ["work/2"]
    assert two.lanes.had_misses
    assert two.lanes.running["p", "work"] == 1
    assert not two.go(), "the lane makes way for a moment"
    two.advance(0.005)
    two.go()
    assert sorted(two.running) == ["work/2", "work/3"]
    lane = two.lanes.find(("p", "work"))
    assert lane is not None
    assert lane.misses == 0, "what was taken ends the row of misses"


def test_a_child_that_cannot_be_started_has_failed_and_says_why(two: Looped) -> None:
    two.go()
    two.guard("1").say(failed="exec format error")
    two.go()
    assert two.ended[-1].status == "FAILED"
    assert "it could not be started: exec format error" in two.ended[-1].message
    assert two.running == ["work/3", "work/2"]


def test_a_place_that_cannot_be_made_is_an_end_and_frees_the_slot(looped: Make) -> None:
    made = looped(job("work", ["x"], ["y"]), datasets=[Dataset("p", "y", location="y/{dataid}.txt")])
    made.ready("x", "1")
    made._slots[0].runner.find_places = _no_places  # type: ignore[method-assign]
    made.go()
    assert made.running == []
    assert made.loop.is_busy, "its end is on its way into the store"
    made.go()
    assert made.ended[-1].status == "FAILED"
    assert "it could not be started: [Errno 28]" in made.ended[-1].message


def _no_places(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_claim_that_came_with_the_order_to_stop_is_handed_back_unbegun(two: Looped) -> None:
    settle = two.store.finish_and_claim_many

    def told_to_stop(ends: Any, wanted: Any) -> Any:
        answer = settle(ends, wanted)
        two.signals.ask(signal.SIGTERM, grace_until=two.clock.now + 10)
        return answer

    two.store.finish_and_claim_many = told_to_stop  # type: ignore[method-assign]
    two.go()
    assert [starts(guard) for guard in two.guards] == [[], []]
    two.go()
    assert [one.status for one in two.ended] == ["RESUBMIT", "RESUBMIT"]
    assert two.row("work", "1")["attempts"] == 0
    assert two.lanes.running["p", "work"] == 0


# How it ends ----------------------------------------------------------------------------------------------------------
def test_what_the_child_wrote_is_kept_with_its_run(two: Looped) -> None:
    two.go()
    two.guard("1").write("so far so good\n")
    two.end("1", 3)
    runid = two.ended[-1].runid
    assert "it exited 3" in two.ended[-1].message
    found = two.store.select(f"SELECT status, exit_code, log_tail FROM run WHERE runid = {runid}")[1]
    assert [tuple(row) for row in found] == [("FAILED", 3, "so far so good\n")]


def test_a_timeout_ends_the_child_and_kills_it_when_it_does_not_obey(looped: Make) -> None:
    made = looped(job("work", ["x"], timeout=5.0), slots=1)
    made.ready("x", "1")
    made.go()
    guard = made.guard("1")
    made.advance(4.9)
    made.look()
    assert "signal" not in guard.told[-1]
    made.advance(0.1)
    made.look()
    assert guard.told[-1] == {"signal": signal.SIGTERM}
    made.advance(GRACE_SECONDS - 0.1)
    made.look()
    assert guard.told[-1] == {"signal": signal.SIGTERM}
    made.advance(0.1)
    made.look()
    assert guard.told[-1] == {"kill": True}
    assert "longer than its timeout of 5 s" in made.end("1", None, 9).message


def test_a_run_that_a_person_aborts_is_ended_and_not_tried_again(looped: Make) -> None:
    made = looped(job("work", ["x"], retries=3), slots=1)
    made.ready("x", "1")
    made.go()
    made.advance(1)
    made.go()  # from now on it listens
    person = made.open()
    live = find_live(person, Key("p", "work", "1"))
    assert live is not None
    assert ask_abort(person, live)
    person.close()
    made.go()
    assert "signal" not in made.guard("1").told[-1], "it looks once a second"
    made.advance(1)
    made.go()
    assert made.guard("1").told[-1] == {"signal": signal.SIGTERM}
    ended = made.end("1", None, 15)
    assert (ended.status, "aborted by tests" in ended.message) == ("FAILED", True)
    assert made.row("work", "1")["parked_until"] is None
    assert made.loop.retry_at == float("inf")


def test_told_to_stop_nothing_more_is_taken_and_what_runs_may_finish(two: Looped) -> None:
    two.go()
    two.signals.ask(signal.SIGTERM, grace_until=two.clock.now + 10)
    assert two.end("1").status == "COMPLETE"
    assert two.running == ["work/2"]
    assert "signal" not in two.guard("2").told[-1]
    two.advance(10)
    two.go()
    assert two.guard("2").told[-1] == {"signal": signal.SIGTERM}
    ended = two.end("2", None, 15)
    assert (ended.status, ended.exit_code) == ("RESUBMIT", 128 + 15)
    assert two.row("work", "2")["attempts"] == 0
    assert two.running == []


def test_a_guard_that_was_killed_while_nothing_ran_is_replaced(two: Looped) -> None:
    for dataid in "1234":
        two.go()
        two.end(dataid)
    old = two.guards[0]
    old.is_killed()
    two.go()
    assert len(two.guards) == 3
    assert f"the guard {old.pid} was killed; another one takes its place" in two.said
    assert two._slots[0].guard is two.guards[2]
    assert two._slots[0].runner.owner.guard_pid == two.guards[2].pid, "its runs are owned by the new one"
    two.ready("x", "5", "6")
    two.advance(1)
    two.go()
    assert two.running == ["work/5", "work/6"]


def test_the_run_of_a_guard_that_was_killed_goes_back_and_the_slot_goes_on(
    two: Looped, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed_with(guard: HandGuard) -> Killed:
        guard.is_gone = True
        return Killed(9)

    monkeypatch.setattr("opendataflow.execution.supervise.killed_with", killed_with)
    two.go()
    two.guards[0].is_killed()
    two.go()
    assert (two.ended[-1].dataid, two.ended[-1].status) == ("1", "RESUBMIT")
    assert two.running == ["work/3", "work/2"], "in the place of the one that was killed"
    assert len(starts(two.guards[2])) == 1


# Retries --------------------------------------------------------------------------------------------------------------
def test_a_failed_run_is_tried_again_when_its_pause_is_over_and_no_sooner(looped: Make) -> None:
    made = looped(job("work", ["x"], retries=2, backoff=10.0), slots=1)
    made.ready("x", "1")
    made.go()
    for attempt, least in ((1, 10), (2, 20)):
        (flight,) = (one.flight for one in made._slots if one.flight is not None)
        pause = retry_pause(flight.claim)
        assert least <= pause <= least * 1.25
        ended = made.end("1", 1)
        assert (ended.status, f"attempt {attempt} of 3" in ended.message) == ("FAILED", True)
        assert made.loop.retry_at == made.clock.now + pause, "the worker looks then"
        made.advance(pause - 0.01)
        made.store.wake_parked()
        made.lanes.wake_all()
        assert not made.go()
        assert made.status("work", "1") == "FAILED"
        made.advance(0.01 + 0.002)
        made.store.wake_parked()
        made.lanes.wake_all()
        made.loop.retry_at = float("inf")
        assert made.go()
        assert starts(made.guard("1"))[-1]["start"]["env"]["DATAFLOW_ATTEMPT"] == str(attempt + 1)
    assert made.end("1", 1).status == "FAILED"
    assert made.loop.retry_at == float("inf"), "no attempt is left"
    made.advance(10_000)
    made.store.wake_parked()
    made.lanes.wake_all()
    assert not made.go()
    assert made.row("work", "1")["attempts"] == 3


@pytest.mark.parametrize("order", [("slow", "quick"), ("quick", "slow")])
def test_of_several_retries_the_first_says_when_to_look(looped: Make, order: tuple[str, str]) -> None:
    made = looped(job("slow", ["x"], retries=1, backoff=500.0), job("quick", ["x"], retries=1, backoff=10.0))
    made.ready("x", "1")
    made.go()
    flights = {one.flight.claim.jobid: (one.guard, one.flight.claim) for one in made._slots if one.flight}
    for jobid in order:
        flights[jobid][0].exits(1)  # type: ignore[attr-defined]
        made.go()
    assert [one.jobid for one in made.ended] == list(order)
    assert made.loop.retry_at == made.clock.now + retry_pause(flights["quick"][1])


def test_an_exit_code_that_is_given_up_on_is_not_tried_again(looped: Make) -> None:
    made = looped(job("work", ["x"], retries=2, give_up_on=[7]), slots=1)
    made.ready("x", "1", "2")
    made.go()
    assert "not tried again" in made.end("1", 7).message
    assert made.row("work", "1")["parked_until"] is None
    assert made.loop.retry_at == float("inf")
    made.end("2", 8)
    assert made.row("work", "2")["parked_until"] is not None


def test_a_child_that_dies_is_begun_again_at_once_and_the_third_death_is_a_failure(looped: Make) -> None:
    made = looped(job("work", ["x"]), slots=1)
    made.ready("x", "1")
    made.go()
    for death in (1, 2):
        ended = made.end("1", None, 9)
        assert (ended.status, ended.exit_code) == ("RESUBMIT", 128 + 9)
        assert f"death {death} of 3" in ended.message
        assert made.row("work", "1")["attempts"] == 0
        assert made.go(), "without any pause"
    assert made.end("1", None, 9).status == "FAILED"
    assert not made.go()


# The lease ------------------------------------------------------------------------------------------------------------
def test_a_lease_is_renewed_when_a_third_of_it_is_over_with_those_that_soon_are(two: Looped) -> None:
    two.go()
    two.end("1")  # its slot's next began at the same moment
    first = two.clock.now
    two.advance(LEASE / 24)
    two.end("2")  # 4 began a little later than 3
    leases = {dataid: two.row("work", dataid)["lease_until"] for dataid in "34"}
    two.advance(first + LEASE / 3 - two.clock.now - 0.01)
    two.go()
    assert {dataid: two.row("work", dataid)["lease_until"] for dataid in "34"} == leases, "not yet"
    two.advance(0.02)
    two.go()
    for dataid in "34":
        assert two.row("work", dataid)["lease_until"] > leases[dataid]
        assert two.guard(dataid).told[-1] == {"deadline": two.clock.now + LEASE - margin_of(LEASE)}


def test_one_that_began_much_later_is_renewed_at_its_own_time(two: Looped) -> None:
    two.go()
    two.advance(LEASE / 6)
    two.end("2")
    assert two.running == ["work/1", "work/3"]
    young = two.row("work", "3")["lease_until"]
    two.advance(LEASE / 6)
    two.go()
    assert two.row("work", "3")["lease_until"] == young
    assert two.guard("1").told[-1] == {"deadline": two.clock.now + LEASE - margin_of(LEASE)}


def test_a_lease_that_another_has_taken_kills_the_child_and_records_nothing(two: Looped) -> None:
    two.go()
    lost_run = two.row("work", "1")["runid"]
    two.advance(LEASE + 1)
    other = two.open()
    for lost, expired, _ in other.suspects(""):
        assert expired
        if lost.runid == lost_run:
            assert other.recover(lost, host="", note="lost")
    other.close()
    two.go()
    guard = two.guard("1")
    assert guard.told[-1] == {"kill": True}
    assert "kill" not in two.guard("2").told[-1], "that one was renewed, if late"
    ended = two.end("1", None, 9)
    assert (ended.status, ended.exit_code) == ("LEASE_LOST", LeaseLost.exit_code)
    assert two.running == ["work/1", "work/2"], "as it can be taken again"
    assert two.row("work", "1")["runid"] > lost_run
    assert two.loop.retry_at == two.clock.now + LOST_SECONDS


def test_a_child_that_its_guard_ended_at_its_deadline_is_lost(two: Looped) -> None:
    two.go()
    ended = two.end("1", None, 9, expired=True)
    assert ended.status == "LEASE_LOST"
    assert "could not be renewed in time" in ended.message
    assert two.status("work", "1") == "RUNNING", "whoever looks for lost runs gives it back"


# A store that is away -------------------------------------------------------------------------------------------------
def test_while_the_store_is_away_what_runs_goes_on_and_it_is_tried_with_growing_pauses(
    two: Looped, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.go()
    with monkeypatch.context() as patched:
        away = Away()
        patched.setattr(two.store, "read", away)
        patched.setattr(two.store, "finish_and_claim_many", away)
        two.guard("1").exits(0)
        assert not two.go()
        assert two.loop.is_cut_off
        assert two.said == ["the store is away; 1 runs go on while their leases last, nothing is taken"]
        pauses, pause = [], AWAY_SECONDS[0]
        while pause < AWAY_SECONDS[1] * 2:
            tried = away.calls
            two.advance(min(pause, AWAY_SECONDS[1]) - 0.01)
            two.go()
            assert away.calls == tried, "not sooner"
            two.advance(0.011)
            two.go()
            assert away.calls == tried + 1
            pauses.append(pause)
            pause *= 2
        assert len(pauses) > 3
        assert two.ended == []
    assert two.running == ["work/2"]
    two.advance(AWAY_SECONDS[1])
    assert two.go()
    assert not two.loop.is_cut_off
    assert two.loop.came_back
    assert two.said[1].startswith("the store is back after")
    assert [one.status for one in two.ended] == ["COMPLETE"]
    assert two.running == ["work/3", "work/2"]


def test_a_lease_that_cannot_be_renewed_is_tried_again_within_a_second(
    two: Looped, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.go()
    before = two.row("work", "1")["lease_until"]
    two.advance(LEASE / 3)
    with monkeypatch.context() as patched:
        patched.setattr(two.store, "renew_many", Away())
        two.go()
        assert two.loop.is_cut_off
    two.advance(1)
    two.go()
    assert not two.loop.is_cut_off
    assert two.row("work", "1")["lease_until"] > before


def test_an_end_that_outlasts_its_lease_is_kept_here_and_recorded_later(
    two: Looped, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.go()
    with monkeypatch.context() as patched:
        for verb in ("read", "finish_and_claim_many", "renew_many"):
            patched.setattr(two.store, verb, Away())
        two.guard("1").exits(0)
        two.go()
        two.advance(LEASE - 2.5)
        two.go()
        assert two.ended == [], "its lease lasts"
        two.advance(2.45)
        two.go()
        assert [(one.status, one.dataid) for one in two.ended] == [("UNREPORTED", "1")]
    two.advance(1)
    report_kept(str(two.folder), two.store, say=two.said.append)
    assert two.status("work", "1") == "COMPLETE"


def test_in_a_hurry_nobody_waits_for_the_store(two: Looped, monkeypatch: pytest.MonkeyPatch) -> None:
    two.go()
    for verb in ("read", "finish_and_claim_many", "renew_many"):
        monkeypatch.setattr(two.store, verb, Away())
    two.guard("1").exits(0)
    two.go()
    two.signals.ask(signal.SIGTERM, grace_until=two.clock.now)
    two.go()
    assert [(one.status, one.dataid) for one in two.ended] == [("UNREPORTED", "1")]


# Audits ---------------------------------------------------------------------------------------------------------------
def audited(looped: Make, output: Dataset, *, size: int | None) -> tuple[Looped, bool]:
    made = looped(job("work", ["x"], ["y"]), slots=1, datasets=[output])
    made.ready("x", "1")
    made.go()
    place = made._slots[0].flight.locations["p", "y"]  # type: ignore[union-attr]
    if size is not None and place is not None:
        Path(place).write_bytes(b"." * size)
    return made, quickly_audited(made)


def quickly_audited(made: Looped) -> bool:
    slot = made._slots[0]
    assert slot.lane is not None
    assert slot.flight is not None
    return is_quickly_audited(slot.lane.job, slot.flight, most_bytes=10)


@pytest.mark.parametrize(
    ("output", "size", "is_quick"),
    [
        (Dataset("p", "y"), None, True),
        (Dataset("p", "y", location="y/{dataid}.txt"), None, True),
        (Dataset("p", "y", location="y/{dataid}.txt"), 10, True),
        (Dataset("p", "y", location="y/{dataid}.txt"), 11, False),
        (Dataset("p", "y", location="y"), None, False),
        (Dataset("p", "y", definition='{"checks": [{"rows": {"min": 1}}]}'), None, False),
    ],
    ids=["no place", "nothing there", "small", "large", "a folder", "checks"],
)
def test_only_what_is_small_and_has_no_checks_is_audited_in_the_loop(
    looped: Make, output: Dataset, size: int | None, is_quick: bool
) -> None:
    assert audited(looped, output, size=size)[1] is is_quick


def test_an_output_far_away_is_not_audited_in_the_loop(looped: Make) -> None:
    made, quick = audited(looped, Dataset("p", "y"), size=None)
    assert quick
    made._slots[0].flight.locations["p", "y"] = "s3://bucket/y"  # type: ignore[union-attr]
    assert not quickly_audited(made)


def test_a_slot_in_which_nothing_runs_has_nothing_to_audit(two: Looped) -> None:
    with pytest.raises(AssertionError, match="nothing runs in this slot"):
        two._slots[0].child_ended(Exited(0))


def test_an_audit_beside_the_loop_keeps_its_slot_until_it_is_done(
    looped: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = looped(job("work", ["x"], ["y"]), slots=1, datasets=[Dataset("p", "y", location="y")])
    made.ready("x", "1", "2")
    given: list[Any] = []
    monkeypatch.setattr(made._auditor, "give", lambda *what: given.append(what))
    made.go()
    made.guard("1").exits(0)
    made.go()
    assert made.running == ["work/1"], "the child has ended, its slot is not free yet"
    ((slot, lane, flight, end),) = given
    assert (slot.is_auditing, end) == (True, Exited(0))
    made.signals.ask(signal.SIGTERM, grace_until=made.clock.now)
    made.loop.turn()
    assert "signal" not in made.guard("1").told[-1], "there is nothing to end any more"
    made.signals.asked = None
    made._auditor._audit(slot, lane, flight, end)
    made.go()
    assert made.ended[-1].status == "COMPLETE"
    assert made.running == ["work/2"]
    assert not slot.is_auditing


# The time of a child that waits for Spark -----------------------------------------------------------------------------
def test_only_runs_that_come_first_give_a_waiting_child_more_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("opendataflow.execution.supervise.time", clock)
    guard = HandGuard()
    log = RunLog(str(tmp_path / "log"), Shown(out_fd=-1, err_fd=-1), secrets=())
    heard: list[dict[str, Any]] = []
    child = Supervision(
        guard, log, lease_seconds=60.0, lease_from=clock.now, timeout_seconds=10.0, hear=heard.append
    )  # fmt: skip

    def says(**message: object) -> float:
        clock.now += 1.0
        os.write(guard._answers, json.dumps(message).encode() + b"\n")
        child.listen()
        return child.wake_at - clock.now

    child.start([], {}, "/")
    assert child.wake_at - clock.now == 10 + START_SECONDS
    assert says(waiting=0) == 10 + START_SECONDS - 1, "a driver that does not answer is nobody's turn"
    assert says(waiting="many") == 10 + START_SECONDS - 2
    assert says(waiting=2) == 10 + START_SECONDS
    assert says(begun=True) == 10
    assert says(waiting=0) == 9
    assert len(heard) == 5
    guard.close()
    log.close()
