"""A stream while it runs: the query proposes ranges of items, the store decides, and each is a run like any other.

    with StreamRunner(session, cwd=…) as stream:
        for outcome in stream.run(drain=False): …

What is published is what the store says, never what Spark remembers. So every range begins where the last COMPLETE one
ends, and a range that was ever claimed keeps its boundaries until it is COMPLETE: a database that has its rows already
knows them by this name. Whatever dies, the next runner asks the store, does what was begun, and goes on.
"""

import contextlib
import datetime
import fcntl
import json
import os
import select
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, TypeVar

from opendataflow import faults
from opendataflow.domain.dataset import path_segment
from opendataflow.domain.job import Job
from opendataflow.domain.questions import Items
from opendataflow.domain.run import Claim
from opendataflow.domain.streams import FOLDER, batch_id, batch_range, get_settings
from opendataflow.errors import Refused, StoreUnavailable, UsageError
from opendataflow.intake.entry import moment
from opendataflow.intake.reader import IntakeReader
from opendataflow.project.address import stream_folder
from opendataflow.runner.guard import Ended, NotStarted
from opendataflow.runner.log import RunLog
from opendataflow.runner.runjob import Outcome, Taken
from opendataflow.runner.seal import Sealer
from opendataflow.runner.session import Session
from opendataflow.runner.stream_work import BatchWork, OnTheChild
from opendataflow.runner.supervise import drain_wakeups, pump
from opendataflow.store import streams

REPORT_SECONDS = 5.0
ASK_AGAIN_SECONDS = 0.25  # while a batch may not be claimed: a pause, a static source that is made again
SEAL_SECONDS = 5.0
LOOK_SECONDS = 1.0  # between two looks for batches that are to be made again
REFRESH_SECONDS = 1.0  # between two looks at static sources
RETRY_SECONDS = 60.0  # a drain waits for an attempt that is due within that time
STARTS = 3  # in a row without a batch, before the stream is FAILED
PAUSE_SECONDS = (0.5, 30.0)  # before a query that ended is begun again: first, and most
T = TypeVar("T")


class _Failed(Exception):
    """The stream cannot go on; the message is the reason."""


class _Blocked(Exception):
    """A drain that could only wait; the message is for what."""


class _Waits(NamedTuple):
    """Why a batch is not run now."""

    why: Outcome
    key: str  # while it is the same, it has been told
    ends_drain: bool


def run_stream(session: Session, *, cwd: str, drain: bool = False, wait_seconds: float = 0.0) -> Iterator[Outcome]:
    """Process what comes until told to stop; with `drain`, until all that was accepted is published.

    A drain then stays for so many seconds more, in case there is something new.
    """
    with StreamRunner(session, cwd=cwd) as stream, stream.fed():
        yield from stream.run(drain=drain, wait_seconds=wait_seconds)


