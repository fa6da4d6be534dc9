"""What is damaged, or from another version, is named; it is no internal error."""

import json
import os
import random
import sqlite3
from pathlib import Path

import pytest

from support.jobs import job_status, one_job
from support.projects import Project


def closed(project: Project) -> Path:
    """The store's file, with all of it in the one file."""
    path = Path(project.store.removeprefix("sqlite:///"))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path


@pytest.mark.parametrize("seed", range(6))
def test_junk_in_the_store_is_told_as_damage(sqlite_project: Project, seed: int) -> None:
    script = one_job(sqlite_project, "", partitions="{shards: 1..3}")
    assert sqlite_project.runjob(script).returncode == 0
    path = closed(sqlite_project)
    good = path.read_bytes()
    chance = random.Random(seed)
    bad = bytearray(good)
    for _ in range(20):  # the schema's own pages are the first
        at = chance.randrange(100, min(len(good), 200_000) - 300)
        bad[at : at + 300] = chance.randbytes(300)
    path.write_bytes(bad)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    for done in (sqlite_project.runjob(script), sqlite_project.run("dataflow", "status")):
        assert done.returncode == 75, done.stderr
        assert "is damaged" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "record",
    ["", "{", "[]", '{"store": 1}', '{"version": 99}', "other claim", "other result"],
)
def test_a_kept_end_of_another_version_is_put_aside(sqlite_project: Project, record: str) -> None:
    script = one_job(sqlite_project, "", partitions="{shards: 1..2}")
    store = sqlite_project.store
    if record == "other claim":
        record = json.dumps({"store": store, "claim": {"runid": 1, "colour": "red"}, "result": {}})
    elif record == "other result":
        record = json.dumps({"store": store, "claim": {"inputs": []}, "result": {"ending": "SPLENDID"}})
    kept = sqlite_project.write(".dataflow/unreported/7.json", record)
    for _ in range(2):
        done = sqlite_project.runjob(script)
        assert done.returncode == 0, done.stderr
    if record != '{"store": 1}':
        assert not kept.exists()
        assert kept.with_suffix(".unreadable").exists()
    assert set(job_status(sqlite_project).values()) == {"COMPLETE"}


def test_why_names_the_chunk_that_changed_and_no_other_that_begins_like_it(project: Project) -> None:
    project.apply(
        "name: Many\nenvironments: {dev: {root: data}}\n"
        "datasets:\n"
        '  src: {path: "src/{dataid}.csv", partitions: {shards: 1..12}}\n'
        '  out: {path: "out/{dataid}.txt", partitions: {shards: 1..12}}\n'
        "jobs: {add: {script: add.sh, inputs: [{src: {map: all}}], outputs: [out]}}\n"
    )
    project.script("add.sh", "touch $out_location")
    for shard in range(1, 13):
        project.write(f"data/src/{shard}.csv", "id\n1\n")
    assert project.dataflow("ready", "src", "1..12").returncode == 0
    file = project.write("data/src/10.csv", "id\n1\n2\n")
    os.utime(file, (1, 1))
    assert project.dataflow("run", "add").returncode == 11
    told = project.json("why", "add", "1")
    assert "`dataflow ready src 10`" in told["fix"]
