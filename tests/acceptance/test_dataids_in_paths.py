"""A dataid is one of its dataset's before it becomes part of a path, and what is shown lies below the root."""

import json
import os
import time
from pathlib import Path

import pytest

from opendataflow.errors import Refused
from support.projects import RUNJOB, Project

SECRET = "a-secret-of-somebody-else"
FEEDS = """
name: Feeds
environments: {dev: {root: data}}
datasets:
  daily: {path: "daily/{dataid}", format: text, partitions: {daily: 2025-11-01..2025-11-30}}
  free: {path: "free/{dataid}", format: text}
  shards: {path: "shards/{dataid}/part.txt", format: text, partitions: {shards: 1..3}}
  regions: {path: "regions/{dataid}", format: text, partitions: {values: [eu, us]}}
  whole: {path: whole.txt, format: text, partitions: none}
  known: {hostname: db.example.com}
  copied: {path: "copied/{dataid}", format: text}
  noted: {path: "noted/{dataid}", format: text}
  said: {hostname: db.example.com}
jobs:
  copy: {script: copy.sh, inputs: [daily], outputs: [copied]}
  note: {script: note.sh, inputs: [free], outputs: [noted]}
  say: {script: say.sh, inputs: [known], outputs: [said]}
"""
FILES = ("daily", "free", "shards", "regions")
BAD = ("../../key", "../data/../../key", "/etc/hostname", "..", "a/b", "1\n2", "")
DAY = "2025-11-12"


@pytest.fixture
def feeds(sqlite_project: Project) -> Project:
    """A root with data, and a secret two folders above a dataset's own."""
    project = sqlite_project
    project.apply(FEEDS)
    for job in ("copy", "note", "say"):
        project.script(f"{job}.sh", 'printf "%s\\n" "$dataid" "$daily_location" "$free_location" >> ran')
    project.write("key", SECRET)
    (project.folder.parent / "key").write_text(SECRET)
    for place in (f"daily/{DAY}", "free/a", "shards/1/part.txt", "regions/eu", "whole.txt"):
        file = project.write(f"data/{place}", "good\n")
        os.utime(file, (time.time() - 3600,) * 2)
    return project


def row(project: Project, dataset: str, dataid: str, location: str = "") -> None:
    """As an operator inserts a chunk by hand."""
    place = f"'{location}'" if location else "NULL"
    project.sql(
        "INSERT INTO datastatus (project, datasetid, dataid, status, location) "
        f"VALUES ('feeds', '{dataset}', '{dataid}', 'READY', {place})"
    )


def state(project: Project) -> list[tuple[object, ...]]:
    return project.sql("SELECT datasetid, dataid, status FROM datastatus ORDER BY 1, 2") + project.sql(
        "SELECT jobid, dataid, status FROM job_status ORDER BY 1, 2"
    )


# Typed by a person ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dataid", BAD)
def test_no_command_makes_a_path_of_a_dataid_that_the_dataset_cannot_have(feeds: Project, dataid: str) -> None:
    before = state(feeds)
    for dataset in FILES:
        for command in (["source", "sample"], ["source", "download"], ["ready"], ["preview"]):
            done = feeds.dataflow(*command, "--", dataset, dataid)
            assert done.returncode in (2, 10), (command, dataset, done.stdout, done.stderr)
            assert SECRET not in done.stdout + done.stderr
            assert done.stderr.startswith("dataflow: ")
            if command != ["preview"]:
                assert "is not a dataid of" in done.stderr or "is no range of" in done.stderr
    assert state(feeds) == before


@pytest.mark.parametrize("dataid", ["../../key", "/etc/hostname", ""])
@pytest.mark.parametrize("job", ["copy", "note", "say"])
def test_no_job_runs_on_a_dataid_that_its_data_cannot_have(feeds: Project, job: str, dataid: str) -> None:
    before = state(feeds)
    for argv in (["run", job, "--dataid", dataid], ["force", "--", job, dataid]):
        done = feeds.dataflow(*argv)
        assert (done.returncode, "is not a dataid of" in done.stderr) == (2, True), (argv, done.stderr)
    for command in ("env", "resubmit", "hold", "why"):
        done = feeds.dataflow(command, "--", job, dataid)
        assert (done.returncode, "has no dataid" in done.stderr) == (2, True), (command, done.stderr)
    assert state(feeds) == before
    assert not (feeds.folder / "ran").exists()


def test_bytes_that_are_no_text_name_nothing(feeds: Project) -> None:
    """A shell gives any bytes; a store has text."""
    dataid = os.fsdecode(b"caf\xe9")
    for argv in (
        *([command, "--", "free", dataid] for command in ("preview", "checks", "lineage", "impact", "status")),
        ["source", "sample", "free", dataid], ["run", "note", "--dataid", dataid], ["plan", "note", dataid],
        *([command, "--", "note", dataid] for command in ("env", "resubmit", "hold", "why", "logs", "runs", "force")),
    ):  # fmt: skip
        done = feeds.dataflow(*argv)
        assert (done.returncode, done.stderr) == (
            2, "dataflow: caf\\udce9 is not valid UTF-8, and names no job, dataset or dataid\n",
        ), argv  # fmt: skip
    done = feeds.run(RUNJOB, "--dataid", dataid, feeds.folder / "note.sh")
    assert (done.returncode, "RunJob: caf\\udce9 is not valid UTF-8" in done.stderr) == (2, True), done.stderr


