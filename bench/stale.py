"""Stale data: what follows from a publish, and the list of it, take a time that does not grow with the past.

With 1 thousand and 1 million published dataids behind: an input arrives with other content, what follows is worked in,
and what is stale is counted and listed as `dataflow stale` does it. What a publish pays for it is part of claims.py.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any

from claims import addresses, new_store
from fill import fill_past
from measure import interleaved, pair_ratio, verdict
from opendataflow.domain.chunk import Manifest
from opendataflow.operations.staleness import report_stale
from opendataflow.store.claims import LoopStore
from opendataflow.store.registry import assert_ready, get_dataset
from opendataflow.store.stale import expand

MADE = {
    "sqlite": (
        "INSERT INTO made (project, jobid, dataid, runid, code, checks) "
        "SELECT project, jobid, dataid, runid, 'c', 'k' FROM job_status WHERE status = 'COMPLETE'",
        "INSERT INTO made_from (dataset_project, datasetid, input_dataid, project, jobid, dataid, version, content) "
        "SELECT 'bench', 'in_0', dataid, 'bench', 'nop', dataid, NULL, NULL FROM job_status WHERE status = 'COMPLETE'",
    )
}
MADE["postgres"] = MADE["sqlite"]


def filled(url: str, behind: int) -> LoopStore:
    store = new_store(url, inputs=1)
    fill_past(store, behind=behind, ahead=0, inputs=1)
    if store.dialect == "sqlite":
        import sqlite3

        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            for sql in MADE["sqlite"]:
                connection.execute(sql)
            connection.execute("UPDATE stale_event SET dataid = (SELECT max(id) FROM history) WHERE id = 0")
    else:
        import psycopg

        with psycopg.connect(url) as server:
            for sql in MADE["postgres"]:
                server.execute(sql)
        with psycopg.connect(url, autocommit=True) as server:
            server.execute("VACUUM ANALYZE")
    return store


def arrival(store: LoopStore, behind: int) -> Callable[[], None]:
    """One input of the past arrives with other content; what is stale is listed; then the content goes back."""
    dataset, _ = get_dataset(store, "in_0", project="bench")
    numbers = iter(range(1, 10_000))

    def once() -> None:
        dataid = str(1 + next(numbers) * 7919 % behind)
        assert_ready(store, dataset, dataid, Manifest(location="/tmp/in", fingerprint="q/other"))  # noqa: S108
        assert expand(store)
        told = report_stale(store, None, project="bench", limit=100)
        assert told["stale"], "the reader is stale"

    return once


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=lambda text: [int(one) for one in text.split(",")], default=[1000, 1_000_000])
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--only", choices=["SQLite", "PostgreSQL"])
    options: Any = parser.parse_args()
    kept = True
    for kind in [options.only] if options.only else ["SQLite", "PostgreSQL"]:
        with addresses(kind) as address:
            actions: dict[str, Callable[[], object]] = {}
            for size in options.sizes:
                start = time.perf_counter()
                actions[f"{size:>9,} behind"] = arrival(filled(address(f"stale_{size}"), size), size)
                print(f"  ({size:,} published dataids made in {time.perf_counter() - start:.0f} s)")
            found = list(interleaved(actions, times=options.times).values())
            print(f"An input changes, and what is stale is listed, {kind}:")
            ratio = pair_ratio(f"{options.sizes[-1]:,} / {options.sizes[0]:,} behind", found[-1], found[0])
            kept &= verdict(f"stale, {options.sizes[-1]:,} / {options.sizes[0]:,} behind, {kind}", ratio, at_most=1.5)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
