"""Stale and damaged data on the pages and in the API, and the action that makes it again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgres import Server as Database
from support.projects import Project
from support.web import Site

PROJECT = """
name: Shop
datasets:
  daily: {path: "daily/{dataid}.txt"}
  checks: {path: "checks/{dataid}.txt"}
  full: {path: "full/{dataid}.txt"}
jobs:
  load: {script: load.sh, inputs: [daily], outputs: [checks]}
  READY: {script: READY.sh, inputs: [checks], outputs: [full]}
"""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """daily/1 was declared anew after load and READY had made checks/1 and full/1 of it."""
    folder: Path = tmp_path_factory.mktemp("stale")
    url = f"sqlite:///{folder / 'state.db'}"
    if request.param == "postgres":
        database: Database = request.getfixturevalue("postgres_server")
        url = database.new_database()
    project = Project(folder / "project", url)
    project.script("load.sh", 'cp "$daily_LOCATION" "$checks_LOCATION"')
    project.script("READY.sh", 'cp "$checks_LOCATION" "$full_LOCATION"')
    project.apply(PROJECT)
    for text in ("first", "second"):
        project.write("daily/1.txt", text)
        assert project.dataflow("ready", "daily", "1").returncode == 0
        assert project.dataflow("tick").returncode == 0
    (folder / "project/full/1.txt").unlink()
    assert project.dataflow("verify", "full").returncode == 1
    with Site(project) as made:
        yield made


def test_the_api_lists_and_counts_what_is_stale(site: Site) -> None:
    viewer = site.script("viewer")
    told = viewer.get("/v1/stale").json
    assert [(one["jobid"], one["dataid"], one["kind"]) for one in told["stale"]] == [
        ("READY", "1", "upstream"),
        ("load", "1", "direct"),
    ]
    assert told["complete"]
    assert [one["jobid"] for one in viewer.get("/v1/stale?name=full").json["stale"]] == ["READY"]
    assert viewer.get("/v1/overview").json["stale"] == {"direct": 1, "upstream": 1}
    assert viewer.get("/v1/jobs/shop/load").json["stale"] == {"direct": 1, "upstream": 0}
    assert viewer.get("/v1/datasets/shop/full").json["stale"] == {"direct": 0, "upstream": 1}
    assert viewer.get("/v1/datasets/shop/daily").json["stale"] == {"direct": 0, "upstream": 0}
    assert viewer.get("/v1/datasets/shop/checks/chunks/1").json["stale"]["by"] == ["input"]
    why = viewer.get("/v1/jobs/shop/READY/1").json
    assert why["stale"]["reasons"] == ["checks/1, which it reads, is stale itself"]
    assert [(one["chunk"], one["finding"]) for one in why["damage"]] == [("full/1", "gone")]


def test_the_pages_say_it(site: Site) -> None:
    viewer = site.visitor("viewer")
    overview = viewer.get("/").words
    assert "2 published dataids are older than what they should be made from" in overview
    assert "Published data is gone" in overview
    assert "1 stale: 1 directly, 0 because of what they read" in viewer.get("/jobs/shop/load").words
    assert "1 stale chunk: 0 directly, 1 because of what they read" in viewer.get("/datasets/shop/full").words
    assert "direct: daily/1 has other content now" in viewer.get("/datasets/shop/checks/1").words
    why = viewer.get("/jobs/shop/READY/1").words
    assert "Stale (upstream): checks/1, which it reads, is stale itself" in why
    assert "full/1 is gone" in why


def test_the_action_makes_again_what_is_stale_and_has_its_readers_follow(site: Site) -> None:
    assert "Make again what is stale…" in site.visitor("operator").get("/").words
    done = site.script("operator").act("resubmit", stale=True)
    assert [one["jobid"] for one in done["result"]["changed"]] == ["load"]
    marks = site.project.sql("SELECT datasetid FROM datastatus WHERE readers_follow = 1")
    assert "checks" in str(marks)
