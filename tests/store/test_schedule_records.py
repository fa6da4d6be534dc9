"""Schedules that people set: which job can have one, what becomes of its slots, and what `apply` does about it."""

import datetime
import json
from typing import Any

import pytest
from world import World, job, registration

from opendataflow.arrivals.due import change_schedule, make_due
from opendataflow.domain.registration import JobSpec
from opendataflow.domain.runs.run import Ending
from opendataflow.errors import ConfigurationError, UsageError
from opendataflow.store import registry
from opendataflow.store.records.workers import list_changes
from opendataflow.store.schedules import check_new, list_set, schedule_of, told

AT = datetime.datetime(2026, 3, 10, 10, 10, tzinfo=datetime.UTC)


class Clocked:
    """A world at ten past ten, where projects may read clocks."""

    def __init__(self, world: World) -> None:
        self.world, self.store = world, world.store
        self.now = AT
        self.store.clock = self._time

    def _time(self) -> float:
        return self.now.timestamp()

    def at(self, hour: int, minute: int, day: int = 10) -> None:
        self.now = AT.replace(day=day, hour=hour, minute=minute)

    def apply(self, *jobs: JobSpec, clocks: tuple[str, ...] = ("today", "hourly", "every 30m")) -> list[str]:
        wanted = registration(*jobs)
        datasets = [
            one._replace(clock=one.datasetid) if one.datasetid in clocks else one for one in wanted.datasets
        ]  # fmt: skip
        return registry.apply(self.store, wanted._replace(datasets=tuple(datasets)), now=self.now)

    def due(self, jobid: str = "load") -> list[str]:
        """What has a row once somebody has looked at the clocks."""
        make_due(self.store, self.store.get_job(jobid, project="p"))
        return self.rows(jobid)

    def rows(self, jobid: str = "load") -> list[str]:
        found = self.world.sql(f"SELECT dataid FROM job_status WHERE jobid = '{jobid}' ORDER BY dataid")
        return [str(row[0]) for row in found]

    def set(self, clock: str | None, jobid: str = "load", **options: Any) -> None:
        change_schedule(self.store, self.store.get_job(jobid, project="p"), clock, **options)

    def check(self) -> list[str]:
        return registry.check(self.store, repair=False)


@pytest.fixture
def clocked(world: World) -> Clocked:
    return Clocked(world)


def test_the_schedule_that_was_set_holds_from_its_next_slot_on(clocked: Clocked) -> None:
    clocked.apply(job("load", ["hourly"], ["out"]))
    assert clocked.due() == ["2026-03-10T10"]
    clocked.set("every 20m")
    assert clocked.due() == ["2026-03-10T10"], "10:00 had begun before"
    clocked.at(10, 20)
    assert clocked.due() == ["2026-03-10T10", "2026-03-10T10:20"]
    clocked.at(11, 1)
    assert clocked.due() == ["2026-03-10T10", "2026-03-10T10:20", "2026-03-10T10:40", "2026-03-10T11:00"]
    assert clocked.check() == []


def test_as_declared_goes_back_and_runs_no_slot_twice(clocked: Clocked) -> None:
    clocked.apply(job("load", ["today"], ["out"]))
    clocked.due()
    clocked.world.complete("load", "2026-03-10")
    clocked.set("cron 0 12 * * *")
    clocked.at(12, 30)
    assert clocked.due() == ["2026-03-10"], "the day has run by that name"
    clocked.set(None)
    assert clocked.due() == ["2026-03-10"]
    clocked.at(0, 1, day=11)
    assert clocked.due() == ["2026-03-10", "2026-03-11"]
    found = schedule_of(clocked.store, clocked.store.get_job("load", project="p"))
    assert (found.clock, found.declared, found.is_set) == ("today", "today", False)
    assert clocked.check() == []


def test_days_after_minutes_and_minutes_after_days_begin_at_the_change(clocked: Clocked) -> None:
    clocked.apply(job("load", ["every 30m"], ["out"]))
    clocked.due()
    clocked.set("cron 0 3 * * *")
    clocked.at(0, 0, day=11)
    assert clocked.due() == ["2026-03-10T10:00"]
    clocked.at(3, 0, day=11)
    assert clocked.due() == ["2026-03-10T10:00", "2026-03-11"]
    before = clocked.world.sql("SELECT count(*) FROM history")
    assert clocked.due() == ["2026-03-10T10:00", "2026-03-11"]
    assert clocked.world.sql("SELECT count(*) FROM history") == before
    clocked.at(9, 50, day=11)
    clocked.set("every 30m")
    clocked.at(10, 0, day=11)
    assert clocked.due() == ["2026-03-10T10:00", "2026-03-11", "2026-03-11T10:00"], "not the half hours since midnight"


