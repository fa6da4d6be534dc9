"""Parquet into PostgreSQL, against Spark's own JDBC writer, as ratios in one run; the start of a session is apart.

One chunk of 1 million rows through a pipeline without transformations: staged, published in one transaction with the
ledger's row. The JDBC writer at its best (reWriteBatchedInserts, a batch of 10 thousand) and as it is by default;
neither is atomic. Same rows, same table, same server over TCP; all values are compared in the database.

    at least as fast as the JDBC writer at its best, and 1.8 times its default

Peak memory of a session that writes once, apart: Spark's JVM, the driver and its workers together.
"""

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from measure import interleaved, pair_ratio, show, verdict
from opendataflow.spark.jvm import end_process, find_process
from opendataflow.spark.pipeline import Task
from opendataflow.spark.scratch import scratch_folder
from opendataflow.spark.session import start_session
from opendataflow.spark.spec import ChunkSpec, Database, Place

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

DRIVER = "/usr/share/java/postgresql.jar"  # Debian: libpostgresql-jdbc-java
DAY = "2025-01-01"
OURS, BEST, DEFAULT = "pipeline, atomic", "JDBC writer at its best", "JDBC writer by default"
WAYS = (OURS, BEST, DEFAULT)
TABLE = """
CREATE TABLE {name} (id bigint, customer integer, day date, at timestamptz, price numeric(12,2), weight float8,
                     is_paid boolean, item text, note text)
"""
JDBC: dict[str, tuple[str, dict[str, str]]] = {
    BEST: ("?reWriteBatchedInserts=true", {"batchsize": "10000"}),
    DEFAULT: ("", {}),
}


def make_rows(spark: SparkSession, folder: Path, rows: int) -> None:
    """As many files as a day of a busy table: numbers, times, money, short and longer text, some of it null."""
    ids = spark.range(0, rows, 1, 8)
    ids.select(
        "id",
        (F.col("id") % 50_000).cast("int").alias("customer"),
        F.lit(DAY).cast("date").alias("day"),
        F.timestamp_seconds(F.unix_timestamp(F.lit(f"{DAY} 00:00:00")) + F.col("id") % 86_400).alias("at"),
        ((F.col("id") * 7919 % 1_000_000) / 100).cast("decimal(12,2)").alias("price"),
        (F.col("id") % 1000 / 7).alias("weight"),
        F.when(F.col("id") % 11 > 0, F.col("id") % 3 == 0).alias("is_paid"),
        F.concat(F.lit("item-"), F.col("id") % 997).alias("item"),
        F.when(F.col("id") % 5 > 0, F.sha2(F.col("id").cast("string"), 256)).alias("note"),
    ).write.parquet(str(folder))


class Bench:
    def __init__(self, spark: SparkSession, source: Path, address: str) -> None:
        self._spark, self._source, self._address = spark, source, address
        self._runs = count(int(time.time()))
        self.names = {way: f"rows_{number}" for number, way in enumerate(WAYS)}

    def way(self, name: str) -> Callable[[], None]:
        return self._pipeline if name == OURS else lambda: self._jdbc(name)

    def _pipeline(self) -> None:
        database = Database(
            url=f"postgresql://postgres@{self._address}", options={}, table=self.names[OURS], partition_column="day",
            dataids=(DAY,), write="replace",
        )  # fmt: skip
        source = Place(datasetid="rows", location=str(self._source), format="parquet", options={}, schema=None)
        place = Place(datasetid="out", location="", format="sql", options={}, schema=None, database=database)
        run = next(self._runs)
        spec = ChunkSpec(
            home=str(self._source), slug="copy", transformations=(), dataid=DAY, runid=run, spark={}, environment={},
            sources=(source,), destination=place, published_run=run - 1, inputs_digest="same",
        )  # fmt: skip
        task = Task(self._spark, (), hear=lambda _spec, **_fields: None)
        ((_, result),) = task.run([spec])
        assert result["error"] is None, result["error"]

    def _jdbc(self, name: str) -> None:
        more, options = JDBC[name]
        rows = self._spark.read.parquet(str(self._source))
        url = f"jdbc:postgresql://{self._address}{more}"
        common = {"url": url, "dbtable": self.names[name], "user": "postgres", "driver": "org.postgresql.Driver"}
        rows.write.format("jdbc").options(**common, **options).mode("append").save()

    # Around each write ------------------------------------------------------------------------------------------------
    def settle(self) -> None:
        """All start alike: an empty table, nothing left to be collected or written to the disk."""
        with psycopg.connect(f"postgresql://postgres@{self._address}", autocommit=True) as connection:
            for name in self.names.values():
                if connection.execute("SELECT to_regclass(%s)", (name,)).fetchone() == (None,):
                    connection.execute(TABLE.format(name=name))
            self._look(connection)
            for name in self.names.values():
                connection.execute(f"TRUNCATE {name}")
            connection.execute("CHECKPOINT")
        jvm: Any = self._spark._jvm
        jvm.System.gc()
        os.sync()

    def _look(self, connection: "psycopg.Connection[Any]") -> None:
        """Whatever was written is all rows, value for value the same by every way."""
        for name in self.names.values():
            found = connection.execute(f"SELECT count(*), sum(hashtextextended(t::text, 0)) FROM {name} t").fetchone()
            assert found is not None
            if found[0]:
                self.seen = getattr(self, "seen", found)
                assert found == self.seen, (name, found, self.seen)


