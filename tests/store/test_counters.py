"""Readiness by counters: what a claim goes by always equals what the chunks say."""

import datetime

import pytest
from world import NOW, World, job, registration

from opendataflow.store import registry

JOIN = job("join", ["a", "b", "c"], ["out"])


def sound(world: World) -> bool:
    return registry.check(world.store, repair=False) == []


def test_each_input_that_opens_or_closes_moves_the_counter_by_one(world: World) -> None:
    world.apply(JOIN)
    seen = []
    for dataset in "abc":
        world.ready(dataset, "1")
        seen.append(world.waiting("join")["1"])
    world.sql("UPDATE datastatus SET status = 'RESUBMIT' WHERE datasetid = 'b'")
    seen.append(world.waiting("join")["1"])
    world.sql("UPDATE datastatus SET status = 'FAILED' WHERE datasetid = 'b'")
    seen.append(world.waiting("join")["1"])
    world.sql("UPDATE datastatus SET status = 'READY' WHERE datasetid = 'b'")
    seen.append(world.waiting("join")["1"])
    world.sql("UPDATE datastatus SET status = 'READY' WHERE datasetid = 'b'")
    seen.append(world.waiting("join")["1"])
    assert seen == [2, 1, 0, 1, 1, 0, 0]
    assert sound(world)


def test_a_full_input_gates_every_dataid(world: World) -> None:
    world.apply(job("load", ["orders", "rates:full"], ["totals"]))
    world.ready("orders", "1", "2")
    assert world.next("load") is None
    assert world.claim("load", "1") is None
    world.ready("rates", "full")
    assert world.next("load") == "1"
    claim = world.must_claim("load")
    assert world.locks() == [("orders", "1", "load"), ("rates", "full", "load")]
    world.finish(claim)
    world.sql("UPDATE datastatus SET status = 'RESUBMIT' WHERE datasetid = 'rates'")
    assert world.next("load") is None
    assert world.claim("load", "2") is None
    world.sql("UPDATE datastatus SET status = 'READY' WHERE datasetid = 'rates'")
    assert world.next("load") == "2"
    world.sql("DELETE FROM datastatus WHERE datasetid = 'rates'")
    assert world.next("load") is None
    assert sound(world)


def test_a_job_without_inputs_is_claimable_as_soon_as_it_is_expected(world: World) -> None:
    world.apply(job("feed", [], ["orders"], partitions={"shards": "1..3"}))
    for expected in ("1", "2", "3"):
        claim = world.must_claim("feed")
        assert claim.dataid == expected
        world.finish(claim)
    assert world.next("feed") is None


