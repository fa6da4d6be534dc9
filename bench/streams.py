"""A stream from the moment an item is durable, as ratios in one run.

Latency: one item at a time, from accepted (the answer 202) to visible in the destination. Against a bare
`foreachBatch` query of Spark that reads the same items from files, joins the same static table and writes Parquet; what
it has written is visible when its job has ended. Both on two cores, one of them at a time; with a static table of
1 thousand rows, and with one of 1 million.

    at most as long as the bare query, and a median below 1 s

Static sources: batches of 1,000 items joined with a table of 1 thousand rows and with one of 1 million.

    an item costs at most 1.2 times as much with the large one
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure import pair_ratio, show, verdict
from opendataflow.intake.log import IntakeLog
from opendataflow.store import open_store
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.streams import committed_end

DATAFLOW = str(Path(sys.executable).parent / "dataflow")
PROJECT = """\
name: Bench
environments: {dev: {root: ./data}}
spark: {master: "local[2]"}
datasets:
  cities: {path: cities.csv, schema: {city: int, country: string}, partitions: none}
  leads: {path: leads}
pipelines:
  - slug: leads
    mode: stream
    sources: [cities]
    destination: leads
    transformations: [clean]
    stream: {schema: {id: bigint, email: string, city: int}, max_batch: 10000, every: 10ms}
"""
CLEAN = """\
from pyspark.sql import functions as F


def run(df, stream=None):
    return stream.withColumn("email", F.lower("email")).join(df, "city")
