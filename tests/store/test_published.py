"""What is published, as consumers see it, and taking it back, on both stores."""

import threading
from contextlib import closing

import pytest
from world import World, job

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.runs.run import Ending
from opendataflow.errors import Refused, UsageError
from opendataflow.store.published import (
    dataids_read,
    find_chunk,
    find_dataset,
    find_latest,
    find_producer,
    find_run_end,
    list_chunks,
    list_versions,
    live_runs,
    take_back,
)

DAY, NEXT = "2025-11-01", "2025-11-02"


def two_jobs(world: World) -> Dataset:
    """feed → make → mid → use → out."""
    world.apply(job("make", ["feed"], ["mid"]), job("use", ["mid"], ["out"]))
    world.ready("feed", DAY, NEXT)
    return find_dataset(world.store, "mid", project="p")[0]


def test_a_published_chunk_is_known_with_its_run_rows_and_place(world: World) -> None:
    mid = two_jobs(world)
    claim = world.must_claim("make", DAY)
    world.finish(claim)
    (chunk,) = list_chunks(world.store, mid)
    assert chunk[:3] == (DAY, ChunkStatus.READY, f"/data/{claim.runid}")
    assert (chunk.rows, chunk.run, chunk.version) == (7, claim.runid, claim.runid)
    assert chunk.published_at.endswith("Z")
    assert find_chunk(world.store, mid, DAY) == chunk
    assert find_chunk(world.store, mid, NEXT) is None


def test_what_was_declared_from_outside_has_no_run_and_is_where_the_path_says(world: World) -> None:
    two_jobs(world)
    feed = find_dataset(world.store, "feed", project="p")[0]._replace(location="feed/{dataid}.csv")
    chunk = find_chunk(world.store, feed, DAY)
    assert chunk is not None
    assert (chunk.run, chunk.rows) == (None, None)
    assert chunk.place(feed, root="/r") == f"/r/feed/{DAY}.csv"


def test_chunks_are_in_natural_order_and_can_be_asked_by_status(world: World) -> None:
    world.apply(job("make", ["feed"], ["mid"]))
    world.ready("feed", "10", "9", "100")
    mid = find_dataset(world.store, "mid", project="p")[0]
    world.complete("make", "10", "9")
    world.finish(world.must_claim("make", "100"), Ending.FAILED)
    assert [(one.dataid, one.status.value) for one in list_chunks(world.store, mid)] == [
        ("9", "READY"), ("10", "READY"), ("100", "FAILED"),
    ]  # fmt: skip
    assert [one.dataid for one in list_chunks(world.store, mid, status=ChunkStatus.FAILED)] == ["100"]


def test_the_latest_is_the_highest_number_or_the_last_day_that_is_ready(world: World) -> None:
    world.apply(job("make", ["feed"], ["mid"]), also=["days", "none"])
    world.ready("feed", "9", "10")
    world.ready("days", DAY, NEXT)
    world.sql(f"UPDATE datastatus SET status = 'HOLD' WHERE datasetid = 'days' AND dataid = '{NEXT}'")
    found = {}
    for name in ("feed", "days", "none"):
        latest = find_latest(world.store, find_dataset(world.store, name, project="p")[0])
        found[name] = latest.dataid if latest else None
    assert found == {"feed": "10", "days": DAY, "none": None}


def test_a_higher_number_that_is_not_ready_is_not_the_latest(world: World) -> None:
    world.apply(job("make", ["feed"], ["mid"]))
    world.ready("feed", "9", "10", "11")
    world.sql("UPDATE datastatus SET status = 'HOLD' WHERE datasetid = 'feed' AND dataid = '11'")
    latest = find_latest(world.store, find_dataset(world.store, "feed", project="p")[0])
    assert latest is not None
    assert (latest.dataid, latest.status) == ("10", ChunkStatus.READY)


def test_a_list_shows_a_place_where_there_is_one(world: World) -> None:
    mid = two_jobs(world)._replace(location="mid/{dataid}.csv", partitions='{"daily": "2025-11-01.."}')
    claim = world.must_claim("make", DAY)
    world.finish(claim)
    published = find_chunk(world.store, mid, DAY)
    assert published is not None
    assert published.find_place(mid, root="/r") == f"/data/{claim.runid}", "as it was published"
    declared = published._replace(location=None)
    assert declared.find_place(mid, root="/r") == f"/r/mid/{DAY}.csv", "as the template says"
    by_hand = declared._replace(dataid="../x")
    assert by_hand.find_place(mid, root="/r") is None, "a dataid that is none of its dataset's"
    with pytest.raises(UsageError):
        by_hand.place(mid, root="/r")
    assert by_hand._replace(location="/elsewhere").find_place(mid, root="/r") == "/elsewhere"


