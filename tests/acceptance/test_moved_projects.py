"""A project that is moved or copied works on its own data, and a root that is not its store's is refused."""

import json
import shutil
from pathlib import Path

import pytest

from support.processes import wait_for
from support.projects import RUNJOB, Project

YML = """\
name: Shop
environments: {{dev: {{root: {root}, store: "{store}"}}}}
datasets:
  src: {{path: "src/{{dataid}}.txt", partitions: {{sequence: 1}}}}
  out: {{path: out}}
jobs:
  ex: {{script: ex.sh, inputs: [src], outputs: [out]}}
"""
SCRIPT = """\
while [ -e wait ]; do touch running; sleep 0.1; done
cp "$src_location" "$out_location/x.txt"
echo "$out_location"
"""


class Shop(Project):
    """A project whose store is named by its project.yml, as it is where somebody moves it."""

    def env(self, **extra: str) -> dict[str, str]:
        return {name: value for name, value in super().env(**extra).items() if name != "DATAFLOW_STORE"}

    def at(self, folder: Path) -> "Shop":
        own = f"sqlite:///{folder}/.dataflow/state.db"
        return Shop(folder, own if self.store.startswith("sqlite") else self.store)

    def make(self, root: str = "data") -> None:
        named = "sqlite:///.dataflow/state.db" if self.store.startswith("sqlite") else self.store
        self.write("project.yml", YML.format(root=root, store=named))
        self.script("ex.sh", SCRIPT)
        folder = Path(root) if root.startswith("/") else self.folder / root
        for dataid in "12345":
            self.write(str(folder / "src" / f"{dataid}.txt"), f"{dataid}\n")
        assert self.dataflow("apply").returncode == 0
        assert self.dataflow("ready", "src", "1..5").returncode == 0

    def drain_one(self) -> str:
        """Where the next run wrote, as its script saw it."""
        done = self.run(RUNJOB, "./ex.sh")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def places(self) -> dict[str, str]:
        """Where the store has what is published of `out`."""
        rows = self.sql("SELECT dataid, location FROM chunk_location WHERE datasetid = 'out' AND status = 'READY'")
        return dict(rows)

    def refusal(self, *argv: str) -> str:
        done = self.dataflow(*argv) if argv else self.run(RUNJOB, "./ex.sh")
        assert done.returncode == 12, done.stdout + done.stderr
        assert "INVALID_PATH" in done.stderr
        return done.stderr


@pytest.fixture
def shop(store_url: str, tmp_path: Path) -> Shop:
    folder = tmp_path / "prod"
    shop = Shop(folder, f"sqlite:///{folder}/.dataflow/state.db" if store_url.startswith("sqlite") else store_url)
    shop.make()
    return shop


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("x.txt")}


@pytest.mark.both_stores
def test_a_moved_project_goes_on_with_its_own_data(shop: Shop, tmp_path: Path) -> None:
    assert shop.drain_one().startswith(f"{shop.folder}/data/out/")
    shop.folder.rename(tmp_path / "moved")
    moved = shop.at(tmp_path / "moved")
    assert moved.drain_one().startswith(f"{moved.folder}/data/out/")
    assert not shop.folder.exists(), "nothing is made again where it was"
    shown = moved.json("status", "out")
    assert {one["location"].startswith(f"{moved.folder}/data/out/") for one in shown["chunks"]} == {True}
    assert moved.sql("SELECT DISTINCT substr(location, 1, 4) FROM datastatus WHERE locktype = 'OUT'") in (
        [("out/",), ("src/",)], [("src/",), ("out/",)],
    )  # fmt: skip


