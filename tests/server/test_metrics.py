"""Metrics, health and alerts over HTTP: what they say is what SQL says, and only those who may look get it."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.projects import Project
from support.receivers import Webhook, wait_until
from support.web import Site, browser

FEED = """
name: shop
notify: {{to: ["{address}"], gather: 1s}}
datasets:
  raw: {{path: "raw/{{dataid}}.csv", partitions: {{shards: 1..6}}}}
  table: {{path: "table/{{dataid}}", partitions: {{shards: 1..6}}}}
  summary: {{path: "summary/{{dataid}}", partitions: {{shards: 1..6}}}}
  leads: {{path: leads, format: parquet}}
jobs:
  load: {{script: load.sh, inputs: [raw], outputs: [table]}}
  sum: {{script: sum.sh, inputs: [table], outputs: [summary]}}
pipelines:
  - slug: leads
    mode: stream
    destination: leads
    transformations: []
    stream: {{schema: {{email: string}}}}
"""


@pytest.fixture(scope="module")
def webhook() -> Iterator[Webhook]:
    with Webhook() as hook:
        yield hook


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, webhook: Webhook) -> Iterator[Site]:
    """A project with three chunks loaded, one that failed, two that are not there."""
    folder = tmp_path_factory.mktemp("metrics")
    url = f"sqlite:///{folder / 'state.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_server").new_database()
    project = Project(folder / "project", url)
    project.script("load.sh", 'test "$dataid" != 4 && mkdir -p table && touch "table/$dataid"')
    project.script("sum.sh", 'mkdir -p summary && touch "summary/$dataid"')
    project.apply(FEED.format(address=webhook.address))
    for number in range(1, 5):
        project.write(f"raw/{number}.csv", "a\n1\n")
    assert project.dataflow("ready", "raw", "1", "2", "3", "4").returncode == 0
    with Site(project) as server:  # which looks: `run` does not
        assert project.dataflow("run", "load", "--drain").returncode == 1
        assert project.dataflow("run", "sum", "--drain").returncode == 10
        yield server
        assert server.stop() == (0, ""), "no error was logged"


def scraped(site: Site) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    answer = site.script("viewer").get("/metrics")
    assert answer.status == 200
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = defaultdict(dict)
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found[sample.name][frozenset(sample.labels.items())] = sample.value
    return found


def counted(site: Site, statement: str, *labels: str) -> dict[frozenset[tuple[str, str]], float]:
    """What SQL counts, as labels and number."""
    rows = site.project.sql(statement)
    return {frozenset(zip(labels, row[:-1], strict=True)): float(row[-1]) for row in rows}


def test_metrics_say_what_sql_counts(site: Site) -> None:
    found = scraped(site)
    assert found["dataflow_job_dataids"] == counted(
        site, "SELECT project, jobid, status, count(*) FROM job_status GROUP BY 1, 2, 3", "project", "job", "status"
    )
    assert found["dataflow_dataset_chunks"] == counted(
        site,
        "SELECT project, datasetid, status, count(*) FROM datastatus WHERE locktype = 'OUT' GROUP BY 1, 2, 3",
        "project", "dataset", "status",
    )  # fmt: skip
    failed = {("project", "shop"), ("job", "load"), ("status", "FAILED")}
    assert found["dataflow_job_dataids"][frozenset(failed)] == 1
    changes = site.project.sql("SELECT max(id) FROM history")[0][0]
    assert found["dataflow_changes_total"] == {frozenset(): float(changes)}
    assert found["dataflow_workers"] == {frozenset(): 0.0}
    stream = frozenset({("project", "shop"), ("job", "leads")})
    assert found["dataflow_stream_lag_items"] == {stream: 0.0}


def test_labels_are_bounded(site: Site) -> None:
    """Names that are registered and statuses: nothing that grows with the data."""
    answer = site.script("viewer").get("/metrics")
    names = {label for one in text_string_to_metric_families(answer.text) for s in one.samples for label in s.labels}
    assert names <= {"project", "job", "dataset", "status", "event", "version", "environment"}
    assert "raw/1" not in answer.text


def test_alerts_are_counted_and_listed_for_script_and_page(site: Site, webhook: Webhook) -> None:
    wait_until(
        lambda: site.project.sql("SELECT count(*) FROM alert_message WHERE state = 'SENT'") == [(1,)], "it was told"
    )
    viewer = site.script("viewer")
    (alert,) = viewer.get("/v1/alerts").json["items"]
    assert (alert["event"], alert["name"], alert["dataid"], alert["to"]) == (
        "failed",
        "load",
        "4",
        "json (notify.to.0)",
    )
    (message,) = viewer.get("/v1/alerts/messages").json["items"]
    assert (message["state"], message["title"]) == ("SENT", "shop (default): 1 failed")
    told = viewer.get(f"/v1/alerts/messages/{message['messageid']}").json["body"]
    assert told == webhook.posted[-1]["message"]
    assert viewer.get("/v1/alerts/messages/999").status == 404
    assert viewer.get("/v1/alerts?limit=0").status == 422
    page = site.visitor("viewer")
    assert "failed load/4" in page.get("/alerts").words
    assert "dataflow resubmit load 4" in page.get(f"/alerts/{message['messageid']}").words
    assert str(webhook.port) not in page.get("/alerts").text


def test_only_those_who_may_look_get_metrics_and_details(site: Site) -> None:
    nobody = site.visitor(None)
    for path in ("/metrics", "/v1/health", "/v1/alerts"):
        assert nobody.get(path, accept="text/plain").status == 401, path
    assert nobody.get("/health").json["status"] == "ok"
    ready = nobody.get("/health/ready")
    assert (ready.status, ready.json) == (200, {"status": "ready"})
    detail = site.script("viewer").get("/v1/health")
    assert (detail.status, detail.json["status"]) == (200, "ok")
    assert [one["name"] for one in detail.json["checks"]] == ["store", "disk", "streams"]


def test_a_scrape_is_kept_for_a_moment(site: Site) -> None:
    viewer = site.script("viewer")
    assert viewer.get("/metrics").text == viewer.get("/metrics").text


def test_a_store_of_another_schema_is_not_ready(sqlite_project: Project) -> None:
    sqlite_project.apply("name: shop\ndatasets: {a: {path: a}}\njobs: {one: {outputs: [a]}}\n")
    with Site(sqlite_project) as site:
        sqlite_project.sql("INSERT INTO migration (version, name) VALUES (999, 'of the future')")
        assert site.visitor(None).get("/health/ready").status == 503
        assert site.visitor(None).get("/health").status == 200


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone(site: Site, scheme: Any) -> None:
    with browser(site, "viewer", viewport={"width": 360, "height": 740}, color_scheme=scheme) as page:
        page.goto("/alerts")
        page.get_by_role("heading", name="Wrong now").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.get_by_role("link", name="shop (default): 1 failed").click()
        page.get_by_text("At the root of it").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
