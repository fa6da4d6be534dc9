"""The pages and API of jobs and pipelines, and setting their schedules there."""

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opendataflow.arrivals.due import make_due
from opendataflow.domain.runs.questions import Answer, Question, Verdict
from opendataflow.domain.runs.run import Ending, Owner, Result
from opendataflow.store import open_store
from opendataflow.store.claims import LoopStore
from opendataflow.store.reports.pipelines import record_runs
from support.postgres import Server as Database
from support.projects import Project
from support.web import Site, browser

TEXT = """\
name: Shop
environments: {dev: {root: ./data}}
datasets:
  orders: {path: "orders/{dataid}.csv", format: csv, partitions: {daily: 2026-01-01}}
  loaded: {path: "loaded/{dataid}.txt"}
  rates: {path: rates.csv, format: csv, partitions: none}
  report: {path: report.csv, schema: {id: int, total: int}}
jobs:
  load:
    script: jobs/load.sh
    inputs: [orders, {rates: {map: full}}]
    outputs: [loaded]
    env: {REGION: eu-west, API_TOKEN: do-not-show-me}
    retries: {max: 2, backoff: 1m}
    timeout: 2h
    concurrency: 3
pipelines:
  - slug: daily_report
    sources: [sales]
    destination: report
    transformations: [clean, add_up]
    frequency: 30m
    checks: [{not_null: [id]}]
"""
CLEAN = "def run(df):\n    # <script>alert(1)</script> & friends\n    return df.dropna()\n"
YES = Verdict(tuple(Answer(question, True, "seen by the test") for question in Question))
LINE = "Traceback: pipelines/daily_report/add_up.py:3 KeyError: 'total' <b>"


def fail_a_run(store: LoopStore) -> int:
    """The pipeline's current slot, failed in its second transformation."""
    make_due(store, store.get_job("daily_report", project="shop"))
    job = store.get_job("daily_report", project="shop")
    candidate = store.find_claimable(job)
    assert candidate is not None
    claim = store.claim(job, candidate, YES, Owner("anna@host:1", "host", 1, 1, 2, 2))
    assert claim is not None
    steps = [
        {
            "position": 1,
            "name": "clean",
            "status": "DONE",
            "output": "kept 12 of 13 rows\n",
            "rows": 12,
            "seconds": 0.5,
        },
        {"position": 2, "name": "add_up", "status": "ERROR", "error": LINE},
    ]
    record_runs(store, [(claim, {"engine": "pandas"}, steps)])
    store.finish(claim, Result(Ending.FAILED, 1, message="add_up failed"))
    return int(claim.runid)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("jobs")
    url = f"sqlite:///{folder / 'state.db'}"
    if request.param == "postgres":
        database: Database = request.getfixturevalue("postgres_server")
        url = database.new_database()
    project = Project(folder / "project", url)
    project.write("pipelines/daily_report/clean.py", CLEAN)
    project.write("pipelines/daily_report/add_up.py", "def run(df):\n    return df.sum()\n")
    project.script("jobs/load.sh", 'echo "loading $dataid"')
    project.write("data/sources/sales.csv", "id,total\n1,2\n")
    project.apply(TEXT)
    project.sql("INSERT INTO datastatus (datasetid, dataid, status) VALUES ('sales', 'full', 'READY')")
    store = open_store(url, actor="tests")
    fail_a_run(store)
    store.close()
    project.sql("UPDATE job_status SET status = 'HOLD' WHERE jobid = 'load' AND dataid = '2026-01-05'")
    with Site(project) as made:
        yield made


def item(site: Site, name: str) -> Any:
    found = site.script("viewer").get("/v1/jobs").json["items"]
    return next(one for one in found if one["job"] == name)


# The list -------------------------------------------------------------------------------------------------------------
def test_the_list_has_counts_last_runs_limits_and_next_slots(site: Site) -> None:
    report, load = item(site, "daily_report"), item(site, "load")
    assert (report["kind"], report["counts"], report["schedule"]) == ("pipeline", {"FAILED": 1}, "every 30m")
    assert report["last_run"]["status"] == "FAILED"
    assert datetime.datetime.fromisoformat(report["next_at"]).minute in (0, 30)
    assert (load["counts"]["HOLD"], load["counts"]["PENDING"] > 200, load["limit"]) == (1, True, 3)
    assert (load["last_run"], load["schedule"], load["next_at"]) == (None, None, None)
    words = site.visitor("viewer").get("/jobs").words
    assert "daily_report" in words
    assert "1 FAILED" in words
    assert "every 30m" in words


