"""Schedules through the commands: a worker, ticks and changes at once, each slot once; apply, why, refusals."""

import datetime
import json
import signal
import sys

from support.processes import wait_for
from support.projects import DATAFLOW, Project

TEXT = """\
name: Schedules
datasets:
  orders: {path: "orders/{dataid}.csv", format: csv, partitions: {daily: 2026-01-01}}
  loaded: {}
  sliced: {}
  rates: {path: rates.csv, format: csv, partitions: none}
  table: {path: table.txt, partitions: none}
jobs:
  load: {script: jobs/load.sh, inputs: [orders], outputs: [loaded]}
  slice: {script: jobs/slice.sh, inputs: [today], outputs: [sliced]}
  whole: {script: jobs/whole.sh, inputs: [{rates: {map: full}}], outputs: [table]}
"""
MINUTE = datetime.timedelta(minutes=1)
# A worker whose clock is ahead by as many seconds as the file says, and that may look at the registry whenever it hears
# of a change; without one, it looks once in a minute.
AHEAD = """\
import time
from opendataflow.scheduling import maintenance
from opendataflow.store.open import open_store

def clock():
    with open("ahead") as file:
        return time.time() + float(file.read())

open_store.__kwdefaults__["clock"] = clock
maintenance.REGISTRY_SECONDS = 0.0
from opendataflow.cli.main import end
end()
"""


def scheduled(project: Project) -> None:
    project.apply(TEXT)
    project.script("jobs/slice.sh", 'sleep 0.1; echo "$dataid" >> slice.log')
    project.script("jobs/whole.sh", 'cp "$rates_location" "$table_location"; echo "$dataid" >> whole.log')
    project.script("jobs/load.sh", "exit 1")


def lines(project: Project, name: str) -> list[str]:
    return (project.folder / f"{name}.log").read_text().split()


def names(first: datetime.datetime, last: datetime.datetime) -> list[str]:
    """The minutes after the first moment, up to the last."""
    moment, found = first.replace(second=0, microsecond=0) + MINUTE, []
    while moment <= last:
        found.append(f"{moment:%Y-%m-%dT%H:%M}")
        moment += MINUTE
    return found


def test_a_worker_ticks_and_changes_at_once_run_each_slot_once(project: Project) -> None:
    scheduled(project)
    assert project.dataflow("schedule", "slice", "1m").returncode == 0
    since = datetime.datetime.now(datetime.UTC) - 12 * MINUTE
    told = json.dumps({"since": since.isoformat()})
    project.sql(f"UPDATE dataset SET definition = '{told}' WHERE datasetid = 'every slot of slice'")
    before = datetime.datetime.now(datetime.UTC)
    worker = project.start(DATAFLOW, "worker", "--slots", "2")
    changes = (("--cron", "* * * * *"), ("1m",), ("--cron", "*/1 * * * *"), ("--default",), ("1m",))
    others = [project.start(DATAFLOW, "tick") for _ in range(2)]
    others += [project.start(DATAFLOW, "schedule", "slice", *change) for change in changes]
    ended = [(one.communicate(timeout=120), one.returncode) for one in others]
    assert all(code == 0 for _, code in ended), ended
    assert project.dataflow("schedule", "slice", "--default").returncode == 0
    assert project.dataflow("tick").returncode == 0
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)
    after = datetime.datetime.now(datetime.UTC)
    ran = lines(project, "slice")
    assert len(ran) == len(set(ran)), "never twice"
    # `today` has its slot, too, if the tests run over midnight.
    minutes = {one for one in ran if len(one) == len("2026-11-17T02:30")}
    assert set(names(since, before)) <= minutes <= set(names(since, after)), "what was due is due whoever changed it"
    assert project.dataflow("db", "check").returncode == 0


