"""For streams and chunks that share a job: the Spark session that a transformation gets when it asks for one.

Spark itself keeps an active session for each thread, but PySpark (classic) answers with one for the whole process.
"""

import contextlib
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from pyspark.sql import SparkSession

from opendataflow.spark.connect import cache_given_back, is_connect
from opendataflow.spark.inherit import let_threads_inherit

_sessions: ContextVar[list[SparkSession]] = ContextVar("sessions")  # empty once the chunk has ended


def _find_session() -> SparkSession | None:
    sessions = _sessions.get([])
    return sessions[0] if sessions else None


@contextlib.contextmanager
def use_session(spark: SparkSession) -> Iterator[None]:
    """`SparkSession.builder.getOrCreate()`, `.active()` and `.getActiveSession()` give this one to this thread's code.

    `stop()` on it, as a script of one's own ends, does nothing but warn: the Spark behind it serves other chunks.
    """
    let_threads_inherit()
    _install()
    if is_connect(spark):
        _let_stop_warn(type(spark))
    sessions = [spark]
    token = _sessions.set(sessions)
    try:
        with _active_here(spark):
            yield
    finally:
        _sessions.reset(token)
        sessions.clear()  # threads that it left behind have a copy of the context


@contextlib.contextmanager
def _active_here(spark: SparkSession) -> Iterator[None]:
    """The session as Spark's own for this thread: functions without a DataFrame, such as `F.lit`, look there."""
    if is_connect(spark):
        here = type(spark)._active_session
        before = getattr(here, "session", None)
        here.session = spark
        try:
            with cache_given_back():
                yield
        finally:
            here.session = before
        return
    java = SparkSession._get_j_spark_session_class(spark._jvm)
    active = java.getActiveSession()
    java.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if SparkSession._activeSession is spark:  # createDataFrame makes its session that of the whole process
            SparkSession._activeSession = SparkSession._instantiatedSession
        with contextlib.suppress(Exception):  # the JVM may be gone; then there is nothing to put back
            if active.isDefined():
                java.setActiveSession(active.get())
            else:
                java.clearActiveSession()


def _install() -> None:
    """Let PySpark's own answers come after ours; done once, and without effect where no chunk runs."""
    if getattr(SparkSession.getActiveSession, "knows_chunks", False):
        return
    get_active, active = SparkSession.getActiveSession, SparkSession.active
    get_or_create = SparkSession.Builder.getOrCreate

    def chunk_get_active(_cls: type[SparkSession]) -> SparkSession | None:
        return _find_session() or get_active()

    def chunk_active(_cls: type[SparkSession]) -> SparkSession:
        return _find_session() or active()

    def chunk_get_or_create(builder: Any) -> SparkSession:
        session = _find_session()
        if session is None:
            return get_or_create(builder)
        if is_connect(session):
            for key, value in builder._options.items():
                if key.startswith("spark.sql."):
                    session.conf.set(key, value)
            return session
        module = SparkSession._get_j_spark_session_module(session._jvm)
        module.applyModifiableSettings(session._jsparkSession, builder._options)
        return session

    chunk_get_active.knows_chunks = True  # type: ignore[attr-defined]
    SparkSession.getActiveSession = classmethod(chunk_get_active)
    SparkSession.active = classmethod(chunk_active)
    SparkSession.Builder.getOrCreate = chunk_get_or_create
    _let_stop_warn(SparkSession)


def _let_stop_warn(kind: Any) -> None:
    """Let `stop()` of such a session do nothing but warn, in a chunk."""
    if getattr(kind.stop, "knows_chunks", False):
        return
    stop = kind.stop

    def chunk_stop(session: SparkSession) -> None:
        if _find_session() is None:
            stop(session)
        else:
            warnings.warn("spark.stop() was ignored: this Spark also serves other chunks", stacklevel=2)

    chunk_stop.knows_chunks = True  # type: ignore[attr-defined]
    kind.stop = chunk_stop
