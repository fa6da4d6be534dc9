"""The jobs of a worker's slots, a lane each: which dataids come next, fair between the jobs."""

import os
import random
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from opendataflow.domain.job import Candidate, Job
from opendataflow.domain.runs.questions import Question, Verdict
from opendataflow.errors import JobChanged
from opendataflow.execution.deployed_version import is_left
from opendataflow.execution.environment import common_environment
from opendataflow.execution.prepare import prepare
from opendataflow.execution.root_marker import why_wrong_root
from opendataflow.execution.work import Work
from opendataflow.store.claims import LoopStore

AHEAD = 16  # candidates that a look reads at least
AHEAD_SECONDS = 0.5  # and for how long they are gone by; every claim checks again
LOOK_AGAIN_SECONDS = 1.0  # at a lane in which nothing was claimable
MOST_SHARES = 8  # of so many workers' parts a look reads as much at most
CHANGED_SECONDS = 0.05  # until the registry has been read again
MISSED_SECONDS = 0.002  # after a claim that failed; doubled for each more

Key = tuple[str, str]  # project, jobid
PutAside = Callable[[Job, Candidate, Verdict], None]


class Lane:
    """One job as it is registered: what a run of it is, and the dataids that were seen claimable."""

    def __init__(
        self, job: Job, make_work: Callable[[LoopStore], Work], store: LoopStore, *,
        passwords: dict[tuple[str, str], str], cwd: str, script: str | None,
    ) -> None:  # fmt: skip
        self.job, self.make_work, self.passwords, self.cwd = job, make_work, passwords, cwd
        self._script, self.is_missed = script, False  # a pipeline has no script
        self.work = make_work(store)
        self.environment = common_environment(os.environ, job=job, store_id=store.store_id, passwords=passwords)
        self.ahead: deque[Candidate] = deque()
        self.good_until = 0.0
        self.asleep_until = 0.0  # nothing was claimable, or its limit is reached
        self.misses = 0  # claims in a row that others were faster with, or that a limit was against
        self.suspects: set[str] = set()  # dataids that share no child, since one died under them
        self.told = ""  # why none of its dataids can run here, as it was said last

    @property
    def key(self) -> Key:
        return self.job[:2]

    def wake(self) -> None:
        self.asleep_until = 0.0

    @property
    def is_forked(self) -> bool:
        """True when its runs are forks of a zygote."""
        return self.work.forked is not None

    @property
    def most_together(self) -> int:
        """How many of its runs may share a child now."""
        forked = self.work.forked
        return 1 if forked is None or forked.sharing is None else forked.sharing.most()

    @property
    def can_start(self) -> bool:
        """False while its script, or its folder, is not there, as in the middle of a deployment."""
        return os.path.isdir(self.cwd) if self._script is None else os.access(self._script, os.X_OK)

    @property
    def what_is_missing(self) -> str:
        return f"its folder {self.cwd}" if self._script is None else f"its script {self.job.script}"

    def missed(self) -> None:
        """A claim failed: what was seen is out of date. Those that want the same make way for each other."""
        self.ahead.clear()
        self.misses += 1
        self.asleep_until = time.monotonic() + min(MISSED_SECONDS * 2 ** min(self.misses, 10), LOOK_AGAIN_SECONDS)


class Pick(NamedTuple):
    """A dataid to be claimed for a slot, or several whose runs share a child: asked and found good."""

    lane: Lane
    chunks: tuple[tuple[Candidate, Verdict], ...]


class Share(NamedTuple):
    """Which of the workers we are: each looks at its own part of the dataids first, so that they rarely clash."""

    rank: int
    workers: int

    def holds(self, dataid: str) -> bool:
        return zlib.crc32(dataid.encode()) % self.workers == self.rank


