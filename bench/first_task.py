"""From the call of a pipeline to its first Spark task, for CSV chunks of two sizes, as a ratio in one run.

What is done before is not to grow with the data: the large chunk's first task begins at most 1.2 times as late as the
small one's. Once with values without quotes, once with quotes in them, where Spark looks through the lines first.
The rest of the job is cancelled, since only its beginning is measured.
"""

import argparse
import itertools
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from measure import pair_ratio, show, verdict
from opendataflow.spark.pipeline import Task, read_codes
from opendataflow.spark.scratch import scratch_folder
from opendataflow.spark.session import start_session
from opendataflow.spark.spec import ChunkSpec, Place

GIGABYTE = 10**9
AT_MOST = 1.2
SCHEMA = {"id": "bigint", "name": "string", "price": "double"}
ROWS = {
    "without quotes": "".join(f"{number},somebody or other {number},{number}.25\n" for number in range(20_000)),
    "with quotes": "".join(f'{number},"somebody, or other {number}",{number}.25\n' for number in range(20_000)),
}
_POLL_SECONDS = 0.001


def write_csv(path: Path, rows: str, size: float) -> None:
    block = rows.encode()
    with path.open("wb") as file:
        file.write((",".join(SCHEMA) + "\n").encode())
        for _ in range(max(1, round(size / len(block)))):
            file.write(block)


class FirstTask:
    """A pipeline of one filter in a warm session, up to its first task."""

    def __init__(self, spark: Any, home: Path) -> None:
        self._context, self._home, self._runs = spark.sparkContext, home, itertools.count(1)
        self._spark = spark
        folder = home / "pipelines" / "p"
        folder.mkdir(parents=True)
        (folder / "step.py").write_text("def run(df):\n    return df.where('price > 10')\n")

    def seconds(self, source: Path) -> float:
        spec = self._spec(source)
        begun: list[float] = []
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(begun, over))
        start = time.perf_counter()
        watcher.start()
        list(Task(self._spark, read_codes(spec), hear=lambda _spec, **_said: None).run([spec]))
        over.set()
        watcher.join()
        shutil.rmtree(spec.destination.location, ignore_errors=True)
        assert begun, "no task was seen"
        return begun[0] - start

    def _watch(self, begun: list[float], over: threading.Event) -> None:
        tracker = self._context.statusTracker()
        while not over.is_set():
            # A stage is there when its tasks are submitted; how many of them run, Spark says some seconds late.
            if not begun and tracker.getActiveStageIds():
                begun.append(time.perf_counter())
            if begun:
                self._context.cancelAllJobs()  # again and again: the failure is looked into by jobs, too
            time.sleep(_POLL_SECONDS)

    def _spec(self, source: Path) -> ChunkSpec:
        run = next(self._runs)
        place = Place(datasetid="in", location=str(source), format="csv", options={}, schema=SCHEMA)
        out = Place(datasetid="out", location=str(self._home / f"out-{run}"), format="parquet", options={}, schema=None)
        return ChunkSpec(
            home=str(self._home), slug="p", transformations=("step",), dataid="full", runid=run, spark={},
            environment={}, sources=(place,), destination=out,
        )  # fmt: skip


def compare(first: FirstTask, folder: Path, kind: str, sizes: list[float], *, times: int) -> bool:
    sources = {size: folder / f"{size:g}.csv" for size in sizes}
    for size, path in sources.items():
        write_csv(path, ROWS[kind], size * GIGABYTE)
    found: dict[float, list[float]] = {size: [] for size in sizes}
    for round_ in range(-2, times):  # two to warm up
        for size in sizes if round_ % 2 else reversed(sizes):
            seconds = first.seconds(sources[size])
            if round_ >= 0:
                found[size].append(seconds)
    small, large = sizes
    for size in sizes:
        show(f"{size:g} GB {kind}", found[size])
    ratio = pair_ratio(f"{large:g} GB / {small:g} GB", found[large], found[small])
    for path in sources.values():
        path.unlink()
    return verdict(f"first task of {large:g} GB of CSV {kind} against {small:g} GB", ratio, at_most=AT_MOST)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1,10", help="two sizes in gigabytes; the files are in TMPDIR meanwhile")
    parser.add_argument("--times", type=int, default=9, help="rounds")
    options = parser.parse_args()
    sizes = sorted(float(part) for part in options.sizes.split(","))
    print(f"(load average {os.getloadavg()[0]:.2f}, {len(os.sched_getaffinity(0))} cores)")
    kept = True
    with tempfile.TemporaryDirectory(prefix="dataflow-bench-") as name, scratch_folder() as scratch:
        spark = start_session({"master": "local[*]"}, name="bench", scratch=scratch)
        first = FirstTask(spark, Path(name))
        for kind in ROWS:
            kept &= compare(first, Path(name), kind, sizes, times=options.times)
        spark.stop()
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
