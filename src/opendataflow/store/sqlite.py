"""The embedded store: one SQLite file, WAL, synchronous FULL, short BEGIN IMMEDIATE transactions."""

import functools
import operator
import os
import re
import select
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from opendataflow.domain.job import Candidate, Job
from opendataflow.errors import StoreUnavailable, UsageError
from opendataflow.private_files import FILE, OTHERS, close_to_others, make_folder
from opendataflow.store.base import READ_ONLY
from opendataflow.store.claims import LoopStore
from opendataflow.store.rows import Params, Row
from opendataflow.store.statements import statements

BUSY_SECONDS = 60.0
CACHE_KIB = 16 * 1024  # the upper levels of the indexes of a few million chunks
LOOK_SECONDS = (0.02, 0.25)  # between two looks at whether others wrote: at first, and at last
_NAME_OR_TEXT = re.compile(r":(\w+)|'[^']*'")


@functools.cache
def _positional(sql: str) -> tuple[str, Callable[[Params], Sequence[Any]]]:
    """The statement with `?` for its names, and what picks their values from a dictionary, in order.

    Given a dictionary, sqlite3 makes a string of every name at every call.
    """
    names: list[str] = []

    def placeholder(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        names.append(found[1])
        return "?"

    text = _NAME_OR_TEXT.sub(placeholder, sql)
    if len(names) > 1:
        return text, operator.itemgetter(*names)
    return text, lambda params: [params[name] for name in names]


class _SqliteTransaction:
    """BEGIN IMMEDIATE … COMMIT: the write lock is taken (or waited for) at once, never upgraded half-way.

    A class, not a generator: this is the hottest path there is.
    """

    def __init__(self, cursor: sqlite3.Cursor, named: dict[str, str], actor: str | None, url: str) -> None:
        self._cursor = cursor
        self._named = named
        self._actor = actor  # None: before there is a `store` table to sign in
        self._url = url
        self._tokens = 0

    def __enter__(self) -> "_SqliteTransaction":
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
            if self._actor is not None:
                self.run("act_as", {"actor": self._actor})
        except sqlite3.DatabaseError as error:
            self._roll_back()
            raise _explain(error, self._url) from error
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            try:
                if self._actor is not None:
                    self._cursor.execute(self._named["stop_acting"])
                self._cursor.execute("COMMIT")
                return
            except sqlite3.DatabaseError as failed:
                error = failed
        self._roll_back()
        if isinstance(error, sqlite3.DatabaseError):
            raise _explain(error, self._url) from error

    def _roll_back(self) -> None:
        if self._cursor.connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    def run(self, name: str, params: Params) -> int:
        sql, values = _positional(self._named[name])
        return self._cursor.execute(sql, values(params)).rowcount

    def run_many(self, name: str, params: list[Params]) -> None:
        self._cursor.executemany(self._named[name], params)

    def rows(self, name: str, params: Params) -> list[Row]:
        sql, values = _positional(self._named[name])
        return self._cursor.execute(sql, values(params)).fetchall()

    def next_token(self) -> int:
        if self._tokens:
            self.run("next_token", {})
        self._tokens += 1
        return int(self.rows("this_token", {})[0][0])


class SqliteStore(LoopStore):
    dialect = "sqlite"

    def __init__(self, path: str, *, actor: str, clock: Callable[[], float], must_exist: bool = True) -> None:
        super().__init__(actor=actor, clock=clock)
        self.url = f"sqlite:///{path}"
        self.folder = os.path.dirname(os.path.abspath(path))
        self._version: int | None = None
        self._heard_at: int | None = None  # the same number, as of the last look for aborts
        mode = _find_mode(path)
        if mode is None:
            if must_exist:
                raise StoreUnavailable(f"there is no store at {path}; run `dataflow apply` to make it")
            _make(path)
        elif mode & OTHERS:
            for one in (path, f"{path}-wal", f"{path}-shm"):
                with suppress(OSError):  # somebody else's: `dataflow doctor` reports it
                    close_to_others(one)
        with _explained(self.url):
            self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._cursor = self._connection.cursor()  # one for all statements: each is read to its end at once
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            if not must_exist:
                _use_wal(self._connection)

    def close(self) -> None:
        self._connection.close()

    def read(self, name: str, params: Params, *, file: str = "claims") -> list[Row]:
        sql, values = _positional(statements("sqlite", file)[name])
        try:
            return self._cursor.execute(sql, values(params)).fetchall()
        except sqlite3.DatabaseError as error:
            raise _explain(error, self.url) from error

    def _find_candidates(self, name: str, job: Job, extra: Params) -> list[Candidate]:
        """As in the base, from one snapshot: which also saves locking and unlocking the file for every statement."""
        if self._connection.in_transaction:
            return super()._find_candidates(name, job, extra)
        with _explained(self.url):
            self._cursor.execute("BEGIN")
        try:
            return super()._find_candidates(name, job, extra)
        finally:
            self._end_snapshot()

    def list_claimable_all(
        self, jobs: Sequence[Job], per_job: int, *, ending: Mapping[tuple[str, str], int] | None = None
    ) -> dict[tuple[str, str], list[Candidate]]:
        """As in the base, from one snapshot."""
        with _explained(self.url):
            self._cursor.execute("BEGIN")
        try:
            return super().list_claimable_all(jobs, per_job, ending=ending)
        finally:
            self._end_snapshot()

    def _end_snapshot(self) -> None:
        if self._connection.in_transaction:  # some errors end it by themselves
            self._cursor.execute("ROLLBACK")

    # News of work: whether anybody else has written to the file -----------------------------------------------
    def has_news(self) -> bool:
        with _explained(self.url):
            version = int(self._cursor.execute("PRAGMA data_version").fetchone()[0])
        found, self._version = version != self._version, version
        return found

    def wait_for_news(self, seconds: float, wake_fd: int | None = None) -> bool:
        give_up = time.monotonic() + seconds
        pause, longest = LOOK_SECONDS
        while not self.has_news():
            left = give_up - time.monotonic()
            woken = select.select([wake_fd] if wake_fd is not None else [], [], [], max(0.0, min(pause, left)))[0]
            if woken or left <= 0:
                return False
            pause = min(pause * 1.5, longest)
        return True

    def hears_of_aborts(self) -> bool:
        version = int(self.read("listen_for_aborts", {}, file="requests")[0][0])
        found, self._heard_at = version != self._heard_at, version
        return found

    def transaction(self, *, file: str = "claims", actor: str | None = None) -> _SqliteTransaction:
        named = statements("sqlite", "claims")
        if file != "claims":
            named = {**named, **statements("sqlite", file)}
        return _SqliteTransaction(self._cursor, named, actor or self.actor, self.url)

    def bare_transaction(self) -> _SqliteTransaction:
        return _SqliteTransaction(self._cursor, statements("sqlite", "registry"), None, self.url)

    def script(self, sql: str) -> None:
        for statement in split_script(sql):
            self._connection.execute(statement)

    def select(self, sql: str) -> tuple[list[str], list[Row]]:
        with _explained(self.url):
            self._connection.execute("PRAGMA query_only = ON")
            try:
                cursor = self._connection.execute(sql)
                return [column[0] for column in cursor.description or ()], cursor.fetchall()
            except (sqlite3.Error, sqlite3.Warning) as error:  # two statements at once are no OperationalError
                hint = READ_ONLY if "readonly" in str(error) else ""
                raise UsageError(f"SQLite says: {error}{hint}") from error
            finally:
                self._connection.execute("PRAGMA query_only = OFF")

    def integrity(self) -> list[str]:
        found = [str(row[0]) for row in self._connection.execute("PRAGMA quick_check")]
        return [] if found == ["ok"] else found


def _find_mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except PermissionError as error:
        raise StoreUnavailable(f"the store {path} is for its owner alone, which this user is not") from error
    except (OSError, ValueError):
        return None


def _make(path: str) -> None:
    """Make the file, empty, for its owner alone: SQLite gives the files beside it the same mode."""
    make_folder(os.path.dirname(os.path.abspath(path)))
    # No open(): to close it again would release the locks that this process has on it, if others were faster.
    with suppress(OSError):  # SQLite makes the file then, or says why not
        os.mknod(path, stat.S_IFREG | FILE)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch a new file to write-ahead logging. Others may be doing the same: SQLite does not wait for them here."""
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.01)


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
    except sqlite3.DatabaseError as error:
        raise _explain(error, url) from error


def _explain(error: sqlite3.DatabaseError, url: str) -> Exception:
    """A broken rule or a wrong statement stays what it is; everything else means that the store cannot be used."""
    if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
        return error
    if isinstance(error, sqlite3.OperationalError):
        return StoreUnavailable(f"the store {url} cannot be used: {error}")
    return StoreUnavailable(f"the store {url} is damaged: {error}; see `dataflow db check`")
