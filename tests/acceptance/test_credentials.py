"""Credentials through the installed commands: the original's, another passkey, a dataflow.properties as the store."""

import json
import subprocess
from pathlib import Path

import psycopg
import pytest

from support.jobs import end_of, runs, start_and_wait_for
from support.postgres import Server
from support.processes import command_lines
from support.projects import DATAFLOW, RUNJOB, Project

PASSKEY, NEW_PASSKEY = "correct horse", "battery staple"
TIGER = "XKd1FKJ1k2fPRnxO4p4xjLMFtU/oEyMPyWdiqx6TeduW2sk="  # tiger42, made by Java (tests/unit/test_secrets.py)
OLD, NEW = {"DATAFLOW_PASSKEY": PASSKEY}, {"DATAFLOW_PASSKEY": NEW_PASSKEY}
BOTH = {**OLD, "DATAFLOW_NEW_PASSKEY": NEW_PASSKEY}

WAREHOUSE = """\
# kept   as it is, ä
name: Warehouse
environments: {{dev: {{root: ./data}}}}
datasets:
  orders: {{tablename: orders, encryptedpass: {first}}}   # from the original
  rates: {{tablename: rates, partitions: none, encryptedpass: "{second}"}}
  fresh: {{tablename: fresh, partitions: {{shards: 1..9}}}}
jobs:
  load: {{inputs: [orders, rates], outputs: [fresh]}}
"""
SHOW = 'printf "%s|%s" "$orders_password" "$rates_password" > seen; echo "used $orders_password"'


def sealed(project: Project, text: str, passkey: str = PASSKEY) -> str:
    done = project.dataflow("crypt", "encrypt", input=text, env={"DATAFLOW_PASSKEY": passkey})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def ready(project: Project, *chunks: str) -> None:
    for chunk in chunks:
        datasetid, dataid = chunk.split("/")
        project.sql(
            f"INSERT INTO datastatus (datasetid, dataid, locktype, status) "
            f"VALUES ('{datasetid}', '{dataid}', 'OUT', 'READY')"
        )


def warehouse(project: Project) -> Path:
    """A job with one credential of the original and one of ours; two dataids are ready."""
    project.apply(WAREHOUSE.format(first=TIGER, second=sealed(project, "lion 7")))
    ready(project, "orders/1", "orders/2", "rates/full")
    return project.script("load.sh", SHOW)


def stored(project: Project) -> dict[str, str]:
    return dict(project.sql("SELECT datasetid, encryptedpass FROM dataset WHERE encryptedpass IS NOT NULL"))


# The original's credentials -------------------------------------------------------------------------------------------
def test_a_job_gets_the_password_that_the_original_encrypted_and_it_is_masked(project: Project) -> None:
    script = warehouse(project)
    refused = project.runjob(script, env={"PASSKEY": "wrong"})
    assert refused.returncode == 2
    assert "the passkey is not the one it was encrypted with" in refused.stderr
    assert runs(project, "runid", "load") == []
    done = project.runjob(script, env={"PASSKEY": PASSKEY})
    assert done.returncode == 0, done.stderr
    assert (project.folder / "seen").read_text() == "tiger42|lion 7"
    assert done.stdout == "used ***\n"
    assert runs(project, "log_tail", "load") == [("used ***\n",)]


def test_crypt_decrypts_what_the_original_encrypted(sqlite_project: Project) -> None:
    done = sqlite_project.dataflow("crypt", "decrypt", input=f" {TIGER}\n", env=OLD)
    assert (done.returncode, done.stdout) == (0, "tiger42\n")


# Another passkey ------------------------------------------------------------------------------------------------------
def test_rotate_changes_every_credential_of_the_project_and_nothing_else(project: Project) -> None:
    script = warehouse(project)
    file = project.folder / "project.yml"
    file.chmod(0o640)
    before, old = file.read_text(), stored(project)
    other = "INSERT INTO dataset (project, datasetid, encryptedpass) VALUES ('other', 'theirs', 'not ours')"
    project.sql(other)

    planned = project.json("crypt", "rotate", "--dry-run", env=BOTH)
    assert (planned["rotated"], planned["already"], planned["applied"]) == (4, 0, False)
    assert file.read_text() == before
    assert stored(project) == {**old, "theirs": "not ours"}

    done = project.dataflow("crypt", "rotate", env=BOTH)
    assert done.returncode == 0, done.stderr
    assert "rotated 4 credentials" in done.stderr
    new = stored(project)
    assert new.pop("theirs") == "not ours"
    assert all(text.startswith("enc:v1:") for text in new.values())
    assert file.read_text() == before.replace(old["orders"], new["orders"]).replace(old["rates"], new["rates"])
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in project.folder.iterdir()) == [".dataflow", "load.sh", "project.yml"]
    assert project.json("apply", "--dry-run")["changes"] == [], "store and file hold the same text"

    assert project.runjob(script, env=OLD).returncode == 2
    assert runs(project, "runid", "load") == []
    assert project.runjob(script, env=NEW).returncode == 0
    assert (project.folder / "seen").read_text() == "tiger42|lion 7"


