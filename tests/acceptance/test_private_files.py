"""State, logs, intake and clones are for their owner alone, whatever the umask; data keeps the umask's mode."""

import contextlib
import json
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from opendataflow.operations.close_files import close_files
from opendataflow.project.address import get_address
from support.gits import Origin
from support.jobs import ONE_JOB, end_of
from support.processes import wait_for
from support.projects import DATAFLOW, RUNJOB, Project
from support.web import Site

STREAM = """\
name: shop
pipelines:
  - {slug: leads, mode: stream, destination: leads, stream: {schema: {email: string}}}
"""


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def inside(tmp_path: Path) -> Project:
    """A project whose store is where it is by default."""
    return Project(tmp_path / "project", f"sqlite:///{tmp_path / 'project/.dataflow/state.db'}")


def call(project: Project, *argv: str | Path, code: int = 0, **env: str) -> str:
    done = project.run(*argv, env=env)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def open_to_others(folder: Path) -> list[str]:
    """What group or others may do anything with, the folder itself included."""
    found = [one for one in (folder, *folder.rglob("*")) if not one.is_symlink() and mode(one) & 0o077]
    return [f"{one} {mode(one):04o}" for one in found]


def work(project: Project, body: str = "") -> Path:
    project.write("project.yml", ONE_JOB.format(partitions="{shards: 1..1}", settings=""))
    call(project, DATAFLOW, "apply")
    return project.script("jobs/work.sh", f'{body}\necho "some output"; echo made > "$out_location"')


def test_state_and_logs_are_private_and_data_is_not(inside: Project) -> None:
    script = work(inside, "touch started; while [ ! -e go ]; do sleep 0.02; done")
    runner = inside.start(RUNJOB, script)
    wait_for((inside.folder / "started").exists, "the script has started")
    ours = inside.folder / ".dataflow"
    try:
        assert {"state.db", "state.db-wal", "state.db-shm"} <= {one.name for one in ours.iterdir()}
        assert open_to_others(ours) == []
    finally:
        (inside.folder / "go").touch()
        code, _, err = end_of(runner)
    assert code == 0, err
    assert list(ours.glob("logs/work/*.log"))
    assert open_to_others(ours) == []
    assert (mode(ours), mode(ours / "state.db")) == (0o700, 0o600)
    out = inside.folder / "data/out/1.txt"
    assert (mode(out), mode(out.parent)) == (0o644, 0o755)


PIPELINE = """\
name: shop
environments: {dev: {root: ./data}}
datasets:
  orders: {path: "orders/{dataid}.csv", format: csv, partitions: {shards: 1..1}}
  totals: {path: "totals/{dataid}.csv", format: csv}
pipelines:
  - {slug: sum, sources: [orders], destination: totals, transformations: [step]}
"""
STEP = """\
import os
import time

from pyspark.sql import functions as F


def run(df):
    open("started", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.02)
    return df.withColumn("twice", F.col("a") * 2)
"""


def test_what_a_pipeline_is_told_and_says_is_private(inside: Project) -> None:
    inside.write("project.yml", PIPELINE)
    inside.write("pipelines/sum/step.py", STEP)
    inside.write("data/orders/1.csv", "a\n1\n")
    call(inside, DATAFLOW, "apply")
    call(inside, DATAFLOW, "ready", "orders", "1")
    runner, is_over, seen = inside.start(DATAFLOW, "run", "sum"), threading.Event(), set()

    def look() -> None:
        """A task and a result are there for a moment only."""
        while not is_over.is_set():
            for one in (inside.folder / ".dataflow/runs").glob("*"):
                with contextlib.suppress(FileNotFoundError):
                    seen.add((one.suffix, mode(one)))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        wait_for((inside.folder / "started").exists, "the transformation has started", seconds=60)
        assert open_to_others(inside.folder / ".dataflow") == []
    finally:
        (inside.folder / "go").touch()
        code, _, err = end_of(runner)
        is_over.set()
        looking.join()
    assert code == 0, err
    assert {kept for _, kept in seen} == {0o600}
    assert mode(inside.folder / ".dataflow/runs") == 0o700


