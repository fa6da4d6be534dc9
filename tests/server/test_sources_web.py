"""Sources in the server: made, bound, tested, sampled and downloaded; what project.yml says stays its own."""

import csv
import http.client
import io
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from opendataflow.project.secrets import decrypt
from support.postgres import Server as Postgres
from support.processes import wait_for
from support.projects import Project
from support.web import Answer, Site, Visitor, browser

PASSKEY = "a passkey of some length"
PASSWORD = "s3cr@t/of:reader"
ROWS = 200_000
PROJECT = """
name: Shop
environments:
  dev: {datasets: {warehouse: {partition_column: shard}}}
datasets:
  warehouse: {url: "sqlite:///warehouse.db", partitions: {shards: 1..3}}
pipelines:
  - slug: clean
    sources: [crm]
    destination: cleaned
    transformations: []
"""
CRM = "/v1/sources/shop/crm"


class Crm:
    """A PostgreSQL database whose reader needs a password."""

    def __init__(self, server: Postgres) -> None:
        self.url = url = server.new_database()
        self.name = url.partition("?")[0].rpartition("/")[2]
        self.user = f"reader_{self.name}"
        self.address = f"postgresql://{self.user}@/{self.name}?host={server.data}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {self.user} LOGIN PASSWORD '{PASSWORD}'")
            # Users come in by the socket without a password here; this one does not.
            hba = server.data / "pg_hba.conf"
            hba.write_text(f"local all {self.user} scram-sha-256\n{hba.read_text()}")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("CREATE TABLE customers (id int, name text)")
            connection.execute("INSERT INTO customers SELECT n, '=Ü' || n FROM generate_series(1, 400) n")
            connection.execute("CREATE TABLE events (id int, note text)")
            connection.execute(f"INSERT INTO events SELECT n, repeat('x', 200) FROM generate_series(1, {ROWS}) n")
            connection.execute(f"GRANT SELECT ON customers, events TO {self.user}")

    def values(self, table: str = "customers", password: str = PASSWORD) -> dict[str, str]:
        return {"url": self.address, "table": table, "password": password}


@pytest.fixture(scope="module")
def crm(postgres_server: Postgres) -> Crm:
    return Crm(postgres_server)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("sources")
    project = Project(folder / "project", f"sqlite:///{folder / 'state.db'}")
    project.apply(PROJECT)
    with Site(project, DATAFLOW_PASSKEY=PASSKEY) as running:
        yield running
        code, said = running.stop()
        assert code == 0
        assert PASSWORD not in said
        assert PASSKEY not in said


@pytest.fixture(scope="module")
def admin(site: Site) -> Visitor:
    return site.script("admin")


@pytest.fixture(scope="module")
def operator(site: Site) -> Visitor:
    return site.script("operator")


def bind(admin: Visitor, dataset: str, **values: Any) -> dict[str, Any]:
    answer = admin.ask("PUT", f"/v1/sources/shop/{dataset}", {"values": values})
    assert answer.status == 200, answer.text
    return dict(answer.json)


def field(visitor: Visitor, dataset: str, name: str) -> dict[str, Any]:
    found = visitor.get(f"/v1/sources/shop/{dataset}").json["fields"]
    return dict(next(one for one in found if one["name"] == name))


# Binding --------------------------------------------------------------------------------------------------------------
def test_a_source_is_made_where_a_pipeline_only_names_it(site: Site, admin: Visitor, crm: Crm) -> None:
    assert admin.get(CRM).json["place"] == "sources/crm.csv"  # by its name, until somebody says otherwise
    done = bind(admin, "crm", **crm.values())
    assert done["changes"] == ["~ dataset crm"]
    found = admin.get(CRM).json
    assert (found["kind"], found["read_by"], found["bound"]) == ("PostgreSQL", ["clean"], ["password", "table", "url"])
    assert field(admin, "crm", "password")["value"] == "set"
    assert "bound here by the-admin (api)" in field(admin, "crm", "table")["where"]
    listed = {one["dataset"]: one["kind"] for one in admin.get("/v1/sources").json["items"]}
    assert listed == {"cleaned": "csv files", "crm": "PostgreSQL", "warehouse": "connection"}


