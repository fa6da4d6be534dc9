"""What has become due by now: slots of clocks that began, dataids that are expected, inputs to be mapped."""

import json
import time
from collections.abc import Iterator

from opendataflow.domain.job import Job
from opendataflow.store.loop import LoopStore

_LENGTHS = {"daily": 10, "hourly": 13, "monthly": 7}  # of a dataid: as much of a UTC time as names its slot


def make_due(store: LoopStore, job: Job) -> None:
    """Give the job a row for everything that is due; cheap when nothing is."""
    if any(link.dataset.clock is not None for link in job.inputs):
        _open_slots(store, job)
    _expect(store, job)
    if job.mapped:
        store.map_new(job)


def _open_slots(store: LoopStore, job: Job) -> None:
    import datetime

    from opendataflow.domain.clocks import find_clock
    from opendataflow.runner.slots import due_slots, slot_start

    now = datetime.datetime.fromtimestamp(store.clock(), datetime.UTC)
    for link in job.inputs:
        if link.dataset.clock is None:
            continue
        name, _, zone = link.dataset.clock.partition(" @")
        clock = find_clock(name, zone or None)
        if clock is None:
            continue
        last = store.latest_slot(link.dataset)
        due = due_slots(clock, after=slot_start(clock, last) if last is not None else None, now=now)
        if due:
            store.open_slots(link.dataset, [name for name, _ in due])
        latest = due[-1][0] if due else last
        if job.catchup == "latest" and latest is not None:
            store.skip_missed(job, latest)


def _expect(store: LoopStore, job: Job) -> None:
    if job.partitions is None:
        return
    kind = next((kind for kind in (*_LENGTHS, "sequence") if f'"{kind}"' in job.partitions), None)
    if kind is None:
        return  # other schemes are complete when they are applied
    highest = None
    if kind == "sequence":
        rows = store.read("highest_open", {"project": job.project, "jobid": job.jobid})
        highest = rows[0][0] if rows else None
        if highest is None:
            return
    elif job.expected_upto is not None:
        current = time.strftime("%Y-%m-%dT%H", time.gmtime(store.clock()))[: _LENGTHS[kind]]
        if _after(job.expected_upto, kind) >= current:
            return  # the slot after the last expected one is not over yet
    import datetime

    from opendataflow.domain.partitions import expected_dataids

    now = datetime.datetime.fromtimestamp(store.clock(), datetime.UTC)
    due = expected_dataids(json.loads(job.partitions), now=now, after=job.expected_upto, highest=highest)
    first = next(due, None)
    if first is not None:
        store.expect(job, _chain(first, due))


def _after(dataid: str, kind: str) -> str:
    """The slot after this one, by its own text."""
    if kind == "monthly":
        year, month = int(dataid[:4]), int(dataid[5:7])
        return f"{year + month // 12:04d}-{month % 12 + 1:02d}"
    step = 86400 if kind == "daily" else 3600
    form = "%Y-%m-%d" if kind == "daily" else "%Y-%m-%dT%H"
    import calendar

    return time.strftime(form, time.gmtime(calendar.timegm(time.strptime(dataid, form)) + step))


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest
