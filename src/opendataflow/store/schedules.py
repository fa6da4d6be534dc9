"""Schedules that people set: kept in the store, honoured by every worker and tick, and by `apply`.

A schedule replaces the clock that a job reads by one of its own; what is declared is kept beside it. A slot is a row of
the job, so it is run once, whoever opens it and however often the schedule changes.
"""

import datetime
from collections.abc import Callable
from typing import NamedTuple

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.job import Job
from opendataflow.domain.registration import JobSpec, LinkSpec, Registration
from opendataflow.domain.schedules import (
    Declared,
    check_schedule,
    clock_dataset,
    declared_by,
    own_clock,
    rescheduled,
)
from opendataflow.errors import ConfigurationError, UsageError
from opendataflow.store.claims import LoopStore, Transaction
from opendataflow.store.job_rows import expect_dataids, relink

FILE = "schedules"
# Slots of a clock that have begun and are not open: by its dataset, its latest slot (of names so long), and now.
Begun = Callable[[Dataset, Callable[[int | None], str | None], datetime.datetime], list[str]]


class Schedule(NamedTuple):
    """By which clock a job goes, and who said so."""

    project: str
    jobid: str
    clock: str | None  # that holds; None: it goes by no clock
    declared: str | None  # by project.yml
    is_set: bool  # a person's, instead of the declared one
    set_by: str | None = None
    set_at: str | None = None
    reason: str = ""


# Looking --------------------------------------------------------------------------------------------------------------
def schedule_of(store: LoopStore, job: Job) -> Schedule:
    """By which clock the job goes."""
    rows = store.read("schedules_of", {"project": job.project, "jobid": job.jobid}, file="registry")
    holds = next((link.dataset.clock for link in job.inputs if link.dataset.clock is not None), None)
    if not rows:
        return Schedule(job.project, job.jobid, holds, holds, False)
    _, clock, declared, by, at, reason = rows[0]
    said = (str(by), str(at), str(reason)) if clock is not None else (None, None, "")
    return Schedule(job.project, job.jobid, holds, Declared.from_json(declared).clock, clock is not None, *said)


def list_set(store: LoopStore, *, project: str | None) -> dict[tuple[str, str], tuple[str | None, str | None]]:
    """Jobs that have a clock of their own, by project and name: what a person set, and what is declared."""
    return {
        (row[0], row[1]): (row[2], Declared.from_json(row[3]).clock)
        for row in store.read("all_schedules", {"project": project}, file=FILE)
    }


# Setting --------------------------------------------------------------------------------------------------------------
def check_new(store: LoopStore, job: Job, clock: str) -> None:
    """Raise UsageError when the job cannot go by this clock; nothing is changed."""
    _change(store, job, clock, reason="", dry_run=True)


def set_schedule(
    store: LoopStore, job: Job, clock: str | None, *, reason: str = "", begun: Begun = lambda *_: []
) -> Schedule:
    """Let the job go by this clock from its next slot on; None: by what project.yml declares.

    What was due before stays due: `begun` tells the slots of the clock before that nobody has opened yet. Once this has
    returned, nobody opens one of them any more.
    """
    store.again(lambda: _change(store, job, clock, reason=reason, begun=begun))
    return schedule_of(store, store.get_job(job.jobid, project=job.project))


class _DryRun(Exception):
    pass


def _change(
    store: LoopStore, job: Job, clock: str | None, *, reason: str, begun: Begun | None = None, dry_run: bool = False
) -> None:
    try:
        with store.transaction(file="registry") as tx:
            tx.rows("hold_project", {"project": job.project})
            # Slots are opened under this lock, too: whoever comes later sees the clock that holds then.
            tx.run("freeze_chunks", {})
            now = datetime.datetime.fromtimestamp(store.clock(), datetime.UTC)
            if begun is not None:
                _open_begun(store, tx, job, begun, now)
            _change_in(store, tx, job, clock, reason, now)
            if dry_run:
                raise _DryRun
    except _DryRun:
        return


def _open_begun(store: LoopStore, tx: Transaction, job: Job, begun: Begun, now: datetime.datetime) -> None:
    """Open the slots of the clock that held until now; `job` may be older than that."""
    spec, known = _read(tx, job)
    for link in spec.links:
        dataset = known.get(link.datasetid) if link[:2] == ("IN", job.project) else None
        if dataset is None or dataset.clock is None:
            continue
        of_dataset = {"project": job.project, "datasetid": dataset.datasetid}

        def latest(length: int | None, of: dict[str, str] = of_dataset) -> str | None:
            rows = tx.rows("latest_slot", of) if length is None else tx.rows("latest_of_form", {**of, "length": length})
            return rows[0][0] if rows else None

        store.open_slots_in(tx, dataset, begun(dataset, latest, now))


