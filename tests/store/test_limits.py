"""Live limits and pauses: read and counted inside the claim, whoever set them and however."""

import threading
import time

import psycopg
import pytest
from world import DAYS, LOAD, NOW, YES, World, job, owner, registration

from opendataflow.domain.job import Candidate, Pause
from opendataflow.domain.runs.questions import Verdict
from opendataflow.domain.runs.run import Ending
from opendataflow.errors import ConfigurationError, UsageError
from opendataflow.execution.prepare import prepare
from opendataflow.store import registry
from opendataflow.store.operations import hold_job, release_job
from opendataflow.store.records import workers
from support.processes import wait_for


def claim_all(world: World, jobid: str = "load") -> list[str]:
    """Claim for as long as there is something."""
    done = []
    while (claim := world.claim(jobid)) is not None:
        done.append(claim.dataid)
    return done


def asked(world: World, dataid: str, jobid: str = "load") -> Verdict:
    of = world.store.get_job(jobid)
    candidate = world.store.find_candidate(of, dataid)
    assert isinstance(candidate, Candidate)
    return prepare(of, candidate)


def refusal(world: World, dataid: str, jobid: str = "load") -> str:
    """Why the dataid may not run now; LOCKED."""
    verdict = asked(world, dataid, jobid)
    assert verdict.refusal is not None
    assert (verdict.refusal.code, verdict.exit_code) == ("LOCKED", 14)
    return verdict.refusal.evidence


def changes(world: World) -> list[tuple[object, ...]]:
    return world.sql("SELECT jobid, connection, what, was, becomes, reason, actor FROM limit_history ORDER BY id")


# Jobs -----------------------------------------------------------------------------------------------------------------
def test_a_job_is_scaled_up_and_down_while_it_runs(loading: World) -> None:
    of = loading.store.get_job("load")
    workers.set_limit(loading.store, of, 2, reason="the feed is slow")
    assert claim_all(loading) == ["1", "2"]
    assert "2 runs of load are live and its limit is 2, scaled by tests: the feed is slow" in refusal(loading, "3")
    workers.set_limit(loading.store, of, 5)
    assert claim_all(loading) == ["3", "4", "5"]
    workers.set_limit(loading.store, of, 1)
    assert workers.limits_of(loading.store, of)[2:7] == (None, 1, None, 1, 5)  # what runs goes on
    assert claim_all(loading) == []
    workers.set_limit(loading.store, of, 0)
    assert claim_all(loading) == []
    workers.set_limit(loading.store, of, None)
    assert claim_all(loading) == ["6", "7", "8"]
    with pytest.raises(UsageError, match="0 or more"):
        workers.set_limit(loading.store, of, -1)


