"""project.yml: what it becomes, and errors that name file, line and key."""

import json
from pathlib import Path

import pytest

from opendataflow.domain.registration import JobSpec, LinkSpec, Registration
from opendataflow.errors import ConfigurationError
from opendataflow.project.registration.load import load_registration, project_id
from opendataflow.project.secrets import encrypt

GOOD = """\
name: Sales feed
environments:
  dev: {root: ./data}
  prod: {root: "/srv/${SITE:-main}", store: "postgresql://${DB_HOST}/state"}
datasets:
  orders: {path: "orders/{dataid}.csv", format: csv, partitions: {daily: 2025-11-01..2025-11-30}}
  rates: {path: rates.csv, partitions: none}
  totals: {path: "totals/{dataid}.txt"}
  pages: {tablename: pages, hostname: db1}
jobs:
  load:
    script: jobs/load.sh
    inputs: [orders, rates]
    outputs: [totals]
    retries: {max: 2, backoff: 5m}
    lease: 90s
    timeout: 1h
    concurrency: 3
    env: {LEVEL: 5, WHEN: 2025-01-01}
  report:
    inputs: [totals]
    outputs: [pages]
"""


HEAD = "name: x\nenvironments: {dev: {}}\n"


def loaded(folder: Path, text: str, *, environment: str = "dev") -> Registration:
    (folder / "project.yml").write_text(text, encoding="utf-8")
    return load_registration(str(folder), environment)


def problem(folder: Path, text: str, *, environment: str = "dev") -> str:
    with pytest.raises(ConfigurationError) as refused:
        loaded(folder, text, environment=environment)
    assert refused.value.exit_code == 2
    return str(refused.value)


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


# What it becomes ----------------------------------------------------------------------------------------------------
def test_a_project_becomes_a_registration(tmp_path: Path) -> None:
    made = loaded(tmp_path, GOOD)
    assert (made.project, made.name, made.environment) == ("sales-feed", "Sales feed", "dev")
    assert (made.root, made.home) == (str(tmp_path / "data"), str(tmp_path))
    assert [dataset.datasetid for dataset in made.datasets] == ["orders", "rates", "totals", "pages"]
    load_job, report = made.jobs
    assert load_job == JobSpec(
        "load", "script", "jobs/load.sh", '{"env": {"LEVEL": "5", "WHEN": "2025-01-01"}}',
        '{"daily": "2025-11-01..2025-11-30"}', 90.0, 3600.0, 2, 300.0, 3,
        (LinkSpec("IN", "sales-feed", "orders"), LinkSpec("IN", "sales-feed", "rates", "full"),
         LinkSpec("OUT", "sales-feed", "totals")),
    )  # fmt: skip
    assert (report.script, report.lease_seconds, report.retries_max, report.concurrency) == (None, 60.0, 0, None)


def test_a_job_without_a_scheme_of_its_own_takes_that_of_its_inputs_producer(tmp_path: Path) -> None:
    load_job, report = loaded(tmp_path, GOOD).jobs
    assert load_job.partitions == report.partitions == '{"daily": "2025-11-01..2025-11-30"}'


def test_a_job_whose_inputs_are_all_whole_is_one_chunk(tmp_path: Path) -> None:
    text = HEAD + "datasets: {a: {path: a, partitions: none}, b: {path: b}}\njobs: {j: {inputs: [a], outputs: [b]}}\n"
    assert loaded(tmp_path, text).jobs[0].partitions == '"none"'


def test_an_input_of_another_project_is_named_with_a_dot(tmp_path: Path) -> None:
    text = HEAD + "datasets: {b: {path: 'b/{dataid}'}}\njobs: {j: {inputs: [other.orders], outputs: [b]}}\n"
    assert loaded(tmp_path, text).jobs[0].links[0] == LinkSpec("IN", "other", "orders")


def test_a_dataset_with_a_dot_in_its_name_is_this_projects(tmp_path: Path) -> None:
    text = (
        HEAD + "datasets: {sales.daily: {}, b: {path: 'b/{dataid}'}}\n"
        "jobs: {j: {inputs: [sales.daily], outputs: [b]}}\n"
    )
    assert loaded(tmp_path, text).jobs[0].links[0] == LinkSpec("IN", "x", "sales.daily")


def test_an_input_can_be_mapped_explicitly(tmp_path: Path) -> None:
    text = GOOD.replace("inputs: [totals]", "inputs: [{totals: {map: all}}]")
    assert loaded(tmp_path, text).jobs[1].links[0].map == "all"
    wrong = problem(tmp_path, text.replace("map: all", "mapp: all"))
    assert f"project.yml:{line_of(text, 'map: all')}: jobs.report.inputs.0.totals.mapp: unknown key" in wrong
    assert "did you mean `map`?" in wrong


def test_numbers_and_dates_of_yaml_stay_the_text_that_was_written(tmp_path: Path) -> None:
    text = """\
name: x
environments: {dev: {}}
datasets:
  9: {partitions: {values: [1, 2025-01-01, eu]}}
  out: {path: "o/{dataid}"}
jobs:
  7: {inputs: ["9"], outputs: [out]}
"""
    made = loaded(tmp_path, text)
    assert made.datasets[0].datasetid == "9"
    assert json.loads(made.datasets[0].partitions or "") == {"values": ["1", "2025-01-01", "eu"]}
    assert made.jobs[0].jobid == "7"


