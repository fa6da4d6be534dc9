"""Published data that is gone or changed is found, kept with its fix, and forgotten when it is whole again."""

import json
import os
import time
from pathlib import Path

import pytest

from support.projects import DATAFLOW, Project, with_settings

PROJECT = """
name: Shop
datasets:
  daily: {path: "daily/{dataid}.txt"}
  READY: {path: "READY/{dataid}.txt"}
jobs:
  checks: {script: checks.sh, inputs: [daily], outputs: [READY]}
"""


@pytest.fixture
def shop(project: Project) -> Project:
    project.script("checks.sh", 'tr a-z A-Z < "$daily_LOCATION" > "$READY_LOCATION"')
    project.apply(PROJECT)
    for dataid in ("1", "2"):
        project.write(f"daily/{dataid}.txt", f"day {dataid}")
        assert project.dataflow("ready", "daily", dataid).returncode == 0
    assert project.dataflow("tick").returncode == 0
    assert verified(project) == {}
    return project


def verified(project: Project, *options: str) -> dict[str, str]:
    done = project.dataflow("verify", *options, "--json")
    told = json.loads(done.stdout)
    assert done.returncode == (1 if told["wrong"] else 0)
    return {f"{one['dataset']}/{one['dataid']}": one["finding"] for one in told["wrong"]}


def forge(file: Path, text: str) -> None:
    """Other content of the same size and time."""
    seen = file.stat()
    file.write_text(text)
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def test_a_removed_output_is_found_and_why_says_how_to_make_it_again(shop: Project) -> None:
    (shop.folder / "READY/1.txt").unlink()
    assert "is gone" not in shop.dataflow("why", "checks", "1").stdout, "nobody has looked yet"
    done = shop.dataflow("verify")
    assert done.returncode == 1
    assert "`dataflow resubmit checks 1 --cascade`" in done.stdout
    why = shop.dataflow("why", "checks", "1").stdout
    assert "READY/1 is gone" in why
    assert "Next step: `dataflow resubmit checks 1 --cascade`" in why
    assert "GONE  READY/1: READY/1 is gone" in shop.dataflow("why").stdout
    shop.dataflow("resubmit", "checks", "1", "--cascade")
    assert shop.dataflow("tick").returncode == 0
    assert shop.dataflow("why").stdout == "Nothing failed and nothing is blocked.\n"
    assert verified(shop) == {}


def test_a_changed_output_is_found_and_a_touched_one_is_not(shop: Project) -> None:
    shop.write("READY/1.txt", "something else")
    os.utime(shop.folder / "READY/2.txt")
    assert verified(shop) == {"READY/1": "changed"}


def test_contents_are_read_on_demand(shop: Project) -> None:
    forge(shop.folder / "READY/1.txt", "DAY 9")
    assert verified(shop) == {}
    assert verified(shop, "--contents") == {"READY/1": "changed"}


def test_what_was_put_back_is_whole_again(shop: Project) -> None:
    file = shop.folder / "READY/1.txt"
    file.rename(shop.folder / "aside.txt")
    assert verified(shop) == {"READY/1": "gone"}
    (shop.folder / "aside.txt").rename(file)
    assert verified(shop) == {}


def test_data_from_outside_is_declared_anew_or_put_back(shop: Project) -> None:
    shop.write("daily/2.txt", "another day")
    assert verified(shop, "daily") == {"daily/2": "changed"}
    why = shop.dataflow("why", "checks", "2").stdout
    assert "daily/2 is not what was published any more" in why
    assert "`dataflow ready daily 2` if this is the new version" in why
    shop.dataflow("ready", "daily", "2")
    assert verified(shop, "daily") == {}


def test_a_worker_looks_by_itself(shop: Project) -> None:
    (shop.folder / "READY/1.txt").unlink()
    worker = shop.start(*with_settings(DATAFLOW, "scheduling.verifier.PAUSE_SECONDS = 0.2"), "worker")
    try:
        give_up = time.monotonic() + 60
        while "READY/1 is gone" not in shop.dataflow("why").stdout and time.monotonic() < give_up:
            time.sleep(0.1)
    finally:
        worker.terminate()
        output, errors = worker.communicate(timeout=60)
    assert "READY/1 is gone; `dataflow resubmit checks 1 --cascade`" in output + errors
