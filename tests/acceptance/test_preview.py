"""`dataflow preview`: what consumers would read, without Spark; and what a failed run left."""

import datetime
import os
import resource
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.made import make, parquet, text
from support.projects import Project

DAY, NEXT, THIRD = "2025-11-01", "2025-11-02", "2025-11-03"
PROJECT = """\
name: Shop
environments: {dev: {root: data}}
datasets:
  orders:
    path: "orders/{dataid}.csv"
    format: csv
    schema: {order: int, item: string, amount: "decimal(8,2)", paid: boolean}
    partitions: {daily: 2025-11-01..2025-11-03}
  shards: {path: "shards/{dataid}.jsonl", partitions: {shards: 1..20}}
  notes: {path: "notes/{dataid}.txt", partitions: {values: [a, b]}}
  odd: {path: "odd/{dataid}.csv", format: csv, options: {comment: "#"}, partitions: {values: [a]}}
  crm: {hostname: db, partitions: {values: [a]}}
  priced: {path: priced}
pipelines:
  - {slug: price_orders, sources: [orders], destination: priced, transformations: [add_price]}
"""


@pytest.fixture
def shop(sqlite_project: Project) -> Project:
    sqlite_project.apply(PROJECT)
    for day in (DAY, NEXT):
        sqlite_project.write(f"data/orders/{day}.csv", "order,item,amount,paid\n1,nut,4.50,true\n2,,x,false\n")
        assert sqlite_project.dataflow("ready", "orders", day, "--unchecked").returncode == 0
    return sqlite_project


def refused(project: Project, *argv: str, code: int) -> str:
    done = project.dataflow("preview", *argv)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    return done.stderr


def by_hand(project: Project, datasetid: str, dataid: str, location: str | None = None) -> None:
    place = "NULL" if location is None else f"'{location}'"
    project.sql(
        "INSERT INTO datastatus (datasetid, dataid, status, location) "
        f"VALUES ('{datasetid}', '{dataid}', 'READY', {place})"
    )


def test_a_csv_is_shown_with_its_declared_types_and_the_latest_chunk_without_a_dataid(shop: Project) -> None:
    told = shop.json("preview", "orders")
    assert (told["dataset"], told["dataid"], told["status"], told["run"]) == ("orders", NEXT, "READY", None)
    assert told["schema"] == {"order": "int", "item": "string", "amount": "decimal(8,2)", "paid": "boolean"}
    assert told["preview"] == [
        {"order": 1, "item": "nut", "amount": "4.50", "paid": True},
        {"order": 2, "item": None, "amount": "x", "paid": False},  # what does not fit is shown as it is written
    ]
    assert told["bytes"] == (shop.folder / f"data/orders/{NEXT}.csv").stat().st_size
    done = shop.dataflow("preview", "orders", DAY, "--rows", "1", "--columns", "item,order")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"orders/{DAY}  READY since 20")
    assert lines[2] == "item: string, order: int"
    assert "nut    1" in done.stdout
    assert "null" not in done.stdout


def test_a_published_run_is_shown_with_its_run_rows_and_types(shop: Project) -> None:
    at = datetime.datetime(2025, 11, 1, 10, tzinfo=datetime.UTC)
    rows = {
        "order": [1, 2, 3],
        "total": [Decimal("1.50"), None, Decimal("2.25")],
        "at": [at] * 3,
        "raw": [b"\x00\xff"] * 3,
    }
    run = make(shop, "price_orders", DAY, parquet(**rows))
    told = shop.json("preview", "priced", "--rows", "2")
    assert (told["dataid"], told["run"], told["rows"]) == (DAY, run, 3)
    assert told["location"].endswith(f"priced/dataid={DAY}/_runs/{run}")
    assert told["schema"] == {"order": "bigint", "total": "decimal(3,2)", "at": "timestamp", "raw": "binary"}
    first = {"order": 1, "total": "1.50", "at": "2025-11-01 10:00:00+00:00", "raw": "0x00ff"}
    assert told["preview"] == [first, {**first, "order": 2, "total": None}]
    assert f"run {run}, 3 rows, " in shop.dataflow("preview", "priced").stdout


