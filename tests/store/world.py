"""A store of either kind with what the tests do to it: register, declare by hand, claim, end, let time pass."""

import datetime
import json
import sqlite3
import time
from collections.abc import Iterable
from typing import Any

import psycopg

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.registration import JobSpec, LinkSpec, Registration
from opendataflow.domain.runs.questions import CODES, Answer, Question, Verdict
from opendataflow.domain.runs.run import Claim, Ending, Finished, Owner, Result
from opendataflow.store import open_store, registry
from opendataflow.store.claims import LoopStore
from opendataflow.store.migrate import upgrade
from opendataflow.store.open import SCHEMA_VERSION

YES = Verdict(tuple(Answer(question, True, "seen by the test") for question in Question))
NO_PATH = Verdict((*YES.answers[:2], Answer(Question.LOCATION, False, "gone", CODES[Question.LOCATION][0])))
NOW = datetime.datetime(2025, 12, 1, tzinfo=datetime.UTC)
TABLES = (
    "store", "project", "dataset", "job", "job_dataset", "job_input", "job_status", "datastatus", "data_manifest",
    "run", "history", "tally", "pipeline_run", "transformation", "data_check", "connection_limit", "limit_history",
    "worker", "stream", "stream_batch", "stream_failed", "stream_topic_part", "stream_version", "account",
    "web_session", "login_link", "login_failure", "login_device", "api_token", "web_action", "git_project",
    "git_version", "git_task", "run_version", "schedule", "source_binding", "source_test", "abort_request", "request",
    "alert_watch", "alert_pace",
    "alert_message", "alert", "unshared",
    "stale_event", "made", "made_from", "job_code", "stale", "chunk_damage",
)  # fmt: skip


class Clock:
    """The time by which SQLite's leases go; tests move it."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def owner(name: str = "anna", host: str = "host-1") -> Owner:
    return Owner(f"{name}@{host}:1", host, 1, 1, 2, 2)


def job(
    jobid: str, inputs: Iterable[str], outputs: Iterable[str], *, project: str = "p", partitions: Any = None,
    lease: float = 60.0, retries: int = 0, backoff: float = 30.0, concurrency: int | None = None,
) -> JobSpec:  # fmt: skip
    """A job; an input `name:full` is shared by every dataid, `other.name` is another project's."""
    links = []
    for name in inputs:
        plain, _, map_ = name.partition(":")
        where, dot, theirs = plain.rpartition(".")
        links.append(LinkSpec("IN", where if dot else project, theirs, map_ or "same"))
    links += [LinkSpec("OUT", project, name) for name in outputs]
    scheme = json.dumps(partitions) if partitions is not None else None
    return JobSpec(jobid, "script", None, "{}", scheme, lease, None, retries, backoff, concurrency, tuple(links))


def registration(
    *jobs: JobSpec, project: str = "p", also: Iterable[str] = (), environment: str = "test"
) -> Registration:
    """A project of these jobs and the datasets they name."""
    names = {link.datasetid: None for one in jobs for link in one.links if link.dataset_project == project}
    shared = {link.datasetid for one in jobs for link in one.links if link.map == "full"}
    datasets = tuple(
        Dataset(project, name, partitions='"none"' if name in shared else None) for name in [*names, *also]
    )
    return Registration(project, project.upper(), f"/data/{project}", "/home", environment, datasets, jobs)


LOAD = job("load", ["orders"], ["totals"])
DAYS = [str(number) for number in range(1, 9)]


