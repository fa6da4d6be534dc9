"""Fixtures: stores of both kinds, and projects over them."""

import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from support import drivers, order
from support.drivers import stop_drivers
from support.order import by_length
from support.postgres import Server, postgres
from support.projects import Project
from support.stores import EVERY_FAULT, KINDS

# What is on its way is seen as people see it who have not set this.
os.environ.pop("PYTHONUNBUFFERED", None)
# pytest compiles the tests for their asserts: once, not in each process of each run, also where Python is not to write.
sys.dont_write_bytecode = False
# A shell starts what it puts into the background with SIGINT ignored, and everything below would ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Every Spark of the tests, also those that the installed command starts: its Java starts sooner and compiles less.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# One warm driver for all tests that do not harm it, also for those of other processes of the same session.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ[drivers.VARIABLE] = tempfile.mkdtemp(prefix="dataflow-tests-")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The drivers that were kept warm end with the session."""
    if hasattr(session.config, "workerinput"):
        return
    stop_drivers()


@pytest.fixture
def own_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A driver for this test alone, which may harm it."""
    monkeypatch.setenv(drivers.VARIABLE, tempfile.mkdtemp(prefix="dataflow-test-"))
    yield
    stop_drivers()


BY_TURNS = ("acceptance",)  # folders whose tests take one kind of store each
_turns: dict[str, Iterator[str]] = {}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "both_stores: runs over both kinds of store each time, not by turns")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A story told by commands takes one kind of store, the tests of a file by turns; in `make faults` it takes both.

    What the stores answer is tested over both by tests/store and tests/server; and so is each story that is about
    locks, races or much at once: it is marked `both_stores`.
    """
    path = metafunc.definition.path
    if EVERY_FAULT or "store_url" not in metafunc.fixturenames or path.parent.name not in BY_TURNS:
        return
    if next(metafunc.definition.iter_markers("both_stores"), None) is None:
        turns = _turns.setdefault(path.name, itertools.cycle(KINDS[::-1]))
        metafunc.definition.add_marker(pytest.mark.parametrize("store_url", [next(turns)], indirect=True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=by_length())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return order.scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Modules of tests are no project's: a chunk that a test produces in this process does not load them anew."""
    if (modules := sys.modules.get("opendataflow.spark.project_modules")) is not None:
        modules._ours = frozenset(sys.modules)  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One PostgreSQL for the whole session; each test gets a database of its own."""
    with postgres() as server:
        server.hurry()
        yield server


@pytest.fixture(autouse=True, scope="module")
def _browser() -> Iterator[None]:
    """The tests of a file share a browser, if they use one."""
    yield
    if "support.web" in sys.modules:
        sys.modules["support.web"].CHROMIUM.close()


@pytest.fixture(params=KINDS)
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
