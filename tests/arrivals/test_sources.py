"""Source files that are simply there: taken in before a run, and again when they changed."""

import datetime
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from opendataflow.arrivals.sources import take_in_datasets, take_in_sources
from opendataflow.domain.chunk import Manifest
from opendataflow.project.registration.load import load_registration
from opendataflow.store import open_store
from opendataflow.store.claims import LoopStore
from opendataflow.store.migrate import upgrade
from opendataflow.store.registry import apply, assert_ready, get_dataset

PROJECT = """\
name: x
datasets:
  days: {path: "days/{dataid}.csv", format: csv, partitions: {daily: 2025-01-01..2025-01-02}}
  waited: {path: waited.csv, format: csv, partitions: none, arrival: {stable: 1s}}
pipelines:
  - {slug: first, sources: orders.csv, destination: clean}
  - {slug: second, sources: clean, destination: totals}
  - {slug: beside, sources: [orders, rates], destination: other}
  - {slug: daily, sources: [days, orders], destination: by_day}
  - {slug: waits, sources: waited, destination: done}
"""


class World:
    def __init__(self, folder: Path, store: LoopStore) -> None:
        self.folder, self.store = folder, store
        self.said: list[str] = []

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def take_in(self, jobid: str) -> list[str]:
        """What is said when this job is about to run."""
        self.said.clear()
        take_in_sources(self.store, self.store.get_job(jobid, project="x"), say=self.said.append)
        return list(self.said)

    def finish(self, jobid: str, dataid: str = "full") -> None:
        """As if the job had run: its output is READY."""
        (output,) = self.store.get_job(jobid, project="x").outputs
        assert_ready(self.store, output.dataset, dataid, Manifest(location=None))
        assert self.status(jobid, dataid) == "COMPLETE"

    def status(self, jobid: str, dataid: str = "full") -> str:
        key = {"project": "x", "jobid": jobid, "dataid": dataid}
        return str(self.store.read("row_of", key, file="operations")[0][0])

    def can_run(self, jobid: str) -> str | None:
        found = self.store.find_claimable(self.store.get_job(jobid, project="x"))
        return found.dataid if found else None


@pytest.fixture
def world(tmp_path: Path, store_url: str) -> Iterator[World]:
    (tmp_path / "project.yml").write_text(PROJECT)
    store = open_store(store_url, actor="somebody", must_exist=False, check=False)
    upgrade(store)
    apply(store, load_registration(str(tmp_path), "default"), now=datetime.datetime(2025, 2, 1, tzinfo=datetime.UTC))
    yield World(tmp_path, store)
    store.close()


def test_a_source_that_is_there_is_ready_without_a_scan(world: World) -> None:
    world.write("sources/orders.csv", "a\n1\n")
    assert world.can_run("first") is None
    assert world.take_in("first") == ["orders/full READY"]
    assert world.can_run("first") == "full"
    assert world.take_in("first") == []


def test_a_source_that_is_not_there_is_told_with_its_place(world: World) -> None:
    place = world.folder / "sources" / "orders.csv"
    assert world.take_in("first") == [f"orders is {place}, and there is no such file; put it there"]
    assert world.can_run("first") is None


def test_a_source_without_changes_leaves_what_is_done_alone(world: World) -> None:
    world.write("sources/orders.csv", "a\n1\n")
    world.take_in("first")
    world.finish("first")
    os.utime(world.folder / "sources" / "orders.csv", (1, 1))  # another time, the same content
    assert world.take_in("first") == []
    assert world.status("first") == "COMPLETE"


def test_a_changed_source_is_taken_in_and_all_that_was_made_of_it_is_made_again(world: World) -> None:
    world.write("sources/orders.csv", "a\n1\n")
    world.write("sources/rates.csv", "b\n1\n")
    world.take_in("beside")
    for jobid in ("first", "second", "beside"):
        world.finish(jobid)
    world.write("sources/orders.csv", "a\n1\n2\n")
    (said,) = world.take_in("first")
    assert said.startswith("orders/full changed, and was taken in anew; to be made again: ")
    assert {jobid: world.status(jobid) for jobid in ("first", "second", "beside")} == {
        "first": "RESUBMIT",
        "second": "RESUBMIT",
        "beside": "RESUBMIT",
    }
    assert world.can_run("first") == "full"
    assert world.can_run("second") is None, "its input is closed until it is made again"
    assert world.take_in("first") == []


def test_days_keep_what_was_made_with_the_earlier_version(world: World) -> None:
    world.write("sources/orders.csv", "a\n1\n")
    world.take_in("daily")
    world.finish("daily", "2025-01-01")
    world.write("sources/orders.csv", "a\n1\n2\n")
    said = world.take_in("daily")
    assert "1 dataids of daily keep what the version before made; `dataflow resubmit daily DATAID…`" in said
    assert world.status("daily", "2025-01-01") == "COMPLETE"


def test_a_failed_run_is_tried_again_when_its_source_was_mended(world: World) -> None:
    world.write("sources/orders.csv", "broken\n")
    world.take_in("first")
    with world.store.transaction(file="operations") as tx:
        key = {"project": "x", "jobid": "first", "dataid": "full", "now": world.store.time()}
        assert tx.run("set_status", {**key, "status": "FAILED", "before": "PENDING"})
    assert world.can_run("first") is None
    world.write("sources/orders.csv", "a\n1\n")
    world.take_in("first")
    assert world.can_run("first") == "full"


def test_a_declared_dataset_that_changed_is_told_but_not_taken_in(world: World) -> None:
    world.write("waited.csv", "a\n1\n")
    os.utime(world.folder / "waited.csv", (1, 1))
    assert world.take_in("waits") == ["waited/full READY"]
    world.write("waited.csv", "a\n2\n")
    (said,) = world.take_in("waits")
    assert said.startswith("waited/full changed WRONG_DATA: ")
    assert "`dataflow ready waited full` takes it as it is now" in said


def test_all_datasets_of_a_project_can_be_taken_in_at_once(world: World) -> None:
    world.write("sources/orders.csv", "a\n1\n")
    world.write("sources/rates.csv", "b\n1\n")
    datasets = [get_dataset(world.store, name, project="x")[0] for name in ("orders", "rates", "days", "clean")]
    said: list[str] = []
    take_in_datasets(world.store, datasets, str(world.folder), say=said.append)
    assert said == ["orders/full READY", "rates/full READY"]
