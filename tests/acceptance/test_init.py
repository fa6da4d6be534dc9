"""`dataflow init` and `dataflow check-project`: from nothing to a registered project."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.projects import Project


@pytest.mark.parametrize("options", [(), ("--engine", "pandas"), ("--name", 'Shop "feed": €')])
def test_a_new_project_is_right_and_can_be_registered(sqlite_project: Project, options: tuple[str, ...]) -> None:
    made = sqlite_project.dataflow("init", "shop", *options)
    assert made.returncode == 0, made.stderr
    assert "`dataflow apply`" in made.stderr
    assert "`dataflow run revenue`" in made.stderr
    shop = sqlite_project.folder / "shop"
    assert sorted(made.stdout.splitlines()) == sorted(
        f"shop/{path.relative_to(shop)}" for path in shop.rglob("*") if path.is_file()
    )
    checked = sqlite_project.dataflow("check-project", cwd=shop)
    assert (checked.returncode, checked.stdout) == (0, "")
    assert checked.stderr == f"0 errors, 0 warnings in {shop}\n"
    applied = sqlite_project.dataflow("apply", cwd=shop)
    assert applied.returncode == 0, applied.stderr
    assert "+ job revenue" in applied.stdout
    assert sqlite_project.dataflow("apply", cwd=shop).stdout == ""


def test_a_new_project_has_the_name_and_engine_that_were_given(sqlite_project: Project) -> None:
    sqlite_project.dataflow("init", "shop", "--name", "Shop feed", "--engine", "pandas")
    shop = sqlite_project.folder / "shop"
    written = yaml.safe_load((shop / "project.yml").read_text())
    assert (written["name"], written["pipelines"][0]["engine"]) == ("Shop feed", "pandas")
    code = [path.read_text() for path in (shop / "pipelines").rglob("*.py")]
    assert len(code) == 2
    assert all("import pandas" in one and "pyspark" not in one for one in code)
    assert (shop / "README.md").read_text().startswith("# Shop feed\n")


def test_a_folder_with_files_is_refused_and_nothing_is_written(sqlite_project: Project) -> None:
    sqlite_project.write("shop/mine.txt", "x")
    done = sqlite_project.dataflow("init", "shop")
    assert done.returncode == 2
    assert "holds files already (mine.txt)" in done.stderr
    assert [path.name for path in (sqlite_project.folder / "shop").iterdir()] == ["mine.txt"]
    assert sqlite_project.dataflow("init", "shop/mine.txt").returncode == 2


def test_a_new_repository_and_this_very_folder_are_fine(sqlite_project: Project) -> None:
    sqlite_project.write(".git/HEAD", "ref: refs/heads/main\n")
    assert sqlite_project.dataflow("init", ".").returncode == 0
    assert sqlite_project.dataflow("check-project").returncode == 0


@pytest.mark.parametrize("options", [("--engine", "duckdb"), ("--name", "a\nb"), ("--name", "x" * 201)])
def test_an_option_that_cannot_be_makes_nothing(sqlite_project: Project, options: tuple[str, ...]) -> None:
    done = sqlite_project.dataflow("init", "shop", *options)
    assert done.returncode == 2
    assert "internal error" not in done.stderr
    assert not (sqlite_project.folder / "shop").exists()


def test_a_folder_that_cannot_be_made_is_told(sqlite_project: Project) -> None:
    sqlite_project.write("file", "")
    done = sqlite_project.dataflow("init", "file/shop")
    assert done.returncode == 2
    assert "Not a directory" in done.stderr


def test_the_workflow_checks_and_validates(sqlite_project: Project) -> None:
    sqlite_project.dataflow("init", "shop")
    workflow = yaml.safe_load((sqlite_project.folder / "shop/.github/workflows/ci.yml").read_text())
    commands = [step.get("run") for step in workflow["jobs"]["check"]["steps"]]
    assert commands[-2:] == ["dataflow check-project", "dataflow validate"]
    assert workflow["permissions"] == {"contents": "read"}
    used = [step["uses"] for step in workflow["jobs"]["check"]["steps"] if "uses" in step]
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", one)] == [], "a tag can be moved"


def test_the_projects_own_test_finds_what_is_wrong(sqlite_project: Project) -> None:
    sqlite_project.dataflow("init", "shop")
    shop = sqlite_project.folder / "shop"

    def tested() -> subprocess.CompletedProcess[str]:
        return sqlite_project.run(
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "check", cwd=shop
        )

    assert tested().returncode == 0, tested().stdout
    (shop / "sources" / "orders.csv").unlink()
    done = tested()
    assert done.returncode == 1
    assert "sources/orders.csv is not there" in done.stdout


# check-project --------------------------------------------------------------------------------------------------------
def test_what_is_wrong_is_listed_with_file_line_and_next_step(sqlite_project: Project) -> None:
    sqlite_project.dataflow("init", "shop")
    shop = sqlite_project.folder / "shop"
    text = (shop / "project.yml").read_text()
    (shop / "project.yml").write_text(text.replace("[drop_cancelled,", "[drop_canceled,").replace("engine:", "engin:"))
    done = sqlite_project.dataflow("check-project", "shop")
    assert done.returncode == 2
    assert done.stdout.splitlines() == [
        "error: project.yml:10: there is no transformation pipelines/revenue/drop_canceled.py",
        "    did you mean 'drop_cancelled'?",
        "error: project.yml:11: pipelines.0.engin: unknown key",
        "    did you mean `engine`?",
        "warning: pipelines/revenue/drop_cancelled.py:1: is never used: its pipeline does not name it",
        "    add it to project.yml, or delete it; `_drop_cancelled.py` would be left alone",
    ]
    assert done.stderr == f"2 errors, 1 warning in {shop}\n"
    told = json.loads(sqlite_project.dataflow("check-project", "shop", "--json").stdout)
    assert (told["errors"], told["warnings"]) == (2, 1)
    assert told["problems"][0] == {
        "severity": "error",
        "file": "project.yml",
        "line": 10,
        "message": "there is no transformation pipelines/revenue/drop_canceled.py",
        "next_step": "did you mean 'drop_cancelled'?",
    }


def test_no_store_is_opened_or_made(sqlite_project: Project) -> None:
    sqlite_project.dataflow("init", "shop")
    shop = sqlite_project.folder / "shop"
    done = sqlite_project.dataflow("check-project", cwd=shop, env={"DATAFLOW_STORE": "postgresql://nowhere.invalid/x"})
    assert done.returncode == 0, done.stderr
    assert not (shop / ".dataflow").exists()


def test_it_is_found_from_a_folder_below_and_missed_elsewhere(sqlite_project: Project, tmp_path: Path) -> None:
    sqlite_project.dataflow("init", "shop")
    below = sqlite_project.folder / "shop" / "pipelines"
    assert sqlite_project.dataflow("check-project", cwd=below).returncode == 0
    done = sqlite_project.dataflow("check-project")
    assert done.returncode == 2
    assert "`dataflow init DIR` makes a project" in done.stderr
    assert sqlite_project.dataflow("check-project", "pipelines").returncode == 2
