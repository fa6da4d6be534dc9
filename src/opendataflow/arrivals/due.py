"""What has become due by now: slots of clocks that began, dataids that are expected, inputs to be mapped."""

import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.job import Job
from opendataflow.domain.partitions.scheme import expected_dataids, kind_of
from opendataflow.store.claims import LoopStore

if TYPE_CHECKING:
    import datetime

    from opendataflow.domain.partitions.clocks import Clock
    from opendataflow.store.schedules import Schedule

    Reading = tuple[Clock | None, datetime.datetime | None, str | None]

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

    from opendataflow.arrivals.clock_slots import due_slots

    now = datetime.datetime.fromtimestamp(store.clock(), datetime.UTC)
    for link in job.inputs:
        if link.dataset.clock is None:
            continue
        clock, after, last = read_clock(store, link.dataset)
        if clock is None:
            continue
        due = due_slots(clock, after=after, now=now)
        if due:
            store.open_slots(link.dataset, [name for name, _ in due])
        latest = due[-1][0] if due else last
        if job.catchup == "latest" and latest is not None:
            store.skip_missed(job, latest)


def read_clock(store: LoopStore, dataset: Dataset) -> "Reading":
    """The clock, the moment after which its next slot begins (None: its current one is due), and its last slot."""
    of_dataset = {"project": dataset.project, "datasetid": dataset.datasetid}

    def latest(length: int | None) -> str | None:
        if length is None:
            return store.latest_slot(dataset)
        rows = store.read("latest_of_form", {**of_dataset, "length": length}, file="registry")
        return str(rows[0][0]) if rows else None

    return _read(dataset, latest)


def _read(dataset: Dataset, latest: Callable[[int | None], str | None]) -> "Reading":
    from opendataflow.arrivals.clock_slots import slot_start
    from opendataflow.domain.partitions.clocks import find_clock
    from opendataflow.domain.schedules import find_since, form

    name, _, zone = (dataset.clock or "").partition(" @")
    clock = find_clock(name, zone or None)
    if clock is None:
        return None, None, None
    since = find_since(dataset)
    last = latest(None if since is None else form(clock))
    begun = slot_start(clock, last) if last is not None else None
    return clock, max((one for one in (since, begun) if one is not None), default=None), last


def begun_slots(dataset: Dataset, latest: Callable[[int | None], str | None], now: "datetime.datetime") -> list[str]:
    """Slots of the clock that have begun and are not open: as `change_schedule` asks inside its transaction.

    None of a clock that nobody has looked at yet: a new job does not begin by what it was never meant to do.
    """
    from opendataflow.arrivals.clock_slots import due_slots

    clock, after, _ = _read(dataset, latest)
    if clock is None or after is None:
        return []
    return [name for name, _ in due_slots(clock, after=after, now=now)]


def change_schedule(store: LoopStore, job: Job, clock: str | None, *, reason: str = "") -> "Schedule":
    """Let the job go by this clock (None: as declared) from its next slot on; what has begun by now is due."""
    from opendataflow.store.schedules import set_schedule

    return set_schedule(store, job, clock, reason=reason, begun=begun_slots)


def next_slot_of(store: LoopStore, job: Job) -> "tuple[str, datetime.datetime] | None":
    """The slot that the job's clock opens next, and when; None for a job without a clock."""
    import datetime

    from opendataflow.arrivals.clock_slots import next_slot

    for link in job.inputs:
        if link.dataset.clock is not None:
            clock, after, _ = read_clock(store, link.dataset)
            now = datetime.datetime.fromtimestamp(store.clock(), datetime.UTC)
            return next_slot(clock, after=max(now, after or now)) if clock is not None else None
    return None


def _expect(store: LoopStore, job: Job) -> None:
    if job.partitions is None:
        return
    kind = kind_of(job.partitions)
    if kind not in _LENGTHS and kind != "sequence":
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
