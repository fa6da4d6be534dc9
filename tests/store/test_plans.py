"""The cost of a claim does not grow with history: the plans of the hot statements are seeks."""

import re
import sqlite3
from pathlib import Path

import psycopg
import pytest
from world import World, job

from opendataflow.store.sqlite import split_script
from opendataflow.store.statements import statements
from support.postgres import Server

BIG = ("job_status", "datastatus", "run", "history", "data_manifest")
NAMED = re.compile(r"(?<![:\w]):([a-z_]+)\b")
CLAIMED_BY = {"project": "p", "jobid": "load", "limit": 1, "offset": 0, "ending": 0, "now": "2025-12-01"}
# Operators and the sweep may look at everything; a claim, a publish and what runs beside them may not.
COLD = {
    "recount", "recount_shared", "adopt_ready", "freeze_chunks", "freeze_history", "fold_tally", "tally_counts",
    "count_all", "empty_tally", "known_dataids", "unmap", "latest_slot",
}  # fmt: skip


@pytest.fixture
def lite(tmp_path: Path) -> World:
    made = World(f"sqlite:///{tmp_path / 'state.db'}")
    made.apply(job("load", ["orders", "rates:full"], ["totals"]))
    yield made
    made.close()


def plan(connection: sqlite3.Connection, sql: str, params: object = ()) -> list[str]:
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", params)]


def scans(steps: list[str], sql: str) -> list[str]:
    """Steps that read a big table from its first row to its last; a partial index holds only what is live."""
    names = {table: table for table in BIG}
    for table, alias in re.findall(r"\b(\w+) (?:AS )?([a-z])\b", sql):
        if table in BIG:
            names[alias] = table
    live = (
        "job_status_claimable",
        "job_status_running",
        "job_status_parked",
        "job_status_blocked",
        "job_status_failed",
    )
    found = [re.match(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", step) for step in steps]
    whole = [hit.string for hit in found if hit and hit.group(1) in names and hit.group(2) not in live]
    # All rows of a job, or all chunks of a dataset, are as bad: without statistics SQLite thinks they are a few.
    found = [
        re.match(r"SEARCH (\w+) USING PRIMARY KEY \(project=\?( AND (?:jobid|datasetid)=\?)?\)", step) for step in steps
    ]
    return whole + [hit.string for hit in found if hit and names.get(hit.group(1)) in ("job_status", "datastatus")]


def test_the_next_claim_is_a_seek_in_its_index_on_sqlite(lite: World) -> None:
    sql = statements("sqlite", "claims")["next_claimable"]
    steps = plan(lite._shell, sql, CLAIMED_BY)
    assert steps[0] == "SEARCH s USING INDEX job_status_claimable (project=? AND jobid=?)"
    # Limits of connections: a row for each database, and what runs now.
    small = ("SCAN c", "SCAN s USING INDEX job_status_running")
    assert not [step for step in steps if "TEMP B-TREE" in step or (step.startswith("SCAN") and step not in small)]


def test_no_hot_statement_of_sqlite_scans_a_big_table(lite: World) -> None:
    seen = 0
    for name, sql in statements("sqlite", "claims").items():
        if name in COLD:
            continue
        params = dict.fromkeys(NAMED.findall(sql))
        steps = plan(lite._shell, sql, params)
        assert scans(steps, sql) == [], f"{name}: {steps}"
        seen += 1
    assert seen >= 20


def test_no_trigger_of_sqlite_scans_a_big_table(lite: World) -> None:
    seen = 0
    # A link that somebody makes by hand concerns every chunk of its dataset.
    hot = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name NOT LIKE 'link_%_by_hand'"
    for name, sql in lite.sql(hot):
        body = sql.split("BEGIN\n", 1)[1].rsplit("END", 1)[0]
        for statement in split_script(body):
            # NEW and OLD are values by the time the body runs; RAISE is no query.
            query = re.sub(r"\b(?:NEW|OLD)\.\w+", "?1", re.sub(r"RAISE\([^)]*\)", "NULL", statement))
            steps = plan(lite._shell, query, ("x",) if "?1" in query else ())
            assert scans(steps, query) == [], f"{name}: {steps}"
            seen += 1
    assert seen >= 20


def test_the_scan_finder_finds_a_scan(lite: World) -> None:
    for sql in (
        "SELECT * FROM job_status s WHERE dataid = 'x'",
        "SELECT count(*) FROM datastatus WHERE status = 'READY'",
        "SELECT count(*) FROM job_status WHERE project = 'p' AND jobid = 'load' AND status = 'RUNNING'",
    ):
        assert scans(plan(lite._shell, sql), sql) != []


def test_the_next_claim_is_a_seek_in_its_index_on_postgres(postgres_server: Server) -> None:
    world = World(postgres_server.new_database())
    world.apply(job("load", ["orders", "rates:full"], ["totals"]))
    world.sql(
        "INSERT INTO job_status (project, jobid, dataid, status) "
        "SELECT 'p', 'load', n::text, CASE WHEN n < 4000 THEN 'COMPLETE' ELSE 'PENDING' END "
        "FROM generate_series(1, 5000) n"
    )
    world.sql("ANALYZE")
    sql = statements("postgres", "claims")["next_claimable"]
    with psycopg.connect(world.url) as connection:
        connection.execute("SET enable_seqscan = off")
        rows = connection.execute(f"EXPLAIN {sql}", CLAIMED_BY).fetchall()
    world.close()
    steps = "\n".join(row[0] for row in rows)
    assert "Index Scan using job_status_claimable on job_status" in steps
    assert re.findall(r"Seq Scan on (\w+)", steps) in ([], ["connection_limit"])


def test_on_postgres_that_was_never_analyzed_a_candidate_s_chunks_are_sought(postgres_server: Server) -> None:
    world = World(postgres_server.new_database())
    world.apply(job("load", ["orders", "rates:full"], ["totals"]))
    sql = statements("postgres", "claims")["claimable_of_all"]
    asked = {"jobs": '[{"project": "p", "jobid": "load", "ending": 0}]', "limit": 16}
    with psycopg.connect(world.url) as connection:
        connection.execute("SET enable_seqscan = off")
        rows = connection.execute(f"EXPLAIN {sql}", asked).fetchall()
    world.close()
    steps = "\n".join(row[0].strip() for row in rows)
    seeks = re.findall(r"using datastatus\w* on datastatus \w+ .*\n(.*)", steps)
    assert len(seeks) == 3, steps
    assert all("Index Cond" in seek and "(dataid = " in seek for seek in seeks), seeks
