"""What is kept of each transformation of a run: its order, how far it got, what it printed, why it failed."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from opendataflow.spark.kept import Kept

Keep = Callable[[], contextlib.AbstractContextManager[Kept]]
PENDING, RUNNING, DONE, ERROR = "PENDING", "RUNNING", "DONE", "ERROR"


def nothing_kept() -> contextlib.AbstractContextManager[Kept]:
    return contextlib.nullcontext(Kept())


@dataclass(kw_only=True, slots=True)
class Step:
    """One transformation of one run; the only mutable record, because it is filled while the run goes on."""

    position: int  # from 1
    name: str
    digest: str = ""
    status: str = PENDING
    output: str = ""  # what it printed, and warnings
    error: str = ""  # the traceback, cut to the user's code
    rows: int | None = None
    seconds: float | None = None


@dataclass(kw_only=True, slots=True)
class Steps:
    """All transformations of a run, in order; `changed` is told whenever one of them begins or ends.

    `keep_output` keeps what the code prints while it is open.
    """

    steps: list[Step] = field(default_factory=list)
    changed: Callable[[Step], None] = lambda _step: None
    keep_output: Keep = nothing_kept

    def begin(self, step: Step) -> None:
        step.status = RUNNING
        self.changed(step)

    def end(self, step: Step, *, error: str = "") -> None:
        step.status, step.error = (ERROR if error else DONE), error
        self.changed(step)

    def as_json(self) -> list[dict[str, Any]]:
        return [asdict(step) for step in self.steps]


def new_steps(
    named: Sequence[tuple[str, str]], changed: Callable[[Step], None] = lambda _step: None, *,
    keep_output: Keep = nothing_kept,
) -> Steps:  # fmt: skip
    """Steps that are all PENDING, from names and digests."""
    steps = [Step(position=number, name=name, digest=digest) for number, (name, digest) in enumerate(named, 1)]
    return Steps(steps=steps, changed=changed, keep_output=keep_output)
