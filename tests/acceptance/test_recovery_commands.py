"""An outage as a person meets it, from gaps and what-if to a quiet cascade; lineage; and cleaning up."""

import datetime
import os
import time
import xml.etree.ElementTree as ET

import pytest

from opendataflow.cli.runs.show import window
from opendataflow.errors import UsageError
from support.projects import Project

PROJECT = """
name: Shop
datasets:
  feed: {path: "feed/{dataid}.txt", partitions: {daily: 2025-11-01..2025-11-04}}
  rates: {path: rates.txt, partitions: none}
  totals: {path: "totals/{dataid}.txt"}
  means: {path: "means/{dataid}.txt"}
  report: {path: "report/{dataid}.txt"}
jobs:
  load: {script: load.sh, inputs: [feed, rates], outputs: [totals]}
  mean: {script: mean.sh, inputs: [{totals: {map: {window: 2}}}], outputs: [means]}
  show: {script: show.sh, inputs: [means], outputs: [report]}
"""
DAYS = [f"2025-11-0{day}" for day in range(1, 5)]


@pytest.fixture
def shop(project: Project) -> Project:
    """Over each kind of store."""
    return opened_shop(project)


@pytest.fixture
def small_shop(sqlite_project: Project) -> Project:
    return opened_shop(sqlite_project)


def opened_shop(project: Project) -> Project:
    project.script("load.sh", 'sed s/^/total:/ "$feed_LOCATION" > "$totals_LOCATION"; echo load $dataid >> ran.txt')
    project.script("mean.sh", 'cat $totals_LOCATION | wc -c > "$means_LOCATION"; echo mean $dataid >> ran.txt')
    project.script("show.sh", 'cp "$means_LOCATION" "$report_LOCATION"; echo show $dataid >> ran.txt')
    project.apply(PROJECT)
    project.write("rates.txt", "1")
    for day in DAYS[:3]:
        project.write(f"feed/{day}.txt", day)
    assert project.dataflow("ready", "rates", "full").returncode == 0
    assert project.dataflow("ready", "feed", *DAYS[:3]).returncode == 0
    return project


def drain(project: Project) -> list[str]:
    """Run all that can; what ran, in order."""
    journal = project.folder / "ran.txt"
    journal.unlink(missing_ok=True)
    project.dataflow("tick")
    return journal.read_text().splitlines() if journal.exists() else []


def now_window() -> str:
    """From some minutes ago until now, as full times."""
    ends = datetime.datetime.now(datetime.UTC)
    starts = ends - datetime.timedelta(minutes=30)
    return f"{starts:%Y-%m-%dT%H:%M:%S}..{ends:%Y-%m-%dT%H:%M:%S.%f}"


def test_an_outage_heals_quietly(shop: Project) -> None:
    told = shop.json("plan", "load")
    assert (told["ready"], told["median_seconds"]) == (3, None)
    assert drain(shop) == [f"{job} {day}" for job in ("load", "mean", "show") for day in DAYS[:3]]
    gaps = shop.json("gaps", "feed")
    assert [(one["first"], one["last"], one["reason"]) for one in gaps] == [(DAYS[3], DAYS[3], "it has not arrived")]
    assert "1 missing in 1 gap\n" in shop.dataflow("gaps", "feed").stderr
    # Something was wrong for half an hour. What would doing it all again mean?
    outage = ("--outage", now_window(), "--cascade")
    would = shop.json("what-if", "resubmit", *outage)
    assert [one["step"] for one in would] == sorted(one["step"] for one in would)
    assert {(one["step"], one["jobid"]) for one in would} == {(1, "load"), (2, "mean"), (3, "show")}
    assert {one["why"] for one in would} == {"ran"}
    assert set(shop.statuses("load").values()) == {"COMPLETE", "PENDING"}, "nothing was changed"
    # Only the first job is to be done again; the rest follows where something comes out different.
    would = shop.json("what-if", "resubmit", "load", DAYS[1], "--cascade")
    assert [(one["jobid"], one["dataid"], one["if_changed"]) for one in would] == [
        ("load", DAYS[1], False), ("mean", DAYS[1], True), ("mean", DAYS[2], True), ("show", DAYS[1], True),
        ("show", DAYS[2], True),
    ]  # fmt: skip
    done = shop.dataflow("resubmit", "load", DAYS[0], DAYS[1], "--cascade")
    assert "2 RESUBMIT" in done.stderr
    shop.write(f"feed/{DAYS[0]}.txt", f"{DAYS[0]}, changed")
    assert shop.dataflow("ready", "feed", DAYS[0]).returncode == 0
    assert drain(shop) == [f"{job} {day}" for job in ("load", "mean", "show") for day in DAYS[:2]]
    # Again, and nothing is different: nobody else runs.
    assert len(shop.json("resubmit", "load", *DAYS[:3], "--cascade")) == 3
    assert drain(shop) == [f"load {day}" for day in DAYS[:3]]
    assert len(shop.json("resubmit", "load", DAYS[2], "--all-downstream")) == 3
    assert sorted(shop.statuses("show").values()) == ["COMPLETE", "COMPLETE", "PENDING", "RESUBMIT"]
    plan = shop.dataflow("plan", "load", "--slots", "4").stdout
    assert f"load: 1 is ready to run, first {DAYS[2]}" in plan
    assert "0.0% failed" in plan


