"""Alerts in the store: found once, gathered for each address, closed when they are over, sent by one at a time."""

import json
import threading
import time
from typing import Any

import pytest
from world import World, job

from opendataflow.alerts.find import look
from opendataflow.domain.alerts import Event, Finding, Pace, Settings, To, due_in, retry_in, stuck_limit
from opendataflow.domain.registration import JobSpec
from opendataflow.domain.runs.run import Ending
from opendataflow.store import registry
from opendataflow.store.records import streams
from opendataflow.store.records.alert_messages import (
    SENDER_SECONDS,
    claim_message,
    count_open,
    list_alerts,
    list_messages,
    mark_failed,
    mark_sent,
    message_counts,
)
from opendataflow.store.records.alerts import Seen, list_notified, record, take_look, watched
from opendataflow.store.rows import utc_text
from opendataflow.store.statements import statements

MAIL, HOOK = "notify/0", "notify/1"


def telling(spec: JobSpec, *places: str, **settings: Any) -> JobSpec:
    """The job, with a `notify:` for these addresses."""
    to = [[place, "mailto"] for place in places or (MAIL,)]
    return spec._replace(definition=json.dumps({"notify": {"to": to, **settings}}, sort_keys=True))


@pytest.fixture
def outage(world: World) -> World:
    """Two jobs that tell somebody, one that tells nobody; each can run on the shards 1 to 3."""
    shards = {"shards": "1..3"}
    world.apply(
        telling(job("extract", [], ["raw"], partitions=shards), MAIL, HOOK),
        telling(job("load", [], ["table"], partitions=shards), MAIL),
        job("other", [], ["else"], partitions=shards),
    )
    look(world.store, whatever=True)
    return world


def fail(world: World, jobid: str, *dataids: str) -> None:
    for dataid in dataids:
        world.finish(world.must_claim(jobid, dataid), Ending.FAILED, message="it exited 1")


def again(world: World) -> None:
    look(world.store, whatever=True)


def pass_time(world: World, seconds: float) -> None:
    """What was gathered becomes due sooner: on PostgreSQL, whose clock is its own, moments are moved."""
    if world.is_sqlite:
        world.clock.now += seconds
        return
    moved = f"- interval '{seconds} seconds'"
    for column in ("due_at", "created_at", "sent_at", "sender_until"):
        world.sql(f"UPDATE alert_message SET {column} = {column} {moved}")
    world.sql(f"UPDATE alert_watch SET next_look_at = next_look_at {moved}, late_upto = late_upto {moved}")
    world.sql(f"UPDATE alert SET at = at {moved}")
    world.sql(f"UPDATE run SET claimed_at = claimed_at {moved}")
    world.sql(f"UPDATE job_status SET lease_until = lease_until {moved}, parked_until = parked_until {moved}")


def send_all(world: World) -> dict[str, dict[str, int]]:
    """What a sender would send now, by place."""
    sent = {}
    while (message := claim_message(world.store, "sender", project=None)) is not None:
        sent[message.place] = message_counts(world.store, message.messageid)
        assert mark_sent(world.store, message, "sender", title="told", body="")
    return sent


# Found and gathered ---------------------------------------------------------------------------------------------------
def test_what_failed_is_one_message_for_each_address(outage: World) -> None:
    fail(outage, "extract", "1", "2", "3")
    again(outage)
    fail(outage, "load", "1")
    fail(outage, "other", "1")
    again(outage)
    assert [(one["place"], one["state"]) for one in list_messages(outage.store, project=None, limit=9)] == [
        (HOOK, "GATHERING"), (MAIL, "GATHERING"),
    ]  # fmt: skip
    assert send_all(outage) == {}
    pass_time(outage, 31)
    assert send_all(outage) == {MAIL: {"failed": 4}, HOOK: {"failed": 3}}
    again(outage)
    pass_time(outage, 3600)
    assert send_all(outage) == {}


def test_a_failure_with_a_retry_left_is_not_told_before_the_last(world: World) -> None:
    world.apply(telling(job("extract", [], ["raw"], partitions={"shards": "1..1"}, retries=1)))
    again(world)
    fail(world, "extract", "1")
    again(world)
    assert list_messages(world.store, project=None, limit=9) == []
    pass_time(world, 3600)
    world.store.wake_parked()
    fail(world, "extract", "1")
    again(world)
    pass_time(world, 31)
    assert send_all(world) == {MAIL: {"failed": 1}}


