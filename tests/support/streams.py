"""A stream pipeline with items in its log, its runner in the background, and what is in its destination."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opendataflow.intake.log import IntakeLog
from opendataflow.intake.reader import IntakeReader
from support.processes import wait_for
from support.projects import DATAFLOW, Project

SLUG = "leads"
PROJECT = """\
name: Shop
environments: {{dev: {{root: ./data}}}}
spark:
  master: {master}
  conf:
    spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC  # starts sooner
datasets:
  cities: {{path: cities.csv, schema: {{city: string, country: string}}, partitions: none}}
  leads: {{{destination}}}
pipelines:
  - slug: leads
    mode: stream
    sources: [cities]
    destination: leads
    transformations: [clean]
    retries: {{max: 1, backoff: 1s}}
    {settings}
    stream:
      schema: {{id: bigint, email: string, city: {{type: string, required: false}}}}
      max_batch: 40
      every: 50ms
      retention: 1h
      {source}
"""
# An address without @ is an error of the item; a file `broken` is one of the code, and one `slow` holds it up.
CLEAN = """\
import os
import time

from pyspark.sql import functions as F


def run(df, stream=None):
    if os.path.exists("broken"):
        raise ValueError("the code is broken")
    while os.path.exists("slow"):
        open("held", "w").close()
        time.sleep(0.1)
    is_bad = ~F.col("email").contains("@")
    email = F.when(is_bad, F.raise_error(F.concat(F.lit("no address: "), "email"))).otherwise(F.lower("email"))
    return stream.withColumn("email", email).join(F.broadcast(df), "city", "left").select("id", "email", "country")
"""


class Stream:
    """The stream of one project: its sender and its reader."""

    def __init__(
        self,
        project: Project,
        *,
        destination: str = "path: leads",
        settings: str = "",
        source: str = "",
        master: str = "local[2]",
    ) -> None:
        self.project = project
        project.apply(PROJECT.format(destination=destination, settings=settings, source=source, master=master))
        project.write(f"pipelines/{SLUG}/clean.py", CLEAN)
        self.set_country("Norway")
        self.folder = project.folder / ".dataflow" / "streams" / "shop" / SLUG
        self.sent: list[int] = []

    def set_country(self, country: str) -> None:
        """A new version of the static source."""
        self.project.write("data/cities.csv", f"city,country\nOslo,{country}\n")
        done = self.project.dataflow("ready", "cities", "full")
        assert done.returncode == 0, done.stderr

    def send(self, count: int, *, bad: tuple[int, ...] = (), per_request: int = 10, ago: float = 0.0) -> int:
        """Accept items with the next numbers; the offset after the last. `ago`: by a clock that is behind."""
        first = len(self.sent)
        items = [
            {"id": number, "email": f"nobody {number}" if number in bad else f"A{number}@X.ORG", "city": "Oslo"}
            for number in range(first, first + count)
        ]
        log = IntakeLog(str(self.folder), clock=lambda: time.time() - ago)
        try:
            for at in range(0, count, per_request):
                some = items[at : at + per_request]
                log.append(json.dumps(some).encode(), len(some))
            self.sent += [item["id"] for item in items if item["id"] not in bad]
            self.sent += [-1 for item in items if item["id"] in bad]
            return log.end
        finally:
            log.close()

    @property
    def durable(self) -> int:
        return IntakeReader(str(self.folder)).durable_end()

    @property
    def committed(self) -> int:
        rows = self.project.sql(f"SELECT max(dataid) FROM job_status WHERE jobid = '{SLUG}' AND status = 'COMPLETE'")
        return int(rows[0][0].partition("-")[2]) + 1 if rows[0][0] else 0

    def rows(self, dataset: str = "leads_live") -> list[dict[str, Any]]:
        """What is published, in the order of the chunks."""
        from pyarrow import parquet

        ready = self.project.sql(
            f"SELECT location FROM chunk_location WHERE status = 'READY' AND datasetid = '{dataset}' ORDER BY dataid"
        )
        found: list[dict[str, Any]] = []
        for (location,) in ready:
            for file in sorted(Path(location).glob("*.parquet")):
                found += parquet.read_table(file).to_pylist()
        return found

    @property
    def good(self) -> list[int]:
        return [number for number in self.sent if number >= 0]

    def wait_until_published(self, runner: "subprocess.Popen[str]", *, seconds: float = 90) -> None:
        end = self.durable
        wait_for(lambda: self.committed >= end or runner.poll() is not None, "all is published", seconds=seconds)
        assert self.committed >= end, runner.communicate()


@contextlib.contextmanager
def running(stream: Stream, *more: str, env: dict[str, str] | None = None) -> Iterator["subprocess.Popen[str]"]:
    """Its runner in the background; killed at the end if it still lives."""
    runner = stream.project.start(DATAFLOW, "run", SLUG, *more, env=env)
    try:
        yield runner
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(runner.pid, signal.SIGKILL)
        runner.communicate(timeout=60)
