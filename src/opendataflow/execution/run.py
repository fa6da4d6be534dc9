"""One run of a job, step by step: find, ask, claim, run, audit, publish."""

import contextlib
import os
import select
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from opendataflow import faults
from opendataflow.domain.dataset import output_location, path_segment
from opendataflow.domain.job import Candidate, Job
from opendataflow.domain.runs.questions import Items, Question, Verdict
from opendataflow.domain.runs.run import Finished, Owner, Result
from opendataflow.errors import ConfigurationError, JobChanged, LeaseLost, StoreUnavailable
from opendataflow.execution.aborts import Aborts
from opendataflow.execution.deployed_version import keep_commit
from opendataflow.execution.environment import child_environment, common_environment, dataids_of, guard_environment
from opendataflow.execution.exit_audit import audit, exit_code
from opendataflow.execution.guard import Guard
from opendataflow.execution.log import RunLog, Shown
from opendataflow.execution.made_by import made_by
from opendataflow.execution.prepare import input_location, prepare
from opendataflow.execution.processes import host_identity, start_time
from opendataflow.execution.recover import keep_for_later, remove_task_files
from opendataflow.execution.root_marker import mark_root, why_wrong_root
from opendataflow.execution.supervise import ChildEnd, GivenBack, Lost, NotRun, Signals, Stopped, supervise
from opendataflow.execution.work import Flight, Outcome, Taken, Work
from opendataflow.store.claims import LoopStore, Next

if TYPE_CHECKING:
    from opendataflow.execution.lineage_events import Lineage

PARKED_BY = (Question.RIGHT, Question.LOCATION, Question.VALID)
LOOK_AHEAD = 16  # candidates that a drain reads at once
LOOK_AHEAD_SECONDS = 0.5  # and for how long it goes by that look; every claim checks again