def test_a_rotation_that_was_cut_off_is_finished_by_the_next(project: Project) -> None:
    script = warehouse(project)
    file = project.folder / "project.yml"
    before = file.read_bytes()
    assert project.dataflow("crypt", "rotate", env=BOTH).returncode == 0
    done = stored(project)
    file.write_bytes(before)  # as if it had been killed after the store and before the file
    finished = project.json("crypt", "rotate", env=BOTH)
    assert (finished["rotated"], finished["already"]) == (2, 2)
    assert stored(project) == done
    assert TIGER.encode() not in file.read_bytes()
    assert project.dataflow("apply").returncode == 0
    assert project.runjob(script, env=NEW).returncode == 0
    again = project.json("crypt", "rotate", env=BOTH)
    assert (again["rotated"], again["already"]) == (0, 4)


@pytest.mark.parametrize("where", ["file", "store"])
def test_one_credential_that_cannot_be_opened_stops_the_whole_rotation(project: Project, where: str) -> None:
    warehouse(project)
    foreign = sealed(project, "fox", "a third one")
    if where == "file":
        text = (project.folder / "project.yml").read_text()
        project.write("project.yml", text.replace(TIGER, foreign))
    else:
        project.sql(f"UPDATE dataset SET encryptedpass = '{foreign}' WHERE datasetid = 'orders'")
    before, old = (project.folder / "project.yml").read_bytes(), stored(project)
    refused = project.dataflow("crypt", "rotate", env=BOTH)
    assert refused.returncode == 2
    assert "nothing was changed" in refused.stderr
    assert ("project.yml:5" if where == "file" else "dataset orders") in refused.stderr
    assert (project.folder / "project.yml").read_bytes() == before
    assert stored(project) == old


def test_rotate_with_a_wrong_or_missing_passkey_exits_2(sqlite_project: Project) -> None:
    project = sqlite_project
    warehouse(project)
    before, old = (project.folder / "project.yml").read_bytes(), stored(project)
    for env, told in (
        ({"DATAFLOW_PASSKEY": "wrong", "DATAFLOW_NEW_PASSKEY": NEW_PASSKEY}, "the passkey is not the one"),
        ({"DATAFLOW_NEW_PASSKEY": NEW_PASSKEY}, "no passkey is given"),
        (OLD, "no new passkey is given"),
        ({**OLD, "DATAFLOW_NEW_PASSKEY": PASSKEY}, "the new passkey is the old one"),
    ):
        refused = project.dataflow("crypt", "rotate", env=env)
        assert refused.returncode == 2
        assert told in refused.stderr
        assert not [secret for secret in (PASSKEY, NEW_PASSKEY, "tiger42") if secret in refused.stderr]
    assert (project.folder / "project.yml").read_bytes() == before
    assert stored(project) == old


def test_a_project_that_was_never_applied_is_rotated_in_its_file(sqlite_project: Project, tmp_path: Path) -> None:
    project = sqlite_project
    target = tmp_path / "elsewhere.yml"
    target.write_text(WAREHOUSE.format(first=TIGER, second=sealed(project, "lion 7")))
    (project.folder / "project.yml").symlink_to(target)
    done = project.json("crypt", "rotate", env=BOTH)
    assert done["rotated"] == 2
    assert TIGER not in target.read_text()
    assert (project.folder / "project.yml").is_symlink(), "a link stays a link"
    assert not Path(project.store.removeprefix("sqlite:///")).exists()


# The passkey's file ---------------------------------------------------------------------------------------------------
def test_a_passkey_file_that_others_can_read_is_said_by_crypt_and_not_by_runjob(
    sqlite_project: Project, tmp_path: Path
) -> None:
    project = sqlite_project
    script = warehouse(project)
    file, new = tmp_path / "passkey", tmp_path / "new"
    file.write_text(f"{PASSKEY}\n")
    new.write_text(f"{NEW_PASSKEY}\n")
    file.chmod(0o644)
    new.chmod(0o600)
    env = {"DATAFLOW_PASSKEY_FILE": str(file)}
    told = project.dataflow("crypt", "decrypt", input=TIGER, env=env)
    assert told.stdout == "tiger42\n"
    assert told.stderr == f"dataflow: others can read the passkey file {file}; run `chmod 600 {file}`\n"
    ran = project.runjob(script, env=env)
    assert ran.returncode == 0
    assert "passkey" not in ran.stderr
    file.chmod(0o600)
    done = project.dataflow("crypt", "rotate", "--new-passkey-file", str(new), env=env)
    assert done.returncode == 0
    assert "others can read" not in done.stderr
    assert project.runjob(script, env=NEW).returncode == 0


def test_crypt_takes_no_secret_as_an_argument_and_no_empty_one(sqlite_project: Project) -> None:
    assert sqlite_project.dataflow("crypt", "encrypt", "tiger42", env=OLD).returncode == 2
    assert sqlite_project.dataflow("crypt", "rotate", "tiger42", env=BOTH).returncode == 2
    empty = sqlite_project.dataflow("crypt", "encrypt", input="", env=OLD)
    assert (empty.returncode, empty.stdout) == (2, "")


