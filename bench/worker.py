"""A worker's speed: no-op script chunks through the whole loop, durability on.

(a) Chunks per second through one worker, against bare fork/exec of the same script (one after the other, as fast as
    the machine starts them) in the same run: at least 0.6.
(c) The same with 1 million completed chunks behind: at least 0.9 of the fresh rate.
(d) 1, 2 and 4 workers on one PostgreSQL store.
(e) An idle worker: statements per minute, and processor time.
"""

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from measure import show, verdict

DATAFLOW = [str(Path(sys.executable).parent / "dataflow")]
PROJECT = """\
name: bench
environments: {{dev: {{store: "{store}"}}}}
datasets: {{in_0: {{}}, done: {{}}}}
jobs: {{nop: {{script: jobs/nop.sh, inputs: [in_0], outputs: [done]}}}}
"""
READY = (
    "insert into datastatus (datasetid, dataid, locktype, status) "
    "with recursive n(i) as (select {first} union all select i + 1 from n where i < {last}) "
    "select 'in_0', cast(i as text), 'OUT', 'READY' from n"
)


class Store:
    """A project over one store, and direct SQL on it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        (folder / "jobs").mkdir(parents=True)
        script = folder / "jobs" / "nop.sh"
        script.write_text("#!/bin/sh\nexit 0\n")
        script.chmod(0o755)
        self.script = str(script)
        (folder / "project.yml").write_text(PROJECT.format(store=url))
        subprocess.run([*DATAFLOW, "apply"], cwd=folder, check=True, capture_output=True)
        self.made = 0

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        if self.url.startswith("sqlite"):
            import sqlite3

            with sqlite3.connect(self.folder / ".dataflow" / "state.db", timeout=60) as connection:
                return connection.execute(statement).fetchall()
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def make_ready(self, n: int) -> None:
        self.sql(READY.format(first=self.made + 1, last=self.made + n))
        self.made += n

    def work(self, workers: int, slots: int) -> float:
        """Chunks per second of the runs that these workers make: from the first claim to the last end."""
        (last,) = self.sql("select coalesce(max(runid), 0) from run")[0]
        argv = [*DATAFLOW, "worker", "--once", "--slots", str(slots), "--json"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        running = [subprocess.Popen(argv, cwd=self.folder, **quiet) for _ in range(workers)]
        for one in running:
            assert one.wait() == 0, one.returncode
        found = self.sql(
            f"select count(*), min(claimed_at), max(ended_at) from run where runid > {last} and status = 'COMPLETE'"
        )[0]
        first, end = (moment(text) for text in found[1:])
        return float(found[0]) / (end - first)


def moment(text: object) -> float:
    return datetime.fromisoformat(str(text)).timestamp()


def bare_rate(script: str, seconds: float) -> float:
    """Fork/exec of the script, again and again, from a process that does nothing else."""
    program = (
        "import os, sys, time\n"
        "script, end, n = sys.argv[1], time.perf_counter() + float(sys.argv[2]), 0\n"
        "start = time.perf_counter()\n"
        "while time.perf_counter() < end:\n"
        "    os.waitpid(os.posix_spawn(script, [script], os.environ), 0); n += 1\n"
        "print(n / (time.perf_counter() - start))\n"
    )
    argv = [sys.executable, "-S", "-c", program, script, str(seconds)]
    return float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def against_bare(store: Store, title: str, *, times: int, n: int, slots: int) -> bool:
    """(a)"""
    bare, ours = [], []
    for _ in range(times):
        store.make_ready(n)
        bare.append(bare_rate(store.script, 1.5))
        ours.append(store.work(1, slots))
    print(f"No-op chunks, {title}, {slots} slots:")
    show("bare fork/exec", bare, unit="/s", scale=1.0)
    show("one worker", ours, unit="/s", scale=1.0)
    ratio = statistics.median(one / other for one, other in zip(ours, bare, strict=True))
    return verdict(f"worker / bare fork/exec, {title}", ratio, at_least=0.6)


def with_a_past(fresh: Store, old: Store, title: str, *, times: int, n: int, slots: int, behind: int) -> bool:
    """(c)"""
    from fill import fill_past
    from opendataflow.store import open_store

    opened = open_store(
        old.url.replace("sqlite:///", f"sqlite:///{old.folder}/"), actor="bench@here:1", environment="dev"
    )
    fill_past(opened, behind=behind, ahead=0, inputs=1)
    opened.close()
    old.made = behind
    rates: dict[str, list[float]] = {"fresh": [], "old": []}
    for turn in range(times):
        for name, store in (("fresh", fresh), ("old", old))[:: 1 if turn % 2 == 0 else -1]:
            store.make_ready(n)
            rates[name].append(store.work(1, slots))
    print(f"{behind} completed chunks behind, {title}:")
    for name, values in rates.items():
        show(name, values, unit="/s", scale=1.0)
    ratio = statistics.median(rates["old"]) / statistics.median(rates["fresh"])
    return verdict(f"with {behind} chunks behind / fresh, {title}", ratio, at_least=0.9)


def several(store: Store, *, times: int, n: int, slots: int) -> None:
    """(d)"""
    rates: dict[int, list[float]] = {1: [], 2: [], 4: []}
    for _ in range(times):
        for workers, found in rates.items():
            store.make_ready(n)
            found.append(store.work(workers, slots))
    print(f"Workers on one PostgreSQL store, {slots} slots each:")
    for workers, values in rates.items():
        show(f"{workers} workers", values, unit="/s", scale=1.0)


def idle(store: Store, statements: Callable[[], int] | None, *, seconds: float) -> None:
    """(e)"""
    running = subprocess.Popen(
        [*DATAFLOW, "worker", "--slots", "2"], cwd=store.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(5)
    before, used = statements() if statements else 0, processor_seconds(running.pid)
    time.sleep(seconds)
    after, more = statements() if statements else 0, processor_seconds(running.pid)
    running.send_signal(signal.SIGTERM)
    running.wait()
    print(f"An idle worker over {seconds:g} s:")
    if statements:
        print(f"  statements per minute              {(after - before) / seconds * 60:9.1f}")
    print(f"  processor time, part of one        {(more - used) / seconds:9.4f}")


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["bare", "past", "several", "idle"])
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--chunks", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--behind", type=int, default=1_000_000)
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    options = parser.parse_args()
    kept = True
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    same = {"times": options.times, "n": options.chunks, "slots": options.slots}
    with tempfile.TemporaryDirectory(prefix="dataflow-bench-") as temporary:
        folder = Path(temporary)
        if options.only != "postgres":
            embedded = "sqlite:///.dataflow/state.db"
            fresh = Store(folder / "sqlite", embedded)
            if options.part in (None, "bare"):
                kept &= against_bare(fresh, "SQLite", **same)
            if options.part in (None, "past"):
                kept &= with_a_past(fresh, Store(folder / "old", embedded), "SQLite", behind=options.behind, **same)
            if options.part in (None, "idle"):
                idle(Store(folder / "idle", embedded), None, seconds=options.idle_seconds)
        if options.only != "sqlite":
            from support.postgres import postgres

            with postgres() as server:
                fresh = Store(folder / "postgres", server.new_database("fresh"))
                if options.part in (None, "bare"):
                    kept &= against_bare(fresh, "PostgreSQL", **same)
                if options.part in (None, "several"):
                    several(fresh, **same)
                if options.part in (None, "idle"):
                    idle(fresh, lambda: statements_of(server), seconds=options.idle_seconds)
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if kept else 1


def statements_of(server: Any) -> int:
    """Transactions of the worker's database so far: outside a transaction each statement is one."""
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("select pg_stat_force_next_flush()")
        row = connection.execute("select xact_commit from pg_stat_database where datname = 'fresh'").fetchone()
        return int(row[0]) if row else 0


if __name__ == "__main__":
    sys.exit(main())
