"""A storm over a stream: clients send, a server accepts, Spark publishes, and all of them are hit; then it is judged.

The server is `dataflow serve`, the runner `dataflow stream run` with the Spark of a keeper, a client a process that
keeps a journal. With SQLite the destination is files, with PostgreSQL a table in a database beside the store.
"""

import contextlib
import dataclasses
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from opendataflow.domain.streams import batch_range
from opendataflow.intake.reader import IntakeReader
from support.chaos import stream_plan
from support.chaos.disks import Disk, disk_of
from support.chaos.fleet import children_of
from support.chaos.invariants import Invariant, moment
from support.chaos.services import Service, StreamHit, processes_in
from support.chaos.stores import Failing, Postgres, failing_store
from support.chaos.storm import STEP_SECONDS, TOLD_SECONDS, Say
from support.chaos.stream_clients import Clients
from support.chaos.stream_judges import Logged, StreamFacts, judge_stream, read_sent, stream_recovery
from support.chaos.stream_plan import CHILD, DISK, GUARD, JVM, KEEPER, RUNNER, SERVER, TREE, StreamFault, StreamSize
from support.jobs import publishes
from support.pipelines import find_child, find_jvm, find_keeper
from support.processes import is_alive, processes_with
from support.projects import DATAFLOW, Project

SLUG = "leads"
LOOK_SECONDS = 0.1  # between two looks at what is published
HIT_SECONDS = 60.0  # in which the target of a fault must turn up: a Spark takes its time
MOST_ENDS = 3  # of a service by itself, before the storm is given up
LEFT_SECONDS = 10.0  # for what was told to stop to be gone
_PROJECT = """\
name: Storm
environments: {{dev: {{root: ./data}}}}
spark:
  master: local[2]
  conf:
    spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC  # starts sooner
    spark.python.worker.faulthandler.enabled: "false"
datasets:
  leads: {{{destination}}}
pipelines:
  - slug: leads
    mode: stream
    destination: leads
    transformations: [clean]
    stream:
      schema: {{client: string, number: bigint, text: string}}
      max_batch: {max_batch}
      backlog: {backlog}
      every: 50ms
"""
_CLEAN = """\
from pyspark.sql import functions as F


def run(df, stream=None):
    is_bad = F.col("text").startswith("bad")
    return stream.withColumn("text", F.when(is_bad, F.raise_error(F.col("text"))).otherwise(F.col("text")))
"""


@dataclasses.dataclass(frozen=True)
class StreamReport:
    """What came of a storm."""

    title: str
    invariants: tuple[Invariant, ...]
    times: tuple[str, ...]
    said: str  # the ends of the logs

    @property
    def holds(self) -> bool:
        return not any(one.wrong for one in self.invariants)

    @property
    def lines(self) -> list[str]:
        return [self.title, *(one.line for one in self.invariants), "     from a hit until it goes on:", *self.times]


def run_stream_chaos(
    kind: str, size: StreamSize, seed: int, folder: Path, *, say: Say, give_up_seconds: float = 3600.0
) -> StreamReport:
    """Let the storm of this seed go over a stream with a store of this kind, and judge it."""
    with failing_store(kind, folder) as store, disk_of(folder / "streams", size, say) as disk:
        storm = _StreamStorm(Project(folder / "project", store.url), store, disk, size, seed, say)
        try:
            return storm.run(give_up_seconds)
        finally:
            storm.close()


