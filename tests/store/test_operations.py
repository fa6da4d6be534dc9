"""Operators' verbs over both stores: the list of runs, resubmit with its windows and cascades, hold and release."""

import datetime
import json
import re
from pathlib import Path
from typing import Any

import pytest
from operating import ALL, CHAIN, ago, keys, ran, shift, told
from world import NOW, World, job, registration

from opendataflow.domain.job import JobStatus
from opendataflow.domain.runs.run import Ending
from opendataflow.errors import UsageError
from opendataflow.store import operations, registry
from opendataflow.store.operations import Key
from opendataflow.store.statements import statements


# Statements ---------------------------------------------------------------------------------------------------------
def test_both_dialects_have_the_same_statements() -> None:
    assert statements("sqlite", "operations").keys() == statements("postgres", "operations").keys()
    for dialect in ("sqlite", "postgres"):
        for name, sql in statements(dialect, "operations").items():
            assert re.match(r"(SELECT|UPDATE|DELETE)\b", sql), name
            assert ";" not in sql


# Runs ---------------------------------------------------------------------------------------------------------------
def test_runs_are_listed_newest_first_and_by_job_status_and_time(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2", "3")
    first, second = ran(world, "load", "1"), ran(world, "load", "2", Ending.FAILED)
    third = ran(world, "report", "1")
    live = world.must_claim("load", "3").runid

    def listed(**filters: Any) -> list[int]:
        found, go_on = operations.list_runs(world.store, **{**ALL, "project": "p", "jobid": None, **filters})
        assert go_on is None or len(found) == filters["limit"]
        return [one["runid"] for one in found]

    assert listed() == [live, third, second, first]
    assert listed(jobid="load") == [live, second, first]
    assert listed(status="FAILED") == [second]
    assert listed(limit=2) == [live, third]
    assert listed(before=third) == [second, first]
    assert listed(project="q") == []
    shift(world, first, 5)
    shift(world, second, 3)
    assert listed(since=ago(4)) == [live, third, second]
    assert listed(since=ago(1), jobid="load") == [live]
    assert listed(since=ago(-1)) == []
    [one] = operations.list_runs(world.store, **{**ALL, "project": "p", "jobid": "report"})[0]
    assert (one["dataid"], one["status"], one["attempt"], one["forced"]) == ("1", "COMPLETE", 1, False)
    assert one["claimed_at"] <= one["ended_at"]


def test_a_rare_job_in_a_long_list_is_looked_for_only_so_far(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "PAGE", 2)
    monkeypatch.setattr(operations, "LOOK_AT", 6)
    world.apply(*CHAIN)
    world.ready("orders", *(str(n) for n in range(1, 15)))
    ran(world, "load", "1")
    rare = ran(world, "report", "1")
    for number in range(2, 15):
        ran(world, "load", str(number))
    wanted = {**ALL, "project": "p", "jobid": "report"}
    found, go_on = operations.list_runs(world.store, **wanted)
    assert found == []
    assert go_on is not None
    found, go_on = operations.list_runs(world.store, **{**wanted, "before": go_on})
    assert ([one["runid"] for one in found], go_on) == ([rare], None)


def test_the_runs_of_a_dataid_are_found_without_reading_the_others(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2")
    failed = ran(world, "load", "1", Ending.FAILED)
    ran(world, "load", "2")
    operations.resubmit(world.store, keys("load", "1"))
    done = ran(world, "load", "1")
    found = operations.runs_of_dataid(world.store, Key("p", "load", "1"), **ALL)
    assert [(one["runid"], one["status"]) for one in found] == [(done, "COMPLETE"), (failed, "FAILED")]
    wanted = {**ALL, "status": "FAILED"}
    assert [one["runid"] for one in operations.runs_of_dataid(world.store, Key("p", "load", "1"), **wanted)] == [failed]


def test_no_look_at_runs_reads_them_all_on_sqlite(tmp_path: Path) -> None:
    world = World(f"sqlite:///{tmp_path / 'state.db'}")
    world.apply(*CHAIN)
    for name in (
        "list_runs",
        "run_page",
        "run_from",
        "ran_between",
        "failed_rows",
        "runs_of_dataid",
        "delete_old_runs",
    ):
        sql = statements("sqlite", "operations")[name]
        params = dict.fromkeys(re.findall(r"(?<![:\w]):([a-z_]+)\b", sql), 1)
        steps = [row[3] for row in world._shell.execute(f"EXPLAIN QUERY PLAN {sql}", params)]
        scans = [step for step in steps if re.match(r"SCAN (run|r|history|h)\b", step)]
        assert scans == [], f"{name}: {steps}"
    world.close()


# Resubmit -----------------------------------------------------------------------------------------------------------
def test_resubmit_keeps_its_rules_for_every_status(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2", "3", "4")
    ran(world, "load", "1")
    ran(world, "load", "2", Ending.FAILED)
    live = world.must_claim("load", "3")
    world.sql("UPDATE job_status SET status = 'HOLD' WHERE jobid = 'load' AND dataid = '4'")
    world.store.expect_one(world.store.get_job("load"), "5")
    wanted = keys("load", "1", "2", "3", "4", "5")
    would = operations.resubmit(world.store, wanted, dry_run=True)
    before = world.dump()
    done = operations.resubmit(world.store, wanted)
    assert told(done) == told(would) == [
        ("load", "1", "COMPLETE", "RESUBMIT"), ("load", "2", "FAILED", "RESUBMIT"), ("load", "3", "RUNNING", "RUNNING"),
        ("load", "4", "HOLD", "HOLD"), ("load", "5", "PENDING", "PENDING"),
    ]  # fmt: skip
    assert [one["again"] for one in done] == [one["again"] for one in would] == [False, False, True, False, False]
    assert world.dump() != before
    assert world.chunk("totals", "1") == "RESUBMIT"
    world.finish(live)
    assert world.status("load", "3") == "RESUBMIT"


def test_an_unknown_dataid_leaves_all_others_as_they_are(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1")
    ran(world, "load", "1")
    before = world.dump()
    for dry_run in (True, False):
        with pytest.raises(UsageError, match="load has no dataid 'nope'; see `dataflow status load`"):
            operations.resubmit(world.store, keys("load", "1", "nope"), dry_run=dry_run)
    assert world.dump() == before


def test_failed_means_failed_now_and_leaves_what_moved_meanwhile(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2", "10")
    for dataid in ("2", "10", "1"):
        ran(world, "load", dataid, Ending.FAILED)
    found = operations.find_failed(world.store, project="p", jobid=None)
    assert found == keys("load", "1", "2", "10")
    assert operations.find_failed(world.store, project="p", jobid="report") == []
    assert operations.find_failed(world.store, project="q", jobid=None) == []
    operations.resubmit(world.store, keys("load", "2"))
    ran(world, "load", "2")
    done = operations.resubmit(world.store, found, only=frozenset({JobStatus.FAILED}))
    assert [one["dataid"] for one in done] == ["1", "10"]
    assert world.status("load", "2") == "COMPLETE"


def test_an_outage_window_finds_what_failed_or_was_lost_in_it_and_is_still_failed(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2", "3", "4", "5")
    for dataid, hours in (("1", 9), ("2", 5), ("3", 5), ("4", 1)):
        shift(world, ran(world, "load", dataid, Ending.FAILED), hours)
    operations.resubmit(world.store, keys("load", "3"))
    ran(world, "load", "3")  # it was done again since
    # Lost in the window, failed after it.
    lost = world.must_claim("load", "5")
    world.pass_time(1000)
    assert world.recover() == 1
    shift(world, lost.runid, 5)
    ran(world, "load", "5", Ending.FAILED)

    def found(since: float, until: float) -> list[str]:
        window = {"since": ago(since), "until": ago(until)}
        return [key.dataid for key in operations.find_failed(world.store, project="p", jobid=None, **window)]

    assert found(6, 4) == ["2", "5"]
    assert found(10, 8) == ["1"]
    assert found(2, -1) == ["4", "5"]
    assert found(8, 7) == []


def test_all_runs_of_a_window_are_those_that_were_under_way_in_it(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2", "3")
    shift(world, ran(world, "load", "1"), 9)
    shift(world, ran(world, "load", "2"), 5)
    shift(world, ran(world, "report", "2", Ending.FAILED), 4.5)
    live = world.must_claim("load", "3")
    now = datetime.datetime.now(datetime.UTC).timestamp()

    def found(since: float, until: float, jobid: str | None = None) -> list[tuple[str, str]]:
        window = {"since": now - since * 3600, "until": now - until * 3600}
        return [(key.jobid, key.dataid) for key in operations.find_ran(world.store, project="p", jobid=jobid, **window)]

    assert found(6, 4) == [("load", "2"), ("report", "2")]
    assert found(6, 4, "report") == [("report", "2")]
    assert found(1, -1) == [("load", "3")]
    assert found(10, -1) == [("load", "1"), ("load", "2"), ("load", "3"), ("report", "2")]
    assert found(100, 99) == []
    world.finish(live)


def test_cascade_follows_the_same_dataid_through_the_chain(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2")
    for dataid in ("1", "2"):
        for jobid in ("load", "report", "send"):
            ran(world, jobid, dataid)
    would = operations.resubmit(world.store, keys("load", "1"), downstream=True, dry_run=True)
    assert world.status("send", "1") == "COMPLETE"
    done = operations.resubmit(world.store, keys("load", "1"), downstream=True)
    assert told(done) == told(would) == [(jobid, "1", "COMPLETE", "RESUBMIT") for jobid in ("load", "report", "send")]
    assert [one["cascade"] for one in done] == [False, True, True]
    assert {world.chunk(name, "1") for name in ("totals", "pages", "mails")} == {"RESUBMIT"}
    assert {world.status(jobid, "2") for jobid in ("load", "report", "send")} == {"COMPLETE"}
    assert world.next("report") is None, "it waits for its input to be made again"
    ran(world, "load", "1")
    assert world.next("report") == "1"


def test_cascade_goes_through_what_waits_and_has_a_running_reader_run_again(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2")
    for jobid in ("load", "report", "send"):
        ran(world, jobid, "1")
    operations.resubmit(world.store, keys("report", "1"))
    done = operations.resubmit(world.store, keys("load", "1"), downstream=True)
    assert told(done) == [("load", "1", "COMPLETE", "RESUBMIT"), ("send", "1", "COMPLETE", "RESUBMIT")]
    ran(world, "load", "2")
    reader = world.must_claim("report", "2")
    done = operations.resubmit(world.store, keys("load", "2"), downstream=True)
    assert [(one["jobid"], one["status"], one["again"]) for one in done] == [
        ("load", "RESUBMIT", False), ("report", "RUNNING", True),
    ]  # fmt: skip
    world.finish(reader)
    assert world.status("report", "2") == "RESUBMIT"


def test_cascade_of_a_shared_input_reaches_every_dataid_that_was_done(world: World) -> None:
    world.apply(job("rate", ["feed"], ["rates"]), job("price", ["orders", "rates:full"], ["prices"]))
    world.ready("feed", "full")
    ran(world, "rate", "full")
    world.ready("orders", "1", "2", "3")
    ran(world, "price", "1")
    ran(world, "price", "2", Ending.FAILED)
    done = operations.resubmit(world.store, keys("rate", "full"), downstream=True)
    assert told(done) == [
        ("rate", "full", "COMPLETE", "RESUBMIT"), ("price", "1", "COMPLETE", "RESUBMIT"),
        ("price", "2", "FAILED", "RESUBMIT"),
    ]  # fmt: skip
    assert world.status("price", "3") == "PENDING"


def test_cascade_follows_windows_and_offsets(world: World) -> None:
    days = [f"2025-11-{day:02d}" for day in range(1, 6)]
    scheme = {"daily": f"{days[0]}..{days[-1]}"}
    wanted = registration(
        job("load", [], ["totals"], partitions=scheme),
        job("week", ["totals:window:3"], ["means"], partitions=scheme),
        job("delta", ["means:offset:-1"], ["deltas"], partitions=scheme),
    )
    datasets = tuple(one._replace(partitions=json.dumps(scheme)) for one in wanted.datasets)
    registry.apply(world.store, wanted._replace(datasets=datasets), now=NOW)
    for jobid in ("week", "delta"):
        world.store.map_new(world.store.get_job(jobid))
    for day in days:
        ran(world, "load", day)
    done_weeks = [day for day in days if world.row("week", day)["waiting"] <= 0]
    for day in done_weeks:
        ran(world, "week", day)
    done_deltas = [day for day in days if world.row("delta", day)["waiting"] <= 0]
    for day in done_deltas:
        ran(world, "delta", day)
    done = operations.resubmit(world.store, keys("load", days[2]), downstream=True)
    reached = {jobid: [one["dataid"] for one in done if one["jobid"] == jobid] for jobid in ("load", "week", "delta")}
    assert reached["load"] == [days[2]]
    assert reached["week"] == [day for day in days[2:5] if day in done_weeks] != []
    assert reached["delta"] == [day for day in days[3:5] if day in done_deltas] != []


def test_cascade_crosses_into_the_project_that_reads(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"]))
    world.apply(job("report", ["p.totals"], ["pages"], project="q"), project="q")
    world.ready("orders", "1")
    ran(world, "load", "1")
    world.finish(world.must_claim("report", "1", project="q"))
    done = operations.resubmit(world.store, keys("load", "1"), downstream=True)
    assert [(one["project"], one["jobid"], one["status"]) for one in done] == [
        ("p", "load", "RESUBMIT"), ("q", "report", "RESUBMIT"),
    ]  # fmt: skip


# Hold and release ---------------------------------------------------------------------------------------------------
def test_hold_and_release_follow_the_table_and_are_all_or_nothing(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2", "3", "4")
    load = world.store.get_job("load")
    ran(world, "load", "1", Ending.FAILED)
    ran(world, "load", "3")
    live = world.must_claim("load", "4")
    done = operations.hold(world.store, load, ["1", "2"], reason="the feed is wrong")
    assert [(one["before"], one["status"]) for one in done] == [("FAILED", "HOLD"), ("PENDING", "HOLD")]
    assert world.next("load") is None
    assert operations.hold(world.store, load, ["2"])[0]["before"] == "HOLD"
    actors = [row["actor"] for row in registry.history_of(world.store, "p", "job", "load", "2")]
    assert actors == ["tests: the feed is wrong"]
    before = world.dump()
    for dataids, why in (
        (["2", "4"], "load/4: a job that is RUNNING cannot hold; nothing was changed; wait"),
        (["3"], "load/3: a job that is COMPLETE cannot hold; nothing was changed; it is done"),
        (["99"], "load has no dataid '99'"),
    ):
        with pytest.raises(UsageError, match=why):
            operations.hold(world.store, load, dataids)
    with pytest.raises(UsageError, match="load/3: a job that is COMPLETE cannot release"):
        operations.release(world.store, load, ["1", "3"])
    assert world.dump() == before
    assert [one["status"] for one in operations.release(world.store, load, ["1", "2"])] == ["PENDING", "PENDING"]
    assert (world.status("load", "1"), world.next("load")) == ("PENDING", "1")
    world.finish(live)


def test_a_held_job_is_not_claimed_until_it_is_released(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2")
    load = world.store.get_job("load")
    live = world.must_claim("load", "1")
    assert operations.hold_job(world.store, load, reason="migration") == (True, "tests: migration")
    assert operations.hold_job(world.store, load, reason="another") == (False, "tests: migration")
    assert world.next("load") is None
    assert world.claim("load", "2") is None
    world.finish(live)
    assert world.status("load", "1") == "COMPLETE", "what runs goes on"
    operations.hold(world.store, load, ["2"])
    assert operations.release_job(world.store, load) == (True, 1)
    assert operations.release_job(world.store, load) == (False, 1)
    operations.release(world.store, load, ["2"])
    assert world.next("load") == "2"
