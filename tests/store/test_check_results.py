"""What the checks of a chunk found is kept, one set a chunk, over both stores."""

import pytest
from operating import CHAIN
from world import World

from opendataflow.domain.checks.check import QUARANTINE, WARN, Finding
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.runs.run import Ending
from opendataflow.store.reports.check_results import (
    find_findings,
    has_chunk,
    known_dataids,
    latest_trouble,
    record_findings,
)

TOTALS = Dataset("p", "totals")
ALL = (
    Finding("rows min 1", True, False, "3 rows"),
    Finding("not_null a", False, False, "a is null in 1 of 3 rows"),
    Finding("values b", False, False, "b is not one of x in 1 of 3 rows", WARN),
    Finding("pattern c", False, False, "c does not match x in 1 of 3 rows", QUARANTINE),
    Finding("expression a > 1", False, True, "needs Spark"),
)


def results(world: World, dataid: str, dataset: Dataset = TOTALS) -> list[tuple[int, str, str]]:
    return [(one["position"], one["check"], one["result"]) for one in find_findings(world.store, dataset, dataid)]


def test_every_result_is_kept_in_order_with_its_words(world: World) -> None:
    assert record_findings(world.store, TOTALS, "1", None, ALL)
    assert results(world, "1") == [
        (1, "rows min 1", "passed"),
        (2, "not_null a", "failed"),
        (3, "values b", "warned"),
        (4, "pattern c", "quarantined"),
        (5, "expression a > 1", "skipped"),
    ]
    second = find_findings(world.store, TOTALS, "1")[1]
    assert (second["detail"], second["runid"]) == ("a is null in 1 of 3 rows", None)
    assert second["checked_at"].endswith("Z")


def test_a_second_look_replaces_the_first_and_touches_no_other_chunk(world: World) -> None:
    other = Dataset("q", "totals")
    for dataset, dataid in ((TOTALS, "1"), (TOTALS, "2"), (other, "1")):
        record_findings(world.store, dataset, dataid, None, ALL)
    record_findings(world.store, TOTALS, "1", None, ALL[:1])
    assert len(results(world, "1")) == 1
    assert len(results(world, "2")) == len(results(world, "1", other)) == 5
    record_findings(world.store, TOTALS, "1", None, ())
    assert results(world, "1") == []


def test_words_that_a_database_cannot_hold_are_kept_readable(world: World) -> None:
    record_findings(world.store, TOTALS, "1", None, [Finding("not_null a\0b", False, False, "file \udcff\0")])
    (found,) = find_findings(world.store, TOTALS, "1")
    assert (found["check"], found["detail"]) == ("not_null a\\x00b", "file \\udcff\\x00")


def test_a_run_that_was_given_up_changes_nothing(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1")
    lost = world.must_claim("load", "1")
    world.pass_time(120)
    world.recover()
    assert not record_findings(world.store, TOTALS, "1", lost.runid, ALL)
    assert results(world, "1") == []
    later = world.must_claim("load", "1")
    assert record_findings(world.store, TOTALS, "1", later.runid, ALL[:2])
    assert not record_findings(world.store, TOTALS, "1", lost.runid, ALL)
    assert [one["runid"] for one in find_findings(world.store, TOTALS, "1")] == [later.runid] * 2


def test_an_earlier_run_does_not_replace_a_later_ones(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1")
    first = world.must_claim("load", "1")
    world.finish(first, Ending.FAILED)
    assert record_findings(world.store, TOTALS, "1", first.runid, ALL), "its end does not matter"
    world.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'load'")
    second = world.must_claim("load", "1")
    assert record_findings(world.store, TOTALS, "1", second.runid, ALL[:1])
    assert not record_findings(world.store, TOTALS, "1", first.runid, ALL)
    assert len(results(world, "1")) == 1


def test_what_fails_half_way_leaves_the_old_findings(world: World) -> None:
    record_findings(world.store, TOTALS, "1", None, ALL)
    bad = ALL[0]._replace(check=None)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        record_findings(world.store, TOTALS, "1", None, [ALL[0], bad])
    assert len(results(world, "1")) == 5


def test_the_latest_trouble_comes_first_and_only_trouble_comes(world: World) -> None:
    for number in range(1, 4):
        world.clock.now += 1
        record_findings(world.store, TOTALS, str(number), None, ALL)
        record_findings(world.store, Dataset("p", "fine"), str(number), None, ALL[:1])
        record_findings(world.store, Dataset("q", "totals"), str(number), None, ALL)
    told = latest_trouble(world.store, "p", limit=2)
    assert [(one["dataset"], one["dataid"], one["result"]) for one in told] == [
        ("totals", dataid, result) for dataid in ("3", "2") for result in ("failed", "warned", "quarantined")
    ]
    assert latest_trouble(world.store, "p", datasetid="fine") == []
    assert len(latest_trouble(world.store, "p", datasetid="totals", limit=20)) == 9


def test_what_is_known_of_a_dataset_is_what_has_a_row(world: World) -> None:
    world.apply(*CHAIN)
    world.ready("orders", "1", "2")
    orders = Dataset("p", "orders")
    assert has_chunk(world.store, orders, "1")
    assert not has_chunk(world.store, orders, "9")
    record_findings(world.store, orders, "3", None, ALL)
    assert known_dataids(world.store, orders) == ["1", "2", "3"]
