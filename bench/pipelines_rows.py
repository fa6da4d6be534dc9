"""Parts (a) and (b) of bench/pipelines.py: millions of rows in a warm session."""

import itertools
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from measure import interleaved, pair_ratio, seconds, show, verdict
from opendataflow.domain.checks.check import Check, Finding, passed
from opendataflow.spark.files_write import most_tasks
from opendataflow.spark.jvm import end_process, find_process
from opendataflow.spark.pipeline import Task, read_codes
from opendataflow.spark.scratch import scratch_folder
from opendataflow.spark.session import start_session
from opendataflow.spark.spec import ChunkSpec, Place
from opendataflow.storage.files import manifest_of
from pipelines_plain import SMALL, functions, read_schemas

SLUG, STEPS = "clean_flights", ("drop_cancelled", "add_speed", "name_things")
MONTH = "2013-01"
CHECKS = (
    Check("schema", {}),
    Check("rows", {"min": 1, "max": 10**9}),
    Check("not_null", {"columns": ["carrier", "flight"]}),
    Check("values", {"columns": {"origin": ["EWR", "JFK", "LGA"]}}),
    Check("between", {"columns": {"distance": [1, 6000], "dep_delay": [-100, 2000]}}),
    Check("pattern", {"columns": {"carrier": "[0-9A-Z]{2}"}}),
    Check("expression", {"sql": "arr_delay is null or arr_delay > dep_delay - 500", "at_least": 1}),
    Check("partition", {"column": "time_hour"}),
    Check("freshness", {"max_age": 3600}),
)
SCHEMA = {"carrier": "string", "flight": "int", "origin": "string", "distance": "double", "time_hour": "timestamp"}
PLAIN, OURS, CHECKED = "plain PySpark", "pipeline", "pipeline, with checks"


def many_rows(home: Path, folder: Path, parts: list[str], *, rows: int, times: int) -> bool:
    with scratch_folder() as scratch:
        spark = start_session({"conf": {"spark.sql.shuffle.partitions": 4}}, name="bench", scratch=scratch)
        jvm = find_process()
        try:
            return _Rows(spark, home, folder, rows).measure(parts, times)
        finally:
            spark.stop()
            end_process(jvm)


