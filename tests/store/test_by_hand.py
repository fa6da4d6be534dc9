"""SQL is an interface: what operators type is honoured, recorded, and agrees with the table of transitions."""

import contextlib
import itertools
import re
import sqlite3
from typing import Any

import psycopg
import pytest
from world import World, job

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.job import JobStatus
from opendataflow.domain.runs.run import Claim, Ending
from opendataflow.domain.runs.transitions import CHUNK_TRANSITIONS, JOB_TRANSITIONS, ChunkEvent, JobEvent
from opendataflow.errors import Refused, UsageError
from opendataflow.store import registry
from opendataflow.store.operations import Key, hold, release, resubmit
from opendataflow.store.published import take_back

RESUBMIT = "UPDATE job_status SET status = 'RESUBMIT' WHERE dataid = '2025-11-12';"
DAY = "2025-11-12"
REFUSED = (psycopg.Error, sqlite3.Error)


@pytest.fixture
def loaded(world: World) -> World:
    world.apply(job("load", ["orders"], ["totals"]), job("report", ["totals"], ["pages"]))
    world.ready("orders", DAY)
    return world


def bring_to(world: World, status: JobStatus) -> Any:
    """Let load/DAY come to the status the way it does in life; returns the live claim, if there is one."""
    if status in (JobStatus.PENDING, JobStatus.HOLD):
        if status is JobStatus.HOLD:
            world.sql("UPDATE job_status SET status = 'HOLD' WHERE jobid = 'load'")
        return None
    claim = world.must_claim("load")
    ending = {
        JobStatus.COMPLETE: Ending.COMPLETE,
        JobStatus.FAILED: Ending.FAILED,
        JobStatus.RESUBMIT: Ending.HANDED_BACK,
    }.get(status)
    if ending is None:
        return claim
    world.finish(claim, ending)
    return None


# The whole table -----------------------------------------------------------------------------------------------------
def change_of_job(world: World, event: JobEvent, dataid: str, claim: Claim | None) -> None:
    """Let it happen, or try to."""
    load, of_row = world.store.get_job("load"), f"WHERE jobid = 'load' AND dataid = '{dataid}'"
    ending = {
        JobEvent.COMPLETE: Ending.COMPLETE, JobEvent.FAIL: Ending.ABORTED, JobEvent.GIVE_BACK: Ending.HANDED_BACK,
    }.get(event)  # fmt: skip
    with contextlib.suppress(UsageError, *REFUSED):
        if ending is not None and claim is not None:
            world.finish(claim, ending)
        elif event is JobEvent.CLAIM:
            world.claim("load", dataid)
        elif event is JobEvent.RETRY:
            world.pass_time(40)
            world.store.wake_parked()
        elif event is JobEvent.RESUBMIT:
            world.sql(f"UPDATE job_status SET status = 'RESUBMIT' {of_row}")
        elif event is JobEvent.HOLD:
            hold(world.store, load, [dataid])
        elif event is JobEvent.RELEASE:
            release(world.store, load, [dataid])
        elif event is JobEvent.ASSERT:
            world.sql(
                f"DELETE FROM datastatus WHERE datasetid = 'totals' AND dataid = '{dataid}' AND status <> 'RUNNING'"
            )
            world.ready("totals", dataid)