class Lanes:
    """Whoever picks goes round: every job that has work gets its turn, the lowest dataid of each first."""

    def __init__(self, store: LoopStore, *, slots: int, put_aside: PutAside, say: Callable[[str], None]) -> None:
        self._store, self._put_aside, self._say = store, put_aside, say
        self._slots, self._ahead = slots, max(AHEAD, 2 * slots)
        self._lanes: dict[Key, Lane] = {}
        self._order: deque[Lane] = deque()
        self._readers: dict[Key, list[Key]] = {}  # job → the jobs that read what it makes
        self.running: Counter[Key] = Counter()  # how many runs of each are ours; outlives the lanes
        self.share = Share(0, 1)
        self.had_misses = False  # others take from here too; whoever reads it sets it back
        self.had_left = (
            False  # another version of a project or definition of a job is in place; whoever reads it sets it back
        )

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    def __len__(self) -> int:
        return len(self._lanes)

    def find(self, key: Key) -> Lane | None:
        return self._lanes.get(key)

    def set(self, lanes: Iterable[Lane]) -> None:
        """From now on these jobs; lanes that stay keep what they know."""
        self._lanes = {lane.key: lane for lane in lanes}
        self._order = deque(self._lanes.values())
        made_by = {link.dataset[:2]: lane.key for lane in self._order for link in lane.job.outputs}
        self._readers = {}
        for lane in self._order:
            for link in lane.job.inputs:
                if (maker := made_by.get(link.dataset[:2])) is not None:
                    self._readers.setdefault(maker, []).append(lane.key)

    # What may have changed ----------------------------------------------------------------------------------------
    def wake_all(self) -> None:
        for lane in self._order:
            lane.wake()

    def let_pipelines_sleep(self) -> None:
        """There is no zygote to fork them from."""
        for lane in self._order:
            if lane.is_forked:
                lane.asleep_until = max(lane.asleep_until, time.monotonic() + LOOK_AGAIN_SECONDS)

    def sleep(self) -> None:
        """There was no news: what was not claimable is not claimable now. That a script is back is no news."""
        until = time.monotonic() + LOOK_AGAIN_SECONDS
        for lane in self._order:
            if lane.is_missed:
                continue
            lane.asleep_until = max(lane.asleep_until, until)

    def ended(self, key: Key) -> None:
        """A run ended: its readers may have work now, and its own limit may have room."""
        for one in (key, *self._readers.get(key, ())):
            if (lane := self._lanes.get(one)) is not None:
                lane.wake()

    @property
    def next_at(self) -> float:
        """When one of them may have something to give; the past: now."""
        return min((lane.asleep_until for lane in self._order if not self._waits(lane)), default=float("inf"))

    @property
    def next_script_at(self) -> float:
        """The same, of those that need no zygote."""
        scripts = (lane for lane in self._order if not self._waits(lane) and not lane.is_forked)
        return min((lane.asleep_until for lane in scripts), default=float("inf"))

    def _waits(self, lane: Lane) -> bool:
        """True when its next dataid comes only after the one that runs."""
        return bool(lane.job.strict and self.running[lane.key])

    @property
    def are_asleep(self) -> bool:
        """True when there was nothing to take in any of them."""
        now = time.monotonic()
        return all(lane.asleep_until > now for lane in self._order)

    # Picking --------------------------------------------------------------------------------------------------------
    def pick(self, room: int, ending: Mapping[Key, int], *, room_for_forks: int | None = None) -> list[Pick]:
        """For up to so many slots, of the jobs in turn; of pipelines at most `room_for_forks`.

        `ending`: how many live runs of a job are ended before these are claimed.
        """
        now = time.monotonic()
        forks = room if room_for_forks is None else room_for_forks
        awake = [
            lane for lane in self._order
            if lane.asleep_until <= now and not self._waits(lane) and (forks or not lane.is_forked)
        ]  # fmt: skip
        stale = [lane for lane in awake if not lane.ahead or now > lane.good_until]
        if stale:
            self._look(stale, ending, now)
        picked: list[Pick] = []
        waiting = deque(lane for lane in awake if lane.ahead)
        while waiting and len(picked) < room:
            lane = waiting.popleft()
            if lane.is_forked and not forks:
                continue
            found = self._next(lane, now)
            if found is not None:
                picked.append(Pick(lane, (found, *self._share_child(lane, found[0], now))))
                forks -= lane.is_forked
                if not lane.job.strict:  # there the next one comes only after this one
                    waiting.append(lane)
        if picked and len(self._order) > 1:  # the next turn begins after the one that this turn ended with
            self._order.rotate(-1 - self._order.index(picked[-1].lane))
        return picked

    def _look(self, lanes: list[Lane], ending: Mapping[Key, int], now: float) -> None:
        together = max((lane.most_together for lane in lanes), default=1)
        per_job = max(self._ahead, together * self._slots) * min(self.share.workers, MOST_SHARES)
        found = self._store.list_claimable_all([lane.job for lane in lanes], per_job, ending=ending)
        for lane in lanes:
            candidates = found.get(lane.key, [])
            if self.share.workers > 1 and not lane.job.strict:
                candidates = self._shared(candidates)
            lane.ahead = deque(candidates)
            lane.good_until = now + AHEAD_SECONDS
            if not candidates:
                lane.asleep_until = now + LOOK_AGAIN_SECONDS

    def _shared(self, candidates: list[Candidate]) -> list[Candidate]:
        """Our own part, the lowest first; when there is none of it, any, and not everybody the lowest."""
        own = [one for one in candidates if self.share.holds(one.dataid)]
        if not own:
            random.shuffle(candidates)
        return own or candidates

    def missed(self, lane: Lane) -> None:
        """A claim failed: what was seen is out of date, and others are at it too."""
        lane.missed()
        self.had_misses = True

    def _share_child(self, lane: Lane, first: Candidate, now: float) -> list[tuple[Candidate, Verdict]]:
        """The dataids that share a child with this one."""
        found: list[tuple[Candidate, Verdict]] = []
        most = lane.most_together
        if most == 1 or first.dataid in lane.suspects:
            return found
        while lane.ahead and len(found) < most - 1 and lane.ahead[0].dataid not in lane.suspects:
            if (one := self._next(lane, now)) is not None:
                found.append(one)
        return found

    def _next(self, lane: Lane, now: float) -> tuple[Candidate, Verdict] | None:
        if not lane.can_start:
            if not lane.is_missed:
                self._say(f"{lane.job.jobid}: {lane.what_is_missing} is gone; it waits until it is there again")
            lane.is_missed = True
            lane.ahead.clear()
            lane.asleep_until = now + LOOK_AGAIN_SECONDS
            return None
        lane.is_missed = False
        if is_left(self._store, lane.job):  # the registry is looked at now and then only
            self.had_left = True
            lane.ahead.clear()
            lane.asleep_until = now + LOOK_AGAIN_SECONDS
            return None
        while lane.ahead:
            candidate = lane.ahead.popleft()
            try:
                verdict = prepare(lane.job, candidate)
            except JobChanged:
                self.had_left = True
                lane.ahead.clear()
                lane.asleep_until = now + CHANGED_SECONDS
                return None
            if verdict.yes:
                lane.told = ""
                return candidate, verdict
            if wrong := why_wrong_root(lane.job):
                if lane.told != wrong:
                    self._store.refuse(lane.job, candidate.dataid, verdict, park=False)
                    self._say(f"{lane.job.jobid}: INVALID_PATH: {wrong}; it waits")
                lane.told = wrong
                lane.ahead.clear()
                lane.asleep_until = now + LOOK_AGAIN_SECONDS
            elif self._is_about_the_job(candidate, verdict):
                lane.ahead.clear()
                lane.asleep_until = now + LOOK_AGAIN_SECONDS
            else:
                self._put_aside(lane.job, candidate, verdict)
                lane.asleep_until = now + MISSED_SECONDS
        return None

    @staticmethod
    def _is_about_the_job(candidate: Candidate, verdict: Verdict) -> bool:
        """A limit, a pause or a strict order: the next dataid would not do either."""
        if candidate.earlier not in (None, candidate.dataid):
            return True
        refusal = verdict.refusal
        is_read = any(output.readers for output in candidate.outputs)
        return refusal is not None and refusal.question is Question.SAFE and not is_read
