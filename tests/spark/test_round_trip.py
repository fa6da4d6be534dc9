"""What is written is what is read again, as far as a format can hold it; and pandas reads the same from a CSV."""

import datetime as dt
import gzip
import json
import math
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from opendataflow.errors import JobFailed
from opendataflow.spark import files_write
from opendataflow.spark.files import read_chunk, write_chunk
from opendataflow.spark.spec import Place, format_of

ALL = ("parquet", "orc", "json", "csv")
TYPED = ("parquet", "orc", "json")


def place(location: Path, /, **fields: Any) -> Place:
    values = {"datasetid": "out", "format": format_of(str(location)), "options": {}, "schema": None, **fields}
    return Place(**{"location": str(location), **values})


def again(spark: SparkSession, df: DataFrame, folder: Path, format_: str) -> DataFrame:
    """Written and read with the schema that the write recorded."""
    there = place(folder / format_, format=format_)
    written = write_chunk(df, there, [])
    return read_chunk(spark, place(folder / format_, format=format_, schema=json.loads(written.schema)))


# A literal in SQL, its type, and the formats that keep it. Compared as text, which shows every digit.
VALUES = [
    ("cast('12345678901234567890.123456789012345678' as decimal(38,18))", "decimal(38,18)", ALL),
    ("cast(0 as decimal(38,18))", "decimal(38,18)", ALL),
    ("cast('-0.000000000000000001' as decimal(38,18))", "decimal(38,18)", ALL),
    ("timestamp '2025-11-01 10:00:00.123456+02:00'", "timestamp", ALL),
    ("timestamp '1900-01-01 00:00:00.000001Z'", "timestamp", ALL),
    ("timestamp '9999-12-31 23:59:59.999999Z'", "timestamp", ALL),
    ("timestamp_ntz '2025-03-30 02:30:00.654321'", "timestamp_ntz", ALL),
    ("date '2024-02-29'", "date", ALL),
    ("date '0001-01-01'", "date", ALL),
    ("double('NaN')", "double", ALL),
    ("double('Infinity')", "double", ALL),
    ("-double('Infinity')", "double", ALL),
    ("1e-300D", "double", ALL),
    ("float('NaN')", "float", ALL),
    ("0.1D + 0.2D", "double", ALL),
    ("9223372036854775807L", "bigint", ALL),
    ("-128Y", "tinyint", ALL),
    ("32767S", "smallint", ALL),
    ("true", "boolean", ALL),
    ("X'00FF80'", "binary", ALL),
    ("cast('caf\u00e9' as binary)", "binary", ALL),
    ("cast(null as int)", "int", ALL),
    ("cast(null as binary)", "binary", ALL),
    ("cast(null as string)", "string", ALL),
    ("''", "string", TYPED),
    ("'  both  '", "string", ALL),
    ("'\\t'", "string", ALL),
    ("'a,b;c|d'", "string", ALL),
    ("'she said \"no\"'", "string", ALL),
    ("'\"'", "string", ALL),
    ("'\\\\ back\\\\slash \\\\\"'", "string", ALL),
    ("'one\\ntwo\\r\\nthree\\rfour\\n'", "string", ALL),
    ("'# no comment'", "string", ALL),
    ("'null'", "string", ALL),
    ("'007'", "string", ALL),
    ("'gr\u00fc\u00df \u6f22\u5b57 \U0001f600'", "string", ALL),
    ("array(1, null, 3)", "array<int>", TYPED),
    ("named_struct('a', 1.5BD, 'b', array('x'))", "struct<a:decimal(2,1),b:array<string>>", TYPED),
    ("map('k', timestamp '2025-01-01 00:00:00.5Z')", "map<string,timestamp>", TYPED),
    ("array(named_struct('b', X'01'))", "array<struct<b:binary>>", TYPED),
]


