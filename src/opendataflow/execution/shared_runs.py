"""Runs that were claimed together: which of them the next child is for, and how each of them ends.

Several runs first share one child, which writes the chunks of as many as it can in one Spark job. Then one of these,
drawn at random, is produced alone by a child of its own, and must come out the same; only then do they end, all of
them COMPLETE unless an audit says otherwise. Whatever was not written together, or came out different, is produced
alone, one run after the other, under the claim that it has.

When the child dies under several runs, none of them can be blamed: all are handed back, and their dataids are suspects,
each of which has a child of its own from then on.
"""

import random
from collections.abc import Callable, Sequence
from enum import Enum

from opendataflow.execution.supervise import (
    Aborted,
    ChildEnd,
    Exited,
    GivenBack,
    Killed,
    Lost,
    NotRun,
    Stopped,
    TimedOut,
)
from opendataflow.execution.work import Flight, Forked, Sharing

Ends = list[tuple[Flight, ChildEnd]]
OF_ANOTHER = GivenBack("its process was ended because of another run")


class Turn(Enum):
    TOGETHER = "together"  # one child for several runs
    COMPARED = "compared"  # one of those that were written together, produced alone to see whether it is the same
    ALONE = "alone"


class SharedRuns:
    """One or several runs with one child at a time. `current` are those that the child of now works for."""

    def __init__(self, forked: Forked | None, flights: Sequence[Flight], *, say: Callable[[str], None]) -> None:
        self._forked, self._say = forked, say
        self.flights = list(flights)  # that have not ended
        self.current: list[Flight] = []
        self.turn = Turn.TOGETHER if len(flights) > 1 else Turn.ALONE
        self.suspects: set[str] = set()  # dataids that nobody can blame, or clear
        self._written: list[Flight] = []  # together; they wait for the comparison
        self._why: dict[int, ChildEnd] = {}  # what a run ends for, whatever the child does

    @property
    def _sharing(self) -> Sharing:
        if self._forked is None or self._forked.sharing is None:
            raise TypeError("these runs share no child")
        return self._forked.sharing

    def begin(self) -> list[Flight]:
        """The runs that the next child is for; none when all have ended."""
        if self.turn is Turn.TOGETHER:
            self.current = list(self.flights)
        elif self.turn is Turn.COMPARED:
            self.current = [random.choice(self._written)]  # noqa: S311  drawn after they were written
        else:
            self.current = self.flights[:1]
        return self.current

    def blame(self, flight: Flight, end: ChildEnd) -> bool:
        """This run ends for that reason, whatever its child does; True when the child must end, too."""
        self._why.setdefault(flight.claim.runid, end)
        return flight in self.current

    def why(self, flight: Flight) -> ChildEnd | None:
        return self._why.get(flight.claim.runid)

    def ended(self, end: ChildEnd, *, is_guard_gone: bool = False) -> Ends:
        """The runs that have ended with this end of the child, and how; the others have their turn later."""
        if is_guard_gone and len(self.flights) > 1:  # their claims name it as their owner
            killed = GivenBack("its guard was killed")
            return self._over([(one, end if [one] == self.current else killed) for one in self.flights])
        if isinstance(end, Stopped):
            waits = Stopped(end.signal, had_started=False)
            return self._over([(one, end if one in self.current else waits) for one in self.flights])
        if isinstance(end, Lost) and not any(isinstance(self.why(one), Lost) for one in self.current):
            return self._over(self._all(end))  # the deadline is that of all of them
        match self.turn:
            case Turn.TOGETHER:
                return self._together_ended(end)
            case Turn.COMPARED:
                return self._compared_ended(end)
        return self._over([(one, end) for one in self.current])

    def _together_ended(self, end: ChildEnd) -> Ends:
        if isinstance(end, Aborted | Lost):
            return self._over(self._all(OF_ANOTHER))
        if end != Exited(0):
            return self._blameless(end)
        self.turn = Turn.ALONE
        over: Ends = []
        reasons: dict[str, int] = {}
        is_in_vain = False
        for one in self.flights:
            result = self._sharing.result(one.claim)
            if (why := result.get("alone")) is not None:
                reasons[str(why)] = reasons.get(str(why), 0) + 1
                is_in_vain |= bool(result.get("in_vain"))
            elif result.get("compare"):
                self._written.append(one)
                self.turn = Turn.COMPARED
            else:
                over.append((one, Exited(1 if result.get("error") else 0)))
        for why, number in reasons.items():
            self._say(f"{self._job}: {number} of {len(self.flights)} chunks are produced one by one: {why}")
        if is_in_vain:
            self._sharing.in_vain()
        return self._over(over)

    def _compared_ended(self, end: ChildEnd) -> Ends:
        self.turn = Turn.ALONE
        (drawn,), written = self.current, self._written
        self._written = []
        if end != Exited(0):  # this is how it ends alone; nobody knows whether the others are as they would be
            return self._over([(drawn, end)])
        differs = self._sharing.result(drawn.claim).get("differs")
        if differs is None:
            return self._over([(one, end) for one in written])
        job = f"a Spark job of {len(written)} chunks"
        told = f"{drawn.claim.dataid}, produced alone, differs from what {job} made of it: {differs}"
        self._say(f"{self._job}: {told}; nothing of that job is published, and all are produced alone")
        self._sharing.refused(drawn.claim, told)
        return []

    def _blameless(self, end: ChildEnd) -> Ends:
        number = len(self.current)
        match end:
            case Exited(code):
                how = f"exited with status {code}"
            case Killed(signal):
                how = f"was killed by signal {signal}"
            case TimedOut(seconds):
                how = f"took longer than {seconds:g} s"
            case NotRun():  # it may be one run's place that cannot be made
                self.turn = Turn.ALONE
                return []
            case _:
                return self._over(self._all(end))
        self.suspects = {one.claim.dataid for one in self.current}
        if isinstance(end, Exited) and self._forked is not None and self._forked.given_back(self.current[0].claim):
            return self._over(self._all(end))  # the child has said why
        return self._over(self._all(GivenBack(f"the process of {number} chunks {how}; each is tried again alone")))

    def _all(self, end: ChildEnd) -> Ends:
        return [(one, end) for one in self.flights]

    def _over(self, ends: Ends) -> Ends:
        """These runs have ended; a reason of their own comes first."""
        over = {one.claim.runid for one, _ in ends}
        self.flights = [one for one in self.flights if one.claim.runid not in over]
        self.current = []
        return [(one, self.why(one) or end) for one, end in ends]

    @property
    def _job(self) -> str:
        return self.flights[0].claim.jobid if self.flights else ""
