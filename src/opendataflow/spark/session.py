"""The one place that builds a Spark session."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from opendataflow.errors import JobFailed
from opendataflow.spark import connect
from opendataflow.spark.archive import java_options
from opendataflow.spark.cluster import is_cluster, require_answer

DEFAULT_MASTER = "local[*]"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_WORKER_MEMORY = "spark.executor.pyspark.memory"
# Python loggers of the bridge to the JVM: they print stack traces of what is raised to us anyway.
_NOISY_LOGGERS = ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger")


def start_session(settings: Mapping[str, Any], *, name: str, scratch: str, prepared: bool = True) -> SparkSession:
    """A session on the master that the project names, or on this machine; the project's `conf` wins over ours.

    It starts from `prepared` classes when this machine has them. Raises JobFailed when a cluster does not answer.
    """
    master = str(settings.get("master") or DEFAULT_MASTER)
    conf = {key: _text(value) for key, value in (settings.get("conf") or {}).items()}
    quiet_bridge()
    require_answer(master)
    if connect.is_address(master):
        return start_connected(master, conf)
    with _environment_of_driver(master, conf):
        builder = SparkSession.builder.master(master).appName(name)
        for key, value in driver_conf(master, conf, scratch=scratch, prepared=prepared).items():
            builder = builder.config(key, value)
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            raise JobFailed(
                "Java ended before Spark had started; what it said is in the output of what started it (a worker, or "
                "this command), and `dataflow doctor` looks at Java and at the machine"
            ) from error


def quiet_bridge() -> None:
    for logger in _NOISY_LOGGERS:
        logging.getLogger(logger).setLevel(logging.CRITICAL + 1)


def start_connected(master: str, conf: Mapping[str, str]) -> SparkSession:
    """A session of a Spark Connect server with the project's `conf`."""
    return connect.start(master, settings=_everywhere() | _server() | dict(conf))


def driver_conf(master: str, conf: Mapping[str, str], *, scratch: str, prepared: bool = True) -> dict[str, str]:
    """All settings of a driver that runs here: ours, and the project's `conf`, which wins."""
    defaults = _everywhere() | _own_jvm(scratch, java_options() if prepared else "")
    if not is_cluster(master):
        defaults["spark.ui.enabled"] = "false"  # on a cluster, its owner's spark-defaults.conf decides
    if not is_cluster(master) or not _has_log_settings():
        defaults[_JAVA_OPTIONS] += f" -Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    defaults |= _executors() if is_cluster(master) else _this_machine(scratch)
    # Another interpreter may not have OpenDataFlow, and a limit of workers' memory counts what the daemon imports.
    if not is_cluster(master) and os.environ["PYSPARK_PYTHON"] == sys.executable and _WORKER_MEMORY not in conf:
        defaults["spark.python.daemon.module"] = "opendataflow.spark.worker_daemon"
    own = dict(conf)
    if _JAVA_OPTIONS in own:
        own[_JAVA_OPTIONS] = f"{defaults[_JAVA_OPTIONS]} {own[_JAVA_OPTIONS]}"  # of two, Java takes the last
    return defaults | own


@contextlib.contextmanager
def _environment_of_driver(master: str, conf: Mapping[str, str]) -> Iterator[None]:
    """What the JVM inherits while it starts, where nobody has set it. Other children of this process never see it."""
    # A worker is started by `python -m`: a `random.py` in somebody's current folder must not replace the real one.
    ours = {"PYSPARK_PYTHON": conf.get("spark.pyspark.python", sys.executable), "PYTHONSAFEPATH": "1"}
    if not is_cluster(master):
        # A machine's own name may mean nothing to it (a container, a network that is away), and Spark asks for it.
        ours |= {"SPARK_LOCAL_HOSTNAME": "127.0.0.1", "SPARK_LOCAL_IP": "127.0.0.1"}
    set_here = [name for name in ours if name not in os.environ]
    os.environ.update({name: ours[name] for name in set_here})
    try:
        yield
    finally:
        for name in set_here:
            os.environ.pop(name, None)


def _everywhere() -> dict[str, str]:
    return {
        "spark.sql.session.timeZone": "UTC",
        # A filter that Spark evaluates while it parses hides what is malformed in the rows that it leaves out.
        "spark.sql.csv.filterPushdown.enabled": "false",
        "spark.sql.json.filterPushdown.enabled": "false",
        # Not INT96, which other readers take for a timestamp without zone, and which has no statistics.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }


def _server() -> dict[str, str]:
    """For a session of Spark Connect."""
    return {"spark.sql.connect.serverStacktrace.enabled": "false"}  # of Java's own code; nobody asked


def _executors() -> dict[str, str]:
    """For executors on other machines, which have an environment of their own."""
    return {"spark.executorEnv.PYTHONSAFEPATH": "1"}


def _own_jvm(scratch: str, java: str) -> dict[str, str]:
    """For a driver that runs here, whatever its executors are."""
    return {
        # A Python worker keeps what a function leaves in it: the state of modules that it imports, variables, settings
        # of libraries. A worker that is used again shows that to the next chunk.
        "spark.python.worker.reuse": "false",
        "spark.files.overwrite": "true",  # a file that a chunk adds replaces that of an earlier chunk on executors
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": os.path.join(scratch, "warehouse"),
        # A driver that went on after an OutOfMemoryError would fail whichever run meets it first, and then others.
        _JAVA_OPTIONS: f'"-Djava.io.tmpdir={scratch}" -XX:+ExitOnOutOfMemoryError {java}',
    }


def _has_log_settings() -> bool:
    """Whether this machine's configuration of Spark says what is logged."""
    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    folder = Path(os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf"))
    return any(folder.glob("log4j2.*"))


def _this_machine(scratch: str) -> dict[str, str]:
    cores = len(os.sched_getaffinity(0))
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": scratch,
        # Two hundred are for clusters; AQE joins what is too small.
        "spark.sql.shuffle.partitions": str(4 * cores),
    }


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
