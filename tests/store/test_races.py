"""Real processes on one store at the same time: nothing twice, nothing lost, nobody locked out."""

import random
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest
from race_workers import (
    by_hand,
    claim_one,
    drain,
    fold_while_working,
    open_and_write,
    recover_all,
    shell_or_mapper,
    together,
)
from world import World, job

from opendataflow.store import registry
from opendataflow.store.open import SCHEMA_VERSION
from support.postgres import Server

CHUNKS = 200
LOAD = job("load", ["orders"], ["totals"])


def test_many_runners_do_each_chunk_exactly_once_and_leave_none(world: World) -> None:
    world.apply(LOAD)
    rows = ", ".join(f"('orders', '{number}', 'READY')" for number in range(CHUNKS))
    world.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES {rows}")
    done = together(drain, [(world.url, f"runner{number}") for number in range(4)])
    everything = [one for by_one in done for one in by_one]
    assert Counter(dataid for dataid, _ in everything) == {str(number): 1 for number in range(CHUNKS)}
    assert len({runid for _, runid in everything}) == CHUNKS
    assert sum(1 for by_one in done if by_one) >= 2  # they did work side by side
    assert world.sql("SELECT status, attempts, count(*) FROM job_status GROUP BY 1, 2") == [("COMPLETE", 1, CHUNKS)]
    assert world.sql("SELECT status, count(*) FROM run GROUP BY 1") == [("COMPLETE", CHUNKS)]
    assert world.sql("SELECT count(*) FROM data_manifest") == [(CHUNKS,)]
    assert world.locks() == []
    assert registry.check(world.store, repair=False) == []


def test_of_many_claims_for_one_dataid_at_the_same_moment_one_wins(world: World) -> None:
    world.apply(LOAD)
    world.ready("orders", "1")
    won = together(claim_one, [(world.url, f"runner{number}", "1") for number in range(6)])
    assert len([runid for runid in won if runid is not None]) == 1
    assert world.sql("SELECT count(*) FROM run") == [(1,)]
    assert len(world.locks()) == 1