def test_what_becomes_of_a_job_is_what_the_table_says_and_nothing_else_happens(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"], retries=1, lease=3600.0))
    for number, (status, event) in enumerate(itertools.product(JobStatus, JobEvent), 1):
        dataid = str(number)
        world.ready("orders", dataid)
        claim = None
        if status is JobStatus.HOLD:
            hold(world.store, world.store.get_job("load"), [dataid])
        elif status is not JobStatus.PENDING:
            claim = world.must_claim("load", dataid)
            ending = {
                JobStatus.COMPLETE: Ending.COMPLETE, JobStatus.FAILED: Ending.FAILED,
                JobStatus.RESUBMIT: Ending.HANDED_BACK,
            }.get(status)  # fmt: skip
            if ending is not None:
                world.finish(claim, ending)
                claim = None
        assert world.status("load", dataid) == status
        change_of_job(world, event, dataid, claim)
        after = JOB_TRANSITIONS.get((status, event), status)
        assert world.status("load", dataid) == after, f"{status} {event}"


def change_of_chunk(world: World, event: ChunkEvent, dataid: str, claim: Claim | None) -> None:
    """Let it happen by the verbs of a store, or try to."""
    load = world.store.get_job("load")
    ending = {ChunkEvent.PUBLISH: Ending.COMPLETE, ChunkEvent.FAIL: Ending.FAILED}.get(event)
    with contextlib.suppress(UsageError, Refused):
        if ending is not None and claim is not None:
            world.finish(claim, ending)
        elif event is ChunkEvent.CLOSE and claim is not None:
            world.sql(f"UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'load' AND dataid = '{dataid}'")
            world.finish(claim)
        elif event is ChunkEvent.CLOSE:
            take_back(world.store, load.outputs[0].dataset, load, [dataid])
        elif event is ChunkEvent.PRODUCE and claim is None:
            world.sql(f"UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'load' AND dataid = '{dataid}'")
            world.claim("load", dataid)
        elif event is ChunkEvent.ASSERT:
            registry.assert_ready(world.store, load.outputs[0].dataset, dataid, registry.Manifest("/x"))


def test_what_becomes_of_a_chunk_is_what_the_table_says_and_nothing_else_happens(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"], lease=3600.0))
    reached = [status for status in ChunkStatus if status is not ChunkStatus.HOLD]  # which only people set
    for number, (status, event) in enumerate(itertools.product(reached, ChunkEvent), 1):
        dataid = str(number)
        world.ready("orders", dataid)
        claim = None
        if status is ChunkStatus.PENDING:
            world.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('totals', '{dataid}', 'PENDING')")
        else:
            claim = world.must_claim("load", dataid)
            if status is not ChunkStatus.RUNNING:
                world.finish(claim, Ending.FAILED if status is ChunkStatus.FAILED else Ending.COMPLETE)
                claim = None
            if status is ChunkStatus.RESUBMIT:
                world.sql(
                    f"UPDATE datastatus SET status = 'RESUBMIT' WHERE datasetid = 'totals' AND dataid = '{dataid}'"
                )
        assert world.chunk("totals", dataid) == status
        change_of_chunk(world, event, dataid, claim)
        after = CHUNK_TRANSITIONS.get((status, event), status)
        assert world.chunk("totals", dataid) == after, f"{status} {event}"


# RESUBMIT -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("status", list(JobStatus))
def test_resubmit_by_sql_does_what_the_table_of_transitions_says(loaded: World, status: JobStatus) -> None:
    bring_to(loaded, status)
    assert loaded.status("load", DAY) == status
    loaded.sql(RESUBMIT)
    assert loaded.status("load", DAY) == JOB_TRANSITIONS[status, JobEvent.RESUBMIT]
    row = loaded.row("load", DAY)
    assert row["again"] == (1 if status is JobStatus.RUNNING else 0)
    closed = {JobStatus.RUNNING: "RUNNING", JobStatus.PENDING: None, JobStatus.HOLD: None}.get(status, "RESUBMIT")
    assert loaded.chunk("totals", DAY) == closed
    assert loaded.next("report") is None


def test_one_update_treats_every_job_by_its_own_status(world: World) -> None:
    names = [str(status).lower() for status in JobStatus]
    world.apply(*(job(name, ["orders"], [f"{name}_out"]) for name in names))
    world.ready("orders", DAY, "2025-11-13")
    for name in names:
        if name in ("complete", "failed", "resubmit", "running"):
            claim = world.must_claim(name, DAY)
            endings = {"complete": Ending.COMPLETE, "failed": Ending.FAILED, "resubmit": Ending.HANDED_BACK}
            if name in endings:
                world.finish(claim, endings[name])
    world.sql("UPDATE job_status SET status = 'HOLD' WHERE jobid = 'hold'")
    assert {name: world.status(name, DAY) for name in names} == {name: name.upper() for name in names}
    world.sql(RESUBMIT)
    expected = {str(s).lower(): str(JOB_TRANSITIONS[s, JobEvent.RESUBMIT]) for s in JobStatus}
    assert {name: world.status(name, DAY) for name in names} == expected
    assert {world.status(name, "2025-11-13") for name in names if name != "hold"} == {"PENDING"}


def test_resubmit_of_a_whole_chain_in_one_update_runs_it_again_in_order(loaded: World) -> None:
    loaded.complete("load", DAY)
    loaded.complete("report", DAY)
    loaded.sql(RESUBMIT)
    assert (loaded.status("load", DAY), loaded.status("report", DAY)) == ("RESUBMIT", "RESUBMIT")
    assert (loaded.chunk("totals", DAY), loaded.chunk("pages", DAY)) == ("RESUBMIT", "RESUBMIT")
    assert loaded.waiting("report") == {DAY: 1}
    assert loaded.next("report") is None
    loaded.complete("load", DAY)
    assert loaded.next("report") == DAY
    loaded.complete("report", DAY)
    assert registry.check(loaded.store, repair=False) == []


def test_resubmit_of_a_running_job_means_again_after_this_run(loaded: World) -> None:
    claim = loaded.must_claim("load")
    loaded.sql(RESUBMIT)
    assert (loaded.status("load", DAY), loaded.row("load", DAY)["again"]) == ("RUNNING", 1)
    loaded.store.renew(claim)
    finished = loaded.finish(claim)
    assert finished.status == "RESUBMIT"
    assert "RESUBMIT was set while it ran" in finished.note
    assert loaded.row("load", DAY)["again"] == 0
    assert loaded.chunk("totals", DAY) == "RESUBMIT"
    assert loaded.next("report") is None
    assert loaded.must_claim("load").attempt == 1
    assert loaded.sql("SELECT status FROM run ORDER BY runid") == [("COMPLETE",), ("RUNNING",)]


@pytest.mark.parametrize("ending", [Ending.FAILED, Ending.DIED, Ending.HANDED_BACK])
def test_resubmit_of_a_running_job_that_does_not_complete_runs_it_again_too(loaded: World, ending: Ending) -> None:
    claim = loaded.must_claim("load")
    loaded.sql(RESUBMIT)
    assert loaded.finish(claim, ending).status == "RESUBMIT"
    assert loaded.chunk("totals", DAY) == "RESUBMIT"
    assert loaded.next("load") == DAY


def test_resubmit_through_the_store_is_all_or_none(loaded: World) -> None:
    loaded.complete("load", DAY)
    [done] = resubmit(loaded.store, [Key("p", "load", DAY)])
    assert (done["jobid"], done["dataid"], done["before"], done["status"]) == ("load", DAY, "COMPLETE", "RESUBMIT")
    assert not done["again"]
    loaded.complete("load", DAY)
    with pytest.raises(UsageError, match="load has no dataid '1999-01-01'"):
        resubmit(loaded.store, [Key("p", "load", DAY), Key("p", "load", "1999-01-01")])
    assert loaded.status("load", DAY) == "COMPLETE"


def test_resubmit_of_a_chunk_resubmits_the_job_that_makes_it(loaded: World) -> None:
    loaded.complete("load", DAY)
    loaded.sql(f"UPDATE datastatus SET status = 'RESUBMIT' WHERE datasetid = 'totals' AND dataid = '{DAY}'")
    assert loaded.status("load", DAY) == "RESUBMIT"
    assert loaded.waiting("report") == {DAY: 1}


# What a live run holds ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("status", ["HOLD", "COMPLETE"])
def test_a_running_job_is_not_taken_from_its_owner_by_hand(loaded: World, status: str) -> None:
    """The table allows a RUNNING job only RESUBMIT; anything else would leave its locks behind for ever."""
    claim = loaded.must_claim("load")
    with pytest.raises(REFUSED, match="RUNNING"):
        loaded.sql(f"UPDATE job_status SET status = '{status}' WHERE jobid = 'load'")
    assert loaded.finish(claim).status == "COMPLETE"
    assert loaded.locks() == []


@pytest.mark.parametrize("status", ["PENDING", "COMPLETE"])
def test_nothing_is_set_running_by_hand(loaded: World, status: str) -> None:
    """A RUNNING row without an owner and a lease would never be recovered."""
    bring_to(loaded, JobStatus(status))
    with pytest.raises(REFUSED, match="RUNNING"):
        loaded.sql("UPDATE job_status SET status = 'RUNNING' WHERE jobid = 'load'")
    assert loaded.status("load", DAY) == status


def test_resubmit_of_a_chunk_by_hand_leaves_the_locks_of_its_readers(loaded: World) -> None:
    loaded.complete("load", DAY)
    reader = loaded.must_claim("report")
    loaded.sql(f"UPDATE datastatus SET status = 'RESUBMIT' WHERE datasetid = 'totals' AND dataid = '{DAY}'")
    assert loaded.claim("load", DAY) is None
    loaded.finish(reader)
    assert loaded.claim("load", DAY) is not None


def test_hold_and_release_by_sql_keep_a_dataid_back_and_let_it_go(loaded: World) -> None:
    loaded.sql(f"UPDATE job_status SET status = 'HOLD' WHERE dataid = '{DAY}'")
    assert loaded.next("load") is None
    assert loaded.claim("load", DAY) is None
    loaded.sql(f"UPDATE job_status SET status = 'PENDING' WHERE dataid = '{DAY}' AND status = 'HOLD'")
    assert loaded.next("load") == DAY


# Chunks -------------------------------------------------------------------------------------------------------------
def test_a_ready_chunk_inserted_without_its_project_wakes_the_consumer(loaded: World) -> None:
    assert loaded.next("load") == DAY
    assert loaded.next("report") is None
    loaded.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('totals', '{DAY}', 'READY')")
    assert loaded.sql("SELECT project, locktype, reader FROM datastatus WHERE datasetid = 'totals'") == [
        ("p", "OUT", "")
    ]
    assert loaded.next("report") == DAY
    assert loaded.status("load", DAY) == "COMPLETE"
    assert loaded.next("load") is None
    assert loaded.claim("report") is not None


def test_several_chunks_in_one_insert_all_arrive(loaded: World) -> None:
    loaded.sql(
        "INSERT INTO datastatus (datasetid, jobid, dataid, locktype, status, modified) VALUES "
        "('orders', 'feed', '2025-11-13', 'OUT', 'READY', '2025-11-14T00:00:00.000Z'), "
        "('orders', 'feed', '2025-11-14', 'OUT', 'READY', '2025-11-14T00:00:00.000Z')"
    )
    assert loaded.waiting("load") == {DAY: 0, "2025-11-13": 0, "2025-11-14": 0}


def test_a_ready_chunk_completes_its_producer_only_when_all_outputs_are_there(world: World) -> None:
    world.apply(job("split", ["orders"], ["good", "bad"]))
    world.ready("orders", "1")
    world.ready("good", "1")
    assert world.status("split", "1") == "PENDING"
    world.ready("bad", "1")
    assert world.status("split", "1") == "COMPLETE"


def test_a_ready_chunk_before_anything_else_completes_a_producer_that_had_no_row(loaded: World) -> None:
    loaded.ready("totals", "2025-12-24")
    assert loaded.status("load", "2025-12-24") == "COMPLETE"
    assert loaded.next("report") == "2025-12-24"


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.RESUBMIT, JobStatus.COMPLETE])
def test_a_chunk_set_ready_by_hand_completes_its_job_as_the_table_says(loaded: World, status: JobStatus) -> None:
    bring_to(loaded, status)
    loaded.sql("UPDATE datastatus SET status = 'READY' WHERE datasetid = 'totals'")
    expected = JOB_TRANSITIONS.get((status, JobEvent.ASSERT), status)
    assert loaded.status("load", DAY) == expected == "COMPLETE"
    assert loaded.next("report") == DAY


