"""The tutorial and the how-tos, typed line by line in an empty folder: commands end and print as their page says."""

import ast
import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer

from opendataflow.cli.main import app
from support.postgres import Server
from support.projects import BIN, Project
from support.typed import follow_page, run_commands, steps_of, told_code

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EVERY_FAULT = "DATAFLOW_EVERY_FAULT" in os.environ
# Pages with commands for a system that runs already; where those commands are tested.
SHOWN_ONLY = {
    "how-to/accounts.md": "tests/server/test_accounts.py",
    "how-to/alerts.md": "tests/acceptance/test_alerts.py",
    "how-to/chaos.md": "tests/faults/test_chaos.py",
    "how-to/cluster.md": "tests/spark/test_clusters.py",
    "how-to/send-items.md": "tests/acceptance/test_stream_commands.py",
    "how-to/streams.md": "tests/acceptance/test_stream_commands.py",
    "how-to/workers.md": "tests/scheduling/test_worker.py",
}
SHARDS = 40 if "DATAFLOW_EVERY_FAULT" in os.environ else 12  # instead of 10,000; `make faults`: 40


def page(name: str) -> str:
    return (DOCS / name).read_text()


def type_page(text: str, folder: Path, **extra: str) -> list[tuple[int, str]]:
    folder.mkdir(exist_ok=True)
    env = Project(folder, "").env()
    del env["DATAFLOW_STORE"]  # the one that the page makes
    return follow_page(text, folder, env | extra)


# Without Spark --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["install", "wrap-a-cron-script", "secrets", "move-or-copy"])
def test_the_how_to_does_what_it_says(name: str, tmp_path: Path) -> None:
    assert type_page(page(f"how-to/{name}.md"), tmp_path)


def test_the_shards_are_migrated_once_each(tmp_path: Path) -> None:
    text = page("how-to/migrate-shards.md").replace("00001..10000", f"00001..{SHARDS:05}").replace("10000", str(SHARDS))
    type_page(text, tmp_path)
    assert len(list((tmp_path / "data/copied").iterdir())) == SHARDS


def test_the_upgrade_finds_nothing_to_do_in_a_new_project(sqlite_project: Project) -> None:
    assert sqlite_project.dataflow("init", "shop").returncode == 0
    shop = sqlite_project.folder / "shop"
    assert sqlite_project.dataflow("apply", cwd=shop).returncode == 0
    (upgrade, *_, _schema) = steps_of(page("how-to/upgrade.md"))[0].commands
    results = run_commands(steps_of(page("how-to/upgrade.md"))[0].commands, shop, sqlite_project.env())
    assert upgrade == "dataflow db upgrade"
    assert [code for code, _ in results] == [0, 0, 0, 0], results
    assert results[0][1] == "the schema is up to date\n"


def before_spark(name: str, heading: str) -> str:
    """The page, or of it what needs no Spark; all of it in `make faults`."""
    text = page(name)
    return text if EVERY_FAULT else text[: text.index(heading)]


def test_the_tutorial_goes_from_an_empty_folder_to_a_healed_outage(tmp_path: Path) -> None:
    """With Spark, whose start takes longer than all the rest, in `make faults`."""
    type_page(before_spark("tutorial.md", "## 8. A pipeline on Spark"), tmp_path)
    shop = Project(tmp_path / "shop", f"sqlite:///{tmp_path}/shop/.dataflow/state.db")
    for job in ("add_up", "tell"):
        assert set(shop.statuses(job).values()) == {"COMPLETE"}
    assert len(list((tmp_path / "shop/data/report").iterdir())) == 7


def test_a_pandas_project_moves_to_spark(tmp_path: Path) -> None:
    """The last validation, which starts a Spark, in `make faults`."""
    text = page("how-to/pandas-to-spark.md")
    if not EVERY_FAULT:
        first, heading, rest = text.partition("## 2.")
        rest = rest.replace("dataflow validate\n", "", 1)
        text = first + heading + re.sub(r"^revenue\..*\n|^all 2 transformations.*\n", "", rest, flags=re.MULTILINE)
    type_page(text, tmp_path)
    assert "engine: spark" in (tmp_path / "shop/project.yml").read_text()


def test_a_project_of_breathecode_is_taken_as_it_is(tmp_path: Path) -> None:
    assert type_page(page("how-to/from-breathecode.md"), tmp_path)


