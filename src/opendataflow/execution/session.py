"""What every command that runs jobs starts with: the guard first, then the store, then what earlier runs left."""

import os
import select
import time
from collections.abc import Callable, Iterator
from typing import Any

from opendataflow.arrivals.due import make_due
from opendataflow.domain.job import Job
from opendataflow.errors import ConfigurationError, JobChanged, UsageError
from opendataflow.execution.deployed_version import is_left
from opendataflow.execution.environment import find_passwords
from opendataflow.execution.guard import Guard
from opendataflow.execution.recover import recover_lost_runs, report_kept
from opendataflow.execution.run import Runner
from opendataflow.execution.supervise import Signals
from opendataflow.execution.work import Outcome, Taken, Work
from opendataflow.project.address import Address
from opendataflow.store import open_store
from opendataflow.store.claims import LoopStore

TIDY_EVERY_SECONDS = 1.0
FOLD_EVERY = 100  # of so many runs one brings the tally up to date
EXPAND_SECONDS = 0.05  # and works in, for so long, what follows from publishes


def own_name() -> str:
    """user@host:pid, as the history shows who did it."""
    user = os.environ.get("LOGNAME") or os.environ.get("USER") or f"uid{os.getuid()}"
    return f"{user}@{os.uname().nodename}:{os.getpid()}"


