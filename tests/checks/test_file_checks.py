"""Checks on real files: CSV, JSON lines, Parquet and ORC, good ones, bad ones and broken ones."""

import csv
import datetime
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import orc, parquet

from opendataflow.checks import chunk_reader as batches
from opendataflow.checks import columnar
from opendataflow.checks.perform import audited, check_chunk
from opendataflow.domain.checks.check import Checked, ChecksFailed, Finding, is_validated, passed
from opendataflow.domain.chunk import Manifest
from opendataflow.domain.dataset import Dataset
from opendataflow.storage.files import manifest_of

NOW = 1_800_000_000.0
SCHEMA = {"carrier": "string", "flight": "int", "delay": "double", "hour": "timestamp"}
ROWS = [
    {"carrier": "AA", "flight": 1, "delay": 2.5, "hour": "2013-01-01 05:00:00"},
    {"carrier": "UA", "flight": 2, "delay": None, "hour": "2013-01-01 06:00:00"},
    {"carrier": "AA", "flight": 3, "delay": -4.0, "hour": "2013-01-01 23:59:59"},
]
FORMATS = ("csv", "json", "parquet", "orc")
_ARROW = pa.schema(
    [("carrier", pa.string()), ("flight", pa.int32()), ("delay", pa.float64()), ("hour", pa.timestamp("us"))]
)


# What tests write and ask ---------------------------------------------------------------------------------------------
def changed(number: int, **values: Any) -> list[dict[str, Any]]:
    """The good rows with another value in one of them."""
    return [{**row, **values} if at == number else row for at, row in enumerate(ROWS)]


