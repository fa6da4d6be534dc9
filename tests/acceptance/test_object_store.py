"""A project whose root is a bucket, through the installed commands: an S3 on this machine, no jar, no mocks of ours."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from opendataflow.faults import CHILD_UPLOADING
from support.object_store import BUCKET, ObjectStore, free_port, object_store
from support.pipelines import Stops, draining, find_child, kill
from support.processes import wait_for
from support.projects import Project

ROOT = f"s3://{BUCKET}/shop"
PROJECT = f"""\
name: Shop
environments: {{dev: {{root: "{ROOT}"}}}}
spark: {{master: "local[2]"}}
datasets:
  orders:
    path: "orders/{{dataid}}.csv"
    format: csv
    schema: {{order: int, item: string, amount: double}}
    partitions: {{shards: 1..6}}
    arrival: {{done: "orders/{{dataid}}.done"}}
    checks: [{{not_null: [order]}}]
  parts:
    path: "parts/{{dataid}}"
    format: parquet
    partitions: {{shards: 1..2}}
    arrival: {{stable: 5s}}
    checks: [{{unique: [id]}}, {{checksum: {{file: "sums/{{dataid}}.md5", algorithm: md5}}}}]
  copied: {{path: "copied/{{dataid}}.csv", format: csv, checks: [{{rows: {{max: 2}}}}]}}
  priced: {{path: priced, options: {{files: 3}}}}
  report: {{path: "report/{{dataid}}.csv", format: csv}}
  all: {{path: all.csv, format: csv}}
jobs:
  copy: {{script: jobs/copy.sh, inputs: [orders], outputs: [copied]}}
pipelines:
  - {{slug: add_up, sources: [orders], destination: priced, transformations: [price], checks: [{{rows: {{min: 1}}}}]}}
  - {{slug: tell, sources: [priced], destination: report, transformations: [keep], chunks_per_job: 4}}
  - {{slug: gather, sources: [priced], destination: all, transformations: [keep]}}
"""
PRICE = """\
from pyspark.sql import functions as F


def run(df):
    return df.repartition(3).withColumn("price", F.col("amount") * 2)
"""
KEEP = """\
def run(df):
    return df.orderBy("order")
"""
# A script that knows nothing of us: it gets two addresses.
COPY = f"""\
exec {sys.executable} - <<'END'
import os
from pyarrow import fs

store = fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"])
store.copy_file(os.environ["orders_location"].removeprefix("s3://"), os.environ["copied_location"].removeprefix("s3://"))
END
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


@pytest.fixture
def bucket(server: ObjectStore) -> ObjectStore:
    server.empty()
    return server


@pytest.fixture
def shop(sqlite_project: Project, bucket: ObjectStore) -> "Shop":
    return Shop(sqlite_project, bucket)


class Shop:
    """The project, with the variables that lead to its bucket in every command."""

    def __init__(self, project: Project, bucket: ObjectStore) -> None:
        self.project, self.bucket = project, bucket
        project.apply(PROJECT)
        project.script("jobs/copy.sh", COPY)
        for slug, code in (("add_up", PRICE), ("tell", KEEP), ("gather", KEEP)):
            project.write(f"pipelines/{slug}/{'price' if slug == 'add_up' else 'keep'}.py", code)

    def order(self, dataid: str, text: str) -> None:
        self.bucket.put(f"shop/orders/{dataid}.csv", text)
        self.bucket.put(f"shop/orders/{dataid}.done", "")

    def do(self, *argv: str, code: int = 0, env: dict[str, str] | None = None) -> str:
        done = self.project.dataflow(*argv, env={**self.bucket.env, **(env or {})}, timeout=180)
        told = done.stdout + done.stderr
        assert done.returncode == code, told
        assert "hush-hush" not in told
        return told

    def json(self, *argv: str) -> Any:
        return self.project.json(*argv, env=self.bucket.env)

    def statuses(self, dataset: str) -> dict[str, str]:
        return {dataid: status for dataid, status, _ in self._chunks(dataset)}

    def location(self, dataset: str, dataid: str) -> str:
        return next(str(location) for one, _, location in self._chunks(dataset) if one == dataid)

    def _chunks(self, dataset: str) -> list[tuple[Any, ...]]:
        return self.project.sql(f"SELECT dataid, status, location FROM chunk_location WHERE datasetid = '{dataset}'")


