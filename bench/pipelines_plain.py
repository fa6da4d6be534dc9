"""What one would write by hand instead of a pipeline: the alternative that bench/pipelines.py measures against.

    python bench/pipelines_plain.py loop HOME TARGET     the days of examples/flights, in one warm PySpark process
    python bench/pipelines_plain.py pandas HOME TARGET   pandas in one process, as the seed of this project did it

Both are told by lines of JSON on their input what to do, and answer with one line each: the seconds it took.
"""

import importlib.util
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

CLEAN_FLIGHTS = ("drop_cancelled", "add_speed", "name_things", "add_weather")
CLEAN_LEADS = ("drop_without_email", "name_countries")
SMALL = ("planes", "airlines", "airports", "weather")


def functions(home: Path, slug: str, names: tuple[str, ...]) -> list[Callable[..., Any]]:
    """The very functions of the example's files, imported as any module is."""
    return [_module(home / "pipelines" / slug / f"{name}.py").run for name in names]


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"plain_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Flights --------------------------------------------------------------------------------------------------------------
def start_spark() -> Any:
    """A session with the settings of the example, and the same zone and formats as a pipeline has."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )


def read_schemas(home: Path) -> dict[str, str]:
    import yaml

    declared = yaml.safe_load((home / "project.yml").read_text())["datasets"]
    return {
        name: ", ".join(f"{column} {type_}" for column, type_ in declared[name]["schema"].items())
        for name in ("flights", *SMALL)
    }


def flights_loop(home: Path, target: Path) -> Callable[[dict[str, Any]], None]:
    spark = start_spark()
    drop_cancelled, add_speed, name_things, add_weather = functions(home, "clean_flights", CLEAN_FLIGHTS)
    schemas = read_schemas(home)

    def read(name: str, path: Path) -> Any:
        return spark.read.csv(str(path), schema=schemas[name], header=True, nullValue="NA")

    def one_day(day: str) -> None:
        flights = read("flights", home / "data" / "flights" / f"{day}.csv")
        planes, airlines, airports, weather = (read(name, home / "data" / f"{name}.csv") for name in SMALL)
        df = add_speed(drop_cancelled(flights))
        df = name_things(df, planes, airlines, airports)
        df = add_weather(df, planes, airlines, airports, weather)
        folder = target / f"dataid={day}"
        df.coalesce(1).write.mode("overwrite").parquet(str(folder))
        for path in [*folder.glob("part-*"), folder, target]:
            fsync(path)

    def days(order: dict[str, Any]) -> None:
        with ThreadPoolExecutor(order.get("threads", 1)) as pool:
            list(pool.map(one_day, order["days"]))

    return days


def fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


# Leads ----------------------------------------------------------------------------------------------------------------
def pandas_way(home: Path, target: Path) -> Callable[[dict[str, Any]], None]:
    import pandas as pd

    drop_without_email, name_countries = functions(home, "clean_leads", CLEAN_LEADS)

    def whole(_order: dict[str, Any]) -> None:
        df = pd.read_csv(home / "sources" / "leads.csv")
        countries = pd.read_csv(home / "sources" / "countries.csv")
        name_countries(drop_without_email(df), countries).to_csv(target / "clean_leads.csv", index=False)

    return whole


# Told by lines --------------------------------------------------------------------------------------------------------
def serve(do: Callable[[dict[str, Any]], object], *, more: Callable[[], dict[str, Any]] = dict) -> None:
    """Do what each line of the input says; what is printed goes to stderr, the answers to stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        start = time.perf_counter()
        do(json.loads(line))
        took = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        answers.write(json.dumps({"seconds": took, "peak_bytes": peak, **more()}) + "\n")
        answers.flush()


if __name__ == "__main__":
    kind, project_home, project_target = sys.argv[1:]
    ways = {"loop": flights_loop, "pandas": pandas_way}
    serve(ways[kind](Path(project_home), Path(project_target)))
