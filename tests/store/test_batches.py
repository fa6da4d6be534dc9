"""Many ends, claims and renewals in one transaction: each as exact as alone."""

import pytest
from world import YES, World, job, owner

from opendataflow.domain.runs.run import Claim, Ending, Finished
from opendataflow.errors import LeaseLost
from opendataflow.store.claims import Next
from opendataflow.store.records import workers

LOAD = job("load", ["orders"], ["totals"])


def wanted(world: World, *dataids: str, jobid: str = "load") -> list[Next]:
    of = world.store.get_job(jobid)
    found = [world.store.find_candidate(of, dataid) for dataid in dataids]
    return [Next(of, one, YES, owner()) for one in found if one is not None]


def taken(claims: list[Claim | None]) -> list[str | None]:
    return [claim and claim.dataid for claim in claims]


def test_ends_and_claims_together_are_each_exact(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"], retries=1), job("report", ["totals"], ["pages"]))
    world.ready("orders", *(str(number) for number in range(1, 10)))
    done, failed, lost, again = (world.must_claim("load") for _ in range(4))
    world.pass_time(61)
    for claim in (done, failed, again):
        world.store.renew(claim)
    assert world.recover() == 1  # `lost` is somebody else's now
    theirs = world.must_claim("load", lost.dataid, by=owner("carl"))
    world.sql(f"UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'load' AND dataid = '{again.dataid}'")
    want = wanted(world, "6", "5", "7")
    world.sql("UPDATE job_status SET status = 'HOLD' WHERE jobid = 'load' AND dataid = '5'")  # it moved
    ends = [(done, world.result(done)), (lost, world.result(lost)), (failed, world.result(failed, Ending.FAILED)),
            (again, world.result(again))]  # fmt: skip
    ended, claims = world.store.finish_and_claim_many(ends, want)
    assert [type(one) for one in ended] == [Finished, LeaseLost, Finished, Finished]
    assert [one.status for one in ended if isinstance(one, Finished)] == ["COMPLETE", "FAILED", "RESUBMIT"]
    assert f"run {lost.runid} of load/{lost.dataid} no longer holds its lease" in str(ended[1])
    assert taken(claims) == ["6", None, "7"]
    statuses = {dataid: world.status("load", dataid) for dataid in ("1", "2", "3", "4", "5", "6", "7", "8")}
    assert statuses == {
        "1": "COMPLETE", "2": "FAILED", "3": "RUNNING", "4": "RESUBMIT", "5": "HOLD", "6": "RUNNING", "7": "RUNNING",
        "8": "PENDING",
    }  # fmt: skip
    assert world.row("load", "3")["runid"] == theirs.runid
    assert world.next("report") == "1"
    assert (world.chunk("totals", "1"), world.chunk("totals", "4")) == ("READY", "RESUBMIT")
    assert world.finish(theirs).status == "COMPLETE"
    # Told again, as after a lost answer, it is the same.
    assert world.store.finish_and_claim_many(ends[:1], [])[0] == [Finished("COMPLETE", "recorded before")]


def test_either_side_of_a_batch_may_be_empty(world: World) -> None:
    world.apply(LOAD)
    world.ready("orders", "1", "2")
    before = world.dump()
    assert world.store.finish_and_claim_many([], []) == ([], [])
    assert world.store.renew_many([]) == []
    assert world.store.list_claimable_all([], 5) == {}
    assert world.dump() == before
    ended, claims = world.store.finish_and_claim_many([], wanted(world, "2", "1"))
    assert (ended, taken(claims)) == ([], ["2", "1"])
    ended, none = world.store.finish_and_claim_many([(one, world.result(one)) for one in claims if one], [])
    assert ([one.status for one in ended if isinstance(one, Finished)], none) == (["COMPLETE", "COMPLETE"], [])


def test_a_batch_makes_room_by_what_it_ends_and_takes_no_more(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"], concurrency=3))
    world.ready("orders", *(str(number) for number in range(1, 10)))
    of, key = world.store.get_job("load"), ("p", "load")
    held = [world.must_claim("load") for _ in range(3)]
    assert world.store.list_claimable_all([of], 5) == {}
    found = world.store.list_claimable_all([of], 5, ending={key: 2})
    assert [one.dataid for one in found[key]] == ["4", "5"]
    ended, claims = world.store.finish_and_claim_many(
        [(one, world.result(one)) for one in held[:2]], wanted(world, "4", "5", "6")
    )
    assert [type(one) for one in ended] == [Finished, Finished]
    assert taken(claims) == ["4", "5", None]
    workers.set_limit(world.store, of, 1)
    assert world.store.list_claimable_all([of], 5, ending={key: 2}) == {}
    _, claims = world.store.finish_and_claim_many([(held[2], world.result(held[2]))], wanted(world, "7"))
    assert claims == [None]


def test_one_look_finds_the_work_of_many_jobs(world: World) -> None:
    names = ("a", "b", "c", "d", "e")
    world.apply(*(job(name, [f"in_{name}"], [f"out_{name}"]) for name in names), job("f", ["in_f", "all:full"], []))
    for name in names[:4]:
        world.ready(f"in_{name}", "10", "9", "1")
    world.ready("in_f", "1")  # waits for a chunk that every dataid shares
    jobs = [world.store.get_job(name) for name in (*names, "f")]
    workers.set_limit(world.store, jobs[1], 1)
    workers.pause(world.store, jobs[2])
    world.sql("UPDATE job SET strict = 1 WHERE jobid = 'd'")
    jobs[3] = world.store.get_job("d")
    found = world.store.list_claimable_all(jobs, 2)
    assert {key[1]: [one.dataid for one in each] for key, each in found.items()} == {
        "a": ["1", "9"], "b": ["1"], "d": ["1", "9"]
    }  # fmt: skip
    assert found["p", "a"] == world.store.list_claimable(jobs[0], limit=2)
    assert found["p", "d"] == world.store.list_claimable(jobs[3], limit=2)
    assert [one.earlier for one in found["p", "d"]] == ["1", "1"]
    workers.pause(world.store, None)
    assert world.store.list_claimable_all(jobs, 2) == {}


def test_many_leases_are_renewed_at_once_but_for_those_that_are_lost(world: World) -> None:
    world.apply(LOAD)
    world.ready("orders", "1", "2", "3")
    first, lost, third = (world.must_claim("load") for _ in range(3))
    world.pass_time(61)
    world.store.renew(first)
    world.store.renew(third)
    world.recover()
    world.pass_time(30)
    until = {dataid: world.row("load", dataid)["lease_until"] for dataid in ("1", "2", "3")}
    told = world.store.renew_many([(first, "/logs/1", "line 1"), (lost, "/logs/2", "line 2"), (third, None, None)])
    assert [type(one) for one in told] == [type(None), LeaseLost, type(None)]
    after = {dataid: world.row("load", dataid)["lease_until"] for dataid in ("1", "2", "3")}
    assert (after["1"] > until["1"], after["2"], after["3"] > until["3"]) == (True, None, True)
    tails = world.sql("SELECT dataid, log_path, log_tail FROM run ORDER BY runid")
    assert tails == [("1", "/logs/1", "line 1"), ("2", None, ""), ("3", None, "")]


def test_what_the_store_refuses_leaves_nothing_of_the_batch(world: World) -> None:
    world.apply(LOAD)
    world.ready("orders", "1", "2")
    first = world.must_claim("load")
    bad = world.result(first)._replace(log_tail=object())
    before = world.dump()
    with pytest.raises(Exception, match=r"(?i)object|type"):
        world.store.finish_and_claim_many([(first, bad)], wanted(world, "2"))
    assert world.dump() == before