def test_what_is_well_again_before_anybody_was_told_is_told_to_nobody(outage: World) -> None:
    fail(outage, "load", "1")
    again(outage)
    outage.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'load' AND dataid = '1'")
    outage.complete("load", "1")
    again(outage)
    assert list_messages(outage.store, project=None, limit=9) == []
    assert list_alerts(outage.store, project=None, limit=9) == []


def test_those_who_were_told_that_it_failed_are_told_that_it_is_well_again(outage: World) -> None:
    fail(outage, "extract", "1", "2", "3")
    again(outage)
    pass_time(outage, 31)
    send_all(outage)
    outage.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'extract'")
    outage.complete("extract", "1", "2", "3")
    again(outage)
    again(outage)
    pass_time(outage, 31)
    assert send_all(outage) == {MAIL: {"recovered": 3}, HOOK: {"recovered": 3}}
    assert list_alerts(outage.store, project=None, limit=9) == []


def test_what_fails_once_more_is_told_once_more_but_not_at_once(outage: World) -> None:
    fail(outage, "load", "1")
    again(outage)
    pass_time(outage, 31)
    assert send_all(outage) == {MAIL: {"failed": 1}}
    outage.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'load'")
    fail(outage, "load", "1", "2")
    again(outage)
    pass_time(outage, 120)
    assert send_all(outage) == {}  # it was told of failures two minutes ago
    pass_time(outage, 800)
    assert send_all(outage) == {MAIL: {"failed": 2}}


def test_what_failed_once_more_and_is_well_again_is_told_as_well_only(outage: World) -> None:
    fail(outage, "load", "1")
    again(outage)
    pass_time(outage, 31)
    send_all(outage)
    outage.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'load'")
    fail(outage, "load", "1")
    again(outage)
    outage.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'load'")
    outage.complete("load", "1")
    again(outage)
    pass_time(outage, 31)
    assert send_all(outage) == {MAIL: {"recovered": 1}}


def test_another_kind_of_event_hurries_what_waits(outage: World) -> None:
    fail(outage, "load", "1")
    again(outage)
    pass_time(outage, 31)
    send_all(outage)
    fail(outage, "load", "2")
    outage.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'load' AND dataid = '1'")
    outage.complete("load", "1")
    again(outage)
    pass_time(outage, 31)
    assert send_all(outage) == {MAIL: {"failed": 1, "recovered": 1}}


def test_events_that_a_job_does_not_ask_for_are_not_told(world: World) -> None:
    world.apply(telling(job("load", [], ["table"], partitions={"shards": "1..1"}), on=["late"]))
    again(world)
    fail(world, "load", "1")
    again(world)
    assert list_messages(world.store, project=None, limit=9) == []


def test_more_failures_than_one_transaction_takes_are_all_told(world: World) -> None:
    world.apply(telling(job("load", [], ["table"], partitions={"shards": "1..600"})))
    again(world)
    world.sql("UPDATE job_status SET status = 'FAILED' WHERE jobid = 'load'")
    again(world)
    assert watched(world.store).history_upto < watched(world.store).history_end
    again(world)
    assert count_open(world.store) == [("p", "failed", 600)]
    assert len(list_messages(world.store, project=None, limit=9)) == 1


# Late and stuck -------------------------------------------------------------------------------------------------------
def test_a_chunk_that_is_not_there_in_time_is_late_once_for_all_that_wait_for_it(world: World) -> None:
    now = world.clock.now
    hour = time.strftime("%Y-%m-%dT%H", time.gmtime(now - 3600))
    late_after = max(now % 3600 - 1, 0.001)  # so that it was due a second ago
    hourly = {"hourly": f"{hour}.."}
    world.apply(
        telling(job("load", ["feed"], ["table"], partitions=hourly), late_after=late_after),
        telling(job("report", ["feed"], ["summary"], partitions=hourly), late_after=late_after),
    )
    for name in ("load", "report"):
        known = world.store.get_job(name, project="p")
        world.store.expect(known, iter([hour]))
    moved = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-60 seconds')" if world.is_sqlite else "now() - interval '60 s'"
    watched(world.store)
    world.sql(f"UPDATE alert_watch SET late_upto = {moved}")
    again(world)
    found = list_alerts(world.store, project=None, limit=9)
    assert [(one["event"], one["subject"], one["name"], one["dataid"]) for one in found] == [
        ("late", "dataset", "feed", hour)
    ]
    world.ready("feed", hour)
    again(world)
    assert list_alerts(world.store, project=None, limit=9) == []