def test_deleting_a_ready_chunk_closes_it_to_consumers(loaded: World) -> None:
    loaded.sql("DELETE FROM datastatus WHERE datasetid = 'orders'")
    assert loaded.waiting("load") == {DAY: 1}
    assert loaded.next("load") is None
    loaded.ready("orders", DAY)
    assert loaded.next("load") == DAY


def test_a_chunk_of_an_unknown_dataset_is_refused(loaded: World) -> None:
    before = loaded.dump()
    with pytest.raises(REFUSED, match="no project has a dataset of this name"):
        loaded.ready("ordrs", DAY)
    with pytest.raises(REFUSED, match="this project has no dataset of this name"):
        loaded.sql("INSERT INTO datastatus (project, datasetid, dataid, status) VALUES ('q', 'orders', '1', 'READY')")
    assert loaded.dump() == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE job_status SET status = 'READY'",
        "UPDATE job_status SET status = 'resubmit'",
        "UPDATE datastatus SET status = 'COMPLETE'",
        "INSERT INTO datastatus (datasetid, dataid, status) VALUES ('orders', '2', 'redy')",
        "INSERT INTO datastatus (datasetid, dataid, status) VALUES ('orders', '', 'READY')",
        "UPDATE job_status SET dataid = 'other'",
        "UPDATE datastatus SET dataid = 'other'",
        "UPDATE datastatus SET reader = '17'",
    ],
)
def test_an_unknown_status_or_another_name_is_refused(loaded: World, statement: str) -> None:
    before = loaded.dump()
    with pytest.raises(REFUSED):
        loaded.sql(statement)
    assert loaded.dump() == before


