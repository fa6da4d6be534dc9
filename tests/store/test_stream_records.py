"""Streams in the store: ranges of offsets are claimed and published once; slots, items set aside, tokens."""

import json

import pytest
from world import World, job, owner

from opendataflow.domain.job import Job
from opendataflow.domain.registration import JobSpec
from opendataflow.domain.runs.run import Claim, Ending
from opendataflow.errors import Refused, UsageError
from opendataflow.store.records import streams
from opendataflow.store.records.streams import Failure
from opendataflow.store.registry import check

AT = "2026-11-16T13:05:00.000Z"
SLOT, NEXT = "2026-11-16T13", "2026-11-16T14"
STREAM = {
    "schema": [["email", "string", True]], "max_batch": 100, "seal": "hourly", "every": 0.2, "retention": 60.0,
    "backlog": 10, "body": 1024, "on_error": "set_aside", "from": {"intake": True}, "destination": "leads",
    "live": "leads_live", "in_table": False,
}  # fmt: skip
SEAL = {"seal": {"stream": "leads", "every": "hourly", "records": False}}


def stream_jobs() -> tuple[JobSpec, JobSpec]:
    leads = job("leads", ["planes:full"], ["leads_live"], concurrency=1)
    seal = job("leads_seal", ["leads_live:rollup"], ["leads"], concurrency=1)
    return leads._replace(definition=json.dumps({"stream": STREAM})), seal._replace(definition=json.dumps(SEAL))


@pytest.fixture
def leads(world: World) -> Job:
    world.apply(*stream_jobs(), job("other", ["planes:full"], ["else"]))
    world.ready("planes", "full")
    return world.store.get_job("leads")


def begin(world: World, leads: Job, start: int, end: int, slot: str = SLOT) -> Claim:
    dataid = streams.expect_batch(world.store, leads, start, end, at=AT, slot=slot)
    return world.must_claim("leads", dataid)


def commit(world: World, leads: Job, *ranges: tuple[int, int], slot: str = SLOT) -> None:
    for start, end in ranges:
        world.finish(begin(world, leads, start, end, slot))


def test_a_stream_is_where_its_highest_published_batch_ends(world: World, leads: Job) -> None:
    assert streams.committed_end(world.store, leads) == 0
    commit(world, leads, (0, 7), (7, 2_000))
    assert streams.committed_end(world.store, leads) == 2_000
    begun = begin(world, leads, 2_000, 2_010)
    assert streams.committed_end(world.store, leads) == 2_000
    assert begun.dataid == "000000002000-000000002009"
    assert [key.datasetid for key in begun.inputs] == ["planes"]
    world.finish(begun)
    assert world.chunk("leads_live", begun.dataid) == "READY"
    assert streams.counters(world.store, leads)[:2] == (2_010, 0)
    assert streams.counters(world.store, leads).rate == pytest.approx(2_010 / 60)


def test_an_item_is_claimed_in_one_range_only(world: World, leads: Job) -> None:
    streams.expect_batch(world.store, leads, 0, 500, at=AT, slot=SLOT)  # and then its runner died
    claim = begin(world, leads, 0, 800)
    assert [row["dataid"] for row in world_rows(world)] == ["000000000000-000000000799"]
    with pytest.raises(
        Refused, match=r"overlaps 000000000000-000000000799, which is RUNNING by anna@host-1:1"
    ) as refused:
        streams.expect_batch(world.store, leads, 500, 900, at=AT, slot=SLOT)
    assert refused.value.exit_code == 14
    world.finish(claim, Ending.HANDED_BACK)
    # A destination may have it already: it keeps its boundaries until it is published.
    with pytest.raises(Refused, match="which is RESUBMIT"):
        streams.expect_batch(world.store, leads, 0, 500, at=AT, slot=SLOT)
    assert streams.find_begun(world.store, leads) == (0, 800)
    commit(world, leads, (0, 800))
    assert streams.find_begun(world.store, leads) is None
    with pytest.raises(UsageError, match="which is published"):
        streams.expect_batch(world.store, leads, 700, 900, at=AT, slot=SLOT)


def world_rows(world: World) -> list[dict[str, object]]:
    found = world.sql("SELECT dataid, status FROM job_status WHERE jobid = 'leads' ORDER BY dataid")
    return [{"dataid": dataid, "status": status} for dataid, status in found]


