"""Inputs by offset, window, rollup and all; strict order; held jobs; clocks: over both stores."""

import datetime
import json

import pytest
from world import World, job, owner, registration

from opendataflow.arrivals.due import make_due
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.registration import Registration
from opendataflow.execution.prepare import prepare
from opendataflow.store import registry

DAYS = {"daily": "2025-11-01..2025-11-05"}
NOW = datetime.datetime(2025, 12, 1, tzinfo=datetime.UTC)


def with_schemes(wanted: Registration, **schemes: object) -> Registration:
    datasets = tuple(
        one._replace(partitions=json.dumps(schemes[one.datasetid])) if one.datasetid in schemes else one
        for one in wanted.datasets
    )
    return wanted._replace(datasets=datasets)


def applied(world: World, *jobs: object, **schemes: object) -> None:
    registry.apply(world.store, with_schemes(registration(*jobs), **schemes), now=NOW)


def sound(world: World) -> bool:
    return registry.check(world.store, repair=False) == []


def claimable(world: World, jobid: str) -> list[str]:
    of = world.store.get_job(jobid)
    return [one.dataid for one in world.store.list_claimable(of, limit=100)]


def test_an_offset_waits_for_the_day_before_and_locks_it(world: World) -> None:
    applied(world, job("load", ["rates:offset:-1"], ["out"], partitions=DAYS), rates=DAYS)
    world.ready("rates", "2025-11-01", "2025-11-03")
    assert claimable(world, "load") == ["2025-11-02", "2025-11-04"]
    claim = world.must_claim("load")
    assert world.locks() == [("rates", "2025-11-01", "load")]
    assert [key.dataid for key in claim.inputs] == ["2025-11-01"]
    world.finish(claim)
    world.sql("UPDATE datastatus SET status = 'RESUBMIT' WHERE datasetid = 'rates' AND dataid = '2025-11-03'")
    assert claimable(world, "load") == []
    assert sound(world)


def test_a_window_waits_for_all_its_days_and_is_cut_at_the_first(world: World) -> None:
    applied(world, job("mean", ["out:window:3"], ["avg"], partitions=DAYS), out=DAYS)
    world.ready("out", "2025-11-01")
    assert claimable(world, "mean") == ["2025-11-01"]
    world.ready("out", "2025-11-03", "2025-11-02")
    assert claimable(world, "mean") == ["2025-11-01", "2025-11-02", "2025-11-03"]
    of = world.store.get_job("mean")
    reads = world.store.find_candidate(of, "2025-11-03")
    assert [chunk.key.dataid for chunk in reads.inputs] == ["2025-11-01", "2025-11-02", "2025-11-03"]
    assert sound(world)


def test_a_rollup_waits_for_every_hour_of_its_day(world: World) -> None:
    hours = [f"2025-11-01T{hour:02d}" for hour in range(24)]
    applied(
        world, job("day", ["hours:rollup"], ["out"], partitions={"daily": "2025-11-01..2025-11-02"}),
        hours={"hourly": "2025-11-01T00..2025-11-02T23"},
    )  # fmt: skip
    world.ready("hours", *hours[:-1])
    assert claimable(world, "day") == []
    assert world.waiting("day") == {"2025-11-01": 1, "2025-11-02": 24}
    world.ready("hours", hours[-1])
    assert claimable(world, "day") == ["2025-11-01"]
    claim = world.must_claim("day")
    assert len(world.locks()) == 24
    world.finish(claim)
    assert world.locks() == []
    assert sound(world)


def test_all_waits_for_every_shard(world: World) -> None:
    applied(world, job("sum", ["parts:all"], ["total"], partitions="none"), parts={"shards": "1..5"})
    world.ready("parts", "1", "2", "3", "4")
    assert claimable(world, "sum") == []
    world.ready("parts", "5")
    assert claimable(world, "sum") == ["full"]
    assert sound(world)