class StreamRunner:
    """One stream on the runner's child, which stays."""

    def __init__(self, session: Session, *, cwd: str) -> None:
        self._session, self._job, self._store = session, session.job, session.store
        self._runner, self._guard, self._signals = session.runner, session.runner.guard, session.signals
        self._cwd, self._settings = cwd, get_settings(session.job)
        self.folder = os.path.abspath(stream_folder(session.address, self._job.project, self._job.jobid))
        self._log = IntakeReader(self.folder)
        self._batches = BatchWork(
            self._job, session.address.work, self.folder, store=self._store, say=session.say,
            secrets=tuple(session.passwords.values()),
        )  # fmt: skip
        self._child = OnTheChild(session, cwd, self._hear)
        self._sealer = Sealer(self._child)
        self._proposed: tuple[int, int] | None = None
        self._asked_child: int | None = None  # the child that has been told to begin a query
        self._starts, self._begin_at = 0, 0.0
        self._is_drain, self._until = False, float("inf")
        self._reported_at = self._sealed_at = float("-inf")
        self._final = ""  # why no query can ever be
        self._look_at = self._refresh_at = 0.0
        self._lock = -1
        self._has_more: Callable[[], bool] = lambda: False  # than the log holds
        self._known_end = streams.committed_end(self._store, self._job)
        path = os.path.join(session.address.work, "logs", path_segment(self._job.jobid), "query.log")
        self._runner.look_at_items = self._look_at_items
        self._said = RunLog(path, self._runner.shown, secrets=tuple(session.passwords.values()))

    def __enter__(self) -> "StreamRunner":
        os.makedirs(self.folder, exist_ok=True)
        self._lock = os.open(os.path.join(self.folder, "runner"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
        self._said.end()
        self._said.close()
        os.close(self._lock)

    @contextlib.contextmanager
    def fed(self) -> Iterator[None]:
        """While it is open, files of a watched folder are taken into the log."""
        if self._settings.origin != FOLDER:
            yield
            return
        from opendataflow.runner.watch_folder import Feeding

        with Feeding(self._job, self.folder, committed=lambda: self._known_end, say=self._session.say) as feed:
            self._has_more = lambda: not feed.is_settled
            yield

    # The loop -------------------------------------------------------------------------------------------------------
    def run(self, *, drain: bool, wait_seconds: float = 0.0) -> Iterator[Outcome]:
        """An outcome for each batch and each sealed slot, until it is stopped, drained or FAILED."""
        self._patiently(self._session.tidy)
        self._is_drain, self._until = drain, time.monotonic() + wait_seconds
        self._report(streams.RUNNING)
        waiting = max(self._log.durable_end() - self._known_end, 0)
        self._session.say(f"{self._job.jobid}: from item {self._known_end} on, {waiting} wait; Spark is being started")
        state, reason = streams.STOPPED, ""
        try:
            yield from self._run()
        except _Failed as failed:
            state, reason = streams.FAILED, str(failed)
            yield Outcome(1, "FAILED", self._job.jobid, None, f"the stream stops: {failed}")
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
                self._wait(1.0)

    def _turn(self) -> Generator[Outcome, None, bool]:
        """The next thing to do; True when a drain has nothing more to do."""
        yield from self._finish_what_was_begun()
        if self._is_over():
            return False
        if self._proposed is not None:
            yield from self._answer()
            return False
        if self._is_drain and self._is_drained():
            yield from self._seal(at_once=True)
            return True
        yield from self._seal()
        self._keep_query()
        self._wait(ASK_AGAIN_SECONDS if self._is_drain else 1.0)
        return False

    def _is_drained(self) -> bool:
        if self._has_more() or time.monotonic() < self._until:
            return False
        return self._committed() >= self._log.durable_end()

    def _is_over(self) -> bool:
        if self._guard.is_gone:
            raise _Failed("somebody killed the guard of its Spark child")
        if self._final:
            raise _Failed(self._final)
        return self._signals.asked is not None

    # The child ------------------------------------------------------------------------------------------------------
    def _keep_query(self) -> None:
        """See that there is a child with a query, from where the store is."""
        self._listen()
        if self._asked_child is not None and not self._has_child:
            self._query_ended("its Spark child is gone")
        if self._asked_child is not None or self._proposed is not None or time.monotonic() < self._begin_at:
            return
        if self._starts >= STARTS:
            raise _Failed("its query cannot be run; see above")
        begin = self._committed()
        if not self._guard.child_stays:
            env = self._runner.dry_environment(self._job, _no_claim(self._job), self._session.passwords)
            self._guard.start(self._batches.argv(), env, self._cwd, float("inf"), stays=True)
        self._guard.give(json.dumps({"stream": self._asked(begin)}))
        self._asked_child = self._guard.started

    @property
    def _has_child(self) -> bool:
        """True while the child lives that was told to begin a query: a run may have started another one since."""
        return self._guard.child_stays and self._asked_child == self._guard.started

    def _asked(self, begin: int) -> dict[str, Any]:
        settings = self._settings
        return {
            "folder": self.folder, "begin": begin, "most": settings.max_batch, "seal": settings.seal,
            "every": settings.every_seconds, "slug": self._job.jobid, "home": self._job.home,
            "spark": self._job.definition.get("spark") or {}, "kafka": settings.source.get("kafka"),
            "fields": [list(field) for field in settings.schema],
        }  # fmt: skip

    def _hear(self, message: dict[str, Any]) -> None:
        """What the child says of no run."""
        if "batch" in message:
            start, end = message["batch"]
            self._proposed = (start, end)
            faults.point(faults.STREAM_PROPOSED)
        elif "ended" in message:
            self._query_ended(str(message["ended"]))
            self._final = str(message["ended"]) if message["is_final"] else ""

    def _query_ended(self, reason: str) -> None:
        self._asked_child = self._proposed = None
        pause = min(PAUSE_SECONDS[0] * 2**self._starts, PAUSE_SECONDS[1])
        self._starts, self._begin_at = self._starts + 1, time.monotonic() + pause
        self._session.say(f"{self._job.jobid}: its query ended ({reason}); it is begun again from what is published")

    def _wait(self, seconds: float) -> None:
        """Until the child, the guard or a signal has something to say, or the time has passed."""
        shown = self._runner.shown
        poll = select.poll()
        for fd in (self._guard.events_fd, self._signals.wake_fd, self._guard.answers_fd):
            poll.register(fd, select.POLLIN)
        for fd in (self._guard.out_fd, self._guard.err_fd):
            poll.register(fd, select.POLLIN)
        for fd in shown.waiting():
            poll.register(fd, select.POLLOUT)
        poll.poll(max(0.0, seconds) * 1000)
        drain_wakeups(self._signals.wake_fd)
        shown.flush()
        self._listen()

    def _listen(self) -> None:
        """Between two runs: what the child says, and whether it is still there."""
        events = self._guard.events()
        pump(self._guard, self._said)
        while messages := self._guard.messages():
            for message in messages:
                self._hear(message)
        for event in events or ():
            if isinstance(event, Ended | NotStarted):
                self._child_ended(event)

    def _child_ended(self, event: Ended | NotStarted) -> None:
        if isinstance(event, NotStarted):
            raise _Failed(f"its Spark child cannot be started: {event.reason}")
        how = f"exited {event.exit_code}" if event.exit_code is not None else f"was killed by signal {event.signal}"
        self._query_ended(f"the Spark child {how}")

    # A proposal -----------------------------------------------------------------------------------------------------
    def _answer(self) -> Iterator[Outcome]:
        """Have the proposed range published, and let the query go on; or have it begin where the store is."""
        if self._proposed is None:
            return
        if not self._has_child:  # it died after it had proposed it
            self._proposed = None
            return
        start, end = self._proposed
        committed = self._committed()
        if end <= committed:
            self._go(start, end)  # done by another, or before a checkpoint that somebody put back
        elif start != committed or end > self._log.durable_end():
            self._begin_again(committed)
        else:
            dataid = self._expect(start, end)
            if dataid is None:
                self._wait(ASK_AGAIN_SECONDS)  # another runner has it
                return
            yield from self._until_complete(dataid)
            if self._proposed == (start, end) and self._committed() >= end:
                self._go(start, end)

    def _go(self, start: int, end: int) -> None:
        faults.point(faults.STREAM_GO)
        self._starts, self._proposed = 0, None
        self._guard.give(json.dumps({"go": [start, end]}))

    def _begin_again(self, begin: int) -> None:
        self._proposed = None
        self._guard.give(json.dumps({"stream": self._asked(begin)}))

    def _expect(self, start: int, end: int) -> str | None:
        """The row of the range, so that it can be claimed; None when another runner has begun with one like it."""
        accepted = self._log.accepted_at(start)
        at = moment(accepted if accepted is not None else time.time())
        slot = self._sealer.slot_for(at)
        try:
            dataid = self._patiently(lambda: streams.expect_batch(self._store, self._job, start, end, at=at, slot=slot))
        except (Refused, UsageError):
            return None
        self._batches.never_run = {dataid}
        return dataid

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
                outcome = self._child.run(self._job, self._batches.work(), taken)
                self._look_at = 0.0 if outcome.status != "COMPLETE" else self._look_at
                yield outcome
                if outcome.status == "COMPLETE":
                    self._starts = 0
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
            self._wait(ASK_AGAIN_SECONDS)

    def _take(self, dataid: str) -> Taken | Outcome:
        self._patiently(self._session.tidy)
        self._refresh_sources()
        return self._patiently(lambda: self._runner.take(self._job, dataid))

    def _refresh_sources(self) -> None:
        """New versions of static sources that are simply there."""
        if self._job.inputs and time.monotonic() >= self._refresh_at:
            self._refresh_at = time.monotonic() + REFRESH_SECONDS
            from opendataflow.runner.sources import take_in_sources

            take_in_sources(self._store, self._job, say=self._session.say)

    def _look_at_items(self, job: Job, dataid: str) -> Items | None:
        """Whether the log has what a batch reads."""
        if job[:2] != self._job[:2]:
            return None
        start, end = batch_range(dataid)
        first, durable = self._log.first_offset(), self._log.durable_end()
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
            raise _Failed(f"batch {dataid} FAILED: {self._why_failed(dataid)}")
        due = datetime.datetime.fromisoformat(until).timestamp() if until else 0.0
        seconds = max(due - self._store.clock(), 0.0)
        told = f"FAILED, and is tried again in {seconds:.1f} s"
        return _Waits(why._replace(message=told), until or "", seconds > RETRY_SECONDS)

    def _why_failed(self, dataid: str) -> str:
        from opendataflow.store.operations import NEWEST, Key, runs_of_dataid

        key = Key(self._job.project, self._job.jobid, dataid)
        runs = runs_of_dataid(self._store, key, status=None, since=None, before=NEWEST, limit=1)
        said = str(runs[0]["message"]) if runs else "see above"
        return f"{said}; when that is mended, `dataflow stream resume {self._job.jobid}` goes on with it"

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


def _no_claim(job: Job) -> Claim:
    return Claim(job.project, job.jobid, "", 0, 0, 0, job.lease_seconds, 0, 0.0, ())