def test_a_lost_batch_is_taken_up_again_with_the_same_items(world: World, leads: Job) -> None:
    commit(world, leads, (0, 10))
    begin(world, leads, 10, 20)
    world.pass_time(3600)
    assert world.recover() == 1
    assert streams.find_begun(world.store, leads) == (10, 20)
    assert streams.first_kept(world.store, leads) == 10
    commit(world, leads, (10, 20))
    assert world.row("leads", "000000000010-000000000019")["attempts"] == 1  # the lost one did not count
    assert streams.first_kept(world.store, leads) == 20


def test_what_is_resubmitted_in_between_is_told_and_kept_in_the_log(world: World, leads: Job) -> None:
    commit(world, leads, (0, 10), (10, 20), (20, 30))
    world.sql(
        "UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'leads' AND dataid = '000000000010-000000000019'"
    )
    assert streams.list_again(world.store, leads) == ["000000000010-000000000019"]
    assert streams.committed_end(world.store, leads) == 30
    assert streams.first_kept(world.store, leads) == 10


def test_a_slot_is_sealed_from_its_own_batches_once_all_are_published(world: World, leads: Job) -> None:
    seal = world.store.get_job("leads_seal")
    commit(world, leads, (0, 10), (10, 20))
    commit(world, leads, (20, 30), slot=NEXT)
    open_batch = begin(world, leads, 30, 40, slot=NEXT)
    assert streams.due_slots(world.store, leads, upto=SLOT) == []
    assert streams.due_slots(world.store, leads, upto="2026-11-16T15") == [SLOT]
    streams.expect_seal(world.store, seal, SLOT)
    assert streams.due_slots(world.store, leads, upto="2026-11-16T15") == []
    claim = world.must_claim("leads_seal")
    assert (claim.dataid, [key.dataid for key in claim.inputs]) == (
        SLOT, ["000000000000-000000000009", "000000000010-000000000019"]
    )  # fmt: skip
    world.finish(claim)
    assert world.chunk("leads", SLOT) == "READY"
    assert streams.sealed_rows(world.store, leads, SLOT) == 14
    world.finish(open_batch)
    assert streams.due_slots(world.store, leads, upto="2026-11-16T15") == [NEXT]
    world.apply(*stream_jobs())  # registering again keeps what was mapped
    assert world.row("leads_seal", SLOT)["status"] == "COMPLETE"


def test_replaying_closes_batches_and_slots_until_they_are_made_again(world: World, leads: Job) -> None:
    seal = world.store.get_job("leads_seal")
    commit(world, leads, (0, 10))
    commit(world, leads, (10, 20), (20, 30), slot=NEXT)
    for slot in (SLOT, NEXT):
        streams.expect_seal(world.store, seal, slot)
        world.complete("leads_seal", slot)
    assert len(streams.resubmit_since(world.store, leads, 15, dry_run=True)) == 3
    assert world.chunk("leads", NEXT) == "READY"
    streams.resubmit_since(world.store, leads, 15)
    assert (world.chunk("leads", SLOT), world.chunk("leads", NEXT)) == ("READY", "RESUBMIT")
    assert streams.committed_end(world.store, leads) == 10
    assert world.next("leads_seal") is None  # its batches come first
    assert streams.find_begun(world.store, leads) == (10, 20)
    commit(world, leads, (10, 20), (20, 30), slot=NEXT)
    assert world.next("leads_seal") == NEXT


def test_batches_of_sealed_slots_are_forgotten_but_never_where_the_stream_stands(world: World, leads: Job) -> None:
    seal = world.store.get_job("leads_seal")
    commit(world, leads, (0, 10), (10, 20))
    commit(world, leads, (20, 30), slot=NEXT)
    streams.expect_seal(world.store, seal, SLOT)
    assert streams.forget_batches(world.store, leads, before="2026-11-17") == 0  # not sealed yet
    claim = world.must_claim("leads_seal")
    world.finish(claim)
    assert streams.forget_batches(world.store, leads, before=SLOT) == 0
    assert len(streams.list_forgettable(world.store, leads, before="2026-11-17")) == 2
    assert streams.forget_batches(world.store, leads, before="2026-11-17") == 2
    assert [row["dataid"] for row in world_rows(world)] == ["000000000020-000000000029"]
    assert world.chunk("leads_live", "000000000000-000000000009") is None
    assert world.chunk("leads", SLOT) == "READY"
    assert streams.committed_end(world.store, leads) == 30
    assert check(world.store, repair=False) == []
    # Sealed again, the slot waits for what is gone; also when its inputs are worked out anew.
    world.sql(f"UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'leads_seal' AND dataid = '{SLOT}'")
    world.store.recount(seal, SLOT)
    assert world.next("leads_seal") is None
    assert world.waiting("leads_seal")[SLOT] == 1


