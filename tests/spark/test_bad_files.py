"""Input that is not as it should be: the sentence names the dataset, the file, and the line or column in it."""

import bz2
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from opendataflow.errors import JobFailed
from opendataflow.spark.files import explain_read_failure, read_chunk, write_chunk
from opendataflow.spark.spec import Place, format_of

SCHEMA = {"id": "int", "price": "double", "note": "string"}


def place(*locations: Path, **fields: Any) -> Place:
    values = {"datasetid": "orders", "format": format_of(str(locations[0])), "options": {}, "schema": None, **fields}
    return Place(location="\n".join(str(location) for location in locations), **values)


def refused(spark: SparkSession, source: Place) -> str:
    """What is said before a row is read."""
    with pytest.raises(JobFailed) as error:
        read_chunk(spark, source)
    return str(error.value)


def failed(spark: SparkSession, source: Place, tmp_path: Path) -> str:
    """What is said after the write has failed."""
    df = read_chunk(spark, source)
    with pytest.raises(Exception) as error:  # noqa: PT011  whatever Spark raises
        write_chunk(df, place(tmp_path / "never", format="parquet"), [source])
    told = explain_read_failure(spark, source, error.value)
    assert told is not None, error.value
    return told


# Missing and unreadable ------------------------------------------------------------------------------------------
def test_a_source_that_is_missing_or_unreadable_is_named(spark: SparkSession, tmp_path: Path) -> None:
    gone = tmp_path / "gone.csv"
    assert refused(spark, place(gone)) == f"orders: {gone} cannot be read: No such file or directory"
    there = tmp_path / "there.csv"
    there.write_text("id\n1\n")
    assert str(gone) in refused(spark, place(there, gone)), "of a window, the one that is missing"
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    assert refused(spark, place(loop)) == f"orders: {loop} cannot be read: Too many levels of symbolic links"
    for name, content, reason in (
        ("cut.csv.gz", gzip.compress(b"id,note\n" + os.urandom(9000).hex().encode())[:-50], "ended before"),
        ("not.csv.gz", b"id,note\n1,a\n", "Not a gzipped file"),
        ("cut.csv.bz2", bz2.compress(b"id,note\n" + os.urandom(9000).hex().encode())[:-50], "Truncated"),
    ):
        broken = tmp_path / name
        broken.write_bytes(content)
        told = refused(spark, place(broken))
        assert told.startswith(f"orders: {broken} cannot be read: "), told
        assert reason in told
    frame = tmp_path / "packed.csv.lz4"
    with pa.output_stream(str(frame), compression="lz4") as file:
        file.write(b"id,note\n1,a\n")
    assert "lz4 frame" in refused(spark, place(frame, format="csv")), "Spark would run out of memory on it"


