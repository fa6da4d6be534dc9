"""Projects over SQL databases through the installed command: a migration with failures, and a table read day by day."""

import datetime
import hashlib
import os
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.postgres import Server
from support.processes import wait_for
from support.projects import Project

SHARDS = 200 if "DATAFLOW_EVERY_FAULT" in os.environ else 24  # `make faults`
ROWS = 40
PASSWORD, WRITTEN = "s3cr@t/of:mover", "s3cr%40t%2Fof%3Amover"
SPARK = """\
spark: {master: "local[2]"}
"""
MIGRATION = f"""\
name: Migration
environments: {{dev: {{root: ./data}}}}
{SPARK}
datasets:
  old:
    url: ${{DATABASE_URL}}
    table: public.moving_customers
    partition_column: shard
    partitions: {{shards: 001..{SHARDS:03d}}}
    connections: 8
  files: {{path: files, format: parquet}}
  new: {{url: "sqlite:///new.db", table: customers, partition_column: shard}}
pipelines:
  - slug: fetch
    sources: [old]
    destination: files
    retries: {{max: 2, backoff: 0.2s}}
    checks: [{{rows: {{min: 1}}}}]
  - slug: load
    sources: [files]
    destination: new
    transformations: [may_fail]
    retries: {{max: 2, backoff: 0.2s}}
    checks: [{{rows: {{min: {ROWS}, max: {ROWS}}}}}, {{not_null: [id, name]}}]
"""
# Ten of two hundred, two of 24, fail the first time they are tried: in the database, and in the code.
BAD_SHARDS = [number for number in range(1, SHARDS + 1) if number % 16 == 5 and number < 165]
HEALTHY = """
CREATE FUNCTION healthy(shard int) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  IF shard % 16 = 5 AND shard < 165 AND nextval('tried_' || shard) = 1 THEN
    RAISE EXCEPTION 'injected into %', shard;
  END IF;
  RETURN true;
END $$
"""
MAY_FAIL = """\
import os

from pyspark.sql import DataFrame

expected_inputs = [[{"id": 1}]]
expected_output = [{"id": 1}]


def run(df: DataFrame) -> DataFrame:
    number, attempt = int(os.environ["dataid"]), int(os.environ["DATAFLOW_ATTEMPT"])
    if number % 16 == 5 and number < 165 and attempt == 1:
        raise RuntimeError(f"injected into {number}")
    return df
"""


class Old:
    """A database with the customers of all shards; `heroku` is its address for a user who needs a password."""

    def __init__(self, server: Server) -> None:
        self.url = server.new_database()
        name = self.url.partition("?")[0].rpartition("/")[2]
        self.user = f"mover_{name}"
        self.heroku = f"postgres://{self.user}:{WRITTEN}@/{name}?host={server.data}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {self.user} LOGIN PASSWORD '{PASSWORD}'")
            # Users come in by the socket without a password here; this one does not.
            hba = server.data / "pg_hba.conf"
            hba.write_text(f"local all {self.user} scram-sha-256\n{hba.read_text()}")
            connection.execute("SELECT pg_reload_conf()")

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def fill(self) -> None:
        self.run(
            "CREATE TABLE customers (id bigint PRIMARY KEY, shard int, name text NOT NULL, paid numeric(12,2), "
            "born date, weight double precision, note text)"
        )
        self.run(
            f"INSERT INTO customers SELECT n, n % {SHARDS} + 1, 'Ünïcødé ' || md5(n::text), n * 1.01, "
            "date '1950-01-01' + (n % 20000)::int, n / 7.0, CASE WHEN n % 3 = 0 THEN NULL ELSE 'it''s \"' || n END "
            f"FROM generate_series(1, {SHARDS * ROWS}) n"
        )
        self.run("CREATE INDEX ON customers (shard)")
        self.run(HEALTHY)
        for shard in BAD_SHARDS:
            self.run(f"CREATE SEQUENCE tried_{shard}")  # which no rollback turns back
        self.run("CREATE VIEW moving_customers AS SELECT * FROM customers WHERE healthy(shard)")
        self.run(f"GRANT SELECT ON moving_customers TO {self.user}")


def checksum(rows: list[tuple[Any, ...]]) -> str:
    """Of all values, whatever form a database keeps them in."""
    plain = sorted(
        (int(id_), int(shard), name, str(Decimal(paid)), str(born), repr(float(weight)), note)
        for id_, shard, name, paid, born, weight, note in rows
    )
    return hashlib.sha256(repr(plain).encode()).hexdigest()


