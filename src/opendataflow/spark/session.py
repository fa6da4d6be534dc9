"""The one place that builds a Spark session."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from opendataflow.errors import JobFailed
from opendataflow.spark import connect
from opendataflow.spark.archive import java_options
from opendataflow.spark.cluster import is_cluster, require_answer

DEFAULT_MASTER = "local[*]"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Python loggers of the bridge to the JVM: they print stack traces of what is raised to us anyway.
_NOISY_LOGGERS = ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger")


def start_session(settings: Mapping[str, Any], *, name: str, scratch: str, prepared: bool = True) -> SparkSession:
    """A session on the master that the project names, or on this machine; the project's `conf` wins over ours.

    It starts from `prepared` classes when this machine has them. Raises JobFailed when a cluster does not answer.
    """
    master = str(settings.get("master") or DEFAULT_MASTER)
    conf = {key: _text(value) for key, value in (settings.get("conf") or {}).items()}
    os.environ.setdefault("PYSPARK_PYTHON", conf.get("spark.pyspark.python", sys.executable))
    # A worker is started by `python -m`: a `random.py` in somebody's current folder must not replace the real one.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    for logger in _NOISY_LOGGERS:
        logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
    require_answer(master)
    if connect.is_address(master):
        return connect.start(master, settings=_everywhere() | _server() | conf)
    defaults = _everywhere() | _own_jvm(scratch, java_options() if prepared else "")
    defaults |= _executors() if is_cluster(master) else _this_machine(scratch)
    if _JAVA_OPTIONS in conf:
        conf[_JAVA_OPTIONS] = f"{defaults[_JAVA_OPTIONS]} {conf[_JAVA_OPTIONS]}"  # of two, Java takes the last
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in (defaults | conf).items():
        builder = builder.config(key, value)
    with contextlib.nullcontext() if is_cluster(master) else _local_name():
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            if "JAVA_GATEWAY_EXITED" not in str(error):
                raise
            raise JobFailed(
                "Java ended before Spark had started; what it said is in the output of what started it (a worker, or "
                "this command), and `dataflow doctor` looks at Java and at the machine"
            ) from error


@contextlib.contextmanager
def _local_name() -> Iterator[None]:
    """A machine's own name may mean nothing to it (a container, a network that is away), and Spark asks for it."""
    ours = {"SPARK_LOCAL_HOSTNAME": "127.0.0.1", "SPARK_LOCAL_IP": "127.0.0.1"}
    set_here = [name for name in ours if name not in os.environ]
    os.environ.update({name: ours[name] for name in set_here})
    try:
        yield
    finally:
        for name in set_here:  # the JVM has them; one for a cluster must not
            os.environ.pop(name, None)


def _everywhere() -> dict[str, str]:
    return {
        "spark.sql.session.timeZone": "UTC",
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
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": os.path.join(scratch, "warehouse"),
        _JAVA_OPTIONS: f'-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()} "-Djava.io.tmpdir={scratch}" {java}',
    }


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