def write(path: Path, rows: list[dict[str, Any]], format_: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if format_ == "csv":
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(rows[0]) if rows else list(SCHEMA), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        path.write_text(text.getvalue())
    elif format_ == "json":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        typed = [
            {**row, "hour": row["hour"] and datetime.datetime.fromisoformat(row["hour"])} if "hour" in row else row
            for row in rows
        ]
        table = pa.Table.from_pylist(typed, schema=_ARROW)
        (parquet.write_table if format_ == "parquet" else orc.write_table)(table, path)
    return path


def check(
    place: Path, *checks: dict[str, Any], format_: str | None = None, schema: dict[str, str] | None = SCHEMA,
    options: dict[str, Any] | None = None, dataid: str = "2013-01-01", earlier: list[int] | None = None,
    root: Path | None = None,
) -> Checked:  # fmt: skip
    definition = {"checks": [{"options": {}, **one} for one in checks], "schema": schema, "options": options or {}}
    dataset = Dataset("p", "flights", format=format_, definition=json.dumps(definition))
    return check_chunk(
        dataset, dataid, str(place), root=str(root or place.parent), found_manifest=manifest_of(str(place)),
        earlier_rows=lambda last: (earlier or [])[:last], now=NOW,
    )  # fmt: skip


def one(place: Path, kind: str, /, on_fail: str = "fail", **asked: Any) -> Finding:
    """The finding of a single check; `asked` are its options, and with an underscore those of `check`."""
    of = {key: asked.pop(key) for key in ("format_", "schema", "options", "dataid", "earlier", "root") if key in asked}
    checked = check(place, {"kind": kind, "options": asked, "on_fail": on_fail}, **of)
    return checked.findings[0]


@pytest.fixture(params=FORMATS)
def format_(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def file_of(folder: Path, format_: str, rows: list[dict[str, Any]]) -> Path:
    return write(folder / f"2013-01-01.{format_}", rows, format_)


# Every kind, in every format ------------------------------------------------------------------------------------------
GOOD = [
    ("rows", {"min": 1, "max": 3}),
    ("rows", {"within": [0.5, 2.0], "of": "median", "last": 7}),
    ("schema", {}),
    ("not_null", {"columns": ["carrier", "flight", "hour"]}),
    ("unique", {"columns": ["carrier", "flight"]}),
    ("values", {"columns": {"carrier": ["AA", "UA"], "flight": [1, 2, 3]}}),
    ("between", {"columns": {"delay": [-4, 2.5], "flight": [1, None], "hour": ["2013-01-01", "2013-01-02"]}}),
    ("pattern", {"columns": {"carrier": "[A-Z]{2}", "flight": r"\d"}}),
    ("partition", {"column": "hour"}),
    ("exists", {}),
    ("bytes", {"min": 1}),
]


def test_good_rows_pass_every_check(tmp_path: Path, format_: str) -> None:
    file = file_of(tmp_path, format_, ROWS)
    checked = check(file, *({"kind": kind, "options": options} for kind, options in GOOD), earlier=[3, 4, 2])
    assert [finding for finding in checked.findings if not finding.ok] == []
    assert len(checked.findings) == len(GOOD)
    assert checked.rows == 3
    assert json.loads(checked.schema or "") == SCHEMA
    assert is_validated(checked.findings)


BAD = [
    ("rows", {"min": 4}, ROWS, "3 rows"),
    ("rows", {"max": 2}, ROWS, "3 rows"),
    ("not_null", {"columns": ["flight", "delay"]}, ROWS, "delay is null in 1 of 3 rows, first in row 2"),
    ("not_null", {"columns": ["carrier"]}, changed(2, carrier=None), "carrier is null in 1 of 3 rows, first in row 3"),
    (
        "unique",
        {"columns": ["carrier"]},
        ROWS,
        "carrier repeats an earlier row in 1 rows: (AA) in rows 1 and 3",
    ),
    (
        "values",
        {"columns": {"carrier": ["UA"]}},
        ROWS,
        "carrier is not one of UA in 2 of 3 rows: 'AA' in row 1, 'AA' in row 3",
    ),
    ("values", {"columns": {"flight": [1, 2]}}, ROWS, "flight is not one of 1, 2 in 1 of 3 rows: '3' in row 3"),
    ("between", {"columns": {"flight": [2, 3]}}, ROWS, "flight is not between 2 and 3 in 1 of 3 rows: '1' in row 1"),
    ("between", {"columns": {"delay": [None, 0]}}, ROWS, "delay is not at most 0 in 1 of 3 rows: '2.5' in row 1"),
    ("between", {"columns": {"hour": ["2013-01-01 06:00", None]}}, ROWS, "hour is not at least 2013-01-01 06:00 in 1"),
    ("partition", {"column": "hour"}, changed(1, hour="2013-01-02 00:00:00"), "hour is not in 2013-01-01 in 1 of 3"),
    ("partition", {"column": "hour"}, changed(1, hour="2012-12-31 23:59:59"), "hour is not in 2013-01-01 in 1 of 3"),
    ("partition", {"column": "hour"}, changed(0, hour=None), "hour is not in 2013-01-01 in 1 of 3 rows"),
    ("bytes", {"max": 3}, ROWS, "bytes"),
]


@pytest.mark.parametrize(("kind", "options", "rows", "told"), BAD)
def test_bad_rows_fail_with_evidence(
    tmp_path: Path, format_: str, kind: str, options: dict[str, Any], rows: list[dict[str, Any]], told: str
) -> None:
    finding = one(file_of(tmp_path, format_, rows), kind, **options)
    assert finding.failed
    assert told in finding.detail


@pytest.mark.parametrize("kind", ["not_null", "unique"])
def test_a_column_that_is_not_there_is_named(tmp_path: Path, format_: str, kind: str) -> None:
    finding = one(file_of(tmp_path, format_, ROWS), kind, columns=["carier"], schema=None)
    assert finding.failed
    assert "carier" in finding.detail
    if format_ != "json":
        assert "it has carrier, flight, delay, hour" in finding.detail


def test_a_warning_does_not_keep_a_chunk_from_being_valid(tmp_path: Path, format_: str) -> None:
    file = file_of(tmp_path, format_, ROWS)
    checked = check(file, {"kind": "rows", "options": {"min": 9}, "on_fail": "warn"}, {"kind": "exists"})
    assert checked.findings[0].warned
    assert passed(checked.findings)
    assert is_validated(checked.findings)


def test_a_pattern_must_match_the_whole_value(tmp_path: Path, format_: str) -> None:
    file = file_of(tmp_path, format_, changed(1, carrier="AA1"))
    found = one(file, "pattern", columns={"carrier": "[A-Z]+"})
    assert found.detail == "carrier does not match [A-Z]+ in 1 of 3 rows: 'AA1' in row 2"
    assert one(file, "pattern", columns={"carrier": "[A-Z]+1?"}).ok
    assert one(file_of(tmp_path, format_, changed(1, carrier=None)), "pattern", columns={"carrier": "A|AA"}).ok


def test_files_keep_rows_that_a_pipeline_would_take_out(tmp_path: Path, format_: str) -> None:
    file = file_of(tmp_path, format_, changed(1, carrier=None))
    found = one(file, "not_null", on_fail="quarantine", columns=["carrier"])
    assert found.failed
    assert found.detail.endswith("in row 2; only pipelines on Spark can take rows out")


def test_all_files_of_a_folder_are_one_chunk_and_hidden_ones_are_not_of_it(tmp_path: Path, format_: str) -> None:
    chunk = tmp_path / "chunk"
    write(chunk / f"part-0.{format_}", ROWS, format_)
    write(chunk / f"part-1.{format_}", changed(0, carrier=None), format_)
    (chunk / "_SUCCESS").write_text("not data")
    (chunk / ".part-0.crc").write_text("not data")
    checked = check(
        chunk, {"kind": "rows", "options": {"max": 6}}, {"kind": "not_null", "options": {"columns": ["carrier"]}}
    )
    assert checked.rows == 6
    assert checked.findings[0].ok
    assert checked.findings[1].detail == f"carrier is null in 1 of 6 rows, first in row 1 of part-1.{format_}"
    again = one(chunk, "unique", columns=["flight"])
    assert f"(1) in rows 1 of part-0.{format_} and 1 of part-1.{format_}" in again.detail
    assert "in 3 rows" in again.detail


def test_a_file_without_rows_has_none(tmp_path: Path, format_: str) -> None:
    file = file_of(tmp_path, format_, [])
    checked = check(
        file, {"kind": "schema"}, {"kind": "not_null", "options": {"columns": ["carrier"]}},
        {"kind": "unique", "options": {"columns": ["flight"]}}, {"kind": "partition", "options": {"column": "hour"}},
        {"kind": "rows", "options": {"min": 1}},
    )  # fmt: skip
    assert checked.rows == 0
    assert [finding.ok for finding in checked.findings] == [True, True, True, True, False]


# Schema and header ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("int", "x"), ("int", "1.5"), ("int", "99999999999"), ("tinyint", "300"), ("double", "a lot"),
        ("boolean", "yes"), ("date", "2013-02-30"), ("date", "01/02/2013"), ("timestamp", "2013-01-01 25:00"),
        ("decimal(4,2)", "123.45"), ("bigint", "1e3"), ("timestamp", "soon"),
    ],
)  # fmt: skip
def test_csv_text_that_is_not_of_the_declared_type_is_found(tmp_path: Path, declared: str, value: str) -> None:
    file = tmp_path / "a.csv"
    good = {"int": "-7", "tinyint": "1", "double": "-1.5e3", "boolean": "True", "date": "2013-01-31",
            "timestamp": "2013-01-01T05:00:00Z", "decimal(4,2)": "12.30", "bigint": "+5"}[declared]  # fmt: skip
    file.write_text(f"a,b\n1,{good}\n2,{value}\n3,\n4,{good}\n")
    finding = one(file, "schema", schema={"a": "int", "b": declared})
    assert finding.failed
    assert f"in 1 of 4 rows: {value!r} in row 2" in finding.detail
    file.write_text(f"b,a\n{good},1\n,2\n")
    assert one(file, "schema", schema={"a": "int", "b": declared}).ok, "the order of the columns does not matter"


