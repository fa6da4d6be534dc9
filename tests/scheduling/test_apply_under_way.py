"""`dataflow apply` while workers and drains are busy: nobody ends, nothing fails, every run keeps one definition."""

from collections import Counter
from pathlib import Path

import pytest

from support.jobs import job_status
from support.processes import wait_for
from support.projects import DATAFLOW, RUNJOB, Project

YML = """\
name: Busy
environments: {{dev: {{root: data}}}}
datasets:
  raw: {{path: "raw/{{dataid}}.txt", partitions: {{shards: 1..{count}}}}}
  rates: {{path: "rates/{{dataid}}.txt", partitions: {{shards: 1..{count}}}}}
  out: {{path: "out/{{dataid}}.txt"}}
jobs:
  work: {{script: work.sh, inputs: [{inputs}], outputs: [out]}}
"""
# A run that has rates in its environment must have been asked and locked with them.
SCRIPT = """\
sleep 0.05
[ "${rates_location-none}" = "" ] && exit 9
cat "$raw_location" ${rates_location-} > "$out_location"
"""
COUNT = 120


@pytest.fixture
def busy(project: Project) -> Project:
    project.script("work.sh", SCRIPT)
    for dataset in ("raw", "rates"):
        for number in range(1, COUNT + 1):
            project.write(f"data/{dataset}/{number}.txt", f"{dataset} {number}\n")
    project.apply(YML.format(count=COUNT, inputs="raw"))
    for dataset in ("raw", "rates"):
        assert project.dataflow("ready", dataset, f"1..{COUNT}").returncode == 0
    return project


def apply_until_done(project: Project) -> int:
    """Register the job with one input and with two, by turns, until all of its dataids are done; how often it was."""
    number = 0

    def is_done() -> bool:
        nonlocal number
        number += 1
        inputs = "raw, rates" if number % 2 else "raw"
        project.write("project.yml", YML.format(count=COUNT, inputs=inputs))
        done = project.dataflow("apply")
        assert done.returncode == 0, done.stderr
        return Counter(job_status(project, "work").values())["COMPLETE"] == COUNT

    wait_for(is_done, "all is done", seconds=60.0)
    return number


def assert_every_run_kept_its_definition(project: Project) -> None:
    runs = project.sql("SELECT dataid, status, inputs FROM run WHERE jobid = 'work'")
    assert Counter(status for _, status, _ in runs) == {"COMPLETE": COUNT}
    for dataid, _, inputs in runs:
        text = (project.folder / f"data/out/{dataid}.txt").read_text()
        read = "rates" in str(inputs)
        assert text == f"raw {dataid}\n" + (f"rates {dataid}\n" if read else ""), "what it read is what was recorded"
    assert project.dataflow("db", "check").returncode == 0


@pytest.mark.both_stores
def test_a_busy_worker_goes_on_while_the_project_is_applied_again_and_again(busy: Project, tmp_path: Path) -> None:
    with (tmp_path / "said").open("w") as said:
        worker = busy.start(DATAFLOW, "worker", "--slots", "2")
        try:
            assert apply_until_done(busy) > 2
            assert worker.poll() is None, worker.communicate()[1]
        finally:
            worker.terminate()
            said.write(worker.communicate(timeout=60)[1])
    assert worker.returncode == 0, (tmp_path / "said").read_text()
    assert_every_run_kept_its_definition(busy)


@pytest.mark.both_stores
def test_a_drain_goes_on_with_the_definition_that_is_new(busy: Project) -> None:
    drain = busy.start(RUNJOB, "--drain", "./work.sh")
    try:
        assert apply_until_done(busy) > 2
        assert drain.wait(60) == 0, drain.communicate()[1]
    finally:
        drain.kill()
        drain.communicate()
    assert_every_run_kept_its_definition(busy)
