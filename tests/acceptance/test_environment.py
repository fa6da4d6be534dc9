"""What a script sees: its descriptors, this very chunk's places, decrypted credentials, and nothing else's."""

import subprocess
from pathlib import Path

import pytest

from support.jobs import end_of, lines, one_job, runs, start_and_wait_for
from support.processes import command_lines, wait_for
from support.projects import RUNJOB, Project

SUFFIXES = (
    "datasetid", "itemtype", "hostname", "database", "schemaname", "tablename", "username", "password", "location",
    "format",
)  # fmt: skip
PASSWORD = "s3cr3t $(touch pwned) `x` \"q\" 'p' \\"
PASSKEY = "open sesame 42"

WAREHOUSE = """\
name: Warehouse
environments:
  dev: {{root: ./data}}
datasets:
  orders:
    hostname: db.example.com
    database: shop
    schemaname: sales
    tablename: orders
    username: etl
    encryptedpass: "{encrypted}"
    partitions: {{daily: 2025-11-01..2025-11-02}}
  drop: {{path: "drop/{{dataid}}.csv", format: csv}}
  fresh: {{path: fresh, format: parquet}}
jobs:
  load: {{inputs: [orders, drop], outputs: [fresh], env: {{MODE: full}}}}
"""


def encrypt(project: Project, text: str = PASSWORD, passkey: str = PASSKEY) -> str:
    done = project.dataflow("crypt", "encrypt", input=text, env={"DATAFLOW_PASSKEY": passkey})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def warehouse(project: Project, body: str = 'env -0 > "$PWD/seen"; touch "$fresh_location/part"') -> Path:
    """The job `load` with a database, a file and a run directory, everything ready for 2025-11-01."""
    project.apply(WAREHOUSE.format(encrypted=encrypt(project)))
    project.write("data/drop/2025-11-01.csv", "a,b\n")
    assert project.dataflow("ready", "drop", "2025-11-01").returncode == 0
    project.sql("INSERT INTO datastatus (datasetid, dataid, status) VALUES ('orders', '2025-11-01', 'READY')")
    return project.script("load.sh", body)


def seen(path: Path) -> dict[str, str]:
    return dict(entry.decode().split("=", 1) for entry in path.read_bytes().split(b"\0") if entry)


def test_a_script_sees_every_variable_of_its_datasets_in_both_spellings(project: Project) -> None:
    script = warehouse(project)
    done = project.runjob(script, env={"DATAFLOW_PASSKEY": PASSKEY})
    assert done.returncode == 0, done.stderr
    got = seen(project.folder / "seen")
    data = project.folder / "data"
    [(runid,)] = runs(project, "runid", "load")
    expected = {
        "orders": ("orders", "IN", "db.example.com", "shop", "sales", "orders", "etl", PASSWORD, "", ""),
        "drop": ("drop", "IN", "", "", "", "", "", "", f"{data}/drop/2025-11-01.csv", "csv"),
        "fresh": (
            "fresh", "OUT", "", "", "", "", "", "", f"{data}/fresh/dataid=2025-11-01/_runs/{runid}", "parquet",
        ),
    }  # fmt: skip
    for prefix, values in expected.items():
        for suffix, value in zip(SUFFIXES, values, strict=True):
            assert got[f"{prefix}_{suffix}"] == value, f"{prefix}_{suffix}"
            assert got[f"{prefix}_{suffix.upper()}"] == value, f"{prefix}_{suffix.upper()}"
    assert (got["dataid"], got["jobid"], got["MODE"]) == ("2025-11-01", "load", "full")
    assert (got["DATAFLOW_RUN_ID"], got["DATAFLOW_TOKEN"]) == (str(runid), str(runid))
    assert got["DATAFLOW_ATTEMPT"] == "1"
    assert not (project.folder / "pwned").exists()


