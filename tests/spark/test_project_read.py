"""`from opendataflow import Project`: published chunks for notebooks and people's own Spark code, on a real session."""

import datetime
import doctest
import json
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import opendataflow
from opendataflow import NotReady, Project, api
from opendataflow.errors import ConfigurationError, DataflowError, JobFailed, Refused, StoreUnavailable, UsageError
from support.made import make, parquet, text
from support.projects import Project as Folder

DAY, NEXT, THIRD = "2025-11-01", "2025-11-02", "2025-11-03"
PROJECT = """\
name: Shop
environments: {dev: {root: data}, prod: {root: elsewhere, store: "${PROD_STORE}"}}
datasets:
  feed: {path: "feed/{dataid}.csv", format: csv, partitions: {daily: 2025-11-01..2025-11-03}}
  typed:
    path: "typed/{dataid}.csv"
    format: csv
    schema: {id: int, amount: "decimal(8,2)", at: timestamp}
    partitions: {shards: 1..20}
  raw: {path: raw, format: parquet}
  orders: {path: orders}
  report: {path: "report/{dataid}.csv", format: csv}
  crm: {hostname: db, username: reader, partitions: {values: [a]}}
pipelines:
  - {slug: price, sources: [feed], destination: orders, transformations: [add_price]}
  - {slug: tell, sources: [feed], destination: report, transformations: [add_price]}
"""
ONE = json.dumps({"id": "bigint", "total": "double"})


@pytest.fixture
def shop(project: Folder) -> Folder:
    """On both kinds of store."""
    return made_shop(project)


@pytest.fixture
def lite(sqlite_project: Folder) -> Folder:
    return made_shop(sqlite_project)


def made_shop(project: Folder) -> Folder:
    project.apply(PROJECT)
    for day in (DAY, NEXT, THIRD):
        project.write(f"data/feed/{day}.csv", "order\n1\n")
    assert project.dataflow("ready", "feed", DAY, NEXT, THIRD).returncode == 0
    return project


def published(folder: Folder) -> Project:
    """Two READY days of orders and a FAILED one."""
    make(folder, "price", DAY, parquet(id=[1, 2], total=[0.5, 1.5]), schema=ONE, rows=2)
    make(folder, "price", NEXT, parquet(id=[3, 4, 5], total=[1.0, 2.0, 3.0]), schema=ONE, rows=3)
    make(folder, "price", THIRD, parquet(id=[9], total=[9.0]), fails="too few rows")
    return Project(folder.folder, store=folder.store)


def ready(folder: Folder, dataset: str, dataid: str, location: Path | None = None) -> None:
    place = "NULL" if location is None else f"'{location}'"
    folder.sql(
        "INSERT INTO datastatus (datasetid, dataid, status, location) "
        f"VALUES ('{dataset}', '{dataid}', 'READY', {place})"
    )


def ids(df: Any) -> list[int]:
    return sorted(row["id"] for row in df.select("id").collect())


# What is read ---------------------------------------------------------------------------------------------------------
def test_exactly_the_published_chunks_are_read_typed(shop: Folder, spark: SparkSession) -> None:
    project = published(shop)
    df = project.read(spark, "orders")
    assert df.dtypes == [("id", "bigint"), ("total", "double")]
    assert ids(df) == [1, 2, 3, 4, 5]
    make(shop, "price", DAY, parquet(id=[7], total=[1.0]), schema=ONE)
    assert ids(df) == [1, 2, 3, 4, 5]  # the version it found is still there
    assert ids(project.read(spark, "orders")) == [3, 4, 5, 7]
    shop.sql(f"UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'price' AND dataid = '{DAY}'")
    assert ids(project.read(spark, "orders")) == [3, 4, 5]


