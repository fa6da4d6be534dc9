"""Chunks on their way into a table, disturbed: the target holds each dataid once, and the ledger and the store agree.

Each Spark takes seconds to start: one is killed while three chunks are at three different points.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from opendataflow.faults import CHILD_PUBLISHED, CHILD_STAGING, CHILD_WRITTEN
from opendataflow.spark.sql_target import STAGING
from support.jobs import end_of, runs
from support.pipelines import PROJECT, SLUG, STEP, TWICE, draining, find_child, kill, states
from support.postgres import Server, postgres
from support.processes import wait_for
from support.projects import Project

CHUNKS = 4
WRITES = ["replace", "append", "replace_table"] if "DATAFLOW_EVERY_FAULT" in os.environ else ["append"]  # `make faults`
POINTS = {"1": CHILD_STAGING, "2": CHILD_WRITTEN, "3": CHILD_PUBLISHED}
FILES = "totals: {{path: {path}}}"
TABLE = "totals: {{url: '${{TARGET_URL}}', table: totals, write: WRITE}}"


@pytest.fixture(scope="module")
def target() -> Iterator[Server]:
    """A database that may be killed: nobody else's."""
    with postgres() as server:
        yield server


def _pipeline(project: Project, write: str) -> Project:
    text = PROJECT.replace(FILES, TABLE.replace("WRITE", write))
    assert "TARGET_URL" in text
    # The one that was killed comes before the next one: each is at its point in turn.
    project.apply(text.format(chunks=CHUNKS, path="", settings="order: strict"))
    project.write(STEP, TWICE)
    for number in range(1, CHUNKS + 1):
        project.write(f"data/orders/{number}.csv", f"order,item,amount\n1,nut,{number}\n2,bolt,{number * 10}\n")
        project.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('orders', '{number}', 'READY')")
    return project


def _rows(number: int) -> list[tuple[int, str, int, int]]:
    return [(1, "nut", number, 2 * number), (2, "bolt", 10 * number, 20 * number)]


class Target:
    def __init__(self, url: str) -> None:
        self.url = url

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(text).fetchall()

    def rows(self) -> list[tuple[Any, ...]]:
        return self.sql('SELECT "order", item, amount, twice FROM totals ORDER BY amount, twice')

    def staging(self) -> list[tuple[Any, ...]]:
        return self.sql(f"SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE '{STAGING}%'")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("write", WRITES)
def test_killed_at_every_point_the_target_holds_each_dataid_once(
    write: str, target: Server, sqlite_project: Project
) -> None:
    table = Target(target.new_database(f"of_{write}"))
    project = _pipeline(sqlite_project, write)
    markers = {dataid: project.folder / f"{dataid}.marker" for dataid in POINTS}
    points = ",".join(f"{POINTS[dataid]}@{dataid}:{marker}" for dataid, marker in markers.items())
    env = {"TARGET_URL": table.url, "DATAFLOW_CHILD_FAULT_POINT": points}
    with draining(project, env) as runner:
        # Before anything is staged, staged and not published, published and the store does not know.
        passed: list[Path] = []
        for dataid, marker in markers.items():
            _wait(runner, marker, passed)
            kill(find_child, runner)
            marker.unlink()
            if dataid == "3":
                assert ("3",) in table.sql("SELECT dataid FROM dataflow_ledger")
                break
            _wait(runner, marker, passed)  # in its next run; then the target crashes
            target.halt("immediate")
            target.start_again()
            marker.unlink()
            passed.append(marker)
        _let_go(runner, list(markers.values()))
        code, _, told = end_of(runner)
    assert code == 0, told
    assert re.search(r"of 2 rows that were staged in \S+, 0 are there now: .*; it is staged again", told)
    assert "had published it in the database, so nothing is done again" in told
    assert states(project) == dict.fromkeys("1234", "COMPLETE")
    _compare(project, table, write)
    assert table.staging() == []
    assert not list(project.folder.glob("*.marker"))


def _wait(runner: "subprocess.Popen[str]", marker: Path, passed: Iterable[Path]) -> None:
    """Until a chunk is at its point; whoever comes to a point once more, since it stages again, goes on."""

    def arrived() -> bool:
        for earlier in passed:
            earlier.unlink(missing_ok=True)
        return runner.poll() is not None or bool(marker.exists() and marker.read_text())

    wait_for(arrived, f"{marker.stem} is at its point", seconds=90)
    assert runner.poll() is None, runner.communicate()


def _let_go(runner: "subprocess.Popen[str]", markers: list[Path]) -> None:
    """Whoever comes to a point, until the command has ended."""

    def ended() -> bool:
        for marker in markers:
            marker.unlink(missing_ok=True)
        return runner.poll() is not None

    wait_for(ended, "the command ends", seconds=120)


def _compare(project: Project, table: Target, write: str) -> None:
    """Each dataid once, and the ledger's run of each is the store's."""
    ledger = table.sql("SELECT dataid, token, rows FROM dataflow_ledger ORDER BY dataid")
    ready = project.sql(
        "SELECT dataid, version FROM datastatus WHERE datasetid = 'totals' AND locktype = 'OUT' AND status = 'READY'"
    )
    assert {dataid: token for dataid, token, _ in ledger} == dict(ready)
    assert [rows for _, _, rows in ledger] == [2] * CHUNKS
    done = [row for row in runs(project, "dataid, status", SLUG) if row[1] == "COMPLETE"]
    assert sorted(done) == [(dataid, "COMPLETE") for dataid in "1234"]
    adopted = table.sql("SELECT run < token FROM dataflow_ledger WHERE dataid = '3'")
    assert adopted == [(True,)], "what the killed run had published was not done again"
    numbers = range(1, CHUNKS + 1)
    if write == "replace_table":
        ((last,),) = table.sql("SELECT dataid FROM dataflow_ledger ORDER BY published_at DESC LIMIT 1")
        numbers = range(int(last), int(last) + 1)
    assert sorted(table.rows()) == sorted(row for number in numbers for row in _rows(number))
