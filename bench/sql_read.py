"""PostgreSQL to Parquet against Spark's JDBC reader with the best options known for it, as ratios in one run.

(a) 4 million rows in a warm session: through the data source at least 1.1 times as fast as JDBC (fetchsize, read in as
    many parts as there are cores), and as an extract at least 1.8 times. Rows are compared by a hash of all values.
(b) Peak memory of each way, in a process of its own.
(c) A chunk of 1 % that an index finds, as an extract: at most 3 times a bare COPY of it, both with their connections.

Needs PostgreSQL's JDBC driver: `--jar` (Debian: libpostgresql-jdbc-java).
"""

import argparse
import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for the processes of (b), which look for nothing beside them

from measure import interleaved, pair_ratio, show, verdict
from support.postgres import Server, postgres

JDBC, SOURCE, EXTRACT = "JDBC", "data source", "extract"
WAYS = (JDBC, SOURCE, EXTRACT)
DAYS = 100
CHUNK = "2025-02-10"
TABLE = """
CREATE TABLE sales AS
SELECT n AS id, (n % 1000)::int AS customer, (n * 1.37)::numeric(12,2) AS amount, 'note ' || n AS note,
       timestamptz '2025-01-01 00:00+00' + n * interval '{days} days' / {rows} AS created, n % 3 = 0 AS flag,
       n::float8 / 7 AS ratio, date '2020-01-01' + (n % 2000)::int AS day,
       CASE WHEN n % 5 = 0 THEN NULL ELSE 'x' || n % 77 END AS code
FROM generate_series(0, {rows} - 1) AS n
"""


@contextlib.contextmanager
def database(rows: int) -> Iterator[tuple[str, str]]:
    """The table on a server of its own that listens on a port: JDBC knows no socket files."""
    with postgres() as server:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        _listen(server, port)
        url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(TABLE.format(rows=rows, days=DAYS))
            connection.execute("ALTER TABLE sales ADD PRIMARY KEY (id)")
            connection.execute("CREATE INDEX ON sales (created)")
            connection.execute("VACUUM ANALYZE sales")
            connection.execute("CHECKPOINT")
        yield url, str(server._server.bin_path / "psql")


def _listen(server: Server, port: int) -> None:
    server.halt()
    server._control("-o", f"-h 127.0.0.1 -p {port} -k {server.data}", "-l", str(server.data / "log"), "start")


class Bench:
    def __init__(self, spark: Any, url: str, folder: Path, rows: int, psql: str = "psql") -> None:
        self.spark, self.url, self.folder, self.rows, self.psql = spark, url, folder, rows, psql
        self._runs = itertools.count(1)
        self.written: dict[str, str] = {}

    def way(self, name: str) -> Callable[[], None]:
        def run() -> None:
            path = self.written[name] = str(self.folder / f"{name} {next(self._runs)}")
            {JDBC: self._jdbc, SOURCE: self._source, EXTRACT: self._extract}[name](path)

        return run

    def _jdbc(self, path: str) -> None:
        cores = self.spark.sparkContext.defaultParallelism
        options = {
            "url": f"jdbc:{self.url.replace('postgres@', '')}", "user": "postgres", "dbtable": "sales",
            "driver": "org.postgresql.Driver", "fetchsize": 20_000, "partitionColumn": "id", "lowerBound": 0,
            "upperBound": self.rows, "numPartitions": cores,
        }  # fmt: skip
        self.spark.read.format("jdbc").options(**options).load().write.parquet(path)

    def _source(self, path: str) -> None:
        from opendataflow.spark.sql_read import read_table, sql_reads

        with sql_reads():
            read_table(self.spark, _place(self.url)).write.parquet(path)

    def _extract(self, path: str) -> None:
        from opendataflow.spark.sql_extract import extract

        extract(self.spark, _place(self.url), _folder(path))

    def chunk(self) -> None:
        from opendataflow.spark.sql_extract import extract

        path = self.written["chunk"] = str(self.folder / f"chunk {next(self._runs)}")
        extract(self.spark, _place(self.url, partition_column="created", dataids=(CHUNK,)), _folder(path))

    def copy(self) -> None:
        """As one types it: psql, to a file."""
        chosen = f"SELECT * FROM sales WHERE created >= '{CHUNK} 00:00+00' AND created < '{CHUNK} 24:00+00'"
        with open(self.folder / "copied", "wb") as file:
            command = f"COPY ({chosen}) TO STDOUT (FORMAT binary)"
            subprocess.run([self.psql, "-X", "-q", "-c", command, self.url], stdout=file, check=True)

    def digest(self, path: str) -> tuple[Any, ...]:
        from pyspark.sql import functions as F

        df = self.spark.read.parquet(path)
        columns = [F.col(name) for name in sorted(df.columns)]
        return tuple(df.agg(F.count("*"), F.sum(F.xxhash64(*columns).cast("decimal(38,0)"))).first())

    def clear(self) -> None:
        """Between rounds, all but what each way wrote last."""
        for path in self.folder.iterdir():
            if path.is_dir() and str(path) not in self.written.values():
                shutil.rmtree(path)


