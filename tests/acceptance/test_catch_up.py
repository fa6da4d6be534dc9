"""Thirty missed days, one call."""

import datetime

from support.jobs import history, lines, publishes, runs
from support.projects import Project


def test_one_daily_drain_clears_thirty_missed_days_in_order(project: Project) -> None:
    today = datetime.datetime.now(datetime.UTC).date()
    days = [(today - datetime.timedelta(days=back)).isoformat() for back in range(30, 0, -1)]
    project.apply(
        "name: Catch up\nenvironments: {dev: {root: data}}\n"
        f'datasets:\n  feed: {{path: "feed/{{dataid}}.csv", partitions: {{daily: {days[0]}}}}}\n'
        '  clean: {path: "clean/{dataid}.csv"}\njobs: {clean_up: {inputs: [feed], outputs: [clean]}}\n'
    )
    for day in reversed(days):  # the order of arrival is not the order of work
        project.write(f"data/feed/{day}.csv", f"{day}\n")
        project.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('feed', '{day}', 'READY')")
    script = project.script("clean_up.sh", 'echo "$dataid" >> journal; cp "$feed_location" "$clean_location"')
    drained = project.runjob("--drain", script)
    assert drained.returncode == 0, drained.stderr
    assert lines(project.folder / "journal") == days
    assert [row[0] for row in runs(project, "dataid", "clean_up")] == days
    assert publishes(project, "clean") == dict.fromkeys(days, 1)
    assert len(history(project, "job", "clean_up")) == 60
    assert "caught up" in project.runjob("--drain", script).stderr
    assert lines(project.folder / "journal") == days


def test_a_day_that_fails_does_not_stop_the_days_after_it(project: Project) -> None:
    project.apply(
        "name: One bad day\nenvironments: {dev: {root: data}}\n"
        'datasets: {out: {path: "out/{dataid}.txt", partitions: {daily: 2025-11-01..2025-11-05}}}\n'
        "jobs: {make: {outputs: [out]}}\n"
    )
    script = project.script("make.sh", '[ "$dataid" = 2025-11-02 ] && exit 9; touch "$out_location"')
    drained = project.runjob("--drain", script)
    assert drained.returncode == 1, "a failed day is not hidden by those that worked"
    assert project.statuses("make") == {f"2025-11-0{day}": "FAILED" if day == 2 else "COMPLETE" for day in range(1, 6)}


def test_numbers_run_in_the_order_of_numbers(project: Project) -> None:
    project.apply(
        "name: Numbers\nenvironments: {dev: {root: data}}\n"
        'datasets: {out: {path: "out/{dataid}.txt", partitions: {shards: 8..12}}}\njobs: {make: {outputs: [out]}}\n'
    )
    script = project.script("make.sh", 'echo "$dataid" >> journal; touch "$out_location"')
    assert project.runjob("--drain", script).returncode == 0
    assert lines(project.folder / "journal") == ["8", "9", "10", "11", "12"]