def test_one_that_nobody_names_is_made_and_forgotten(site: Site, admin: Visitor) -> None:
    assert bind(admin, "extra", path="in/extra.csv", format="csv")["changes"] == ["+ dataset extra"]
    assert admin.get("/v1/sources/shop/extra").json["kind"] == "csv files"
    plan = admin.post("/v1/actions/unbind-source/plan", {"project": "shop", "dataset": "extra"}).json
    assert plan["rows"] == [["- dataset extra (its chunks stay)"]]
    assert admin.get("/v1/sources/shop/extra").status == 200
    assert admin.act("unbind-source", project="shop", dataset="extra")["result"]["unbound"] == ["format", "path"]
    assert admin.get("/v1/sources/shop/extra").status == 404


def test_what_project_yml_declares_is_read_only_and_what_it_leaves_open_is_not(site: Site, admin: Visitor) -> None:
    answer = admin.ask("PUT", "/v1/sources/shop/warehouse", {"values": {"url": "sqlite:///other.db"}})
    assert answer.status == 409
    assert "url: is declared in project.yml (line 6), and can be changed only there" in answer.json["detail"]
    answer = admin.ask("PUT", "/v1/sources/shop/warehouse", {"values": {"partition_column": "id"}})
    assert "is declared in project.yml, environment dev (line 4)" in answer.json["detail"]
    assert bind(admin, "warehouse", table="stock")["bound"] == ["table"]
    assert field(admin, "warehouse", "url")["origin"] == "declared"
    page = site.visitor("admin").get("/sources/shop/warehouse")
    assert "project.yml, line 6 · read-only" in page.words
    assert 'name="url"' not in page.text
    assert 'name="table"' in page.text


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"path": "x.csv", "url": "sqlite:///x.db"}, "has both `path` and `url`; give one of them"),
        ({"path": "../x.csv"}, "give a path below the environment's root"),
        (
            {"path": "x.csv", "format": "cvs"},
            "should be csv, json, parquet, orc or text, not 'cvs'; did you mean `csv`?",
        ),
        ({"url": "postgresql://me:pw@h/db", "table": "t"}, "holds a password; take it out"),
        ({"table": "t"}, "has a `table`, but no `url` of its database"),
        ({"url": "sqlite:///x.db", "table": "t", "partitions": "dayly:2025-01-01"}, "did you mean 'daily'?"),
        ({"url": "${DATAFLOW_PASSKEY}"}, "a bound value is taken as it is"),
        ({"url_env": "DATAFLOW_PASSKEY", "table": "t"}, "DATAFLOW_PASSKEY is reserved for OpenDataFlow's own secrets"),
        ({"url": "x://y", "table": "t", "driver": "/tmp/evil.so"}, "the name of an ADBC driver that is installed here"),
        ({"url": "x://y", "table": "t", "driver": "os"}, "the name of an ADBC driver that is installed here"),
        ({"url": "x://y", "table": "t", "driver": "adbc_driver_nothing"}, "an ADBC driver that is installed here"),
        (
            {"url": "x://y", "table": "t", "driver": "adbc_driver_sqlite", "driver_options": {"entrypoint": "main"}},
            "driver_options: entrypoint loads a library",
        ),
        ({"tabel": "t"}, "tabel: cannot be bound; did you mean `table`?"),
        ({"path": "x\x00.csv"}, "holds a character that no store can keep"),
        ({"checks": "[]"}, "checks: cannot be bound"),
    ],
)
def test_what_is_wrong_is_told_in_the_words_of_project_yml_and_nothing_is_kept(
    site: Site, admin: Visitor, values: dict[str, str], sentence: str
) -> None:
    before = site.project.sql("SELECT count(*) FROM source_binding")
    answer = admin.ask("PUT", "/v1/sources/shop/wrong", {"values": values})
    assert answer.status == 409, answer.text
    assert sentence in answer.json["detail"]
    assert ":pw@" not in answer.text
    assert site.project.sql("SELECT count(*) FROM source_binding") == before
    assert admin.get("/v1/sources/shop/wrong").status == 404