# dataflow.properties as the store -------------------------------------------------------------------------------------
SILENT = """\
name: Moved
datasets:
  orders: {tablename: orders}
  fresh: {tablename: fresh, partitions: {shards: 1..9}}
jobs:
  load: {inputs: [orders], outputs: [fresh]}
"""


class Moved(Project):
    """A project whose store is named by dataflow.properties alone."""

    def env(self, **extra: str) -> dict[str, str]:
        return {**super().env(**extra), "DATAFLOW_STORE": ""}


@pytest.fixture
def moved(postgres_server: Server, tmp_path: Path) -> Moved:
    url = postgres_server.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA dataflow")
    plain = url.replace("postgres:@", "")
    project = Moved(tmp_path / "project", f"{url}&options=-csearch_path%3Ddataflow")
    project.write("project.yml", SILENT)
    project.write("dataflow.properties", f"# mine\nurl={plain}\nuser=postgres\nschema=dataflow\nencrypted={TIGER}\n")
    return project


def test_the_originals_properties_name_the_store_and_its_password_shows_nowhere(moved: Moved) -> None:
    refused = moved.dataflow("apply", env={"PASSKEY": "wrong"})
    assert refused.returncode == 2
    assert "dataflow.properties: encrypted: a credential cannot be decrypted" in refused.stderr
    assert moved.dataflow("apply", env={"PASSKEY": PASSKEY}).returncode == 0
    tables = moved.sql(
        "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename IN ('datastatus', 'run', 'migration')"
    )
    assert tables == [("dataflow",)]
    ready(moved, "orders/1")
    script = moved.script("load.sh", "env > seen; touch started; while [ ! -e go ]; do sleep 0.02; done; echo loaded")
    runner = start_and_wait_for(moved, moved.folder / "started", script, env={"PASSKEY": PASSKEY})
    argument_lists = command_lines()
    (moved.folder / "go").touch()
    code, out, err = end_of(runner)
    assert (code, out) == (0, "loaded\n"), err
    assert moved.json("status", env={"PASSKEY": PASSKEY})["jobs"]["load"]["COMPLETE"] == 1
    shown = moved.dataflow("db", "url", env={"PASSKEY": PASSKEY})
    assert ":***@" in shown.stdout
    kept = [path.read_bytes() for path in (moved.folder / ".dataflow").rglob("*") if path.is_file()]
    assert any(b"loaded" in text for text in kept), "the log is among what is searched"
    assert b"load.sh" in argument_lists, "the run's own processes are among what is searched"
    searched = b"\n".join([argument_lists, *kept, (moved.folder / "seen").read_bytes(), (shown.stdout + err).encode()])
    for secret in ("tiger42", PASSKEY):
        assert secret.encode() not in searched


def test_a_store_that_cannot_be_reached_is_said_without_its_password(moved: Moved) -> None:
    text = (moved.folder / "dataflow.properties").read_text()
    for change, code in (("/nowhere?", 75), ("%zz?", 2)):
        name = text.partition("?")[0].rpartition("/")[2]
        moved.write(
            "dataflow.properties", text.replace(f"/{name}?", change if change[0] == "/" else f"/{name}{change}")
        )
        for command in ([DATAFLOW, "status"], [DATAFLOW, "apply"], [RUNJOB, moved.script("load.sh", "true")]):
            failed: subprocess.CompletedProcess[str] = moved.run(*command, env={"PASSKEY": PASSKEY})
            assert failed.returncode == code, failed.stderr
            assert "tiger42" not in failed.stdout + failed.stderr
            assert "Traceback" not in failed.stderr


def test_the_properties_are_rotated_with_the_project_and_again_without_harm(moved: Moved) -> None:
    assert moved.dataflow("apply", env=OLD).returncode == 0
    file = moved.folder / "dataflow.properties"
    before = file.read_text()
    done = moved.json("crypt", "rotate", env=BOTH)
    assert done["rotated"] == 1
    assert "tiger42" not in json.dumps(done)
    rotated = file.read_text()
    assert rotated.startswith(before.partition("encrypted=")[0] + "encrypted=enc:v1:")
    assert moved.dataflow("status", env=OLD).returncode == 2
    assert moved.dataflow("status", env=NEW).returncode == 0
    again = moved.json("crypt", "rotate", env=BOTH)
    assert (again["rotated"], again["already"]) == (0, 1)
    assert file.read_text() == rotated


def test_a_schema_that_is_missing_or_taken_by_the_original_is_said(moved: Moved) -> None:
    with psycopg.connect(moved.store, autocommit=True) as connection:
        connection.execute("CREATE TABLE dataflow.dataset (datasetid varchar)")
    taken = moved.dataflow("apply", env=OLD)
    assert taken.returncode == 2
    assert "a schema of its own" in taken.stderr
    text = (moved.folder / "dataflow.properties").read_text()
    moved.write("dataflow.properties", text.replace("schema=dataflow", "schema=nowhere"))
    missing = moved.dataflow("apply", env=OLD)
    assert missing.returncode == 2
    assert "CREATE SCHEMA" in missing.stderr