def test_a_chunk_is_declared_ready_through_the_store_unless_it_is_in_use(loaded: World) -> None:
    orders, root = registry.get_dataset(loaded.store, "orders", project=None)
    assert root == "/data/p"
    assert registry.assert_ready(loaded.store, orders, "2025-11-13", registry.Manifest("/x")) == "PENDING"
    assert registry.assert_ready(loaded.store, orders, "2025-11-13", registry.Manifest("/y")) == "READY"
    assert loaded.waiting("load")["2025-11-13"] == 0
    loaded.must_claim("load", DAY)
    totals, _ = registry.get_dataset(loaded.store, "totals", project="p")
    for dataset in (orders, totals):
        before = loaded.dump()
        with pytest.raises(registry.Refused, match="is in use by") as refused:
            registry.assert_ready(loaded.store, dataset, DAY, registry.Manifest("/z"))
        assert refused.value.exit_code == 14
        assert loaded.dump() == before


# History ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE history SET actor = 'nobody'",
        "UPDATE history SET new_status = 'READY' WHERE id = (SELECT min(id) FROM history)",
        "DELETE FROM history",
        "DELETE FROM history WHERE id = (SELECT min(id) FROM history)",
    ],
)
def test_history_is_append_only(loaded: World, statement: str) -> None:
    before = loaded.sql("SELECT * FROM history")
    assert before
    with pytest.raises(REFUSED, match="append-only"):
        loaded.sql(statement)
    assert loaded.sql("SELECT * FROM history") == before


