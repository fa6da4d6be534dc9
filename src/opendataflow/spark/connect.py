"""Spark Connect: a Spark that is another process, often on another machine, and that outlives this one.

There is no JVM here to ask or to lose. Every session is one of the server's, which begins with the server's settings
and stays there until it is released. The address may hold a token, so it is shown without its parameters.
"""

import atexit
import contextlib
import importlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from pyspark.errors import PySparkAssertionError, PySparkException, PySparkImportError, PythonException
from pyspark.sql import SparkSession

from opendataflow.errors import ConfigurationError, JobFailed

SCHEME = "sc://"
# Some ten seconds for a network to come back; Spark's own policy waits ten minutes for a server that was killed.
_RETRIES = {"max_retries": 5, "max_backoff": 6000}
# A session that the server does not know (any more): it was started anew, or has thrown the session out.
_FORGOTTEN = ("INVALID_HANDLE.SESSION_", "NO_ACTIVE_SESSION")

_made: ContextVar[list[SparkSession] | None] = ContextVar("made", default=None)
_lock = threading.Lock()
_artifacts: list[str] = []  # what a new session gets; the last one is the newest
_notice: list[Callable[[str, str], None]] = []  # who is told the id and the user of each session, as it begins


def is_address(master: str) -> bool:
    return master.startswith(SCHEME)


