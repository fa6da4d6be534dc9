"""SQL sources as DataFrames and as files: every type and value, what the database is asked, and at which moment."""

import datetime as dt
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import adbc_driver_postgresql
import psycopg
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    Not,
    StringStartsWith,
)

from opendataflow.errors import JobFailed
from opendataflow.spark.adbc import chunk_condition, connect
from opendataflow.spark.files import read_chunk
from opendataflow.spark.spark_errors import message
from opendataflow.spark.spec import Database, Place
from opendataflow.spark.sql_describe import describe
from opendataflow.spark.sql_extract import extract
from opendataflow.spark.sql_pushdown import split
from opendataflow.spark.sql_pushed import pushed_down
from opendataflow.spark.sql_read import read_table, sql_reads
from opendataflow.spark.sql_types import arrow_columns
from support.postgres import Server
from support.processes import wait_for
from support.relay import relay

LARGE = 420_000  # more than twice what a part has at least
JDBC_JAR = "/usr/share/java/postgresql.jar"  # Debian's libpostgresql-jdbc-java


@pytest.fixture(scope="module")
def server(postgres_server: Server) -> Server:
    return postgres_server


@pytest.fixture(scope="module")
def url(server: Server) -> str:
    return server.new_database()


@pytest.fixture(scope="module")
def sql(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        yield connection


@pytest.fixture(scope="module")
def large(sql: psycopg.Connection[Any]) -> str:
    sql.execute(f"CREATE TABLE large AS SELECT n AS id, 'note ' || n AS note FROM generate_series(1, {LARGE}) AS n")
    sql.execute("ANALYZE large")
    return "large"


def source(url: str, *, schema: dict[str, str] | None = None, **fields: Any) -> Place:
    database = Database(**{"url": url, "options": {}, **fields})
    return Place(datasetid="crm", location="", format="sql", options={}, schema=schema, database=database)


def folder(path: Path) -> Place:
    return Place(datasetid="out", location=str(path), format="parquet", options={}, schema=None)


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in df.collect()), key=repr)


