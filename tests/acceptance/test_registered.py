"""`dataflow dataset` and `dataflow job`: what is registered is shown; adding changes nothing else of project.yml."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opendataflow.errors import ConfigurationError
from opendataflow.project.edit import add_to_project
from opendataflow.project.registration.load import load_registration
from opendataflow.project.secrets import encrypt
from support.projects import Project

SECRET = encrypt("hunter2", "a passkey")
TEXT = f"""\
# The sales feed.
name: Sales feed
environments:   # two of them
  dev: {{root: data}}
  prod: {{root: /srv}}

datasets:
  orders:       # arrive once a day
    path: orders/{{dataid}}.csv
    format: csv
    options: {{header: true}}
    schema: {{id: int, amount: "decimal(10,2)"}}
    partitions: {{daily: 2025-01-01..2025-01-03}}
    arrival: {{stable: 10s}}
    checks:
      - rows: {{min: 1}}
      - not_null: {{columns: [id], on_fail: warn}}
  rates: {{path: rates.csv, partitions: none}}
  totals: {{path: "totals/{{dataid}}.csv"}}
  crm:
    url: postgresql://reader@db1:5432/crm
    password: {SECRET}
    table: public.customers
    partition_column: day

# What runs.
jobs:
  load:
    script: jobs/load.sh
    inputs: [orders, rates]
    outputs: [totals]
    env: {{LEVEL: "5"}}
    order: strict
    retries: {{max: 2, backoff: 1m}}
    timeout: 2h
  publish: {{inputs: [totals, today], outputs: [crm]}}
