"""An input that changes while a run reads it: nothing is published, and the dataid waits for a validated version."""

import json

import pytest

from support.projects import Project

PROJECT = """
name: Shop
datasets:
  daily: {path: "daily/{dataid}.txt"}
  READY: {path: "READY/{dataid}.txt"}
jobs:
  load: {script: load.sh, inputs: [daily], outputs: [READY], retries: {max: 1}}
"""


@pytest.fixture
def shop(project: Project) -> Project:
    project.apply(PROJECT)
    project.write("daily/1.txt", "first")
    assert project.dataflow("ready", "daily", "1").returncode == 0
    return project


def row(project: Project) -> dict[str, object]:
    (found,) = json.loads(project.dataflow("status", "load", "--json").stdout)
    return dict(found)


def test_it_is_handed_back_and_waits_until_the_new_version_is_declared(shop: Project) -> None:
    shop.script("load.sh", 'cp "$daily_LOCATION" "$READY_LOCATION"; echo second > "$daily_LOCATION"')
    done = shop.dataflow("run", "load")
    assert done.returncode == 11, done.stderr
    assert "WRONG_DATA: daily/1 changed while it was read" in done.stderr
    assert (row(shop)["status"], row(shop)["attempts"]) == ("RESUBMIT", 0)
    shop.script("load.sh", 'cp "$daily_LOCATION" "$READY_LOCATION"')
    assert shop.dataflow("run", "load").returncode == 11, "what lies there now was not validated"
    assert row(shop)["parked_until"] is not None
    assert shop.dataflow("ready", "daily", "1").returncode == 0
    assert shop.dataflow("run", "load").returncode == 0
    assert (shop.folder / "READY/1.txt").read_text() == "second\n"


def test_runjob_ends_with_11_too(shop: Project) -> None:
    shop.script("load.sh", 'cp "$daily_LOCATION" "$READY_LOCATION"; echo second > "$daily_LOCATION"')
    done = shop.runjob("load.sh")
    assert done.returncode == 11, done.stderr
    assert row(shop)["status"] == "RESUBMIT"


def test_an_input_that_is_touched_or_written_again_as_it_was_is_the_same(shop: Project) -> None:
    shop.script(
        "load.sh", 'cp "$daily_LOCATION" "$READY_LOCATION"; touch "$daily_LOCATION"; printf first > "$daily_LOCATION"'
    )
    assert shop.dataflow("run", "load").returncode == 0


def test_a_script_may_remove_what_it_has_read(shop: Project) -> None:
    shop.script("load.sh", 'mv "$daily_LOCATION" "$READY_LOCATION"')
    assert shop.dataflow("run", "load").returncode == 0