@pytest.mark.parametrize("format_", ALL)
def test_types_and_values_survive_a_round_trip(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    kept = [(sql, type_) for sql, type_, formats in VALUES if format_ in formats]
    columns = [F.expr(sql).alias(f"c{number}") for number, (sql, _) in enumerate(kept)]
    df = spark.range(1).select("id", *columns)
    back = again(spark, df, tmp_path, format_)
    assert [field.dataType.simpleString() for field in back.schema] == ["bigint", *(type_ for _, type_ in kept)]

    def shown(read: DataFrame) -> dict[str, Any]:
        texts = [
            (F.base64(column.name) if column.dataType.typeName() == "binary" else F.to_json(F.struct(column.name)))
            .alias(column.name) for column in read.schema
        ]  # fmt: skip
        row = read.select(*texts).first()
        assert row is not None
        return row.asDict()

    expected, found = shown(df), shown(back)
    for number, (sql, _) in enumerate(kept):
        assert found[f"c{number}"] == expected[f"c{number}"], sql


def test_null_and_empty_text_are_one_in_csv_unless_null_is_given_a_name(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([(1, None), (2, ""), (3, "x")], "id int, note string")
    rows = {row.id: row.note for row in again(spark, df, tmp_path, "csv").collect()}
    assert rows == {1: None, 2: None, 3: "x"}
    named = place(
        tmp_path / "named", format="csv", options={"nullValue": r"\N"}, schema={"id": "int", "note": "string"}
    )
    write_chunk(df, named, [])
    assert {row.id: row.note for row in read_chunk(spark, named).collect()} == {1: None, 2: "", 3: "x"}


def test_a_null_alone_in_its_row_is_still_a_row(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([("a",), (None,), ("b",)], "note string")
    assert [row.note for row in again(spark, df, tmp_path, "csv").collect()] == ["a", None, "b"]


def test_pandas_reads_the_same_values_from_a_csv(spark: SparkSession, tmp_path: Path) -> None:
    texts = [
        'she said "no"',
        "  both  ",
        "one\ntwo\r\nthree",
        "a,b",
        "\\",
        "gr\u00fc\u00df \U0001f600",
        None,
        "#x",
        "'",
        '""',
    ]
    rows = [
        (number, text, number / 3, dt.datetime(2025, 1, 1, 1, 2, 3, number, dt.UTC))
        for number, text in enumerate(texts)
    ]
    df = spark.createDataFrame(rows, "id int, text string, third double, at timestamp")
    out = place(tmp_path / "_runs" / "7" / "clean.csv", single_file=True)
    write_chunk(df, out, [])
    read = pandas.read_csv(out.location, parse_dates=["at"], float_precision="round_trip")
    assert read.columns.tolist() == ["id", "text", "third", "at"]
    assert [None if isinstance(text, float) else text for text in read["text"]] == texts
    assert read["third"].tolist() == [row[2] for row in rows]
    assert [at.to_pydatetime() for at in read["at"]] == [row[3] for row in rows]


def test_a_csv_that_pandas_wrote_is_read_as_pandas_meant_it(spark: SparkSession, tmp_path: Path) -> None:
    frame = pandas.DataFrame(
        {"id": [1, 2], "note": ['two\nlines, "quoted"', None], "amount": [1.5, math.inf], "when": ["2025-01-01", None]}
    )
    for options, written in (
        ({}, {}),
        ({}, {"encoding": "utf-8-sig", "lineterminator": "\r\n"}),
        ({"sep": ";", "encoding": "UTF-16"}, {"sep": ";", "encoding": "utf-16"}),
        ({"delimiter": r"\t", "quote": "'"}, {"sep": "\t", "quotechar": "'"}),
        ({}, {"quoting": 1}),
    ):
        source = tmp_path / "pandas.csv"
        frame.to_csv(source, index=False, **written)
        schema = {"id": "int", "when": "date", "amount": "double", "note": "string"}
        rows = read_chunk(spark, place(source, options=options, schema=schema)).collect()
        assert [tuple(row) for row in rows] == [
            (1, 'two\nlines, "quoted"', 1.5, dt.date(2025, 1, 1)),
            (2, None, math.inf, None),
        ], written


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst"])
@pytest.mark.parametrize("format_", ["csv", "json", "text"])
def test_compressed_files_are_read_as_they_are(spark: SparkSession, tmp_path: Path, suffix: str, format_: str) -> None:
    import pyarrow as pa

    content = {"csv": "\N{BOM}id,note\n1,a\n", "json": '\N{BOM}{"id": 1, "note": "a"}\n', "text": "\N{BOM}1 a\n"}[
        format_
    ]
    source = tmp_path / f"data.{format_}{suffix}"
    with pa.output_stream(str(source), compression={".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}[suffix]) as file:
        file.write(content.encode())
    schema = None if format_ == "text" else {"note": "string", "id": "int"}
    (row,) = read_chunk(spark, place(source, format=format_, schema=schema)).collect()
    assert row.asDict() == ({"value": "1 a"} if format_ == "text" else {"id": 1, "note": "a"})


def test_a_window_is_read_as_one_and_directories_make_no_columns(spark: SparkSession, tmp_path: Path) -> None:
    for format_ in ("csv", "parquet", "json", "orc"):
        locations = []
        for number in (1, 2):
            folder = tmp_path / format_ / f"dataid=0000{number}" / "_runs" / "7"
            write_chunk(spark.range(number, number + 1), place(folder / "region=eu", format=format_), [])
            (folder / "_runs").mkdir()
            (folder / "_runs" / "left.bin").write_bytes(b"not data")
            locations.append(str(folder))
        window = place(Path("\n".join(locations)), format=format_, schema={"id": "bigint"})
        df = read_chunk(spark, window)
        assert df.columns == ["id"], format_
        assert sorted(row.id for row in df.collect()) == [1, 2]


# Writing ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["clean.csv", "clean.csv.gz", "clean.json", "clean.parquet", "clean.txt", "clean.orc"])
def test_a_single_file_has_exactly_its_name_and_nothing_else_remains(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    df = spark.range(0, 100, numPartitions=4).select(F.col("id").cast("string").alias("value"))
    folder = tmp_path / "_runs" / "7"
    out = place(folder / name, single_file=True)
    written = write_chunk(df, out, [])
    assert os.listdir(folder) == [name]
    size = (folder / name).stat().st_size
    assert (written.files, written.bytes) == (1, size)
    assert written.rows == (100 if name.endswith(("parquet", "orc")) else None)
    schema = None if name.endswith("txt") else {"value": "string"}
    back = read_chunk(spark, place(folder / name, schema=schema))
    assert [row.value for row in back.collect()] == [str(number) for number in range(100)], "in order"
    if name.endswith(".gz"):
        assert gzip.decompress((folder / name).read_bytes()).startswith(b"value\n0\n1\n")
    write_chunk(df.limit(0), out, [])
    assert os.listdir(folder) == [name]
    assert read_chunk(spark, place(folder / name, schema=schema)).collect() == []


def test_an_empty_csv_has_its_header(spark: SparkSession, tmp_path: Path) -> None:
    out = place(tmp_path / "none.csv", single_file=True)
    write_chunk(spark.createDataFrame([], "id int, note string"), out, [])
    assert (tmp_path / "none.csv").read_text() == "id,note\n"


def test_what_a_format_cannot_hold_is_said_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    for sql, format_, told in (
        ("select 1 as id, 2 as id", "parquet", "out: column 'id' is there 2 times; rename or drop one"),
        ("select 1 as id, 2 as Id", "csv", "out: columns 'id' and 'Id' differ only in upper and lower case; rename"),
        ("select 1 as id, array(1) as list", "csv", "out: column 'list' is array<int>, which a CSV cannot hold"),
        ("select 1 as id, null as nothing", "csv", "out: column 'nothing' has no type, since it is null throughout"),
        ("select 1 as id", "text", "out: text takes exactly one column, of type string; there are: id int"),
        ("select 'a' as a, 'b' as b", "text", "there are: a string, b string"),
    ):
        with pytest.raises(JobFailed) as error:
            write_chunk(spark.sql(sql), place(tmp_path / "never", format=format_), [])
        assert told in str(error.value)
        assert not (tmp_path / "never").exists()
    with pytest.raises(JobFailed, match="no columns"):
        write_chunk(spark.range(1).select(), place(tmp_path / "never"), [])
    with pytest.raises(JobFailed, match="another machine"):
        write_chunk(spark.range(1), place(Path("x"), format="csv", single_file=True, location="s3a://b/x.csv"), [])


def test_files_are_few_and_large_but_no_core_is_idle(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id\n" + "1\n" * 500)  # 1003 bytes
    spark.range(0, 1000, numPartitions=40).write.parquet(str(tmp_path / "many"))
    spark.conf.set("spark.sql.files.maxPartitionBytes", "4096")  # a task for each file
    request.addfinalizer(lambda: spark.conf.unset("spark.sql.files.maxPartitionBytes"))
    df = spark.read.parquet(str(tmp_path / "many"))

    def files(**fields: Any) -> int:
        written = write_chunk(df, place(tmp_path / "out", format="parquet", **fields), [place(source)])
        assert written.files == len(list((tmp_path / "out").glob("part-*")))
        assert written.bytes == sum(path.stat().st_size for path in (tmp_path / "out").glob("part-*"))
        assert written.rows == 1000
        return written.files or 0

    assert files() == 1
    monkeypatch.setattr(files_write, "SMALL_BYTES", 1)
    assert files() == 2, "as many as cores"
    monkeypatch.setattr(files_write, "FILE_BYTES", 100)
    assert files() == 12, "a multiple of the cores: 11 would leave one idle at the end"
    assert files(options={"files": 3}) == 3


def test_decimals_in_json_keep_their_digits(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([(Decimal("0.100000000000000001"),)], "amount decimal(38,18)")
    (row,) = again(spark, df, tmp_path, "json").collect()
    assert row.amount == Decimal("0.100000000000000001")
