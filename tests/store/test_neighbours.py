"""Namesakes in another project and other jobs of the same one: what is done to a job reaches neither them nor back."""

import datetime
import json
from typing import Any

import pytest
from world import NO_PATH, NOW, World, job, registration

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.job import Job, Limit
from opendataflow.domain.runs.run import Claim, Ending
from opendataflow.store import registry
from opendataflow.store.mapping import has_grown
from opendataflow.store.published import (
    dataids_read,
    find_chunk,
    find_dataset,
    find_latest,
    find_producer,
    find_run_end,
    list_chunks,
    list_versions,
    live_runs,
    take_back,
)

OURS = [str(number) for number in range(1, 9)]
KEPT = {
    "job": "jobid IN ('load')", "job_status": "jobid IN ('load')", "run": "jobid IN ('load')",
    "job_input": "jobid IN ('load')", "datastatus": "datasetid IN ('orders', 'totals')",
    "data_manifest": "datasetid IN ('orders', 'totals')",
}  # fmt: skip


def arrive(world: World, project: str, datasetid: str, *dataids: str) -> None:
    for dataid in dataids:
        world.sql(
            "INSERT INTO datastatus (project, datasetid, dataid, status) "
            f"VALUES ('{project}', '{datasetid}', '{dataid}', 'READY')"
        )


def every_state(world: World, project: str, jobid: str, datasetid: str) -> None:
    """One dataid COMPLETE, FAILED, RUNNING, on HOLD, parked, claimable and waiting."""
    of = world.store.get_job(jobid, project=project)
    world.store.expect(of, ["0", *OURS[:7]])
    arrive(world, project, datasetid, *OURS[:6])
    world.finish(world.must_claim(jobid, "1", project=project))
    world.finish(world.must_claim(jobid, "2", project=project), Ending.FAILED)
    world.must_claim(jobid, "3", project=project)
    world.sql(
        f"UPDATE job_status SET status = 'HOLD' WHERE project = '{project}' AND jobid = '{jobid}' AND dataid = '4'"
    )
    world.store.refuse(of, "5", NO_PATH, park=True)


def others(world: World) -> dict[str, list[tuple[Any, ...]]]:
    """Every row that is not of p's job and its datasets."""
    return {
        table: sorted(world.sql(f"SELECT * FROM {table} WHERE NOT (project = 'p' AND {ours})"), key=repr)
        for table, ours in KEPT.items()
    }


@pytest.fixture
def load(world: World) -> Job:
    """A job of p with room for three; beside it alpha and zulu, and in q its namesake, paused and with more room."""
    jobs = [job("load", ["orders"], ["totals"], concurrency=3)]
    jobs += [job(name, [f"{name}_in"], [f"{name}_out"]) for name in ("alpha", "zulu")]
    world.apply(*jobs)
    namesake = job("load", ["orders"], ["totals"], project="q", concurrency=5)
    world.apply(namesake, job("report", ["totals"], ["told"], project="q"), project="q")
    for name in ("alpha", "zulu"):
        every_state(world, "p", name, f"{name}_in")
    every_state(world, "q", "load", "orders")
    world.must_claim("report", "1", project="q")
    world.sql("UPDATE job SET paused_by = 'carl' WHERE project = 'q' AND jobid = 'load'")
    return world.store.get_job("load", project="p")


def claimable(world: World, of: Job) -> list[str]:
    return [one.dataid for one in world.store.list_claimable(of, limit=100)]


def taken(world: World, dataid: str) -> Claim:
    return world.must_claim("load", dataid, project="p")


def test_a_job_is_found_as_if_it_were_alone(world: World, load: Job) -> None:
    before = others(world)
    world.store.expect(load, OURS)
    of_job = {"project": "p", "jobid": "load"}
    assert world.store.find_failed(load) is None
    blocked = world.store.find_blocked(load, count_running=True)
    assert blocked is not None
    assert blocked.dataid == "1", "0 is a neighbour's"
    arrive(world, "p", "orders", *OURS[:6])
    assert others(world) == before
    assert claimable(world, load) == OURS[:6]
    blocked = world.store.find_blocked(load, count_running=True)
    assert blocked is not None
    assert blocked.dataid == "1", "claimable, and not claimed"
    assert world.store.read("lowest_open", of_job)[0][0] == "1"
    assert world.store.read("highest_open", of_job)[0][0] == "8"
    assert world.store.list_claimable_all([load], 100).keys() == {("p", "load")}
    assert len(world.store.list_claimable_all([load], 100)["p", "load"]) == 3
    candidate = world.store.find_candidate(load, "1")
    assert candidate is not None
    assert candidate.limits == (Limit("job", "load", 3, 0, ""),)
    assert candidate.pauses == ()
    assert [(one.key, one.status) for one in candidate.inputs] == [(("p", "orders", "1"), ChunkStatus.READY)]
    assert [(one.key, one.status, one.readers) for one in candidate.outputs] == [(("p", "totals", "1"), None, "")]


