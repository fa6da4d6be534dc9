"""Files in a bucket, read and written by Spark without a connector: as those of this machine, in the same words."""

import contextlib
import io
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

from opendataflow.errors import JobFailed, UsageError
from opendataflow.spark import files_elsewhere, files_read, files_remote, files_write
from opendataflow.spark.bucket_tasks import BadFile, records
from opendataflow.spark.files import find_rows, read_chunk, write_chunk
from opendataflow.spark.files_remote import CONNECTORS, Way, for_connector, home_of, kept_copy, way_to
from opendataflow.spark.jvm import has_class
from opendataflow.spark.published import Source, read_published
from opendataflow.spark.spec import Place, format_of
from opendataflow.storage.buckets import connect, files
from opendataflow.storage.buckets.address import GS, S3, is_in_bucket, parse
from support.object_store import BUCKET, ObjectStore, free_port, object_store

ROOT = f"s3://{BUCKET}/in"
SCHEMA = {"id": "int", "price": "double", "note": "string"}
TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "price": [1.5, None, -0.0],
        "note": ["a", 'b "q"\nc', "ü"],
        "at": pa.array([0, None, 1_700_000_000_000_001], pa.timestamp("us", "UTC")),
        "local": pa.array([0, None, 1], pa.timestamp("us")),
        "day": pa.array([0, 1, None], pa.date32()),
        "cost": pa.array([None, Decimal("1.250"), Decimal(-2)], pa.decimal128(12, 3)),
        "tags": pa.array([["x"], [], None]),
        "raw": [b"\x00", b"", None],
        "short": pa.array([1, 2, 255], pa.uint8()),
    }
)


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.env.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture
def bucket(server: ObjectStore) -> ObjectStore:
    server.empty()
    return server


