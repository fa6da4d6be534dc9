"""`dataflow output clear`: published chunks taken back, run directories that nobody needs; the store comes first."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from opendataflow.domain.runs.run import Ending, Result
from support.made import begin, make, opened, parquet, text
from support.projects import BIN, Project

DAY, NEXT = "2025-11-01", "2025-11-02"
PROJECT = """\
name: Shop
environments: {dev: {root: data}}
datasets:
  orders: {path: "orders/{dataid}.csv", format: csv, partitions: {daily: 2025-11-01..2025-11-02}}
  priced: {path: priced}
  report: {path: "report/{dataid}.csv", format: csv}
  totals: {path: "sums/totals.csv", format: csv, partitions: none}
  all: {path: "sums/all.csv", format: csv}
  copied: {path: "copied/{dataid}.csv"}
jobs:
  copy: {script: jobs/copy.sh, inputs: [priced], outputs: [copied]}
pipelines:
  - {slug: price, sources: [orders], destination: priced, transformations: [add_price]}
  - {slug: tell, sources: [orders], destination: report, transformations: [add_price]}
  - {slug: sum, sources: [{orders: {map: all}}], destination: totals, transformations: [add_price]}
  - {slug: gather, sources: [orders], destination: all, transformations: [add_price]}
"""


@pytest.fixture
def shop(sqlite_project: Project) -> Project:
    return made_shop(sqlite_project)


def made_shop(project: Project) -> Project:
    project.apply(PROJECT)
    project.script("jobs/copy.sh", 'cp "$priced_location"/*.parquet "$copied_location"')
    for day in (DAY, NEXT):
        project.write(f"data/orders/{day}.csv", "order\n1\n")
    assert project.dataflow("ready", "orders", DAY, NEXT).returncode == 0
    return project


def clear(project: Project, *argv: str, code: int = 0) -> str:
    done = project.dataflow("output", "clear", *argv)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def superseded(project: Project, dataset: str, *argv: str) -> list[int]:
    """The runs whose directories are removed."""
    return [one["run"] for one in project.json("output", "clear", dataset, "--superseded", "--yes", *argv)]


def runs(project: Project, folder: str) -> list[int]:
    place = project.folder / "data" / folder / "_runs"
    return sorted(int(path.name) for path in place.iterdir() if path.name.isdecimal()) if place.is_dir() else []


def location(project: Project, dataset: str, dataid: str) -> tuple[str, str | None]:
    rows = project.sql(
        f"SELECT status, location FROM chunk_location WHERE datasetid = '{dataset}' AND dataid = '{dataid}'"
    )
    return rows[0][0], rows[0][1]


# Taking back ----------------------------------------------------------------------------------------------------------
@pytest.mark.both_stores
def test_a_cleared_chunk_is_closed_gone_and_made_again_on_either_store(project: Project) -> None:
    shop = made_shop(project)
    make(shop, "price", DAY, parquet(v=[1]))
    make(shop, "price", NEXT, parquet(v=[2]))
    chunk = shop.folder / f"data/priced/dataid={DAY}"
    assert (chunk / "current").is_dir()
    told = clear(shop, "priced", DAY, "--dry-run")
    assert f"priced/{DAY}  READY, " in told
    assert "would clear 1 chunk, " in told
    assert (chunk / "current").is_dir()
    told = clear(shop, "priced", DAY, "--yes")
    assert "`dataflow run price --drain` makes them again" in told
    assert location(shop, "priced", DAY) == ("RESUBMIT", None)
    assert shop.statuses("price") == {DAY: "RESUBMIT", NEXT: "COMPLETE"}
    assert [*runs(shop, f"priced/dataid={DAY}"), os.path.lexists(chunk / "current")] == [False]
    assert len(runs(shop, f"priced/dataid={NEXT}")) == 1
    assert shop.dataflow("preview", "priced", DAY).returncode == 10
    again = make(shop, "price", DAY, parquet(v=[3]))
    assert runs(shop, f"priced/dataid={DAY}") == [again]
    assert (chunk / "current").is_dir()
    assert shop.json("preview", "priced", DAY)["preview"] == [{"v": 3}]


def test_all_chunks_go_with_what_failed_runs_left(shop: Project) -> None:
    make(shop, "price", DAY, parquet(v=[1]), fails="no")
    for day in (DAY, NEXT):
        make(shop, "price", day, parquet(v=[1]))
    told = shop.json("output", "clear", "priced", "--all", "--yes")
    assert [(one["dataid"], one["status"], len(one["paths"])) for one in told] == [
        (DAY, "READY", 2),
        (NEXT, "READY", 1),
    ]
    assert all(one["bytes"] > 0 for one in told)
    assert runs(shop, f"priced/dataid={DAY}") + runs(shop, f"priced/dataid={NEXT}") == []
    assert "no chunk of priced is published" in clear(shop, "priced", "--all", "--yes")


def test_a_chunk_that_is_read_or_made_is_locked_and_everything_stays(shop: Project) -> None:
    first = make(shop, "price", DAY, parquet(v=[1]))
    with closing(opened(shop)) as store:
        _, reading, _ = begin(store, "copy", DAY)
        told = clear(shop, "priced", "--all", "--yes", code=14)
        assert f"LOCKED: priced/{DAY} is being read by copy (run {reading.runid})" in told
        store.finish(reading, Result(Ending.FAILED, 1))
        _, making, place = begin(store, "price", NEXT)
        parquet(v=[1])(place)
        assert f"LOCKED: price/{NEXT} is RUNNING by anna@host-1:1" in clear(shop, "priced", NEXT, "--yes", code=14)
        assert superseded(shop, "priced", "--older-than", "0s") == []
    assert runs(shop, f"priced/dataid={DAY}") == [first]
    assert runs(shop, f"priced/dataid={NEXT}") == [making.runid]
    assert location(shop, "priced", DAY)[0] == "READY"


def test_a_one_file_destination_goes_with_the_file_that_people_see(shop: Project) -> None:
    make(shop, "tell", DAY, text("a\n1\n"))
    make(shop, "tell", NEXT, text("a\n2\n"))
    report = shop.folder / "data/report"
    clear(shop, "report", DAY, "--yes")
    assert sorted(path.name for path in report.iterdir()) == [f"{NEXT}.csv", "_runs"]
    # Where there are no links the file is a copy.
    make(shop, "tell", DAY, text("a\n3\n"))
    shutil.copy(report / f"{DAY}.csv", report / "copy")
    os.replace(report / "copy", report / f"{DAY}.csv")
    clear(shop, "report", DAY, "--yes")
    assert not (report / f"{DAY}.csv").exists()
    # Somebody's own file under that name is not ours.
    make(shop, "tell", DAY, text("a\n4\n"))
    (report / f"{DAY}.csv").unlink()
    (report / f"{DAY}.csv").write_text("mine")
    clear(shop, "report", DAY, "--yes")
    assert (report / f"{DAY}.csv").read_text() == "mine"


def test_datasets_that_share_a_folder_keep_their_own(shop: Project) -> None:
    make(shop, "sum", "full", text("a\n1\n"))
    other = make(shop, "gather", DAY, text("a\n2\n"))
    clear(shop, "totals", "--all", "--yes")
    assert runs(shop, "sums") == [other]
    assert not (shop.folder / "data/sums/totals.csv").exists()


def test_a_file_that_shows_all_chunks_together_is_made_anew_without_the_cleared_ones(shop: Project) -> None:
    from opendataflow.execution.export import export

    first, second = make(shop, "gather", DAY, text("a\n1\n")), make(shop, "gather", NEXT, text("a\n2\n"))
    sums = shop.folder / "data/sums"
    parts = [(DAY, first, f"{sums}/_runs/{first}/all.csv"), (NEXT, second, f"{sums}/_runs/{second}/all.csv")]
    export(f"{sums}/all.csv", parts, has_header=True)
    assert (sums / "all.csv").read_text() == "a\n1\n2\n"
    clear(shop, "all", DAY, "--yes")
    assert ((sums / "all.csv").read_text(), runs(shop, "sums")) == ("a\n2\n", [second])
    clear(shop, "all", "--all", "--yes")
    assert (sums / "all.csv").exists() is False


def test_only_what_pipelines_make_can_be_cleared_and_only_on_request(shop: Project) -> None:
    make(shop, "price", DAY, parquet(v=[1]))
    assert "orders arrives from outside" in clear(shop, "orders", DAY, "--yes", code=2)
    assert "`dataflow resubmit copy DATAID`" in clear(shop, "copied", "--all", "--yes", code=2)
    assert "give --yes" in clear(shop, "priced", DAY, code=2)
    assert "which chunks of priced?" in clear(shop, "priced", "--yes", code=2)
    assert "not both" in clear(shop, "priced", DAY, "--all", "--yes", code=2)
    assert "has no chunk '2025-11-03'" in clear(shop, "priced", "2025-11-03", "--yes", code=2)
    assert "it is a job, and makes 'priced'" in clear(shop, "price", "--all", "--yes", code=2)
    assert "did you mean 'priced'?" in clear(shop, "prised", "--all", "--yes", code=2)
    assert "--older-than" in clear(shop, "priced", "--superseded", "--older-than", "2999-01-01", "--yes", code=2)
    assert location(shop, "priced", DAY)[0] == "READY"


def test_files_that_no_run_wrote_stay_where_they_are(shop: Project) -> None:
    mine = shop.write("data/mine/x.parquet", "x")
    done = shop.dataflow("ready", "priced", DAY, "--location", str(mine.parent), "--unchecked")
    assert done.returncode == 0, done.stderr
    assert "was not written by a run and stays" in clear(shop, "priced", DAY, "--yes")
    assert mine.read_text() == "x"
    assert location(shop, "priced", DAY) == ("RESUBMIT", None)


def test_a_real_pipeline_makes_again_what_was_cleared(sqlite_project: Project) -> None:
    shop = made_shop(sqlite_project)
    shop.write(
        "pipelines/price/add_price.py", "def run(df):\n    return df.selectExpr('order', 'order * 2 AS price')\n"
    )
    for _ in range(2):
        done = shop.dataflow("run", "price", "--drain", timeout=300)
        assert done.returncode == 0, done.stderr
        told = shop.json("preview", "priced", DAY)
        assert (told["schema"], told["rows"]) == ({"order": "int", "price": "int"}, 1)
        assert told["preview"] == [{"order": 1, "price": 2}]
        assert len(runs(shop, f"priced/dataid={DAY}")) == 1
        assert clear(shop, "priced", "--all", "--yes").startswith("cleared 2 chunks, ")
        assert runs(shop, f"priced/dataid={DAY}") == []


# What nobody needs ----------------------------------------------------------------------------------------------------
def test_superseded_versions_and_leftovers_go_and_the_current_version_stays(project: Project) -> None:
    shop = made_shop(project)
    old = make(shop, "price", DAY, parquet(v=[1]))
    failed = make(shop, "price", DAY, parquet(v=[2]), fails="no")
    now = make(shop, "price", DAY, parquet(v=[3]))
    other = make(shop, "price", NEXT, parquet(v=[4]))
    assert superseded(shop, "priced") == []  # younger than an hour: somebody may still be reading them
    told = clear(shop, "priced", "--superseded", "--yes")
    assert "removed 0 run directories of priced, 0 bytes; 2 more when they are older" in told
    assert superseded(shop, "priced", NEXT, "--older-than", "0s") == []
    listed = clear(shop, "priced", "--superseded", "--older-than", "0s", "--dry-run")
    assert f"priced/{DAY}  run {old}, " in listed
    assert "would remove 2 run directories of priced, " in listed
    assert superseded(shop, "priced", "--older-than", "0s") == [old, failed]
    assert runs(shop, f"priced/dataid={DAY}") == [now]
    assert runs(shop, f"priced/dataid={NEXT}") == [other]
    assert shop.json("preview", "priced", DAY)["preview"] == [{"v": 3}]
    assert (shop.folder / f"data/priced/dataid={DAY}/current").resolve().name == str(now)


def test_the_time_of_grace_counts_from_when_a_version_was_superseded(shop: Project) -> None:
    old = make(shop, "price", DAY, parquet(v=[1]))
    make(shop, "price", DAY, parquet(v=[2]))
    folder = shop.folder / f"data/priced/dataid={DAY}/_runs/{old}"
    for path in (*folder.iterdir(), folder):
        os.utime(path, (0, 0))  # written long ago, but read until a moment ago
    assert superseded(shop, "priced", "--older-than", "30m") == []
    shop.sql(f"UPDATE data_manifest SET created_at = '2025-01-01T00:00:00.000Z' WHERE version > {old}")
    assert superseded(shop, "priced", "--older-than", "30m") == [old]


def test_a_closed_version_that_a_chunk_still_points_at_stays(shop: Project) -> None:
    run = make(shop, "price", DAY, parquet(v=[1]))
    shop.dataflow("resubmit", "price", DAY)
    assert superseded(shop, "priced", "--older-than", "0s") == []
    assert runs(shop, f"priced/dataid={DAY}") == [run]


def test_nothing_of_a_chunk_goes_while_it_is_read(shop: Project) -> None:
    old = make(shop, "price", DAY, parquet(v=[1]))
    make(shop, "price", DAY, parquet(v=[2]))
    with closing(opened(shop)) as store:
        _, reading, _ = begin(store, "copy", DAY)
        assert superseded(shop, "priced", "--older-than", "0s") == []
        store.finish(reading, Result(Ending.FAILED, 1))
    assert superseded(shop, "priced", "--older-than", "0s") == [old]


def test_what_the_store_does_not_know_goes_when_it_is_old(shop: Project) -> None:
    make(shop, "price", DAY, parquet(v=[1]))
    place = shop.folder / f"data/priced/dataid={DAY}/_runs"
    parquet(v=[1])(str(place / "99999"))
    (place / "notes").mkdir()
    assert superseded(shop, "priced") == []
    two_hours_ago = time.time() - 7200
    for path in (*(place / "99999").iterdir(), place / "99999"):
        os.utime(path, (two_hours_ago, two_hours_ago))
    assert superseded(shop, "priced") == [99999]
    assert (place / "notes").is_dir()


def test_superseded_files_go_without_the_one_that_people_see(shop: Project) -> None:
    old = make(shop, "tell", DAY, text("a\n1\n"))
    make(shop, "tell", DAY, text("a\n1\n"))  # the same again
    assert superseded(shop, "report", "--older-than", "0s") == [old]
    assert (shop.folder / f"data/report/{DAY}.csv").read_text() == "a\n1\n"


# Killed half-way ------------------------------------------------------------------------------------------------------
KILLED = """\
import os, shutil, signal, sys
from opendataflow.cli.main import main
from opendataflow.operations import clear

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def half(path):
    os.unlink(os.path.join(path, sorted(os.listdir(path))[0]))
    die()

