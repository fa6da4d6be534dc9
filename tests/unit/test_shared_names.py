"""Which code makes a name in Spark's catalog that is for all sessions."""

import ast

import pytest

from opendataflow.project.shared_names import find_refusal_of_sql, find_refusals


@pytest.mark.parametrize(
    "query",
    [
        "create table t (a int)",
        "CREATE OR REPLACE GLOBAL TEMPORARY VIEW v AS SELECT 1",
        "create global temp view v as select 1",
        "-- first\nCREATE /* a */ VIEW v AS SELECT 1",
        "CREATE EXTERNAL TABLE t (a int)",
        "CREATE OR REPLACE TABLE t AS SELECT 1",
        "REPLACE TABLE t AS SELECT 1",
        "CREATE FUNCTION f AS 'x'",
        "CREATE DATABASE d",
        "ADD JAR '/tmp/x.jar'",
        "BEGIN CREATE SCHEMA d; SELECT 1; END",
        "EXECUTE IMMEDIATE 'CREATE TABLE t (a int)'",
        "INSERT INTO t VALUES (1)",
        "insert overwrite table t select 1",
        "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE",
    ],
)
def test_names_that_all_sessions_see_are_refused(query: str) -> None:
    assert find_refusal_of_sql(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1",
        "CREATE TEMPORARY VIEW v AS SELECT 1",
        "CREATE OR REPLACE TEMP VIEW `create table` AS SELECT 'create table t'",
        "CREATE TEMPORARY FUNCTION f AS 'x'",
        "CACHE TABLE t AS SELECT 1",
        'SELECT "create view" -- create table t',
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "INSERT OVERWRITE LOCAL DIRECTORY '/tmp/x' SELECT 1",
        "SELECT insert(name, 1, 1, 'x') FROM t",
        "SELECT replace(table_name, 'a', 'b') FROM t",
    ],
)
def test_names_of_the_session_alone_are_not(query: str) -> None:
    assert find_refusal_of_sql(query) is None


@pytest.mark.parametrize(
    "code",
    [
        "df.createGlobalTempView('x')",
        "df.write.saveAsTable('x')",
        "df.writeTo('x').append()",
        "df.mergeInto('x', on)",
        "df.writeStream.toTable('x')",
        "spark.catalog.createTable('x')",
        "spark.catalog.createExternalTable('x')",
        "spark.sparkContext.addFile('x')",
        "spark.sql(f'CREATE TABLE {name} (a int)')",
    ],
)
def test_calls_that_make_one_are_found(code: str) -> None:
    assert [line for line, _ in find_refusals(ast.parse(code))] == [1]


@pytest.mark.parametrize("code", ["archive.addFile('x')", "report.createTable('x')", "spark.table('x')"])
def test_calls_of_other_objects_are_not(code: str) -> None:
    assert list(find_refusals(ast.parse(code))) == []
