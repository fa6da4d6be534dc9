"""Datasets and chunks as people and scripts see them: declared, made, read, checked, looked into, downloaded."""

import io
import os
import time
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator

import pytest

from support.operated import new_project
from support.projects import Project
from support.seeded import Shell
from support.web import Site, Visitor

SHOP = """
name: Shop
datasets:
  orders:
    path: "orders/{dataid}.csv"
    format: csv
    schema: {id: int, total: double}
    checks: [{unique: [id]}, {not_null: [total]}]
    partitions: {daily: 2025-11-01..2025-11-05}
    options: {header: "true"}
  totals: {path: "totals/{dataid}.csv", format: csv}
  parts: {path: "parts/{dataid}"}
  remote: {hostname: db.example.com, database: crm, tablename: leads, username: reader, path: "remote/{dataid}"}
jobs:
  add_up: {script: add_up.sh, inputs: [orders], outputs: [totals]}
"""
ADD_UP = 'echo "sum" > "$totals_location"; wc -l < "$orders_location" >> "$totals_location"'


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Three days arrived, the first two are added up, the third has a wrong line; the others are missing.

    One for all tests: each leaves the orders, and the first day of the totals, as they are.
    """
    project = new_project(request.param, request, tmp_path_factory)
    project.apply(SHOP)
    project.script("add_up.sh", ADD_UP)
    project.write("orders/2025-11-01.csv", "id,total\n1,2.5\n2,4.5\n")
    project.write("orders/2025-11-02.csv", "id,total\n1,7\n")
    project.write("orders/2025-11-03.csv", "id,total\n1,7\n1,8\n")
    (project.folder / "totals").mkdir()
    project.write("parts/a b/one.csv", "x\n1\n")
    project.write("parts/a b/two.csv", "x\n2\n")
    for day in ("2025-11-01", "2025-11-02", "2025-11-03"):
        os.utime(project.folder / f"orders/{day}.csv", (time.time() - 3600,) * 2)
    project.dataflow("scan", "orders")
    done = project.dataflow("ready", "parts", "a b")
    assert done.returncode == 0, done.stderr
    for day in ("2025-11-01", "2025-11-02"):
        done = project.dataflow("run", "add_up", day)
        assert done.returncode == 0, done.stderr
    return project


@pytest.fixture(scope="module")
def site(shop: Project) -> Iterator[Site]:
    with Site(shop) as found:
        yield found


def told(visitor: Visitor, path: str) -> dict:
    answer = visitor.get(path)
    assert answer.status == 200, answer.text
    return answer.json


def test_a_chunk_is_told_with_all_that_is_known_of_it(shop: Project, site: Site) -> None:
    script, shell = site.script("viewer"), Shell(shop.store)
    found = told(script, "/v1/datasets/shop/totals/chunks/2025-11-01")
    of_chunk = "datasetid = 'totals' AND dataid = '2025-11-01'"
    row = shell.run(f"SELECT version, files, bytes, rows, fingerprint FROM data_manifest WHERE {of_chunk}")[0]
    assert (found["status"], found["version"]) == ("READY", row[0])
    assert [found["manifest"][name] for name in ("version", "files", "bytes", "rows", "fingerprint")] == list(row)
    assert found["location"].endswith("/totals/2025-11-01.csv")
    assert found["producer"] == {"project": "shop", "job": "add_up"}
    version = shell.run(
        "SELECT version FROM datastatus WHERE datasetid = 'orders' AND dataid = '2025-11-01' AND locktype = 'OUT'"
    )[0][0]
    assert found["made_of"] == [{"project": "shop", "dataset": "orders", "dataid": "2025-11-01", "version": version}]
    assert [one["new_status"] for one in found["history"]] == ["READY", "RUNNING"]

    read = told(script, "/v1/datasets/shop/orders/chunks/2025-11-01")
    assert read["readers"] == [
        {
            "project": "shop",
            "job": "add_up",
            "dataid": "2025-11-01",
            "status": "COMPLETE",
            "run": row[0],
            "version": version,
        }
    ]
    assert [one["result"] for one in read["findings"]] == ["passed", "passed"]
    bad = told(script, "/v1/datasets/shop/orders/chunks/2025-11-03")
    assert bad["status"] != "READY"
    assert "failed" in [one["result"] for one in bad["findings"]]
    shell.close()

    page = site.visitor("viewer").get("/datasets/shop/orders/2025-11-03")
    assert page.status == 200
    assert "failed" in page.words
    assert bad["problem"].split(":")[0] in page.words
    gap = site.visitor("viewer").get("/datasets/shop/orders/2025-11-05")
    assert "expected, and nothing is known of it" in gap.words
    assert site.visitor("viewer").get("/datasets/shop/orders/2031-01-01").status == 404
    assert site.visitor("viewer").get("/datasets/shop/nobody").status == 404
    assert script.get("/v1/datasets/shop/orders/chunks/2031-01-01").status == 404


def test_first_rows_are_shown_as_text_and_only_of_what_is_ready(shop: Project, site: Site) -> None:
    script, visitor = site.script("viewer"), site.visitor("viewer")
    found = told(script, "/v1/datasets/shop/orders/preview/2025-11-01?rows=1")
    assert found["first"] == [{"id": 1, "total": 2.5}]
    assert found["columns"] == {"id": "int", "total": "double"}
    refused = script.get("/v1/datasets/shop/orders/preview/2025-11-03")
    assert refused.status == 409
    assert "not READY" in refused.json["detail"]
    page = visitor.get("/datasets/shop/orders/2025-11-01?rows=20")
    assert "4.5" in page.words
    file = shop.folder / "orders/2025-11-01.csv"
    before = file.read_text()
    try:
        file.write_text("id,total\n1,<b>4</b>\n")
        page = visitor.get("/datasets/shop/orders/2025-11-01?rows=20")
        assert "<b>4</b>" not in page.text
        file.unlink()
        page = visitor.get("/datasets/shop/orders/2025-11-01?rows=20")
        assert page.status == 200
        assert "No such file" in page.words
    finally:
        file.write_text(before)
    assert script.get("/v1/datasets/shop/orders/preview/2025-11-01?rows=301").status == 422


def _download(visitor: Visitor, path: str) -> tuple[dict[str, str], bytes]:
    asked = urllib.request.Request(visitor.url + path, headers={"authorization": f"Bearer {visitor.token}"})  # noqa: S310
    with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310
        return {name.lower(): value for name, value in answer.headers.items()}, answer.read()


def test_a_chunk_is_downloaded_as_it_is_and_several_files_as_a_zip(shop: Project, site: Site) -> None:
    script = site.script("viewer")
    headers, data = _download(script, "/v1/datasets/shop/orders/data/2025-11-02")
    assert data == (shop.folder / "orders/2025-11-02.csv").read_bytes()
    assert headers["content-disposition"] == 'attachment; filename="orders_2025-11-02_2025-11-02.csv"'
    assert int(headers["content-length"]) == len(data)
    headers, data = _download(script, f"/v1/datasets/shop/parts/data/{urllib.parse.quote('a b')}")
    assert 'filename="parts_a_b.zip"' in headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == {"one.csv": b"x\n1\n", "two.csv": b"x\n2\n"}
    assert script.get("/v1/datasets/shop/orders/data/2025-11-03").status == 409
    assert Visitor(site.url).get("/v1/datasets/shop/orders/data/2025-11-02").status == 401


def test_a_link_in_a_chunk_that_leads_out_of_the_root_is_neither_sent_nor_shown(shop: Project, site: Site) -> None:
    script, dataid = site.script("viewer"), urllib.parse.quote("a b")
    shop.folder.joinpath("../key").write_text("x\na secret\n")
    link = shop.folder / "parts/a b/three.csv"
    link.symlink_to(shop.folder.parent / "key")
    try:
        for what in ("data", "preview"):
            answer = script.get(f"/v1/datasets/shop/parts/{what}/{dataid}")
            assert (answer.status, "not below the environment's root" in answer.text) == (409, True)
            assert "a secret" not in answer.text
        assert "a secret" not in site.visitor("viewer").get(f"/datasets/shop/parts/{dataid}?rows=20").text
    finally:
        link.unlink()


def test_chunks_are_listed_page_by_page_and_by_status(shop: Project, site: Site) -> None:
    script, shell = site.script("viewer"), Shell(shop.store)
    shell.run("INSERT INTO datastatus (project, datasetid, dataid, status) VALUES ('shop', 'parts', 'a/c', 'HOLD')")
    for number in range(25):
        what = f"'shop', 'parts', 'n{number:02d}', 'READY'"
        shell.run(f"INSERT INTO datastatus (project, datasetid, dataid, status) VALUES ({what})")
    found, after = [], ""
    while after is not None:
        page = told(script, f"/v1/datasets/shop/parts/chunks?limit=10&after={urllib.parse.quote(after)}")
        found += [one["dataid"] for one in page["chunks"]]
        after = page["after"]
    assert found == [
        row[0]
        for row in sorted(shell.run("SELECT dataid FROM datastatus WHERE datasetid = 'parts' AND locktype = 'OUT'"))
    ]
    held = told(script, "/v1/datasets/shop/parts/chunks?status=HOLD")
    assert ([one["dataid"] for one in held["chunks"]], held["after"]) == (["a/c"], None)
    assert told(script, "/v1/datasets/shop/parts/chunks/a%2Fc")["status"] == "HOLD"
    assert "HOLD" in site.visitor("viewer").get("/datasets/shop/parts/a%2Fc").words
    assert script.get("/v1/datasets/shop/parts/chunks?status=GONE").status == 422
    shell.close()


def test_a_dataset_is_told_with_its_gaps_their_reasons_and_no_secret(shop: Project, site: Site) -> None:
    shell = Shell(shop.store)
    shell.run("UPDATE dataset SET encryptedpass = 'enc:v1:SECRET' WHERE datasetid = 'remote'")
    shell.close()
    script, visitor = site.script("viewer"), site.visitor("viewer")
    found = told(script, "/v1/datasets/shop/orders")
    assert found["counts"]["READY"] == 2
    assert [(one["first"], one["last"], one["status"]) for one in found["gaps"]][-1] == (
        "2025-11-04",
        "2025-11-05",
        "GAP",
    )
    assert found["declared"]["consumers"] == [{"job": "add_up", "map": "same"}]
    assert found["all_gaps"]
    assert found["changes"][0]["dataid"] == "2025-11-03"
    page = visitor.get("/datasets/shop/orders")
    for words in ("2025-11-04", "it has not arrived", "add_up", "unique"):
        assert words in page.words
    secret = visitor.get("/datasets/shop/remote")
    assert "is set, encrypted" in secret.words
    assert "SECRET" not in secret.text + script.get("/v1/datasets/shop/remote").text
    listed = visitor.get("/datasets?status=GAP")
    assert "orders / 2025-11-05" in listed.words
    assert "orders / 2025-11-03" in visitor.get("/datasets?status=PENDING").words  # rejected


def test_a_chunk_that_failed_names_the_run_that_failed_and_the_one_that_published(shop: Project, site: Site) -> None:
    shop.script("add_up.sh", "exit 3")
    try:
        assert shop.dataflow("resubmit", "add_up", "2025-11-02").returncode == 0
        assert shop.dataflow("run", "add_up", "2025-11-02").returncode == 1
    finally:
        shop.script("add_up.sh", ADD_UP)
    published, failed = (
        shop.sql(f"SELECT max(runid) FROM run WHERE dataid = '2025-11-02' AND status = '{status}'")[0][0]
        for status in ("COMPLETE", "FAILED")
    )
    page = site.visitor("viewer").get("/datasets/shop/totals/2025-11-02").words
    assert f"add_up / 2025-11-02 FAILED in run {failed}" in page
    assert f"by run {published}" in page
    history = told(site.script("viewer"), "/v1/datasets/shop/totals/chunks/2025-11-02")["history"]
    assert [(one["new_status"], one["runid"]) for one in history[:2]] == [("FAILED", failed), ("RUNNING", failed)]


def test_the_checks_of_the_pipeline_that_makes_a_dataset_are_its_checks_too(shop: Project, site: Site) -> None:
    clean = "  clean: {path: clean, format: parquet, checks: [{unique: [id]}]}\njobs:"
    pipeline = "{slug: clean_orders, sources: [orders], destination: clean, checks: [{rows: {min: 1}}]}"
    shop.apply(f"{SHOP.replace('jobs:', clean)}pipelines: [{pipeline}]\n")
    page = site.visitor("viewer").get("/datasets/shop/clean").words
    assert "unique id" in page
    assert "rows min 1" in page
    shown = shop.dataflow("dataset", "show", "clean").stdout
    assert "pipeline checks   rows min 1" in shown


def test_nobody_sees_anything_without_signing_in(shop: Project, site: Site) -> None:
    for path in ("/datasets", "/datasets/shop/orders", "/datasets/shop/orders/2025-11-01", "/lineage"):
        assert site.visitor(None).get(path).status == 303, path
    for path in (
        "/v1/datasets",
        "/v1/grid",
        "/v1/grid/shop/orders",
        "/v1/lineage?project=shop",
        "/v1/datasets/shop/orders/chunks",
    ):
        assert site.visitor(None).get(path).status == 401, path
