"""Types between Spark and every other system, both ways, by the one table."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType as SparkType
from pyspark.sql.types import StructType, _parse_datatype_string

from opendataflow.checks.arrow_types import from_arrow, to_arrow
from opendataflow.domain.types.databases import find_type
from opendataflow.domain.types.spark import FROM_ARROW, SIMPLE, spark_type
from opendataflow.errors import JobFailed
from opendataflow.spark.adbc import resolve
from opendataflow.spark.files import read_chunk, write_chunk
from opendataflow.spark.pandas_files import read_source
from opendataflow.spark.spec import Database, Place
from opendataflow.spark.sql_columns import column_type, moves
from opendataflow.spark.sql_describe import describe
from opendataflow.spark.sql_look import first_rows
from opendataflow.spark.sql_read import read_table
from opendataflow.spark.sql_target import open_target
from opendataflow.spark.types import data_type, type_name
from support.postgres import Server

NESTED = (
    "decimal(10,2)", "decimal(38,38)", "array<array<int>>", "map<string,decimal(5,0)>", "varchar(3)", "char(5)",
    "struct<a:int,`b c`:array<struct<`d``e`:date,`f,g`:string>>>", "struct<>", "void", "interval day to second",
    "variant",
)  # fmt: skip
OLD = {"tinyint": "smallint", "timestamp_ntz": "timestamp", "varchar(3)": "string", "char(5)": "string"}


def parsed(text: str) -> SparkType:
    return _parse_datatype_string(text)


def source(url: str, *, schema: dict[str, str] | None = None, **fields: Any) -> Place:
    database = Database(**{"url": url, "options": {}, **fields})
    return Place(datasetid="crm", location="", format="sql", options={}, schema=schema, database=database)


@pytest.fixture(scope="module")
def url(postgres_server: Server) -> str:
    return postgres_server.new_database()


@pytest.mark.parametrize("name", [*SIMPLE, *NESTED])
def test_each_type_of_spark_becomes_a_value_and_text_that_spark_reads_as_the_same(
    spark: SparkSession, name: str
) -> None:
    there = StructType.fromDDL(f"c {name}")
    assert str(data_type(there["c"].dataType)) == name
    assert StructType.fromDDL(f"c {type_name(there['c'].dataType)}") == there


@pytest.mark.parametrize("name", [*SIMPLE, *NESTED[:3], "struct<a:int,b:array<timestamp_ntz>>"])
def test_arrows_types_are_those_that_spark_itself_takes(spark: SparkSession, name: str) -> None:
    there = parsed(name)
    mine = to_arrow(spark_type(name))
    assert mine == to_arrow_type(there, timezone="UTC")
    assert data_type(from_arrow_type(mine)) == from_arrow(mine)


def test_what_arrow_has_besides_is_what_spark_makes_of_it_in_a_file(spark: SparkSession, tmp_path: Path) -> None:
    from pyarrow import parquet

    columns = {name: pa.nulls(1, pa.type_for_alias(name)) for name in FROM_ARROW if name not in ("null", "float16")}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    read = spark.read.parquet(str(tmp_path / "a.parquet"))
    assert {field.name: type_name(field.dataType) for field in read.schema} == {
        name: FROM_ARROW[name] for name in columns
    }


def test_each_type_has_a_column_in_postgresql_that_takes_it_and_gives_it_back(spark: SparkSession, url: str) -> None:
    kinds = {name: column_type("postgresql", spark_type(name)) for name in [*SIMPLE, *NESTED]}
    nowhere = {"map<string,decimal(5,0)>", "array<array<int>>", NESTED[6], *NESTED[7:]}
    assert {name for name, kind in kinds.items() if kind is None} == nowhere
    held = {f"c{number}": (name, kind) for number, (name, kind) in enumerate(kinds.items()) if kind is not None}
    with psycopg.connect(url, autocommit=True) as sql:
        sql.execute(f"CREATE TABLE held ({', '.join(f'{column} {kind}' for column, (_, kind) in held.items())})")
    found = {column.name: column.spark_type for column in describe(source(url, table="held")).columns}
    assert found == {column: OLD.get(name, name) for column, (name, _) in held.items()}
    target = open_target(resolve(Database(url=url, options={})))
    try:
        told = target.columns("held")
    finally:
        target.close()
    schema = StructType.fromDDL(", ".join(f"{column} {name}" for column, (name, _) in held.items()))
    moved, problems = moves(schema, told, "postgresql")
    assert problems == []
    assert [move.sql for move in moved] == [f'"{column}"' for column in held]


def test_each_type_has_a_column_in_sqlite_that_takes_it_and_gives_it_back(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {name: column_type("sqlite", spark_type(name)) for name in [*SIMPLE, *NESTED]}
    assert {name for name, kind in kinds.items() if kind is None} == {*NESTED[2:4], NESTED[6], *NESTED[7:]}
    held = {f"c{number}": (name, kind) for number, (name, kind) in enumerate(kinds.items()) if kind is not None}
    database = Database(url=f"sqlite:///{tmp_path}/a.db", options={})
    target = open_target(resolve(database))
    try:
        target.run(f"CREATE TABLE held ({', '.join(f'{column} {kind}' for column, (_, kind) in held.items())})")
        told = target.columns("held")
    finally:
        target.close()
    schema = StructType.fromDDL(", ".join(f"{column} {name}" for column, (name, _) in held.items()))
    moved, problems = moves(schema, told, "sqlite")
    assert (problems, len(moved)) == ([], len(held))
    coarse = {"tinyint": "bigint", "smallint": "bigint", "int": "bigint", "float": "double", **OLD} | {
        "tinyint": "bigint", "decimal(10,2)": "string", "decimal(38,38)": "string",
    }  # fmt: skip
    found = {column.name: column.spark_type for column in describe(source(database.url, table="held")).columns}
    assert found == {column: coarse.get(name, name) for column, (name, _) in held.items()}


def test_each_type_of_bigquery_is_understood_in_its_own_words(spark: SparkSession) -> None:
    for name in SIMPLE:
        there = column_type("bigquery", spark_type(name))
        assert there is not None
        found = find_type(f"ARRAY<STRUCT<`a b` {there}>>")
        assert found is not None
        assert str(found) == f"array<struct<`a b`:{there.lower()}>>"


# Faults of tables that differed ---------------------------------------------------------------------------------------
def test_names_inside_of_a_struct_are_quoted_in_the_schema_that_a_write_records(
    spark: SparkSession, tmp_path: Path
) -> None:
    import json

    df = spark.sql("SELECT named_struct('a b', 1, 'c:d', named_struct('e', 'x')) AS s")
    out = Place(datasetid="out", location=str(tmp_path / "run"), format="parquet", options={}, schema=None)
    written = write_chunk(df, out, [])
    declared = json.loads(written.schema)
    assert declared == {"s": "struct<`a b`:int,`c:d`:struct<e:string>>"}
    again = Place(datasetid="out", location=out.location, format="parquet", options={}, schema=declared)
    assert read_chunk(spark, again).collect() == df.collect()


def test_every_spelling_of_a_type_is_the_same_to_pandas(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,c,d\n1,2,3.50,4.5\n")
    declared = {"a": "short", "b": "byte", "c": "NUMERIC(10, 2)", "d": "real"}
    place = {"datasetid": "crm", "locations": [str(tmp_path / "a.csv")], "format": "csv", "options": {}}
    df = read_source({**place, "schema": declared, "single_file": True})
    assert {name: str(dtype) for name, dtype in df.dtypes.items()} == {
        "a": "int16", "b": "int8", "c": "object", "d": "float32",
    }  # fmt: skip
    assert df["c"].tolist() == [Decimal("3.50")]
    assert isinstance(df, pandas.DataFrame)


def test_every_spelling_of_a_type_is_the_same_to_a_database(spark: SparkSession, url: str, tmp_path: Path) -> None:
    declared = {"n": "NUMERIC(10, 2)", "at": "TIMESTAMP_LTZ", "small": "Short"}
    with psycopg.connect(url, autocommit=True) as sql:
        sql.execute("CREATE TABLE spelt AS SELECT 1.005::numeric AS n, now() AS at, 7::smallint AS small")
    df = read_table(spark, source(url, table="spelt", schema=declared))
    assert [field.dataType.simpleString() for field in df.schema] == ["decimal(10,2)", "timestamp", "smallint"]
    (row,) = df.collect()
    assert (row.n, row.small) == (Decimal("1.01"), 7)
    names, (first,) = first_rows(source(url, table="spelt", schema=declared), 1)
    assert (names, first[0], first[2]) == (list(declared), Decimal("1.01"), 7)
    assert isinstance(first[1], dt.datetime)
    with pytest.raises(JobFailed, match=r"crm: column n is declared as decimal\(50,2\), which a source in a database"):
        describe(source(url, table="spelt", schema={"n": "decimal(50,2)"}))

    database = f"sqlite:///{tmp_path}/spelt.db"
    target = open_target(resolve(Database(url=database, options={})))
    try:
        target.run("CREATE TABLE spelt (day text, n text)")
        target.run("INSERT INTO spelt VALUES ('2025-01-31', '1.25')")
    finally:
        target.close()
    place = source(database, table="spelt", schema={"day": "DATE", "n": "dec(5,2)"})
    assert [tuple(row) for row in read_table(spark, place).collect()] == [(dt.date(2025, 1, 31), Decimal("1.25"))]