class _StreamStorm:
    def __init__(
        self, project: Project, store: Failing, disk: Disk, size: StreamSize, seed: int, say: Say
    ) -> None:  # fmt: skip
        self._project, self._store, self._disk, self._size, self._seed = project, store, disk, size, seed
        self._say_to = say
        self._faults = [one for one in stream_plan.draw_faults(size, seed) if one.whom != DISK or disk.can_fill]
        self._bad = stream_plan.draw_bad(size, seed)
        self._target = store.server.new_database("target") if isinstance(store, Postgres) else None
        self._env = {"DATAFLOW_STREAMS": str(disk.folder), **({"TARGET_URL": self._target} if self._target else {})}
        destination = "url: '${TARGET_URL}', table: leads, write: append" if self._target else "path: leads"
        project.apply(_PROJECT.format(destination=destination, max_batch=size.max_batch, backlog=size.backlog))
        project.write(f"pipelines/{SLUG}/clean.py", _CLEAN)
        self._folder = disk.folder / "storm" / SLUG
        self._log = IntakeReader(str(self._folder))
        port = _free_port()
        serve = [DATAFLOW, "serve", "--port", str(port), "--json"]
        self._server = Service(project, "server", serve, stops_with=0, env=self._env)
        run = [DATAFLOW, "stream", "run", SLUG]
        self._runner = Service(project, "runner", run, stops_with=128 + signal.SIGTERM, env=self._env)
        self._plans = {str(one): stream_plan.draw_requests(size, seed, one) for one in range(size.clients)}
        self._clients = Clients(project, self._plans, self._bad, port)
        self._hits: list[StreamHit] = []
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._missed: list[StreamFault] = []
        self._waiting = list(self._faults)
        self._committed = 0
        self._looked_at = self._told_at = float("-inf")
        self._began = time.monotonic()

    # The storm ------------------------------------------------------------------------------------------------------
    def run(self, give_up_seconds: float) -> StreamReport:
        give_up = self._began + give_up_seconds
        while not (is_done := self._is_done()) and time.monotonic() < give_up and not self._is_hopeless():
            self._tend()
            for fault in [one for one in self._waiting if self._part(one) >= one.at]:
                self._waiting.remove(fault)
                self._after(fault.after_seconds, lambda fault=fault: self._happen(fault))  # type: ignore[misc]
            time.sleep(STEP_SECONDS)
        took = time.monotonic() - self._began
        return self._judge(took, is_done=is_done)

    def _tend(self) -> None:
        for service in (self._server, self._runner):
            service.tend()
        self._clients.read()
        now = time.monotonic()
        if now >= self._looked_at + LOOK_SECONDS:
            self._looked_at = now
            self._committed = self._read_committed()
        if now >= self._told_at + TOLD_SECONDS:
            self._told_at = now
            self._say(f"{len(self._waiting)} faults to come")
        over = [one for one in self._later if one[0] <= now]
        self._later = [one for one in self._later if one not in over]
        for _, action in over:
            action()

    def _read_committed(self) -> int:
        found = self._project.sql(f"SELECT max(dataid) FROM job_status WHERE jobid = '{SLUG}' AND status = 'COMPLETE'")[
            0
        ][0]
        return batch_range(found)[1] if found else 0

    def _is_done(self) -> bool:
        is_calm = not self._waiting and not self._later
        return is_calm and self._clients.are_over and self._committed >= self._log.durable_end()

    def _is_hopeless(self) -> bool:
        return any(len(service.ended_by_itself) >= MOST_ENDS for service in (self._server, self._runner))

    def _part(self, fault: StreamFault) -> float:
        done = self._clients.accepted if fault.whom in (SERVER, DISK) else self._committed
        if self._clients.are_over and self._committed >= self._log.durable_end():
            return 1.0  # what was lost is not coming any more
        return done / self._size.items

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + seconds, action))

    def _say(self, text: str) -> None:
        self._say_to(f"{self._clients.accepted} accepted, {self._committed} published: {text}")

    # Faults ---------------------------------------------------------------------------------------------------------
    def _happen(self, fault: StreamFault) -> None:
        if fault.whom == DISK:
            self._disk.fill()
            self._after(fault.seconds, self._make_room)
            self._say(f"the disk of the log is full for {fault.seconds:.1f} s")
        else:
            self._kill(fault)

    def _make_room(self) -> None:
        self._disk.empty()
        self._hits.append(StreamHit(DISK, (), time.time()))

    def _kill(self, fault: StreamFault) -> None:
        give_up = time.monotonic() + HIT_SECONDS
        while not (pids := self._targets(fault.whom)):
            if time.monotonic() > give_up:
                self._missed.append(fault)
                return
            self._tend_services()
            time.sleep(STEP_SECONDS)
        service = self._server if fault.whom == SERVER else self._runner
        # Of all others the runner makes new ones.
        service.is_hit = service.is_hit or fault.whom in (SERVER, RUNNER, TREE)
        at = time.time()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._hits.append(StreamHit(fault.whom, pids, at))
        self._say(f"SIGKILL to {fault.whom} ({' '.join(map(str, pids))})")

    def _tend_services(self) -> None:
        self._server.tend()
        self._runner.tend()

    def _targets(self, whom: str) -> tuple[int, ...]:
        """What is hit; nothing while its Spark is only beginning."""
        if whom == SERVER:
            pid = self._server.pid
            return (pid,) if pid is not None and is_alive(pid) else ()
        runner = self._runner.pid
        if runner is None or (child := find_child(runner)) is None or (jvm := find_jvm(runner)) is None:
            return ()
        keeper = find_keeper(runner)
        if keeper is None:
            return ()
        guards = tuple(one for one in children_of(runner) if child in children_of(one))
        ones = {RUNNER: runner, CHILD: child, JVM: jvm, KEEPER: keeper}
        return (ones[whom],) if whom in ones else guards if whom == GUARD else (runner, *guards)

    # The end --------------------------------------------------------------------------------------------------------
    def _judge(self, took: float, *, is_done: bool) -> StreamReport:
        self._disk.empty()
        problems = [*self._clients.stop(), *self._runner.stop(), *self._server.stop()]
        problems += [one for service in (self._server, self._runner) for one in service.ended_by_itself]
        words = ("Traceback", "internal error")
        problems += [f"the server's log has {word!r}" for word in words if word in self._server.said]
        problems += ["the runner's log has 'internal error'"] if words[1] in self._runner.said else []
        facts = self._facts()
        missed = [f"{one.whom} at {one.at:.1%}" for one in [*self._missed, *self._waiting]]
        kills = f"{self._server.starts} servers and {self._runner.starts} runners started"
        found = [
            Invariant("it came to its end", f"in {took:.0f} s", () if is_done else ("it was given up",)),
            *judge_stream(facts),
            Invariant("nothing ended by itself", f"{kills}, stopped when told", tuple(problems)),
            Invariant("no process left", "/proc read", tuple(map(str, self._left_over()))),
            Invariant("every fault happened", f"{len(self._hits)} of {len(self._faults)}", tuple(missed)),
        ]
        where = "a table of PostgreSQL" if self._target else "files"
        title = (
            f"{self._store.dialect}, seed {self._seed}: {self._size.items} items from {self._size.clients} clients "
            f"into {where}, {took:.0f} s, {facts.end / max(took, 0.001):.0f} items a second"
        )
        return StreamReport(title, tuple(found), tuple(_told(stream_recovery(facts))), self._said())

    def _facts(self) -> StreamFacts:
        sql = self._project.sql
        batches = sql(f"SELECT dataid, status FROM job_status WHERE jobid = '{SLUG}'")
        ended = sql(f"SELECT ended_at FROM run WHERE jobid = '{SLUG}' AND status = 'COMPLETE'")
        aside = self._project.json("stream", "failed", SLUG, "--all", "--limit", "100000", env=self._env)
        checked = self._project.dataflow("db", "check", "--json")
        return StreamFacts(
            sent=[one for who, plan in self._plans.items() for one in read_sent(who, plan, self._clients.journal(who))],
            log=self._read_log(),
            rows=self._rows(),
            is_in_order=self._target is None,
            aside=[(one["offset"], one["item"]) for one in aside],
            bad=self._bad,
            batches=[(*batch_range(dataid), str(status)) for dataid, status in batches],
            publishes=publishes(self._project, f"{SLUG}_live"),
            status=self._project.json("stream", "status", SLUG, env=self._env)[0],
            problems=[str(one) for one in json.loads(checked.stdout)["problems"]]
            if checked.stdout
            else [checked.stderr],
            hits=self._hits,
            published_at=sorted(moment(at) for (at,) in ended),
        )

    def _read_log(self) -> list[Logged]:
        return [
            Logged(entry.first, entry.key, tuple((i["client"], i["number"], i["text"]) for i in entry.objects()))
            for entry in self._log.read(0, self._log.durable_end())
        ]

    def _rows(self) -> list[tuple[str, int, str]]:
        """What is published; files in the order of their batches."""
        if self._target is not None:
            import psycopg

            with psycopg.connect(self._target) as connection:
                return connection.execute("SELECT client, number, text FROM leads").fetchall()
        from pyarrow import parquet

        found: list[tuple[str, int, str]] = []
        for (location,) in self._project.sql(
            f"SELECT location FROM chunk_location WHERE status = 'READY' AND datasetid = '{SLUG}_live' ORDER BY dataid"
        ):
            for file in sorted(Path(location).glob("*.parquet")):
                read = parquet.read_table(file, columns=["client", "number", "text"]).to_pydict()
                found += zip(read["client"], read["number"], read["text"], strict=True)
        return found

    def _left_over(self) -> list[int]:
        mark = f"DATAFLOW_STORE_ID={self._project.sql('SELECT store_id FROM store')[0][0]}"
        give_up = time.monotonic() + LEFT_SECONDS
        while left := {*processes_with(mark), *processes_in(self._project.folder)}:
            if time.monotonic() > give_up:
                break
            time.sleep(0.05)
        return sorted(left)

    def _said(self) -> str:
        return "\n".join(f"--- {one.name}\n{one.said[-20_000:]}" for one in (self._server, self._runner))

    def close(self) -> None:
        self._clients.kill()
        for service in (self._runner, self._server):
            service.kill()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _told(times: dict[str, list[float]]) -> list[str]:
    return [
        f"     {whom}: {', '.join(f'{one:.2f}' for one in values)} s" for whom, values in sorted(times.items())
    ] or ["     nothing was hit"]
