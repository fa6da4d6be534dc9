"""Quiet cascades over both stores: only what came out different has its readers run again, through every map."""

import json

import pytest
from operating import CHAIN, keys, ran, told
from world import NOW, World, job, registration

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.runs.run import Ending, Result
from opendataflow.store import operations, registry
from opendataflow.store.operations import Key


def made(world: World, jobid: str, dataid: str, content: str | None, *, project: str = "p") -> int:
    """One run that publishes this content in all its outputs; its number."""
    claim = world.must_claim(jobid, dataid, project=project)
    mark = None if content is None else f"{claim.runid}/{content}"
    outputs = world.store.get_job(jobid, project=project).outputs
    manifests = tuple(
        (link.dataset.project, link.dataset.datasetid, Manifest(f"/data/{claim.runid}", fingerprint=mark))
        for link in outputs
    )
    world.store.finish(claim, Result(Ending.COMPLETE, 0, manifests=manifests))
    return claim.runid


def made_chain(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1")
    for jobid in ("load", "report", "send"):
        made(world, jobid, "1", f"{jobid} A")


def again(world: World, jobid: str, dataid: str) -> list[tuple[str, str, str, str]]:
    return told(operations.resubmit(world.store, keys(jobid, dataid), cascade=True))


def statuses(world: World, dataid: str = "1") -> list[str]:
    return [world.status(jobid, dataid) for jobid in ("load", "report", "send")]


def marks(world: World) -> list[tuple[str, str]]:
    return world.sql("SELECT datasetid, dataid FROM datastatus WHERE readers_follow = 1 ORDER BY 1, 2")  # type: ignore[return-value]


def test_what_comes_out_the_same_reruns_nobody_and_the_history_says_so(world: World) -> None:
    made_chain(world)
    assert again(world, "load", "1") == [("load", "1", "COMPLETE", "RESUBMIT")]
    assert statuses(world) == ["RESUBMIT", "COMPLETE", "COMPLETE"]
    assert world.chunk("pages", "1") == "READY", "what was made of it before is still there to be read"
    run = made(world, "load", "1", "load A")
    assert statuses(world) == ["COMPLETE", "COMPLETE", "COMPLETE"]
    assert marks(world) == []
    (said,) = [
        one for one in registry.history_of(world.store, "p", "chunk", "totals", "1") if "cascade" in one["actor"]
    ]
    assert (said["old_status"], said["new_status"], said["runid"]) == ("READY", "READY", run)
    assert said["actor"] == "tests: cascade: 1 readers read the same and stay, 0 follow"
    assert registry.check(world.store, repair=False) == []


def test_what_comes_out_different_is_followed_step_by_step(world: World) -> None:
    made_chain(world)
    again(world, "load", "1")
    made(world, "load", "1", "load B")
    assert statuses(world) == ["COMPLETE", "RESUBMIT", "COMPLETE"]
    assert [world.chunk(name, "1") for name in ("totals", "pages", "mails")] == ["READY", "RESUBMIT", "READY"]
    why = registry.history_of(world.store, "p", "job", "report", "1")[-1]
    assert (why["new_status"], why["actor"]) == ("RESUBMIT", "tests: cascade: totals/1 came out different")
    assert marks(world) == [("pages", "1")]
    made(world, "report", "1", "report A")
    assert statuses(world) == ["COMPLETE", "COMPLETE", "COMPLETE"], "the report did not change, so nothing is sent"
    again(world, "load", "1")
    made(world, "load", "1", "load C")
    made(world, "report", "1", "report B")
    assert statuses(world) == ["COMPLETE", "COMPLETE", "RESUBMIT"]
    made(world, "send", "1", "send B")
    assert (statuses(world), marks(world)) == (["COMPLETE"] * 3, [])
    assert registry.check(world.store, repair=False) == []


def test_a_plain_resubmit_reruns_nobody_else(world: World) -> None:
    made_chain(world)
    operations.resubmit(world.store, keys("load", "1"))
    made(world, "load", "1", "load B")
    assert statuses(world) == ["COMPLETE", "COMPLETE", "COMPLETE"]


def test_it_is_compared_with_what_the_reader_read_not_with_the_version_before(world: World) -> None:
    made_chain(world)
    operations.resubmit(world.store, keys("load", "1"))
    made(world, "load", "1", "load B")
    again(world, "load", "1")
    made(world, "load", "1", "load B")
    assert world.status("report", "1") == "RESUBMIT", "it read A"


@pytest.mark.parametrize("content", [None, "-"])
def test_content_that_is_not_known_counts_as_different(world: World, content: str | None) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1")
    made(world, "load", "1", content)
    made(world, "report", "1", "x")
    again(world, "load", "1")
    made(world, "load", "1", content)
    assert world.status("report", "1") == "RESUBMIT"


def test_what_a_reader_read_is_known_after_its_record_was_cleaned_away(world: World) -> None:
    made_chain(world)
    made_of = {"project": "p", "jobid": None, "before": None}
    assert sum(done.runs for done in operations.clean_history(world.store, **made_of)) == 3
    again(world, "load", "1")
    made(world, "load", "1", "load A")
    assert world.status("report", "1") == "COMPLETE"
    again(world, "load", "1")
    made(world, "load", "1", "load B")
    assert world.status("report", "1") == "RESUBMIT"


def test_the_mark_outlives_failures_and_runs_that_are_to_be_done_again(world: World) -> None:
    made_chain(world)
    again(world, "load", "1")
    ran(world, "load", "1", Ending.FAILED)
    operations.resubmit(world.store, keys("load", "1"))
    claim = world.must_claim("load", "1")
    operations.resubmit(world.store, keys("load", "1"))
    world.finish(claim)
    assert statuses(world) == ["RESUBMIT", "COMPLETE", "COMPLETE"], "that version is not for readers"
    made(world, "load", "1", "load B")
    assert world.status("report", "1") == "RESUBMIT"


def test_a_reader_that_runs_while_its_input_is_asked_for_anew_is_compared_by_what_it_reads(world: World) -> None:
    made_chain(world)
    operations.resubmit(world.store, keys("report", "1"))
    reader = world.must_claim("report", "1")
    again(world, "load", "1")
    assert world.claim("load", "1") is None, "it is being read"
    world.finish(reader)
    made(world, "load", "1", "load B")
    assert world.status("report", "1") == "RESUBMIT"


def test_what_waits_to_run_anyway_hands_the_cascade_on(world: World) -> None:
    made_chain(world)
    operations.resubmit(world.store, keys("report", "1"))
    again(world, "load", "1")
    made(world, "load", "1", "load B")
    assert marks(world) == [("pages", "1")]
    made(world, "report", "1", "report B")
    assert world.status("send", "1") == "RESUBMIT"


def test_a_shared_input_is_followed_by_those_who_read_something_else(world: World) -> None:
    world.apply(job("rate", ["feed"], ["rates"]), job("price", ["orders", "rates:full"], ["prices"]))
    world.ready("feed", "full")
    made(world, "rate", "full", "A")
    world.ready("orders", "1", "2", "3")
    made(world, "price", "1", "x")
    operations.resubmit(world.store, keys("rate", "full"))
    made(world, "rate", "full", "B")
    made(world, "price", "2", "x")
    operations.resubmit(world.store, keys("rate", "full"), cascade=True)
    made(world, "rate", "full", "B")
    assert [world.status("price", dataid) for dataid in ("1", "2", "3")] == ["RESUBMIT", "COMPLETE", "PENDING"]
    assert world.next("price") == "1"


def test_windows_offsets_and_other_projects_are_followed(world: World) -> None:
    days = [f"2025-11-{day:02d}" for day in range(1, 6)]
    scheme = {"daily": f"{days[0]}..{days[-1]}"}
    wanted = registration(
        job("load", [], ["totals"], partitions=scheme),
        job("week", ["totals:window:3"], ["means"], partitions=scheme),
        job("delta", ["means:offset:-1"], ["deltas"], partitions=scheme),
    )
    datasets = tuple(one._replace(partitions=json.dumps(scheme)) for one in wanted.datasets)
    registry.apply(world.store, wanted._replace(datasets=datasets), now=NOW)
    world.apply(job("theirs", ["p.totals"], ["copies"], project="q"), project="q")
    for jobid in ("week", "delta"):
        world.store.map_new(world.store.get_job(jobid))
    for day in days:
        made(world, "load", day, "A")
        made(world, "theirs", day, "A", project="q")
    weeks = [day for day in days if world.row("week", day)["waiting"] <= 0]
    for day in weeks:
        made(world, "week", day, "A")
    deltas = [day for day in days if world.row("delta", day)["waiting"] <= 0]
    for day in deltas:
        made(world, "delta", day, "A")
    again(world, "load", days[2])
    made(world, "load", days[2], "B")

    def to_do(jobid: str) -> list[str]:
        rows = world.sql(f"SELECT dataid FROM job_status WHERE jobid = '{jobid}' AND status = 'RESUBMIT' ORDER BY 1")
        return [row[0] for row in rows]

    assert to_do("week") == [day for day in days[2:5] if day in weeks] != []
    assert to_do("theirs") == [days[2]]
    assert to_do("delta") == []
    made(world, "week", days[2], "A")
    assert to_do("delta") == []
    made(world, "week", days[3], "B")
    assert to_do("delta") == [days[4]]


def test_a_dry_run_tells_apart_what_runs_and_what_may_follow(world: World) -> None:
    made_chain(world)
    before = world.dump()
    would = operations.resubmit(world.store, keys("load", "1"), cascade=True, dry_run=True)
    assert [(one["jobid"], one["if_changed"]) for one in would] == [("load", False), ("report", True), ("send", True)]
    assert world.dump() == before


def test_the_mark_can_be_set_in_sql(world: World) -> None:
    made_chain(world)
    world.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'load' AND dataid = '1'")
    world.sql("UPDATE datastatus SET readers_follow = 1 WHERE datasetid = 'totals' AND locktype = 'OUT'")
    made(world, "load", "1", "load B")
    assert world.status("report", "1") == "RESUBMIT"
    assert world.sql("SELECT project, jobid, dataid, content_read FROM chunk_reader WHERE datasetid = 'totals'") == [
        ("p", "report", "1", "load A")
    ]


def test_an_unknown_dataid_leaves_no_mark(world: World) -> None:
    made_chain(world)
    with pytest.raises(operations.UsageError, match="has no dataid"):
        operations.resubmit(world.store, [Key("p", "load", "1"), Key("p", "load", "99")], cascade=True)
    assert (statuses(world)[0], marks(world)) == ("COMPLETE", [])
