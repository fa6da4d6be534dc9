"""Forced claims, removing records, and what the doctor asks of a store, over both stores."""

import datetime
import sqlite3
from typing import Any

import psycopg
import pytest
from operating import ALL, CHAIN, ago, keys, ran, shift
from world import NOW, YES, World, job, owner, registration

from opendataflow.domain.runs.run import Ending
from opendataflow.errors import Refused, UsageError
from opendataflow.store import operations, registry
from opendataflow.store import status_counts as tally
from opendataflow.store.operations import Key


# Force --------------------------------------------------------------------------------------------------------------
def forced(world: World, jobid: str, dataid: str) -> int | None:
    """What the runner's force does, as far as the store goes."""
    of = world.store.get_job(jobid)
    operations.make_claimable(world.store, of, dataid)
    candidate = world.store.find_candidate(of, dataid)
    assert candidate is not None
    ready = tuple(chunk for chunk in candidate.inputs if chunk.status == "READY")
    claim = world.store.claim(
        of._replace(concurrency=None), candidate._replace(inputs=ready), YES, owner(), forced=True
    )  # fmt: skip
    if claim is not None:
        world.finish(claim)
        return claim.runid
    return None


@pytest.mark.parametrize("state", ["waiting", "HOLD", "COMPLETE", "FAILED", "parked", "limit"])
def test_force_takes_what_nobody_else_could(world: World, state: str) -> None:
    limit = 1 if state == "limit" else None
    world.apply(job("load", ["orders", "rates"], ["totals"], concurrency=limit))
    world.ready("orders", "1", "2")
    world.store.expect_one(world.store.get_job("load"), "1")
    if state != "waiting":
        world.ready("rates", "1", "2")
    if state in ("COMPLETE", "FAILED"):
        ran(world, "load", "1", Ending(state))
    elif state == "HOLD":
        operations.hold(world.store, world.store.get_job("load"), ["1"])
    elif state == "parked":
        later = "'2100-01-01T00:00:00.000Z'"
        world.sql(f"UPDATE job_status SET parked_until = {later} WHERE dataid = '1'")
    elif state == "limit":
        world.must_claim("load", "2")
    runid = forced(world, "load", "1")
    assert runid is not None
    assert (world.status("load", "1"), world.chunk("totals", "1")) == ("COMPLETE", "READY")
    [newest, *_] = operations.runs_of_dataid(world.store, Key("p", "load", "1"), **ALL)
    assert (newest["runid"], newest["forced"]) == (runid, True)
    assert world.locks() == ([("orders", "2", "load"), ("rates", "2", "load")] if state == "limit" else [])


