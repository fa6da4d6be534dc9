"""The grid of dataset × dataid over HTTP: what SQL says, now and as it was at any moment."""

import datetime
import random
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from opendataflow.store.reports.grid import LETTERS, run_length
from support.projects import Project
from support.seeded import Shell, many_days
from support.web import Site, Visitor

FIRST = (datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=30)).isoformat()
MORE = """
  shards: {path: "s/{dataid}", partitions: {shards: "0001..0120"}}
  counted: {path: "c/{dataid}"}
  named: {path: "n/{dataid}"}
"""


def unfold(text: str) -> str:
    return "".join(letter * int(number or 1) for number, letter in re.findall(r"(\d*)(\D)", text))


def put(shell: Shell, dataset: str, dataid: str, status: str) -> None:
    what = f"'grid', '{dataset}', '{dataid}', '{status}'"
    shell.run(f"INSERT INTO datastatus (project, datasetid, dataid, status) VALUES ({what})")


@pytest.fixture
def shell(project: Project) -> Iterator[Shell]:
    """A project with datasets of every shape, and chunks in every status."""
    project.apply(many_days(4, first=FIRST, more=MORE))
    found = Shell(project.store)
    found.put_days("d", 4, 30, first=FIRST)
    found.put_shards("shards", 110, width=4)
    found.put_shards("counted", 12, width=0)
    for name in ("zeta", "alpha/1", "beta 2", "ünicode"):
        put(found, "named", name, "READY")
    yield found
    found.close()


def told(visitor: Visitor, path: str) -> Any:
    answer = visitor.get(path)
    assert answer.status == 200, answer.text
    return answer.json


def cells_of(visitor: Visitor, query: str) -> dict[tuple[str, str], str]:
    """Every cell of the windows with something in it, letter by dataset and dataid."""
    found = {}
    column, columns = 0, 1
    while column < columns:
        window = told(visitor, f"/v1/grid?{query}&column={column}&columns=20&rows=2")
        columns = window["columns"]
        for row in range(0, window["rows"], 2):
            part = told(visitor, f"/v1/grid?{query}&column={column}&columns=20&row={row}&rows=2")
            for line in part["lines"]:
                dataids = part["dataids"] if line["dataids"] is None else line["dataids"]
                letters = unfold(line["cells"])
                assert len(letters) == len(dataids)
                found |= {(line["dataset"], one): letter for one, letter in zip(dataids, letters, strict=True)}
        column += 20
    return {key: letter for key, letter in found.items() if letter != "."}


def in_sql(shell: Shell) -> dict[tuple[str, str], str]:
    rows = shell.run("SELECT datasetid, dataid, status FROM datastatus WHERE locktype = 'OUT'")
    return {(datasetid, dataid): LETTERS[status] for datasetid, dataid, status in rows}


def test_windows_show_every_chunk_as_sql_has_it_and_the_gaps_between(project: Project, shell: Shell) -> None:
    with Site(project) as site:
        visitor = site.script("viewer")
        found: dict[tuple[str, str], str] = {}
        for kind in ("daily", "numbered", "other"):
            found |= cells_of(visitor, f"kind={kind}")
        known = in_sql(shell)
        assert {key: letter for key, letter in found.items() if letter != "G"} == known
        days = [(datetime.date.fromisoformat(FIRST) + datetime.timedelta(days=n)).isoformat() for n in range(30)]
        expected = {(f"d{n}", day) for n in range(4) for day in days}
        expected |= {("shards", f"{n:04d}") for n in range(1, 121)}
        assert {key for key, letter in found.items() if letter == "G"} == expected - known.keys()
        counts = told(visitor, "/v1/grid")["counts"]
        by_status = dict(shell.run("SELECT status, count(*) FROM datastatus WHERE locktype = 'OUT' GROUP BY status"))
        assert counts == {**by_status, "GAP": len(expected - known.keys())}