def test_variables_of_the_environment_are_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SITE", raising=False)
    assert loaded(tmp_path, GOOD, environment="prod").root == "/srv/main"
    monkeypatch.setenv("SITE", "north")
    assert loaded(tmp_path, GOOD, environment="prod").root == "/srv/north"
    monkeypatch.delenv("HOME_OF_DATA", raising=False)
    text = GOOD.replace("./data", '"${HOME_OF_DATA}/x"')
    assert "the environment variable HOME_OF_DATA is not set" in problem(tmp_path, text)
    monkeypatch.setenv("HOME_OF_DATA", "/mnt")
    assert loaded(tmp_path, text).root == "/mnt/x"
    assert "is not closed" in problem(tmp_path, GOOD.replace("./data", '"${HOME_OF_DATA"'))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Sales feed", "sales-feed"), ("a.b/c", "a-b-c"), ("Ö!", "ö"), ("!", "project"), ("売上 2025", "売上-2025"),
        ("x_1", "x_1"),
    ],
)  # fmt: skip
def test_a_projects_id_is_its_name_in_lower_case(name: str, expected: str) -> None:
    assert project_id(name) == expected


def test_the_example_of_the_reference_loads(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "project-yml.md").read_text(encoding="utf-8")
    text = page.split("```yaml\n")[1].split("```")[0].replace("enc:v1:…", encrypt("hunter2", "a passkey"))
    made = loaded(tmp_path, text)
    assert (len(made.datasets), len(made.jobs)) == (9, 3)
    assert loaded(tmp_path, text, environment="prod").datasets[4].hostname == "crm.internal"