def test_history_records_what_happened_and_who_did_it(loaded: World) -> None:
    runner = loaded.open(actor="anna@etl-3:77")
    claim = loaded.must_claim("load", store=runner)
    runner.finish(claim, loaded.result(claim))
    loaded.sql(RESUBMIT)
    runner.close()
    told = registry.history_of(loaded.store, "p", "job", "load", DAY)
    by_hand = "direct SQL" if loaded.is_sqlite else f"{loaded.sql('SELECT session_user')[0][0]} (direct SQL)"
    assert [(row["old_status"], row["new_status"], row["runid"], row["actor"]) for row in told] == [
        ("PENDING", "RUNNING", claim.runid, "anna@etl-3:77"),
        ("RUNNING", "COMPLETE", claim.runid, "anna@etl-3:77"),
        ("COMPLETE", "RESUBMIT", claim.runid, by_hand),
    ]
    chunk = registry.history_of(loaded.store, "p", "chunk", "totals", DAY)
    assert [(row["new_status"], row["actor"]) for row in chunk] == [
        ("RUNNING", "anna@etl-3:77"),
        ("READY", "anna@etl-3:77"),
        ("RESUBMIT", by_hand),
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", row["at"]) for row in told + chunk)


def test_the_history_of_a_chunk_names_the_run_that_failed_and_not_the_last_that_published(loaded: World) -> None:
    runs = []
    for ending in (Ending.FAILED, Ending.COMPLETE, Ending.FAILED):
        claim = loaded.must_claim("load")
        loaded.finish(claim, ending)
        loaded.sql(RESUBMIT)
        runs.append(claim.runid)
    first, second, third = runs
    told = registry.history_of(loaded.store, "p", "chunk", "totals", DAY)
    assert [(row["new_status"], row["runid"]) for row in told if row["new_status"] != "RESUBMIT"] == [
        ("RUNNING", first), ("FAILED", first), ("RUNNING", second), ("READY", second), ("RUNNING", third),
        ("FAILED", third),
    ]  # fmt: skip


def test_after_a_transaction_of_ours_direct_sql_is_direct_sql_again(loaded: World) -> None:
    claim = loaded.must_claim("load")
    with pytest.raises(RuntimeError, match="in the middle"), loaded.store.transaction():
        raise RuntimeError("in the middle")
    loaded.finish(claim, Ending.FAILED)
    loaded.sql(RESUBMIT)
    assert "direct SQL" in registry.history_of(loaded.store, "p", "job", "load", DAY)[-1]["actor"]


def test_a_hand_made_change_moves_modified(loaded: World) -> None:
    old = "2001-01-01T00:00:00.000Z"
    loaded.sql(f"UPDATE job_status SET modified = '{old}'")
    loaded.sql(f"UPDATE datastatus SET modified = '{old}'")
    loaded.sql("UPDATE job_status SET status = 'HOLD'")
    loaded.sql("UPDATE datastatus SET status = 'RESUBMIT'")
    assert loaded.row("load", DAY)["modified"] > "2025"
    assert str(loaded.sql("SELECT modified FROM datastatus")[0][0]) > "2025"


def test_the_times_of_both_stores_are_shown_as_the_same_text(loaded: World) -> None:
    loaded.must_claim("load")
    row = loaded.row("load", DAY)
    for name in ("lease_until", "modified"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", row[name])


# Reading ------------------------------------------------------------------------------------------------------------
def test_a_query_of_the_users_cannot_write(loaded: World) -> None:
    columns, rows = loaded.store.select("SELECT datasetid, status FROM datastatus")
    assert (columns, [tuple(row) for row in rows]) == (["datasetid", "status"], [("orders", "READY")])
    before = loaded.dump()
    for statement in ("DELETE FROM datastatus", "DROP TABLE run", "SELEC 1", "SELECT 1; DELETE FROM datastatus"):
        with pytest.raises((registry.UsageError, sqlite3.Warning, sqlite3.Error)):
            loaded.store.select(statement)
    assert loaded.dump() == before
    assert loaded.claim("load") is not None  # and the connection can write again


@pytest.mark.parametrize(
    "values",
    [
        "('orders', 'x', 'OUT', '', 'COMPLETE')",
        "('orders', 'x', 'OUT', '', 'redy')",
        "('orders', 'x', 'BOTH', '', 'READY')",
        "('orders', 'x', 'OUT', 'somebody', 'READY')",
        "('orders', '', 'OUT', '', 'READY')",
    ],
)
def test_a_chunk_row_that_makes_no_sense_is_refused(loaded: World, values: str) -> None:
    before = loaded.dump()
    with pytest.raises(REFUSED):
        loaded.sql(f"INSERT INTO datastatus (datasetid, dataid, locktype, reader, status) VALUES {values}")
    assert loaded.dump() == before
