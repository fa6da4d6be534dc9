"""A database that chunks are published in: its transactions, tables and the signs of life of runs that stage there.

A run that lives holds a lock named after its staging table: on PostgreSQL an advisory lock of its session, which ends
with it however it ends; for SQLite a locked file beside the database's. Whoever gets such a lock knows that the table's
run is dead, and removes the table. On BigQuery staging tables expire.
"""

import contextlib
import fcntl
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from adbc_driver_manager import dbapi

from opendataflow.errors import ConfigurationError, JobFailed
from opendataflow.spark.adbc import Access, open_access
from opendataflow.spark.sql_chunk import _PARTS, _bare, identifier, literal, quoted
from opendataflow.spark.sql_columns import TableColumn
from opendataflow.spark.sql_slots import WAIT_SECONDS, NoSlot

STAGING = "dataflow_staging_"
Otherwise = Callable[[int | None], Exception]  # what is raised, by how many rows were changed if that is known
_NAME_BYTES = 63  # of PostgreSQL's identifiers
_PAUSE_SECONDS = 0.5
_BUSY_SECONDS = 120

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod),
       a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> '', coalesce(e.typtype, t.typtype) = 'e'
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typlen = -1
WHERE a.attrelid = to_regclass({table}) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_STAGED = """
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = (SELECT p.relnamespace FROM pg_class p WHERE p.oid = to_regclass({table}))
  AND c.relkind = 'r' AND starts_with(c.relname, {prefix}) AND c.relname <> {own}
"""
_SQLITE_COLUMNS = """
SELECT name, type, dflt_value IS NOT NULL OR hidden > 1 OR (pk > 0 AND upper(type) = 'INTEGER')
FROM pragma_table_xinfo({table}) WHERE hidden <> 1 ORDER BY cid
"""
_SQLITE_STAGED = """
SELECT name FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, length({prefix})) = {prefix} AND name <> {own}
"""


def open_target(access: Access) -> "Target":
    """The database, or raise ConfigurationError for one that nothing can be published in."""
    known: dict[str, type[Target]] = {"postgresql": PostgresTarget, "sqlite": SqliteTarget}
    if access.dialect == "bigquery":
        from opendataflow.spark.bigquery_target import BigQueryTarget

        known["bigquery"] = BigQueryTarget
    if access.dialect not in known:
        raise ConfigurationError(
            f"{access.shown}: pipelines write to PostgreSQL and SQLite, and to BigQuery; for another database write "
            "files and load them"
        )
    return known[access.dialect](access)


class Conflict(JobFailed):
    """Somebody else came between what was asked and what was to be changed, and nothing was: decide again."""


class Target(ABC):
    """A connection of its own, for one thread. What a driver raises comes as it is."""

    kind: str
    kept_for = "until the next run there"  # a staging table that nobody drops
    has_locks = True  # whether what was asked in a transaction stays so until it ends

    def __init__(self, access: Access) -> None:
        self.access = access
        self._connection = self._open()

    def close(self) -> None:
        with contextlib.suppress(Exception):  # a server that is gone is closed
            self._connection.close()

    def open_again(self) -> None:
        """Another connection in place of a lost one; locks of the old one are gone."""
        self.close()
        self._connection = self._open()

    def _open(self) -> dbapi.Connection:
        if self.access.connections == 1:
            raise ConfigurationError(
                f"{self.access.shown}: a destination needs two connections at least, one of which publishes; "
                "raise `connections:`"
            )
        until = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return open_access(self.access, autocommit=True, holding=True)
            except NoSlot:
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def run(self, sql: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)

    def create(self, sql: str) -> None:
        """Make a table that others may have made since."""
        self.run(sql)

    def change(self, sql: str, rows: int, otherwise: Otherwise) -> None:
        """Inside a transaction: run a statement that changes so many rows; if it does not, raise what is given."""
        changed = self._count(sql)
        if changed != rows:
            raise otherwise(changed)

    @abstractmethod
    def _count(self, sql: str) -> int:
        """Run a statement; how many rows it changed."""

    def require(self, condition: str) -> None:
        """Inside a transaction without locks: raise Conflict unless it holds."""
        raise NotImplementedError(condition)  # with locks, what was asked is so

    @contextlib.contextmanager
    def transaction(self, lock: str) -> Iterator[None]:
        """All of it or nothing; whoever names the same lock waits until this one is over."""
        self._begin(lock)
        try:
            yield
        except BaseException:
            with contextlib.suppress(dbapi.Error):
                self.run("ROLLBACK")
            raise
        self.run("COMMIT")

    @abstractmethod
    def _begin(self, lock: str) -> None: ...

    @abstractmethod
    def wait_for(self, lock: str) -> None:
        """Inside a transaction: one more lock to its end."""

    @abstractmethod
    def columns(self, table: str) -> tuple[TableColumn, ...]:
        """The columns of a table, in order; none where there is no such table."""

    def new_table(self, table: str, definitions: str, found_by: TableColumn | None) -> bool:
        """Inside a transaction: make a table whose chunks are found by this column, if by one.

        True when nobody else can have put rows there before the transaction ends.
        """
        del found_by  # an index is quicker made when the rows are there
        self.run(f"CREATE TABLE {quoted(table, self.kind)} ({definitions})")
        return True

    @abstractmethod
    def new_staging(self, table: str, name: str, definitions: str) -> None:
        """Hold the lock of a staging table beside the table, as long as this connection lives; then make it."""

    @abstractmethod
    def sweep(self, table: str, own: str) -> None:
        """Remove staging tables of dead runs that lie beside this one; what cannot be had now is left for later."""

    @abstractmethod
    def drop_staging(self, table: str) -> None:
        """Inside a transaction: drop it, or leave it to the sweep if something still writes there."""

    def forget(self, table: str) -> None:
        """Remove a staging table of this run; a server that is gone is left alone: the next run sweeps."""
        with contextlib.suppress(dbapi.Error, JobFailed):
            self.run(f"DROP TABLE IF EXISTS {quoted(table, self.kind)}")


