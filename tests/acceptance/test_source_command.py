"""`dataflow source`: a database is tested, sampled and described; what is wrong is one sentence, and never a secret."""

import json
import sqlite3
from contextlib import closing

import psycopg
import pytest

from opendataflow.project.secrets import encrypt
from support.postgres import Server
from support.projects import Project

PASSKEY = "a passkey of some length"
PASSWORD = "s3cr@t/of:reader"
WRITTEN = "s3cr%40t%2Fof%3Areader"  # the same in an address


class Crm:
    """A PostgreSQL database with a table, and a user who needs a password."""

    def __init__(self, server: Server) -> None:
        self.url = server.new_database()
        self.socket = server.data
        self.database = self.url.rpartition("/test")[2].partition("?")[0]
        self.user = f"reader{self.database}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {self.user} LOGIN PASSWORD '{PASSWORD}'")
            # Users come in by the socket without a password here; this one does not.
            hba = server.data / "pg_hba.conf"
            hba.write_text(f"local all {self.user} scram-sha-256\n{hba.read_text()}")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(
                "CREATE TABLE customers (id int, name text, paid numeric(10,2), born date, seen timestamptz, "
                "tags text[], shard int)"
            )
            connection.execute(
                "INSERT INTO customers SELECT n, 'Ü' || n, n * 1.5, '2025-01-01', '2025-01-01 12:00Z', "
                "ARRAY['a', NULL], n % 3 FROM generate_series(1, 30) n"
            )
            connection.execute("CREATE TABLE shapes (id int, shape polygon)")
            connection.execute("CREATE TABLE hidden (id int)")
            connection.execute(f"GRANT SELECT ON customers, shapes TO {self.user}")

    def address(self, *, password: str = "", user: str = "", host: str = "") -> str:
        where = f"?host={self.socket}" if not host else ""
        return f"postgresql://{user or self.user}{password and ':' + password}@{host}/test{self.database}{where}"


@pytest.fixture
def crm(postgres_server: Server) -> Crm:
    return Crm(postgres_server)


def project(sqlite_project: Project, **datasets: str) -> Project:
    """Project.yml alone: nothing is applied, there is no store."""
    text = "name: Look\nenvironments: {dev: {root: data}}\ndatasets:\n"
    for name, entry in datasets.items():
        text += f"  {name}:\n    " + entry.replace("\n", "\n    ") + "\n"
    sqlite_project.write("project.yml", text)
    return sqlite_project


def with_password(crm: Crm, password: str = PASSWORD, **address: str) -> str:
    return f"url: {crm.address(**address)}\npassword: {encrypt(password, PASSKEY)}"


def source(project: Project, *argv: str, code: int = 0, env: dict[str, str] | None = None) -> str:
    done = project.dataflow("source", *argv, env={"DATAFLOW_PASSKEY": PASSKEY, **(env or {})})
    told = done.stdout + done.stderr
    assert done.returncode == code, told
    for secret in (PASSWORD, WRITTEN, "wrong password"):
        assert secret not in told
    if code:
        assert done.stdout == ""
        assert done.stderr.startswith("dataflow: ")
        assert done.stderr.count("\n") == 1, done.stderr
    return done.stdout if not code else done.stderr


def test_a_table_is_tested_sampled_and_described(sqlite_project: Project, crm: Crm) -> None:
    table = f"{with_password(crm)}\ntable: public.customers\npartition_column: shard\npartitions: {{shards: 0..2}}"
    whole = f"{with_password(crm)}\nquery: select id, name from customers order by id desc"
    shop = project(sqlite_project, customers=table, names=whole)

    told = source(shop, "test", "customers")
    assert "server: PostgreSQL" in told
    assert "public.customers: 7 columns, can be read, chunked by shard" in told
    assert json.loads(source(shop, "test", "names", "--json"))["columns"] == 2

    rows = json.loads(source(shop, "sample", "customers", "2", "--rows", "3", "--json"))
    assert [row["shard"] for row in rows] == [2, 2, 2]
    two = next(row for row in rows if row["id"] == 2)
    assert two == {
        "id": 2, "name": "Ü2", "paid": "3.00", "born": "2025-01-01", "seen": "2025-01-01 12:00:00+00:00",
        "tags": ["a", None], "shard": 2,
    }  # fmt: skip
    assert source(shop, "sample", "names", "--csv", "--rows", "2") == "id,name\n30,Ü30\n29,Ü29\n"
    assert "Ü1" in source(shop, "sample", "customers")

    types = {one["column"]: one["spark"] for one in json.loads(source(shop, "schema", "customers", "--json"))}
    assert types == {
        "id": "int", "name": "string", "paid": "decimal(10,2)", "born": "date", "seen": "timestamp",
        "tags": "array<string>", "shard": "int",
    }  # fmt: skip
    assert "decimal(10,2)" in source(shop, "schema", "customers")