def test_the_run_of_a_chunk_is_known_by_its_folder_when_its_record_was_cleaned_away(world: World) -> None:
    mid = two_jobs(world)
    rows = {
        (7, f"/d/mid/dataid={DAY}/_runs/7"): 7,
        (7, f"/d/mid/dataid={DAY}/_runs/8"): None,
        (None, f"/d/mid/dataid={DAY}/_runs/None"): None,
        (7, None): None,
    }
    world.sql(f"INSERT INTO datastatus (project, datasetid, dataid, status) VALUES ('p', 'mid', '{DAY}', 'READY')")
    for (version, location), run in rows.items():
        place = "NULL" if location is None else f"'{location}'"
        world.sql(
            f"UPDATE datastatus SET version = {'NULL' if version is None else version}, location = {place} "
            f"WHERE datasetid = 'mid' AND dataid = '{DAY}'"
        )
        chunk = find_chunk(world.store, mid, DAY)
        assert chunk is not None
        assert (chunk.run, chunk.version, chunk.location) == (run, version, location)


def test_the_datasets_that_jobs_make_are_known_with_the_kind_of_their_job(world: World) -> None:
    pipe = job("use", ["mid"], ["out"])._replace(kind="pipeline")
    world.apply(job("make", ["feed"], ["mid"]), pipe)
    world.apply(job("make", ["other"], ["theirs"], project="q"), project="q")
    made = world.store.read("made_datasets", {"project": "p"}, file="published")
    assert [tuple(row) for row in made] == [("p", "mid", "script"), ("p", "out", "pipeline")]


def test_another_projects_dataset_is_named_with_its_project(world: World) -> None:
    world.apply(job("make", ["feed"], ["mid"]))
    world.apply(job("sell", ["goods"], ["sold"], project="shop"), project="shop")
    assert find_dataset(world.store, "shop.sold", project="p")[0][:2] == ("shop", "sold")
    assert find_dataset(world.store, "sold", project=None) == find_dataset(world.store, "sold", project="shop")
    assert find_dataset(world.store, "shop.sold", project="p")[1] == "/data/shop"
    with pytest.raises(UsageError, match=r"dataset 'sold' is not registered; did you mean 'shop.sold'\?"):
        find_dataset(world.store, "sold", project="p")
    with pytest.raises(UsageError, match=r"did you mean 'mid'\?"):
        find_dataset(world.store, "mit", project="p")
    with pytest.raises(UsageError, match="see `dataflow dataset list`"):
        find_dataset(world.store, "something", project="p")


def test_a_name_that_several_projects_have_must_say_whose(world: World) -> None:
    world.apply(job("make", ["feed"], ["mid"]))
    world.apply(job("make", ["feed"], ["mid"], project="shop"), project="shop")
    with pytest.raises(UsageError, match=r"say which: p\.mid, shop\.mid"):
        find_dataset(world.store, "mid", project=None)


def test_the_producer_is_the_job_that_writes_it(world: World) -> None:
    mid = two_jobs(world)
    producer = find_producer(world.store, mid)
    assert producer is not None
    assert producer.jobid == "make"
    assert find_producer(world.store, find_dataset(world.store, "feed", project="p")[0]) is None


def test_a_version_is_superseded_when_the_next_one_is_published(world: World) -> None:
    mid = two_jobs(world)
    world.complete("make", DAY, NEXT)
    world.sql(f"UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'make' AND dataid = '{DAY}'")
    first, other = (one.version for one in list_versions(world.store, mid))
    world.complete("make", DAY)
    chunk = find_chunk(world.store, mid, DAY)
    assert chunk is not None
    assert list_versions(world.store, mid) == [
        (DAY, first, chunk.published_at), (DAY, chunk.version, None), (NEXT, other, None),
    ]  # fmt: skip


def test_live_runs_and_readers_are_seen_while_they_live(world: World) -> None:
    mid = two_jobs(world)
    make = world.store.get_job("make", project="p")
    world.complete("make", DAY)
    writing, reading = world.must_claim("make", NEXT), world.must_claim("use", DAY)
    assert live_runs(world.store, make) == {writing.runid}
    assert dataids_read(world.store, mid) == {DAY}
    world.finish(writing)
    world.finish(reading)
    assert (live_runs(world.store, make), dataids_read(world.store, mid)) == (set(), set())
    end = find_run_end(world.store, writing.runid)
    assert end is not None
    assert end[:4] == ("p", "make", NEXT, "COMPLETE")
    assert find_run_end(world.store, 99_999) is None


