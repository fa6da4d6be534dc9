"""Tables of databases in project.yml: what they become, what is told to the Spark child, and what makes no sense."""

import json
from pathlib import Path

import pytest

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.registration import Registration
from opendataflow.domain.tables import find_table, source_database, table_location, target_database
from opendataflow.errors import ConfigurationError
from opendataflow.execution.environment import find_passwords
from opendataflow.project.check import check_project
from opendataflow.project.registration.load import load_registration
from opendataflow.project.secrets import encrypt

SECRET = encrypt("hunter2", "a passkey of some length")
HEAD = "name: x\nenvironments: {dev: {root: data}}\n"  # the cases go on with line 3
CRM = """\
name: x
environments: {dev: {root: data}}
datasets:
  crm:
    url: postgresql://reader@localhost:5432/crm
    table: public.customers
    partition_column: updated_on
    partitions: {daily: 2025-01-01}
  copy: {path: copy}
  out: {url: "sqlite:///out.db", table: customers, partition_column: updated_on}
pipelines:
  - {slug: fetch, sources: [crm], destination: copy}
  - {slug: store, sources: [copy], destination: out}
"""


def loaded(folder: Path, text: str, *, environment: str = "dev") -> Registration:
    (folder / "project.yml").write_text(text, encoding="utf-8")
    return load_registration(str(folder), environment)


def datasets(made: Registration) -> dict[str, Dataset]:
    return {one.datasetid: one for one in made.datasets}


def problem(folder: Path, text: str) -> str:
    """What is said against the file, from the line number on; `check-project` says it too."""
    with pytest.raises(ConfigurationError) as refused:
        loaded(folder, text)
    told = str(refused.value).removeprefix(f"{folder}/project.yml:")
    line, _, message = told.partition(": ")
    found = [(one.line, one.message.partition("; did you mean")[0]) for one in check_project(str(folder), "dev")]
    assert (int(line), message.partition("; did you mean")[0]) in found
    return told


# What they become -----------------------------------------------------------------------------------------------------
def test_a_table_is_told_to_the_child_without_its_password(tmp_path: Path) -> None:
    text = CRM.replace("    table: public", f"    password: {SECRET}\n    connections: 4\n    table: public")
    crm = datasets(loaded(tmp_path, text))["crm"]
    assert (crm.hostname, crm.database, crm.schemaname, crm.tablename) == ("localhost", "crm", "public", "customers")
    assert source_database(crm, ["2025-01-01", "2025-01-02"], root="/r") == {
        "url": "postgresql://reader@localhost:5432/crm",
        "driver": None,
        "options": {},
        "password_variable": "crm_password",
        "url_variable": None,
        "table": "public.customers",
        "query": None,
        "partition_column": "updated_on",
        "dataids": ["2025-01-01", "2025-01-02"],
        "write": "replace",
        "connections": 4,
    }
    assert table_location(crm, "2025-01-01", root="/r") == (
        "postgresql://localhost:5432/crm#public.customers?dataid=2025-01-01"
    )


def test_a_sqlite_file_is_below_the_environments_root_unless_its_path_is_absolute(tmp_path: Path) -> None:
    made = loaded(tmp_path, CRM)
    out = datasets(made)["out"]
    assert target_database(out, "2025-01-01", root=made.root, replaces_all=False)["url"] == (
        f"sqlite:///{tmp_path}/data/out.db"
    )
    elsewhere = datasets(loaded(tmp_path, CRM.replace("sqlite:///out.db", "sqlite:////srv/out.db")))["out"]
    assert table_location(elsewhere, "7", root=made.root) == "sqlite:////srv/out.db#customers?dataid=7"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://me@h:5432/d?sslmode=require", "postgresql://h:5432/d#t"),
        ("postgresql:///d?host=/tmp/socket", "postgresql:///d?host=/tmp/socket#t"),
        ("bigquery://project/dataset", "bigquery://project/dataset#t"),
        ("jdbc:postgresql://h/d?ssl=true", "jdbc:postgresql://h/d#t"),
        ("jdbc:oracle:thin:@h:1521:x", "jdbc://oracle:thin:@h:1521:x#t"),
    ],
)
def test_a_place_tells_the_server_and_neither_user_nor_password(tmp_path: Path, url: str, place: str) -> None:
    made = loaded(tmp_path, HEAD + f"datasets:\n  a: {{url: {json.dumps(url)}, table: t, partitions: none}}\n")
    assert table_location(made.datasets[0], "full", root="/r") == place
    assert "://" in place  # so that nobody takes it for a file


