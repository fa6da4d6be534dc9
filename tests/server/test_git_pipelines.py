"""A pipeline of a git project on a real Spark: unit tests decide, runs record the commit, a warm process changes."""

from pathlib import Path

from support.gits import Origin
from support.processes import wait_for
from support.projects import DATAFLOW, Project

PROJECT = """
name: Shop
environments: {dev: {root: ./data}}
spark: {master: "local[2]", conf: {spark.sql.shuffle.partitions: 1}}
datasets:
  orders: {path: "orders/{dataid}.csv", format: csv, partitions: {shards: 1..3}}
  marked: {path: marked, format: parquet}
pipelines:
  - {slug: mark, sources: [orders], destination: marked, transformations: [mark]}
"""
MARK = """
from pyspark.sql import functions as F

expected_inputs = [[{"a": 1}]]
expected_output = [{"a": 1, "mark": "%s"}]


def run(df):
    return df.withColumn("mark", F.lit("%s"))
"""


def test_a_warm_pipeline_goes_on_with_the_new_version(tmp_path: Path) -> None:
    ops = Project(tmp_path / "ops", f"sqlite:///{tmp_path / 'state' / 'state.db'}")
    env = {"DATAFLOW_HOME": str(tmp_path / "work")}
    origin = Origin(tmp_path / "origin")
    origin.write("project.yml", PROJECT)
    origin.write("pipelines/mark/mark.py", MARK % ("one", "one"))
    for number in (1, 2, 3):
        origin.write(f"data/orders/{number}.csv", f"a\n{number}\n")
    first = origin.push("one")
    done = ops.dataflow("project", "add", origin.url, env=env, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ops.dataflow("ready", "orders", "1", env=env).returncode == 0
    worker = ops.start(DATAFLOW, "worker", "--slots", "1", env=env)
    try:
        wait_for(lambda: ops.statuses("mark").get("1") == "COMPLETE", "the first chunk", seconds=200)
        origin.write("pipelines/mark/mark.py", MARK % ("two", "three"))
        origin.push("its unit test fails")
        refused = ops.dataflow("project", "pull", env=env, timeout=240)
        assert refused.returncode == 1
        assert "expected 'two', got 'three'" in refused.stdout
        origin.write("pipelines/mark/mark.py", MARK % ("two", "two"))
        second = origin.push("two")
        assert ops.dataflow("project", "pull", env=env, timeout=240).returncode == 0
        ops.dataflow("ready", "orders", "2", env=env)
        wait_for(lambda: ops.statuses("mark").get("2") == "COMPLETE", "the second chunk", seconds=200)
    finally:
        worker.terminate()
        said = worker.communicate(timeout=120)
    ran = {one["dataid"]: one["commit"] for one in ops.json("runs", env=env)}
    assert ran == {"1": first, "2": second}, said
    rows = {dataid: ops.json("preview", "marked", dataid, env=env) for dataid in "12"}
    assert '"one"' in str(rows["1"]).replace("'", '"')
    assert '"two"' in str(rows["2"]).replace("'", '"')
    for version in (first, second):
        kept = {path.name for path in (tmp_path / "work" / "projects" / "shop" / version / ".dataflow").iterdir()}
        assert kept <= {"version.json", "address.json"}, "all else is where all versions have it"
