"""One definition of a check, two ways to do it: on files without Spark, and on Spark. They find the same."""

import datetime
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyarrow import orc, parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from opendataflow.checks.perform import check_chunk
from opendataflow.domain.checks.check import READABLE, Check, Finding, passed
from opendataflow.domain.dataset import Dataset
from opendataflow.spark.checks import Audit, audit_files
from opendataflow.spark.files import ddl, write_chunk
from opendataflow.spark.spec import Place
from opendataflow.storage.files import manifest_of

DATAID = "2013-01-01"
SCHEMA = {
    "t": "string", "i": "int", "l": "bigint", "d": "double", "f": "float", "m": "decimal(10,2)", "b": "boolean",
    "day": "date", "at": "timestamp",
}  # fmt: skip


def columns(kind: str, **asked: Any) -> Check:
    return Check(kind, {"columns": asked})


def listed(kind: str, *names: str) -> Check:
    return Check(kind, {"columns": list(names)})


CHECKS = [
    Check("schema", {}),
    Check("rows", {"min": 1}),
    Check("rows", {"max": 3}),
    Check("rows", {"within": [0.5, 2.0], "of": "median", "last": 3}),
    *(listed("not_null", name) for name in SCHEMA),
    listed("not_null", "t", "d"),
    columns("values", t=["AA", "UA", "é", ""]),
    columns("values", t=[1, 2]),
    columns("values", t=["1", "AA"]),
    columns("values", i=[1, 2, 3]),
    columns("values", i=["1", "2"]),
    columns("values", i=[1.0, 2.5]),
    columns("values", l=[9007199254740993, 1]),
    columns("values", d=[1, 2.5]),
    columns("values", d=["1", "2.50"]),
    columns("values", f=[0.5]),
    columns("values", m=[1.5, 2]),
    columns("values", m=["1.50"]),
    columns("values", b=[True]),
    columns("values", b=["false"]),
    columns("values", b=[1]),
    columns("values", day=["2013-01-01"]),
    columns("values", day=["2013-01-01 05:00"]),
    columns("values", at=["2013-01-01 05:00:00", "2013-01-01T06:00:00Z"]),
    columns("values", at=[1]),
    columns("between", i=[1, 2]),
    columns("between", i=[None, 1.5]),
    columns("between", i=["1", "2"]),
    columns("between", i=["a", "b"]),
    columns("between", l=[0, 9007199254740992]),
    columns("between", l=[0, 1 << 70]),
    columns("between", d=[-1, 2]),
    columns("between", d=[0.5, None]),
    columns("between", d=[None, 2]),
    columns("between", f=[0, 0.1]),
    columns("between", m=[1, 2]),
    columns("between", m=[1.25, 2.5]),
    columns("between", t=["A", "M"]),
    columns("between", t=[0, 10]),
    columns("between", b=[0, 1]),
    columns("between", day=["2013-01-01", "2013-01-01"]),
    columns("between", day=["2013-01-01 12:00", None]),
    columns("between", day=[0, 1]),
    columns("between", at=["2013-01-01", "2013-01-01 05:30:00"]),
    columns("between", at=["2013-01-01T00:00:00+02:00", None]),
    columns("between", at=[None, "whenever"]),
    columns("pattern", t="[A-Z]{2}"),
    columns("pattern", t="(?i)[a-zÉ]+"),
    columns("pattern", t=r"\w+"),
    columns("pattern", t=".*"),
    columns("pattern", i=r"\d"),
    columns("pattern", b="true"),
    columns("pattern", day=r"2013-\d\d-\d\d"),
    columns("pattern", d=".*"),
    columns("pattern", at=".*"),
    Check("partition", {"column": "at"}),
    Check("partition", {"column": "day"}),
    Check("partition", {"column": "t"}),
    Check("partition", {"column": "i"}),
    listed("not_null", "nowhere"),
    columns("values", nowhere=[1]),
    columns("between", nowhere=[1, 2]),
    columns("pattern", nowhere="x"),
    listed("unique", "nowhere"),
    Check("partition", {"column": "nowhere"}),
]

UNIQUE = [listed("unique", *names) for names in (["t"], ["d"], ["t", "i"], ["m", "at"], ["day", "b"])]

