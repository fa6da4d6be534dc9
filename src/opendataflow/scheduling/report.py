"""Saying what became of runs, and which exit code that is."""

from collections.abc import Callable, Iterable

from opendataflow.execution.work import Outcome


def line(outcome: Outcome) -> str:
    """One outcome as a line for a person."""
    what = f"{outcome.jobid}/{outcome.dataid}" if outcome.dataid else outcome.jobid
    if outcome.runid is None:
        return f"{what}: {outcome.message}"
    said = f": {outcome.message}" if outcome.message else ""
    return f"{what} {outcome.status} in {outcome.seconds:.1f} s, run {outcome.runid}{said}"


class Codes:
    """The exit code of many outcomes.

    Of a drain: the first code of the dataids whose last run failed wins; then what stopped the runner; then the first
    blocked dataid's. A run that was given back, or that was tried again and is complete, has not failed.
    """

    def __init__(self, *, drain: bool) -> None:
        self._drain = drain
        self._stopped = self._last = self._ran = 0
        self._failed: dict[tuple[str, str | None], int] = {}
        self._last_ran = True

    def add(self, outcome: Outcome) -> None:
        if outcome.runid is None:
            self._last = self._code_of(outcome) if self._last_ran else self._last or self._code_of(outcome)
        else:
            self._ran += 1
            self._last = outcome.exit_code
            if outcome.exit_code in (5, 75):
                self._stopped = self._stopped or outcome.exit_code
            elif outcome.exit_code and not (self._drain and outcome.status == "RESUBMIT"):
                self._failed.setdefault((outcome.jobid, outcome.dataid), outcome.exit_code)
            elif not outcome.exit_code:
                self._failed.pop((outcome.jobid, outcome.dataid), None)
        self._last_ran = outcome.runid is not None

    def _code_of(self, outcome: Outcome) -> int:
        is_elsewhere = outcome.status == "LOCKED" and outcome.verdict is not None and outcome.verdict.answers[0].yes
        return 0 if self._drain and is_elsewhere and self._ran else outcome.exit_code

    @property
    def code(self) -> int:
        return next(iter(self._failed.values()), 0) or self._stopped or self._last


def report(
    outcomes: Iterable[Outcome],
    *,
    say: Callable[[str], None],
    drain: bool,
    each: Callable[[Outcome], None] | None = None,
) -> int:
    """Say each outcome as it comes; returns the exit code of all."""
    codes = Codes(drain=drain)
    for outcome in outcomes:
        (each or (lambda one: say(line(one))))(outcome)
        codes.add(outcome)
    return codes.code
