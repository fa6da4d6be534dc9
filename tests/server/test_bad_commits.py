"""Commits with a defect, of many kinds: refused with the right words, and the running version is untouched."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.gits import Origin
from support.projects import Project

GOOD = """
name: Shop
environments: {dev: {root: ./data}}
limits: {warehouse: 2}
datasets:
  orders: {path: "orders/{dataid}.csv", format: csv, partitions: {shards: 1..3}}
  totals: {path: "totals/{dataid}.csv", format: csv}
  clean: {path: clean, format: parquet}
jobs:
  sum_up: {script: jobs/sum_up.sh, inputs: [orders], outputs: [totals]}
pipelines:
  - {slug: cleaned, sources: [orders], destination: clean, transformations: []}
"""
OTHER = """
name: Other
environments: {dev: {root: ./data}}
datasets: {invoices: {path: invoices, format: parquet}}
limits: {bank: 1}
jobs:
  bill: {script: bill.sh, outputs: [invoices]}
"""
PANDAS = (
    "import pandas as pd\nexpected_inputs = [pd.DataFrame({'a': [1]})]\nexpected_output = pd.DataFrame({'a': [%d]})\n"
)
RUN = "def run(df):\n    return df\n"


class Defect(NamedTuple):
    name: str
    make: Callable[[Origin], None]
    words: str
    file: str = "project.yml"


def yml(old: str, new: str) -> Callable[[Origin], None]:
    assert old in GOOD
    return lambda origin: origin.write("project.yml", GOOD.replace(old, new))


def with_transformation(code: str) -> Callable[[Origin], None]:
    def make(origin: Origin) -> None:
        origin.write("project.yml", GOOD.replace("transformations: []", "transformations: [keep]"))
        origin.write("pipelines/cleaned/keep.py", code)

    return make


def submodule(origin: Origin) -> None:
    origin.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendor")


def link(target: str) -> Callable[[Origin], None]:
    return lambda origin: (origin.tree / "notes.txt").symlink_to(target)


def circle(origin: Origin) -> None:
    text = GOOD.replace("jobs:\n", "  x: {path: x.csv, format: csv}\n  y: {path: y.csv, format: csv}\njobs:\n")
    for name, reads, writes in ("axy", "byx"):
        job = f"  {name}: {{script: jobs/{name}.sh, inputs: [{reads}], outputs: [{writes}]}}\n"
        text = text.replace("pipelines:", f"{job}pipelines:")
        origin.write(f"jobs/{name}.sh", "#!/bin/bash\n", executable=True)
    origin.write("project.yml", text)


DEFECTS = [
    Defect("no project.yml", lambda origin: origin.remove("project.yml"), "there is no project.yml"),
    Defect("no YAML", lambda origin: origin.write("project.yml", "name: [Shop\n"), "not valid YAML"),
    Defect("an unknown key", yml("datasets:", "dataset:"), "dataset: unknown key"),
    Defect("another name", yml("name: Shop", "name: Store"), "the project's name has become 'store'"),
    Defect("another environment", yml("{dev: {root: ./data}}", "{prod: {root: ./data}}"), "no environment 'dev'"),
    Defect("an unknown dataset", yml("inputs: [orders]", "inputs: [ordres]"), "did you mean 'orders'"),
    Defect("a source that is not there", yml("sources: [orders]", "sources: [customers]"), "customers.csv is not"),
    Defect("a script that is not there", lambda origin: origin.remove("jobs/sum_up.sh"), "no script jobs/sum_up.sh"),
    Defect("a script nobody may run", lambda origin: origin.write("jobs/sum_up.sh", "#!/bin/bash\n"), "not executable"),
    Defect("no transformation", yml("transformations: []", "transformations: [keep]"), "there is no transformation"),
    Defect("a transformation that is no Python", with_transformation("def run(df:\n"), "is no Python",
           "pipelines/cleaned/keep.py"),
    Defect("a transformation without run", with_transformation(PANDAS % 1), "no function `run`",
           "pipelines/cleaned/keep.py"),
    Defect("two makers of a dataset", yml("destination: clean", "destination: totals"), "is produced by both"),
    Defect("a job that reads what it writes", yml("inputs: [orders]", "inputs: [totals]"), "it reads what it writes"),
    Defect("a circle", circle, "wait for each other"),
    Defect("one place for two datasets", yml("path: clean,", "path: totals,"), "the same place"),
    Defect("a path that leads out", yml("path: clean,", "path: ../../clean,"), "below the environment's root"),
    Defect("partitions that are none", yml("shards: 1..3", "shards: three"), "'three' is not a range"),
    Defect("an unknown format", yml("format: parquet", "format: xls"), "not 'xls'"),
    Defect("a dataset of another project that is not there", yml("inputs: [orders]", "inputs: [orders, other.bills]"),
           "no dataset other.bills"),
    Defect("what another project makes", yml("outputs: [totals]", "outputs: [totals, other.invoices]"),
           "writes datasets of its own project"),
    Defect("a limit that another project has", yml("warehouse: 2", "bank: 2"), "project other has declared 1"),
    Defect("a variable that is not set", yml("./data", "'${NO_SUCH_ROOT}'"), "NO_SUCH_ROOT is not set"),
    Defect("a submodule", submodule, "is a submodule", "vendor"),
    Defect("a link out of the project", link("/etc/passwd"), "leads out of the project", "notes.txt"),
    Defect("a pointer of Git LFS", lambda origin: origin.write(
        "data/orders/2.csv", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
        "pointer of Git LFS", "data/orders/2.csv"),
    Defect("our own folder", lambda origin: origin.write(".dataflow/address.json", "{}"), "its own records",
           ".dataflow"),
    Defect("a unit test that fails", with_transformation(PANDAS % 2 + RUN), "its unit test failed",
           "pipelines/cleaned/keep.py"),
    Defect("a library that is not here", with_transformation("import no_such_library\n" + PANDAS % 1 + RUN),
           "No module named 'no_such_library'", "pipelines/cleaned/keep.py"),
]  # fmt: skip


class World(NamedTuple):
    ops: Project
    origin: Origin
    good: str
    env: dict[str, str]

    def dataflow(self, *argv: str) -> Any:
        return self.ops.dataflow(*argv, env=self.env)

    def shown(self) -> dict[str, Any]:
        return dict(self.ops.json("project", "show", "shop", env=self.env))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A store with two projects, one of them from git, and running."""
    folder = tmp_path_factory.mktemp("bad")
    ops = Project(folder / "ops", f"sqlite:///{folder / 'state' / 'state.db'}")
    other = Project(folder / "other", ops.store)
    other.script("bill.sh", "true")
    other.apply(OTHER)
    origin = Origin(folder / "origin")
    origin.write("project.yml", GOOD)
    origin.write("jobs/sum_up.sh", "#!/bin/bash\nmkdir -p data\necho $dataid > $totals_location\n", executable=True)
    for number in (1, 2, 3):
        origin.write(f"data/orders/{number}.csv", f"a\n{number}\n")
    good = origin.push("good")
    env = {"DATAFLOW_HOME": str(folder / "work")}
    done = ops.dataflow("project", "add", origin.url, env=env)
    assert done.returncode == 0, done.stderr + done.stdout
    return World(ops, origin, good, env)