def test_a_script_gets_bytes_that_are_no_text_as_they_are(feeds: Project) -> None:
    feeds.script("copy.sh", 'printf "%s" "$1" > got; echo made > "$copied_location"')
    assert feeds.dataflow("ready", "daily", DAY).returncode == 0
    done = feeds.run(RUNJOB, feeds.folder / "copy.sh", os.fsdecode(b"caf\xe9"))
    assert done.returncode == 0, done.stderr
    assert (feeds.folder / "got").read_bytes() == b"caf\xe9"


def test_ready_takes_no_such_dataid_with_a_place_of_its_own_either(feeds: Project) -> None:
    for dataset, dataid in (("daily", "../x"), ("free", ".."), ("known", "a/b"), ("whole", "../x")):
        done = feeds.dataflow("ready", dataset, dataid, "--location", str(feeds.folder / "data/whole.txt"))
        assert done.returncode == 2, done.stderr
    assert feeds.sql("SELECT dataid FROM datastatus") == []


@pytest.mark.parametrize(
    ("dataset", "dataid"), [("daily", DAY), ("free", "a"), ("shards", "1"), ("regions", "eu"), ("whole", "full")]
)
def test_dataids_of_the_scheme_are_read_before_and_after_they_are_ready(
    feeds: Project, dataset: str, dataid: str
) -> None:
    for _ in range(2):
        assert feeds.dataflow("source", "download", dataset, dataid).stdout.split() == ["value", "good"]
        assert feeds.dataflow("ready", dataset, dataid).returncode == 0
    assert "good" in feeds.dataflow("preview", dataset, dataid).stdout


# Found by a scan ------------------------------------------------------------------------------------------------------
def test_a_scan_takes_no_name_that_tells_no_dataid(feeds: Project) -> None:
    feeds.apply(FEEDS.replace('"free/{dataid}"', '"free/x{dataid}"'))
    for name in ("x..", "x.", "xa\nb", "xgood"):
        os.utime(feeds.write(f"data/free/{name}", "1\n"), (time.time() - 3600,) * 2)
    feeds.write("data/daily/today", "1\n")
    done = feeds.dataflow("scan", "free")
    assert "3 ignored" in done.stderr
    assert feeds.dataflow("scan", "daily").returncode == 0
    ready = feeds.sql("SELECT datasetid, dataid FROM datastatus WHERE datasetid IN ('free', 'daily') ORDER BY 1, 2")
    assert ready == [("daily", DAY), ("free", "good")]


# Inserted by hand -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dataset", "job"), [("daily", "copy"), ("free", "note"), ("known", "say")]
)  # fmt: skip
@pytest.mark.parametrize("location", ["", "data/whole.txt"])
def test_a_row_by_hand_with_a_path_for_a_dataid_is_never_run(
    feeds: Project, dataset: str, job: str, location: str
) -> None:
    row(feeds, dataset, "../../key", str(feeds.folder / location) if location else "")
    assert feeds.sql(f"SELECT dataid FROM job_status WHERE jobid = '{job}' AND dataid LIKE '%key'") == [("../../key",)]
    done = feeds.dataflow("run", job, "--drain")
    assert "INVALID_PATH" in done.stderr
    assert "'../../key' is not a dataid of" in done.stderr
    for argv in (["run", job, "--dataid", "../../key"], ["force", job, "../../key"], ["env", job, "../../key"]):
        done = feeds.dataflow(*argv)
        assert (done.returncode, "'../../key' is not a dataid of" in done.stderr) == (12, True), (argv, done.stderr)
    told = feeds.json("why", job, "../../key")
    assert "INVALID_PATH" in [one["code"] for one in told["answers"]]
    assert not (feeds.folder / "ran").exists()
    assert feeds.sql("SELECT count(*) FROM run") == [(0,)]


def test_another_dataid_of_the_job_runs_beside_such_a_row(feeds: Project) -> None:
    row(feeds, "free", "../../key")
    assert feeds.dataflow("ready", "free", "a").returncode == 0
    feeds.script("note.sh", 'cp "$free_location" "$noted_location"')
    feeds.dataflow("run", "note", "--drain")
    assert feeds.statuses("note") == {"../../key": "PENDING", "a": "COMPLETE"}
    assert (feeds.folder / "data/noted/a").read_text() == "good\n"


