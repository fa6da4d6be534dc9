"""What is kept of a pipeline's run: how it was made, and each of its transformations, over both stores."""

from typing import Any

import pytest
from world import World, job

from opendataflow.domain.runs.run import Ending
from opendataflow.store.reports.pipelines import find_run, list_steps, record_runs, record_steps

NEW = [{"position": 1, "name": "drop"}, {"position": 2, "name": "price"}]


@pytest.fixture
def shop(world: World) -> World:
    world.apply(job("load", ["orders"], ["totals"]), job("other", ["orders"], ["sums"]))
    world.sql("UPDATE job SET kind = 'pipeline'")
    world.ready("orders", "1", "2")
    return world


def listed(world: World, **filters: Any) -> list[tuple[str, str, str, str]]:
    found = list_steps(world.store, **{"project": None, "jobid": None, "status": None, "limit": 100, **filters})
    return [(one["jobid"], one["dataid"], one["name"], one["status"]) for one in found]


def test_what_is_known_of_a_run_is_kept_and_replaced_as_more_is_known(shop: World) -> None:
    claim = shop.must_claim("load", "1")
    record_runs(shop.store, [(claim, {"git_commit": "abc", "dirty": 1}, NEW)])
    found = find_run(shop.store, claim.runid)
    assert found is not None
    assert (found["git_commit"], found["dirty"], found["rows"]) == ("abc", 1, None)
    assert [step["status"] for step in found["transformations"]] == ["PENDING", "PENDING"]

    record_steps(shop.store, claim, [{"position": 1, "name": "drop", "status": "RUNNING", "output": "a\0b"}])
    found = find_run(shop.store, claim.runid)
    assert found is not None
    assert [(step["status"], step["output"]) for step in found["transformations"]] == [
        ("RUNNING", "a\N{REPLACEMENT CHARACTER}b"),
        ("PENDING", ""),
    ]
    assert found["git_commit"] == "abc"

    done = [{**step, "status": "DONE", "rows": 7, "seconds": 0.5, "digest": "d"} for step in NEW]
    record_runs(shop.store, [(claim, {"engine": "spark", "rows": 7, "bytes": 90, "plan": "Scan"}, done)])
    found = find_run(shop.store, claim.runid)
    assert found is not None
    assert (found["engine"], found["rows"], found["bytes"], found["plan"]) == ("spark", 7, 90, "Scan")
    assert [(step["status"], step["rows"], step["seconds"]) for step in found["transformations"]] == [
        ("DONE", 7, 0.5),
        ("DONE", 7, 0.5),
    ]


def test_the_newest_run_of_each_pipeline_is_listed_and_errors_until_they_are_healed(shop: World) -> None:
    for dataid in ("1", "2"):
        claim = shop.must_claim("load", dataid)
        failed = [{**NEW[0], "status": "DONE"}, {**NEW[1], "status": "ERROR", "error": "no price"}]
        record_runs(shop.store, [(claim, {}, failed)])
        shop.finish(claim, Ending.FAILED)
    assert listed(shop) == [("load", "2", "drop", "DONE"), ("load", "2", "price", "ERROR")]
    assert listed(shop, status="ERROR") == [("load", "2", "price", "ERROR"), ("load", "1", "price", "ERROR")]
    assert listed(shop, status="ERROR", limit=1) == [("load", "2", "price", "ERROR")]
    assert listed(shop, status="ERROR", jobid="other") == []
    assert listed(shop, jobid="other") == []

    shop.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'load' AND dataid = '2'")
    claim = shop.must_claim("load", "2")
    record_runs(shop.store, [(claim, {}, [{**step, "status": "DONE"} for step in NEW])])
    shop.finish(claim)
    assert listed(shop, status="ERROR") == [("load", "1", "price", "ERROR")]


def test_a_run_that_is_deleted_takes_its_transformations_along(shop: World) -> None:
    claim = shop.must_claim("load", "1")
    record_runs(shop.store, [(claim, {}, NEW)])
    shop.finish(claim, Ending.FAILED)
    shop.sql(f"DELETE FROM run WHERE runid = {claim.runid}")
    assert find_run(shop.store, claim.runid) is None
    assert shop.sql("SELECT count(*) FROM transformation") == [(0,)]