def test_a_scaled_limit_may_be_more_than_the_declared_one(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"], concurrency=1))
    world.ready("orders", *DAYS)
    of = world.store.get_job("load")
    assert claim_all(world) == ["1"]
    assert refusal(world, "2") == "1 runs of load are live and its limit is 1"
    workers.set_limit(world.store, of, 3)
    assert asked(world, "2").yes
    assert claim_all(world) == ["2", "3"]
    workers.set_limit(world.store, of, None)
    assert workers.limits_of(world.store, of)[2:7] == (1, None, None, 1, 3)


def test_a_limit_is_read_in_the_claim_and_not_before_it(loading: World) -> None:
    of = loading.store.get_job("load")
    candidate = loading.store.find_claimable(of)
    assert candidate is not None
    workers.set_limit(loading.store, of, 0)
    before = loading.dump()
    assert loading.store.claim(of, candidate, YES, owner()) is None
    assert loading.dump() == before
    forced = loading.store.claim(of, candidate, YES, owner(), forced=True)
    assert forced is not None  # a person's force goes over limits


def test_a_brake_lowers_whatever_limit_there_is_and_says_why(loading: World) -> None:
    of = loading.store.get_job("load")
    workers.set_limit(loading.store, of, 2)
    assert workers.set_brake(loading.store, of, 4, reason="8 of the last 20 runs failed")
    assert workers.limits_of(loading.store, of).max_runs == 2
    assert not workers.set_brake(loading.store, of, 4, reason="again")  # it is
    assert not workers.set_brake(loading.store, of, 1, reason="another worker was faster", was=2)
    assert workers.set_brake(loading.store, of, 1, reason="16 of the last 20 runs failed", was=4)
    assert claim_all(loading) == ["1"]
    assert "its limit is 1, braked by tests: 16 of the last 20 runs failed" in refusal(loading, "2")
    assert workers.set_brake(loading.store, of, None, reason="all is well again", was=1)
    assert claim_all(loading) == ["2"]
    assert changes(loading) == [
        ("load", "", "scale", None, "2", "", "tests"),
        ("load", "", "brake", None, "4", "8 of the last 20 runs failed", "tests"),
        ("load", "", "brake", "4", "1", "16 of the last 20 runs failed", "tests"),
        ("load", "", "brake", "1", None, "all is well again", "tests"),
    ]
    newest = workers.list_changes(loading.store, job=of, limit=1)[0]
    assert (newest["what"], newest["was"], newest["becomes"]) == ("brake", "1", None)
    assert workers.set_brake(loading.store, of, 1, reason="again")
    workers.set_limit(loading.store, of, 5)
    assert workers.limits_of(loading.store, of).braked_to is None, "a person has decided"


def test_limits_and_pauses_set_by_hand_are_honoured_and_recorded(loading: World) -> None:
    loading.sql("UPDATE job SET scaled_to = 2")
    assert claim_all(loading) == ["1", "2"]
    loading.sql("UPDATE job SET scaled_to = 3, paused_by = 'carl'")
    assert claim_all(loading) == []
    loading.sql("UPDATE job SET paused_by = NULL")
    assert claim_all(loading) == ["3"]
    loading.sql("UPDATE job SET scaled_to = scaled_to, modified = modified")  # no change, no record
    told = {row[2:5] for row in changes(loading)}  # two of them are of one statement: either may be the first
    assert told == {
        ("scale", None, "2"), ("scale", "2", "3"), ("pause", None, "until resumed"), ("pause", "until resumed", None)
    }  # fmt: skip
    assert all("direct SQL" in str(row[6]) for row in changes(loading))
    with pytest.raises(Exception, match=r"(?i)check"):
        loading.sql("UPDATE job SET scaled_to = -1")
    with pytest.raises(Exception, match="append-only"):
        loading.sql("DELETE FROM limit_history")


# Connections ----------------------------------------------------------------------------------------------------------
def test_runs_of_all_jobs_over_a_connection_count_together(world: World) -> None:
    world.apply(LOAD, job("report", ["customers"], ["pages"]), job("local", ["files"], ["sums"]))
    world.sql("UPDATE dataset SET hostname = 'db', database = 'crm' WHERE datasetid IN ('orders', 'customers')")
    for name in ("orders", "customers", "files"):
        world.ready(name, *DAYS)
    workers.set_limit(world.store, "db/crm", 3, reason="they asked")
    assert [one[:5] for one in workers.list_connections(world.store)] == [("db/crm", None, 3, 3, 0)]
    first = world.must_claim("load")
    assert claim_all(world, "report") == ["1", "2"]
    assert claim_all(world, "load") == []
    assert "3 runs over the connection db/crm are live and its limit is 3, scaled by tests: they asked" in refusal(
        world, "3"
    )
    assert claim_all(world, "local") == DAYS  # it has nothing to do with that database
    workers.set_limit(world.store, world.store.get_job("load"), 1)
    world.finish(first)
    assert claim_all(world, "load") == ["2"]
    world.sql("UPDATE connection_limit SET scaled_to = 4")  # by hand
    assert claim_all(world, "load") == []  # its own limit is 1
    assert claim_all(world, "report") == ["3"]
    workers.set_limit(world.store, "db/crm", None)
    assert world.sql("SELECT * FROM connection_limit") == []
    assert claim_all(world, "report") == ["4", "5", "6", "7", "8"]
    told = [row[1:5] for row in changes(world) if row[1]]
    assert told == [("db/crm", "scale", None, "3"), ("db/crm", "scale", "3", "4"), ("db/crm", "scale", "4", None)]
    with pytest.raises(UsageError, match="no job uses a connection 'dbcrm'; known are: db/crm"):
        workers.set_limit(world.store, "dbcrm", 3)


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ("hostname = 'db'", "db"),
        ("database = 'local.db'", "local.db"),
        ("""definition = '{"url_env": "CRM_URL"}'""", "CRM_URL"),
    ],
)
def test_a_connection_has_the_name_of_what_is_known_of_it(loading: World, columns: str, name: str) -> None:
    assert workers.list_connections(loading.store) == []
    loading.sql(f"UPDATE dataset SET {columns} WHERE datasetid = 'totals'")
    workers.set_limit(loading.store, name, 1)
    assert claim_all(loading) == ["1"]


