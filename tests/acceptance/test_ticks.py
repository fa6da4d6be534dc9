"""Clocks through the commands: many ticks at once, each slot once; arrivals are taken in by the tick."""

import datetime

import pytest

from support.projects import DATAFLOW, RUNJOB, Project

TEXT = """\
name: Clocks
datasets:
  inbox: {path: "inbox/{dataid}.csv", format: csv, partitions: {shards: 1..3}, arrival: {done: "inbox/{dataid}.done"}}
  loaded: {path: "loaded/{dataid}.txt"}
  stamped: {}
  sliced: {}
jobs:
  load: {script: jobs/load.sh, inputs: [inbox], outputs: [loaded]}
  stamp: {script: jobs/stamp.sh, inputs: [today], outputs: [stamped]}
  slice: {script: jobs/slice.sh, inputs: ["every 30m"], outputs: [sliced], catchup: latest}
"""


def clocks(project: Project) -> None:
    project.apply(TEXT)
    project.script("jobs/load.sh", 'cp "$inbox_location" "$loaded_location"')
    for name in ("stamp", "slice"):
        project.script(f"jobs/{name}.sh", f'sleep 0.3; echo "$dataid" >> {name}.log')


def lines(project: Project, name: str) -> list[str]:
    return (project.folder / f"{name}.log").read_text().split()


@pytest.mark.both_stores
def test_many_ticks_at_once_run_each_slot_once(project: Project) -> None:
    clocks(project)
    before = datetime.datetime.now(datetime.UTC)
    started = [project.start(DATAFLOW, "tick") for _ in range(6)]
    ended = [(one.communicate(timeout=120), one.returncode) for one in started]
    assert all(code == 0 for _, code in ended), ended
    after = datetime.datetime.now(datetime.UTC)
    assert lines(project, "stamp") == sorted({f"{moment:%Y-%m-%d}" for moment in (before, after)})
    slots = {f"{moment:%Y-%m-%dT%H}:{moment.minute // 30 * 30:02d}" for moment in (before, after)}
    assert set(lines(project, "slice")) <= slots
    assert len(lines(project, "slice")) == len(set(lines(project, "slice")))
    assert project.dataflow("db", "check").returncode == 0


def test_runjob_opens_the_slot_of_its_clock_too(project: Project) -> None:
    clocks(project)
    done = project.run(RUNJOB, "jobs/stamp.sh")
    assert done.returncode == 0, done.stderr
    assert project.run(RUNJOB, "jobs/stamp.sh").returncode == 0, "caught up"
    assert len(lines(project, "stamp")) == 1


def test_missed_slots_are_all_run_or_only_the_latest(project: Project) -> None:
    clocks(project)
    long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=3)
    project.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('today', '{long_ago:%Y-%m-%d}', 'READY')")
    project.sql(
        f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('every 30m', '{long_ago:%Y-%m-%dT%H:00}', 'READY')"
    )
    project.sql("UPDATE job_status SET status = 'COMPLETE'")
    done = project.dataflow("tick")
    assert done.returncode == 0, done.stderr
    assert len(lines(project, "stamp")) in (3, 4), "every day since then"
    assert len(lines(project, "slice")) == 1, "143 half hours were missed; the latest is enough"


def test_a_tick_takes_in_what_arrived_and_runs_on_it(project: Project) -> None:
    clocks(project)
    project.write("inbox/1.csv", "id\n1\n")
    assert project.dataflow("tick").returncode == 0
    assert not (project.folder / "loaded").exists(), "not marked as done yet"
    project.write("inbox/1.done", "")
    told = project.dataflow("tick")
    assert "inbox/1 READY" in told.stderr
    assert (project.folder / "loaded/1.txt").read_text() == "id\n1\n"
    assert project.json("tick", "--dry-run") == []


def test_a_tick_goes_on_past_a_job_that_cannot_start(project: Project) -> None:
    clocks(project)
    (project.folder / "jobs/slice.sh").unlink()
    done = project.dataflow("tick")
    assert done.returncode == 2
    assert "there is no script" in done.stderr
    assert "1 run, none failed; 1 job could not be started" in done.stderr
    assert len(lines(project, "stamp")) == 1