def test_the_whole_outage_is_resubmitted_across_jobs(small_shop: Project) -> None:
    drain(small_shop)
    dry = small_shop.dataflow("resubmit", "--outage", now_window(), "--dry-run")
    assert f"load/{DAYS[0]}: COMPLETE → RESUBMIT (ran)" in dry.stdout
    done = small_shop.json("resubmit", "--outage", now_window())
    assert sorted((one["jobid"], one["dataid"]) for one in done) == sorted(
        (job, day) for job in ("load", "mean", "show") for day in DAYS[:3]
    )
    assert len(drain(small_shop)) == 9
    assert small_shop.json("resubmit", "--outage", "2025-01-01T02:10..2025-01-01T03:40") == []
    said = small_shop.dataflow("resubmit", "--outage", "2025-01-01T02:10..03:40").stderr
    assert "the outage: 2025-01-01T02:10:00.000Z to 2025-01-01T03:40:00.000Z" in said
    assert len(small_shop.json("resubmit", "--outage", "10m..now", "--dry-run")) == 9
    for text, word in (("2999-01-01..2999-01-02", "has not begun yet"), ("now", "is not a window like 02:10..03:40")):
        refused = small_shop.dataflow("resubmit", "--outage", text)
        assert (refused.returncode, word in refused.stderr) == (2, True), refused.stderr
    assert "job 'nope' is not registered" in small_shop.dataflow("resubmit", "nope").stderr


def test_lineage_and_impact_are_told_and_drawn(small_shop: Project) -> None:
    drain(small_shop)
    text = small_shop.dataflow("lineage", "report", DAYS[1]).stdout
    assert text.splitlines()[0].startswith(f"report/{DAYS[1]}  READY, version ")
    for name in (f"job show/{DAYS[1]}", f"totals/{DAYS[0]}", f"feed/{DAYS[1]}", "rates/full"):
        assert name in text, text
    told = small_shop.json("impact", "totals", DAYS[1])
    assert {node["name"] for node in told["nodes"] if node["kind"] == "job"} == {
        f"{job}/{day}" for job in ("mean", "show") for day in DAYS[1:3]
    }
    drawn = small_shop.dataflow("impact", "totals", DAYS[1], "--svg", "impact.svg")
    assert drawn.returncode == 0, drawn.stderr
    boxes = ET.parse(small_shop.folder / "impact.svg").getroot().findall(".//{http://www.w3.org/2000/svg}title")  # noqa: S314  we wrote it
    assert len(boxes) == len(told["nodes"])
    assert '"job shop.load" -> "dataset shop.totals"' in small_shop.dataflow("lineage", "totals", "--dot").stdout
    assert "job mean  window:2" in small_shop.dataflow("lineage", "totals").stdout
    assert small_shop.dataflow("impact", "totals", "1999-01-01").returncode == 2


