"""Stale data over both stores: by content, direct and upstream apart, expanded in batches of what publishes append."""

import json
from typing import Any

import pytest
from operating import CHAIN, keys
from world import World, job

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.runs.run import Ending, Result
from opendataflow.store import on_change, operations, registry, stale
from opendataflow.store.operations import Key
from opendataflow.store.reports import stale as reports


def declared(world: World, dataid: str, content: str, *, datasetid: str = "orders") -> None:
    """The chunk arrives with this content, as `dataflow ready` declares it."""
    dataset, _ = registry.get_dataset(world.store, datasetid, project="p")
    manifest = Manifest(f"/data/p/{datasetid}/{dataid}", fingerprint=f"{dataid}/{content}", validated=True)
    registry.assert_ready(world.store, dataset, dataid, manifest)


def made(world: World, jobid: str, dataid: str, content: str, *, code: str | None = "c1", checks: str = "k1") -> int:
    claim = world.must_claim(jobid, dataid)
    manifests = tuple(
        (link.dataset.project, link.dataset.datasetid, Manifest(f"/d/{claim.runid}", fingerprint=f"q/{content}"))
        for link in world.store.get_job(jobid, project="p").outputs
    )
    world.store.finish(claim, Result(Ending.COMPLETE, 0, manifests=manifests, code=code, checks=checks))
    return claim.runid


def found(world: World) -> dict[str, list[str]]:
    """What is stale, and by what."""
    assert stale.expand(world.store)
    names = ("by_input", "by_code", "by_check", "upstream")
    rows = reports.list_stale(world.store, project="p")
    return {f"{one.jobid}/{one.dataid}": [name for name in names if getattr(one, name)] for one in rows}


@pytest.fixture
def chain(world: World) -> World:
    """orders → load → totals → report → pages → send, all made of the first orders."""
    world.apply(*CHAIN)
    for dataid in ("1", "2"):
        declared(world, dataid, "A")
        for jobid in ("load", "report", "send"):
            made(world, jobid, dataid, f"{jobid} A")
    assert found(world) == {}
    return world


def test_a_changed_input_makes_its_reader_stale_and_what_follows_stale_upstream(chain: World) -> None:
    declared(chain, "1", "B")
    assert found(chain) == {"load/1": ["by_input"], "report/1": ["upstream"], "send/1": ["upstream"]}
    counts = reports.count_stale(chain.store, project="p")
    assert counts == {("p", "load"): (1, 0), ("p", "report"): (0, 1), ("p", "send"): (0, 1)}


def test_the_same_content_declared_again_makes_nobody_stale(chain: World) -> None:
    declared(chain, "1", "A")
    assert found(chain) == {}


def test_an_identical_rebuild_makes_nobody_stale_and_ends_what_was(chain: World) -> None:
    declared(chain, "1", "B")
    assert len(found(chain)) == 3
    operations.resubmit(chain.store, keys("load", "1"))
    assert found(chain) == {"report/1": ["upstream"], "send/1": ["upstream"]}, "its reader still has the older version"
    made(chain, "load", "1", "load A")
    assert found(chain) == {}


def test_a_different_rebuild_makes_its_reader_stale_by_its_input(chain: World) -> None:
    declared(chain, "1", "B")
    operations.resubmit(chain.store, keys("load", "1"))
    made(chain, "load", "1", "load B")
    assert found(chain) == {"report/1": ["by_input"], "send/1": ["upstream"]}
    (one,) = reports.list_stale(chain.store, project="p", jobid="report")
    (reason,) = reports.describe_stale(chain.store, one)
    assert reason.startswith("totals/1 has other content now")
    (follows,) = reports.list_stale(chain.store, project="p", jobid="send")
    assert reports.describe_stale(chain.store, follows) == ["pages/1, which it reads, is stale itself"]


def test_content_that_goes_back_is_fresh_again(chain: World) -> None:
    declared(chain, "1", "B")
    assert len(found(chain)) == 3
    declared(chain, "1", "A")
    assert found(chain) == {}


def test_changed_code_and_changed_checks_are_told_apart(chain: World) -> None:
    stale.record_codes(chain.store, [("p", "report", "c2", "k1")])
    assert found(chain) == {f"{name}/{dataid}": flags for dataid in ("1", "2") for name, flags in
                            (("report", ["by_code"]), ("send", ["upstream"]))}  # fmt: skip
    stale.record_codes(chain.store, [("p", "report", "c1", "k2")])
    assert found(chain)["report/1"] == ["by_check"]
    stale.record_codes(chain.store, [("p", "report", "c1", "k1")])
    assert found(chain) == {}


def test_code_that_is_not_known_makes_nothing_stale(world: World) -> None:
    world.apply(*CHAIN)
    declared(world, "1", "A")
    made(world, "load", "1", "load A", code=None)
    stale.record_codes(world.store, [("p", "load", "c2", "k1")])
    assert found(world) == {}


def test_where_nobody_else_knows_the_code_of_a_job_its_last_run_does(chain: World) -> None:
    operations.resubmit(chain.store, keys("load", "2"))
    made(chain, "load", "2", "load A", code="c2")
    assert found(chain) == {"load/1": ["by_code"], "report/1": ["upstream"], "send/1": ["upstream"]}


def test_a_chunk_that_was_declared_by_hand_was_made_by_nobody(chain: World) -> None:
    declared(chain, "1", "B")
    declared(chain, "1", "load by hand", datasetid="totals")
    assert found(chain) == {"report/1": ["by_input"], "send/1": ["upstream"]}