# Types ----------------------------------------------------------------------------------------------------------------
UTC = dt.UTC
EARLY = dt.datetime(1, 1, 2, tzinfo=UTC)
LATE = dt.datetime(9999, 12, 30, 23, 59, 59, 999_999, tzinfo=UTC)
LONG = "1234567890123456789012345678.0123456789"
UUID = "abcdef00-0000-4000-8000-0000000000ff"
# PostgreSQL's type, Spark's, and literals with what they are in Python. Timestamps come back in this machine's zone.
TYPES: list[tuple[str, str, list[tuple[str, Any]]]] = [
    ("boolean", "boolean", [("true", True), ("false", False)]),
    ("smallint", "smallint", [("-32768", -32768), ("32767", 32767)]),
    ("integer", "int", [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)]),
    ("bigint", "bigint", [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)]),
    ("real", "float", [("'1.5'", 1.5), ("'-Infinity'", float("-inf"))]),
    ("double precision", "double", [("0.1", 0.1), ("'1e-300'", 1e-300)]),
    ("numeric(12,2)", "decimal(12,2)", [("-9999999999.99", Decimal("-9999999999.99")), ("0.01", Decimal("0.01"))]),
    ("numeric(18,0)", "decimal(18,0)", [("999999999999999999", Decimal(10**18 - 1)), ("-1", Decimal(-1))]),
    ("numeric(38,10)", "decimal(38,10)", [(LONG, Decimal(LONG)), ("0", Decimal("0E-10"))]),
    ("numeric(5,-2)", "decimal(7,0)", [("1234567", Decimal(1234600)), ("0", Decimal(0))]),
    ("numeric(2,4)", "decimal(4,4)", [("0.0012", Decimal("0.0012")), ("-0.0099", Decimal("-0.0099"))]),
    ("numeric", "decimal(38,18)", [("1.0000000000000000004", Decimal(1)), (f"{10**19}.5", Decimal(f"{10**19}.5"))]),
    ("text", "string", [("''", ""), ("'żółć 😀 \t\n''\"\\'", "żółć 😀 \t\n'\"\\")]),
    ("varchar(5)", "string", [("'abc'", "abc"), ("'😀😀😀😀😀'", "😀😀😀😀😀")]),
    ("char(5)", "string", [("'abc'", "abc  "), ("''", "     ")]),
    ("bytea", "binary", [("'\\x00ff80'", bytearray(b"\x00\xff\x80")), ("''", bytearray())]),
    ("date", "date", [("'0001-01-01'", dt.date(1, 1, 1)), ("'9999-12-31'", dt.date(9999, 12, 31))]),
    ("timestamptz", "timestamp", [("'0001-01-02 00:00:00+00'", EARLY), ("'9999-12-30 23:59:59.999999+00'", LATE)]),
    ("timestamp", "timestamp", [("'0001-01-02'", EARLY), ("'9999-12-30 23:59:59.999999'", LATE)]),
    ("time", "string", [("'23:59:59.999999'", "23:59:59.999999"), ("'00:00'", "00:00:00")]),
    ("interval", "string", [("'1 day 2 hours'", "1 day 02:00:00"), ("'0'", "00:00:00")]),
    ("uuid", "string", [(f"'{UUID}'", UUID), (f"'{UUID.upper()}'", UUID)]),
    ("json", "string", [('\'{"a":  [1, "ü"]}\'', '{"a":  [1, "ü"]}'), ("'null'", "null")]),
    ("jsonb", "string", [('\'{"b":1,"a":  2}\'', '{"a": 2, "b": 1}'), ("'[]'", "[]")]),
    ("integer[]", "array<int>", [("'{1,NULL,-3}'", [1, None, -3]), ("'{}'", [])]),
    ("text[]", "array<string>", [("'{a,NULL,\"ü, \"}'", ["a", None, "ü, "]), ("'{}'", [])]),
    ("numeric(10,2)[]", "array<decimal(10,2)>", [("'{1.5,NULL}'", [Decimal("1.50"), None]), ("'{}'", [])]),
    ("timestamptz[]", "array<timestamp>", [("'{0001-01-02 00:00:00+00}'", [EARLY]), ("'{}'", [])]),
    ("uuid[]", "array<string>", [(f"'{{{UUID}}}'", [UUID]), ("'{}'", [])]),
    ("mood", "string", [("'so so'", "so so"), ("'żle'", "żle")]),
    ("mood[]", "array<string>", [("'{so so,NULL}'", ["so so", None]), ("'{}'", [])]),
    ("price", "decimal(10,2)", [("1.5", Decimal("1.50")), ("2", Decimal("2.00"))]),
    ("inet", "string", [("'10.0.0.1/8'", "10.0.0.1/8"), ("'::1'", "::1/128")]),
    ("oid", "bigint", [("4000000000", 4_000_000_000), ("0", 0)]),
    ("money", "decimal(19,2)", [("12.34", Decimal("12.34")), ("-1", Decimal("-1.00"))]),
]


def in_utc(value: Any) -> Any:
    """Spark gives times in this machine's zone, without saying so."""
    if isinstance(value, dt.datetime):
        return value.astimezone(UTC)
    return [in_utc(one) for one in value] if isinstance(value, list) else value


def test_every_type_and_value_arrives_as_it_is_and_the_extract_s_files_hold_the_same(
    spark: SparkSession, url: str, sql: psycopg.Connection[Any], tmp_path: Path
) -> None:
    sql.execute("CREATE TYPE mood AS ENUM ('so so', 'żle')")
    sql.execute("CREATE DOMAIN price AS numeric(10,2) CHECK (value > 0)")
    columns = ", ".join(f'"c {number}" {type_}' for number, (type_, _, _) in enumerate(TYPES))
    sql.execute(f'CREATE TABLE "Every Type" (n int, {columns})')
    for n, pick in enumerate((0, 1, None)):
        literals = ", ".join("NULL" if pick is None else values[pick][0] for _, _, values in TYPES)
        sql.execute(f'INSERT INTO "Every Type" VALUES ({n}, {literals})')
    expected = [
        [n, *(None if pick is None else values[pick][1] for _, _, values in TYPES)]
        for n, pick in enumerate((0, 1, None))
    ]
    place = source(url, table='public."Every Type"')
    df = read_table(spark, place)
    assert [field.dataType.simpleString() for field in df.schema][1:] == [type_ for _, type_, _ in TYPES]
    found = sorted(df.collect(), key=lambda row: row.n)
    assert [[in_utc(value) for value in row] for row in found] == expected

    written = extract(spark, place, folder(tmp_path / "run"))
    assert (written.rows, written.files) == (3, 1)
    assert json.loads(written.schema) == {field.name: field.dataType.simpleString() for field in df.schema}
    files = read_chunk(spark, folder(tmp_path / "run"))
    assert files.schema == df.schema
    assert sorted(files.collect(), key=lambda row: row.n) == found
    # A query says less about its types, and gives the same.
    query = read_table(spark, source(url, query='SELECT * FROM "Every Type" -- all of them'))
    assert query.schema == df.schema
    assert sorted(query.collect(), key=lambda row: row.n) == found
    empty = extract(spark, source(url, query='SELECT * FROM "Every Type" WHERE n < 0'), folder(tmp_path / "empty"))
    assert (empty.rows, empty.files) == (0, 1)
    assert read_chunk(spark, folder(tmp_path / "empty")).schema == df.schema


