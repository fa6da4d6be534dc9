"""The page of workers, and the API's workers and limits."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgres import Server as Database
from support.processes import wait_for
from support.projects import DATAFLOW, Project
from support.web import Site, browser

TEXT = """\
name: Works
datasets:
  crm: {hostname: crm.internal, database: crm, tablename: orders, partitions: {shards: 1..3}}
  copied: {path: "copied/{dataid}"}
jobs:
  copy: {script: jobs/copy.sh, inputs: [crm], outputs: [copied], concurrency: 2}
limits: {crm.internal/crm: 4}
"""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("workers")
    url = f"sqlite:///{folder / 'state.db'}"
    if request.param == "postgres":
        database: Database = request.getfixturevalue("postgres_server")
        url = database.new_database()
    project = Project(folder / "project", url)
    project.apply(TEXT)
    project.script("jobs/copy.sh", 'while [ ! -e go ]; do sleep 0.1; done; echo 1 > "$copied_location"')
    with Site(project) as made:
        yield made


def test_workers_what_runs_there_and_limits(site: Site) -> None:
    script = site.script("viewer")
    assert script.get("/v1/workers").json["items"] == []
    assert "No worker has been here" in site.visitor("viewer").get("/workers").words
    worker = site.project.start(DATAFLOW, "worker", "--slots", "3")
    try:
        site.project.sql("INSERT INTO datastatus (datasetid, dataid, status) VALUES ('crm', '1', 'READY')")
        wait_for(lambda: script.get("/v1/workers/runs").json["items"] != [], "a run", seconds=60)
        (run,) = script.get("/v1/workers/runs").json["items"]
        assert (run["job"], run["dataid"], run["expired"]) == ("copy", "1", False)
        wait_for(lambda: script.get("/v1/workers").json["running"] == 1, "a beat", seconds=60)
        found = script.get("/v1/workers").json
        (one,) = found["items"]
        assert (one["slots"], one["running"], one["is_gone"], found["alive"]) == (3, 1, False, 1)
        assert run["owner"] == one["name"]
        words = site.visitor("operator").get("/workers").words
        assert one["name"] in words
        assert "working" in words
        limits = script.get("/v1/limits").json
        assert [(of["name"], of["max_runs"], of["running"]) for of in limits["connections"]] == [
            ("crm.internal/crm", 4, 1)
        ]
        assert [(of["jobid"], of["max_runs"]) for of in limits["jobs"]] == [("copy", 2)]
        assert "connection crm.internal/crm 4" in words
        with browser(site, "operator", viewport={"width": 360, "height": 740}) as page:
            page.goto("/workers")
            page.get_by_text("working").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            (site.project.folder / "go").touch()
            page.get_by_text("Nothing runs now").wait_for()
    finally:
        (site.project.folder / "go").touch()
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
    assert script.get("/v1/workers/runs?limit=0").status == 422


def test_a_worker_that_is_not_heard_of_is_gone(site: Site) -> None:
    site.project.sql(
        "INSERT INTO worker (name, host, pid, pid_started, slots, seen_at) "
        "VALUES ('ben@far:7', 'far', 7, 1, 2, '2026-01-01T00:00:00.000Z')"
    )
    (gone,) = [one for one in site.script("viewer").get("/v1/workers").json["items"] if one["name"] == "ben@far:7"]
    assert gone["is_gone"]
    assert "gone" in site.visitor("viewer").get("/workers").words


def test_all_is_paused_from_there(site: Site) -> None:
    operator = site.script("operator")
    operator.act("pause", until="2h", reason="the CRM is down")
    assert "Everything is paused by the-operator" in site.visitor("viewer").get("/workers").words
    assert operator.get("/v1/workers").json["all_paused_by"].endswith("the CRM is down")
    assert operator.get("/v1/jobs").json["all_paused_by"]
    operator.act("resume")
    assert operator.get("/v1/workers").json["all_paused_by"] is None