def test_claims_ends_and_refusals_reach_nobody_else(world: World, load: Job) -> None:
    world.store.expect(load, OURS)
    arrive(world, "p", "orders", *OURS[:6])
    before = others(world)
    first, second, third = (taken(world, dataid) for dataid in "123")
    assert claimable(world, load) == [], "three are live"
    assert others(world) == before
    world.store.renew(first, log_path="/l", log_tail="so far")
    assert others(world) == before
    world.finish(first)
    world.finish(second, Ending.FAILED)
    assert others(world) == before
    assert [(one.dataid, one.status.value) for one in list_chunks(world.store, load.outputs[0].dataset)] == [
        ("1", "READY"), ("2", "FAILED"), ("3", "RUNNING"),
    ]  # fmt: skip
    failed = world.store.find_failed(load)
    assert failed is not None
    assert failed.dataid == "2"
    world.store.refuse(load, "4", NO_PATH, park=True)
    world.store.refuse(load, "5", NO_PATH, park=False)
    assert others(world) == before
    assert world.row("load", "4", project="p")["parked_until"] is not None
    assert world.status("load", "3", project="p") == "RUNNING"
    assert live_runs(world.store, load) == {third.runid}
    assert dataids_read(world.store, load.inputs[0].dataset) == {"3"}
    assert [lock for lock in world.locks() if lock[2] == "load"] == [("orders", "3", "load")] * 2, "and q's own"


def test_a_lost_run_is_given_back_alone(world: World, load: Job) -> None:
    world.store.expect(load, OURS)
    arrive(world, "p", "orders", "3")
    claim = taken(world, "3")
    world.pass_time(load.lease_seconds + 1)
    before = others(world)
    lost = {one.runid: one for one, expired, _ in world.store.suspects("") if expired}
    assert len(lost) == 5, "the neighbours' too"
    assert world.store.recover(lost[claim.runid], host="", note="lost")
    assert others(world) == before
    assert world.status("load", "3", project="p") == "RESUBMIT"
    assert world.status("load", "3", project="q") == "RUNNING"


def test_the_sweep_of_a_job_counts_its_own_rows_only(world: World, load: Job) -> None:
    world.store.expect(load, OURS)
    arrive(world, "p", "orders", *OURS[:6])
    world.sql("UPDATE job_status SET waiting = 9 WHERE status IN ('PENDING', 'RESUBMIT')")
    before = others(world)
    world.store.recount(load, "1")
    assert others(world) == before
    assert claimable(world, load) == ["1"]
    world.store.recount(load)
    assert others(world) == before
    assert claimable(world, load) == OURS[:6]


def test_what_is_published_is_seen_and_taken_back_without_its_namesakes(world: World, load: Job) -> None:
    totals = load.outputs[0].dataset
    assert list_chunks(world.store, totals) == []
    assert find_latest(world.store, totals) is None
    assert list_versions(world.store, totals) == []
    assert find_chunk(world.store, totals, "1") is None
    world.store.expect(load, OURS)
    arrive(world, "p", "orders", "5", "6")
    runs = [taken(world, dataid) for dataid in "56"]
    for claim in runs:
        world.finish(claim)
    assert [one.dataid for one in list_chunks(world.store, totals, status=ChunkStatus.READY)] == ["5", "6"]
    latest = find_latest(world.store, totals)
    assert latest is not None
    assert (latest.dataid, latest.run, latest.rows) == ("6", runs[1].runid, 7)
    assert [one[:2] for one in list_versions(world.store, totals)] == [("5", runs[0].runid), ("6", runs[1].runid)]
    maker = find_producer(world.store, totals)
    assert maker is not None
    assert maker[:2] == ("p", "load")
    theirs = find_dataset(world.store, "told", project="q")[0]
    maker = find_producer(world.store, theirs)
    assert maker is not None
    assert maker[:2] == ("q", "report")
    ended = find_run_end(world.store, runs[0].runid)
    assert ended is not None
    assert ended[:4] == ("p", "load", "5", "COMPLETE")
    before = others(world)
    take_back(world.store, totals, load, ["5"])
    assert others(world) == before
    assert [one.dataid for one in list_chunks(world.store, totals, status=ChunkStatus.READY)] == ["6"]
    assert world.status("load", "5", project="p") == "RESUBMIT"
    assert world.status("load", "6", project="p") == "COMPLETE"


def test_a_chunk_that_only_the_namesake_is_read_of_can_be_made_again(world: World, load: Job) -> None:
    """q's report reads q's totals/1."""
    world.store.expect(load, OURS)
    arrive(world, "p", "orders", "1")
    world.finish(taken(world, "1"))
    take_back(world.store, load.outputs[0].dataset, load, ["1"])
    assert claimable(world, load) == ["1"]
    world.finish(taken(world, "1"))
    assert world.chunk("totals", "1") == "READY"