def test_slots_that_were_missed_under_the_schedule_are_caught_up(clocked: Clocked) -> None:
    clocked.apply(
        job("load", ["today"], ["out"])._replace(catchup="all"),
        job("last", ["today"], ["new"])._replace(catchup="latest"),
    )
    for name in ("load", "last"):
        clocked.set("hourly", name)
    clocked.at(14, 5)
    assert clocked.due() == [f"2026-03-10T{hour}" for hour in (11, 12, 13, 14)]
    assert clocked.due("last") == ["2026-03-10T14"]


def test_what_waits_and_what_failed_keeps_its_slot(clocked: Clocked) -> None:
    clocked.apply(job("load", ["every 30m"], ["out"]))
    clocked.due()
    clocked.world.finish(clocked.world.must_claim("load"), Ending.FAILED)
    clocked.at(10, 30)
    clocked.due()
    clocked.set("cron 0 3 * * *")
    assert clocked.world.next("load") == "2026-03-10T10:30", "it was due before, and still is"
    clocked.world.complete("load", "2026-03-10T10:30")
    clocked.world.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE dataid = '2026-03-10T10:00'")
    assert clocked.world.next("load") == "2026-03-10T10:00"
    clocked.set(None)
    assert clocked.world.next("load") == "2026-03-10T10:00"
    assert clocked.check() == []


def test_a_slot_that_has_begun_is_due_though_nobody_looked_before_the_change(clocked: Clocked) -> None:
    clocked.apply(job("load", ["every 30m"], ["out"]))
    clocked.due()
    clocked.at(11, 0)
    clocked.set("hourly")
    assert clocked.rows() == ["2026-03-10T10:00", "2026-03-10T10:30", "2026-03-10T11:00"]
    assert clocked.due() == ["2026-03-10T10:00", "2026-03-10T10:30", "2026-03-10T11:00"], "11:00 is not hourly, too"
    clocked.at(12, 0)
    clocked.set("every 20m")
    assert clocked.due()[-1] == "2026-03-10T12"
    assert clocked.check() == []


def test_nobody_else_is_moved(clocked: Clocked) -> None:
    clocked.apply(job("load", ["every 30m"], ["out"]), job("other", ["every 30m"], ["else"]))
    clocked.set("cron 0 3 * * *")
    clocked.at(10, 30)
    assert clocked.due("other") == ["2026-03-10T10:30"]
    assert clocked.due("load") == []


def test_a_runner_that_knows_only_the_clock_before_opens_nothing(clocked: Clocked) -> None:
    clocked.apply(job("load", ["today"], ["out"]))
    clocked.set("hourly")
    stale = clocked.store.get_job("load", project="p")
    clocked.set("every 1h")
    clocked.at(11, 0)
    make_due(clocked.store, stale)
    assert clocked.rows() == []
    assert clocked.due() == ["2026-03-10T11:00"]


def test_a_job_of_one_dataid_gets_slots_and_goes_back(clocked: Clocked) -> None:
    whole = job("load", ["src:full"], ["out"], partitions="none")
    clocked.apply(whole)
    clocked.world.ready("src", "full")
    assert clocked.rows() == ["full"]
    clocked.set("every 30m")
    assert clocked.rows() == [], "`full` was never begun"
    clocked.at(10, 30)
    assert clocked.due() == ["2026-03-10T10:30"]
    assert clocked.world.next("load") == "2026-03-10T10:30", "it reads src/full as before"
    clocked.world.complete("load", "2026-03-10T10:30")
    clocked.at(11, 0)
    clocked.due()
    clocked.set(None)
    assert clocked.rows() == ["2026-03-10T10:30", "full"], "the slot that had not begun is gone"
    assert clocked.world.next("load") == "full"
    clocked.at(11, 10)
    clocked.set("hourly")
    assert clocked.rows() == ["2026-03-10T10:30"], "no slot of the earlier schedule is back"
    clocked.at(12, 0)
    assert clocked.due() == ["2026-03-10T10:30", "2026-03-10T12"]
    assert clocked.check() == []


REFUSED = [
    (job("load", ["src"], ["out"], partitions={"daily": "2026-01-01"}), "partitions of its data, daily 2026-01-01"),
    (job("load", ["src"], ["out"]), "from what arrives in src"),
    (job("load", ["today", "src"], ["out"]), "reads src dataid by dataid"),
    (job("load", [], ["out"])._replace(definition=json.dumps({"stream": {"schema": []}})), "belongs to a stream"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "says"), REFUSED, ids=[one[1] for one in REFUSED])