def fingerprint(world: World) -> str:
    """Everything that is registered, and every file of the version in place and of its data."""
    rows: list[Any] = []
    for table in ("project", "dataset", "job", "job_dataset", "job_status", "connection_limit", "git_version"):
        rows += sorted(map(repr, world.ops.sql(f"SELECT * FROM {table}")))
    home = Path(world.ops.sql("SELECT home FROM project WHERE project = 'shop'")[0][0])
    assert home.name == world.good
    for top in (home, home.parent / "shared"):
        rows += sorted((str(path), path.read_bytes()) for path in top.rglob("*") if path.is_file())
    return hashlib.sha256(repr(rows).encode()).hexdigest()


@pytest.fixture
def branch(world: World) -> Origin:
    """The work tree as the good commit has it."""
    world.origin.git("reset", "-q", "--hard", world.good)
    world.origin.git("clean", "-q", "-fdx")
    return world.origin


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: one.name)
def test_a_bad_commit_is_refused_with_the_right_words_and_nothing_changes(
    world: World, branch: Origin, defect: Defect
) -> None:
    before = fingerprint(world)
    defect.make(branch)
    if defect.name != "a submodule":
        branch.git("add", "-A", "-f")
    branch.git("commit", "-q", "-m", defect.name)
    bad = branch.git("rev-parse", "HEAD").strip()
    branch.git("push", "-q", "-f", "origin", "HEAD:main")
    done = world.dataflow("project", "pull", "shop")
    assert done.returncode == 1, done.stdout + done.stderr
    assert fingerprint(world) == before
    assert f"{world.good[:12]} stays in place" in done.stderr
    shown = world.shown()
    assert (shown["commit"], shown["refused_commit"]) == (world.good, bad)
    errors = [one for one in shown["problems"] if one["severity"] == "error"]
    fitting = [one for one in errors if defect.words in f"{one['message']} {one['next_step']}"]
    assert fitting, errors
    assert fitting[0]["file"] == defect.file
    assert fitting[0]["next_step"]
    for one in errors:
        assert one["message"] in done.stdout, "all that is wrong is told"
    left = Path(world.ops.sql("SELECT folder FROM git_project")[0][0])
    assert bad not in {path.name for path in left.iterdir()}, "nothing of it stays"