def test_a_consumer_sees_the_place_of_the_published_run_directory(project: Project) -> None:
    project.apply(
        "name: Chain\nenvironments: {dev: {root: data}}\n"
        "datasets:\n  parts: {path: parts, format: parquet, partitions: {shards: 1..1}}\n"
        "  end: {path: 'end/{dataid}.txt'}\n"
        "jobs: {make: {outputs: [parts]}, use: {inputs: [parts], outputs: [end]}}\n"
    )
    make = project.script("make.sh", 'echo "$DATAFLOW_RUN_ID" > "$parts_location/part-0"')
    use = project.script("use.sh", 'cat "$parts_location/part-0" > "$end_location"; echo "$parts_location"')
    for _ in range(2):
        assert project.runjob(make).returncode == 0
        used = project.runjob(use)
        assert used.returncode == 0, used.stderr
        newest = runs(project, "runid", "make")[-1][0]
        assert used.stdout == f"{project.folder}/data/parts/dataid=1/_runs/{newest}\n"
        assert (project.folder / "data/end/1.txt").read_text() == f"{newest}\n"
        project.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'make'")
        project.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'use'")


def test_attempt_and_token_grow_from_run_to_run(sqlite_project: Project) -> None:
    script = one_job(
        sqlite_project,
        'echo "$DATAFLOW_ATTEMPT $DATAFLOW_TOKEN" >> seen; exit 1',
        settings="retries: {max: 2, backoff: 0.1s}",
    )
    seen_lines = sqlite_project.folder / "seen"
    for attempt in (1, 2, 3):
        wait_for(
            lambda wanted=attempt: sqlite_project.runjob(script).returncode == 1 and len(lines(seen_lines)) == wanted,
            f"attempt {attempt} once its backoff is over",
        )
    assert sqlite_project.sql("SELECT status, parked_until FROM job_status") == [("FAILED", None)]
    attempts, tokens = zip(*(line.split() for line in lines(seen_lines)), strict=True)
    assert attempts == ("1", "2", "3")
    assert sorted(set(tokens), key=int) == list(tokens)


def test_stale_variables_of_the_parent_do_not_reach_the_script(sqlite_project: Project) -> None:
    script = warehouse(sqlite_project)
    stale = {f"{prefix}_{suffix}": "stale" for prefix in ("orders", "drop", "fresh") for suffix in SUFFIXES}
    stale |= {name.rpartition("_")[0] + "_" + name.rpartition("_")[2].upper(): "stale" for name in stale}
    ours = ("dataid", "jobid", "DATAFLOW_RUN_ID", "DATAFLOW_ATTEMPT", "DATAFLOW_TOKEN", "DATAFLOW_STORE_ID")
    done = sqlite_project.runjob(
        script, env={**stale, **dict.fromkeys(ours, "stale"), "KEPT": "stays", "DATAFLOW_PASSKEY": PASSKEY}
    )
    assert done.returncode == 0, done.stderr
    got = seen(sqlite_project.folder / "seen")
    assert "stale" not in got.values()
    assert got["KEPT"] == "stays"


def test_a_nested_runjob_sees_nothing_of_the_outer_jobs_datasets(project: Project) -> None:
    inner = project.script("inner.sh", 'env -0 > "$PWD/seen_inner"; touch "$small_location"')
    outer = project.script("outer.sh", f'env -0 > "$PWD/seen_outer"; touch "$big_location"; exec {RUNJOB} {inner}')
    # A script does not get DATAFLOW_STORE: what it starts finds the store by project.yml.
    project.apply(
        f"name: Nested\nenvironments: {{dev: {{root: data, store: '{project.store}'}}}}\n"
        "datasets:\n  my-src: {hostname: outer-host, partitions: {shards: 7..7}}\n"
        "  big: {path: 'big/{dataid}'}\n  small: {path: 'small/{dataid}', partitions: {shards: 3..3}}\n"
        "jobs: {outer: {inputs: [my-src], outputs: [big]}, inner: {outputs: [small]}}\n"
    )
    project.sql("INSERT INTO datastatus (datasetid, dataid, status) VALUES ('my-src', '7', 'READY')")
    done = project.runjob(outer)
    assert done.returncode == 0, done.stderr
    outside, inside = seen(project.folder / "seen_outer"), seen(project.folder / "seen_inner")
    assert outside["my_src_HOSTNAME"] == "outer-host"
    assert (inside["dataid"], inside["jobid"]) == ("3", "inner")
    assert inside["DATAFLOW_RUN_ID"] != outside["DATAFLOW_RUN_ID"]
    assert [name for name in inside if name.startswith(("my_src_", "big_"))] == []