class Session:
    """A runner with its job, ready to run dataids of it one after the other."""

    def __init__(
        self, guard: Guard, signals: Signals, address: Address, jobid: str, *, say: Callable[[str], None],
        out_fd: int = 1, store: LoopStore | None = None,
    ) -> None:  # fmt: skip
        name = own_name()
        store = store or open_store(address.store, actor=name, environment=address.environment, here=address.here)
        self.store = store
        self.job: Job = store.get_job(jobid, project=address.project)
        self.runner = Runner(
            store, guard, signals, work_folder=address.work, name=name, say=say, out_fd=out_fd,
            openlineage=address.openlineage,
        )  # fmt: skip
        self.address, self.say, self.signals = address, say, signals
        self._tidied_at = self._looked_at = float("-inf")
        self._is_left = False
        self.remake: Callable[[], Work] | None = None  # of the definition in `job`
        self._new_work: Work | None = None  # the one that was made since, where the definition has changed
        self.passwords = find_passwords(link.dataset for link in self.job.links)

    def tidy(self) -> None:
        """Record what earlier runs could not, recover lost ones, wake parked ones, expect the days that are over."""
        now = time.monotonic()
        if now - self._tidied_at < TIDY_EVERY_SECONDS:
            return
        first = self._tidied_at == float("-inf")
        self._tidied_at = now
        report_kept(self.address.work, self.store, say=self.say)
        recover_lost_runs(self.store, host=self.runner.host, say=self.say, work=self.address.work)
        self.store.wake_parked()
        if first:
            if self.job.kind == "pipeline" or _reads_tables(self.job):
                from opendataflow.arrivals.sources import take_in_sources

                take_in_sources(self.store, self.job, say=self.say)
            make_due(self.store, self.job)
        else:
            self._fold()

    def is_left(self) -> bool:
        """True when another version of the job's project is in place: who goes on with this one takes nothing more."""
        if not self._is_left and time.monotonic() - self._looked_at >= TIDY_EVERY_SECONDS:
            self._looked_at = time.monotonic()
            self._is_left = is_left(self.store, self.job)
        return self._is_left

    def get_work(self, args: list[str], *, asked: dict[str, Any] | None = None) -> Work:
        """What a run of the job does: its script with these arguments, or its pipeline, in the way that was asked."""
        self.remake = lambda: self.get_work(args, asked=asked)
        if self.job.kind == "pipeline":
            if args:
                raise UsageError(f"{self.job.jobid} is a pipeline and takes no arguments")
            from opendataflow.execution.pipeline import pipeline_work

            work = pipeline_work(
                self.job,
                self.address.work,
                store=self.store,
                say=self.say,
                asked=asked,
                secrets=tuple(self.passwords.values()),
            )
            if work.forked is not None:
                self.runner.fork_children(work.forked.program)
            return work
        if asked:
            raise UsageError(f"{self.job.jobid} is a script; {', '.join(asked)} is for pipelines")
        from opendataflow.execution.script import script_work

        if self.job.script is None:
            raise ConfigurationError(
                f"job {self.job.jobid} names no script; "
                f"give `script:` in project.yml, or use `RunJob path/to/{self.job.jobid}.sh`"
            )
        script = get_script(os.path.join(self.job.home, self.job.script))
        return script_work(self.job, script, args, store=self.store, say=self.say)

    def _fold(self) -> None:
        from opendataflow.store.on_change import keep_up
        from opendataflow.store.status_counts import fold_if_due

        fold_if_due(self.store)
        keep_up(self.store, seconds=EXPAND_SECONDS)

    def run(self, work: Work, *, dataid: str | None, wait_seconds: float, cwd: str, go_on: bool = False) -> Outcome:
        """One run; while nothing is claimable, wait for up to so many seconds.

        Raises ZygoteFailed when no process for a pipeline's chunk can be started; then nothing was claimed.
        """
        give_up = time.monotonic() + wait_seconds
        pause = 0.1
        while True:
            self.tidy()
            try:
                taken = self.runner.take_one(self.job, dataid)
            except JobChanged:
                self._take_new_definition()
                continue
            work = self._new_work or work
            outcome = taken if isinstance(taken, Outcome) else self.run_claimed(work, taken, cwd=cwd, go_on=go_on)
            if outcome.runid is not None and outcome.runid % FOLD_EVERY == 0:
                self._fold()
            can_wait = outcome.runid is None and 10 <= outcome.exit_code <= 14
            number = self.signals.asked
            if can_wait and wait_seconds and number is not None:
                return outcome._replace(exit_code=128 + number, message=f"stopped waiting: signal {number}")
            if not can_wait or time.monotonic() + pause > give_up:
                if self.job.kind == "pipeline" and not go_on:
                    self._show_together()
                return outcome
            select.select([self.signals.wake_fd], [], [], pause)  # a signal ends the pause
            pause = min(pause * 1.5, 2.0)

    def _take_new_definition(self) -> None:
        """The job was registered anew: what is claimed from now on is run as it is now."""
        self.job = self.store.get_job(self.job.jobid, project=self.job.project)
        self.passwords = find_passwords(link.dataset for link in self.job.links)
        if self.remake is not None:
            self._new_work = self.remake()

    def run_claimed(self, work: Work, taken: Taken, *, cwd: str, go_on: bool = False) -> Outcome:
        """Run what was claimed on a child of its own, to its recorded end."""
        if work.forked is not None:
            cwd = self.job.home
        return self.runner.run_claimed(self.job, work, taken, cwd, self.passwords, go_on=go_on)

    def drain(self, work: Work, *, wait_seconds: float, cwd: str) -> Iterator[Outcome]:
        """Run after run until nothing is claimable; a failed dataid does not stop the others."""
        while True:
            outcome = self.run(work, dataid=None, wait_seconds=wait_seconds, cwd=cwd, go_on=True)
            yield outcome
            stopped = outcome.exit_code in (5, 75) or self.signals.asked is not None or self.runner.guard.is_gone
            stopped = stopped or self.is_left()
            if outcome.runid is None or (stopped and not self.runner.has_taken):
                break  # what was already taken is run, or handed back, first
        if self.job.kind == "pipeline":
            self._show_together()
        number = self.signals.asked
        if number is not None and outcome.runid is not None and outcome.exit_code == 0:
            told = f"stopped by signal {number}; nothing more was taken"
            yield Outcome(128 + number, "STOPPED", self.job.jobid, None, told)

    def _show_together(self) -> None:
        from opendataflow.execution.export import show_together

        try:
            show_together(self.store, self.job)
        except OSError as error:
            self.say(f"{self.job.jobid}: what is published is not shown together: {error}; the next run tries again")


def _reads_tables(job: Job) -> bool:
    return any('"url' in (link.dataset.definition or "") for link in job.inputs)


def get_script(path: str) -> str:
    """The script's absolute path, or raise ConfigurationError: before the claim, so that nothing is taken in vain."""
    script = os.path.abspath(path)
    if not os.path.isfile(script):
        hint = "" if os.sep in path else f"; a job that is registered is run by its name with `dataflow run {path}`"
        raise ConfigurationError(f"there is no script {path}{hint}")
    if not os.access(script, os.X_OK):
        raise ConfigurationError(f"the script {path} is not executable; run `chmod +x {path}`")
    return script
