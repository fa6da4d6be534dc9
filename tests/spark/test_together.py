"""Several chunks in one Spark job: exactly what each would be alone, or each is produced alone."""

import dataclasses
import itertools
import os
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from opendataflow.domain.checks.check import Check
from opendataflow.spark.compared import compared
from opendataflow.spark.pipeline import Task, read_codes
from opendataflow.spark.spec import ChunkSpec, chunk_spec

numbers = itertools.count(10_000, 100)
EVERY_FAULT = "DATAFLOW_EVERY_FAULT" in os.environ
ORDERS = {
    "a": [(1, "nut", 4), (2, "bolt", -1), (3, "bolt", 3)],
    "b": [(4, "nut", 8), (5, "nut", 8)],
    "c d=%1é": [(6, "bolt", 2), (7, "screw", 1), (8, "nut", -5), (9, "nut", 7)],
}
# What is compared with a plain loop: two of the chunks, which could be mixed; all of them in `make faults`.
COMPARED = list(ORDERS) if EVERY_FAULT else ["a", "c d=%1é"]
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
    "a Python function that captures the same for all": (
        "import day\n\nKNOWN = {'nut': 2, 'bolt': 3}\n\n\ndef run(df):\n    more, words = 5, {'nut', 'bolt', 'screw'}\n"
        "    of = F.udf(lambda item: f'{day.LABEL} {KNOWN.get(item, more)} {item in words}')\n"
        "    return df.withColumn('of', of('item'))\n"
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
# An aggregate of the chunk itself, hidden from a look at the files that are read.
TOTAL = "df.groupBy('item').agg(F.sum('amount').alias('total'))"
WHOLE = "df.agg(F.sum('amount').alias('total'))"
ACTION = """\
def most(df):
    return df.agg(F.max('amount')).first()[0]


def run(df):
    {call}
    return df.where(F.col('amount') == found)
"""
ALONE |= {
    "a scalar subquery": (
        "def run(df):\n    df.createOrReplaceTempView('mine')\n"
        "    return df.sparkSession.sql('SELECT *, (SELECT max(amount) FROM mine) AS most FROM mine')\n"
    ),
    "a subquery in a condition": (
        "def run(df):\n    df.createOrReplaceTempView('mine')\n"
        "    return df.sparkSession.sql('SELECT * FROM mine WHERE amount = (SELECT max(amount) FROM mine)')\n"
    ),
    "EXISTS among the columns": (
        "def run(df):\n    df.createOrReplaceTempView('mine')\n    return df.sparkSession.sql('SELECT *, EXISTS '\n"
        "        '(SELECT 1 FROM mine AS m WHERE m.item = mine.item AND m.id < mine.id) AS again FROM mine')\n"
    ),
    "IN a subquery": (
        "def run(df):\n    df.createOrReplaceTempView('mine')\n    return df.sparkSession.sql('SELECT * FROM mine '\n"
        "        'WHERE item IN (SELECT item FROM mine WHERE amount < 0)')\n"
    ),
    "DataFrame.scalar()": f"def run(df):\n    return df.withColumn('total', {WHOLE}.scalar())\n",
    "a temporary function": (
        "def run(df):\n    df.createOrReplaceTempView('mine')\n    df.sparkSession.sql('CREATE OR REPLACE TEMPORARY '\n"
        "        'FUNCTION most() RETURNS INT RETURN (SELECT max(amount) FROM mine)')\n"
        "    return df.sparkSession.sql('SELECT *, most() AS most FROM mine')\n"
    ),
    "a cached aggregate": f"def run(df):\n    return df.join({TOTAL}.cache(), on='item')\n",
    "a cached aggregate, broadcast": f"def run(df):\n    return df.join(F.broadcast({TOTAL}.cache()), on='item')\n",
    "a persisted aggregate": (
        "from pyspark import StorageLevel\n\n\ndef run(df):\n"
        f"    return df.join(F.broadcast({TOTAL}.persist(StorageLevel.DISK_ONLY)), on='item')\n"
    ),
    "an aggregate lazily cached by SQL": (
        f"def run(df):\n    {TOTAL}.createOrReplaceTempView('totals')\n"
        "    df.sparkSession.sql('CACHE LAZY TABLE totals')\n"
        "    return df.join(F.broadcast(df.sparkSession.table('totals')), on='item')\n"
    ),
    "an aggregate lazily checkpointed": (
        f"def run(df):\n    return df.join(F.broadcast({TOTAL}.localCheckpoint(eager=False)), on='item')\n"
    ),
    "an aggregate as an RDD": (
        f"def run(df):\n    totals = {TOTAL}\n"
        "    made = df.sparkSession.createDataFrame(totals.rdd, totals.schema)\n"
        "    return df.join(F.broadcast(made), on='item')\n"
    ),
    "a cross join with a cached aggregate": f"def run(df):\n    return df.crossJoin({WHOLE}.cache())\n",
    "a cross join with a checkpoint": f"def run(df):\n    return df.crossJoin({WHOLE}.localCheckpoint(eager=False))\n",
    "a full join that compares": (
        "def run(df, prices):\n    prices = prices.withColumnRenamed('item', 'what')\n"
        "    return df.join(prices, F.col('amount') > F.col('price') * 10, 'full')\n"
    ),
    **{
        f"a {how} join that compares with what is broadcast": (
            "def run(df, prices):\n    prices = F.broadcast(prices.withColumnRenamed('item', 'what'))\n"
            f"    return df.join(prices, F.col('amount') > F.col('price') * 10, '{how}')\n"
        )
        for how in ("left", "right", "semi", "anti")
    },
    "a look in a pool of threads": ACTION.format(
        call="from concurrent.futures import ThreadPoolExecutor\n\n    with ThreadPoolExecutor(2) as pool:\n"
        "        found = pool.submit(most, df).result()"
    ),
    "a look in a thread": ACTION.format(
        call="import threading\n\n    made = []\n    thread = threading.Thread(target=lambda: made.append(most(df)))\n"
        "    thread.start()\n    thread.join()\n    found = made[0]"
    ),
    "a look in a coroutine's thread": ACTION.format(
        call="import asyncio\n\n    found = asyncio.run(asyncio.to_thread(most, df))"
    ),
    "the number of files": "def run(df):\n    return df.withColumn('files', F.lit(len(df.inputFiles())))\n",
    "a name by the number of files": (
        "def run(df):\n    return df.withColumnRenamed('id', f'id_of_{len(df.inputFiles())}')\n"
    ),
    "the number of partitions": "def run(df):\n    return df.withColumn('parts', F.lit(df.rdd.getNumPartitions()))\n",
    "the hash of the plan": "def run(df):\n    return df.withColumn('hash', F.lit(df.semanticHash()))\n",
    "a value from the first file's name": (
        "def run(df):\n    name = df.inputFiles()[0].rpartition('/')[2].removesuffix('.csv')\n"
        "    return df.withColumn('day', F.lit('a' if name == 'a' else 'other'))\n"
    ),
    "a lookup beside the first file": (
        "from urllib.parse import unquote\n\n\ndef run(df):\n"
        "    beside = unquote(df.inputFiles()[0]).replace('/orders/', '/lookup/')\n"
        "    other = df.sparkSession.read.schema('item string, kind string').csv(beside)\n"
        "    return df.join(F.broadcast(other), on='item', how='left')\n"
    ),
    "a function that knows the first file": (
        "def run(df):\n    name = df.inputFiles()[0].rpartition('/')[2]\n"
        "    return df.withColumn('of', F.udf(lambda _id: name)('id'))\n"
    ),
    "a function that knows the first file, from the JVM": (
        "def run(df):\n    name = df._jdf.inputFiles()[0].rpartition('/')[2]\n"
        "    return df.withColumn('of', F.udf(lambda _id: name)('id'))\n"
    ),
    "a pandas function that knows the first file, from the JVM": (
        "def run(df):\n    name = df._jdf.inputFiles()[0].rpartition('/')[2]\n"
        "    named = F.pandas_udf(lambda ids: ids.map(lambda _id: name), 'string')\n"
        "    return df.withColumn('of', named('id'))\n"
    ),
    "a function that knows the plan": (
        "def run(df):\n    df.createOrReplaceTempView('mine')\n"
        "    df.sparkSession.conf.set('spark.sql.maxMetadataStringLength', '10000')\n"
        "    plan = df.sparkSession.sql('EXPLAIN EXTENDED SELECT * FROM mine').collect()[0][0]\n"
        "    name = plan.rpartition('/orders/')[2].partition('.csv')[0]\n"
        "    return df.withColumn('of', F.udf(lambda _id: name)('id'))\n"
    ),
    "a list of values that knows the first file": (
        "def run(df):\n    name = df._jdf.inputFiles()[0].rpartition('/')[2]\n    df.createOrReplaceTempView('mine')\n"
        "    return df.sparkSession.sql('SELECT mine.*, kind FROM mine LEFT JOIN (VALUES '\n"
        "        f\"('nut', '{name}'), ('bolt', 'x')) AS kinds (item, kind) ON kinds.item = mine.item\")\n"
    ),
    "a lookup beside the first file, from the JVM": (
        "from urllib.parse import unquote\n\n\ndef run(df):\n"
        "    beside = unquote(df._jdf.inputFiles()[0]).replace('/orders/', '/lookup/')\n"
        "    other = df.sparkSession.read.schema('item string, kind string').csv(beside)\n"
        "    return df.join(F.broadcast(other), on='item', how='left')\n"
    ),
    "a variable of the run, and the error is swallowed": (
        "from day import today_or\n\n\ndef run(df):\n    return df.withColumn('day', F.lit(today_or('unknown')))\n"
    ),
    "the name of the file": (
        "def run(df):\n    return df.withColumn('file', F.element_at(F.split(F.input_file_name(), '/'), -1))\n"
    ),
    "a window over all": (
        "from pyspark.sql import Window\n\n\ndef run(df):\n"
        "    return df.withColumn('n', F.sum('amount').over(Window.partitionBy(F.lit(1))))\n"
    ),
    "rows without duplicates": "def run(df):\n    return df.orderBy('id').select('item').dropDuplicates(['item'])\n",
    "a sample": "def run(df):\n    return df.sample(fraction=0.5, seed=7)\n",
    "other partitions": "def run(df):\n    return df.repartition(3).withColumn('n', F.spark_partition_id())\n",
    "an aggregate of the chunk, broadcast": f"def run(df):\n    return df.join(F.broadcast({TOTAL}), on='item')\n",
}
BY_FILE = {
    "the name of the file",
    "the hash of the plan",
    "a function that knows the first file",
    "a function that knows the first file, from the JVM",
    "a pandas function that knows the first file, from the JVM",
    "a function that knows the plan",
    "a list of values that knows the first file",
}  # other than by hand: options of the reader, escaped names
# Whether it is shared or not: every file is a task of its own, and so is every file by hand.
EITHER = {
    "a function that counts": (
        "seen = []\n\n\n@F.udf('long')\ndef nth(number):\n    seen.append(number)\n    return len(seen)\n\n\n"
        "def run(df):\n    return df.withColumn('n', nth('id'))\n"
    ),
    "a function that counts in a module of its worker": (
        "@F.udf('long')\ndef nth(_id):\n    import string\n\n    string.calls = getattr(string, 'calls', 0) + 1\n"
        "    return string.calls\n\n\ndef run(df):\n    return df.withColumn('n', nth('id'))\n"
    ),
    "a function of a chance that is always the same": ("def run(df):\n    return df.withColumn('n', F.rand(seed=3))\n"),
}
DAY = (
    "import os\n\nLABEL = 'known'\n\n\n\ndef today():\n    return os.environ.get('dataid')\n\n\n"
    "def today_or(other):\n    try:\n        return os.environ['dataid']\n    except Exception:\n        return other\n"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])  # as the process of a chunk has it
    (tmp_path / "pipelines" / "price").mkdir(parents=True)
    (tmp_path / "orders").mkdir()
    (tmp_path / "day.py").write_text(DAY)
    (tmp_path / "prices.csv").write_text("item,price\nnut,0.5\nbolt,2\nnut,0.7\n")
    (tmp_path / "lookup").mkdir()
    for dataid, rows in ORDERS.items():
        (tmp_path / "lookup" / f"{dataid}.csv").write_text(f"nut,of {dataid}\nbolt,{dataid}\n")
        lines = ["id,item,amount", *(f"{number},{item},{amount}" for number, item, amount in rows)]
        (tmp_path / "orders" / f"{dataid}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def specs(home: Path, *, first: int, dataids: Iterable[str] = ORDERS, **changes: Any) -> list[ChunkSpec]:
    """A spec for each chunk; the numbers of the runs begin with `first`."""
    made = []
    for number, dataid in enumerate(dataids):
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
                "rowwise": True,
                "destination": {"datasetid": "priced", "location": str(home / "out" / str(first + number)),
                                "format": "parquet"},
            }
        )  # fmt: skip
        made.append(dataclasses.replace(spec, **changes))
    return made


