"""Saying what became of runs, and which exit code that is."""

from collections.abc import Callable, Iterable

from opendataflow.runner.runjob import Outcome


def line(outcome: Outcome) -> str:
    """One outcome as a line for a person."""
    what = f"{outcome.jobid}/{outcome.dataid}" if outcome.dataid else outcome.jobid
    if outcome.runid is None:
        return f"{what}: {outcome.message}"
    said = f": {outcome.message}" if outcome.message else ""
    return f"{what} {outcome.status} in {outcome.seconds:.1f} s, run {outcome.runid}{said}"


def report(
    outcomes: Iterable[Outcome],
    *,
    say: Callable[[str], None],
    drain: bool,
    each: Callable[[Outcome], None] | None = None,
) -> int:
    """Say each outcome as it comes; returns the exit code of all.

    Of a drain: a failed run's code wins; then what stopped the runner; then the lowest blocked dataid's. A run that was
    given back, and is tried again, has not failed.
    """
    worst = stopped = last = ran = 0
    for outcome in outcomes:
        (each or (lambda one: say(line(one))))(outcome)
        if outcome.runid is not None:
            ran += 1
            if outcome.exit_code in (5, 75):
                stopped = stopped or outcome.exit_code
            elif outcome.exit_code and not (drain and outcome.status == "RESUBMIT"):
                worst = worst or outcome.exit_code
        last = outcome.exit_code
        if drain and outcome.status == "LOCKED" and outcome.verdict and outcome.verdict.answers[0].yes and ran:
            last = 0  # what is left is in the hands of other runners
    return worst or stopped or last
