"""`dataflow run PIPELINE --stream sample.csv`: the items of a file through a stream, without a server.

They are accepted and processed as any others. A dry run keeps them, and what comes out, in a folder that is removed.
"""

import json
import os
import select
import tempfile
import time
from typing import Any, NamedTuple

from opendataflow.domain.chunk import ChunkKey
from opendataflow.domain.job import Job
from opendataflow.domain.partitions.scheme import FULL
from opendataflow.domain.runs.child_json import read_json
from opendataflow.domain.runs.run import Claim
from opendataflow.domain.streams import KAFKA, batch_id, get_settings
from opendataflow.domain.tables import find_table, table_location
from opendataflow.errors import JobFailed, Refused, UsageError
from opendataflow.execution.log import RunLog
from opendataflow.execution.pipeline import PROGRAM
from opendataflow.execution.session import Session
from opendataflow.execution.supervise import Stopped, supervise
from opendataflow.execution.work import Locations, Outcome
from opendataflow.execution.zygote import prepare
from opendataflow.intake.files import read_parts
from opendataflow.intake.log import IntakeLog
from opendataflow.intake.reader import IntakeReader
from opendataflow.intake.schema import StreamSchema
from opendataflow.project.address import stream_folder
from opendataflow.store.records.streams import Failure, committed_end, list_failed
from opendataflow.streams.run import run_stream
from opendataflow.streams.work import BatchWork, failures_of

MOST_SHOWN = 1_000  # rows of a dry run
DRY = "dry run"
_LEASE_SECONDS = 3600.0  # of nothing: nobody else can take it, and the guard wants one


class Sample(NamedTuple):
    outcome: Outcome
    rows: int
    failed: list[Failure]
    shown: list[dict[str, Any]]


def run_sample(session: Session, file: str, *, dry_run: bool) -> Sample:
    """Process the file's items, and wait until that is done."""
    if dry_run:
        return _DryRun(session).run(file)
    job, begun = session.job, time.monotonic()
    if get_settings(job).origin == KAFKA:
        raise UsageError(f"{job.jobid} takes its items from a topic; write them there, or try them with --dry-run")
    folder = os.path.abspath(stream_folder(session.address, job.project, job.jobid))
    start, end = _accept(folder, job, file, begin=committed_end(session.store, job))
    rows, last = 0, Outcome(0, "COMPLETE", job.jobid, None, "there are no items in it")
    try:
        for outcome in run_stream(session, drain=True):
            last = outcome
    except Refused:  # another runner has the stream: it does it
        while committed_end(session.store, job) < end and session.signals.asked is None:
            select.select([session.signals.wake_fd], [], [], 0.2)
        last = Outcome(0, "COMPLETE", job.jobid, None, "processed by the stream's own runner")
    failed = [
        Failure(one.offset, one.at, one.error, one.item)
        for one in list_failed(session.store, job)
        if start <= one.offset < end
    ]
    if committed_end(session.store, job) >= end:
        rows = end - start - len(failed)
    return Sample(last._replace(seconds=time.monotonic() - begun), rows, failed, [])


def _accept(folder: str, job: Job, file: str, *, begin: int = 0) -> tuple[int, int]:
    """Append the file's items to the log; the first offset, and the one after the last."""
    parts = list(read_parts(file, StreamSchema(get_settings(job).schema)))  # all of it, before the first is accepted
    log = IntakeLog(folder, begin=begin)
    try:
        start = end = log.end
        for number, part in enumerate(parts):
            accepted = log.append(part.data, part.count)
            start, end = (accepted.first if number == 0 else start), accepted.end
        return start, end
    finally:
        log.close()