def produce(spark: SparkSession, wanted: list[ChunkSpec]) -> dict[str, dict[str, Any]]:
    """As the runner has it done: together, one of them compared, and alone what must be."""
    told: list[str] = []
    codes = read_codes(wanted[0])

    def hear(_spec: ChunkSpec, **fields: Any) -> None:
        told.append(str(fields))

    def alone(specs: Sequence[ChunkSpec], hear: Any) -> Iterator[tuple[ChunkSpec, dict[str, Any]]]:
        with pytest.MonkeyPatch.context() as process:  # as that of the chunk
            for name, value in specs[0].environment.items():
                process.setenv(name, value)
            yield from Task(spark.newSession(), codes, hear=hear).run(specs)

    together = Task(spark.newSession(), codes, hear=hear, group="the test's own")
    results = {spec.runid: result for spec, result in (together.run(wanted) if len(wanted) > 1 else ())}
    written = [spec for spec in wanted if "compare" in results.get(spec.runid, {})]
    if written:
        drawn = random.choice(written)
        differs = compared(spark, drawn, results[drawn.runid], alone, hear=hear).get("differs")
        if differs is not None:
            told.append(differs)
            results = {}
    found = {}
    for spec in wanted:
        result = results.get(spec.runid, {"alone": "it differs"})
        if "alone" in result:
            told.append(str(result["alone"]))
            ((_, result),) = alone([spec], hear)
        rows = None
        if result["error"] is None:
            rows = pyarrow.parquet.read_table(spec.destination.location).to_pylist()
            assert result["rows"] == len(rows)
        found[spec.dataid] = {**result, "data": rows, "told": told}
    for name in ("_together", "_alone"):
        assert list((Path(wanted[0].home) / "out").glob(f"*/{name}")) == []
    return found