def test_every_error_of_a_commit_is_told_at_once(world: World, branch: Origin) -> None:
    before = fingerprint(world)
    text = GOOD.replace("inputs: [orders]", "inputs: [orders, other.bills]").replace("warehouse", "bank")
    branch.write("project.yml", text.replace("transformations: []", "transformations: [keep, drop]"))
    branch.write("pipelines/cleaned/keep.py", PANDAS % 2 + RUN)
    branch.write("jobs/sum_up.sh", "#!/bin/bash\n")
    (branch.tree / "notes.txt").symlink_to("../../outside")
    branch.push("many")
    assert world.dataflow("project", "pull", "shop").returncode == 1
    told = [f"{one['file']}: {one['message']}" for one in world.shown()["problems"]]
    for words in ("notes.txt: is a link", "is not executable", "no transformation pipelines/cleaned/drop.py",
                  "no dataset other.bills", "keep.py: its unit test failed"):  # fmt: skip
        assert any(words in one for one in told), told
    assert fingerprint(world) == before


def test_the_next_good_commit_is_put_in_place_and_nothing_is_refused_any_more(world: World, branch: Origin) -> None:
    branch.write("project.yml", GOOD.replace("[orders], outputs", "[ordres], outputs"))
    branch.push("bad")
    assert world.dataflow("project", "pull", "shop").returncode == 1
    assert world.shown()["refused_commit"]
    branch.write("project.yml", GOOD)
    better = branch.push("better")
    assert world.dataflow("project", "pull", "shop").returncode == 0
    shown = world.shown()
    assert (shown["commit"], shown["refused_commit"], shown["problems"]) == (better, None, [])
    done = world.dataflow("project", "rollback", "shop", world.good)
    assert done.returncode == 0, done.stderr


def test_a_first_commit_that_is_bad_is_kept_waiting_for_a_better_one(tmp_path: Path) -> None:
    ops = Project(tmp_path / "ops", f"sqlite:///{tmp_path / 'state' / 'state.db'}")
    env = {"DATAFLOW_HOME": str(tmp_path / "work")}
    origin = Origin(tmp_path / "origin")
    origin.write("project.yml", GOOD)
    origin.push("no script")
    done = ops.dataflow("project", "add", origin.url, env=env)
    assert done.returncode == 1
    assert "no version of it is in place" in done.stderr
    assert ops.sql("SELECT count(*) FROM job")[0][0] == 0
    origin.write("jobs/sum_up.sh", "#!/bin/bash\n", executable=True)
    origin.push("with the script")
    assert ops.dataflow("project", "pull", "shop", env=env).returncode == 0
    assert ops.sql("SELECT count(*) FROM job")[0][0] == 2
    broken = Origin(tmp_path / "broken")
    broken.write("README", "nothing else")
    broken.push()
    refused = ops.dataflow("project", "add", broken.url, env=env)
    assert refused.returncode == 1
    assert "there is no project.yml" in refused.stdout
    assert "nothing was added" in refused.stderr