# Taking back ----------------------------------------------------------------------------------------------------------
def test_a_chunk_that_is_taken_back_closes_and_is_made_again(world: World) -> None:
    mid = two_jobs(world)
    make = world.store.get_job("make", project="p")
    world.complete("make", DAY, NEXT)
    assert world.next("use") == DAY
    take_back(world.store, mid, make, [DAY, NEXT])
    for dataid in (DAY, NEXT):
        chunk = find_chunk(world.store, mid, dataid)
        assert chunk is not None
        assert (chunk.status, chunk.location) == (ChunkStatus.RESUBMIT, None)
        assert world.status("make", dataid) == "RESUBMIT"
    assert world.next("use") is None
    assert world.sql("SELECT DISTINCT actor FROM history WHERE new_status = 'RESUBMIT'") == [("tests output clear",)]
    world.complete("make", DAY)
    assert world.next("use") == DAY
    assert find_chunk(world.store, mid, DAY).location is not None  # type: ignore[union-attr]


def test_what_is_being_read_or_made_is_not_taken_back_and_nothing_else_either(world: World) -> None:
    mid = two_jobs(world)
    make = world.store.get_job("make", project="p")
    world.complete("make", DAY)
    reading, making = world.must_claim("use", DAY), world.must_claim("make", NEXT)
    before = world.dump()
    with pytest.raises(Refused, match=rf"LOCKED: mid/{DAY} is being read by use \(run {reading.runid}\)") as refused:
        take_back(world.store, mid, make, [DAY])
    assert refused.value.exit_code == 14
    assert world.dump() == before
    world.finish(reading)
    before = world.dump()
    with pytest.raises(Refused, match=f"LOCKED: make/{NEXT} is RUNNING by anna@host-1:1"):
        take_back(world.store, mid, make, [DAY, NEXT])
    assert world.dump() == before
    world.finish(making)


def test_a_chunk_in_the_making_is_not_taken_back_though_its_jobs_row_is_gone(world: World) -> None:
    mid = two_jobs(world)
    make = world.store.get_job("make", project="p")
    world.sql(
        "INSERT INTO datastatus (project, datasetid, dataid, status, jobid) "
        f"VALUES ('p', 'mid', '{DAY}', 'RUNNING', 'make')"
    )
    with pytest.raises(Refused, match=f"LOCKED: mid/{DAY} is being made"):
        take_back(world.store, mid, make, [DAY])
    assert world.chunk("mid", DAY) == "RUNNING"


def test_what_was_never_made_can_be_taken_back_without_harm(world: World) -> None:
    mid = two_jobs(world)
    make = world.store.get_job("make", project="p")
    take_back(world.store, mid, make, [DAY, "2030-01-01"])
    assert (world.status("make", DAY), world.chunk("mid", DAY)) == ("PENDING", None)
    assert world.chunk("mid", "2030-01-01") is None
    assert world.next("make") == DAY


def test_a_held_job_stays_held_and_its_chunk_closes(world: World) -> None:
    mid = two_jobs(world)
    make = world.store.get_job("make", project="p")
    world.complete("make", DAY)
    world.sql(f"UPDATE job_status SET status = 'HOLD' WHERE jobid = 'make' AND dataid = '{DAY}'")
    take_back(world.store, mid, make, [DAY])
    assert (world.status("make", DAY), world.chunk("mid", DAY)) == ("HOLD", "RESUBMIT")
    assert world.next("use") is None


def test_a_reader_and_a_clearer_at_the_same_moment_never_both_get_the_chunk(world: World) -> None:
    mid = two_jobs(world)
    ends: dict[str, list[bool]] = {"reads": [], "clears": []}
    rounds = [str(number) for number in range(1, 31)]
    world.ready("feed", *rounds)
    world.complete("make", *rounds)
    together = threading.Barrier(2)

    def read() -> None:
        with closing(world.open(actor="reader")) as store:
            for dataid in rounds:
                together.wait()
                ends["reads"].append(world.claim("use", dataid, store=store) is not None)
                together.wait()

    def clear() -> None:
        with closing(world.open(actor="clearer")) as store:
            make = store.get_job("make", project="p")
            for dataid in rounds:
                together.wait()
                try:
                    take_back(store, mid, make, [dataid])
                    ends["clears"].append(True)
                except Refused:
                    ends["clears"].append(False)
                together.wait()

    threads = [threading.Thread(target=one, daemon=True) for one in (read, clear)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(ends["reads"]) == len(ends["clears"]) == 30
    for dataid, read_it, cleared_it in zip(rounds, ends["reads"], ends["clears"], strict=True):
        assert not (read_it and cleared_it), dataid
        assert world.chunk("mid", dataid) == ("RESUBMIT" if cleared_it else "READY")
