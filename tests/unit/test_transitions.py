"""The table of status changes, and what the end of a run makes of a job."""

import itertools

import pytest

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.job import JobStatus
from opendataflow.domain.runs.ending import decide_end
from opendataflow.domain.runs.run import MAX_DEATHS, Claim, Ending
from opendataflow.domain.runs.transitions import (
    CHUNK_TRANSITIONS,
    JOB_TRANSITIONS,
    ChunkEvent,
    JobEvent,
    next_chunk_status,
    next_job_status,
)
from opendataflow.errors import UsageError


@pytest.mark.parametrize(("status", "event"), list(itertools.product(JobStatus, JobEvent)))
def test_every_change_of_a_job_is_in_the_table_or_refused(status: JobStatus, event: JobEvent) -> None:
    if (status, event) in JOB_TRANSITIONS:
        assert next_job_status(status, event) is JOB_TRANSITIONS[status, event]
    else:
        with pytest.raises(UsageError, match=f"a job that is {status} cannot {event.lower().replace('_', ' ')}"):
            next_job_status(status, event)


@pytest.mark.parametrize(("status", "event"), list(itertools.product(ChunkStatus, ChunkEvent)))
def test_every_change_of_a_chunk_is_in_the_table_or_refused(status: ChunkStatus, event: ChunkEvent) -> None:
    if (status, event) in CHUNK_TRANSITIONS:
        assert next_chunk_status(status, event) is CHUNK_TRANSITIONS[status, event]
    else:
        with pytest.raises(UsageError, match=f"a chunk that is {status} cannot {event.lower()}"):
            next_chunk_status(status, event)


def test_the_table_says_what_the_design_says() -> None:
    claimable = {status for status in JobStatus if (status, JobEvent.CLAIM) in JOB_TRANSITIONS}
    assert claimable == {JobStatus.PENDING, JobStatus.RESUBMIT}
    resubmit = {status: JOB_TRANSITIONS[status, JobEvent.RESUBMIT] for status in JobStatus}
    stays = {JobStatus.PENDING, JobStatus.HOLD, JobStatus.RUNNING, JobStatus.RESUBMIT}
    assert {status for status, after in resubmit.items() if after is status} == stays
    assert resubmit[JobStatus.COMPLETE] is resubmit[JobStatus.FAILED] is JobStatus.RESUBMIT
    leaves_running = {event for status, event in JOB_TRANSITIONS if status is JobStatus.RUNNING}
    assert leaves_running == {JobEvent.COMPLETE, JobEvent.FAIL, JobEvent.GIVE_BACK, JobEvent.RESUBMIT}
    opens = {key for key, after in CHUNK_TRANSITIONS.items() if after is ChunkStatus.READY}
    assert {event for _, event in opens} == {ChunkEvent.PUBLISH, ChunkEvent.ASSERT}
    assert (ChunkStatus.RUNNING, ChunkEvent.ASSERT) not in CHUNK_TRANSITIONS


def test_a_chunk_is_never_complete_and_a_job_never_ready() -> None:
    assert "COMPLETE" not in set(ChunkStatus)
    assert "READY" not in set(JobStatus)


# The end of a run ---------------------------------------------------------------------------------------------------
def claim(*, attempt: int = 1, deaths: int = 0, retries: int = 0) -> Claim:
    fields = dict.fromkeys(Claim._fields, ())
    fields |= {"project": "p", "jobid": "load", "dataid": "1", "runid": 7, "attempt": attempt, "deaths": deaths}
    return Claim(**{**fields, "lease_seconds": 60.0, "retries_max": retries, "backoff_seconds": 10.0})


def outcome(ending: Ending, *, again: bool = False, **of: int) -> tuple[str, str, int, int, float | None]:
    end = decide_end(claim(**of), ending, again=again)
    return str(end.status), str(end.run_status), end.attempts, end.deaths, end.retry_in


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("ending", list(Ending))
@pytest.mark.parametrize("deaths", range(MAX_DEATHS))
@pytest.mark.parametrize("retries", [0, 2])
def test_every_ending_is_a_change_the_table_allows(ending: Ending, deaths: int, retries: int, again: bool) -> None:
    end = decide_end(claim(deaths=deaths, retries=retries), ending, again=again)
    after = {event: JOB_TRANSITIONS.get((JobStatus.RUNNING, event)) for event in JobEvent}
    assert end.status in (after[JobEvent.COMPLETE], after[JobEvent.FAIL], after[JobEvent.GIVE_BACK])
    assert end.retry_in is None or end.status is JobStatus.FAILED


def test_a_completed_run_completes_the_job_and_forgets_its_deaths() -> None:
    assert outcome(Ending.COMPLETE, attempt=2, deaths=2) == ("COMPLETE", "COMPLETE", 2, 0, None)


def test_a_failed_run_without_retries_stays_failed() -> None:
    assert outcome(Ending.FAILED) == ("FAILED", "FAILED", 1, 0, None)


@pytest.mark.parametrize(("attempt", "retry_in"), [(1, 10.0), (2, 20.0), (3, 40.0), (4, None)])
def test_a_failed_run_is_retried_with_growing_pauses_while_attempts_are_left(attempt: int, retry_in: float) -> None:
    *end, pause = outcome(Ending.FAILED, attempt=attempt, retries=3)
    assert end == ["FAILED", "FAILED", attempt, 0]
    assert pause is None if retry_in is None else retry_in <= pause <= retry_in * 1.25


def test_a_run_handed_back_uses_no_attempt_and_keeps_its_deaths() -> None:
    assert outcome(Ending.HANDED_BACK, attempt=3, deaths=2) == ("RESUBMIT", "RESUBMIT", 2, 2, None)
    assert outcome(Ending.HANDED_BACK, attempt=0) == ("RESUBMIT", "RESUBMIT", 0, 0, None)


def test_three_deaths_in_a_row_are_a_failure() -> None:
    assert outcome(Ending.DIED, attempt=2, deaths=0) == ("RESUBMIT", "RESUBMIT", 1, 1, None)
    assert outcome(Ending.DIED, attempt=2, deaths=1) == ("RESUBMIT", "RESUBMIT", 1, 2, None)
    assert outcome(Ending.DIED, attempt=2, deaths=2, retries=5) == ("FAILED", "FAILED", 2, 3, None)


def test_a_failure_between_deaths_breaks_the_row() -> None:
    assert outcome(Ending.FAILED, attempt=2, deaths=2)[3] == 0


@pytest.mark.parametrize(("ending", "run_status"), [(Ending.COMPLETE, "COMPLETE"), (Ending.FAILED, "FAILED")])
def test_resubmit_set_while_it_ran_means_again_from_the_start(ending: Ending, run_status: str) -> None:
    assert outcome(ending, again=True, attempt=3, deaths=1, retries=9) == ("RESUBMIT", run_status, 0, 0, None)


def test_the_note_says_what_comes_next() -> None:
    assert decide_end(claim(retries=2), Ending.FAILED, again=False).note == "attempt 1 of 3, next in 10.8 s"
    assert "death 1 of 3 in a row" in decide_end(claim(), Ending.DIED, again=False).note
    assert decide_end(claim(deaths=2), Ending.DIED, again=False).note == "died 3 times in a row"
    assert "RESUBMIT was set while it ran" in decide_end(claim(), Ending.COMPLETE, again=True).note
