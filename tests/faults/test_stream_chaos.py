"""A small storm over a stream with a real server and a real Spark; `make chaos` is the large one.

And the judges of such a storm: each of them fails on facts that break its rule.
"""

import dataclasses
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.chaos import stream_judges as judges
from support.chaos.services import StreamHit
from support.chaos.stream_judges import Answer, Logged, Sent, StreamFacts
from support.chaos.stream_plan import (
    ARRAY,
    GIVES_UP,
    JVM,
    QUERY,
    SERVER,
    SINGLE,
    SMALL_STREAM,
    Request,
    draw_faults,
    draw_requests,
    text_of,
)
from support.chaos.streams import run_stream_chaos

SEED = 0
# Each death of the query costs the start of another Spark.
EVERY_FAULT = "DATAFLOW_EVERY_FAULT" in os.environ
MORE = {"query_kills": 6, "full_disks": 1} if EVERY_FAULT else {"items": 1_200, "server_kills": 3}
SIZE = dataclasses.replace(SMALL_STREAM, **MORE)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("own_driver")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"] if EVERY_FAULT else ["sqlite"])
def test_a_storm_over_a_stream_loses_and_doubles_nothing(kind: str, tmp_path: Path) -> None:
    happened: list[str] = []
    report = run_stream_chaos(kind, SIZE, SEED, tmp_path, say=happened.append, give_up_seconds=300)
    assert report.holds, "\n".join(["", *report.lines, *happened, report.said, f"seed {SEED}"])
    assert any(line.strip().startswith(SERVER) for line in report.times), "the server was away for a while"


