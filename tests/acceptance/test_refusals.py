"""Every refusal, provoked for real: its code, its exit, its evidence, and `why` with the blocker and the next step."""

import os
import time

import pytest

from support.processes import wait_for
from support.projects import RUNJOB, Project

TEXT = """\
name: Feed
environments:
  prod: {root: ./prod}
  dev: {root: ./dev}
datasets:
  flights:
    path: "flights/{dataid}.csv"
    format: csv
    partitions: {daily: 2025-11-10..2025-11-12}
    checks: [{rows: {min: 2}}, {not_null: [carrier]}]
  totals: {path: "totals/{dataid}.txt"}
jobs:
  load: {script: jobs/load.sh, inputs: [flights], outputs: [totals]}
"""
DAY = "2025-11-12"
GOOD = "carrier,flight\nAA,1\nUA,2\n"


def feed(project: Project) -> None:
    project.apply(TEXT)
    project.script("jobs/load.sh", 'cp "$flights_location" "$totals_location"')


def refused(project: Project, code: str, exit_code: int) -> str:
    """Run the day: refused with this code and exit; what `why` says is returned."""
    done = project.runjob("--dataid", DAY, "jobs/load.sh")
    assert done.returncode == exit_code, done.stderr
    assert code in done.stderr
    told = project.json("why", "load", DAY)
    first = next(answer for answer in told["answers"] if not answer["yes"])
    assert first["code"] == code
    assert told["last_refusal"] is not None, "kept for the forensics"
    shown = project.dataflow("why", "load", DAY).stdout
    assert "Next step:" in shown
    return f"{first['evidence']} | {told['fix']}"


def test_data_that_is_not_there_is_not_ready(project: Project) -> None:
    feed(project)
    told = refused(project, "DATA_NOT_READY", 10)
    assert f"flights/{DAY} is not there yet" in told
    assert "dataflow" in told.split("|")[1]


def test_yesterdays_file_under_todays_name_is_wrong_data(project: Project) -> None:
    feed(project)
    file = project.write(f"prod/flights/{DAY}.csv", GOOD)
    yesterday = time.mktime((2025, 11, 11, 12, 0, 0, 0, 0, 0))
    os.utime(file, (yesterday, yesterday))
    scanned = project.dataflow("scan", "flights")
    assert scanned.returncode == 11, scanned.stderr
    assert "WRONG_DATA" in scanned.stdout + scanned.stderr
    assert "WRONG_DATA" in refused(project, "DATA_NOT_READY", 10), "it was never taken, and the consumer is told why"
    # A person who declares it READY by hand does not make it today's.
    project.sql("UPDATE datastatus SET status = 'READY' WHERE datasetid = 'flights'")
    told = refused(project, "WRONG_DATA", 11)
    assert f"before {DAY} began" in told


def test_a_path_of_another_environment_is_an_invalid_path(project: Project) -> None:
    feed(project)
    stray = project.write(f"dev/flights/{DAY}.csv", GOOD)
    done = project.dataflow("ready", "flights", DAY, "--location", str(stray))
    assert done.returncode == 2
    assert "not below" in done.stderr
    project.sql(
        "INSERT INTO datastatus (datasetid, dataid, status, location, validated_at) "
        f"VALUES ('flights', '{DAY}', 'READY', '{stray}', '2025-11-13T00:00:00Z')"
    )
    told = refused(project, "INVALID_PATH", 12)
    assert "the root of this environment" in told


def test_a_truncated_file_is_not_validated(project: Project) -> None:
    feed(project)
    project.write(f"prod/flights/{DAY}.csv", "carrier,flight\nAA,1\n")
    scanned = project.dataflow("scan", "flights")
    if scanned.returncode == 0:  # too young to be taken for stable: wait as it says
        os.utime(project.folder / f"prod/flights/{DAY}.csv", (time.time() - 60, time.time() - 60))
        scanned = project.dataflow("scan", "flights")
    assert scanned.returncode == 13, scanned.stdout + scanned.stderr
    assert "NOT_VALIDATED" in refused(project, "DATA_NOT_READY", 10)
    project.sql("UPDATE datastatus SET status = 'READY' WHERE datasetid = 'flights'")
    told = refused(project, "NOT_VALIDATED", 13)
    assert "checks" in told


