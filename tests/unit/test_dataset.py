"""What a dataset's variables are called, and where its chunks are."""

import re
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.domain.dataset import (
    Dataset,
    check_prefixes,
    chunk_location,
    is_below,
    output_location,
    path_segment,
    run_location,
    variable_prefix,
)
from opendataflow.domain.partitions.scheme import check_dataid
from opendataflow.errors import UsageError

ANY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize(
    ("datasetid", "prefix"),
    [
        ("orders", "orders"),
        ("my-data", "my_data"),
        ("sales.daily", "sales_daily"),
        ("9x", "_9x"),
        ("today_x", "today_x"),
        ("a b", "a_b"),
        ("Größe", "Gr__e"),
        ("-", "_"),
        ("", "_"),
    ],
)
def test_a_dataset_id_becomes_a_name_that_a_shell_can_use(datasetid: str, prefix: str) -> None:
    assert variable_prefix(datasetid) == prefix


@given(ANY)
def test_every_prefix_is_a_shell_identifier(datasetid: str) -> None:
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable_prefix(datasetid))


def test_two_datasets_that_would_share_their_variables_are_refused() -> None:
    check_prefixes(["my-data", "sales.daily", "9x", "today_x"])
    check_prefixes(["orders", "orders"])
    with pytest.raises(UsageError, match=r"'my-data' and 'my_data' would share the variables my_data_…; rename one"):
        check_prefixes(["my-data", "other", "my_data"])
    with pytest.raises(UsageError, match="'9x' and '_9x'"):
        check_prefixes(["9x", "_9x"])


# Paths --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dataid", "segment"),
    [
        ("2025-11-12", "2025-11-12"),
        ("2025-11-12T13:00", "2025-11-12T13%3A00"),
        ("a b", "a b"),
        ("a/b", "a%2Fb"),
        ("..", "%2E%2E"),
        (".", "%2E"),
        ("...", "%2E%2E%2E"),
        ("a.b", "a.b"),
        ("50%", "50%25"),
        ("x=1", "x%3D1"),
        ("{a,b}*?", "%7Ba%2Cb%7D%2A%3F"),
        ("a\nb", "a%0Ab"),
    ],
)
def test_a_dataid_becomes_one_file_name(dataid: str, segment: str) -> None:
    assert path_segment(dataid) == segment


@given(ANY, ANY)
def test_file_names_stay_in_their_folder_and_differ_where_dataids_do(one: str, other: str) -> None:
    for dataid in (one, other):
        segment = path_segment(dataid)
        assert "/" not in segment
        assert "\0" not in segment
        assert segment not in ("", ".", "..")
    assert (path_segment(one) == path_segment(other)) == (one == other)


@pytest.mark.parametrize(
    ("location", "root", "below"),
    [
        ("/data", "/data", True),
        ("/data/a", "/data", True),
        ("/data/a", "/data/", True),
        ("/data2/a", "/data", False),
        ("/data/../etc", "/data", False),
        ("/data/a/..", "/data", False),
        ("/data/..", "/data", False),
        ("/data/a..b", "/data", True),
        ("/data/...", "/data", True),
        ("/etc", "/", True),
        ("s3://bucket/x", "s3://bucket", True),
        ("s3://bucket2/x", "s3://bucket", False),
    ],
)
def test_a_location_is_below_its_root_or_not(location: str, root: str, below: bool) -> None:
    assert is_below(location, root) is below


def dataset(location: str | None, partitions: str | None = None) -> Dataset:
    return Dataset("p", "totals", location=location, partitions=partitions)


def test_a_template_with_the_dataid_names_a_fixed_place() -> None:
    fixed = dataset("totals/{dataid}.csv")
    assert not fixed.has_own_runs
    assert chunk_location(fixed, "2025-11-12", root="/data") == "/data/totals/2025-11-12.csv"
    assert run_location(fixed, "2025-11-12", root="/data/", runid=7) == "/data/totals/2025-11-12.csv"


def test_a_folder_gets_a_directory_for_each_run() -> None:
    own = dataset("totals", '{"daily": "2025-11-01"}')
    assert own.has_own_runs
    assert run_location(own, "2025-11-12", root="/data", runid=7) == "/data/totals/dataid=2025-11-12/_runs/7"
    assert run_location(own, "../x", root="/data", runid=7) == "/data/totals/dataid=..%2Fx/_runs/7"
    assert run_location(own, "..", root="s3://b/", runid=7) == "s3://b/totals/dataid=%2E%2E/_runs/7"


def test_a_dataset_of_one_chunk_is_written_where_its_path_says() -> None:
    single = dataset("report.csv", '"none"')
    assert not single.has_own_runs
    assert run_location(single, "full", root="/data", runid=7) == "/data/report.csv"


def test_data_without_a_path_has_no_location() -> None:
    assert chunk_location(dataset(None), "1", root="/data") is None
    assert run_location(dataset(None), "1", root="/data", runid=7) is None


BAD = ("", ".", "..", "../../etc/passwd", "/etc/passwd", "a/b", "s3://b/x", "a\0b", "1\n/etc/passwd", "2025-11-12\n")
SCHEMES = ('"none"', '{"daily": "2025-11-01"}', '{"hourly": "2025-11-01"}', '{"monthly": "2025-11"}', '{"sequence": 1}',
           '{"shards": "01..20"}', '{"values": ["eu", "us"]}')  # fmt: skip


@pytest.mark.parametrize("partitions", [None, *SCHEMES])
@pytest.mark.parametrize("dataid", BAD)
def test_a_dataid_that_the_dataset_cannot_have_becomes_no_part_of_a_path(partitions: str | None, dataid: str) -> None:
    for location in ("totals/{dataid}.csv", "{dataid}", "in/{dataid}/x.csv"):
        one = dataset(location, partitions)
        for place in (chunk_location, partial(run_location, runid=7), partial(output_location, "pipeline", runid=7)):
            with pytest.raises(UsageError, match="is not a dataid of totals"):
                place(one, dataid, root="/data")


def test_a_value_that_is_no_file_name_becomes_no_part_of_a_path() -> None:
    with pytest.raises(UsageError, match=r"'\.\./x' of totals cannot be part of a file's name"):
        chunk_location(dataset("in/{dataid}.csv", '{"values": ["../x"]}'), "../x", root="/data")


def test_a_chunk_from_before_the_scheme_was_narrowed_keeps_its_place() -> None:
    old = dataset("in/{dataid}.csv", '{"daily": "2025-11-01..2025-11-30"}')
    assert chunk_location(old, "2024-02-29", root="/data") == "/data/in/2024-02-29.csv"
    with pytest.raises(UsageError):
        check_dataid("totals", old.partitions, "2024-02-29")
    check_dataid("totals", old.partitions, "2025-11-12")
