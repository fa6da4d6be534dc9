"""Streams through the commands: register, send, status, items set aside, replay, pause and resume, why, clean."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.job import Job
from opendataflow.domain.runs.questions import Answer, Question, Verdict
from opendataflow.domain.runs.run import Ending, Owner, Result
from opendataflow.domain.streams import slot_of_moment
from opendataflow.intake.log import IntakeLog
from opendataflow.store import open_store
from opendataflow.store.claims import LoopStore
from opendataflow.store.records import streams
from opendataflow.store.rows import utc_text
from support.projects import Project

PROJECT = """\
name: shop
pipelines:
  - slug: leads
    mode: stream
    destination: leads
    stream: {schema: {email: string, age: {type: int, required: false}}, retention: 2h}
  - {slug: other, sources: x, destination: y}
"""
YES = Verdict(tuple(Answer(question, True, "seen by the test") for question in Question))


@pytest.fixture
def shop(sqlite_project: Project) -> Project:
    sqlite_project.apply(PROJECT)
    sqlite_project.write("three.csv", "email,age\na@x,1\nb@x,\nc@x,3\n")
    return sqlite_project


def opened(shop: Project) -> tuple[LoopStore, Job]:
    store = open_store(shop.store, actor="runner@test:1")
    return store, store.get_job("leads")


def process(shop: Project, start: int, end: int, *, fail: list[int] | None = None, ago: float = 0.0) -> None:
    """What the stream's runner does with a batch, without Spark."""
    store, job = opened(shop)
    at = utc_text(time.time() - ago)
    dataid = streams.expect_batch(store, job, start, end, at=at, slot=slot_of_moment(at, "hourly"))
    candidate = store.find_candidate(job, dataid)
    assert candidate is not None
    claim = store.claim(job, candidate, YES, Owner("runner@test:1", "test", 1, 1, 2, 2))
    assert claim is not None
    failures = [streams.Failure(one, at, "Traceback\nValueError: no address", '{"email": "b@x"}') for one in fail or []]
    streams.set_aside(store, job, start, end, failures, runid=claim.runid)
    place = Path(job.root) / f"output/leads_live/dataid={dataid}/_runs/{claim.runid}"
    place.mkdir(parents=True)
    (place / "part-0.parquet").write_bytes(b"x" * 10)
    store.finish(claim, Result(Ending.COMPLETE, 0, manifests=(("shop", "leads_live", Manifest(str(place), rows=1)),)))
    streams.report(store, job, state=streams.RUNNING, accepted=end)
    store.close()


def test_a_stream_from_its_first_item_to_its_last(shop: Project) -> None:
    token = shop.dataflow("stream", "token", "leads")
    assert re.fullmatch(r"[\w-]{43}\n", token.stdout)
    assert token.stdout.strip() not in json.dumps(shop.sql("SELECT * FROM stream"))
    sent = shop.json("stream", "send", "leads", "three.csv")
    assert (sent["first"], sent["last"]) == ("leads-0", "leads-2")
    (status,) = shop.json("stream", "status")
    assert (status["state"], status["accepted"], status["processed"], status["lag_items"]) == ("NEW", 3, 0, 3)
    assert 0 < status["lag_seconds"] < 60
    assert (status["has_token"], status["failed"]) == (True, 0)
    [cause] = [one for one in shop.json("why") if one["cause"] == "STREAM_LAGS"]
    assert "items 0 to 2 wait" in cause["reason"]
    assert cause["fix"].startswith("`dataflow stream run leads`")

    process(shop, 0, 3, fail=[1])
    (status,) = shop.json("stream", "status", "leads")
    assert (status["state"], status["processed"], status["failed"], status["lag_items"]) == ("RUNNING", 3, 1, 0)
    assert status["rate"] == pytest.approx(3 / 60, abs=0.001)
    assert shop.json("status")["streams"] == [status]
    assert "leads" in shop.dataflow("status").stdout
    [item] = shop.json("stream", "failed", "leads")
    assert (item["id"], item["item"], item["replayed_as"]) == ("leads-1", {"email": "b@x"}, None)
    assert "ValueError: no address" in shop.dataflow("stream", "failed", "leads").stdout
    assert shop.json("stream", "replay", "leads", "--failed", "--dry-run") == [{"offset": 1, "sent_as": None}]
    assert shop.json("stream", "replay", "leads", "--failed", "1") == [{"offset": 1, "sent_as": "leads-3"}]
    assert shop.json("stream", "replay", "leads", "--failed", "1") == [{"offset": 1, "sent_as": "leads-3"}]  # once
    assert shop.json("stream", "failed", "leads") == []
    assert shop.json("stream", "failed", "leads", "--all")[0]["replayed_as"] == "leads-3"
    (status,) = shop.json("stream", "status")
    assert (status["accepted"], status["failed"], status["replayed"]) == (4, 0, 1)
    process(shop, 3, 4)

    shop.dataflow("stream", "token", "leads", "--revoke")
    assert shop.json("stream", "status")[0]["has_token"] is False


