"""A stream while it runs: the next range of its log is a dataid, claimed, produced and published as any other.

    with StreamRunner(session) as stream:
        for outcome in stream.run(drain=False): …

What is published is what the store says. So every range begins where the last COMPLETE one ends, and a range that was
ever claimed keeps its boundaries until it is COMPLETE: a database that has its rows already knows them by this name.
Whatever dies, the next runner asks the store, does what was begun, and goes on.
"""

import contextlib
import datetime
import fcntl
import os
import select
import time
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, TypeVar

from opendataflow import faults
from opendataflow.domain.job import Job
from opendataflow.domain.runs.questions import Items
from opendataflow.domain.streams import DATASET, INTAKE, batch_id, batch_range, get_settings
from opendataflow.errors import Refused, StoreUnavailable, UsageError
from opendataflow.execution.session import Session
from opendataflow.execution.work import Outcome, Taken
from opendataflow.intake.entry import moment
from opendataflow.intake.reader import IntakeReader
from opendataflow.intake.refusals import ItemsGone, LogDamaged
from opendataflow.intake.wakeup import Wakeup
from opendataflow.private_files import FILE, make_folder
from opendataflow.project.address import stream_folder
from opendataflow.store.records import streams
from opendataflow.streams.child import StreamChild
from opendataflow.streams.seal import Sealer
from opendataflow.streams.topic_log import find_topic
from opendataflow.streams.versions import Versions
from opendataflow.streams.work import BatchWork

REPORT_SECONDS = 5.0
LOOK_AT_LOG_SECONDS = 0.05  # between two looks at a log that another machine may write to
ASK_AGAIN_SECONDS = 0.25  # while a batch may not be claimed: a pause, a static source that is made again
SEAL_SECONDS = 5.0
LOOK_SECONDS = 1.0  # between two looks for batches that are to be made again
REFRESH_SECONDS = 1.0  # between two looks at static sources
RETRY_SECONDS = 60.0  # a drain waits for an attempt that is due within that time
T = TypeVar("T")


class StreamFailed(Exception):
    """The stream cannot go on; the message is the reason."""


class _Blocked(Exception):
    """A drain that could only wait; the message is for what."""


class _Waits(NamedTuple):
    """Why a batch is not run now."""

    why: Outcome
    key: str  # while it is the same, it has been told
    ends_drain: bool


def run_stream(session: Session, *, drain: bool = False, wait_seconds: float = 0.0) -> Iterator[Outcome]:
    """Process what comes until told to stop; with `drain`, until all that was accepted is published.

    A drain then stays for so many seconds more, in case there is something new.
    """
    with StreamRunner(session) as stream, stream.fed():
        yield from stream.run(drain=drain, wait_seconds=wait_seconds)


