"""The keeper's half of Spark: the driver JVM, and what each run is given of it.

Every run gets a py4j gateway of its own in the JVM, with its own port and secret. When the run is over, the gateway is
closed: nothing that a killed run referred to stays, and nothing that it left behind can use Spark any more.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opendataflow.errors import JobFailed
from opendataflow.spark.keeper_settings import KeeperSettings

NO_FOLDER = "/dev/null/relative-path"  # what Spark takes for the current folder
TAG = "dataflow-"  # of a run's jobs, with the number of its use of the driver
_APPLICATION = "dataflow"
_PROPERTIES = "spark.conf"
_SUBMIT = "PYSPARK_SUBMIT_ARGS"


@dataclass(slots=True)
class OpenRun:
    """A run as the JVM knows it."""

    number: int
    group: str
    server: Any
    port: int
    secret: str
    first_rdd: int
    tags: list[str] = field(default_factory=list)
    temporary: str = ""


class Driver:
    """A SparkContext in a JVM of its own. All calls come from one thread."""

    def __init__(self, settings: KeeperSettings, instance: str) -> None:
        self._settings, self._instance = settings, instance
        self.process: subprocess.Popen[bytes] | None = None
        self._context: Any = None
        self._root: Any = None
        self._runs: dict[int, OpenRun] = {}

    @property
    def scratch(self) -> str:
        return os.path.join(self._instance, "tmp")

    def start(self, output: int, started: Callable[["subprocess.Popen[bytes]"], None]) -> None:
        """Start the JVM and its SparkContext; `started` gets the JVM as soon as it answers.

        Raises JobFailed when Java ends or no master answers, and ConfigurationError when there is no Java.
        """
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkRuntimeError
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        from opendataflow.spark.cluster import require_answer
        from opendataflow.spark.jvm import require_java
        from opendataflow.spark.session import driver_conf, quiet_bridge

        require_java()
        require_answer(self._settings.master)
        quiet_bridge()
        conf = driver_conf(self._settings.master, self._settings.conf, scratch=self.scratch)
        conf = {"spark.master": self._settings.master, "spark.app.name": _APPLICATION} | conf
        # The driver serves many projects: a relative path is no project's, so that nothing can be there.
        conf["spark.driver.extraJavaOptions"] += f" -Duser.dir={NO_FOLDER}"
        # In a file and not in arguments: every user of the machine can read those.
        properties = os.path.join(self._instance, _PROPERTIES)
        _write_properties(properties, conf)
        more = os.environ.get(_SUBMIT, "pyspark-shell")
        os.environ[_SUBMIT] = f"--properties-file {shlex.quote(properties)} --load-spark-defaults {more}"
        try:
            gateway = launch_gateway(popen_kwargs={"stdout": output, "stderr": output, "umask": self._settings.umask})
        except PySparkRuntimeError as error:
            raise JobFailed("Java ended before Spark had started") from error
        finally:
            os.environ[_SUBMIT] = more
            os.close(output)
        self.process = gateway.proc
        started(gateway.proc)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(properties)
        self._context = SparkContext(conf=SparkConf(False).setAll(list(conf.items())), gateway=gateway)
        self._root = SparkSession(self._context)
        self._root._jsparkSession.sharedState()  # its listener and its tab in Spark's UI serve all sessions
        self._sessions = gateway.jvm.java.lang.System.getProperties()  # by the name that each run was given
        self._server_class = getattr(gateway.jvm, "org.apache.spark.api.python.Py4JServer")

    @property
    def facts(self) -> dict[str, Any]:
        return {"app": self._context.applicationId, "ui": self._context.uiWebUrl}

    # Runs -------------------------------------------------------------------------------------------------------------
    def open(self, number: int, group: str) -> OpenRun:
        """A gateway for one run, and the names under which its jobs are known. Raises when Spark was stopped."""
        context = self._running()
        server = self._server_class(context.conf())
        name, tag = f"{group}#{number}", f"{TAG}{number}"
        # Its threads inherit them, so that jobs are the run's from whichever of its threads they start.
        context.setJobGroup(name, name, True)
        context.addJobTag(tag)
        try:
            server.start()
        finally:
            context.clearJobGroup()
            context.removeJobTag(tag)
        run = OpenRun(
            number=number, group=name, server=server, port=server.getListeningPort(),
            secret=server.secret(), first_rdd=context.newRddId(), tags=[tag],
        )  # fmt: skip
        self._runs[number] = run
        return run

    def _running(self) -> Any:
        context = self._context._jsc.sc()
        if context.isStopped():
            raise JobFailed("Spark was stopped by a run")
        return context

    def note(self, number: int, facts: Mapping[str, Any]) -> None:
        """What the run says of its session."""
        run = self._runs.get(number)
        if run is not None:
            run.tags.append(str(facts.get("tag", "")))
            run.temporary = str(facts.get("temporary", ""))
            self._quieten(self._sessions.get(run.tags[0]))

    def cancel(self, run: OpenRun) -> None:
        """Cancel the jobs of a run that is over, and those that it would still start."""
        context = self._running()
        context.cancelJobGroupAndFutureJobs(run.group)
        for tag in filter(None, run.tags):
            context.cancelJobsWithTag(tag)
        if not self._runs:
            context.cancelAllJobs()

    def close(self, number: int) -> OpenRun | None:
        """The run is over: cancel its jobs, take its gateway away, and drop what it cached."""
        run = self._runs.pop(number, None)
        if run is None:
            return None
        self.cancel(run)
        self._end_session(run)
        with contextlib.suppress(Exception):  # the run itself may have shut it down
            run.server.shutdown()
        run.server = None
        self._drop_cached()
        if run.temporary and os.path.dirname(run.temporary) == os.path.dirname(self._context._temp_dir):
            shutil.rmtree(run.temporary, ignore_errors=True)
        return run

    def _quieten(self, session: Any) -> None:
        """Take back what a session adds for Spark's UI: the keeper's own shows the queries of all of them."""
        if session is None:
            return
        context = self._context._jsc.sc()
        listener = session.sharedState().statusStore().listener()
        if listener.isDefined():
            context.removeSparkListener(listener.get())
        if context.ui().isDefined():
            ui, seen = context.ui().get(), set()
            for tab in list(self._context._jvm.scala.jdk.javaapi.CollectionConverters.asJava(ui.getTabs())):
                if tab.prefix() in seen:
                    ui.detachTab(tab)
                seen.add(tab.prefix())

    def _end_session(self, run: OpenRun) -> None:
        """End what a run leaves in the JVM: its streaming queries, which have threads of their own, and its cache."""
        session = self._sessions.remove(run.tags[0])
        if session is not None:
            for query in list(session.sharedState().activeStreamingQueries().values()):
                query.stop()
            session.sharedState().cacheManager().clearCache()

    def _drop_cached(self) -> None:
        """Drop RDDs that runs that are over have cached: while others are attached, what is older than all of them."""
        oldest = min((run.first_rdd for run in self._runs.values()), default=None)
        cached = self._context._jsc.getPersistentRDDs()
        for rdd in [int(one) for one in cached]:
            if oldest is None or rdd < oldest:
                cached[rdd].unpersist()

    def probe(self) -> None:
        """Ask Spark for a sign of life. Raises when it was stopped; a JVM that hangs never answers."""
        self._running()

    # Its end ----------------------------------------------------------------------------------------------------------
    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def end(self, *, wait_seconds: float = 5.0) -> None:
        """End the JVM, also one that is still starting."""
        from opendataflow.spark.jvm import end_process

        if self.process is not None:
            end_process(self.process, wait_seconds=wait_seconds)
            return
        for pid in _children():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _children() -> list[int]:
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
            found += [int(pid) for pid in file.read().split()]
    return found


def _write_properties(path: str, conf: Mapping[str, str]) -> None:
    """In the format of java.util.Properties."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        for key, value in conf.items():
            if key.startswith("spark."):  # of others Spark would only say that it passes them over
                file.write(f"{_escaped(key)}={_escaped(value)}\n")


def _escaped(text: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    written = []
    for character in text:
        if character in named:
            written.append(named[character])
        elif character in "\\:=#! ":
            written.append(f"\\{character}")
        elif " " < character <= "~":
            written.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            written += [f"\\u{int.from_bytes(units[at : at + 2], 'big'):04x}" for at in range(0, len(units), 2)]
    return "".join(written)