def test_a_file_that_changed_after_it_was_validated_is_wrong_data(project: Project) -> None:
    feed(project)
    file = project.write(f"prod/flights/{DAY}.csv", GOOD)
    assert project.dataflow("ready", "flights", DAY).returncode == 0
    file.write_text(GOOD + "B6,3\n")
    told = refused(project, "WRONG_DATA", 11)
    assert "changed after it was published" in told
    assert f"dataflow ready flights {DAY}" in told
    assert project.dataflow("ready", "flights", DAY).returncode == 0
    assert project.runjob("--dataid", DAY, "jobs/load.sh").returncode == 0


@pytest.mark.both_stores
def test_a_running_producer_is_waited_for_and_locks_its_dataid(project: Project) -> None:
    project.apply(TEXT.replace("jobs:\n", "jobs:\n  feed: {script: jobs/feed.sh, outputs: [flights]}\n").replace(
        "    checks: [{rows: {min: 2}}, {not_null: [carrier]}]\n", ""
    ))  # fmt: skip
    project.script("jobs/load.sh", "true")
    project.script("jobs/feed.sh", 'touch started; while [ ! -e go ]; do sleep 0.1; done; echo x > "$flights_location"')
    runner = project.start(RUNJOB, "--dataid", DAY, "jobs/feed.sh")
    try:
        wait_for((project.folder / "started").exists, "the producer runs")
        told = refused(project, "DATA_NOT_READY", 10)
        assert f"flights/{DAY} is RUNNING by feed" in told
        assert f"dataflow why feed {DAY}" in told
        second = project.runjob("--dataid", DAY, "jobs/feed.sh")
        assert (second.returncode, "LOCKED" in second.stderr) == (14, True), second.stderr
        [blocker] = [one for one in project.json("why") if one["cause"] == "RUNNING"]
        assert (blocker["name"], blocker["dataids"], blocker["jobs"]) == ("feed", [DAY], ["load"])
    finally:
        (project.folder / "go").touch()
        runner.communicate(timeout=30)


def test_why_alone_groups_everything_by_its_root(project: Project) -> None:
    """Three days: one missing, one whose producer failed, one held; two layers below each."""
    project.apply("""\
name: Roots
datasets:
  raw: {partitions: {daily: 2025-11-10..2025-11-12}}
  a: {}
  b: {}
  c: {}
jobs:
  one: {script: jobs/one.sh, inputs: [raw], outputs: [a]}
  two: {script: jobs/two.sh, inputs: [a], outputs: [b]}
  three: {script: jobs/three.sh, inputs: [b], outputs: [c]}
""")
    for name in ("one", "two", "three"):
        project.script(f"jobs/{name}.sh", '[ "$dataid" != 2025-11-11 ]')
    for day in ("2025-11-11", "2025-11-12"):
        project.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('raw', '{day}', 'READY')")
    project.sql("UPDATE job_status SET status = 'HOLD' WHERE jobid = 'one' AND dataid = '2025-11-12'")
    assert project.dataflow("tick").returncode == 1
    told = {one["cause"]: one for one in project.json("why")}
    assert set(told) == {"MISSING", "FAILED", "HOLD"}
    assert [(told[cause]["name"], told[cause]["dataids"]) for cause in ("MISSING", "FAILED", "HOLD")] == [
        ("raw", ["2025-11-10"]), ("one", ["2025-11-11"]), ("one", ["2025-11-12"]),
    ]  # fmt: skip
    assert [told[cause]["blocks"] for cause in ("MISSING", "FAILED", "HOLD")] == [3, 2, 2]
    assert "dataflow resubmit one 2025-11-11" in told["FAILED"]["fix"]
    assert "dataflow release one 2025-11-12" in told["HOLD"]["fix"]
    shown = project.dataflow("why").stdout
    assert "blocks 3 dataids of one, three, two" in shown