def test_cleaning_up_removes_old_logs_and_records_and_nothing_that_is_needed(small_shop: Project) -> None:
    small_shop.script("show.sh", "echo no; exit 3")
    small_shop.script("load.sh", 'cp "$feed_LOCATION" "$totals_LOCATION"; echo done')
    drain(small_shop)
    logs = small_shop.folder / ".dataflow/logs"
    kept, gone = sorted(logs.glob("show/*.log")), sorted(logs.glob("load/*.log"))
    assert (len(kept), len(gone)) == (3, 3)
    for path in (*kept, *gone):
        os.utime(path, (time.time() - 200 * 86_400,) * 2)
    assert small_shop.dataflow("clean").returncode == 2, "nobody is there to ask"
    would = small_shop.json("clean", "--dry-run")
    assert ([one["path"] for one in would["logs"]], would["runs"]) == ([str(path) for path in gone], 0)
    assert all(path.exists() for path in gone)
    assert "removed 0 superseded versions and 3 logs" in small_shop.dataflow("clean", "--yes").stderr
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in kept), "they say why something is FAILED"
    before = small_shop.sql("SELECT jobid, dataid, status FROM job_status ORDER BY 1, 2")
    told = small_shop.json("clean", "--older-than", "0s", "--yes")
    assert (told["runs"], told["changes"] > 0) == (6, True)
    assert small_shop.sql("SELECT jobid, dataid, status FROM job_status ORDER BY 1, 2") == before
    assert len(small_shop.json("runs")) == 3
    assert small_shop.dataflow("db", "check").returncode == 0


def test_an_outage_is_the_latest_window_that_has_begun() -> None:
    now = datetime.datetime.now(datetime.UTC)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    minute = datetime.timedelta(minutes=1)

    def told(text: str) -> tuple[datetime.datetime, ...]:
        return tuple(datetime.datetime.fromtimestamp(moment, datetime.UTC) for moment in window(text))

    earlier, later = (now - 2 * minute).replace(second=0, microsecond=0), (now + 5 * minute)
    if earlier.date() == later.date() == now.date():  # not around midnight
        assert told(f"{earlier:%H:%M}..{earlier:%H:%M}")[1] == earlier
        start, end = told(f"00:00..{later:%H:%M}")
        assert (start, end.date()) == (today, now.date()), "who rounds its end up means today's"
        assert told(f"{later:%H:%M}..23:59")[0].date() == (now - datetime.timedelta(days=1)).date()
        assert told(f"{earlier:%H:%M}..now")[0] == told(f"{earlier:%H:%M}..")[0] == earlier
    start, end = told("23:50..00:20")
    assert end - start == 30 * minute
    assert start <= now
    assert told("2025-11-12T02:10..03:40") == told("2025-11-12T02:10Z..2025-11-12T03:40Z")
    assert told("2025-11-11..2025-11-12")[1] - told("2025-11-11..2025-11-12")[0] > datetime.timedelta(days=1.99)
    for wrong in ("02:10", "..", "2999-01-01..", "25:10..26:00", "2025-11-12..2025-11-11", "x..y"):
        with pytest.raises(UsageError):
            window(wrong)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["resubmit", "--outage", "02:10"], "is not a window like 02:10..03:40"),
        (["resubmit", "load", "1", "--outage", "02:10..03:40"], "not both"),
        (["resubmit", "load", "1", "--cascade", "--all-downstream"], "not both"),
        (["what-if", "resubmit"], "which dataids?"),
        (["gaps", "nothing"], "'nothing' is not registered as a job or a dataset; jobs are load"),
        (["lineage", "total"], "did you mean 'totals'?"),
        (["plan", "nobody"], "is not registered"),
        (["clean", "--older-than", "2999-01-01"], "a time that has passed"),
        (["lineage", "totals", "--svg", "no/such/folder.svg"], "cannot be written"),
    ],
)
def test_bad_input_exits_2_and_says_what_to_do(sqlite_project: Project, argv: list[str], told: str) -> None:
    sqlite_project.apply(PROJECT)
    done = sqlite_project.dataflow(*argv)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr
