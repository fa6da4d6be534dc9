"""Claim, lease, fence and publish: the same promises on SQLite and PostgreSQL."""

import pytest
from world import NO_PATH, YES, World, job, owner

from opendataflow.domain.job import Limit
from opendataflow.domain.runs.run import Ending, LostRun
from opendataflow.errors import LeaseLost
from opendataflow.store.claims import Next

LOAD = job("load", ["orders"], ["totals"])
REPORT = job("report", ["totals"], ["pages"])


@pytest.fixture
def loaded(world: World) -> World:
    """orders → load → totals → report → pages, with one day of orders."""
    world.apply(LOAD, REPORT)
    world.ready("orders", "2025-11-12")
    return world


# Claim --------------------------------------------------------------------------------------------------------------
def test_second_claim_gets_nothing_while_the_first_holds(loaded: World) -> None:
    of = loaded.store.get_job("load")
    seen = loaded.store.find_claimable(of)
    other = loaded.open(actor="other")
    first = loaded.claim("load", by=owner("anna"))
    assert first is not None
    assert loaded.claim("load", by=owner("bert"), store=other) is None
    assert loaded.claim("load", "2025-11-12", by=owner("bert"), store=other) is None
    assert seen is not None
    assert other.claim(of, seen, YES, owner("bert")) is None  # what was seen before the first claim is stale
    assert loaded.row("load", "2025-11-12")["owner"] == owner("anna").name
    assert loaded.sql("SELECT count(*) FROM run") == [(1,)]
    other.close()


def test_a_claim_locks_its_output_for_itself_and_its_input_for_reading(loaded: World) -> None:
    claim = loaded.must_claim("load")
    assert loaded.chunk("totals", "2025-11-12") == "RUNNING"
    assert loaded.chunk("orders", "2025-11-12") == "READY"
    assert loaded.locks() == [("orders", "2025-11-12", "load")]
    assert loaded.sql("SELECT reader, status FROM datastatus WHERE locktype = 'IN'") == [(str(claim.runid), "RUNNING")]
    assert (claim.attempt, claim.deaths, claim.lease_seconds) == (1, 0, 60.0)


def test_inputs_are_shared_between_different_jobs(world: World) -> None:
    world.apply(LOAD, job("audit", ["orders"], ["findings"]))
    world.ready("orders", "1")
    load, audit = world.must_claim("load"), world.must_claim("audit")
    assert world.locks() == [("orders", "1", "audit"), ("orders", "1", "load")]
    world.finish(load)
    assert world.locks() == [("orders", "1", "audit")]
    world.finish(audit)
    assert world.locks() == []


def test_tokens_only_grow(loaded: World) -> None:
    tokens = []
    for _ in range(4):
        claim = loaded.must_claim("load")
        tokens.append(claim.runid)
        loaded.finish(claim, Ending.HANDED_BACK)
    assert tokens == sorted(set(tokens))


def test_a_claim_keeps_its_answers_and_the_versions_it_read(loaded: World) -> None:
    load = loaded.must_claim("load")
    loaded.finish(load)
    report = loaded.must_claim("report")
    answers, inputs = loaded.sql(f"SELECT answers, inputs FROM run WHERE runid = {report.runid}")[0]
    assert "seen by the test" in str(answers)
    assert str(load.runid) in str(inputs)


def test_a_dataid_with_one_of_two_inputs_is_not_claimable(world: World) -> None:
    world.apply(job("join", ["left_side", "right_side"], ["both"]))
    world.ready("left_side", "1", "2")
    world.ready("right_side", "2")
    assert world.waiting("join") == {"1": 1, "2": 0}
    assert world.next("join") == "2"
    assert world.claim("join", "1") is None


def test_an_input_that_closed_after_it_was_seen_cannot_be_claimed(loaded: World) -> None:
    of = loaded.store.get_job("load")
    seen = loaded.store.find_claimable(of)
    assert seen is not None
    loaded.sql("UPDATE datastatus SET status = 'RESUBMIT' WHERE datasetid = 'orders'")
    before = loaded.dump()
    assert loaded.store.claim(of, seen, YES, owner()) is None
    assert loaded.dump() == before


def test_an_input_published_anew_after_it_was_seen_cannot_be_claimed(loaded: World) -> None:
    loaded.complete("load", "2025-11-12")
    of = loaded.store.get_job("report")
    seen = loaded.store.find_claimable(of)
    loaded.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'load'")
    loaded.complete("load", "2025-11-12")
    assert loaded.chunk("totals", "2025-11-12") == "READY"
    assert seen is not None
    assert loaded.store.claim(of, seen, YES, owner()) is None
    assert loaded.claim("report") is not None