class Runner:
    """One process's place to run jobs from: its store, its guard, its name, its logs."""

    def __init__(
        self, store: LoopStore, guard: Guard, signals: Signals, *, work_folder: str, name: str,
        say: Callable[[str], None], out_fd: int = 1, err_fd: int = 2, openlineage: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.store, self.signals, self.say = store, signals, say
        self.work_folder, self.shown = work_folder, Shown(out_fd=out_fd, err_fd=err_fd)
        self.host = host_identity()
        self.aborts = Aborts(store)
        self._ahead: list[Candidate] = []
        self._ahead_until = 0.0
        self._taken: Taken | None = None
        self.look_at_items: Callable[[Job, str], Items | None] | None = None  # of a batch, where a stream is run
        self._name, self._given_guard = name, guard
        self._zygote = ""  # the program of the one that the guard is to come from
        self.take_guard(guard)
        self.lineage: Lineage | None = None
        if openlineage or any(name.startswith("OPENLINEAGE_") for name in os.environ):
            from opendataflow.execution.lineage_events import open_lineage

            self.lineage = open_lineage(store, openlineage, work_folder=work_folder, say=say)

    def take_guard(self, guard: Guard) -> None:
        """Runs are owned by their guard too: another one is another owner."""
        me = os.getpid()
        self.guard = guard
        self.owner = Owner(self._name, self.host, me, start_time(me) or 0, guard.pid, guard.started_at)

    def fork_children(self, program: str) -> None:
        """Start the zygote for this program, which takes a moment; a claim waits for a guard that comes from it."""
        from opendataflow.execution.zygote import get_zygote

        self._zygote = program
        with contextlib.suppress(OSError):  # it is tried again for the guard, and the reason is given then
            get_zygote(program)

    def take_forked_guard(self) -> None:
        """Have a guard that comes from the zygote, if one is wanted; raises ZygoteFailed when there is none."""
        if not self._zygote or (self.guard.can_fork and self.guard.is_current() and not self.guard.is_gone):
            return  # it is not current when PySpark was replaced since the last run
        from opendataflow.execution.zygote import new_guard

        self.close_forked_guard()
        self.take_guard(new_guard(self._zygote))

    def close_forked_guard(self) -> None:
        """Close the guard that a pipeline's chunks were forked in; the one that was given stays with its owner."""
        if self.guard is not self._given_guard:
            self.guard.close()
            self.take_guard(self._given_guard)

    # Find and ask ---------------------------------------------------------------------------------------------
    def find_work(self, job: Job, dataid: str | None) -> tuple[Candidate, Verdict] | Outcome:
        """A candidate all of whose answers are yes, or why there is none. Bad dataids are parked on the way."""
        if dataid is not None:
            return self._ask_one(job, dataid)
        seen: set[str] = set()
        while True:
            candidate = self.store.find_claimable(job)
            if candidate is None:
                return self._nothing_claimable(job)
            verdict = prepare(job, candidate)
            if verdict.yes:
                return candidate, verdict
            if candidate.earlier not in (None, candidate.dataid):
                return self._nothing_claimable(job)  # strict order: what comes first says why
            if why_wrong_root(job):
                self.store.refuse(job, candidate.dataid, verdict, park=False)
                return self._refused(job, candidate, verdict)
            if candidate.dataid in seen:
                return self._refused(
                    job, candidate, verdict
                )  # a limit of the whole job: the next one would not do either
            seen.add(candidate.dataid)
            self.put_aside(job, candidate, verdict)

    def put_aside(self, job: Job, candidate: Candidate, verdict: Verdict) -> None:
        """Keep why it was refused; parked where waiting may mend it, or counted anew where its counter was wrong."""
        if not self._refused_by_counter(job, candidate, verdict):
            refusal = verdict.refusal
            park = refusal is not None and refusal.question in PARKED_BY
            self.store.refuse(job, candidate.dataid, verdict, park=park)
            self.say(f"{job.jobid}/{candidate.dataid} refused: {describe(verdict)}")

    def _ask_one(self, job: Job, dataid: str) -> tuple[Candidate, Verdict] | Outcome:
        candidate = self.store.find_candidate(job, dataid)
        if candidate is None:
            self.store.expect_one(job, dataid)
            candidate = self.store.find_candidate(job, dataid)
            if candidate is None:
                raise ConfigurationError(f"{job.jobid} has no dataid {dataid!r}")
        if candidate.status in ("COMPLETE", "FAILED"):
            again = f"`dataflow resubmit {job.jobid} {dataid}` runs it again"
            code = 0 if candidate.status == "COMPLETE" else 1
            return Outcome(code, str(candidate.status), job.jobid, dataid, f"is {candidate.status} already; {again}")
        verdict = prepare(job, candidate, self.look_at_items(job, dataid) if self.look_at_items else None)
        if verdict.yes and (candidate.waiting > 0 or not candidate.claimable):
            self.store.recount(job, dataid)
        if verdict.yes:
            return candidate, verdict
        self.store.refuse(job, dataid, verdict, park=False)
        return self._refused(job, candidate, verdict)

    def _refused_by_counter(self, job: Job, candidate: Candidate, verdict: Verdict) -> bool:
        """A claimable row whose inputs are not READY has a wrong counter: set it right and look again."""
        if verdict.answers[0].yes:
            return False
        self.store.recount(job, candidate.dataid)
        return True

    def _nothing_claimable(self, job: Job, *, swept: bool = False) -> tuple[Candidate, Verdict] | Outcome:
        blocked = self.store.find_blocked(job, count_running=True)
        if blocked is None:
            failed = self.store.find_failed(job)
            if failed is None:
                return Outcome(0, "CAUGHT_UP", job.jobid, None, "caught up: nothing is left to do")
            step = (
                f"see `dataflow why {job.jobid} {failed.dataid}`, then `dataflow resubmit {job.jobid} {failed.dataid}`"
            )
            if failed.parked_until:
                step = f"it is tried again at {failed.parked_until}"
            return Outcome(1, "FAILED", job.jobid, failed.dataid, f"FAILED, and nothing else is left to do; {step}")
        verdict = prepare(job, blocked)
        if verdict.yes and not swept and not blocked.parked_until:
            # Everything is there, yet the row was not claimable: its counter lost a wake-up.
            self.store.recount(job, blocked.dataid)
            candidate = self.store.find_claimable(job)
            if candidate is None:
                return self._nothing_claimable(job, swept=True)
            return candidate, prepare(job, candidate)
        if not verdict.yes:
            self.store.refuse(job, blocked.dataid, verdict, park=False)
        return self._refused(job, blocked, verdict)

    def _refused(self, job: Job, candidate: Candidate, verdict: Verdict) -> Outcome:
        refusal = verdict.refusal
        if refusal is None:
            return Outcome(
                14, "PARKED", job.jobid, candidate.dataid, f"parked until {candidate.parked_until}", None, 0.0, verdict
            )
        return Outcome(
            verdict.exit_code, refusal.code, job.jobid, candidate.dataid, describe(verdict), None, 0.0, verdict
        )

    # Claim, run, audit, publish -------------------------------------------------------------------------------
    def take_one(self, job: Job, dataid: str | None) -> Taken | Outcome:
        """What the end of the last run took, else the lowest claimable dataid (or the one given)."""
        taken, self._taken = self._taken, None
        return taken if taken is not None else self.take(job, dataid)

    def take(self, job: Job, dataid: str | None) -> Taken | Outcome:
        """Claim the lowest claimable dataid (or the one given), or say why there is none."""
        collisions = 0
        while True:
            found = self.find_work(job, dataid) if collisions == 0 else self._elsewhere(job, dataid, collisions)
            if isinstance(found, Outcome):
                return found
            candidate, verdict = found
            self.take_forked_guard()
            lease_from = time.monotonic()
            claim = self.store.claim(job, candidate, verdict, self.owner)
            if claim is not None:
                return Taken(candidate, claim, lease_from)
            collisions += 1

    def take_next(self, job: Job) -> Taken | Outcome:
        """As `take`, by one look at several dataids ahead: for drains."""
        wanted = self.find_next(job)
        if wanted is not None:
            self.take_forked_guard()
            lease_from = time.monotonic()
            claim = self.store.claim(job, wanted.candidate, wanted.verdict, self.owner)
            if claim is not None:
                return Taken(wanted.candidate, claim, lease_from)
        return self.take(job, None)

    @property
    def has_taken(self) -> bool:
        """True when the end of the last run took the next dataid."""
        return self._taken is not None

    def find_next(self, job: Job) -> Next | None:
        """The next dataid of a drain, asked and found good; None when a closer look is needed."""
        if not self._ahead or time.monotonic() > self._ahead_until:
            self._ahead = self.store.list_claimable(job, limit=LOOK_AHEAD)
            self._ahead_until = time.monotonic() + LOOK_AHEAD_SECONDS
        if not self._ahead:
            return None
        candidate = self._ahead.pop(0)
        try:
            verdict = prepare(job, candidate)
        except JobChanged:  # the closer look says so
            self._ahead = []
            return None
        return Next(job, candidate, verdict, self.owner) if verdict.yes else None

    def _elsewhere(self, job: Job, dataid: str | None, collisions: int) -> tuple[Candidate, Verdict] | Outcome:
        """Another runner was faster: look a little further down, so that many runners do not all want the same."""
        if dataid is None:
            import random

            candidate = self.store.find_claimable(job, offset=random.randrange(min(2**collisions, 64)))  # noqa: S311
            if candidate is not None:
                verdict = prepare(job, candidate)
                if verdict.yes:
                    return candidate, verdict
        return self.find_work(job, dataid)

    def run_claimed(
        self, job: Job, work: Work, taken: Taken, cwd: str, passwords: dict[tuple[str, str], str], *, go_on: bool
    ) -> Outcome:
        """Run what was claimed on a child of its own, to its recorded end.

        With `go_on`, the end of the run also takes the next dataid where it can, for `take_one`.
        """
        flight = self.begin(job, work, taken, passwords)
        end: ChildEnd
        try:
            self.find_places(job, flight)
            end = self._supervise(job, work, flight, cwd, passwords)
        except OSError as error:
            end = NotRun(str(error))
        except StoreUnavailable as error:
            end = GivenBack(f"the store is away: {error}")
        return self.conclude(job, work, flight, end, go_on=go_on)

    def begin(self, job: Job, work: Work, taken: Taken, passwords: dict[tuple[str, str], str]) -> Flight:
        """Everything that is kept of a run while it goes on."""
        faults.point(faults.AFTER_CLAIM)
        if self.lineage is not None:
            self.lineage.started(job, taken.candidate, taken.claim)
        keep_commit(self.store, job, taken.claim.runid)
        name = f"{taken.claim.runid}.log"
        path = os.path.join(self.work_folder, "logs", path_segment(job.jobid), name)
        flight = Flight(taken, RunLog(path, self.shown, secrets=tuple(passwords.values())))
        flight.made_by = made_by(job, work.script)
        return flight

    def conclude(self, job: Job, work: Work, flight: Flight, end: ChildEnd, *, go_on: bool = False) -> Outcome:
        """Audit what the run made, record its end, publish; what became of it."""
        result = self.close_flight(work, flight, end, audit(job, work, flight, end))
        if isinstance(end, Lost):
            return self.lost(flight, end.reason)
        faults.point(faults.BEFORE_PUBLISH)
        try:
            finished = self._finish(job, flight, result, go_on=go_on)
        except LeaseLost as error:
            return self.lost(flight, str(error))
        except StoreUnavailable as error:
            return self.keep_end(flight, result, error)
        return self.finished(work, flight, end, result, finished)

    # The steps of an end, for whoever does it in another order ---------------------------------------------------
    def close_flight(self, work: Work, flight: Flight, end: ChildEnd, result: Result) -> Result:
        """The result with the log's place and tail; nothing more is written to it."""
        log = flight.log
        log.end()
        code, checks = flight.made_by
        result = result._replace(log_path=log.path_if_written, log_tail=log.tail(), code=code, checks=checks)
        log.close()
        recorder = work.forked
        if recorder is not None:
            if not isinstance(end, Lost):
                recorder.ended(flight.claim, list(flight.steps.values()), result)
            remove_task_files(self.work_folder, flight.claim.runid)
        return result

    def finished(self, work: Work, flight: Flight, end: ChildEnd, result: Result, finished: Finished) -> Outcome:
        """The end is recorded: show what is published, and tell."""
        faults.point(faults.AFTER_PUBLISH)
        claim = flight.claim
        if self.lineage is not None:
            self.lineage.ended(claim, result)
        if work.published is not None and finished.status == "COMPLETE":
            try:
                work.published(claim, flight.locations)
            except OSError as error:
                self.say(f"{claim.jobid}/{claim.dataid} is published, but not shown: {error}")
        message = "; ".join(part for part in (result.message, finished.note) if part)
        return self._outcome(exit_code(end, result), finished.status, flight, message)

    def keep_end(self, flight: Flight, result: Result, error: StoreUnavailable) -> Outcome:
        """The end cannot be recorded while the lease lasts: keep it on this host."""
        try:
            path = keep_for_later(self.work_folder, flight.claim, self.store.stored_result(result), self.store.url)
        except OSError as full:
            return self.lost(
                flight,
                f"{result.ending}, but the store is away ({error}) and the end cannot be kept here ({full}); "
                "it runs again when its lease is over",
            )
        if self.lineage is not None:
            self.lineage.ended(flight.claim, result)
        message = f"{result.ending}, but the store is away ({error}); kept in {path}, the next run here records it"
        return self._outcome(75, "UNREPORTED", flight, message)

    def lost(self, flight: Flight, reason: str) -> Outcome:
        """Another may have the work by now; nothing of this run was recorded."""
        if self.lineage is not None:
            self.lineage.ended(flight.claim, None)
        return self._outcome(LeaseLost.exit_code, "LEASE_LOST", flight, reason)

    def _supervise(
        self, job: Job, work: Work, flight: Flight, cwd: str, passwords: dict[tuple[str, str], str]
    ) -> ChildEnd:
        if self.signals.asked is not None:
            return Stopped(self.signals.asked, had_started=False)

        def renew() -> None:
            self.renew(flight)
            self.record_steps(work, flight)

        return supervise(
            self.guard, self.argv(work, [flight]), env=self.environment(job, work, flight, passwords), cwd=cwd,
            log=flight.log, signals=self.signals, lease_seconds=flight.claim.lease_seconds,
            lease_from=flight.lease_from, renew=renew, timeout_seconds=job.timeout_seconds,
            on_started=faults.when_running(), hear=self.listener(work, [flight]),
            find_abort=lambda now: self.aborts.look(now).get(flight.claim.runid),
            stays=work.forked is not None and work.forked.stays,
        )  # fmt: skip

    def argv(self, work: Work, flights: Sequence[Flight], *, compare: bool = False) -> list[str]:
        """What the child of these runs is started with; for a fork, the zygote has prepared by then.

        With `compare` it produces the run alone and compares it with what is written already.
        """
        if work.forked is None:
            return work.argv()
        from opendataflow.execution.zygote import prepare

        prepare(work.forked.program, work.forked.settings)
        if compare and work.forked.sharing is not None:
            (flight,) = flights
            return work.forked.sharing.compare_argv(flight.claim, flight.locations)
        work.forked.begun([flight.claim for flight in flights])
        return work.forked.argv([(flight.claim, flight.locations) for flight in flights])

    def listener(self, work: Work, flights: Sequence[Flight]) -> Callable[[dict[str, Any]], None] | None:
        """Who takes the messages of a child that sends some; of several runs, each message says of which it is."""
        if work.forked is None:
            return None
        of_run = {flight.claim.runid: flight for flight in flights}

        def hear(message: dict[str, Any]) -> None:
            run = message.get("run")
            flight = of_run.get(run, flights[0]) if isinstance(run, int) else flights[0]
            if "progress" in message:
                self.say(f"{flight.claim.jobid}/{flight.claim.dataid}: {message['progress']}")
            if message.get("stream") in (1, 2) and isinstance(message.get("text"), str):
                flight.log.write(message["stream"], message["text"].encode(errors="backslashreplace"))
            step = message.get("step")
            if isinstance(step, dict) and isinstance(step.get("position"), int):
                flight.steps[step["position"]] = step
                flight.has_new_steps = True

        return hear

    @staticmethod
    def record_steps(work: Work, flight: Flight) -> None:
        """Let people see how far the transformations of a run are."""
        if work.forked is not None and flight.has_new_steps:
            work.forked.steps(flight.claim, list(flight.steps.values()))
            flight.has_new_steps = False

    def environment(
        self, job: Job, work: Work, flight: Flight, passwords: dict[tuple[str, str], str]
    ) -> dict[str, str]:
        """What the child of this run sees."""
        if work.forked is not None and work.forked.stays:
            return self.lasting_environment(job, passwords)
        return child_environment(
            os.environ,
            job=job,
            claim=flight.claim,
            owner=self.owner,
            store_id=self.store.store_id,
            locations=flight.locations,
            dataids=dataids_of(chunk.key for chunk in flight.candidate.inputs),
            passwords=passwords,
        )

    def lasting_environment(self, job: Job, passwords: dict[tuple[str, str], str]) -> dict[str, str]:
        """What a child sees that stays for many runs: the variables of none of them."""
        common = common_environment(os.environ, job=job, store_id=self.store.store_id, passwords=passwords)
        return {**common, **guard_environment(self.owner)}

    def renew(self, flight: Flight) -> None:
        """Extend the run's lease and keep its log's tail, or raise LeaseLost."""
        before, log = time.monotonic(), flight.log
        self.store.renew(flight.claim, log_path=log.path_if_written, log_tail=log.tail() if log.changed else None)
        flight.lease_from = before

    def find_places(self, job: Job, flight: Flight) -> None:
        """Where every chunk of this run is, or goes to; the folders of the outputs are made, and the root marked."""
        mark_root(self.store, job)
        found, claim = flight.locations, flight.claim
        datasets = {link.dataset[:2]: link.dataset for link in job.inputs}
        for chunk in flight.candidate.inputs:
            key = chunk.key[:2]
            place = input_location(chunk, datasets[key], root=job.root)
            # A window or a rollup gives the list of its locations, one a line.
            found[key] = f"{found[key]}\n{place}" if found.get(key) and place else place
        for link in job.outputs:
            place = output_location(job.kind, link.dataset, claim.dataid, root=job.root, runid=claim.runid)
            found[link.dataset.project, link.dataset.datasetid] = place
            if place is not None and "://" not in place:
                is_folder = link.dataset.has_own_runs and not (link.dataset.is_one_file and job.kind == "pipeline")
                os.makedirs(place if is_folder else os.path.dirname(place), exist_ok=True)

    def _finish(self, job: Job, flight: Flight, result: Result, *, go_on: bool) -> Finished:
        """Record the end; while the store is away, try again for as long as the lease lasts."""
        claim = flight.claim
        give_up = flight.lease_from + claim.lease_seconds
        pause = 0.05
        while True:
            try:
                go_on = go_on and self.signals.asked is None and not self.guard.is_gone and self.guard.is_current()
                if go_on and (wanted := self.find_next(job)) is not None:
                    lease_from = time.monotonic()
                    finished, taken = self.store.finish_and_claim(claim, result, wanted)
                    if taken is not None:
                        self._taken = Taken(wanted.candidate, taken, lease_from)
                    return finished
                return self.store.finish(claim, result)
            except StoreUnavailable:
                if time.monotonic() + pause > give_up:
                    raise
                time.sleep(pause)
                pause = min(pause * 2, 2.0)
                go_on = False

    def _show_rest(self) -> None:
        """Wait until all output is shown: without a claim there is time, unless somebody wants us to stop."""
        while self.shown.waiting() and self.signals.asked is None:
            select.select([self.signals.wake_fd], self.shown.waiting(), [], 1.0)
            self.shown.flush()

    def _outcome(self, code: int, status: str, flight: Flight, message: str) -> Outcome:
        if self._taken is None:
            self._show_rest()
        claim, seconds = flight.claim, time.monotonic() - flight.started
        return Outcome(code, str(status), claim.jobid, claim.dataid, message, claim.runid, seconds)


def describe(verdict: Verdict) -> str:
    refusal = verdict.refusal
    return f"{refusal.code}: {refusal.evidence}" if refusal else "all five answers are yes"
