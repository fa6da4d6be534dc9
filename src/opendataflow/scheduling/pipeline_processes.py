"""Pipelines beside a worker's slots: each in a process of its own, with a warm Spark, for as long as it has work.

Such a process is a runner like any other: it claims, renews and publishes by itself. Here it is started when there is
something to claim, its outcomes are taken over, and it is told to stop. A stream has a process for as long as the
worker lives, or, where that ends when nothing is left to do, until all that was accepted is processed.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import IO, Any

from opendataflow.domain.job import Job
from opendataflow.domain.streams import find_sealed_stream, find_settings
from opendataflow.execution.processes import WITH_PARENT
from opendataflow.execution.work import Outcome
from opendataflow.scheduling.fair_queue import LOOK_AGAIN_SECONDS, Key
from opendataflow.store.claims import LoopStore

STAY_SECONDS = 30.0  # in which a pipeline that waits for its inputs keeps its Spark
REFUSED_CODE = 14
PAUSE_SECONDS = (1.0, 60.0)  # before one that could not be run is started again: first, and most


class _Process:
    """`dataflow run SLUG --drain` and what it says; without `--drain`, a stream that goes on."""

    def __init__(self, job: Job, *, grace_seconds: float, stay: bool) -> None:
        argv = [sys.executable, "-P", "-m", "opendataflow.cli.main", "run", job.jobid, "--json"]
        argv += ["--grace", f"{grace_seconds:g}"]
        if not (stay and find_settings(job)):
            argv += ["--drain", "--wait", f"{STAY_SECONDS if stay else 0:g}"]
        self.job = job
        self.ran = 0
        self._rest: dict[int, bytes] = {}
        self.process = subprocess.Popen(
            argv, cwd=job.home, env={**os.environ, "DATAFLOW_PROJECT": job.project, WITH_PARENT: str(os.getpid())},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        for stream in self._streams():
            os.set_blocking(stream.fileno(), False)
            self._rest[stream.fileno()] = b""

    def _streams(self) -> list[IO[bytes]]:
        return [one for one in (self.process.stdout, self.process.stderr) if one is not None]

    @property
    def fds(self) -> list[int]:
        return list(self._rest)

    def lines(self) -> tuple[list[str], list[str]]:
        """Whole lines that it has written since: to standard output, and to standard error."""
        out, err = (self._read(stream.fileno()) for stream in self._streams())
        return out, err

    def _read(self, fd: int) -> list[str]:
        found = self._rest.get(fd, b"")
        while fd in self._rest:
            try:
                data = os.read(fd, 65536)
            except BlockingIOError:
                break
            if not data:
                del self._rest[fd]  # a closed pipe would wake the loop for ever
                break
            found += data
        *lines, rest = found.split(b"\n")
        if fd in self._rest:
            self._rest[fd] = rest
        return [line.decode(errors="replace") for line in lines if line]

    def close(self) -> None:
        for stream in self._streams():
            stream.close()


class Sparks:
    """At most so many pipelines at a time; one that could not be run is tried again after a growing pause."""

    def __init__(
        self, store: LoopStore, *, most: int, grace_seconds: float, stay: bool, say: Callable[[str], None],
        ended: Callable[[Key, Outcome], None],
    ) -> None:  # fmt: skip
        self._store, self._most, self._grace_seconds, self._stay = store, most, grace_seconds, stay
        self._say, self._ended = say, ended
        self.jobs: dict[Key, Job] = {}
        self._streams: dict[Key, Job] = {}
        self._drained: set[Key] = set()
        self._live: dict[Key, _Process] = {}
        self._not_before: dict[Key, float] = {}
        self._pauses: dict[Key, float] = {}
        self._next_look = 0.0

    @property
    def running(self) -> int:
        return len(self._live)

    def set(self, jobs: Iterable[Job]) -> None:
        pipelines = {job[:2]: job for job in jobs if job.kind == "pipeline"}
        self._streams = {key: job for key, job in pipelines.items() if find_settings(job)}
        # What seals a stream's slots is done by the stream's own process.
        self.jobs = {
            key: job for key, job in pipelines.items() if key not in self._streams and not find_sealed_stream(job)
        }
        self.wake()

    def wake(self) -> None:
        """There may be work now."""
        self._next_look = 0.0

    def sleep(self) -> None:
        """There was no news: those that had nothing to claim have nothing now."""
        self._next_look = max(self._next_look, time.monotonic() + LOOK_AGAIN_SECONDS)

    @property
    def are_asleep(self) -> bool:
        """True when none runs and none had anything to claim at the last look."""
        is_looking = bool(self.jobs) and self._next_look <= time.monotonic()
        return not self._live and not is_looking and not (self._streams.keys() - self._drained)

    def fds(self) -> list[int]:
        return [fd for process in self._live.values() for fd in process.fds]

    def listen(self) -> None:
        """Take over what they say."""
        for key, process in list(self._live.items()):
            self._listen(key, process)

    def start_those_with_work(self) -> None:
        """Where something can be claimed; looked at once a second at most, unless somebody wakes us."""
        now = time.monotonic()
        self._start_streams(now)
        if not self.jobs or now < self._next_look or self._busy >= self._most:
            return
        self._next_look = now + LOOK_AGAIN_SECONDS
        idle = [job for key, job in self.jobs.items() if key not in self._live and self._not_before.get(key, 0) <= now]
        if not idle:
            return
        for key in self._store.list_claimable_all(idle, 1):
            if self._busy < self._most:
                self._live[key] = _Process(self.jobs[key], grace_seconds=self._grace_seconds, stay=self._stay)

    @property
    def _busy(self) -> int:
        """Streams wait most of the time: they take nobody's place."""
        return sum(1 for key in self._live if key not in self._streams)

    def _start_streams(self, now: float) -> None:
        for key, job in self._streams.items():
            if key not in self._live and key not in self._drained and self._not_before.get(key, 0) <= now:
                self._live[key] = _Process(job, grace_seconds=self._grace_seconds, stay=self._stay)

    def stop(self) -> None:
        """Nothing more is taken: they have the worker's own grace. A second time: at once."""
        for process in self._live.values():
            process.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        for process in self._live.values():
            process.process.send_signal(signal.SIGTERM)
            process.process.wait()
            process.close()

    def _listen(self, key: Key, process: _Process) -> None:
        code = process.process.poll()  # before reading: what it wrote last is there by then
        out, err = process.lines()
        for line in err:
            self._say(line)
        for line in out:
            outcome = _outcome(line)
            if outcome is None:
                self._say(line)
            elif outcome.runid is not None:
                process.ran += 1
                self._ended(key, outcome)
        if code is not None:
            del self._live[key]
            process.close()
            self._is_over(key, process, code)

    def _is_over(self, key: Key, process: _Process, code: int) -> None:
        now = time.monotonic()
        if key in self._streams and not self._stay:
            self._drained.add(key)  # what it could not do is told by its outcomes
            return
        if key in self._streams and code == REFUSED_CODE:
            self._not_before[key] = now + PAUSE_SECONDS[1]  # another worker has it, and may end
            return
        if process.ran or 10 <= code <= 14 or code == 0:
            self._pauses.pop(key, None)
            self.wake()
            return
        pause = min(self._pauses.get(key, PAUSE_SECONDS[0] / 2) * 2, PAUSE_SECONDS[1])
        self._pauses[key], self._not_before[key] = pause, now + pause
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        told = f"could not be run ({how}), see above; tried again in {pause:g} s"
        self._ended(key, Outcome(abs(code), "NOT_STARTED", process.job.jobid, None, told))


def _outcome(line: str) -> Outcome | None:
    try:
        fields: dict[str, Any] = json.loads(line)
        return Outcome(**{**fields, "verdict": None})
    except (ValueError, TypeError):
        return None
