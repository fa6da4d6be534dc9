"""OpenLineage events over a real HTTP endpoint: what they hold, and that a backend that is away holds up nobody."""

import http.server
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opendataflow.domain.runs.run import Ending
from opendataflow.execution import lineage_events as openlineage
from support.processes import wait_for
from support.projects import Project

PROJECT = """
name: Lineage
datasets:
  orders: {path: "orders/{dataid}.csv", format: csv, partitions: {daily: 2025-11-12..2025-11-13}}
  totals: {path: "totals/{dataid}.csv", format: csv, checks: [{rows: {min: 1}}]}
jobs:
  load: {script: load.sh, inputs: [orders], outputs: [totals]}
"""
# What https://openlineage.io/spec/2-0-2/OpenLineage.json requires.
REQUIRED = {"eventTime", "producer", "schemaURL", "run", "job"}


class Backend:
    """A server on loopback that keeps what it is sent; it says `status` to everything."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.heads: list[dict[str, str]] = []
        self.status = 201
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if outer.status < 300:
                    outer.events.append(json.loads(body))
                    outer.heads.append({**self.headers, "path": self.path})
                self.send_response(outer.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def wait_for(self, number: int) -> list[dict[str, Any]]:
        until(lambda: len(self.events) >= number)
        return self.events


def until(is_so: Callable[[], bool]) -> None:
    wait_for(is_so, "what the backend is sent", seconds=60)


@pytest.fixture
def backend() -> Iterator[Backend]:
    made = Backend()
    yield made
    made.close()


@pytest.fixture
def lineage(sqlite_project: Project) -> Project:
    sqlite_project.script(
        "load.sh", '[ "$dataid" = 2025-11-13 ] && { echo broken; exit 3; }; cp "$orders_LOCATION" "$totals_LOCATION"'
    )
    for day in ("12", "13"):
        sqlite_project.write(f"orders/2025-11-{day}.csv", "id,total\n1,5\n")
    return sqlite_project


def assert_valid(event: dict[str, Any]) -> None:
    assert event.keys() >= REQUIRED
    assert str(uuid.UUID(event["run"]["runId"])) == event["run"]["runId"]
    assert event["eventType"] in ("START", "COMPLETE", "FAIL", "ABORT")
    for named in [event["job"], *event["inputs"], *event["outputs"]]:
        assert named["namespace"]
        assert named["name"]
    facets = [*event["run"]["facets"].values(), *event["job"]["facets"].values()]
    for dataset in [*event["inputs"], *event["outputs"]]:
        facets += [*dataset["facets"].values(), *dataset.get("outputFacets", {}).values()]
    assert all(one["_producer"].startswith("https://") and one["_schemaURL"].startswith("https://") for one in facets)


def test_every_run_tells_what_it_read_and_wrote(lineage: Project, backend: Backend) -> None:
    lineage.apply(f"{PROJECT}openlineage: {{url: '{backend.url}', namespace: shop}}\n")
    told = lineage.dataflow("ready", "orders", "2025-11-12", "2025-11-13")
    assert told.returncode == 0, told.stderr
    done = lineage.dataflow("run", "load", "--drain", env={"OPENLINEAGE_API_KEY": "a-secret"})
    assert done.returncode == 1, done.stderr
    events = backend.wait_for(4)
    for event in events:
        assert_valid(event)
    assert [event["eventType"] for event in events] == ["START", "COMPLETE", "START", "FAIL"]
    start, complete, _, fail = events
    assert start["run"]["runId"] == complete["run"]["runId"] != fail["run"]["runId"]
    assert complete["job"] == {**start["job"], "namespace": "shop", "name": "lineage.load"}
    assert [one["name"] for one in complete["inputs"]] == ["lineage.orders"]
    (output,) = complete["outputs"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert output["outputFacets"]["outputStatistics"]["size"] == len("id,total\n1,5\n")
    assert output["facets"]["opendataflow_chunk"]["dataid"] == "2025-11-12"
    assert complete["run"]["facets"]["nominalTime"]["nominalStartTime"] == "2025-11-12T00:00:00Z"
    assert "it exited 3" in fail["run"]["facets"]["errorMessage"]["message"]
    assert backend.heads[0]["path"] == "/api/v1/lineage"
    assert backend.heads[0]["Authorization"] == "Bearer a-secret"
    until(lambda: not list((lineage.folder / ".dataflow/openlineage").glob("*.jsonl")))


def test_a_backend_that_is_away_delays_nobody_and_gets_everything_later(lineage: Project, backend: Backend) -> None:
    lineage.apply(PROJECT)
    told = lineage.dataflow("ready", "orders", "2025-11-12", "2025-11-13")
    assert told.returncode == 0, told.stderr
    env = {"OPENLINEAGE_URL": backend.url}
    backend.status = 503
    done = lineage.runjob("--dataid", "2025-11-12", "load.sh", env=env)  # which ends while the backend is away
    assert done.returncode == 0, done.stderr
    assert lineage.statuses("load")["2025-11-12"] == "COMPLETE"
    backend.status = 201
    assert [event["eventType"] for event in backend.wait_for(2)] == ["START", "COMPLETE"]


def test_events_can_go_to_a_file_and_be_turned_off(lineage: Project, tmp_path: Path) -> None:
    file = tmp_path / "events" / "all.jsonl"
    lineage.apply(f"{PROJECT}openlineage: {{file: {file}}}\n")
    told = lineage.dataflow("ready", "orders", "2025-11-12", "2025-11-13")
    assert told.returncode == 0, told.stderr
    assert lineage.runjob("--dataid", "2025-11-12", "load.sh").returncode == 0
    lineage.dataflow("resubmit", "load", "2025-11-12")
    assert lineage.runjob("--dataid", "2025-11-12", "load.sh", env={"OPENLINEAGE_DISABLED": "true"}).returncode == 0
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    for event in events:
        assert_valid(event)


def test_a_place_that_cannot_be_written_is_told_once_and_fails_nothing(lineage: Project, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    lineage.apply(f"{PROJECT}openlineage: {{file: {tmp_path / 'taken' / 'events.jsonl'}}}\n")
    told = lineage.dataflow("ready", "orders", "2025-11-12", "2025-11-13")
    assert told.returncode == 0, told.stderr
    done = lineage.runjob("--dataid", "2025-11-12", "load.sh")
    assert done.returncode == 0
    assert done.stderr.count("OpenLineage: events are not kept") == 1


def test_project_yml_names_a_url_or_a_file(lineage: Project) -> None:
    lineage.write("project.yml", f"{PROJECT}openlineage: {{namespace: shop}}\n")
    refused = lineage.dataflow("apply")
    assert refused.returncode == 2
    assert "give `url:` or `file:`" in refused.stderr


def test_every_way_a_run_can_end_has_its_event() -> None:
    assert set(openlineage._ENDS) == set(Ending)
