"""FIRST..LAST: resubmit, hold, release and force take ranges, and say first how many dataids they are."""

import json

import pytest

from support.jobs import job_status, one_job
from support.projects import Project

SCHEMES = {
    "shards": ("{shards: 01..05}", ["01", "02", "03", "04", "05"], "02..04"),
    "daily": ("{daily: 2025-11-01..2025-11-05}", [f"2025-11-0{day}" for day in range(1, 6)], "2025-11-02..2025-11-04"),
    "hourly": (
        "{hourly: 2025-11-01T00..2025-11-01T04}", [f"2025-11-01T0{hour}" for hour in range(5)],
        "2025-11-01T01..2025-11-01T03",
    ),
    "monthly": ("{monthly: 2025-01..2025-05}", [f"2025-0{month}" for month in range(1, 6)], "2025-02..2025-04"),
    "sequence": ("{sequence: 8..12}", ["8", "9", "10", "11", "12"], "9..11"),
    "values": ("{values: [eu, us, daily, full, READY]}", ["eu", "us", "daily", "full", "READY"], "us..full"),
}  # fmt: skip


@pytest.mark.parametrize("kind", SCHEMES)
def test_a_range_of_each_scheme_is_held_released_and_resubmitted(project: Project, kind: str) -> None:
    partitions, dataids, middle = SCHEMES[kind]
    script = one_job(project, "", partitions=partitions)
    inside = dataids[1:4]
    preview = f"work: 3 dataids, {inside[0]} to {inside[2]}"
    project.dataflow("tick", "--dry-run")

    would = project.dataflow("hold", "work", middle, "--dry-run")
    assert (would.returncode, preview in would.stderr) == (0, True), would.stderr
    assert would.stdout.splitlines() == [f"work/{one}: PENDING → HOLD" for one in inside]
    assert set(job_status(project).values()) == {"PENDING"}

    held = project.json("hold", "work", middle, "--reason", "the feed is wrong")
    assert [(one["dataid"], one["status"], one["applied"]) for one in held] == [(one, "HOLD", True) for one in inside]
    assert job_status(project) == {one: "HOLD" if one in inside else "PENDING" for one in dataids}

    released = project.dataflow("release", "work", middle)
    assert (released.returncode, preview in released.stderr) == (0, True), released.stderr
    assert set(job_status(project).values()) == {"PENDING"}

    assert project.runjob("--drain", script).returncode == 0
    again = project.dataflow("resubmit", "work", middle)
    assert (again.returncode, preview in again.stderr) == (0, True), again.stderr
    assert job_status(project) == {one: "RESUBMIT" if one in inside else "COMPLETE" for one in dataids}


def test_of_a_range_what_is_done_stays_and_what_is_not_there_is_counted(project: Project) -> None:
    script = one_job(project, "", partitions="{sequence: 1..4}")
    assert project.runjob("--dataid", "2", script).returncode == 0
    held = project.dataflow("hold", "work", "1..4")
    assert held.returncode == 0, held.stderr
    assert job_status(project) == {"1": "HOLD", "2": "COMPLETE", "3": "HOLD", "4": "HOLD"}
    refused = project.dataflow("hold", "work", "2")
    assert refused.returncode == 2, "one that is named must be such that it can be held"
    project.sql("DELETE FROM job_status WHERE dataid = '4'")
    again = project.dataflow("resubmit", "work", "1..4")
    assert "work: 3 dataids, 1 to 3; 1 more of the range are not there yet" in again.stderr
    assert job_status(project) == {"1": "HOLD", "2": "RESUBMIT", "3": "HOLD"}


def test_a_range_is_forced_one_after_the_other(project: Project) -> None:
    one_job(project, "echo $dataid >> ran; [ $dataid != 3 ] || exit 4", partitions="{shards: 1..5}")
    would = project.dataflow("force", "work", "2..4", "--dry-run")
    assert would.stdout.splitlines() == ["work/2", "work/3", "work/4"]
    assert not (project.folder / "ran").exists()
    done = project.dataflow("force", "work", "2..4", "--json")
    assert done.returncode == 1
    assert "work: 3 dataids, 2 to 4" in done.stderr
    assert (project.folder / "ran").read_text().split() == ["2", "3", "4"]
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["dataid"], one["status"], one["forced"]) for one in ended] == [
        ("2", "COMPLETE", True), ("3", "FAILED", True), ("4", "COMPLETE", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("4..2", "is no range of work"), ("0..3", "is not a dataid of work"), ("1..9", "is not a dataid of work"),
        ("..", "is not a dataid of work"), ("1..", "is not a dataid of work"),
    ],
)  # fmt: skip
def test_what_is_no_range_is_refused_before_anything_is_changed(sqlite_project: Project, text: str, told: str) -> None:
    one_job(sqlite_project, "", partitions="{shards: 1..5}")
    sqlite_project.dataflow("tick", "--dry-run")
    for command in (["resubmit"], ["hold"], ["release"], ["force"]):
        refused = sqlite_project.dataflow(*command, "work", text)
        assert (refused.returncode, told in refused.stderr) == (2, True), refused.stderr
    assert set(job_status(sqlite_project).values()) == {"PENDING"}


def test_a_range_has_an_end_that_a_machine_can_hold(sqlite_project: Project) -> None:
    one_job(sqlite_project, "", partitions="{sequence: 1}")
    refused = sqlite_project.dataflow("resubmit", "work", "1..999999999999")
    assert refused.returncode == 2
    assert "give at most 100,000 at once" in refused.stderr


def test_a_whole_job_is_held_and_released_as_json(sqlite_project: Project) -> None:
    one_job(sqlite_project, "")
    assert sqlite_project.json("hold", "work", "--dry-run") == {"jobid": "work", "held": True, "applied": False}
    held = sqlite_project.json("hold", "work", "--reason", "checking")
    assert (held["held"], held["applied"], held["by"].endswith(": checking")) == (True, True, True)
    assert sqlite_project.json("release", "work") == {
        "jobid": "work", "held": False, "applied": True, "held_dataids": 0,
    }  # fmt: skip