def test_the_examples_of_the_docstrings_are_true(
    lite: Folder, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = published(lite)
    monkeypatch.chdir(lite.folder)
    monkeypatch.setenv("DATAFLOW_STORE", lite.store)
    runner = doctest.DocTestRunner()
    names = {"project": project, "spark": spark, "Project": Project}
    for one in doctest.DocTestFinder().find(api, "opendataflow.api", extraglobs=names):
        assert runner.run(one) == (0, len(one.examples)), one.name
    assert runner.tries >= 8


def test_chunks_are_chosen_by_bounds_dataids_and_columns(lite: Folder, spark: SparkSession) -> None:
    project = published(lite)
    assert ids(project.read(spark, "orders", since=NEXT)) == [3, 4, 5]
    assert ids(project.read(spark, "orders", until=DAY)) == [1, 2]
    assert ids(project.read(spark, "orders", since=datetime.date(2025, 11, 1), until="2025-11")) == [1, 2, 3, 4, 5]
    assert ids(project.read(spark, "orders", dataids=[NEXT])) == [3, 4, 5]
    assert project.read(spark, "orders", columns=["total"]).columns == ["total"]
    found = project.read(spark, "orders", columns=["total"], with_dataid=True)
    assert found.dtypes == [("total", "double"), ("dataid", "string")]


@pytest.mark.parametrize(
    ("dataid", "since", "until", "within"),
    [
        ("2025-11-01T05", "2025-11-01", "2025-11-01", True),
        ("2025-11-01T05", datetime.datetime.fromisoformat("2025-11-01T05:00"), None, True),
        ("2025-11-01T05", datetime.datetime.fromisoformat("2025-11-01T07:00+02:00"), None, True),
        ("2025-11-01T05", None, datetime.datetime.fromisoformat("2025-11-01T04:30"), False),
        ("2025-11-01", "2025-11-02", None, False),
        ("2025-12", "2025-11-15", None, True),
        ("2025-11", "2025-11-15", None, False),
        ("2025-11-30", None, "2025-11", True),
        ("2025-12-01", None, "2025-11", False),
        ("10", "9", "100", True),
        ("00042", 42, 42, True),
        ("9", 10, None, False),
    ],
)  # fmt: skip
def test_bounds_are_times_for_slots_and_numbers_for_shards(dataid: str, since: Any, until: Any, within: bool) -> None:
    assert api._is_within(dataid, since, until) is within


def test_the_dataid_is_text_as_it_is_written_whatever_the_path_looks_like(lite: Folder, spark: SparkSession) -> None:
    for number, dataid in enumerate(("00042", "a/b", "c d%20é")):
        place = lite.folder / f"data/raw/x{number} é%2F[1]"
        parquet(id=[number])(str(place / "deeper"))
        ready(lite, "raw", dataid, place)
    df = Project(lite.folder, store=lite.store).read(spark, "raw", with_dataid=True)
    assert sorted(tuple(row) for row in df.collect()) == [(0, "00042"), (1, "a/b"), (2, "c d%20é")]
    plan = df.filter("id = 1")._jdf.queryExecution().toString()
    assert "PushedFilters: [IsNotNull(id), EqualTo(id,1)]" in plan  # filters still go to the files
    one = Project(lite.folder, store=lite.store).read(spark, "raw", dataids=["00042"], with_dataid=True)
    assert one.collect() == [(0, "00042")]


def test_a_csv_has_its_declared_types_with_dataids_of_files_in_another_order(lite: Folder, spark: SparkSession) -> None:
    lite.write("data/typed/1.csv", "id,amount,at\n1,1.50,2025-11-01T10:00:00Z\n")
    lite.write("data/typed/2.csv", "at,amount,id\n2025-11-01T11:00:00Z,,2\n")
    for dataid in ("1", "2"):
        ready(lite, "typed", dataid)
    df = Project(lite.folder, store=lite.store).read(spark, "typed", with_dataid=True)
    types = {"id": "int", "amount": "decimal(8,2)", "at": "timestamp", "dataid": "string"}
    assert dict(df.dtypes) == types
    found = sorted((row["id"], row["amount"], row["dataid"]) for row in df.collect())
    assert found == [(1, Decimal("1.50"), "1"), (2, None, "2")]


def test_a_csv_that_a_pipeline_wrote_has_the_types_it_was_written_with(lite: Folder, spark: SparkSession) -> None:
    make(lite, "tell", DAY, text("id,code\n1,007\n"), schema='{"id": "int", "code": "string"}')
    df = Project(lite.folder, store=lite.store).read(spark, "report")
    assert [tuple(row) for row in df.collect()] == [(1, "007")]


def test_a_year_of_chunks_is_one_scan(lite: Folder, spark: SparkSession) -> None:
    numbers = range(1, 21)
    for number in numbers:
        lite.write(f"data/typed/{number}.csv", f"id,amount,at\n{number},1,2025-11-01T10:00:00Z\n")
        ready(lite, "typed", str(number))
    df = Project(lite.folder, store=lite.store).read(spark, "typed", with_dataid=True)
    assert df._jdf.queryExecution().optimizedPlan().toString().count("Relation [") == 1
    assert {row["dataid"]: row["id"] for row in df.collect()} == {str(number): number for number in numbers}


# Columns that differ --------------------------------------------------------------------------------------------------
def test_chunks_that_differ_are_named_with_their_column_unless_merged(lite: Folder, spark: SparkSession) -> None:
    make(lite, "price", DAY, parquet(id=[1], total=[0.5]), schema=ONE)
    other = json.dumps({"id": "bigint", "total": "double", "note": "string"})
    make(lite, "price", NEXT, parquet(id=[2], total=[0.5], note=["n"]), schema=other)
    project = Project(lite.folder, store=lite.store)
    with pytest.raises(
        JobFailed, match=rf"orders/{NEXT}: column 'note' is new, {DAY} has none; `merge=True` reads both"
    ):
        project.read(spark, "orders")
    merged = project.read(spark, "orders", merge=True, with_dataid=True)
    assert merged.columns == ["id", "total", "dataid", "note"]
    assert sorted((row["id"], row["note"], row["dataid"]) for row in merged.collect()) == [
        (1, None, DAY),
        (2, "n", NEXT),
    ]
    retyped = json.dumps({"id": "int", "total": "double"})
    make(lite, "price", NEXT, parquet(id=pa.array([2], pa.int32()), total=[0.5]), schema=retyped)
    with pytest.raises(JobFailed, match=rf"column 'id' is int, in {DAY} it is bigint"):
        project.read(spark, "orders")
    assert project.read(spark, "orders", merge=True).dtypes == [("id", "bigint"), ("total", "double")]


def test_chunks_whose_columns_the_store_does_not_know_are_merged_too(lite: Folder, spark: SparkSession) -> None:
    for number, dataid in enumerate(("00042", "a/b", "c d%20é")):
        place = lite.folder / f"data/raw/{number}"
        parquet(**({"id": [number], "more": [1]} if number == 1 else {"id": [number]}))(str(place))
        ready(lite, "raw", dataid, place)
    project = Project(lite.folder, store=lite.store)
    with pytest.raises(JobFailed, match="column 'more'"):
        project.read(spark, "raw")
    df = project.read(spark, "raw", merge=True)
    assert sorted((row["id"], row["more"]) for row in df.collect()) == [(0, None), (1, 1), (2, None)]
    assert df._jdf.queryExecution().optimizedPlan().toString().count("Relation [") == 2


# What is not there ----------------------------------------------------------------------------------------------------
def test_nothing_to_read_is_an_error_that_says_what_there_is(shop: Folder, spark: SparkSession) -> None:
    project = Project(shop.folder, store=shop.store)
    with pytest.raises(NotReady, match="no chunk of orders is READY; 0 are in all; see `dataflow status orders`"):
        project.read(spark, "orders")
    published(shop)
    with pytest.raises(NotReady, match=f"no chunk of orders is READY since {THIRD}; 2 are in all"):
        project.read(spark, "orders", since=THIRD)
    with pytest.raises(NotReady, match=f"orders: {THIRD} is FAILED, 2025-12-24 is not there") as refused:
        project.read(spark, "orders", dataids=[DAY, THIRD, "2025-12-24"])
    assert refused.value.exit_code == 10
    assert isinstance(refused.value, DataflowError)


def test_wrong_names_have_the_nearest_right_one(lite: Folder, spark: SparkSession) -> None:
    project = published(lite)
    for wrong in ("order", "shop.order"):
        with pytest.raises(UsageError, match=r"did you mean 'orders'\?"):
            project.read(spark, wrong)
    with pytest.raises(UsageError, match=r"orders has no column 'totl'; did you mean 'total'\?"):
        project.read(spark, "orders", columns=["totl"])
    with pytest.raises(UsageError, match="dataids is a list"):
        project.read(spark, "orders", dataids=DAY)
    make(lite, "price", DAY, parquet(dataid=["mine"]))
    with pytest.raises(UsageError, match="has a column 'dataid' of its own"):
        project.read(spark, "orders", dataids=[DAY], with_dataid=True)


def test_what_is_no_file_or_not_of_this_environment_is_refused(lite: Folder, spark: SparkSession) -> None:
    project = published(lite)
    ready(lite, "crm", "a")
    with pytest.raises(UsageError, match="crm/a is known by its connection"):
        project.read(spark, "crm")
    lite.sql("UPDATE datastatus SET location = '/tmp/elsewhere' WHERE datasetid = 'orders'")
    with pytest.raises(Refused, match="/tmp/elsewhere is not below") as refused:
        project.read(spark, "orders")
    assert refused.value.exit_code == 12
    lite.sql(f"UPDATE datastatus SET location = '{lite.folder}/data/gone' WHERE datasetid = 'orders'")
    with pytest.raises(JobFailed, match=r"data/gone cannot be read: No such file"):
        project.read(spark, "orders")


# The project ----------------------------------------------------------------------------------------------------------
def test_chunks_status_and_datasets_are_told(shop: Folder) -> None:
    project = published(shop)
    assert project.datasets == ("crm", "feed", "orders", "raw", "report", "typed")
    first, _, failed = project.chunks("orders")
    run = shop.sql(f"SELECT version FROM datastatus WHERE datasetid = 'orders' AND dataid = '{DAY}'")[0][0]
    assert first[:2] == (DAY, "READY")
    assert str(first.location).endswith(f"orders/dataid={DAY}/_runs/{run}")
    assert (first.rows, first.run) == (2, run)
    assert first.bytes
    assert first.published_at is not None
    assert abs(datetime.datetime.now(datetime.UTC) - first.published_at) < datetime.timedelta(hours=1)
    assert failed == (THIRD, "FAILED", None, None, None, None, None)
    assert project.status() == shop.json("status")
    assert repr(project) == f"Project('{shop.folder}', environment='dev')"


def test_another_projects_dataset_is_read_by_its_full_name(lite: Folder, spark: SparkSession, tmp_path: Path) -> None:
    published(lite)
    other = Folder(tmp_path / "other", lite.store)
    other.apply("name: Other\nenvironments: {dev: {root: data}}\n")
    project = Project(other.folder, store=lite.store)
    assert ids(project.read(spark, "shop.orders", dataids=[DAY])) == [1, 2]
    with pytest.raises(UsageError, match=r"did you mean 'shop\.orders'\?"):
        project.read(spark, "orders")


def test_the_project_is_found_from_below_and_chosen_by_environment(
    lite: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    published(lite)
    monkeypatch.delenv("DATAFLOW_STORE", raising=False)
    below = lite.folder / "notebooks/deep"
    below.mkdir(parents=True)
    monkeypatch.setenv("DATAFLOW_STORE", lite.store)
    assert len(Project(below).chunks("orders")) == 3
    assert len(Project(below, environment="dev").chunks("orders")) == 3
    monkeypatch.delenv("DATAFLOW_STORE")
    monkeypatch.setenv("PROD_STORE", lite.store)
    with pytest.raises(ConfigurationError, match="belongs to environment 'dev', not 'prod'"):
        Project(below, environment="prod").chunks("orders")
    with pytest.raises(ConfigurationError, match=r"there is no environment 'prd'; .* has dev, prod"):
        Project(below, environment="prd")
    with pytest.raises(ConfigurationError, match=r"found no project\.yml"):
        Project(tmp_path, environment="dev")
    with pytest.raises(ConfigurationError, match=r"found no project\.yml"):
        Project(tmp_path)
    assert Project(tmp_path, store=lite.store).datasets[:2] == ("crm", "feed")
    with pytest.raises(StoreUnavailable):
        Project(below, store="sqlite:///no/such.db").chunks("orders")


def test_threads_share_a_project(lite: Folder) -> None:
    project = published(lite)
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(len(project.chunks("orders")))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [3, 3, 3, 3]


def test_the_package_stays_light_until_somebody_asks() -> None:
    code = "import sys, opendataflow; print(len([name for name in sys.modules if name.startswith('opendataflow')]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
    code = "import sys; from opendataflow import Project; print({'pyspark', 'pyarrow', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    with pytest.raises(AttributeError, match="no attribute 'Projects'"):
        opendataflow.Projects  # type: ignore[attr-defined]  # noqa: B018
