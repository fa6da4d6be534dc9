"""The pages, API and actions of streams, beside the intake that shares their addresses."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from opendataflow.domain.runs.questions import Answer, Question, Verdict
from opendataflow.domain.runs.run import Ending, Owner, Result
from opendataflow.domain.streams import batch_id
from opendataflow.store import open_store
from opendataflow.store.records.streams import Failure, expect_batch, report, set_aside
from support.projects import Project
from support.servers import LEADS, Client
from support.web import Site, browser

YES = Verdict(tuple(Answer(question, True, "seen by the test") for question in Question))
ITEMS = [{"email": f"{number}@example.com", "name": "<b>Anna</b>"} for number in range(5)]
AT = "2026-11-17T02:00:00.000Z"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("streams")
    project = Project(folder / "project", f"sqlite:///{folder / 'state.db'}")
    project.apply(LEADS)
    with Site(project) as made:
        yield made


@pytest.fixture(scope="module")
def token(site: Site) -> str:
    """As an operator gets it on the page: this once."""
    shown = site.visitor("operator").submit("/actions/stream-token", project="crm", stream="leads", then="/streams")
    assert shown.status == 200
    found = shown.text.partition('class="once"')[2].partition('value="')[2].partition('"')[0]
    assert len(found) > 40
    return found


@pytest.fixture(scope="module")
def filled(site: Site, token: str) -> Site:
    """Five items came; three were dealt with, one of them set aside."""
    with Client(site.port, token, "/v1/streams/crm/leads") as client:
        assert client.post(json.dumps(ITEMS))[0] == 202
    store = open_store(site.project.store, actor="tests")
    job = store.get_job("leads", project="crm")
    dataid = expect_batch(store, job, 0, 3, at=AT, slot="2026-11-17")
    candidate = store.find_candidate(job, dataid)
    assert candidate is not None
    claim = store.claim(job, candidate, YES, Owner("anna@host:1", "host", 1, 1, 2, 2))
    assert claim is not None
    set_aside(
        store, job, 0, 3, [Failure(1, AT, "ValueError: <i>no</i> address", json.dumps(ITEMS[1]))], runid=claim.runid
    )
    store.finish(claim, Result(Ending.COMPLETE, 0))
    report(store, job, state="RUNNING", accepted=5)
    store.close()
    return site


def test_the_list_tells_how_streams_stand(filled: Site) -> None:
    found = {one["stream"]: one for one in filled.script("viewer").get("/v1/streams").json}
    assert set(found) == {"leads", "few", "sent"}
    leads = found["leads"]
    assert [leads[name] for name in ("state", "accepted", "processed", "failed", "lag_items")] == [
        "RUNNING",
        5,
        3,
        1,
        2,
    ]
    assert (found["few"]["state"], leads["rate"] > 0, leads["has_token"]) == ("NEW", True, True)
    words = filled.visitor("viewer").get("/streams").words
    assert "leads RUNNING 5 3 1" in words


def test_getting_and_posting_share_an_address_and_not_their_keys(filled: Site, token: str) -> None:
    told = filled.script("viewer").get("/v1/streams/crm/leads")
    assert (told.status, told.json["destination"], told.json["log_is_here"]) == (200, "leads", True)
    assert filled.visitor(None).get("/v1/streams/crm/leads").status == 401
    with Client(filled.port, filled.script("operator").token, "/v1/streams/crm/leads") as client:
        assert client.post(json.dumps(ITEMS[0]))[0] == 403, "an API token brings no items"
    sender = filled.visitor(None)
    sender.token = token
    assert sender.get("/v1/streams/crm/leads").status == 401, "a sender's token reads nothing"
    paths = filled.script("viewer").get("/v1/openapi.json").json["paths"]["/v1/streams/{project}/{pipeline}"]
    assert set(paths) == {"get", "post"}


def test_the_page_has_numbers_a_plot_batches_and_a_line_to_copy(filled: Site, token: str) -> None:
    page = filled.visitor("operator").get("/streams/crm/leads")
    assert '<rect class="bar"' in page.text
    for words in ("5 accepted", "3 processed", "2 behind", "1 set aside", "email: string", "age: int?", "COMPLETE"):
        assert words in page.words, words
    assert f"POST {filled.url}/v1/streams/crm/leads" in page.words
    assert "Authorization: Bearer $TOKEN" in page.text
    assert token not in page.text
    rates = filled.script("viewer").get("/v1/streams/crm/leads").json["rates"]
    assert sum(one["rate"] for one in rates) * 15 == pytest.approx(3, abs=0.1)
    batches = filled.script("viewer").get("/v1/streams/crm/leads/batches").json
    assert [(one["start"], one["end"], one["items"], one["status"]) for one in batches["items"]] == [
        (0, 3, 3, "COMPLETE")
    ]


def test_set_aside_items_are_shown_escaped_and_sent_again_once(filled: Site) -> None:
    script = filled.script("operator")
    found = script.get("/v1/streams/crm/leads/failed").json
    assert [(one["id"], one["item"], found["next"]) for one in found["items"]] == [("leads-1", ITEMS[1], None)]
    page = filled.visitor("operator").get("/streams/crm/leads")
    assert "ValueError: <i>no</i> address" in page.words
    assert "<i>no</i>" not in page.text
    assert "<b>Anna" not in page.text
    plan = script.post("/v1/actions/stream-replay/plan", {"project": "crm", "stream": "leads", "offset": [1]}).json
    assert (plan["possible"], plan["rows"]) == (True, [[1, AT, "ValueError: <i>no</i> address"]])
    done = script.act("stream-replay", project="crm", stream="leads")
    assert done["result"] == [{"offset": 1, "sent_as": "leads-5"}]
    again = script.post("/v1/actions/stream-replay/plan", {"project": "crm", "stream": "leads"}).json
    assert again["possible"] is False
    assert script.get("/v1/streams/crm/leads/failed").json["items"] == []
    assert script.get("/v1/streams/crm/leads/failed?replayed=true").json["items"][0]["replayed_as"] == "leads-5"


def test_a_time_is_made_again(filled: Site) -> None:
    script = filled.script("operator")
    plan = script.post(
        "/v1/actions/stream-replay-since/plan", {"project": "crm", "stream": "leads", "since": "1h"}
    ).json
    assert plan["rows"] == [["leads", batch_id(0, 3)]]
    assert script.post("/v1/actions/stream-replay-since", {"project": "crm", "stream": "leads"}).status == 409
    script.act("stream-replay-since", project="crm", stream="leads", since="1h")
    statuses = [one["status"] for one in script.get("/v1/streams/crm/leads/batches").json["items"]]
    assert statuses == ["RESUBMIT"]


def test_without_its_log_here_nothing_is_sent_again_and_the_page_says_where(filled: Site) -> None:
    page = filled.visitor("operator").get("/streams/crm/sent")
    assert "Its log is not on this server's machine" in page.words
    assert "Make again since" not in page.words
    refused = filled.script("operator").post(
        "/v1/actions/stream-replay-since", {"project": "crm", "stream": "sent", "since": "1h"}
    )
    assert refused.status == 409
    assert "`dataflow stream replay sent --since …` where its items are taken in" in refused.json["detail"]


def test_pause_and_go_on(filled: Site) -> None:
    script = filled.script("operator")
    script.act("pause", project="crm", job="leads", until="2h")
    assert script.get("/v1/streams/crm/leads").json["state"] == "PAUSED"
    assert (
        "leads is PAUSED by"
        in script.post("/v1/actions/stream-resume/plan", {"project": "crm", "stream": "leads"}).json["says"]
    )
    assert "leads goes on" in script.act("stream-resume", project="crm", stream="leads")["says"]
    assert script.get("/v1/streams/crm/leads").json["state"] == "RUNNING"


def test_a_new_token_makes_the_one_before_void_and_a_revoked_one_lets_nobody_in(filled: Site) -> None:
    script = filled.script("operator")
    script.act("stream-token", project="crm", stream="sent")
    assert script.get("/v1/streams/crm/sent").json["has_token"]
    script.act("stream-token-revoke", project="crm", stream="sent")
    assert not script.get("/v1/streams/crm/sent").json["has_token"]
    assert filled.script("viewer").post("/v1/actions/stream-token", {"project": "crm", "stream": "sent"}).status == 403
    recorded = filled.project.sql("SELECT target, detail FROM web_action WHERE action LIKE 'stream-token%'")
    assert [(target, set(json.loads(detail))) for target, detail in recorded][-1] == ("crm/sent", {"project", "stream"})


def test_what_is_not_there_is_told_so(filled: Site) -> None:
    viewer = filled.script("viewer")
    for path in (
        "/v1/streams/crm/nothing",
        "/v1/streams/crm/nothing/failed",
        "/v1/streams/nobody/leads",
        "/streams/crm/nothing",
    ):
        assert viewer.get(path).status == 404, path
    assert viewer.get("/v1/streams/crm/leads/failed?first=-1").status == 422


def test_the_page_fits_a_phone(filled: Site) -> None:
    with browser(filled, "viewer", viewport={"width": 360, "height": 740}) as page:
        for path in ("/streams", "/streams/crm/leads"):
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