def test_an_address_in_a_variable_is_used_and_not_shown(sqlite_project: Project, crm: Crm) -> None:
    shop = project(sqlite_project, customers="url: ${DATABASE_URL}\ntable: customers\npartitions: none")
    url = crm.address(password=WRITTEN).replace("postgresql://", "postgres://")
    assert "7 columns, can be read" in source(shop, "test", "customers", env={"DATABASE_URL": url})
    told = source(shop, "test", "customers", code=1, env={"DATABASE_URL": url.replace(WRITTEN, "wrong%20password")})
    assert "refuses this user or password" in told
    assert "DATABASE_URL" in source(shop, "test", "customers", code=2)


def test_each_failure_is_one_sentence_with_its_exit_code(sqlite_project: Project, crm: Crm) -> None:
    shop = project(
        sqlite_project,
        away=f"{with_password(crm, host='127.0.0.1:1')}\ntable: customers",
        refused=f"{with_password(crm, 'wrong password')}\ntable: customers",
        gone=f"{with_password(crm)}\ntable: public.custommers",
        hidden=f"{with_password(crm)}\ntable: hidden",
        shapes=f"{with_password(crm)}\ntable: shapes",
        column=f"{with_password(crm)}\ntable: customers\npartition_column: shared\npartitions: {{shards: 0..2}}",
        broken=f"{with_password(crm)}\nquery: selekt 1",
        java="url: jdbc:postgresql://h/d\ntable: t",
        nothing="url: sqlite:///none.db\ntable: t",
        files="path: orders/{dataid}.csv\npartitions: {shards: 1..3}",
        script="hostname: h\ntablename: t",
    )
    failures = {
        "away": "cannot be reached",
        "refused": "refuses this user or password",
        "gone": "there is no table",
        "hidden": "no permission",
        "column": "no column shared",
        "broken": "syntax error",
        "nothing": "there is no database file",
    }
    for name, words in failures.items():
        assert words in source(shop, "test", name, code=1)
    assert "polygon" in source(shop, "schema", "shapes", code=1)
    assert "is not a dataid of column" in source(shop, "sample", "column", "7", code=2)
    assert "jdbc" in source(shop, "test", "java", code=2)
    assert "there is no store" in source(shop, "test", "files", code=75)
    assert "script has no address of a database" in source(shop, "test", "script", code=2)
    assert "did you mean 'gone'" in source(shop, "test", "gine", code=2)
    assert not (shop.folder / "data" / "none.db").exists()  # looking makes no database


def test_files_are_sampled_as_they_are_previewed(sqlite_project: Project) -> None:
    sqlite_project.apply(
        "name: Look\nenvironments: {dev: {root: data}}\n"
        "datasets:\n  orders: {path: 'orders/{dataid}.csv', partitions: {shards: 1..3}, "
        "schema: {id: int, item: string}}\n"
    )
    sqlite_project.write("data/orders/2.csv", "id,item\n1,nut\n2,bolt\n")
    assert "no chunk of orders is READY" in source(sqlite_project, "sample", "orders", code=10)
    assert sqlite_project.dataflow("ready", "orders", "2").returncode == 0
    assert source(sqlite_project, "sample", "orders", "2", "--csv") == "id,item\n1,nut\n2,bolt\n"
    assert json.loads(source(sqlite_project, "schema", "orders", "--json"))[0] == {
        "column": "id", "type": "", "spark": "int",
    }  # fmt: skip


def test_a_sqlite_file_is_looked_at_below_the_root(sqlite_project: Project) -> None:
    shop = project(
        sqlite_project, t="url: sqlite:///x.db\ntable: t\npartition_column: day\npartitions: {daily: 2025-01-01}"
    )
    (shop.folder / "data").mkdir()
    with closing(sqlite3.connect(shop.folder / "data" / "x.db")) as connection:
        connection.execute("CREATE TABLE t (id INTEGER, day DATE)")
        connection.execute("INSERT INTO t VALUES (1, '2025-01-01'), (2, '2025-01-02')")
        connection.commit()
    assert "server: SQLite" in source(shop, "test", "t")
    assert source(shop, "sample", "t", "2025-01-02", "--csv") == "id,day\n2,2025-01-02\n"