class StreamRunner:
    """One stream, on a child that stays from batch to batch."""

    def __init__(self, session: Session) -> None:
        self._session, self._job, self._store = session, session.job, session.store
        self._runner, self._signals, self._settings = session.runner, session.signals, get_settings(session.job)
        self.folder = os.path.abspath(stream_folder(session.address, self._job.project, self._job.jobid))
        self._known_end = streams.committed_end(self._store, self._job)
        self._topic = find_topic(self._store, self._job, committed=lambda: self._known_end, say=session.say)
        self._intake = IntakeReader(self.folder)
        self._log = self._topic or self._intake
        self._batches = BatchWork(
            self._job, session.address.work, self.folder, store=self._store, say=session.say,
            secrets=tuple(session.passwords.values()), topic=self._topic,
        )  # fmt: skip
        self._work = self._batches.work()
        self._wakeup = Wakeup(self.folder)
        self._child = StreamChild(session)
        self._returns_all = self._settings.returns == DATASET
        self._sealer: Sealer | Versions = Versions(session) if self._returns_all else Sealer(self._child)
        self._is_drain, self._until = False, float("inf")
        self._reported_at = self._sealed_at = float("-inf")
        self._look_at = self._refresh_at = self._not_before = 0.0
        self._lock = -1
        self._has_more: Callable[[], bool] = lambda: False  # than the log holds
        self._runner.look_at_items = self._look_at_items

    def __enter__(self) -> "StreamRunner":
        make_folder(self.folder)
        self._lock = os.open(os.path.join(self.folder, "runner"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            by = os.pread(self._lock, 100, 0).decode(errors="replace").strip()
            os.close(self._lock)
            raise Refused(
                f"the stream {self._job.jobid} is being run by {by or 'another'} already", exit_code=14
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, self._store.actor.encode(), 0)
        return self

    def __exit__(self, *_error: object) -> None:
        self._child.close()
        self._wakeup.close()
        if self._topic is not None:
            self._topic.close()
        os.close(self._lock)

    @contextlib.contextmanager
    def fed(self) -> Iterator[None]:
        """While it is open, files of a watched folder and records of a topic are taken into the log."""
        if self._settings.origin == INTAKE:
            yield
            return
        from opendataflow.streams.feeding import Feeding

        with Feeding(self._job, self.folder, committed=lambda: self._known_end, say=self._session.say) as feed:
            self._has_more = lambda: not feed.is_settled
            yield

    # The loop -------------------------------------------------------------------------------------------------------
    def run(self, *, drain: bool, wait_seconds: float = 0.0) -> Iterator[Outcome]:
        """An outcome for each batch and each sealed slot, until it is stopped, drained or FAILED."""
        self._child.prepare()
        self._patiently(self._session.tidy)
        self._is_drain, self._until = drain, time.monotonic() + wait_seconds
        self._patiently(lambda: self._report(streams.RUNNING))
        waiting = max(self._patiently(self._log.durable_end) - self._known_end, 0)
        self._session.say(f"{self._job.jobid}: from item {self._known_end} on, {waiting} wait")
        state, reason = streams.STOPPED, ""
        try:
            yield from self._run()
        except StreamFailed as failed:
            state, reason, slug = streams.FAILED, str(failed), self._job.jobid
            step = f"when that is mended, `dataflow stream resume {slug}`, and `dataflow stream run {slug}` goes on"
            yield Outcome(1, "FAILED", slug, None, f"the stream stops: {failed}; {step}")
        except _Blocked as blocked:
            reason = str(blocked)
        except StoreUnavailable as error:  # told to stop while it was away
            yield Outcome(75, "STOPPED", self._job.jobid, None, str(error))
        finally:
            with contextlib.suppress(StoreUnavailable):
                self._report(state, reason)
        number = self._signals.asked
        if number is not None:
            yield Outcome(
                128 + number, "STOPPED", self._job.jobid, None, f"stopped by signal {number}; nothing more was taken"
            )

    def _run(self) -> Iterator[Outcome]:
        is_done = False
        while not is_done and not self._is_over():
            try:
                is_done = yield from self._turn()
                self._tell_how_it_stands()
            except StoreUnavailable as error:
                self._session.say(f"{self._job.jobid}: {error}; it is tried again")
                self._child.wait(1.0)
            except (ItemsGone, LogDamaged) as error:
                raise StreamFailed(str(error)) from error

    def _turn(self) -> Generator[Outcome, None, bool]:
        """The next thing to do; True when a drain has nothing more to do."""
        yield from self._finish_what_was_begun()
        if self._is_over():
            return False
        if (yield from self._next_range()):
            return False
        if self._is_drain and self._is_drained():
            yield from self._seal(at_once=True)
            return True
        yield from self._seal()
        self._wait_for_items()
        return False

    def _is_drained(self) -> bool:
        if self._has_more() or time.monotonic() < self._until:
            return False
        return self._committed() >= self._log.durable_end()

    def _is_over(self) -> bool:
        return self._signals.asked is not None or self._session.is_left()

    def _wait_for_items(self) -> None:
        """Until there are some that may be taken now, a second has passed, or something else happens."""
        give_up = time.monotonic() + (ASK_AGAIN_SECONDS if self._is_drain else 1.0)
        while (now := time.monotonic()) < give_up and self._signals.asked is None:
            if self._log.durable_end() > self._known_end:
                if now >= self._not_before:
                    return
                self._child.wait(min(self._not_before, give_up) - now)
            else:
                self._child.wait(min(LOOK_AT_LOG_SECONDS, give_up - now), self._wakeup.fds)
                self._wakeup.drain()

    # The next range -------------------------------------------------------------------------------------------------
    def _next_range(self) -> Generator[Outcome, None, bool]:
        """Have the next range of the log published; False when there is none yet."""
        now = time.monotonic()
        if now < self._not_before:
            return False
        start = self._committed()
        end = self._log.boundary(start, self._settings.max_batch, self._settings.seal)
        if end == start:
            return False
        self._not_before = now + self._settings.every_seconds
        dataid = self._expect(start, end)
        if dataid is None:
            self._child.wait(ASK_AGAIN_SECONDS)  # another runner has it
            self._look_at = 0.0
            return True
        faults.point(faults.STREAM_EXPECTED)
        yield from self._until_complete(dataid)
        return True

    def _expect(self, start: int, end: int) -> str | None:
        """The row of the range, so that it can be claimed; None when another runner has begun with one like it."""
        accepted = self._log.accepted_at(start)
        at = moment(accepted if accepted is not None else time.time())
        slot = self._sealer.slot_for(at)
        try:
            dataid = self._patiently(lambda: self._expect_range(start, end, at, slot))
        except (Refused, UsageError):
            return None
        self._batches.never_run = {dataid}
        return dataid

    def _expect_range(self, start: int, end: int, at: str, slot: str) -> str:
        follows = self._returns_all
        parts = self._topic.parts(start, end) if self._topic is not None else ()
        return streams.expect_batch(
            self._store, self._job, start, end, at=at, slot=slot, follows=follows, parts=parts
        )  # fmt: skip

    # Runs -----------------------------------------------------------------------------------------------------------
    def _finish_what_was_begun(self) -> Iterator[Outcome]:
        """Ranges that were claimed once come first, then those that somebody wants made again."""
        if time.monotonic() < self._look_at:
            return
        while not self._is_over():
            begun = self._patiently(lambda: streams.find_begun(self._store, self._job))
            if begun is None:
                break
            yield from self._again(batch_id(*begun))
        while not self._is_over() and (again := self._patiently(lambda: streams.list_again(self._store, self._job))):
            for dataid in again:
                yield from self._again(dataid)
        self._look_at = time.monotonic() + LOOK_SECONDS

    def _again(self, dataid: str) -> Iterator[Outcome]:
        self._patiently(lambda: self._sealer.reopen(dataid))
        yield from self._until_complete(dataid)

    def _until_complete(self, dataid: str) -> Iterator[Outcome]:
        """Attempts at one range, until it is COMPLETE; raises when there is none left."""
        told = ""
        while not self._is_over():
            taken = self._take(dataid)
            if isinstance(taken, Taken):
                outcome = self._child.run(self._job, self._work, taken)
                self._look_at = 0.0 if outcome.status != "COMPLETE" else self._look_at
                yield outcome
                if outcome.status == "COMPLETE":
                    if self._returns_all:
                        yield from self._seal(at_once=True)
                    return
                continue
            if taken.status == "COMPLETE":
                return
            waits = self._waits(dataid, taken)
            if self._is_drain and waits.ends_drain:
                yield waits.why
                raise _Blocked(f"{dataid} {waits.why.message}")
            if waits.key != told:
                told = waits.key
                self._session.say(f"{self._job.jobid}/{dataid} {waits.why.message}")
            self._tell_how_it_stands(f"{dataid} {waits.why.message}")
            self._child.wait(ASK_AGAIN_SECONDS)

    def _take(self, dataid: str) -> Taken | Outcome:
        self._patiently(self._session.tidy)
        self._refresh_sources()
        return self._patiently(lambda: self._runner.take(self._job, dataid))

    def _refresh_sources(self) -> None:
        """New versions of static sources that are simply there."""
        if self._job.inputs and time.monotonic() >= self._refresh_at:
            self._refresh_at = time.monotonic() + REFRESH_SECONDS
            from opendataflow.arrivals.sources import take_in_sources

            take_in_sources(self._store, self._job, say=self._session.say)

    def _look_at_items(self, job: Job, dataid: str) -> Items | None:
        """Whether the log has what a batch reads."""
        if job[:2] != self._job[:2]:
            return None
        if self._topic is not None:
            return self._topic.find_items(dataid)
        start, end = batch_range(dataid)
        first, durable = self._intake.first_offset(), self._intake.durable_end()
        items = f"items {start} to {end - 1}"
        if first <= start and end <= durable:
            return Items(True, f"{items} are durable in {self.folder}")
        has = f"{first} to {durable - 1}" if durable > first else "none"
        return Items(False, f"{items} are not in the log any more: {self.folder} has {has}; restore it from a backup")

    def _waits(self, dataid: str, why: Outcome) -> _Waits:
        """For what a batch waits that could not be taken; raises when it FAILED and no attempt is left."""
        if why.status != "FAILED":
            told = f"waits: {why.message}"
            return _Waits(why._replace(message=told), told, time.monotonic() >= self._until)
        candidate = self._patiently(lambda: self._store.find_candidate(self._job, dataid))
        until = candidate.parked_until if candidate is not None else None
        if candidate is not None and str(candidate.status) == "FAILED" and until is None:
            raise StreamFailed(f"batch {dataid} FAILED: {self._why_failed(dataid)}")
        due = datetime.datetime.fromisoformat(until).timestamp() if until else 0.0
        seconds = max(due - self._store.clock(), 0.0)
        told = f"FAILED, and is tried again in {seconds:.1f} s"
        return _Waits(why._replace(message=told), until or "", seconds > RETRY_SECONDS)

    def _why_failed(self, dataid: str) -> str:
        from opendataflow.store.operations import NEWEST, Key, runs_of_dataid

        key = Key(self._job.project, self._job.jobid, dataid)
        runs = runs_of_dataid(self._store, key, status=None, since=None, before=NEWEST, limit=1)
        return str(runs[0]["message"]) if runs else "see above"

    # What is said of it ---------------------------------------------------------------------------------------------
    def _committed(self) -> int:
        self._known_end = self._patiently(lambda: streams.committed_end(self._store, self._job))
        return self._known_end

    def _patiently(self, action: Callable[[], T]) -> T:
        """Do it; while the store is away, again and again, until somebody wants us to stop."""
        pause = 0.1
        while True:
            try:
                return action()
            except StoreUnavailable:
                if self._signals.asked is not None:
                    raise
                select.select([self._signals.wake_fd], [], [], pause)
                pause = min(2 * pause, 5.0)

    def _tell_how_it_stands(self, reason: str = "") -> None:
        if time.monotonic() - self._reported_at >= REPORT_SECONDS:
            with contextlib.suppress(StoreUnavailable):
                self._report(streams.RUNNING, reason)

    def _report(self, state: str, reason: str = "") -> None:
        self._reported_at = time.monotonic()
        committed = streams.committed_end(self._store, self._job)
        oldest = self._log.accepted_at(committed)
        streams.report(
            self._store, self._job, state=state, reason=reason, accepted=self._log.durable_end(),
            oldest_at=moment(oldest) if oldest is not None else None,
        )  # fmt: skip

    def _seal(self, *, at_once: bool = False) -> Iterator[Outcome]:
        if not at_once and time.monotonic() - self._sealed_at < SEAL_SECONDS:
            return
        self._sealed_at = time.monotonic()
        oldest = self._log.accepted_at(self._committed())
        yield from self._sealer.seal_what_is_over(oldest)