def test_a_copy_with_its_store_works_on_its_own_data(tmp_path: Path) -> None:
    prod = Shop(tmp_path / "prod", f"sqlite:///{tmp_path}/prod/.dataflow/state.db")
    prod.make()
    prod.drain_one()
    before = files_of(prod.folder)
    shutil.copytree(prod.folder, tmp_path / "test", symlinks=True)
    test = prod.at(tmp_path / "test")
    for _ in range(2):
        assert test.drain_one().startswith(f"{test.folder}/data/out/")
    assert files_of(prod.folder) == before
    assert set(test.places()) == {"1", "2", "3"}
    assert all(place.startswith(f"{test.folder}/") for place in test.places().values())
    assert all(place.startswith(f"{prod.folder}/") for place in prod.places().values())
    assert prod.drain_one().startswith(f"{prod.folder}/data/out/"), "the original goes on"
    assert "root's marker" in test.dataflow("doctor").stdout


def test_a_worker_of_a_moved_project_runs_its_scripts_there(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "prod", f"sqlite:///{tmp_path}/prod/.dataflow/state.db")
    shop.make()
    shop.folder.rename(tmp_path / "moved")
    moved = shop.at(tmp_path / "moved")
    done = moved.dataflow("worker", "--once")
    assert done.returncode == 0, done.stderr
    assert len(moved.places()) == 5
    assert all(Path(place).is_dir() and place.startswith(f"{moved.folder}/") for place in moved.places().values())


def test_a_copy_with_the_originals_store_is_refused_until_it_is_told_to_be_the_project(
    postgres_project: Project, tmp_path: Path
) -> None:
    prod = Shop(tmp_path / "prod", postgres_project.store)
    prod.make()
    prod.drain_one()
    before = files_of(prod.folder)
    shutil.copytree(prod.folder, tmp_path / "test", symlinks=True)
    test = prod.at(tmp_path / "test")
    assert str(prod.folder) in test.refusal()
    assert str(prod.folder) in test.refusal("apply")
    assert (files_of(prod.folder), files_of(test.folder)) == (before, before)
    assert test.sql("SELECT status, attempts, parked_until FROM job_status WHERE dataid = '2'") == [
        ("PENDING", 0, None)
    ]
    done = test.dataflow("apply", "--move")
    assert done.returncode == 0, done.stderr
    assert test.drain_one().startswith(f"{test.folder}/data/out/")
    assert files_of(prod.folder) == before


@pytest.mark.both_stores
def test_a_root_without_what_was_published_there_is_refused_and_parks_nothing(shop: Shop) -> None:
    shop.drain_one()
    data = shop.folder / "data"
    data.rename(shop.folder / "away")
    data.mkdir()  # as an empty mount point
    assert "no marker" in shop.refusal()
    assert "no marker" in shop.refusal("apply")
    assert not any(data.iterdir())
    assert shop.sql("SELECT status, attempts, parked_until FROM job_status WHERE dataid = '2'") == [
        ("PENDING", 0, None)
    ]
    why = shop.json("why", "ex", "2")
    assert [one["code"] for one in why["answers"] if not one["yes"]] == ["INVALID_PATH"]
    assert "--move" in why["fix"]
    found = {one["check"]: one for one in json.loads(shop.dataflow("doctor", "--json").stdout)}
    assert found["root's marker"]["state"] == "problem"
    done = shop.dataflow("worker", "--once")
    assert done.returncode == 12, done.stderr
    assert done.stderr.count("no marker") <= 2, done.stderr
    data.rmdir()
    (shop.folder / "away").rename(data)  # it is mounted again
    assert shop.drain_one().startswith(f"{data}/out/")


@pytest.mark.both_stores
def test_the_root_of_another_store_is_refused(shop: Shop, tmp_path: Path) -> None:
    shop.drain_one()
    other = Shop(tmp_path / "other", f"sqlite:///{tmp_path}/other/.dataflow/state.db")
    other.write("project.yml", YML.format(root=f"{shop.folder}/data", store="sqlite:///.dataflow/state.db"))
    other.script("ex.sh", SCRIPT)
    assert "another store" in other.refusal("apply")
    before = files_of(shop.folder)
    assert other.dataflow("apply", "--move").returncode == 0
    assert other.dataflow("ready", "src", "2").returncode == 0
    assert other.drain_one().startswith(f"{shop.folder}/data/out/")
    assert len(files_of(shop.folder)) == len(before) + 1
    assert "another store" in shop.refusal(), "the first one has lost it"


