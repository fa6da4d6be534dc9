"""Chunks as files: read strictly, write durably, rows from footers."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

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
    with pytest.raises(JobFailed, match="column 'name' \\(string\\) is declared, but not there"):
        files.read_chunk(spark, place(good, schema={"name": "string"}))


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.decode()}")
    try:
        yield folder
    finally:
        # Lazily: Spark closes the files of a failed task when it gets round to it.
        subprocess.run(["umount", "-l", str(folder)], check=True)


# Each format once; as one file and as a folder in `make faults`.
FULL = [(False, "parquet"), (True, "orc"), (False, "csv"), (True, "json")]
FULL += [(not single, format_) for single, format_ in FULL] if "DATAFLOW_EVERY_FAULT" in os.environ else []


@pytest.mark.parametrize(("single_file", "format_"), FULL)
def test_a_full_disk_is_told_with_the_destination_and_nothing_looks_whole(
    spark: SparkSession, tmp_path: Path, format_: str, single_file: bool
) -> None:
    many = spark.range(400_000).select(F.col("id"), F.rand(1).alias("x"))
    with small_disk(tmp_path / "disk") as disk:
        run = disk / "clean" / "_runs" / "7"
        target = place(run / f"clean.{format_}" if single_file else run, format=format_, single_file=single_file)
        with pytest.raises(Exception) as full:  # noqa: PT011  whatever Spark raises
            files.write_chunk(many, target, [])
        told = explain(full.value, home=str(tmp_path / "project"))
        assert told == f"orders: no space left on device while writing {target.location}"
        assert explain(full.value.__cause__ or full.value, home="/").startswith(
            "no space left on device while writing /"
        )
        assert not (run / "_SUCCESS").exists()
        assert not single_file or os.listdir(run) == []
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)  # somebody makes room
        files.write_chunk(many, target, [])
        assert files.read_chunk(spark, target).count() == 400_000