@pytest.mark.parametrize(
    ("declared", "good", "bad"),
    [
        ("int", 5, "5"), ("int", 5, 5.5), ("int", 5, True), ("int", 5, 2**40), ("bigint", 2**40, 2**70),
        ("double", 5, "5.0"), ("double", 5.5, [1]), ("boolean", False, "false"), ("boolean", True, 1),
        ("date", "2013-01-01", "2013"), ("timestamp", "2013-01-01T00:00:00+02:00", 7),
        ("array<int>", [1], 1), ("struct<a:int>", {"a": 1}, [1]), ("decimal(4,2)", 12.5, 12345.5),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mixed", [True, False])
def test_json_values_that_are_not_of_the_declared_type_are_found(
    tmp_path: Path, declared: str, good: object, bad: object, mixed: bool
) -> None:
    file = tmp_path / "a.json"
    values = [good, None, bad] if mixed else [bad]
    file.write_text("".join(json.dumps({"a": value}) + "\n" for value in values))
    finding = one(file, "schema", schema={"a": declared})
    assert finding.failed
    assert f"a is not {'an' if declared[0] in 'ai' else 'a'} {declared} in 1 of {len(values)} rows" in finding.detail
    file.write_text(json.dumps({"a": good, "more": 1}) + "\n" + json.dumps({"a": None}) + "\n\n")
    assert one(file, "schema", schema={"a": declared}).ok


def test_json_text_columns_take_anything_as_spark_does(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"a": 1}\n{"a": "x"}\n{"a": {"b": [true]}}\n{"a": "\\ud800"}\n')
    assert one(file, "schema", schema={"a": "string"}).ok
    assert one(file, "values", columns={"a": ["1"]}, schema=None).failed


def test_a_json_column_that_no_row_has_does_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"a": 1}\n{"b": null}\n')
    assert one(file, "schema", schema={"a": "int", "b": "int"}).ok
    assert one(file, "schema", schema={"a": "int", "c": "int"}).detail == "no row has a column 'c'"


@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_the_types_of_parquet_and_orc_come_from_their_footers(tmp_path: Path, format_: str) -> None:
    file = file_of(tmp_path, format_, ROWS)
    finding = one(file, "schema", schema={**SCHEMA, "flight": "bigint"})
    assert finding.detail == f"2013-01-01.{format_}: column 'flight' is int, not bigint"
    assert one(file, "schema", schema={"flight": "INTEGER", "hour": "timestamp_ntz"}).ok, "other columns may be there"
    assert "has no column 'tail'" in one(file, "schema", schema={"tail": "string"}).detail


def test_nested_parquet_types_are_compared_in_sparks_words(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    nested = pa.struct([("x", pa.list_(pa.int64())), ("y", pa.decimal128(10, 2))])
    parquet.write_table(pa.table({"a": pa.array([{"x": [1], "y": None}], nested)}), file)
    assert one(file, "schema", schema={"a": "struct<x: array<long>, y: decimal(10, 2)>"}).ok
    assert one(file, "schema", schema={"a": "struct<x: array<int>, y: decimal(10, 2)>"}).failed


def test_a_decimal_that_is_declared_without_places_has_none(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"a": pa.array([12], pa.decimal128(12, 0))}), file)
    assert one(file, "schema", schema={"a": "decimal(12)"}).ok
    assert one(file, "schema", schema={"a": "numeric"}).failed, "that is decimal(10,0)"
    assert one(write(tmp_path / "a.csv", [{"a": "12.5"}], "csv"), "schema", schema={"a": "decimal(12)"}).failed


