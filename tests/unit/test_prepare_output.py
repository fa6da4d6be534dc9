"""Where a run would write, as it is told before anybody knows the run's number."""

from pathlib import Path

import pytest

from opendataflow.domain.dataset import Dataset
from opendataflow.execution.prepare import look_at_output


@pytest.mark.parametrize(
    ("kind", "path", "place"),
    [
        ("pipeline", "monthly/{dataid}.csv", "monthly/_runs"),
        ("pipeline", "daily", "daily/dataid=2013-01/_runs"),
        ("script", "daily", "daily/dataid=2013-01/_runs"),
        ("script", "monthly/{dataid}.csv", "monthly/2013-01.csv"),
    ],
)
def test_the_place_of_an_output_has_no_number_of_a_run(tmp_path: Path, kind: str, path: str, place: str) -> None:
    found = look_at_output(kind, Dataset("p", "d", location=path), "2013-01", root=str(tmp_path))
    assert (found.location, found.problem) == (f"{tmp_path}/{place}", "")