@pytest.mark.parametrize(
    ("type_", "value", "sentence"),
    [
        ("point", "'(1,2)'", r"crm: column odd is point, which is not supported; .*in `query:`, .*\"odd\"::text"),
        ("numeric(40,2)", "1", r"column odd is numeric\(40,2\), which is not supported \(.* at most 38 digits\)"),
        ("numeric(10,2)", "'NaN'", r"a numeric column of odd holds NaN, which no decimal is"),
        ("numeric", "'NaN'", r"column odd \(numeric\) has a value that is no decimal\(38,18\)"),
        ("timestamptz", "'infinity'", r"column odd \(timestamp with time zone\) has a value .*infinity"),
        ("date", "'-infinity'", r"column odd \(date\) has a value that is no date \(it is infinity\)"),
        ("integer[]", "'{{1,2},{3,4}}'", r"column odd of odd holds an array of arrays, which is not supported"),
    ],
)
def test_what_spark_has_no_type_or_value_for_is_an_error_that_names_the_column(
    spark: SparkSession, url: str, sql: psycopg.Connection[Any], type_: str, value: str, sentence: str, tmp_path: Path
) -> None:
    sql.execute(f"DROP TABLE IF EXISTS odd; CREATE TABLE odd (id int, odd {type_})")
    sql.execute(f"INSERT INTO odd VALUES (1, {value})")
    with pytest.raises(JobFailed, match=sentence):
        extract(spark, source(url, table="odd"), folder(tmp_path / "run"))
    # Who declares what is wanted does not get the rest.
    assert rows(read_table(spark, source(url, table="odd", schema={"id": "bigint"}))) == [(1,)]


def test_a_declared_schema_chooses_columns_and_types(
    spark: SparkSession, url: str, sql: psycopg.Connection[Any]
) -> None:
    sql.execute("CREATE TABLE declared (a int, b numeric, c timestamp, d text)")
    sql.execute("INSERT INTO declared VALUES (1, 2.345, '2025-01-01 10:00', '7')")
    schema = {"c": "timestamp_ntz", "b": "decimal(10,3)", "a": "string", "d": "int"}
    df = read_table(spark, source(url, table="declared", schema=schema))
    assert {field.name: field.dataType.simpleString() for field in df.schema} == schema
    assert rows(df) == [(dt.datetime(2025, 1, 1, 10), Decimal("2.345"), "1", 7)]  # noqa: DTZ001
    with pytest.raises(JobFailed, match=r"there is no column nope, which `schema:` declares; there are a, b, c, d"):
        read_table(spark, source(url, table="declared", schema={"nope": "int"}))


# What the database is asked -------------------------------------------------------------------------------------------
def asked(server: Server, sql: psycopg.Connection[Any]) -> list[str]:
    """The statements that fetched rows of `pushed`, as the server logged them."""
    sql.execute("SELECT 1")  # what came before is in the log
    lines = (server.data / "log").read_text().splitlines()
    return [line for line in lines if 'FROM "pushed"' in line and "COPY" in line and "LIMIT 0" not in line]


@pytest.fixture(scope="module")
def pushed(sql: psycopg.Connection[Any]) -> str:
    sql.execute(
        "CREATE TABLE pushed AS SELECT n::bigint AS id, CASE WHEN n % 10 > 0 THEN 'name_' || n END AS name, "
        "timestamptz '2025-01-01 00:00+00' + n * interval '1 hour' AS at, date '2025-01-01' + n AS day, "
        "(n * 1.01)::numeric(10,2) AS amount, ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid AS u, "
        "repeat('x', 1000) AS big FROM generate_series(1, 100) AS n"
    )
    return "pushed"