def test_the_list_is_filtered_and_paged(site: Site) -> None:
    script = site.script("viewer")

    def names(query: str) -> list[str]:
        return [one["job"] for one in script.get(f"/v1/jobs?{query}").json["items"]]

    assert names("name=REPORT") == ["daily_report"]
    assert names("status=HOLD") == ["load"]
    assert names("status=RUNNING") == []
    assert names("project=nobody") == []
    assert names("limit=1") == ["daily_report"]
    assert names("limit=1&offset=1") == ["load"]
    assert script.get("/v1/jobs?status=BROKEN").status == 422
    assert script.get("/v1/jobs?limit=0").status == 422
    page = site.visitor("viewer").get("/jobs?status=FAILED")
    assert "daily_report" in page.words
    assert "/jobs/shop/load" not in page.text


# One of them ----------------------------------------------------------------------------------------------------------
def test_a_pipeline_shows_its_code_status_output_and_traceback(site: Site) -> None:
    told = site.script("viewer").get("/v1/jobs/shop/daily_report").json
    clean, add_up = told["transformations"]
    assert (clean["name"], clean["status"], clean["rows"], clean["code"]) == ("clean", "DONE", 12, CLEAN)
    assert (add_up["status"], add_up["error"]) == ("ERROR", LINE)
    assert [link["map"] for link in told["inputs"] if link["dataset"] == "sales"] == ["full"]
    assert told["checks"] == ["not_null id"]
    assert told["runs"][0]["message"] == "add_up failed"
    page = site.visitor("viewer").get("/jobs/shop/daily_report")
    for text in ("kept 12 of 13 rows", "KeyError: 'total'", "return df.dropna()", "sales", "report", "not_null id"):
        assert text in page.words, text
    assert "<script>alert(1)" not in page.text
    assert "'total' <b>" not in page.text
    assert "Schedule…" not in page.words, "a viewer is offered no action"


def test_a_script_shows_its_settings_and_no_secret(site: Site) -> None:
    page = site.visitor("operator").get("/jobs/shop/load")
    for text in ("eu-west", "***", "2, the first after 60.0 s", "0 running of at most 3", "Timeout 2 h", "map: full",
                 "loading $dataid", "1 HOLD"):  # fmt: skip
        assert text in page.words, text
    told = site.script("admin").get("/v1/jobs/shop/load")
    assert told.json["items"] == {"REGION": "eu-west", "API_TOKEN": "***"}
    assert "do-not-show-me" not in page.text + told.text


def test_code_outside_of_the_project_is_never_read(site: Site) -> None:
    path = site.project.folder / "pipelines/daily_report/clean.py"
    secret = site.project.folder.parent / "secret.txt"
    secret.write_text("the passkey")
    path.unlink()
    path.symlink_to(secret)
    try:
        told = site.script("admin").get("/v1/jobs/shop/daily_report")
        assert told.json["transformations"][0]["code"] is None
        assert "outside of the project" in told.json["transformations"][0]["problem"]
        assert "the passkey" not in told.text + site.visitor("admin").get("/jobs/shop/daily_report").text
    finally:
        path.unlink()
        path.write_text(CLEAN)


def test_dataids_are_paged_the_latest_first(site: Site) -> None:
    script = site.script("viewer")
    first = script.get("/v1/dataids/shop/load?limit=3").json
    second = script.get("/v1/dataids/shop/load?limit=3&offset=3").json
    names = [one["dataid"] for one in first["items"] + second["items"]]
    assert names == sorted(names, reverse=True)
    assert first["more"]
    held = script.get("/v1/dataids/shop/load?status=HOLD").json
    assert [(one["dataid"], held["more"]) for one in held["items"]] == [("2026-01-05", False)]
    pending = script.get("/v1/dataids/shop/load?status=PENDING&limit=1000").json["items"]
    assert len(pending) == item(site, "load")["counts"]["PENDING"]
    assert [one["status"] for one in script.get("/v1/dataids/shop/daily_report?status=FAILED").json["items"]] == [
        "FAILED"
    ]
    for status in ("RUNNING", "COMPLETE", "RESUBMIT"):
        assert script.get(f"/v1/dataids/shop/load?status={status}").json["items"] == []


