"""How databases are asked whose SQL is not written here: read again as each of them would read it, by sqlglot."""

import subprocess
import sys

import pyarrow as pa
import pytest
import sqlglot
from pyspark.sql.datasource import EqualTo, GreaterThan
from sqlglot import exp

from opendataflow.spark.adbc import Access, chunk_condition, dialect
from opendataflow.spark.spec import Database
from opendataflow.spark.sql_chunk import quoted
from opendataflow.spark.sql_jdbc import _options
from opendataflow.spark.sql_pushdown import split
from opendataflow.spark.sql_scan import Scan
from opendataflow.spark.sql_types import arrow_columns


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("adbc_driver_mysql", "mysql"), ("adbc_driver_mariadb", "mysql"), ("adbc_driver_mssql", "tsql"),
        ("adbc_driver_databricks", "databricks"), ("adbc_driver_snowflake", "snowflake"),
        ("adbc_driver_clickhouse", "clickhouse"), ("adbc_driver_redshift", "redshift"),
        ("adbc_driver_trino", "trino"), ("adbc_driver_duckdb", "duckdb"),
    ],
)  # fmt: skip
def test_another_database_is_asked_in_its_own_sql(name: str, known: str) -> None:
    """To MySQL or Databricks a name in double quotes is a text, the same in every row, and a backslash is an escape."""
    dataid = "it's \\ \"`]"
    database = Database(
        url="other://host/shop", options={}, driver=name, table="shop.or`d]ers", partition_column="c\"`]",
        dataids=(dataid,),
    )  # fmt: skip
    kind = dialect(database)
    given = pa.schema([("id", pa.int64()), ("select", pa.string()), ('a`b]"', pa.string())])
    columns = arrow_columns(given, None, where="crm", kind=kind, numbers_only=True)
    scan = Scan(
        datasetid="crm", access=Access(dialect=kind, driver="", shown="", options={}), columns=columns, wire=None,
        source=quoted(str(database.table), kind), target=given, condition=chunk_condition(database, "string")[0],
    )  # fmt: skip
    conditions, left = split([GreaterThan(("id",), 3), EqualTo(("select",), "x")], columns, kind)
    assert len(left) == 1, "text is left to Spark: collations differ"
    asked = sqlglot.parse_one(scan.select(conditions), read=known)
    assert [(one.this.name, one.alias) for one in asked.expressions] == [(column, column) for column in given.names]
    assert all(isinstance(one.this, exp.Column) for one in asked.expressions)
    (table,) = asked.find_all(exp.Table)
    assert (table.db, table.name) == ("shop", "or`d]ers")
    (equal,) = asked.find_all(exp.EQ)
    assert (equal.this.name, equal.expression.name) == ('c"`]', dataid)
    (greater,) = asked.find_all(exp.GT)
    assert (greater.this.name, greater.expression.name) == ("id", "3")


def test_a_table_over_jdbc_is_named_as_its_database_quotes() -> None:
    names = {
        product: _options(Database(url=f"jdbc:{product}://host/shop", options={}, table="shop.orders"))["dbtable"]
        for product in ("postgresql", "mysql", "sqlserver", "oracle:thin", "unknown")
    }
    assert names == {
        "postgresql": '"shop"."orders"', "mysql": "`shop`.`orders`", "sqlserver": "[shop].[orders]",
        "oracle:thin": '"shop"."orders"', "unknown": '"shop"."orders"',
    }  # fmt: skip


def test_databases_that_are_written_here_need_no_sqlglot() -> None:
    code = (
        "import sys; from opendataflow.spark.sql_chunk import identifier, literal\n"
        "for kind in ('postgresql', 'sqlite', 'bigquery'): identifier('a', kind), literal('a', kind)\n"
        "import opendataflow.spark.sql_read, opendataflow.spark.sql_publish\n"
        "print([name for name in sys.modules if name.startswith('sqlglot')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
