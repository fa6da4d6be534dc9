"""The end of a run: what it makes of the job's dataid."""

from opendataflow.domain.job import JobStatus
from opendataflow.domain.run import MAX_DEATHS, Claim, Ending, RunStatus


class End:
    """What the end of a run makes of the job's dataid."""

    def __init__(self, status: JobStatus, run_status: RunStatus, attempts: int, deaths: int) -> None:
        self.status, self.run_status, self.attempts, self.deaths = status, run_status, attempts, deaths
        self.retry_in: float | None = None
        self.note = ""

    def explain(self, message: str) -> str:
        return "; ".join(part for part in (message, self.note) if part)


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
        if attempts <= claim.retries_max:
            end.retry_in = claim.backoff_seconds * 2 ** (attempts - 1)
            end.note = f"attempt {attempts} of {claim.retries_max + 1}, next in {end.retry_in:g} s"
    if again and end.status in (JobStatus.COMPLETE, JobStatus.FAILED):
        end.status, end.attempts, end.deaths, end.retry_in = JobStatus.RESUBMIT, 0, 0, None
        end.note = "RESUBMIT was set while it ran, so it will run again"
    return end


def decide_ends(claim: Claim, ending: Ending) -> tuple[End, End]:
    """Both ends that are possible: RESUBMIT was not set while it ran, or it was. Only the store knows which."""
    return decide_end(claim, ending, again=False), decide_end(claim, ending, again=True)