def test_an_address_in_a_variable_is_only_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://u:s3%40cret@h:5432/d")
    asked = "datasets:\n  a:\n    {}: {}\n    table: t\n    partitions: none\n"
    for key, value in (("url", "${DATABASE_URL}"), ("url_env", "DATABASE_URL")):
        made = loaded(tmp_path, HEAD + asked.format(key, value)).datasets[0]
        assert "cret" not in repr(made)
        assert made.hostname is None
        assert source_database(made, [], root="/r")["url_variable"] == "DATABASE_URL"
        assert source_database(made, [], root="/r")["url"] == ""
        assert table_location(made, "full", root="/r") == "env://DATABASE_URL#t"
    # Both spellings are known, so that both can be masked.
    assert set(find_passwords([made]).values()) == {"s3@cret", "s3%40cret"}
    for wrong in ("postgres://u:s3/cret@h/d", "postgres://u@h/d?password=s3/cret"):
        monkeypatch.setenv("DATABASE_URL", wrong)
        assert "s3/cret" in find_passwords([made]).values()
    monkeypatch.delenv("DATABASE_URL")
    loaded(tmp_path, HEAD + asked.format("url", "${DATABASE_URL}"))
    with pytest.raises(ConfigurationError, match=r"dataset a: the environment variable DATABASE_URL.* is not set"):
        find_passwords([made])


def test_a_table_that_pipelines_read_without_partitions_is_one_chunk(tmp_path: Path) -> None:
    text = HEAD + "datasets:\n  a: {url: 'sqlite:///a.db', table: t}\n  b: {url: 'sqlite:///b.db', table: t}\n"
    made = datasets(loaded(tmp_path, text + "pipelines:\n  - {slug: p, sources: [a], destination: b}\n"))
    assert made["a"].partitions == '"none"'
    assert source_database(made["a"], ["full"], root="/r")["dataids"] == []
    assert datasets(loaded(tmp_path, text))["a"].partitions is None  # a script's dataids may be anything


def test_a_pipeline_that_replaces_everything_replaces_the_table(tmp_path: Path) -> None:
    text = CRM.replace("destination: out", "destination: out, replace: true").replace(
        "table: customers, partition_column: updated_on}", "table: customers}"
    )
    out = datasets(loaded(tmp_path, text))["out"]
    assert target_database(out, "2025-01-01", root="/r", replaces_all=True)["write"] == "replace_table"


def test_seed_descriptors_stay_what_they_are(tmp_path: Path) -> None:
    text = f"datasets:\n  dw: {{hostname: h, database: d, tablename: t, username: u, encryptedpass: {SECRET}}}\n"
    dw = loaded(tmp_path, HEAD + text).datasets[0]
    assert (dw.hostname, dw.tablename, find_table(dw)) == ("h", "t", None)


