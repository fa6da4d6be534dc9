"""Snippets of pages that are no commands in an empty folder: they apply, run and answer as they stand."""

import datetime
import re
from pathlib import Path

from support.people import Person
from support.projects import Project
from support.typed import follow_page
from support.web import Site

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = {path: path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]}


def test_the_readmes_nightly_cycle_runs_as_it_is_written(sqlite_project: Project) -> None:
    section = README[README.index("## A nightly cycle") : README.index("## Pipelines on Spark")]
    text, commands = re.findall(r"```(?:yaml|bash)\n(.*?)```", section, flags=re.DOTALL)
    sqlite_project.apply(text)
    for name, made in (("load", "warehouse"), ("weekly", "report"), ("ping", "pings")):
        sqlite_project.script(f"jobs/{name}.sh", f'echo "$dataid" > "${made}_location"')
    yesterday = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1)
    sqlite_project.write(f"data/flights/{yesterday}.csv", f"carrier,time_hour\nLH,{yesterday} 10:00:00\n")
    sqlite_project.write(f"data/flights/{yesterday}.done", "")
    done = sqlite_project.dataflow("tick")
    assert done.returncode == 0, done.stderr
    assert sqlite_project.statuses("load")[str(yesterday)] == "COMPLETE"
    assert (sqlite_project.folder / f"data/warehouse/{yesterday}.csv").read_text() == f"{yesterday}\n"
    for command in commands.splitlines():
        for one in command.partition("#")[0].split(";"):
            argv = one.split()[1:]
            assert sqlite_project.dataflow(*argv).returncode == 0, one


def test_a_script_reads_a_window_as_the_page_says(sqlite_project: Project) -> None:
    page = (ROOT / "docs/reference/environment-variables.md").read_text()
    (script,) = re.findall(r"```bash\n(#!.*?)```", page, flags=re.DOTALL)
    sqlite_project.apply(
        "name: Week\nenvironments: {dev: {root: data}}\n"
        "datasets:\n"
        '  orders: {path: "orders/{dataid}.csv", partitions: {daily: 2025-11-01..2025-11-09}}\n'
        '  totals: {path: "totals/{dataid}.txt", partitions: {daily: 2025-11-01..2025-11-09}}\n'
        "jobs:\n  week: {script: week.sh, inputs: [{orders: {map: {window: 7}}}], outputs: [totals]}\n"
    )
    sqlite_project.write("week.sh", script).chmod(0o755)
    for day in range(1, 10):
        sqlite_project.write(f"data/orders/2025-11-0{day}.csv", "x\n" * day)
    assert sqlite_project.dataflow("ready", "orders", "2025-11-01..2025-11-09").returncode == 0
    done = sqlite_project.dataflow("run", "week", "--drain")
    assert done.returncode == 0, done.stderr
    totals = sqlite_project.folder / "data/totals"
    assert (totals / "2025-11-09.txt").read_text().splitlines() == [f"2025-11-0{day} {day}" for day in range(3, 10)]


def test_the_api_is_called_as_the_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs/reference/http-api.md").read_text()
    opening = page[: page.index("`GET /v1/actions` lists")]
    project = Project(tmp_path / "project", f"sqlite:///{tmp_path / 'state.db'}")
    project.apply(
        "name: shop\nenvironments: {dev: {root: data}}\n"
        'datasets: {sums: {path: "sums/{dataid}.txt", partitions: {daily: 2025-11-01..2025-11-02}}}\n'
        "jobs: {load: {script: load.sh, outputs: [sums]}}\n"
    )
    project.script("load.sh", "touch $sums_location")
    assert project.dataflow("run", "load").returncode == 0
    with Site(project) as server:
        assert Person(server.url).choose(server.said["admin_link"]).status == 303
        follow_page(opening.replace("http://127.0.0.1:8321", server.url), project.folder, project.env())
        assert server.stop() == (0, ""), "no error was logged"
    assert project.statuses("load")["2025-11-01"] == "RESUBMIT"


def test_no_page_installs_from_a_registry_what_is_not_there() -> None:
    """OpenDataFlow is installed from a checkout or a git address; an extra may then be added by its name."""
    wrong = [
        f"{path.name}: {line.strip()}"
        for path, text in PAGES.items()
        for line in text.splitlines()
        if re.search(r"pip install (--upgrade )?['\"]?opendataflow(?!(\[[a-z,]+\])? @ git\+)", line)
        and not line.startswith("dataflow: ")  # what a command prints where OpenDataFlow is installed
    ]
    assert wrong == []