# The original ---------------------------------------------------------------------------------------------------------
ORIGINAL = """
CREATE SCHEMA dataflow;
CREATE TABLE dataflow.dataset (datasetid varchar, hostname varchar, database varchar, schemaname varchar,
    tablename varchar, username varchar, encryptedpass varchar);
CREATE TABLE dataflow.job (jobid varchar, itemtype varchar, datasetid varchar, itemvalue varchar, modified timestamp);
CREATE TABLE dataflow.datastatus (datasetid varchar, jobid varchar, dataid varchar, locktype varchar, status varchar,
    modified timestamp, PRIMARY KEY (datasetid, jobid, dataid));
INSERT INTO dataflow.dataset (datasetid, hostname) VALUES ('orders', 'db1'), ('clean', 'db1');
INSERT INTO dataflow.job VALUES ('clean_up', 'IN', 'orders', NULL, now()), ('clean_up', 'OUT', 'clean', NULL, now());
INSERT INTO dataflow.datastatus VALUES
    ('orders', 'feed', '1.0', 'OUT', 'READY', now()), ('orders', 'feed', '2.0', 'OUT', 'READY', now()),
    ('clean', 'clean_up', '1.0', 'OUT', 'READY', now()), ('clean', 'clean_up', '2.0', 'OUT', 'FAILED', now());
"""


def test_the_original_is_moved(postgres_server: Server, tmp_path: Path) -> None:
    url = postgres_server.new_database().replace("postgres:@", "postgres@")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(ORIGINAL)
    type_page(page("how-to/from-opendataflow.md"), tmp_path, ORIGINAL=url)
    moved = Project(tmp_path, f"sqlite:///{tmp_path}/.dataflow/state.db")
    assert moved.statuses("clean_up") == {"1.0": "COMPLETE", "2.0": "PENDING"}


# Schedulers -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def feed(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The project of the page, with its jobs, where /srv/feed would be; and every file of the page in it."""
    folder = tmp_path / "feed"
    project = Project(folder, "")
    project.write(
        "project.yml",
        "name: Feed\nenvironments: {prod: {root: ./data}}\n"
        "datasets: {a: {path: 'a/{dataid}', partitions: {values: [x]}}, b: {path: 'b/{dataid}'}}\n"
        "jobs:\n  load: {script: jobs/load.sh, outputs: [a]}\n"
        "  report: {script: jobs/report.sh, inputs: [a], outputs: [b]}\n",
    )
    project.script("jobs/load.sh", 'echo loaded > "$a_location"')
    project.script("jobs/report.sh", 'cp "$a_location" "$b_location"')
    (folder / ".venv").symlink_to(BIN.parent)
    env = project.env()
    del env["DATAFLOW_STORE"]
    assert subprocess.run([BIN / "dataflow", "apply"], cwd=folder, env=env, capture_output=True).returncode == 0
    text = page("how-to/schedulers.md").replace("/srv/feed", str(folder))
    for step in steps_of(text):
        run_commands(step.commands, folder, env)
    return folder, env


def test_the_lines_of_the_crontab_run_as_cron_would_run_them(feed: tuple[Path, dict[str, str]]) -> None:
    folder, _ = feed
    setting, *lines = (folder / "crontab.txt").read_text().splitlines()
    name, _, value = setting.partition("=")
    for line in lines:
        times, command = re.match(r"((?:\S+ ){5})(.*)", line).groups()  # type: ignore[union-attr]
        assert re.fullmatch(r"(?:[\d*/,-]+ ){5}", times)
        env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", name: value}  # all that cron gives
        assert subprocess.run(["/bin/sh", "-c", command], cwd="/", env=env).returncode == 0, line
    assert (folder / "data/b/x").read_text() == "loaded\n"
    assert "2 runs, none failed" in (folder / ".dataflow/tick.log").read_text()


def test_systemd_finds_nothing_wrong_with_the_units(feed: tuple[Path, dict[str, str]]) -> None:
    folder, _ = feed
    units = sorted(folder.glob("dataflow-*.service")) + sorted(folder.glob("*.timer"))
    assert len(units) == 3
    for unit in units:
        sections = re.findall(r"^\[(\w+)\]$", unit.read_text(), flags=re.MULTILINE)
        assert sections[0] == "Unit"
        for line in unit.read_text().splitlines():
            assert re.fullmatch(r"\[\w+\]|#.*|[A-Z]\w+=\S.*|", line), line
        if started := re.search(r"^ExecStart=(\S+) (.*)$", unit.read_text(), flags=re.MULTILINE):
            assert os.access(started[1], os.X_OK)
            asked = subprocess.run([started[1], started[2].split()[0], "--help"], capture_output=True, text=True)
            for option in re.findall(r"--\w+", started[2]):
                assert option in asked.stdout
        unit.write_text(unit.read_text().replace("User=dataflow\n", ""))  # who is not on this machine
    if shutil.which("systemd-analyze"):
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
        said = [line for line in done.stderr.splitlines() if str(folder) in line or "dataflow-" in line]
        assert said == []


