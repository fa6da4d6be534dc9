"""Files that arrive: `dataflow scan`, `dataflow ready` with checks, and checks on what scripts write."""

import datetime
import hashlib
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from opendataflow.arrivals import scan as arrival
from opendataflow.domain.checks.check import Checked
from opendataflow.domain.chunk import Manifest
from opendataflow.store import open_store
from opendataflow.store.registry import get_dataset
from opendataflow.store.sqlite import SqliteStore
from support.jobs import job_status, lines, runs
from support.projects import Project

FLIGHTS = """\
name: Warehouse feed
environments: {dev: {root: data}}
datasets:
  flights:
    path: flights/{dataid}.csv
    format: csv
    options: {header: true}
    schema: {carrier: string, flight: int, dep_delay: double, time_hour: timestamp}
    partitions: {daily: 2013-01-01..2013-12-31}
    arrival: {done: "flights/{dataid}.done"}
    checks:
      - rows: {min: 1}
      - rows: {within: 0.5..2, of: median, last: 7, on_fail: warn}
      - not_null: [carrier, flight]
      - unique: [carrier, flight, time_hour]
      - values: {carrier: [AA, B6, UA]}
      - between: {dep_delay: [-120, 2000]}
      - expression: {sql: "dep_delay is null or dep_delay < 2000", at_least: 0.999}
      - partition: {column: time_hour}
  out: {path: "out/{dataid}.txt"}
jobs:
  work: {script: jobs/work.sh, inputs: [flights], outputs: [out]}
"""
SIMPLE = """\
name: Simple
environments: {dev: {root: data}}
datasets:
  feed: {path: "feed/{dataid}.csv", partitions: {shards: 1..20000}%s}
"""


def flights(day: str, *, rows: int = 2, carrier: str = "AA", time: str = "05:00:00") -> str:
    records = [f"{carrier},{number},-3.5,{day}T{time}\n" for number in range(rows)]
    return "carrier,flight,dep_delay,time_hour\n" + "".join(records)


def arrive(project: Project, path: str, text: str, *, age: float = 60.0) -> Path:
    """A file that was last written so many seconds ago."""
    file = project.write(f"data/{path}", text)
    then = time.time() - age
    os.utime(file, (then, then))
    return file


def chunks(project: Project) -> dict[str, str]:
    return dict(project.sql("SELECT dataid, status FROM datastatus WHERE locktype = 'OUT'"))


def scan(project: Project, *argv: str) -> tuple[int, list[str], str]:
    """Exit code, lines of stdout, stderr."""
    done = project.dataflow("scan", *argv)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines(), done.stderr


# The whole way --------------------------------------------------------------------------------------------------------
def test_files_arrive_are_checked_become_ready_and_are_processed(project: Project) -> None:
    project.apply(FLIGHTS)
    script = project.script("jobs/work.sh", 'echo "$dataid" >> ran; wc -l < "$flights_location" > "$out_location"')
    arrive(project, "flights/2013-01-01.csv", flights("2013-01-01", rows=10))
    code, told, _ = scan(project)
    assert (code, told) == (0, ["flights/2013-01-01 waiting: there is no flights/2013-01-01.done yet"])
    assert project.runjob("--dataid", "2013-01-01", script).returncode == 10
    project.write("data/flights/2013-01-01.done", "")
    code, [line], summary = scan(project)
    assert code == 0
    assert line.startswith("flights/2013-01-01 READY: 10 rows, ")
    assert "rows within" not in line, "the first chunk has none before it to be compared with"
    assert "not checked: expression dep_delay is null or dep_delay < 2000: not checked here, needs Spark" in line
    assert "1 READY" in summary
    [(rows, schema, fingerprint, validated)] = project.sql(
        "SELECT rows, schema, fingerprint, validated_at FROM data_manifest WHERE datasetid = 'flights'"
    )
    assert rows == 10
    assert schema is None, "no `schema` check has proved it"
    assert fingerprint
    assert validated
    ran = project.runjob(script)
    assert ran.returncode == 0, ran.stderr
    assert lines(project.folder / "ran") == ["2013-01-01"]
    code, told, summary = scan(project)
    assert (code, told) == (0, [])
    assert "1 READY already" in summary