def test_each_condition_means_in_the_database_what_it_means_here(
    url: str, sql: psycopg.Connection[Any], pushed: str
) -> None:
    numbers, names = range(1, 101), {n: f"name_{n}" for n in range(1, 101) if n % 10}
    nobody = [n for n in numbers if n % 10 == 0]
    cases: list[tuple[Filter, list[int]]] = [
        (GreaterThan(("id",), 95), [96, 97, 98, 99, 100]),
        (EqualTo(("name",), "name_7"), [7]),
        (StringStartsWith(("name",), "name_9"), [n for n in names if names[n].startswith("name_9")]),
        (LessThan(("name",), "name_2"), [n for n in names if names[n] < "name_2"]),
        (IsNull(("name",)), nobody),
        (Not(In(("id",), (1, 2, 3))), list(range(4, 101))),
        (GreaterThanOrEqual(("at",), dt.datetime(2025, 1, 4, 12, tzinfo=UTC)), list(range(84, 101))),
        (EqualTo(("day",), dt.date(2025, 1, 5)), [4]),
        (GreaterThan(("amount",), Decimal("99.00")), [99, 100]),
        (EqualTo(("u",), "00000000-0000-4000-8000-000000000042"), [42]),
    ]
    columns = describe(source(url, table=pushed), cores=2).columns
    for filter_, expected in cases:
        (condition,), left = split([filter_], columns, "postgresql")
        assert left == []
        found = sql.execute(f"SELECT id FROM {pushed} WHERE {condition.replace('%%', '%')} ORDER BY id").fetchall()
        assert [number for (number,) in found] == expected, condition


def test_filters_and_needed_columns_are_the_database_s_business(
    spark: SparkSession, server: Server, url: str, sql: psycopg.Connection[Any], pushed: str
) -> None:
    """Some kinds of conditions, through Spark; all of them in `make faults`."""
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    sql.execute(f"ALTER DATABASE \"{name}\" SET log_statement = 'all'")
    df = read_table(spark, source(url, table=pushed))
    often = [
        (F.col("name").startswith("name_9"), r"\"name\" LIKE"),
        (F.col("name") < "name_2", r'"name" COLLATE "C" < '),
        (~F.col("id").isin(1, 2, 3), r'NOT \("id" IN \(1, 2, 3\)\)'),
        (F.col("at") >= F.lit("2025-01-04 12:00:00").cast("timestamp"), r"\"at\" >= '2025-01-04 12:00:00"),
        (F.col("u") == "00000000-0000-4000-8000-000000000042", r"\"u\" = '00000000-"),
    ]
    others = [
        (F.col("id") > 95, r'"id" > 95'),
        (F.col("name") == "name_7", "\"name\" = 'name_7'"),
        (F.col("name").isNull(), r'"name" IS NULL'),
        (F.col("day") == dt.date(2025, 1, 5), r"\"day\" = '2025-01-05'"),
        (F.col("amount") > Decimal("99.00"), r'"amount" > 99.00'),
        (F.col("name").eqNullSafe(None), r'"name" IS NULL|IS NOT DISTINCT'),
    ]
    here = spark.createDataFrame(df.collect(), df.schema)  # where Spark decides by itself
    for condition, sent in often + others if "DATAFLOW_EVERY_FAULT" in os.environ else often:
        before = len(asked(server, sql))
        narrow = df.where(condition).select("id")
        with pushed_down(narrow):
            assert rows(narrow) == rows(here.where(condition).select("id")), sent
        (statement,) = asked(server, sql)[before:]
        assert re.search(sent, statement), statement
        assert 'NULL::text AS "big"' in statement
    sql.execute(f'ALTER DATABASE "{name}" RESET log_statement')


