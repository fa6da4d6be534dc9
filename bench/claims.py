"""Claim + publish: flat in the size of the past, and close to the cheapest loop one could write by hand.

(b) With 1 thousand, 100 thousand and 1 million completed chunks behind and 10 thousand ready ahead, for a job with
    three inputs: the time of a full cycle (find, ask, claim with its answers, publish) must hardly grow.
(c) Cycles per second against a loop of two bare statements (take the lowest, mark it done) on the same engine with the
    same durability: synchronous FULL, synchronous_commit on.
"""

import argparse
import contextlib
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fill import fill_past
from measure import show, verdict
from opendataflow.domain.chunk import Manifest
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.registration import JobSpec, LinkSpec, Registration
from opendataflow.domain.runs.run import Ending, Owner, Result
from opendataflow.execution.prepare import prepare
from opendataflow.execution.run import Runner
from opendataflow.store import open_store
from opendataflow.store.claims import LoopStore
from opendataflow.store.migrate import upgrade
from opendataflow.store.open import SCHEMA_VERSION
from opendataflow.store.registry import apply
from opendataflow.store.rows import utc_text

OWNER = Owner("bench@here:1", "here", 1, 1, 1, 1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def new_store(url: str, *, inputs: int) -> LoopStore:
    """A store with one job `nop` that reads `in_0` … and writes `done`."""
    store = open_store(url, actor="bench@here:1", must_exist=False, check=False)
    upgrade(store)
    store.check_schema(SCHEMA_VERSION)
    names = [f"in_{number}" for number in range(inputs)]
    links = (*(LinkSpec("IN", "bench", name) for name in names), LinkSpec("OUT", "bench", "done"))
    job = JobSpec("nop", "script", None, "{}", None, 60.0, None, 0, 30.0, None, links)
    datasets = tuple(Dataset("bench", name) for name in [*names, "done"])
    apply(store, Registration("bench", "bench", "/tmp", "/tmp", "dev", datasets, (job,)), now=NOW)  # noqa: S108
    return store


def cycle(store: LoopStore) -> Callable[[], None]:
    """One dataid after the other, as `--drain` does it: the end of one takes the next in the same transaction."""
    job = store.get_job("nop", project="bench")
    result = Result(Ending.COMPLETE, 0, manifests=(("bench", "done", Manifest()),))
    runner = Runner.__new__(Runner)
    runner.store, runner.owner, runner._ahead, runner._ahead_until = store, OWNER, [], 0.0
    first = store.find_claimable(job)
    assert first is not None
    held = store.claim(job, first, prepare(job, first), OWNER)

    def once() -> None:
        nonlocal held
        wanted = runner.find_next(job)
        assert wanted is not None
        assert held is not None
        _, held = store.finish_and_claim(held, result, wanted)

    return once


def cycle_apart(store: LoopStore) -> Callable[[], None]:
    """The same in two transactions, as single RunJob calls do it."""
    job = store.get_job("nop", project="bench")
    result = Result(Ending.COMPLETE, 0, manifests=(("bench", "done", Manifest()),))

    def once() -> None:
        candidate = store.find_claimable(job)
        assert candidate is not None
        claim = store.claim(job, candidate, prepare(job, candidate), OWNER)
        assert claim is not None
        store.finish(claim, result)

    return once


QUEUE = """
CREATE TABLE q (job text, dataid text, sortkey text, status text, owner text, modified text, PRIMARY KEY (job, dataid));
CREATE INDEX q_open ON q (job, sortkey) WHERE status = 'READY';
"""


def bare_sqlite(path: Path, n: int) -> Callable[[], None]:
    """What one would write by hand: a queue row per dataid, taken and marked done by one statement each."""
    import sqlite3

    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(QUEUE)
    connection.executemany(
        "INSERT INTO q (job, dataid, sortkey, status) VALUES ('nop', ?, ?, 'READY')",
        [(str(i), f"{i:08d}") for i in range(n)],
    )

    def once() -> None:
        row = connection.execute(
            "UPDATE q SET status = 'RUNNING', owner = ?, modified = ? WHERE job = 'nop' AND dataid = "
            "(SELECT dataid FROM q WHERE job = 'nop' AND status = 'READY' ORDER BY sortkey LIMIT 1) RETURNING dataid",
            (OWNER.name, utc_text(time.time())),
        ).fetchone()
        connection.execute(
            "UPDATE q SET status = 'COMPLETE', modified = ? WHERE job = 'nop' AND dataid = ?",
            (utc_text(time.time()), row[0]),
        )

    return once


def bare_postgres(url: str, n: int) -> Callable[[], None]:
    import psycopg

    connection = psycopg.connect(url, autocommit=True, prepare_threshold=1)
    connection.execute(QUEUE)
    connection.execute(
        "INSERT INTO q (job, dataid, sortkey, status) "
        "SELECT 'nop', i::text, lpad(i::text, 8, '0'), 'READY' FROM generate_series(1, %s) i",
        (n,),
    )
    connection.execute("VACUUM ANALYZE q")

    def once() -> None:
        row = connection.execute(
            "UPDATE q SET status = 'RUNNING', owner = %s, modified = clock_timestamp()::text "
            "WHERE job = 'nop' AND dataid = (SELECT dataid FROM q WHERE job = 'nop' AND status = 'READY' "
            "ORDER BY sortkey LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING dataid",
            (OWNER.name,),
        ).fetchone()
        assert row is not None
        connection.execute(
            "UPDATE q SET status = 'COMPLETE', modified = clock_timestamp()::text WHERE job = 'nop' AND dataid = %s",
            row,
        )

    return once


def rounds(actions: dict[str, Callable[[], None]], *, times: int, batch: int) -> dict[str, list[float]]:
    """Batches of each action in turn; seconds per single action, one figure per batch."""
    for action in actions.values():
        for _ in range(150):
            action()
    found: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(times):
        for name in list(actions) if number % 2 else list(reversed(actions)):
            start = time.perf_counter()
            for _ in range(batch):
                actions[name]()
            found[name].append((time.perf_counter() - start) / batch)
    return found


def flat(address: Callable[[str], str], sizes: list[int], ahead: int, times: int, title: str) -> bool:
    actions = {}
    for size in sizes:
        store = new_store(address(f"behind_{size}"), inputs=3)
        start = time.perf_counter()
        fill_past(store, behind=size, ahead=ahead, inputs=3)
        print(f"  ({size:,} completed chunks and {ahead:,} ready ones made in {time.perf_counter() - start:.0f} s)")
        actions[f"{size:>9,} behind"] = cycle(store)
    print(f"Claim + publish with a past, three inputs, {title}:")
    found = rounds(actions, times=times, batch=40)
    medians = [show(name, values) for name, values in found.items()]
    return verdict(
        f"claim + publish, {sizes[-1]:,} behind / {sizes[0]:,} behind, {title}", medians[-1] / medians[0], at_most=1.2
    )


def settle(dialect: str, *urls: str) -> None:
    """Start both sides alike: their logs folded in, so that neither pays for the other's filling."""
    for url in urls:
        if dialect == "sqlite":
            import sqlite3

            connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60, isolation_level=None)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()
        else:
            import psycopg

            with psycopg.connect(url, autocommit=True) as server:
                server.execute("VACUUM ANALYZE")
                server.execute("CHECKPOINT")


