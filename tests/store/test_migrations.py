"""Migrations: from empty to the schema, once, the same in both dialects, and as the documentation shows it."""

import sqlite3
from pathlib import Path

import psycopg
import pytest
from world import TABLES, World

from opendataflow.store import open_store
from opendataflow.store.migrate import migrations, upgrade
from opendataflow.store.open import SCHEMA_VERSION
from opendataflow.store.statements import statements
from support.postgres import Server

DOCUMENTED = Path(__file__).parents[2] / "docs" / "create_tables.sql"
CATALOGUE = """
    SELECT 'column', table_name || '.' || column_name, data_type || coalesce(' ' || column_default, '') || is_nullable
           || coalesce(generation_expression, '') || coalesce(collation_name, '')
    FROM information_schema.columns WHERE table_schema = 'public'
    UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL SELECT 'trigger', tgrelid::regclass || '.' || tgname, pg_get_triggerdef(oid)
    FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid)
    FROM pg_proc p WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT 'sequence', sequencename, data_type::text FROM pg_sequences WHERE schemaname = 'public'
"""


def catalogue(url: str) -> set[tuple[str, str, str]]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(CATALOGUE).fetchall()
    return {row for row in rows if not row[1].startswith("migration")}


def test_the_newest_migration_is_the_version_that_the_code_needs() -> None:
    for dialect in ("sqlite", "postgres"):
        assert [number for number, _, _ in migrations(dialect)] == list(range(1, SCHEMA_VERSION + 1))


def test_upgrade_is_applied_once(tmp_path: Path, postgres_server: Server) -> None:
    names = [f"{number:04d}_{name}" for number, name, _ in migrations("sqlite")]
    for url in (f"sqlite:///{tmp_path / 'state.db'}", postgres_server.new_database()):
        store = open_store(url, actor="x", must_exist=False, check=False)
        assert not store.has_tables()
        assert upgrade(store) == names
        identity = store.select("SELECT store_id FROM store")
        assert upgrade(store) == []
        assert store.select("SELECT store_id FROM store") == identity
        store.check_schema(SCHEMA_VERSION)
        store.close()