# Readers against producers ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("status", ["RESUBMIT", "PENDING"])
def test_a_chunk_that_a_running_consumer_reads_is_not_produced_again(loaded: World, status: str) -> None:
    loaded.complete("load", "2025-11-12")
    reader = loaded.must_claim("report")
    loaded.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'load'")
    if status == "PENDING":  # held and released meanwhile
        loaded.sql("UPDATE job_status SET status = 'HOLD' WHERE jobid = 'load'")
        loaded.sql("UPDATE job_status SET status = 'PENDING' WHERE jobid = 'load'")
    assert loaded.status("load", "2025-11-12") == status
    candidate = loaded.store.find_candidate(loaded.store.get_job("load"), "2025-11-12")
    assert candidate is not None
    assert candidate.outputs[0].readers == f"report (run {reader.runid})"
    before = loaded.dump()
    assert loaded.claim("load", "2025-11-12") is None
    assert loaded.dump() == before
    assert loaded.next("load") is None  # a runner that looks for work must not be offered it again and again
    loaded.finish(reader)
    assert loaded.next("load") == "2025-11-12"
    assert loaded.claim("load") is not None


def test_a_chunk_being_read_does_not_hold_up_the_next_dataid(loaded: World) -> None:
    loaded.complete("load", "2025-11-12")
    loaded.must_claim("report")
    loaded.ready("orders", "2025-11-13")
    loaded.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'load' AND dataid = '2025-11-12'")
    assert loaded.next("load") == "2025-11-13"


# Publish ------------------------------------------------------------------------------------------------------------
def test_the_end_of_a_run_publishes_its_chunk_and_wakes_the_consumer(loaded: World) -> None:
    assert loaded.next("report") is None
    claim = loaded.must_claim("load")
    assert loaded.next("report") is None
    assert loaded.finish(claim).status == "COMPLETE"
    assert loaded.status("load", "2025-11-12") == "COMPLETE"
    assert loaded.chunk("totals", "2025-11-12") == "READY"
    assert loaded.locks() == []
    assert loaded.next("report") == "2025-11-12"
    published = loaded.sql("SELECT version, location FROM datastatus WHERE datasetid = 'totals'")
    assert published == [(claim.runid, f"/data/{claim.runid}")]
    assert loaded.sql("SELECT datasetid, version, rows FROM data_manifest") == [("totals", claim.runid, 7)]
    assert loaded.sql("SELECT status, exit_code FROM run") == [("COMPLETE", 0)]
    row = loaded.row("load", "2025-11-12")
    assert (row["owner"], row["lease_until"], row["attempts"]) == (None, None, 1)


def test_validated_at_is_kept_with_the_chunk_and_its_manifest(loaded: World) -> None:
    loaded.complete("load", "2025-11-12")
    chunk = loaded.sql("SELECT validated_at FROM datastatus WHERE datasetid = 'totals'")[0][0]
    manifest = loaded.sql("SELECT validated_at FROM data_manifest")[0][0]
    assert chunk is not None
    assert chunk == manifest


def test_a_failed_run_leaves_its_chunk_failed_and_the_consumer_waiting(loaded: World) -> None:
    claim = loaded.must_claim("load")
    assert loaded.finish(claim, Ending.FAILED, message="it exited 3").status == "FAILED"
    assert loaded.chunk("totals", "2025-11-12") == "FAILED"
    assert loaded.next("load") is None
    assert loaded.next("report") is None
    assert loaded.locks() == []
    assert loaded.sql("SELECT status, message FROM run") == [("FAILED", "it exited 3")]
    assert loaded.sql("SELECT count(*) FROM data_manifest") == [(0,)]


def test_a_run_that_is_handed_back_uses_no_attempt(loaded: World) -> None:
    claim = loaded.must_claim("load")
    assert loaded.finish(claim, Ending.HANDED_BACK).status == "RESUBMIT"
    assert loaded.chunk("totals", "2025-11-12") == "RESUBMIT"
    again = loaded.must_claim("load")
    assert (again.attempt, again.deaths) == (1, 0)


def test_a_child_that_dies_three_times_in_a_row_is_failed(loaded: World) -> None:
    statuses = []
    for _ in range(3):
        claim = loaded.must_claim("load")
        statuses.append(loaded.finish(claim, Ending.DIED).status)
    assert statuses == ["RESUBMIT", "RESUBMIT", "FAILED"]
    assert loaded.next("load") is None
    assert loaded.chunk("totals", "2025-11-12") == "FAILED"