MADE: "list[FakeOperator]" = []


class FakeOperator:
    """As much of Airflow's BashOperator as the page uses; Airflow itself is not installed for the tests."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        MADE.append(self)

    def __rshift__(self, other: "FakeOperator") -> "FakeOperator":
        self.settings["before"] = other.settings["task_id"]
        return other


class FakeDag:
    def __init__(self, **settings: Any) -> None:
        assert settings["dag_id"] == "feed"
        assert settings["catchup"] is False

    def __enter__(self) -> "FakeDag":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_the_commands_of_the_airflow_dag_run(
    feed: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = feed
    code = (folder / "dags/feed.py").read_text()
    imported = {
        name.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom) for name in node.names
    }
    assert imported == {"DAG", "BashOperator"}
    modules: dict[str, dict[str, Any]] = {
        "airflow": {"DAG": FakeDag}, "airflow.operators": {}, "airflow.operators.bash": {"BashOperator": FakeOperator},
    }  # fmt: skip
    for name, held in modules.items():
        module = types.ModuleType(name)
        vars(module).update(held)
        monkeypatch.setitem(sys.modules, name, module)
    MADE.clear()
    exec(compile(code, "feed.py", "exec"), {"__name__": "feed"})  # noqa: S102  the page's own code
    for task in MADE:
        env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", **task.settings["env"]}
        done = subprocess.run(["bash", "-c", task.settings["bash_command"]], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert task.settings["skip_on_exit_code"] == [10, 11, 12, 13, 14]
    assert [task.settings["task_id"] for task in MADE] == ["tick", "report"]
    assert (folder / "data/b/x").exists()


# All of them ----------------------------------------------------------------------------------------------------------
def test_every_page_with_commands_is_typed_here_or_its_commands_elsewhere() -> None:
    own = Path(__file__).read_text()
    for file in sorted(DOCS.rglob("*.md")):
        name = str(file.relative_to(DOCS))
        if "\n```sh\n" in file.read_text():
            assert f'"{name}"' in own or f'"{file.stem}"' in own, f"{name} has commands that no test types"
    assert all((ROOT / test).is_file() for test in SHOWN_ONLY.values())


def shown_commands() -> list[tuple[str, str]]:
    """Every line of every block that calls `dataflow`, with its page."""
    found = []
    for file in [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("examples/*/README.md"))]:
        for body in re.findall(r"^```(?:sh|bash)?\n(.*?)^```$", file.read_text(), flags=re.DOTALL | re.MULTILINE):
            for line in body.replace("\\\n", " ").splitlines():
                line = re.sub(r"\$\((?!dataflow)[^)]*\)", "…", line)  # noqa: PLW2901
                for call in re.findall(r"(?:^|[;&|(] *|\bdo )(dataflow [a-z-][^;&|)#]*)", line):
                    found.append((str(file.relative_to(ROOT)), call.strip()))
    return found


def test_every_command_that_is_shown_is_there_with_its_options() -> None:
    found = shown_commands()
    assert len(found) > 100
    wrong = [f"{file}: {call}: {said}" for file, call in found if (said := why_not(call.split()[1:]))]
    assert wrong == []


def why_not(words: list[str]) -> str:
    """Empty when the command line knows these words."""
    command: Any = typer.main.get_command(app)
    while getattr(command, "commands", None) and words and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return f"there is no command {words[0]}"
        command = command.commands[words.pop(0)]
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
    given = [word.partition("=")[0] for word in words[: words.index("--") if "--" in words else None]]
    return ", ".join(word for word in given if re.fullmatch(r"--?[a-z][a-z-]*", word) and word not in known)


def test_every_test_that_proves_a_promise_is_there() -> None:
    named = re.findall(r"`(tests/\S+\.py)::(test_\w+)`", page("explanation/guarantees.md"))
    assert len(named) >= 15
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(), f"{file}::{test}"


def test_a_page_is_read_as_a_person_reads_it() -> None:
    text = (
        "Write `a/b.yml`:\n\n```yaml\nx: 1\n```\n\n"
        "```sh\necho a \\\n  b\ncat <<END\nc\nEND\nfalse # exit 1\n```\n\n```text\na b\n```\n"
    )
    file, commands = steps_of(text)
    assert file.commands == ["mkdir -p a && cat > a/b.yml <<'END_OF_FILE'\nx: 1\nEND_OF_FILE"]
    assert commands.commands == ["echo a \\\n  b", "cat <<END\nc\nEND", "false # exit 1"]
    assert (commands.text, told_code(commands.commands[2])) == ("a b\n", 1)