def test_a_stream_is_paused_fails_and_goes_on(shop: Project) -> None:
    shop.json("stream", "send", "leads", "three.csv")
    assert shop.dataflow("stream", "pause", "leads", "--reason", "the CRM is down").returncode == 0
    (status,) = shop.json("stream", "status")
    assert status["state"] == "PAUSED"
    assert "the CRM is down" in status["reason"]
    causes = {one["name"]: one["cause"] for one in shop.json("why")}
    assert causes["leads"] == "PAUSED"
    assert "goes on" in shop.dataflow("stream", "resume", "leads").stderr

    store, job = opened(shop)
    dataid = streams.expect_batch(store, job, 0, 3, at=utc_text(time.time()), slot="2026-11-16T13")
    candidate = store.find_candidate(job, dataid)
    assert candidate is not None
    claim = store.claim(job, candidate, YES, Owner("runner@test:1", "test", 1, 1, 2, 2))
    assert claim is not None
    store.finish(claim, Result(Ending.GIVEN_UP, 1, "no module pandas"))
    streams.report(store, job, state=streams.FAILED, reason="no module pandas")
    assert "no module pandas" in shop.dataflow("why", "leads").stdout
    told = {one["cause"]: one for one in shop.json("why")}
    assert told["STREAM_FAILED"]["reason"].startswith("the stream is FAILED: no module pandas; items 0 to 2 wait")
    assert told["FAILED"]["dataids"] == [dataid]
    assert shop.dataflow("stream", "resume", "leads").returncode == 0
    assert shop.statuses("leads") == {dataid: "RESUBMIT"}
    assert shop.json("stream", "status")[0]["state"] == "STOPPED"
    streams.report(store, job, state=streams.RUNNING)
    shop.sql("UPDATE stream SET seen_at = '2026-01-01T00:00:00.000Z'")
    assert shop.json("stream", "status")[0]["state"] == "GONE"
    store.close()


def test_what_is_over_is_cleaned_and_what_is_kept_can_be_made_again(shop: Project) -> None:
    log = IntakeLog(str(shop.folder / ".dataflow/streams/shop/leads"), clock=lambda: time.time() - 86_400)
    log.append(b'[{"email": "a"}, {"email": "b"}, {"email": "c"}, {"email": "d"}, {"email": "e"}, {"email": "f"}]', 6)
    log.close()
    shop.json("stream", "send", "leads", "three.csv")
    process(shop, 0, 3, ago=86_400)
    process(shop, 3, 6, ago=86_400)
    process(shop, 6, 9)
    store, _ = opened(shop)
    seal = store.get_job("leads_seal")
    slot = shop.sql("SELECT min(slot) FROM stream_batch")[0][0]
    streams.expect_seal(store, seal, slot)
    assert shop.json("clean", "--dry-run")["sealed_batches"] == []  # not sealed yet
    candidate = store.find_candidate(seal, slot)
    assert candidate is not None
    claim = store.claim(seal, candidate, YES, Owner("runner@test:1", "test", 1, 1, 2, 2))
    assert claim is not None
    assert len(claim.inputs) == 2
    assert shop.json("clean", "--dry-run")["sealed_batches"] == []  # being read
    store.finish(claim, Result(Ending.COMPLETE, 0, manifests=(("shop", "leads", Manifest(None, rows=2)),)))
    store.close()
    told = shop.json("clean", "--dry-run")["sealed_batches"]
    assert told == [{"stream": "leads", "batches": 2, "bytes": 20}]
    cleaned = shop.json("clean", "--yes")
    assert cleaned["log_segments"] == 0  # some of its items came a moment ago
    live = shop.folder / "output/leads_live"
    assert [path.name for path in live.rglob("part-0.parquet")] == ["part-0.parquet"]
    assert list(shop.statuses("leads")) == ["000000000006-000000000008"]

    refused = shop.dataflow("stream", "replay", "leads", "--since", "2d", "--yes")
    assert refused.returncode == 2
    assert "begins with item 0, and what can be made again with item 6" in refused.stderr
    again = shop.json("stream", "replay", "leads", "--since", "1h", "--yes")
    assert [(one["jobid"], one["dataid"], one["status"]) for one in again] == [
        ("leads", "000000000006-000000000008", "RESUBMIT")
    ]  # fmt: skip
    assert shop.json("stream", "status")[0]["processed"] == 0
    os.rename(shop.folder / ".dataflow/streams", shop.folder / ".dataflow/moved")
    elsewhere = shop.json("stream", "status", env={"DATAFLOW_STREAMS": str(shop.folder / ".dataflow/moved")})
    assert elsewhere[0]["accepted"] == 9


def test_a_source_that_is_missing_is_named_with_what_to_do(sqlite_project: Project) -> None:
    text = PROJECT.replace("    mode: stream\n", "    mode: stream\n    sources: [countries]\n")
    sqlite_project.apply(f"{text}datasets: {{countries: {{path: countries.csv, partitions: none}}}}\n")
    sqlite_project.write("three.csv", "email,age\na@x,1\n")
    sqlite_project.json("stream", "send", "leads", "three.csv")
    step = "when it is there: `dataflow scan countries` or `dataflow ready countries full`"
    why = sqlite_project.dataflow("why", "leads").stdout
    assert why.startswith("leads is NEW, countries/full is not there yet: 1 item behind")
    assert why.endswith(f"Next step: {step}\n")
    told = f"leads: NEW, countries/full is not there yet; next: {step}"
    for command in (("status",), ("stream", "status")):
        assert told in sqlite_project.dataflow(*command).stderr
    done = sqlite_project.dataflow("run", "leads", "--stream", "three.csv", "--dry-run")
    assert (done.returncode, step in done.stderr) == (10, True)
    done = sqlite_project.dataflow("run", "leads_seal", "--drain")
    assert (done.returncode, "`dataflow stream run leads`" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["token", "other"], "'other' is not a stream pipeline"),
        (["status", "lead"], "there is no stream 'lead'; known are leads"),
        (["replay", "leads"], "give --failed, with or without items, or --since"),
        (["replay", "leads", "--failed", "7"], "item 7 of leads is not set aside"),
        (["replay", "leads", "--since", "soon"], "'soon' is not a time"),
    ],
)
def test_what_makes_no_sense_is_refused(shop: Project, argv: list[str], said: str) -> None:
    done = shop.dataflow("stream", *argv)
    assert done.returncode == 2
    assert said in done.stderr