def _place(url: str, **fields: Any) -> Any:
    from opendataflow.spark.spec import Database, Place

    database = Database(**{"url": url, "options": {}, "table": "sales", **fields})
    return Place(datasetid="sales", location="", format="sql", options={}, schema=None, database=database)


def _folder(path: str) -> Any:
    from opendataflow.spark.spec import Place

    return Place(datasetid="out", location=path, format="parquet", options={}, schema=None)


@contextlib.contextmanager
def session(jar: str) -> Iterator[Any]:
    from opendataflow.spark.jvm import end_process, find_process
    from opendataflow.spark.scratch import scratch_folder
    from opendataflow.spark.session import start_session

    with scratch_folder() as scratch:
        spark = start_session({"conf": {"spark.driver.extraClassPath": jar}}, name="bench", scratch=scratch)
        jvm = find_process()
        try:
            yield spark
        finally:
            spark.stop()
            end_process(jvm)


# Memory ---------------------------------------------------------------------------------------------------------------
def peak_memory(argv: list[str]) -> int:
    """The most that a process and all it started had in memory together, in bytes; shared pages are counted once."""
    process = subprocess.Popen(argv)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(_own_bytes(pid) for pid in _family(process.pid)))
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{argv} ended with {process.returncode}")
    return peak


def _family(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def _own_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--times", type=int, default=5, help="rounds of (a); (c) has five times as many")
    parser.add_argument("--jar", default="/usr/share/java/postgresql.jar")
    parser.add_argument("--part", action="append", choices=["a", "b", "c"], help="may be given several times")
    parser.add_argument("--only", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dataflow-bench-") as name:
        if options.only:
            with session(options.jar) as spark:
                Bench(spark, options.url, Path(name), options.rows).way(options.only)()
            return 0
        parts = options.part or ["a", "b", "c"]
        print(f"(load average {os.getloadavg()[0]:.2f}, {len(os.sched_getaffinity(0))} cores, {options.rows} rows)")
        with database(options.rows) as (url, psql):
            return 0 if _measure(options, parts, url, psql, Path(name)) else 1


def _measure(options: argparse.Namespace, parts: list[str], url: str, psql: str, folder: Path) -> bool:
    kept = True
    if "a" in parts or "c" in parts:
        with session(options.jar) as spark:
            bench = Bench(spark, url, folder, options.rows, psql)
            if "a" in parts:
                kept &= _all_rows(bench, options.times)
            if "c" in parts:
                kept &= _one_percent(bench, 5 * options.times)
    if "b" in parts:
        for way in WAYS:
            argv = [
                sys.executable,
                __file__,
                "--only",
                way,
                "--url",
                url,
                "--rows",
                str(options.rows),
                "--jar",
                options.jar,
            ]
            print(f"  peak memory, {way:<20} {peak_memory(argv) / 2**20:9.0f} MiB")
    return kept


def _all_rows(bench: Bench, times: int) -> bool:
    print("(a) all rows to Parquet")
    found = interleaved({way: bench.way(way) for way in WAYS}, times=times, warm_up=1, before=bench.clear)
    digests = {way: bench.digest(bench.written[way]) for way in WAYS}
    assert len(set(digests.values())) == 1, digests
    assert digests[JDBC][0] == bench.rows
    for way in WAYS:
        show(way, found[way], unit="s ", scale=1.0)
    kept = verdict(
        "data source against JDBC", pair_ratio("JDBC / data source", found[JDBC], found[SOURCE]), at_least=1.1
    )
    return (
        verdict("extract against JDBC", pair_ratio("JDBC / extract", found[JDBC], found[EXTRACT]), at_least=1.8)
        and kept
    )


def _one_percent(bench: Bench, times: int) -> bool:
    print("(c) an indexed chunk of 1 %")
    found = interleaved({"chunk": bench.chunk, "COPY": bench.copy}, times=times, before=bench.clear)
    count, _ = bench.digest(bench.written["chunk"])
    assert abs(count - bench.rows / DAYS) <= 1, count
    for name, values in found.items():
        show(name, values)
    return verdict("1 % chunk against COPY", pair_ratio("chunk / COPY", found["chunk"], found["COPY"]), at_most=3.0)


if __name__ == "__main__":
    sys.exit(main())