def by_hand(spark: SparkSession, home: Path) -> dict[str, list[dict[str, Any]]]:
    """What each chunk comes to in a plain loop."""
    text, found = (home / "pipelines/price/step.py").read_text(), {}
    for dataid in COMPARED:
        session = spark.newSession()
        read = session.read.option("header", True)
        df = read.schema("id int, item string, amount int").csv(str(home / "orders" / f"{dataid}.csv"))
        prices = read.schema("item string, price double").csv(str(home / "prices.csv"))
        module: dict[str, Any] = {}
        exec(compile(text, "step.py", "exec"), module)  # noqa: S102  the code of this test
        given = [df, prices] if "prices" in module["run"].__code__.co_varnames[:2] else [df]
        found[dataid] = in_order([row.asDict() for row in module["run"](*given).collect()])
        session.catalog.clearCache()
    return found


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: [str(row[name]) for name in sorted(row)])


def assert_the_same(spark: SparkSession, home: Path, *, shared: bool) -> None:
    together = produce(spark, specs(home, first=100))
    alone = {spec.dataid: produce(spark, [spec])[spec.dataid] for spec in specs(home, first=1)}
    assert {dataid: one["error"] for dataid, one in together.items()} == dict.fromkeys(ORDERS)
    assert {one["job_runid"] for one in together.values()} == ({100} if shared else {None}), together["a"]["told"]
    assert {dataid: one["data"] for dataid, one in together.items()} == {
        dataid: one["data"] for dataid, one in alone.items()
    }
    assert {dataid: one["schema"] for dataid, one in together.items()} == {
        dataid: one["schema"] for dataid, one in alone.items()
    }
    assert {step["status"] for one in together.values() for step in one["steps"]} == {"DONE"}


