"""Files into tables without Spark's rows: the same values by both ways, and only where Arrow reads what Spark reads."""

import datetime
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from opendataflow.domain.checks.check import Check
from opendataflow.spark.files import read_chunk
from opendataflow.spark.pipeline import Task, read_codes
from opendataflow.spark.spec import ChunkSpec, Database, Place
from opendataflow.spark.sql_load import find_load
from support.postgres import Server

ROWS = 1_000_000 if "DATAFLOW_EVERY_FAULT" in os.environ else 450_000  # two parts; `make faults`: a million
AS_IT_IS = "def run(df):\n    return df\n"
MOMENT = datetime.datetime(2025, 1, 31, 23, 59, 59, 123456)  # noqa: DTZ001
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [-128, 127, None]),
    "big": (pa.int64(), [-(2**63), None, 2**63 - 1]),
    "double": (pa.float64(), [float("nan"), float("-inf"), None]),
    "money": (pa.decimal128(12, 2), ["0.10", "-9999999999.99", None]),
    "day": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
    "at": (pa.timestamp("us", tz="UTC"), [MOMENT.replace(tzinfo=datetime.UTC), None, MOMENT]),
    "local": (pa.timestamp("us"), [MOMENT, None, MOMENT]),
    "text": (pa.string(), ["żółw 🐢", "", None]),
    "bytes": (pa.binary(), [b"\x00\xff", b"", None]),
    "numbers": (pa.list_(pa.int32()), [[1, None, 3], [], None]),
    "sequence": (pa.int32(), [1, 2, 3]),
}
EVERY_KIND = """
CREATE TABLE made AS
SELECT n AS id, (n % 2000)::smallint AS small, (n / 7.0)::numeric(14,4) AS share, n * 1.1::float8 AS weight,
  n % 3 = 0 AS flag, date '2000-01-01' + n % 9000 AS day, timestamp '2025-01-01' + n * interval '7 s' AS local,
  timestamptz '2025-01-01 00:00Z' + n * interval '1.000001 s' AS at, decode(md5(n::text), 'hex') AS digest,
  CASE WHEN n % 5 > 0 THEN md5(n::text) || ' żółw 🐢' END AS note, ARRAY[n, NULL, n * 2] AS numbers
FROM generate_series(1, {rows}) n
"""


def loaded(folder: Path, columns: dict[str, tuple[pa.DataType, list[Any]]], **how: Any) -> Place:
    arrays = {name: pa.array(values, pa.string()).cast(kind) if pa.types.is_decimal(kind) else pa.array(values, kind)
              for name, (kind, values) in columns.items()}  # fmt: skip
    folder.mkdir()
    pq.write_table(pa.table(arrays), folder / "part-0.parquet", row_group_size=2, **how)
    return Place(datasetid="orders", location=str(folder), format="parquet", options={}, schema=None)


def spec(source: Place, url: str, *, table: str, run: int, home: Path, codes: tuple[str, ...] = ()) -> ChunkSpec:
    database = Database(url=url, options={}, table=table, write="replace_table", dataids=("1",))
    place = Place(datasetid="out", location=url, format="sql", options={}, schema=None, database=database)
    return ChunkSpec(
        home=str(home), slug="copy", transformations=codes, dataid="1", runid=run, spark={}, environment={},
        sources=(source,), destination=place, published_run=None, inputs_digest="same",
    )  # fmt: skip


def produce(spark: SparkSession, wanted: ChunkSpec) -> int:
    ((_, result),) = Task(spark, read_codes(wanted), hear=lambda _spec, **_said: None).run([wanted])
    assert result["error"] is None, result["error"]
    return int(result["rows"])


def all_rows(url: str, table: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(f"SELECT t::text FROM {table} t ORDER BY 1").fetchall()


def test_a_load_and_spark_s_own_rows_come_out_the_same(
    spark: SparkSession, postgres_server: Server, tmp_path: Path
) -> None:
    url = postgres_server.new_database()
    source = loaded(tmp_path / "in", TYPES)
    (tmp_path / "pipelines" / "copy").mkdir(parents=True)
    (tmp_path / "pipelines" / "copy" / "as_it_is.py").write_text(AS_IT_IS)
    direct = spec(source, url, table="direct", run=1, home=tmp_path)
    through = spec(source, url, table="through", run=2, home=tmp_path, codes=("as_it_is",))
    schema = read_chunk(spark, source).schema
    assert find_load(spark, direct, schema) is not None
    assert find_load(spark, through, schema) is None
    assert (produce(spark, direct), produce(spark, through)) == (3, 3)
    found = all_rows(url, "direct")
    assert len(found) == 3
    assert found == all_rows(url, "through")


@pytest.mark.parametrize(
    "why", ["INT96", "a check", "an option", "another calendar", "a type that Spark reads as another"]
)
def test_what_arrow_reads_otherwise_is_left_to_spark(spark: SparkSession, tmp_path: Path, why: str) -> None:
    columns = {"at": TYPES["at"], "id": (pa.uint32() if why.startswith("a type") else pa.int32(), [1, 2, 3])}
    source = loaded(tmp_path / "in", columns, use_deprecated_int96_timestamps=why == "INT96")
    if why == "another calendar":
        path = tmp_path / "in" / "part-0.parquet"
        table = pq.read_table(path)
        pq.write_table(table.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}), path)
    wanted = spec(source, "sqlite:///x.db", table="t", run=1, home=tmp_path)
    schema = read_chunk(spark, source).schema
    if why == "a check":
        wanted = replace(wanted, checks=(Check("not_null", {"columns": ["id"]}),))
    if why == "an option":
        wanted = replace(wanted, sources=(replace(source, options={"mergeSchema": "true"}),))
    assert find_load(spark, wanted, schema) is None


def test_many_rows_in_parts_go_out_and_back_value_by_value(
    spark: SparkSession, postgres_server: Server, tmp_path: Path
) -> None:
    url, rows = postgres_server.new_database(), ROWS
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(EVERY_KIND.format(rows=rows))
        connection.execute("CREATE TABLE back (LIKE made)")
    table = Place(
        datasetid="made", location=url, format="sql", options={}, schema=None,
        database=Database(url=url, options={}, table="made", dataids=("1",)),
    )  # fmt: skip
    files = Place(datasetid="files", location=str(tmp_path / "out"), format="parquet", options={}, schema=None)
    back = spec(files, url, table="back", run=2, home=tmp_path)
    assert produce(spark, replace(back, sources=(table,), destination=files, runid=1)) == rows
    assert find_load(spark, back, read_chunk(spark, files).schema) is not None
    assert produce(spark, back) == rows
    with psycopg.connect(url) as connection:
        sums = [
            connection.execute(f"SELECT count(*), sum(hashtextextended(t::text, 0)) FROM {name} t").fetchone()
            for name in ("made", "back")
        ]
    assert sums[0] == sums[1]
    assert (sums[0] or (0,))[0] == rows
