"""Real Spark clusters of our own, on loopback and free ports, from the installed PySpark; stopped by their process ids.

A standalone master with two workers of one core each, and a Spark Connect server.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark

from opendataflow.spark.archive import java_options
from support.pipelines import descendants
from support.processes import is_alive, wait_for

SPARK_HOME = Path(pyspark.__file__).parent
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
# For drivers of tests: on loopback, and with executors as small as Spark lets them be.
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.worker.faulthandler.enabled": "false",
}


class Cluster:
    """Processes that belong together, and the address at which a project finds them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.master = ""
        self.start_again: Callable[[], None] = lambda: None  # at the same address, after `kill`

    def start(self, name: str, *argv: str, memory: str = "256m") -> None:
        """A process of the cluster; what it prints is in `<name>.log`."""
        env = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": memory,
            "SPARK_LOCAL_DIRS": str(self.folder / "scratch"), "PYSPARK_PYTHON": sys.executable,
            "JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {java_options()}",
        }  # fmt: skip
        with open(self.folder / f"{name}.log", "wb") as log:
            started = subprocess.Popen(
                argv, env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.processes.append(started)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_for_port(self, name: str, port: int) -> None:
        def is_open() -> bool:
            assert self.processes[-1].poll() is None, self.log(name)
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
            return False

        wait_for(is_open, f"{name} listens on {port}", seconds=60)

    def executors(self) -> list[int]:
        """Living executors of this cluster."""
        below = [item for process in self.processes for item in descendants(process.pid).items()]
        return [pid for pid, command in below if EXECUTOR in command and is_alive(pid)]

    def kill(self) -> None:
        """As a power cut would."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.processes.clear()

    def stop(self) -> None:
        left = [pid for process in self.processes for pid in descendants(process.pid)]
        self.kill()
        for pid in left:  # executors and their Python workers have sessions of their own
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[Cluster]:
    """A standalone master with two workers of one core each."""
    cluster, port = Cluster(folder), free_port()
    spark_class = str(SPARK_HOME / "bin" / "spark-class")
    cluster.master = f"spark://127.0.0.1:{port}"
    try:
        cluster.start(
            "master", spark_class, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port),
            "--webui-port", "0",
        )  # fmt: skip
        for number in (1, 2):  # they wait for the master by themselves
            cluster.start(
                f"worker-{number}", spark_class, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1",
                "--cores", "1", "--memory", "600m", "--webui-port", "0", "--work-dir", str(folder / f"work-{number}"),
                cluster.master,
            )  # fmt: skip
        wait_for(lambda: cluster.log("master").count("Registering worker") == 2, "two workers register", seconds=60)
        yield cluster
    finally:
        cluster.stop()


@contextlib.contextmanager
def connect(folder: Path) -> Iterator[Cluster]:
    """A Spark Connect server with two cores."""
    cluster, port = Cluster(folder), free_port()
    cluster.master = f"sc://127.0.0.1:{port}"
    conf = {
        **CONF,
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false", "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # Not what a session of ours must have: it says so itself.
        "spark.sql.session.timeZone": "America/New_York",
    }  # fmt: skip
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]

    def start() -> None:
        cluster.start(
            "server", str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]", *settings,
            "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", memory="700m",
        )  # fmt: skip
        cluster.wait_for_port("server", port)

    cluster.start_again = start
    try:
        start()
        yield cluster
    finally:
        cluster.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
