"""Chunks as files: read strictly, write durably, rows from footers."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from opendataflow.errors import JobFailed
from opendataflow.spark import files
from opendataflow.spark.explain import explain
from opendataflow.spark.spec import Place, format_of


def place(location: Path, **fields: Any) -> Place:
    values = {
        "datasetid": "orders",
        "format": format_of(str(location)),
        "options": {},
        "schema": None,
        **fields,
    }
    return Place(location=str(location), **values)


SCHEMA = {"id": "int", "price": "decimal(9,2)", "at": "timestamp", "note": "string"}
CSV = '\N{BOM}id,price,at,note\n1,2.50,2025-11-01T10:00:00Z,"two\nlines, ""quoted"""\n2,,2025-11-01T11:00:00+02:00,\n'


def test_csv_with_bom_and_quoted_newlines_keeps_types_through_every_typed_format(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "2025 [x] {1}*?.csv"  # a dataid that a path pattern would take for its own
    source.write_text(CSV, encoding="utf-8")
    df = files.read_chunk(spark, place(source, schema=SCHEMA))
    out = tmp_path / "out" / "_runs" / "7"
    written = files.write_chunk(df, place(out), [place(source)])
    assert (written.rows, json.loads(written.schema)) == (2, SCHEMA)
    table = pyarrow.parquet.read_table(out)
    assert table.column("note").to_pylist() == ['two\nlines, "quoted"', None]
    assert [str(field.type) for field in table.schema] == [
        "int32",
        "decimal128(9, 2)",
        "timestamp[us, tz=UTC]",
        "string",
    ]
    assert [at.hour for at in table.column("at").to_pylist()] == [10, 9]
    assert len(list(out.glob("*.parquet"))) == 1

    for format_ in ("orc", "json", "csv"):
        there = place(tmp_path / format_, format=format_, schema=SCHEMA)
        assert files.write_chunk(df, there, [place(source)]).rows == (2 if format_ == "orc" else None)
        back = files.read_chunk(spark, there)
        assert sorted(tuple(row) for row in back.collect()) == sorted(tuple(row) for row in df.collect())


def test_an_undeclared_csv_is_inferred_and_empty_data_is_still_a_file(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "plain.csv"
    source.write_text("id,price\n1,2.5\n")
    df = files.read_chunk(spark, place(source))
    written = files.write_chunk(df.filter("id > 1"), place(tmp_path / "none"), [place(source)])
    assert (written.rows, written.schema) == (0, '{"id": "int", "price": "double"}')
    assert pyarrow.parquet.read_table(tmp_path / "none").num_rows == 0


def test_what_does_not_fit_the_declared_schema_fails_instead_of_turning_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = {"price": "double", "id": "int"}  # matched by name, not by place
    bad = tmp_path / "bad.csv"
    bad.write_text("id,prize\n1,2.5\n")
    with pytest.raises(JobFailed) as drifted:
        files.read_chunk(spark, place(bad, schema=schema))
    told = "orders: column 'price' is declared, but not there; column 'prize' is there, but not declared"
    assert str(drifted.value) == f"{told}: {bad}"
    bad.write_text("id,price\nabc,2.5\n")
    df = files.read_chunk(spark, place(bad, schema=schema))
    with pytest.raises(Exception, match="abc") as retyped:
        files.write_chunk(df, place(tmp_path / "never"), [place(bad)])
    told = explain(retyped.value, home=str(tmp_path))
    assert str(bad) in told
    assert "abc" in told
    good = tmp_path / "typed.parquet"
    spark.range(1).write.parquet(str(good))
    with pytest.raises(JobFailed, match="column 'id' is declared as int, but is bigint"):
        files.read_chunk(spark, place(good, schema={"id": "int"}))
    with pytest.raises(JobFailed, match="column 'name' is declared, but not there"):
        files.read_chunk(spark, place(good, schema={"name": "string"}))


def test_only_little_input_is_written_as_one_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id\n1\n")
    df = spark.range(0, 100, numPartitions=4)
    files.write_chunk(df, place(tmp_path / "one"), [place(source)])
    monkeypatch.setattr(files, "SMALL_BYTES", 1)
    files.write_chunk(df, place(tmp_path / "four"), [place(source)])
    assert [len(list((tmp_path / name).glob("part-*"))) for name in ("one", "four")] == [1, 4]