class PostgresTarget(Target):
    kind = "postgresql"
    _held: str | None = None  # the staging table of this run

    def open_again(self) -> None:
        super().open_again()
        if self._held is not None:
            self.ask(f"SELECT pg_advisory_lock({_key(self._held)})::text")

    def _count(self, sql: str) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return int(cursor.rowcount)

    def _begin(self, lock: str) -> None:
        # Whatever the database's default is: after a lock, statements must see what its last holder committed.
        self.run("BEGIN ISOLATION LEVEL READ COMMITTED")
        self.wait_for(lock)

    def wait_for(self, lock: str) -> None:
        self.ask(f"SELECT pg_advisory_xact_lock({_key(lock)})::text")

    def columns(self, table: str) -> tuple[TableColumn, ...]:
        found = self.ask(_COLUMNS.format(table=literal(quoted(table))))
        return tuple(
            TableColumn(name=name, type=type_, is_optional=is_optional, is_enum=is_enum)
            for name, type_, is_optional, is_enum in found
        )

    def new_staging(self, table: str, name: str, definitions: str) -> None:
        self.ask(f"SELECT pg_advisory_lock({_key(name)})::text")
        self._held = name
        # Unlogged: a crash empties it, which the publish notices, and it costs half as much.
        self.run(f"CREATE UNLOGGED TABLE {quoted(beside(table, name))} ({definitions})")

    def sweep(self, table: str, own: str) -> None:
        found = self.ask(
            _STAGED.format(table=literal(quoted(beside(table, own))), prefix=literal(STAGING), own=literal(own))
        )
        for (name,) in found:
            if self.ask(f"SELECT pg_try_advisory_lock({_key(name)})")[0][0]:
                with contextlib.suppress(dbapi.Error):
                    self.run("SET lock_timeout = '2s'")
                    self.run(f"DROP TABLE IF EXISTS {quoted(beside(table, name))}")
                self.run("RESET lock_timeout")
                self.ask(f"SELECT pg_advisory_unlock({_key(name)})")

    def drop_staging(self, table: str) -> None:
        self.run("SAVEPOINT dropping")
        try:
            self.run("SET LOCAL lock_timeout = '5s'")
            self.run(f"DROP TABLE IF EXISTS {quoted(table)}")
        except dbapi.Error:
            self.run("ROLLBACK TO SAVEPOINT dropping")


class SqliteTarget(Target):
    kind = "sqlite"

    def __init__(self, access: Access) -> None:
        self._locks: list[tuple[int, str]] = []
        super().__init__(access)

    def _open(self) -> dbapi.Connection:
        connection = super()._open()
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
            cursor.fetchall()
        return connection

    def close(self) -> None:
        super().close()
        for lock, path in self._locks:
            with contextlib.suppress(OSError):
                os.unlink(path)
            os.close(lock)
        self._locks.clear()

    def _count(self, sql: str) -> int:
        self.run(sql)
        return int(self.ask("SELECT changes()")[0][0])

    def _begin(self, lock: str) -> None:
        del lock  # there is one writer at a time anyway
        self.run("BEGIN IMMEDIATE")

    def wait_for(self, lock: str) -> None:
        pass

    def columns(self, table: str) -> tuple[TableColumn, ...]:
        found = self.ask(_SQLITE_COLUMNS.format(table=literal(last_name(table), self.kind)))
        return tuple(TableColumn(name=name, type=type_, is_optional=bool(has)) for name, type_, has in found)

    def new_staging(self, _table: str, name: str, definitions: str) -> None:
        path = self._lock_path(name)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._locks.append((lock, path))
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.run(f"CREATE TABLE {quoted(name)} ({definitions})")

    def _lock_path(self, name: str) -> str:
        return f"{self.access.options['uri']}-{name}.lock"

    def sweep(self, _table: str, own: str) -> None:
        for (name,) in self.ask(_SQLITE_STAGED.format(prefix=literal(STAGING), own=literal(own))):
            lock = os.open(self._lock_path(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.run(f"DROP TABLE IF EXISTS {quoted(name)}")
                os.unlink(self._lock_path(name))
            except (OSError, dbapi.Error):
                pass
            finally:
                os.close(lock)

    def drop_staging(self, table: str) -> None:
        self.run(f"DROP TABLE IF EXISTS {quoted(table)}")


# Names ----------------------------------------------------------------------------------------------------------------
def name_parts(table: str) -> Sequence[str]:
    """The parts of a table's name: catalog, schema, name."""
    return [_bare(part) for part in _PARTS.findall(table)]


def last_name(table: str) -> str:
    return name_parts(table)[-1]


def beside(table: str, name: str) -> str:
    """A name in the same schema as the table's, quoted."""
    return ".".join(identifier(part) for part in (*name_parts(table)[:-1], name))


def staging_name(dataset: str, run: int, unique: str) -> str:
    """Of one attempt to write: no two are the same, also of runs of several stores."""
    tail = f"_{run}_{unique}"
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in dataset)
    return f"{STAGING}{plain[: _NAME_BYTES - len(STAGING) - len(tail)]}{tail}"


def _key(name: str) -> str:
    return f"hashtextextended({literal('dataflow ' + name)}, 0)"
