"""Runs that share a process and a Spark job, through the real commands: what is published, and what is kept of it."""

import os

import pytest

from support.jobs import publishes, wait_until_gone
from support.pipelines import SLUG, STEP, TOGETHER, TWICE, chunks, drain, expected, left_behind, pipeline, states
from support.projects import Project

EVERY_FAULT = "DATAFLOW_EVERY_FAULT" in os.environ
# What nobody can see in the plan: the second call of a task gives another value than the first of the next one.
BY_CHANCE = """\
import random

from pyspark.sql import functions as F

twice = F.udf(lambda amount: amount * 2 + int(random.random() * 1000000), "int")


def run(df):
    return df.withColumn("twice", twice("amount"))
"""
BY_ITEM = """\
from pyspark.sql import functions as F


def run(df):
    return df.groupBy("item").agg(F.sum("amount").alias("amount"))
"""


def shared_with(project: Project) -> dict[str, int | None]:
    """dataid → the first run of the Spark job that its newest run shared."""
    found = project.sql(
        f"SELECT r.dataid, p.job_runid FROM run r JOIN pipeline_run p ON p.runid = r.runid WHERE r.jobid = '{SLUG}' "
        "ORDER BY r.runid"
    )
    return dict(found)


def again(project: Project) -> str:
    """Resubmit all that is there and drain; what the runner said."""
    assert project.dataflow("resubmit", SLUG, *states(project)).returncode == 0
    done = drain(project)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_runs_that_share_a_job_are_published_each_on_its_own(sqlite_project: Project) -> None:
    project = pipeline(sqlite_project, settings=TOGETHER.format(3))
    done = drain(project)
    assert done.returncode == 0, done.stderr
    assert chunks(project) == expected([1, 2, 3, 4])
    assert publishes(project, "totals") == dict.fromkeys("1234", 1)
    first, fourth = (project.sql(f"SELECT runid FROM run WHERE dataid = '{one}'")[0][0] for one in "14")
    assert shared_with(project) == {"1": first, "2": first, "3": first, "4": None}, (
        "the fourth had nobody to share with"
    )
    assert fourth > first
    steps = project.sql("SELECT count(*) FROM transformation WHERE status = 'DONE'")
    assert steps == [(4,)]
    assert left_behind(project) == []
    wait_until_gone(project)


def test_a_chunk_that_differs_from_itself_alone_is_published_as_alone_and_its_code_shares_no_more(
    sqlite_project: Project,
) -> None:
    project = pipeline(sqlite_project, BY_CHANCE, path="totals, format: parquet", settings=TOGETHER.format(4))
    done = drain(project)
    assert done.returncode == 0, done.stderr
    assert "nothing of that job is published, and all are produced alone" in done.stderr
    assert set(states(project).values()) == {"COMPLETE"}
    assert shared_with(project) == dict.fromkeys("1234")
    assert publishes(project, "totals") == dict.fromkeys("1234", 1)
    assert "share no Spark job until its code changes" in project.dataflow("why", SLUG, "1").stdout
    assert "differs" not in again(project), "it is not tried again"
    assert shared_with(project) == dict.fromkeys("1234")
    project.write(STEP, TWICE)
    again(project)
    assert len({one for one in shared_with(project).values() if one is not None}) == 1
    assert "share no Spark job" not in project.dataflow("why", SLUG, "1").stdout
    assert left_behind(project) == []


@pytest.mark.parametrize("command", ["run --drain --slots 2", "worker --once", "tick"][: None if EVERY_FAULT else 2])
def test_chunks_that_cannot_share_a_job_are_produced_one_by_one_under_the_claims_that_they_have(
    sqlite_project: Project, command: str
) -> None:
    project = pipeline(sqlite_project, BY_ITEM, settings=TOGETHER.format(4))
    words = command.split()
    done = project.dataflow(*words[:1], *([SLUG] if words[0] == "run" else []), *words[1:], timeout=180)
    assert done.returncode == 0, done.stderr
    assert "4 of 4 chunks are produced one by one: Aggregate is not known to work row by row" in done.stderr
    assert states(project) == dict.fromkeys("1234", "COMPLETE")
    assert shared_with(project) == dict.fromkeys("1234")
    assert project.sql("SELECT count(*) FROM run") == [(4,)], "none was handed back for it"
    wait_until_gone(project)