def test_a_job_whose_dataids_would_make_no_sense_is_refused(clocked: Clocked, spec: JobSpec, says: str) -> None:
    clocked.apply(spec)
    before = clocked.world.sql("SELECT * FROM job_dataset ORDER BY 1, 2, 3, 4, 5")
    with pytest.raises(UsageError, match=says):
        clocked.set("every 30m")
    assert clocked.world.sql("SELECT * FROM job_dataset ORDER BY 1, 2, 3, 4, 5") == before
    assert clocked.world.sql("SELECT * FROM schedule") == []


def test_a_clock_that_names_its_slots_alike_goes_with_inputs_by_dataid(clocked: Clocked) -> None:
    clocked.apply(job("load", ["today", "src"], ["out"]))
    clocked.set("cron 30 10 * * *")
    clocked.at(10, 30)
    assert clocked.due() == ["2026-03-10"]
    assert clocked.world.next("load") is None
    clocked.world.ready("src", "2026-03-10")
    assert clocked.world.next("load") == "2026-03-10"


def test_one_who_reads_the_whole_would_wait_for_ever(clocked: Clocked) -> None:
    clocked.apply(
        job("load", ["src:full"], ["out"], partitions="none"), job("sum", ["out:full"], ["total"], partitions="none")
    )
    with pytest.raises(UsageError, match="sum reads what load makes as one chunk"):
        clocked.set("every 30m")


def test_asking_whether_it_can_be_changes_nothing(clocked: Clocked) -> None:
    clocked.apply(job("load", ["today"], ["out"]))
    check_new(clocked.store, clocked.store.get_job("load", project="p"), "hourly")
    assert clocked.world.sql("SELECT * FROM schedule") == []
    assert clocked.apply(job("load", ["today"], ["out"])) == []


def test_apply_keeps_what_was_set_and_knows_what_is_declared(clocked: Clocked) -> None:
    clocked.apply(job("load", ["today"], ["out"]))
    clocked.set("hourly", reason="month's end")
    assert clocked.apply(job("load", ["today"], ["out"])) == [], "nothing has changed"
    clocked.apply(job("load", ["every 30m"], ["out", "more"]))
    found = schedule_of(clocked.store, clocked.store.get_job("load", project="p"))
    assert (found.clock, found.declared, found.is_set, found.reason) == ("hourly", "every 30m", True, "month's end")
    assert told(found).startswith("`hourly`, set by tests at 20")
    assert list_set(clocked.store, project=None) == {("p", "load"): ("hourly", "every 30m")}
    clocked.at(11, 0)
    assert clocked.due() == ["2026-03-10T11"]
    clocked.set(None)
    clocked.at(11, 30)
    assert clocked.due() == ["2026-03-10T11", "2026-03-10T11:30"]
    assert clocked.check() == []


def test_apply_refuses_what_no_longer_goes_with_the_schedule(clocked: Clocked) -> None:
    clocked.apply(job("load", ["today"], ["out"]))
    clocked.set("hourly")
    with pytest.raises(ConfigurationError, match="dataflow schedule load --default"):
        clocked.apply(job("load", ["src"], ["out"], partitions={"daily": "2026-01-01"}))
    assert clocked.store.get_job("load", project="p").partitions is None


def test_a_job_that_is_no_longer_declared_takes_its_schedule_along(clocked: Clocked) -> None:
    clocked.apply(job("load", ["today"], ["out"]))
    clocked.set("hourly")
    clocked.apply(job("other", ["today"], ["else"]))
    assert clocked.world.sql("SELECT * FROM schedule") == []
    clocked.apply(job("load", ["today"], ["out"]))
    assert schedule_of(clocked.store, clocked.store.get_job("load", project="p")).clock == "today"


def test_changes_are_recorded_with_who_and_why(clocked: Clocked) -> None:
    clocked.apply(job("load", ["today"], ["out"]))
    clocked.set("hourly", reason="month's end")
    clocked.set("every 30m")
    clocked.set(None)
    clocked.set(None)
    found = list_changes(clocked.store, job=clocked.store.get_job("load", project="p"))
    assert [(one["what"], one["was"], one["becomes"], one["reason"], one["actor"]) for one in found] == [
        ("schedule", "every 30m", "today", "", "tests"),
        ("schedule", "hourly", "every 30m", "", "tests"),
        ("schedule", "today", "hourly", "month's end", "tests"),
    ]