def test_what_is_not_there_is_told_so(site: Site) -> None:
    viewer = site.visitor("viewer")
    for path in ("/jobs/shop/nothing", "/jobs/nobody/load", "/v1/jobs/shop/nothing", "/v1/dataids/shop/nothing"):
        assert viewer.get(path).status == 404, path
    nobody = site.visitor(None)
    assert nobody.get("/v1/jobs").status == 401
    assert nobody.get("/jobs").status == 303


# Schedules ------------------------------------------------------------------------------------------------------------
def test_an_operator_sets_a_schedule_and_takes_it_back(site: Site) -> None:
    operator = site.script("operator")
    asked = {"project": "shop", "job": "daily_report", "cron": "0 3 * * *", "timezone": "Europe/Berlin"}
    plan = operator.post("/v1/actions/schedule/plan", asked).json
    assert "From its next slot on it goes by `cron 0 3 * * * @Europe/Berlin`" in plan["says"]
    assert item(site, "daily_report")["schedule"] == "every 30m", "a plan changes nothing"
    done = operator.act("schedule", reason="quiet at night", **asked)
    assert done["result"]["clock"] == "cron 0 3 * * * @Europe/Berlin"
    told = site.script("viewer").get("/v1/jobs/shop/daily_report").json
    assert (told["schedule"]["declared"], told["schedule"]["is_set"]) == ("every 30m", True)
    assert told["schedule"]["set_by"] == "the-operator (api)"
    assert told["changes"][0]["becomes"] == "cron 0 3 * * * @Europe/Berlin"
    words = site.visitor("viewer").get("/jobs/shop/daily_report").words
    assert "set by the-operator (api)" in words
    assert "quiet at night; declared: every 30m" in words
    assert site.project.dataflow("apply").returncode == 0
    assert item(site, "daily_report")["schedule_is_set"]
    back = site.visitor("operator").submit(
        "/actions/schedule", project="shop", job="daily_report", every="", cron="", timezone="",
        as_declared="true", then="/jobs/shop/daily_report",
    )  # fmt: skip
    assert back.status == 303, back.words
    assert item(site, "daily_report")["schedule"] == "every 30m"


def test_a_schedule_that_makes_no_sense_is_refused_in_words(site: Site) -> None:
    operator = site.script("operator")
    refused = operator.post("/v1/actions/schedule", {"project": "shop", "job": "load", "every": "30m"})
    assert (refused.status, "partitions of its data" in refused.json["detail"]) == (409, True)
    wrong = operator.post("/v1/actions/schedule", {"project": "shop", "job": "daily_report", "cron": "61 * * * *"})
    assert (wrong.status, "is not a minute" in wrong.json["detail"]) == (409, True)
    nothing = operator.post("/v1/actions/schedule", {"project": "shop", "job": "nothing", "every": "30m"})
    assert nothing.status == 404
    viewer = site.script("viewer").post("/v1/actions/schedule", {"job": "daily_report", "every": "1h"})
    assert viewer.status == 403


# In a browser ---------------------------------------------------------------------------------------------------------
def test_the_schedule_is_set_in_a_dialog_and_the_page_fits_a_phone(site: Site, tmp_path: Path) -> None:
    with browser(site, "operator", viewport={"width": 360, "height": 740}) as page:
        page.goto("/jobs")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.goto("/jobs/shop/daily_report")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.get_by_role("link", name="Schedule…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Every").fill("6h")
        dialog.get_by_role("button", name="Set schedule").click()
        page.get_by_text("set by the-operator (web)").wait_for()
        assert page.locator("dl code").first.inner_text() == "every 6h"
        page.screenshot(path=tmp_path / "phone.png", full_page=True)
    assert item(site, "daily_report")["schedule"] == "every 6h"
    site.script("operator").act("schedule", project="shop", job="daily_report", as_declared=True)
