"""Data that is older than what it should be made from, as a person meets it: listed, said where it matters, healed."""

import json
import os
import time
from typing import Any

import pytest

from support.projects import Project

PROJECT = """
name: Shop
datasets:
  daily: {path: "daily/{dataid}.txt", partitions: {sequence: 1..2}}
  checks: {path: "checks/{dataid}.txt"}
  full: {path: "full/{dataid}.txt"}
jobs:
  load: {script: load.sh, inputs: [daily], outputs: [checks]}
  READY: {script: READY.sh, inputs: [checks], outputs: [full]}
"""


@pytest.fixture
def shop(project: Project) -> Project:
    """daily → load → checks → READY → full, all made once."""
    project.script("load.sh", 'tr a-z A-Z < "$daily_LOCATION" > "$checks_LOCATION"')
    project.script("READY.sh", 'cp "$checks_LOCATION" "$full_LOCATION"')
    project.apply(PROJECT)
    for dataid in ("1", "2"):
        project.write(f"daily/{dataid}.txt", f"day {dataid}")
        assert project.dataflow("ready", "daily", dataid).returncode == 0
    assert project.dataflow("tick").returncode == 0
    assert stale(project) == {}
    return project


def stale(project: Project) -> dict[str, Any]:
    told = json.loads(project.dataflow("stale", "--json").stdout)
    assert told["complete"]
    return {f"{one['jobid']}/{one['dataid']}": one for one in told["stale"]}


def kinds(project: Project) -> dict[str, str]:
    return {name: one["kind"] for name, one in stale(project).items()}


def arrive(project: Project, dataid: str, text: str) -> str:
    project.write(f"daily/{dataid}.txt", text)
    done = project.dataflow("ready", "daily", dataid)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_changed_input_is_said_listed_explained_and_healed(shop: Project) -> None:
    said = arrive(shop, "1", "another day")
    assert "1 reader has the older version: `dataflow resubmit load 1 --cascade`" in said
    assert kinds(shop) == {"load/1": "direct", "READY/1": "upstream"}
    assert stale(shop)["READY/1"]["reasons"] == ["checks/1, which it reads, is stale itself"]
    listed = shop.dataflow("stale").stdout
    assert "daily/1 has other content now" in listed
    assert "2 stale: 1 directly, 1 because of what they read; `dataflow resubmit --stale` makes them again" in listed
    assert "2 stale: 1 directly, 1 because of what they read; see `dataflow stale`" in shop.dataflow("status").stdout
    why = shop.dataflow("why", "load", "1").stdout
    assert "stale (direct): daily/1 has other content now" in why
    assert "Next step: `dataflow resubmit load 1 --cascade`" in why
    lineage = shop.dataflow("lineage", "full", "1").stdout
    assert "stale because of what it was made from" in next(line for line in lineage.splitlines() if "full/1" in line)
    assert lineage.count(", stale") == 2
    rows = json.loads(shop.dataflow("status", "READY", "--json").stdout)
    assert [(row["dataid"], row["stale"]) for row in rows] == [("1", "upstream"), ("2", None)]
    done = shop.dataflow("resubmit", "--stale")
    assert "load/1: COMPLETE → RESUBMIT (stale)" in done.stderr
    assert shop.dataflow("tick").returncode == 0
    assert stale(shop) == {}
    assert (shop.folder / "full/1.txt").read_text() == "ANOTHER DAY"
    assert shop.dataflow("stale").stdout == "Nothing is stale.\n"


def test_after_a_plain_resubmit_the_readers_are_named_and_stay_stale_until_the_same_comes_out(shop: Project) -> None:
    arrive(shop, "1", "another day")
    said = shop.dataflow("resubmit", "load", "1").stderr
    assert "1 reader has the older version: `dataflow resubmit load 1 --cascade`" in said
    assert kinds(shop) == {"READY/1": "upstream"}
    shop.dataflow("tick")
    assert kinds(shop) == {"READY/1": "direct"}


def test_an_identical_rebuild_makes_nobody_stale(shop: Project) -> None:
    assert "older version" not in arrive(shop, "1", "day 1")
    shop.dataflow("resubmit", "load", "1")
    shop.dataflow("tick")
    assert stale(shop) == {}


def test_edited_code_makes_what_it_made_stale_and_what_follows(shop: Project) -> None:
    shop.script("load.sh", 'tr a-z A-Z < "$daily_LOCATION" | rev > "$checks_LOCATION"')
    assert kinds(shop) == {"load/1": "direct", "load/2": "direct", "READY/1": "upstream", "READY/2": "upstream"}
    assert stale(shop)["load/1"]["by"] == ["code"]
    shop.dataflow("resubmit", "--stale")
    shop.dataflow("tick")
    assert stale(shop) == {}
    assert (shop.folder / "full/2.txt").read_text() == "2 YAD"


def test_a_new_check_makes_what_was_not_checked_so_stale(shop: Project) -> None:
    text = PROJECT.replace('checks/{dataid}.txt"', 'checks/{dataid}.txt", format: csv, checks: [{bytes: {min: 1}}]')
    shop.apply(text)
    assert stale(shop)["load/1"]["by"] == ["code", "checks"]


def test_settings_that_change_nothing_of_the_data_make_nothing_stale(shop: Project) -> None:
    shop.apply(PROJECT.replace("outputs: [checks]", "outputs: [checks], retries: {max: 2, give_up_on: [3]}"))
    assert stale(shop) == {}


def test_a_job_that_reruns_on_a_change_does_so_and_the_next_one_waits(shop: Project) -> None:
    shop.apply(PROJECT.replace("outputs: [checks]", "outputs: [checks], on_change: rerun"))
    arrive(shop, "1", "another day")
    assert shop.dataflow("tick").returncode == 0
    assert (shop.folder / "checks/1.txt").read_text() == "ANOTHER DAY"
    assert kinds(shop) == {"READY/1": "direct"}


def test_a_worker_does_so_too(shop: Project) -> None:
    shop.apply(PROJECT.replace("outputs: [checks]", "outputs: [checks], on_change: rerun"))
    worker = shop.start("dataflow", "worker")
    try:
        arrive(shop, "1", "another day")
        give_up = time.monotonic() + 60
        while (shop.folder / "checks/1.txt").read_text() != "ANOTHER DAY" and time.monotonic() < give_up:
            time.sleep(0.1)
    finally:
        worker.terminate()
        worker.communicate(timeout=60)
    assert (shop.folder / "checks/1.txt").read_text() == "ANOTHER DAY"


def test_what_is_stale_of_a_dataset_is_that_of_its_job(shop: Project) -> None:
    arrive(shop, "1", "another day")
    told = json.loads(shop.dataflow("stale", "full", "--json").stdout)
    assert [(one["jobid"], one["dataid"]) for one in told["stale"]] == [("READY", "1")]
    refused = shop.dataflow("stale", "daily")
    assert refused.returncode == 2
    assert "no job makes daily" in refused.stderr


def test_touching_a_script_makes_nothing_stale(shop: Project) -> None:
    os.utime(shop.folder / "load.sh")
    assert stale(shop) == {}