def test_a_store_elsewhere_is_private_and_a_folder_that_was_there_is_left_alone(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    for store in (shared / "state.db", tmp_path / "new/state/state.db"):
        project = Project(tmp_path / store.parent.name / "project", f"sqlite:///{store}")
        call(project, RUNJOB, work(project))
        assert mode(store) == 0o600
        assert open_to_others(project.folder / ".dataflow") == []
    assert mode(shared) == 0o755
    assert (mode(tmp_path / "new/state"), mode(shared / "project")) == (0o700, 0o755)


def test_events_that_wait_for_a_lineage_backend_are_private(inside: Project) -> None:
    script = work(inside)
    with open(inside.folder / "project.yml", "a") as file:
        file.write('openlineage: {url: "http://127.0.0.1:9/away"}\n')
    call(inside, DATAFLOW, "apply")
    call(inside, RUNJOB, script)
    assert (inside.folder / ".dataflow/openlineage/sender.lock").exists()
    assert open_to_others(inside.folder / ".dataflow") == []


def test_items_of_streams_are_private(inside: Project) -> None:
    inside.write("project.yml", STREAM)
    inside.write("leads.csv", "email\na@x\n")
    call(inside, DATAFLOW, "apply")
    call(inside, DATAFLOW, "stream", "send", "leads", "leads.csv")
    with Site(inside) as site:
        assert site.visitor(None).get("/health").status == 200
        assert open_to_others(inside.folder / ".dataflow") == []
    assert list((inside.folder / ".dataflow/streams/shop/leads/log").iterdir())
    elsewhere = inside.folder / "elsewhere"
    elsewhere.mkdir()
    call(inside, DATAFLOW, "stream", "send", "leads", "leads.csv", DATAFLOW_STREAMS=str(elsewhere))
    assert open_to_others(elsewhere / "shop") == []
    assert mode(elsewhere) == 0o755


def test_clones_and_versions_of_git_projects_are_private(inside: Project, tmp_path: Path) -> None:
    origin = Origin(tmp_path / "origin")
    origin.shop()
    home = tmp_path / "work"
    home.mkdir()
    call(inside, DATAFLOW, "project", "add", origin.url, DATAFLOW_HOME=str(home))
    assert mode(home) == 0o755, "it was there before"
    shared = home / "projects/shop/shared"
    assert shared.is_dir()
    found = [one for one in open_to_others(home / "projects") if not one.startswith(str(shared))]
    assert found == []
    assert mode(next(home.glob("projects/shop/*/jobs/sum_up.sh"))) == 0o700
    assert mode(next(shared.glob("data/orders/1.csv"))) == 0o644


def opened_up(project: Project) -> Path:
    """An installation of before: all of it can be read by others."""
    call(project, RUNJOB, work(project))
    ours = project.folder / ".dataflow"
    for one in (ours, *ours.rglob("*")):
        one.chmod(0o755 if one.is_dir() else 0o644)
    return ours


def test_the_next_command_closes_the_store_and_its_folder(inside: Project) -> None:
    ours = opened_up(inside)
    reader = sqlite3.connect(ours / "state.db")
    try:
        reader.execute("SELECT count(*) FROM store").fetchall()
        for name in ("state.db-wal", "state.db-shm"):
            (ours / name).chmod(0o644)
        call(inside, DATAFLOW, "status")
        assert {mode(ours / name) for name in ("state.db", "state.db-wal", "state.db-shm")} == {0o600}
        assert mode(ours) == 0o700
    finally:
        reader.close()


def test_the_doctor_closes_everything_and_says_so_once(inside: Project) -> None:
    ours = opened_up(inside)
    told = call(inside, DATAFLOW, "doctor", "--json")
    found = [one for one in json.loads(told) if one["check"] == "private files"]
    assert {one["state"] for one in found} == {"warning"}
    lines = [one["told"] for one in found]
    assert ".dataflow/state.db was readable by others (0644): now 0600" in lines
    assert ".dataflow was readable by others (0755): now 0700" in lines
    assert open_to_others(ours) == []
    again = json.loads(call(inside, DATAFLOW, "doctor", "--json"))
    assert [one["state"] for one in again if one["check"] == "private files"] == ["ok"]


def test_the_doctor_closes_a_work_folder_of_another_name_and_streams_elsewhere(inside: Project, tmp_path: Path) -> None:
    """There, only what is known to be ours: the folder may hold other things."""
    home, streams = tmp_path / "work", tmp_path / "streams"
    inside.write("project.yml", STREAM)
    inside.write("leads.csv", "email\na@x\n")
    call(inside, DATAFLOW, "apply")
    call(inside, DATAFLOW, "stream", "send", "leads", "leads.csv", DATAFLOW_STREAMS=str(streams))
    assert list((streams / "shop/leads/log").iterdir())
    theirs = home / "theirs.txt", streams / "theirs/file.txt"
    for path in (home / "logs/x/1.log", home / "runs/1.json", *theirs):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for top in (home, streams):
        for path in (top, *top.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    for project, more in (
        (inside, {"DATAFLOW_STREAMS": str(streams)}),
        (Project(tmp_path / "no project.yml", inside.store), {"DATAFLOW_HOME": str(home)}),
    ):
        told = json.loads(call(project, DATAFLOW, "doctor", "--json", **more))
        assert {one["state"] for one in told if one["check"] == "private files"} == {"warning"}
    assert [*open_to_others(home / "logs"), *open_to_others(home / "runs"), *open_to_others(streams / "shop")] == []
    assert [mode(path) for path in theirs] == [0o644, 0o644]
    assert (mode(home), mode(streams)) == (0o755, 0o755)


def test_the_doctor_leaves_links_and_what_is_not_ours_alone(inside: Project, tmp_path: Path) -> None:
    ours = opened_up(inside)
    theirs = tmp_path / "theirs/file.txt"
    theirs.parent.mkdir()
    theirs.touch(0o644)
    (ours / "logs/link").symlink_to(theirs)
    (ours / "logs/folder").symlink_to(theirs.parent)
    mine = inside.write("data/out/mine.txt", "")
    call(inside, DATAFLOW, "doctor")
    assert (mode(theirs), mode(theirs.parent), mode(mine)) == (0o644, 0o755, 0o644)


def test_what_another_user_owns_is_reported_and_nothing_fails(inside: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = opened_up(inside)

    def refuse(path: str, _mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(os, "chmod", refuse)
    for name in ("DATAFLOW_STORE", "DATAFLOW_ENV", "DATAFLOW_HOME", "DATAFLOW_STREAMS"):
        monkeypatch.delenv(name, raising=False)
    address = get_address(str(inside.folder))
    (found,) = close_files(address)
    assert found.state == "warning"
    assert f"{ours}/state.db" in found.told
    assert found.fix.startswith(f"as their owner: chmod go-rwx {ours}/state.db")
