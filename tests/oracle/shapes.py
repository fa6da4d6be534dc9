"""A project of pipelines whose code keeps what it should not, or mixes what is done together; and the plain loop.

However it is run, a chunk must be what it is alone: made of its own rows, with its own day, at the prices of its time.
"""

from pathlib import Path

from oracle.told import Table, Told, write_csv

DAYS = ["2025-11-01", "2025-11-02", "2025-11-03", "2025-11-04"]
ORDERS = {
    "2025-11-01": [(1, "nut", 4), (2, "bolt", 10), (3, "nut", 5)],
    "2025-11-02": [(4, "nut", 80), (5, "screw", 7)],
    "2025-11-03": [(6, "bolt", 2), (7, "bolt", 30), (8, "nut", 1), (9, "screw", 3)],
    "2025-11-04": [(10, "nut", 6), (11, "bolt", 600)],
}
PRICES = [("nut", 3), ("bolt", 20)]
NEW_PRICES = [("nut", 5), ("bolt", 21), ("screw", 1)]

PROJECT = """\
name: Shapes
environments: {dev: {root: ./data}}
spark: {master: "local[2]", conf: {spark.sql.shuffle.partitions: 2}}
datasets:
  orders:
    path: "orders/{dataid}.csv"
    format: csv
    schema: {order: int, item: string, amount: int}
    partitions: {daily: 2025-11-01..2025-11-04}
  prices: {path: prices.csv, format: csv, schema: {item: string, price: int}, partitions: none}
  kept: {path: kept, format: parquet}
  most: {path: most, format: parquet}
  of_item: {path: of_item, format: parquet}
  unpromised: {path: unpromised, format: parquet}
pipelines:
  - slug: kept
    sources: [orders, prices]
    destination: kept
    transformations: [at_top, imported, view, priced, seen_through_the_view]
  - slug: most
    sources: [orders]
    destination: most
    transformations: [most]
    rowwise: true                 # which is not true: its plan must tell
    chunks_per_job: 4
  - slug: of_item
    sources: [orders]
    destination: of_item
    transformations: [of_item]
    rowwise: true                 # nor is this
    chunks_per_job: 4
  - slug: unpromised
    sources: [orders]
    destination: unpromised
    transformations: [most, of_item]
    chunks_per_job: 4
"""
MOST = """\
def run(df):
    df.createOrReplaceTempView("chunk")
    return df.sparkSession.sql("SELECT *, (SELECT max(amount) FROM chunk) AS most FROM chunk")
"""
OF_ITEM = """\
from pyspark.sql import functions as F


def run(df):
    totals = df.groupBy("item").agg(F.sum("amount").alias("of_item")).cache()
    return df.join(totals, on="item", how="inner").select(*df.columns, "of_item")
"""
FILES = {
    "project.yml": PROJECT,
    "shared/days.py": 'import os\n\nDAY = os.environ["dataid"]\nSEEN = []\n',
    "pipelines/kept/at_top.py": """\
import os

from pyspark.sql import functions as F

DAY = os.environ["dataid"]
CALLS = []


def run(df):
    CALLS.append(DAY)
    return df.withColumn("at_top", F.lit(DAY)).withColumn("calls", F.lit(" ".join(CALLS)))
""",
    "pipelines/kept/imported.py": """\
from pyspark.sql import functions as F
from shared.days import DAY, SEEN


def run(df):
    SEEN.append(DAY)
    return df.withColumn("imported", F.lit(DAY)).withColumn("seen", F.lit(" ".join(SEEN)))
""",
    "pipelines/kept/view.py": """\
def run(df):
    if not df.sparkSession.catalog.tableExists("chunk"):
        df.createOrReplaceTempView("chunk")
    return df
""",
    "pipelines/kept/priced.py": """\
def run(df, prices):
    prices = prices.cache()
    prices.count()
    return df.join(prices, on="item", how="left").select(*df.columns, "price")
""",
    "pipelines/kept/seen_through_the_view.py": """\
from pyspark.sql import functions as F


def run(df):
    spark = df.sparkSession
    total = spark.table("chunk").agg(F.sum("amount").alias("total"))
    joined = df.crossJoin(total)
    spark.catalog.dropTempView("chunk")
    return joined
""",
    "pipelines/most/most.py": MOST,
    "pipelines/of_item/of_item.py": OF_ITEM,
    "pipelines/unpromised/most.py": MOST,
    "pipelines/unpromised/of_item.py": OF_ITEM,
}
ORDER = {"order": "int32", "item": "string", "amount": "int32"}
COLUMNS = {
    "kept": {**ORDER, "at_top": "string", "calls": "string", "imported": "string", "seen": "string", "price": "int32",
             "total": "int64"},
    "most": {**ORDER, "most": "int32"},
    "of_item": {**ORDER, "of_item": "int64"},
    "unpromised": {**ORDER, "most": "int32", "of_item": "int64"},
}  # fmt: skip


def lay_out(folder: Path, *, new_prices_from: str = "9999") -> Told:
    """The project with all its days; those from that day on are made at the new prices."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    set_prices(folder, PRICES)
    made = {}
    for day in DAYS:
        write_csv(folder / f"data/orders/{day}.csv", list(ORDER), ORDERS[day])
        for slug, rows in _loop(day, NEW_PRICES if day >= new_prices_from else PRICES).items():
            path = f"data/{slug}/dataid={day}/current"
            made[slug, day] = Table(path=path, columns=COLUMNS[slug], rows=rows)
    arrive = [["ready", "prices", "full"], ["ready", "orders", *(day for day in DAYS if day < new_prices_from)]]
    jobs = dict.fromkeys(COLUMNS, DAYS)
    return Told(jobs=jobs, made=made, arrive=arrive, step="pipelines/kept/priced.py")


def set_prices(folder: Path, prices: list[tuple[str, int]]) -> None:
    write_csv(folder / "data/prices.csv", ("item", "price"), prices)


def _loop(day: str, prices: list[tuple[str, int]]) -> dict[str, list[tuple[object, ...]]]:
    """The rows of each pipeline's chunk of that day."""
    made: dict[str, list[tuple[object, ...]]] = {slug: [] for slug in COLUMNS}
    total, most, of_item = 0, 0, dict[str, int]()
    for _, item, amount in ORDERS[day]:
        total += amount
        most = max(most, amount)
        of_item[item] = of_item.get(item, 0) + amount
    for order in ORDERS[day]:
        item = order[1]
        made["kept"].append((*order, day, day, day, day, dict(prices).get(item), total))
        made["most"].append((*order, most))
        made["of_item"].append((*order, of_item[item]))
        made["unpromised"].append((*order, most, of_item[item]))
    return made