def test_a_file_that_changes_after_it_was_ready_is_told_and_refused(project: Project) -> None:
    project.apply(FLIGHTS)
    script = project.script("jobs/work.sh", 'echo "$dataid" >> ran; touch "$out_location"')
    arrive(project, "flights/2013-01-01.csv", flights("2013-01-01"))
    project.write("data/flights/2013-01-01.done", "")
    assert scan(project)[0] == 0
    arrive(project, "flights/2013-01-01.csv", flights("2013-01-01", rows=3))
    code, [line], summary = scan(project)
    assert code == 11
    assert line.startswith("flights/2013-01-01 changed WRONG_DATA: ")
    assert "`dataflow ready flights 2013-01-01` takes it as it is now" in line
    assert "1 changed" in summary
    refused = project.runjob("--dataid", "2013-01-01", script)
    assert refused.returncode == 11
    assert "changed after it was published" in refused.stderr
    assert project.dataflow("ready", "flights", "2013-01-01").returncode == 0
    assert scan(project)[0] == 0
    assert project.runjob("--dataid", "2013-01-01", script).returncode == 0


def test_a_file_that_was_only_touched_is_still_the_same(sqlite_project: Project) -> None:
    sqlite_project.apply(SIMPLE % "")
    arrive(sqlite_project, "feed/1.csv", "a\n1\n", age=600)
    assert scan(sqlite_project)[0] == 0
    arrive(sqlite_project, "feed/1.csv", "a\n1\n", age=60)
    code, told, _ = scan(sqlite_project)
    assert (code, told) == (0, [])


def test_what_fails_its_checks_is_told_and_kept_and_the_next_delivery_is_taken(project: Project) -> None:
    project.apply(FLIGHTS)
    for day, text in (
        ("2013-01-01", flights("2013-01-01", carrier="ZZ")),
        ("2013-01-02", flights("2013-01-02")),
        ("2013-01-03", flights("2013-01-04")),
    ):
        arrive(project, f"flights/{day}.csv", text)
        project.write(f"data/flights/{day}.done", "")
    code, told, summary = scan(project, "flights")
    assert code == 13, "the code of the first rejection"
    assert told[0].startswith(
        "flights/2013-01-01 rejected NOT_VALIDATED: values carrier: carrier is not one of AA, B6, UA"
    )
    assert "in 2 of 2 rows: 'ZZ' in row 1, 'ZZ' in row 2" in told[0]
    assert told[1].startswith("flights/2013-01-02 READY: 2 rows")
    assert told[2].startswith("flights/2013-01-03 rejected WRONG_DATA: partition time_hour")
    assert "1 READY, 2 rejected" in summary
    assert chunks(project) == {"2013-01-01": "PENDING", "2013-01-02": "READY", "2013-01-03": "PENDING"}
    why = project.dataflow("why", "work", "2013-01-01")
    assert "NOT_VALIDATED: values carrier" in why.stdout
    arrive(project, "flights/2013-01-01.csv", flights("2013-01-01"))
    assert scan(project)[1][0].startswith("flights/2013-01-01 READY")
    assert chunks(project)["2013-01-01"] == "READY"
    assert project.sql("SELECT count(*) FROM datastatus WHERE problem IS NOT NULL AND status = 'READY'") == [(0,)]


def test_the_row_count_is_compared_with_the_days_before(sqlite_project: Project) -> None:
    project = sqlite_project
    project.apply(FLIGHTS)
    for day, rows in (("2013-01-01", 10), ("2013-01-02", 12), ("2013-01-03", 100)):
        arrive(project, f"flights/{day}.csv", flights(day, rows=rows))
        project.write(f"data/flights/{day}.done", "")
    code, told, _ = scan(project)
    assert code == 0
    assert "warning" not in told[1]
    assert "warning: rows within 0.5..2 of the median of the last 7: 100 rows; 5.5 to 22 were expected" in told[2]


