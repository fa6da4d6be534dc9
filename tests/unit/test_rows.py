"""Between rows and domain values: times as text, gates, candidates."""

import json

import pytest

from opendataflow.domain.chunk import ChunkKey, ChunkStatus, Input
from opendataflow.domain.job import Candidate, Job, JobStatus, Limit, Pause
from opendataflow.store.rows import inputs_json, inputs_read, new_candidate, new_gates, utc_text

JOB = Job("p", "load", "script", None, {}, None, None, 60.0, None, 0, 30.0, None, 0, "all", "/r", "/h", ())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000Z"),
        (0.9999, "1970-01-01T00:00:00.999Z"),
        (1_760_000_000.25, "2025-10-09T08:53:20.250Z"),
    ],
)
def test_a_time_is_cut_to_milliseconds_and_never_rounded_up(seconds: float, text: str) -> None:
    assert utc_text(seconds) == text


def test_what_stands_between_a_job_and_its_next_run_is_told_apart() -> None:
    rows = [
        ("pause", "load", "carl", None, 0, 0), ("pause", "", "anna", "T", 0, 0),
        ("job", "load", None, None, 3, 1), ("connection", "db", "scaled by anna", None, 2, 2),
    ]  # fmt: skip
    assert new_gates(rows) == (
        (Pause("load", "carl", None), Pause("", "anna", "T")),
        (Limit("job", "load", 3, 1, ""), Limit("connection", "db", 2, 2, "scaled by anna")),
    )


def test_a_candidate_counts_the_runs_of_its_job_and_no_connections() -> None:
    row = ("1", "PENDING", 0, 2, 1, None, None, None)
    both = (Limit("connection", "db", 9, 7), Limit("job", "load", 3, 2))
    as_it_is = {"whole_location": lambda _project, location: location}
    assert new_candidate(JOB, row, [], **as_it_is, limits=both).running == 2
    assert new_candidate(JOB, row, [], **as_it_is, limits=both[:1]).running == 0
    assert new_candidate(JOB, row, [], **as_it_is).running == 0
    found = new_candidate(JOB, row, [], **as_it_is)
    assert (found.status, found.attempts, found.deaths, found.limits) == (JobStatus.PENDING, 2, 1, None)


def test_the_versions_that_were_read_are_kept_as_plain_json() -> None:
    key = ChunkKey("p", 'a "quoted" ü', "1")
    inputs = tuple(
        Input(key, ChunkStatus.READY, version, None, fingerprint, None, None, "", "")
        for version, fingerprint in ((None, None), (7, "f'\\"))
    )
    candidate = Candidate("load", "1", JobStatus.PENDING, 0, 0, None, None, None, 0, inputs, ())
    assert inputs_json(candidate) == json.dumps(inputs_read(candidate))
    assert json.loads(inputs_json(candidate)) == [[*key, None, None], [*key, 7, "f'\\"]]