@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_a_file_that_is_not_of_its_format_is_named(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    broken = tmp_path / f"broken.{format_}"
    broken.write_text("id,note\n1,a\n" * 100)
    other = tmp_path / f"fine.{format_}"
    table = pa.table({"id": [1]})
    (pyarrow.parquet.write_table if format_ == "parquet" else pyarrow.orc.write_table)(table, other)
    told = refused(spark, place(other, broken))
    assert told.startswith(f"orders: {broken} cannot be read as {format_}: "), told


def test_what_is_not_of_its_encoding_is_not_turned_into_question_marks(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "latin.csv"
    source.write_bytes("id,note\n1,a\n2,caf\u00e9\n".encode("latin-1"))
    assert refused(spark, place(source)).startswith(f"orders: {source} line 3 is not UTF-8: ")
    read = read_chunk(spark, place(source, options={"encoding": "ISO-8859-1"}))
    assert [row.note for row in read.collect()] == ["a", "caf\u00e9"]


# Malformed -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("multiline", [True, False])
def test_malformed_rows_are_counted_and_the_first_is_shown(
    spark: SparkSession, tmp_path: Path, multiline: bool
) -> None:
    source = tmp_path / "some bad.csv"
    source.write_text('id,price,note\n1,2,a\n2,3,"b"\n3,abc,c\n4,1\n5,1,c,d,e\n6,1,f\n')
    told = failed(spark, place(source, schema=SCHEMA, options={"multiLine": multiline}), tmp_path)
    assert told == (
        f"orders: 3 of 6 rows are malformed, the first in {source} line 4: "
        "column 'price' is declared as double, but is 'abc'"
    )
    assert not list((tmp_path / "never").glob("part-*"))


def test_fields_too_few_and_too_many_are_told_by_their_number(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "bad.csv"
    source.write_text('id,price,note\n1,2,"two\nlines"\n2,3\n')
    declared = place(source, schema=SCHEMA)
    told = f"orders: 1 of 2 rows is malformed, the first in {source} line 4 has 2 fields, not 3"
    assert failed(spark, declared, tmp_path) == told
    source.write_text("id,price,note\n1,2,a\n2,3,b,c\n")
    told = f"orders: 1 of 2 rows is malformed, the first in {source} line 3 has 4 fields, not 3"
    assert failed(spark, declared, tmp_path) == told
    undeclared = place(source)
    assert failed(spark, undeclared, tmp_path) == told
    with pytest.raises(Exception, match="FAILED_READ_FILE"):  # also when no step uses the last column
        write_chunk(read_chunk(spark, declared).select("id"), place(tmp_path / "never"), [declared])


def test_a_quote_that_is_never_closed_is_found_by_its_line(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "open.csv"
    source.write_text('id,note\n1,"fine\nfine"\n2,"open\n3,c\n4,d\n')
    assert refused(spark, place(source)) == f"orders: {source} line 4: a quote is opened and never closed"
    source.write_text('id,note\n1,5" pipe\n2,c\n')  # odd, but as good a value as any
    assert [row.note for row in read_chunk(spark, place(source)).collect()] == ['5" pipe', "c"]
    source.write_text('id,note\n1,a\n2,"b"c\n3,"d"\n')
    told = failed(spark, place(source, schema={"id": "int", "note": "string"}), tmp_path)
    assert told == f"orders: {source} line 3: text follows a closing quote"


def test_malformed_json_lines_are_counted_and_the_first_is_shown(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "bad.json"
    source.write_text('{"id": 1, "price": 2}\n{"id": 2, "price": "dear"}\n{"id": 3\n{"id": 4.5, "price": 1}\n')
    declared = place(source, schema={"id": "int", "price": "double"})
    assert failed(spark, declared, tmp_path) == (
        f"orders: 3 of 4 rows are malformed, the first in {source} line 2: "
        "column 'price' is declared as double, but is 'dear'"
    )
    source.write_text('{"id": 1, "price": 2}\n{"id": 2, \n')
    assert failed(spark, declared, tmp_path).startswith(
        f"orders: 1 of 2 rows is malformed, the first in {source} line 2: not JSON: "
    )
    with pytest.raises(Exception, match="MALFORMED") as inferring:
        read_chunk(spark, place(source))
    told = explain_read_failure(spark, place(source), inferring.value)
    assert told is not None
    assert told.startswith(f"orders: 1 of 2 rows is malformed, the first in {source} line 2: not JSON: ")


def test_an_error_of_another_place_is_not_explained_by_this_one(spark: SparkSession, tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.csv", tmp_path / "good.csv"
    bad.write_text("id\nx\n")
    good.write_text("id\n1\n")
    with pytest.raises(Exception, match="FAILED_READ_FILE") as error:
        read_chunk(spark, place(bad, schema={"id": "int"})).write.parquet(str(tmp_path / "never"))
    assert explain_read_failure(spark, place(good, schema={"id": "int"}), error.value) is None
    assert explain_read_failure(spark, place(bad, schema={"id": "int"}), ValueError("mine")) is None
    assert explain_read_failure(spark, place(bad), JobFailed("known")) is None


def test_a_file_that_breaks_off_while_spark_reads_it_is_named(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "cut.parquet"
    pyarrow.parquet.write_table(pa.table({"id": list(range(100_000))}), source)
    declared = place(source)
    df = read_chunk(spark, declared)
    whole = source.read_bytes()
    source.write_bytes(bytes(len(whole) - 2000) + whole[-2000:])
    with pytest.raises(Exception) as error:  # noqa: PT011  whatever Spark raises
        write_chunk(df, place(tmp_path / "never", format="parquet"), [declared])
    told = explain_read_failure(spark, declared, error.value)
    assert told is not None
    assert told.startswith(f"orders: {source} cannot be read: "), told


# Drift -----------------------------------------------------------------------------------------------------------
def write_table(path: Path, columns: dict[str, Any]) -> Path:
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    elif path.suffix == ".orc":
        pyarrow.orc.write_table(table, path)
    elif path.suffix == ".json":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        lines = [",".join(columns), *(",".join(str(value) for value in row.values()) for row in table.to_pylist())]
        path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "orc"])
def test_new_and_missing_columns_are_named_with_their_types(spark: SparkSession, tmp_path: Path, suffix: str) -> None:
    declared = {"id": "bigint", "price": "double"}
    new = write_table(tmp_path / f"new.{suffix}", {"id": [1], "price": [2.5], "colour": ["red"]})
    told = refused(spark, place(new, schema=declared))
    assert "column 'colour'" in told
    assert "is there, but not declared" in told
    assert told.endswith(str(new))
    assert ("(string)" in told) == (suffix in ("parquet", "orc"))
    missing = write_table(tmp_path / f"missing.{suffix}", {"id": [1]})
    told = refused(spark, place(missing, schema=declared))
    assert "column 'price'" in told
    assert "is declared, but not there" in told
    assert told.endswith(str(missing))
    renamed = write_table(tmp_path / f"renamed.{suffix}", {"id": [1], "prize": [2.5]})
    told = refused(spark, place(renamed, schema=declared))
    assert "'price'" in told
    assert "'prize'" in told


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "orc"])
def test_a_retyped_column_is_named_with_both_types(spark: SparkSession, tmp_path: Path, suffix: str) -> None:
    declared = {"id": "bigint", "price": "double"}
    retyped = write_table(tmp_path / f"retyped.{suffix}", {"id": [1], "price": ["dear"]})
    source = place(retyped, schema=declared)
    told = refused(spark, source) if suffix in ("parquet", "orc") else failed(spark, source, tmp_path)
    found = "string" if suffix in ("parquet", "orc") else "'dear'"
    assert f"column 'price' is declared as double, but is {found}" in told
    assert str(retyped) in told


@pytest.mark.parametrize("suffix", ["parquet", "orc"])
def test_files_of_a_chunk_that_disagree_are_named(spark: SparkSession, tmp_path: Path, suffix: str) -> None:
    chunk = tmp_path / "chunk"
    chunk.mkdir()
    first = write_table(chunk / f"a.{suffix}", {"id": [1], "price": [2.5]})
    second = write_table(chunk / f"b.{suffix}", {"id": [1], "price": ["dear"]})
    told = refused(spark, place(chunk, format=suffix))
    assert told == f"orders: column 'price' is double in {first}, but is string: {second}"
    told = refused(spark, place(chunk, format=suffix, schema={"id": "bigint", "price": "double"}))
    assert "'price'" in told
    assert told.endswith(str(second))
    write_table(second, {"id": [1], "cost": [2.5]})
    told = refused(spark, place(chunk, format=suffix))
    assert f"column 'price' (double) of {first} is not there" in told
    assert f"column 'cost' (double) is new, {first} has none" in told


def test_csv_files_of_a_chunk_are_matched_by_name_and_must_have_the_same(spark: SparkSession, tmp_path: Path) -> None:
    first = write_table(tmp_path / "1.csv", {"id": [1], "price": [2.5]})
    second = write_table(tmp_path / "2.csv", {"price": [3.5], "id": [2]})
    declared = place(first, second, schema={"id": "int", "price": "double"})
    assert sorted(tuple(row) for row in read_chunk(spark, declared).collect()) == [(1, 2.5), (2, 3.5)]
    assert "in another order" in refused(spark, place(first, second))
    write_table(second, {"id": [2], "cost": [3.5]})
    told = refused(spark, place(first, second))
    assert f"column 'price' of {first} is not there" in told
    assert refused(spark, declared).endswith(str(second))
    write_table(second, {"id": [2], "price": ["dear"]})
    assert f"the first in {second} line 2: column 'price'" in failed(spark, declared, tmp_path)
    twice = tmp_path / "twice.csv"
    twice.write_text("id,price,id\n1,2,3\n")
    assert "column 'id' stands twice in the header" in refused(spark, place(twice, schema=declared.schema))
    assert "column 'id' stands twice in the header" in refused(spark, place(twice))


def test_a_json_key_that_only_later_rows_have_is_not_missing(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "late.json"
    source.write_text('{"id": 1}\n' * 60_000 + '{"id": 2, "price": 3.5}\n')
    df = read_chunk(spark, place(source, schema={"id": "int", "price": "double"}))
    assert df.filter("price > 3").count() == 1


def test_parquet_of_other_writers_is_compared_as_spark_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    at = pa.array([0], pa.timestamp("ns"))
    table = pa.table({"at": at, "name": pa.array(["x"]).dictionary_encode(), "small": pa.array([1], pa.uint8())})
    schema = {"name": "string", "at": "timestamp", "small": "smallint"}
    old = tmp_path / "int96.parquet"
    pyarrow.parquet.write_table(table, old, use_deprecated_int96_timestamps=True)
    assert read_chunk(spark, place(old, schema=schema)).count() == 1
    new = tmp_path / "micros.parquet"
    pyarrow.parquet.write_table(table, new, coerce_timestamps="us")
    told = refused(spark, place(new, schema=schema))
    assert told == f"orders: column 'at' is declared as timestamp, but is timestamp_ntz: {new}"


@pytest.mark.parametrize("format_", ["csv", "json", "parquet", "orc"])
def test_a_folder_without_files_is_no_rows_when_a_schema_says_of_what(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    (tmp_path / "chunk").mkdir()
    df = read_chunk(spark, place(tmp_path / "chunk", format=format_, schema={"id": "int"}))
    assert (df.columns, df.count()) == (["id"], 0)
    assert "there is no file in" in refused(spark, place(tmp_path / "chunk", format=format_))
