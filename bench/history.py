"""Ten million rows of history: looking takes as long as with a few, and cleaning holds up no claim.

(a) The whole commands, as an operator types them, with 200 thousand and 10 million changes behind: at most 2 times.
(b) `dataflow clean`: the longest of its batches, which is how long a claim may wait for it, stays under half a second.
"""

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

from claims import addresses, new_store
from fill import fill_past
from measure import show, verdict
from opendataflow.store import open_store
from opendataflow.store.operations import clean_history
from opendataflow.store.rows import utc_text
from operate import command

CHANGES_OF_A_RUN = 5
LOOKS = (
    ["status"], ["runs", "--limit", "20"], ["runs", "nop", "5"], ["why", "nop", "5"], ["plan", "nop"],
    ["impact", "in_0", "7"], ["resubmit", "--outage", "2020-01-01T02:10..2020-01-01T03:40", "--dry-run"],
)  # fmt: skip


def looking(stores: dict[int, str], times: int, title: str) -> bool:
    kept = True
    sizes = sorted(stores)
    with tempfile.TemporaryDirectory() as folder:
        for argv in LOOKS:
            found: dict[int, list[float]] = {size: [] for size in sizes}
            for number in range(times + 1):
                for size in sizes if number % 2 else reversed(sizes):
                    seconds = command(stores[size], *argv, folder=folder)
                    if number:
                        found[size].append(seconds)
            print(f"dataflow {' '.join(argv)}, {title}:")
            medians = [show(f"{size:>11,} changes", found[size]) for size in sizes]
            name = f"dataflow {' '.join(argv[:2])}, {sizes[-1]:,} changes / {sizes[0]:,}, {title}"
            kept &= verdict(name, medians[-1] / medians[0], at_most=2.0)
    return kept


def cleaning(url: str, batches: int, title: str) -> bool:
    """The first batches of a clean of everything, one by one."""
    store = open_store(url, actor="bench")
    took, deleted, began = [], 0, time.perf_counter()
    cleaned = clean_history(store, "bench", jobid=None, before=utc_text(time.time() + 60))
    first = time.perf_counter()
    for batch in itertools.islice(cleaned, batches):
        took.append(time.perf_counter() - began)
        deleted += batch.runs + batch.history
        began = time.perf_counter()
    store.close()
    rate = deleted / (time.perf_counter() - first)
    print(f"clean, {title}: {deleted:,} records, {rate:,.0f} a second; a batch {statistics.median(took) * 1000:.0f} ms")
    # The first one brings the tally up to date.
    return verdict(f"seconds of the longest batch of a clean, {title}", max(took[1:]), at_most=0.5)


def made(address: Callable[[str], str], changes: int) -> str:
    url = address(f"history_{changes}")
    store = new_store(url, inputs=1)
    fill_past(store, behind=changes // CHANGES_OF_A_RUN, ahead=1000, inputs=1)
    store.close()
    return url


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--changes", type=lambda text: [int(part) for part in text.split(",")], default=[200_000, 10_000_000]
    )
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--batches", type=int, default=600)
    parser.add_argument("--only", choices=["SQLite", "PostgreSQL"])
    options = parser.parse_args()
    kept = True
    for kind in [options.only] if options.only else ["SQLite", "PostgreSQL"]:
        with addresses(kind) as address:
            stores = {changes: made(address, changes) for changes in options.changes}
            kept &= looking(stores, options.times, kind)
            kept &= cleaning(stores[max(stores)], options.batches, kind)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
