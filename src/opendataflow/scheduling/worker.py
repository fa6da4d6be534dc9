"""A worker: whatever is ready, of all jobs, in its slots, and streams beside them; until it is told to stop."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from opendataflow.alerts.watch import Watch, tells_somebody
from opendataflow.domain.job import Job
from opendataflow.domain.streams import find_sealed_stream, find_settings
from opendataflow.errors import ConfigurationError, JobChanged, JobFailed, SecretError, StoreUnavailable
from opendataflow.execution.environment import find_passwords
from opendataflow.execution.guard import Guard
from opendataflow.execution.processes import start_time
from opendataflow.execution.recover import report_kept
from opendataflow.execution.run import Runner
from opendataflow.execution.script import script_work
from opendataflow.execution.session import get_script, own_name
from opendataflow.execution.supervise import Signals
from opendataflow.execution.work import Outcome, Work
from opendataflow.project.address import Address
from opendataflow.scheduling.adaptive_concurrency import Brake, brake_settings
from opendataflow.scheduling.auditor import Auditor
from opendataflow.scheduling.exporter import Exporter
from opendataflow.scheduling.fair_queue import Key, Lane, Lanes, Share
from opendataflow.scheduling.maintenance import Upkeep
from opendataflow.scheduling.pipeline_processes import Sparks
from opendataflow.scheduling.report import Codes
from opendataflow.scheduling.verifier import Verifier
from opendataflow.scheduling.worker_loop import SlotsLoop
from opendataflow.scheduling.worker_slot import Slot
from opendataflow.store import open_store
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.workers import (
    WorkerRow,
    beat_worker,
    forget_worker,
    limits_of,
    list_workers,
    register_worker,
    set_brake,
)

BEAT_SECONDS = 20.0  # between two signs of life
LOOK_ANYWAY_SECONDS = 60.0  # for work of which no word came
_DEATHS = tuple(
    128 + number for number in (4, 6, 7, 8, 9, 11)
)  # of a child: crashes, and the kernel's out-of-memory kill
STEP_SECONDS = 1.0  # the longest wait: what the clock alone brings is looked at once a second


class View(Protocol):
    """Who shows what the worker does."""

    def say(self, text: str) -> None: ...
    def ended(self, key: Key, outcome: Outcome) -> None: ...
    def changed(self, key: Key, limit: int | None, reason: str) -> None: ...
    def refresh(self, *, running: int, slots: int, is_busy: bool) -> None: ...


class Asked(NamedTuple):
    """What a worker is to do."""

    jobs: tuple[str, ...] = ()  # empty: all of the project
    once: bool = False
    wait_seconds: float = 0.0  # with `once`: how long to wait for what is not ready yet
    args: tuple[str, ...] = ()  # for the script of the only job
    cwd: str | None = None  # None: each job's project folder
    of_pipelines: dict[str, Any] | None = None  # `profile` and `explain`


class Worker:
    """Puts the parts together and lets them take turns."""

    def __init__(
        self, guards: Sequence[Guard], signals: Signals, address: Address, store: LoopStore, asked: Asked, view: View
    ) -> None:
        self._store, self._signals, self._address, self._asked, self._view = store, signals, address, asked, view
        self._name = own_name()
        slots = [Slot(guard, self._new_runner) for guard in guards]
        self._runner = slots[0].runner
        self._lanes = Lanes(store, slots=len(slots), put_aside=self._runner.put_aside, say=view.say)
        self._auditor = Auditor(self._open_store)
        self._loop = SlotsLoop(
            store, signals, slots, self._lanes, self._auditor, say=view.say,
            ended=lambda lane, outcome: self._ended(lane.key, outcome),
        )  # fmt: skip
        self._sparks = Sparks(
            store, most=len(slots), grace_seconds=signals.grace_seconds, stay=not asked.once, say=view.say,
            ended=self._ended,
        )  # fmt: skip
        self._exporter = Exporter(self._open_store, say=view.say)
        self._verifier = Verifier(self._open_store, address.project, say=view.say)
        self._upkeep = Upkeep(store, address, only=self._is_mine, say=view.say)
        self._alerts = Watch(self._open_store, address, say=view.say)
        self._jobs: dict[Key, Job] = {}
        self._brakes: dict[Key, Brake] = {}
        self._not_started: dict[Key, Outcome] = {}
        self._said: dict[Key, Outcome] = {}  # of those, what was said already
        self._next_beat = 0.0
        self._beaten_at = 0.0
        self._is_idle = False
        self._had_news = False
        self._look_anyway_at = 0.0
        self._handed_back = False
        self._told = 0  # how often the pipelines got our signal
        self._ran = 0
        self._codes = Codes(drain=True)
        self.last: list[Outcome] = []  # with `once`: why nothing more can run, job by job

    # Its parts --------------------------------------------------------------------------------------------------
    def _open_store(self) -> LoopStore:
        return open_store(self._address.store, actor=self._name, here=self._address.here)

    def _new_runner(self, guard: Guard) -> Runner:
        return Runner(
            self._store, guard, self._signals, work_folder=self._address.work, name=self._name, say=self._view.say,
            out_fd=-1, err_fd=-1, openlineage=self._address.openlineage,
        )  # fmt: skip

    def _is_mine(self, jobid: str) -> bool:
        return not self._asked.jobs or jobid in self._asked.jobs

    # The loop ---------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Until it was told to stop and nothing runs any more; with `once`, until nothing is claimable."""
        self._upkeep.look(is_idle=False, had_news=True, retry_at=0.0)
        self._take_jobs()
        register_worker(self._store, self._runner.owner, slots=len(self._loop.slots), jobs=self._asked.jobs)
        self._store.has_news()  # from now on
        if not self._asked.once:
            self._verifier.start()
        give_up = time.monotonic() + self._asked.wait_seconds
        ran = 0
        while True:
            self._step()
            if self._ran != ran:
                ran, give_up = self._ran, time.monotonic() + self._asked.wait_seconds
            if not self._is_at_rest():
                self._loop.wait(time.monotonic() + STEP_SECONDS, self._sparks.fds())
            elif self._loop.is_stopping or (self._asked.once and self._is_done(give_up)):
                return
            else:
                self._rest()

    def _step(self) -> None:
        self._heed_signals()
        self._loop.turn()
        self._sparks.listen()
        if self._is_idle and (self._loop.is_busy or self._sparks.running):
            self._is_idle, self._next_beat = False, 0.0
        try:
            if not self._loop.is_cut_off:
                self._tend()
        except StoreUnavailable as error:
            self._loop.is_away(error)
        self._view.refresh(running=self._loop.running, slots=len(self._loop.slots), is_busy=not self._is_idle)

    def _heed_signals(self) -> None:
        """Once when nothing more may be taken, and once when what runs must be ended."""
        asked = 0 if self._signals.asked is None else 1 if self._signals.received is None else 2
        if asked > self._told:
            if self._told == 0:
                self._view.say(self._farewell(self._signals.asked or 0))
            for _ in range(asked - self._told):
                self._sparks.stop()
            self._told = asked

    def _tend(self) -> None:
        if not self._loop.is_stopping:
            self._sparks.start_those_with_work()
        if self._loop.came_back:
            report_kept(self._address.work, self._store, say=self._view.say)
            self._hand_back_unanswered()
            self._loop.came_back = False
        if self._lanes.had_left:
            self._lanes.had_left = False
            self._upkeep.look_at_registry_soon()
        changed = self._upkeep.look(is_idle=self._is_idle, had_news=self._had_news, retry_at=self._loop.retry_at)
        self._had_news = False
        if time.monotonic() >= self._loop.retry_at:
            self._loop.retry_at = float("inf")
            self._upkeep.may_have_work = True
        if changed:
            self._take_jobs()
        if self._upkeep.may_have_work:
            self._upkeep.may_have_work = False
            self._wake()
        now = time.monotonic()
        if now >= self._next_beat or (self._lanes.had_misses and now >= self._beaten_at + STEP_SECONDS):
            self._beat(is_idle=self._is_idle)

    def _hand_back_unanswered(self) -> None:
        """Claims that were made, but whose answer was lost with the connection: nobody runs them."""
        held = self._loop.held
        for lost, _, owner in self._store.suspects(self._runner.host):
            if owner.name == self._name and owner.pid == self._runner.owner.pid and lost.runid not in held:
                self._store.recover(lost, host=self._runner.host, note="lost: the answer to its claim never came")

    def _farewell(self, number: int) -> str:
        running, grace = self._loop.runs, self._signals.grace_seconds
        left = f"; {running} runs may finish within {grace:g} s, a second signal ends them at once" if running else ""
        return f"signal {number}: nothing more is taken{left}"

    def close(self) -> None:
        """Leave nothing behind."""
        self._sparks.close()
        self._exporter.close()
        self._verifier.close()
        self._alerts.close()
        self._auditor.close()
        try:
            if not self._loop.is_cut_off:
                forget_worker(self._store, self._name)
        except StoreUnavailable:
            pass  # it will be seen to be gone
        self._loop.guards.close()
        for slot in self._loop.slots:
            slot.guard.close()

    # Rest -------------------------------------------------------------------------------------------------------
    def _is_at_rest(self) -> bool:
        """True when nothing runs, nothing is on its way to the store, and nothing was claimable."""
        nothing = self._loop.is_stopping or (self._lanes.are_asleep and self._sparks.are_asleep)
        return nothing and not self._loop.is_busy and not self._sparks.running

    def _rest(self) -> None:
        """Wait for news. Before that, say so and look once more: what came in between would not be told."""
        if self._loop.is_cut_off:
            self._loop.wait(time.monotonic() + STEP_SECONDS)
            return
        try:
            if not self._is_idle:
                self._is_idle = True
                self._beat(is_idle=True)
                self._wake()
                return
            if time.monotonic() >= self._look_anyway_at:
                self._wake()
                return
            seconds = min(STEP_SECONDS, max(0.0, self._upkeep.next_at - time.monotonic()))
            if self._store.wait_for_news(seconds, self._signals.wake_fd):
                self._had_news = True
                self._wake()
            elif self._signals.asked is None:
                self._lanes.sleep()
                self._sparks.sleep()
        except StoreUnavailable as error:
            self._loop.is_away(error)

    def _wake(self) -> None:
        self._look_anyway_at = time.monotonic() + LOOK_ANYWAY_SECONDS
        self._lanes.wake_all()
        self._sparks.wake()

    def _beat(self, *, is_idle: bool) -> None:
        self._beaten_at = time.monotonic()
        self._next_beat = self._beaten_at + BEAT_SECONDS
        running = self._loop.running + self._sparks.running
        if not beat_worker(self._store, self._name, running=running, is_idle=is_idle):
            register_worker(self._store, self._runner.owner, slots=len(self._loop.slots), jobs=self._asked.jobs)
        self._lanes.had_misses = False
        names = sorted(one.name for one in list_workers(self._store) if not one.is_gone and not self._is_dead(one))
        self._lanes.share = Share(names.index(self._name), len(names)) if self._name in names else Share(0, 1)

    def _is_dead(self, one: WorkerRow) -> bool:
        """True for one that was killed on this host: its row goes at once, and nobody leaves it a part of the work."""
        if one.host != self._runner.host or start_time(one.pid) is not None:
            return False
        forget_worker(self._store, one.name)
        return True

    def _is_done(self, give_up: float) -> bool:
        """True when a closer look finds nothing to claim either: then `last` says why."""
        if self._loop.is_cut_off:
            return False
        found: list[Outcome] = []
        try:
            for job in self._upkeep.jobs:
                key = (job.project, job.jobid)
                why = self._not_started.get(key) or self._obstacle(job) or self._runner.find_work(job, None)
                if not isinstance(why, Outcome):
                    self._wake()
                    return False
                found.append(why)
        except JobChanged:
            self._upkeep.look_at_registry_soon()
            self._wake()
            return False
        except StoreUnavailable as error:
            self._loop.is_away(error)
            return False
        waits = any(10 <= one.exit_code <= 14 for one in found)
        if waits and time.monotonic() < give_up:
            self._loop.wait(min(give_up, time.monotonic() + 0.2))
            self._wake()
            return False
        said = list(self._not_started.values())
        self.last = [one for one in found if one not in said]
        for why in found:
            self._codes.add(why)
        return True

    def _obstacle(self, job: Job) -> Outcome | None:
        lane = self._lanes.find(job[:2])
        if lane is not None and lane.is_forked and self._loop.guards.obstacle:
            return Outcome(JobFailed.exit_code, "NOT_STARTED", job.jobid, None, self._loop.guards.obstacle)
        if lane is None or lane.can_start:
            return None
        told = f"{lane.what_is_missing} is gone; put it back"
        return Outcome(ConfigurationError.exit_code, "NOT_STARTED", job.jobid, None, told)

    # The jobs ---------------------------------------------------------------------------------------------------
    def _take_jobs(self) -> None:
        """A lane for every script and pipeline, in the order producers first; those that cannot be run are told."""
        self._said, self._not_started = self._not_started, {}
        lanes, beside = [], []
        for job in self._upkeep.jobs:
            lane = None if find_settings(job) or find_sealed_stream(job) else self._lane(job)
            if lane is not None:
                lanes.append(lane)
                self._loop.forks |= lane.work.forked is not None
            elif job[:2] not in self._not_started:
                beside.append(job)
        self._lanes.set(lanes)
        self._sparks.set(beside)
        if tells_somebody(self._upkeep.jobs):
            self._alerts.start()
        self._jobs = {job[:2]: job for job in self._upkeep.jobs}
        self._brakes = {key: brake for key, job in self._jobs.items() if (brake := self._brake_of(job))}

    def _brake_of(self, job: Job) -> Brake | None:
        settings, known = brake_settings(job.definition), self._brakes.get(job[:2])
        if settings is None or (known is not None and known.settings == settings):
            return known if settings is not None else None
        return Brake(settings)

    def _lane(self, job: Job) -> Lane | None:
        known = self._lanes.find(job[:2])
        if known is not None and known.job == job:
            return known
        try:
            passwords = find_passwords(link.dataset for link in job.links)
            if job.kind == "pipeline":
                if not os.path.isdir(job.home):
                    raise ConfigurationError(f"its folder {job.home} is not on this host")
                make_work = self._pipeline_of(job, passwords)
                return Lane(job, make_work, self._store, passwords=passwords, cwd=job.home, script=None)
            script = self._script_of(job)
            lane = Lane(
                job, self._work_of(job, script), self._store, passwords=passwords, cwd=self._asked.cwd or job.home,
                script=script,
            )  # fmt: skip
        except (ConfigurationError, SecretError) as error:
            outcome = Outcome(error.exit_code, "NOT_STARTED", job.jobid, None, str(error))
            self._not_started[job[:2]] = outcome
            if self._said.get(job[:2]) != outcome:
                self._view.ended(job[:2], outcome)
            return None
        return lane

    @staticmethod
    def _script_of(job: Job) -> str:
        if job.script is None:
            raise ConfigurationError(f"job {job.jobid} names no script; give `script:` in project.yml")
        return get_script(os.path.join(job.home, job.script))

    def _work_of(self, job: Job, script: str) -> Callable[[LoopStore], Work]:
        return lambda store: script_work(job, script, list(self._asked.args), store=store, say=self._view.say)

    def _pipeline_of(self, job: Job, passwords: dict[tuple[str, str], str]) -> Callable[[LoopStore], Work]:
        from opendataflow.execution.pipeline import pipeline_work

        work, secrets = self._address.work, tuple(passwords.values())
        return lambda store: pipeline_work(
            job, work, store=store, say=self._view.say, asked=self._asked.of_pipelines, secrets=secrets
        )

    @property
    def exit_code(self) -> int:
        """Of `once` as of a drain; else 0, unless a signal ended what ran."""
        number = self._signals.asked
        if self._asked.once:
            return self._codes.code or (128 + number if number is not None else 0)
        return 128 + number if number is not None and self._handed_back else 0

    # Ends -------------------------------------------------------------------------------------------------------
    def _ended(self, key: Key, outcome: Outcome) -> None:
        self._ran += outcome.runid is not None
        self._codes.add(outcome)
        self._handed_back |= outcome.status == "RESUBMIT" and self._loop.is_stopping
        self._view.ended(key, outcome)
        self._sparks.wake()
        if outcome.status == "COMPLETE" and (job := self._jobs.get(key)) is not None:
            self._exporter.published(job)
        brake, failed = self._brakes.get(key), _has_failed(outcome)
        if brake is not None and failed is not None and brake.note(failed=failed, seconds=outcome.seconds):
            self._brake(self._jobs[key], brake)

    def _brake(self, job: Job, brake: Brake) -> None:
        try:
            limits = limits_of(self._store, job)
            own = limits.scaled_to if limits.scaled_to is not None else limits.declared
            # The run that told us has ended: it was one of those that were too many.
            change = brake.decide(limit=own, braked_to=limits.braked_to, live=limits.running + 1)
            if change is not None and set_brake(
                self._store, job, change.becomes, reason=change.reason, was=limits.braked_to
            ):
                self._view.changed(job[:2], change.becomes, change.reason)
        except StoreUnavailable as error:
            self._loop.is_away(error)


def _has_failed(outcome: Outcome) -> bool | None:
    """Whether the run tells of trouble; None when it tells nothing, as it was handed back or lost."""
    if outcome.status in ("COMPLETE", "FAILED"):
        return outcome.status == "FAILED"
    return True if outcome.status == "RESUBMIT" and outcome.exit_code in _DEATHS else None
