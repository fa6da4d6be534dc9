"""Pipelines that keep and mix come to what a plain loop makes, in whatever way they are run."""

import os
from pathlib import Path

import pytest

from oracle import shapes
from oracle.published import asked, assert_as_told, visible
from oracle.ways import SECONDS, WAYS, go, run, wait_for_worker, working
from support.projects import Project

EVERY_FAULT = "DATAFLOW_EVERY_FAULT" in os.environ  # `make faults`: each pipeline costs the start of a Spark, each time
NEW_FROM = shapes.DAYS[-1]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "shapes", f"sqlite:///{tmp_path / 'shapes/.dataflow/state.db'}")


def test_a_worker_that_stays_makes_each_chunk_of_its_own_rows_day_and_prices(project: Project) -> None:
    """The prices change while its Spark is warm: what was cached of them is not read again."""
    told = shapes.lay_out(project.folder, new_prices_from=NEW_FROM)
    run(project, told, "apply")
    for command in told.arrive:
        run(project, told, *command)
    before = visible(project.folder)
    with working(project, {}) as worker:
        wait_for_worker(worker, lambda: count(project, "kept") == len(shapes.DAYS) - 1, "the first days are there")
        shapes.set_prices(project.folder, shapes.NEW_PRICES)
        run(project, told, "ready", "prices", "full")
        run(project, told, "ready", "orders", NEW_FROM)
        wait_for_worker(worker, lambda: count(project) == len(told.made), "all is there")
        worker.terminate()
        assert worker.wait(SECONDS) == 0
    assert_as_told(project, told, before)


def count(project: Project, slug: str = "%") -> int:
    query = f"SELECT count(*) AS n FROM job_status WHERE status = 'COMPLETE' AND jobid LIKE '{slug}'"
    ((number,),) = asked(project, query)
    return int(number)


if EVERY_FAULT:

    @pytest.mark.parametrize("way", WAYS)
    def test_pipelines_that_keep_and_mix_come_to_what_a_loop_makes(project: Project, way: str, tmp_path: Path) -> None:
        go(way, project, shapes.lay_out(project.folder), tmp_path / "signs")