def test_a_seed_gives_the_same_storm_again_and_every_query_process_is_killed_in_six() -> None:
    size = dataclasses.replace(SMALL_STREAM, query_kills=6)
    storm = draw_faults(size, 1)
    assert storm == draw_faults(size, 1) != draw_faults(size, 2)
    killed = Counter(fault.whom for fault in storm)
    assert {killed[whom] for whom in QUERY} == {1}
    assert killed[SERVER] == size.server_kills
    requests = draw_requests(size, 1, 3)
    assert requests == draw_requests(size, 1, 3) != draw_requests(size, 1, 4)
    assert [n for one in requests for n in one.numbers] == list(range(size.items // size.clients))


# The judges -----------------------------------------------------------------------------------------------------------
ONE, TWO = Request(0, 2, ARRAY, "k"), Request(2, 1, SINGLE, None)


def item(number: int) -> tuple[str, int, str]:
    return "0", number, text_of("0", number, is_bad=False)


def accepted(first: int, count: int, *, again: bool = False) -> Answer:
    return Answer(9.0, 10.0, 202, first, count, again)


def facts(**given: Any) -> StreamFacts:
    """A client sent three items in two requests, all is well; but for what is given."""
    well: dict[str, Any] = {
        "sent": [Sent("0", ONE, (accepted(0, 2),)), Sent("0", TWO, (accepted(2, 1),))],
        "log": [Logged(0, "k", (item(0), item(1))), Logged(2, None, (item(2),))],
        "rows": [item(0), item(1), item(2)],
        "is_in_order": True,
        "aside": [],
        "batches": [(0, 2, "COMPLETE"), (2, 3, "COMPLETE")],
        "publishes": Counter({"a": 1, "b": 1}),
        "status": {
            "accepted": 3, "processed": 3, "failed": 0, "replayed": 0, "lag_items": 0, "state": "STOPPED",
        },
    }  # fmt: skip
    return StreamFacts(**well | given)


def wrong_with(**given: Any) -> set[str]:
    """The names of the judges that see something."""
    return {one.name for one in judges.judge_stream(facts(**given)) if one.wrong}


ACKNOWLEDGED = "every acknowledged item exactly once in the destination"
UNACKNOWLEDGED = "unacknowledged ones at most once"
RESENT = "exactly once when re-sent with the same key"
WHOLE = "a request is accepted whole or not at all"
ORDER = "order kept per client"
SAME = "the destination holds what the log holds"
ASIDE = "only items that fail are set aside"
RANGES = "every range published exactly once"
ANSWERS = "answers are 202 or 'later'"
COUNTERS = "counters agree"


def test_no_judge_sees_anything_where_all_is_well() -> None:
    assert wrong_with() == set()


def test_an_item_that_is_missing_doubled_or_somebody_elses_is_seen() -> None:
    assert wrong_with(rows=[item(0), item(2)]) == {ACKNOWLEDGED, SAME}
    assert wrong_with(rows=[item(0), item(1), item(1), item(2)]) == {ACKNOWLEDGED, ORDER, SAME}
    assert SAME in wrong_with(rows=[item(0), item(1), ("0", 2, "another text")])
    assert SAME in wrong_with(rows=[item(0), item(1), item(2), item(3)])


def test_an_id_that_is_not_the_items_place_is_seen() -> None:
    told_otherwise = [Sent("0", ONE, (accepted(1, 2),)), Sent("0", TWO, (accepted(2, 1),))]
    assert wrong_with(sent=told_otherwise) == {ACKNOWLEDGED}
    told_twice = [Sent("0", ONE, (accepted(0, 2), accepted(5, 2, again=True))), Sent("0", TWO, (accepted(2, 1),))]
    assert wrong_with(sent=told_twice) == {RESENT}


def test_an_item_without_an_answer_may_be_there_once_or_not_at_all() -> None:
    lost = Sent("0", TWO, (), lost=1)
    first = Sent("0", ONE, (accepted(0, 2),))
    assert wrong_with(sent=[first, lost]) == set()
    gone = {
        "log": [Logged(0, "k", (item(0), item(1)))], "rows": [item(0), item(1)], "batches": [(0, 2, "COMPLETE")],
        "publishes": Counter({"a": 1}), "status": facts().status | {"accepted": 2, "processed": 2},
    }  # fmt: skip
    assert wrong_with(sent=[first, lost], **gone) == set()
    doubled = [item(0), item(1), item(2), item(2)]
    assert UNACKNOWLEDGED in wrong_with(sent=[first, lost], rows=doubled)


def test_a_request_with_a_key_that_was_sent_again_must_be_answered_and_there() -> None:
    keyed = TWO._replace(key="again")
    first = Sent("0", ONE, (accepted(0, 2),))
    log = [facts().log[0], Logged(2, "again", (item(2),))]
    answered = Sent("0", keyed, (accepted(2, 1, again=True),), sent=2, lost=1)
    assert wrong_with(sent=[first, answered], log=log) == set()
    never = Sent("0", keyed, (), sent=2, lost=1)
    assert wrong_with(sent=[first, never], log=log) == {RESENT}
    gave_up = Sent("0", keyed._replace(quirk=GIVES_UP), (), lost=1)
    assert wrong_with(sent=[first, gave_up], log=log) == set()
    twice = [*log, Logged(3, "again", (item(2),))]
    rows = [*facts().rows, item(2)]
    assert {ACKNOWLEDGED, RESENT, ORDER} <= wrong_with(sent=[first, answered], log=twice, rows=rows)


def test_half_a_request_and_another_order_are_seen() -> None:
    half = [Logged(0, "k", (item(0),)), Logged(1, None, (item(2),))]
    assert WHOLE in wrong_with(log=half)
    assert WHOLE in wrong_with(log=[facts().log[0]._replace(key="other"), facts().log[1]])
    backwards = [item(2), item(0), item(1)]
    assert wrong_with(rows=backwards) == {ORDER, SAME}
    assert wrong_with(rows=backwards, is_in_order=False) == set(), "a table has no order"
    log = [Logged(0, None, (item(2),)), Logged(1, "k", (item(0), item(1)))]
    assert ORDER in wrong_with(log=log)


def test_what_is_set_aside_is_what_fails() -> None:
    fine = {"client": "0", "number": 2}
    assert ASIDE in wrong_with(aside=[(2, fine)], rows=[item(0), item(1)])
    assert ASIDE in wrong_with(bad={("0", 1)}), "an item on which the transformation fails was published"


def test_gaps_overlaps_second_publishes_and_other_counters_are_seen() -> None:
    complete = "COMPLETE"
    assert RANGES in wrong_with(batches=[(0, 2, complete)])
    assert RANGES in wrong_with(batches=[(0, 1, complete), (2, 3, complete)])
    assert RANGES in wrong_with(batches=[(0, 2, complete), (1, 3, complete)])
    assert RANGES in wrong_with(batches=[(0, 2, complete), (2, 3, "FAILED")])
    assert RANGES in wrong_with(publishes=Counter({"a": 1, "b": 2}))
    for name in ("accepted", "processed", "failed", "lag_items"):
        assert wrong_with(status=facts().status | {name: 7}) == {COUNTERS}
    assert wrong_with(problems=["a counter is 4, not 5"]) == {COUNTERS}


def test_an_error_of_the_server_is_seen_and_being_put_off_is_not() -> None:
    put_off, error = Answer(1.0, 1.0, 429, None, None, False), Answer(1.0, 1.0, 500, None, None, False)
    second = Sent("0", TWO, (accepted(2, 1),))
    assert wrong_with(sent=[Sent("0", ONE, (put_off, accepted(0, 2))), second]) == set()
    assert wrong_with(sent=[Sent("0", ONE, (error, accepted(0, 2))), second]) == {ANSWERS}


def test_recovery_is_the_next_answer_of_a_server_and_the_next_publish_of_a_query() -> None:
    hits = [StreamHit(SERVER, (1,), 8.0), StreamHit(JVM, (2,), 20.0)]
    found = judges.stream_recovery(facts(hits=hits, published_at=[9.0, 19.0, 26.5]))
    assert found == {SERVER: [2.0], JVM: [6.5]}