# When a file has arrived ----------------------------------------------------------------------------------------------
def test_without_a_marker_a_file_must_be_stable(sqlite_project: Project) -> None:
    sqlite_project.apply(SIMPLE % ", arrival: {stable: 1h}")
    arrive(sqlite_project, "feed/1.csv", "a\n1\n", age=3700)
    arrive(sqlite_project, "feed/2.csv", "a\n1\n", age=3000)
    arrive(sqlite_project, "feed/3.csv", "a\n1\n", age=-500)
    code, told, _ = scan(sqlite_project)
    assert code == 0
    assert [line.split(":")[0] for line in told] == ["feed/1 READY", "feed/2 waiting", "feed/3 waiting"]
    assert "s ago, and must be stable for 3600 s" in told[1]
    assert "in the future" in told[2]
    assert chunks(sqlite_project) == {"1": "READY"}


def test_ten_seconds_are_enough_where_nothing_is_declared(sqlite_project: Project) -> None:
    sqlite_project.apply(SIMPLE % "")
    arrive(sqlite_project, "feed/1.csv", "a\n1\n", age=11)
    arrive(sqlite_project, "feed/2.csv", "a\n1\n", age=0)
    assert [line.split(":")[0] for line in scan(sqlite_project)[1]] == ["feed/1 READY", "feed/2 waiting"]


def test_yesterdays_file_under_todays_name_is_wrong(sqlite_project: Project) -> None:
    today = datetime.datetime.now(datetime.UTC).date()
    yesterday = today - datetime.timedelta(days=1)
    sqlite_project.apply(
        "name: Today\nenvironments: {dev: {root: data}}\n"
        f'datasets: {{feed: {{path: "feed/{{dataid}}.csv", partitions: {{daily: {yesterday}}}}}}}\n'
    )
    for day in (yesterday, today):
        file = sqlite_project.write(f"data/feed/{day}.csv", "a\n1\n")
        noon = datetime.datetime.combine(yesterday, datetime.time(12), datetime.UTC).timestamp()
        os.utime(file, (noon, noon))
    code, told, _ = scan(sqlite_project)
    assert code == 11
    assert told[0].startswith(f"feed/{yesterday} READY")
    assert told[1].startswith(f"feed/{today} rejected WRONG_DATA: it was last written at {yesterday}T12:00Z")


# Where files are found ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "files", "found"),
    [
        ("{dataid}/data.csv", ["1/data.csv", "2/data.csv", "3/other.csv", "x/data.csv"], ["1", "2"]),
        ("in/{dataid}/feed-{dataid}.csv", ["in/1/feed-1.csv", "in/2/feed-1.csv", "in/10/feed-10.csv"], ["1", "10"]),
        ("a-{dataid}-{dataid}.csv", ["a-1-1.csv", "a-1-2.csv", "a-12-12.csv", "a-0-0.csv"], ["1", "12"]),
        ("feed/{dataid}", ["feed/1/part-0.csv", "feed/1/part-1.csv", "feed/2/_temporary/0", "feed/7.done"], ["1"]),
        ("feed/{dataid}.csv", ["feed/1.csv", "feed/01.csv", "feed/1.csv.tmp", "feed/.2.csv", "feed/20001.csv"], ["1"]),
    ],
)
def test_the_path_says_where_to_look(sqlite_project: Project, path: str, files: list[str], found: list[str]) -> None:
    sqlite_project.apply((SIMPLE % "").replace("feed/{dataid}.csv", path))
    for file in files:
        arrive(sqlite_project, file, "a\n1\n")
    for folder in sorted((sqlite_project.folder / "data").rglob("*/")):
        os.utime(folder, (time.time() - 60, time.time() - 60))
    code, _, _ = scan(sqlite_project)
    assert code == 0
    assert [dataid for dataid, status in chunks(sqlite_project).items() if status == "READY"] == found


