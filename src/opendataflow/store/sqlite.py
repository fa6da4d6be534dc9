"""The embedded store: one SQLite file, WAL, synchronous FULL, short BEGIN IMMEDIATE transactions."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opendataflow.errors import StoreUnavailable, UsageError
from opendataflow.store.loop import LoopStore, Params, Row
from opendataflow.store.statements import statements

BUSY_SECONDS = 60.0


class _SqliteTransaction:
    def __init__(self, connection: sqlite3.Connection, named: dict[str, str]) -> None:
        self._connection = connection
        self._named = named

    def run(self, name: str, params: Params) -> int:
        return self._connection.execute(self._named[name], params).rowcount

    def rows(self, name: str, params: Params) -> list[Row]:
        return self._connection.execute(self._named[name], params).fetchall()


class SqliteStore(LoopStore):
    dialect = "sqlite"

    def __init__(self, path: str, *, actor: str, clock: Callable[[], float], must_exist: bool = True) -> None:
        super().__init__(actor=actor, clock=clock)
        self.url = f"sqlite:///{path}"
        if not os.path.exists(path):
            if must_exist:
                raise StoreUnavailable(f"there is no store at {path}; run `dataflow apply` to make it")
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with _explained(self.url):
            self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._connection.execute("PRAGMA synchronous = FULL")
            if not must_exist:
                self._connection.execute("PRAGMA journal_mode = WAL")

    def close(self) -> None:
        self._connection.close()

    def read(self, name: str, params: Params, *, file: str = "claims") -> list[Row]:
        with _explained(self.url):
            return self._connection.execute(statements("sqlite", file)[name], params).fetchall()

    @contextmanager
    def transaction(self, *, file: str = "claims", actor: str | None = None) -> Iterator[_SqliteTransaction]:
        connection = self._connection
        hot = statements("sqlite", "claims")
        named = hot if file == "claims" else {**hot, **statements("sqlite", file)}
        with self._immediate():
            connection.execute(hot["act_as"], {"actor": actor or self.actor})
            yield _SqliteTransaction(connection, named)
            connection.execute(hot["stop_acting"])

    @contextmanager
    def bare_transaction(self) -> Iterator[_SqliteTransaction]:
        with self._immediate():
            yield _SqliteTransaction(self._connection, statements("sqlite", "registry"))

    @contextmanager
    def _immediate(self) -> Iterator[None]:
        connection = self._connection
        with _explained(self.url):
            # IMMEDIATE: the write lock is taken (or waited for) now, never upgraded half-way.
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def script(self, sql: str) -> None:
        for statement in split_script(sql):
            self._connection.execute(statement)

    def select(self, sql: str) -> tuple[list[str], list[Row]]:
        with _explained(self.url):
            self._connection.execute("PRAGMA query_only = ON")
            try:
                cursor = self._connection.execute(sql)
                return [column[0] for column in cursor.description or ()], cursor.fetchall()
            except sqlite3.OperationalError as error:
                raise UsageError(f"SQLite says: {error}") from error
            finally:
                self._connection.execute("PRAGMA query_only = OFF")

    def integrity(self) -> list[str]:
        found = [str(row[0]) for row in self._connection.execute("PRAGMA quick_check")]
        return [] if found == ["ok"] else found


def split_script(sql: str) -> list[str]:
    """A script's statements, triggers whole."""
    found, current = [], ""
    for line in sql.splitlines():
        current += line + "\n"
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found


@contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(f"the store {url} cannot be used: {error}") from error
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
            raise
        raise StoreUnavailable(f"the store {url} is damaged: {error}; see `dataflow db check`") from error