def test_a_dataset_is_read_in_its_natural_order_and_grows(project: Project, shell: Shell) -> None:
    with Site(project) as site:
        visitor = site.script("viewer")

        def numbers() -> dict[int, str]:
            block = told(visitor, "/v1/grid/grid/counted?start=0&count=1000")
            assert block["size"] == len(unfold(block["cells"]))
            assert (block["width"], block["dataids"]) == (0, [])
            letters = enumerate(unfold(block["cells"]), block["first_number"])
            return {number: letter for number, letter in letters if letter != "."}

        def add(number: int) -> None:
            put(shell, "counted", str(number), "READY")

        assert list(numbers()) == list(range(1, 13))
        add(13)
        assert list(numbers()) == list(range(1, 14))
        add(900)  # far beyond: found all the same
        add(14)
        assert list(numbers()) == [*range(1, 15), 900]
        assert told(visitor, "/v1/grid/grid/counted/place?dataid=900")["index"] == 899
        assert told(visitor, "/v1/grid/grid/named?start=1&count=2")["dataids"] == ["beta 2", "zeta"]
        assert told(visitor, "/v1/grid/grid/named/place?dataid=zeta")["index"] == 2
        assert visitor.get("/v1/grid/grid/named/place?dataid=zet").status == 404
        assert told(visitor, f"/v1/grid/grid/d0/place?dataid={FIRST}")["index"] == 0


def test_filters_leave_lines_that_have_some_in_that_status(project: Project, shell: Shell) -> None:
    with Site(project) as site:
        visitor = site.script("viewer")
        for status in ("FAILED", "HOLD", "RESUBMIT", "RUNNING", "PENDING"):
            query = f"SELECT DISTINCT datasetid FROM datastatus WHERE status = '{status}' AND locktype = 'OUT'"
            page = told(visitor, f"/v1/datasets?status={status}")
            assert {one["dataset"] for one in page["datasets"]} == {row[0] for row in shell.run(query)}, status
        gaps = told(visitor, "/v1/datasets?status=GAP")["datasets"]
        assert {one["dataset"]: one["counts"]["GAP"] for one in gaps} == _gaps(shell)
        assert [one["dataset"] for one in told(visitor, "/v1/datasets?name=HARD")["datasets"]] == ["shards"]
        assert told(visitor, "/v1/datasets?project=other") == {"total": 0, "datasets": []}
        assert told(visitor, "/v1/datasets?limit=2&offset=1")["datasets"][0]["dataset"] == "d0"


def _gaps(shell: Shell) -> dict[str, int]:
    rows = shell.run("SELECT datasetid, count(*) FROM datastatus WHERE locktype = 'OUT' GROUP BY datasetid")
    expected = {f"d{n}": 30 for n in range(4)} | {"shards": 120}
    return {name: expected[name] - number for name, number in rows if name in expected and number < expected[name]}


def _moment() -> str:
    """Now, with nothing else within a few milliseconds."""
    time.sleep(0.02)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    time.sleep(0.02)
    return now


def _change(shell: Shell, chance: random.Random) -> None:
    dataset = chance.choice(["d0", "d1", "counted", "named", "shards"])
    at = f"WHERE project = 'grid' AND datasetid = '{dataset}' AND dataid = "
    rows = shell.run(
        f"SELECT dataid FROM datastatus WHERE datasetid = '{dataset}' AND locktype = 'OUT' ORDER BY dataid"
    )
    match chance.randrange(6):
        case 0:
            dataid = {"counted": str(chance.randrange(20)), "named": f"n{chance.randrange(9)}", "shards": "0119"}.get(
                dataset, FIRST
            )
            shell.run(f"DELETE FROM datastatus {at} '{dataid}'")
            put(shell, dataset, dataid, "PENDING")
        case 1:
            shell.run(f"DELETE FROM datastatus {at} '{chance.choice(rows)[0]}'")
        case _:
            status = chance.choice(["READY", "FAILED", "HOLD", "RESUBMIT", "PENDING"])
            shell.run(f"UPDATE datastatus SET status = '{status}' {at} '{chance.choice(rows)[0]}'")


def test_the_past_is_as_it_was_seen_then(project: Project, shell: Shell) -> None:
    chance = random.Random(7)
    snapshots = []
    for _ in range(8):
        snapshots.append(
            (_moment(), in_sql(shell), dict(shell.run("SELECT status, count(*) FROM datastatus GROUP BY status")))
        )
        for _ in range(6):
            _change(shell, chance)
    assert len({str(sorted(seen.items())) for _, seen, _ in snapshots}) == 8
    with Site(project) as site:
        visitor = site.script("viewer")
        for moment, seen, counts in snapshots:
            found: dict[tuple[str, str], str] = {}
            for kind in ("daily", "numbered"):
                found |= cells_of(visitor, f"kind={kind}&at={moment}")
            there = {key: letter for key, letter in found.items() if letter != "G"}
            assert there == {key: letter for key, letter in seen.items() if key[0] != "named"}
            told_then = told(visitor, f"/v1/grid?at={moment}")["counts"]
            assert {status: n for status, n in told_then.items() if status != "GAP"} == counts
        before = cells_of(visitor, f"kind=daily&at={FIRST}T00:00")
        assert before == {}  # nothing was there, and nothing was expected yet


def test_where_history_was_cleaned_away_the_past_says_that_it_is_not_certain(project: Project, shell: Shell) -> None:
    chance = random.Random(11)
    early = (_moment(), in_sql(shell))
    for _ in range(40):
        _change(shell, chance)
    middle = (_moment(), in_sql(shell))
    done = project.dataflow("history", "clean", "--yes")
    assert done.returncode == 0, done.stderr
    for _ in range(20):
        _change(shell, chance)
    late = (_moment(), in_sql(shell))
    _change(shell, chance)
    with Site(project) as site:
        visitor = site.script("viewer")

        def there(moment: str) -> dict[tuple[str, str], str]:
            found = cells_of(visitor, f"kind=daily&at={moment}") | cells_of(visitor, f"kind=numbered&at={moment}")
            return {key: letter for key, letter in found.items() if letter != "G"}

        def without_names(seen: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
            return {key: letter for key, letter in seen.items() if key[0] != "named"}

        # Since the cleaning everything is known, if not always for certain.
        for moment, seen in (middle, late):
            found = there(moment)
            assert {key: letter.upper() for key, letter in found.items()} == without_names(seen)
        # Before it, what is said for certain is true, and what is not is said so.
        found = there(early[0])
        for key, letter in found.items():
            assert letter.islower() or early[1].get(key) == letter, key
        assert any(letter.islower() for letter in found.values())
        page = site.visitor("viewer").get(f"/datasets?at={early[0][:16]}")
        assert "The history goes back to" in page.words
        assert told(visitor, f"/v1/grid?at={early[0]}")["known_since"] > early[0]


def test_changes_since_a_look_are_the_cells_that_changed(project: Project, shell: Shell) -> None:
    with Site(project) as site:
        visitor = site.script("viewer")
        upto = told(visitor, "/v1/grid")["upto"]
        assert told(visitor, f"/v1/grid/changes?since={upto}") == {"changes": [], "upto": upto, "complete": True}
        shell.run("UPDATE datastatus SET status = 'FAILED' WHERE datasetid = 'counted' AND dataid = '3'")
        shell.run("UPDATE datastatus SET status = 'HOLD' WHERE datasetid = 'counted' AND dataid = '3'")
        shell.run("DELETE FROM datastatus WHERE datasetid = 'named' AND dataid = 'zeta'")
        found = told(visitor, f"/v1/grid/changes?since={upto}")
        assert [(one["dataset"], one["dataid"], one["cell"]) for one in found["changes"]] == [
            ("counted", "3", "H"), ("named", "zeta", "."),
        ]  # fmt: skip
        assert told(visitor, f"/v1/grid/changes?since={found['upto']}")["changes"] == []
        assert [one["dataset"] for one in told(visitor, f"/v1/grid/changes?since={upto}&dataset=named")["changes"]] == [
            "named"
        ]
        assert not told(visitor, "/v1/grid/changes?since=0&project=nobody")["changes"]


def test_what_does_not_fit_is_refused_with_its_place(sqlite_project: Project) -> None:
    sqlite_project.apply(many_days(1, first=FIRST))
    with Site(sqlite_project) as site:
        visitor = site.script("viewer")
        for query in (
            "at=yesterday",
            "kind=weekly",
            "rows=0",
            "rows=101",
            "columns=401",
            "column=-1",
            "status=READ",
            "project=" + 500 * "x",
        ):
            answer = visitor.get(f"/v1/grid?{query}")
            assert answer.status == 422, query
            assert query.split("=")[0] in answer.json["detail"]
        assert visitor.get("/v1/grid/grid/nobody").status == 404
        assert visitor.get("/v1/grid?at=0001-01-01T00:00:00%2B14:00").status == 422
        assert site.visitor("viewer").get("/datasets?at=soon").status == 422
        assert site.visitor("viewer").get("/datasets?kind=weekly").status == 422


def test_a_run_length_is_read_back() -> None:
    chance = random.Random(1)
    for _ in range(200):
        text = "".join(chance.choice("RF.g") * chance.randrange(1, 15) for _ in range(chance.randrange(6)))
        assert unfold(run_length(text)) == text
