"""A system as an operator finds it at night: something failed, something waits for it, something is held or late."""

import datetime
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.projects import DATAFLOW, Project, with_settings
from support.web import Site

NIGHT = """
name: shop
environments:
  dev: {{root: ./data}}
datasets:
  feed: {{path: "feed/{{dataid}}.csv", format: csv, partitions: {{daily: "{start}"}}}}
  orders: {{path: "orders/{{dataid}}.csv", format: csv}}
  totals: {{path: "totals/{{dataid}}.csv", format: csv}}
  parts: {{path: "parts/{{dataid}}.txt", partitions: {{shards: 1..3}}}}
jobs:
  load: {{script: jobs/load.sh, inputs: [feed], outputs: [orders]}}
  sum: {{script: jobs/sum.sh, inputs: [orders], outputs: [totals]}}
  split: {{script: jobs/split.sh, outputs: [parts]}}
"""
LOAD = """
echo "reading $feed_location"
if [ -e broken ]; then echo "the vendor sent no header" >&2; exit 3; fi
cp "$feed_location" "$orders_location"
"""


def days(number: int) -> list[str]:
    """The last so many days, today the last."""
    today = datetime.datetime.now(datetime.UTC).date()
    return [(today - datetime.timedelta(days=back)).isoformat() for back in reversed(range(number))]


def night(project: Project) -> list[str]:
    """Three days of a feed: two have arrived, the first of them was loaded, loading the second failed."""
    first, second, third = named = days(4)[:3]
    project.script("jobs/load.sh", LOAD)
    project.script("jobs/sum.sh", 'cp "$orders_location" "$totals_location"')
    project.script("jobs/split.sh", 'touch "begun-$dataid"; echo begun; sleep 300; echo done > "$parts_location"')
    project.apply(NIGHT.format(start=first))
    arrive(project, first)
    assert project.dataflow("run", "load", "--dataid", first).returncode == 0
    arrive(project, second)
    (project.folder / "broken").touch()
    assert project.dataflow("run", "load", "--dataid", second).returncode == 1
    assert third
    return named


def arrive(project: Project, dataid: str) -> None:
    project.write(f"data/feed/{dataid}.csv", f"id,day\n1,{dataid}\n")
    done = project.dataflow("ready", "feed", dataid)
    assert done.returncode == 0, done.stderr


def new_project(kind: str, request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> Project:
    """An empty project over this kind of store, for all tests of a module."""
    folder = factory.mktemp("night")
    if kind == "sqlite":
        return Project(folder / "project", f"sqlite:///{folder / 'state' / 'state.db'}")
    return Project(folder / "project", request.getfixturevalue("postgres_server").new_database())


class Night:
    """The system with its server, and who looks at it."""

    def __init__(self, project: Project, site: Site, named: list[str]) -> None:
        self.project, self.site, self.days = project, site, named
        self.operator, self.viewer, self.nobody = (site.visitor(one) for one in ("operator", "viewer", None))
        self.script, self.admin = site.script("operator"), site.script("admin")

    def run_of(self, dataid: str, jobid: str = "load") -> int:
        """The latest run of a dataid."""
        rows = self.project.sql(f"SELECT max(runid) FROM run WHERE jobid = '{jobid}' AND dataid = '{dataid}'")
        return int(rows[0][0])

    def status_of(self, jobid: str, dataid: str) -> str:
        wanted = f"jobid = '{jobid}' AND dataid = '{dataid}'"
        return str(self.project.sql(f"SELECT status FROM job_status WHERE {wanted}")[0][0])


@contextmanager
def served_night(kind: str, request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> Iterator[Night]:
    """It, over a new store of this kind."""
    project = new_project(kind, request, factory)
    named = night(project)
    # An answer that several people get is kept for a shorter moment, so that a test soon sees the next one.
    with Site(project, command=with_settings(DATAFLOW, "server.cached.KEEP_SECONDS = 0.2")) as site:
        yield Night(project, site, named)


class Worker:
    """A real worker, stopped by its own process id."""

    def __init__(self, project: Project, *options: str) -> None:
        self.process = project.start(DATAFLOW, "worker", *options)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)