def test_a_run_that_takes_too_long_is_stuck_until_it_ends(world: World) -> None:
    world.apply(telling(job("load", [], ["table"], partitions={"shards": "1..1"}, lease=9999), stuck_after=7200))
    again(world)
    claim = world.must_claim("load", "1")
    pass_time(world, 7000)
    again(world)
    assert list_alerts(world.store, project=None, limit=9) == []
    pass_time(world, 300)
    again(world)
    (found,) = list_alerts(world.store, project=None, limit=9)
    assert (found["event"], found["name"], "RUNNING for 2.0 h" in found["reason"]) == ("stuck", "load", True)
    again(world)
    assert message_counts(world.store, list_messages(world.store, project=None, limit=1)[0]["messageid"]) == {
        "stuck": 1
    }
    world.finish(claim)
    again(world)
    assert list_alerts(world.store, project=None, limit=9) == []


def test_a_lease_that_nobody_gives_back_is_stuck(world: World) -> None:
    world.apply(telling(job("load", [], ["table"], partitions={"shards": "1..1"}, lease=60)))
    again(world)
    world.must_claim("load", "1")
    pass_time(world, 500)
    again(world)
    (found,) = list_alerts(world.store, project=None, limit=9)
    assert (found["event"], "lease ran out" in found["reason"]) == ("stuck", True)


def test_what_is_usual_is_learned_from_the_runs() -> None:
    pace = Pace(0.0, 0)
    for _ in range(5):
        pace = pace.after(300.0)
    settings = Settings((To(MAIL, "mailto"),))
    assert stuck_limit(settings, pace) == pytest.approx(1500.0)
    assert stuck_limit(settings, Pace(1.0, 50)) == 600.0
    assert stuck_limit(settings, Pace(300.0, 4)) is None
    assert stuck_limit(settings._replace(stuck_after=60.0), None) == 60.0


