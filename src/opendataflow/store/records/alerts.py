"""Alerts in the store: how far was looked, what somebody must be told, and the messages that tell it.

A message is one per address: what is found for it joins the one that is being gathered. Whoever claims a message sends
it; one that dies in the middle leaves it to another, once.
"""

import functools
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from opendataflow.domain.alerts import (
    Event,
    Finding,
    Pace,
    Settings,
    due_in,
    in_order,
    read_settings,
)
from opendataflow.store.claims import LoopStore, Transaction
from opendataflow.store.rows import Params, Row

FILE = "alerts"
AT_ONCE = 500  # findings that one transaction writes
KEPT_SECONDS = 90 * 86_400.0
MOST_TEXT = 500  # of a reason
JobKey = tuple[str, str]


class Watched(NamedTuple):
    """How things stand, in one question."""

    history_upto: int
    history_end: int
    look_in: float  # seconds; below 0: a look is due
    late_age: float  # seconds since slots were looked at
    message_in: float | None  # seconds until a message is to be sent; None: none is


class Notified(NamedTuple):
    """A job that tells somebody."""

    project: str
    jobid: str
    settings: Settings
    partitions: str | None
    is_paused: bool


class Over(NamedTuple):
    """An alert that is no longer so."""

    alertid: int
    messageid: int
    project: str
    place: str
    event: str
    owner: str
    name: str
    dataid: str
    status: str | None  # as it stands now
    state: str  # of the message that tells it
    was_told: int  # in that message, or in one before


class Stuck(NamedTuple):
    """What was found stuck before; message 0: it was seen, but not for long enough."""

    alertid: int
    messageid: int
    project: str
    place: str
    owner: str
    name: str
    dataid: str
    runid: int
    age: float


# Looking --------------------------------------------------------------------------------------------------------------
def watched(store: LoopStore) -> Watched:
    """Where the last look came to; the first of all begins now."""
    rows = read_alerts(store, "watch", now=store.time())
    if not rows:
        write_alerts(store, "begin_watch", now=store.time())
        rows = read_alerts(store, "watch", now=store.time())
    return Watched(*rows[0])


def take_look(store: LoopStore, *, seconds: float) -> bool:
    """True for the one that looks now; the next look is due after so many seconds."""
    return bool(write_alerts(store, "take_look", now=store.time(), next=store.time(seconds)))


def find_end(store: LoopStore) -> int:
    """The end of the history; no change with a lower number is still on its way."""

    def end() -> int:
        with store.transaction(file=FILE) as tx:
            tx.run("freeze_history", {})
            return int(tx.rows("history_end", {})[0][0])

    return store.again(end)


@functools.lru_cache(maxsize=4096)
def _settings(definition: str) -> Settings | None:
    return read_settings(json.loads(definition))


def list_notified(store: LoopStore) -> dict[JobKey, Notified]:
    """The jobs that tell somebody."""
    found = {}
    for project, jobid, definition, partitions, is_paused in read_alerts(store, "notified_jobs", now=store.time()):
        settings = _settings(definition)
        if settings is not None:
            found[project, jobid] = Notified(project, jobid, settings, partitions, bool(is_paused))
    return found


def newly_failed(store: LoopStore, after: int, upto: int) -> list[Row]:
    """History id, project, job, dataid, run and its message, of what failed in between and stays so."""
    return read_alerts(store, "newly_failed", after=after, upto=upto, limit=AT_ONCE)


def last_seconds(store: LoopStore, after: int, upto: int) -> dict[JobKey, float]:
    """How long the last good run of each job took, of those in between."""
    rows = read_alerts(store, "last_complete", after=after, upto=upto)
    return {(project, jobid): max(float(seconds), 0.0) for project, jobid, seconds in rows}


def list_paces(store: LoopStore) -> dict[JobKey, Pace]:
    return {(project, jobid): Pace(seconds, runs) for project, jobid, seconds, runs in read_alerts(store, "paces")}


def live_runs(store: LoopStore) -> list[Row]:
    """Project, job, dataid, run, owner, seconds since its claim, seconds since its lease ran out (below 0: holds)."""
    return read_alerts(store, "live_runs", now=store.time())


def refused_rows(store: LoopStore) -> list[Row]:
    """Project, job, dataid and refusal of what is parked, at most so many."""
    return read_alerts(store, "refused_rows", limit=AT_ONCE)


def open_stuck(store: LoopStore) -> list[Stuck]:
    return [Stuck(*row) for row in read_alerts(store, "open_stuck", now=store.time())]


def over_alerts(store: LoopStore) -> list[Over]:
    return [Over(*row) for row in read_alerts(store, "over_alerts", limit=AT_ONCE)]


def find_row(store: LoopStore, project: str, jobid: str, dataid: str) -> Row | None:
    """Status, waiting, parked_until and owner of a job's dataid."""
    rows = read_alerts(store, "row_status", project=project, jobid=jobid, dataid=dataid)
    return rows[0] if rows else None


def list_clocks(store: LoopStore) -> dict[JobKey, str]:
    """The clock that each job goes by."""
    return {(project, jobid): str(clock) for project, jobid, clock in read_alerts(store, "clock_links")}


class Seen(NamedTuple):
    """What one look found."""

    was: int
    upto: int
    findings: Sequence[Finding] = ()
    watched: Sequence[Finding] = ()  # it is so, but not for long enough
    over: Sequence[Over] = ()
    ended: Sequence[Stuck] = ()  # no longer stuck
    paces: Mapping[JobKey, Pace] = {}
    late_upto: float | None = None  # seconds from now: slots were looked at up to then


