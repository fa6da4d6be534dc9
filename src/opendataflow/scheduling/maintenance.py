"""What time brings to a worker: slots that begin, files that arrive, leases that ran out, retries that are due.

As `tick` does it, but again and again: what the clock alone decides is decided here without asking the store, and what
only a change can bring is looked for when there was one. An idle worker is nearly silent.
"""

import contextlib
import datetime
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from opendataflow.arrivals.due import make_due, read_clock
from opendataflow.deploy.host_version import Homes
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.job import Job
from opendataflow.errors import UsageError
from opendataflow.execution.made_by import record_jobs
from opendataflow.execution.processes import host_identity
from opendataflow.execution.recover import recover_lost_runs, report_kept
from opendataflow.project.address import Address
from opendataflow.scheduling.tick import in_order
from opendataflow.store.claims import LoopStore
from opendataflow.store.on_change import keep_up
from opendataflow.store.records.workers import seconds_until_due
from opendataflow.store.status_counts import fold_if_due

EXPAND_SECONDS, EXPAND_IDLE_SECONDS = 0.02, 0.5  # for what follows from publishes, at each such look
BUSY_SECONDS, IDLE_SECONDS = 1.0, 10.0  # between two looks at the store for what others left behind
ARRIVAL_SECONDS, ARRIVAL_IDLE_SECONDS = (
    1.0,
    5.0,
)  # between two looks for files, where a dataset says how its files arrive
REGISTRY_SECONDS, REGISTRY_IDLE_SECONDS = 5.0, 60.0  # between two looks whether the jobs are still the same
EACH = 5  # chunks that arrived at once are named one by one up to so many
_READY = " READY"
_MARKS = ('"arrival"', '"url')