@pytest.mark.parametrize("what", SHARED)
def test_what_leaves_rows_where_they_are_is_one_job(spark: SparkSession, home: Path, what: str) -> None:
    (home / "pipelines/price/step.py").write_text(HEAD + SHARED[what])
    assert_the_same(spark, home, shared=True)


@pytest.mark.parametrize("what", ALONE)
def test_what_could_mix_chunks_is_produced_chunk_by_chunk(spark: SparkSession, home: Path, what: str) -> None:
    (home / "pipelines/price/step.py").write_text(HEAD + ALONE[what])
    if what in BY_FILE or "variable" in what:
        assert_the_same(spark, home, shared=False)
    else:
        assert_as_by_hand(spark, home, shared=False)


@pytest.mark.parametrize("what", EITHER)
def test_what_is_the_same_for_each_file_is_the_same(spark: SparkSession, home: Path, what: str) -> None:
    (home / "pipelines/price/step.py").write_text(HEAD + EITHER[what])
    assert_as_by_hand(spark, home)


def assert_as_by_hand(spark: SparkSession, home: Path, *, shared: bool | None = None) -> None:
    together = produce(spark, specs(home, first=200, dataids=COMPARED))
    if shared is not None:
        assert {one["job_runid"] for one in together.values()} == ({200} if shared else {None})
    assert {one["error"] for one in together.values()} == {None}
    assert {dataid: in_order(one["data"]) for dataid, one in together.items()} == by_hand(spark, home)