if sys.argv[1] == "before the store":
    clear.take_back = die
elif sys.argv[1] == "before the files":
    clear.remove = die
else:
    shutil.rmtree = half
main(["output", "clear", "priced", "--all", "--yes"])
"""


@pytest.mark.parametrize("where", ["before the store", "before the files", "amid the files"])
def test_killed_at_any_point_no_ready_chunk_lacks_files_and_what_is_left_is_cleared(shop: Project, where: str) -> None:
    for day in (DAY, NEXT):
        make(shop, "price", day, parquet(v=[1]))
    done = subprocess.run([sys.executable, "-c", KILLED, where], cwd=shop.folder, env=shop.env(), capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    for day in (DAY, NEXT):
        status, place = location(shop, "priced", day)
        if where == "before the store":
            assert status == "READY"
            assert Path(str(place), "_SUCCESS").exists()
        else:
            assert (status, place) == ("RESUBMIT", None)
    left = superseded(shop, "priced", "--older-than", "0s")
    assert len(left) == (0 if where == "before the store" else 2)
    assert len(runs(shop, f"priced/dataid={DAY}")) == (1 if where == "before the store" else 0)
    if where != "before the store":
        again = make(shop, "price", DAY, parquet(v=[2]))
        assert runs(shop, f"priced/dataid={DAY}") == [again]


def test_on_a_terminal_it_asks(shop: Project) -> None:
    make(shop, "price", DAY, parquet(v=[1]))
    master, slave = os.openpty()
    child = subprocess.Popen(
        [str(BIN / "dataflow"), "output", "clear", "priced", DAY], cwd=shop.folder, env=shop.env(), stdin=slave,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.write(master, b"n\n")
    _, said = child.communicate(timeout=60)
    os.close(master)
    os.close(slave)
    assert child.returncode == 130
    assert "take back 1 chunk of priced and remove " in said
    assert location(shop, "priced", DAY)[0] == "READY"