@pytest.fixture
def by_tasks(spark: SparkSession, server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a cluster without a connector, whose machines have credentials of their own."""
    for name, value in server.env.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    monkeypatch.setattr(files_read, "way_to", lambda *_: Way.TASKS)
    monkeypatch.setattr(files_write, "way_to", lambda *_: Way.TASKS)


def place(location: object, **fields: Any) -> Place:
    values = {"datasetid": "orders", "format": format_of(str(location)), "options": {}, "schema": None, **fields}
    return Place(location=str(location), **values)


def put_all(bucket: ObjectStore, folder: Path, to: str = "in") -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            bucket.put(f"{to}/{path.relative_to(folder)}", path.read_bytes())


def rows(df: DataFrame) -> list[str]:
    return sorted(repr(row) for row in df.collect())


def refused(spark: SparkSession, source: Place) -> str:
    with pytest.raises(JobFailed) as error:
        read_chunk(spark, source)
    return str(error.value)


def same(spark: SparkSession, here: Path, name: str, **fields: Any) -> None:
    near, far = read_chunk(spark, place(here / name, **fields)), read_chunk(spark, place(f"{ROOT}/{name}", **fields))
    assert far.schema == near.schema
    assert rows(far) == rows(near)


# Copied to this machine -----------------------------------------------------------------------------------------------
def test_every_format_is_read_from_a_bucket_as_from_a_disk(
    spark: SparkSession, bucket: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "parts").mkdir()
    pyarrow.parquet.write_table(TABLE.slice(0, 2), tmp_path / "parts/a.parquet")
    pyarrow.parquet.write_table(TABLE.slice(2), tmp_path / "parts/b.parquet")
    (tmp_path / "parts/_SUCCESS").touch()
    pyarrow.orc.write_table(TABLE.select(["id", "price", "note"]), tmp_path / "one.orc")
    (tmp_path / "one.csv").write_text('id,price,note\n1,1.5,"a\nb"\n2,,c\n')
    (tmp_path / "one.json").write_text('{"id": 1, "price": 1.5, "note": "a"}\n')
    (tmp_path / "one.txt").write_text("a\nb\n")
    put_all(bucket, tmp_path)
    for name in ("parts", "one.orc", "one.txt", "one.csv"):
        same(spark, tmp_path, name)
    for name in ("one.csv", "one.json"):
        same(spark, tmp_path, name, schema=SCHEMA)
    assert find_rows(place(f"{ROOT}/parts")) == 3
    chunks = [Source(dataid=name, location=f"{ROOT}/{name}.csv") for name in ("one", "two")]
    bucket.put("in/two.csv", "id,price,note\n7,,z\n")
    both = read_published(spark, place(ROOT, format="csv", schema=SCHEMA), chunks, with_dataid=True)
    assert {(row["id"], row["dataid"]) for row in both.collect()} == {(1, "one"), (2, "one"), (7, "two")}


def test_what_is_wrong_with_a_file_in_a_bucket_is_told_as_of_one_on_a_disk(
    spark: SparkSession, bucket: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "drift.csv").write_text("id,note,colour\n1,a,red\n")
    (tmp_path / "latin.csv").write_bytes(b"id,price,note\n1,1,\xe9t\xe9\n")
    (tmp_path / "open.csv").write_text('id,price,note\n1,1,"a\n2,2,b\n')
    pyarrow.parquet.write_table(TABLE.select(["id", "note"]), tmp_path / "drift.parquet")
    (tmp_path / "text.parquet").write_text("no")
    put_all(bucket, tmp_path)
    for name in ("drift.csv", "latin.csv", "open.csv", "drift.parquet", "text.parquet", "gone.csv"):
        told = refused(spark, place(f"{ROOT}/{name}", schema=SCHEMA))
        assert told == refused(spark, place(tmp_path / name, schema=SCHEMA)).replace(str(tmp_path), ROOT)
        assert f"{ROOT}/{name}" in told
    assert refused(spark, place("s3://nobody/x.csv")).startswith(
        "orders: s3://nobody/x.csv cannot be read: there is no bucket 'nobody' at http://127.0.0.1"
    )
    assert home_of("/somewhere/else") == "/somewhere/else"


def test_a_spark_of_this_machine_gets_copies_and_pip_brings_no_connector(spark: SparkSession) -> None:
    assert way_to(spark, place(f"{ROOT}/a.csv")) is Way.COPY
    assert not has_class(spark, CONNECTORS[S3])
    assert not has_class(spark, CONNECTORS[GS])
    assert for_connector(place(f"{ROOT}/a.csv\ngs://b/c")).location == f"s3a://{BUCKET}/in/a.csv\ngs://b/c"


def test_a_connector_on_this_machine_is_used_where_its_own_scheme_is_written(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert way_to(spark, place(f"s3a://{BUCKET}/in/a.csv")) is Way.COPY, "pip brings none"
    jar_that_is_there = "org.apache.hadoop.fs.LocalFileSystem"
    monkeypatch.setitem(CONNECTORS, S3, jar_that_is_there)
    assert way_to(spark, place(f"s3a://{BUCKET}/in/a.csv")) is Way.CONNECTOR
    assert way_to(spark, place(f"{ROOT}/a.csv")) is Way.COPY


def test_a_write_by_the_connector_commits_by_uploads_where_the_classes_for_it_are_there(spark: SparkSession) -> None:
    protocol, parquet, name = (
        "spark.sql.sources.commitProtocolClass", "spark.sql.parquet.output.committer.class", "fs.s3a.committer.name",
    )  # fmt: skip
    nothing = dict.fromkeys((protocol, parquet, name))
    wanted = files_remote.committer_settings(nothing, is_there=lambda _: True)
    assert (wanted[name], wanted[protocol].rpartition(".")[2]) == ("magic", "PathOutputCommitProtocol")
    assert wanted[parquet].endswith("BindingParquetOutputCommitter")
    directory = files_remote.committer_settings({**nothing, name: "directory"}, is_there=lambda _: True)
    assert directory == {**wanted, name: "directory"}
    assert files_remote.committer_settings(nothing, is_there=lambda one: "Parquet" not in one) == {}
    assert files_remote.committer_settings({**nothing, protocol: "my.Protocol"}, is_there=lambda _: True) == {}
    before = [spark.conf.get(key, None) for key in nothing]
    with files_remote.committed_in_store(spark, place(f"s3a://{BUCKET}/out")):
        assert [spark.conf.get(key, None) for key in nothing] == before, "pip's Spark has no such classes"


def test_the_settings_of_a_commit_last_as_long_as_the_write_and_reach_hadoop(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark takes classes only that it can load: here those that it has anyway.
    protocol, parquet = (files_remote._PROTOCOL[0], files_remote._HADOOPS_OWN[0]), files_remote._PARQUET
    monkeypatch.setattr(files_remote, "_PROTOCOL", protocol)
    monkeypatch.setattr(files_remote, "_PARQUET", (parquet[0], files_remote._HADOOPS_OWN[1]))
    own = spark.newSession()
    before = dict(own.sparkContext.getConf().getAll()), own.conf.get(parquet[0], None)

    def in_hadoop() -> str:
        return str(own._jsparkSession.sessionState().newHadoopConf().get("fs.s3a.committer.name"))

    for to in (f"gs://{BUCKET}/out", "/out"):
        with files_remote.committed_in_store(own, place(to)):
            assert in_hadoop() != "magic", to
    with contextlib.suppress(ZeroDivisionError), files_remote.committed_in_store(own, place(f"s3a://{BUCKET}/out")):
        assert in_hadoop() == "magic"
        raise ZeroDivisionError
    assert in_hadoop() != "magic"
    assert (dict(own.sparkContext.getConf().getAll()), own.conf.get(parquet[0], None)) == before


def test_copies_that_are_kept_are_used_again_and_the_oldest_go_beyond_a_bound(
    spark: SparkSession, bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(files_remote.time, "time", lambda: now + 60)  # as if nothing had been put a moment ago
    text = "id,price,note\n" + "1,1,a\n" * 100
    for name in ("a", "b", "c"):
        bucket.put(f"in/{name}.csv", text)
    places = {name: place(f"{ROOT}/{name}.csv", schema=SCHEMA) for name in ("a", "b", "c")}
    first = kept_copy(places["a"]).location
    assert kept_copy(places["a"]).location == first
    bucket.put("in/a.csv", text + "2,2,b\n")
    second = kept_copy(places["a"]).location
    assert second != first
    assert Path(first).exists(), "a DataFrame may refer to it"
    assert read_chunk(spark, places["a"]).count() == 101
    monkeypatch.setattr(files_remote, "KEPT_BYTES", 2 * len(text) + 10)
    third = kept_copy(places["b"]).location
    assert (Path(first).exists(), Path(second).exists(), Path(third).exists()) == (False, True, True)
    kept_copy(places["a"])
    fourth = kept_copy(places["c"]).location
    assert (Path(second).exists(), Path(third).exists(), Path(fourth).exists()) == (True, False, True), "b was idle"
    monkeypatch.setattr(files_remote, "KEPT_SECONDS", -1.0)
    assert Path(kept_copy(places["a"]).location).exists(), "what was asked for last stays"
    assert not Path(fourth).exists()
    assert home_of(f"{fourth}: gone") == f"{ROOT}/c.csv: gone"


def test_what_only_spark_reaches_has_rows_bytes_and_a_fingerprint(spark: SparkSession, tmp_path: Path) -> None:
    """`file://` is a scheme like `hdfs://`: not a path of this machine, and Hadoop has a file system for it."""
    df = spark.range(0, 1000, 1, 4)
    for format_, rows in (("parquet", 1000), ("orc", 1000), ("csv", None)):
        there = place(f"file://{tmp_path}/{format_} out", format=format_)
        written = write_chunk(df, there, ())
        mine = [path for path in (tmp_path / f"{format_} out").iterdir() if path.name.startswith("part-")]
        assert (written.rows, written.files) == (rows, len(mine))
        assert written.bytes == sum(path.stat().st_size for path in mine)
        assert written.fingerprint is not None
        again = files_elsewhere.find(spark, there.location)
        assert again is not None
        assert written.fingerprint == files_elsewhere.fingerprint(again)
        assert {name for name, _, _ in again.files} == {path.name for path in mine}
        mine[0].write_bytes(b"other")
        other = files_elsewhere.find(spark, there.location)
        assert other is not None
        assert written.fingerprint != files_elsewhere.fingerprint(other)
        assert files_elsewhere._by_arrow(there.location) is not None
    assert files_elsewhere._by_arrow("hdfs://127.0.0.1:1/nowhere") is None


# By tasks, where a cluster has no connector ---------------------------------------------------------------------------
@pytest.mark.usefixtures("by_tasks")
def test_tasks_read_parquet_and_csv_with_the_types_and_the_strictness_of_spark(
    spark: SparkSession, bucket: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "parts").mkdir()
    pyarrow.parquet.write_table(TABLE, tmp_path / "parts/a.parquet", row_group_size=1)
    read_chunk(spark, place(tmp_path / "parts")).write.parquet(str(tmp_path / "spark"))
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv/a.csv").write_text('\ufeffid,price,note\n1,1.5,"a ""b""\n\nc"\r\n2,,\n\n')
    (tmp_path / "csv/b.csv").write_text("note,price,id\nü,-inf,3")
    (tmp_path / "csv/c.csv").write_text("id,price,note\n")
    put_all(bucket, tmp_path)
    same(spark, tmp_path, "parts")
    same(spark, tmp_path, "spark", format="parquet")
    same(spark, tmp_path, "csv", format="csv", schema=SCHEMA)
    typed = {
        "id": "bigint",
        "at": "timestamp",
        "day": "date",
        "raw": "binary",
        "cost": "decimal(9,2)",
        "ok": "boolean",
    }
    (tmp_path / "typed.csv").write_text("id,at,day,raw,cost,ok\n1,2025-01-01T00:00:00Z,2025-01-02,AAE=,1.10,true\n")
    put_all(bucket, tmp_path)
    same(spark, tmp_path, "typed.csv", schema=typed)

    assert "column 'note' (string) is declared, but not there" in refused(
        spark, place(f"{ROOT}/parts", schema={"id": "int", "nota": "string"})
    ).replace("'nota'", "'note'")
    assert f": {ROOT}/csv/a.csv" in refused(spark, place(f"{ROOT}/csv", format="csv", schema={"id": "int"}))
    assert "its CSV has no declared `schema:`; give Spark the package" in refused(
        spark, place(f"{ROOT}/csv", format="csv")
    )
    assert "since it is json; give Spark" in refused(spark, place(f"{ROOT}/one.json"))
    for name, text in (("many.csv", "1,2,3,4\n"), ("word.csv", "one,2,3\n"), ("open.csv", '1,2,"3\n')):
        bucket.put(f"in/{name}", f"id,price,note\n{text}")
        with pytest.raises(Exception, match=r"MALFORMED|never closed"):
            read_chunk(spark, place(f"{ROOT}/{name}", schema=SCHEMA)).select("id").collect()


@pytest.mark.usefixtures("by_tasks")
def test_tasks_write_parquet_of_which_only_what_counts_is_left(spark: SparkSession, bucket: ObjectStore) -> None:
    to = f"s3://{BUCKET}/out/dataid=1/_runs/7"
    df = spark.range(0, 1000, 1, 4).selectExpr("id", "cast(id as string) name", "timestamp_micros(id) at", "null n")
    df = df.selectExpr("id", "name", "at", "cast(n as array<int>) n")
    bucket.put("out/dataid=1/_runs/7/_tasks/of-a-lost-task.parquet", "half")
    written = write_chunk(df, place(to), ())
    assert (written.rows, written.files) == (1000, 4)
    assert bucket.keys("out/dataid=1/_runs/7") == [f"out/dataid=1/_runs/7/part-0000{n}.parquet" for n in range(4)]
    back = read_chunk(spark, place(to))
    assert back.dtypes == df.dtypes
    assert rows(back) == rows(df)
    assert find_rows(place(to)) == 1000

    empty = write_chunk(df.where("id < 0"), place(f"s3://{BUCKET}/out/dataid=2/_runs/8"), ())
    assert (empty.rows, empty.files) == (0, 1)
    assert read_chunk(spark, place(f"s3://{BUCKET}/out/dataid=2/_runs/8")).dtypes == df.dtypes
    with pytest.raises(JobFailed, match="since it is written as csv, not as Parquet"):
        write_chunk(df.drop("n"), place(to, format="csv"), ())


# Without Spark --------------------------------------------------------------------------------------------------------
def test_records_of_a_csv_are_found_wherever_a_block_ends() -> None:
    text = b'a,"b\n""c",d\r\n\n1,2,3\n"x\ny\nz",1,"2"\nlast'
    wanted = [b'a,"b\n""c",d', b"", b"1,2,3", b'"x\ny\nz",1,"2"', b"last"]
    for size in range(1, len(text) + 1):
        found = [record for _, some in records(_Slow(text, size), "x.csv", b'"') for record in some]
        assert found == wanted, size
    with pytest.raises(BadFile, match=r"x\.csv line 3: a quote is opened and never closed"):
        list(records(io.BytesIO(b'a\nb\n"c\nd\n'), "x.csv", b'"'))


class _Slow(io.BytesIO):
    """Gives so much at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        super().__init__(data)
        self._size = size

    def read(self, _size: int | None = -1, /) -> bytes:
        return super().read(self._size)


def test_an_address_names_a_store_a_bucket_and_a_key() -> None:
    assert parse("s3://lake/a/b=1/c.csv") == (S3, "lake", "a/b=1/c.csv")
    assert parse("s3a://lake/") == (S3, "lake", "")
    assert parse("gs://lake/a").path == "lake/a"
    assert parse("gs://lake/a").store == GS
    assert not any(is_in_bucket(one) for one in ("/data/s3", "hdfs://x/y", "postgresql://x/y", "s3:/lake"))
    for wrong in ("s3://", "/data", "hdfs://x/y"):
        with pytest.raises(UsageError, match="is no address in an object store"):
            parse(wrong)


def test_google_cloud_storage_that_does_not_answer_is_told_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "GS_RETRY_SECONDS", 1)
    nobody = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", nobody)
    with pytest.raises(ConnectionError, match=f"no connection at {nobody}: ") as error:
        files.find("gs://lake/orders")
    assert error.value.filename == "gs://lake/orders"