_UTC = datetime.UTC
_MORNING = datetime.datetime(2013, 1, 1, 5, tzinfo=_UTC)
_DAY = datetime.date(2013, 1, 1)


def row(t: Any, i: Any, l: Any, d: Any, f: Any, m: Any, b: Any, day: Any, at: Any) -> dict[str, Any]:  # noqa: E741
    return dict(zip(SCHEMA, (t, i, l, d, f, m, b, day, at), strict=True))


GOOD = row("AA", 1, 1, 1.0, 0.5, Decimal("1.50"), True, _DAY, _MORNING)
NULLS = dict.fromkeys(SCHEMA)
_KINDS: dict[str, list[dict[str, Any]]] = {
    "good": [GOOD, {**GOOD, "t": "UA", "i": 2, "d": 2.5, "at": _MORNING + datetime.timedelta(hours=1)}],
    "nulls": [GOOD, NULLS, NULLS],
    "repeated": [GOOD, GOOD, {**GOOD, "i": 2}, GOOD],
    "numbers": [
        {**GOOD, "l": 9007199254740992, "d": -0.0, "f": 0.1, "m": Decimal("-0.01")},
        {**GOOD, "l": 9007199254740993, "d": 0.0, "f": 1e30, "m": Decimal("12345678.90")},
        {**GOOD, "l": -(1 << 63), "d": 1e300, "i": -(1 << 31), "m": Decimal("2.00")},
    ],
    "unicode": [{**GOOD, "t": text} for text in ("é", "É", "日本", "aé", "ſ", "\u212a", "😀", "straße")],
    "texts": [{**GOOD, "t": text} for text in (
        "1", "01", "1.0", "2e0", " 1", "1 ", "nan", "-5", "x1", "A\rB", "a\u2028b")],
    "dates as text": [{**GOOD, "t": text} for text in (
        "2013-01-01", "2013-01-01 05:00:00", "2013-01-01T23:59:59.999999Z", "2013-01-01T23:00:00-02:00",
        "2012-12-31T23:00:00-02:00", "2013-01-02", "2013-02-30", "20130101")],
    "edges of the day": [{**GOOD, "at": at, "day": at.date()} for at in (
        datetime.datetime(2013, 1, 1, tzinfo=_UTC), datetime.datetime(2013, 1, 1, 23, 59, 59, 999999, _UTC),
        datetime.datetime(2013, 1, 2, tzinfo=_UTC), datetime.datetime(2012, 12, 31, 23, 59, 59, tzinfo=_UTC),
        datetime.datetime(1900, 1, 1, tzinfo=_UTC), datetime.datetime(9999, 12, 31, tzinfo=_UTC))],
    "false": [{**GOOD, "b": False}, {**GOOD, "b": None}],
}  # fmt: skip
ROWS = {"good": _KINDS["good"], "empty": [], "everything": [one for rows in _KINDS.values() for one in rows]}
NOT_A_NUMBER = [{**GOOD, "d": math.nan, "f": math.nan}, {**GOOD, "d": math.inf}, {**GOOD, "d": math.nan}, GOOD]
_ARROW = pa.schema(
    [
        ("t", pa.string()), ("i", pa.int32()), ("l", pa.int64()), ("d", pa.float64()), ("f", pa.float32()),
        ("m", pa.decimal128(10, 2)), ("b", pa.bool_()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip


# Files of each kind ---------------------------------------------------------------------------------------------------
def _written(value: Any, format_: str) -> Any:
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value) if format_ == "json" else str(value)
    if isinstance(value, bool) and format_ == "csv":
        return str(value).lower()
    return value


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    def field(value: Any) -> str:
        text = "" if value is None else str(_written(value, "csv"))
        return f'"{text}"' if re.search(r'[\s",]', text) else text

    lines = [",".join(field(value) for value in one.values()) for one in rows]
    path.write_text("\n".join([",".join(SCHEMA), *lines, ""]), newline="")


def write_json(path: Path, rows: list[dict[str, Any]]) -> None:
    lines = [json.dumps({key: _written(value, "json") for key, value in one.items()}) for one in rows]
    path.write_text("".join(f"{line}\n" for line in lines))


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    parquet.write_table(pa.Table.from_pylist(rows, schema=_ARROW), path)


def write_orc(path: Path, rows: list[dict[str, Any]]) -> None:
    rows = [one for one in rows if one["at"] is None or one["at"].year < 2262]  # Arrow reads ORC's times so far only
    orc.write_table(pa.Table.from_pylist(rows, schema=_ARROW), path)


WRITERS: dict[str, Callable[[Path, list[dict[str, Any]]], None]] = {
    "csv": write_csv,
    "json": write_json,
    "parquet": write_parquet,
    "orc": write_orc,
}


# Both ways ------------------------------------------------------------------------------------------------------------
class Seen(NamedTuple):
    """A finding without its words: its result, and the numbers of rows in it."""

    check: str
    result: str
    counts: tuple[str, ...]


def seen(findings: tuple[Finding, ...]) -> list[Seen]:
    numbers = re.compile(r" in (\d+(?: of \d+)?) rows|^(\d+) rows")
    return [
        Seen(one.check, one.result, tuple("".join(found) for found in numbers.findall(one.detail))) for one in findings
    ]


def on_files(
    path: Path, format_: str, checks: list[Check], schema: dict[str, str] | None, dataid: str = DATAID
) -> tuple[Finding, ...]:
    definition = {"schema": schema, "checks": [one._asdict() for one in checks]}
    dataset = Dataset("p", "x", format=format_, definition=json.dumps(definition))
    return check_chunk(
        dataset, dataid, str(path), root=str(path.parent), found_manifest=manifest_of(str(path)),
        earlier_rows=lambda last: [2, 3, 4][:last], now=0.0,
    ).findings  # fmt: skip


def place_of(path: Path, format_: str, schema: dict[str, str] | None) -> Place:
    return Place(datasetid="x", location=str(path), format=format_, options={}, schema=schema)


def on_spark(
    spark: SparkSession, path: Path, format_: str, checks: list[Check], schema: dict[str, str] | None,
    dataid: str = DATAID,
) -> tuple[Finding, ...]:  # fmt: skip
    return audit_files(spark, place_of(path, format_, schema), checks, dataid=dataid, earlier_rows=(2, 3, 4))


def assert_same(one: tuple[Finding, ...], other: tuple[Finding, ...]) -> None:
    different = [pair for pair in zip(seen(one), seen(other), strict=True) if pair[0] != pair[1]]
    told = {str(finding) for finding in (*one, *other)}
    assert different == [], [text for text in sorted(told) if any(text.startswith(pair[0].check) for pair in different)]


@pytest.mark.parametrize(
    ("name", "format_"), [("good", "parquet"), *((name, one) for name in ("empty", "everything") for one in WRITERS)]
)
def test_both_ways_find_the_same_in_a_file(tmp_path: Path, spark: SparkSession, format_: str, name: str) -> None:
    path, checks = tmp_path / f"x.{format_}", CHECKS + UNIQUE
    WRITERS[format_](path, ROWS[name])
    found = on_files(path, format_, checks, SCHEMA)
    assert_same(found, on_spark(spark, path, format_, checks, SCHEMA))
    assert len(found) == len(checks)
    assert {one.result for one in found} <= {"passed", "failed"}


@pytest.mark.parametrize("format_", ["parquet", "orc", "csv"])
def test_both_ways_agree_on_what_is_not_a_number(tmp_path: Path, spark: SparkSession, format_: str) -> None:
    path = tmp_path / f"x.{format_}"
    if format_ == "csv":
        path.write_text("d,f\nNaN,NaN\nInfinity,0.5\nNaN,0.5\n1.0,0.5\n")
    else:
        WRITERS[format_](path, NOT_A_NUMBER)
    checks = [one for one in CHECKS if set(one.options.get("columns", ())) <= {"d", "f"} and one.kind != "schema"]
    schema = {"d": "double", "f": "float"} if format_ == "csv" else SCHEMA
    found = on_files(path, format_, checks, schema)
    assert_same(found, on_spark(spark, path, format_, checks, schema))
    between = [one for one in found if one.check == "between d"]
    assert all(not one.ok for one in between), "NaN lies in no range"


@pytest.mark.parametrize("dataid", ["AA", "1", "01", "2013-01-01T05", "2013-01", "1.5", "true"])
@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_both_ways_agree_which_rows_belong_to_a_dataid(
    tmp_path: Path, spark: SparkSession, format_: str, dataid: str
) -> None:
    path = tmp_path / f"x.{format_}"
    WRITERS[format_](path, ROWS["everything"])
    checks = [Check("partition", {"column": name}) for name in SCHEMA]
    found = on_files(path, format_, checks, SCHEMA, dataid)
    assert_same(found, on_spark(spark, path, format_, checks, SCHEMA, dataid))


@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_both_ways_name_columns_that_are_missing_or_of_another_type(
    tmp_path: Path, spark: SparkSession, format_: str
) -> None:
    path = tmp_path / f"x.{format_}"
    table = pa.table({"t": pa.array([1, 2]), "i": pa.array(["1", "x"]), "extra": pa.array([1, 1])})
    (parquet if format_ == "parquet" else orc).write_table(table, path)
    found = on_files(path, format_, CHECKS, SCHEMA)
    other = on_spark(spark, path, format_, CHECKS, SCHEMA)
    assert_same(found, other)
    assert not found[0].ok
    for problem in ("no column 'l'", "column 't' is bigint, not string"):
        assert problem in on_files(path, format_, CHECKS[:1], {"t": "string", "l": "bigint"})[0].detail
        assert problem in on_spark(spark, path, format_, CHECKS[:1], {"t": "string", "l": "bigint"})[0].detail


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("csv", "t,i\nAA,x\n"),
        ("csv", "t,i\nAA\n"),
        ("csv", "t\nAA\n"),
        ("csv", "t,i,j\nAA,1,2\n"),
        ("json", '{"t": "AA", "i": "x"}\n'),
        ("json", '{"t": "AA", "i": 1\n'),
    ],
)
def test_both_ways_refuse_files_that_are_not_what_is_declared(
    tmp_path: Path, spark: SparkSession, format_: str, text: str
) -> None:
    path = tmp_path / f"x.{format_}"
    path.write_text(text)
    schema = {"t": "string", "i": "int"}
    checks = [Check("schema", {}), listed("not_null", "t")]
    assert not passed(on_files(path, format_, checks, schema))
    found = on_spark(spark, path, format_, checks, schema)
    assert not passed(found)
    assert found[0].check == READABLE


