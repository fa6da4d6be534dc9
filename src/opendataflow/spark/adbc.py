"""Connections to databases over ADBC: PostgreSQL, SQLite, BigQuery, and whatever has an installed driver.

    with connect(database) as connection, connection.cursor() as cursor: …

An `Access` is a database's address with its secrets, taken from the environment where that is: it travels to planning
processes and executors, which have no such variables, in pickled state only. It never shows what it holds.
"""

import atexit
import contextlib
import importlib
import importlib.util
import os
import threading
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import adbc_driver_manager
from adbc_driver_manager import dbapi

from opendataflow.errors import ConfigurationError, JobFailed
from opendataflow.extras import require
from opendataflow.spark.spec import Database
from opendataflow.spark.sql_chunk import chunk_condition, dialect, identifier, literal, quoted
from opendataflow.spark.sql_slots import AllTaken, Slot, Wait, take_slot
from opendataflow.spark.sql_words import explain_error, is_lost, is_passing, without_secrets

__all__ = [
    "Access", "chunk_condition", "connect", "dialect", "explain", "explain_failure", "identifier", "is_lost", "literal",
    "open_access", "quoted", "resolve",
]  # fmt: skip

CONNECT_SECONDS = 10
ATTEMPTS = 3
_PAUSE_SECONDS = 0.3
_KEPT_HANDLES = 8
_DRIVERS = {
    "postgresql": "adbc_driver_postgresql",
    "sqlite": "adbc_driver_sqlite",
    "bigquery": "adbc_driver_bigquery",
}
_POSTGRES_QUERY = {
    "connect_timeout": str(CONNECT_SECONDS),
    "fallback_application_name": "dataflow",
    # A peer that is gone without a word is noticed within a minute and a half, not in two hours.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "6",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """All that opening a connection takes, secrets among it; what is shown of it holds none."""

    dialect: str
    driver: str  # found on the machine that connects, since libraries are not everywhere in the same place
    shown: str  # the address without secrets
    options: Mapping[str, str] = field(repr=False)  # of the driver, the address among them
    statement_options: Mapping[str, str | int] = field(default_factory=dict)
    secrets: tuple[str, ...] = field(default=(), repr=False)  # to be masked in what a driver says
    connections: int | None = None
    table: str | None = None  # what a sentence about it names


class Connection(dbapi.Connection):
    """A connection that gives its slot back when it is closed; some options hold for all of its statements."""

    slot: Slot | None = None
    statement_options: Mapping[str, str | int] = {}

    def cursor(self, *, adbc_stmt_kwargs: Mapping[str, Any] | None = None) -> dbapi.Cursor:
        return super().cursor(adbc_stmt_kwargs={**self.statement_options, **(adbc_stmt_kwargs or {})} or None)

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self.slot is not None:
                self.slot.release()
                self.slot = None


def connect(database: Database, *, autocommit: bool = False, must_exist: bool = False) -> Connection:
    """A connection, within `connections`, or JobFailed with one sentence why there is none.

    Password and address are taken from the environment now. `must_exist`: a SQLite file that is not there is an error,
    not a new database.
    """
    return open_access(resolve(database), autocommit=autocommit, must_exist=must_exist)


def open_access(
    access: Access, *, autocommit: bool = False, must_exist: bool = False, holding: bool = False
) -> Connection:
    """As `connect`. `holding`: this one waits for others to connect, so it takes a slot that leaves room for them."""
    attempt, wait = 1, Wait(access)
    while True:
        try:
            return _open_once(access, autocommit=autocommit, must_exist=must_exist, holding=holding)
        except AllTaken:
            wait.a_moment()
        except dbapi.Error as error:
            if attempt == ATTEMPTS or not is_passing(error):
                raise JobFailed(explain(error, access)) from None  # the driver's own words may hold the address
            time.sleep(_PAUSE_SECONDS * 3 ** (attempt - 1))
            attempt += 1


def explain_failure(error: BaseException, database: Database) -> str:
    """What went wrong in one sentence, without secrets, and what to do next."""
    try:
        access = resolve(database)
    except ConfigurationError as problem:
        return str(problem)
    return explain(error, access)


def explain(error: BaseException, access: Access) -> str:
    """As `explain_failure`, where the address is known already."""
    return explain_error(
        error, dialect=access.dialect, shown=access.shown, table=access.table, secrets=access.secrets,
        driver=access.driver,
    )  # fmt: skip


# The address ----------------------------------------------------------------------------------------------------------
def resolve(database: Database) -> Access:
    """The database's address and secrets as the environment of this thread has them, or raise ConfigurationError."""
    url = _from_variable(database.url_variable, "the database's address") if database.url_variable else database.url
    password = _from_variable(database.password_variable, "its password") if database.password_variable else None
    kind = dialect(database, url)
    # What a variable holds may be anything: it is shown only when it is an address of a kind that is known.
    shown = _shown(url) if kind in _DRIVERS or not database.url_variable else f"the address in {database.url_variable}"
    if kind == "jdbc":
        raise ConfigurationError(f"{shown}: a jdbc: address is read by Spark itself, not over ADBC")
    driver = database.driver or _DRIVERS.get(kind)
    if driver is None:
        known = ", ".join(f"{one}://" for one in _DRIVERS)
        raise ConfigurationError(
            f"no driver is known for {shown}; known are {known}, jdbc:, and any ADBC driver by `driver:`"
        )
    options: dict[str, str] = dict(database.options)
    statement: dict[str, str | int] = {}
    in_url = _password_in(url)
    secrets = tuple(sorted({one for one in (password, in_url, urllib.parse.unquote(in_url)) if one}, key=len)[::-1])
    match kind:
        case "postgresql":
            options["uri"] = _postgres_uri(url, password)
            statement = _moved(options, "adbc.postgresql.batch_size_hint_bytes", "adbc.postgresql.use_copy")
        case "sqlite":
            options["uri"] = os.path.abspath(url.removeprefix("sqlite:///")) if url.startswith("sqlite:") else url
            statement = _moved(options, "adbc.sqlite.query.batch_rows")
        case "bigquery":
            from opendataflow.spark.bigquery import database_options

            options, statement = database_options(url, options, password)
        case _:
            options.setdefault("uri", url)
            if password is not None:
                options.setdefault("password", password)
    return Access(
        dialect=kind,
        driver=driver,
        shown=shown,
        options=options,
        statement_options=statement,
        secrets=secrets,
        connections=database.connections,
        table=database.table,
    )


def _from_variable(name: str, what: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ConfigurationError(f"the environment variable {name}, which holds {what}, is not set")
    return value


def _shown(url: str) -> str:
    """The address as people see it: no password, and of the rest only what says where it is."""
    password = _password_in(url)
    return without_secrets(url.replace(f":{password}@", "@", 1) if password else url)


def _password_in(url: str) -> str:
    userinfo = urllib.parse.urlsplit(url).netloc.rpartition("@")[0]
    return userinfo.partition(":")[2]


def _postgres_uri(url: str, password: str | None) -> str:
    """libpq's address: Heroku's scheme is known, the password is put in, and no attempt lasts for ever."""
    parts = urllib.parse.urlsplit(url)
    userinfo, _, host = parts.netloc.rpartition("@")
    if password is not None:
        userinfo = f"{userinfo.partition(':')[0]}:{urllib.parse.quote(password, safe='')}"
    query = {**_POSTGRES_QUERY, **dict(urllib.parse.parse_qsl(parts.query))}
    netloc = f"{userinfo}@{host}" if userinfo else host
    # Put together by hand: urlunsplit leaves out an empty host, which is how a socket's address begins.
    return f"postgresql://{netloc}{parts.path}?{urllib.parse.urlencode(query, quote_via=urllib.parse.quote)}"


def _moved(options: dict[str, str], *names: str) -> dict[str, str | int]:
    return {name: options.pop(name) for name in names if name in options}


# Opening --------------------------------------------------------------------------------------------------------------
def _open_once(access: Access, *, autocommit: bool, must_exist: bool, holding: bool) -> Connection:
    if access.dialect == "sqlite" and must_exist and not os.path.exists(access.options["uri"]):
        raise JobFailed(f"there is no database file {access.options['uri']}; check the address in `url:`")
    # Session-level things happen outside of any transaction, which `autocommit=False` would begin.
    connection = _shared_connection(access) if access.dialect == "postgresql" else _own_connection(_new_handle(access))
    if access.dialect == "bigquery":  # it names its dataset there; those of others are about how rows are read
        connection.statement_options = access.statement_options
    try:
        connection.slot = take_slot(connection, access, holding=holding)
        if access.dialect == "sqlite":
            connection.execute(f"PRAGMA busy_timeout = {CONNECT_SECONDS * 1000}").close()
        if not autocommit:
            _begin(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _own_connection(handle: Any) -> Connection:
    try:
        return Connection(handle, adbc_driver_manager.AdbcConnection(handle), autocommit=True)
    except BaseException:
        handle.close()
        raise


def _shared_connection(access: Access) -> Connection:
    """PostgreSQL's driver reads all types that the database knows for each handle, which takes ten times as long as
    connecting does: so this process keeps the handles it used last."""
    key = (os.getpid(), access.driver, *sorted(access.options.items()))
    handles, lock = _kept_handles()
    with lock:
        handle = handles.pop(key, None)
        if handle is None:
            handle = dbapi._SharedDatabase(_new_handle(access))
        handles[key] = handle
        try:
            # The handle counts its connections, and not with care for threads.
            return Connection(handle, adbc_driver_manager.AdbcConnection(handle._db), autocommit=True)
        finally:
            while len(handles) > _KEPT_HANDLES:
                handles.pop(next(iter(handles))).close()


def _kept_handles() -> tuple[dict[tuple[Any, ...], Any], Any]:
    """The process's handles and their lock: in the driver manager's module, because code that was sent to an executor
    has no module of its own there."""
    kept = vars(adbc_driver_manager)
    return kept.setdefault("dataflow_handles", {}), kept.setdefault("dataflow_lock", threading.Lock())


@atexit.register
def _close_handles() -> None:
    handles, _ = _kept_handles()
    for handle in handles.values():
        with contextlib.suppress(Exception):  # somebody left a connection open; the end of the process closes it
            handle.close()
    handles.clear()


def _begin(connection: Connection) -> None:
    """From here statements are part of a transaction, where the database has any."""
    try:
        connection.adbc_connection.set_autocommit(False)
    except dbapi.NotSupportedError:
        return
    connection._autocommit, connection._commit_supported = False, True


def _new_handle(access: Access) -> Any:
    options: dict[str, Any] = dict(access.options)
    if access.driver in _DRIVERS.values():
        require(access.driver)
    library = _find_library(access.driver)
    if library is not None:
        return adbc_driver_manager.AdbcDatabase(driver=library, **options)
    if importlib.util.find_spec(access.driver.partition(".")[0]) is not None and not os.path.exists(access.driver):
        # The module knows where its library is and how it is entered; it returns the same kind of handle.
        module = importlib.import_module(access.driver.removesuffix(".dbapi"))
        return module.connect(options.pop("uri"), **({"db_kwargs": options} if options else {}))
    return adbc_driver_manager.AdbcDatabase(driver=access.driver, **options)


def _find_library(driver: str) -> str | None:
    """The library inside a driver's package, if it is one of the usual kind; loading it needs none of its Python."""
    if os.sep in driver:
        return None
    name = driver.removesuffix(".dbapi")
    found = importlib.util.find_spec(name) if "." not in name else None
    for folder in (found.submodule_search_locations or ()) if found else ():
        for path in (Path(folder) / f"lib{name}{suffix}" for suffix in (".so", ".dylib", ".dll")):
            if path.is_file():
                return str(path)
    return None