def test_the_passkey_does_not_reach_the_script_however_it_was_given(sqlite_project: Project, tmp_path: Path) -> None:
    project = sqlite_project
    script = warehouse(project)
    file = tmp_path / "passkey"
    file.write_text(f"{PASSKEY}\n")
    for number, given in enumerate(
        ({"DATAFLOW_PASSKEY": PASSKEY}, {"PASSKEY": PASSKEY}, {"DATAFLOW_PASSKEY_FILE": str(file)})
    ):
        if number:
            project.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE dataid = '2025-11-01'")
        done = project.runjob(script, env=given)
        assert done.returncode == 0, done.stderr
        got = seen(project.folder / "seen")
        assert got["orders_password"] == PASSWORD
        assert not any("PASSKEY" in name for name in got)
        assert not any(PASSKEY in value for value in got.values())


@pytest.mark.both_stores
def test_neither_the_stores_address_nor_tokens_reach_the_script(project: Project) -> None:
    script = one_job(project, 'env -0 > "$PWD/seen"')
    given = dict.fromkeys(("DATAFLOW_GIT_TOKEN", "DATAFLOW_STREAM_TOKEN", "DATAFLOW_HOOK_SECRET", "PASSKEY"), PASSKEY)
    for command in ((script,), ("--drain", script)):
        project.sql("UPDATE job_status SET status = 'RESUBMIT'")
        done = project.runjob(*command, env={**given, "DATAFLOW_ENV": "dev", "HOOK_TOKEN": "theirs"})
        assert done.returncode == 0, done.stderr
        got = seen(project.folder / "seen")
        assert not got.keys() & {*given, "DATAFLOW_STORE"}
        assert not [name for name, value in got.items() if value in (PASSKEY, project.store)]
        assert (got["DATAFLOW_ENV"], got["HOOK_TOKEN"]) == ("dev", "theirs")
        assert got["DATAFLOW_TOKEN"] == got["DATAFLOW_RUN_ID"]


def test_the_passkey_cannot_be_registered_as_a_host(sqlite_project: Project) -> None:
    text = "name: x\nenvironments: {dev: {}}\ndatasets:\n  a:\n    hostname: ${DATAFLOW_PASSKEY:-x}\n"
    sqlite_project.write("project.yml", text)
    for command in ("apply", "check-project"):
        done = sqlite_project.dataflow(command, env={"DATAFLOW_PASSKEY": PASSKEY})
        assert done.returncode == 2, done.stderr
        told = done.stdout + done.stderr
        assert "project.yml:5: datasets.a.hostname: DATAFLOW_PASSKEY is reserved" in told
        assert PASSKEY not in told


def test_a_table_whose_address_is_registered_as_the_passkey_is_not_opened(sqlite_project: Project) -> None:
    project = sqlite_project
    project.apply(
        "name: x\nenvironments: {dev: {root: data}}\n"
        "datasets:\n  a: {url_env: CRM_URL, table: t, partitions: {values: [x]}}\n  b: {path: 'b/{dataid}'}\n"
        "jobs: {load: {inputs: [a], outputs: [b]}}\n"
    )
    project.sql("INSERT INTO datastatus (datasetid, dataid, status) VALUES ('a', 'x', 'READY')")
    project.sql("UPDATE dataset SET definition = replace(definition, 'CRM_URL', 'DATAFLOW_PASSKEY')")
    script = project.script("load.sh", 'env > seen; touch "$b_location"')
    done = project.runjob(script, env={"DATAFLOW_PASSKEY": f"postgresql://{PASSKEY}/x"})
    assert done.returncode == 2
    assert "dataset a: url_env: DATAFLOW_PASSKEY is reserved" in done.stderr
    assert PASSKEY not in done.stderr
    assert not (project.folder / "seen").exists()