def test_a_csv_has_exactly_the_declared_columns(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a,extra\n1,2\n")
    finding = one(file, "schema", schema={"a": "int", "b": "int"})
    assert "a.csv has no column 'b'; it has a, extra" in finding.detail
    assert "a.csv has a column 'extra' that is not declared" in finding.detail
    assert "type 'strng' of column 'a' is not known here" in one(file, "schema", schema={"a": "strng"}).detail


def test_the_header_is_compared_name_by_name(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('a,"b c"\n1,2\n')
    assert one(file, "header", columns=["a", "b c"]).ok
    assert one(file, "header", columns=["b c", "a"]).detail == "a.csv begins with a, b c, not b c, a"
    file.write_bytes(b"")
    assert one(file, "header", columns=["a"]).detail == "a.csv has no header"
    file.write_bytes(b"\xef\xbb\xbfa\r\n1\r\n")
    assert one(file, "header", columns=["a"]).ok, "a byte order mark is not part of a name"


def test_only_a_header_check_reads_no_rows(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a,b\n1\n2,3,4\n")
    checked = check(file, {"kind": "header", "options": {"columns": ["a", "b"]}})
    assert [finding.ok for finding in checked.findings] == [True]
    assert checked.rows is None


# The options of a CSV -------------------------------------------------------------------------------------------------
def test_csv_options_are_honoured(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes("n;o\n'x;y';NA\n'Zoë';2\n".encode("cp1252"))
    options = {"sep": ";", "quote": "'", "encoding": "cp1252", "nullValue": "NA"}
    checked = check(file, {"kind": "values", "options": {"columns": {"n": ["x;y", "Zoë"]}}},
                    {"kind": "not_null", "options": {"columns": ["o"]}}, options=options, schema=None)  # fmt: skip
    assert checked.findings[0].ok
    assert checked.findings[1].detail == "o is null in 1 of 2 rows, first in row 1"


def test_a_csv_without_header_has_the_declared_columns_or_numbered_ones(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("AA,1\nUA,\n")
    assert one(file, "not_null", columns=["f"], options={"header": False}, schema={"c": "string", "f": "int"}).failed
    finding = one(file, "not_null", columns=["_c1"], options={"header": "false"}, schema=None)
    assert finding.detail == "_c1 is null in 1 of 2 rows, first in row 2"


@pytest.mark.parametrize("option", [{"sep": "||"}, {"comment": "#"}, {"dateFormat": "dd.MM.yyyy"}])
def test_what_only_spark_reads_is_skipped_and_said(tmp_path: Path, option: dict[str, str]) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a,b\n1,01.02.2013\n")
    finding = one(file, "schema", schema={"a": "int", "b": "date"}, options=option)
    assert finding.skipped
    assert "only Spark reads" in finding.detail


def test_an_escape_other_than_a_doubled_quote(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('a,b\n"say \\"hi\\"",1\n')
    assert one(file, "values", columns={"a": ['say "hi"']}, options={"escape": "\\"}, schema=None).ok


# Broken files ---------------------------------------------------------------------------------------------------------
def test_a_cut_off_gzip_is_a_finding(tmp_path: Path) -> None:
    for name, text in (("a.csv.gz", "a\n" + "1234\n" * 50_000), ("a.json.gz", '{"a": 1}\n' * 50_000)):
        whole = gzip.compress(text.encode())
        file = tmp_path / name
        file.write_bytes(whole)
        assert one(file, "rows", min=50_000, schema=None).ok
        file.write_bytes(whole[: len(whole) // 2])
        finding = one(file, "rows", min=1, schema=None)
        assert (finding.check, finding.detail) == ("readable", f"{name}: the compressed file is cut off")
        assert finding.failed
        file.write_bytes(text.encode())
        assert one(file, "rows", min=1, schema=None).failed, "it is not compressed at all"


@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_a_cut_off_or_damaged_columnar_file_is_a_finding(tmp_path: Path, format_: str) -> None:
    file = file_of(tmp_path, format_, ROWS * 20_000)
    whole = file.read_bytes()
    assert one(file, "rows", min=60_000).ok
    for broken in (whole[: len(whole) // 2], b"", b"PAR1", whole[:-9]):
        file.write_bytes(broken)
        finding = one(file, "rows", min=1)
        assert finding.failed
        assert finding.check == "readable"
        assert finding.detail.startswith(f"2013-01-01.{format_}: ")
    file.write_bytes(whole[:200] + bytes(byte ^ 0x5A for byte in whole[200:2000]) + whole[2000:])
    checked = check(file, {"kind": "unique", "options": {"columns": ["flight", "delay"]}},
                    {"kind": "values", "options": {"columns": {"carrier": ["AA", "UA"]}}})  # fmt: skip
    assert not passed(checked.findings)


def test_text_in_another_encoding_is_a_finding_that_names_the_place(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_bytes(b"a,b\n1,x\n2,\xe9\n")
    assert one(table, "rows", min=1, schema=None).detail == "a.csv: text that is not UTF-8 in record 3, column 2"
    lines = tmp_path / "a.json"
    lines.write_bytes(b'{"a": 1}\n{"a": "\xe9"}\n')
    assert "a.json: line 2 is not UTF-8" in one(lines, "rows", min=1, schema=None).detail
    assert one(table, "rows", min=2, schema=None, options={"encoding": "latin1"}).ok
    assert one(lines, "rows", min=2, schema=None, options={"encoding": "ISO-8859-1"}).ok
    assert "unknown encoding" in one(table, "rows", min=1, schema=None, options={"encoding": "klingon"}).detail
    wide = tmp_path / "wide.json"
    wide.write_bytes('{"a": "é"}\n{"a": 2}\n'.encode("utf-16"))
    assert one(wide, "rows", min=2, max=2, schema=None, options={"encoding": "utf-16"}).ok


def test_rows_with_too_few_or_too_many_fields_are_a_finding_and_count_as_rows(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a,b\n1,2\n3\n4,5\n6,7,8\n")
    checked = check(file, {"kind": "rows", "options": {"min": 4, "max": 4}}, schema=None)
    assert checked.findings[0].detail == "a.csv has 1 fields in row 2, not 2; 2 rows are so"
    assert checked.findings[0].failed
    assert checked.findings[1].ok
    assert checked.rows == 4


def test_a_quote_that_is_never_closed_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.csv"
    for text in ('a,b\n1,2\n3,"4\n5,6\n', 'a,b\n1,2\n"3,4\n5,6\n'):
        file.write_text(text)
        assert one(file, "rows", min=1, schema=None).check == "readable"
    file.write_text('a,b\n1,"x\ny"\n')
    assert one(file, "rows", max=1, schema=None).ok
    monkeypatch.setattr(batches, "BLOCK_BYTES", 1 << 16)
    file.write_text('a,b\n1,"' + "x,y\n" * 50_000)
    assert "a quote is never closed" in one(file, "rows", min=1, schema=None).detail


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": 1}\n{"a": \n', "a.json: line 2 is not JSON: Expecting value at column 7"),
        ('{"a": 1}\n[1, 2]\n', "a.json: line 2 is not a JSON object"),
        ('[{"a": 1},\n', "line 1 is not JSON"),
        ('{"a": ' + "[" * 100_000 + "\n", "line 1 is not JSON"),
    ],
)
def test_lines_that_are_not_json_objects_are_findings(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    assert told in one(file, "rows", min=1, schema=None).detail


def test_what_was_found_before_a_file_broke_off_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_ROWS", 2)
    file = tmp_path / "a.json"
    file.write_text('{"a": 1}\n{"a": null}\n{"a": 3}\nnot json\n')
    checked = check(file, {"kind": "not_null", "options": {"columns": ["a"]}}, {"kind": "rows", "options": {"min": 1}},
                    schema=None)  # fmt: skip
    assert [finding.check for finding in checked.findings] == ["readable", "not_null a", "rows min 1"]
    assert checked.findings[1].detail == "a is null in 1 rows, first in row 2"
    assert checked.findings[2].skipped
    assert checked.rows is None


def test_a_format_that_nothing_tells_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("a\n1\n")
    assert "declare `format:`" in one(file, "rows", min=1, schema=None).detail
    assert one(file, "rows", min=1, schema=None, format_="csv").ok
    assert one(file, "rows", min=2, max=2, schema=None, format_="text").ok


@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.parquet"])
def test_an_empty_file_is_no_traceback(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(b"")
    checked = check(file, {"kind": "rows", "options": {"min": 1}}, {"kind": "schema"},
                    {"kind": "not_null", "options": {"columns": ["carrier"]}})  # fmt: skip
    assert not passed(checked.findings)
    assert one(file, "exists").ok
    assert one(file, "bytes", min=1).detail == "0 bytes"


def test_a_header_that_names_a_column_twice_is_a_finding(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a,a\n1,2\n")
    assert "column 'a' stands twice in its header" in one(file, "rows", min=1, schema=None).detail


def test_a_folder_without_files_does_not_exist_as_a_chunk(tmp_path: Path) -> None:
    chunk = tmp_path / "chunk"
    chunk.mkdir()
    assert one(chunk, "exists").failed
    assert one(chunk, "rows", min=1).failed


# Values ---------------------------------------------------------------------------------------------------------------
def test_numbers_are_compared_as_numbers_also_where_no_type_is_declared(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a\n9\n10\n1.50\n\n")
    assert one(file, "between", columns={"a": [1.5, 10]}, schema=None).ok
    assert one(file, "values", columns={"a": [9, 10, 1.5]}, schema=None).ok
    assert "'9' in row 1" in one(file, "between", columns={"a": [10, 20]}, schema=None).detail
    file.write_text("a\n9\nmany\nNaN\n")
    assert "'many' in row 2, 'NaN' in row 3" in one(file, "between", columns={"a": [0, 10]}, schema=None).detail


def test_true_and_false_are_values_too(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"a": true}\n{"a": null}\n')
    assert one(file, "values", columns={"a": [True]}, schema=None).ok
    assert one(file, "values", columns={"a": [False]}, schema=None).failed


def test_rows_with_a_null_are_left_out_of_unique(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a,b\n1,\n1,\nx,yz\nxy,z\n")
    assert one(file, "unique", columns=["a", "b"], schema=None).ok
    file.write_text("a,b\n1,2.0\n1,2\n")
    assert one(file, "unique", columns=["a", "b"], schema=None).ok
    assert one(file, "unique", columns=["a", "b"], schema={"a": "int", "b": "double"}).failed


@pytest.mark.parametrize(
    ("dataid", "good", "bad"),
    [
        ("2013-01-01", "2013-01-01T10:00:00Z", "2013-01-01T23:30:00-05:00"),
        ("2013-01-01", "2013-01-01", "2013-01-01 later"),
        ("2013-01-01T05", "2013-01-01 05:59:59.999999", "2013-01-01 06:00:00"),
        ("2013-02", "2013-02-28 23:00", "2013-03-01"),
        ("north", "north", "south"),
        ("00042", "00042", "42"),
    ],
)
def test_the_partition_column_goes_by_the_form_of_the_dataid(tmp_path: Path, dataid: str, good: str, bad: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"t\n{good}\n")
    assert one(file, "partition", column="t", dataid=dataid, schema=None).ok
    file.write_text(f"t\n{good}\n{bad}\n")
    assert f"{bad!r} in row 2" in one(file, "partition", column="t", dataid=dataid, schema=None).detail


def test_dates_and_whole_numbers_as_partition_columns(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    day = datetime.date(2013, 1, 1)
    zoned = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    parquet.write_table(pa.table({"d": [day], "n": [42], "z": [zoned]}), file)
    assert one(file, "partition", column="d", schema=None).ok
    assert one(file, "partition", column="d", schema=None, dataid="2013-01-01T07").ok, "a date knows no hour"
    assert one(file, "partition", column="d", schema=None, dataid="2013-01-02").failed
    assert one(file, "partition", column="n", schema=None, dataid="00042").ok
    assert one(file, "partition", column="n", schema=None).failed
    assert one(file, "partition", column="z", schema=None, dataid="2013-01-01T05").ok
    assert one(file, "between", columns={"d": ["2013-01-01", "2013-01-01"]}, schema=None).ok
    assert one(file, "values", columns={"d": ["2013-01-01"]}, schema=None).ok


def test_dictionaries_decimals_and_wide_text_of_parquet(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(
        pa.table(
            {
                "c": pa.array(["a", "b", "a"]).dictionary_encode(),
                "l": pa.array(["a", "b", None], pa.large_string()),
                "m": pa.array([1, 2, None], pa.decimal128(10, 2)),
                "b": pa.array([b"\xff", b"\x00", None]),
            }
        ),
        file,
    )
    for column in ("c", "l"):
        assert one(file, "values", columns={column: ["a", "b"]}, schema=None).ok
        assert one(file, "values", columns={column: ["a"]}, schema=None).failed
    assert one(file, "between", columns={"m": [0.5, 2]}, schema=None).ok
    assert one(file, "between", columns={"m": [1.5, 2]}, schema=None).failed
    assert one(file, "values", columns={"m": [1, 2]}, schema=None).ok
    assert one(file, "unique", columns=["b", "m"], schema=None).ok
    assert one(file, "not_null", columns=["b"], schema=None).failed


def test_numbers_beyond_what_a_double_can_count(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"i": pa.array([2**62 + 1]), "u": pa.array([2**63 + 5], pa.uint64())}), file)
    for column in ("i", "u"):
        assert one(file, "between", columns={column: [0.5, None]}, schema=None).ok
        assert one(file, "between", columns={column: [0, 10**30]}, schema=None).ok
        assert one(file, "between", columns={column: [0, 5]}, schema=None).failed
        assert one(file, "partition", column=column, schema=None, dataid="7").failed
    assert one(file, "between", columns={"i": [2**62 + 1, 2**62 + 1]}, schema=None).ok
    assert one(file, "between", columns={"i": [2**62 + 2, None]}, schema=None).failed


TYPES = {
    "bool": pa.array([True, None]), "null": pa.nulls(2), "bin": pa.array([b"a", b"\xff"]),
    "f16": pa.array([1.0, None], pa.float16()), "time": pa.array([1, None], pa.time64("ns")),
    "span": pa.array([1, None], pa.duration("s")), "ns": pa.array([1, 5], pa.timestamp("ns", "America/New_York")),
    "list": pa.array([[1], None]), "struct": pa.array([{"a": 1}, None]),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    "wide": pa.array([1, 2]).cast(pa.decimal256(40, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_a_type_that_a_check_cannot_mean_is_a_finding_and_no_traceback(tmp_path: Path, name: str) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"a": TYPES[name]}), file)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("unique", {"columns": ["a"]}), ("values", {"columns": {"a": ["x"]}}), ("values", {"columns": {"a": [99]}}),
        ("between", {"columns": {"a": [90, 91]}}), ("between", {"columns": {"a": ["2040-01-01", None]}}),
        ("partition", {"column": "a"}),
    ]  # fmt: skip
    for declared in (None, "int", "timestamp", "decimal(10,2)", "array<int>"):
        schema = None if declared is None else {"a": declared}
        checked = check(file, *({"kind": kind, "options": options} for kind, options in asked), schema=schema)
        assert "readable" not in [finding.check for finding in checked.findings]
        assert checked.findings[0].ok
        assert name == "null" or not any(finding.ok for finding in checked.findings[1:4])
        assert checked.findings[5].failed


def test_null_counts_come_from_the_footer_where_it_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_of(tmp_path, "parquet", ROWS)

    def no_reading(*_: object) -> None:
        raise AssertionError("rows were read")

    monkeypatch.setattr(columnar, "parquet_batches", no_reading)
    assert one(file, "not_null", columns=["carrier"]).ok
    assert one(file, "rows", min=3).ok
    assert one(file, "schema").ok
    monkeypatch.undo()
    parquet.write_table(parquet.read_table(file), file, write_statistics=False)
    assert one(file, "not_null", columns=["carrier"]).ok
    assert one(file, "not_null", columns=["delay"]).failed


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(
        st.tuples(
            st.one_of(
                st.none(), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
            ),
            st.one_of(st.none(), st.integers(-3, 3)),
        ),
        max_size=12,
    )
)
def test_all_formats_see_what_a_plain_loop_sees(tmp_path: Path, values: list[tuple[str | None, int | None]]) -> None:
    rows = [{"a": text or None, "b": number} for text, number in values]  # CSV has no empty text
    schema = {"a": "string", "b": "int"}
    parquet.write_table(
        pa.Table.from_pylist(rows, schema=pa.schema([("a", pa.string()), ("b", pa.int32())])), tmp_path / "v.parquet"
    )
    (tmp_path / "v.json").write_text("".join(json.dumps(row) + "\n" for row in rows) or '{"a": null, "b": null}\n')
    with (tmp_path / "v.csv").open("w", newline="", encoding="utf-8") as text:
        writer = csv.writer(text, quoting=csv.QUOTE_ALL)
        writer.writerows([("a", "b"), *((row["a"], row["b"]) for row in rows)])
    keys = [(row["a"], row["b"]) for row in rows if None not in row.values()]
    wanted = {
        "not_null": all(row["a"] is not None for row in rows),
        "unique": len(set(keys)) == len(keys),
        "values": all(row["b"] in (None, 0, 1) for row in rows),
        "between": all(row["b"] is None or -1 <= row["b"] <= 2 for row in rows),
    }
    asked = {
        "not_null": {"columns": ["a"]}, "unique": {"columns": ["a", "b"]}, "values": {"columns": {"b": [0, 1]}},
        "between": {"columns": {"b": [-1, 2]}},
    }  # fmt: skip
    for name in ("v.csv", "v.json", "v.parquet"):
        if name == "v.json" and not rows:
            continue
        checked = check(tmp_path / name, *({"kind": kind, "options": asked[kind]} for kind in wanted), schema=schema)
        assert {finding.check.split()[0]: finding.ok for finding in checked.findings} == wanted, name
        assert checked.rows == len(rows)


# Without rows ---------------------------------------------------------------------------------------------------------
def test_the_checksum_file_vouches_for_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a\n1\n")
    options = {"file": "{path}.sha256", "algorithm": "sha256"}
    assert f"there is no checksum file {file}.sha256" in one(file, "checksum", **options).detail
    right = hashlib.sha256(file.read_bytes()).hexdigest()
    note = tmp_path / "a.csv.sha256"
    for text in (f"{right}  a.csv\n", f"{right.upper()} *a.csv\n", right, f"SHA256 (a.csv) = {right}\n",
                 f"{'0' * 64}  b.csv\n{right}  a.csv\n", f"{right}  /elsewhere/a.csv\n"):  # fmt: skip
        note.write_text(text)
        assert one(file, "checksum", **options).ok, text
    for text in ("", f"{'0' * 64}  a.csv\n", f"{right}  b.csv\n{right}  c.csv\n"):
        note.write_text(text)
        assert one(file, "checksum", **options).failed, text
    note.write_bytes(b"\xff\xfe")
    assert one(file, "checksum", **options).failed
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums/2013-01-01.md5").write_text(hashlib.md5(file.read_bytes()).hexdigest())  # noqa: S324
    assert one(file, "checksum", file="sums/{dataid}.md5", algorithm="md5").ok
    outside = tmp_path / "root"
    outside.mkdir()
    assert "is not below" in one(file, "checksum", **options, root=outside).detail


def test_the_checksum_file_of_a_folder_names_every_file(tmp_path: Path) -> None:
    chunk = tmp_path / "chunk"
    lines = []
    for name in ("p0.csv", "sub/p1.csv"):
        file = write(chunk / name, ROWS, "csv")
        lines.append(f"{hashlib.sha1(file.read_bytes()).hexdigest()}  ./{name}\n")  # noqa: S324
    note = tmp_path / "sums"
    options = {"file": "sums", "algorithm": "sha1"}
    note.write_text("".join(lines))
    assert one(chunk, "checksum", **options).ok
    note.write_text(lines[0])
    assert one(chunk, "checksum", **options).detail == f"{note} does not name sub/p1.csv"


def test_freshness_goes_by_the_oldest_file(tmp_path: Path) -> None:
    chunk = tmp_path / "chunk"
    for name, age in (("a.csv", 50), ("b.csv", 150)):
        file = write(chunk / name, ROWS, "csv")
        os.utime(file, (NOW - age, NOW - age))
    assert one(chunk, "freshness", max_age=200.0).ok
    assert one(chunk, "freshness", max_age=100.0).detail == "150 s old, more than 100 s"


def test_what_needs_spark_is_skipped_and_visible(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", ROWS, "csv")
    checked = check(file, {"kind": "expression", "options": {"sql": "flight > 0", "at_least": 0.9}})
    assert checked.findings == (Finding("expression flight > 0", False, True, "not checked here, needs Spark", "fail"),)
    assert passed(checked.findings)
    assert not is_validated(checked.findings), "what nobody looked at is not valid"


def test_the_number_of_rows_is_compared_with_the_chunks_before(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", ROWS, "csv")
    options = {"within": [0.5, 2.0], "of": "median", "last": 3}
    assert one(file, "rows", **options, earlier=[2, 3, 5, 900]).ok
    assert "3 rows; 5 to 20 were expected" in one(file, "rows", **options, earlier=[10, 10, 11]).detail
    first = one(file, "rows", **options, earlier=[])
    assert (first.ok, first.skipped, first.detail) == (True, False, "3 rows, and no chunk before to compare with")


def test_places_on_other_machines_are_skipped() -> None:
    definition = json.dumps({"checks": [{"kind": "rows", "options": {"min": 1}, "on_fail": "fail"}]})
    checked = check_chunk(
        Dataset("p", "d", definition=definition), "1", "hdfs://host/d/1", root="hdfs://host",
        found_manifest=Manifest(), earlier_rows=lambda _: [], now=NOW,
    )  # fmt: skip
    assert checked.findings[0].skipped


# What a run wrote -----------------------------------------------------------------------------------------------------
def audit(place: Path, *checks: dict[str, Any], said: list[str] | None = None) -> Manifest:
    dataset = Dataset("p", "out", definition=json.dumps({"checks": list(checks)}))
    return audited(
        dataset, "1", manifest_of(str(place)), root=str(place.parent), earlier_rows=lambda _: [], now=NOW,
        say=(said if said is not None else []).append,
    )  # fmt: skip


def test_an_audit_puts_rows_and_validity_into_the_manifest(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", ROWS, "csv")
    said: list[str] = []
    warned = {"kind": "rows", "options": {"min": 100}, "on_fail": "warn"}
    manifest = audit(file, {"kind": "rows", "options": {"min": 1}}, warned, said=said)
    assert (manifest.rows, manifest.validated) == (3, True)
    assert said == ["out/1: warning: rows min 100: 3 rows"]
    assert not audit(file).validated


def test_an_audit_names_the_checks_that_failed(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", ROWS, "csv")
    with pytest.raises(
        ChecksFailed, match=r"out/1 does not pass its checks: not_null delay: delay is null in 1 of 3 .*"
    ):
        audit(file, {"kind": "not_null", "options": {"columns": ["delay"]}}, {"kind": "exists", "options": {}})


# Cost -----------------------------------------------------------------------------------------------------------------
_ASK = """
import json, sys
from opendataflow.domain.chunk import Manifest
from opendataflow.domain.dataset import Dataset
from opendataflow.checks.perform import audited, check_chunk
asked = dict(root="/", earlier_rows=lambda _: [], now=0.0)
place, definition = sys.argv[1:]
checked = check_chunk(Dataset("p", "d", definition=definition), "1", place, found_manifest=Manifest(), **asked)
"""


def ask_in_a_process(more: str, place: Path, definition: dict[str, Any]) -> str:
    argv = [sys.executable, "-c", _ASK + more, str(place), json.dumps(definition)]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_without_checks_nothing_is_imported_or_opened(tmp_path: Path) -> None:
    told = ask_in_a_process(
        'audited(Dataset("p", "d", definition=definition), "1", Manifest(location=place), **asked)\n'
        'print(checked == ((), None, None), "pyarrow" in sys.modules, "pydantic" in sys.modules)',
        tmp_path / "absent",
        {"schema": {"a": "int"}},
    )
    assert told.split() == ["True", "False", "False"]


@pytest.mark.parametrize("name", ["big.csv", "big.json", "big.parquet"])
def test_a_large_file_is_not_loaded_whole(tmp_path: Path, name: str) -> None:
    file, rows, filler = tmp_path / name, 300_000, "x" * 600
    if name == "big.parquet":
        table = pa.table({"a": pa.array(range(rows)), "t": pa.array([filler] * rows)})
        parquet.write_table(table, file, use_dictionary=False, compression="none", row_group_size=rows)
    else:
        pattern = '{{"a": {}, "t": "{}"}}\n' if name == "big.json" else "{},{}\n"
        with file.open("w") as text:
            text.write("a,t\n" if name == "big.csv" else "")
            text.writelines(pattern.format(number, filler) for number in range(rows))
    assert file.stat().st_size > 180_000_000
    checks = [
        ("rows", {"min": rows}), ("schema", {}), ("between", {"columns": {"a": [0, rows]}}),
        ("values", {"columns": {"t": [filler]}}), ("unique", {"columns": ["a"]}),
    ]  # fmt: skip
    told = ask_in_a_process(
        "assert all(finding.ok for finding in checked.findings), checked\n"
        'print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])',
        file,
        {"schema": {"a": "bigint", "t": "string"}, "checks": [{"kind": kind, "options": o} for kind, o in checks]},
    )
    assert int(told) < 420_000, "kilobytes"