def against_bare(address: Callable[[str], str], times: int, title: str) -> bool:
    batch, n = 50, 50 * times + 300
    store_url = address("ours")
    store = new_store(store_url, inputs=1)
    fill_past(store, behind=0, ahead=n, inputs=1)
    url = address("bare")
    bare = bare_sqlite(Path(url.removeprefix("sqlite:///")), n) if url.startswith("sqlite") else bare_postgres(url, n)
    apart_url = address("apart")
    apart = new_store(apart_url, inputs=1)
    fill_past(apart, behind=0, ahead=n, inputs=1)
    settle(store.dialect, store_url, apart_url, url)
    actions = {"two bare statements": bare, "claim + publish": cycle(store), "the same, apart": cycle_apart(apart)}
    found = rounds(actions, times=times, batch=batch)
    print(f"Cycles against two bare statements, {title}:")
    for name, values in found.items():
        show(name, [1 / value for value in values], unit="/s", scale=1.0)
    ratio = statistics.median(found["two bare statements"]) / statistics.median(found["claim + publish"])
    return verdict(f"claim + publish per second / two bare statements, {title}", ratio, at_least=0.6)


@contextlib.contextmanager
def addresses(kind: str) -> Iterator[Callable[[str], str]]:
    with tempfile.TemporaryDirectory(prefix="dataflow-bench-") as folder:
        if kind == "SQLite":
            yield lambda name: f"sqlite:///{folder}/{name}.db"
            return
        from support.postgres import postgres

        numbers = itertools.count()
        with postgres() as server:
            yield lambda name: server.new_database(f"{name}_{next(numbers)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=lambda text: [int(part) for part in text.split(",")], default=[1000, 100_000, 1_000_000]
    )
    parser.add_argument("--ahead", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--only", choices=["SQLite", "PostgreSQL"])
    parser.add_argument("--part", choices=["flat", "bare"])
    options: Any = parser.parse_args()
    kept = True
    for kind in [options.only] if options.only else ["SQLite", "PostgreSQL"]:
        with addresses(kind) as address:
            if options.part != "flat":
                kept &= against_bare(address, options.times, kind)
            if options.part != "bare":
                kept &= flat(address, options.sizes, options.ahead, options.times, kind)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