def test_a_copy_of_the_store_does_not_get_a_root_outside_of_its_folder(tmp_path: Path) -> None:
    prod = Shop(tmp_path / "prod", f"sqlite:///{tmp_path}/prod/.dataflow/state.db")
    prod.make(root=f"{tmp_path}/data")
    prod.drain_one()
    before = files_of(tmp_path / "data")
    shutil.copytree(prod.folder, tmp_path / "test", symlinks=True)
    test = prod.at(tmp_path / "test")
    assert "is a copy" in test.refusal()
    assert files_of(tmp_path / "data") == before
    prod.folder.rename(tmp_path / "moved")
    assert prod.at(tmp_path / "moved").drain_one().startswith(f"{tmp_path}/data/out/"), "moved, not copied"


@pytest.mark.both_stores
def test_a_location_that_was_written_by_hand_stays_as_it_is(shop: Shop, tmp_path: Path) -> None:
    shop.write("data/elsewhere/one.txt", "by hand\n")
    shop.sql(f"UPDATE datastatus SET location = '{shop.folder}/data/elsewhere/one.txt', fingerprint = NULL "
             "WHERE datasetid = 'src' AND dataid = '1'")  # fmt: skip
    made = Path(shop.drain_one())
    assert (made / "x.txt").read_text() == "by hand\n"
    assert shop.dataflow("ready", "src", "2", "--location", f"{shop.folder}/data/elsewhere/one.txt").returncode == 0
    assert shop.sql("SELECT location FROM datastatus WHERE datasetid = 'src' AND dataid = '2'") == [
        ("elsewhere/one.txt",)
    ]
    assert (Path(shop.drain_one()) / "x.txt").read_text() == "by hand\n"


@pytest.mark.both_stores
def test_a_new_root_needs_move_and_move_waits_for_live_runs(shop: Shop) -> None:
    shop.drain_one()
    text = (shop.folder / "project.yml").read_text()
    shop.write("project.yml", text.replace("root: data", "root: data2"))
    assert "no marker" in shop.refusal("apply")
    shutil.copytree(shop.folder / "data", shop.folder / "data2", symlinks=True)
    assert f"{shop.folder}/data" in shop.refusal("apply"), "both are there: which is it?"
    shop.write("wait", "")
    with shop.start(RUNJOB, "./ex.sh", env={"DATAFLOW_ENV": "dev"}) as runner:
        wait_for((shop.folder / "running").exists, "the run under way")
        done = shop.dataflow("apply", "--move")
        assert done.returncode == 14, done.stderr
        assert "live" in done.stderr
        (shop.folder / "wait").unlink()
        assert runner.wait(60) == 0
    done = shop.dataflow("apply", "--move")
    assert done.returncode == 0, done.stderr
    assert shop.drain_one().startswith(f"{shop.folder}/data2/out/")


# Its name -------------------------------------------------------------------------------------------------------------
@pytest.mark.both_stores
def test_a_changed_name_begins_no_second_project_by_itself(shop: Shop) -> None:
    text = (shop.folder / "project.yml").read_text()
    shop.write("project.yml", text.replace("name: Shop", "name: Store"))
    for argv in (("apply",), ("apply", "--dry-run"), ("source", "bind", "src", "format=csv")):
        done = shop.dataflow(*argv)
        assert done.returncode == 2, (argv, done.stdout)
        assert "this folder is project 'shop'" in done.stderr, argv
    assert shop.sql("SELECT project FROM project") == [("shop",)]
    assert shop.sql("SELECT DISTINCT project FROM dataset") == [("shop",)]
    assert shop.dataflow("apply", "--new-project").returncode == 0
    assert sorted(shop.sql("SELECT project FROM project")) == [("shop",), ("store",)]
    assert shop.dataflow("apply").returncode == 0, "said once"
    shop.write("project.yml", text)
    assert shop.dataflow("apply").returncode == 0, "the first one is there, too"