# Without Spark --------------------------------------------------------------------------------------------------------
def test_files_of_a_bucket_arrive_when_they_are_whole_and_pass_their_checks(shop: Shop) -> None:
    assert "waiting: s3://lake/shop/orders is not there" in shop.do("scan")
    shop.order("1", "order,item,amount\n1,nut,2.5\n2,bolt,3\n")
    shop.order("2", "order,item,amount\n,nut,2.5\n")
    shop.bucket.put("shop/orders/3.csv", "order,item,amount\n1,nut,1\n")
    shop.bucket.put("shop/orders/other.csv", "order\n")
    told = shop.do("scan", "orders", code=13)
    assert "orders/1 READY: 2 rows, 37 bytes" in told
    assert "orders/2 rejected NOT_VALIDATED: not_null order: order is null in 1 of 1 rows" in told
    assert "orders/3 waiting: there is no orders/3.done yet" in told
    assert "1 READY already" in shop.do("scan", "orders", code=13)
    assert [row["item"] for row in shop.json("preview", "orders", "1")["preview"]] == ["nut", "bolt"]

    shop.bucket.put("shop/orders/1.csv", "order,item,amount\n1,nut,2.5\n2,bolt,3\n")
    assert "1 READY already" in shop.do("scan", "orders", code=13), "put again, but the same"
    shop.bucket.put("shop/orders/1.csv", "order,item,amount\n1,nut,2.5\n2,bolt,4\n")  # as large as before
    told = shop.do("scan", "orders", code=11)
    assert f"WRONG_DATA: {ROOT}/orders/1.csv changed after it was READY" in told
    assert "orders/1 changed after it was published" in shop.do("run", "copy", "1", code=11)
    shop.do("ready", "orders", "1")
    assert "No such file or directory" in shop.do("ready", "orders", "4", code=2)
    assert "is not below s3://lake/shop" in shop.do("ready", "orders", "4", "--location", "s3://lake/else.csv", code=2)


def test_a_folder_arrives_when_it_is_stable_and_its_sums_agree(shop: Shop, tmp_path: Path) -> None:
    import hashlib

    table = pyarrow.table({"id": [1, 2]})
    data, sums = {}, ""
    for number, name in enumerate(("a.parquet", "deep/b.parquet")):
        pyarrow.parquet.write_table(table.slice(number, 1), tmp_path / "one.parquet")
        data[name] = (tmp_path / "one.parquet").read_bytes()
        sums += f"{hashlib.md5(data[name], usedforsecurity=False).hexdigest()}  {name}\n"
    shop.bucket.put("shop/sums/1.md5", sums)
    shop.bucket.put("shop/sums/2.md5", f"{'0' * 32}  a.parquet\n")
    shop.bucket.put("shop/parts/1/_SUCCESS", "")
    for name, content in data.items():
        shop.bucket.put(f"shop/parts/1/{name}", content)
        shop.bucket.put(f"shop/parts/2/{name}", content)
    assert "must be stable for 5 s" in shop.do("scan", "parts")
    told = wait_for(lambda: _stable(shop), "the files are old enough", seconds=60)
    assert f"but {ROOT}/sums/2.md5 says {'0' * 32}" in told
    assert shop.statuses("parts") == {"1": "READY", "2": "PENDING"}
    facts = shop.json("preview", "parts", "1")
    assert (facts["rows"], facts["preview"]) == (2, [{"id": 1}, {"id": 2}])


def _stable(shop: Shop) -> str:
    done = shop.project.dataflow("scan", "parts", env=shop.bucket.env)
    return "" if "stable" in done.stdout else done.stdout + done.stderr


def test_a_script_gets_addresses_and_what_it_wrote_is_audited(shop: Shop) -> None:
    shop.order("1", "order,item,amount\n1,nut,2.5\n")
    shop.order("2", "order,item,amount\n" + "1,nut,2\n" * 3)
    shop.do("scan", "orders")
    told = shop.do("run", "copy", "--drain", code=1)
    assert "copied/2 does not pass its checks: rows max 2: 3 rows" in told
    assert shop.statuses("copied") == {"1": "READY", "2": "FAILED"}
    facts = shop.json("preview", "copied", "1")
    assert (facts["location"], facts["bytes"], facts["preview"]) == (
        f"{ROOT}/copied/1.csv", 28, [{"order": "1", "item": "nut", "amount": "2.5"}],
    )  # fmt: skip


