"""What does not go on by itself: dataids behind something that failed, jobs that a limit of 0 closes."""

from typing import NamedTuple

from opendataflow.store.claims import LoopStore

FILE = "overview"
MOST = 10_000_000
JobKey = tuple[str, str]  # project, jobid


class Closed(NamedTuple):
    """A job of which nothing starts, as the limit of this name is 0."""

    project: str
    jobid: str
    connection: str  # empty: the job's own limit
    ready: int  # how many dataids could run otherwise

    @property
    def limit_of(self) -> str:
        """As `dataflow scale` names it."""
        return f"connection:{self.connection}" if self.connection else self.jobid


def count_behind_failed(store: LoopStore, *, project: str | None, limit: int = MOST) -> dict[JobKey, int]:
    """How many dataids of each job wait, at whatever distance, for one that is FAILED and stays so.

    At most so many rows are looked at; where more failed or wait, not all of them are counted.
    """
    rows = store.read("behind_failed", {"project": project, "limit": limit}, file=FILE)
    return {(str(owner), str(jobid)): int(number) for owner, jobid, number in rows}


def count_retried(store: LoopStore, *, project: str | None) -> dict[JobKey, int]:
    """How many dataids of each job failed and are tried again by themselves."""
    rows = store.read("retried_jobs", {"project": project}, file=FILE)
    return {(str(owner), str(jobid)): int(number) for owner, jobid, number in rows}


def list_closed(store: LoopStore, *, project: str | None) -> list[Closed]:
    return [Closed(*row) for row in store.read("closed_jobs", {"project": project}, file=FILE)]
