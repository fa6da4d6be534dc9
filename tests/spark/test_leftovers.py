"""What the functions of one chunk leave behind in Spark's Python workers, no other chunk sees."""

import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from opendataflow.spark.cluster import Executors
from opendataflow.spark.pipeline import Task, read_codes
from opendataflow.spark.spec import ChunkSpec, chunk_spec

DATAIDS = ("a", "b", "c")
HEAD = "import os\nimport sys\n\nfrom pyspark.sql import functions as F\n\n\n"
# A module of the project that functions import on the worker: which chunks have called it in this process?
KEPT = """\
import os
import string
import sys

LIST = []


def note(day):
    LIST.append(day)
    os.environ["DAYS"] = os.environ.get("DAYS", "") + day
    string.days = getattr(string, "days", "") + day  # as a setting of an installed library
    sys.path.append(f"/of/{day}")
    places = [path.removeprefix("/of/") for path in sys.path if path.startswith("/of/")]
    return "".join(sorted({*LIST, *os.environ["DAYS"], *string.days, *places}))
"""
# Each adds a column `seen` of what `note` returns on the worker.
ON_THE_WORKER = {
    "udf": (
        "@F.udf('string')\ndef seen(_id):\n    import kept\n\n    return kept.note(DAY)\n\n\n"
        "def run(df):\n    return df.withColumn('seen', seen('id'))\n"
    ),
    "udf with Arrow": (
        "@F.udf('string', useArrow=True)\ndef seen(_id):\n    import kept\n\n    return kept.note(DAY)\n\n\n"
        "def run(df):\n    return df.withColumn('seen', seen('id'))\n"
    ),
    "pandas_udf": (
        "import pandas as pd\n\n\n@F.pandas_udf('string')\ndef seen(ids: pd.Series) -> pd.Series:\n    import kept\n\n"
        "    return ids.map(lambda _id: kept.note(DAY))\n\n\n"
        "def run(df):\n    return df.withColumn('seen', seen('id'))\n"
    ),
    "arrow_udf": (
        "import pyarrow as pa\n\n\n@F.arrow_udf('string')\ndef seen(ids: pa.Array) -> pa.Array:\n    import kept\n\n"
        "    return pa.array([kept.note(DAY) for _ in ids])\n\n\n"
        "def run(df):\n    return df.withColumn('seen', seen('id'))\n"
    ),
    "mapInPandas": (
        "def noted(frames):\n    import kept\n\n    for frame in frames:\n"
        "        yield frame.assign(seen=kept.note(DAY))\n\n\n"
        "def run(df):\n    return df.mapInPandas(noted, 'id int, seen string')\n"
    ),
    "mapInArrow": (
        "def noted(batches):\n    import kept\n    import pyarrow as pa\n\n    for batch in batches:\n"
        "        seen = pa.array([kept.note(DAY) for _ in range(batch.num_rows)])\n"
        "        yield pa.RecordBatch.from_arrays([*batch.columns, seen], names=['id', 'seen'])\n\n\n"
        "def run(df):\n    return df.mapInArrow(noted, 'id int, seen string')\n"
    ),
    "applyInPandas": (
        "def noted(frame):\n    import kept\n\n    return frame.assign(seen=kept.note(DAY))\n\n\n"
        "def run(df):\n    return df.groupBy('id').applyInPandas(noted, 'id int, seen string')\n"
    ),
    "an RDD": (
        "def noted(row):\n    import kept\n\n    return (row.id, kept.note(DAY))\n\n\n"
        "def run(df):\n    return df.sparkSession.createDataFrame(df.rdd.map(noted), 'id int, seen string')\n"
    ),
    "a table function": (
        "@F.udtf(returnType='seen string')\nclass Seen:\n    def eval(self, _id):\n        import kept\n\n"
        "        yield (kept.note(DAY),)\n\n\n"
        "def run(df):\n    df.sparkSession.udtf.register('seen', Seen)\n    df.createTempView('ids')\n"
        "    return df.sparkSession.sql('SELECT id, seen FROM ids, LATERAL seen(id)')\n"
    ),
}


def spec(home: Path, dataid: str, runid: int) -> ChunkSpec:
    (home / "in").mkdir(exist_ok=True)
    (home / "in" / f"{dataid}.csv").write_text("id\n1\n2\n")
    return chunk_spec(
        {
            "home": str(home), "slug": "p", "transformations": ["step"], "dataid": dataid, "runid": runid, "spark": {},
            "environment": {"dataid": dataid},
            "sources": [{"datasetid": "in", "location": str(home / "in" / f"{dataid}.csv"), "format": "csv",
                         "schema": {"id": "int"}}],
            "destination": {"datasetid": "out", "location": str(home / "out" / str(runid)), "format": "parquet"},
        }
    )  # fmt: skip


def produce(spark: SparkSession, executors: Executors, wanted: ChunkSpec) -> list[dict[str, Any]]:
    executors.prepare(spark, [wanted])
    with pytest.MonkeyPatch.context() as process:  # as that of the chunk
        process.setattr(sys, "path", [*sys.path, wanted.home])
        process.setenv("dataid", wanted.dataid)
        task = Task(spark.newSession(), read_codes(wanted), hear=lambda _spec, **_fields: None)
        ((_, result),) = task.run([wanted])
    assert result["error"] is None
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(wanted.destination.location).to_pylist()
    return rows


@pytest.fixture
def executors(tmp_path: Path) -> Executors:
    (tmp_path / "sent").mkdir()
    return Executors("local[2]", str(tmp_path / "sent"))


@pytest.mark.parametrize("function", ON_THE_WORKER)
def test_a_function_on_the_worker_finds_nothing_of_another_chunk(
    spark: SparkSession, executors: Executors, tmp_path: Path, function: str
) -> None:
    """A module that it imports when it is called is the worker's, and so is all else that it leaves there."""
    home = tmp_path / "home"
    (home / "pipelines/p").mkdir(parents=True)
    (home / "kept.py").write_text(KEPT)
    (home / "pipelines/p/step.py").write_text(HEAD + "DAY = os.environ['dataid']\n\n\n" + ON_THE_WORKER[function])
    for number, dataid in enumerate(DATAIDS, 1):
        made = produce(spark, executors, spec(home, dataid, number))
        assert sorted((row["id"], row["seen"]) for row in made) == [(1, dataid), (2, dataid)]


def test_numbers_by_chance_differ_from_task_to_task(spark: SparkSession) -> None:
    """Workers are forked from one process, and each would go on with its generators."""

    def drawn(_batches: Any) -> Any:
        import random

        import numpy as np
        import pyarrow as pa

        numbers = {"python": [random.random()], "numpy": [float(np.random.random())]}
        yield pa.RecordBatch.from_pydict(numbers)

    rows = spark.range(0, 4, 1, 4).mapInArrow(drawn, "python double, numpy double").collect()
    assert len({row["python"] for row in rows}) == len({row["numpy"] for row in rows}) == 4


def test_a_new_version_of_a_project_imports_its_own_modules(
    spark: SparkSession, executors: Executors, tmp_path: Path
) -> None:
    """Each version of a git project has a folder of its own, and a process may see several."""
    for number, name in enumerate(("old", "new"), 1):
        home = tmp_path / name
        (home / "pipelines/p").mkdir(parents=True)
        (home / "version.py").write_text(f"NAME = {name!r}\n")
        text = "from version import NAME\n\n\ndef run(df):\n    return df.withColumn('by', F.lit(NAME))\n"
        (home / "pipelines/p/step.py").write_text(HEAD + text)
        assert {row["by"] for row in produce(spark, executors, spec(home, "a", number))} == {name}