@pytest.mark.parametrize("what", list(SHARED)[: None if EVERY_FAULT else 2])
def test_without_the_promise_nothing_is_shared(spark: SparkSession, home: Path, what: str) -> None:
    """For two of them; for all of them in `make faults`."""
    (home / "pipelines/price/step.py").write_text(HEAD + SHARED[what])
    together = produce(spark, specs(home, first=100, dataids=COMPARED, rowwise=False))
    assert {one["job_runid"] for one in together.values()} == {None}
    assert {dataid: in_order(one["data"]) for dataid, one in together.items()} == by_hand(spark, home)


@pytest.mark.parametrize("seed", range(4 if EVERY_FAULT else 2))
def test_a_value_from_a_file_name_is_found_out_whichever_chunks_are_drawn(
    spark: SparkSession, home: Path, seed: int
) -> None:
    """PySpark's own methods that tell it are watched; behind them is the JVM, where nobody watches.

    Two draws; four in `make faults`.
    """
    (home / "pipelines/price/step.py").write_text(
        HEAD + "def run(df):\n    name = sorted(df._jdf.inputFiles())[0].rpartition('/')[2]\n"
        "    return df.withColumn('day', F.lit(name))\n"
    )
    random.seed(seed)
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


def test_a_chunk_that_is_a_link_to_another_one_is_no_more_than_that(spark: SparkSession, home: Path) -> None:
    (home / "pipelines/price/step.py").write_text("def run(df):\n    return df.where('amount > 0')\n")
    (home / "orders/b.csv").unlink()
    (home / "orders/b.csv").symlink_to("a.csv")
    assert_the_same(spark, home, shared=False)
    assert_as_by_hand(spark, home)


