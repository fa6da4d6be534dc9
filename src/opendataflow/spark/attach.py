"""A run's own use of Spark: a session on the keeper's warm driver, or on a Spark Connect server.

With keeper_jvm.py this is the only module that knows how PySpark reaches its JVM. A process attaches once at a time;
`SparkSession.builder.getOrCreate()`, `.active()` and `.getActiveSession()` then give the run's session, and `stop()`
does nothing but warn, since the driver serves other runs.
"""

import contextlib
import os
import signal
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from opendataflow import errors
from opendataflow.errors import JobFailed
from opendataflow.spark import connect as spark_connect
from opendataflow.spark.cluster import require_answer
from opendataflow.spark.keeper_client import KeeperEnded, Line, connect, ensure_keeper, has_failed, last_lines
from opendataflow.spark.keeper_settings import KeeperSettings
from opendataflow.spark.session import quiet_bridge, start_connected

_LISTEN_SECONDS = 30.0  # until a keeper that was started listens; it does before it starts Java
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


class Attachment:
    """Spark as one run has it. `close` ends the use; so does the end of the process."""

    def __init__(
        self, spark: SparkSession, *, master: str, group: str, scratch: str, close: Callable[[], None],
        tag: str | None = None,
    ) -> None:  # fmt: skip
        """`scratch` is a folder for files that are sent to executors; empty where the driver is not here.

        `tag` is on every Spark job of the run, whichever thread starts it, and on no other's.
        """
        self.spark, self.master, self.group, self.scratch, self._close = spark, master, group, scratch, close
        self.tag = tag

    def __enter__(self) -> "Attachment":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._close()


def attach(
    settings: KeeperSettings | Mapping[str, Any],
    *,
    run: str,
    group: str,
    identity: str,
    folder: str | None = None,
    on_wait: Callable[[int], None] | None = None,
    on_jvm_end: Callable[[dict[str, Any]], None] | None = None,
    on_leave: Callable[[], None] | None = None,
) -> Attachment:
    """Attach this process to Spark as `run`, and return its session.

    `folder` is what `ensure_keeper` returned; without it the keeper is started from here if it is not there. `on_wait`
    is called with the number of runs before this one. `on_jvm_end` is called with `jvm_ended` (a sentence), `signal`,
    `runs` and `stopped` when the JVM ends under the run; `stopped` means that no run is the cause. With `on_leave`,
    this process stays attached for many runs, until that is called: then it leaves after the run in its hands.

    Raises KeeperEnded when the keeper ended or hangs before the run was attached, and JobFailed or ConfigurationError
    when Spark does not start.
    """
    quiet_bridge()
    wanted = settings if isinstance(settings, KeeperSettings) else KeeperSettings.from_project(settings)
    if spark_connect.is_address(wanted.master):
        return _attach_connected(wanted, group, folder)
    if SparkContext._active_spark_context is not None:
        raise RuntimeError("this process is attached to Spark already")
    line = _dial(wanted, folder)
    try:
        who = {"run": run, "group": group, "identity": identity, "pid": os.getpid()}
        line.send({"attach": {**who, "stays": on_leave is not None}})
        given = _wait_for_turn(line, on_wait)
        use = _DriverUse(line, given, on_jvm_end, on_leave)
        with _interpreter_of_workers(wanted.environment):
            spark = use.open_session(wanted.session_conf, description=f"run {run}")
    except BaseException:
        _forget()
        line.close()
        raise
    scratch = os.path.join(os.path.dirname(str(spark._sc._temp_dir)), "code")  # the same for all runs of the driver
    os.makedirs(scratch, mode=0o700, exist_ok=True)
    return Attachment(
        spark, master=wanted.master, group=given["group"], scratch=scratch, close=use.close, tag=given["tag"]
    )