def test_what_keeps_a_bucket_from_being_read_is_told_in_a_sentence(shop: Shop) -> None:
    place = f"orders rejected INVALID_PATH: {ROOT}/orders: "
    nobody = f"http://127.0.0.1:{free_port()}"
    told = shop.do("scan", "orders", code=12, env={"AWS_ENDPOINT_URL": nobody})
    assert f"{place}no connection at {nobody}: " in told
    shop.bucket.let_in(everybody=False)
    told = shop.do("scan", "orders", code=12)
    assert f"{place}the credentials are refused at {shop.bucket.url}: The AWS Access Key Id you provided" in told
    none = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}
    told = shop.do("scan", "orders", code=12, env=none)
    assert "access is denied" in told
    assert "no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE" in told
    assert "access is denied" in shop.do("doctor", code=1)
    shop.bucket.let_in(everybody=True)
    shop.bucket.forget_bucket()
    told = shop.do("scan", "orders", code=12)
    assert f"{place}there is no bucket 'lake' at {shop.bucket.url}" in told
    assert "there is no bucket" in shop.do("doctor", code=1)


# Pipelines ------------------------------------------------------------------------------------------------------------
def test_a_pipeline_from_bucket_to_bucket_publishes_whole_chunks_also_after_a_kill_in_mid_upload(shop: Shop) -> None:
    for dataid in ("1", "2"):
        shop.order(dataid, "order,item,amount\n" + "".join(f"{n},bolt,{n}.5\n" for n in range(1, 10)))
    shop.order("3", "order,item,amount\n1,nut,2\n2,bolt,much\n")
    shop.order("4", "order,amount,colour\n1,2,red\n")
    shop.do("scan", "orders", code=0)
    stops = Stops(shop.project, "DATAFLOW_CHILD_FAULT_POINT", CHILD_UPLOADING)
    with draining(shop.project, {**shop.bucket.env, **stops.env}) as runner:
        stops.wait(runner)
        half = shop.bucket.keys("shop/priced")
        assert half, "some of its files are there"
        assert "READY" not in shop.statuses("priced").values(), "but nothing points at them"
        kill(find_child, runner)
        stops.let_all_go(runner)
        _, told = runner.communicate()
    assert shop.statuses("priced") == {"1": "READY", "2": "READY", "3": "FAILED", "4": "FAILED"}, told
    first = f"the first in {ROOT}/orders/3.csv line 3: column 'amount' is declared as double, but is 'much'"
    assert f"orders: 1 of 2 rows is malformed, {first}" in told, "in the words for files of this machine"
    assert "column 'item' is declared, but not there; column 'colour' is there, but not declared" in told
    assert f"{ROOT}/orders/4.csv" in told
    assert "/dataflow-spark-" not in told, "paths of this machine"

    shown = shop.json("preview", "priced", "1", "--rows", "20")
    assert [row["price"] for row in sorted(shown["preview"], key=lambda row: row["order"])] == [
        n * 2 + 1.0 for n in range(1, 10)
    ]
    assert shown["location"].startswith(f"{ROOT}/priced/dataid=1/_runs/")
    place = shop.location("priced", "1").removeprefix(f"s3://{BUCKET}/")
    published = shop.bucket.keys(place)
    assert len(published) == 3
    assert all(name.endswith(".parquet") for name in published)
    (known,) = shop.project.sql(
        f"SELECT files, rows FROM data_manifest WHERE 's3://{BUCKET}/{place}' LIKE '%/' || location"
    )
    assert known == (3, 9)

    left = set(shop.bucket.keys("shop/priced")) - set(published) - set(half)
    told = shop.do("output", "clear", "priced", "--superseded", "--older-than", "0s", "--yes")
    assert "removed" in told
    assert not set(half) & set(shop.bucket.keys("shop/priced")), "what the killed child had put there"
    assert set(published) <= set(shop.bucket.keys("shop/priced"))
    assert left, "the other chunk's files"

    # The files that people see: one for each chunk, and one of all. Chunks 3 and 4 are not there (exit 10).
    shop.do("run", "tell", "--drain", code=10)
    assert shop.bucket.text("shop/report/1.csv").startswith("order,item,amount,price\n1,bolt,1.5,3.0\n")
    shop.do("run", "gather", "--drain", code=10)
    assert len(shop.bucket.text("shop/all.csv").splitlines()) == 1 + 2 * 9
    shop.do("output", "clear", "all", "2", "--yes")
    assert len(shop.bucket.text("shop/all.csv").splitlines()) == 1 + 9
    shop.do("output", "clear", "report", "--all", "--yes")
    assert shop.bucket.keys("shop/report") == []
    shop.do("output", "clear", "priced", "1", "--yes")
    assert shop.bucket.keys(place) == []
    assert shop.statuses("priced")["1"] != "READY"
