"""The two kinds of store of a storm, and how each of them fails."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from support.chaos.wire import Wire
from support.postgres import Server, postgres


class Failing(Protocol):
    """A store that can be made to fail."""

    dialect: str
    url: str
    last_url: str  # the way of the last worker to it

    def restart(self, *, seconds: float, pick: float) -> str: ...
    def drop(self) -> str: ...
    def cut(self) -> None: ...
    def mend(self) -> None: ...


_MID_TRANSACTION = """\
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("PRAGMA cache_size = 1")  # so that changed pages reach the file before the commit
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE job_status SET status = 'HOLD' WHERE status = 'PENDING'")
print("changed", flush=True)
time.sleep(300)
"""
_SQLITE_READER = """\
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM history").fetchone()
print("reading", flush=True)
time.sleep(300)
"""
_POSTGRES_READER = """\
import psycopg, sys, time
connection = psycopg.connect(sys.argv[1])
connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
connection.execute("SELECT count(*) FROM history").fetchone()
print("reading", flush=True)
time.sleep(300)
"""


def started(program: str, argument: str) -> "subprocess.Popen[bytes]":
    """The program, once it has said that it is where it should be."""
    process = subprocess.Popen([sys.executable, "-c", program, argument], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def hold_open(url: str) -> "subprocess.Popen[bytes]":
    """A reader that keeps a transaction open, and with it what the store was when it began."""
    if url.startswith("sqlite"):
        return started(_SQLITE_READER, url.removeprefix("sqlite:///"))
    return started(_POSTGRES_READER, url)


class Sqlite:
    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self.url = self.last_url = f"sqlite:///{path}"

    def restart(self, *, seconds: float, pick: float) -> str:
        """A writer that has changed much is killed in mid-transaction."""
        with started(_MID_TRANSACTION, self._path) as writer:
            time.sleep(seconds)
            writer.send_signal(signal.SIGKILL)
        return f"a writer was killed in mid-transaction after {seconds:.1f} s"

    def drop(self) -> str:
        raise NotImplementedError("a file has no connections")

    def cut(self) -> None:
        raise NotImplementedError("a file has no connections")

    def mend(self) -> None:
        pass


class Postgres:
    dialect = "postgres"

    def __init__(self, server: Server) -> None:
        self.server = server
        self.url = server.new_database()
        self._wire = Wire(self.url)
        self.last_url = self._wire.url

    def restart(self, *, seconds: float, pick: float) -> str:
        how = "immediate" if pick < 0.5 else "fast"
        self.server.halt(how)
        time.sleep(seconds)
        self.server.start_again()
        return f"PostgreSQL was restarted ({how}), {seconds:.1f} s away"

    def drop(self) -> str:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchone()
        return f"{found[0] if found else 0} connections were dropped"

    def cut(self) -> None:
        self._wire.silence()

    def mend(self) -> None:
        self._wire.mend()

    def close(self) -> None:
        self._wire.close()


@contextlib.contextmanager
def failing_store(kind: str, folder: Path) -> Iterator[Failing]:
    if kind == "sqlite":
        yield Sqlite(folder / "state" / "state.db")
        return
    with postgres() as server:
        store = Postgres(server)
        try:
            yield store
        finally:
            store.close()
