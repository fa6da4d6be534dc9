"""Doing parts of a stream again: items that were set aside, everything since some time, and a stream that FAILED."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from opendataflow.domain.job import Job, JobStatus
from opendataflow.domain.streams import DATASET, KAFKA, batch_range, event_id, get_settings
from opendataflow.errors import UsageError
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.streams import (
    FAILED,
    RUNNING,
    STOPPED,
    FailedItem,
    batches_since,
    begin_anew,
    committed_end,
    find_batch_of,
    first_offset_since,
    get_stream,
    list_failed,
    list_failed_batches,
    mark_replayed,
    report,
    resubmit_since,
)
from opendataflow.store.rows import utc_text

AT_ONCE = 1_000


def find_failed_items(store: LoopStore, job: Job, offsets: Sequence[int] | None) -> list[FailedItem]:
    """The items that are set aside, or those of them that are named; UsageError for one that is not."""
    found = list_failed(store, job, offsets=offsets)
    known = {one.offset: one for one in found}
    for offset in offsets or ():
        if offset not in known:
            raise UsageError(f"item {offset} of {job.jobid} is not set aside; see `dataflow stream failed {job.jobid}`")
    return found


def replay_failed(store: LoopStore, job: Job, folder: str, items: Sequence[FailedItem]) -> dict[int, str]:
    """Append the items to the log again, and note under which id; asked again after a crash, it sends nothing twice.

    Records of a topic stay what they are: the batches that left them out are made again.
    """
    if get_settings(job).origin == KAFKA:
        return _make_again(store, job, items)
    from opendataflow.intake.log import IntakeLog, Request
    from opendataflow.intake.schema import StreamSchema

    schema = StreamSchema(get_settings(job).schema)
    requests = []
    for one in items:
        checked = schema.items_of([json.loads(one.item)])
        requests.append(Request(checked.data, checked.count, f"replay-{one.offset}"))
    sent: dict[int, str] = {}
    log = IntakeLog(folder, begin=committed_end(store, job))
    try:
        for at in range(0, len(requests), AT_ONCE):
            some = items[at : at + AT_ONCE]
            for one, accepted in zip(some, log.append_all(requests[at : at + AT_ONCE]), strict=True):
                if isinstance(accepted, Exception):
                    raise accepted
                sent[one.offset] = event_id(job.jobid, accepted.first)
            mark_replayed(store, job, {one.offset: sent[one.offset] for one in some})
    finally:
        log.close()
    return sent


def _make_again(store: LoopStore, job: Job, items: Sequence[FailedItem]) -> dict[int, str]:
    from opendataflow.store.operations import Key, resubmit

    if get_settings(job).returns == DATASET:
        begin_anew(store, job)
        return {one.offset: event_id(job.jobid, one.offset) for one in items}
    dataids = {find_batch_of(store, job, one.offset) for one in items} - {None}
    keys = [Key(job.project, job.jobid, str(dataid)) for dataid in sorted(map(str, dataids))]
    resubmit(store, keys, only=frozenset({JobStatus.COMPLETE, JobStatus.FAILED}))
    return {one.offset: event_id(job.jobid, one.offset) for one in items}


def replay_since(store: LoopStore, job: Job, folder: str, moment: float, *, dry_run: bool) -> list[dict[str, Any]]:
    """Have what was accepted at or after the moment made again; UsageError when that is not there any more."""
    if get_settings(job).origin == KAFKA:
        if get_settings(job).returns == DATASET:
            return _build_anew(store, job, committed_end(store, job), dry_run=dry_run)
        found = first_offset_since(store, job, utc_text(moment))
        return resubmit_since(store, job, found, dry_run=dry_run) if found is not None else []
    from opendataflow.intake.reader import IntakeReader

    reader = IntakeReader(folder)
    if get_settings(job).returns == DATASET:
        if (first := reader.first_offset()) > 0:
            raise UsageError(
                f"{job.jobid} returns the whole dataset, which is built from its first item, and the log begins with "
                f"item {first}: the rest is gone after `retention`. Begin with a first source that holds what they made"
            )
        return _build_anew(store, job, reader.durable_end(), dry_run=dry_run)
    offset, first = reader.offset_since(moment), reader.first_offset()
    batches = batches_since(store, job, offset)
    if batches:
        start = batch_range(batches[0][0])[0]
        if start < first or start > offset:
            raise UsageError(
                f"what came since then begins with item {min(start, offset)}, and what can be made again with item "
                f"{max(first, start)}: `dataflow clean` removed the rest after `retention`; give a later time"
            )
    return resubmit_since(store, job, offset, dry_run=dry_run)


def _build_anew(store: LoopStore, job: Job, end: int, *, dry_run: bool) -> list[dict[str, Any]]:
    """Have the whole dataset made from its first item again: each item changes what the next one finds."""
    if committed_end(store, job) == 0:
        return []
    if not dry_run:
        begin_anew(store, job)
    whole = {"project": job.project, "jobid": job.jobid, "dataid": f"items 0 to {end - 1}"}
    return [{**whole, "before": "COMPLETE", "status": "PENDING", "again": False, "cascade": False, "if_changed": False}]


def resume_stream(store: LoopStore, job: Job) -> Iterator[str]:
    """End the stream's pause, and have a batch that FAILED tried again; what was done, a line each."""
    from opendataflow.store.operations import Key, resubmit
    from opendataflow.store.records.workers import find_pause_of_all, resume

    done = resume(store, job)
    failed = list_failed_batches(store, job)
    if failed:
        keys = [Key(job.project, job.jobid, dataid) for dataid in failed]
        resubmit(store, keys, only=frozenset({JobStatus.FAILED}))
        yield f"tried again: {', '.join(failed[:5])}{' …' if len(failed) > 5 else ''}"
    state = get_stream(store, job.jobid, project=job.project).state
    if state == FAILED:
        report(store, job, state=STOPPED)
    goes_on = "goes on" if state == RUNNING else f"goes on with `dataflow stream run {job.jobid}`, or a worker"
    yield f"{job.jobid} {goes_on}" if done or failed or state == FAILED else f"{job.jobid} was not paused"
    by, until = find_pause_of_all(store)
    if by is not None:
        yield f"but everything is paused by {by}{f' until {until}' if until else ''}; `dataflow resume all` ends it"
