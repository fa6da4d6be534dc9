"""Paths with dates in other forms: found by a scan, built for a script, and never beside the dataset's scheme."""

import pytest

from support.jobs import lines
from support.projects import Project

FEED = """\
name: Feed
environments: {dev: {root: data}}
datasets:
  orders:
    path: "in/{dataid:%Y/%m}/orders_{dataid:%Y%m%d}.csv"
    format: csv
    partitions: {daily: 2025-11-01..2025-11-05}
    arrival: {done: "in/{dataid:%d%m%Y}.done"}
  sums: {path: "out/{dataid:%d.%m.%Y}.txt", partitions: {daily: 2025-11-01..2025-11-05}}
jobs:
  load: {script: load.sh, inputs: [orders], outputs: [sums]}
"""


@pytest.mark.both_stores
def test_files_named_by_other_dates_arrive_and_outputs_are_named_so(project: Project) -> None:
    project.apply(FEED)
    project.script("load.sh", 'echo "$dataid $orders_location" >> ran; cat "$orders_location" > "$sums_location"')
    for day in ("01", "02", "31"):
        project.write(f"data/in/2025/11/orders_202511{day}.csv", f"id\n{day}\n")
        project.write(f"data/in/{day}112025.done", "")
    project.write("data/in/2025/10/orders_20251103.csv", "id\n3\n")  # of another month than its folder
    found = project.json("scan")
    assert [(one["dataid"], one["state"]) for one in found if one["state"] != "ignored"] == [
        ("2025-11-01", "READY"), ("2025-11-02", "READY"),
    ]  # fmt: skip
    assert [one["evidence"].rpartition("/")[2] for one in found if one["state"] == "ignored"] == [
        "orders_20251131.csv names no dataid of orders"
    ]
    assert project.runjob("--drain", "load.sh").returncode == 10
    root = project.folder / "data"
    assert lines(project.folder / "ran") == [
        f"2025-11-0{day} {root}/in/2025/11/orders_2025110{day}.csv" for day in (1, 2)
    ]
    assert sorted(path.name for path in (root / "out").iterdir()) == ["01.11.2025.txt", "02.11.2025.txt"]
    assert (root / "out/02.11.2025.txt").read_text() == "id\n02\n"


def test_a_chunk_is_declared_by_its_dataid_and_found_by_the_form(sqlite_project: Project) -> None:
    sqlite_project.apply(FEED)
    sqlite_project.write("data/in/2025/11/orders_20251104.csv", "id\n4\n")
    done = sqlite_project.dataflow("ready", "orders", "2025-11-04")
    assert done.returncode == 0, done.stderr
    assert "in/2025/11/orders_20251104.csv" in done.stderr
    for dataid in ("20251104", "../../2025-11-04"):
        refused = sqlite_project.dataflow("ready", "orders", dataid)
        assert refused.returncode == 2
        assert "is not a dataid of orders" in refused.stderr


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("{dataid:%d.%m.%Y}", "{dataid:%m.%Y}", "datasets.sums.path: does not tell which dataid a file is of"),
        ("{dataid:%d.%m.%Y}", "{dataid:%S}", "datasets.sums.path: %S has no meaning in a path"),
        ("{dataid:%d.%m.%Y}", "{day:%Y}", "datasets.sums.path: {day:%Y} has no meaning in a path"),
        ("{dataid:%d%m%Y}.done", "{dataid:%M}.done", "%M has no meaning in a path"),
    ],
)
def test_a_form_without_a_meaning_is_refused_by_apply(
    sqlite_project: Project, before: str, after: str, told: str
) -> None:
    sqlite_project.write("project.yml", FEED.replace(before, after))
    refused = sqlite_project.dataflow("apply")
    assert refused.returncode == 2
    assert told in refused.stderr


def test_a_dataid_written_unlike_those_that_are_there_is_no_dataid(sqlite_project: Project) -> None:
    sqlite_project.apply(
        "name: Loose\nenvironments: {dev: {root: data}}\ndatasets:\n"
        '  loose: {path: "loose/{dataid}.csv"}\n'
        '  strict: {path: "strict/{dataid}.csv", partitions: {daily: 2025-11-01}}\n'
    )
    for dataset in ("loose", "strict"):
        for name in ("2025-11-01", "2025-11-02", "20251102", "full"):
            sqlite_project.write(f"data/{dataset}/{name}.csv", "id\n")
        assert sqlite_project.dataflow("ready", dataset, "2025-11-01").returncode == 0
        refused = sqlite_project.dataflow("ready", dataset, "20251102")
        assert refused.returncode == 2
        assert "'20251102' is not a dataid" in refused.stderr
        assert "did you mean '2025-11-02'?" in refused.stderr
        assert sqlite_project.dataflow("ready", dataset, "2025-11-02").returncode == 0
    assert sqlite_project.dataflow("ready", "loose", "full").returncode == 0