class World:
    """One store, one hand at its SQL shell."""

    def __init__(self, url: str, *, actor: str = "tests") -> None:
        self.url = url
        self.is_sqlite = url.startswith("sqlite")
        self.clock = Clock()
        self.store = self.open(actor=actor, fresh=True)
        if self.is_sqlite:
            path = url.removeprefix("sqlite:///")
            self._shell: Any = sqlite3.connect(path, timeout=60, isolation_level=None)
        else:
            self._shell = psycopg.connect(url, autocommit=True)

    def open(self, *, actor: str = "tests", fresh: bool = False) -> LoopStore:
        """A connection of its own to the same store."""
        store = open_store(self.url, actor=actor, clock=self.clock, must_exist=not fresh, check=False)
        if fresh:
            upgrade(store)
        store.check_schema(SCHEMA_VERSION)
        return store

    def close(self) -> None:
        self._shell.close()
        self.store.close()

    # By hand ------------------------------------------------------------------------------------------------
    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """What an operator types into psql or the sqlite3 shell."""
        cursor = self._shell.execute(statement)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def ready(self, datasetid: str, *dataids: str) -> None:
        """Declare chunks READY as an operator would: no project, no version."""
        for dataid in dataids:
            self.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('{datasetid}', '{dataid}', 'READY')")

    def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table; only the counter of tokens may grow without anything having changed."""
        stored = "store_id, environment, paused_by, paused_until"
        columns = {"store": f"{stored}, actor, reason" if self.is_sqlite else stored}
        return {table: sorted(self.sql(f"SELECT {columns.get(table, '*')} FROM {table}"), key=repr) for table in TABLES}

    def pass_time(self, seconds: float) -> None:
        """Leases and pauses come nearer by so many seconds: on PostgreSQL, whose clock is its own, they are moved."""
        if self.is_sqlite:
            self.clock.now += seconds
        else:
            self.sql(
                f"UPDATE job_status SET lease_until = lease_until - interval '{seconds} seconds', "
                f"parked_until = parked_until - interval '{seconds} seconds'"
            )
            for table in ("job", "store"):
                self.sql(
                    f"UPDATE {table} SET paused_until = paused_until - interval '{seconds} seconds' "
                    "WHERE paused_until IS NOT NULL"
                )
            self.sql(f"UPDATE worker SET seen_at = seen_at - interval '{seconds} seconds'")

    # Through the store --------------------------------------------------------------------------------------
    def apply(self, *jobs: JobSpec, project: str = "p", also: Iterable[str] = ()) -> list[str]:
        wanted = registration(*jobs, project=project, also=also)
        return registry.apply(self.store, wanted, now=NOW)

    def next(self, jobid: str, *, project: str = "p") -> str | None:
        """The dataid that would be claimed next."""
        found = self.store.find_claimable(self.store.get_job(jobid, project=project))
        return found.dataid if found else None

    def claim(
        self, jobid: str, dataid: str | None = None, *, by: Owner | None = None, project: str = "p",
        store: LoopStore | None = None,
    ) -> Claim | None:  # fmt: skip
        store = store or self.store
        of = store.get_job(jobid, project=project)
        candidate = store.find_claimable(of) if dataid is None else store.find_candidate(of, dataid)
        return store.claim(of, candidate, YES, by or owner()) if candidate else None

    def must_claim(self, jobid: str, dataid: str | None = None, **options: Any) -> Claim:
        claim = self.claim(jobid, dataid, **options)
        assert claim is not None
        return claim

    def finish(self, claim: Claim, ending: Ending = Ending.COMPLETE, **fields: Any) -> Finished:
        return self.store.finish(claim, self.result(claim, ending, **fields))

    def result(self, claim: Claim, ending: Ending = Ending.COMPLETE, **fields: Any) -> Result:
        outputs = self.store.get_job(claim.jobid, project=claim.project).outputs
        manifests = tuple(
            (link.dataset.project, link.dataset.datasetid, Manifest(f"/data/{claim.runid}", rows=7, validated=True))
            for link in outputs
        )
        return Result(ending, 0 if ending is Ending.COMPLETE else 1, manifests=manifests, **fields)

    def complete(self, jobid: str, *dataids: str) -> None:
        for dataid in dataids:
            self.finish(self.must_claim(jobid, dataid))

    def recover(self, *, store: LoopStore | None = None) -> int:
        """What the next runner does with leases that ran out."""
        store = store or self.store
        return sum(store.recover(lost, host="", note="lost") for lost, expired, _ in store.suspects("") if expired)

    # What is -------------------------------------------------------------------------------------------------
    def row(self, jobid: str, dataid: str, *, project: str = "p") -> dict[str, Any]:
        found = registry.find_job_row(self.store, project, jobid, dataid)
        assert found is not None, f"{jobid}/{dataid} has no row"
        return found

    def status(self, jobid: str, dataid: str, *, project: str = "p") -> str:
        return str(self.row(jobid, dataid, project=project)["status"])

    def chunk(self, datasetid: str, dataid: str, *, project: str = "p") -> str | None:
        rows = self.sql(
            f"SELECT status FROM datastatus WHERE project = '{project}' AND datasetid = '{datasetid}' "
            f"AND dataid = '{dataid}' AND locktype = 'OUT'"
        )
        return str(rows[0][0]) if rows else None

    def locks(self) -> list[tuple[Any, ...]]:
        """Who reads what: dataset, dataid, job."""
        return self.sql("SELECT datasetid, dataid, jobid FROM datastatus WHERE locktype = 'IN' ORDER BY 1, 2, 3")

    def waiting(self, jobid: str) -> dict[str, int]:
        return dict(self.sql(f"SELECT dataid, waiting FROM job_status WHERE jobid = '{jobid}'"))

    def history(self, kind: str, name: str, dataid: str, *, project: str = "p") -> list[str | None]:
        """The statuses that a job or a chunk went through."""
        return [row["new_status"] for row in registry.history_of(self.store, project, kind, name, dataid)]
