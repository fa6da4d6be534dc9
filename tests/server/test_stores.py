"""The connections of the pages: what happens to them while nobody looks is nobody's trouble."""

import asyncio
import threading
from collections.abc import Iterator

import psycopg
import pytest

from opendataflow.errors import StoreUnavailable
from opendataflow.server.stores import THREADS, Stores
from opendataflow.store import open_store
from opendataflow.store.claims import LoopStore
from opendataflow.store.migrate import upgrade
from support.postgres import Server
from support.processes import wait_for


@pytest.fixture
def url(postgres_server: Server) -> str:
    url = postgres_server.new_database()
    store = open_store(url, actor="tests", check=False)
    upgrade(store)
    store.close()
    return url


@pytest.fixture
def stores(url: str) -> Iterator[Stores]:
    made = Stores(lambda: open_store(url, actor="server"))
    yield made
    made.close()


def cut(url: str) -> int:
    """End all other connections to the database, as a restart of it does; how many there were."""
    with psycopg.connect(url, autocommit=True) as shell:
        ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database()"
        of_clients = "backend_type = 'client backend'"  # autovacuum comes by now and then
        return len(shell.execute(f"{ended} AND pid <> pg_backend_pid() AND {of_clients}").fetchall())


async def ask_all(stores: Stores, actor: str | None = None) -> list[int]:
    """A question on every thread at once."""
    all_here = threading.Barrier(THREADS)  # so that no thread comes twice

    def count(store: LoopStore) -> int:
        all_here.wait(30)
        return len(store.read("projects", {}, file="operations"))

    return list(await asyncio.gather(*(stores.ask(count, actor=actor) for _ in range(THREADS))))


def test_after_a_restart_of_the_store_no_question_fails_on_any_thread(url: str, stores: Stores) -> None:
    for actor in (None, "anna (web)", "otto (web)"):
        assert asyncio.run(ask_all(stores, actor)) == [0] * THREADS, "whoever acts is told to it first"
        assert asyncio.run(ask_all(stores)) == [0] * THREADS
        assert cut(url) == (THREADS if actor is None else 2 * THREADS)


def test_an_action_that_had_begun_is_not_done_twice(url: str, stores: Stores) -> None:
    begun = []
    assert asyncio.run(ask_all(stores, "anna (web)")) == [0] * THREADS

    def act(store: LoopStore) -> None:
        begun.append(store.actor)
        cut(url)
        store.read("projects", {}, file="operations")

    with pytest.raises(StoreUnavailable):
        asyncio.run(stores.ask(act, actor="anna (web)"))
    assert begun == ["anna (web)"]


def test_pages_are_read_while_everybody_who_writes_waits_for_a_lock(stores: Stores) -> None:
    let_go = threading.Event()

    async def all_of_it() -> None:
        writers = [asyncio.create_task(stores.ask(lambda _: let_go.wait(30), actor="anna (web)")) for _ in range(9)]
        for _ in range(9):
            stores.note("a session", lambda _: begun.append(let_go.wait(30)))
        await asyncio.sleep(0.1)
        assert await asyncio.wait_for(ask_all(stores), 10) == [0] * THREADS
        let_go.set()
        await asyncio.gather(*writers)

    begun: list[bool] = []
    asyncio.run(all_of_it())
    wait_for(lambda: begun, "it is noted")
    assert begun == [True], "what is noted waits once"
