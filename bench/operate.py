"""Looking and registering: `status` and `why` hardly grow with the past, and a large project is applied in seconds.

(a) The whole commands, as an operator types them, with 1 thousand and 1 million completed chunks behind and the same
    work open: at most 2 times.
(b) `dataflow apply` of 700 jobs and 2,000 datasets into an empty store: under 5 seconds.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from claims import addresses, new_store
from fill import fill_past
from measure import show, verdict

BIN = Path(sys.executable).parent


def command(store: str, *argv: str, folder: str) -> float:
    """Seconds of one command, from start to end."""
    env = {**os.environ, "DATAFLOW_STORE": store, "DATAFLOW_PROJECT": "bench", "NO_COLOR": "1"}
    start = time.perf_counter()
    done = subprocess.run([str(BIN / "dataflow"), *argv], cwd=folder, env=env, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    assert done.returncode == 0, done.stderr
    return seconds


def open_work(store: object) -> None:
    """The same on both sides: some that failed, some that wait."""
    with store.transaction() as tx:  # type: ignore[attr-defined]
        for number in range(10_000_000, 10_000_200):
            tx.run("expect", {"project": "bench", "jobid": "nop", "dataid": str(number)})


def looking(address: Callable[[str], str], sizes: list[int], times: int, title: str) -> bool:
    kept = True
    stores = {}
    for size in sizes:
        url = address(f"look_{size}")
        store = new_store(url, inputs=3)
        fill_past(store, behind=size, ahead=1000, inputs=3)
        open_work(store)
        store.close()
        stores[size] = url
    with tempfile.TemporaryDirectory() as folder:
        for argv in (["status"], ["why"], ["why", "nop", "5"]):
            found: dict[int, list[float]] = {size: [] for size in sizes}
            for number in range(times + 1):
                for size in sizes if number % 2 else reversed(sizes):
                    seconds = command(stores[size], *argv, folder=folder)
                    if number:
                        found[size].append(seconds)
            print(f"dataflow {' '.join(argv)}, {title}:")
            medians = [show(f"{size:>9,} behind", found[size]) for size in sizes]
            name = f"dataflow {' '.join(argv)}, {sizes[-1]:,} behind / {sizes[0]:,} behind, {title}"
            kept &= verdict(name, medians[-1] / medians[0], at_most=2.0)
    return kept


def big_project() -> str:
    lines = ["name: Bench", "datasets:"]
    lines += [
        f'  d{n}: {{path: "d{n}/{{dataid}}.csv", format: csv, partitions: {{daily: 2025-01-01..2025-01-05}}}}'
        for n in range(2000)
    ]
    lines.append("jobs:")
    lines += [
        f"  j{n}: {{script: jobs/j{n}.sh, inputs: [d{n}, d{n + 1}], outputs: [d{n + 1200}], retries: {{max: 2}}}}"
        for n in range(700)
    ]
    return "\n".join(lines) + "\n"


def applying(address: Callable[[str], str], times: int, title: str) -> bool:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "project.yml").write_text(big_project())
        for number in range(times):
            found.append(command(address(f"apply_{number}"), "apply", folder=folder))
    show(f"apply 700 jobs, 2,000 datasets, {title}", found, unit="s", scale=1.0)
    return verdict(f"seconds to apply 700 jobs and 2,000 datasets, {title}", statistics.median(found), at_most=5.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=lambda text: [int(part) for part in text.split(",")], default=[1000, 1_000_000])
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--only", choices=["SQLite", "PostgreSQL"])
    options = parser.parse_args()
    kept = True
    for kind in [options.only] if options.only else ["SQLite", "PostgreSQL"]:
        with addresses(kind) as address:
            kept &= applying(address, 3, kind)
            kept &= looking(address, options.sizes, options.times, kind)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
