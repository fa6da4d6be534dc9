"""Several chunks in one Spark job: exactly what each would be alone, or each is produced alone."""

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from opendataflow.domain.checks import Check
from opendataflow.spark.pipeline import Task, read_codes
from opendataflow.spark.spec import ChunkSpec, chunk_spec

ORDERS = {
    "a": [(1, "nut", 4), (2, "bolt", -1), (3, "bolt", 3)],
    "b": [(4, "nut", 8), (5, "nut", 8)],
    "c d=%1é": [(6, "bolt", 2), (7, "screw", 1), (8, "nut", -5), (9, "nut", 7)],
}
HEAD = "from pyspark.sql import functions as F\nimport os\n\n\n"
SHARED = {
    "a filter and a column": (
        "def run(df):\n    return df.where('amount > 0').withColumn('twice', F.col('amount') * 2)\n"
    ),
    "a broadcast join": "def run(df, prices):\n    return df.join(prices, on='item', how='left')\n",
    "an aggregate of the other source": (
        "def run(df, prices):\n    best = prices.groupBy('item').agg(F.max('price').alias('best'))\n"
        "    return df.join(F.broadcast(best), on='item', how='inner')\n"
    ),
    "rows made of rows": "def run(df):\n    return df.withColumn('each', F.explode(F.sequence(F.lit(1), F.lit(2))))\n",
    "a Python function": (
        "@F.udf('long')\ndef twice(n):\n    return 2 * n\n\n\n"
        "def run(df):\n    return df.withColumn('n', twice('amount'))\n"
    ),
}
ALONE = {
    "an aggregate": "def run(df):\n    return df.groupBy('item').agg(F.sum('amount').alias('amount'))\n",
    "an aggregate of everything": "def run(df):\n    return df.agg(F.sum('amount').alias('amount'))\n",
    "a sort": "def run(df):\n    return df.orderBy('amount', 'id')\n",
    "distinct rows": "def run(df):\n    return df.select('item').distinct()\n",
    "the first rows": "def run(df):\n    return df.limit(1)\n",
    "a window": (
        "from pyspark.sql import Window\n\n\ndef run(df):\n"
        "    return df.withColumn('n', F.row_number().over(Window.partitionBy('item').orderBy('id')))\n"
    ),
    "itself twice": "def run(df):\n    return df.union(df)\n",
    "itself joined": (
        "def run(df):\n    other = F.broadcast(df.select('item', F.col('id').alias('other')))\n"
        "    return df.join(other, on='item')\n"
    ),
    "one partition": "def run(df):\n    return df.coalesce(1)\n",
    "the number of the partition": "def run(df):\n    return df.withColumn('n', F.spark_partition_id())\n",
    "numbered rows": "def run(df):\n    return df.withColumn('n', F.monotonically_increasing_id())\n",
    "a look at the data": (
        "def run(df):\n    most = df.agg(F.max('amount')).first()[0]\n    return df.where(F.col('amount') == most)\n"
    ),
    "a variable of the run": "def run(df):\n    return df.withColumn('day', F.lit(os.environ['dataid']))\n",
    "a variable, elsewhere": (
        "from day import today\n\n\ndef run(df):\n    return df.withColumn('day', F.lit(today()))\n"
    ),
}
DAY = "import os\n\n\ndef today():\n    return os.environ.get('dataid')\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "pipelines" / "price").mkdir(parents=True)
    (tmp_path / "orders").mkdir()
    (tmp_path / "day.py").write_text(DAY)
    (tmp_path / "prices.csv").write_text("item,price\nnut,0.5\nbolt,2\nnut,0.7\n")
    for dataid, rows in ORDERS.items():
        lines = ["id,item,amount", *(f"{number},{item},{amount}" for number, item, amount in rows)]
        (tmp_path / "orders" / f"{dataid}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def specs(home: Path, *, first: int, **changes: Any) -> list[ChunkSpec]:
    """A spec for each chunk; the numbers of the runs begin with `first`."""
    made = []
    for number, dataid in enumerate(ORDERS):
        spec = chunk_spec(
            {
                "home": str(home), "slug": "price", "transformations": ["step"], "dataid": dataid,
                "runid": first + number, "spark": {}, "environment": {"dataid": dataid},
                "sources": [
                    {"datasetid": "orders", "location": str(home / "orders" / f"{dataid}.csv"), "format": "csv",
                     "schema": {"id": "int", "item": "string", "amount": "int"}},
                    {"datasetid": "prices", "location": str(home / "prices.csv"), "format": "csv",
                     "schema": {"item": "string", "price": "double"}},
                ],
                "destination": {"datasetid": "priced", "location": str(home / "out" / str(first + number)),
                                "format": "parquet"},
            }
        )  # fmt: skip
        made.append(dataclasses.replace(spec, **changes))
    return made


def produce(spark: SparkSession, wanted: list[ChunkSpec]) -> dict[str, dict[str, Any]]:
    told: list[str] = []
    task = Task(spark, read_codes(wanted[0]), hear=lambda _spec, **fields: told.append(str(fields)))
    found = {}
    for spec, result in task.run(wanted):
        rows = None
        if result["error"] is None:
            rows = pyarrow.parquet.read_table(spec.destination.location).to_pylist()
            assert result["rows"] == len(rows)
        found[spec.dataid] = {**result, "data": rows, "told": told}
    assert list((Path(wanted[0].home) / "out").glob("*/_together")) == []
    return found


def assert_the_same(spark: SparkSession, home: Path, *, shared: bool) -> None:
    together = produce(spark, specs(home, first=100))
    alone = {spec.dataid: produce(spark, [spec])[spec.dataid] for spec in specs(home, first=1)}
    assert {dataid: one["error"] for dataid, one in together.items()} == dict.fromkeys(ORDERS)
    assert {dataid: one["data"] for dataid, one in together.items()} == {
        dataid: one["data"] for dataid, one in alone.items()
    }
    assert {dataid: one["schema"] for dataid, one in together.items()} == {
        dataid: one["schema"] for dataid, one in alone.items()
    }
    assert {one["job_runid"] for one in together.values()} == ({100} if shared else {None})
    assert {step["status"] for one in together.values() for step in one["steps"]} == {"DONE"}


@pytest.mark.parametrize("what", SHARED)
def test_what_leaves_rows_where_they_are_is_one_job(spark: SparkSession, home: Path, what: str) -> None:
    (home / "pipelines/price/step.py").write_text(HEAD + SHARED[what])
    assert_the_same(spark, home, shared=True)


@pytest.mark.parametrize("what", ALONE)
def test_what_could_mix_chunks_is_produced_chunk_by_chunk(spark: SparkSession, home: Path, what: str) -> None:
    (home / "pipelines/price/step.py").write_text(HEAD + ALONE[what])
    assert_the_same(spark, home, shared=False)


def test_a_chunk_without_rows_has_its_types_all_the_same(spark: SparkSession, home: Path) -> None:
    (home / "pipelines/price/step.py").write_text("def run(df):\n    return df.where('amount < 0')\n")
    together = produce(spark, specs(home, first=100))
    assert {dataid: len(one["data"]) for dataid, one in together.items()} == {"a": 1, "b": 0, "c d=%1é": 1}
    assert {one["schema"] for one in together.values()} == {'{"id": "int", "item": "string", "amount": "int"}'}
    assert together["a"]["job_runid"] == 100, together["a"]["told"]
    assert together["b"]["job_runid"] is None


def test_one_bad_file_fails_its_own_run_only(spark: SparkSession, home: Path) -> None:
    (home / "pipelines/price/step.py").write_text("def run(df):\n    return df.where('amount > 0')\n")
    (home / "orders/b.csv").write_text("id,item,amount\n4,nut,many\n")
    together = produce(spark, specs(home, first=100))
    assert {dataid: one["error"] is None for dataid, one in together.items()} == {
        "a": True,
        "b": False,
        "c d=%1é": True,
    }
    assert "b.csv" in together["b"]["error"]
    assert [row["id"] for row in together["a"]["data"]] == [1, 3]


def test_files_with_their_columns_in_another_order_are_read_by_name(spark: SparkSession, home: Path) -> None:
    (home / "pipelines/price/step.py").write_text("def run(df):\n    return df.where('amount > 0')\n")
    (home / "orders/b.csv").write_text("amount,id,item\n8,4,nut\n8,5,nut\n")
    assert_the_same(spark, home, shared=False)


def test_a_chunk_of_several_files_keeps_them_together(spark: SparkSession, home: Path) -> None:
    (home / "pipelines/price/step.py").write_text("def run(df):\n    return df.where('amount > 0')\n")
    whole = (home / "orders/b.csv").read_text()
    (home / "orders/b.csv").unlink()
    (home / "orders/b.csv").mkdir()
    (home / "orders/b.csv/one.csv").write_text(whole)
    (home / "orders/b.csv/two.csv").write_text("id,item,amount\n10,nut,1\n")
    together = produce(spark, specs(home, first=100))
    assert sorted(row["id"] for row in together["b"]["data"]) == [4, 5, 10]
    assert together["b"]["job_runid"] == 100


@pytest.mark.parametrize(
    "changes",
    [
        {"profile": True},
        {"explain": True},
        {"checks": (Check("expression", {"sql": "amount > 0", "at_least": 0.1}),)},
        {"checks": (Check("not_null", {"columns": ["item"]}, "quarantine"),)},
    ],
)
def test_what_is_asked_of_each_chunk_is_done_with_each_chunk(
    spark: SparkSession, home: Path, changes: dict[str, Any]
) -> None:
    (home / "pipelines/price/step.py").write_text("def run(df):\n    return df.where('amount > 0')\n")
    together = produce(spark, specs(home, first=100, **changes))
    assert {one["job_runid"] for one in together.values()} == {None}
    assert {one["error"] for one in together.values()} == {None}