def test_an_apply_keeps_what_was_bound_and_says_so_where_project_yml_no_longer_fits(
    site: Site, admin: Visitor, crm: Crm
) -> None:
    project = site.project
    bind(admin, "crm", **crm.values())
    done = project.dataflow("apply")
    assert (done.returncode, done.stdout) == (0, "")
    assert admin.get(CRM).json["kind"] == "PostgreSQL"
    project.write("project.yml", PROJECT.replace("datasets:\n  ware", "datasets:\n  crm: {path: crm.csv}\n  ware"))
    refused = project.dataflow("apply")
    assert refused.returncode == 2
    assert "has both `path` and `url`" in refused.stderr
    assert "password, table, url bound in the store: see `dataflow source list`" in refused.stderr
    project.write("project.yml", PROJECT)
    assert project.dataflow("apply").returncode == 0
    assert project.dataflow("check-project").returncode == 0  # sources/crm.csv is not missed


def test_the_command_binds_the_same_way_and_takes_no_password_as_an_argument(site: Site, crm: Crm) -> None:
    project, env = site.project, {"DATAFLOW_PASSKEY": PASSKEY}
    refused = project.dataflow("source", "bind", "side", f"password={PASSWORD}", env=env)
    assert refused.returncode == 2
    assert "others see arguments" in refused.stderr
    done = project.dataflow(
        "source", "bind", "side", f"url={crm.address}", "table=customers", "password", env=env, input=f"{PASSWORD}\n"
    )
    assert done.returncode == 0, done.stderr
    tested = project.dataflow("source", "test", "side", env=env)
    assert "customers: 2 columns, can be read" in tested.stdout, tested.stderr
    assert project.dataflow("source", "unbind", "side", env=env).stdout == "- dataset side (its chunks stay)\n"


def test_credentials_that_were_bound_come_under_a_new_passkey_with_the_others(sqlite_project: Project) -> None:
    project = sqlite_project
    project.apply("name: Shop\ndatasets: {crm: {hostname: db}}\n")
    project.dataflow("source", "bind", "crm", "password", env={"DATAFLOW_PASSKEY": "old"}, input="secret\n")
    done = project.json("crypt", "rotate", env={"DATAFLOW_PASSKEY": "old", "DATAFLOW_NEW_PASSKEY": "new"})
    assert done["rotated"] == 1  # bound and registered is one
    assert project.dataflow("apply").stdout == ""
    [(bound,)] = project.sql("SELECT value FROM source_binding WHERE field = 'password'")
    assert decrypt(json.loads(bound), "new") == "secret"


# Looking --------------------------------------------------------------------------------------------------------------
def test_a_test_tells_what_answers_and_what_does_not(site: Site, admin: Visitor, operator: Visitor, crm: Crm) -> None:
    bind(admin, "crm", **crm.values())
    told = operator.post(f"{CRM}/test").json
    assert told["answered"]
    assert re.fullmatch(r"PostgreSQL [\d.]+: customers has 2 columns and can be read", told["said"])
    bind(admin, "crm", password="not the one")
    told = operator.post(f"{CRM}/test").json
    assert not told["answered"]
    assert "password authentication failed" in told["said"]
    assert "Traceback" not in told["said"]
    page = site.visitor("viewer").get("/sources/shop/crm").words
    assert "no answer" in page
    assert "password authentication failed" in page
    assert "by the-operator (api)" in page
    bind(admin, "crm", table="nothing", password=PASSWORD)
    assert "nothing" in operator.post(f"{CRM}/test").json["said"]
    bind(admin, "crm", table="customers")