def test_a_completed_run_between_deaths_starts_their_count_again(loaded: World) -> None:
    for ending in (Ending.DIED, Ending.DIED, Ending.COMPLETE):
        loaded.finish(loaded.must_claim("load"), ending)
    assert loaded.row("load", "2025-11-12")["deaths"] == 0


def test_finishing_twice_says_recorded_before_and_changes_nothing(loaded: World) -> None:
    claim = loaded.must_claim("load")
    loaded.finish(claim)
    before = loaded.dump()
    again = loaded.finish(claim)
    assert (again.status, again.note) == ("COMPLETE", "recorded before")
    assert loaded.finish(claim, Ending.FAILED).status == "COMPLETE"
    assert loaded.dump() == before


def test_the_log_tail_is_kept_while_running_and_at_the_end(loaded: World) -> None:
    claim = loaded.must_claim("load")
    loaded.store.renew(claim, log_path="/logs/1", log_tail="half way")
    assert loaded.sql("SELECT log_path, log_tail FROM run") == [("/logs/1", "half way")]
    loaded.finish(claim)
    assert loaded.sql("SELECT log_path, log_tail FROM run") == [("/logs/1", "half way")]


# The end of one run and the claim of the next, in one transaction ---------------------------------------------------
def wanted(world: World, jobid: str, dataid: str) -> Next:
    of = world.store.get_job(jobid)
    candidate = world.store.find_candidate(of, dataid)
    assert candidate is not None
    return Next(of, candidate, YES, owner())


def test_the_end_of_a_run_can_take_the_next_dataid(loaded: World) -> None:
    loaded.ready("orders", "2025-11-13")
    first = loaded.must_claim("load")
    finished, taken = loaded.store.finish_and_claim(first, loaded.result(first), wanted(loaded, "load", "2025-11-13"))
    assert (finished.status, taken is not None) == ("COMPLETE", True)
    assert taken is not None
    assert (taken.dataid, taken.attempt) == ("2025-11-13", 1)
    assert taken.runid > first.runid
    assert loaded.locks() == [("orders", "2025-11-13", "load")]
    assert loaded.finish(taken).status == "COMPLETE"


def test_a_next_dataid_that_is_gone_does_not_hinder_the_end_of_the_run(loaded: World) -> None:
    loaded.ready("orders", "2025-11-13")
    first = loaded.must_claim("load")
    following = wanted(loaded, "load", "2025-11-13")
    other = loaded.must_claim("load", "2025-11-13", by=owner("bert"))
    finished, taken = loaded.store.finish_and_claim(first, loaded.result(first), following)
    assert (finished.status, taken) == ("COMPLETE", None)
    assert loaded.chunk("totals", "2025-11-12") == "READY"
    assert loaded.finish(other).status == "COMPLETE"


def test_a_next_dataid_whose_chunk_is_being_read_does_not_hinder_the_end_of_the_run(loaded: World) -> None:
    loaded.ready("orders", "2025-11-13")
    loaded.complete("load", "2025-11-13")
    first = loaded.must_claim("load", "2025-11-12")
    reader = loaded.must_claim("report", "2025-11-13")
    loaded.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'load' AND dataid = '2025-11-13'")
    following = wanted(loaded, "load", "2025-11-13")
    finished, taken = loaded.store.finish_and_claim(first, loaded.result(first), following)
    assert (finished.status, taken) == ("COMPLETE", None)
    assert loaded.chunk("totals", "2025-11-12") == "READY"
    assert loaded.chunk("totals", "2025-11-13") == "RESUBMIT"
    assert loaded.finish(reader).status == "COMPLETE"


def test_a_stale_run_neither_ends_nor_takes_the_next_dataid(loaded: World) -> None:
    loaded.ready("orders", "2025-11-13")
    stale = loaded.must_claim("load")
    loaded.pass_time(61)
    loaded.recover()
    following = wanted(loaded, "load", "2025-11-13")
    before = loaded.dump()
    with pytest.raises(LeaseLost):
        loaded.store.finish_and_claim(stale, loaded.result(stale), following)
    assert loaded.dump() == before


