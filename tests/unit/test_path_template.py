"""Dates in paths: built from a dataid, read from a path, and never the one without the other."""

import datetime
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.arrivals.scan import find_candidates
from opendataflow.domain.dataset import Dataset, chunk_location, why_no_place
from opendataflow.domain.partitions.path_template import complete, fill, pattern_of, split_forms, why_no_template
from opendataflow.domain.partitions.places import find_overlap

DAILY, HOURLY, MONTHLY = ('{"daily": "2024-01-01"}', '{"hourly": "2024-01-01"}', '{"monthly": "2024-01"}')
FIRST = datetime.datetime.fromisoformat("2024-01-01")
SHARDS = '{"shards": "1..10"}'
FORMS = [
    (DAILY, "2025-11-02", "in/{dataid:%Y%m%d}.csv", "in/20251102.csv"),
    (DAILY, "2025-11-02", "{dataid:%Y/%m/%d}/x.csv", "2025/11/02/x.csv"),
    (DAILY, "2025-11-02", "in/{dataid:%d.%m.%Y}.csv", "in/02.11.2025.csv"),
    (DAILY, "2025-11-02", "in/{dataid:%Y}/orders-{dataid}.csv", "in/2025/orders-2025-11-02.csv"),
    (DAILY, "2025-11-02", "{dataid:%Y}/{dataid:%Y-%j}.csv", "2025/2025-306.csv"),
    (DAILY, "2024-12-31", "{dataid:%Y%j}.csv", "2024366.csv"),
    (HOURLY, "2025-11-02T07", "{dataid:%Y%m%d}/{dataid:%H}00.csv", "20251102/0700.csv"),
    (MONTHLY, "2025-02", "in/{dataid:%m-%Y}.csv", "in/02-2025.csv"),
]


def dataset(path: str, partitions: str | None) -> Dataset:
    return Dataset("p", "orders", location=split_forms(path), partitions=partitions)


@pytest.mark.parametrize(("partitions", "dataid", "path", "place"), FORMS)
def test_a_path_is_built_and_its_file_recognised(
    tmp_path: Path, partitions: str, dataid: str, path: str, place: str
) -> None:
    of = dataset(path, partitions)
    assert why_no_template(path, partitions) == ""
    assert chunk_location(of, dataid, root="/data") == f"/data/{place}"
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    (tmp_path / "in").mkdir(exist_ok=True)
    for other in ("in/x.csv", "in/2025110.csv", "note.txt"):
        (tmp_path / other).touch()
    assert [(one.dataid, os.path.relpath(one.path, tmp_path)) for one in find_candidates(of, str(tmp_path))] == [
        (dataid, place)
    ]


@given(st.datetimes(min_value=FIRST), st.sampled_from(FORMS))
def test_what_is_built_is_read_back(moment: datetime.datetime, form: tuple[str, str, str, str]) -> None:
    partitions, _, path, _ = form
    text = {DAILY: "%Y-%m-%d", HOURLY: "%Y-%m-%dT%H", MONTHLY: "%Y-%m"}[partitions]
    dataid = format(moment, text).zfill(len(format(moment, text)))
    if len(dataid) != {DAILY: 10, HOURLY: 13, MONTHLY: 7}[partitions]:
        return  # years of fewer than four digits are none
    path = split_forms(path)
    known: dict[str, str] = {}
    for part, name in zip(path.split("/"), fill(path, dataid, partitions).split("/"), strict=True):
        match = pattern_of(part, known).fullmatch(name)
        assert match is not None
        known = dict(complete({**known, **match.groupdict()}, partitions) or {})
    assert known["dataid"] == dataid


@pytest.mark.parametrize(
    "place",
    ["2025/13/01/x.csv", "2025/02/30/x.csv", "2025/2/03/x.csv", "2024/00/01/x.csv", "0000/01/01/x.csv"],
)
def test_no_day_is_made_of_digits_that_are_none(tmp_path: Path, place: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True)
    file.touch()
    of = dataset("{dataid:%Y/%m/%d}/x.csv", DAILY)
    assert all(why_no_place(of, one.dataid) for one in find_candidates(of, str(tmp_path)))


def test_two_dates_in_one_path_must_be_the_same(tmp_path: Path) -> None:
    (tmp_path / "2024").mkdir()
    (tmp_path / "2024/orders-2025-11-02.csv").touch()
    assert list(find_candidates(dataset("{dataid:%Y}/orders-{dataid}.csv", DAILY), str(tmp_path))) == []


@pytest.mark.parametrize(
    ("path", "partitions", "told"),
    [
        ("{dataid:%Y%m}.csv", DAILY, "daily partitions need %Y %m %d"),
        ("{dataid:%Y%m%d}.csv", HOURLY, "hourly partitions need %Y %m %d %H"),
        ("{dataid:%Y}.csv", MONTHLY, "monthly partitions need %Y %m"),
        ("{dataid:%Y%m%d}.csv", SHARDS, "needs `partitions` of days, hours or months"),
        ("{dataid:%Y%m%d}.csv", None, "needs `partitions` of days, hours or months"),
        ("{dataid:%Y%m%d%S}.csv", DAILY, "%S has no meaning in a path"),
        ("{dataid:%Y%m%}.csv", DAILY, "% has no meaning in a path"),
        ("{dataid:}.csv", DAILY, "an empty form tells nothing"),
        ("{dataid:x}.csv", DAILY, "an empty form tells nothing"),
    ],
)
def test_a_form_that_does_not_tell_the_dataid_is_refused(path: str, partitions: str | None, told: str) -> None:
    assert told in why_no_template(path, partitions)


def test_a_dataid_of_another_scheme_becomes_no_part_of_a_path() -> None:
    of = dataset("{dataid:%Y%m%d}.csv", DAILY)
    for dataid in ("../../etc/passwd", "20251102", "2025-11-02T07", "full", "x"):
        assert why_no_place(of, dataid)


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("in/{dataid:%Y%m%d}.csv", "in/{dataid:%d%m%Y}.csv", True),
        ("in/{dataid:%Y%m%d}.csv", "in/{dataid:%Y-%m-%d}.csv", False),
        ("in/{dataid:%Y%m%d}.csv", "in/total.csv", False),
        ("in/{dataid:%Y%m%d}.csv", "in/20251102.csv", True),
        ("in/{dataid:%Y%m%d}.csv", "in/20251302.csv", False),
        ("in/{dataid:%Y/%m/%d}/x.csv", "in/2025/11", True),
        ("in/{dataid:%Y/%m/%d}/x.csv", "in/2025/11/02/y.csv", False),
        ("in/{dataid:%Y%m%d}.csv", "in/{dataid}.csv", True),
    ],
)
def test_no_two_datasets_share_a_place(one: str, other: str, *, overlap: bool) -> None:
    places = [("one", split_forms(one), DAILY), ("other", split_forms(other), DAILY if "{" in other else '"none"')]
    assert (find_overlap(places) is not None) is overlap
    assert (find_overlap(reversed(places)) is not None) is overlap