def test_a_file_is_tested_and_sampled_before_any_run_took_it_in(site: Site, admin: Visitor, operator: Visitor) -> None:
    bind(admin, "rates", path="in/rates.csv", format="csv")
    told = operator.post("/v1/sources/shop/rates/test").json
    assert not told["answered"]
    assert "there is no such file; put it there" in told["said"]
    site.project.write("in/rates.csv", "day,rate\n2025-01-01,1.5\n2025-01-02,\n")
    assert operator.post("/v1/sources/shop/rates/test").json["said"] == "csv full has 2 columns and can be read"
    assert operator.get("/v1/sources/shop/rates/sample").json["rows"][0] == ["2025-01-01", "1.5"]
    csv_text = operator.get("/v1/sources/shop/rates/rows.csv").text
    assert csv_text == "day,rate\n2025-01-01,1.5\n2025-01-02,\n"
    admin.act("unbind-source", project="shop", dataset="rates")


def test_a_sample_has_300_rows(site: Site, admin: Visitor, operator: Visitor, crm: Crm) -> None:
    bind(admin, "crm", **crm.values())
    found = operator.get(f"{CRM}/sample").json
    assert (found["columns"], len(found["rows"]), found["rows"][0]) == (["id", "name"], 300, [1, "=Ü1"])
    assert len(operator.get(f"{CRM}/sample?rows=5").json["rows"]) == 5
    assert operator.get(f"{CRM}/sample?rows=0").status == 422
    page = site.visitor("operator").get("/sources/shop/crm/sample")
    assert page.status == 200
    assert "the first 300 rows" in page.words
    assert "=Ü300" in page.words


def test_texts_that_a_spreadsheet_takes_for_formulas_can_be_made_safe(
    site: Site, admin: Visitor, operator: Visitor, crm: Crm
) -> None:
    bind(admin, "crm", **crm.values())
    rows = list(csv.reader(io.StringIO(operator.get(f"{CRM}/rows.csv?safe=true").text)))
    assert (rows[0], rows[1], len(rows)) == (["id", "name"], ["1", "'=Ü1"], 401)
    assert operator.get(f"{CRM}/rows.csv").text.splitlines()[1] == "1,=Ü1"


def test_a_download_that_cannot_begin_is_a_problem_and_not_a_file(
    site: Site, admin: Visitor, operator: Visitor, crm: Crm
) -> None:
    bind(admin, "crm", **crm.values("nothing"))
    answer = operator.get(f"{CRM}/rows.csv")
    assert answer.status == 409
    assert "nothing" in answer.json["detail"]
    bind(admin, "crm", table="customers")