class Upkeep:
    """The jobs of a worker, and everything that is done for them between the runs."""

    def __init__(
        self, store: LoopStore, address: Address, *, only: Callable[[str], bool], say: Callable[[str], None]
    ) -> None:
        self._store, self._address, self._only, self._say = store, address, only, say
        self._host = host_identity()
        self._homes = Homes(store, say)
        self.jobs: list[Job] = []  # producers first
        self._registered: list[Any] = []
        self._waited_for: dict[str, list[Dataset]] = {}  # by project: those whose files arrive, or that are tables
        self._roots: dict[str, str] = {}
        self._clocks: list[_Hand] = []
        self._hour = ""
        self._next = self._next_arrival = self._next_registry = 0.0
        self._registry_at = float("-inf")
        self._is_due = False  # the next look is at something that the clock brings
        self._told: set[str] = set()
        self.may_have_work = False  # something was made claimable here; whoever reads it sets it back

    def look_at_registry_soon(self) -> None:
        """The jobs are not what they were: the next look sees what they are."""
        self._next_registry = 0.0

    def look(self, *, is_idle: bool, had_news: bool, retry_at: float) -> bool:
        """Do what is due by now; True when the jobs are not what they were."""
        now = time.monotonic()
        changed = False
        if now >= self._next_registry or (had_news and now >= self._registry_at + REGISTRY_SECONDS):
            changed = self._look_at_registry()
            record_jobs(self._store, self.jobs)
            self._registry_at = now
            self._next_registry = now + (REGISTRY_IDLE_SECONDS if is_idle else REGISTRY_SECONDS)
        if now >= min(self._next, retry_at):
            self._recover(is_idle=is_idle)
            self.may_have_work |= self._is_due
            left = self._seconds_until_due() if is_idle else BUSY_SECONDS
            self._next, self._is_due = now + left, is_idle and left < IDLE_SECONDS
        if self._waited_for and now >= self._next_arrival:
            self._next_arrival = now + (ARRIVAL_IDLE_SECONDS if is_idle else ARRIVAL_SECONDS)
            self._take_in()
        self._open_slots()
        return changed

    @property
    def next_at(self) -> float:
        """When there is something to do that needs the store."""
        return min(self._next, self._next_arrival if self._waited_for else float("inf"), self._next_registry)

    # What others left behind --------------------------------------------------------------------------------------
    def _recover(self, *, is_idle: bool) -> None:
        report_kept(self._address.work, self._store, say=self._say)
        lost = recover_lost_runs(self._store, host=self._host, say=self._say, work=self._address.work)
        self.may_have_work |= lost > 0
        self._store.wake_parked()
        seconds = EXPAND_IDLE_SECONDS if is_idle else EXPAND_SECONDS
        self.may_have_work |= keep_up(self._store, seconds=seconds) > 0
        if is_idle:
            return  # nothing has changed since the last look
        fold_if_due(self._store)
        for job in self.jobs:
            if job.mapped or (job.partitions is not None and '"sequence"' in job.partitions):
                make_due(self._store, job)

    def _seconds_until_due(self) -> float:
        left = seconds_until_due(self._store)
        return IDLE_SECONDS if left is None else min(IDLE_SECONDS, left + 0.001)

    # The jobs -----------------------------------------------------------------------------------------------------
    def _look_at_registry(self) -> bool:
        found = self._read_registry()
        if found == self._registered and not self._homes.waits:
            return False
        self._registered = found
        store = self._store
        names = in_order(store, self._address.project)
        jobs = self._get_jobs((project, jobid) for project, jobid in names if self._only(jobid))
        self.jobs = self._homes.here(jobs)
        self._roots = {job.project: job.root for job in self.jobs}
        self._waited_for = {}
        for project in self._roots:
            rows = store.read("datasets_of", {"project": project}, file="registry")
            datasets = [Dataset(*row) for row in rows]
            waited_for = [one for one in datasets if any(mark in (one.definition or "") for mark in _MARKS)]
            if waited_for:
                self._waited_for[project] = waited_for
        self._make_all_due()
        self._next_arrival = 0.0
        return True

    def _get_jobs(self, names: Iterable[tuple[str, str]]) -> list[Job]:
        """The jobs as they are now; one that was taken out of the project since is left out."""
        found = []
        for project, jobid in names:
            with contextlib.suppress(UsageError):
                found.append(self._store.get_job(jobid, project=project))
        return found

    def _read_registry(self) -> list[Any]:
        """Everything that is registered, in few statements: to see that nothing has changed."""
        project = self._address.project
        jobs = self._store.read("all_jobs", {"project": project}, file="overview")
        found: list[Any] = [jobs, self._store.read("all_links", {"project": project}, file="overview")]
        places = self._store.list_places(project)
        found.append([(place.project, place.root, place.home, os.path.isdir(place.home)) for place in places])
        for name in sorted({str(row[0]) for row in jobs}):
            for statement in ("jobs_of", "datasets_of"):
                found.append(self._store.read(statement, {"project": name}, file="registry"))
        return [[tuple(map(str, row)) for row in rows] for rows in found]

    # Slots and dataids ----------------------------------------------------------------------------------------------
    def _make_all_due(self) -> None:
        for job in self.jobs:
            make_due(self._store, job)
        self._hour = self._this_hour()
        self._clocks = [hand for job in self.jobs for hand in _hands(self._store, job)]

    def _open_slots(self) -> None:
        """No statement is needed to see that nothing has begun."""
        if self._hour != self._this_hour():
            # Jobs know the last dataid that was expected of them: they are read anew.
            self.jobs = self._get_jobs((job.project, job.jobid) for job in self.jobs)
            self._make_all_due()
            self._next_arrival = 0.0
            self.may_have_work = True
            return
        now = self._now()
        for hand in [one for one in self._clocks if one.has_moved(now)]:
            make_due(self._store, hand.job)
            hand.read(self._store)
            self.may_have_work = True
            if hand.has_moved(now):
                self._next_registry = 0.0  # nobody opens it: the job goes by another clock by now

    def _now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._store.clock(), datetime.UTC)

    def _this_hour(self) -> str:
        return time.strftime("%Y-%m-%dT%H", time.gmtime(self._store.clock()))

    # Files that arrive ----------------------------------------------------------------------------------------------
    def _take_in(self) -> None:
        from opendataflow.arrivals.sources import take_in_datasets

        said: set[str] = set()
        for project, datasets in self._waited_for.items():
            take_in_datasets(self._store, datasets, self._roots[project], say=said.add)
        new = sorted(said - self._told)
        for text in _summed_up(new):
            self._say(text)
        self.may_have_work |= bool(new)
        self._told = said


def _summed_up(texts: list[str]) -> list[str]:
    """What was taken in, of each dataset in one line where it is much; all else as it is."""
    arrived: dict[str, list[str]] = {}
    for text in texts:
        name, slash, dataid = text.removesuffix(_READY).partition("/")
        if slash and text.endswith(_READY):
            arrived.setdefault(name, []).append(dataid)
    many = {name: dataids for name, dataids in arrived.items() if len(dataids) > EACH}
    told = [text for text in texts if not (text.endswith(_READY) and text.partition("/")[0] in many)]
    return told + [f"{name}: {len(ids)} have arrived, {ids[0]} … {ids[-1]}" for name, ids in many.items()]


class _Hand:
    """A clock that a job reads, and the last of its slots that is open."""

    def __init__(self, store: LoopStore, job: Job, dataset: Dataset) -> None:
        self.job, self._dataset = job, dataset
        self.read(store)

    def read(self, store: LoopStore) -> None:
        self._clock, self._after, _ = read_clock(store, self._dataset)

    def has_moved(self, now: datetime.datetime) -> bool:
        """True when a slot has begun that is not open."""
        from opendataflow.arrivals.clock_slots import due_slots

        return self._clock is not None and bool(due_slots(self._clock, after=self._after, now=now))


def _hands(store: LoopStore, job: Job) -> Iterable[_Hand]:
    return [_Hand(store, job, link.dataset) for link in job.inputs if link.dataset.clock is not None]
