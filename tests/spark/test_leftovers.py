"""What the code of one chunk leaves behind, in the process or in Spark, no other chunk sees."""

import os
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
# Each adds a column `seen`: what the code finds that an earlier chunk may have left.
CODE = {
    "the working directory": (
        "def run(df):\n    here = os.getcwd()\n    os.chdir('/')\n    return df.withColumn('seen', F.lit(here))\n"
    ),
    "places to import from": (
        "def run(df):\n    seen = [path for path in sys.path if path.startswith('/of/')]\n"
        "    sys.path.insert(0, f'/of/{os.environ[\"dataid\"]}')\n    return df.withColumn('seen', F.lit(str(seen)))\n"
    ),
    "the umask": "def run(df):\n    return df.withColumn('seen', F.lit(os.umask(0o077)))\n",
    "a function of the catalog": (
        "def run(df):\n    day = os.environ['dataid']\n"
        "    df.sparkSession.sql(f\"CREATE FUNCTION IF NOT EXISTS chunk() RETURNS STRING RETURN '{day}'\")\n"
        "    return df.withColumn('seen', F.expr(f\"if(chunk() = '{day}', 'its own', chunk())\"))\n"
    ),
    "a setting of the session": (
        "def run(df):\n    conf = df.sparkSession.conf\n    seen = conf.get('spark.sql.session.timeZone')\n"
        "    conf.set('spark.sql.session.timeZone', 'Asia/Tokyo')\n    return df.withColumn('seen', F.lit(seen))\n"
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
    task = Task(spark, read_codes(wanted), hear=lambda _spec, **_fields: None)
    ((_, result),) = task.run([wanted])
    assert result["error"] is None
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(wanted.destination.location).to_pylist()
    return rows


@pytest.fixture
def executors(tmp_path: Path) -> Executors:
    (tmp_path / "sent").mkdir()
    return Executors("local[2]", str(tmp_path / "sent"))


@pytest.mark.parametrize("what", CODE)
def test_a_chunk_finds_everything_as_the_first_one_did(
    spark: SparkSession, executors: Executors, tmp_path: Path, what: str
) -> None:
    home = tmp_path / "home"
    (home / "pipelines/p").mkdir(parents=True)
    (home / "pipelines/p/step.py").write_text(HEAD + CODE[what])
    before = os.getcwd(), list(sys.path)
    first, *others = (produce(spark, executors, spec(home, dataid, n)) for n, dataid in enumerate(DATAIDS, 1))
    assert others == [first, first]
    assert (os.getcwd(), sys.path) == before


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