"""
PAUSE_SECONDS = 0.05


class Ours:
    """A project with a stream, its runner in the background."""

    def __init__(self, folder: Path, cities: int) -> None:
        self.folder, self._cities, self.sent = folder, cities, 0
        (folder / "data").mkdir(parents=True)
        (folder / "pipelines/leads").mkdir(parents=True)
        (folder / "project.yml").write_text(PROJECT)
        (folder / "pipelines/leads/clean.py").write_text(CLEAN)
        write_cities(folder / "data/cities.csv", cities)
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("DATAFLOW_")}
        for argv in (["apply"], ["ready", "cities", "full"]):
            subprocess.run([DATAFLOW, *argv], cwd=folder, env=self._env, check=True, capture_output=True)
        self.log = IntakeLog(str(folder / ".dataflow/streams/bench/leads"))
        self._store: LoopStore = open_store(f"sqlite:///{folder}/.dataflow/state.db", actor="bench")
        self._job = self._store.get_job("leads", project="bench")

    @contextmanager
    def running(self) -> Iterator[None]:
        log = open(self.folder / "runner.log", "w")  # noqa: SIM115  as long as the process
        runner = subprocess.Popen([DATAFLOW, "run", "leads"], cwd=self.folder, env=self._env, stdout=log, stderr=log)
        try:
            yield
        finally:
            runner.terminate()
            runner.wait()
            log.close()

    def send(self, count: int) -> float:
        """Seconds from accepted to visible."""
        items = [item(number, self._cities) for number in range(self.sent, self.sent + count)]
        self.sent += count
        end = self.log.append(json.dumps(items).encode(), count).end
        begun = time.perf_counter()
        wait_until(lambda: committed_end(self._store, self._job) >= end)
        return time.perf_counter() - begun


class Bare:
    """The same with nothing but Spark: a file for each item, a query that is all the bookkeeping there is."""

    def __init__(self, folder: Path, cities: int) -> None:
        from opendataflow.spark.session import start_session

        self.folder, self._cities, self.sent = folder, cities, 0
        for name in ("in", "out", "new"):
            (folder / name).mkdir(parents=True)
        write_cities(folder / "cities.csv", cities)
        self._spark = start_session({"master": "local[2]"}, name="bare", scratch=str(folder / "scratch"))
        options = {"header": True, "schema": "city int, country string"}
        self._static = self._spark.read.csv(str(folder / "cities.csv"), **options).persist()
        self._static.count()
        self._done = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        from pyspark.sql import functions as F

        def each(df: Any, number: int) -> None:
            joined = df.withColumn("email", F.lower("email")).join(self._static, "city")
            joined.coalesce(1).write.parquet(str(self.folder / "out" / f"{self.sent}-{number}"))
            self._done = self.sent

        source = self._spark.readStream.schema("id bigint, email string, city int").json(str(self.folder / "in"))
        writer = source.writeStream.foreachBatch(each).option("checkpointLocation", str(self.folder / "checkpoint"))
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            yield
        finally:
            query.stop()

    def send(self, count: int) -> float:
        items = [item(number, self._cities) for number in range(self.sent, self.sent + count)]
        self.sent += count
        new = self.folder / "new" / f"{self.sent}.json"
        with open(new, "w") as file:
            file.write("".join(json.dumps(one) + "\n" for one in items))
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.folder / "in" / new.name)
        begun, end = time.perf_counter(), self.sent
        wait_until(lambda: self._done >= end)
        return time.perf_counter() - begun

    def close(self) -> None:
        self._spark.stop()


def item(number: int, cities: int) -> dict[str, Any]:
    return {"id": number, "email": f"Somebody{number}@Example.org", "city": number * 7919 % cities}


def write_cities(path: Path, rows: int) -> None:
    path.write_text("city,country\n" + "".join(f"{number},country {number % 200}\n" for number in range(rows)))


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    give_up = time.perf_counter() + seconds
    while not condition():
        if time.perf_counter() > give_up:
            raise SystemExit(f"not published after {seconds:g} s; see runner.log")
        time.sleep(0.002)


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def latency(folder: Path, rounds: int, each: int, cities: int) -> bool:
    print(f"Latency of single items, {rounds} rounds of {each}, {cities:,} static rows")
    ours, bare = Ours(folder / "ours", cities), Bare(folder / "bare", cities)
    found: dict[str, list[float]] = {"stream": [], "bare query": []}
    with ours.running():
        ours.send(1)
        for _ in range(rounds):
            for name, way in (("stream", ours), ("bare query", bare)):
                with bare.running() if way is bare else nothing():
                    for number in range(each + 3):
                        seconds = way.send(1)
                        if number >= 3:  # the first ones find cold caches
                            found[name].append(seconds)
                        time.sleep(PAUSE_SECONDS)
    bare.close()
    middle = {name: show(name, values) for name, values in found.items()}
    print(f"  p95: stream {p95(found['stream']) * 1e3:.0f} ms, bare query {p95(found['bare query']) * 1e3:.0f} ms")
    high = p95(found["stream"]) / p95(found["bare query"])
    kept = [
        verdict("p50 until visible, over the bare query", middle["stream"] / middle["bare query"], at_most=1.0),
        verdict("p95 until visible, over the bare query", high, at_most=1.0),
        verdict("seconds until visible, p50", middle["stream"], at_most=1.0),
    ]
    return all(kept)


@contextmanager
def nothing() -> Iterator[None]:
    yield


def static_sources(folder: Path, times: int, items: int) -> bool:
    print(f"Batches of {items} items with a small and a large static source")
    small, large = Ours(folder / "small", 1_000), Ours(folder / "large", 1_000_000)
    found: dict[str, list[float]] = {"1 thousand rows": [], "1 million rows": []}
    with small.running(), large.running():
        for number in range(times + 5):
            for name, way in (("1 thousand rows", small), ("1 million rows", large)):
                seconds = way.send(items)
                if number >= 5:
                    found[name].append(seconds)
                time.sleep(PAUSE_SECONDS)
    for name, values in found.items():
        show(f"an item, {name}", [value / items for value in values], unit="µs", scale=1e6)
    ratio = pair_ratio("1 million over 1 thousand", found["1 million rows"], found["1 thousand rows"])
    return verdict("cost of an item with a large static source", ratio, at_most=1.2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--each", type=int, default=15)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--only", choices=["latency", "static"])
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="dataflow-bench-"))
    os.environ["DATAFLOW_RUNTIME_DIR"] = str(folder / "drivers")  # of this measurement alone
    (folder / "drivers").mkdir(mode=0o700)
    try:
        kept = True
        for cities in (1_000, 1_000_000) if asked.only != "static" else ():
            kept = latency(folder / f"latency-{cities}", asked.rounds, asked.each, cities) and kept
        kept = (asked.only == "latency" or static_sources(folder / "static", asked.batches, 1000)) and kept
    finally:
        subprocess.run([DATAFLOW, "spark", "stop", "--force"], cwd=folder, check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