class _DryRun:
    """The items of a file in a run that nobody claimed, and of which nothing is published."""

    def __init__(self, session: Session) -> None:
        self._session, self._job = session, session.job

    def run(self, file: str) -> Sample:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="dataflow-sample-") as folder:
            start, end = _accept(folder, self._job, file)
            if start == end:
                return Sample(Outcome(0, DRY, self._job.jobid, None, "there are no items in it"), 0, [], [])
            said = self._produce(folder, start, end)
            seconds = time.monotonic() - begun
            if said.get("error"):
                return Sample(Outcome(1, "FAILED", self._job.jobid, None, str(said["error"]), None, seconds), 0, [], [])
            failed = failures_of(IntakeReader(folder), said.get("aside") or [])
            outcome = Outcome(0, DRY, self._job.jobid, None, f"{end - start} items in {seconds:.1f} s", None, seconds)
            return Sample(outcome, int(said["rows"] or 0), failed, _rows(os.path.join(folder, "out")))

    def _produce(self, folder: str, start: int, end: int) -> dict[str, Any]:
        """What the child says of it."""
        session, result = self._session, os.path.join(folder, "result.json")
        session.tidy()
        claim = _claim(self._job, batch_id(start, end))
        work = BatchWork(
            self._job, session.address.work, folder, store=session.store, say=session.say,
            secrets=tuple(session.passwords.values()),
        )  # fmt: skip
        spec = work.dry_spec(claim, self._locations(claim, os.path.join(folder, "out")))
        task = os.path.join(folder, "task.json")
        with open(task, "w", encoding="utf-8") as file:
            json.dump({"specs": [spec], "results": [result]}, file)
        session.runner.fork_children(PROGRAM)
        session.runner.take_forked_guard()
        prepare(PROGRAM, self._job.definition.get("spark") or {})
        log = RunLog(os.path.join(folder, "log"), session.runner.shown, secrets=tuple(session.passwords.values()))

        def hear(message: dict[str, Any]) -> None:
            if "progress" in message:
                session.say(f"{self._job.jobid}: {message['progress']}")

        env = {**session.runner.lasting_environment(self._job, session.passwords), **spec["environment"]}
        ended = supervise(
            session.runner.guard, [task], env=env, cwd=self._job.home, log=log, signals=session.signals,
            lease_seconds=_LEASE_SECONDS, lease_from=time.monotonic(), renew=lambda: None,
            timeout_seconds=self._job.timeout_seconds, hear=hear,
        )  # fmt: skip
        log.end()
        log.close()
        if isinstance(ended, Stopped):
            raise JobFailed(f"stopped by signal {ended.signal}")
        try:
            with open(result, "rb") as written:
                return dict(read_json(written.read()))
        except FileNotFoundError:
            raise JobFailed(f"the Spark child ended: {ended}") from None

    def _locations(self, claim: Claim, out: str) -> Locations:
        from opendataflow.store.published import find_chunk
        from opendataflow.streams.state import find_missing

        missing = find_missing(self._session.store, self._job, has_looked=True)
        if missing is not None:
            raise Refused(f"{claim.jobid} cannot be run: {missing.told}; {missing.fix}", exit_code=10)
        found: Locations = {self._job.outputs[0].dataset[:2]: out}
        for link in self._job.inputs:
            dataset = link.dataset
            chunk = find_chunk(self._session.store, dataset, FULL)
            assert chunk is not None  # noqa: S101  none is missing
            is_table = find_table(dataset) is not None
            root = self._job.root
            found[dataset[:2]] = (
                table_location(dataset, FULL, root=root) if is_table else chunk.place(dataset, root=root)
            )
        return found


def _claim(job: Job, dataid: str) -> Claim:
    """Of nobody: nothing is in the store of it."""
    inputs = tuple(ChunkKey(link.dataset.project, link.dataset.datasetid, FULL) for link in job.inputs)
    return Claim(job.project, job.jobid, dataid, 0, 1, 0, job.lease_seconds, 0, 0.0, inputs)


def _rows(folder: str) -> list[dict[str, Any]]:
    from pyarrow import parquet

    names = sorted(name for name in os.listdir(folder) if name.endswith(".parquet")) if os.path.isdir(folder) else []
    found: list[dict[str, Any]] = []
    for name in names:
        found += parquet.read_table(os.path.join(folder, name)).to_pylist()
    return found[:MOST_SHOWN]
