"""What the doctor sees of a machine that cannot be made here: other disks, other users, another Spark."""

import os
import socket
from pathlib import Path

import pytest

from opendataflow.extras import EXTRAS, find_missing
from opendataflow.operations import host_checks as machine
from opendataflow.operations.host_checks import OK, PROBLEM, WARNING


def test_a_folder_of_another_user_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    (found,) = machine.writable("root", str(tmp_path / "not/yet/made"))
    assert (found.state, found.fix) == (PROBLEM, f"chown or chmod {tmp_path}")


def test_a_full_disk_is_told_before_a_run_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "FREE_BYTES", 1 << 62)
    (found,) = machine.writable("root", str(tmp_path))
    assert (found.state, found.fix) == (WARNING, "make room before a run fails half-way")


def test_the_file_system_is_the_one_of_the_nearest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "overlay / overlay rw 0 0\nserver:/x /srv/shared nfs4 rw 0 0\n/dev/sdb /srv/shared\\040too ext4 rw 0 0\n"
    )
    asked = {"/srv/shared/state.db": "nfs4", "/srv/shared too/state.db": "ext4", "/srv/sharedx": "overlay"}
    assert {path: machine.file_system(path, str(mounts)) for path in asked} == asked
    assert machine.file_system("/", str(tmp_path / "none")) is None


def test_a_spark_home_of_another_spark_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    assert [one.state for one in machine.spark()] == [OK, OK]
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert next(machine.spark())[:2] == ("spark", PROBLEM)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/spark-submit").touch()
    told = next(machine.spark())
    assert (told.state, told.fix) == (WARNING, "unset SPARK_HOME, unless both are of the same version")


def test_a_machine_on_which_localhost_means_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    found = {one.check: one for one in machine.spark()}
    there, own = found["localhost"], found["host name"]
    assert (there.state, there.fix) == (PROBLEM, "add the line `127.0.0.1 localhost` to /etc/hosts")
    assert (own.state, own.fix) == (WARNING, f"add the line `127.0.1.1 {socket.gethostname()}` to /etc/hosts")


def test_packages_that_a_project_needs_are_told_with_their_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda _: None)
    found = machine.packages(["psycopg", "pyspark", "pandas"])
    assert (found.state, found.fix) == (PROBLEM, "pip install 'opendataflow[postgres,spark]'")
    assert machine.packages([]).state == OK


def test_every_module_of_an_extra_is_told_with_its_command_and_others_are_not() -> None:
    for module, (extra, why) in EXTRAS.items():
        told = find_missing(ModuleNotFoundError(name=module))
        assert told is not None
        assert str(told).endswith(f"{why}: pip install 'opendataflow[{extra}]'")
    assert find_missing(ModuleNotFoundError(name="mine")) is None