def test_the_version_that_consumers_see_is_shown_not_the_newest_directory(shop: Project) -> None:
    make(shop, "price_orders", DAY, parquet(v=[1]))
    second = make(shop, "price_orders", DAY, parquet(v=[2]))
    assert [row["v"] for row in shop.json("preview", "priced", DAY)["preview"]] == [2]
    Path(shop.folder, f"data/priced/dataid={DAY}/_runs/{second + 1}").mkdir()
    assert [row["v"] for row in shop.json("preview", "priced", DAY)["preview"]] == [2]


def test_a_failed_chunk_says_why_and_its_run_shows_what_it_left(shop: Project) -> None:
    run = make(shop, "price_orders", DAY, parquet(v=[1, 2]), fails="rows: 2 rows, fewer than 5")
    told = refused(shop, "priced", DAY, code=10)
    assert f"priced/{DAY} is FAILED since " in told
    assert "rows: 2 rows, fewer than 5" in told
    assert f"`dataflow why price_orders {DAY}`" in told
    assert f"`dataflow preview priced --run {run}` shows what run {run} left" in told
    left = shop.json("preview", "priced", "--run", str(run))
    assert (left["dataid"], left["status"], left["published_at"]) == (DAY, "run FAILED", None)
    assert [row["v"] for row in left["preview"]] == [1, 2]
    assert "rows: 2 rows, fewer than 5" in shop.dataflow("preview", "priced", DAY, "--run", str(run)).stderr
    assert "made 2025-11-01, not 2025-11-02" in refused(shop, "priced", NEXT, "--run", str(run), code=2)
    assert "which does not make orders" in refused(shop, "orders", "--run", str(run), code=2)


def test_a_run_that_left_nothing_says_so(shop: Project) -> None:
    run = make(shop, "price_orders", DAY, lambda _: None, fails="no such column")
    assert "--run" not in refused(shop, "priced", DAY, code=10)
    assert f"_runs/{run}: No such file or directory" in refused(shop, "priced", "--run", str(run), code=12)
    empty = make(shop, "price_orders", DAY, lambda place: os.makedirs(f"{place}/_temporary/0"), fails="killed")
    assert "there are no data files in" in refused(shop, "priced", "--run", str(empty), code=12)


def test_what_is_not_there_says_where_to_look(shop: Project) -> None:
    assert "no chunk of priced is READY; `dataflow run price_orders` makes them" in refused(shop, "priced", code=10)
    assert f"`dataflow why price_orders {THIRD}`" in refused(shop, "priced", THIRD, code=10)
    assert "orders/2025-11-03 is not there; see `dataflow status orders`" in refused(shop, "orders", THIRD, code=10)
    assert "did you mean 'orders'?" in refused(shop, "order", code=2)
    assert "did you mean 'amount'?" in refused(shop, "orders", "--columns", "amnt", code=2)
    assert "known by its connection" in refused(shop, "crm", code=2)
    (shop.folder / f"data/orders/{NEXT}.csv").unlink()
    assert f"data/orders/{NEXT}.csv: No such file or directory" in refused(shop, "orders", NEXT, code=12)


def test_what_only_spark_can_read_says_how(shop: Project) -> None:
    by_hand(shop, "priced", DAY, f"hdfs://host/priced/{DAY}")
    told = refused(shop, "priced", code=2)
    assert f"priced/{DAY} is at hdfs://host/priced/{DAY}" in told
    assert f'Project(".").read(spark, "priced", dataids=["{DAY}"])' in told
    by_hand(shop, "odd", "a")
    shop.write("data/odd/a.csv", "a\n1\n")
    assert "its option comment is '#', which only Spark reads" in refused(shop, "odd", code=2)


def test_a_file_that_is_not_its_format_names_the_line(shop: Project) -> None:
    by_hand(shop, "shards", "1")
    shop.write("data/shards/1.jsonl", '{"a": 1}\n{"a": \n')
    assert "shards/1: 1.jsonl: line 2 is not JSON" in refused(shop, "shards", code=11)
    make(shop, "price_orders", DAY, lambda place: text("no parquet")(f"{place}/part.parquet"))
    assert "priced/2025-11-01: part.parquet: " in refused(shop, "priced", code=11)