def test_a_chunk_that_all_dataids_read_is_gone_through_page_by_page(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(stale, "READERS", 3)
    world.apply(job("load", ["orders", "rates:full"], ["totals"]), job("report", ["totals"], ["pages"]))
    declared(world, "full", "A", datasetid="rates")
    days = [str(number) for number in range(1, 12)]
    for day in days:
        declared(world, day, "A")
        made(world, "load", day, f"load {day}")
        made(world, "report", day, f"report {day}")
    assert found(world) == {}
    declared(world, "full", "B", datasetid="rates")
    assert not stale.expand(world.store, seconds=0.0), "one batch does not hold them all"
    expected = {f"load/{day}": ["by_input"] for day in days} | {f"report/{day}": ["upstream"] for day in days}
    assert found(world) == expected
    stale.record_codes(world.store, [("p", "load", "c2", "k1")])
    assert found(world) == expected | {f"load/{day}": ["by_input", "by_code"] for day in days}


def test_each_chunk_of_a_window_counts(world: World) -> None:
    world.apply(job("load", ["orders:window:2"], ["totals"], partitions={"sequence": 1}))
    for dataid in ("4", "5", "6", "7"):
        declared(world, dataid, "A")
    for dataid in ("5", "6", "7"):
        world.store.expect_one(world.store.get_job("load", project="p"), dataid)
        world.store.map_new(world.store.get_job("load", project="p"))
        made(world, "load", dataid, "load A")
    assert found(world) == {}
    declared(world, "5", "B")
    assert found(world) == {"load/5": ["by_input"], "load/6": ["by_input"]}


def test_records_that_are_cleaned_away_are_worked_in_first(world: World) -> None:
    world.apply(*CHAIN)
    declared(world, "1", "A")
    made(world, "load", "1", "load A")
    assert sum(one.runs for one in operations.clean_history(world.store, "p", jobid=None, before=None)) == 1
    declared(world, "1", "B")
    assert found(world) == {"load/1": ["by_input"]}


def test_what_heals_is_what_is_stale_by_itself_and_the_rest_follows(chain: World) -> None:
    declared(chain, "1", "B")
    stale.expand(chain.store)
    roots = reports.find_stale_roots(chain.store, project="p", jobid=None, made_by=None)
    assert roots == keys("load", "1")
    operations.resubmit(chain.store, roots, cascade=True)
    made(chain, "load", "1", "load B")
    assert chain.status("report", "1") == "RESUBMIT", "it came out different"
    made(chain, "report", "1", "report A")
    assert chain.status("send", "1") == "COMPLETE", "it reads the same as before"
    assert found(chain) == {}


def test_only_what_a_commit_made_is_healed(chain: World) -> None:
    runid = made_by(chain, "1", "abc123")
    made_by(chain, "2", "def456")
    stale.record_codes(chain.store, [("p", "load", "c2", "k1")])
    stale.expand(chain.store)
    assert reports.find_stale_roots(chain.store, project="p", jobid=None, made_by="abc") == keys("load", "1")
    assert len(reports.find_stale_roots(chain.store, project="p", jobid=None, made_by=None)) == 2
    assert {one.runid for one in reports.list_stale(chain.store, project="p", jobid="load")} >= {runid}


def made_by(world: World, dataid: str, commit: str) -> int:
    operations.resubmit(world.store, keys("load", dataid))
    claim = world.must_claim("load", dataid)
    world.sql(f"INSERT INTO run_version (runid, git_commit) VALUES ({claim.runid}, '{commit}')")
    manifests = (("p", "totals", Manifest(f"/d/{claim.runid}", fingerprint="q/load A")),)
    world.store.finish(claim, Result(Ending.COMPLETE, 0, manifests=manifests, code="c1", checks="k1"))
    return claim.runid


def test_a_job_that_reruns_on_a_change_is_set_to_resubmit_and_only_that_job(world: World) -> None:
    load = CHAIN[0]._replace(definition=json.dumps({"on_change": "rerun"}))
    world.apply(load, *CHAIN[1:])
    declared(world, "1", "A")
    made(world, "load", "1", "load A")
    made(world, "report", "1", "report A")
    declared(world, "1", "B")
    assert on_change.keep_up(world.store, seconds=60.0) == 1
    assert (world.status("load", "1"), world.status("report", "1")) == ("RESUBMIT", "COMPLETE")
    last = registry.history_of(world.store, "p", "job", "load", "1")[-1]
    assert last["actor"] == "tests: on_change: an input changed"
    made(world, "load", "1", "load B")
    assert found(world) == {"report/1": ["by_input"]}, "report waits: a person decides"


def test_new_code_alone_reruns_nothing_by_itself(world: World) -> None:
    world.apply(CHAIN[0]._replace(definition=json.dumps({"on_change": "rerun"})), *CHAIN[1:])
    declared(world, "1", "A")
    made(world, "load", "1", "load A")
    stale.record_codes(world.store, [("p", "load", "c2", "k1")])
    assert on_change.keep_up(world.store, seconds=60.0) == 0
    assert found(world) == {"load/1": ["by_code"]}
    assert world.status("load", "1") == "COMPLETE"


def test_a_publish_leaves_it_to_maintenance_to_work_in_what_follows(chain: World) -> None:
    declared(chain, "1", "B")
    assert stale.is_behind(chain.store)
    assert chain.sql("SELECT count(*) FROM stale") == [(0,)]
    assert stale.expand(chain.store)
    assert not stale.is_behind(chain.store)
    assert chain.sql("SELECT count(*) FROM stale") == [(3,)]


def test_readers_that_have_an_older_version_are_counted(chain: World) -> None:
    assert reports.readers_behind(chain.store, "p", "orders", "1") == []
    declared(chain, "1", "B")
    assert reports.readers_behind(chain.store, "p", "orders", "1") == [Key("p", "load", "1")]
    assert reports.readers_behind(chain.store, "p", "totals", "1", all_readers=True) == [Key("p", "report", "1")]
