"""The overview where more failed, is held or waits than it looks at: nothing that failed is hidden by the rest."""

from pathlib import Path
from typing import Any

import pytest
from world import World, job

from opendataflow.domain.runs.run import Ending
from opendataflow.project.address import Address
from opendataflow.server.overview import facts as facts_overview
from opendataflow.store.operations import hold


@pytest.fixture
def broken(world: World) -> World:
    """A job of which much failed, one of which one dataid did, one that is held in part."""
    shards = {"shards": "1..5"}
    world.apply(*(job(name, [], [f"{name}_out"], partitions=shards) for name in ("all", "one", "some")))
    for dataid in "12345":
        world.finish(world.must_claim("all", dataid), Ending.FAILED, message="it exited 1")
    world.finish(world.must_claim("one", "3"), Ending.FAILED, message="it exited 3")
    hold(world.store, world.store.get_job("some", project="p"), "1234")
    return world


def standing(world: World, folder: Path) -> tuple[dict[tuple[str, str], Any], bool]:
    address = Address(world.url, None, None, None, str(folder))
    told = facts_overview.standing(world.store, address, project=None)
    return {(one["cause"], one["name"]): one for one in told["needs"]}, told["needs_all"]


@pytest.mark.parametrize("limit", [2, 2_000])
def test_every_job_that_failed_or_is_held_is_told_with_the_number_of_all(
    broken: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(facts_overview, "LOOKED_AT", limit)
    found, is_all = standing(broken, tmp_path)
    assert is_all is (limit > 5)
    told = {key: found[key]["number"] for key in found if key[0] in ("FAILED", "HOLD")}
    assert told == {("FAILED", "all"): 5, ("FAILED", "one"): 1, ("HOLD", "some"): 4}
    one = found["FAILED", "one"]
    assert (one["says"], one["dataids"]) == ("it exited 3", ["3"])
    assert "dataflow resubmit one 3" in one["fix"]
