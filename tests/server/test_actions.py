"""What operators do over HTTP: each action says before what it will do, does it, and the history names who did."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.operated import Night, Worker, served_night
from support.processes import wait_for


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def at_night(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    with served_night(request.param, request, tmp_path_factory) as night:
        yield night


def plan(at_night: Night, name: str, **asked: Any) -> dict[str, Any]:
    answer = at_night.script.post(f"/v1/actions/{name}/plan", asked)
    assert answer.status == 200, answer.text
    return dict(answer.json)


LOAD = {"project": "shop", "job": "load"}


def test_a_plan_changes_nothing_and_counts_and_names(at_night: Night) -> None:
    _, failed, _ = at_night.days
    told = plan(at_night, "resubmit", **LOAD, failed=True)
    assert told["possible"]
    assert "1 dataid of load is made again (1 FAILED)" in told["says"]
    assert "No worker is alive" in told["says"]
    assert told["rows"] == [["load", failed, "FAILED", "RESUBMIT"]]
    assert at_night.status_of("load", failed) == "FAILED"


def test_the_confirmation_shows_the_plan_and_the_form_does_it(at_night: Night) -> None:
    _, failed, _ = at_night.days
    page = at_night.operator.get(f"/actions/resubmit?project=shop&job=load&dataid={failed}&then=/runs")
    assert "1 dataid of load is made again" in page.words
    done = at_night.operator.submit("/actions/resubmit", **LOAD, dataid=failed, readers="leave", then="/runs")
    assert (done.status, done.headers["location"].startswith("/runs?")) == (303, True)
    assert at_night.status_of("load", failed) == "RESUBMIT"
    actor = at_night.project.sql("SELECT actor FROM history WHERE new_status = 'RESUBMIT' ORDER BY id DESC LIMIT 1")
    assert actor == [("the-operator (web)",)]
    action, target = at_night.project.sql("SELECT action, target FROM web_action ORDER BY id DESC LIMIT 1")[0]
    assert (action, target) == ("resubmit", f"shop/load/{failed}")


def test_held_dataids_are_released_and_run_now_says_who_will_take_them(at_night: Night) -> None:
    _, failed, _ = at_night.days
    assert "is not started until released" in plan(at_night, "hold", **LOAD, dataid=failed)["says"]
    at_night.script.act("hold", **LOAD, dataid=[failed], reason="wait for the vendor")
    assert at_night.status_of("load", failed) == "HOLD"
    assert "can be taken from now on" in plan(at_night, "run", **LOAD, dataid=failed)["says"]
    at_night.script.act("release", **LOAD, dataid=[failed])
    assert at_night.status_of("load", failed) == "PENDING"
    at_night.script.act("hold", **LOAD, dataid=[failed])
    done = at_night.script.act("run", **LOAD, dataid=[failed])
    assert done["result"]["released"] == [failed]
    assert "No worker is alive" in done["says"]
    assert plan(at_night, "run", **LOAD, dataid=failed)["rows"][0][2] == "nothing to do: it is due"


def test_a_whole_job_is_held_and_released(at_night: Night) -> None:
    assert at_night.script.act("hold", **LOAD, reason="a rebuild")["result"]["changed"]
    assert plan(at_night, "resume", **LOAD)["possible"]
    assert at_night.script.act("release", **LOAD)["result"]["changed"]
    assert not plan(at_night, "resume", **LOAD)["possible"]


def test_ticked_dataids_of_several_jobs_are_resubmitted_together(at_night: Night) -> None:
    first, failed, _ = at_night.days
    done = at_night.script.act("resubmit", key=[f"shop/load/{first}", f"shop/load/{failed}"])
    assert done["result"]["number"] == 2
    assert at_night.status_of("load", first) == "RESUBMIT"
    assert at_night.script.post("/v1/actions/resubmit", {"key": ["shop/load"]}).status == 409


def test_an_outage_is_recovered_with_what_reads_it(at_night: Night) -> None:
    asks = plan(at_night, "resubmit", project="shop")
    assert "in an outage" in asks["says"]
    told = plan(at_night, "resubmit", project="shop", outage="2020-01-01T00:00..now", readers="follow")
    assert told["possible"]
    assert {row[0] for row in told["rows"]} >= {"load"}
    done = at_night.script.act("resubmit", project="shop", outage="2020-01-01T00:00..now", readers="all")
    assert done["result"]["number"] >= 2
    assert at_night.script.post("/v1/actions/resubmit", {"project": "shop", "outage": "soon"}).status == 409


@pytest.mark.parametrize(
    ("asked", "ends"), [({"length": "1 day"}, True), ({"length": "30 days"}, True), ({"until": "2h"}, True),
                        ({"length": "for good"}, False)],
)  # fmt: skip
def test_a_job_is_paused_for_as_long_as_is_said_and_resumed(at_night: Night, asked: dict[str, str], ends: bool) -> None:
    assert "Nothing more of load is started" in plan(at_night, "pause", **LOAD, **asked)["says"]
    done = at_night.script.act("pause", **LOAD, **asked, reason="month's end")
    assert (done["result"]["paused_until"] is not None) is ends
    ((by,),) = at_night.project.sql("SELECT paused_by FROM job WHERE jobid = 'load'")
    assert by == "the-operator (api): month's end"
    assert at_night.script.act("resume", **LOAD)["result"]["changed"]


def test_everything_is_paused_and_resumed(at_night: Night) -> None:
    at_night.script.act("pause", length="for good")
    assert "goes on" in plan(at_night, "resume")["says"]
    assert at_night.script.act("resume")["result"]["changed"]
    assert at_night.script.post("/v1/actions/pause", {"until": "2001-01-01"}).status == 409


def test_a_job_is_scaled_and_set_back(at_night: Night) -> None:
    assert "no limit" in plan(at_night, "scale", **LOAD)["says"]
    assert at_night.script.act("scale", **LOAD, most=0)["result"]["max_runs"] == 0
    assert at_night.script.act("scale", **LOAD, most="default")["result"]["max_runs"] is None
    for most in (-1, 1_000_001, "many"):
        assert at_night.script.post("/v1/actions/scale", {**LOAD, "most": most}).status == 422
    assert at_night.script.post("/v1/actions/scale", {"most": 1}).status == 409


def test_viewers_may_do_nothing_and_operators_may_not_clean_history(at_night: Night) -> None:
    for name in (
        "run",
        "resubmit",
        "hold",
        "release",
        "abort",
        "pause",
        "resume",
        "scale",
        "validate",
        "clean-history",
    ):
        assert at_night.viewer.post(f"/v1/actions/{name}", {}).status == 403, name
        assert at_night.nobody.post(f"/v1/actions/{name}", {}).status == 401, name
    assert at_night.script.post("/v1/actions/clean-history", {"project": "shop"}).status == 403


def test_a_job_or_dataid_that_is_not_there_is_told(at_night: Night) -> None:
    assert at_night.script.post("/v1/actions/hold", {"project": "shop", "job": "no"}).status == 404
    assert at_night.script.post("/v1/actions/run", {**LOAD, "dataid": ["2001-01-01"]}).status == 409
    assert at_night.script.post("/v1/actions/run", {**LOAD}).status == 422
    assert at_night.script.post("/v1/actions/abort", {"run": [999_999]}).status == 409
    assert not plan(at_night, "abort", run=[999_999])["possible"]


def test_a_script_has_nothing_to_validate(at_night: Night) -> None:
    answer = at_night.script.post("/v1/actions/validate", LOAD)
    assert (answer.status, "is a script" in answer.json["detail"]) == (409, True)


def test_a_validation_is_done_by_a_child_and_its_end_is_shown(at_night: Night) -> None:
    done = at_night.script.act("validate", project="shop")
    number = done["result"]["request"]
    wait_for(lambda: at_night.script.get(f"/v1/requests/{number}").json["status"] != "RUNNING", "it ends", seconds=60)
    told = at_night.script.get(f"/v1/requests/{number}").json
    assert (told["status"], told["exit_code"], told["asked_by"]) == ("COMPLETE", 0, "the-operator (api)")
    assert "no pipeline names one" in told["output"]
    assert "no pipeline names one" in at_night.viewer.get(f"/requests/{number}").words
    assert at_night.script.get("/v1/requests?project=shop").json[0]["id"] == number


def test_a_run_is_aborted_from_its_page_within_moments_and_says_by_whom(at_night: Night) -> None:
    project = at_night.project
    with Worker(project, "--jobs", "split", "--slots", "1"):
        wait_for((project.folder / "begun-1").exists, "it runs")
        run = at_night.run_of("1", "split")
        page = at_night.operator.get(f"/actions/abort?run={run}")
        assert "FAILED, aborted by the-operator (web), and not tried again" in page.words
        at_night.script.act("scale", project="shop", job="split", most=0)  # so that nothing follows it
        assert at_night.operator.submit("/actions/abort", run=run, then=f"/runs/{run}").status == 303
        wait_for(lambda: at_night.status_of("split", "1") == "FAILED", "it has ended", seconds=60)
    told = at_night.script.get(f"/v1/runs/{run}").json
    assert (told["status"], told["message"]) == ("FAILED", "aborted by the-operator (web)")
    over = at_night.script.post("/v1/actions/abort", {"run": [run]})
    assert (over.status, "it is FAILED" in over.json["detail"]) == (409, True)


def test_old_records_are_counted_first_and_then_removed(at_night: Night) -> None:
    answer = at_night.admin.post("/v1/actions/clean-history/plan", {"project": "shop", "days_old": 0})
    assert answer.json["possible"], answer.text
    done = at_night.admin.act("clean-history", project="shop", days_old=0)
    assert done["result"]["runs"] >= 1
    assert done["result"]["is_all"]
    detail = at_night.project.sql("SELECT detail FROM web_action WHERE action = 'clean-history'")[0][0]
    assert json.loads(detail) == {"project": "shop", "job": None, "days_old": 0}


@pytest.mark.parametrize(
    ("action", "asked"),
    [
        ("run", {**LOAD, "dataid": []}),
        ("abort", {"run": 2**63}),
        ("abort", {"run": [-1]}),
        ("stream-replay", {"project": "shop", "stream": "leads", "offset": 2**63}),
        ("stream-replay", {"project": "shop", "stream": "leads", "offset": -(2**70)}),
    ],
)
def test_numbers_that_no_store_holds_and_empty_lists_are_refused(
    at_night: Night, action: str, asked: dict[str, Any]
) -> None:
    for path in (f"/v1/actions/{action}/plan", f"/v1/actions/{action}"):
        assert at_night.script.post(path, asked).status == 422
