"""The faults of a queue: the rate of a worker afterwards against the rate before, in the same run, for each fault.

No-op script chunks through one worker of four slots. A second worker, with a store of its own that nothing happens to,
does the same beside it: a noisy minute of the machine is in both, so rates are told as parts of the other's. They are
taken over some seconds before the fault, and again when it is over and the worker does chunks again; how long that took
is told. `nothing` is no fault at all. The ratio is the median of those of all rounds. At least 0.95.
"""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from measure import pair_ratio, show, verdict
from support import projects
from support.chaos.stores import Failing, Postgres, failing_store, hold_open
from support.projects import Project

PROJECT = """\
name: bench
environments: {dev: {root: ./data}}
datasets: {shards: {}, done: {}}
jobs: {nop: {script: jobs/nop.sh, inputs: [shards], outputs: [done], lease: 5s}}
"""
READY = (
    "insert into datastatus (datasetid, dataid, locktype, status) "
    "with recursive n(i) as (select {first} union all select i + 1 from n where i < {last}) "
    "select 'shards', cast(i as text), 'OUT', 'READY' from n"
)
SLOTS = 4
LEASE_SECONDS = 5.0
AT_WORK = 100  # chunks after which it is at work again
LINES = 20  # of output of each script, so that a disk of logs can fill


class Bench:
    """A worker with more to do than it can, and faults for it."""

    def __init__(self, folder: Path, store: Failing) -> None:
        self.store = store
        self.project = Project(folder / "project", store.url)
        self.project.script("jobs/nop.sh", f"printf '{'.' * 79}\\n%.0s' {{1..{LINES}}}")
        self.logs = self.project.folder / ".dataflow" / "logs"
        self.logs.mkdir(parents=True)
        self._is_mounted = self._mount_logs()
        if not self._is_mounted:
            print("  a tmpfs cannot be mounted here: no full disk, and more noise")
        self._made = self._ended_before = self._from_run = 0
        self.project.apply(PROJECT)
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
        if self._is_mounted:
            self._unmount_logs()

    def kill(self) -> None:
        assert self._worker is not None
        self._worker.kill()
        self._worker.wait()

    def _ended(self) -> int:
        ended = f"select count(*) from run where runid >= {self._from_run} and status = 'COMPLETE'"
        return self._ended_before + int(self.project.sql(ended)[0][0])

    def _count_from_here(self) -> None:
        """What ended so far need not be counted again: with all rounds behind, that would be a load of its own."""
        first = "select coalesce(min(runid), (select max(runid) from run), 0) from run where status = 'RUNNING'"
        from_run = int(self.project.sql(first)[0][0])
        older = f"runid >= {self._from_run} and runid < {from_run}"
        ended = f"select count(*) from run where {older} and status = 'COMPLETE'"
        self._ended_before += int(self.project.sql(ended)[0][0])
        self._from_run = from_run

    def give_work(self, n: int) -> None:
        """Make so many ready as are missing from n; with empty logs."""
        if self._is_mounted:
            self._unmount_logs()
            self._mount_logs()
        self._count_from_here()
        missing = n - (self._made - self._ended())
        if missing > 0:
            self.project.sql(READY.format(first=self._made + 1, last=self._made + missing))
            self._made += missing

    def progress(self) -> tuple[int, float]:
        """How many chunks are done, by the store's own count, and when that was so."""
        at = time.perf_counter()
        ended = self._ended()
        assert ended < self._made, "it had nothing left to do; give more --work"
        return ended, at

    def wait_until_at_work(self) -> float:
        """Until it has done some chunks from now on; returns the seconds."""
        start, target = time.perf_counter(), self._ended() + AT_WORK
        while self._ended() < target:
            time.sleep(0.05)
        return time.perf_counter() - start

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
        if self._is_mounted:
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

    # The logs ---------------------------------------------------------------------------------------------------------
    def _mount_logs(self, size: str = "1g") -> bool:
        """An empty folder of logs in memory: ext4 makes files slowly for minutes after a bench removed its own."""
        made = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(self.logs)]
        return subprocess.run(made, capture_output=True).returncode == 0

    def _unmount_logs(self) -> None:
        subprocess.run(["umount", "-l", str(self.logs)], check=True)

    def _full_disk(self) -> None:
        if self._mount_logs("256k"):
            time.sleep(3.0)
            self._unmount_logs()


def rates(benches: Sequence[Bench], seconds: float) -> list[float]:
    """Chunks a second of each, over the same seconds."""
    before = [one.progress() for one in benches]
    time.sleep(seconds)
    after = [one.progress() for one in benches]
    return [(done - was) / (at - since) for (was, since), (done, at) in zip(before, after, strict=True)]


def measure(bench: Bench, other: Bench, title: str, options: argparse.Namespace) -> bool:
    faults = {name: fault for name, fault in bench.faults().items() if options.fault in name}
    shares: dict[str, list[list[float]]] = {name: [[], []] for name in faults}
    until_back: dict[str, list[float]] = {name: [] for name in faults}
    for number in range(options.times):
        # Never the same one before it: what a fault leaves to be done a minute later would be another one's.
        for name, fault in random.Random(number).sample(sorted(faults.items()), len(faults)):
            for one in (bench, other):
                one.give_work(options.work)
            for one in (bench, other):
                one.wait_until_at_work()
            before = rates((bench, other), options.seconds)
            fault()
            until_back[name].append(bench.wait_until_at_work())
            after = rates((bench, other), options.seconds)
            for kept, (mine, others) in zip(shares[name], (before, after), strict=True):
                kept.append(mine / others)
            told = f"{before[0]:.0f}/s, {after[0]:.0f}/s; beside it {before[1]:.0f}/s, {after[1]:.0f}/s"
            print(f"  round {number + 1}, {name}: {told}", file=sys.stderr, flush=True)
    all_kept = True
    print(f"No-op chunks through one worker, as a part of what another does beside it, {title}:")
    for name, (before, after) in shares.items():
        print(f" {name}")
        show("before", before, unit="  ", scale=1.0)
        show("after", after, unit="  ", scale=1.0)
        show("until at work", until_back[name], unit="s ", scale=1.0)
        ratio = pair_ratio("after / before", after, before)
        all_kept &= verdict(f"rate after / before, {name}, {title}", ratio, at_least=0.95)
    return all_kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--fault", default="", help="only those with this in their name")
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--work", type=int, default=24000, help="chunks that are ready before each fault")
    options = parser.parse_args()
    if options.times < 2:
        parser.error("--times is 2 or more")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    kept = True
    for kind, title in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        if options.only not in (None, kind):
            continue
        with tempfile.TemporaryDirectory(prefix="dataflow-bench-") as temporary, contextlib.ExitStack() as ends:
            benches = []
            for name in ("faults", "beside"):
                folder = Path(temporary, name)
                folder.mkdir()
                store = ends.enter_context(failing_store(kind, folder))
                benches.append(Bench(folder, store))
                ends.callback(benches[-1].stop)
                benches[-1].start()
            kept &= measure(*benches, title, options)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