# What makes no sense --------------------------------------------------------------------------------------------------
BAD = {
    "an address and a variable": (
        "datasets:\n  a: {url: 'postgresql://h/d', url_env: X, table: t}",
        "4: datasets.a: has both `url` and `url_env`; give one of them"),
    "a file and a table": (
        "datasets:\n  a: {path: a.csv, url_env: X}", "4: datasets.a: has both `path` and `url_env`; give one of them"),
    "no name of a variable": (
        "datasets:\n  a: {url_env: 'postgres://u:hunter2@h/d', table: t}",
        "4: datasets.a.url_env: is not the name of an environment variable, like DATABASE_URL"),
    "a host beside a variable": (
        "datasets:\n  a: {url_env: X, hostname: h, table: t}",
        "4: datasets.a: has a `hostname`, and a whole address in the variable X; give one"),
    "a driver of files": (
        "datasets:\n  a: {path: a.csv, driver: adbc_driver_x}",
        "4: datasets.a: has a `driver`, but no `url` of its database"),
    "a way of writing files": (
        "datasets:\n  a: {path: a.csv, write: append}",
        "4: datasets.a: has `write`, but no `url` of its database"),
    "an unknown way of writing": (
        "datasets:\n  a: {url_env: X, table: t, write: apend}",
        "4: datasets.a.write: should be replace, append or replace_table, not 'apend'; did you mean `append`?"),
    "no connections": (
        "datasets:\n  a: {url_env: X, table: t, connections: 0}", "4: datasets.a.connections: should be at least 1"),
    "a password among the driver's options": (
        "datasets:\n  a:\n    url_env: X\n    table: t\n    driver_options: {db.password: x}",
        "7: datasets.a.driver_options.db.password: is a credential in plain text; "
        "give `password: enc:v1:…` beside `url`"),
    "a format": (
        "datasets:\n  a: {url_env: X, table: t, format: csv}",
        "4: datasets.a: has a `format`, which is for files, and the address of a database"),
    "a query that is written": (
        "datasets:\n  a: {url_env: X, query: select 1, write: append}",
        "4: datasets.a: has `write: append`, and a query; only a table can be written"),
    "a column of files": (
        "datasets:\n  a: {path: 'a/{dataid}.csv', partition_column: day}",
        "4: datasets.a: has a `partition_column`, which is for tables; a file's dataid is the {dataid} in its path, "
        "and the check `partition: {column: …}` looks at its rows"),
    "a column and one chunk": (
        "datasets:\n  a: {url_env: X, table: t, partition_column: day, partitions: none}",
        "4: datasets.a: has a `partition_column`, and `partitions: none`, where the whole is one chunk"),
    "a column and all rows": (
        "datasets:\n  a: {url_env: X, table: t, partition_column: day, write: replace_table}",
        "4: datasets.a: has a `partition_column`, and `write: replace_table`, which replaces all rows"),
    "a column without dataids": (
        "datasets:\n  a:\n    url_env: X\n    table: t\n    partition_column: day",
        "7: datasets.a.partition_column: tells which rows are a dataid's, but not which dataids there are; "
        "give `partitions` too"),
    "a way of writing a source": (
        "datasets:\n  a:\n    url_env: X\n    table: t\n    write: append",
        "7: datasets.a.write: is for a destination, and no pipeline makes this dataset"),
    "checks of a source": (
        "datasets:\n  a:\n    url_env: X\n    table: t\n    checks: [{rows: {min: 1}}]",
        "7: datasets.a.checks: of a table are done while a pipeline writes it; "
        "give them to the pipeline that reads this one"),
}  # fmt: skip
BAD_PIPELINES = {
    "days without a column": (
        ("    partition_column: updated_on\n", ""),
        "4: datasets.crm: it is partitioned (daily), so it needs a `partition_column`: "
        "which rows are those of a dataid?"),
    "rows put aside": (
        ("destination: copy}\n  - {slug: store, sources: [copy], destination: out}",
         "destination: copy}\n  - slug: store\n    sources: [copy]\n    destination: out\n"
         "    checks: [{not_null: {columns: [id], on_fail: quarantine}}]"),
        "15: pipelines.1.destination: 'out' is a table, and `on_fail: quarantine` keeps rows in files beside others; "
        "use fail or warn"),
    "one connection": (
        ("updated_on}\npipelines:", "updated_on, connections: 1}\npipelines:"),
        "10: datasets.out.connections: a destination needs two at least, one of which publishes"),
    "a query as a destination": (
        (", table: customers, partition_column: updated_on}", ", query: select 1}"),
        "13: pipelines.1.destination: 'out' is a query; only a table can be written"),
    "a jdbc destination": (
        ("sqlite:///out.db", "jdbc:postgresql://h/d"),
        "13: pipelines.1.destination: 'out' has a jdbc: url, which can only be read; "
        "give the database's own, like postgresql://…"),
    "append and replace": (
        ("updated_on}\npipelines:", "updated_on, write: append}\npipelines:"),
        "13: pipelines.1.destination: 'out' has `write: append`, and the pipeline `replace: true`, "
        "which replaces the whole table"),
    "an unknown database": (
        ("postgresql://reader@localhost:5432/crm", "mysql://reader@localhost/crm"),
        "5: datasets.crm.url: no driver is known for mysql:; give `driver`, an ADBC driver that is installed, "
        "or a jdbc: url"),
    "a database in memory": (
        ("sqlite:///out.db", "sqlite:///:memory:"),
        "10: datasets.out.url: names no file; write sqlite:///crm.db, below the environment's root, "
        "or sqlite:////path/of/crm.db"),
    "a database outside of the root": (
        ("sqlite:///out.db", "sqlite:///../out.db"),
        "10: datasets.out.url: leads out of the environment's root; give the whole path: sqlite:////path/of/crm.db"),
    "a database in a bucket": (
        ("root: data", "root: 's3://bucket/data'"),
        "10: datasets.out.url: is below s3://bucket/data, and SQLite needs a file of this machine: "
        "sqlite:////path/of/crm.db"),
    "one table under two names": (
        ('"sqlite:///out.db", table: customers', '"postgresql://me@localhost:5432/crm", table: public.customers'),
        "10: datasets.out.table: is the same table as that of 'crm'; use one dataset for both"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_makes_no_sense_in_a_dataset_is_refused_with_line_and_key(tmp_path: Path, case: str) -> None:
    text, told = BAD[case]
    assert problem(tmp_path, f"{HEAD}{text}\n") == told


@pytest.mark.parametrize("case", BAD_PIPELINES)
def test_what_makes_no_sense_for_a_pipeline_is_refused_with_line_and_key(tmp_path: Path, case: str) -> None:
    (old, new), told = BAD_PIPELINES[case]
    text = CRM.replace(old, new)
    assert text != CRM
    if case == "append and replace":
        text = text.replace("destination: out}", "destination: out, replace: true}")
    assert problem(tmp_path, text) == told


def test_check_project_knows_that_pandas_reads_no_tables(tmp_path: Path) -> None:
    text = CRM.replace("sources: [crm], destination: copy", "sources: [crm], destination: copy, engine: pandas")
    (tmp_path / "project.yml").write_text(text)
    told = [(one.line, one.message) for one in check_project(str(tmp_path), "dev")]
    assert told == [(12, "'crm' is a table, and transformations for pandas read files")]
    (tmp_path / "project.yml").write_text(CRM)
    assert check_project(str(tmp_path), "dev") == []


def test_an_address_that_is_wrong_is_not_shown(tmp_path: Path) -> None:
    told = problem(tmp_path, HEAD + "datasets:\n  a: {url_env: 'postgres://u:hunter2@h/d', table: t}\n")
    assert "hunter2" not in told
