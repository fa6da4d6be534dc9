"""The package outside the checkout: what is in it, what it needs, and what it says when an extra is missing.

The installation is a real one, in a virtual environment of its own, with what `pip install opendataflow` brings and
nothing else: no pyspark, pyarrow, pandas, psycopg or web framework, and no Java on the path.
"""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from opendataflow import __version__
from opendataflow.extras import EXTRAS
from support.projects import Project

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"[A-Za-z0-9._-]+")
PROJECT = """\
name: Feed
environments: {dev: {root: ./data}}
datasets:
  orders: {path: "orders/{dataid}.csv", format: csv, partitions: {daily: 2025-11-01..2025-11-30}}
  totals: {path: "totals/{dataid}.txt"}
jobs:
  count: {inputs: [orders], outputs: [totals]}
"""


class Installed(Project):
    """A project whose commands are those of the installation."""

    def __init__(self, folder: Path, venv: Path) -> None:
        super().__init__(folder, f"sqlite:///{folder}/state.db")
        self.bin = venv / "bin"

    def env(self, **extra: str) -> dict[str, str]:
        kept = {name: value for name, value in super().env().items() if not name.startswith(("PYTHON", "JAVA"))}
        return {**kept, "PATH": f"{self.bin}:{self.bin.parent}/tools", **extra}

    def call(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.bin / argv[0], *argv[1:], env=env)

    def statuses_by_command(self, jobid: str) -> dict[str, str]:
        told = json.loads(self.call("dataflow", "status", jobid, "--json").stdout)
        return {one["dataid"]: one["status"] for one in told}


# The files ------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that is made of the sdist."""
    folder = tmp_path_factory.mktemp("built")
    build(ROOT, "sdist", folder)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder / "unpacked")  # noqa: S202  our own
    build(folder / f"unpacked/opendataflow-{__version__}", "wheel", folder)
    return folder