def test_a_dataset_of_one_file_is_found_too(sqlite_project: Project) -> None:
    sqlite_project.apply(
        "name: One\nenvironments: {dev: {root: data}}\ndatasets: {planes: {path: planes.csv, partitions: none}}\n"
    )
    assert scan(sqlite_project)[1:] == ([], "nothing has arrived\n")
    arrive(sqlite_project, "planes.csv", "a\n1\n")
    assert scan(sqlite_project)[1][0].startswith("planes/full READY")


def test_markers_and_checksums_are_not_taken_for_chunks(sqlite_project: Project) -> None:
    sqlite_project.apply(
        "name: Any\nenvironments: {dev: {root: data}}\ndatasets:\n"
        '  feed: {path: "feed/{dataid}", arrival: {done: "feed/{dataid}.done"}, checks: [checksum: {}]}\n'
        '  out: {path: "out/{dataid}"}\njobs: {work: {inputs: [feed], outputs: [out]}}\n'
    )
    file = arrive(sqlite_project, "feed/north", "x")
    arrive(sqlite_project, "feed/north.done", "")
    arrive(sqlite_project, "feed/north.sha256", hashlib.sha256(file.read_bytes()).hexdigest())
    code, told, _ = scan(sqlite_project)
    assert code == 0
    assert [line.split(":")[0] for line in told] == ["feed/north READY"]


def test_what_a_job_makes_is_not_scanned_for(sqlite_project: Project) -> None:
    sqlite_project.apply(FLIGHTS)
    arrive(sqlite_project, "out/2013-01-01.txt", "half written")
    assert scan(sqlite_project)[1] == ["flights waiting: " + f"{sqlite_project.folder}/data/flights is not there"]
    refused = sqlite_project.dataflow("scan", "out")
    assert refused.returncode == 2
    assert "is made by work" in refused.stderr
    assert sqlite_project.dataflow("scan", "nothing").returncode == 2


def test_names_that_are_no_dataids_are_counted_and_left_alone(sqlite_project: Project) -> None:
    sqlite_project.apply(SIMPLE % "")
    arrive(sqlite_project, "feed/readme.csv", "a\n")
    broken = os.fsencode(sqlite_project.folder / "data/feed") + b"/\xff.csv"
    Path(os.fsdecode(broken)).write_text("a\n")
    code, told, summary = scan(sqlite_project)
    assert (code, told) == (0, [])
    assert "feed/readme.csv names no dataid of" in summary
    assert "2 ignored" in summary


# Places that are wrong ------------------------------------------------------------------------------------------------
def test_links_out_of_the_root_links_to_nowhere_and_pipes_are_refused(project: Project, tmp_path: Path) -> None:
    project.apply(SIMPLE % "")
    outside = tmp_path / "outside.csv"
    outside.write_text("a\n1\n")
    folder = arrive(project, "feed/9.csv", "a\n1\n").parent
    (folder / "1.csv").symlink_to(outside)
    (folder / "2.csv").symlink_to(folder / "gone.csv")
    (folder / "3.csv").symlink_to(folder / "3.csv")
    os.mkfifo(folder / "4.csv")
    (folder / "5.csv").symlink_to(folder / "9.csv")
    code, told, _ = scan(project)
    assert code == 12
    assert told[0].startswith("feed/1 rejected INVALID_PATH: ")
    assert "is not below" in told[0]
    assert "leads nowhere" in told[1]
    assert "symbolic links" in told[2]
    assert "is not a regular file" in told[3]
    assert [line.split(":")[0] for line in told[4:]] == ["feed/5 READY", "feed/9 READY"]
    assert chunks(project) == {
        "1": "PENDING",
        "2": "PENDING",
        "3": "PENDING",
        "4": "PENDING",
        "5": "READY",
        "9": "READY",
    }


