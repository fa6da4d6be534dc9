"""One look at what somebody must be told: what failed, is late, is stuck, or is well again.

Many may look; one of them does, a few times a minute. What failed is found in the history after the last look, what is
late from the slots whose time came since, what is stuck among the live runs and what is parked: none of it grows with
what is done.
"""

import datetime
import json
from collections.abc import Iterator

from opendataflow.arrivals.clock_slots import due_slots
from opendataflow.domain.alerts import EXPIRED_SECONDS, STUCK_LEAST_SECONDS, Event, Finding, Pace, stuck_limit
from opendataflow.domain.partitions.clocks import find_clock
from opendataflow.domain.partitions.scheme import TIME_KINDS, kind, latest_expected, slot_of
from opendataflow.domain.runs.refusals import find_refusal
from opendataflow.errors import UsageError
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.alerts import (
    AT_ONCE,
    JobKey,
    Notified,
    Seen,
    Stuck,
    Watched,
    clean,
    find_end,
    find_row,
    last_seconds,
    list_clocks,
    list_notified,
    list_paces,
    live_runs,
    newly_failed,
    open_stuck,
    over_alerts,
    record,
    refused_rows,
    take_look,
    watched,
)
from opendataflow.store.records.streams import FAILED, RUNNING, StreamRow, committed_end, list_streams
from opendataflow.store.records.workers import find_pause_of_all
from opendataflow.store.rows import Row

LOOK_SECONDS = (1.0, 10.0)  # between two looks while things change: the least and the most
CLOCK_SECONDS = (2.0, 60.0)  # between two looks at what only time changes
REFUSED_SECONDS = 3600.0  # what the questions refuse for so long is stuck, unless the job says when
MOST_CHANGES = 1_000_000  # of the history; what is further back is nobody's news
ITEMS = "items"  # of a stream, where an alert names a dataid
MOST_SLOTS = 48  # of a job that are looked at when nobody looked for long


class Pauses:
    """How long to wait between two looks, by what the jobs ask for."""

    def __init__(self, jobs: dict[JobKey, Notified]) -> None:
        gather = min((job.settings.gather for job in jobs.values()), default=30.0)
        self.look = min(max(gather / 3, LOOK_SECONDS[0]), LOOK_SECONDS[1])
        self.clock = min(max(gather * 2, CLOCK_SECONDS[0]), CLOCK_SECONDS[1])