# Leases and fencing -------------------------------------------------------------------------------------------------
def test_a_lease_that_ran_out_is_recovered_and_no_attempt_is_used(loaded: World) -> None:
    lost = loaded.must_claim("load")
    assert loaded.recover() == 0
    loaded.pass_time(59)
    assert loaded.recover() == 0
    loaded.pass_time(2)
    assert loaded.recover() == 1
    row = loaded.row("load", "2025-11-12")
    assert (row["status"], row["attempts"], row["owner"], row["lease_until"]) == ("RESUBMIT", 0, None, None)
    assert loaded.chunk("totals", "2025-11-12") == "RESUBMIT"
    assert loaded.locks() == []
    assert loaded.sql("SELECT status, message FROM run") == [("LOST", "lost")]
    again = loaded.must_claim("load")
    assert again.attempt == 1
    assert again.runid > lost.runid


def test_a_renewed_lease_is_not_recovered(loaded: World) -> None:
    claim = loaded.must_claim("load")
    for _ in range(3):
        loaded.pass_time(50)
        loaded.store.renew(claim)
    assert loaded.recover() == 0
    assert loaded.finish(claim).status == "COMPLETE"


def test_a_lease_renewed_after_it_was_suspected_is_not_recovered(loaded: World) -> None:
    claim = loaded.must_claim("load")
    loaded.pass_time(61)
    (suspect, expired, _), *rest = loaded.store.suspects("")
    assert expired
    assert rest == []
    loaded.store.renew(claim)
    assert loaded.store.recover(suspect, host="", note="lost") is False
    assert loaded.status("load", "2025-11-12") == "RUNNING"


def test_a_dead_owner_on_this_host_is_recovered_before_its_lease_runs_out(loaded: World) -> None:
    loaded.must_claim("load", by=owner("anna", "this-host"))
    assert loaded.store.suspects("other-host") == []
    (suspect, expired, held_by), *_ = loaded.store.suspects("this-host")
    assert not expired
    assert held_by == owner("anna", "this-host")
    assert loaded.store.recover(suspect, host="other-host", note="lost") is False
    assert loaded.store.recover(suspect, host="this-host", note="lost") is True
    assert loaded.status("load", "2025-11-12") == "RESUBMIT"


def test_recovering_a_run_that_another_has_taken_over_changes_nothing(loaded: World) -> None:
    first = loaded.must_claim("load")
    loaded.pass_time(61)
    suspect = LostRun(first.runid, "p", "load", "2025-11-12", owner().name, owner().host)
    assert loaded.store.recover(suspect, host="", note="lost")
    loaded.must_claim("load")
    loaded.pass_time(61)
    before = loaded.dump()
    assert loaded.store.recover(suspect, host="", note="lost") is False
    assert loaded.dump() == before


@pytest.mark.parametrize("since", ["recovered", "claimed", "completed"])
@pytest.mark.parametrize("ending", list(Ending))
def test_a_stale_publish_changes_nothing_and_says_so(loaded: World, ending: Ending, since: str) -> None:
    stale = loaded.must_claim("load", by=owner("stopped"))
    loaded.pass_time(61)
    loaded.recover()
    if since != "recovered":
        second = loaded.must_claim("load", by=owner("second"))
        if since == "completed":
            loaded.finish(second)
    before = loaded.dump()
    with pytest.raises(LeaseLost, match=rf"run {stale.runid} of load/2025-11-12 .* nothing was changed"):
        loaded.finish(stale, ending)
    with pytest.raises(LeaseLost):
        loaded.store.renew(stale, log_tail="late")
    assert loaded.dump() == before


def test_a_run_whose_lease_ran_out_unnoticed_may_still_publish(loaded: World) -> None:
    """Nobody took the work: the token is still the newest, so nothing is done twice."""
    claim = loaded.must_claim("load")
    loaded.pass_time(600)
    assert loaded.finish(claim).status == "COMPLETE"
    assert loaded.recover() == 0


# Refusals, retries, limits ------------------------------------------------------------------------------------------
def test_a_parked_dataid_is_passed_over_with_a_growing_pause_until_it_is_due(loaded: World) -> None:
    loaded.ready("orders", "2025-11-13")
    of = loaded.store.get_job("load")
    for pause in (30, 60, 120):
        loaded.store.refuse(of, "2025-11-12", NO_PATH, park=True)
        assert loaded.next("load") == "2025-11-13"
        loaded.pass_time(pause - 2)
        loaded.store.wake_parked()
        assert loaded.next("load") == "2025-11-13"
        loaded.pass_time(3)
        loaded.store.wake_parked()
        assert loaded.next("load") == "2025-11-12"
    assert "INVALID_PATH" in str(loaded.row("load", "2025-11-12")["refusal"])


