"""Each example runs from a fresh copy, command by command as its README says, shows what it says, and makes expected/.

How a README is read: support/typed.py.
"""

import datetime
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from support.postgres import Server, psql_folder
from support.processes import wait_for
from support.projects import Project
from support.typed import follow_page, pattern_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TODAY = "TODAY"  # in expected/: the date
ROLE, PASSWORD, PASSKEY = "dataflow_example", "only-for-this-example", "choose your own"


class Told(NamedTuple):
    """What a README promises beyond its text: the refusals in their order, and how its jobs stand in the end."""

    refusals: list[int]
    statuses: dict[str, dict[str, str]]


TOLD = {
    "load_file": Told(
        [10, 13, 10], {"load": {"2025-11-01": "COMPLETE", "2025-11-02": "COMPLETE", "2025-11-03": "PENDING"}}
    ),
    "extract_postgres": Told(
        [2, 10], {"extract_orders": {"2025-11-01": "COMPLETE", "2025-11-02": "COMPLETE", "2025-11-03": "PENDING"}}
    ),
    "validate_extract": Told([1], {"validate": {TODAY: "COMPLETE"}, "extract": {TODAY: "COMPLETE"}}),
    "two_inputs": Told([10, 10], {"price": {"2025-11-01": "COMPLETE", "2025-11-02": "COMPLETE"}}),
    "leads": Told([], {"clean_leads": {"full": "COMPLETE"}}),
    "flights": Told([10, 10], {}),
    "year_of_flights": Told([13], {}),  # the rest of its story: test_demo.py
}


SHOWN = ("flights", "year_of_flights")  # what they make is in what their README shows


# One example ----------------------------------------------------------------------------------------------------------
def follow(name: str, folder: Path, env: dict[str, str]) -> None:
    """Copy the example and do what its README says; everything must be as it says."""
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns(".dataflow"))
    results = follow_page((folder / "README.md").read_text(), folder, env, all_is_shown=True)
    assert [code for code, _ in results if code] == TOLD[name].refusals


def check_made(name: str, folder: Path, day: str) -> None:
    """In every folder of expected/, the same files with the same content were made, and no other."""
    expected = folder / "expected"
    made_in = {file.parent.relative_to(expected) for file in expected.rglob("*") if file.is_file()}
    assert made_in or name in SHOWN
    for place in made_in:
        wanted = {file.name.replace(TODAY, day): file.read_text() for file in (expected / place).iterdir()}
        made = {file.name: file.read_text() for file in (folder / place).iterdir() if file.is_file()}
        assert made == wanted
    project = Project(folder, f"sqlite:///{folder / '.dataflow/state.db'}")
    for jobid, statuses in TOLD[name].statuses.items():
        assert project.statuses(jobid) == {dataid.replace(TODAY, day): status for dataid, status in statuses.items()}


def run_example(name: str, tmp_path: Path, **extra: str) -> Path:
    """The folder in which the example was done."""
    env = {key: value for key, value in Project(tmp_path, "").env().items() if not key.startswith("PG")}
    del env["DATAFLOW_STORE"]  # the store is the one that a fresh copy makes
    for number in range(2):
        folder, day = tmp_path / str(number) / name, utc_today()
        try:
            follow(name, folder, env | extra)
            check_made(name, folder, day)
        except AssertionError:
            if utc_today() == day:
                raise
            continue  # midnight came in between: `today` was two days
        break
    return folder


def utc_today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


@pytest.mark.parametrize("name", ["load_file", "validate_extract", "two_inputs", "leads", "flights", "year_of_flights"])
def test_the_example_does_what_its_readme_says(name: str, tmp_path: Path) -> None:
    run_example(name, tmp_path)


# PostgreSQL -----------------------------------------------------------------------------------------------------------
def ask_for_the_password(server: Server) -> None:
    """From now on the example's user gets in with its password only; the server trusts all others as before."""
    rules = server.data / "pg_hba.conf"
    rules.write_text(f"local all {ROLE} scram-sha-256\n{rules.read_text()}")
    with psycopg.connect(server.url) as connection:
        connection.execute("SELECT pg_reload_conf()")
    wait_for(lambda: "no password supplied" in why_refused(server), "the server asks for the password")


def why_refused(server: Server) -> str:
    try:
        psycopg.connect(host=str(server.data), user=ROLE, dbname="postgres").close()
    except psycopg.OperationalError as error:
        return str(error)
    return ""


def test_the_example_with_postgres_does_what_its_readme_says(postgres_server: Server, tmp_path: Path) -> None:
    ask_for_the_password(postgres_server)
    path = f"{psql_folder()}:{Project(tmp_path, '').env()['PATH']}"
    folder = run_example("extract_postgres", tmp_path, WAREHOUSE_HOST=str(postgres_server.data), PATH=path)
    kept = [file for file in (folder / ".dataflow").rglob("*") if file.is_file()]
    assert kept
    for file in kept:
        assert PASSWORD.encode() not in file.read_bytes(), file
        assert PASSKEY.encode() not in file.read_bytes(), file


# All of them ----------------------------------------------------------------------------------------------------------
def test_every_example_is_run_here_and_listed() -> None:
    folders = {folder.name for folder in EXAMPLES.iterdir() if folder.is_dir()}
    assert folders == set(TOLD)
    listed = re.findall(r"^\| \[(\w+)\]\((\S+)\)", (EXAMPLES / "README.md").read_text(), flags=re.MULTILINE)
    assert {name for name, _ in listed} == folders
    assert all((EXAMPLES / page).is_file() for _, page in listed)


def test_a_pattern_takes_what_it_says_and_nothing_else() -> None:
    pattern = pattern_of("a  b\n\n──…\nrun … done\n…\nend\n")
    assert re.fullmatch(pattern, "a b\n─\nrun 7 done\nx\ny\nend\n")
    assert re.fullmatch(pattern, "a b\n─\nrun 7 done\nend\n")
    assert not re.fullmatch(pattern, "a b\n─\nrun 7\nend\n")
    assert not re.fullmatch(pattern, "a b\n─\nrun 7 done\nend\nmore\n")
    assert not re.fullmatch(pattern_of(""), "something\n")