def test_one_source_used_twice_in_a_query_gives_each_use_its_own_rows(
    spark: SparkSession, url: str, sql: psycopg.Connection[Any]
) -> None:
    sql.execute("CREATE TABLE twice AS SELECT n AS id, n % 2 AS odd, 'x' AS extra FROM generate_series(1, 10) AS n")
    df = read_table(spark, source(url, table="twice"))
    both = df.where("odd = 1").select("id").union(df.where("odd = 0").selectExpr("-id"))
    once = df.where("odd = 1").select("id")
    for query, expected in (
        (both, [n if n % 2 else -n for n in range(1, 11)]),
        (once, [1, 3, 5, 7, 9]),
        (df.select("extra", "id").select("id"), list(range(1, 11))),
    ):
        with pushed_down(query):
            assert sorted(row[0] for row in query.collect()) == sorted(expected)
    assert [tuple(row) for row in df.where("id = 7").collect()] == [(7, 1, "x")]  # what one query had is not another's


def test_all_parts_of_a_read_see_one_moment_and_the_parts_are_the_whole(
    spark: SparkSession, url: str, sql: psycopg.Connection[Any], large: str, tmp_path: Path
) -> None:
    place = source(url, table=large)
    with sql_reads():
        df = read_table(spark, place)
        sql.execute(f"UPDATE {large} SET note = 'too late' WHERE id % 2 = 0")
        sql.execute(f"DELETE FROM {large} WHERE id <= 1000")
        assert df.rdd.getNumPartitions() == 2
        found = df.agg(F.count("*"), F.countDistinct("id"), F.sum("id"), F.max("note")).first()
    assert found is not None
    assert found[:3] == (LARGE, LARGE, LARGE * (LARGE + 1) // 2)
    assert found[3].startswith("note")
    # Nothing is left behind that would hold the database's past.
    ours = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'dataflow'"
    wait_for(lambda: sql.execute(ours).fetchall() == [(0,)], "the server has seen that they left")
    written = extract(spark, place, folder(tmp_path / "run"))
    assert (written.rows, written.files) == (LARGE - 1000, 2)
    total = LARGE * (LARGE + 1) // 2 - 1000 * 1001 // 2
    assert rows(spark.read.parquet(str(tmp_path / "run")).agg(F.sum("id"))) == [(total,)]
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]
    # With one connection there is one part, and nobody waits for it.
    limited = replace(place, database=replace(place.database, connections=1))  # type: ignore[type-var]
    with sql_reads():
        assert read_table(spark, limited).rdd.getNumPartitions() == 1
    assert extract(spark, limited, folder(tmp_path / "one")).rows == LARGE - 1000


def test_columns_that_change_between_planning_and_reading_are_an_error_with_both_types(
    spark: SparkSession, url: str, sql: psycopg.Connection[Any]
) -> None:
    sql.execute("CREATE TABLE changing (id int, amount numeric(10,2)); INSERT INTO changing VALUES (1, 1.25)")
    df = read_table(spark, source(url, table="changing"))
    assert df.count() == 1
    sql.execute("ALTER TABLE changing ALTER amount TYPE numeric(10,4)")
    told = r"crm: its columns changed during the run: amount was numeric\(10,2\), is numeric\(10,4\); run it again"
    with pytest.raises(PySparkException, match=told) as failure:
        df.collect()
    assert message(failure.value).endswith("; run it again")


