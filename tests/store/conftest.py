"""A world over each kind of store."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from world import DAYS, LOAD, TABLES, World

from support.postgres import Server


@pytest.fixture(scope="session")
def shared_database(postgres_server: Server) -> str:
    return postgres_server.new_database()


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind; on PostgreSQL one database is emptied each time, which is faster than a new one."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state' / 'state.db'}"
    url = str(request.getfixturevalue("shared_database"))
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute("SELECT to_regclass('store')").fetchone() != (None,):
            connection.execute(f"TRUNCATE {', '.join(table for table in TABLES if table != 'store')}")
            connection.execute("INSERT INTO tally SELECT '', '', '', 'upto', coalesce(max(id), 0) FROM history")
            connection.execute("UPDATE store SET environment = '', paused_by = NULL, paused_until = NULL")
    return url


@pytest.fixture
def world(store_url: str) -> Iterator[World]:
    made = World(store_url)
    yield made
    made.close()


@pytest.fixture
def loading(world: World) -> World:
    """A job that could run on eight dataids."""
    world.apply(LOAD)
    world.ready("orders", *DAYS)
    return world
