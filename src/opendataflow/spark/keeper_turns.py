"""Who may use the driver next: runs in the order in which they came, and a suspect alone.

A suspect is a run that was attached, with others, when a JVM ended: it may be the one that ended it. It uses the
driver alone, so that its next death is its own.
"""

from collections.abc import Iterable


class Turns:
    """Runs by number. Nothing here waits or does I/O."""

    def __init__(self, suspects: Iterable[str] = ()) -> None:
        self.suspects = set(suspects)
        self._waiting: dict[int, str] = {}
        self._attached: dict[int, str] = {}

    @property
    def waiting(self) -> list[int]:
        return list(self._waiting)

    @property
    def attached(self) -> list[int]:
        return list(self._attached)

    @property
    def identities(self) -> list[str]:
        """Of the runs that are attached."""
        return list(self._attached.values())

    def ask(self, run: int, identity: str) -> None:
        self._waiting[run] = identity

    def grant(self) -> list[int]:
        """Attach every run whose turn it is, and return them."""
        granted = []
        for run, identity in list(self._waiting.items()):
            is_held_back = any(other in self.suspects for other in self._attached.values())
            if is_held_back or (identity in self.suspects and self._attached):
                break  # those behind it wait too: otherwise a suspect would never find the driver free
            del self._waiting[run]
            self._attached[run] = identity
            granted.append(run)
        return granted

    def ahead_of(self, run: int) -> int:
        """How many runs must end, or come first, before this one's turn."""
        return 0 if run in self._attached else len(self._attached) + self.waiting.index(run)

    def leave(self, run: int) -> bool:
        """The run is over, or gave up waiting; True when it was a suspect that is cleared by this."""
        self._waiting.pop(run, None)
        identity = self._attached.pop(run, None)
        if identity is None or identity not in self.suspects:
            return False
        self.suspects.discard(identity)
        return True