def test_items_set_aside_are_those_of_the_last_try(world: World, leads: Job) -> None:
    claim = begin(world, leads, 0, 10)
    bad = [Failure(3, AT, "ValueError: no\0t an address", '{"email": "\\u0000x\'"}'), Failure(7, AT, "boom", "{}")]
    streams.set_aside(world.store, leads, 0, 10, bad, runid=claim.runid)
    streams.set_aside(world.store, leads, 0, 10, bad[:1], runid=claim.runid)
    assert streams.counters(world.store, leads).failed == 0  # not published yet
    world.finish(claim)
    (found,) = streams.list_failed(world.store, leads)
    assert (found.offset, found.at, found.runid, json.loads(found.item)) == (3, AT, claim.runid, {"email": "\0x'"})
    assert found.error == "ValueError: no\N{REPLACEMENT CHARACTER}t an address"
    assert streams.counters(world.store, leads).failed == 1
    streams.mark_replayed(world.store, leads, {3: "leads-11"})
    assert streams.list_failed(world.store, leads) == []
    assert streams.list_failed(world.store, leads, offsets=[3])[0].replayed_as == "leads-11"
    streams.set_aside(world.store, leads, 0, 10, bad, runid=claim.runid + 1)  # a batch that is made again
    assert [(one.offset, one.replayed_as) for one in streams.list_failed(world.store, leads, replayed=True)] == [
        (3, "leads-11"), (7, None)
    ]  # fmt: skip
    assert streams.counters(world.store, leads)[1:3] == (1, 1)


def test_a_token_is_kept_as_a_hash_and_one_at_a_time(world: World, leads: Job) -> None:
    row = streams.get_stream(world.store, "leads", project="p")
    assert not streams.is_token(row, "")
    assert not streams.is_token(row, "-")
    first, second = streams.new_token(world.store, leads), streams.new_token(world.store, leads)
    row = streams.get_stream(world.store, "leads", project=None)
    assert [streams.is_token(row, one) for one in (first, second, second[:-1], f"{second}\udcff")] == [
        False, True, False, False
    ]  # fmt: skip
    assert not any(second in str(cell) for rows in world.dump().values() for line in rows for cell in line)
    assert streams.revoke_token(world.store, leads)
    assert not streams.revoke_token(world.store, leads)
    assert not streams.is_token(streams.get_stream(world.store, "leads", project="p"), second)


def test_how_a_stream_stands_is_what_its_runner_last_said(world: World, leads: Job) -> None:
    (row,) = streams.list_streams(world.store, project="p")
    assert (row.jobid, row.state, row.accepted, row.settings.live) == ("leads", "NEW", 0, "leads_live")
    streams.report(world.store, leads, state=streams.RUNNING, accepted=50, oldest_at=AT)
    streams.report(world.store, leads, state=streams.FAILED, reason="the module has no run")
    row = streams.get_stream(world.store, "leads", project="p")
    assert (row.state, row.reason, row.accepted, row.oldest_at, row.owner) == (
        "FAILED", "the module has no run", 50, None, "tests"
    )  # fmt: skip
    world.sql("UPDATE job SET paused_by = 'anna' WHERE jobid = 'leads'")
    assert streams.get_stream(world.store, "leads", project="p").paused_by == "anna"
    with pytest.raises(UsageError, match="'other' is not a stream pipeline"):
        streams.get_stream(world.store, "other", project="p")
    with pytest.raises(UsageError, match="known are leads"):
        streams.get_stream(world.store, "lead", project="p")


def test_two_runners_never_hold_the_same_item(world: World, leads: Job) -> None:
    """The range of the first is refused to the second while it runs, and published to it afterwards."""
    other = world.open(actor="other")
    mine = begin(world, leads, 0, 10)
    for start, end in ((0, 10), (0, 11), (9, 12)):
        if (start, end) != (0, 10):
            with pytest.raises(Refused):
                streams.expect_batch(other, leads, start, end, at=AT, slot=SLOT)
    assert world.claim("leads", mine.dataid, by=owner("berta"), store=other) is None
    world.finish(mine)
    assert streams.committed_end(other, leads) == 10
    other.close()