def test_force_takes_a_dataid_of_a_held_job_and_the_job_stays_held(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"]))
    world.ready("orders", "1", "2")
    operations.hold_job(world.store, world.store.get_job("load"))
    assert forced(world, "load", "1") is not None
    assert world.next("load") is None


def test_force_is_refused_while_it_runs_or_its_output_is_read(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2")
    live = world.must_claim("load", "1")
    load = world.store.get_job("load")
    with pytest.raises(Refused, match="load/1 is RUNNING by anna@host-1:1; not even force") as refused:
        operations.make_claimable(world.store, load, "1")
    assert refused.value.exit_code == 14
    world.finish(live)
    reader = world.must_claim("report", "1")
    before = world.dump()
    with pytest.raises(Refused, match="its output is being read: totals by report"):
        operations.make_claimable(world.store, load, "1")
    assert world.dump() == before
    world.finish(reader)
    assert forced(world, "load", "1") is not None


# Removing records ---------------------------------------------------------------------------------------------------
def rows(world: World, table: str, *tables: str) -> dict[str, list[tuple[Any, ...]]]:
    dumped = world.dump()
    return {name: dumped[name] for name in (table, *tables)}


STATE = ("job_status", "datastatus", "job", "job_dataset", "job_input", "dataset")


def test_delete_run_removes_its_own_record_and_superseded_manifests_only(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2")
    old = ran(world, "load", "1")
    operations.resubmit(world.store, keys("load", "1"))
    new = ran(world, "load", "1")
    other = ran(world, "load", "2")
    state, history = rows(world, *STATE), rows(world, "history")
    done = operations.delete_run(world.store, old)
    assert (done["jobid"], done["dataid"], done["manifests"]) == ("load", "1", 1)
    assert operations.delete_run(world.store, new)["manifests"] == 0, "the chunk points at it"
    assert world.sql("SELECT runid FROM run") == [(other,)]
    assert sorted(world.sql("SELECT version FROM data_manifest")) == sorted([(new,), (other,)])
    assert (rows(world, *STATE), rows(world, "history")) == (state, history)
    with pytest.raises(UsageError, match=f"there is no run {old}"):
        operations.delete_run(world.store, old)


def test_a_live_runs_record_cannot_be_deleted(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1")
    live = world.must_claim("load", "1")
    before = world.dump()
    with pytest.raises(Refused, match="is RUNNING by anna"):
        operations.delete_run(world.store, live.runid)
    assert world.dump() == before


def cleaned(world: World, **options: Any) -> tuple[int, int]:
    wanted = {"jobid": None, "before": None, **options}
    batches = list(operations.clean_history(world.store, "p", **wanted))
    return sum(one.runs for one in batches), sum(one.history for one in batches)


def test_history_clean_leaves_state_live_runs_and_what_says_why_something_failed(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2", "3", "4")
    done = ran(world, "load", "1")
    ran(world, "load", "2", Ending.FAILED)
    operations.resubmit(world.store, keys("load", "2"))
    failed = ran(world, "load", "2", Ending.FAILED)
    live = world.must_claim("load", "3").runid
    state, manifests, counts = rows(world, *STATE), rows(world, "data_manifest"), tally.counts(world.store, project="p")
    would = cleaned(world, dry_run=True)
    assert world.sql("SELECT count(*) FROM run") == [(4,)]
    number = cleaned(world)
    assert number == would
    assert number[0] == 2
    assert sorted(world.sql("SELECT runid FROM run")) == sorted([(failed,), (live,)])
    assert done not in [row[0] for row in world.sql("SELECT runid FROM history WHERE kind = 'job' AND dataid = '1'")]
    assert (rows(world, *STATE), rows(world, "data_manifest")) == (state, manifests)
    assert tally.counts(world.store, project="p") == counts
    assert [one["runid"] for one in registry.runs_of(world.store, "p", "load", "2")] == [failed]
    assert registry.check(world.store, repair=False) == []
    ran(world, "load", "4")
    counts["jobs"]["load"] = {"COMPLETE": 2, "FAILED": 1, "RUNNING": 1}
    assert tally.counts(world.store, project="p")["jobs"]["load"] == counts["jobs"]["load"]
    assert registry.check(world.store, repair=False) == [], "numbers of deleted changes are not given again"


def test_history_clean_by_age_and_by_job(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2")
    old, new = ran(world, "load", "1"), ran(world, "load", "2")
    theirs = ran(world, "report", "1")
    shift(world, old, 100)
    assert cleaned(world, before=ago(50), dry_run=True) == (1, 0), "its changes are younger in this test"
    assert cleaned(world, before=ago(50))[0] == 1
    assert sorted(world.sql("SELECT runid FROM run")) == sorted([(new,), (theirs,)])
    changes = world.sql("SELECT count(*) FROM history WHERE kind = 'job' AND name = 'report'")
    assert cleaned(world, jobid="load")[0] == 1
    assert world.sql("SELECT runid FROM run") == [(theirs,)]
    assert world.sql("SELECT count(*) FROM history WHERE name IN ('load', 'totals')") == [(0,)]
    assert world.sql("SELECT count(*) FROM history WHERE kind = 'job' AND name = 'report'") == changes
    assert registry.check(world.store, repair=False) == []


def test_history_clean_goes_in_batches_and_leaves_other_projects_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "BATCH", 3)
    for project in ("p", "q"):
        world.apply(job("load", ["orders"], ["totals"], project=project), project=project)
        world.sql(
            "INSERT INTO datastatus (project, datasetid, dataid, status) "
            + " UNION ALL ".join(f"SELECT '{project}', 'orders', '{n}', 'READY'" for n in range(8))
        )
    for n in range(8):
        world.finish(world.must_claim("load", str(n)))
        world.finish(world.must_claim("load", str(n), project="q"))
    theirs = world.sql("SELECT count(*) FROM history WHERE project = 'q'")
    batches = list(operations.clean_history(world.store, "p", jobid=None, before=None))
    assert sum(one.runs for one in batches) == 8
    assert max(one.runs + one.history for one in batches) <= 3
    assert world.sql("SELECT count(*) FROM run WHERE project = 'q'") == [(8,)]
    assert world.sql("SELECT count(*) FROM history WHERE project = 'q'") == theirs
    assert world.sql("SELECT count(*) FROM history WHERE project = 'p'") == [(0,)]


def test_history_stays_append_only_for_everybody_else(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1")
    ran(world, "load", "1")
    cleaned(world)
    ran_again = "DELETE FROM history"
    with pytest.raises((psycopg.Error, sqlite3.Error), match="append-only"):
        world.sql(ran_again)


# Health -------------------------------------------------------------------------------------------------------------
def test_what_was_applied_is_compared_without_a_lock(world: World) -> None:
    wanted = registration(*CHAIN)
    assert operations.not_applied(world.store, wanted) != []
    registry.apply(world.store, wanted, now=NOW)
    writing = world.open()
    with writing.transaction():  # SQLite's only write lock is taken
        assert operations.not_applied(world.store, wanted) == []
        changed = registration(job("load", ["orders"], ["totals"], lease=90), CHAIN[1], also=["extra"])
        assert operations.not_applied(world.store, changed) == [
            "dataset extra", "dataset mails", "job load", "job send",
        ]  # fmt: skip
    writing.close()


def test_clock_leases_and_the_only_project(world: World) -> None:
    world.clock.now = datetime.datetime.now(datetime.UTC).timestamp()
    assert abs(operations.clock_ahead_seconds(world.store)) < 60
    with pytest.raises(UsageError, match="set DATAFLOW_PROJECT"):
        operations.get_project(world.store, None)
    world.apply(*CHAIN)
    assert operations.get_project(world.store, None) == "p"
    assert operations.get_project(world.store, "q") == "q"
    world.ready("orders", "1")
    claim = world.must_claim("load", "1")
    assert operations.expired_leases(world.store, project="p") == []
    assert not operations.watch_run(world.store, claim.runid)["expired"]
    world.pass_time(1000)
    [expired] = operations.expired_leases(world.store, project=None)
    assert (expired["jobid"], expired["dataid"]) == ("load", "1")
    assert operations.watch_run(world.store, claim.runid)["expired"]