# Random chains --------------------------------------------------------------------------------------------------------
# A step each, on a DataFrame that keeps id, item and amount. `n` makes the names of its columns its own.
KEEPS_ROWS_APART = [
    "df = df.where('amount > 0')",
    "df = df.where(F.col('item').isin('nut', 'bolt'))",
    "df = df.withColumn('c{n}', F.col('amount') * 2 + F.col('id'))",
    "df = df.withColumn('c{n}', F.when(F.col('amount') > 3, F.upper('item')).otherwise(F.lit(None)))",
    "df = df.withColumn('c{n}', F.udf(lambda item: len(item), 'int')('item'))",
    "df = df.withColumn('c{n}', F.explode(F.sequence(F.lit(1), F.lit(2))))",
    "df = df.selectExpr('*', 'concat(item, id) AS c{n}')",
    "df = df.join(prices.select('item', F.col('price').alias('c{n}')), on='item', how='left')",
    "df = df.join(F.broadcast(prices.groupBy('item').agg(F.max('price').alias('c{n}'))), on='item', how='inner')",
    "df = df.join(prices.select('item'), on='item', how='left_semi')",
]
MIXES_ROWS = [
    "df = df.join(F.broadcast(df.groupBy('item').agg(F.sum('amount').alias('c{n}'))), on='item')",
    "df = df.join(df.groupBy('item').agg(F.sum('amount').alias('c{n}')).cache(), on='item')",
    "df = df.crossJoin(df.agg(F.max('amount').alias('c{n}')))",
    "df = df.crossJoin(df.agg(F.max('amount').alias('c{n}')).localCheckpoint(eager=False))",
    "df = df.withColumn('c{n}', F.lit(df.agg(F.max('amount')).first()[0]))",
    "df = df.withColumn('c{n}', F.sum('amount').over(Window.partitionBy('item')))",
    "df = df.union(df)",
    "df = df.dropDuplicates()",
    "df = df.orderBy('amount', 'id').limit(2)",
    "df = df.withColumn('c{n}', df.agg(F.count('*')).scalar())",
    "df = df.join(prices.select(F.col('item').alias('i{n}'), 'price'), F.col('amount') > F.col('price') * 3, 'full')"
    ".drop('price', 'i{n}')",
    "df = df.withColumn('c{n}', F.lit(len(df.inputFiles())))",
]
chains = st.lists(st.sampled_from(KEEPS_ROWS_APART) | st.sampled_from(MIXES_ROWS), min_size=1, max_size=4)


@settings(
    max_examples=150 if EVERY_FAULT else 8, deadline=None, print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(chain=chains)
def test_any_chain_with_the_promise_comes_out_as_a_plain_loop_by_hand(
    spark: SparkSession, home: Path, chain: list[str]
) -> None:
    """A few of them; many in `make faults`."""
    lines = "".join(f"    {step.format(n=number)}\n" for number, step in enumerate(chain))
    code = f"from pyspark.sql import Window\n\n\ndef run(df, prices):\n{lines}    return df\n"
    (home / "pipelines/price/step.py").write_text(HEAD + code)
    together = produce(spark, specs(home, first=next(numbers), dataids=COMPARED))
    assert {one["error"] for one in together.values()} == {None}
    assert {dataid: in_order(one["data"]) for dataid, one in together.items()} == by_hand(spark, home), code
    if not set(chain) & set(MIXES_ROWS):
        written = [one for one in together.values() if one["job_runid"] is not None]
        assert written or all(not one["data"] for one in together.values()), together["a"]["told"]


def in_several_files(home: Path) -> None:
    whole = (home / "orders/b.csv").read_text()
    (home / "orders/b.csv").unlink()
    (home / "orders/b.csv").mkdir()
    (home / "orders/b.csv/one.csv").write_text(whole)
    (home / "orders/b.csv/two.csv").write_text("id,item,amount\n10,nut,1\n")


def test_a_function_that_counts_counts_over_all_files_of_its_chunk(spark: SparkSession, home: Path) -> None:
    (home / "pipelines/price/step.py").write_text(HEAD + EITHER["a function that counts"])
    in_several_files(home)
    (home / "orders/b.csv/three.csv").write_text("id,item,amount\n11,nut,1\n")
    assert_the_same(spark, home, shared=False)


def test_a_function_that_counts_counts_over_as_much_of_a_large_file_as_alone(spark: SparkSession, home: Path) -> None:
    (home / "pipelines/price/step.py").write_text(HEAD + EITHER["a function that counts"])
    rows = "".join(f"{number},{'nut' * 100},1\n" for number in range(15_000))
    (home / "orders/b.csv").write_text(f"id,item,amount\n{rows}")
    assert_the_same(spark, home, shared=False)


def test_a_chunk_of_several_files_keeps_them_together(spark: SparkSession, home: Path) -> None:
    (home / "pipelines/price/step.py").write_text("def run(df):\n    return df.where('amount > 0')\n")
    in_several_files(home)
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
