"""Runs: the list with its filters and cursor, one run with its answers, its log while it grows, what it made."""

import io
import urllib.request
import zipfile
from collections.abc import Iterator

import pytest

from support.operated import Night, Worker, served_night
from support.processes import wait_for
from support.web import COOKIE


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def at_night(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    with served_night(request.param, request, tmp_path_factory) as night:
        yield night


def raw(at_night: Night, path: str) -> tuple[bytes, dict[str, str]]:
    cookie = {"cookie": f"{COOKIE}={at_night.viewer.secret}"}
    request = urllib.request.Request(at_night.site.url + path, headers=cookie)  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return answer.read(), dict(answer.headers.items())


def test_runs_are_listed_newest_first_and_filtered(at_night: Night) -> None:
    first, failed, _ = at_night.days
    found = at_night.script.get("/v1/runs").json["runs"]
    assert [(run["dataid"], run["status"]) for run in found] == [(failed, "FAILED"), (first, "COMPLETE")]
    for query, dataids in (
        ("status=FAILED", [failed]), (f"dataid={first}", [first]), ("job=sum", []), ("project=other", []),
        (f"job=load&dataid={failed}", [failed]), ("since=1h", [failed, first]), ("until=2020-01-01", []),
        ("since=2020-01-01&until=2099-01-01&status=COMPLETE", [first]),
    ):  # fmt: skip
        assert [run["dataid"] for run in at_night.script.get(f"/v1/runs?{query}").json["runs"]] == dataids, query


def test_the_cursor_leads_through_all_of_them(at_night: Night) -> None:
    seen, cursor = [], ""
    for _ in range(5):
        page = at_night.script.get(f"/v1/runs?limit=1{cursor}").json
        seen += [run["dataid"] for run in page["runs"]]
        if page["next"] is None:
            break
        cursor = f"&before={page['next']}"
    assert seen == [at_night.days[1], at_night.days[0]]


@pytest.mark.parametrize("query", ["status=BAD", "limit=0", "limit=501", "before=-1", "before=x"])
def test_parameters_that_do_not_fit_are_refused_with_the_reason(at_night: Night, query: str) -> None:
    answer = at_night.script.get(f"/v1/runs?{query}")
    assert (answer.status, answer.json["status"]) == (422, 422)


def test_a_time_that_is_none_is_told_on_the_page_and_in_the_api(at_night: Night) -> None:
    assert at_night.script.get("/v1/runs?since=soon").status == 409
    page = at_night.operator.get("/runs?since=soon&status=COMPLETE")
    assert (page.status, "is not a time like" in page.words) == (200, True)


def test_the_page_draws_the_durations_with_links_and_offers_to_resubmit_the_ticked(at_night: Night) -> None:
    page = at_night.operator.get("/runs")
    failed = at_night.run_of(at_night.days[1])
    assert 'class="bar b-failed"' in page.text
    assert f'aria-label="run {failed}, load {at_night.days[1]}, FAILED' in page.text
    assert f'value="shop/load/{at_night.days[1]}"' in page.text
    assert "Resubmit the ticked" in page.words
    assert "Resubmit the ticked" not in at_night.viewer.get("/runs").words


def test_a_failed_run_shows_the_five_answers_the_message_and_its_log(at_night: Night) -> None:
    failed = at_night.run_of(at_night.days[1])
    told = at_night.script.get(f"/v1/runs/{failed}").json
    assert (told["status"], told["exit_code"], told["message"]) == ("FAILED", 3, "it exited 3")
    assert [one["question"] for one in told["answers"]] == ["ready", "right", "location", "valid", "safe"]
    assert all(one["yes"] for one in told["answers"])
    assert [(one["dataset"], one["dataid"]) for one in told["inputs"]] == [("feed", at_night.days[1])]
    assert told["outputs"] == []
    assert told["history"][-1]["new_status"] == "FAILED"
    page = at_night.operator.get(f"/runs/{failed}").words
    for words in ("it exited 3", "the vendor sent no header", "Resubmit", "exit code 3"):
        assert words in page


def test_the_log_is_read_from_any_byte_and_downloaded_whole(at_night: Night) -> None:
    failed = at_night.run_of(at_night.days[1])
    whole = at_night.script.get(f"/v1/runs/{failed}/log").json
    assert (whole["whole"], whole["more"], whole["status"]) == (True, False, "FAILED")
    assert whole["text"].endswith("the vendor sent no header\n")
    assert whole["next"] == len(whole["text"].encode())
    assert at_night.script.get(f"/v1/runs/{failed}/log?from={whole['next']}").json["text"] == ""
    assert at_night.script.get(f"/v1/runs/{failed}/log?from=-7").json["text"] == "header\n"
    assert at_night.script.get(f"/v1/runs/{failed}/log?from=999999").json["text"] == ""
    text, headers = raw(at_night, f"/runs/{failed}/log")
    assert text.decode() == whole["text"]
    assert f'filename="load_{at_night.days[1]}_run_{failed}.log"' in headers["content-disposition"]


def test_a_log_of_another_place_is_not_read_and_the_tail_of_the_store_is_shown(at_night: Night) -> None:
    """Whoever writes the row by hand cannot have the server send any file."""
    complete = at_night.run_of(at_night.days[0])
    before = at_night.project.sql(f"SELECT log_path FROM run WHERE runid = {complete}")[0][0]
    elsewhere = at_night.project.write("secret.txt", "not a log\n")
    at_night.project.sql(f"UPDATE run SET log_path = '{elsewhere}' WHERE runid = {complete}")
    log = at_night.project.folder / ".dataflow" / "logs" / "load" / f"{complete}.log"
    assert str(log) == before
    log.rename(log.with_suffix(".away"))
    try:
        told = at_night.script.get(f"/v1/runs/{complete}/log").json
        assert "not a log" not in told["text"]
        assert (told["whole"], told["replaces"], "reading" in told["text"]) == (False, True, True)
        assert b"not a log" not in raw(at_night, f"/runs/{complete}/log")[0]
    finally:
        log.with_suffix(".away").rename(log)
        at_night.project.sql(f"UPDATE run SET log_path = '{before}' WHERE runid = {complete}")


def test_the_output_of_a_run_is_its_only_file_or_a_zip(at_night: Night) -> None:
    day = at_night.days[0]
    complete = at_night.run_of(day)
    data, headers = raw(at_night, f"/runs/{complete}/output")
    assert data.decode() == f"id,day\n1,{day}\n"
    assert f"load_{day}_run_{complete}" in headers["content-disposition"]
    place = at_night.project.folder / "data" / "orders" / f"{day}.csv"
    text = place.read_text()
    place.unlink()
    place.mkdir()
    (place / "one.csv").write_text("1\n")
    (place / "two.csv").write_text("2\n")
    try:
        data, headers = raw(at_night, f"/runs/{complete}/output")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert {name: archive.read(name) for name in archive.namelist()} == {
                "orders/one.csv": b"1\n", "orders/two.csv": b"2\n",
            }  # fmt: skip
        assert ".zip" in headers["content-disposition"]
    finally:
        (place / "one.csv").unlink()
        (place / "two.csv").unlink()
        place.rmdir()
        place.write_text(text)
    nothing = at_night.script.get(f"/v1/runs/{at_night.run_of(at_night.days[1])}/output")
    assert (nothing.status, "published no files" in nothing.json["detail"]) == (409, True)


def test_an_output_that_is_not_below_the_root_is_not_sent(at_night: Night) -> None:
    complete = at_night.run_of(at_night.days[0])
    elsewhere = at_night.project.write("elsewhere.csv", "a secret\n")
    wanted = f"WHERE version = {complete}"
    before = at_night.project.sql(f"SELECT location FROM data_manifest {wanted}")[0][0]
    at_night.project.sql(f"UPDATE data_manifest SET location = '{elsewhere}' {wanted}")
    try:
        answer = at_night.script.get(f"/v1/runs/{complete}/output")
        assert (answer.status, "not below the environment's root" in answer.json["detail"]) == (409, True)
    finally:
        at_night.project.sql(f"UPDATE data_manifest SET location = '{before}' {wanted}")
    place = at_night.project.folder / "data" / "orders" / f"{at_night.days[0]}.csv"
    place.rename(place.with_suffix(".away"))
    place.mkdir()
    (place / "link.csv").symlink_to(elsewhere)
    try:
        answer = at_night.script.get(f"/v1/runs/{complete}/output")
        assert (answer.status, "not below the environment's root" in answer.json["detail"]) == (409, True)
    finally:
        (place / "link.csv").unlink()
        place.rmdir()
        place.with_suffix(".away").rename(place)


def test_why_a_dataid_waits_or_failed_is_told_with_the_next_step(at_night: Night) -> None:
    _, failed, missing = at_night.days
    told = at_night.script.get(f"/v1/jobs/shop/load/{failed}").json
    assert (told["status"], told["runs"][0]["exit_code"]) == ("FAILED", 3)
    assert f"dataflow resubmit load {failed}" in told["fix"]
    assert "the vendor sent no header" in at_night.viewer.get(f"/jobs/shop/load/{failed}").words
    waits = at_night.script.get(f"/v1/jobs/shop/sum/{failed}")
    assert waits.status in (200, 404)
    assert at_night.script.get(f"/v1/jobs/shop/load/{missing}").status in (200, 404)


@pytest.mark.parametrize("path", ["/runs/999999", "/runs/999999/log", "/runs/999999/output", "/jobs/shop/no/1",
                                  "/jobs/shop/load/2001-01-01", "/requests/999999"])  # fmt: skip
def test_what_is_not_there_is_told_as_that(at_night: Night, path: str) -> None:
    assert at_night.viewer.get(path).status == 404
    if not path.endswith("/log"):
        assert at_night.script.get(f"/v1{path}").status == 404


@pytest.mark.parametrize("path", ["/runs", "/runs/1", "/runs/1/log", "/runs/1/output", "/jobs/shop/load/1"])
def test_nobody_sees_runs(at_night: Night, path: str) -> None:
    assert at_night.nobody.get(path).status == 303
    assert at_night.nobody.get(f"/v1{path}").status == 401


def test_a_log_grows_while_the_run_goes_on(at_night: Night) -> None:
    project = at_night.project
    project.script("jobs/split.sh", 'echo begun; touch begun; while [ ! -e go ]; do sleep 0.05; done; echo "größer"')
    with Worker(project, "--jobs", "split", "--slots", "1"):
        wait_for((project.folder / "begun").exists, "it runs")
        run = at_night.run_of("1", "split")
        wait_for(
            lambda: at_night.script.get(f"/v1/runs/{run}/log").json["text"] == "begun\n", "its first line is there"
        )
        first = at_night.script.get(f"/v1/runs/{run}/log").json
        assert (first["status"], first["next"]) == ("RUNNING", 6)
        told = at_night.script.get(f"/v1/runs/{run}").json
        assert (told["can_abort"], told["expired"], told["lease_until"] is not None) == (True, False, True)
        assert "Abort" in at_night.operator.get(f"/runs/{run}").words
        (project.folder / "go").touch()
        wait_for(lambda: at_night.status_of("split", "1") != "RUNNING", "it ends")
        rest = at_night.script.get(f"/v1/runs/{run}/log?from=6").json
    assert rest["text"] == "größer\n"