# Pauses ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("everything", [False, True])
def test_a_pause_ends_by_itself(loading: World, everything: bool) -> None:
    of = loading.store.get_job("load")
    running = loading.must_claim("load")
    paused = None if everything else of
    until = workers.pause(loading.store, paused, until=loading.clock() + 600, reason="rebuild")
    assert until is not None
    assert loading.claim("load") is None
    assert loading.claim("load", "2") is None
    what = "everything is paused" if everything else "load is held"
    assert refusal(loading, "2") == f"{what} by tests: rebuild until {until}"
    assert loading.finish(running).status == "COMPLETE"  # what runs goes on
    due = workers.seconds_until_due(loading.store)
    assert due is not None
    assert 590 < due <= 600.01
    loading.pass_time(599)
    assert loading.claim("load") is None
    loading.pass_time(2)
    assert loading.must_claim("load").dataid == "2"
    assert asked(loading, "3").yes
    assert workers.limits_of(loading.store, of).paused_by is None
    assert workers.find_pause_of_all(loading.store) == (None, None)


def test_a_pause_of_one_job_outlives_that_of_all(loading: World) -> None:
    of = loading.store.get_job("load")
    workers.pause(loading.store, of, reason="one")
    workers.pause(loading.store, None, reason="all")
    candidate = loading.store.find_candidate(of, "1")
    assert candidate is not None
    assert candidate.pauses == (Pause("load", "tests: one", None), Pause("", "tests: all", None))
    assert workers.resume(loading.store, None)
    assert not workers.resume(loading.store, None)
    assert loading.claim("load") is None
    assert workers.resume(loading.store, of)
    assert loading.claim("load") is not None


def test_hold_and_pause_are_one_state(loading: World) -> None:
    of = loading.store.get_job("load")
    workers.pause(loading.store, of, until=loading.clock() + 600)
    assert hold_job(loading.store, of, reason="for good") == (True, "tests: for good")  # the end is gone
    loading.pass_time(601)
    assert loading.claim("load") is None
    assert hold_job(loading.store, of) == (False, "tests: for good")
    assert workers.resume(loading.store, of)
    workers.pause(loading.store, of)
    assert release_job(loading.store, of) == (True, 0)
    assert loading.claim("load") is not None
    ended = workers.limits_of(loading.store, of)
    assert (ended.paused_by, ended.paused_until) == (None, None)


def test_a_limit_is_in_force_when_its_command_returns(postgres_server: object, world: World) -> None:
    """On PostgreSQL a claim may be under way that knows of no limit; SQLite has one writer at a time."""
    if world.is_sqlite:
        pytest.skip("one writer at a time")
    world.apply(LOAD)
    world.ready("orders", "1")
    under_way = psycopg.connect(world.url)
    under_way.execute("UPDATE job_status SET refusals = refusals")
    store = world.open()
    done = threading.Thread(target=workers.set_limit, args=(store, store.get_job("load"), 1))
    done.start()
    of = world.store.get_job("load")
    wait_for(lambda: workers.limits_of(world.store, of).scaled_to == 1, "others see it already")
    time.sleep(0.1)  # it would have returned by now
    assert done.is_alive()
    under_way.commit()
    done.join(timeout=60)
    assert not done.is_alive()
    under_way.close()
    store.close()


def test_a_failed_run_makes_room(loading: World) -> None:
    workers.set_limit(loading.store, loading.store.get_job("load"), 1)
    loading.finish(loading.must_claim("load"), Ending.FAILED)
    assert loading.must_claim("load").dataid == "2"
    loading.pass_time(61)
    assert loading.recover() == 1
    assert loading.must_claim("load").dataid == "2"


def test_a_project_declares_limits_of_connections(world: World) -> None:
    def declare(**limits: int) -> list[str]:
        made = registration(LOAD)._replace(limits=tuple(limits.items()))
        return registry.apply(world.store, made, now=NOW)

    assert "+ limit db" in declare(db=1)
    world.sql("UPDATE dataset SET hostname = 'db' WHERE datasetid = 'orders'")
    world.ready("orders", *DAYS)
    assert claim_all(world) == ["1"]
    assert refusal(world, "2") == "1 runs over the connection db are live and its limit is 1"
    workers.set_limit(world.store, "db", 2)
    assert "~ limit db" in declare(db=3)  # a person's limit stays
    world.sql("UPDATE dataset SET hostname = 'db' WHERE datasetid = 'orders'")  # as the project would say it
    assert claim_all(world) == ["2"]
    workers.set_limit(world.store, "db", None)
    assert claim_all(world) == ["3"]
    other = registration(job("load", ["orders"], ["totals"], project="q"), project="q")._replace(limits=(("db", 5),))
    with pytest.raises(ConfigurationError, match=r"limits.db: project p has declared 3 for this connection"):
        registry.apply(world.store, other, now=NOW)
    assert "- limit db" in declare()
    assert world.sql("SELECT * FROM connection_limit") == []