@pytest.mark.parametrize("scheme", [None, {"sequence": "1"}], ids=["no scheme", "an open sequence"])
def test_all_of_what_nobody_can_foresee_is_what_is_known(world: World, scheme: object) -> None:
    schemes = {} if scheme is None else {"parts": scheme}
    applied(world, job("sum", ["parts:all"], ["total"], partitions="none"), **schemes)
    world.ready("parts", "2", "10", "1")
    of = world.store.get_job("sum")
    make_due(world.store, of)
    candidate = world.store.find_candidate(of, "full")
    assert candidate is not None
    assert [one.key.dataid for one in candidate.inputs] == ["1", "2", "10"]
    assert claimable(world, "sum") == ["full"]


def test_mapped_and_same_inputs_are_counted_together(world: World) -> None:
    applied(world, job("load", ["orders", "rates:offset:-1"], ["out"], partitions=DAYS), rates=DAYS, orders=DAYS)
    world.ready("orders", "2025-11-02")
    assert claimable(world, "load") == []
    world.ready("rates", "2025-11-01")
    assert claimable(world, "load") == ["2025-11-02"]
    assert sound(world)


def test_a_row_that_a_trigger_made_is_mapped_before_it_runs(world: World) -> None:
    """Without a scheme of its own the job gets its rows from its `same` input; what else it reads is found then."""
    applied(world, job("load", ["orders", "rates:offset:-1"], ["out"]))
    world.ready("orders", "7")
    world.ready("rates", "6")
    of = world.store.get_job("load")
    assert claimable(world, "load") == []
    make_due(world.store, of)
    assert claimable(world, "load") == ["7"]
    assert sound(world)


def test_a_map_that_changes_is_found_again(world: World) -> None:
    applied(world, job("load", ["rates:offset:-1"], ["out"], partitions=DAYS), rates=DAYS)
    world.ready("rates", "2025-11-01", "2025-11-02")
    assert claimable(world, "load") == ["2025-11-02", "2025-11-03"]
    applied(world, job("load", ["rates:window:2"], ["out"], partitions=DAYS), rates=DAYS)
    assert claimable(world, "load") == ["2025-11-01", "2025-11-02"]
    applied(world, job("load", ["rates"], ["out"], partitions=DAYS), rates=DAYS)
    assert claimable(world, "load") == ["2025-11-01", "2025-11-02"]
    assert world.sql("SELECT count(*) FROM job_input") == [(0,)]
    assert sound(world)


def test_a_hand_made_link_counts_at_once(world: World) -> None:
    applied(world, job("load", ["orders"], ["out"]))
    world.sql("INSERT INTO dataset (datasetid) VALUES ('extra')")
    world.ready("orders", "1")
    assert claimable(world, "load") == ["1"]
    world.sql("INSERT INTO job_dataset (jobid, itemtype, datasetid) VALUES ('load', 'IN', 'extra')")
    assert claimable(world, "load") == []
    world.ready("extra", "1")
    assert claimable(world, "load") == ["1"]
    world.sql("DELETE FROM job_dataset WHERE datasetid = 'extra'")
    assert claimable(world, "load") == ["1"]
    assert sound(world)


def test_a_job_registered_by_hand_runs(world: World) -> None:
    applied(world, job("load", ["orders"], ["out"]))
    world.sql("INSERT INTO dataset (datasetid) VALUES ('copy')")
    world.ready("out", "9")
    world.sql("INSERT INTO job (jobid, script) VALUES ('again', 'again.sh')")
    world.sql("INSERT INTO job_dataset (jobid, itemtype, datasetid) VALUES ('again', 'IN', 'out')")
    world.sql("INSERT INTO job_dataset (jobid, itemtype, datasetid) VALUES ('again', 'OUT', 'copy')")
    assert claimable(world, "again") == ["9"]
    world.finish(world.must_claim("again"))
    assert world.chunk("copy", "9") == "READY"
    assert sound(world)


