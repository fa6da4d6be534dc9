"""A worker's queue and slots in the test's own process: SQLite, guards without a process, a clock that tests move."""

import datetime
import itertools
import json
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.job import Candidate
from opendataflow.domain.registration import JobSpec, LinkSpec, Registration
from opendataflow.domain.runs.questions import Verdict
from opendataflow.errors import StoreUnavailable
from opendataflow.execution.guard import Guard
from opendataflow.execution.run import Runner
from opendataflow.execution.script import script_work
from opendataflow.execution.supervise import Signals
from opendataflow.execution.work import Outcome
from opendataflow.scheduling.auditor import Auditor
from opendataflow.scheduling.fair_queue import Lane, Lanes
from opendataflow.scheduling.worker_loop import SlotsLoop
from opendataflow.scheduling.worker_slot import Slot
from opendataflow.store import open_store, registry
from opendataflow.store.claims import LoopStore
from opendataflow.store.migrate import upgrade
from opendataflow.store.open import SCHEMA_VERSION

TIMED = (
    "scheduling.fair_queue", "scheduling.worker_loop", "execution.supervise", "execution.aborts", "execution.run",
    "execution.work",
)  # fmt: skip
NOBODY = itertools.count(5_000_000)  # greater than any process id that Linux gives out


class Clock:
    """Stands for the module `time`, and says what the store takes for the time of day."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def of_day(self) -> float:
        return 1_760_000_000.0 + self.now


class HandGuard(Guard):
    """A guard without a process: it keeps what it is told, and says what the test makes it say."""

    def __init__(self, *, apart: bool = False) -> None:
        self.events_fd, self._says = os.pipe()
        self.out_fd, self._out = os.pipe()
        self.err_fd, self._err = os.pipe()
        self.answers_fd, self._answers = os.pipe()
        for fd in self.fds:
            os.set_blocking(fd, False)
        self._unread = self._unanswered = b""
        self.can_fork = False
        self.is_current = lambda: True
        self._common = None
        self.child_stays = self.is_gone = False
        self.started = 0
        self._is_closed = False
        self.pid, self.started_at = next(NOBODY), 1
        self.told: list[dict[str, Any]] = []

    def _send(self, **message: Any) -> None:
        self.told.append(message)

    def say(self, **message: Any) -> None:
        os.write(self._says, json.dumps(message).encode() + b"\n")

    def write(self, text: str) -> None:
        """The child writes to its standard output."""
        os.write(self._out, text.encode())

    def exits(self, code: int | None, number: int | None = None, *, expired: bool = False) -> None:
        self.say(exit_code=code, signal=number, expired=expired)

    def is_killed(self) -> None:
        os.close(self._says)
        self._says = -1

    def close(self) -> None:
        for fd in (*self.fds, self._says, self._out, self._err, self._answers):
            if fd >= 0 and not self._is_closed:
                os.close(fd)
        self._is_closed = True


class HandSignals(Signals):
    """Signals that nobody sends: the test sets what was asked."""

    def __init__(self) -> None:
        self.wake_fd, self._write = os.pipe()
        os.set_blocking(self.wake_fd, False)
        self.asked, self.grace_seconds, self.grace_until = None, 10.0, float("inf")

    def ask(self, number: int, *, grace_until: float) -> None:
        self.asked, self.grace_until = number, grace_until


def job(
    jobid: str, inputs: Iterable[str] = (), outputs: Iterable[str] = (), *, concurrency: int | None = None,
    strict: bool = False, retries: int = 0, backoff: float = 30.0, timeout: float | None = None, **definition: object,
) -> JobSpec:  # fmt: skip
    links = [LinkSpec("IN", "p", name) for name in inputs] + [LinkSpec("OUT", "p", name) for name in outputs]
    return JobSpec(
        jobid, "script", "work.sh", json.dumps(definition), None, 60.0, timeout, retries, backoff, concurrency,
        tuple(links), int(strict),
    )  # fmt: skip


class Looped:
    """Jobs in a store, their lanes, and a loop over so many slots. Nothing happens but what the test does."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, *jobs: JobSpec, slots: int = 2,
        datasets: Iterable[Dataset] = (),
    ) -> None:  # fmt: skip
        self.clock = Clock()
        for module in TIMED:
            monkeypatch.setattr(f"opendataflow.{module}.time", self.clock)
        monkeypatch.setattr("opendataflow.scheduling.worker_loop.Guard", self._new_guard)
        self.folder = folder
        self.path = folder / "state.db"
        self.store = self.open()
        upgrade(self.store)
        self.store.check_schema(SCHEMA_VERSION)
        known = {one.datasetid: one for one in datasets}
        names = dict.fromkeys(link.datasetid for one in jobs for link in one.links)
        found = tuple(known.get(name, Dataset("p", name)) for name in names)
        registry.apply(
            self.store, Registration("p", "P", str(folder), str(folder), "test", found, jobs),
            now=datetime.datetime.fromtimestamp(self.clock.of_day(), datetime.UTC),
        )  # fmt: skip
        self.script = folder / "work.sh"
        self.script.write_text("#!/bin/sh\n")
        self.script.chmod(0o755)
        self.said: list[str] = []
        self.aside: list[str] = []  # dataids that were put aside
        self.ended: list[Outcome] = []
        self.guards: list[HandGuard] = []
        self.signals = HandSignals()
        self._slots = [Slot(self._new_guard(), self._new_runner) for _ in range(slots)]
        self.lanes = Lanes(self.store, slots=slots, put_aside=self._put_aside, say=self.said.append)
        self.lanes.set(self.lane(one.jobid) for one in jobs)
        self._auditor = Auditor(self.open)
        self.loop = SlotsLoop(
            self.store, self.signals, self._slots, self.lanes, self._auditor, say=self.said.append,
            ended=lambda _, outcome: self.ended.append(outcome),
        )  # fmt: skip

    def open(self) -> LoopStore:
        url = f"sqlite:///{self.path}"
        return open_store(url, actor="tests", clock=self.clock.of_day, must_exist=self.path.exists(), check=False)

    def close(self) -> None:
        self._auditor.close()
        for guard in self.guards:
            guard.close()
        for fd in (self.signals.wake_fd, self.signals._write, self._auditor.wake_fd, self._auditor._write):
            os.close(fd)
        self.store.close()

    # Its parts ----------------------------------------------------------------------------------------------------
    def _new_guard(self, *, apart: bool = False) -> HandGuard:
        self.guards.append(HandGuard(apart=apart))
        return self.guards[-1]

    def _new_runner(self, guard: Guard) -> Runner:
        return Runner(
            self.store, guard, self.signals, work_folder=str(self.folder), name="tests@here:1", say=self.said.append,
            out_fd=-1, err_fd=-1,
        )  # fmt: skip

    def lane(self, jobid: str) -> Lane:
        of = self.store.get_job(jobid, project="p")
        return Lane(
            of, lambda store: script_work(of, str(self.script), ["--fast"], store=store), self.store, passwords={},
            cwd=str(self.folder), script=str(self.script),
        )  # fmt: skip

    def _put_aside(self, of: Any, candidate: Candidate, verdict: Verdict) -> None:
        self.aside.append(candidate.dataid)
        self._slots[0].runner.put_aside(of, candidate, verdict)

    # What happens -------------------------------------------------------------------------------------------------
    def ready(self, datasetid: str, *dataids: str) -> None:
        """Declare chunks READY, as an operator would."""
        with sqlite3.connect(self.path, isolation_level=None) as shell:
            for dataid in dataids:
                shell.execute(
                    "INSERT INTO datastatus (datasetid, dataid, status) VALUES (?, ?, 'READY')", (datasetid, dataid)
                )
        shell.close()

    def advance(self, seconds: float) -> None:
        self.clock.now += seconds

    def pick(self, room: int, **ending: int) -> list[str]:
        """What the lanes give, as job/dataid."""
        picked = self.lanes.pick(room, {("p", jobid): number for jobid, number in ending.items()})
        return [f"{one.lane.job.jobid}/{candidate.dataid}" for one in picked for candidate, _ in one.chunks]

    def look(self) -> None:
        """Let the loop hear what was said; it never waits here."""
        self.loop.wait(self.clock.now)

    def go(self) -> bool:
        """The loop hears what was said, and does what is to be done."""
        self.look()
        return self.loop.turn()

    def guard(self, dataid: str) -> HandGuard:
        """The guard under which this dataid runs."""
        (found,) = (one.guard for one in self._slots if one.flight is not None and one.flight.claim.dataid == dataid)
        assert isinstance(found, HandGuard)
        return found

    def end(self, dataid: str, code: int | None = 0, number: int | None = None, *, expired: bool = False) -> Outcome:
        """The child of this dataid ends, and the loop records it; what became of it."""
        self.guard(dataid).exits(code, number, expired=expired)
        self.go()
        return self.ended[-1]

    @property
    def running(self) -> list[str]:
        """What runs, slot by slot."""
        claims = (one.flight.claim for one in self._slots if one.flight is not None)
        return [f"{claim.jobid}/{claim.dataid}" for claim in claims]

    def row(self, jobid: str, dataid: str) -> dict[str, Any]:
        found = registry.find_job_row(self.store, "p", jobid, dataid)
        assert found is not None
        return found

    def status(self, jobid: str, dataid: str) -> str:
        return str(self.row(jobid, dataid)["status"])


class Away:
    """Stands for a verb of the store while the store cannot be reached."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *_args: object, **_options: object) -> Any:
        self.calls += 1
        raise StoreUnavailable("the store is away")
