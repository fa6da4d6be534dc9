"""Files that are too large to be looked through on the driver: their beginnings tell how they are read, and Spark's
tasks find what these did not show, with the strictness that a small file has."""

import contextlib
import csv
import io
import itertools
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from opendataflow.domain.checks.check import Check
from opendataflow.errors import JobFailed
from opendataflow.spark import drift, files_csv, files_read, files_scan, footers
from opendataflow.spark.checks import audit_files
from opendataflow.spark.files import explain_read_failure, find_rows, must_read_again, read_chunk, write_chunk
from opendataflow.spark.files_csv import CsvForm
from opendataflow.spark.footers import Extent, find_extents
from opendataflow.spark.pipeline import Task, read_codes
from opendataflow.spark.spec import Place, chunk_spec, format_of

SCHEMA = {"id": "int", "note": "string"}
PLAIN = "".join(f"{number},n{number}\n" for number in range(3000))


@pytest.fixture(autouse=True)
def small_is_large(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file of some kilobytes is as large here as one of gigabytes: it has a beginning, and several parts."""
    monkeypatch.setattr(files_read, "LOOK_BYTES", 4096)
    monkeypatch.setattr(files_read, "LARGE_BYTES", 4096)
    monkeypatch.setattr(files_csv, "HEAD_BYTES", 512)
    monkeypatch.setattr(files_csv, "BLOCK_BYTES", 512)
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "4096")
    spark.conf.set("spark.sql.files.openCostInBytes", "1")
    yield
    spark.conf.set("spark.sql.files.maxPartitionBytes", before)
    spark.conf.unset("spark.sql.files.openCostInBytes")


def place(location: Path, **fields: Any) -> Place:
    values = {"datasetid": "orders", "format": format_of(str(location)), "options": {}, "schema": SCHEMA, **fields}
    return Place(location=str(location), **values)


def read(spark: SparkSession, source: Place) -> DataFrame:
    """As a run does, which can read again."""
    return read_chunk(spark, source, can_read_again=True)


def write(df: DataFrame, to: Path) -> None:
    write_chunk(df, place(to, format="parquet", schema=None), [])


def read_at_last(spark: SparkSession, source: Place, to: Path) -> DataFrame:
    """The chunk, after a first read that found its files not to be as their beginnings are."""
    with pytest.raises(Exception) as error:  # noqa: PT011  whatever Spark raises
        write(read(spark, source), to)
    assert must_read_again(spark, [source], error.value), error.value
    return read(spark, source)


def failed(spark: SparkSession, source: Place, to: Path) -> str:
    with pytest.raises(Exception) as error:  # noqa: PT011  whatever Spark raises
        write(read(spark, source), to)
    assert not must_read_again(spark, [source], error.value)
    told = explain_read_failure(spark, source, error.value)
    assert told is not None, error.value
    return told


def bytes_read_by_python(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the driver reads of files: the sizes of all reads."""
    sizes: list[int] = []
    opened = files_csv.open_bytes

    class Counting(io.RawIOBase):
        def __init__(self, file: Any) -> None:
            self._file = file

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            block: bytes = self._file.read(size)
            sizes.append(len(block))
            return block

        def readinto(self, buffer: Any) -> int:
            block = self.read(len(buffer))
            buffer[: len(block)] = block
            return len(block)

    @contextlib.contextmanager
    def counting(path: str) -> Iterator[Any]:
        with opened(path) as file:
            yield Counting(file)

    for module in (files_csv, drift):
        monkeypatch.setattr(module, "open_bytes", counting)
    return sizes


# One pass, by several tasks -------------------------------------------------------------------------------------------
def test_a_large_csv_is_read_by_several_tasks_and_the_driver_reads_its_beginning_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = bytes_read_by_python(monkeypatch)
    source = tmp_path / "plain.csv"
    source.write_text("id,note\n" + PLAIN)
    df = read(spark, place(source))
    assert df.rdd.getNumPartitions() > 1
    assert df.agg(F.sum("id"), F.count("note")).first() == (sum(range(3000)), 3000)
    write(df, tmp_path / "out")
    assert sum(sizes) <= 512 < source.stat().st_size
    undeclared = read(spark, place(source, schema=None))
    assert (undeclared.dtypes, undeclared.count()) == ([("id", "int"), ("note", "string")], 3000)


def test_very_many_small_files_are_a_large_chunk(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = bytes_read_by_python(monkeypatch)
    chunk = tmp_path / "chunk"
    chunk.mkdir()
    for number in range(20):
        header = "id,note" if number % 2 else "note,id"
        rows = (f"{n},n" if number % 2 else f"n,{n}" for n in range(400))
        (chunk / f"{number:02}.csv").write_text("\n".join([header, *rows]) + "\n")
    df = read(spark, place(chunk, format="csv"))
    assert df.agg(F.sum("id"), F.count("note")).first() == (20 * sum(range(400)), 8000)
    assert sum(sizes) <= 20 * 512
    (chunk / "07.csv").write_text("id,notes\n1,a\n")
    with pytest.raises(JobFailed, match=r"'note'.*07\.csv"):
        read(spark, place(chunk, format="csv"))


def test_quotes_in_the_beginning_are_looked_at_by_tasks_and_only_values_over_lines_need_one_task(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = bytes_read_by_python(monkeypatch)
    quoted, over_lines = tmp_path / "quoted.csv", tmp_path / "lines.csv"
    quoted.write_text("id,note\n" + "".join(f'{n},"a, ""{n}"""\n{n},5" pipe\n' for n in range(1000)))
    over_lines.write_text('id,note\n1,"a, b"\n' + PLAIN + '7,"two\nlines"\n')
    df = read(spark, place(quoted))
    assert df.rdd.getNumPartitions() > 1
    assert df.agg(F.sum("id"), F.min("note")).first() == (2 * sum(range(1000)), '5" pipe')
    df = read(spark, place(over_lines))
    assert df.rdd.getNumPartitions() == 1
    assert df.agg(F.count("id"), F.max("note")).first() == (3002, "two\nlines")
    assert sum(sizes) <= 2 * 512


# What the beginning did not show --------------------------------------------------------------------------------------
SURPRISES = [
    ('7,"two\nlines"\n', (7, "two\nlines")),
    ('7,"one\n8,b"\n', (7, "one\n8,b")),  # each half looks like a row
    ('7,"x\n"\n', (7, "x\n")),
    (',"x\n2,y\n,b"\n', (None, "x\n2,y\n,b")),
    ('"7","a"\n', (7, "a")),
    ('7,"a, b"\n', (7, "a, b")),
    ('7,""\n', (7, None)),
    ('7,5" pipe\n', (7, '5" pipe')),
]


@pytest.mark.parametrize(("text", "row"), SURPRISES)
def test_a_quote_far_from_the_beginning_is_read_as_in_a_small_file(
    spark: SparkSession, tmp_path: Path, text: str, row: tuple[Any, ...]
) -> None:
    source = tmp_path / "late.csv"
    source.write_text("id,note\n" + PLAIN + text + PLAIN)
    df = read_at_last(spark, place(source), tmp_path / "never")
    assert df.count() == 6001
    files_scan._refuted.clear()
    at_once = read_chunk(spark, place(source))
    assert at_once.count() == 6001, "who cannot read again"
    found = [tuple(one) for one in df.exceptAll(spark.createDataFrame(_plain() * 2, df.schema)).collect()]
    assert found == [row]


def _plain() -> list[tuple[int, str]]:
    return [(number, f"n{number}") for number in range(3000)]


def test_a_filter_or_few_columns_hide_no_quote_and_no_malformed_row(spark: SparkSession, tmp_path: Path) -> None:
    # The halves of the row look like rows, and a filter keeps only the one without a quote.
    source = tmp_path / "halves.csv"
    source.write_text("id,note\n" + PLAIN + ',"x\n2,kept\n,b"\n')
    for ask in (lambda df: df.where("note = 'kept'"), lambda df: df.where("id = 2").select("id")):
        declared = place(source)
        files_scan._refuted.clear()
        with pytest.raises(Exception, match="holds a quote") as error:
            write(ask(read(spark, declared)), tmp_path / "never")
        assert must_read_again(spark, [declared], error.value)
        again = read(spark, declared)
        assert ask(again).where("note = 'kept'").count() == 0
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("id,note,price\n" + "".join(f"{n},a,1\n" for n in range(3000)) + "5,b,dear\n")
    with pytest.raises(Exception, match="dear"):
        write(read(spark, place(wrong, schema={**SCHEMA, "price": "double"})).where("id > 10"), tmp_path / "no")


def test_a_malformed_row_is_one_that_is_malformed_and_is_counted_once_the_run_has_failed(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "bad.csv"
    source.write_text("id,note\n" + PLAIN + "x,a\n1,b,c\n")
    told = failed(spark, place(source), tmp_path / "never")
    assert told == (
        f"orders: 2 of 3002 rows are malformed, the first in {source} line 3002: "
        "column 'id' is declared as int, but is 'x'"
    )
    source.write_text('id,note\n1,"a, b"\n' + PLAIN + "x,a\n")
    told = failed(spark, place(source), tmp_path / "never")
    assert told.startswith(f"orders: 1 of 3002 rows is malformed, the first in {source} line 3003: column 'id'")


def test_malformed_and_a_quote_after_it_are_both_seen(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "both.csv"
    source.write_text("id,note\n" + PLAIN + 'x,a\n7,"two\nlines"\n')
    declared = place(source)
    with pytest.raises(Exception) as error:  # noqa: PT011  whatever Spark raises
        write(read(spark, declared), tmp_path / "never")
    assert must_read_again(spark, [declared], error.value), "which it is, is not known from the row"
    assert "1 of 3002 rows is malformed" in failed(spark, declared, tmp_path / "never")


# What is refused ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("head", ["", '1,"a, b"\n'])
def test_bytes_that_are_not_of_the_encoding_are_refused_with_their_line(
    spark: SparkSession, tmp_path: Path, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "latin.csv"
    text = f"id,note\n{head}{PLAIN}7,caf\u00e9\n{PLAIN}"
    source.write_bytes(text.encode("latin-1"))
    declared = place(source)
    line = text[: text.index("caf")].count("\n") + 1
    said = f"orders: {source} line {line} is not UTF-8: "
    assert refused(spark, declared, tmp_path).startswith(said)
    monkeypatch.setattr(files_scan, "SECOND_LOOK_BYTES", 100)
    said = f"orders: {source} is not UTF-8 in 1 of its lines; `options: {{encoding: …}}` says what it is"
    assert refused(spark, declared, tmp_path) == said
    latin = read(spark, place(source, options={"encoding": "ISO-8859-1"}))
    assert latin.where("id = 7 and note = 'caf\u00e9'").count() == 1
    source.write_text(text.replace("\u00e9", "\ufffd"), encoding="utf-8")  # what somebody else could not read
    assert read(spark, declared).where("note like 'caf_'").count() == 1


def refused(spark: SparkSession, source: Place, tmp_path: Path) -> str:
    """What is said by the read, or by the one after the first has failed."""
    try:
        df = read(spark, source)
    except JobFailed as error:
        return str(error)
    with pytest.raises(Exception) as failure:  # noqa: PT011  whatever Spark raises
        write(df, tmp_path / "never")
    assert must_read_again(spark, [source], failure.value), failure.value
    with pytest.raises(JobFailed) as error:
        read(spark, source)
    return str(error.value)


@pytest.mark.parametrize("head", ["", '1,"a, b"\n'])
def test_a_quote_that_is_never_closed_is_refused_with_its_line(
    spark: SparkSession, tmp_path: Path, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "open.csv"
    source.write_text(f'id,note\n{head}{PLAIN}7,"open\n{PLAIN}')
    line = 3002 + len(head.splitlines())
    told = refused(spark, place(source), tmp_path)
    assert told == f"orders: {source} line {line}: a quote is opened and never closed"
    monkeypatch.setattr(files_scan, "SECOND_LOOK_BYTES", 100)
    monkeypatch.setattr(files_csv, "SECOND_LOOK_BYTES", 100)
    assert refused(spark, place(source), tmp_path).endswith(
        f"{source} has an odd number of quotes, and values that run over lines: a quote is opened and never closed"
    )


def test_the_checks_of_a_file_read_it_again_where_its_beginning_told_too_little(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "late.csv"
    source.write_text("id,note\n" + PLAIN + '7,"two\nlines"\n')
    (found,) = audit_files(spark, place(source), [Check("rows", {"min": 3001, "max": 3001}, "fail")], dataid="full")
    assert not found.failed, found


def test_a_run_whose_file_is_not_as_its_beginning_is_produced_once_more_and_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "pipelines" / "p").mkdir(parents=True)
    (tmp_path / "pipelines" / "p" / "step.py").write_text(
        "def run(df):\n    print('there are', df.columns)\n    return df.where('id <> 5')\n"
    )
    source = tmp_path / "late.csv"
    source.write_text("id,note\n" + PLAIN + '7,"two\nlines"\n')
    spec = chunk_spec(
        {
            "home": str(tmp_path), "slug": "p", "transformations": ["step"], "dataid": "full", "runid": 7, "spark": {},
            "environment": {}, "sources": [{"datasetid": "in", "location": str(source), "schema": SCHEMA}],
            "destination": {"datasetid": "out", "location": str(tmp_path / "out"), "format": "parquet"},
        }
    )  # fmt: skip
    said: list[str] = []
    task = Task(spark, read_codes(spec), hear=lambda _spec, **fields: said.append(str(fields.get("progress", ""))))
    ((_, result),) = task.run([spec])
    assert (result["error"], result["rows"]) == (None, 3000)
    assert len([text for text in said if "looked through, then read again" in text]) == 1
    source.write_bytes(b"id,note\n" + PLAIN.encode() + b"7,caf\xe9\n")
    files_scan._refuted.clear()
    ((_, result),) = task.run([spec])
    assert result["error"].startswith(f"in: {source} line 3002 is not UTF-8: ")


def test_a_compressed_chunk_is_held_to_the_same(spark: SparkSession, tmp_path: Path) -> None:
    import gzip
    import random

    chance = random.Random(1)
    rows = "".join(f"{n},{chance.random()}\n" for n in range(3000))
    source = tmp_path / "late.csv.gz"
    source.write_bytes(gzip.compress(f'id,note\n{rows}7,"two\nlines"\n'.encode()))
    df = read_at_last(spark, place(source), tmp_path / "never")
    assert df.where("note = 'two\nlines'").count() == 1
    source.write_bytes(gzip.compress(f"id,note\n{rows}7,caf\u00e9\n".encode("latin-1")))
    with pytest.raises(JobFailed, match="line 3002 is not UTF-8"):
        read(spark, place(source))


# JSON -----------------------------------------------------------------------------------------------------------------
def test_keys_that_only_later_rows_have_are_looked_for_by_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = bytes_read_by_python(monkeypatch)
    monkeypatch.setattr(drift, "SAMPLE_BYTES", 512)
    source = tmp_path / "late.json"
    source.write_text('{"id": 1}\n' * 3000 + json.dumps({"id": 2, "größe": "x"}) + "\n")
    df = read(spark, place(source, schema={"id": "int", "größe": "string"}))
    assert df.where("id = 2").first() == (2, "x")
    with pytest.raises(JobFailed, match=r"column 'note' \(string\) is declared, but not there"):
        read(spark, place(source, schema={"id": "int", "größe": "string", "note": "string"}))
    assert sum(sizes) <= 4 * 512


# Footers --------------------------------------------------------------------------------------------------------------
def test_footers_are_read_several_at_a_time_and_of_very_many_files_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        pyarrow.parquet.write_table(pa.table({"id": [number, 10 + number]}), tmp_path / f"{number}.parquet")
    chunk = place(tmp_path, format="parquet", schema=None)
    both = threading.Barrier(2)
    for name in ("read_metadata", "read_schema"):
        read = getattr(pyarrow.parquet, name)

        def when_two_are_open(path: Any, read: Any = read) -> Any:
            both.wait(60)
            return read(path)

        monkeypatch.setattr(pyarrow.parquet, name, when_two_are_open)
    assert find_rows(chunk) == 8
    assert find_extents(chunk, ["id", "other"]) == {"id": Extent(0, 0, 13)}
    assert drift.find_footers(chunk, [str(path) for path in sorted(tmp_path.iterdir())]).types[3][1] == {"id": "bigint"}
    monkeypatch.setattr(footers, "MOST_FILES", 3)
    assert find_extents(chunk, ["id"]) == {}


# Without Spark --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("separator", "quote", "escape"), [(",", '"', '"'), ("|", "'", ""), ("^", '"', "\\")])
def test_a_line_is_closed_when_each_quoted_value_in_it_is(separator: str, quote: str, escape: str) -> None:
    """Every text of few characters, against what the csv module makes of it with another line behind it."""
    form = CsvForm(separator, quote, escape, "utf-8", has_header=True)
    pattern = re.compile(files_scan.closed_line(form))
    # In a value without quotes, Python's csv module takes a backslash for an escape, Spark's parser does not.
    alphabet, begin = (["a", quote, escape], quote) if escape == "\\" else (["a", separator, quote], "")
    for length in range(7):
        for chars in itertools.product(alphabet, repeat=length):
            line = begin + "".join(chars)
            try:
                is_closed = len(list(form.records(io.StringIO(f"{line}\nnext\n"), strict=True))) == 2
            except csv.Error:
                is_closed = False
            if escape == "\\":  # where it lets text follow a closing quote
                assert is_closed or not pattern.fullmatch(line), line
            else:
                assert bool(pattern.fullmatch(line)) is is_closed, line
