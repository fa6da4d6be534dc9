"""Pipelines against what one would write by hand, as ratios in one run; the start of a session is apart.

(a) Three transformations of examples/flights over 5 million rows against the same functions in a plain PySpark script,
    in the same session: at most 1.05.
(b) All checks that need one pass, on against off, on the same rows: at most 1.10.
(c) Daily chunks of examples/flights through `dataflow run`: one at a time, four at a time, 50 chunks in one job; and a
    hand-written warm loop, with one thread and with four. One at a time at most 1.8 times the loop's time, four at a
    time at most 1.3 times that of the loop with four threads; in one job at least 4 times as fast as one at a time.
    `dataflow run` of one chunk and `dataflow validate` from a shell, with a driver that is there against one that must
    start: at most 0.2. The memory of four processes of chunks beside their JVM.
(d) The pandas project of examples/leads: `dataflow run` of one row as in (c); and in plain pandas against the pandas
    engine: time and peak memory.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=["a", "b", "c", "d"], help="may be given several times")
    parser.add_argument("--rows", type=int, default=5_000_000, help="of (a) and (b)")
    parser.add_argument(
        "--sizes", type=lambda text: [int(part) for part in text.split(",")], default=[1_000, 100_000, 1_000_000]
    )
    parser.add_argument("--times", type=int, default=9, help="rounds of (a), (b) and (d)")
    parser.add_argument("--rounds", type=int, default=5, help="of (c): each is a block of days for every way")
    parser.add_argument("--warm-up", type=int, default=2, help="rounds of (c) that are not counted")
    parser.add_argument("--days", type=int, default=24, help="in a block of (c); 50 where they are one job")
    parser.add_argument("--processes", type=int, default=10, help="of (c) and (d): commands from a shell")
    options = parser.parse_args()
    parts = options.part or ["a", "b", "c", "d"]
    print(f"(load average {os.getloadavg()[0]:.2f}, {len(os.sched_getaffinity(0))} cores)")
    kept = True
    with tempfile.TemporaryDirectory(prefix="dataflow-bench-") as name:
        folder = Path(name)
        if "a" in parts or "b" in parts:
            from pipelines_rows import many_rows

            kept &= many_rows(EXAMPLES / "flights", folder, parts, rows=options.rows, times=options.times)
        if "c" in parts:
            from pipelines_chunks import small_chunks

            kept &= small_chunks(
                EXAMPLES / "flights", folder, rounds=options.rounds, warm_up=options.warm_up, days=options.days,
                processes=options.processes,
            )  # fmt: skip
        if "d" in parts:
            from pipelines_pandas import pandas_engine

            kept &= pandas_engine(
                EXAMPLES / "leads", folder, sizes=options.sizes, times=options.times, processes=options.processes
            )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
