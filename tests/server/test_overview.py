"""The first page, and `/v1/overview`: what needs a person now, by root, with the step that mends it."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from opendataflow.store.rows import utc_text
from support.operated import Night, served_night
from support.processes import wait_for
from support.projects import DATAFLOW


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def at_night(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    with served_night(request.param, request, tmp_path_factory) as night:
        yield night


def needs(at_night: Night) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["cause"], one["name"]): one for one in overview(at_night)["needs"]}


def overview(at_night: Night) -> dict[str, Any]:
    """As it is from now on: the answer of a moment ago may still be given for a while."""
    now = utc_text(time.time())

    def told() -> dict[str, Any] | None:
        found: dict[str, Any] = at_night.script.get("/v1/overview").json
        return found if found["as_of"] >= now else None

    return wait_for(told, "an answer that was asked for just now") or {}


def test_what_failed_is_one_group_with_what_it_blocks_and_its_button(at_night: Night) -> None:
    _, failed, _ = at_night.days
    found = needs(at_night)["FAILED", "load"]
    assert (found["number"], found["dataids"], found["project"]) == (1, [failed], "shop")
    assert found["says"] == "it exited 3"
    assert f"dataflow resubmit load {failed}" in found["fix"]
    page = at_night.operator.get("/")
    assert page.status == 200
    assert "it exited 3" in page.words
    assert "/actions/resubmit?project=shop&amp;job=load&amp;failed=true" in page.text
    assert f'href="/jobs/shop/load/{failed}"' in page.text


def test_whoever_may_only_look_gets_no_buttons_that_act(at_night: Night) -> None:
    page = at_night.viewer.get("/")
    assert page.status == 200
    assert "it exited 3" in page.words
    assert "/actions/" not in page.text


def test_another_project_has_none_of_it(at_night: Night) -> None:
    told = at_night.script.get("/v1/overview?project=other").json
    assert (told["needs"], told["jobs"], told["running"]) == ([], [], [])
    assert at_night.operator.get("/?project=other").status == 200


def test_the_same_answer_is_given_to_everybody_for_a_moment_and_a_browser_gets_nothing_twice(at_night: Night) -> None:
    def is_same() -> bool:
        one, two = (at_night.script.get("/v1/overview").json["as_of"] for _ in range(2))
        return bool(one == two)

    wait_for(is_same, "two who ask within a moment")
    first = at_night.operator.get("/")
    again = at_night.operator.get("/", if_none_match=first.headers["etag"])
    assert again.status == 304 or again.headers["etag"] != first.headers["etag"]


def test_nobody_sees_anything(at_night: Night) -> None:
    assert at_night.nobody.get("/v1/overview").status == 401
    assert at_night.nobody.get("/").status == 303


def test_rates_count_the_ends_of_the_last_hour_and_day(at_night: Night) -> None:
    told = at_night.script.get("/v1/overview").json
    assert told["rates"]["hour"] == told["rates"]["day"] == {"COMPLETE": 1, "FAILED": 1}
    jobs = {one["name"]: one["counts"] for one in told["jobs"]}
    assert jobs["load"] == {"COMPLETE": 1, "FAILED": 1, "PENDING": jobs["load"]["PENDING"]}
    datasets = {one["name"]: one["counts"] for one in told["datasets"]}
    assert datasets["orders"] == {"READY": 1, "FAILED": 1}


def test_late_feeds_holds_pauses_and_missing_workers_are_told_with_their_steps(at_night: Night) -> None:
    act = at_night.script.act
    first, failed, missing = at_night.days
    act("hold", project="shop", job="load", dataid=[failed], reason="the vendor looks at it")
    act("pause", project="shop", job="split")
    found = needs(at_night)
    assert found["HOLD", "load"]["dataids"] == [failed]
    assert found["PAUSED", "split"]["blocks"] == 3
    late = found["LATE", "feed"] if ("LATE", "feed") in found else found["MISSING", "feed"]
    assert late["number"] >= 1
    assert missing in late["says"] or missing in late["dataids"]
    nobody = found["NO_WORKER", "workers"]
    assert "no worker is alive" in nobody["says"]
    assert first not in str(found["HOLD", "load"])
    page = at_night.operator.get("/").words
    for words in ("On hold load", "Paused split", "No worker"):
        assert words in page
    act("resume", project="shop", job="split")
    act("release", project="shop", job="load", dataid=[failed])


def test_what_runs_is_shown_with_owner_and_lease_and_who_was_cut_off_needs_a_person(at_night: Night) -> None:
    project = at_night.project
    worker = project.start(DATAFLOW, "worker", "--jobs", "split")
    wait_for((project.folder / "begun-1").exists, "something runs")
    told = overview(at_night)
    assert told["workers"]["alive"] == 1
    ours = [one for one in told["running"] if one["jobid"] == "split"]
    assert (bool(ours[0]["owner"]), ours[0]["expired"], ours[0]["attempt"]) == (True, False, 1)
    assert told["running_total"] == len(told["running"])
    assert f"/actions/abort?run={ours[0]['runid']}" in at_night.operator.get("/").text
    worker.kill()
    worker.communicate(timeout=60)
    project.sql("UPDATE job_status SET lease_until = '2020-01-01T00:00:00.000Z' WHERE status = 'RUNNING'")
    expired = needs(at_night)["EXPIRED", "split"]
    assert "has not renewed its lease on split/1 since 2020-01-01" in expired["says"]
    assert expired["number"] == len(ours)


def test_whoever_has_just_acted_sees_it_at_once(at_night: Night) -> None:
    def pauses() -> set[tuple[str, str]]:
        told = at_night.script.get("/v1/overview").json["needs"]
        return {(one["cause"], one["name"]) for one in told if one["cause"] == "PAUSED"}

    assert ("PAUSED", "everything") not in pauses()
    at_night.script.act("pause", length="for good")
    try:
        assert ("PAUSED", "everything") in pauses()
    finally:
        at_night.script.act("resume")
    assert ("PAUSED", "everything") not in pauses()
