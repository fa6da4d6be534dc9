"""Two jobs in a row over three shards: what the tests of operating share."""

import subprocess

from support.projects import Project

CHAIN = """\
name: Chain
environments: {dev: {root: data}}
datasets:
  feed: {path: "feed/{dataid}.txt", partitions: {shards: 1..3}}
  mid: {path: "mid/{dataid}.txt"}
  out: {path: "out/{dataid}.txt"}
jobs:
  first: {script: jobs/first.sh, inputs: [feed], outputs: [mid], env: {COLOUR: blue, API_KEY: swordfish}}
  second: {script: jobs/second.sh, inputs: [mid], outputs: [out]}
"""
FAILS = '[ -e "broken.$jobid.$dataid" ] && exit 7; '
WAITS = "echo hello; touch started; while [ ! -e go ]; do sleep 0.02; done; echo bye"


def made_chain(project: Project) -> Project:
    project.apply(CHAIN)
    project.script("jobs/first.sh", FAILS + 'cp "$feed_location" "$mid_location"')
    project.script("jobs/second.sh", FAILS + 'cp "$mid_location" "$out_location"')
    for shard in ("1", "2", "3"):
        project.write(f"data/feed/{shard}.txt", shard)
    done = project.dataflow("ready", "feed", "1", "2", "3")
    assert done.returncode == 0, done.stderr
    return project


def drain(project: Project, *jobs: str) -> None:
    for job in jobs:
        project.dataflow("run", job, "--drain")


def ok(done: "subprocess.CompletedProcess[str]") -> "subprocess.CompletedProcess[str]":
    assert done.returncode == 0, done.stderr
    return done