def _change_in(
    store: LoopStore, tx: Transaction, job: Job, clock: str | None, reason: str, now: datetime.datetime
) -> None:
    of = {"project": job.project, "jobid": job.jobid}
    rows = tx.rows("schedules_of", of)
    spec, known = _read(tx, job)
    clocks = {one.datasetid: one.clock for one in known.values() if one.clock is not None}
    declared = Declared.from_json(rows[0][2]) if rows else declared_by(job.project, spec, clocks)
    was = rows[0][1] if rows else None
    if clock is None and was is None:
        return
    if clock is not None:
        readers = [str(row[0]) for row in tx.rows("read_whole_by", of)]
        check_schedule(job.project, spec, declared, clock, clocks=clocks, read_whole_by=readers)
    text = clock or declared.clock
    own = own_clock(job.jobid)
    if text is not None:
        dataset = clock_dataset(job.project, job.jobid, text, since=now)
        tx.run("put_dataset", {**dataset._asdict(), "now": store.time()})
        if own not in known:
            if declared.clock is None:
                tx.run("forget_untouched", of)
            tx.run("keep_slots", {**of, "datasetid": own, "now": store.time()})
    becomes = rescheduled(job.project, spec, declared, clock, clocks=clocks)
    relink(tx, job.project, spec, becomes, now=store.time())
    if text is not None and declared.clock is None and own not in known:
        tx.run("forget_untouched", of)  # a slot of an earlier schedule is not adopted
    if text is None:
        tx.run("forget_untouched", of)
        tx.run("delete_dataset", {"project": job.project, "datasetid": own})
        tx.run("delete_schedule", of)
        expect_dataids(tx, job.project, becomes, now)
    else:
        told = {"clock": clock, "declared": declared.to_json(), "set_by": store.actor, "reason": reason}
        tx.run("put_schedule", {**of, **told, "now": store.time()})
    tx.run("record_schedule", {**of, "was": was or declared.clock, "becomes": text, "reason": reason})


def _read(tx: Transaction, job: Job) -> tuple[JobSpec, dict[str, Dataset]]:
    """The job as it is registered, and the datasets of its project."""
    of = {"project": job.project}
    row = next((row for row in tx.rows("jobs_of", of) if row[1] == job.jobid), None)
    if row is None:
        raise UsageError(f"job {job.jobid!r} is not registered any more; see `dataflow job list`")
    links = tuple(LinkSpec(*link) for jobid, *link in tx.rows("job_links_of", of) if jobid == job.jobid)
    _, jobid, *fields, strict, catchup = row
    known = {one[1]: Dataset(*one) for one in tx.rows("datasets_of", of)}
    return JobSpec(jobid, *fields, links, strict, catchup), known  # type: ignore[call-arg]


# Registration ---------------------------------------------------------------------------------------------------------
def with_schedules(store: LoopStore, tx: Transaction, wanted: Registration) -> Registration:
    """What is to be registered where people have set schedules: they hold until they are removed.

    What is declared is kept beside them. ConfigurationError when a job can no longer go by what was set.
    """
    tx.rows("hold_project", {"project": wanted.project})
    rows = {str(row[0]): row for row in tx.rows("schedules_of", {"project": wanted.project, "jobid": None})}
    if not rows:
        return wanted
    now = datetime.datetime.fromtimestamp(store.clock(), datetime.UTC)
    known = {one[1]: Dataset(*one) for one in tx.rows("datasets_of", {"project": wanted.project})}
    clocks = {one.datasetid: one.clock for one in wanted.datasets if one.clock is not None}
    jobs, datasets = [], []
    for job in wanted.jobs:
        row = rows.pop(job.jobid, None)
        if row is None:
            jobs.append(job)
            continue
        declared = declared_by(wanted.project, job, clocks)
        if row[1] is not None:
            _check(wanted, job, declared, row[1], clocks)
        text = row[1] or declared.clock
        of = {"project": wanted.project, "jobid": job.jobid}
        if text is None:
            tx.run("delete_schedule", of)
        else:
            tx.run("put_declared", {**of, "declared": declared.to_json()})
            before = known.get(own_clock(job.jobid))
            is_same = before is not None and before.clock == text
            datasets.append(before if is_same else clock_dataset(wanted.project, job.jobid, text, since=now))
        jobs.append(rescheduled(wanted.project, job, declared, row[1], clocks=clocks))
    for jobid in rows:
        tx.run("delete_schedule", {"project": wanted.project, "jobid": jobid})
    return wanted._replace(jobs=tuple(jobs), datasets=(*wanted.datasets, *(one for one in datasets if one)))


def _check(wanted: Registration, job: JobSpec, declared: Declared, clock: str, clocks: dict[str, str]) -> None:
    made = {link.datasetid for link in job.links if link.itemtype == "OUT"}
    readers = [
        other.jobid for other in wanted.jobs for link in other.links
        if link.itemtype == "IN" and link.map == "full" and link.datasetid in made
        and link.dataset_project == wanted.project
    ]  # fmt: skip
    try:
        check_schedule(wanted.project, job, declared, clock, clocks=clocks, read_whole_by=readers)
    except UsageError as error:
        raise ConfigurationError(
            f"job {job.jobid} was given the schedule `{clock}`, which does not fit what project.yml says now: {error}; "
            f"`dataflow schedule {job.jobid} --default` removes it"
        ) from None


def told(schedule: Schedule) -> str:
    """By which clock a job goes, in words."""
    if schedule.is_set:
        beside = f"instead of `{schedule.declared}`" if schedule.declared else "where project.yml declares none"
        why = f" ({schedule.reason})" if schedule.reason else ""
        return f"`{schedule.clock}`, set by {schedule.set_by} at {schedule.set_at}{why}, {beside}"
    return f"`{schedule.clock}`, as declared" if schedule.clock else "none: it runs when its data is there"
