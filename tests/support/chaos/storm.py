"""The storm itself: workers work, faults come as they were drawn, and in the end it is judged."""

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from support.chaos import plan, work
from support.chaos.fleet import Fleet, Hit, go_on
from support.chaos.invariants import Facts, Invariant, judge, recovery, told
from support.chaos.plan import Fault, Size
from support.chaos.stores import Failing, failing_store, hold_open
from support.processes import processes_with
from support.projects import Project

STEP_SECONDS = 0.02
TOLD_SECONDS = 5.0
HIT_SECONDS = 20.0  # in which a target for a fault must turn up
Say = Callable[[str], None]


class Report(NamedTuple):
    """What came of a storm."""

    title: str
    invariants: tuple[Invariant, ...]
    times: tuple[str, ...]
    said: str  # the ends of the workers' logs

    @property
    def holds(self) -> bool:
        return not any(one.wrong for one in self.invariants)

    @property
    def lines(self) -> list[str]:
        times = ["     from a hit to the chunk's next claim:", *self.times]
        return [self.title, *(one.line for one in self.invariants), *times]


def run_chaos(kind: str, size: Size, seed: int, folder: Path, *, say: Say, give_up_seconds: float = 3600.0) -> Report:
    """Let the storm of this seed go over a store of this kind, and judge it."""
    with failing_store(kind, folder) as store:
        project = Project(folder / "project", store.url)
        with _logs_that_fill(project, size, say):
            work.make(project, size, seed)
            storm = _Storm(project, store, size, seed, say)
            try:
                return storm.run(give_up_seconds)
            finally:
                storm.close()