def test_a_migration_that_fails_leaves_nothing(
    tmp_path: Path, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = "CREATE TABLE half (x integer);\nINSERT INTO half VALUES (1);\nCREATE TABLE half (x integer);\n"
    monkeypatch.setattr("opendataflow.store.migrate.migrations", lambda _dialect: [(1, "broken", broken)])
    for url in (f"sqlite:///{tmp_path / 'state.db'}", postgres_server.new_database()):
        store = open_store(url, actor="x", must_exist=False, check=False)
        with pytest.raises(Exception, match="half"):
            upgrade(store)
        assert not store.has_tables()
        with pytest.raises(Exception, match="half"):
            store.select("SELECT * FROM half")
        store.close()


def test_every_new_store_has_an_identity_of_its_own(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        world = World(f"sqlite:///{tmp_path / name}")
        made.append(world.store.store_id)
        world.close()
    assert len(set(made)) == 2
    assert all(len(identity) == 32 for identity in made)


def test_both_dialects_have_the_same_tables_and_columns(tmp_path: Path, postgres_server: Server) -> None:
    lite = World(f"sqlite:///{tmp_path / 'state.db'}")
    team = World(postgres_server.new_database())
    here: dict[str, list[str]] = {}
    there: dict[str, list[str]] = {}
    for (table,) in lite.sql("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"):
        here[table] = [row[0] for row in lite.sql(f"SELECT name FROM pragma_table_xinfo('{table}') ORDER BY cid")]
    for table, column in team.sql(
        "SELECT c.table_name, column_name FROM information_schema.columns c JOIN information_schema.tables t "
        "ON t.table_schema = c.table_schema AND t.table_name = c.table_name AND t.table_type = 'BASE TABLE' "
        "WHERE c.table_schema = 'public' ORDER BY table_name, ordinal_position"
    ):
        there.setdefault(table, []).append(column)
    lite.close()
    team.close()
    # Who writes and why, and the last token: settings and a sequence on PostgreSQL; SQLite has neither, but columns.
    assert set(here.pop("store")) == {*there.pop("store"), "actor", "reason", "last_token"}
    assert here == there
    assert set(here) == {*TABLES, "migration"} - {"store"}


def test_the_documented_schema_is_what_the_migrations_make(postgres_server: Server) -> None:
    """docs/create_tables.sql is the migrations of PostgreSQL, one after the other, and makes the same database."""
    text = DOCUMENTED.read_text(encoding="utf-8")
    position = 0
    for number, name, migration in migrations("postgres"):
        found = text.find(migration.strip(), position)
        assert found >= 0, f"docs/create_tables.sql does not have {number:04d}_{name}.sql as it stands"
        position = found + len(migration.strip())
    by_hand, by_upgrade = postgres_server.new_database(), postgres_server.new_database()
    with psycopg.connect(by_hand, autocommit=True) as connection:
        connection.execute(text)
    World(by_upgrade).close()
    assert catalogue(by_hand) == catalogue(by_upgrade)


def test_both_dialects_name_their_statements_alike() -> None:
    registry = [set(statements(dialect, "registry")) for dialect in ("sqlite", "postgres")]
    assert registry[0] == registry[1]
    # PostgreSQL does the hot verbs in functions; whatever else it names, SQLite names too.
    hot, functions = (set(statements(dialect, "claims")) for dialect in ("sqlite", "postgres"))
    assert {name for name in functions - hot if not name.startswith(("claim", "finish", "next_token"))} == set()


def test_sqlite_is_durable_and_lets_readers_in(tmp_path: Path) -> None:
    world = World(f"sqlite:///{tmp_path / 'state.db'}")
    assert world.sql("PRAGMA journal_mode") == [("wal",)]
    connection = world.store._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    world.close()


def test_the_triggers_of_sqlite_need_no_function_of_ours(tmp_path: Path) -> None:
    world = World(f"sqlite:///{tmp_path / 'state.db'}")
    world.close()
    bare = sqlite3.connect(tmp_path / "state.db")  # a shell knows nothing of this package
    triggers = [row[0] for row in bare.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    bare.close()
    assert len(triggers) >= 15


def test_locations_below_a_root_become_relative_and_others_stay(tmp_path: Path, postgres_server: Server) -> None:
    """A store as it was before roots could move, with what had been published in it."""
    locations = {
        "a": "/w/a/data/out/dataid=1/_runs/5", "b": "/elsewhere/x", "c": "sqlite:////w/a/data/crm.db#orders",
        "d": "s3://bucket/out", "e": "/w/a/data/../other/x", "f": "/w/a/database/x",
    }  # fmt: skip
    relative = {**locations, "a": "out/dataid=1/_runs/5", "c": "sqlite:///crm.db#orders"}
    for url in (f"sqlite:///{tmp_path / 'a/.dataflow/state.db'}", postgres_server.new_database()):
        store = open_store(url, actor="x", must_exist=False, check=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("opendataflow.store.migrate.migrations", lambda dialect: migrations(dialect)[:11])
            upgrade(store)
        insert = "INSERT INTO project (project, name, root, home) VALUES ('shop', 'Shop', '/w/a/data', '/w/a')"
        rows = "".join(f", ('shop', 'out', '{dataid}', 'READY', '{text}')" for dataid, text in locations.items())
        columns = "datastatus (project, datasetid, dataid, status, location)"
        dataset = "INSERT INTO dataset (project, datasetid) VALUES ('shop', 'out')"
        by_hand(url, insert, dataset, f"INSERT INTO {columns} VALUES {rows[2:]}")
        upgrade(store)
        found = store.select("SELECT dataid, location FROM datastatus ORDER BY dataid")[1]
        assert dict(found) == relative
        assert dict(store.select("SELECT dataid, location FROM chunk_location")[1]) == locations
        assert store.get_place("shop").root == "/w/a/data"
        store.close()


def by_hand(url: str, *statements_: str) -> None:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as shell:
            for statement in statements_:
                shell.execute(statement)
        shell.close()
        return
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements_:
            connection.execute(statement)
