"""Operators' verbs over both stores: runs, resubmit with its windows and cascades, hold, force, removing records."""

import datetime
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
from world import NOW, YES, World, job, owner, registration

from opendataflow.domain.job import JobStatus
from opendataflow.domain.run import Ending
from opendataflow.errors import Refused, UsageError
from opendataflow.store import operations, registry, tally
from opendataflow.store.operations import Key
from opendataflow.store.statements import statements

CHAIN = (job("load", ["orders"], ["totals"]), job("report", ["totals"], ["pages"]), job("send", ["pages"], ["mails"]))
ALL = {"status": None, "since": None, "before": operations.NEWEST, "limit": 100}


def ran(world: World, jobid: str, dataid: str, ending: Ending = Ending.COMPLETE) -> int:
    """One run of the dataid from claim to end; its number."""
    claim = world.must_claim(jobid, dataid)
    world.finish(claim, ending)
    return claim.runid


def shift(world: World, runid: int, hours: float) -> None:
    """Let the run have been so many hours earlier."""
    if world.is_sqlite:
        moved = ", ".join(
            f"{name} = strftime('%Y-%m-%dT%H:%M:%fZ', {name}, '-{hours} hours')" for name in ("claimed_at", "ended_at")
        )
    else:
        moved = ", ".join(f"{name} = {name} - interval '{hours} hours'" for name in ("claimed_at", "ended_at"))
    world.sql(f"UPDATE run SET {moved} WHERE runid = {runid}")


def ago(hours: float) -> str:
    at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=hours)
    return at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def keys(jobid: str, *dataids: str) -> list[Key]:
    return [Key("p", jobid, dataid) for dataid in dataids]


def told(done: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [(one["jobid"], one["dataid"], one["before"], one["status"]) for one in done]


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
    would = operations.resubmit(world.store, keys("load", "1"), cascade=True, dry_run=True)
    assert world.status("send", "1") == "COMPLETE"
    done = operations.resubmit(world.store, keys("load", "1"), cascade=True)
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
    done = operations.resubmit(world.store, keys("load", "1"), cascade=True)
    assert told(done) == [("load", "1", "COMPLETE", "RESUBMIT"), ("send", "1", "COMPLETE", "RESUBMIT")]
    ran(world, "load", "2")
    reader = world.must_claim("report", "2")
    done = operations.resubmit(world.store, keys("load", "2"), cascade=True)
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
    done = operations.resubmit(world.store, keys("rate", "full"), cascade=True)
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
    done = operations.resubmit(world.store, keys("load", days[2]), cascade=True)
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
    done = operations.resubmit(world.store, keys("load", "1"), cascade=True)
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
