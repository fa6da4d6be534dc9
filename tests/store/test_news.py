"""Workers say that they are here, and hear of new work at once."""

import os
import threading
import time
from collections.abc import Iterator

import pytest
from world import World, job, owner

from opendataflow.domain.runs.run import Ending
from opendataflow.store.claims import LoopStore
from opendataflow.store.records import workers

LOAD = job("load", ["orders"], ["totals"])
LONG = 60.0  # seconds: nobody waits for so long, unless nothing is heard


@pytest.fixture
def listener(world: World) -> Iterator[LoopStore]:
    """A worker's own connection: it listens, says that it is idle, and has heard all there was."""
    world.apply(LOAD, job("report", ["totals"], ["pages"]))
    store = world.open(actor="worker")
    workers.register_worker(store, owner("worker"), slots=2)
    assert store.has_news()  # what was said before it listened
    assert workers.beat_worker(store, owner("worker").name, running=0, is_idle=True)
    settle(store)
    yield store
    store.close()


def settle(store: LoopStore) -> None:
    while store.wait_for_news(0.05):
        pass


def is_heard(store: LoopStore, change: object) -> bool:
    """Make the change elsewhere while the worker waits; whether it hears of it."""
    settle(store)

    def make() -> None:
        time.sleep(0.15)  # the worker waits by now
        change()  # type: ignore[operator]

    maker = threading.Thread(target=make)
    maker.start()
    found = store.wait_for_news(LONG)
    maker.join()
    return found


def elsewhere(world: World, statement: str) -> None:
    """An operator's shell, opened in the thread that uses it."""
    other = World(world.url)
    other.sql(statement)
    other.close()


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO datastatus (datasetid, dataid, status) VALUES ('orders', '1', 'READY')",
        "UPDATE job SET scaled_to = 3",
        "UPDATE store SET paused_by = 'carl'",
    ],
)
def test_new_work_and_other_limits_are_heard(world: World, listener: LoopStore, statement: str) -> None:
    assert is_heard(listener, lambda: elsewhere(world, statement))
    assert not listener.wait_for_news(0.2)


def test_the_end_of_a_run_is_heard(world: World, listener: LoopStore) -> None:
    world.ready("orders", "1", "2")
    for ending in (Ending.COMPLETE, Ending.FAILED):
        claim = world.must_claim("load")
        settle(listener)
        world.finish(claim, ending)
        assert listener.wait_for_news(LONG)
    world.must_claim("report")
    world.pass_time(61)
    settle(listener)
    assert world.recover() == 1
    assert listener.wait_for_news(LONG)


def test_postgres_says_nothing_while_nobody_is_idle(world: World, listener: LoopStore) -> None:
    if world.is_sqlite:
        pytest.skip("there a worker looks at the file")
    workers.beat_worker(listener, owner("worker").name, running=2, is_idle=False)
    world.ready("orders", "1")
    world.finish(world.must_claim("load"))
    assert not listener.wait_for_news(0.2)
    workers.set_limit(world.store, world.store.get_job("load"), 4)  # everybody is told of that
    assert listener.wait_for_news(LONG)


def test_whoever_waits_can_be_woken_otherwise(world: World, listener: LoopStore) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"x")
    settle(listener)
    started = time.monotonic()
    assert not listener.wait_for_news(LONG, read_end)
    assert time.monotonic() - started < LONG
    os.close(read_end)
    os.close(write_end)
    fd = listener.news_fd()
    assert (fd is None) == world.is_sqlite


def test_workers_are_listed_until_they_go(world: World) -> None:
    world.apply(LOAD)
    store = world.store
    workers.register_worker(store, owner("anna"), slots=4, jobs=["load", "report"])
    workers.register_worker(store, owner("carl", "host-2"), slots=2)
    assert workers.beat_worker(store, owner("anna").name, running=3, is_idle=False)
    assert not workers.beat_worker(store, "nobody", running=0, is_idle=True)
    anna, carl = workers.list_workers(store)
    assert (anna.name, anna.host, anna.slots, anna.running, anna.jobs, anna.is_gone) == (
        owner("anna").name, "host-1", 4, 3, ("load", "report"), False
    )  # fmt: skip
    assert (carl.host, carl.jobs, carl.is_idle) == ("host-2", (), False)
    workers.beat_worker(store, carl.name, running=0, is_idle=True)
    world.pass_time(workers.GONE_SECONDS + 1)
    workers.beat_worker(store, anna.name, running=0, is_idle=True)
    assert [(one.is_gone, one.is_idle) for one in workers.list_workers(store)] == [(False, True), (True, True)]
    workers.register_worker(store, owner("dora"), slots=1)  # one that comes counts who is still there
    assert [(one.is_gone, one.is_idle) for one in workers.list_workers(store)][1] == (True, False)
    workers.forget_worker(store, anna.name)
    world.pass_time(workers.FORGET_SECONDS + 1)
    workers.register_worker(store, owner("ed"), slots=1)
    assert [one.name for one in workers.list_workers(store)] == [owner("ed").name]
    assert workers.seconds_until_due(store) is None