def is_connect(spark: Any) -> bool:
    """True for a session, a DataFrame or a column of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def shown(master: str) -> str:
    """The address without its parameters, which may hold a token."""
    return master.partition("/;")[0].rstrip("/")


def start(master: str, *, settings: Mapping[str, str]) -> SparkSession:
    """A session of that server. Sessions made from it (`newSession`) have its settings, too, as in classic Spark.

    Of the settings, those are passed over that only a server's own start can give. Raises ConfigurationError when
    packages are missing, and JobFailed when nobody answers.
    """
    # Forked processes, as of a `subprocess`, use nothing of it; without this gRPC would tell of each.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        kind = importlib.import_module("pyspark.sql.connect.session").SparkSession
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # functions such as `col` look here which Spark they are for
        spark = _connected(kind, master)
        kept = {key: value for key, value in settings.items() if _is_set(spark, key, value)}
    except PySparkImportError as error:
        raise ConfigurationError(
            f"{shown(master)} is Spark Connect, which needs more packages ({error}); "
            "`pip install 'opendataflow[connect]'` installs them"
        ) from error
    except Exception as error:
        if not is_lost(error):
            raise
        raise JobFailed(f"no Spark Connect server answers at {shown(master)}; is it running, and reachable?") from error

    def new_session() -> SparkSession:
        return _new_session(kind, master, kept)

    kind._set_default_and_active_session(spark)
    spark.newSession = new_session
    return spark


def _connected(kind: Any, master: str) -> Any:
    """A session that gives up on a server that does not answer while somebody still waits for the run."""
    session = kind(connection=master)
    for tell in _notice:
        tell(session.client._session_id, session.client._user_id or "")
    policy = importlib.import_module("pyspark.sql.connect.client.retries").DefaultPolicy
    session.client.set_retry_policies([policy(**_RETRIES)])
    # At exit it would ask the server for what we never use, for an hour if nobody answers; and it keeps the client.
    atexit.unregister(session.client._on_exit)
    return session


def _is_set(spark: SparkSession, key: str, value: str) -> bool:
    try:
        spark.conf.set(key, value)
    except PySparkException as error:
        if (error.getCondition() or "").startswith("CANNOT_MODIFY"):
            return False
        raise
    return True


# Sessions ---------------------------------------------------------------------------------------------------------
def _new_session(kind: Any, master: str, settings: Mapping[str, str]) -> SparkSession:
    session: SparkSession = _connected(kind, master)
    made = _made.get()
    if made is not None:
        made.append(session)
    for key, value in settings.items():
        session.conf.set(key, value)
    for path in _artifacts[-1:]:
        _add(session, path)
    return session


@contextlib.contextmanager
def sessions_noticed(tell: Callable[[str, str], None]) -> Iterator[None]:
    """`tell` gets the id and the user of every session that this process begins in here."""
    _notice.append(tell)
    try:
        yield
    finally:
        _notice.remove(tell)


def release(master: str, session_id: str, user: str) -> None:
    """Give back a session of another process, which has died: the server ends what still runs in it."""
    core = importlib.import_module("pyspark.sql.connect.client.core")
    builder = core.DefaultChannelBuilder(master)
    builder.set("session_id", session_id)
    client = core.SparkConnectClient(builder, user_id=user or None, retry_policy=_RETRIES)
    atexit.unregister(client._on_exit)
    with contextlib.suppress(Exception):  # the server may be gone
        client.release_session()
    with contextlib.suppress(Exception):
        client.close()


@contextlib.contextmanager
def sessions_released() -> Iterator[None]:
    """Sessions that are made in here by this thread are given back to the server at the end: it would keep them."""
    made: list[SparkSession] = []
    token = _made.set(made)
    try:
        yield
    finally:
        _made.reset(token)
        for session in made:
            release_own(session)


def release_own(session: Any) -> None:
    """Give a session of this process back to the server."""
    with contextlib.suppress(Exception):  # the server may be gone
        session.client.set_retry_policies([])
        type(session).stop(session)


# Code -------------------------------------------------------------------------------------------------------------
def add_code(path: str) -> None:
    """From now on, the Python workers of every new session can import from this file."""
    with _lock:
        _artifacts[:] = [path]


def add_code_to(session: Any) -> None:
    """Give a session that exists already what new ones get."""
    for path in _artifacts[-1:]:
        _add(session, path)


def _add(session: Any, path: str) -> None:
    from opendataflow.spark.project_modules import path_unchanged

    with path_unchanged():
        session.addArtifacts(path, pyfile=True)


# How it ends ------------------------------------------------------------------------------------------------------
def is_lost(error: BaseException) -> bool:
    """True when the error says that the server, or our session there, is no more."""
    if not isinstance(error, PySparkException):
        return False
    if isinstance(error, PySparkAssertionError):  # it has no condition
        return "server side session identifier" in str(error)
    if condition := error.getCondition():
        return str(condition).startswith(_FORGOTTEN)
    if isinstance(error, PythonException):  # what a function of the user's raised, who may call servers, too
        return False
    status = error.getGrpcStatusCode() if hasattr(error, "getGrpcStatusCode") else None
    return getattr(status, "name", "") == "UNAVAILABLE" or "StatusCode.UNAVAILABLE" in str(error)  # gRPC's own words


def end_told(master: str) -> str:
    return f"the Spark Connect server at {shown(master)} does not answer any more, or was started anew"


# What is cached -----------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def cache_given_back() -> Iterator[None]:
    """What is cached in here is given back at the end: the server's cache is one for all who use it."""
    frames = importlib.import_module("pyspark.sql.connect.dataframe").DataFrame
    _install_persist(frames)
    cached: list[Any] = []
    token = _cached.set(cached)
    try:
        yield
    finally:
        _cached.reset(token)
        for df in cached:
            with contextlib.suppress(Exception):  # the server may be gone
                df.unpersist()


_cached: ContextVar[list[Any] | None] = ContextVar("cached", default=None)


def _install_persist(frames: Any) -> None:
    if getattr(frames.persist, "knows_chunks", False):
        return
    persist = frames.persist

    def chunk_persist(df: Any, *args: Any, **more: Any) -> Any:
        cached = _cached.get()
        if cached is not None:
            cached.append(df)
        return persist(df, *args, **more)

    chunk_persist.knows_chunks = True  # type: ignore[attr-defined]
    frames.persist = chunk_persist