def _attach_connected(settings: KeeperSettings, group: str, folder: str | None) -> Attachment:
    """`folder` is that of a watcher (connect_watch.py), which releases the sessions if this process dies."""
    from opendataflow.spark.inherit import let_threads_inherit  # it changes threads: not where the driver is here

    master = settings.master
    require_answer(master)
    ends = contextlib.ExitStack()
    watcher: Line | None = None
    with contextlib.suppress(OSError):  # without a watcher, the server itself ends what is left, later
        watcher = connect(folder) if folder is not None else None

    def tell(**message: object) -> None:
        with contextlib.suppress(OSError):  # somebody killed it
            if watcher is not None:
                watcher.send(message)

    def notice(session: str, user: str) -> None:
        tell(master=master, session=session, user=user)

    if watcher is not None:
        ends.callback(watcher.close)
    ends.callback(tell, released=True)
    ends.enter_context(spark_connect.sessions_noticed(notice))
    ends.enter_context(spark_connect.sessions_released())
    spark = start_connected(master, dict(settings.conf) | dict(settings.session_conf))
    ends.callback(spark_connect.release_own, spark)
    ends.enter_context(spark_connect.cache_given_back())
    let_threads_inherit()  # what they cache is given back, too
    spark.stop = _warn_of_stop
    return Attachment(spark, master=master, group=group, scratch="", close=ends.close)


# The keeper -----------------------------------------------------------------------------------------------------------
def _dial(settings: KeeperSettings, folder: str | None) -> Line:
    give_up_at = time.monotonic() + _LISTEN_SECONDS
    while True:
        where = folder if folder is not None else ensure_keeper(settings)
        try:
            return connect(where)
        except OSError as error:
            if time.monotonic() >= give_up_at or has_failed(where):
                why = last_lines(where).strip() or error.strerror or str(error)
                raise JobFailed(f"no keeper of Spark listens in {where}: {why}") from error
        time.sleep(0.02)


def _wait_for_turn(line: Line, on_wait: Callable[[int], None] | None) -> dict[str, Any]:
    while True:
        try:
            message = line.receive()
        except TimeoutError as error:
            raise KeeperEnded("the keeper of Spark does not answer; `dataflow spark stop --force` ends it") from error
        if message is None:
            raise KeeperEnded("the keeper of Spark ended before the run was attached")
        if "gateway" in message:
            return message
        if "failed" in message:
            kind = getattr(errors, str(message.get("kind")), JobFailed)
            raise (kind if issubclass(kind, errors.UsageError) else JobFailed)(message["failed"])
        if "jvm_ended" in message:
            raise KeeperEnded(str(message["jvm_ended"]))
        if on_wait is not None and "waiting" in message:
            on_wait(int(message["waiting"]))


# The driver -----------------------------------------------------------------------------------------------------------
class AttachedContext(SparkContext):  # type: ignore[misc]
    """The keeper's SparkContext. What would concern all runs concerns this one alone."""

    _dataflow_group = ""
    _dataflow_conf: Mapping[str, str] = types.MappingProxyType({})

    def stop(self) -> None:
        _warn_of_stop()

    def cancelAllJobs(self) -> None:
        self.cancelJobGroup(self._dataflow_group)


def _warn_of_stop() -> None:
    warnings.warn("spark.stop() was ignored: this Spark also serves other runs", stacklevel=3)


_stop_session, _new_java_session = SparkSession.stop, SparkSession.newSession


def _stop(session: SparkSession) -> None:
    if isinstance(getattr(session, "_sc", None), AttachedContext):
        _warn_of_stop()
    else:
        _stop_session(session)


def _another_session(session: SparkSession) -> SparkSession:
    """`newSession()` of an attached session: with the project's settings, as where the driver is the project's own."""
    another = _new_java_session(session)
    for key, value in getattr(session._sc, "_dataflow_conf", {}).items():
        another.conf.set(key, value)
    return another


