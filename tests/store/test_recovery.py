"""After an outage, over both stores: what it touched, the order, plans, gaps, lineage; and that looking stays cheap."""

import json
import sqlite3
import time
from pathlib import Path

import psycopg
import pytest
from operating import CHAIN, ago, keys, ran, shift
from test_cascade import made, made_chain
from world import NO_PATH, NOW, YES, World, job, owner, registration

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.runs.questions import CODES, Answer, Question, Verdict
from opendataflow.domain.runs.run import Ending
from opendataflow.errors import UsageError
from opendataflow.store import operations, recovery, registry
from opendataflow.store.records import workers
from opendataflow.store.reports.gaps import find_gaps
from opendataflow.store.reports.lineage import chunk_lineage, dataset_lineage, impact
from opendataflow.store.reports.stuck import count_behind_failed, count_retried
from opendataflow.store.statements import statements
from support.postgres import Server

HOUR = 3600.0


def outage(world: World, from_hours: float, to_hours: float, jobid: str | None = None) -> dict[str, str]:
    now = time.time()
    window = {"since": now - from_hours * HOUR, "until": now - to_hours * HOUR}
    found = recovery.find_outage(world.store, project="p", jobid=jobid, **window)
    return {f"{key.jobid}/{key.dataid}": why for key, why in found.items()}


