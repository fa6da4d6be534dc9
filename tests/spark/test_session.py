"""Spark on machines that are not quite in order."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COUNTS = """
import sys
from opendataflow.spark.session import start_session
spark = start_session({"master": "local[1]"}, name="test", scratch=sys.argv[1])
print("sum", spark.range(4).agg({"id": "sum"}).first()[0])
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
