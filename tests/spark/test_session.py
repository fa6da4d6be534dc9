"""Spark on machines that are not quite in order."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opendataflow.spark.session import driver_conf

COUNTS = """
import os, sys
from opendataflow.spark.session import start_session
before = dict(os.environ)
spark = start_session({"master": "local[1]"}, name="test", scratch=sys.argv[1])
print("sum", spark.range(4).agg({"id": "sum"}).first()[0])
print("left behind", sorted(set(os.environ) - set(before) - {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}))
"""


def test_spark_starts_on_a_machine_whose_own_name_means_nothing_to_it(tmp_path: Path) -> None:
    """In a namespace of its own, whose name no file and no server knows."""
    ways = (["unshare", "--uts"], ["unshare", "--user", "--map-root-user", "--uts"])  # as root, or as anybody
    apart = next((way for way in ways if subprocess.run([*way, "true"], capture_output=True).returncode == 0), None)
    if apart is None:
        pytest.skip("this machine gives nobody a name of their own: unshare --uts is forbidden")
    named = 'hostname no-such-machine.invalid && exec "$@"'
    argv = [*apart, "sh", "-c", named, "sh", sys.executable]
    done = subprocess.run([*argv, "-c", COUNTS, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert "sum 6" in done.stdout, done.stderr
    # A test or a program that starts Spark starts other programs too: PYTHONSAFEPATH would break their imports.
    assert "left behind []" in done.stdout  # but for PySpark's own


def test_a_java_that_does_not_start_is_told_so(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho no java here >&2\nexit 3\n")
    java.chmod(0o755)
    env = {**os.environ, "JAVA_HOME": str(tmp_path)}
    argv = [sys.executable, "-c", COUNTS, str(tmp_path)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "no java here" in done.stderr
    assert "JobFailed: Java ended before Spark had started; what it said is in the output" in done.stderr


DAEMONS = """
import os, sys
from opendataflow.spark.session import start_session
conf = dict(one.split("=") for one in sys.argv[2:])
spark = start_session({"master": "local[1]", "conf": conf}, name="test", scratch=sys.argv[1])

def parent(batches):
    import pyarrow
    list(batches)
    with open(f"/proc/{os.getppid()}/cmdline") as file:
        yield pyarrow.RecordBatch.from_pydict({"parent": [file.read().split("\\0")[2]], "pid": [os.getpid()]})

two = [spark.range(1).mapInArrow(parent, "parent string, pid bigint").collect()[0] for _ in range(2)]
print(*{row["parent"] for row in two}, "reused" if two[0]["pid"] == two[1]["pid"] else "new")
"""


@pytest.mark.parametrize(
    ("conf", "interpreter", "found"),
    [
        ([], sys.executable, "opendataflow.spark.worker_daemon new"),
        (["spark.executor.pyspark.memory=1g"], sys.executable, "pyspark.daemon new"),
        (["spark.python.worker.reuse=true"], sys.executable, "opendataflow.spark.worker_daemon reused"),
        ([], f"{os.path.dirname(sys.executable)}/python3", "pyspark.daemon new"),
    ][: None if "DATAFLOW_EVERY_FAULT" in os.environ else 2],  # each starts a Spark
)
def test_workers_are_new_and_come_from_the_daemon_that_has_the_libraries(
    tmp_path: Path, conf: list[str], interpreter: str, found: str
) -> None:
    env = {**os.environ, "PYSPARK_PYTHON": interpreter}
    argv = [sys.executable, "-c", DAEMONS, str(tmp_path), *conf]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=180)
    assert done.stdout.splitlines() == [found], done.stderr


def test_the_owner_of_a_cluster_decides_on_its_ui_and_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    def settings(master: str) -> tuple[str | None, bool]:
        conf = driver_conf(master, {}, scratch=str(tmp_path), prepared=False)
        return conf.get("spark.ui.enabled"), "log4j2.configurationFile" in conf["spark.driver.extraJavaOptions"]

    assert settings("spark://elsewhere:7077") == (None, True)
    (tmp_path / "log4j2.properties").write_text("rootLogger.level = info\n")
    assert settings("spark://elsewhere:7077") == (None, False)
    assert settings("local[2]") == ("false", True)
