"""`why` and `status`: causes told apart, slots that are there, who holds what and why."""

import datetime

import pytest

from support.jobs import one_job
from support.projects import Project

FAILS_IN_TWO_WAYS = "case $dataid in 1|2) exit 3;; 4) exit 9;; esac"


def days(*back: int) -> list[str]:
    today = datetime.datetime.now(datetime.UTC).date()
    return [str(today - datetime.timedelta(days=number)) for number in back]


def test_why_tells_different_failures_of_a_job_apart(project: Project) -> None:
    script = one_job(project, FAILS_IN_TWO_WAYS, partitions="{shards: 1..5}")
    assert project.runjob("--drain", script).returncode == 1
    causes = {tuple(one["dataids"]): one for one in project.json("why")}
    assert sorted(causes) == [("1", "2"), ("4",)]
    assert "exited 3" in causes["1", "2"]["reason"]
    assert "exited 9" in causes["4",]["reason"]
    # `--failed` would do all three again.
    assert causes["1", "2"]["fix"].endswith("`dataflow resubmit work 1 2`")
    assert causes["4",]["fix"].endswith("`dataflow resubmit work 4`")
    told = project.dataflow("why").stdout
    assert "exited 3" in told
    assert "exited 9" in told


def test_why_keeps_what_failed_in_one_way_together(project: Project) -> None:
    script = one_job(project, "exit 7", partitions="{shards: 6..8}")
    project.runjob("--drain", script)
    [cause] = project.json("why")
    assert cause["dataids"] == ["6", "7", "8"]
    assert cause["fix"].endswith("`dataflow resubmit work --failed`")


def test_why_tells_which_inputs_were_rejected_for_what(sqlite_project: Project) -> None:
    sqlite_project.apply(
        "name: Feeds\nenvironments: {dev: {root: data}}\n"
        "datasets:\n"
        '  a: {path: "a/{dataid}.csv", format: csv, partitions: {daily: 2025-11-01..2025-11-03},'
        " arrival: {stable: 0.01s}, schema: {id: integer}, checks: [{not_null: id}, {rows: {min: 2}}]}\n"
        '  out: {path: "out/{dataid}.txt"}\n'
        "jobs: {load: {inputs: [a], outputs: [out]}}\n"
    )
    sqlite_project.write("data/a/2025-11-01.csv", "id\n1\n")
    sqlite_project.write("data/a/2025-11-02.csv", "id\n1\n")
    sqlite_project.write("data/a/2025-11-03.csv", "other\n1\n2\n3\n")
    sqlite_project.dataflow("scan")
    sqlite_project.dataflow("tick")
    told = {tuple(one["dataids"]) for one in sqlite_project.json("why") if one["cause"] == "REJECTED"}
    assert told == {("2025-11-01", "2025-11-02"), ("2025-11-03",)}


def test_a_ready_day_is_not_missing_because_a_later_one_is_there(project: Project) -> None:
    project.apply(
        "name: Days\nenvironments: {dev: {root: data}}\n"
        f'datasets: {{orders: {{path: "orders/{{dataid}}.csv", partitions: {{daily: {days(2)[0]}}}}}}}\n'
    )
    for day in days(2, 1, 0, -1):
        project.write(f"data/orders/{day}.csv", "id\n1\n")
        assert project.dataflow("ready", "orders", day).returncode == 0
    for columns in ("1", "2", "14"):
        told = project.json("status", "--columns", columns)
        assert told["gaps"] == {}, f"{columns} columns"
    project.sql(f"DELETE FROM datastatus WHERE dataid = '{days(2)[0]}'")
    gap = project.json("status")["gaps"]["orders"]
    assert (gap["expected"], gap["ready"], gap["missing"], gap["latest"]) == (2, 1, 1, days(2))


@pytest.mark.both_stores
def test_who_holds_a_dataid_and_why_is_told(project: Project) -> None:
    one_job(project, "", partitions="{shards: 1..3}")
    project.dataflow("tick", "--dry-run")
    assert project.dataflow("hold", "work", "2", "--reason", "the feed is wrong").returncode == 0
    assert "the feed is wrong" in project.dataflow("why", "work", "2").stdout
    [cause] = project.json("why")
    assert (cause["cause"], cause["dataids"]) == ("HOLD", ["2"])
    assert "the feed is wrong" in cause["reason"]


def test_status_says_which_jobs_are_held(project: Project) -> None:
    one_job(project, "", partitions="{shards: 1..3}")
    project.dataflow("tick", "--dry-run")
    assert project.dataflow("hold", "work", "--reason", "nobody is here").returncode == 0
    told = project.dataflow("status").stdout
    assert "work is held by" in told
    assert "nobody is here; 3 dataids could run; `dataflow release work` lets it go on" in told
    [held] = project.json("status")["held"]
    assert (held["jobid"], held["could_run"], held["until"]) == ("work", 3, None)
    assert "nobody is here" in project.dataflow("status", "work").stderr
    assert project.dataflow("release", "work").returncode == 0
    assert "held" not in project.dataflow("status").stdout