def record(store: LoopStore, seen: Seen, jobs: Mapping[JobKey, Notified]) -> bool:
    """Write down what a look found, for those who are to be told; False when another look was faster."""

    def write() -> bool:
        with store.transaction(file=FILE) as tx:
            late = store.time(seen.late_upto or 0.0)
            moved = {"upto": seen.upto, "was": seen.was, "late": late, "looked_late": seen.late_upto is not None}
            if not tx.run("move_watch", moved):
                return False
            _Telling(store, tx, jobs).tell(seen)
            return True

    return store.again(write)


class _Telling:
    """Puts what was found into messages, inside one transaction."""

    def __init__(self, store: LoopStore, tx: Transaction, jobs: Mapping[JobKey, Notified]) -> None:
        self._store, self._tx, self._jobs = store, tx, jobs

    def tell(self, seen: Seen) -> None:
        found: dict[JobKey, list[Finding]] = defaultdict(list)  # by project and place
        settings: dict[JobKey, Settings] = {}
        for one in self._end(seen, found):
            job = self._jobs.get((one.project, one.jobid))
            for to in job.settings.to if job is not None and one.event in job.settings.on else ():
                found[one.project, to.place].append(one)
        for job in self._jobs.values():
            for to in job.settings.to:
                known = settings.get((job.project, to.place))
                settings[job.project, to.place] = job.settings if known is None else _sooner(known, job.settings)
        for (project, place), findings in found.items():
            self._join(project, place, settings.get((project, place)) or Settings(()), findings)
        for one in seen.watched:
            for to in self._jobs[one.project, one.jobid].settings.to:
                self._put(0, to.place, [one])
        paces = [{"project": key[0], "jobid": key[1], **pace._asdict()} for key, pace in seen.paces.items()]
        self._tx.run_many("set_pace", paces)

    def _end(self, seen: Seen, found: dict[JobKey, list[Finding]]) -> Iterable[Finding]:
        """What is new; what is over is closed, and told to those who were told that it failed."""
        emptied: set[int] = set()
        for one in seen.over:
            emptied |= self._close(one.alertid, one.messageid, one.state)
            job = self._jobs.get((one.owner, one.name))
            is_told = one.was_told or one.state == "SENDING"
            is_back = one.event == Event.FAILED and one.status == "COMPLETE" and is_told
            if is_back and job is not None and Event.RECOVERED in job.settings.on:
                back = Finding(Event.RECOVERED, one.project, one.name, "job", one.owner, one.name, one.dataid)
                found[one.project, one.place].append(back)
        for stuck in seen.ended:
            emptied |= self._close(stuck.alertid, stuck.messageid, "SENT")
        yield from seen.findings
        for messageid in emptied:
            self._tx.run("drop_empty", {"messageid": messageid})

    def _close(self, alertid: int, messageid: int, state: str) -> set[int]:
        """What was never told is forgotten: nobody needs to know of it any more."""
        if messageid and state not in ("GATHERING", "WAITING"):
            self._tx.run("close_alert", {"alertid": alertid})
            return set()
        self._tx.run("drop_alert", {"alertid": alertid})
        return {messageid} if messageid else set()

    def _join(self, project: str, place: str, settings: Settings, findings: list[Finding]) -> None:
        of = {"project": project, "place": place, "now": self._store.time()}
        told: dict[str, float] = {}
        for events, age in self._tx.rows("told_messages", of):
            for event in str(events).split():
                told[event] = min(told.get(event, age), age)
        known = self._tx.rows("open_message", of)
        messageid, age, due = (known[0][0], known[0][3], known[0][4]) if known else (0, 0.0, None)
        kinds = list(dict.fromkeys(one.event for one in findings))
        for kind in kinds:
            due = due_in(settings, kind, age=age, due=due, told=told)
        events = in_order([*kinds, *(str(known[0][2]).split() if known else ())])
        row = {**of, "events": events, "due": self._store.time(due or 0.0), "messageid": messageid}
        if messageid:
            self._tx.run("change_message", row)
        else:
            messageid = self._tx.rows("add_message", row)[0][0]
        self._put(messageid, place, findings)
        self._tx.run("drop_empty", {"messageid": messageid})  # all of it was told before

    def _put(self, messageid: int, place: str, findings: list[Finding]) -> None:
        rows: list[Params] = []
        for one in findings:
            fields = one._asdict()
            del fields["jobid"]
            fields |= {"messageid": messageid, "place": place, "reason": one.reason[:MOST_TEXT].replace("\0", " ")}
            rows.append({**fields, "now": self._store.time(), "is_open": int(one.event != Event.RECOVERED)})
        self._tx.run_many("put_alert", rows)


def _sooner(one: Settings, other: Settings) -> Settings:
    """Where several jobs tell the same address: the shorter pauses."""
    return one._replace(gather=min(one.gather, other.gather), quiet=min(one.quiet, other.quiet))


def clean(store: LoopStore) -> None:
    """Forget what was told long ago."""
    before = store.time(-KEPT_SECONDS)

    def forget() -> None:
        with store.transaction(file=FILE) as tx:
            tx.run("clean_alerts", {"before": before})
            tx.run("clean_messages", {"before": before})

    store.again(forget)


def read_alerts(store: LoopStore, name: str, **params: Any) -> list[Row]:
    return store.read(name, params, file=FILE)


def write_alerts(store: LoopStore, name: str, **params: Any) -> int:
    def write() -> int:
        with store.transaction(file=FILE) as tx:
            return tx.run(name, params)

    return store.again(write)
