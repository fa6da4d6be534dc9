"""Connections over ADBC: addresses, what goes wrong in one sentence, how many at once, and which rows are a chunk."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import adbc_driver_sqlite
import psycopg
import pytest

from opendataflow.errors import ConfigurationError, JobFailed
from opendataflow.spark.adbc import chunk_condition, connect, explain_failure, is_lost, quoted, resolve
from opendataflow.spark.spec import Database, Place
from opendataflow.spark.sql_describe import describe
from opendataflow.spark.sql_scan import read_rows
from opendataflow.spark.sql_words import is_passing
from support.postgres import Server
from support.relay import relay

SECRET = "p@ss/w:rd'"


@pytest.fixture(scope="module")
def url(postgres_server: Server) -> Iterator[str]:
    """A database with a table; its user `guarded` needs a password, and may read nothing."""
    address = postgres_server.new_database()
    rules = postgres_server.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"local all guarded scram-sha-256\n{before}")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("SELECT pg_reload_conf()")
        connection.execute(psycopg.sql.SQL("CREATE ROLE guarded LOGIN PASSWORD {}").format(SECRET))
        connection.execute("CREATE TABLE events (at timestamptz, day date, shard int, name text, local timestamp)")
        connection.execute(
            "INSERT INTO events SELECT local AT TIME ZONE 'UTC', local::date, n % 4, "
            "to_char(local, 'YYYY-MM-DD\"T\"HH24:MI'), local FROM (SELECT n, timestamp '2025-01-01' + "
            "n * interval '30 minutes' AS local FROM generate_series(0, 199) AS n) AS every"
        )
        yield address
        connection.execute("DROP ROLE guarded")
    rules.write_text(before)


def database(url: str, **fields: object) -> Database:
    return Database(**{"url": url, "options": {}, **fields})  # type: ignore[arg-type]


def as_guarded(url: str) -> str:
    return url.replace("//postgres:@", "//guarded@")


def ask(at: Database, sql: str) -> list[tuple[object, ...]]:
    with connect(at) as connection, connection.cursor() as cursor:
        return list(cursor.execute(sql).fetchall())


# Addresses ------------------------------------------------------------------------------------------------------------
def test_password_and_address_come_from_the_environment_and_are_never_shown(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("crm_password", SECRET)
    guarded = database(as_guarded(url), password_variable="crm_password")
    assert ask(guarded, "SELECT current_user::text") == [("guarded",)]
    assert SECRET not in repr(resolve(guarded))
    assert "w%3Ard" not in repr(resolve(guarded))
    # Heroku's scheme, with the password in the address.
    monkeypatch.setenv(
        "DATABASE_URL", as_guarded(url).replace("postgresql://guarded@", "postgres://guarded:p%40ss%2Fw%3Ard%27@")
    )
    heroku = database("", url_variable="DATABASE_URL")
    assert ask(heroku, "SELECT current_user::text") == [("guarded",)]
    assert "p%40ss" not in repr(resolve(heroku))
    monkeypatch.delenv("DATABASE_URL")
    with pytest.raises(ConfigurationError, match="environment variable DATABASE_URL"):
        resolve(heroku)


def test_any_installed_driver_is_found_by_module_or_by_library(tmp_path: Path) -> None:
    file = tmp_path / "some.db"
    with connect(database(f"sqlite:///{file}")) as connection:
        connection.execute("CREATE TABLE t (a INTEGER)").close()
        connection.execute("INSERT INTO t VALUES (7)").close()
        connection.commit()
    for driver in ("adbc_driver_sqlite", "adbc_driver_sqlite.dbapi", adbc_driver_sqlite._driver_path()):
        assert ask(database(f"file:{file}", driver=driver), "SELECT a FROM t") == [(7,)]
    with pytest.raises(JobFailed, match=r"no ADBC driver 'adbc_driver_nope'.*pip"):
        connect(database("nope://x", driver="adbc_driver_nope"))
    with pytest.raises(ConfigurationError, match=r"no driver is known for oracle://h/x; known are postgresql://"):
        connect(database("oracle://h/x"))


def test_names_are_quoted_whatever_they_hold() -> None:
    assert quoted("public.customers") == '"public"."customers"'
    assert quoted('public."a.b"') == '"public"."a.b"'
    assert quoted('a"; DROP TABLE x; --') == '"a""; DROP TABLE x; --"'
    assert quoted("project.data.t", "bigquery") == "`project`.`data`.`t`"


# What goes wrong ------------------------------------------------------------------------------------------------------
def test_each_failure_to_connect_is_one_sentence_with_the_next_step(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()[1]
    monkeypatch.setenv("pw", "wrong-secret")
    cases = {
        f"postgresql://u:wrong-secret@127.0.0.1:{closed}/x": r"/x cannot be reached .*refused.* host and port",
        "postgresql://u@no-such-host.invalid/x": r"cannot be reached .*translate host name",
        as_guarded(url): r"refuses this user or password .*`dataflow crypt encrypt`",
        url.replace("/test_", "/no_"): r"there is no database 'no_.*check `url:`",
        url.replace("//postgres:", "//nobody:"): r"there is no role 'nobody'",
        "sqlite:////no/such/folder/x.db": r"cannot be opened .*folder exists",
    }
    for address, sentence in cases.items():
        with pytest.raises(JobFailed, match=sentence) as failure:
            connect(database(address, password_variable="pw" if "guarded" in address else None))
        assert "wrong-secret" not in str(failure.value)
        assert "\n" not in str(failure.value)
    with pytest.raises(JobFailed, match=r"there is no database file .*x\.db; check"):
        connect(database("sqlite:////no/such/x.db"), must_exist=True)


def test_each_failure_of_a_statement_is_one_sentence_with_the_next_step(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("crm_password", SECRET)
    guarded = database(as_guarded(url), password_variable="crm_password", table="events")
    own = database(url, table="events")
    cases = [
        (own, "SELECT * FROM nowhere", r"there is no table nowhere at postgresql://.*upper and lower case"),
        (own, "SELECT nothing FROM events", r"there is no column nothing in events .*dataflow source schema"),
        (guarded, "SELECT * FROM events", r"no permission for events at .*permission denied for table events.*grant"),
        (own, "SELEC 1", r'says: syntax error at or near "SELEC"$'),
        (own, "SELECT 1 / 0", r"says: division by zero$"),
    ]
    for at, sql, sentence in cases:
        with connect(at) as connection, pytest.raises(connection.Error) as failure:
            connection.execute(sql).fetchall()
        told = explain_failure(failure.value, at)
        assert re.search(sentence, told), told
        assert SECRET not in told


@pytest.mark.parametrize(
    "value",
    [
        "Connection reset", "server closed the connection unexpectedly", "backendError", "too many clients",
        "password authentication failed", "permission denied", 'role "x" does not exist', "connection timed out",
        "cannot convert NaN", "invalid snapshot identifier", 'malformed array literal: "2 dimensions in a"',
    ],
)  # fmt: skip
def test_what_stands_in_a_table_is_not_taken_for_what_the_server_says_of_itself(url: str, value: str) -> None:
    """A run that takes a refused value for a lost connection publishes again for a minute, and then says so."""
    own = database(url, table="events")
    with connect(own) as connection, pytest.raises(connection.Error) as failure:
        connection.execute(f"SELECT 'is: {value}'::date").fetchall()
    assert failure.value.sqlstate == "22007"
    assert not is_lost(failure.value)
    assert not is_passing(failure.value)
    assert "says: invalid input syntax for type date" in explain_failure(failure.value, own)


def test_a_server_that_ends_a_session_is_lost_and_one_that_cancels_a_statement_is_not(url: str) -> None:
    with connect(database(url)) as connection, pytest.raises(connection.Error) as failure:
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())").fetchall()
    assert (failure.value.sqlstate, is_lost(failure.value)) == ("57P01", True)
    with connect(database(url)) as connection, pytest.raises(connection.Error) as failure:
        connection.execute("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60)").fetchall()
    assert (failure.value.sqlstate, is_lost(failure.value)) == ("57014", False)


def test_a_connection_that_is_lost_before_the_first_row_is_made_again(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with relay(url) as between:
        place = Place(
            datasetid="events", location="", format="sql", options={}, schema=None,
            database=database(between.url(), table="events"),
        )  # fmt: skip
        scan = describe(place)
        before = between.seen
        between.to_lose = 2
        assert sum(batch.num_rows for batch in read_rows(scan, scan.select())) == 200
        assert between.seen - before >= 3
        between.to_lose = 100
        with pytest.raises(JobFailed, match=r"the connection to postgresql://\S+ was lost"):
            list(read_rows(scan, scan.select()))


def test_options_of_a_connection_hold_for_all_of_its_statements(tmp_path: Path) -> None:
    with connect(database(f"sqlite:///{tmp_path}/x.db")) as connection:
        connection.statement_options = {"adbc.sqlite.query.batch_rows": "7"}
        with connection.cursor() as cursor:
            cursor.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < 10) SELECT i FROM n")
            assert [batch.num_rows for batch in cursor.fetch_record_batch()] == [7, 3]


def test_bigquery_gets_its_options_and_says_when_it_has_no_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As far as it goes without the service: its driver is loaded, takes the options, and asks for credentials."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    at = database("bigquery://my-project/sales?location=EU", options={"query.max_bytes_billed": "1000000"})
    access = resolve(at)
    assert access.options == {
        "adbc.bigquery.sql.project_id": "my-project",
        "adbc.bigquery.sql.dataset_id": "sales",
        "adbc.bigquery.sql.location": "EU",
    }
    assert access.statement_options["adbc.bigquery.sql.query.max_bytes_billed"] == 1_000_000
    assert access.statement_options["adbc.bigquery.sql.query.default_dataset_id"] == "sales"
    with pytest.raises(JobFailed, match=r"BigQuery gets no credentials .*service account's JSON key"):
        connect(at)
    key = '{"type": "service_account", "private_key": "not-one"}'
    monkeypatch.setenv("key", key)
    with pytest.raises(JobFailed) as failure:
        connect(database("bigquery://my-project", password_variable="key"))
    assert "not-one" not in str(failure.value)
    with pytest.raises(JobFailed, match=r"Unknown database option 'adbc\.bigquery\.sql\.nonsense'"):
        connect(database("bigquery://my-project", options={"nonsense": "1"}))
    with pytest.raises(ConfigurationError, match="bigquery://PROJECT/DATASET"):
        resolve(database("bigquery://a/b/c"))


# How many at once -----------------------------------------------------------------------------------------------------
HOLDER = """
import sys, time
from opendataflow.spark.adbc import connect
from opendataflow.spark.spec import Database
held = [connect(Database(url=sys.argv[1], options={}, connections=2)) for _ in range(2)]
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_connections_of_all_processes_are_limited_and_those_of_a_killed_one_are_free_again(
    kind: str, url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    address = url if kind == "postgresql" else f"sqlite:///{tmp_path}/limited.db"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, address], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        started = time.monotonic()
        os.kill(holder.pid, signal.SIGSTOP)  # alive, and doing nothing: it keeps them
        ended = subprocess.Popen(["sh", "-c", f"sleep 1; kill -KILL {holder.pid}"])
        with connect(database(address, connections=2)):
            assert time.monotonic() - started > 0.8
        ended.wait()
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()  # type: ignore[union-attr]
    assert "waiting: all 2 connections to" in capfd.readouterr().err
    # A closed one is free at once, and one that needs no limit waits for nobody.
    for _ in range(3):
        connect(database(address, connections=1)).close()