def memory_of(pid: int) -> int:
    """Resident bytes, at most so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


def arguments_of_children(pid: int) -> list[str]:
    out = subprocess.run(["ps", "-ww", "-o", "args=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return out.stdout.splitlines()


def test_a_large_download_streams_with_little_memory_and_ends_with_its_reader(
    site: Site, admin: Visitor, operator: Visitor, crm: Crm
) -> None:
    bind(admin, "crm", **crm.values("events"))
    assert operator.get(f"{CRM}/rows.csv?dataid=x").status in (200, 409)  # all code is in memory
    before = memory_of(site.process.pid)
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    connection.request("GET", f"{CRM}/rows.csv", headers={"authorization": f"Bearer {operator.token}"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["content-disposition"]) == (200, "attachment; filename*=UTF-8''crm.csv")
    size = rows = 0
    seen: list[str] = []
    while piece := answer.read(1 << 20):
        size, rows = size + len(piece), rows + piece.count(b"\n")
        seen = seen or arguments_of_children(site.process.pid)
    assert rows == ROWS + 1
    assert size > 40_000_000
    assert memory_of(site.process.pid) - before < 8_000_000
    assert any("source download" in one for one in seen), seen
    assert not any(PASSWORD in one or PASSKEY in one for one in seen)

    connection.request("GET", f"{CRM}/rows.csv", headers={"authorization": f"Bearer {operator.token}"})
    answer = connection.getresponse()
    answer.read(1000)
    assert arguments_of_children(site.process.pid)
    answer.close()
    connection.close()
    wait_for(lambda: not arguments_of_children(site.process.pid), "the child has ended", seconds=60)


def test_a_download_that_does_not_begin_ends_with_its_reader(
    site: Site, admin: Visitor, operator: Visitor, crm: Crm
) -> None:
    bind(admin, "crm", **crm.values())
    with psycopg.connect(crm.url) as shell:
        shell.execute("LOCK TABLE customers IN ACCESS EXCLUSIVE MODE")  # as somebody's ALTER TABLE does
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
        connection.request("GET", f"{CRM}/rows.csv", headers={"authorization": f"Bearer {operator.token}"})
        wait_for(lambda: arguments_of_children(site.process.pid), "a child asks the source")
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        wait_for(lambda: shell.execute(waits).fetchone() != (0,), "it waits for the table")
        connection.close()
        wait_for(lambda: not arguments_of_children(site.process.pid), "it went with its reader", seconds=60)


# Who may --------------------------------------------------------------------------------------------------------------
def test_viewers_look_operators_test_and_admins_bind(site: Site, operator: Visitor) -> None:
    viewer, nobody = site.script("viewer"), site.visitor(None)
    assert viewer.get("/v1/sources").status == 200
    assert nobody.get("/v1/sources").status == 401
    for method, path in (("POST", f"{CRM}/test"), ("GET", f"{CRM}/sample"), ("GET", f"{CRM}/rows.csv")):
        assert viewer.ask(method, path).status == 403
    for who in (viewer, operator):
        assert who.ask("PUT", CRM, {"values": {"table": "x"}}).status == 403
        assert who.post("/v1/actions/unbind-source", {"project": "shop", "dataset": "crm"}).status == 403
    page = site.visitor("viewer").get("/sources/shop/crm")
    assert "Test now" not in page.words
    assert "Bind here" not in page.words
    assert "Bind here" not in site.visitor("operator").get("/sources/shop/crm").words


def submit(visitor: Visitor, address: str, /, **fields: str) -> Answer:
    return visitor.ask("POST", address, fields, form=True)


def test_the_forms_make_change_and_empty_fields(site: Site, crm: Crm) -> None:
    admin = site.visitor("admin")
    made = {"project": "shop", "dataset": "formed", "path": "in/formed.csv", "format": "csv"}
    assert "would be bound" in submit(admin, "/sources/new", **made, check="1").words
    wrong = submit(admin, "/sources/new", **made, url="sqlite:///x.db")
    assert wrong.status == 409
    assert "has both `path` and `url`" in wrong.words
    assert 'value="in/formed.csv"' in wrong.text
    answer = submit(admin, "/sources/new", **made)
    assert answer.status == 303
    assert answer.headers["location"].startswith("/sources/shop/formed?said=")
    changed = submit(admin, "/sources/shop/formed", path="in/other.csv", format="", password="hush")
    assert changed.status == 303, changed.words
    page = admin.get("/sources/shop/formed")
    assert "in/other.csv" in page.words
    assert "hush" not in page.text
    assert {one[0]: one[1] for one in site.project.sql(
        "SELECT field, substr(value, 1, 8) FROM source_binding WHERE datasetid = 'formed'"
    )} == {"path": '"in/othe', "password": '"enc:v1:'}  # fmt: skip
    submit(admin, "/sources/shop/formed", path="in/other.csv", password="")  # stays
    assert site.project.sql("SELECT count(*) FROM source_binding WHERE datasetid = 'formed'") == [(2,)]
    submit(admin, "/sources/shop/formed", path="in/other.csv", forget_password="1")
    assert site.project.sql("SELECT count(*) FROM source_binding WHERE datasetid = 'formed'") == [(1,)]
    assert submit(Visitor(site.url, secret=admin.secret, csrf="wrong"), "/sources/shop/formed", path="z").status == 403
    site.script("admin").act("unbind-source", project="shop", dataset="formed")


def test_an_admin_makes_tests_and_samples_a_source_in_a_browser(site: Site, crm: Crm) -> None:
    with browser(site, "admin", viewport={"width": 1100, "height": 800}) as page:
        page.goto("/sources")
        page.get_by_role("link", name="New source").click()
        page.get_by_label("name", exact=True).fill("seen")
        page.get_by_label("url", exact=True).fill(crm.address)
        page.get_by_label("table", exact=True).fill("customers")
        page.get_by_label("password", exact=True).fill(PASSWORD)
        page.get_by_role("button", name="Bind").click()
        page.get_by_role("status").wait_for()
        page.get_by_role("button", name="Test now").click()
        page.get_by_text("customers has 2 columns and can be read").wait_for()
        if os.environ.get("DATAFLOW_SCREENSHOTS"):
            page.screenshot(path=f"{os.environ['DATAFLOW_SCREENSHOTS']}/source.png", full_page=True)
        page.get_by_role("link", name="Sample of 300 rows").click()
        page.get_by_text("the first 300 rows").wait_for()
        page.set_viewport_size({"width": 360, "height": 740})
        for address in ("/sources/shop/seen/sample", "/sources/shop/seen", "/sources", "/sources/new"):
            page.goto(address)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, address
            if os.environ.get("DATAFLOW_SCREENSHOTS"):
                name = address.strip("/").replace("/", "-")
                page.screenshot(path=f"{os.environ['DATAFLOW_SCREENSHOTS']}/{name}-360.png", full_page=True)
        page.goto("/sources/shop/seen")
        page.get_by_role("link", name="Unbind all").click()
        page.get_by_role("button", name="Unbind", exact=True).click()
        page.get_by_role("heading", name="Sources").wait_for()


# The whole ------------------------------------------------------------------------------------------------------------
def test_no_secret_is_in_the_store_in_a_page_or_in_an_answer(site: Site, admin: Visitor, crm: Crm) -> None:
    bind(admin, "crm", **crm.values())
    told = [admin.get(path).text for path in ("/v1/sources", CRM, "/v1/actions", "/v1/openapi.json")]
    told += [site.visitor("admin").get(path).text for path in ("/sources", "/sources/shop/crm", "/sources/new")]
    store = site.project.store.removeprefix("sqlite:///")
    told.append(Path(store).read_bytes().decode(errors="replace"))
    for beside in ("-wal", "-shm"):
        if Path(store + beside).exists():
            told.append(Path(store + beside).read_bytes().decode(errors="replace"))
    for text in told:
        assert PASSWORD not in text
        assert PASSKEY not in text
    assert any("enc:v1:" in one for one in told[-3:])
    assert not any("enc:v1:" in one for one in told[:7])
    [(detail,)] = site.project.sql(
        "SELECT detail FROM web_action WHERE action = 'bind-source' ORDER BY rowid DESC LIMIT 1"
    )
    assert sorted(json.loads(detail)["bound"]) == ["password", "table", "url"]


@pytest.mark.timeout(300)
def test_a_pipeline_runs_on_a_source_that_was_only_bound(site: Site, admin: Visitor, crm: Crm) -> None:
    bind(admin, "crm", **crm.values())
    done = site.project.dataflow("run", "clean", env={"DATAFLOW_PASSKEY": PASSKEY}, timeout=240)
    assert done.returncode == 0, done.stderr
    rows = list(csv.reader(io.StringIO((site.project.folder / "output" / "cleaned.csv").read_text())))
    assert (rows[0], len(rows)) == (["id", "name"], 401)
