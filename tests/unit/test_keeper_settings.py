"""Who shares a driver: those who agree on what a running one cannot change."""

import os
import sys
from pathlib import Path

import pytest

from opendataflow.spark.keeper_settings import KeeperSettings, own_umask


def key(settings: dict[str, object] | None = None, **environ: str) -> str:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return KeeperSettings.from_project(settings or {}, kept | environ).key


def test_a_shell_and_cron_of_one_user_share_a_driver() -> None:
    assert key(SHELL="/bin/bash", LANG="de_DE.UTF-8", XDG_SESSION_ID="3") == key(SHELL="/bin/sh")
    assert key(PATH=f"{os.environ['PATH']}:/opt/more/bin") == key()


def test_settings_of_a_session_do_not_part_them_and_static_ones_do() -> None:
    assert key({"conf": {"spark.sql.shuffle.partitions": 8}}) == key()
    assert key({"conf": {"spark.driver.memory": "3g"}}) != key()
    assert key({"master": "local[1]"}) != key({"master": "local[2]"})


@pytest.mark.parametrize("name", ["AWS_PROFILE", "JAVA_HOME", "SPARK_CONF_DIR", "TZ", "PYTHONPATH", "https_proxy"])
def test_what_java_and_its_workers_go_by_parts_them(name: str) -> None:
    assert key(**{name: "/of/another"}) != key()


def test_another_java_on_the_path_parts_them(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    assert key(PATH=f"{tmp_path}:{os.environ['PATH']}") != key()


def test_secrets_and_variables_of_runs_are_not_passed_on() -> None:
    passed = KeeperSettings.from_project(
        {}, {"DATAFLOW_PASSKEY": "x", "DATAFLOW_STORE": "x", "dataid": "1", "crm_password": "x", "HOME": "/home/x"}
    ).environment
    assert {name for name, value in passed.items() if value in ("x", "1") and name != "PYTHONSAFEPATH"} == set()
    assert (passed["HOME"], passed["PYSPARK_PYTHON"]) == ("/home/x", sys.executable)


def test_the_umask_is_read_without_being_changed() -> None:
    before = os.umask(0o027)
    try:
        assert own_umask() == 0o027
        other = key()
    finally:
        os.umask(before)
    assert (other == key()) == (before == 0o027)