# Chunks ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("column", "type_", "dataids", "rows"),
    [
        ("at", "timestamp with time zone", ("2025-01-02",), 48),
        ("at", "", ("2025-01-02T13",), 2),
        ("at", "timestamp with time zone", ("2025-01-01", "2025-01-02", "2025-01-04"), 144),
        ("local", "timestamp without time zone", ("2025-01-02T13",), 2),
        ("day", "date", ("2025-01-02",), 48),
        ("day", "date", ("2025-01",), 200),
        ("name", "text", ("2025-01-02",), 48),
        ("name", "text", ("2025-01-02T13",), 2),
        ("name", "text", ("2025-01",), 200),
        ("shard", "integer", ("0003",), 50),
        ("shard", "", ("1", "02"), 100),
        ("name", "text", ("it's; DROP TABLE events; --\\",), 0),
    ],
)
def test_a_chunk_is_its_slot_of_time_or_its_value_whatever_the_session_s_zone(
    url: str, column: str, type_: str, dataids: tuple[str, ...], rows: int
) -> None:
    at = database(url, table="events", partition_column=column, dataids=dataids)
    condition, parameters = chunk_condition(at, type_)
    assert parameters == ()
    with connect(at) as connection:
        connection.execute("SET timezone = 'Asia/Tokyo'").close()
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM events WHERE {condition}")
            assert cursor.fetchone() == (rows,)


@pytest.mark.parametrize("held", ["AKIAverysecretvalue", "jdbc:AKIAverysecretvalue", "s3cret://AKIAverysecretvalue/x"])
def test_what_a_variable_holds_that_is_no_address_is_in_no_error(monkeypatch: pytest.MonkeyPatch, held: str) -> None:
    """Somebody may name any variable of the process as that of an address, and read the error."""
    monkeypatch.setenv("CLOUD_KEY", held)
    at = Database(url="", url_variable="CLOUD_KEY", table="t", options={})
    with pytest.raises(ConfigurationError) as raised:
        resolve(at)
    assert "AKIA" not in str(raised.value)
    assert "CLOUD_KEY" in str(raised.value)