# One of many ----------------------------------------------------------------------------------------------------------
def test_one_of_many_looks_and_an_overtaken_look_writes_nothing(outage: World) -> None:
    fail(outage, "extract", "1")
    pass_time(outage, 60)
    at = watched(outage.store)
    others = [outage.open() for _ in range(4)]
    taken: list[bool] = []
    threads = []
    if outage.is_sqlite:
        taken = [take_look(store, seconds=10) for store in others]  # a connection belongs to its thread
    else:
        threads = [
            threading.Thread(target=lambda store=store: taken.append(take_look(store, seconds=10)))  # type: ignore[misc]
            for store in others
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(taken) == [False, False, False, True]
    jobs = list_notified(outage.store)
    finding = Finding(Event.FAILED, "p", "extract", "job", "p", "extract", "1", "it failed", 7)
    seen = Seen(at.history_upto, at.history_end, [finding])
    assert record(outage.store, seen, jobs)
    assert not record(others[0], seen, jobs)
    assert count_open(outage.store) == [("p", "failed", 1)]
    for store in others:
        store.close()


def test_a_message_has_one_sender_and_one_that_dies_leaves_it_to_one_more(outage: World) -> None:
    fail(outage, "load", "1")
    again(outage)
    pass_time(outage, 31)
    first = claim_message(outage.store, "anna", project=None)
    assert first is not None
    assert claim_message(outage.store, "berta", project=None) is None
    pass_time(outage, SENDER_SECONDS + 1)
    second = claim_message(outage.store, "berta", project=None)
    assert second is not None
    assert (second.messageid, second.deaths) == (first.messageid, 1)
    assert not mark_sent(outage.store, first, "anna", title="late", body="")  # it is berta's now
    pass_time(outage, SENDER_SECONDS + 1)
    assert claim_message(outage.store, "carla", project=None) is None
    (message,) = list_messages(outage.store, project=None, limit=9)
    assert (message["state"], "2 senders died" in message["error"]) == ("GIVEN_UP", True)


def test_what_could_not_be_sent_waits_longer_each_time_and_takes_new_events_with_it(outage: World) -> None:
    fail(outage, "load", "1")
    again(outage)
    pass_time(outage, 31)
    for attempt in (1, 2, 3):
        message = claim_message(outage.store, "anna", project=None)
        assert message is not None
        assert message.attempts == attempt
        mark_failed(outage.store, message, "anna", error="away", title="", body="")
        assert claim_message(outage.store, "anna", project=None) is None
        pass_time(outage, retry_in(attempt) + 0.5)
    fail(outage, "load", "2")
    again(outage)
    assert send_all(outage) == {MAIL: {"failed": 2}}


def test_a_sender_of_another_project_takes_a_message_only_when_nobody_else_does(outage: World) -> None:
    fail(outage, "load", "1")
    again(outage)
    pass_time(outage, 31)
    assert claim_message(outage.store, "anna", project="q") is None
    pass_time(outage, 40)
    assert claim_message(outage.store, "anna", project="q") is not None


# When -----------------------------------------------------------------------------------------------------------------
def test_a_message_waits_while_more_comes_but_not_for_ever() -> None:
    settings = Settings((), gather=30.0, quiet=900.0)
    first = due_in(settings, Event.FAILED, told={})
    assert first == 30.0
    assert due_in(settings, Event.FAILED, age=20.0, due=10.0, told={}) == 30.0
    assert due_in(settings, Event.FAILED, age=110.0, due=5.0, told={}) == 10.0
    assert due_in(settings, Event.FAILED, told={"failed": 100.0}) == 800.0
    assert due_in(settings, Event.FAILED, told={"failed": 1000.0}) == 30.0
    assert due_in(settings, Event.LATE, age=60.0, due=700.0, told={"failed": 200.0}) == 30.0
    assert due_in(settings, Event.FAILED, age=60.0, due=700.0, told={"failed": 200.0}) == 700.0


def test_the_statements_of_a_look_seek_in_an_index(outage: World) -> None:
    if not outage.is_sqlite:
        pytest.skip("SQLite tells its plans without running them")
    registry.check(outage.store, repair=False)
    for name in ("newly_failed", "last_complete", "over_alerts", "live_runs", "refused_rows", "open_message"):
        sql = statements("sqlite", "alerts")[name]
        values = dict.fromkeys(("after", "upto", "limit", "now", "project", "place"), 1)
        cursor = outage._shell.execute(f"EXPLAIN QUERY PLAN {sql}", values)
        plan = [row[3] for row in cursor.fetchall()]
        scans = [line for line in plan if line.startswith("SCAN") and "USING" not in line and line != "SCAN h"]
        assert scans == [], (name, plan)


# Streams --------------------------------------------------------------------------------------------------------------
STREAM = {
    "schema": [["email", "string", True]], "max_batch": 100, "seal": "hourly", "every": 0.2, "retention": 60.0,
    "backlog": 10, "body": 1024, "on_error": "set_aside", "from": {"intake": True}, "destination": "leads",
    "live": "leads_live", "in_table": False,
}  # fmt: skip


def stuck(world: World) -> list[tuple[str, str]]:
    again(world)
    rows = [one for one in list_alerts(world.store, project=None, limit=10) if one["event"] == "stuck"]
    return [(one["name"], one["reason"]) for one in rows]


def test_a_stream_that_failed_lags_or_lost_its_runner_is_stuck_until_it_goes_on(world: World) -> None:
    leads = telling(job("leads", [], ["leads_live"]), MAIL, stuck_after=300.0)
    definition = {**json.loads(leads.definition or "{}"), "stream": STREAM}
    world.apply(leads._replace(definition=json.dumps(definition, sort_keys=True)))
    known = world.store.get_job("leads")
    again(world)

    def says(state: str, *, reason: str = "", waits: float | None = None) -> None:
        oldest = None if waits is None else utc_text(world.store.clock() - waits)
        streams.report(world.store, known, state=state, reason=reason, accepted=7, oldest_at=oldest)

    says("RUNNING", waits=60.0)
    assert stuck(world) == []
    says("RUNNING", waits=400.0)
    assert stuck(world) == [("leads", "7 items wait, the oldest for 7 min; the stream is RUNNING")]
    says("RUNNING")
    assert stuck(world) == []
    says("FAILED", reason="the log is damaged")
    ((_, reason),) = stuck(world)
    assert reason.startswith("the stream is FAILED: the log is damaged; ")
    world.sql("UPDATE job SET paused_by = 'anna'")  # somebody knows of it
    assert stuck(world) == []
    world.sql("UPDATE job SET paused_by = NULL")
    says("RUNNING")
    long_ago = utc_text(world.store.clock() - 900)
    world.sql(f"UPDATE stream SET seen_at = '{long_ago}'")
    assert stuck(world) == [("leads", "tests runs the stream, and was not heard of for 15 min; start a worker")]