def test_the_password_is_in_no_plan_and_reaches_tasks_without_the_environment(
    spark: SparkSession, server: Server, url: str, sql: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    rules = server.data / "pg_hba.conf"
    before = rules.read_text()
    secret = f"s3cret-{uuid.uuid4()}"
    sql.execute(f"CREATE ROLE reader LOGIN PASSWORD '{secret}'")
    sql.execute("CREATE TABLE own AS SELECT 1 AS a; GRANT SELECT ON own TO reader")
    rules.write_text(f"local all reader scram-sha-256\n{before}")
    sql.execute("SELECT pg_reload_conf()")
    try:
        monkeypatch.setenv("reader_password", secret)
        guarded = url.replace("//postgres:@", "//reader@")
        df = read_table(spark, source(guarded, table="own", password_variable="reader_password"))
        monkeypatch.delenv("reader_password")
        assert rows(df) == [(1,)]
        df.explain("extended")
        df.explain("formatted")
        shown = capfd.readouterr().out + df._jdf.queryExecution().toString()
        assert "sql_" in shown
        assert secret not in shown
        assert secret not in str(spark.conf.getAll)  # a property, here
    finally:
        rules.write_text(before)
        sql.execute("SELECT pg_reload_conf()")


# Others ---------------------------------------------------------------------------------------------------------------
def test_sqlite_is_read_by_its_declared_types_even_where_the_first_rows_are_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "some.db"
    with connect(Database(url=f"sqlite:///{file}", options={})) as connection:
        connection.execute(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, day DATE, at DATETIME, name TEXT, price DECIMAL(10,2), "
            "ratio REAL, raw BLOB, yes BOOLEAN)"
        ).close()
        connection.execute(
            "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 3000) INSERT INTO t SELECT n, "
            "date('2025-01-01', (n % 3) || ' days'), CASE WHEN n > 2500 THEN '2025-01-01 10:00:00.5' END, "
            "CASE WHEN n > 2500 THEN 'ż' || n END, CASE WHEN n > 2500 THEN '12.5' END, "
            "CASE WHEN n > 2500 THEN 0.5 END, CASE WHEN n > 2500 THEN x'00ff' END, n % 2 FROM n"
        ).close()
        connection.commit()
    place = source(f"sqlite:///{file}", table="t", partition_column="day", dataids=("2025-01-02",))
    df = read_table(spark, place)
    assert [field.dataType.simpleString() for field in df.schema] == [
        "bigint", "date", "timestamp", "string", "decimal(10,2)", "double", "binary", "boolean",
    ]  # fmt: skip
    found = [[in_utc(value) for value in row] for row in df.orderBy("id").collect()]
    assert len(found) == 1000
    assert found[0] == [1, dt.date(2025, 1, 2), None, None, None, None, None, True]
    at = dt.datetime(2025, 1, 1, 10, 0, 0, 500_000, tzinfo=UTC)
    assert found[-1] == [2998, dt.date(2025, 1, 2), at, "ż2998", Decimal("12.50"), 0.5, bytearray(b"\x00\xff"), False]
    written = extract(spark, place, folder(tmp_path / "run"))
    assert written.rows == 1000
    assert read_chunk(spark, folder(tmp_path / "run")).orderBy("id").collect() == df.orderBy("id").collect()
    query = read_table(spark, source(f"sqlite:///{file}", query="SELECT name, count(*) AS times FROM t GROUP BY name"))
    assert query.where("name IS NULL").collect()[0][1] == 2500


def test_jdbc_addresses_go_to_sparks_own_reader_in_parts_of_the_chunk(
    spark: SparkSession, url: str, sql: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    sql.execute(
        "CREATE TABLE jdbc AS SELECT n AS id, timestamptz '2025-01-01 00:00+00' + n * interval '1 minute' AS at, "
        "n % 5 AS shard FROM generate_series(0, 5000) AS n"
    )
    spark.sql(f"ADD JAR '{JDBC_JAR}'")
    monkeypatch.setenv("jdbc_password", "very-secret")
    with relay(url) as between:
        address = f"jdbc:postgresql://127.0.0.1:{between.port}/{between.database}"
        common = {
            "table": "jdbc", "driver": "org.postgresql.Driver", "options": {"user": "postgres"},
            "password_variable": "jdbc_password",
        }  # fmt: skip
        day = read_table(spark, source(address, **common, partition_column="at", dataids=("2025-01-02",)))
        assert day.rdd.getNumPartitions() == 2
        assert day.count() == 1440
        shard = read_table(spark, source(address, **common, partition_column="shard", dataids=("003",)))
        assert shard.count() == 1000
        whole = read_table(spark, source(address, **common, partition_column="id"))
        assert whole.rdd.getNumPartitions() == 2
        assert rows(whole.agg(F.sum("id"))) == [(5000 * 5001 // 2,)]
        whole.explain("extended")
        assert "very-secret" not in capfd.readouterr().out
        with pytest.raises(JobFailed, match=r"there is no table nope at jdbc:postgresql://127.0.0.1:\d+/"):
            read_table(spark, source(address, **{**common, "table": "nope"}))
    with pytest.raises(JobFailed, match=r"cannot be reached .*refused"):
        read_table(spark, source(address, **common))
    with pytest.raises(JobFailed, match=r"there is no JDBC driver for jdbc:nothing://x; name its jar in .*spark.jars"):
        read_table(spark, source("jdbc:nothing://x", table="t"))


def test_a_source_is_described_without_spark(url: str, sql: psycopg.Connection[Any]) -> None:
    sql.execute("CREATE TABLE described (id int, at timestamptz)")
    scan = describe(source(url, table="described", partition_column="at", dataids=("2025-01-01",)))
    assert [(column.name, column.source_type, column.spark_type) for column in scan.columns] == [
        ("id", "integer", "int"),
        ("at", "timestamp with time zone", "timestamp"),
    ]
    with pytest.raises(JobFailed, match=r"there is no column nope, which is its `partition_column`"):
        describe(source(url, table="described", partition_column="nope", dataids=("1",)))


def test_any_other_driver_is_read_by_the_arrow_types_that_it_gives(
    spark: SparkSession, url: str, sql: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """PostgreSQL's library under another name, so that nothing is known of its SQL."""
    sql.execute("CREATE TABLE other AS SELECT n AS id, 'ż' || n AS name, now() AS at FROM generate_series(1, 5) AS n")
    library = shutil.copy(adbc_driver_postgresql._driver_path(), tmp_path / "libother.so")
    address = psycopg.conninfo.make_conninfo(url)
    df = read_table(spark, source(address, driver=str(library), table="other", partition_column="id", dataids=("3",)))
    assert [field.dataType.simpleString() for field in df.schema] == ["int", "string", "timestamp"]
    assert [tuple(row)[:2] for row in df.collect()] == [(3, "ż3")]
    narrow = df.where("id > 1 AND name > 'a'").select("name")
    with pushed_down(narrow):
        assert rows(narrow) == [("ż3",)]


def test_bigquery_s_types_conditions_and_filters_are_written_as_it_wants_them() -> None:
    """What is known of it without the service."""
    given = pa.schema([
        ("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(38, 9)), ("exact", pa.decimal256(76, 38)),
        ("at", pa.timestamp("us", tz="UTC")), ("local", pa.timestamp("us")), ("day", pa.date32()), ("raw", pa.binary()),
        ("hour", pa.time64("us")), ("ok", pa.bool_()), ("tags", pa.list_(pa.string())),
        ("one", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))])),
    ])  # fmt: skip
    columns = arrow_columns(given, None, where="crm", kind="bigquery", numbers_only=False)
    assert {column.name: column.spark_type for column in columns} == {
        "id": "bigint", "name": "string", "price": "decimal(38,9)", "exact": "decimal(38,18)", "at": "timestamp",
        "local": "timestamp", "day": "date", "raw": "binary", "hour": "string", "ok": "boolean",
        "tags": "array<string>",
        "one": "struct<a:bigint,b:array<double>>",
    }  # fmt: skip
    assert columns[0].expression == "`id`"
    at = dt.datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    filters = [
        EqualTo(("name",), "it's"), GreaterThan(("at",), at), LessThan(("day",), dt.date(2025, 1, 2)),
        In(("id",), (1, 2)), StringStartsWith(("name",), "50%"), IsNull(("tags",)), EqualTo(("hour",), "03:00:00"),
    ]  # fmt: skip
    conditions, left = split(filters, columns, "bigquery")
    assert conditions == [
        "`name` = 'it\\'s'",
        "`at` > TIMESTAMP '2025-01-02 03:04:05.000000+00'",
        "`day` < DATE '2025-01-02'",
        "`id` IN (1, 2)",
        "`name` LIKE '50\\\\%%'",
        "`tags` IS NULL",
    ]
    assert left == filters[-1:]
    common = {"url": "bigquery://p/d", "options": {}, "table": "t", "partition_column": "c"}
    day = Database(**common, dataids=("2025-01-02",))  # type: ignore[arg-type]
    assert (
        chunk_condition(day, "timestamp")[0]
        == "`c` >= '2025-01-02 00:00:00+00:00' AND `c` < '2025-01-03 00:00:00+00:00'"
    )
    assert chunk_condition(day, "datetime")[0] == "`c` >= '2025-01-02 00:00:00' AND `c` < '2025-01-03 00:00:00'"
    assert chunk_condition(day, "date")[0] == "`c` >= '2025-01-02' AND `c` < '2025-01-03'"
    shard = Database(**common, dataids=("00042",))  # type: ignore[arg-type]
    assert chunk_condition(shard, "int64")[0] == "`c` = 42"
    assert chunk_condition(shard, "string")[0] == "`c` = '00042'"