def test_a_wrong_or_missing_passkey_exits_2_before_anything_is_claimed(project: Project) -> None:
    script = warehouse(project)
    for given, told in (({"DATAFLOW_PASSKEY": "wrong"}, "passkey is not the one"), ({}, "set DATAFLOW_PASSKEY")):
        refused = project.runjob(script, env=given)
        assert refused.returncode == 2
        assert told in refused.stderr
        assert "Traceback" not in refused.stderr
    assert not (project.folder / "seen").exists()
    assert runs(project, "runid", "load") == []


def test_a_job_without_credentials_needs_no_passkey(sqlite_project: Project) -> None:
    assert sqlite_project.runjob(one_job(sqlite_project, "")).returncode == 0


def all_text_of(project: Project) -> str:
    tables = ("store", "project", "dataset", "job", "job_status", "datastatus", "data_manifest", "run", "history")
    return "\n".join(str(row) for table in tables for row in project.sql(f"SELECT * FROM {table}"))


def test_secrets_are_in_no_log_no_store_and_no_argument_list(project: Project) -> None:
    script = warehouse(
        project,
        'touch "$fresh_location/part"; echo loading; touch started; while [ ! -e go ]; do sleep 0.02; done',
    )
    runner = start_and_wait_for(project, project.folder / "started", script, env={"DATAFLOW_PASSKEY": PASSKEY})
    argument_lists = command_lines()
    (project.folder / "go").touch()
    code, out, err = end_of(runner)
    assert (code, out) == (0, "loading\n"), err
    kept = [path.read_bytes() for path in (project.folder / ".dataflow").rglob("*") if path.is_file()]
    assert any(b"loading" in text for text in kept), "the log is among what is searched"
    assert b"load.sh" in argument_lists, "the run's own processes are among what is searched"
    searched = b"\n".join([argument_lists, *kept, (all_text_of(project) + err).encode()])
    for secret in (PASSWORD, PASSWORD.replace("\\", "\\\\"), "s3cr3t", PASSKEY):
        assert secret.encode() not in searched
    if project.store.startswith("sqlite"):
        file = Path(project.store.removeprefix("sqlite:///"))
        assert b"s3cr3t" not in b"".join(path.read_bytes() for path in file.parent.iterdir())


def test_a_password_that_the_script_prints_is_masked_wherever_output_is_kept_or_shown(project: Project) -> None:
    script = warehouse(
        project,
        'echo "before [$orders_password] after"; printf "%s" "${orders_password:0:5}"; sleep 0.2;'
        ' echo "${orders_password:5}"; touch "$fresh_location/part"',
    )
    done = project.runjob(script, env={"DATAFLOW_PASSKEY": PASSKEY})
    assert done.returncode == 0, done.stderr
    [(runid, tail)] = runs(project, "runid, log_tail", "load")
    log = (project.folder / f".dataflow/logs/load/{runid}.log").read_text()
    for text in (done.stdout, log, tail):
        assert PASSWORD not in text
        assert text == "before [***] after\n***\n"


def test_decrypt_gives_back_what_encrypt_was_given(sqlite_project: Project) -> None:
    sealed = encrypt(sqlite_project)
    assert PASSWORD not in sealed
    assert sealed != encrypt(sqlite_project), "a salt and a nonce of its own each time"
    opened: subprocess.CompletedProcess[str] = sqlite_project.dataflow(
        "crypt", "decrypt", input=sealed, env={"DATAFLOW_PASSKEY": PASSKEY}
    )
    assert opened.stdout == f"{PASSWORD}\n"
    damaged = sqlite_project.dataflow("crypt", "decrypt", input=sealed[:-8], env={"DATAFLOW_PASSKEY": PASSKEY})
    assert damaged.returncode == 2


def test_a_password_in_plain_text_is_refused_by_apply(sqlite_project: Project) -> None:
    sqlite_project.write("project.yml", WAREHOUSE.format(encrypted="hunter2"))
    refused = sqlite_project.dataflow("apply")
    assert refused.returncode == 2
    assert "dataflow crypt encrypt" in refused.stderr
    assert "hunter2" not in refused.stderr