class _Rows:
    def __init__(self, spark: SparkSession, home: Path, folder: Path, rows: int) -> None:
        self._spark, self._home, self._folder = spark, home, folder
        self._data, self._schemas = folder / "rows", read_schemas(home)
        self.count = self._make_rows(rows)
        self._runs = itertools.count(1)
        self.written: dict[str, Path] = {}

    def _make_rows(self, rows: int) -> int:
        """The flights of the year, again and again, all in one month so that they are one chunk; not sorted."""
        sys.path.insert(0, str(self._home))
        from fetch import fetch  # type: ignore[import-not-found]

        flights = fetch(self._data)
        again = -(-rows // flights)
        one = self._spark.read.csv(
            str(self._data / "flights"), schema=self._schemas["flights"], header=True, nullValue="NA"
        )
        many = one.withColumn("time_hour", F.expr("make_timestamp(2013, 1, day, hour, 0, 0)"))
        many = many.crossJoin(F.broadcast(self._spark.range(again).withColumnRenamed("id", "again"))).drop("again")
        many.repartition(8).write.parquet(str(self._data / "many"))
        return again * flights

    # The two ways -------------------------------------------------------------------------------------------------
    def plain(self) -> None:
        """As one writes it without a framework; into as many files as ours, so that the work is the same."""
        spark = self._spark
        drop_cancelled, add_speed, name_things = functions(self._home, SLUG, STEPS)
        planes, airlines, airports = (
            spark.read.csv(str(self._data / f"{name}.csv"), schema=self._schemas[name], header=True, nullValue="NA")
            for name in SMALL[:3]
        )
        flights = spark.read.parquet(str(self._data / "many"))
        df = name_things(add_speed(drop_cancelled(flights)), planes, airlines, airports)
        target = self._new_target(PLAIN)
        tasks = most_tasks(df, self._place("out", target), self._sources())
        (df if tasks is None else df.coalesce(tasks)).write.parquet(str(target))

    def ours(self, name: str, checks: tuple[Check, ...]) -> Callable[[], None]:
        def run() -> None:
            spec = self._spec(self._new_target(name), checks)
            task = Task(self._spark, read_codes(spec), hear=lambda _spec, **_fields: None)
            ((_, result),) = task.run([spec])
            assert result["error"] is None, result["error"]
            findings = [Finding(*one) for one in result["findings"]]
            assert passed(findings), findings
            assert not any(one.skipped for one in findings), findings
            assert len(findings) == len(checks)

        return run

    def _spec(self, target: Path, checks: tuple[Check, ...]) -> ChunkSpec:
        return ChunkSpec(
            home=str(self._home), slug=SLUG, transformations=STEPS, dataid=MONTH, runid=next(self._runs), spark={},
            environment={"dataid": MONTH}, sources=self._sources(), destination=self._place("out", target),
            checks=checks,
        )  # fmt: skip

    def _sources(self) -> tuple[Place, ...]:
        small = (
            Place(
                datasetid=name, location=str(self._data / f"{name}.csv"), format="csv", options={"nullValue": "NA"},
                schema=_columns(self._schemas[name]),
            )
            for name in SMALL[:3]
        )  # fmt: skip
        return (self._place("flights", self._data / "many"), *small)

    def _place(self, datasetid: str, location: Path) -> Place:
        schema = SCHEMA if datasetid == "out" else None
        return Place(datasetid=datasetid, location=str(location), format="parquet", options={}, schema=schema)

    def _new_target(self, name: str) -> Path:
        self.written[name] = self._folder / "out" / f"{len(self.written)}_{next(self._runs)}"
        return self.written[name]

    # Measure ------------------------------------------------------------------------------------------------------
    def settle(self) -> None:
        """All start alike: nothing of the one before is left to be collected or to be written to the disk."""
        for old in (self._folder / "out").glob("*"):
            if old not in self.written.values():
                shutil.rmtree(old)
        self._spark._jvm.System.gc()
        os.sync()

    def measure(self, parts: list[str], times: int) -> bool:
        actions: dict[str, Callable[[], object]] = {OURS: self.ours(OURS, ())}
        if "a" in parts:
            actions = {PLAIN: self.plain, **actions}
        if "b" in parts:
            actions[CHECKED] = self.ours(CHECKED, CHECKS)
        found = interleaved(actions, times=times, warm_up=1, before=self.settle)
        self._compare_outputs()
        print(f"Three transformations over {self.count:,} rows:")
        for name, values in found.items():
            show(name, values, unit="s", scale=1.0)
        kept = True
        if "a" in parts:
            ratio = pair_ratio("pipeline / plain, round by round", found[OURS], found[PLAIN])
            kept &= verdict("(a) three transformations, pipeline / plain PySpark script", ratio, at_most=1.05)
        if "b" in parts:
            ratio = pair_ratio("with checks / without, round by round", found[CHECKED], found[OURS])
            kept &= verdict("(b) all one-pass checks, on / off", ratio, at_most=1.10)
        took = seconds(lambda: manifest_of(str(self.written[OURS])))
        print(
            f"  (the runner's fingerprint of the {_size(self.written[OURS]) / 1e6:.0f} MB written: {took:.3f} s more)"
        )
        return kept

    def _compare_outputs(self) -> None:
        """The same work was done: as many rows, files and about as many bytes."""
        seen = {name: _look(path) for name, path in self.written.items()}
        assert len(set(seen.values())) == 1, seen


def _look(folder: Path) -> tuple[int, int, list[str]] | Any:
    files = sorted(folder.glob("part-*.parquet"))
    footers = [pyarrow.parquet.read_metadata(file) for file in files]
    return len(files), sum(footer.num_rows for footer in footers), tuple(footers[0].schema.names)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("part-*.parquet"))


def _columns(ddl: str) -> dict[str, str]:
    return dict(column.split(" ") for column in ddl.split(", "))