def test_a_folder_that_cannot_be_read_is_told_with_its_code(sqlite_project: Project) -> None:
    sqlite_project.apply(SIMPLE % "")
    (sqlite_project.folder / "data").mkdir()
    (sqlite_project.folder / "data/feed").symlink_to("feed")
    code, told, _ = scan(sqlite_project)
    assert code == 12
    assert told[0].startswith("feed rejected INVALID_PATH: ")


def test_a_file_that_cannot_be_read_is_told_with_its_code(sqlite_project: Project) -> None:
    sqlite_project.apply(SIMPLE % "")
    (sqlite_project.folder / "data/feed").mkdir(parents=True)
    (sqlite_project.folder / "data/feed/1.csv").symlink_to("1.csv")  # root may read everything, but not this
    arrive(sqlite_project, "feed/2.csv", "a\n")
    code, told, _ = scan(sqlite_project)
    assert code == 12
    assert "feed/1 rejected INVALID_PATH" in told[0]
    assert told[1].startswith("feed/2 READY")


# While somebody writes ------------------------------------------------------------------------------------------------
def look(project: Project, datasetid: str = "feed") -> list[arrival.Arrival]:
    """A scan in this process, so that a test can get in between."""
    store = open_store(project.store, actor="test")
    dataset, root = get_dataset(store, datasetid, project=None)
    try:
        return list(arrival.scan_dataset(store, dataset, root, now=time.time()))
    finally:
        store.close()


