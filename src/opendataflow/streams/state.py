"""How streams stand: what the store knows, and what the log on this machine has beyond it."""

import datetime
import os
from typing import Any, NamedTuple

from opendataflow.domain.job import Job
from opendataflow.domain.partitions.scheme import FULL
from opendataflow.domain.streams import INTAKE, Settings
from opendataflow.domain.tables import find_table
from opendataflow.errors import DataflowError
from opendataflow.project.address import Address, stream_folder
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.streams import FAILED, RUNNING, StreamRow, counters, list_streams

GONE_SECONDS = 30.0  # a runner says every few seconds that it is there
LAGS_SECONDS = 60.0
PAUSED, GONE = "PAUSED", "GONE"


class StreamStatus(NamedTuple):
    project: str
    stream: str
    state: str  # NEW, RUNNING, STOPPED, FAILED; PAUSED: by somebody; GONE: its runner is not heard of any more
    reason: str
    accepted: int  # items that are durable
    processed: int  # items that are dealt with: published or set aside
    failed: int  # items that are set aside and were not sent again
    replayed: int
    rejected: int  # rows of watched files, records of a topic that did not fit; as far as the log is on this machine
    lag_items: int
    lag_seconds: float  # since the oldest item was accepted that is not dealt with
    rate: float  # items a second, over the last minute
    sealed_to: str | None
    has_token: bool
    owner: str | None
    seen_at: str | None
    blocked_by: str  # the source that it waits for, and why; '' where none is missing
    fix: str  # the command that would help it on; '' where nothing is wrong


class Missing(NamedTuple):
    """A static source of a stream that is not READY: no batch can be made without it."""

    told: str
    fix: str


def stream_status(store: LoopStore, address: Address, row: StreamRow) -> StreamStatus:
    """How one stream stands now; where its log is elsewhere, as its runner last said."""
    job = store.get_job(row.jobid, project=row.project)
    counted = counters(store, job)
    folder = stream_folder(address, row.project, row.jobid)
    accepted, oldest = _look(folder, counted.committed)
    if accepted is None:
        accepted = max(row.accepted, counted.committed)
        oldest = _seconds(row.oldest_at) if row.accepted > counted.committed else None
    lag = max(accepted - counted.committed, 0)
    waited = max(store.clock() - oldest, 0.0) if lag and oldest is not None else 0.0
    state, reason = _state(row, store.clock())
    missing = find_missing(store, job)
    status = StreamStatus(
        row.project, row.jobid, state, reason, accepted, counted.committed, counted.failed, counted.replayed,
        _rejected(row.settings, folder), lag, round(waited, 3), round(counted.rate, 3), row.sealed_to,
        row.token_hash is not None, row.owner, row.seen_at, missing.told if missing else "", "",
    )  # fmt: skip
    return status._replace(fix=_fix(status, missing))


def all_streams(store: LoopStore, address: Address, *, project: str | None) -> list[StreamStatus]:
    return [stream_status(store, address, row) for row in list_streams(store, project=project)]


def find_missing(store: LoopStore, job: Job, *, has_looked: bool = False) -> Missing | None:
    """The first static source that is not READY; None when all are.

    One that the stream's runner takes in by itself is missing only once somebody `has_looked` for it.
    """
    from opendataflow.domain.tables import is_taken_in
    from opendataflow.store.published import find_chunk, find_producer

    for link in job.inputs:
        dataset = link.dataset
        chunk = find_chunk(store, dataset, FULL)
        comes_by_itself = chunk is None and not has_looked and is_taken_in(dataset)
        if comes_by_itself or (chunk is not None and str(chunk.status) == "READY"):
            continue
        told = f"{dataset.datasetid}/{FULL} is {chunk.status if chunk is not None else 'not there yet'}"
        producer = find_producer(store, dataset)
        if producer is not None:
            return Missing(f"{told}; {producer.jobid} makes it", f"`dataflow why {producer.jobid} {FULL}`")
        can_scan = dataset.location is not None or find_table(dataset) is not None
        scan = f"`dataflow scan {dataset.datasetid}` or " if can_scan else ""
        return Missing(told, f"when it is there: {scan}`dataflow ready {dataset.datasetid} {FULL}`")
    return None