class _DriverUse:
    """The connections of an attached process: to the keeper, which knows the run by it, and to the JVM."""

    def __init__(
        self, line: Line, given: dict[str, Any], on_jvm_end: Callable[[dict[str, Any]], None] | None,
        on_leave: Callable[[], None] | None,
    ) -> None:  # fmt: skip
        self._line, self._given, self._on_jvm_end, self._on_leave = line, given, on_jvm_end, on_leave
        self._gateway: Any = None
        self._is_closed = False
        _uses[:] = [self]

    def open_session(self, conf: Mapping[str, str], *, description: str) -> SparkSession:
        self._gateway = _reach(self._given["gateway"])
        with _signals_unchanged(), _path_in_order():
            java = self._gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
            context = AttachedContext(gateway=self._gateway, jsc=self._gateway.jvm.JavaSparkContext(java))
        group = context._dataflow_group = self._given["group"]
        context.setJobGroup(group, description, interruptOnCancel=True)
        context.addJobTag(self._given["tag"])
        spark = _new_session(context, self._given["tag"])
        facts = {"id": spark._jsparkSession.sessionUUID(), "temporary": context._temp_dir}
        self._line.send({"session": {**facts, "tag": f"spark-session-{facts['id']}"}})
        for key, value in conf.items():
            spark.conf.set(key, value)
        context._dataflow_conf = conf
        threading.Thread(target=self._listen, name="keeper", daemon=True).start()
        return spark

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        _forget()
        self._line.close()  # the keeper takes the gateway away
        _uses.clear()
        with contextlib.suppress(Exception):
            self._gateway.close()
            self._gateway._gateway_client.is_connected = False  # py4j sends nothing of what is collected from now on

    def _listen(self) -> None:
        """Wait for the JVM's end, in a thread of its own."""
        message: dict[str, Any] | None = None
        with contextlib.suppress(OSError, ValueError):
            while (message := self._line.receive(seconds=None)) is not None and "leave" in message:
                if self._on_leave is not None:
                    self._on_leave()
        if not self._is_closed and self._on_jvm_end is not None:
            self._on_jvm_end(
                message or {"jvm_ended": "the keeper of Spark was killed", "signal": None, "runs": 0, "stopped": True}
            )

    def drop(self) -> None:
        """In a copy of this process, made by the run's code: it is not the run."""
        if not self._is_closed:
            self._is_closed = True
            self._line.drop()


_uses: list[_DriverUse] = []  # of this process: one, or none


def _drop_uses() -> None:
    for use in _uses:
        use.drop()


os.register_at_fork(after_in_child=_drop_uses)


def _reach(gateway: Mapping[str, Any]) -> Any:
    """PySpark's connection to a JVM that runs; nothing of it stays in the environment, for the run's children."""
    os.environ[_PORT], os.environ[_SECRET] = str(gateway["port"]), str(gateway["secret"])
    try:
        return launch_gateway()
    finally:
        del os.environ[_PORT], os.environ[_SECRET]


def _new_session(context: SparkContext, name: str) -> SparkSession:
    """A session of its own, this process's default; the JVM's default stays the keeper's.

    Made by its constructor and not by `newSession()`, it shares nothing with the keeper's and those of other runs: it
    has a cache, a catalog and global temporary views of its own.
    """
    SparkSession.stop, SparkSession.newSession = _stop, _another_session
    java_class = SparkSession._get_j_spark_session_class(context._jvm)
    java = java_class(context._jsc.sc(), context._jvm.java.util.HashMap())
    java.sharedState()
    # Where the keeper, which has another gateway, finds it: it ends what the session leaves in the JVM.
    context._jvm.java.lang.System.getProperties().put(name, java)
    # With a session in its place, PySpark does not make the new one the default of the whole JVM.
    SparkSession._instantiatedSession = types.SimpleNamespace(_sc=context)
    spark = SparkSession(context, java)
    SparkSession._instantiatedSession = SparkSession._activeSession = spark
    java_class.setActiveSession(java)
    return spark


def _forget() -> None:
    """Let PySpark know nothing of the driver any more, without stopping it."""
    context = SparkContext._active_spark_context
    if isinstance(context, AttachedContext) and getattr(context, "_accumulatorServer", None):
        threading.Thread(target=_end_server, args=(context._accumulatorServer,), daemon=True).start()
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _end_server(server: Any) -> None:
    server.shutdown()  # it looks only twice a second whether it shall end
    server.server_close()


@contextlib.contextmanager
def _signals_unchanged() -> Iterator[None]:
    """PySpark's handler of Ctrl-C cancels all jobs of the driver."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if is_main and before is not None:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _interpreter_of_workers(environment: Mapping[str, str]) -> Iterator[None]:
    """PySpark takes the workers' Python from the environment of the process that attaches; the keeper's is right."""
    before = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = environment.get("PYSPARK_PYTHON", sys.executable)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYSPARK_PYTHON"]
        else:
            os.environ["PYSPARK_PYTHON"] = before


@contextlib.contextmanager
def _path_in_order() -> Iterator[None]:
    """PySpark puts the folder of added files first; it is one for all runs, so it comes last."""
    before = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = before + [entry for entry in sys.path if entry not in before]
