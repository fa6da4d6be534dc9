"""Moving from the original OpenDataFlow: its three tables in a real PostgreSQL, read through the installed command."""

from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from opendataflow.store.records.importer import Original, OriginalItem, OriginalStatus, judge_statuses, read_original
from support.postgres import Server
from support.projects import Project

PASSKEY = "correct horse"
TIGER = "XKd1FKJ1k2fPRnxO4p4xjLMFtU/oEyMPyWdiqx6TeduW2sk="  # tiger42, made by Java (tests/unit/test_secrets.py)

# Columns, types and keys of the original's tables.
TABLES = """
CREATE SCHEMA {schema};
CREATE TABLE {schema}.dataset (
    datasetid varchar, hostname varchar, database varchar, schemaname varchar, tablename varchar, username varchar,
    encryptedpass varchar);
CREATE INDEX x_dataset ON {schema}.dataset (datasetid);
CREATE TABLE {schema}.job (
    jobid varchar, itemtype varchar, datasetid varchar, itemvalue varchar, modified timestamp);
CREATE TABLE {schema}.datastatus (
    datasetid varchar, jobid varchar, dataid varchar, locktype varchar, status varchar, modified timestamp,
    PRIMARY KEY (datasetid, jobid, dataid));
"""
ROWS = f"""
INSERT INTO {{schema}}.dataset VALUES
    ('orders', 'db1', 'shop', 'sales', 'orders', 'etl', '{TIGER}'),
    ('clean', 'localhost', 'file:', '/data', 'clean', 'etl', NULL),
    ('totals', NULL, NULL, NULL, NULL, NULL, '');
INSERT INTO {{schema}}.job VALUES
    ('clean_up', 'IN', 'orders', NULL, now()), ('clean_up', 'OUT', 'clean', NULL, now()),
    ('clean_up', 'BATCH', NULL, '1000', now()),
    ('sum_up', 'IN', 'clean', NULL, now()), ('sum_up', 'OUT', 'totals', NULL, now());
INSERT INTO {{schema}}.datastatus VALUES
    ('orders', 'feed', '1.0', 'OUT', 'READY', now()), ('orders', 'feed', '2.0', 'OUT', 'READY', now()),
    ('orders', 'feed', '3.0', 'OUT', 'READY', now()), ('orders', 'feed', '4.0', 'OUT', 'READY', now()),
    ('clean', 'clean_up', '1.0', 'OUT', 'READY', now()), ('totals', 'sum_up', '1.0', 'OUT', 'COMPLETE', now()),
    ('clean', 'clean_up', '2.0', 'OUT', 'READY', now()), ('totals', 'sum_up', '2.0', 'OUT', 'FAILED', now()),
    ('clean', 'clean_up', '3.0', 'OUT', 'RUNNING', now()), ('orders', 'clean_up', '3.0', 'IN', 'RUNNING', now()),
    ('clean', 'clean_up', '4.0', 'OUT', 'RESUBMIT', now());
"""


def make(url: str, text: str, schema: str = "dataflow") -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(text.format(schema=schema))


@pytest.fixture
def source(postgres_server: Server) -> str:
    """The original's database, with a small feed in it; the address holds no password."""
    url = postgres_server.new_database().replace("postgres:@", "postgres@")
    make(url, TABLES + ROWS)
    return url