def test_a_worker_that_waits_goes_by_a_schedule_that_is_set_meanwhile(sqlite_project: Project) -> None:
    project = sqlite_project
    scheduled(project)
    assert project.dataflow("tick").returncode == 0
    project.write("ahead", "0")
    worker = project.start(sys.executable, "-c", AHEAD, "worker")
    try:
        wait_for(lambda: project.sql("SELECT is_idle FROM worker") == [(1,)], "it waits")
        ran = len(lines(project, "slice"))
        before = datetime.datetime.now(datetime.UTC)
        assert project.dataflow("schedule", "slice", "1m").returncode == 0
        after = datetime.datetime.now(datetime.UTC)
        project.write("new", "60").rename(project.folder / "ahead")
        wait_for(lambda: len(lines(project, "slice")) > ran, "the next minute has its run")
        assert lines(project, "slice")[ran] in {names(moment, moment + MINUTE)[0] for moment in (before, after)}
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)


def test_apply_keeps_the_schedule_and_why_says_which_holds(project: Project) -> None:
    scheduled(project)
    told = project.json("schedule", "slice", "--cron", "30 4 * * *", "--timezone", "Europe/Berlin", "--reason", "quiet")
    assert (told["clock"], told["declared"], told["is_set"]) == ("cron 30 4 * * * @Europe/Berlin", "today", True)
    next_at = datetime.datetime.fromisoformat(told["next_at"])
    assert next_at > datetime.datetime.now(datetime.UTC)
    assert next_at.minute == 30
    done = project.dataflow("apply")
    assert "applied 0 changes" in done.stderr
    project.apply(TEXT.replace("[today]", '["every 30m"]'))
    assert [one["declared"] for one in project.json("schedule")] == ["every 30m"]
    assert project.json("schedule", "slice", "--default")["clock"] == "every 30m"
    slot = project.json("schedule", "slice")["next_slot"]
    assert project.dataflow("schedule", "slice", "today").returncode == 0
    assert slot not in project.statuses("slice"), "it had not begun"
    told = json.dumps({"since": (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)).isoformat()})
    project.sql(f"UPDATE dataset SET definition = '{told}' WHERE clock = 'today'")
    project.dataflow("tick")
    today = max(project.statuses("slice"))
    said = project.dataflow("why", "slice", today)
    assert "schedule: `today`, set by " in said.stdout
    assert "instead of `every 30m`" in said.stdout


def test_a_job_of_one_dataid_runs_by_the_clock(project: Project) -> None:
    scheduled(project)
    project.write("rates.csv", "a\n1\n")
    assert project.dataflow("ready", "rates", "full").returncode == 0
    assert project.dataflow("schedule", "whole", "1h").returncode == 0
    since = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=2)
    told = json.dumps({"since": since.isoformat()})
    project.sql(f"UPDATE dataset SET definition = '{told}' WHERE datasetid = 'every slot of whole'")
    done = project.dataflow("tick")
    assert done.returncode in (0, 1), done.stderr
    assert len(lines(project, "whole")) == 2
    assert set(project.statuses("whole").values()) == {"COMPLETE"}
    assert (project.folder / "table.txt").read_text() == "a\n1\n"


def test_what_makes_no_sense_is_refused_with_the_reason(project: Project) -> None:
    scheduled(project)
    for argv, says in (
        (("load", "30m"), "partitions of its data, daily 2026-01-01"),
        (("slice", "7m"), "does not divide a day evenly"),
        (("slice", "--cron", "61 * * * *"), "is not a minute"),
        (("slice", "--cron", "0 3 * * *", "--timezone", "Mars/Base"), "is not a time zone"),
        (("slice", "30m", "--timezone", "Europe/Berlin"), "counts in UTC"),
        (("slice", "30m", "--cron", "0 3 * * *"), "either an interval"),
        (("slice", "30m", "--default"), "not both"),
        (("nothing", "30m"), "is not registered"),
    ):
        done = project.dataflow("schedule", *argv)
        assert (done.returncode, says in done.stderr) == (2, True), (argv, done.stderr)
    assert project.sql("SELECT * FROM schedule") == []