def test_json_lines_and_text_are_shown_in_the_order_of_their_keys(shop: Project) -> None:
    for dataid, row in (("9", '{"b": 1, "a": [1, {"x": null}]}\n{"c": NaN}\n'), ("10", '\ufeff{"z": 1}\n')):
        by_hand(shop, "shards", dataid)
        shop.write(f"data/shards/{dataid}.jsonl", row)
    assert shop.json("preview", "shards")["preview"] == [{"z": 1}]  # 10 comes after 9
    told = shop.json("preview", "shards", "9")
    assert list(told["schema"]) == ["b", "a", "c"]
    assert told["preview"][0] == {"b": 1, "a": '[1, {"x": null}]', "c": None}
    by_hand(shop, "notes", "a")
    shop.write("data/notes/a.txt", "one\n\ntwo\n")
    assert [row["value"] for row in shop.json("preview", "notes")["preview"]] == ["one", "", "two"]


def test_a_row_with_other_fields_is_left_out_and_told(shop: Project) -> None:
    shop.write(f"data/orders/{DAY}.csv", "order,item,amount,paid\n1,a,2,true,7\n2,b,3,false\n")
    done = shop.dataflow("preview", "orders", DAY)
    assert done.returncode == 0, done.stderr
    assert "left out: " in done.stderr
    assert "5 fields in row 1, not 4" in done.stderr


def test_wide_tables_and_wild_values_never_break_the_table(shop: Project) -> None:
    columns: dict[str, list[Any]] = {f"column_{number:03d}": [number, number + 1] for number in range(300)}
    columns["column_000"] = ["line\nbreak\x1b[31m" + "x" * 500, "表" * 100]
    make(shop, "price_orders", DAY, parquet(**columns))
    done = shop.dataflow("preview", "priced", "--columns", ",".join(columns))
    assert done.returncode == 0, done.stderr
    table = done.stdout.splitlines()[3:]
    assert len([line for line in table if line.strip()]) == 4  # heads, a rule, two rows
    assert "\x1b" not in done.stdout
    assert "line\\nbreak\\x1b[31mxxxxxxxxxxxx" in done.stdout
    assert "columns more: column_" in done.stderr
    assert len(shop.json("preview", "priced")["preview"][0]) == 300


def test_no_rows_and_an_empty_chunk_show_the_schema(shop: Project) -> None:
    assert shop.json("preview", "orders", "--rows", "0")["preview"] == []
    make(shop, "price_orders", DAY, parquet(v=pa.array([], pa.int32())))
    told = shop.json("preview", "priced")
    assert (told["schema"], told["rows"], told["preview"]) == ({"v": "int"}, 0, [])
    shop.write(f"data/orders/{DAY}.csv", "order,item,amount,paid\n")
    assert shop.json("preview", "orders", DAY)["preview"] == []


def test_a_large_chunk_costs_little_more_than_a_small_one_and_no_spark(shop: Project) -> None:
    def write(place: str) -> None:
        os.makedirs(place)
        pq.write_table(pa.table({f"c{number}": range(500_000) for number in range(20)}), f"{place}/part.parquet")

    make(shop, "price_orders", DAY, parquet(c7=[1]))
    make(shop, "price_orders", NEXT, write)
    small = _cpu_seconds(shop, DAY)
    assert _cpu_seconds(shop, NEXT) < small + 1.0  # reading all of it takes several
    told = shop.json("preview", "priced", NEXT)
    assert (told["rows"], len(told["preview"]), told["preview"][9]["c7"]) == (500_000, 10, 9)
    done = shop.dataflow("preview", "priced", NEXT, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert "pyarrow.parquet" in done.stderr
    assert "pyspark" not in done.stderr


def _cpu_seconds(project: Project, dataid: str) -> float:
    """Processor time of a preview: unlike the clock's, it does not depend on who else is busy."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    project.json("preview", "priced", dataid)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
