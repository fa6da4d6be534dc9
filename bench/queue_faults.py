"""The faults of a queue: the rate of a worker afterwards against the rate before, in the same run, for each fault.

No-op script chunks through one worker of four slots. Each fault is over, and the worker has done some hundred chunks
again, before the rate afterwards is measured; `nothing` is no fault at all, and shows what the machine's own noise is.
The ratio is of the medians of all rounds. At least 0.95.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measure import show, verdict
from support import projects
from support.chaos.stores import Failing, Postgres, failing_store, hold_open
from support.projects import Project

PROJECT = """\
name: bench
environments: {{dev: {{root: ./data}}}}
datasets: {{shards: {{partitions: {{shards: 1..{n}}}}}, done: {{}}}}
jobs: {{nop: {{script: jobs/nop.sh, inputs: [shards], outputs: [done], lease: 5s}}}}
"""
READY = (
    "insert into datastatus (datasetid, dataid, locktype, status) "
    "with recursive n(i) as (select {first} union all select i + 1 from n where i < {last}) "
    "select 'shards', cast(i as text), 'OUT', 'READY' from n"
)
SLOTS = 4
LEASE_SECONDS = 5.0
LINES = 20  # of output of each script, so that a disk of logs can fill


class Bench:
    """A worker with more to do than it can, and faults for it."""

    def __init__(self, folder: Path, store: Failing, *, chunks: int, seconds: float) -> None:
        self.store, self._seconds = store, seconds
        self.project = Project(folder / "project", store.url)
        self.project.script("jobs/nop.sh", f"printf '{'.' * 79}\\n%.0s' {{1..{LINES}}}")
        self.logs = self.project.folder / ".dataflow" / "logs"
        self.logs.mkdir(parents=True)
        self._made = 0
        self.project.apply(PROJECT.format(n=chunks))
        self._worker: subprocess.Popen[bytes] | None = None

    # The worker -----------------------------------------------------------------------------------------------------
    def start(self) -> None:
        argv = [projects.DATAFLOW, "worker", "--slots", str(SLOTS)]
        env = self.project.env(DATAFLOW_STORE=self.store.last_url)
        with (self.project.folder / "worker.log").open("ab") as log:
            self._worker = subprocess.Popen(argv, cwd=self.project.folder, env=env, stdout=log, stderr=log)

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.terminate()
            self._worker.wait()

    def kill(self) -> None:
        assert self._worker is not None
        self._worker.kill()
        self._worker.wait()

    def _ended(self) -> int:
        return int(self.project.sql("select count(*) from run where status = 'COMPLETE'")[0][0])

    def give_work(self, n: int) -> None:
        """Make so many ready as are missing from n."""
        missing = n - (self._made - self._ended())
        if missing > 0:
            self.project.sql(READY.format(first=self._made + 1, last=self._made + missing))
            self._made += missing

    def rate(self) -> float:
        """Chunks per second over the next seconds, by the store's own count."""
        before, at = self._ended(), time.perf_counter()
        time.sleep(self._seconds)
        after, now = self._ended(), time.perf_counter()
        assert after < self._made, "it had nothing left to do; give more --chunks"
        return (after - before) / (now - at)

    def wait_until_at_work(self) -> None:
        target = self._ended() + 500
        while self._ended() < target:
            time.sleep(0.05)

    # The faults -----------------------------------------------------------------------------------------------------
    def faults(self) -> dict[str, Callable[[], None]]:
        found: dict[str, Callable[[], None]] = {
            "nothing": lambda: time.sleep(1.0),
            "restart of the store": lambda: print(f"  {self.store.restart(seconds=0.5, pick=0.0)}"),
            "worker killed five times": self._kills,
            "reader with an open transaction": self._reader,
        }
        if isinstance(self.store, Postgres):
            found["dropped connections"] = self._drops
            found["cut off for longer than its lease"] = self._cut
        if self._can_mount():
            found["full disk of logs"] = self._full_disk
        return found

    def _kills(self) -> None:
        for _ in range(5):
            self.kill()
            self.start()
            time.sleep(1.0)

    def _reader(self) -> None:
        reader = hold_open(self.store.url)
        time.sleep(5.0)
        reader.kill()
        reader.communicate()

    def _drops(self) -> None:
        for _ in range(5):
            self.store.drop()
            time.sleep(0.3)

    def _cut(self) -> None:
        self.store.cut()
        time.sleep(LEASE_SECONDS + 1.0)
        self.store.mend()

    def _can_mount(self) -> bool:
        if subprocess.run(self._mount("1m"), capture_output=True).returncode:
            print("  a tmpfs cannot be mounted here: no full disk")
            return False
        subprocess.run(["umount", "-l", str(self.logs)], check=True)
        return True

    def _mount(self, size: str) -> list[str]:
        return ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(self.logs)]

    def _full_disk(self) -> None:
        subprocess.run(self._mount("256k"), check=True)
        time.sleep(3.0)
        subprocess.run(["umount", "-l", str(self.logs)], check=True)


def measure(bench: Bench, title: str, *, times: int, work: int) -> bool:
    faults = bench.faults()
    before: dict[str, list[float]] = {name: [] for name in faults}
    after: dict[str, list[float]] = {name: [] for name in faults}
    for _ in range(times):
        for name, fault in faults.items():
            bench.give_work(work)
            bench.wait_until_at_work()
            before[name].append(bench.rate())
            fault()
            bench.wait_until_at_work()
            after[name].append(bench.rate())
    kept = True
    print(f"No-op chunks through one worker, {title}:")
    for name in faults:
        show(f"before: {name}", before[name], unit="/s", scale=1.0)
        show(f"after:  {name}", after[name], unit="/s", scale=1.0)
        ratio = statistics.median(after[name]) / statistics.median(before[name])
        kept &= verdict(f"rate after / before, {name}, {title}", ratio, at_least=0.95)
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--work", type=int, default=12000, help="chunks that are ready before each fault")
    options = parser.parse_args()
    if options.times < 2:
        parser.error("--times is 2 or more")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    kept = True
    for kind, title in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        if options.only not in (None, kind):
            continue
        with tempfile.TemporaryDirectory(prefix="dataflow-bench-") as temporary, contextlib.ExitStack() as ends:
            store = ends.enter_context(failing_store(kind, Path(temporary)))
            bench = Bench(Path(temporary), store, chunks=options.work * options.times * 8, seconds=options.seconds)
            ends.callback(bench.stop)
            bench.start()
            kept &= measure(bench, title, times=options.times, work=options.work)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
