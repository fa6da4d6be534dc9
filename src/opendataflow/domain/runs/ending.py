"""The end of a run: what it makes of the job's dataid."""

from collections.abc import Mapping

from opendataflow.domain.job import JobStatus
from opendataflow.domain.runs.run import MAX_DEATHS, Claim, Ending, RunStatus

LONGEST_PAUSE_SECONDS = 3600.0  # between two attempts, unless the job's own first pause is longer
SPREAD = 0.25  # of a pause, added to it at most


class End:
    """What the end of a run makes of the job's dataid."""

    def __init__(self, status: JobStatus, run_status: RunStatus, attempts: int, deaths: int) -> None:
        self.status, self.run_status, self.attempts, self.deaths = status, run_status, attempts, deaths
        self.retry_in: float | None = None
        self.note = ""

    def explain(self, message: str) -> str:
        return "; ".join(part for part in (message, self.note) if part)


def retry_pause(claim: Claim) -> float:
    """Seconds until the next attempt: doubling, bounded, and spread, as what failed together should not try together.

    The spread follows from the run's number: whoever asks, and however often, gets the same.
    """
    longest = max(LONGEST_PAUSE_SECONDS, claim.backoff_seconds)
    pause = min(claim.backoff_seconds * 2.0 ** min(claim.attempt - 1, 64), longest)
    spread = (claim.runid * 2_654_435_761 % 2**32) / 2**32
    return float(round(pause * (1 + SPREAD * spread), 3))


def ending_of(exit_code: int, definition: Mapping[str, object]) -> Ending:
    """How a run ended whose child exited so: FAILED, or GIVEN_UP where the job says that trying again is no use.

    `retry_on` names the only codes that are tried again, `give_up_on` those that never are.
    """
    only, never = definition.get("retry_on"), definition.get("give_up_on")
    given_up = (isinstance(only, list) and exit_code not in only) or (isinstance(never, list) and exit_code in never)
    return Ending.GIVEN_UP if given_up else Ending.FAILED


def decide_end(claim: Claim, ending: Ending, *, again: bool) -> End:
    """The rules of the end of a run; `again` when RESUBMIT was set while it ran."""
    attempts, deaths = claim.attempt, claim.deaths
    if ending is Ending.COMPLETE:
        end = End(JobStatus.COMPLETE, RunStatus.COMPLETE, attempts, 0)
    elif ending is Ending.HANDED_BACK:
        end = End(JobStatus.RESUBMIT, RunStatus.RESUBMIT, max(attempts - 1, 0), deaths)
    elif ending is Ending.DIED and deaths + 1 < MAX_DEATHS:
        end = End(JobStatus.RESUBMIT, RunStatus.RESUBMIT, max(attempts - 1, 0), deaths + 1)
        end.note = f"death {deaths + 1} of {MAX_DEATHS} in a row, will be tried again"
    elif ending is Ending.DIED:
        end = End(JobStatus.FAILED, RunStatus.FAILED, attempts, MAX_DEATHS)
        end.note = f"died {MAX_DEATHS} times in a row"
    else:
        end = End(JobStatus.FAILED, RunStatus.FAILED, attempts, 0)
        if ending is Ending.GIVEN_UP:
            end.note = "its exit code is one that is not tried again" if claim.retries_max else ""
        elif ending is not Ending.ABORTED and attempts <= claim.retries_max:
            end.retry_in = retry_pause(claim)
            end.note = f"attempt {attempts} of {claim.retries_max + 1}, next in {end.retry_in:.3g} s"
    if again and end.status in (JobStatus.COMPLETE, JobStatus.FAILED):
        end.status, end.attempts, end.deaths, end.retry_in = JobStatus.RESUBMIT, 0, 0, None
        end.note = "RESUBMIT was set while it ran, so it will run again"
    return end


def decide_ends(claim: Claim, ending: Ending) -> tuple[End, End]:
    """Both ends that are possible: RESUBMIT was not set while it ran, or it was. Only the store knows which."""
    return decide_end(claim, ending, again=False), decide_end(claim, ending, again=True)