def imported(project: Project, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = project.json("import-opendataflow", *options)
    return found


# Datasets and jobs ----------------------------------------------------------------------------------------------------
def test_datasets_and_jobs_become_a_project(sqlite_project: Project, source: str) -> None:
    done = sqlite_project.dataflow("import-opendataflow", "--url", source, "--project", "Old feed")
    assert done.returncode == 0, done.stderr
    content = yaml.safe_load(done.stdout)
    assert content["name"] == "Old feed"
    assert content["datasets"] == {
        "orders": {
            "hostname": "db1", "database": "shop", "schemaname": "sales", "tablename": "orders", "username": "etl",
            "encryptedpass": TIGER,
        },
        "clean": {
            "hostname": "localhost", "database": "file:", "schemaname": "/data", "tablename": "clean",
            "username": "etl",
        },
        "totals": {},
    }  # fmt: skip
    assert content["jobs"] == {
        "clean_up": {"inputs": ["orders"], "outputs": ["clean"], "env": {"BATCH": "1000"}},
        "sum_up": {"inputs": ["clean"], "outputs": ["totals"]},
    }
    assert "3 datasets, 2 jobs" in done.stderr
    assert "needs a hand" not in done.stderr
    assert "7 chunks are READY there" in done.stderr


def test_a_file_is_written_once_and_replaced_only_by_force(sqlite_project: Project, source: str) -> None:
    file = sqlite_project.folder / "project.yml"
    options = ("--url", source, "--write", "project.yml")
    assert imported(sqlite_project, *options, "--dry-run")["written"] is None
    assert not file.exists()
    assert imported(sqlite_project, *options)["written"] == "project.yml"
    file.write_text("mine\n")
    refused = sqlite_project.dataflow("import-opendataflow", *options)
    assert refused.returncode == 2
    assert "project.yml is there already; --force replaces it" in refused.stderr
    assert file.read_text() == "mine\n"
    assert sqlite_project.dataflow("import-opendataflow", *options, "--force").returncode == 0
    assert "clean_up" in file.read_text()


def test_what_cannot_be_said_in_a_project_is_noted(sqlite_project: Project, source: str) -> None:
    make(
        source,
        """
        INSERT INTO {schema}.dataset (datasetid, hostname, encryptedpass) VALUES
            ('plain', 'h', 'hunter2'), ('twice', 'a', NULL), ('twice', 'b', NULL),
            ('today', NULL, NULL), (NULL, 'x', NULL);
        INSERT INTO {schema}.job (jobid, itemtype, datasetid) VALUES
            ('no_output', 'IN', 'orders'), ('itself', 'IN', 'plain'), ('itself', 'OUT', 'plain'),
            ('second', 'IN', 'orders'), ('second', 'OUT', 'clean'), ('stray', 'OUT', NULL),
            ('daily', 'IN', 'today'), ('daily', 'IN', 'today'), ('daily', 'OUT', 'unknown');
        """,
    )
    found = imported(sqlite_project, "--url", source)
    notes = "\n".join(found["notes"])
    for told in (
        "dataset plain: its encryptedpass is not encrypted and was left out",
        "dataset twice is registered more than once",
        "job no_output is left out: it has no OUT dataset",
        "job itself is left out: plain is both its input and its output",
        "job second is left out: clean_up already produces clean",
        "job stray has an OUT item without a dataset",
        "dataset unknown is used by job daily but was not registered",
    ):
        assert told in notes
    assert found["project"]["jobs"]["daily"] == {"inputs": ["today"], "outputs": ["unknown"]}
    assert set(found["project"]["datasets"]) == {"orders", "clean", "totals", "plain", "twice", "unknown"}
    shown = sqlite_project.dataflow("import-opendataflow", "--url", source)
    assert "# Note: job stray has" in shown.stdout
    assert "hunter2" not in shown.stdout + shown.stderr + str(found)


# Chunks ---------------------------------------------------------------------------------------------------------------
def test_ready_chunks_are_brought_over_and_the_rest_runs_again(project: Project, source: str) -> None:
    from_there = ("import-opendataflow", "--url", source)
    early = project.dataflow(*from_there, "--status")
    assert early.returncode in (2, 75)
    assert "dataflow apply" in early.stderr
    assert project.dataflow(*from_there, "--write", "project.yml").returncode == 0
    assert project.dataflow("apply").returncode == 0

    planned = imported(project, "--url", source, "--status", "--dry-run")
    assert (len(planned["ready"]), planned["applied"]) == (7, False)
    assert project.sql("SELECT count(*) FROM datastatus WHERE status = 'READY'") == [(0,)]

    done = project.dataflow(*from_there, "--status")
    assert done.returncode == 0, done.stderr
    assert "7 chunks became READY, 0 were already, 0 could not be, 4 rows are left as they are" in done.stderr
    assert "totals/2.0: was FAILED by sum_up; it runs again here" in done.stderr
    assert "clean/3.0: was RUNNING by clean_up; it runs again here" in done.stderr
    assert "clean/4.0: was RESUBMIT by clean_up; it runs again here" in done.stderr
    chunks = project.sql(
        "SELECT datasetid, dataid FROM datastatus WHERE status = 'READY' AND locktype = 'OUT' ORDER BY 1, 2"
    )
    assert chunks == [
        ("clean", "1.0"), ("clean", "2.0"), ("orders", "1.0"), ("orders", "2.0"), ("orders", "3.0"), ("orders", "4.0"),
        ("totals", "1.0"),
    ]  # fmt: skip
    assert project.statuses("clean_up") == {"1.0": "COMPLETE", "2.0": "COMPLETE", "3.0": "PENDING", "4.0": "PENDING"}
    assert project.statuses("sum_up") == {"1.0": "COMPLETE", "2.0": "PENDING"}
    assert project.json("db", "check")["problems"] == []

    again = imported(project, "--url", source, "--status")
    assert (len(again["ready"]), len(again["already"])) == (0, 7)

    ran = []
    for name in ("clean_up", "sum_up"):
        script = project.script(f"{name}.sh", f'echo "$dataid $BATCH" >> ran_{name}')
        done = project.runjob("--drain", script, env={"PASSKEY": PASSKEY})
        assert done.returncode == 0, done.stderr
        ran.append((project.folder / f"ran_{name}").read_text())
    assert ran == ["3.0 1000\n4.0 1000\n", "2.0 \n3.0 \n4.0 \n"]


def test_a_chunk_that_does_not_fit_is_said_and_the_others_are_brought(sqlite_project: Project, source: str) -> None:
    project = sqlite_project
    assert project.dataflow("import-opendataflow", "--url", source, "--write", "project.yml").returncode == 0
    text = (project.folder / "project.yml").read_text()
    text = text.replace("  totals: {}", "  totals: {partitions: {values: [x]}}")
    text = text.replace("    tablename: clean\n", "    tablename: clean\n    path: clean/{dataid}.csv\n")
    project.apply(text)
    make(source, "INSERT INTO {schema}.datastatus VALUES ('strange', 'feed', '1.0', 'OUT', 'READY', now())")
    found = imported(project, "--url", source, "--status")
    assert len(found["ready"]) == 4
    told = "\n".join(found["refused"])
    assert "totals/1.0: '1.0' is not a dataid of totals" in told
    assert "clean/1.0: has a path here; use `dataflow ready clean 1.0`" in told
    assert "strange/1.0: dataset 'strange' is not registered" in told


def status(datasetid: str, jobid: str, dataid: str, locktype: str, was: str) -> OriginalStatus:
    return OriginalStatus(datasetid, jobid, dataid, locktype, was)


def test_a_chunk_is_ready_only_when_all_who_wrote_it_say_so() -> None:
    rows = (
        status("a", "one", "1", "OUT", "READY"), status("a", "two", "1", "OUT", "RESUBMIT"),
        status("a", "one", "2", "OUT", "READY"), status("a", "two", "2", "OUT", "COMPLETE"),
        status("a", "reader", "2", "IN", "DONE"), status("a", "reader", "3", "IN", "ERROR"),
        status("a", "one", "4", "OUT", "HOLD"),
    )  # fmt: skip
    found = judge_statuses(Original((), (), rows))
    assert found.ready == (("a", "2"),)
    assert [(row.dataid, row.status) for row in found.left] == [("3", "ERROR"), ("1", "RESUBMIT"), ("4", "HOLD")]


def test_outputs_come_before_what_they_were_made_from_also_in_a_circle() -> None:
    names = ["raw", "clean", "sum"]
    items = [("c", "IN", "raw"), ("c", "OUT", "clean"), ("s", "IN", "clean"), ("s", "IN", "raw"), ("s", "OUT", "sum")]
    rows = tuple(status(name, "j", dataid, "OUT", "READY") for name in names for dataid in ("10", "9"))
    original = Original((), tuple(OriginalItem(*item, None) for item in items), rows)
    assert judge_statuses(original).ready == tuple((name, day) for name in reversed(names) for day in ("9", "10"))
    circle = (*original.items, OriginalItem("c", "IN", "sum", None))
    assert len(judge_statuses(original._replace(items=circle)).ready) == 6


# Where it is read from ------------------------------------------------------------------------------------------------
def test_the_properties_say_where_the_original_is(sqlite_project: Project, source: str) -> None:
    make(source, TABLES, schema="other")
    place = source.replace("postgres@", "")
    sqlite_project.write("dataflow.properties", f"url={place}\nuser=postgres\nencrypted={TIGER}\n")
    sqlite_project.write("other.properties", f"url={place}\nuser=postgres\nschema=other\n")
    env = {"PASSKEY": PASSKEY}
    assert len(sqlite_project.json("import-opendataflow", env=env)["project"]["datasets"]) == 3
    assert sqlite_project.dataflow("import-opendataflow").returncode == 2, "no passkey"
    assert imported(sqlite_project, "--properties", "other.properties")["project"]["datasets"] == {}
    assert imported(sqlite_project, "--properties", "other.properties", "--schema", "dataflow")["ready"] == 7


def test_a_wrong_place_is_refused_with_the_next_step(project: Project, source: str) -> None:
    ours = project.store if project.store.startswith("postgresql") else None
    nowhere = source.replace("/test_", "/nowhere_")
    for options, code, told in (
        ((), 2, "give --url postgresql://… or --properties FILE"),
        (("--url", source, "--properties", "x"), 2, "not both"),
        (("--url", source, "--write", "p.yml", "--status"), 2, "two steps"),
        (("--url", source.replace("postgres@", "postgres:s3cret@")), 2, "--url holds a password"),
        (("--url", source + "&password=s3cret"), 2, "--url holds a password"),
        (("--url", source, "--schema", "public"), 2, "schema public does not hold the original's tables"),
        (("--url", nowhere), 75, "cannot be used"),
        (("--url", "postgresql://h%zz/x"), 2, "is not an address that PostgreSQL understands"),
        (("--properties", "gone"), 2, "gone: No such file"),
    ):
        refused = project.dataflow("import-opendataflow", *options)
        assert refused.returncode == code, refused.stderr
        assert told in refused.stderr
        assert "s3cret" not in refused.stdout + refused.stderr
        assert "Traceback" not in refused.stderr
    if ours is not None:
        project.apply("name: Ours\ndatasets: {a: {}}\n")
        wrong = project.dataflow(
            "import-opendataflow", "--url", ours.replace("postgres:@", "postgres@"), "--schema", "public"
        )
        assert wrong.returncode == 2
        assert "does not hold the original's tables" in wrong.stderr


def test_reading_sees_one_moment_and_can_write_nothing(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk that arrives between two of its queries is not seen, and a statement that writes is refused."""
    before = read_original(source, search_path="dataflow")
    execute = psycopg.Connection.execute
    asked: list[str] = []

    def spy(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        rows = execute(self, query, *args, **options)
        if "FROM dataset" in query and not asked:
            make(source, "INSERT INTO {schema}.datastatus VALUES ('orders', 'feed', '9.0', 'OUT', 'READY', now())")
        if "FROM datastatus" in query:
            asked.extend(str(row[0]) for row in execute(self, "SHOW transaction_read_only"))
            asked.extend(str(row[0]) for row in execute(self, "SHOW transaction_isolation"))
        return rows

    monkeypatch.setattr(psycopg.Connection, "execute", spy)
    assert read_original(source, search_path="dataflow") == before
    assert asked == ["on", "repeatable read"]
    monkeypatch.undo()
    assert len(read_original(source, search_path="dataflow").statuses) == len(before.statuses) + 1


def test_the_folder_of_the_project_is_all_that_is_written(sqlite_project: Project, source: str, tmp_path: Path) -> None:
    assert imported(sqlite_project, "--url", source)["statuses"]["READY"] == 6
    assert list(sqlite_project.folder.iterdir()) == []
    assert not (tmp_path / "state").exists()