"""


# What is registered -------------------------------------------------------------------------------------------------
def test_datasets_are_listed_with_place_partitions_producer_and_consumers(project: Project) -> None:
    project.apply(TEXT)
    listed = {one["datasetid"]: one for one in project.json("dataset", "list")}
    assert list(listed) == ["crm", "orders", "rates", "today", "totals"]
    assert listed["orders"]["producer"] is None
    assert listed["orders"]["consumers"] == [{"job": "load", "map": "same"}]
    assert listed["rates"]["consumers"] == [{"job": "load", "map": "full"}]
    assert (listed["totals"]["producer"], listed["crm"]["producer"]) == ("load", "publish")
    assert listed["orders"]["partitions"] == listed["totals"]["partitions"] == {"daily": "2025-01-01..2025-01-03"}
    assert listed["today"]["clock"] == "today"
    shown = project.dataflow("dataset", "list").stdout
    rows = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert "orders/{dataid}.csv" in rows["orders"]
    assert "daily 2025-01-01..2025-01-03" in rows["orders"]
    assert "db1/crm.public.customers" in rows["crm"]
    assert "(clock)" in rows["today"]
    assert rows["totals"].split()[-2:] == ["load", "1"]


def test_everything_of_a_dataset_is_shown_but_its_password(project: Project) -> None:
    project.apply(TEXT)
    shown = project.dataflow("dataset", "show", "orders").stdout
    facts = {line[:18].strip(): line[18:].strip() for line in shown.splitlines() if not line.startswith(" ")}
    for key, value in {
        "dataset": "orders", "project": "sales-feed", "path": "orders/{dataid}.csv", "format": "csv",
        "partitions": "daily 2025-01-01..2025-01-03", "options": "header: true", "schema": "id: int",
        "arrival": "stable: 10", "checks": "rows min 1", "consumers": "load",
    }.items():  # fmt: skip
        assert facts[key] == value
    assert "amount: decimal(10,2)" in shown
    assert "not_null id (only warns)" in shown
    assert "producer" not in facts
    crm = project.dataflow("dataset", "show", "crm").stdout
    assert "postgresql://reader@db1:5432/crm" in crm
    assert "enc:v1:…\n" in crm
    assert "producer          publish\n" in crm
    told = project.json("dataset", "show", "crm")
    assert (told["hostname"], told["tablename"], told["encryptedpass"]) == ("db1", "customers", "enc:v1:…")
    for output in (crm, str(told), str(project.json("dataset", "list"))):
        assert SECRET not in output
        assert "hunter2" not in output


def test_jobs_are_listed_and_shown(project: Project) -> None:
    project.apply(TEXT)
    listed = {one["jobid"]: one for one in project.json("job", "list")}
    assert list(listed) == ["load", "publish"]
    load = listed["load"]
    assert load["inputs"] == [{"dataset": "orders", "map": "same"}, {"dataset": "rates", "map": "full"}]
    assert (load["outputs"], load["order"], load["retries_max"], load["env"]) == (
        ["totals"],
        "strict",
        2,
        {"LEVEL": "5"},
    )
    assert project.json("job", "show", "load") == load
    rows = {line.split()[0]: line for line in project.dataflow("job", "list").stdout.splitlines() if line.strip()}
    assert "orders, rates (full)" in rows["load"]
    assert rows["load"].split()[-2:] == ["strict", "2"]
    shown = project.dataflow("job", "show", "load").stdout
    for fact in ("jobs/load.sh", "rates (full)", "2, the first after 60 s", "timeout", "7200 s", "LEVEL: 5"):
        assert fact in shown


def test_what_another_project_reads_is_shown_with_its_name(project: Project, tmp_path: Path) -> None:
    project.apply(TEXT)
    other = Project(tmp_path / "other", project.store)
    other.apply("name: Shop\nenvironments: {dev: {}}\ndatasets: {orders: {}}\njobs: {copy: "
                "{inputs: [sales-feed.totals], outputs: [orders]}}\n")  # fmt: skip
    assert project.json("dataset", "show", "totals")["consumers"] == [
        {"job": "publish", "map": "same"}, {"job": "shop.copy", "map": "same"},
    ]  # fmt: skip
    assert other.json("job", "show", "copy")["inputs"] == [{"dataset": "sales-feed.totals", "map": "same"}]
    assert other.json("dataset", "show", "sales-feed.totals")["producer"] == "load"
    outside = tmp_path / "outside"
    outside.mkdir()
    several = other.dataflow("dataset", "show", "orders", cwd=outside)
    assert several.returncode == 2
    assert "say which: sales-feed.orders, shop.orders" in several.stderr
    assert "shop.orders" in other.dataflow("dataset", "list", cwd=outside).stdout


@pytest.mark.parametrize(
    ("noun", "name", "told"),
    [
        ("dataset", "ordres", "dataset 'ordres' is not registered; did you mean 'orders'?"),
        ("dataset", "xyz", "dataset 'xyz' is not registered; see `dataflow dataset list`"),
        ("job", "laod", "job 'laod' is not registered; did you mean 'load'?"),
        ("job", "other.load", "job 'other.load' is not registered"),
    ],
)
def test_an_unknown_name_exits_2_with_the_nearest(sqlite_project: Project, noun: str, name: str, told: str) -> None:
    sqlite_project.apply(TEXT)
    refused = sqlite_project.dataflow(noun, "show", name)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert told in refused.stderr


def test_an_empty_listing_says_so_and_is_an_empty_list(sqlite_project: Project) -> None:
    sqlite_project.apply("name: Empty\nenvironments: {dev: {}}\n")
    for noun in ("dataset", "job"):
        assert sqlite_project.json(noun, "list") == []
        assert f"no {noun} is registered" in sqlite_project.dataflow(noun, "list").stderr


# Adding, through the commands ---------------------------------------------------------------------------------------
def test_a_dataset_and_a_job_are_added_and_the_rest_stays_byte_for_byte(sqlite_project: Project) -> None:
    project = sqlite_project
    file = project.write("project.yml", TEXT)
    added = project.dataflow(
        "dataset", "add", "late", "--path", "late/{dataid}.csv", "--format", "csv", "--partitions", "daily:2025-01-01"
    )
    assert (added.returncode, added.stdout) == (0, ""), added.stderr
    assert f"added dataset late to {project.folder}/project.yml; run `dataflow apply`" in added.stderr
    late = '  late:\n    path: "late/{dataid}.csv"\n    format: csv\n    partitions: {daily: 2025-01-01}\n'
    with_dataset = TEXT.replace("    partition_column: day\n", f"    partition_column: day\n{late}")
    assert file.read_text() == with_dataset
    project.dataflow("dataset", "add", "sums", "--hostname", "db1", "--database", "dw", "--encryptedpass", SECRET)
    added = project.dataflow(
        "job", "add", "sum", "--script", "jobs/sum.sh", "--input", "late", "--input", "totals=offset:-1", "--input",
        "rates=full", "--output", "sums", "--retries", "3", "--timeout", "2h", "--order", "strict", "--apply",
    )  # fmt: skip
    assert added.returncode == 0, added.stderr
    assert "run `dataflow apply`" not in added.stderr
    sums = f'  sums:\n    hostname: db1\n    database: dw\n    encryptedpass: "{SECRET}"\n'
    job = (
        "  sum:\n    script: jobs/sum.sh\n    inputs:\n      - late\n      - totals: {map: {offset: -1}}\n"
        "      - rates: {map: full}\n    outputs: [sums]\n    order: strict\n    retries: {max: 3}\n    timeout: 2h\n"
    )
    assert file.read_text() == with_dataset.replace(late, late + sums) + job
    shown = project.json("job", "show", "sum")
    assert [link["map"] for link in shown["inputs"]] == ["same", "offset:-1", "full"]
    assert (shown["retries_max"], shown["timeout_seconds"], shown["order"]) == (3, 7200.0, "strict")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("dataset", "add", "orders"), "project.yml:8: datasets.orders: is there already; nothing was changed"),
        (("dataset", "add", "a/b"), "'a/b' cannot be a name: it holds a `/`\nnothing was changed"),
        (("dataset", "add", "a", "--path", "../a"), "datasets.a.path: give a path below the environment's root"),
        (("dataset", "add", "a", "--format", "parqet"), "did you mean `parquet`?"),
        (("dataset", "add", "a", "--path", "orders"), "'orders' is the same place as that of 'orders', or one lies in"),
        (("dataset", "add", "a", "--partitions", "dayly:2025-01-01"), "did you mean 'daily'?"),
        (("dataset", "add", "a", "--encryptedpass", "hunter2"), "is not encrypted; make it with"),
        (("job", "add", "load", "--output", "crm"), "jobs.load: is there already; nothing was changed"),
        (("job", "add", "j", "--output", "crm"), "datasets.crm: is produced by both publish and j"),
        (("job", "add", "j", "--input", "ordres", "--output", "orders"), "did you mean 'orders'?"),
        (("job", "add", "j", "--input", "orders=ofset:1", "--output", "rates"), "'ofset:1' is not same, full, rollup"),
        (("job", "add", "j", "--output", "orders", "--order", "strickt"), "did you mean `strict`?"),
        (("job", "add", "j", "--output", "orders", "--retries", "-1"), "jobs.j.retries.max: should be at least 0"),
        (("job", "add", "j", "--output", "orders", "--timeout", "soon"), "'soon' is not a duration"),
    ],
)
def test_nothing_is_written_when_the_result_would_not_load(
    sqlite_project: Project, argv: tuple[str, ...], told: str
) -> None:
    file = sqlite_project.write("project.yml", TEXT)
    refused = sqlite_project.dataflow(*argv)
    assert refused.returncode == 2, refused.stderr
    assert told in refused.stderr
    assert "hunter2" not in refused.stderr
    assert file.read_text() == TEXT
    assert [one.name for one in sqlite_project.folder.iterdir() if one.name.startswith(".project")] == []


def test_a_job_needs_an_output_and_adding_needs_a_project(sqlite_project: Project, tmp_path: Path) -> None:
    sqlite_project.write("project.yml", TEXT)
    assert sqlite_project.dataflow("job", "add", "j").returncode == 2
    outside = tmp_path / "outside"
    outside.mkdir()
    refused = sqlite_project.dataflow("dataset", "add", "a", cwd=outside)
    assert refused.returncode == 2
    assert "found no project.yml" in refused.stderr


# Adding, as text ----------------------------------------------------------------------------------------------------
START = "name: x\nenvironments: {dev: {}}\n"


def added(folder: Path, text: str, *, name: str = "b", section: str = "datasets", **entry: object) -> str:
    """The file after adding to it."""
    (folder / "project.yml").write_bytes(text.encode())
    add_to_project(str(folder), "dev", section, name, entry or {"path": "b.csv"})
    return (folder / "project.yml").read_bytes().decode()


LAYOUTS = {
    "at the end": (START + "datasets:\n  a: {}\n", "", "  b:\n    path: b.csv\n"),
    "before another section": (
        START + "datasets:\n  a: {}\n@\n# Jobs come here.\njobs: {}\n", "", "  b:\n    path: b.csv\n"),
    "after the section's last comment": (
        START + "datasets:\n  a: {}\n  # c: {}\n@\n\n# Jobs\njobs:\n", "", "  b:\n    path: b.csv\n"),
    "with the file's own indentation": (
        START + "datasets:\n    a:\n        path: a\n@spark: {}\n", "", "    b:\n        path: b.csv\n"),
    "into an empty section": (START + "datasets:\n@jobs: {}\n", "", "  b:\n    path: b.csv\n"),
    "into an empty section with a comment": (
        START + "datasets:   # none yet\n  # soon\n@\njobs: {}\n", "", "  b:\n    path: b.csv\n"),
    "without the section": (START, "\n", "datasets:\n  b:\n    path: b.csv\n"),
    "without the section, after a blank line": (START + "\n", "", "datasets:\n  b:\n    path: b.csv\n"),
    "without a last line end": (START + "datasets:\n  a: {}", "\n", "  b:\n    path: b.csv\n"),
    "after a block of text": (
        START + "datasets:\n  a:\n    url: postgresql://h/d\n    query: |\n      select 1\n      # text\n@\njobs:\n",
        "", "  b:\n    path: b.csv\n"),
    "after an anchor and a merge": (
        START + "datasets:\n  a: &a {hostname: h}\n  c:\n    <<: *a\n", "", "  b:\n    path: b.csv\n"),
    "with a mark at the beginning": ("\ufeff" + START + "datasets:\n  a: {}\n", "", "  b:\n    path: b.csv\n"),
    "with umlauts before it": (
        "# für später 🚀\n" + START + "datasets:\n  ä: {}\n@jobs:\n", "", "  b:\n    path: b.csv\n"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "gap", "entry"), LAYOUTS.values(), ids=LAYOUTS)
def test_an_entry_goes_to_the_end_of_its_section(tmp_path: Path, text: str, gap: str, entry: str) -> None:
    before, _, after = text.partition("@")
    assert added(tmp_path, before + after) == before + gap + entry + after
    windows = (before + after).replace("\n", "\r\n")
    assert added(tmp_path, windows) == (before + gap + entry + after).replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            START + "datasets: {a: {}}\n",
            "project.yml:3: datasets: is not written as a block; put each name on a line of",
        ),
        (START + "datasets: null\n", "project.yml:3: datasets: is not written as a block"),
        (START + "spark: {}\njobs: &j {}\ndatasets: *j\n", "project.yml:5: datasets: is not written as a block"),
        ("{name: x, environments: {dev: {}}}\n", "project.yml:1: is written as {…}; write its sections as blocks"),
        (START + "datasets:\n  a: {}\n...\n", "put it in by hand:\n  b:\n    path: b.csv"),
        (
            START + "datasets:\n  a:\n    url: postgresql://h/d\n    query: |+\n      select 1\n\n\njobs:\n",
            "put it in by",
        ),
        (START + "datasets:\n  a: {pth: x}\n", "project.yml:4: datasets.a.pth: unknown key; did you mean `path`?"),
    ],
)
def test_a_file_that_cannot_be_extended_is_left_alone(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        added(tmp_path, text)
    assert said in str(refused.value)
    assert (tmp_path / "project.yml").read_text() == text


def test_the_files_mode_and_a_link_to_it_stay(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real.yml"
    real.parent.mkdir()
    real.write_text(START)
    real.chmod(0o640)
    (tmp_path / "project.yml").symlink_to(real)
    add_to_project(str(tmp_path), "dev", "datasets", "b", {"path": "b.csv"})
    assert os.path.islink(tmp_path / "project.yml")
    assert "b.csv" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert [one.name for one in real.parent.iterdir()] == ["real.yml"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.text(max_size=8) | st.sampled_from(["yes", "~", "010", "a: b", "#", "- a", "{", "2025-01-01", "every 1h"]),
    hostname=st.text(max_size=8) | st.sampled_from(["no", "null", "1e3", "a #b", "*a", "'", '"', "\\", "${X", "𝄞"]),
)
def test_any_name_and_value_is_added_as_it_is_or_refused(tmp_path: Path, name: str, hostname: str) -> None:
    text = START + "datasets:\n  a: {}\njobs: {}\n"
    try:
        added(tmp_path, text, name=name, hostname=hostname)
    except ConfigurationError:
        assert (tmp_path / "project.yml").read_text() == text
        return
    found = load_registration(str(tmp_path), "dev").datasets[-1]
    assert (found.datasetid, found.hostname) == (name, hostname or None)