def test_the_limit_holds_when_many_claim_different_dataids_at_the_same_moment(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"], concurrency=2))
    world.ready("orders", *(str(number) for number in range(6)))
    won = together(claim_one, [(world.url, f"runner{number}", str(number)) for number in range(6)])
    assert len([runid for runid in won if runid is not None]) <= 2
    assert world.sql("SELECT count(*) FROM job_status WHERE status = 'RUNNING'")[0][0] in (1, 2)


def test_a_lost_run_is_recovered_once_when_many_find_it(world: World) -> None:
    world.apply(LOAD)
    world.ready("orders", *(str(number) for number in range(10)))
    for _ in range(10):
        world.must_claim("load")
    world.pass_time(0 if world.is_sqlite else 3600)
    assert sum(together(recover_all, [(world.url, f"runner{number}") for number in range(4)])) == 10
    assert world.sql("SELECT status, attempts, count(*) FROM job_status GROUP BY 1, 2") == [("RESUBMIT", 0, 10)]
    assert world.locks() == []


# No lost wake-up ----------------------------------------------------------------------------------------------------
JOIN = job("join", ["a", "b", "c"], ["out"])


def turns_ready(dataset: str, numbers: range) -> list[str]:
    return [
        f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('{dataset}', '{number}', 'READY')"
        for number in numbers
    ]


def test_inputs_that_turn_ready_at_the_same_time_lose_no_wake_up(world: World) -> None:
    world.apply(JOIN)
    together(by_hand, [(world.url, turns_ready(dataset, range(150))) for dataset in "abc"])
    assert set(world.waiting("join").values()) == {0}
    assert len(world.waiting("join")) == 150
    assert registry.check(world.store, repair=False) == []
    assert world.next("join") == "0"


def test_inputs_that_open_and_close_at_the_same_time_lose_no_wake_up(world: World) -> None:
    """The same dataids open and close again and again in separate sessions, in different orders."""
    world.apply(JOIN)
    chance = random.Random(7)
    work = []
    for dataset in "abc":
        made = turns_ready(dataset, range(25))
        chance.shuffle(made)
        for _ in range(4):
            for status in ("RESUBMIT", "READY"):
                again = [
                    f"UPDATE datastatus SET status = '{status}' WHERE datasetid = '{dataset}' AND dataid = '{number}'"
                    for number in range(25)
                ]
                chance.shuffle(again)
                made += again
        work.append((world.url, made))
    together(by_hand, work)
    assert world.waiting("join") == {str(number): 0 for number in range(25)}
    assert registry.check(world.store, repair=False) == []


def test_windows_whose_chunks_open_and_close_at_the_same_time_lose_no_wake_up(world: World) -> None:
    """Each chunk moves the counters of five rows, in several sessions at once, while others map the rows anew."""
    world.apply(job("mean", ["a:window:5", "b"], ["out"], partitions={"shards": "1..25"}))
    world.ready("a", *(str(number) for number in range(26)))  # 0: where the first windows begin
    world.ready("b", *(str(number) for number in range(1, 26)))
    chance = random.Random(5)
    shells: list[list[str]] = []
    for dataset in ("a", "a", "b"):
        made = [_becomes(dataset, number, "RESUBMIT") for number in range(1, 26)] * 2
        made += [_becomes(dataset, number, "READY") for number in range(1, 26)] * 2
        chance.shuffle(made)
        shells.append(made)
    together(shell_or_mapper, [*((world.url, made) for made in shells), (world.url, None), (world.url, None)])
    assert registry.check(world.store, repair=False) == []
    together(by_hand, [(world.url, [_becomes(one, number, "READY") for number in range(1, 26)]) for one in "ab"])
    assert set(world.waiting("mean").values()) == {0}
    assert registry.check(world.store, repair=False) == []


def _becomes(dataset: str, number: int, status: str) -> str:
    return f"UPDATE datastatus SET status = '{status}' WHERE datasetid = '{dataset}' AND dataid = '{number}'"


def test_two_who_fold_the_tally_at_once_count_each_change_once(world: World) -> None:
    world.apply(LOAD)
    world.ready("orders", *(str(number) for number in range(60)))
    together(fold_while_working, [(world.url, f"f{number}") for number in range(4)])
    assert registry.check(world.store, repair=False) == []


def test_resubmits_among_runners_lose_nothing(world: World) -> None:
    """Runners drain while an operator resubmits inputs and jobs; one more drain afterwards leaves nothing."""
    world.apply(LOAD)
    world.ready("orders", *(str(number) for number in range(40)))
    chance = random.Random(11)
    resubmits = []
    for number in chance.sample(range(40), 30):
        resubmits.append(f"UPDATE job_status SET status = 'RESUBMIT' WHERE dataid = '{number}'")
        resubmits.append(
            f"UPDATE datastatus SET status = 'RESUBMIT' WHERE datasetid = 'orders' AND dataid = '{number}'"
        )
        resubmits.append(f"UPDATE datastatus SET status = 'READY' WHERE datasetid = 'orders' AND dataid = '{number}'")
    together(_runner_or_operator, [(world.url, "r1", []), (world.url, "r2", []), (world.url, "", resubmits)])
    together(drain, [(world.url, "last")])
    assert world.sql("SELECT status, count(*) FROM job_status GROUP BY 1") == [("COMPLETE", 40)]
    assert world.sql("SELECT status, count(*) FROM datastatus WHERE datasetid = 'totals' GROUP BY 1") == [("READY", 40)]
    assert world.locks() == []
    assert registry.check(world.store, repair=False) == []


def _runner_or_operator(barrier: Any, url: str, name: str, resubmits: list[str]) -> None:
    if resubmits:
        by_hand(barrier, url, resubmits)
        return
    drain(barrier, url, name)
    for _ in range(20):  # look again: an operator is at work
        time.sleep(0.05)
        drain(_Started(), url, name)


class _Started:
    def wait(self) -> None:
        pass


# Readers and writers ------------------------------------------------------------------------------------------------
def test_a_readers_open_transaction_does_not_delay_a_claim(world: World) -> None:
    world.apply(LOAD)
    world.ready("orders", "1")
    if world.is_sqlite:
        reader: Any = sqlite3.connect(world.url.removeprefix("sqlite:///"), isolation_level=None)
    else:
        reader = psycopg.connect(world.url, autocommit=True)
    reader.execute("BEGIN")
    seen = reader.execute("SELECT status FROM job_status").fetchall()
    reader.execute("SELECT * FROM datastatus").fetchall()
    # If they waited for the reader, they would do so for ever: it goes on only after them.
    claim = world.must_claim("load")
    world.finish(claim)
    assert reader.execute("SELECT count(*) FROM history").fetchall()
    if world.is_sqlite:  # the reader still sees the moment its transaction began in
        assert reader.execute("SELECT status FROM job_status").fetchall() == seen == [("PENDING",)]
    reader.execute("COMMIT")
    assert reader.execute("SELECT status FROM job_status").fetchall() == [("COMPLETE",)]
    reader.close()


def test_many_processes_make_and_write_one_sqlite_store_without_locked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new' / 'state.db'}"
    assert together(open_and_write, [(url, number, 15) for number in range(6)]) == [15] * 6
    world = World(url)
    assert world.sql("SELECT count(*) FROM datastatus WHERE status = 'READY'") == [(90,)]
    assert world.sql("SELECT count(*) FROM job_status WHERE waiting = 0") == [(90,)]
    assert world.sql("SELECT count(*) FROM migration") == [(SCHEMA_VERSION,)]
    world.close()


def test_many_processes_make_one_postgres_store_at_once(postgres_server: Server) -> None:
    url = postgres_server.new_database()
    assert together(open_and_write, [(url, number, 3) for number in range(4)]) == [3] * 4
    world = World(url)
    assert world.sql("SELECT count(*) FROM migration") == [(SCHEMA_VERSION,)]
    assert world.sql("SELECT count(*) FROM job_status WHERE waiting = 0") == [(12,)]
    world.close()


@pytest.mark.parametrize("actor", ["anna smith@host:1", "back\\slash", "quote's"])
def test_any_name_can_be_the_actor(world: World, actor: str) -> None:
    world.apply(LOAD)
    world.ready("orders", "1")
    named = world.open(actor=actor)
    world.must_claim("load", store=named)
    named.close()
    assert world.sql("SELECT DISTINCT actor FROM history WHERE kind = 'job'") == [(actor,)]