@pytest.mark.parametrize("dataset", FILES)
def test_a_row_by_hand_with_a_path_for_a_dataid_is_not_shown(feeds: Project, dataset: str) -> None:
    row(feeds, dataset, "../../key")
    commands = (["preview"], ["source", "sample"], ["source", "download"])
    for argv in [[*one, dataset, *dataid] for one in commands for dataid in ((), ("../../key",))]:
        done = feeds.dataflow(*argv)
        assert (done.returncode, "is not a dataid of" in done.stderr) == (2, True), (argv, done.stderr)
        assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("place", ["../key", "data/daily/../../../key", "/etc/hostname"])
def test_a_row_by_hand_with_a_place_outside_of_the_root_is_not_shown(feeds: Project, place: str) -> None:
    row(feeds, "daily", DAY, os.path.join(feeds.folder, place))
    for command in (["preview"], ["source", "sample"], ["source", "download"]):
        done = feeds.dataflow(*command, "daily", DAY)
        assert (done.returncode, "not below the environment's root" in done.stderr) == (12, True), done.stderr
        assert done.stdout == ""


# Links ----------------------------------------------------------------------------------------------------------------
@pytest.fixture(params=["file", "folder", "file in a folder"])
def linked(feeds: Project, request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    """A chunk that is a link out of the root, or has one."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key.txt").write_text(SECRET)
    place = feeds.folder / "data/free/link"
    if request.param == "file in a folder":
        place.mkdir()
        (place / "one.txt").write_text("good\n")
        (place / "two.txt").symlink_to(outside / "key.txt")
    else:
        place.symlink_to(outside / "key.txt" if request.param == "file" else outside)
    return feeds


def test_a_link_out_of_the_root_is_not_read(linked: Project) -> None:
    commands = [["source", "sample"], ["source", "download"], ["ready"]]
    for command in commands:
        done = linked.dataflow(*command, "free", "link")
        assert (done.returncode, "not below the environment's root" in done.stderr) == (12, True), done.stderr
        assert SECRET not in done.stdout + done.stderr
    row(linked, "free", "link")
    for command in [*commands[:2], ["preview"]]:
        done = linked.dataflow(*command, "free", "link")
        assert (done.returncode, "not below the environment's root" in done.stderr) == (12, True), done.stderr
        assert SECRET not in done.stdout + done.stderr


def test_a_row_by_hand_of_a_link_out_of_the_root_is_not_run(linked: Project) -> None:
    row(linked, "free", "link")
    linked.script("note.sh", 'touch ran; cat "$free_location"/* "$free_location" > "$noted_location"')
    done = linked.dataflow("run", "note", "--drain")
    assert "INVALID_PATH" in done.stderr
    assert "which is not below the environment's root" in done.stderr
    assert not (linked.folder / "ran").exists()
    assert linked.sql("SELECT count(*) FROM run") == [(0,)]
    for name in ("noted", "_runs"):
        assert not (linked.folder / "data" / name / "link").exists()


def test_a_notebook_reads_no_link_out_of_the_root(linked: Project) -> None:
    from opendataflow import Project as Notebook

    row(linked, "free", "link")
    with pytest.raises(Refused, match="is not below the environment's root") as refused:
        Notebook(str(linked.folder), store=linked.store).read(object(), "free")  # type: ignore[arg-type]  # Spark is not asked
    assert refused.value.exit_code == 12


def test_links_inside_the_root_and_a_root_that_is_a_link_are_read(feeds: Project, tmp_path: Path) -> None:
    (feeds.folder / "data").rename(tmp_path / "disk")
    (feeds.folder / "data").symlink_to(tmp_path / "disk")
    (tmp_path / "disk/free/b").symlink_to("a")
    assert feeds.dataflow("source", "download", "free", "b").stdout.split() == ["value", "good"]
    assert feeds.dataflow("ready", "free", "b").returncode == 0
    assert "good" in feeds.dataflow("preview", "free", "b").stdout


# Logs -----------------------------------------------------------------------------------------------------------------
def test_a_log_that_is_another_file_is_not_shown(feeds: Project) -> None:
    assert feeds.dataflow("ready", "free", "a").returncode == 0
    feeds.script("note.sh", 'echo hello; cp "$free_location" "$noted_location"')
    done = feeds.dataflow("run", "note")
    assert done.returncode == 0, done.stderr
    assert feeds.json("logs", "note", "a")["whole"] is True
    log = Path(feeds.json("logs", "note", "a")["log_path"])
    feeds.sql(f"UPDATE run SET log_path = '{feeds.folder / 'key'}'")
    for argv in (["logs", "note", "a"], ["logs", "-f", "note", "a"]):
        assert feeds.dataflow(*argv).stdout.strip() == "hello"
    feeds.sql(f"UPDATE run SET log_path = '{log}'")
    log.unlink()
    log.symlink_to(feeds.folder / "key")
    for argv in (["logs", "note", "a"], ["logs", "-f", "note", "a"]):
        assert feeds.dataflow(*argv).stdout.strip() == "hello"
    assert json.loads(feeds.dataflow("logs", "note", "a", "--json").stdout)["whole"] is False