# Errors -------------------------------------------------------------------------------------------------------------
def test_an_unknown_key_suggests_the_nearest_and_names_file_line_and_key(tmp_path: Path) -> None:
    text = GOOD.replace("    outputs: [totals]\n", "    outputs: [totals]\n    retrys: {max: 1}\n")
    line = line_of(text, "retrys")
    said = f"{tmp_path}/project.yml:{line}: jobs.load.retrys: unknown key; did you mean `retries`?"
    assert problem(tmp_path, text) == said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("datasets:", "dataset: {}\ndatasets:", "dataset: unknown key; did you mean `datasets`?"),
        ("dev: {root: ./data}", "dev: {rot: ./data}", "environments.dev.rot: unknown key; did you mean `root`?"),
        ("tablename: pages", "tabelname: pages", "datasets.pages.tabelname: unknown key; did you mean `tablename`?"),
        ("backoff: 5m", "backof: 5m", "jobs.load.retries.backof: unknown key; did you mean `backoff`?"),
        ("tablename: pages", "zzz: 1", "datasets.pages.zzz: unknown key; known are path, format"),
    ],
)
def test_unknown_keys_are_found_at_every_level(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = GOOD.replace(old, new, 1)
    found = problem(tmp_path, text)
    assert found.startswith(f"{tmp_path}/project.yml:{line_of(text, new.splitlines()[0])}: ")
    assert said in found


@pytest.mark.parametrize("name", ["string_table", "strict", "function-x"])
def test_a_key_whose_name_looks_like_a_type_is_still_named(tmp_path: Path, name: str) -> None:
    text = f"name: x\nenvironments: {{dev: {{}}}}\ndatasets:\n  other: {{}}\n  {name}:\n    pth: a\n"
    assert problem(tmp_path, text) == (
        f"{tmp_path}/project.yml:6: datasets.{name}.pth: unknown key; did you mean `path`?"
    )


def test_several_errors_are_all_told(tmp_path: Path) -> None:
    text = GOOD.replace("lease: 90s", "lease: soon").replace("timeout: 1h", "timeout: later")
    told = problem(tmp_path, text).splitlines()
    assert len(told) == 2
    assert "jobs.load.lease: 'soon' is not a duration like 30s, 5m, 2h or 1d" in told[0]
    assert "jobs.load.timeout: 'later' is not a duration" in told[1]


WRONG = {
    "an unknown dataset": (
        "inputs: [orders, rates]", "inputs: [ordres, rates]",
        "jobs.load.inputs.0: dataset 'ordres' is not declared; did you mean 'orders'?"),
    "an unknown output": ("outputs: [pages]", "outputs: [other.pages]", "dataset 'other.pages' is not declared"),
    "two producers": ("outputs: [pages]", "outputs: [pages, totals]", "stands twice among its inputs and outputs"),
    "a job without output": ("    outputs: [pages]\n", "", "jobs.report.outputs: is missing"),
    "a job with no outputs": ("outputs: [pages]", "outputs: []", "jobs.report.outputs: is empty; it needs at least"),
    "a duplicate key": ("  pages: {", "  orders: {", "orders: stands here twice"),
    "a bad duration": ("lease: 90s", "lease: 5 weeks", "jobs.load.lease: '5 weeks' is not a duration"),
    "a truth for a duration": ("lease: 90s", "lease: yes", "jobs.load.lease: 'yes' is not a duration"),
    "no time at all": ("timeout: 1h", "timeout: 0", "jobs.load.timeout: should be greater than 0"),
    "a lease too short": ("lease: 90s", "lease: 0.5s", "jobs.load.lease: should be at least 1"),
    "bad partitions": ("daily: 2025-11-01..2025-11-30", "daily: 2025-11-31",
        "datasets.orders.partitions: daily: '2025-11-31' is not a date like 2025-11-12"),
    "unknown partitions": ("partitions: none", "partitions: weekly",
        "datasets.rates.partitions: 'weekly' is no scheme; known are none, {daily"),
    "a plain password": ("tablename: pages", "encryptedpass: hunter2",
        "datasets.pages.encryptedpass: is not encrypted; make it with `dataflow crypt encrypt`"),
    "a path out of the root": ("path: rates.csv", "path: ../rates.csv", "datasets.rates.path: give a path below"),
    "an absolute path": ("path: rates.csv", "path: /etc/rates.csv", "datasets.rates.path: give a path below"),
    "a partitioned path without {dataid}": ("orders/{dataid}.csv", "orders.csv",
        "datasets.orders.path: is partitioned, so its path needs a {dataid}"),
    "a script of another name": ("jobs/load.sh", "jobs/loader.sh",
        "jobs.load.script: RunJob takes the job's id from the script's name, so 'load' does not fit"),
    "a variable that cannot be": ("{LEVEL: 5", "{'A=B': 5",
        "jobs.load.env.A=B: 'A=B' cannot be an environment variable"),
    "a format nobody reads": ("format: csv", "format: xls",
        "datasets.orders.format: should be csv, json, parquet, orc or text, not 'xls'"),
    "a limit of nothing": ("concurrency: 3", "concurrency: 0", "jobs.load.concurrency: should be at least 1"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_with_its_line_and_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert GOOD.count(old) == 1
    found = problem(tmp_path, GOOD.replace(old, new))
    file, line, rest = found.split(":", 2)
    assert file == str(tmp_path / "project.yml")
    assert int(line) >= 1
    assert said in rest


def test_a_plain_password_is_not_repeated_in_the_message(tmp_path: Path) -> None:
    assert "hunter2" not in problem(tmp_path, GOOD.replace("tablename: pages", "encryptedpass: hunter2"))


def test_a_dataset_with_two_producers_is_refused(tmp_path: Path) -> None:
    text = GOOD + "  again:\n    inputs: [orders]\n    outputs: [totals]\n"
    line = line_of(text, "totals: {path")
    assert problem(tmp_path, text) == (
        f"{tmp_path}/project.yml:{line}: datasets.totals: is produced by both load and again"
    )


def test_jobs_that_wait_for_each_other_are_refused(tmp_path: Path) -> None:
    text = """\
name: x
environments: {dev: {}}
datasets: {a: {}, b: {}, c: {}}
jobs:
  one: {inputs: [c], outputs: [a]}
  two: {inputs: [a], outputs: [b]}
  three: {inputs: [b], outputs: [c]}
"""
    assert "jobs wait for each other: one → three → two → one" in problem(tmp_path, text)


def test_a_job_that_reads_what_it_writes_is_refused(tmp_path: Path) -> None:
    text = HEAD + "datasets: {a: {}}\njobs: {j: {inputs: [a], outputs: [a]}}\n"
    assert "jobs.j: a dataset stands twice among its inputs and outputs" in problem(tmp_path, text)


def test_datasets_that_would_share_their_variables_are_refused(tmp_path: Path) -> None:
    text = HEAD + "datasets: {my-data: {}, my_data: {}}\njobs:\n  j: {inputs: [my-data], outputs: [my_data]}\n"
    found = problem(tmp_path, text)
    assert found.startswith(f"{tmp_path}/project.yml:5: jobs.j: ")
    assert "would share the variables my_data_…" in found


def test_another_projects_dataset_that_would_share_its_variables_is_refused(tmp_path: Path) -> None:
    text = HEAD + "datasets: {orders: {}}\njobs:\n  j: {inputs: [other.orders], outputs: [orders]}\n"
    assert problem(tmp_path, text).startswith(f"{tmp_path}/project.yml:5: jobs.j: ")


def test_an_unknown_environment_names_those_that_are(tmp_path: Path) -> None:
    assert "there is no environment 'test'; known are dev, prod" in problem(tmp_path, GOOD, environment="test")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [x\n", "project.yml:2: name: not valid YAML"),
        ("", "project.yml:1: a project needs at least `name: …`"),
        ("- a\n", "project.yml:1: a project needs at least `name: …`"),
        ("environments: {}\n", "name: is missing"),
    ],
)
def test_a_file_that_is_no_project_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in problem(tmp_path, text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"project\.yml: No such file"):
        load_registration(str(tmp_path), "dev")
    (tmp_path / "project.yml").write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(ConfigurationError, match=r"project\.yml:1: is not UTF-8 text: byte 0xff"):
        load_registration(str(tmp_path), "dev")