# Outages --------------------------------------------------------------------------------------------------------------
def test_an_outage_is_what_ran_failed_was_blocked_or_was_published_in_its_window(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2", "3", "4", "5")
    for dataid, hours in (("1", 9.0), ("2", 5.0)):
        shift(world, ran(world, "load", dataid), hours)
    shift(world, ran(world, "load", "3", Ending.FAILED), 5.0)
    shift(world, first := ran(world, "load", "4"), 5.0)
    assert outage(world, 6, 4) == {"load/2": "ran", "load/3": "failed", "load/4": "ran"}
    assert outage(world, 6, 4, "report") == {}
    assert outage(world, 10, 8) == {"load/1": "ran"}
    operations.resubmit(world.store, keys("load", "4"))
    ran(world, "load", "4")
    assert "load/4" not in outage(world, 6, 4), f"run {first} is not what it stands on any more"
    operations.resubmit(world.store, keys("load", "3"))
    shift(world, ran(world, "load", "3", Ending.FAILED), 3.0)
    assert outage(world, 6, 4)["load/3"] == "failed", "it failed then, and has not been complete since"
    world.store.refuse(world.store.get_job("load"), "5", NO_PATH, park=True)
    assert outage(world, 1, -1)["load/5"] == "blocked"
    assert "load/5" not in outage(world, -1, -2)


def test_data_from_outside_that_arrived_in_the_window_has_its_readers_done_again(world: World) -> None:
    made_chain(world)
    late = -(2.0 / 3600)
    assert outage(world, 0.5, late) == {"load/1": "ran", "report/1": "ran", "send/1": "ran"}
    for jobid in ("load", "report", "send"):
        shift(world, world.row(jobid, "1")["runid"], 5.0)
    found = outage(world, 0.5, late)
    assert found == {"load/1": "published", "report/1": "published", "send/1": "published"}
    assert outage(world, 0.5, late, "load") == {"load/1": "published"}


def test_what_an_outage_touched_is_done_in_the_order_of_what_reads_what(world: World) -> None:
    made_chain(world)
    world.ready("orders", "2")
    made(world, "load", "2", "x")
    found = [*keys("send", "1"), *keys("load", "1", "2"), *keys("report", "1")]
    would = operations.resubmit(world.store, found, dry_run=True)
    told = [(one["step"], one["jobid"], one["dataid"]) for one in recovery.in_order(world.store, would)]
    assert told == [(1, "load", "1"), (1, "load", "2"), (2, "report", "1"), (3, "send", "1")]
    assert recovery.in_order(world.store, []) == []


# Plans and gaps -------------------------------------------------------------------------------------------------------
def test_a_plan_says_how_many_and_how_long_by_the_latest_runs(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"], concurrency=2), job("report", ["totals"], ["pages"]))
    load = world.store.get_job("load")
    assert recovery.plan(world.store, load, slots=1)["seconds_ready"] is None
    world.ready("orders", *(str(number) for number in range(1, 12)))
    for dataid in ("1", "2", "3"):
        run = ran(world, "load", dataid)
        shift(world, run, -10 / 3600, "ended_at")
    ran(world, "load", "4", Ending.FAILED)
    operations.hold(world.store, load, ["5"])
    live = world.must_claim("load", "6")
    told = recovery.plan(world.store, load, slots=10)
    numbers = {name: told[name] for name in ("ready", "waiting", "held", "failed", "running", "limit", "runs")}
    assert numbers == {"ready": 5, "waiting": 0, "held": 1, "failed": 1, "running": 1, "limit": 2, "runs": 4}
    assert told["next"] == ["7", "8", "9", "10", "11"]
    assert told["failure_rate"] == 0.25
    assert 10 <= told["median_seconds"] < 15
    assert 30 <= told["seconds_ready"] < 45, "five, two at a time"
    assert recovery.plan(world.store, world.store.get_job("report"), slots=1)["ready"] == 3
    world.finish(live)


def test_what_waits_for_something_that_failed_does_not_come_by_itself(world: World) -> None:
    days = [f"2025-11-0{day}" for day in range(1, 4)]
    scheme = {"daily": f"{days[0]}..{days[-1]}"}
    world.apply(*CHAIN, job("pair", ["totals:window:2"], ["pairs"], partitions=scheme))
    world.ready("orders", *days)
    for jobid in ("report", "send", "pair"):
        world.store.expect(world.store.get_job(jobid), days)
    ran(world, "load", days[0])
    ran(world, "load", days[1], Ending.FAILED)
    behind = count_behind_failed(world.store, project="p")
    assert behind == {("p", "report"): 1, ("p", "send"): 1, ("p", "pair"): 2}, "at a distance, and through a window"
    told = recovery.plan(world.store, world.store.get_job("send"))
    assert (told["waiting"], told["behind_failed"], told["seconds_all"]) == (2, 1, None)
    assert count_behind_failed(world.store, project="p", limit=1) == {}
    assert count_behind_failed(world.store, project="other") == {}
    assert count_retried(world.store, project="p") == {}
    world.sql("UPDATE job_status SET parked_until = '2999-01-01' WHERE status = 'FAILED'")
    assert count_behind_failed(world.store, project="p") == {}, "it is tried again, and they may follow"
    assert count_retried(world.store, project="p") == {("p", "load"): 1}


def test_all_dataids_wait_for_a_shared_chunk_that_failed(world: World) -> None:
    world.apply(job("rates", ["quotes"], ["table"]), job("load", ["orders", "table:full"], ["totals"]))
    world.ready("quotes", "full")
    world.ready("orders", "1", "2")
    load = world.store.get_job("load")
    told = recovery.plan(world.store, load)
    assert (told["ready"], told["waiting"], told["next"]) == (0, 2, [])
    ran(world, "rates", "full", Ending.FAILED)
    told = recovery.plan(world.store, load)
    assert (told["waiting"], told["behind_failed"]) == (0, 2)


def test_a_plan_knows_pauses_limits_and_live_workers(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"]))
    load = world.store.get_job("load")
    world.ready("orders", "1", "2")
    ran(world, "load", "1")
    told = recovery.plan(world.store, load)
    assert (told["slots"], told["workers"], told["limit"], told["paused"]) == (1, 0, None, None)
    workers.register_worker(world.store, owner("a"), slots=3)
    workers.register_worker(world.store, owner("b"), slots=5, jobs=["other"])
    assert recovery.plan(world.store, load)["slots"] == 3
    assert recovery.plan(world.store, load, slots=7)["slots"] == 7
    workers.set_limit(world.store, load, 0)
    workers.pause(world.store, load, until=world.store.clock() + 60)
    told = recovery.plan(world.store, load)
    assert (told["limit"], told["limited_by"], told["seconds_ready"]) == (0, "load", None)
    assert (told["paused"], told["paused_until"] is not None) == ("load", True)
    workers.pause(world.store, None)
    told = recovery.plan(world.store, load)
    assert (told["paused"], told["paused_by"], told["paused_until"]) == ("all", "tests", None), "it lasts longer"


def test_what_was_refused_for_good_says_what_somebody_must_do(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"]))
    load = world.store.get_job("load")
    world.ready("orders", "1", "2", "3", "4")
    for question, dataid, evidence in (
        (Question.RIGHT, "1", "orders/1 changed after it was published: /data/1"),
        (Question.RIGHT, "2", "orders/2: it was last written before 2 began"),
        (Question.VALID, "3", "orders/3 has checks, but they were not passed on these data"),
        (Question.SAFE, "4", "somebody reads it"),
    ):
        answer = Answer(question, False, evidence, CODES[question][0])
        world.store.refuse(load, dataid, Verdict((YES.answers[0], answer)), park=True)
    gaps = find_gaps(world.store, project="p", name="load")
    right = (
        "if these are the right data, declare them: `dataflow ready orders 1`; otherwise put the right ones there first"
    )
    checked = "have the data checked: `dataflow ready orders 3`"
    assert [(one["first"], one["count"], one["reason"], one["next_step"]) for one in gaps] == [
        ("1", 2, "was refused: WRONG_DATA", right), ("3", 1, "was refused: NOT_VALIDATED", checked),
        ("4", 1, "is tried again by itself", ""),
    ]  # fmt: skip
    told = recovery.plan(world.store, load)
    assert (told["ready"], told["parked"]) == (0, 1)
    assert [(one["code"], one["count"], one["first"], one["next_step"]) for one in told["refused"]] == [
        ("WRONG_DATA", 2, "1", right), ("NOT_VALIDATED", 1, "3", checked),
    ]  # fmt: skip


def test_gaps_are_ranges_with_their_reason(world: World) -> None:
    days = [f"2025-11-{day:02d}" for day in range(1, 8)]
    scheme = {"daily": f"{days[0]}..{days[-1]}"}
    wanted = registration(job("load", ["orders"], ["totals"], partitions=scheme))
    datasets = tuple(one._replace(partitions=json.dumps(scheme)) for one in wanted.datasets)
    registry.apply(world.store, wanted._replace(datasets=datasets), now=NOW)
    world.ready("orders", *days[:4], days[6])
    ran(world, "load", days[0])
    ran(world, "load", days[1], Ending.FAILED)

    def told(name: str | None) -> list[tuple[str, str, str, int, str]]:
        found = find_gaps(world.store, project="p", name=name)
        return [
            (one.get("dataset") or one["job"], one["first"], one["last"], one["count"], one["status"]) for one in found
        ]

    assert told("orders") == [("orders", days[4], days[5], 2, "GAP")]
    assert told("load") == [
        ("load", days[1], days[1], 1, "FAILED"), ("load", days[2], days[3], 2, "PENDING"),
        ("load", days[4], days[5], 2, "PENDING"), ("load", days[6], days[6], 1, "PENDING"),
    ]  # fmt: skip
    assert told(None) == told("orders") + told("totals")
    reasons = [one["reason"] for one in find_gaps(world.store, project="p", name="totals")]
    assert reasons == [
        "load is FAILED", "load is PENDING", "load is PENDING, waits for an input", "load is PENDING",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="did you mean 'totals'"):
        find_gaps(world.store, project="p", name="total")
    with pytest.raises(UsageError, match="as a job or a dataset; jobs are load, datasets orders, totals"):
        find_gaps(world.store, project="p", name="nope")


# Lineage --------------------------------------------------------------------------------------------------------------
def test_lineage_follows_what_runs_read_and_impact_who_read_it(world: World) -> None:
    made_chain(world)
    pages, totals = Dataset("p", "pages"), Dataset("p", "totals")
    graph = chunk_lineage(world.store, pages, "1")
    assert [node.name for node in graph.nodes.values()] == ["pages/1", "report/1", "totals/1", "load/1", "orders/1"]
    assert graph.edges["chunk p.totals/1", "job p.report/1"] == f"version {world.row('load', '1')['runid']}"
    down = impact(world.store, totals, "1")
    assert [node.name for node in down.nodes.values()] == ["totals/1", "report/1", "pages/1", "send/1", "mails/1"]
    assert {node.status for node in down.nodes.values()} == {"READY", "COMPLETE"}
    assert impact(world.store, totals, "1", limit=2).cut == 1
    list(operations.clean_history(world.store, "p", jobid=None, before=None))
    assert chunk_lineage(world.store, pages, "1").edges.keys() == graph.edges.keys(), "as it would read now"
    declared = dataset_lineage(world.store, totals)
    assert sorted(node.name for node in declared.nodes.values()) == sorted(
        ["orders", "load", "totals", "report", "pages", "send", "mails"]
    )
    layers = declared.layers()
    assert layers["dataset p.orders"] == 0 < layers["dataset p.totals"] < layers["dataset p.mails"] == 6
    with pytest.raises(UsageError, match="totals has no chunk '9'"):
        impact(world.store, totals, "9")


# Looking and cleaning stay cheap --------------------------------------------------------------------------------------
def test_history_is_cleaned_by_age_without_looking_at_what_is_younger(world: World) -> None:
    made_chain(world)
    assert {*operations.clean_history(world.store, "p", jobid=None, before=ago(1))} <= {operations.Cleaned(0, 0)}
    before = len(world.sql("SELECT 1 FROM history"))
    deleted = list(operations.clean_history(world.store, "p", jobid=None, before=ago(-1)))
    assert sum(batch.runs for batch in deleted) == 3
    assert sum(batch.history for batch in deleted) == before - 1, "the newest change stays"
    assert registry.check(world.store, repair=False) == []


LOOKS = {
    "operations": ["history_from", "outage_runs", "outage_blocked", "outage_published", "readers_of_chunk", "made_of",
                   "history_batch", "delete_old_history", "have_readers_follow"],
    "overview": ["plan_counts", "plan_next", "open_rows", "chunk_statuses", "parked_refusals", "behind_failed",
                 "retried_jobs", "closed_jobs", "ready_jobs"],
    "published": ["logs_kept"],
}  # fmt: skip
GIVEN = {
    "number": 5, "moment": ago(0), "since": ago(2), "until": ago(1), "lowest": 1, "before": ago(1), "project": "p",
    "jobid": "load", "dataid": "1", "datasetid": "totals", "after": 0, "upto": 9, "limit": 5,
}  # fmt: skip
LARGE = ("job_status", "datastatus", "run", "history", "data_manifest", "job_input")


def test_no_look_reads_a_large_table_from_end_to_end_on_sqlite(tmp_path: Path) -> None:
    world = World(f"sqlite:///{tmp_path / 'state.db'}")
    made_chain(world)
    connection = sqlite3.connect(tmp_path / "state.db")
    for file, names in LOOKS.items():
        for name in names:
            given = {**GIVEN, "before": 9} if name.startswith("outage") else GIVEN
            plan = connection.execute(f"EXPLAIN QUERY PLAN {statements('sqlite', file)[name]}", given).fetchall()
            steps = [row[3] for row in plan]
            scans = [step for step in steps if step.startswith("SCAN") and "USING" not in step]
            # What a view gathers has been sought before.
            named = {step.split()[1] for step in scans} - {step.split()[1] for step in steps if "CO-ROUTINE" in step}
            assert not named & {*LARGE, "h", "r", "s", "c", "k", "e", "m"}, (name, steps)
    connection.close()
    world.close()


def test_no_look_reads_a_large_table_from_end_to_end_on_postgres(postgres_server: Server) -> None:
    url = postgres_server.new_database()
    world = World(url)
    made_chain(world)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET enable_seqscan = off")
        for file, names in LOOKS.items():
            for name in names:
                given = {**GIVEN, "before": 9} if name.startswith("outage") else GIVEN
                rows = connection.execute(f"EXPLAIN {statements('postgres', file)[name]}", given).fetchall()
                steps = "\n".join(row[0] for row in rows)
                assert not [one for one in LARGE if f"Seq Scan on {one}" in steps], (name, steps)
    world.close()
