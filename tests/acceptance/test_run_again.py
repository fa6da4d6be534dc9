"""`dataflow run` of one dataid that is done: it runs again when something changed since, and says what."""

import pytest

from support.projects import Project

PROJECT = """
name: Shop
datasets:
  daily: {path: daily.txt, partitions: none}
  full: {path: full.txt, partitions: none}
jobs:
  checks: {script: checks.sh, inputs: [daily], outputs: [full]}
"""
SCRIPT = 'cp "$daily_LOCATION" "$full_LOCATION"; echo ran >> ran.txt'


@pytest.fixture
def shop(project: Project) -> Project:
    project.script("checks.sh", SCRIPT)
    project.apply(PROJECT)
    project.write("daily.txt", "day 1")
    assert project.dataflow("ready", "daily", "full").returncode == 0
    assert project.dataflow("run", "checks").returncode == 0
    assert runs(project) == 1
    return project


def runs(project: Project) -> int:
    return len((project.folder / "ran.txt").read_text().splitlines())


def run(project: Project, *options: str, code: int = 0) -> str:
    done = project.dataflow("run", "checks", *options)
    assert done.returncode == code, done.stderr
    return done.stderr


def test_what_has_not_changed_is_up_to_date(shop: Project) -> None:
    assert "checks/full: up to date since run" in run(shop)
    assert "`--again` runs it anyway" in run(shop, "--dataid", "full")
    assert runs(shop) == 1
    assert "checks/full runs again: --again" in run(shop, "--again")
    assert runs(shop) == 2


def test_changed_code_runs_it_again(shop: Project) -> None:
    shop.script("checks.sh", SCRIPT + "; true")
    assert "checks/full runs again: the code or definition of checks has changed" in run(shop)
    assert runs(shop) == 2
    assert "up to date" in run(shop)


def test_a_changed_input_runs_it_again_once_it_is_declared(shop: Project) -> None:
    shop.write("daily.txt", "day 2")
    assert "WRONG_DATA: daily/full is not what was declared" in run(shop, code=11)
    assert (shop.folder / "full.txt").read_text() == "day 1"
    shop.dataflow("ready", "daily", "full")
    assert "daily/full has other content now" in run(shop)
    assert (shop.folder / "full.txt").read_text() == "day 2"


def test_an_output_that_is_gone_or_changed_is_made_again(shop: Project) -> None:
    (shop.folder / "full.txt").unlink()
    assert "checks/full runs again: full/full is gone" in run(shop)
    shop.write("full.txt", "by hand")
    assert "full/full is not what was published any more" in run(shop)
    assert (shop.folder / "full.txt").read_text() == "day 1"


def test_runjob_drain_and_tick_are_caught_up(shop: Project) -> None:
    shop.script("checks.sh", SCRIPT + "; true")
    for command in (shop.runjob("checks.sh"), shop.dataflow("run", "checks", "--drain"), shop.dataflow("tick")):
        assert command.returncode == 0, command.stderr
    assert "caught up" in shop.runjob("checks.sh").stderr
    assert runs(shop) == 1


def test_again_is_for_one_dataid(shop: Project) -> None:
    assert "--again is for one dataid" in run(shop, "--drain", "--again", code=2)
