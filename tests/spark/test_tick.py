"""A tick over pipelines: each has its own Spark child, the second as well as the first."""

from support.projects import Project

TEXT = """\
name: Two pipelines
spark: {master: "local[2]"}
datasets:
  raw: {path: "raw/{dataid}.csv", format: csv, options: {header: true}, schema: {id: int}, partitions: {values: [a]}}
  first: {path: first, format: parquet}
  second: {path: second, format: parquet}
pipelines:
  - {slug: one, sources: [raw], destination: first, transformations: [same]}
  - {slug: two, sources: [first], destination: second, transformations: [same]}
"""


def test_one_tick_runs_two_pipelines_one_after_the_other(sqlite_project: Project) -> None:
    sqlite_project.apply(TEXT)
    sqlite_project.write("raw/a.csv", "id\n1\n")
    for slug in ("one", "two"):
        sqlite_project.write(f"pipelines/{slug}/same.py", "def run(df):\n    return df\n")
    assert sqlite_project.dataflow("ready", "raw", "a").returncode == 0
    done = sqlite_project.dataflow("tick", timeout=200)
    assert done.returncode == 0, done.stderr
    assert dict(sqlite_project.sql("SELECT jobid, status FROM job_status")) == {"one": "COMPLETE", "two": "COMPLETE"}
    assert sqlite_project.sql("SELECT rows FROM data_manifest WHERE datasetid = 'second'") == [(1,)]