def test_a_value_named_like_a_scheme_is_run_by_everything(project: Project) -> None:
    script = one_job(project, "", partitions="{values: [daily, weekly, hourly, sequence, none]}")
    assert project.runjob(script).returncode == 0
    assert project.dataflow("tick").returncode == 0
    assert project.dataflow("worker", "--once").returncode == 0
    assert set(project.statuses("work").values()) == {"COMPLETE"}


def test_columns_named_like_keys_of_a_dataset_are_columns(project: Project) -> None:
    project.apply(
        "name: Words\nenvironments: {dev: {root: data}}\n"
        "datasets:\n"
        "  orders: {path: orders/{dataid}.csv, format: csv, partitions: {shards: 1..1},"
        " schema: {checks: integer, arrival: string, url: string}}\n"
        "  out: {path: out/{dataid}.csv, format: csv, schema: {checks: integer}}\n"
        "jobs: {load: {inputs: [orders], outputs: [out]}}\n".replace(
            "orders/{dataid}.csv", '"orders/{dataid}.csv"'
        ).replace("out/{dataid}.csv", '"out/{dataid}.csv"')
    )
    script = project.script("load.sh", "cp $orders_location $out_location")
    project.write("data/orders/1.csv", "checks,arrival,url\n1,a,b\n")
    project.dataflow("tick")
    assert project.json("status", "orders")["chunks"] == [], "nobody said how its files arrive"
    assert project.dataflow("ready", "orders", "1", "--unchecked").returncode == 0
    done = project.runjob(script)
    assert done.returncode == 0, done.stderr


ARRIVES = """\
name: Feeds
environments: {dev: {root: data}}
datasets:
  a:
    path: "a/{dataid}.csv"
    format: csv
    partitions: {shards: 1..3}
    arrival: {stable: 0.01s}
    checks: [{rows: {min: 1}}]
  out: {path: "out/{dataid}.txt"}
jobs:
  load: {script: load.sh, inputs: [a], outputs: [out]}
"""


def standing(project: Project) -> dict[str, list[str]]:
    """The rejected and changed files that `why` names."""
    return {one["cause"]: one["dataids"] for one in project.json("why") if one["cause"] in ("REJECTED", "CHANGED")}


@pytest.mark.both_stores
def test_a_tick_exits_by_what_stands_of_rejected_and_changed_files(project: Project) -> None:
    project.apply(ARRIVES)
    project.script("load.sh", "[ ! -e broken ] || exit 3; touch $out_location")
    project.write("data/a/1.csv", "id\n1\n")
    assert project.dataflow("tick").returncode == 0
    project.write("data/a/2.csv", "id\n")
    rejected = project.dataflow("tick")
    assert (rejected.returncode, "1 file rejected; see `dataflow why`" in rejected.stderr) == (13, True)
    assert project.dataflow("tick").returncode == 13, "it still stands"
    assert standing(project) == {"REJECTED": ["2"]}
    project.write("data/a/1.csv", "id\n1\n2\n")
    changed = project.dataflow("tick")
    assert (changed.returncode, "1 file changed after READY" in changed.stderr) == (11, True), changed.stderr
    assert standing(project) == {"REJECTED": ["2"], "CHANGED": ["1"]}
    assert "a/1 WRONG_DATA" in project.dataflow("why").stdout
    project.write("data/a/3.csv", "id\n3\n")
    (project.folder / "broken").touch()
    assert project.dataflow("tick").returncode == 1, "a run that failed comes first"
    (project.folder / "broken").unlink()
    assert project.dataflow("resubmit", "--failed").returncode == 0
    assert project.dataflow("ready", "a", "1").returncode == 0
    (project.folder / "data/a/2.csv").unlink()
    assert project.dataflow("tick").returncode == 0
    assert standing(project) == {}


def test_a_file_that_is_the_same_again_is_no_change(sqlite_project: Project) -> None:
    sqlite_project.apply(ARRIVES)
    sqlite_project.script("load.sh", "touch $out_location")
    file = sqlite_project.write("data/a/1.csv", "id\n1\n")
    assert sqlite_project.dataflow("tick").returncode == 0
    file.rename(sqlite_project.folder / "kept.csv")
    sqlite_project.write("data/a/1.csv", "id\n1\n2\n")
    assert sqlite_project.dataflow("tick").returncode == 11
    (sqlite_project.folder / "kept.csv").replace(file)
    assert sqlite_project.dataflow("tick").returncode == 0
