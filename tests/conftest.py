"""Fixtures: stores of both kinds, and projects over them."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from support.postgres import Server, postgres
from support.projects import Project

# What is on its way is seen as people see it who have not set this.
os.environ.pop("PYTHONUNBUFFERED", None)
# A shell starts what it puts into the background with SIGINT ignored, and everything below would ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Every Spark of the tests, also those that the installed command starts: its Java starts sooner and compiles less.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One PostgreSQL for the whole session; each test gets a database of its own."""
    with postgres() as server:
        server.hurry()
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a new, empty store; the test runs once for each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state' / 'state.db'}"
    return request.getfixturevalue("postgres_server").new_database()


@pytest.fixture
def project(store_url: str, tmp_path: Path) -> Project:
    """An empty project over each kind of store."""
    return Project(tmp_path / "project", store_url)


@pytest.fixture
def sqlite_project(tmp_path: Path) -> Project:
    """An empty project over SQLite, where the kind of store does not matter."""
    return Project(tmp_path / "project", f"sqlite:///{tmp_path / 'state' / 'state.db'}")


@pytest.fixture
def postgres_project(postgres_server: Server, tmp_path: Path) -> Project:
    return Project(tmp_path / "project", postgres_server.new_database())
