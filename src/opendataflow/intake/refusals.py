"""What the intake refuses, and what can be wrong with its log.

DataflowError
 ├─ UsageError
 │   ├─ ItemsRefused    2   items that the stream's schema does not take; nothing of the request is accepted
 │   ├─ NotJson         2   a body that is no JSON
 │   ├─ KeyReused       2   an idempotency key that stands for other items
 │   └─ ItemsGone       2   items that retention has removed, or that were lost
 ├─ LogFull            75   no room on the disk; what was acknowledged stays
 └─ LogDamaged         70   bytes that were durable once are not what they were
"""

from collections.abc import Sequence
from dataclasses import dataclass

from opendataflow.errors import DataflowError, UsageError

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an item is refused: its place in the request, the field where it is one, and the reason."""

    index: int
    field: str | None
    reason: str

    def __str__(self) -> str:
        return f"item {self.index}: {f'{self.field}: ' if self.field else ''}{self.reason}"


class ItemsRefused(UsageError):
    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        rest = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        super().__init__("; ".join(str(one) for one in problems[:_SHOWN]) + rest)


class NotJson(UsageError):
    pass


class KeyReused(UsageError):
    pass


class ItemsGone(UsageError):
    pass


class LogFull(DataflowError):
    exit_code = 75


class LogDamaged(DataflowError):
    exit_code = 70