# Slots of clocks, and inputs by map --------------------------------------------------------------------------------
def test_the_slots_of_a_clock_are_its_own_projects(world: World) -> None:
    slots = ["2025-11-01", "2025-11-02", "2025-11-03"]
    for project in ("p", "q"):
        wanted = registration(
            job("load", ["day", "orders"], ["totals"], project=project),
            job("other", ["day"], ["more"], project=project),
            project=project,
        )
        datasets = tuple(one._replace(clock="today") if one.datasetid == "day" else one for one in wanted.datasets)
        registry.apply(world.store, wanted._replace(datasets=datasets), now=NOW)
    ours, theirs = (find_dataset(world.store, "day", project=project)[0] for project in ("p", "q"))
    arrive(world, "p", "orders", *slots)
    assert world.store.latest_slot(ours) is None
    assert world.store.open_slots(theirs, slots) == 3
    assert world.store.latest_slot(ours) is None
    assert world.store.open_slots(ours, slots[:2]) == 2
    assert world.store.open_slots(ours, slots) == 1, "those that are there stay as they are"
    assert (world.store.latest_slot(ours), world.store.latest_slot(theirs)) == (slots[2], slots[2])
    load, other = (world.store.get_job(jobid, project="p") for jobid in ("load", "other"))
    assert (claimable(world, load), claimable(world, other)) == (slots, slots)
    assert world.store.skip_missed(load, slots[2]) == 2
    assert (claimable(world, load), claimable(world, other)) == (slots[2:], slots)
    assert claimable(world, world.store.get_job("other", project="q")) == slots


def test_what_a_dataid_reads_by_map_is_its_own_projects(world: World) -> None:
    days = {"daily": "2025-11-01..2025-11-05"}
    for project in ("p", "q"):
        wanted = registration(
            job("mean", ["rates:window:2"], ["avg"], project=project, partitions=days),
            job("sums", ["rates:all"], ["sum"], project=project, partitions="none"), project=project,
        )  # fmt: skip
        datasets = tuple(
            one._replace(partitions=json.dumps(days)) if one.datasetid == "rates" else one for one in wanted.datasets
        )
        registry.apply(world.store, wanted._replace(datasets=datasets), now=NOW)
    mean, theirs = (world.store.get_job("mean", project=project) for project in ("p", "q"))
    arrive(world, "q", "rates", "2025-11-01", "2025-11-02", "2025-11-03")
    assert (claimable(world, mean), claimable(world, theirs)) == ([], ["2025-11-01", "2025-11-02", "2025-11-03"])
    arrive(world, "p", "rates", "2025-11-01", "2025-11-02")
    assert claimable(world, mean) == ["2025-11-01", "2025-11-02"]
    edges = "SELECT project, jobid, job_dataid, dataid FROM job_input ORDER BY 1, 2, 3, 4"
    before = world.sql(edges)
    world.store.recount(mean, "2025-11-02")
    assert world.sql(edges) == before
    assert not has_grown(world.store, mean, "2025-11-02")
    candidate = world.store.find_candidate(mean, "2025-11-02")
    assert candidate is not None
    assert [one.key for one in candidate.inputs] == [("p", "rates", "2025-11-01"), ("p", "rates", "2025-11-02")]


def test_a_dataid_that_is_asked_for_is_mapped_at_once_and_only_once(world: World) -> None:
    days = {"daily": "2025-11-01.."}
    wanted = registration(job("mean", ["rates:window:2"], ["avg"], partitions=days))
    datasets = tuple(
        one._replace(partitions=json.dumps(days)) if one.datasetid == "rates" else one for one in wanted.datasets
    )
    registry.apply(world.store, wanted._replace(datasets=datasets), now=NOW)
    mean = world.store.get_job("mean")
    world.ready("rates", "2026-02-01", "2026-02-02")
    assert world.store.find_candidate(mean, "2026-02-02") is None, "nobody expects it yet"
    world.store.expect_one(mean, "2026-02-02")
    assert "2026-02-02" in claimable(world, mean)
    world.sql("DELETE FROM job_input WHERE job_dataid = '2026-02-02' AND dataid = '2026-02-01'")
    world.store.expect_one(mean, "2026-02-02")
    left = world.sql("SELECT dataid FROM job_input WHERE job_dataid = '2026-02-02'")
    assert left == [("2026-02-02",)], "a row that is there stays as it is"


def test_all_of_an_input_that_goes_on_is_counted_anew_when_it_has_grown(world: World) -> None:
    wanted = registration(job("sums", ["rates:all"], ["sum"], partitions="none"))
    datasets = tuple(
        one._replace(partitions=json.dumps({"daily": "2025-11-01.."})) if one.datasetid == "rates" else one
        for one in wanted.datasets
    )
    world.clock.now = datetime.datetime(2025, 11, 3, 12, tzinfo=datetime.UTC).timestamp()
    world.store.clock = world.clock
    registry.apply(
        world.store, wanted._replace(datasets=datasets), now=datetime.datetime(2025, 11, 3, 12, tzinfo=datetime.UTC)
    )
    sums = world.store.get_job("sums")
    world.ready("rates", "2025-11-01", "2025-11-02")
    world.store.map_new(sums)
    assert claimable(world, sums) == ["full"]
    world.clock.now += 86_400
    assert has_grown(world.store, sums, "full")
    world.store.map_new(sums)
    assert claimable(world, sums) == [], "it waits for the third day now"
    assert not has_grown(world.store, sums, "full")
    world.ready("rates", "2025-11-03")
    assert claimable(world, sums) == ["full"]