def _rejected(settings: Settings, folder: str) -> int:
    if settings.origin == INTAKE:
        return 0
    from opendataflow.intake.rejected import count_rejected

    return count_rejected(folder)


def _look(folder: str, committed: int) -> tuple[int | None, float | None]:
    """The end of the log and when the first item after the committed ones was accepted; None where it is not here."""
    if not os.path.isdir(os.path.join(folder, "log")):
        return None, None
    from opendataflow.intake.reader import IntakeReader

    reader = IntakeReader(folder)
    end = reader.durable_end()
    try:
        return end, reader.accepted_at(committed) if end > committed else None
    except DataflowError:  # what is wrong with the log is its runner's to say
        return end, None


def _state(row: StreamRow, now: float) -> tuple[str, str]:
    if row.state == FAILED:
        return FAILED, row.reason
    if row.paused_by is not None:
        return PAUSED, f"by {row.paused_by}" + (f" until {row.paused_until}" if row.paused_until else "")
    seen = _seconds(row.seen_at)
    if row.state == RUNNING and (seen is None or now - seen > GONE_SECONDS):
        return GONE, f"{row.owner} was last seen at {row.seen_at}"
    return row.state, row.reason


def _seconds(text: str | None) -> float | None:
    return None if text is None else datetime.datetime.fromisoformat(text).timestamp()


# What is wrong with them ----------------------------------------------------------------------------------------------
def stream_blockers(store: LoopStore, address: Address, *, project: str | None) -> list[dict[str, Any]]:
    """Streams that failed, that nobody runs though items wait, or that lag: as `blockers` tells causes."""
    found = []
    for one in all_streams(store, address, project=project):
        lags = one.lag_items > 0 and (one.lag_seconds > LAGS_SECONDS or one.state not in (RUNNING, PAUSED))
        if one.state != FAILED and (one.state == PAUSED or not lags):
            continue  # a pause is told as that of any job
        waiting = f"items {one.processed} to {one.accepted - 1}" if one.lag_items else "nothing"
        told = f"{waiting} wait" if one.lag_items else "nothing waits"
        reason = f"the stream is {one.state}{f': {one.reason}' if one.reason else ''}; {told}"
        if one.lag_items:
            reason += f", the oldest for {one.lag_seconds:,.0f} s"
        reason += f"; {one.blocked_by}" if one.blocked_by else ""
        cause = "STREAM_FAILED" if one.state == FAILED else "STREAM_LAGS"
        found.append({
            "cause": cause, "project": one.project, "name": one.stream, "dataids": [waiting], "reason": reason,
            "blocks": 0, "jobs": [], "fix": one.fix,
        })  # fmt: skip
    return found


def describe(status: StreamStatus) -> str:
    """Its state and why: NEW, planes/full is not there yet; PAUSED by anna."""
    link = " " if status.state == PAUSED else ", "
    found = f"{status.state}{link}{status.reason}" if status.reason else status.state
    return f"{found}, {status.blocked_by}" if status.blocked_by else found


def _fix(status: StreamStatus, missing: Missing | None) -> str:
    name = status.stream
    if status.state == FAILED:
        return (
            f"fix the cause, then `dataflow stream resume {name}`, and `dataflow stream run {name}` if no worker does"
        )
    if status.state == PAUSED:
        return f"`dataflow stream resume {name}`"
    if missing is not None:
        return missing.fix
    if status.state != RUNNING:
        return f"`dataflow stream run {name}`, or a worker: `dataflow worker`"
    if status.lag_items and status.lag_seconds > LAGS_SECONDS:
        return f"see what takes its time: `dataflow runs {name}`; a larger `max_batch` costs less per item"
    if status.lag_items and status.reason:
        return f"`dataflow runs {name}` says more"
    if status.failed or status.rejected:
        return f"`dataflow stream failed {name}`"
    return ""


def describe_source(settings: Settings) -> str:
    """Where its items come from, for people."""
    if settings.origin == INTAKE:
        return "POST and `dataflow stream send`"
    if "folder" in settings.source:
        return f"{settings.source['format']} files in {settings.source['folder']}"
    return f"Kafka topic {settings.source['kafka']['topic']}"