def test_an_input_added_by_apply_is_waited_for(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"]), also=["rates"])
    world.ready("orders", "1", "2")
    world.ready("rates", "2", "3")
    assert world.next("load") == "1"
    changes = world.apply(job("load", ["orders", "rates"], ["totals"]))
    assert changes == ["~ job load"]
    assert world.waiting("load") == {"1": 1, "2": 0, "3": 1}
    assert world.next("load") == "2"
    world.ready("rates", "1")
    assert world.next("load") == "1"
    assert sound(world)


def test_an_input_removed_by_apply_is_no_longer_waited_for(world: World) -> None:
    world.apply(job("load", ["orders", "rates"], ["totals"]))
    world.ready("orders", "1")
    assert world.next("load") is None
    world.apply(job("load", ["orders"], ["totals"]), also=["rates"])
    assert world.next("load") == "1"
    assert sound(world)


def test_an_input_that_becomes_shared_is_counted_once_for_all(world: World) -> None:
    world.apply(job("load", ["orders", "rates"], ["totals"]))
    world.ready("orders", "1")
    world.ready("rates", "full")
    world.apply(job("load", ["orders", "rates:full"], ["totals"]))
    assert world.next("load") == "1"
    assert sound(world)


def test_chunks_that_arrived_before_the_job_was_registered_are_found(world: World) -> None:
    world.apply(job("feed", [], ["orders"]))
    world.ready("orders", "1", "2")
    world.apply(job("feed", [], ["orders"]), job("load", ["orders"], ["totals"]))
    assert world.waiting("load") == {"1": 0, "2": 0}


def test_chunks_that_moved_while_the_job_was_away_are_found_when_it_returns(world: World) -> None:
    load = job("load", ["orders"], ["totals"])
    world.apply(load)
    world.ready("orders", "1", "2")
    assert world.apply(job("feed", [], ["orders"]), also=["totals"])
    world.sql("UPDATE datastatus SET status = 'RESUBMIT' WHERE dataid = '1'")
    world.ready("orders", "3")
    world.apply(load)
    assert world.waiting("load") == {"1": 1, "2": 0, "3": 0}
    assert sound(world)


def test_a_scheme_that_shrinks_and_grows_again_finds_its_ready_inputs(world: World) -> None:
    def apply(last: int) -> None:
        world.apply(job("load", ["orders"], ["totals"], partitions={"shards": f"1..{last}"}))

    apply(3)
    world.ready("orders", "1", "2", "3")
    apply(1)
    assert world.waiting("load") == {"1": 0}
    apply(3)
    assert world.waiting("load") == {"1": 0, "2": 0, "3": 0}
    assert sound(world)


def test_a_scheme_that_shrinks_keeps_what_was_run(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"], partitions={"shards": "1..3"}))
    world.ready("orders", "3")
    world.complete("load", "3")
    world.apply(job("load", ["orders"], ["totals"], partitions={"shards": "1..2"}))
    assert set(world.waiting("load")) == {"1", "2", "3"}
    assert world.status("load", "3") == "COMPLETE"


def test_expected_days_get_their_rows_once_they_are_over(world: World) -> None:
    daily = job("load", ["orders"], ["totals"], partitions={"daily": "2025-11-28.."})
    registry.apply(world.store, registration(daily), now=datetime.datetime(2025, 11, 30, tzinfo=datetime.UTC))
    assert set(world.waiting("load")) == {"2025-11-28", "2025-11-29"}
    assert world.store.get_job("load").expected_upto == "2025-11-29"
    registry.apply(world.store, registration(daily), now=NOW)
    assert set(world.waiting("load")) == {"2025-11-28", "2025-11-29", "2025-11-30"}
    of = world.store.get_job("load")
    world.store.expect(of, ["2025-12-01", "2025-12-02"])
    assert world.store.get_job("load").expected_upto == "2025-12-02"
    assert world.waiting("load")["2025-12-02"] == 1
    world.store.expect_one(of, "2026-01-01")
    assert world.waiting("load")["2026-01-01"] == 1
    with pytest.raises(registry.UsageError, match="'tomorrow' is not a dataid of load"):
        world.store.expect_one(of, "tomorrow")


def test_applying_the_same_again_changes_nothing(world: World) -> None:
    assert world.apply(JOIN) == ["+ dataset a", "+ dataset b", "+ dataset c", "+ dataset out", "+ job join"]
    world.ready("a", "1")
    before = world.dump()
    assert world.apply(JOIN) == []
    after = world.dump()
    assert {**after, "project": None} == {**before, "project": None}


def test_a_plan_says_what_apply_would_do_and_does_nothing(world: World) -> None:
    world.apply(JOIN)
    before = world.dump()
    wanted = registration(job("other", ["a"], ["out"]))
    changes = registry.plan(world.store, wanted, now=NOW)
    assert changes == ["- dataset b (its chunks stay)", "- dataset c (its chunks stay)", "+ job other",
                       "- job join (its history stays)"]  # fmt: skip
    assert world.dump() == before
    assert registry.apply(world.store, wanted, now=NOW) == changes


# The check ----------------------------------------------------------------------------------------------------------
def test_the_check_finds_and_repairs_damaged_counters(world: World) -> None:
    world.apply(JOIN, job("load", ["orders", "rates:full"], ["totals"]))
    world.ready("a", "1")
    world.ready("orders", "1", "2")
    world.ready("rates", "full")
    assert sound(world)
    world.sql("UPDATE job_status SET waiting = 0 WHERE jobid = 'join'")
    world.sql("UPDATE job_status SET waiting = 5 WHERE jobid = 'load' AND dataid = '2'")
    world.sql("UPDATE job SET shared_waiting = 1 WHERE jobid = 'load'")
    world.sql("DELETE FROM job_status WHERE jobid = 'load' AND dataid = '1'")
    found = registry.check(world.store, repair=False)
    assert sorted(found) == [
        "job load waits for 1 shared inputs by its counter, 0 by its chunks",
        "join/1 waits for 0 inputs by its counter, 2 by its chunks",
        "load/1 has an input but no row",
        "load/2 waits for 5 inputs by its counter, 0 by its chunks",
    ]
    assert sorted(registry.check(world.store, repair=True)) == sorted(found)
    assert sound(world)
    assert world.waiting("join") == {"1": 2}
    assert world.waiting("load") == {"1": 0, "2": 0}
    assert world.next("load") == "1"


def test_the_check_finds_and_releases_locks_of_runs_that_ended(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"]))
    world.ready("orders", "1", "2")
    world.must_claim("load")
    world.sql(
        "INSERT INTO datastatus (datasetid, dataid, locktype, reader, jobid, status) "
        "VALUES ('orders', '2', 'IN', '999', 'load', 'RUNNING')"
    )
    assert registry.check(world.store, repair=True) == ["orders/2 is locked by run 999, which has ended"]
    assert world.locks() == [("orders", "1", "load")]
    assert sound(world)


def test_the_sweep_of_one_dataid_sets_its_counter_right(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"]))
    world.ready("orders", "1", "2")
    world.sql("UPDATE job_status SET waiting = 3")
    world.store.recount(world.store.get_job("load"), "2")
    assert world.waiting("load") == {"1": 3, "2": 0}
    world.store.recount(world.store.get_job("load"))
    assert world.waiting("load") == {"1": 0, "2": 0}
