"""A store with a past: completed chunks as they are after real runs, made in bulk with the triggers off."""

from pathlib import Path

from opendataflow.store.claims import LoopStore
from opendataflow.store.registry import RECOUNT_ALL
from opendataflow.store.statements import read_statements, statements

HERE = Path(__file__).parent


def fill_past(store: LoopStore, *, behind: int, ahead: int, inputs: int) -> None:
    """`behind` completed dataids, then `ahead` ones whose inputs are READY, for the job `nop` of claims.py."""
    named = read_statements((HERE / f"fill_{store.dialect}.sql").read_text())
    params = {"behind": behind, "ahead": ahead, "inputs": inputs}
    if store.dialect == "sqlite":
        _fill_sqlite(store, named, params)
    else:
        _fill_postgres(store, named, params)


def _fill_sqlite(store: LoopStore, named: dict[str, str], params: dict[str, int]) -> None:
    import sqlite3

    connection = sqlite3.connect(store.url.removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -400000")
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    connection.execute("BEGIN IMMEDIATE")
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    for sql in named.values():
        connection.execute(sql, params)
    for name in RECOUNT_ALL:
        connection.execute(statements("sqlite", "claims")[name])
    for _, sql in triggers:
        connection.execute(sql)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _fill_postgres(store: LoopStore, named: dict[str, str], params: dict[str, int]) -> None:
    import psycopg

    with psycopg.connect(store._address) as connection:
        connection.execute("SET session_replication_role = replica")
        for sql in named.values():
            connection.execute(sql, params)
        for name in RECOUNT_ALL:
            connection.execute(statements("postgres", "claims")[name])
    with psycopg.connect(store._address, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