class _Storm:
    def __init__(self, project: Project, store: Failing, size: Size, seed: int, say: Say) -> None:
        self._project, self._store, self._size, self._seed, self._say = project, store, size, seed, say
        self._faults = plan.draw(size, seed, dialect=store.dialect)
        self._journal = work.Journal(project.folder / "journal")
        self._hits: list[Hit] = []
        self._later: list[tuple[float, Callable[[], None]]] = []  # what ends by itself: stops, readers, cuts
        self._readers: list[subprocess.Popen[bytes]] = []
        self._missed: list[Fault] = []
        self._told = 0.0
        ways = [store.url] * (len(size.slots) - 1) + [store.last_url]
        self._fleet = Fleet(project, size, stores=ways)
        self._began = time.monotonic()

    # The storm ------------------------------------------------------------------------------------------------------
    def run(self, give_up_seconds: float) -> Report:
        total = self._size.chunks * len(work.JOBS)
        waiting = list(self._faults)
        is_done, looked = False, 0.0
        give_up = self._began + give_up_seconds
        while not is_done and time.monotonic() < give_up:
            self._fleet.tend()
            self._journal.read()
            part = self._journal.ended / total
            if waiting and waiting[0].at <= part:
                self._happen(waiting.pop(0))
            self._end_what_is_over()
            self._tell(part, len(waiting))
            if part >= 1 and not self._later and time.monotonic() > looked + 0.5:
                looked = time.monotonic()
                is_done = self._is_done(total)
            time.sleep(STEP_SECONDS)
        took = time.monotonic() - self._began
        self._end_what_is_over(at_once=True)
        return self._judge(took, is_done=is_done)

    def _is_done(self, total: int) -> bool:
        with contextlib.suppress(Exception):  # the store may be away just now
            [(n,)] = self._project.sql("SELECT count(*) FROM job_status WHERE status = 'COMPLETE'")
            return int(n) >= total
        return False

    def _happen(self, fault: Fault) -> None:
        what = getattr(self, f"_{fault.kind}")(fault)
        if what:
            self._say(f"{fault.at:5.1%} {what}")
        else:
            self._missed.append(fault)

    def _kill(self, fault: Fault) -> str:
        return self._hit(fault)

    def _stop(self, fault: Fault) -> str:
        return self._hit(fault)

    def _hit(self, fault: Fault) -> str:
        give_up = time.monotonic() + HIT_SECONDS
        while (hit := self._fleet.hit(fault.kind, fault.whom, fault.pick)) is None:  # scripts come and go
            if time.monotonic() > give_up:
                return ""
            self._fleet.tend()
            self._end_what_is_over()
            time.sleep(STEP_SECONDS / 4)
        self._hits.append(hit)
        pids = " ".join(map(str, hit.pids))
        if fault.kind == "kill":
            return f"SIGKILL to {fault.whom} ({pids})"
        # In a thread: what was stopped may hold SQLite's lock, and then this one waits for it in the next fault.
        timer = threading.Timer(fault.amount, go_on, [hit])
        timer.start()
        self._after(fault.amount, timer.join)
        return f"SIGSTOP to {fault.whom} ({pids}) for {fault.amount:.1f} s"

    def _restart(self, fault: Fault) -> str:
        return self._store.restart(seconds=fault.amount, pick=fault.pick)

    def _drop(self, _fault: Fault) -> str:
        return self._store.drop()

    def _cut(self, fault: Fault) -> str:
        self._store.cut()
        self._after(fault.amount, self._store.mend)
        return f"the last worker is cut off for {fault.amount:.1f} s"

    def _reader(self, fault: Fault) -> str:
        reader = hold_open(self._store.url)
        self._readers.append(reader)
        self._after(fault.amount, reader.kill)
        return f"a reader holds a transaction open for {fault.amount:.1f} s"

    def _scale(self, fault: Fault) -> str:
        """Half of them as a person with the command would, half as one with an SQL shell."""
        limit = int(fault.amount)
        if fault.pick < 0.5:
            self._project.sql(f"UPDATE job SET scaled_to = {limit or 'NULL'} WHERE jobid = '{fault.whom}'")
            return f"UPDATE job SET scaled_to = {limit or 'NULL'} for {fault.whom}"
        done = self._project.dataflow("scale", fault.whom, str(limit or "default"), "--reason", "chaos")
        assert done.returncode == 0, done.stderr
        return f"dataflow scale {fault.whom} {limit or 'default'}"

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + seconds, action))

    def _end_what_is_over(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        over = [one for one in self._later if at_once or one[0] <= now]
        self._later = [one for one in self._later if one not in over]
        for _, action in over:
            action()

    def _tell(self, part: float, left: int) -> None:
        now = time.monotonic()
        if now >= self._told + TOLD_SECONDS:
            self._told = now
            rate = self._journal.ended / max(now - self._began, 0.001)
            self._say(f"{part:5.1%} done, {rate:.0f} a second so far, {left} faults to come")

    # The end --------------------------------------------------------------------------------------------------------
    def _judge(self, took: float, *, is_done: bool) -> Report:
        problems = self._fleet.stop()
        problems += [one for member in self._fleet.members for one in member.ended_by_itself]
        said = "".join(member.log.read_text(errors="replace") for member in self._fleet.members)
        problems += [f"a worker's log has {word!r}" for word in ("Traceback", "internal error") if word in said]
        self._journal.read()
        facts = Facts(self._project, self._journal.notes, self._hits, self._size, self._seed)
        started = len(self._fleet.pids)
        missed = [f"{fault.kind} {fault.whom} at {fault.at:.1%}" for fault in self._missed]
        found = [
            Invariant("it came to its end", f"in {took:.0f} s", () if is_done else ("time was up",)),
            *judge(facts),
            Invariant("no worker ended by itself", f"{started} started, all stopped when told", tuple(problems)),
            Invariant("no process left", "/proc read", tuple(map(str, self._left_over()))),
            Invariant("every fault happened", f"{len(self._faults)} faults, {len(self._hits)} hits", tuple(missed)),
        ]
        size, hosts = self._size, self._fleet.hosts
        title = (
            f"{self._store.dialect}, seed {self._seed}: {size.chunks} chunks × 2 jobs, {sum(size.slots)} slots over "
            f"{len(size.slots)} workers on {hosts} host{'s' * (hosts > 1)}, {took:.0f} s"
        )
        return Report(title, tuple(found), tuple(told(recovery(facts))), self._said())

    def _left_over(self) -> list[int]:
        mark = f"DATAFLOW_STORE_ID={self._project.sql('SELECT store_id FROM store')[0][0]}"
        give_up = time.monotonic() + 5
        while (left := processes_with(mark)) and time.monotonic() < give_up:
            time.sleep(0.05)
        return left

    def _said(self) -> str:
        return "\n".join(
            f"--- worker {member.number}\n{member.log.read_text(errors='replace')[-20_000:]}"
            for member in self._fleet.members
        )

    def close(self) -> None:
        self._end_what_is_over(at_once=True)
        self._fleet.kill()
        for reader in self._readers:
            reader.kill()
            reader.communicate()
        self._journal.close()


@contextlib.contextmanager
def _logs_that_fill(project: Project, size: Size, say: Say) -> Iterator[None]:
    """The folder of the runs' logs on a disk that is soon full, where one can be mounted."""
    folder = project.folder / ".dataflow" / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    if not size.has_full_logs:
        yield
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,nr_inodes=2000", "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        say("a tmpfs cannot be mounted here: the disk of the logs does not fill")
        yield
        return
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