def test_a_file_that_goes_away_in_between_is_waited_for(
    sqlite_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite_project.apply(SIMPLE % "")
    for name in ("1", "2"):
        arrive(sqlite_project, f"feed/{name}.csv", "a\n1\n")
    real = arrival.manifest_of

    def late(place: str) -> Manifest:
        if place.endswith("/1.csv"):
            os.unlink(place)
        return real(place)

    monkeypatch.setattr(arrival, "manifest_of", late)
    gone, taken = look(sqlite_project)
    assert (gone.state, gone.text) == (arrival.State.WAITING, "it went away while it was being looked at")
    assert taken.state is arrival.State.READY


def test_a_file_that_changes_in_between_is_waited_for(sqlite_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite_project.apply(SIMPLE % ", checks: [rows: {min: 1}]")
    file = arrive(sqlite_project, "feed/1.csv", "a\n1\n")
    real = arrival.check_chunk

    def meanwhile(*args: Any, **options: Any) -> Checked:
        done = real(*args, **options)
        with file.open("a") as more:
            more.write("2\n")
        return done

    monkeypatch.setattr(arrival, "check_chunk", meanwhile)
    [seen] = look(sqlite_project)
    assert (seen.state, seen.text) == (arrival.State.WAITING, "it changed while it was being looked at")
    assert chunks(sqlite_project) == {}


def test_a_file_that_may_not_be_read_blocks_no_other(sqlite_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite_project.apply(SIMPLE % "")
    for name in ("1", "2"):
        arrive(sqlite_project, f"feed/{name}.csv", "a\n1\n")
    real = arrival.manifest_of

    def forbidden(place: str) -> Manifest:
        if place.endswith("/1.csv"):
            raise PermissionError(13, "Permission denied", place)
        return real(place)

    monkeypatch.setattr(arrival, "manifest_of", forbidden)
    bad, good = look(sqlite_project)
    assert (bad.state, bad.code, bad.exit_code) == (arrival.State.REJECTED, "INVALID_PATH", 12)
    assert "Permission denied" in bad.text
    assert good.state is arrival.State.READY


def test_the_store_is_asked_once_when_nothing_is_new(sqlite_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite_project.apply(SIMPLE % ", checks: [rows: {within: 0.1..9}]")
    for number in range(1, 30):
        arrive(sqlite_project, f"feed/{number}.csv", "a\n1\n")
    assert {seen.state for seen in look(sqlite_project)} == {arrival.State.READY}
    asked: list[str] = []
    real = SqliteStore.read

    def counted(self: SqliteStore, name: str, *args: Any, **options: Any) -> Any:
        asked.append(name)
        return real(self, name, *args, **options)

    def none(*_: object, **__: object) -> None:
        raise AssertionError("nothing is to be written")

    monkeypatch.setattr(SqliteStore, "read", counted)
    monkeypatch.setattr(SqliteStore, "transaction", none)
    assert {seen.state for seen in look(sqlite_project)} == {arrival.State.KNOWN}
    assert asked.count("known_chunks") == 1
    assert "earlier_rows" not in asked


# Looking only, and for scripts ----------------------------------------------------------------------------------------
def test_a_dry_run_changes_nothing(sqlite_project: Project) -> None:
    sqlite_project.apply(SIMPLE % ", checks: [rows: {min: 2}]")
    arrive(sqlite_project, "feed/1.csv", "a\n1\n")
    arrive(sqlite_project, "feed/2.csv", "a\n1\n2\n")
    code, told, summary = scan(sqlite_project, "--dry-run")
    assert code == 13
    assert [line.split(":")[0] for line in told] == ["feed/1 rejected NOT_VALIDATED", "feed/2 READY"]
    assert "1 would be READY" in summary
    assert chunks(sqlite_project) == {}


def test_json_names_everything(sqlite_project: Project) -> None:
    sqlite_project.apply(SIMPLE % ", checks: [rows: {min: 2}]")
    arrive(sqlite_project, "feed/1.csv", "a\n1\n")
    file = arrive(sqlite_project, "feed/2.csv", "a\n1\n2\n")
    done = sqlite_project.dataflow("scan", "--json")
    assert done.returncode == 13
    bad, good = json.loads(done.stdout)
    assert (bad["dataid"], bad["state"], bad["code"]) == ("1", "rejected", "NOT_VALIDATED")
    assert bad["checks"][0] == {
        "check": "rows min 2",
        "ok": False,
        "skipped": False,
        "detail": "1 rows",
        "on_fail": "fail",
    }
    assert (good["dataid"], good["state"], good["rows"], good["location"]) == ("2", "READY", 2, str(file))


def test_a_chunk_on_hold_or_in_use_waits(project: Project) -> None:
    project.apply(SIMPLE % "")
    arrive(project, "feed/1.csv", "a\n1\n")
    project.sql("INSERT INTO datastatus (datasetid, dataid, status) VALUES ('feed', '1', 'HOLD')")
    assert scan(project)[1] == ["feed/1 waiting: it is HOLD"]
    assert chunks(project) == {"1": "HOLD"}


def test_ten_thousand_files_are_scanned_without_asking_for_each(sqlite_project: Project) -> None:
    project = sqlite_project
    project.apply(SIMPLE % "")
    folder = project.folder / "data/feed"
    folder.mkdir(parents=True)
    then = time.time() - 60
    for number in range(1, 10_001):
        file = folder / f"{number}.csv"
        file.write_text("a\n")
        os.utime(file, (then, then))
    project.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) "
        "INSERT INTO datastatus (project, datasetid, dataid, status) SELECT 'simple', 'feed', i, 'READY' FROM n"
    )
    code, told, summary = scan(project)
    assert (code, told) == (0, [])
    assert "10000 READY already" in summary


# By hand --------------------------------------------------------------------------------------------------------------
def test_ready_does_the_checks_and_declares_all_or_none(project: Project) -> None:
    project.apply(SIMPLE % ", checks: [rows: {min: 2}, rows: {min: 9, on_fail: warn}]")
    arrive(project, "feed/1.csv", "a\n1\n2\n")
    arrive(project, "feed/2.csv", "a\n1\n")
    refused = project.dataflow("ready", "feed", "1", "2")
    assert refused.returncode == 13
    assert "feed/2 NOT_VALIDATED: rows min 2: 1 rows" in refused.stderr
    assert "nothing was declared" in refused.stderr
    assert chunks(project) == {}
    done = project.dataflow("ready", "feed", "1")
    assert done.returncode == 0
    assert "warning: rows min 9: 2 rows" in done.stderr
    assert project.dataflow("ready", "feed", "2", "--unchecked").returncode == 0
    validated = dict(project.sql("SELECT dataid, validated_at FROM datastatus WHERE datasetid = 'feed'"))
    assert validated["1"]
    assert validated["2"] is None


def test_what_was_declared_unchecked_is_not_valid_for_a_job(project: Project) -> None:
    project.apply(
        "name: U\nenvironments: {dev: {root: data}}\ndatasets:\n"
        '  feed: {path: "feed/{dataid}.csv", partitions: {shards: 1..1}, checks: [rows: {min: 2}]}\n'
        '  out: {path: "out/{dataid}"}\njobs: {work: {script: jobs/work.sh, inputs: [feed], outputs: [out]}}\n'
    )
    script = project.script("jobs/work.sh", 'touch ran "$out_location"')
    arrive(project, "feed/1.csv", "a\n1\n")
    assert project.dataflow("ready", "feed", "1", "--unchecked").returncode == 0
    refused = project.runjob("--dataid", "1", script)
    assert refused.returncode == 13
    assert not (project.folder / "ran").exists()


# What scripts write ---------------------------------------------------------------------------------------------------
OUTPUT = """\
name: Output
environments: {dev: {root: data}}
datasets:
  out:
    path: "out/{dataid}.csv"
    partitions: {shards: 1..1}
    schema: {id: int, name: string}
    checks: [schema, unique: id, rows: {min: 3, on_fail: warn}]
jobs:
  work: {script: jobs/work.sh, outputs: [out]}
"""


def test_an_output_that_fails_its_checks_fails_the_run_and_stays_for_inspection(project: Project) -> None:
    project.apply(OUTPUT)
    script = project.script("jobs/work.sh", 'printf "id,name\\n1,a\\n1,b\\n" > "$out_location"')
    failed = project.runjob(script)
    assert failed.returncode == 1
    told = "out/1 does not pass its checks: unique id: id repeats an earlier row in 1 rows: (1) in rows 1 and 2"
    assert told in failed.stderr
    assert job_status(project) == {"1": "FAILED"}
    assert chunks(project) == {"1": "FAILED"}
    [(message,)] = runs(project, "message")
    assert told in str(message)
    assert (project.folder / "data/out/1.csv").exists()


def test_an_output_that_passes_is_recorded_with_rows_schema_and_validity(project: Project) -> None:
    project.apply(OUTPUT)
    script = project.script("jobs/work.sh", 'printf "id,name\\n1,a\\n2,b\\n" > "$out_location"')
    done = project.runjob(script)
    assert done.returncode == 0, done.stderr
    assert "out/1: warning: rows min 3: 2 rows" in done.stderr
    [(rows, schema, validated)] = project.sql("SELECT rows, schema, validated_at FROM data_manifest")
    assert (rows, json.loads(schema)) == (2, {"id": "int", "name": "string"})
    assert validated


def test_scripts_whose_outputs_declare_no_checks_do_not_pay_for_them(sqlite_project: Project) -> None:
    sqlite_project.apply(OUTPUT.replace("    checks: [schema, unique: id, rows: {min: 3, on_fail: warn}]\n", ""))
    script = sqlite_project.script("jobs/work.sh", 'echo x > "$out_location"')
    traced: subprocess.CompletedProcess[Any] = sqlite_project.runjob(script, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert traced.returncode == 0, traced.stderr
    assert "opendataflow.execution.run" in traced.stderr
    assert "pyarrow" not in traced.stderr
    assert "opendataflow.checks.perform" not in traced.stderr
