"""`dataflow checks`: what the checks of a chunk found is kept, whoever did them, and can be asked for."""

import os
import time

from support.projects import Project

FEED = """\
name: Feed
environments: {dev: {root: data}}
datasets:
  flights:
    path: flights/{dataid}.csv
    schema: {carrier: string, flight: int}
    partitions: {shards: 1..9}
    arrival: {stable: 1s}
    checks:
      - rows: {min: 1}
      - not_null: [carrier]
      - pattern: {carrier: "[A-Z0-9]{2}", on_fail: warn}
      - expression: {sql: "flight > 0"}
  out:
    path: out/{dataid}.csv
    schema: {carrier: string}
    checks: [{values: {carrier: [AA], on_fail: quarantine}}]
  bare: {path: "bare/{dataid}.csv", partitions: {shards: 1..9}}
jobs:
  work: {script: jobs/work.sh, inputs: [flights], outputs: [out]}
"""


def arrive(project: Project, dataid: str, *carriers: str) -> None:
    lines = [f"{carrier},{number}\n" for number, carrier in enumerate(carriers, start=1)]
    file = project.write(f"data/flights/{dataid}.csv", "carrier,flight\n" + "".join(lines))
    os.utime(file, (time.time() - 60, time.time() - 60))


def test_what_a_scan_found_is_kept_for_good_and_for_rejected_chunks(project: Project) -> None:
    project.apply(FEED)
    arrive(project, "1", "AA", "UA")
    arrive(project, "2", "", "weird")
    assert project.dataflow("scan", "--dry-run").returncode == 13
    assert project.sql("SELECT count(*) FROM data_check") == [(0,)]
    assert project.dataflow("scan").returncode == 13
    names = ("rows min 1", "not_null carrier", "pattern carrier", "expression flight > 0")
    results = project.dataflow("checks", "flights", "1")
    assert results.returncode == 0, results.stderr
    assert all(name in results.stdout for name in names)
    found = project.dataflow("checks", "flights", "2", "--json")
    assert found.returncode == 13
    for part in ("carrier is null in 1 of 2 rows", "warned", "skipped", "'weird' in row 2"):
        assert part in found.stdout
    latest = project.dataflow("checks")
    assert latest.returncode == 13
    assert "flights" in latest.stdout
    assert "pattern carrier" in latest.stdout
    assert "rows min 1" not in latest.stdout, "what passed is no trouble"
    arrive(project, "2", "AA")
    assert project.dataflow("scan").returncode == 0
    again = project.dataflow("checks", "flights")
    assert again.returncode == 0
    assert "no check" in again.stderr


def test_what_was_declared_by_hand_keeps_its_findings_unless_nobody_looked(project: Project) -> None:
    project.apply(FEED)
    arrive(project, "1", "AA", "weird")
    assert project.dataflow("ready", "flights", "1").returncode == 0
    found = project.dataflow("checks", "flights", "1", "--json")
    assert "'weird' in row 2" in found.stdout
    assert project.dataflow("ready", "flights", "1", "--unchecked").returncode == 0
    assert project.sql("SELECT count(*) FROM data_check") == [(0,)]


def test_what_a_script_wrote_is_kept_also_when_it_fails(project: Project) -> None:
    project.apply(FEED)
    project.script("jobs/work.sh", 'mkdir -p data/out && printf "carrier\\n%s\\n" "$CARRIER" > "data/out/$dataid.csv"')
    arrive(project, "1", "AA")
    assert project.dataflow("scan").returncode == 0
    failed = project.runjob("jobs/work.sh", env=project.env(CARRIER="ZZ"))
    assert failed.returncode == 1
    assert "only pipelines on Spark can take rows out" in failed.stdout + failed.stderr
    found = project.dataflow("checks", "out", "1", "--json")
    assert found.returncode == 13
    assert "carrier is not one of AA in 1 of 1 rows" in found.stdout
    (runid,) = project.sql("SELECT runid FROM data_check WHERE datasetid = 'out'")[0]
    project.sql("UPDATE job_status SET status = 'RESUBMIT'")
    assert project.runjob("jobs/work.sh", env=project.env(CARRIER="AA")).returncode == 0
    ((result, later),) = project.sql("SELECT result, runid FROM data_check WHERE datasetid = 'out'")
    assert result == "passed"
    assert later > runid


def test_names_that_nobody_knows_are_answered_with_the_nearest(project: Project) -> None:
    project.apply(FEED)
    arrive(project, "1", "AA")
    project.dataflow("scan")
    wrong = project.dataflow("checks", "flihgts", "1")
    assert (wrong.returncode, "did you mean 'flights'?" in wrong.stderr) == (2, True)
    wrong = project.dataflow("checks", "flights", "11")
    assert (wrong.returncode, "did you mean '1'?" in wrong.stderr) == (2, True)
    project.sql("INSERT INTO datastatus (datasetid, dataid, status) VALUES ('bare', '1', 'READY')")
    bare = project.dataflow("checks", "bare", "1")
    assert bare.returncode == 0
    assert "the dataset declares none" in bare.stderr