def in_sqlite(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def states(project: Project, jobid: str) -> dict[str, int]:
    return dict(project.sql(f"SELECT status, count(*) FROM job_status WHERE jobid = '{jobid}' GROUP BY 1"))


@pytest.mark.timeout(600)
def test_all_shards_move_from_postgresql_over_parquet_to_sqlite_though_some_fail_at_first(
    sqlite_project: Project, postgres_server: Server
) -> None:
    project, old = sqlite_project, Old(postgres_server)
    old.fill()
    project.write("pipelines/load/may_fail.py", MAY_FAIL)
    project.apply(MIGRATION)
    env = {"DATABASE_URL": old.heroku}

    for slug in ("fetch", "load"):

        def has_moved(slug: str = slug) -> bool:
            project.dataflow("run", slug, "--drain", "--at-once", "4", env=env, timeout=400)
            return states(project, slug) == {"COMPLETE": SHARDS}

        # A retry that is not due yet is the next drain's.
        wait_for(has_moved, f"every shard has gone through {slug}", seconds=400)
        failed = project.sql(f"SELECT count(*) FROM run WHERE jobid = '{slug}' AND status = 'FAILED'")
        assert failed == [(len(BAD_SHARDS),)]

    columns = "id, shard, name, paid, born, weight, note"
    new = project.folder / "data/new.db"
    after = in_sqlite(new, f"SELECT {columns} FROM customers")
    assert len(after) == SHARDS * ROWS
    assert checksum(after) == checksum(old.run(f"SELECT {columns} FROM customers"))

    # The table, the ledger beside it and the store agree.
    counted = in_sqlite(new, "SELECT printf('%03d', shard), count(*) FROM customers GROUP BY shard ORDER BY shard")
    ledger = in_sqlite(new, "SELECT dataid, token, rows FROM dataflow_ledger ORDER BY dataid")
    published = project.sql(
        "SELECT c.dataid, c.version, m.rows, c.location FROM chunk_location c JOIN data_manifest m "
        "USING (project, datasetid, dataid, version) "
        "WHERE c.datasetid = 'new' AND c.status = 'READY' ORDER BY c.dataid"
    )
    assert counted == [(dataid, rows) for dataid, _, rows in ledger]
    assert ledger == [row[:3] for row in published]
    assert published[6][3] == f"sqlite:///{project.folder}/data/new.db#customers?dataid=007"


DAYS = f"""\
name: Days
environments: {{dev: {{root: ./data}}}}
{SPARK}
datasets:
  visits:
    url: ${{DATABASE_URL}}
    table: visits
    partition_column: seen_at
    partitions: {{daily: 2025-01-01..2025-01-04}}
  twice: {{url: "${{DATABASE_URL}}", table: twice_visits, partition_column: day}}
pipelines:
  - slug: count_visits
    sources: [{{visits: {{map: {{window: 2}}}}}}]
    destination: twice
    transformations: [by_day]
"""
BY_DAY = """\
import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

expected_inputs = [[{"seen_at": "2025-01-01", "who": "a"}]]
expected_output = [{"day": "2025-01-01", "visits": 1}]


def run(df: DataFrame) -> DataFrame:
    if "visits_password" in os.environ:
        print("the address is", os.environ["DATABASE_URL"], os.environ["visits_password"])
    counted = df.groupBy().agg(F.count("who").alias("visits"))
    return counted.select(F.lit(os.environ.get("dataid", "2025-01-01")).cast("date").alias("day"), "visits")
"""


def test_a_table_is_read_day_by_day_and_anew_when_it_is_asked_for(
    sqlite_project: Project, postgres_server: Server
) -> None:
    project, old = sqlite_project, Old(postgres_server)
    old.run("CREATE TABLE visits (who text, seen_at timestamptz)")
    # The last moment of a day is that day's, the first of the next one is not.
    for moment in ("2025-01-01 00:00Z", "2025-01-01 23:59:59.999999Z", "2025-01-02 00:00Z", "2025-01-03 12:00Z"):
        old.run(f"INSERT INTO visits VALUES ('w', '{moment}')")
    old.run(f"GRANT SELECT ON visits TO {old.user}; GRANT CREATE ON SCHEMA public TO {old.user}")
    env = {"DATABASE_URL": old.heroku}
    project.write("pipelines/count_visits/by_day.py", BY_DAY)
    project.apply(DAYS)
    told = project.dataflow("scan").stdout
    assert [line.partition(" READY")[0] for line in told.splitlines()] == [
        f"visits/2025-01-0{day}" for day in (1, 2, 3, 4)
    ]
    assert "#visits?dataid=2025-01-02" in project.dataflow("why", "count_visits", "2025-01-02", env=env).stdout

    done = project.dataflow("run", "count_visits", "--drain", env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    told = done.stdout + done.stderr
    counted = [(datetime.date(2025, 1, day), visits) for day, visits in ((1, 2), (2, 3), (3, 2), (4, 1))]
    assert old.run("SELECT day, visits FROM twice_visits ORDER BY day") == counted
    assert project.json("status", "twice")["chunks"][0]["location"].endswith("#twice_visits?dataid=2025-01-01")
    for command in (["preview", "twice"], ["output", "clear", "twice", "--all", "--yes"]):
        assert project.dataflow(*command).returncode == 2

    old.run("INSERT INTO visits VALUES ('late', '2025-01-04 01:00Z')")
    assert project.dataflow("resubmit", "count_visits", "2025-01-04").returncode == 0
    done = project.dataflow("run", "count_visits", env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    assert old.run("SELECT day, visits FROM twice_visits ORDER BY day") == [
        *counted[:3],
        (datetime.date(2025, 1, 4), 2),
    ]

    # What the transformation printed is there, without the secret; nor is it anywhere else.
    told += project.dataflow("env", "count_visits", "2025-01-01", env=env).stdout
    told += project.dataflow("job", "show", "count_visits").stdout
    assert "the address is postgres://mover_" in told
    folders = (project.folder, Path(project.store.removeprefix("sqlite:///")).parent)
    kept = [path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()]
    for secret in (PASSWORD, WRITTEN):
        assert secret.encode() not in b"".join([told.encode(), *kept])
    assert b"DATABASE_URL" in b"".join(kept)


# Without Spark --------------------------------------------------------------------------------------------------------
READY = """\
name: Ready
environments: {dev: {root: ./data}}
datasets:
  shards: {url: "sqlite:///crm.db", table: t, partition_column: shard, partitions: {shards: 1..50}}
  days: {url_env: DATABASE_URL, table: public.t, partition_column: day, partitions: {daily: YESTERDAY}}
  whole: {url: "sqlite:///crm.db", query: "select 1"}
  copy: {path: copy}
  target: {url: "sqlite:///locked/out.db", table: t, partition_column: shard}
  done: {path: done}
jobs:
  list_days: {script: jobs/list_days.sh, inputs: [days], outputs: [done]}
pipelines:
  - {slug: fetch, sources: [shards, whole], destination: copy}
  - {slug: load, sources: [copy], destination: target}
"""


def test_chunks_of_tables_are_ready_by_themselves_once_their_slots_are_over(project: Project) -> None:
    now = datetime.datetime.now(datetime.UTC)
    yesterday = (now - datetime.timedelta(days=1)).date().isoformat()
    project.apply(READY.replace("YESTERDAY", yesterday))
    script = 'echo "$days_hostname $days_database $days_username $days_password $dataid $days_location"'
    project.script("jobs/list_days.sh", f"{script}\ntouch $done_location/x")
    env = {"DATABASE_URL": "postgres://reader:hunter%402@db.internal:5432/crm"}

    # A look declares nothing; then every chunk is declared once.
    assert project.json("scan", "shards", "--dry-run")[49]["dataid"] == "50"
    assert project.sql("SELECT count(*) FROM datastatus") == [(0,)]
    told = project.dataflow("scan", "days")
    assert told.stdout.startswith(f"days/{yesterday} READY: env://DATABASE_URL#public.t?dataid={yesterday}")
    tick = project.dataflow("tick", "--dry-run", env=env)
    assert "shards/1 to 50, 50 chunks READY" in tick.stderr
    assert "whole/full READY" in tick.stderr
    assert "READY" not in project.dataflow("tick", "--dry-run", env=env).stderr
    ready = "SELECT datasetid, count(*) FROM datastatus WHERE status = 'READY' GROUP BY datasetid ORDER BY datasetid"
    assert project.sql(ready) == [("days", 1), ("shards", 50), ("whole", 1)]
    assert project.dataflow("db", "check").returncode == 0

    # What is missing here is told before anything is claimed.
    why = project.json("why", "fetch", "7")["answers"]
    assert [(one["code"], one["evidence"].split(";")[0]) for one in why if not one["yes"]] == [
        ("INVALID_PATH", f"shards/7: {project.folder}/data/crm.db is not there")
    ]
    assert "DATABASE_URL, which holds its address, is not set" in str(project.json("why", "list_days", yesterday))
    refused = project.runjob("jobs/list_days.sh")
    assert refused.returncode == 2
    assert "dataset days: the environment variable DATABASE_URL" in refused.stderr

    # A script finds the parts of the address as those of any other, and its password is masked in what it prints.
    done = project.runjob("jobs/list_days.sh", env=env)
    assert done.returncode == 0, done.stderr
    place = f"env://DATABASE_URL#public.t?dataid={yesterday}"
    assert done.stdout == f"db.internal crm reader *** {yesterday} {place}\n"
    assert "caught up" in project.runjob("jobs/list_days.sh", env=env).stderr
    assert project.dataflow("ready", "days", yesterday).returncode == 0


def test_a_chunk_that_was_published_to_another_address_is_not_taken_for_this_ones(sqlite_project: Project) -> None:
    project = sqlite_project
    text = READY.replace("YESTERDAY", "2025-01-01").replace(
        "[copy], destination: target", "[shards], destination: target"
    )
    text = text.replace("- {slug: fetch, sources: [shards, whole]", "- {slug: fetch, sources: [target]")
    project.apply(text)
    (project.folder / "data/locked").mkdir(parents=True)
    (project.folder / "data/locked/out.db").touch()
    project.sql(
        "INSERT INTO datastatus (datasetid, dataid, status, version, location) VALUES "
        f"('target', '7', 'READY', 3, 'sqlite:///{project.folder}/data/locked/out.db#t?dataid=7')"
    )
    assert project.json("why", "fetch", "7")["fix"] == "nothing blocks it: `dataflow run fetch --dataid 7`"
    project.apply(text.replace("locked/out.db", "elsewhere.db"))
    (answer,) = [one for one in project.json("why", "fetch", "7")["answers"] if not one["yes"]]
    assert answer["code"] == "INVALID_PATH"
    assert "it was published as sqlite:" in answer["evidence"]