# Strict order ---------------------------------------------------------------------------------------------------------
def test_strict_order_gives_no_dataid_before_the_one_before_it(world: World) -> None:
    strict = job("load", ["orders"], ["out"], partitions=DAYS)._replace(strict=1)
    applied(world, strict, orders=DAYS)
    world.ready("orders", "2025-11-01", "2025-11-02", "2025-11-03")
    of = world.store.get_job("load")
    first, second = world.store.list_claimable(of, limit=2)
    assert (first.earlier, second.earlier) == ("2025-11-01", "2025-11-01")
    told = prepare(of, second)
    assert told.refusal is not None
    assert (told.refusal.code, told.exit_code) == ("WRONG_DATA", 11)
    assert "load/2025-11-01 comes first" in told.refusal.evidence
    assert world.store.claim(of, second, prepare(of, first), owner()) is None, "the claim looks for itself"
    claim = world.must_claim("load")
    assert claim.dataid == "2025-11-01"
    assert world.store.claim(of, second, prepare(of, first), owner()) is None, "one that runs is not done"
    world.finish(claim)
    assert world.must_claim("load").dataid == "2025-11-02"


# Held jobs ------------------------------------------------------------------------------------------------------------
def test_a_held_job_gives_nothing_until_it_is_released(world: World) -> None:
    applied(world, job("load", ["orders"], ["out"]))
    world.ready("orders", "1")
    of = world.store.get_job("load")
    before = world.store.find_claimable(of)
    world.sql("UPDATE job SET paused_by = 'anna: migration'")
    assert claimable(world, "load") == []
    assert world.store.claim(of, before, prepare(of, before), owner()) is None
    told = prepare(of, world.store.find_blocked(of, count_running=True))
    assert told.refusal is not None
    assert told.refusal.code == "LOCKED"
    assert "held by anna: migration" in told.refusal.evidence
    world.sql("UPDATE job SET paused_by = NULL")
    assert claimable(world, "load") == ["1"]


# Clocks ---------------------------------------------------------------------------------------------------------------
def clocked(world: World, *, catchup: str = "all", also: tuple[str, ...] = ()) -> None:
    spec = job("stamp", ["today", *also], ["out"])._replace(catchup=catchup)
    wanted = registration(spec)
    datasets = tuple(
        Dataset("p", "today", clock="today") if one.datasetid == "today" else one for one in wanted.datasets
    )
    registry.apply(world.store, wanted._replace(datasets=datasets), now=NOW)


def at(world: World, text: str) -> None:
    moment = datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
    world.store.clock = moment.timestamp


@pytest.mark.parametrize(
    ("catchup", "expected"), [("all", ["2025-11-12", "2025-11-13", "2025-11-14"]), ("latest", ["2025-11-14"])]
)
def test_missed_slots_are_caught_up_with_as_the_job_says(world: World, catchup: str, expected: list[str]) -> None:
    clocked(world, catchup=catchup)
    at(world, "2025-11-11T10:00")
    make_due(world.store, world.store.get_job("stamp"))
    assert claimable(world, "stamp") == ["2025-11-11"], "the current slot, not the past"
    world.finish(world.must_claim("stamp"))
    at(world, "2025-11-14T00:00")
    for _ in range(3):
        make_due(world.store, world.store.get_job("stamp"))
    assert claimable(world, "stamp") == expected
    assert sound(world)


def test_other_inputs_may_come_before_or_after_the_slot(world: World) -> None:
    clocked(world, also=("orders",))
    world.ready("orders", "2025-11-01", "2025-11-11")
    assert world.waiting("stamp") == {}, "only the clock gives this job its dataids"
    at(world, "2025-11-11T10:00")
    make_due(world.store, world.store.get_job("stamp"))
    assert claimable(world, "stamp") == ["2025-11-11"]
    at(world, "2025-11-12T10:00")
    make_due(world.store, world.store.get_job("stamp"))
    assert claimable(world, "stamp") == ["2025-11-11"]
    world.ready("orders", "2025-11-12")
    assert claimable(world, "stamp") == ["2025-11-11", "2025-11-12"]
    assert sound(world)