def build(source: Path, target: str, folder: Path) -> None:
    argv = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    done = subprocess.run(argv, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def wheel_of(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_wheel_holds_everything_that_is_no_bytecode(built: Path) -> None:
    source = ROOT / "src"
    wanted = {
        str(file.relative_to(source))
        for file in (source / "opendataflow").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    with zipfile.ZipFile(wheel_of(built)) as wheel:
        held = {name for name in wheel.namelist() if name.startswith("opendataflow/")}
    assert held == wanted
    assert "opendataflow/py.typed" in held
    for folder in ("store/sql/sqlite/migrations", "server/templates", "server/static"):
        assert any(folder in name for name in held), folder


def test_version_and_extras_are_in_the_metadata(built: Path) -> None:
    with zipfile.ZipFile(wheel_of(built)) as wheel:
        told = email.message_from_bytes(wheel.read(f"opendataflow-{__version__}.dist-info/METADATA"))
    extras = set(told.get_all("Provides-Extra") or [])
    assert told["Version"] == __version__
    assert {"postgres", "bigquery", "kafka", "server", "alerts", "connect", "spark", "files", "all"} == extras
    assert {extra for extra, _ in EXTRAS.values()} == extras - {"all"}
    needs: dict[str, set[str]] = {}
    for line in told.get_all("Requires-Dist") or []:
        name, _, marker = line.partition(";")
        extra = re.search(r"extra == '(\w+)'", marker)
        needs.setdefault(extra[1] if extra else "", set()).add(name.strip())
    assert needs["all"] == {name for extra, names in needs.items() if extra not in ("", "all") for name in names}
    assert not {"pyspark", "pandas", "pyarrow", "psycopg"} & {re.split(r"[<>=\[]", name)[0] for name in needs[""]}


def test_the_version_stands_in_one_place() -> None:
    files = [ROOT / "pyproject.toml", *(ROOT / "src").rglob("*.py")]
    assert [file.name for file in files if f'"{__version__}"' in file.read_text()] == ["__init__.py"]
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


# The installation -----------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def venv(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and what it requires, and a path with bash's tools but no Java."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-index", "--disable-pip-version-check", str(wheel_of(built))], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (installed,) = metadata.distributions(path=[str(site)])
    for name in needed_by(installed):
        link_files(metadata.distribution(name), site)
    tools = folder / "tools"
    tools.mkdir()
    for tool in ("bash", "cat", "env", "sh", "wc"):
        (tools / tool).symlink_to(shutil.which(tool) or "")
    return folder


def needed_by(installed: metadata.Distribution) -> set[str]:
    """The names of all distributions that this one needs without any extra."""
    found: set[str] = set()
    waiting = [installed]
    while waiting:
        for line in waiting.pop().requires or []:
            requirement, _, marker = line.partition(";")
            name = NAME.match(requirement)
            if name is None or name[0] in found or "extra ==" in marker:
                continue
            try:
                waiting.append(metadata.distribution(name[0]))
            except metadata.PackageNotFoundError:  # for another system or Python
                assert marker, f"{line} is needed and not installed"
                continue
            found.add(name[0])
    return found


def link_files(one: metadata.Distribution, site: Path) -> None:
    tops = {file.parts[0] for file in one.files or [] if file.parts[0] not in ("..", "__pycache__")}
    for top in tops:
        if not (site / top).exists():
            (site / top).symlink_to(str(one.locate_file(top)))


@pytest.fixture
def outside(venv: Path, tmp_path: Path) -> Installed:
    return Installed(tmp_path / "elsewhere", venv)


def test_a_script_runs_with_what_pip_brings_and_without_java(outside: Installed) -> None:
    outside.write("project.yml", PROJECT)
    outside.script("count.sh", 'wc -l < "$orders_location" > "$totals_location"')
    outside.write("data/orders/2025-11-01.csv", "a\nb\n")
    for command in (["apply"], ["ready", "orders", "2025-11-01"], ["doctor"], ["status"]):
        done = outside.call("dataflow", *command)
        assert done.returncode == 0, done.stdout + done.stderr
    assert outside.call("RunJob", "./count.sh").returncode == 0
    assert outside.call("RunJob", "./count.sh").returncode == 10
    assert (outside.folder / "data/totals/2025-11-01.txt").read_text().strip() == "2"
    assert "COMPLETE" in outside.call("dataflow", "why", "count", "2025-11-01").stdout
    shown = outside.call("dataflow", "preview", "orders", "2025-11-01")
    assert (shown.returncode, "pip install 'opendataflow[files]'" in shown.stderr) == (2, True), shown.stderr


def test_it_is_a_module_and_typed_and_comes_from_the_wheel(outside: Installed) -> None:
    assert outside.call("python", "-m", "opendataflow", "--version").stdout == f"dataflow {__version__}\n"
    assert outside.call("RunJob", "--version").stdout == f"RunJob {__version__}\n"
    code = "import opendataflow, pathlib; print(pathlib.Path(opendataflow.__file__).with_name('py.typed').is_file())"
    assert outside.call("python", "-c", code).stdout == "True\n"
    where = outside.call("python", "-c", "import opendataflow; print(opendataflow.__file__)").stdout
    assert str(ROOT) not in where


def test_a_missing_extra_is_told_with_the_command_that_installs_it(outside: Installed) -> None:
    assert outside.call("dataflow", "init", "shop").returncode == 0
    os.rename(outside.folder / "shop/project.yml", outside.folder / "project.yml")
    for name in ("sources", "pipelines"):
        os.rename(outside.folder / "shop" / name, outside.folder / name)
    assert outside.call("dataflow", "apply").returncode == 0
    assert outside.call("dataflow", "check-project").returncode == 0
    asked = {
        ("run", "revenue"): "spark",
        ("validate",): "spark",
        ("prepare-spark",): "spark",
        ("serve",): "server",
    }
    for command, extra in asked.items():
        done = outside.call("dataflow", *command)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert f"pip install 'opendataflow[{extra}]'" in done.stderr, command
        assert "Traceback" not in done.stderr
    assert outside.statuses_by_command("revenue") == {"full": "PENDING"}
    doctor = outside.call("dataflow", "doctor")
    assert doctor.returncode == 1
    assert "pip install 'opendataflow[spark]'" in doctor.stdout
    done = outside.call("dataflow", "status", DATAFLOW_STORE="postgresql://localhost/none")
    assert (done.returncode, "pip install 'opendataflow[postgres]'" in done.stderr) == (2, True), done.stderr


def test_checks_of_rows_say_what_they_need_before_anything_is_claimed(outside: Installed) -> None:
    outside.write("project.yml", PROJECT.replace('txt"}', 'txt", format: text, checks: [{rows: {min: 1}}]}'))
    outside.script("count.sh", 'wc -l < "$orders_location" > "$totals_location"')
    outside.write("data/orders/2025-11-01.csv", "a\nb\n")
    assert outside.call("dataflow", "apply").returncode == 0
    assert outside.call("dataflow", "ready", "orders", "2025-11-01").returncode == 0
    done = outside.call("RunJob", "./count.sh")
    assert done.returncode == 2
    assert "pip install 'opendataflow[files]'" in done.stderr
    assert outside.statuses_by_command("count")["2025-11-01"] == "PENDING"