def look(store: LoopStore, *, jobs: dict[JobKey, Notified] | None = None, whatever: bool = False) -> Watched:
    """Look, if it is time and nobody else does; `whatever`: at once, for one who is about to go. How things stand then.

    `jobs` are those who tell somebody, where the caller knows them.
    """
    at = watched(store)
    jobs = list_notified(store) if jobs is None else jobs
    pauses = Pauses(jobs)
    has_changed, is_clock = at.history_end != at.history_upto, at.late_age >= pauses.clock
    if not whatever and (at.look_in > 0 or not (has_changed or is_clock)):
        return at
    if not jobs and at.history_end - at.history_upto < MOST_CHANGES:
        return at
    if not take_look(store, seconds=pauses.look) and not whatever:
        return at
    seen = _Look(store, jobs, at).see(has_changed=has_changed, is_clock=is_clock or whatever)
    hour_before, hour = (int(store.clock() - age) // 3600 for age in (at.late_age, 0.0))
    if record(store, seen, jobs) and is_clock and hour_before != hour:
        clean(store)
    return watched(store)


class _Look:
    def __init__(self, store: LoopStore, jobs: dict[JobKey, Notified], at: Watched) -> None:
        self._store, self._jobs, self._at = store, jobs, at
        self._begun = store.clock()
        self._paces: dict[JobKey, Pace] = {}

    def see(self, *, has_changed: bool, is_clock: bool) -> Seen:
        was, upto = self._at.history_upto, self._at.history_upto
        findings: list[Finding] = []
        seen = Seen(was, upto)
        if has_changed:
            upto = find_end(self._store)
            after = max(was, upto - MOST_CHANGES)
            rows = newly_failed(self._store, after, upto) if self._jobs else []
            if len(rows) == AT_ONCE:
                upto = rows[-1][0]  # the rest in the next look
            findings += self._failed(rows)
            seen = seen._replace(upto=upto, over=over_alerts(self._store), paces=self._new_paces(after, upto))
        if is_clock:
            stuck = [*self._stuck(), *self._stuck_streams()]
            refused = list(self._refused())
            known = open_stuck(self._store)
            told = {(one.owner, one.name, one.dataid, one.runid): one for one in known}
            new = [one for one in stuck if _key(one) not in told]
            first_seen = [one for one in refused if _key(one) not in told]
            long_so = [one for one in refused if self._is_long(one, told.get(_key(one)))]
            still = {_key(one) for one in (*stuck, *refused)}
            gone = [one for one in known if (one.owner, one.name, one.dataid, one.runid) not in still]
            findings += [*new, *long_so, *self._late()]
            late = self._begun - self._store.clock()
            seen = seen._replace(watched=first_seen, ended=gone, late_upto=late)
            if not has_changed:
                seen = seen._replace(over=over_alerts(self._store))
        return seen._replace(findings=list(dict.fromkeys(findings)))

    # What failed ------------------------------------------------------------------------------------------------
    def _failed(self, rows: list[Row]) -> Iterator[Finding]:
        for _, project, jobid, dataid, runid, message in rows:
            if (project, jobid) in self._jobs:
                yield Finding(
                    Event.FAILED, project, jobid, "job", project, jobid, dataid, message or "it failed", runid
                )

    def _new_paces(self, after: int, upto: int) -> dict[JobKey, Pace]:
        took = {key: one for key, one in last_seconds(self._store, after, upto).items() if key in self._jobs}
        if not took:
            return {}
        known = list_paces(self._store)
        return {key: known.get(key, Pace(0.0, 0)).after(seconds) for key, seconds in took.items()}

    # What is stuck ----------------------------------------------------------------------------------------------
    def _stuck(self) -> Iterator[Finding]:
        runs = [row for row in live_runs(self._store) if self._tells((row[0], row[1]), Event.STUCK)]
        paces = list_paces(self._store) if runs else {}
        for project, jobid, dataid, runid, owner, running, expired in runs:
            limit = stuck_limit(self._jobs[project, jobid].settings, paces.get((project, jobid)))
            reason = ""
            if expired is not None and expired >= EXPIRED_SECONDS:
                reason = f"its lease ran out {_minutes(expired)} ago, and nobody gives the work back; start a worker"
            elif limit is not None and running is not None and running >= limit:
                reason = f"RUNNING for {_minutes(running)} by {owner}, and {_minutes(limit)} is long for it"
            if reason:
                yield Finding(Event.STUCK, project, jobid, "job", project, jobid, dataid, reason, runid)

    def _stuck_streams(self) -> Iterator[Finding]:
        """Streams that failed, whose runner is gone, or whose items wait for long: by what their runners last said."""
        if not self._jobs:
            return
        for row in list_streams(self._store, project=None):
            key = (row.project, row.jobid)
            if row.paused_by is not None or not self._tells(key, Event.STUCK):
                continue
            limit = self._jobs[key].settings.stuck_after or STUCK_LEAST_SECONDS
            if reason := self._why_stream(row, limit):
                yield Finding(Event.STUCK, *key, "job", *key, ITEMS, reason)

    def _why_stream(self, row: StreamRow, limit: float) -> str:
        if row.state == FAILED:
            return f"the stream is FAILED: {row.reason}; fix the cause, then `dataflow stream resume {row.jobid}`"
        unseen = self._since(row.seen_at)
        if row.state == RUNNING and unseen is not None and unseen >= EXPIRED_SECONDS:
            return f"{row.owner} runs the stream, and was not heard of for {_minutes(unseen)}; start a worker"
        waited = self._since(row.oldest_at)
        if waited is None or waited < limit:
            return ""
        behind = row.accepted - committed_end(self._store, self._store.get_job(row.jobid, project=row.project))
        if behind <= 0:
            return ""
        return f"{behind:,} items wait, the oldest for {_minutes(waited)}; the stream is {row.state}"

    def _since(self, moment: str | None) -> float | None:
        return None if moment is None else self._begun - datetime.datetime.fromisoformat(moment).timestamp()

    def _refused(self) -> Iterator[Finding]:
        for project, jobid, dataid, refusal in refused_rows(self._store):
            found = find_refusal(refusal) if self._tells((project, jobid), Event.STUCK) else None
            if found is not None:
                reason = f"refused again and again: {found.code}: {found.evidence}"
                yield Finding(Event.STUCK, project, jobid, "job", project, jobid, dataid, reason)

    def _is_long(self, one: Finding, seen: Stuck | None) -> bool:
        limit = self._jobs[one.project, one.jobid].settings.stuck_after or REFUSED_SECONDS
        return seen is not None and seen.messageid == 0 and seen.age >= limit

    def _tells(self, key: JobKey, event: Event) -> bool:
        return key in self._jobs and event in self._jobs[key].settings.on

    # What is late -----------------------------------------------------------------------------------------------
    def _late(self) -> Iterator[Finding]:
        wanted = [one for key, one in self._jobs.items() if self._tells(key, Event.LATE) and not one.is_paused]
        if not wanted or find_pause_of_all(self._store)[0] is not None:
            return
        now = datetime.datetime.fromtimestamp(self._begun, datetime.UTC)
        before = now - datetime.timedelta(seconds=max(self._at.late_age, 0.0))
        clocks = list_clocks(self._store)
        for job in wanted:
            for dataid in _became_late(job, clocks.get((job.project, job.jobid)), before, now):
                yield from self._why_late(job, dataid)

    def _why_late(self, job: Notified, dataid: str) -> Iterator[Finding]:
        """The chunks that it waits for, or the job itself where nothing is missing but a run."""
        row = find_row(self._store, job.project, job.jobid, dataid)
        status = str(row[0]) if row is not None else "PENDING"
        if status in ("COMPLETE", "FAILED", "HOLD"):
            return
        of_job = Finding(Event.LATE, job.project, job.jobid, "job", job.project, job.jobid, dataid)
        if row is not None and row[1] > 0:
            known = self._store.get_job(job.jobid, project=job.project)
            candidate = self._store.find_candidate(known, dataid)
            missing = [one for one in (candidate.inputs if candidate else ()) if one.status != "READY"]
            for one in missing:
                if one.status == "FAILED":
                    continue  # that is told of its producer
                told = f"is {one.status or 'not there'}, and {job.jobid} waits for it"
                yield of_job._replace(
                    subject="dataset", owner=one.key[0], name=one.key[1], dataid=one.key[2], reason=told
                )
            if missing:
                return
        reasons = {"RUNNING": f"still RUNNING by {row[3] if row is not None else '?'}"}
        yield of_job._replace(reason=reasons.get(status, f"{status}: its inputs are there, and nobody has run it"))


def _became_late(job: Notified, clock: str | None, before: datetime.datetime, now: datetime.datetime) -> list[str]:
    """The dataids that had to be done between these moments, by the job's clock or by its partitions."""
    grace = datetime.timedelta(seconds=job.settings.late_after)
    try:
        if clock is not None:
            name, _, zone = clock.partition(" @")
            found = find_clock(name, zone or None)
            return [] if found is None else [one for one, _ in due_slots(found, after=before - grace, now=now - grace)]
        scheme = json.loads(job.partitions or "null")
        if scheme is None or kind(scheme) not in TIME_KINDS:
            return []
        latest = latest_expected(scheme, now=now - grace, limit=MOST_SLOTS)
    except (UsageError, OverflowError):
        return []
    slots = ((one, slot_of(one, scheme)) for one in latest)
    return [one for one, slot in slots if slot is not None and slot[1] + grace > before]


def _key(one: Finding) -> tuple[str, str, str, int]:
    return one.owner, one.name, one.dataid, one.runid or 0


def _minutes(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