# Memory ---------------------------------------------------------------------------------------------------------------
def peak_bytes(argv: list[str]) -> int:
    """The most memory that a command and all below it had at the same time."""
    # A session of ours lets no Python look for modules beside its script.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=env)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(_resident(pid) for pid in _tree(process.pid)))
        time.sleep(0.05)
    assert process.returncode == 0, argv
    return peak


def _tree(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                found += _tree(int(child))
    return found


def _resident(pid: int) -> int:
    """What is its own, and its share of what it has together with others."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("Pss:")).split()[1])
    return 0


# The servers ----------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def server() -> Iterator[str]:
    """PostgreSQL on a free port of the loopback: the JDBC driver knows no sockets."""
    from support.postgres import postgres

    with postgres() as own:
        with contextlib.closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        own.halt()
        own._control("-o", f"-h 127.0.0.1 -p {port} -k {own.data}", "-l", str(own.data / "log"), "start")
        yield f"127.0.0.1:{port}/postgres"


@contextlib.contextmanager
def session() -> Iterator[SparkSession]:
    with scratch_folder() as scratch:
        conf = {"spark.jars": DRIVER, "spark.driver.extraClassPath": DRIVER}
        spark = start_session({"conf": conf}, name="bench", scratch=scratch)
        jvm = find_process()
        try:
            yield spark
        finally:
            spark.stop()
            end_process(jvm)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--once", nargs=3, metavar=("WAY", "SOURCE", "ADDRESS"), help="one write, for its memory")
    options = parser.parse_args()
    if options.once:
        way, source, address = options.once
        with session() as spark:
            Bench(spark, Path(source), address).way(way)()
        return 0
    print(f"(load average {os.getloadavg()[0]:.2f}, {len(os.sched_getaffinity(0))} cores)")
    with tempfile.TemporaryDirectory(prefix="dataflow-bench-") as name, server() as address:
        source = Path(name) / "rows"
        with session() as spark:
            make_rows(spark, source, options.rows)
            bench = Bench(spark, source, address)
            bench.settle()
            found = interleaved(
                {way: bench.way(way) for way in WAYS}, times=options.times, warm_up=1, before=bench.settle
            )
            bench.settle()
            assert bench.seen[0] == options.rows, bench.seen
        print(f"{options.rows:,} rows from Parquet into PostgreSQL:")
        for way, values in found.items():
            show(way, values, unit="s", scale=1.0)
        kept = verdict(
            "JDBC writer at its best / pipeline, seconds",
            pair_ratio("best / pipeline, round by round", found[BEST], found[OURS]), at_least=1.0,
        )  # fmt: skip
        kept &= verdict(
            "JDBC writer by default / pipeline, seconds",
            pair_ratio("default / pipeline, round by round", found[DEFAULT], found[OURS]), at_least=1.8,
        )  # fmt: skip
        for way in WAYS:
            peak = peak_bytes([sys.executable, __file__, "--once", way, str(source), address])
            print(f"  {way:<34} {peak / 2**20:9.0f} MiB at most, in a session of its own")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