def test_the_pause_of_a_parked_dataid_ends_at_one_hour(loaded: World) -> None:
    loaded.sql("UPDATE job_status SET refusals = 50")
    loaded.store.refuse(loaded.store.get_job("load"), "2025-11-12", NO_PATH, park=True)
    loaded.pass_time(3598)
    loaded.store.wake_parked()
    assert loaded.next("load") is None
    loaded.pass_time(3)
    loaded.store.wake_parked()
    assert loaded.next("load") == "2025-11-12"


def test_the_same_refusal_is_written_once(loaded: World) -> None:
    of = loaded.store.get_job("load")
    loaded.store.refuse(of, "2025-11-12", NO_PATH, park=False)
    before = loaded.dump()
    loaded.store.refuse(of, "2025-11-12", NO_PATH, park=False)
    assert loaded.dump() == before
    assert loaded.next("load") == "2025-11-12"


def test_a_persons_resubmit_wakes_a_parked_dataid_at_once(loaded: World) -> None:
    loaded.store.refuse(loaded.store.get_job("load"), "2025-11-12", NO_PATH, park=True)
    loaded.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE dataid = '2025-11-12';")
    assert loaded.status("load", "2025-11-12") == "PENDING"
    assert loaded.next("load") == "2025-11-12"


def test_a_failed_run_with_attempts_left_is_retried_when_due_and_keeps_its_count(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"], retries=2, backoff=10))
    world.ready("orders", "1")
    for attempt, pause in ((1, 10), (2, 20)):
        claim = world.must_claim("load")
        assert claim.attempt == attempt
        finished = world.finish(claim, Ending.FAILED)
        assert (finished.status, f"attempt {attempt} of 3" in finished.note) == ("FAILED", True)
        assert world.chunk("totals", "1") == "FAILED"
        world.pass_time(pause - 2)
        world.store.wake_parked()
        assert world.status("load", "1") == "FAILED"
        world.pass_time(pause * 0.25 + 3)  # so much a pause is spread at most
        world.store.wake_parked()
        assert world.status("load", "1") == "RESUBMIT"
        assert world.chunk("totals", "1") == "RESUBMIT"
        assert world.row("load", "1")["attempts"] == attempt
    assert world.finish(world.must_claim("load"), Ending.FAILED).note == ""
    world.pass_time(100000)
    world.store.wake_parked()
    assert world.status("load", "1") == "FAILED"


def test_a_persons_resubmit_gives_all_attempts_back(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"], retries=1, backoff=10))
    world.ready("orders", "1")
    world.finish(world.must_claim("load"), Ending.FAILED)
    world.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE dataid = '1';")
    row = world.row("load", "1")
    assert (row["status"], row["attempts"], row["parked_until"]) == ("RESUBMIT", 0, None)
    assert world.must_claim("load").attempt == 1


def test_no_more_runs_than_the_limit_are_live(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"], concurrency=2))
    world.ready("orders", "1", "2", "3")
    first, second = world.must_claim("load"), world.must_claim("load")
    of = world.store.get_job("load")
    assert world.store.find_claimable(of) is None
    candidate = world.store.find_candidate(of, "3")
    assert candidate is not None
    assert (candidate.running, candidate.limits) == (2, (Limit("job", "load", 2, 2),))
    before = world.dump()
    assert world.claim("load", "3") is None
    assert world.dump() == before
    world.finish(second, Ending.FAILED)
    assert world.must_claim("load").dataid == "3"
    assert first.dataid == "1"


def test_blocked_and_failed_dataids_are_found_lowest_first(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"], partitions={"shards": "1..12"}))
    of = world.store.get_job("load")
    blocked = world.store.find_blocked(of, count_running=True)
    assert blocked is not None
    assert (blocked.dataid, blocked.waiting, blocked.inputs[0].status) == ("1", 1, None)
    assert world.store.find_failed(of) is None
    world.ready("orders", "1", "2", "10")
    for dataid in ("10", "2"):
        world.finish(world.must_claim("load", dataid), Ending.FAILED)
    failed = world.store.find_failed(of)
    assert failed is not None
    assert failed.dataid == "2"
    world.must_claim("load", "1")
    running = world.store.find_blocked(of, count_running=True)
    assert running is not None
    assert running.dataid == "1"
    waiting = world.store.find_blocked(of, count_running=False)
    assert waiting is not None
    assert waiting.dataid == "3"