def test_both_ways_read_unsigned_numbers_alike(tmp_path: Path, spark: SparkSession) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"u": pa.array([0, (1 << 64) - 1], pa.uint64()), "k": pa.array([1, 300], pa.uint16())})
    parquet.write_table(table, path)
    checks = [
        columns("between", u=[0, 10]), columns("between", u=[0, 1e30]), columns("values", u=[0]),
        columns("values", k=[1, 300]), listed("unique", "u"), columns("pattern", k=r"\d+"),
    ]  # fmt: skip
    found = on_files(path, "parquet", checks, None)
    assert_same(found, on_spark(spark, path, "parquet", checks, None))
    assert [one.ok for one in found] == [False, True, False, True, True, True]


# What Spark itself wrote ----------------------------------------------------------------------------------------------
def frame(spark: SparkSession) -> DataFrame:
    rows = [*ROWS["everything"], {**GOOD, "t": ""}, {**NULLS, "t": "NA"}]
    return spark.createDataFrame([tuple(one.values()) for one in rows], StructType.fromDDL(ddl(SCHEMA)))


@pytest.mark.parametrize("format_", WRITERS)
def test_the_writes_own_pass_finds_what_the_files_show_afterwards(
    tmp_path: Path, spark: SparkSession, format_: str
) -> None:
    place = place_of(tmp_path / "out", format_, SCHEMA)
    checks = CHECKS + UNIQUE
    audit = Audit(checks, dataid=DATAID, schema=SCHEMA, place=place)
    df = frame(spark).where("at is null or at < '2262-01-01'") if format_ == "orc" else frame(spark)
    written = write_chunk(audit.watch(df), place, ())
    found = audit.findings(spark, place, rows=written.rows, earlier_rows=(2, 3, 4))
    assert_same(on_files(tmp_path / "out", format_, checks, SCHEMA), found)
