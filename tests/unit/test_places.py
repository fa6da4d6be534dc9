"""Places of datasets: equal or nested ones are found, others are left alone, however many there are."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.domain.partitions.places import find_overlap

NONE, DAILY, SHARDS = '"none"', '{"daily": "2025-01-01"}', '{"shards": "1..5"}'


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("orders", "orders"),
        ("orders", "orders/late"),
        ("orders/late", "orders"),
        ("orders", "./orders/"),
        ("a//b", "a/./b"),
        (".", "orders"),
        ("orders/{dataid}.csv", "orders/{dataid}.csv"),
        ("orders/{dataid}.csv", "orders"),
        ("orders/{dataid}", "orders/{dataid}/late.csv"),
        ("orders/{dataid}.csv", "orders/2025-03-04.csv"),
        ("{dataid}/a.csv", "2025-03-04/a.csv"),
        ("orders/{dataid}.csv", "orders/{dataid}"),
        ("{dataid}/x_{dataid}.csv", "2025-03-04/x_2025-03-04.csv"),
        ("{dataid}_{dataid}", "2025-03-04_2025-03-04"),
        ("a{dataid}", "ab{dataid}"),
        ("{dataid}", "{dataid}/x/y"),
    ],
)
def test_equal_and_nested_places_are_found_in_either_order(one: str, other: str) -> None:
    places = [("one", one, DAILY), ("other", other, DAILY if "{" in other else NONE)]
    assert find_overlap(places) == ("one", "other")
    assert find_overlap(reversed(places)) == ("other", "one")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("orders", "orders2"),
        ("orders/a", "orders/b"),
        ("orders/{dataid}.csv", "orders/{dataid}.txt"),
        ("orders/{dataid}.csv", "late/{dataid}.csv"),
        ("a_{dataid}.csv", "b_{dataid}.csv"),
        ("{dataid}/a.csv", "{dataid}/b.csv"),
        ("orders/{dataid}.csv", "orders/rates.csv"),  # no day is called so
        ("{dataid}/x_{dataid}.csv", "2025-03-04/x_2025-03-05.csv"),
        ("{dataid}_{dataid}", "2025-03-04_2025-03-05"),
        ("orders/{dataid}.csv", "orders/.csv"),
    ],
)
def test_places_beside_each_other_are_left_alone(one: str, other: str) -> None:
    assert find_overlap([("one", one, DAILY), ("other", other, DAILY if "{" in other else NONE)]) is None


def test_dataids_of_an_unknown_scheme_can_be_anything() -> None:
    assert find_overlap([("one", "orders/{dataid}.csv", None), ("other", "orders/rates.csv", NONE)]) is not None


def test_every_dataset_below_a_dataid_counts_with_its_own_scheme() -> None:
    places = [("days", "{dataid}/a.csv", DAILY), ("shards", "{dataid}/b.csv", SHARDS)]
    assert find_overlap([*places, ("third", "3/b.csv", NONE)]) == ("shards", "third")
    assert find_overlap([*places, ("third", "3/a.csv", NONE)]) is None
    assert find_overlap([*places, ("third", "2025-03-04/a.csv", NONE)]) == ("days", "third")


def test_a_path_of_thousands_of_folders_is_no_problem() -> None:
    deep = "a/" * 5000
    assert find_overlap([("one", deep + "x", NONE), ("other", deep + "y", NONE)]) is None
    assert find_overlap([("one", deep + "x", NONE), ("other", "a", NONE)]) == ("one", "other")
    assert find_overlap([("one", "{dataid}/" * 5000 + "x", None), ("other", deep + "x", NONE)]) == ("one", "other")


LAYOUTS = {
    "a folder each": "area/d{n}/{{dataid}}.csv",
    "one folder": "all/d{n}.csv",
    "names that begin with a dataid": "all/{{dataid}}_d{n}.csv",
    "names that end with a dataid": "all/d{n}_{{dataid}}.csv",
    "a folder per dataid": "{{dataid}}/d{n}.csv",
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_thousands_of_places_are_compared_quickly(layout: str) -> None:
    places = [(f"d{n}", layout.format(n=f"{n:04}"), DAILY) for n in range(3000)]
    started = time.process_time()
    assert find_overlap(places) is None
    assert find_overlap([*places, ("again", places[1500][1], DAILY)]) == ("d1500", "again")
    assert time.process_time() - started < 2


PARTS = st.lists(st.sampled_from(["a", "b", "ab", "{dataid}", "a{dataid}", "{dataid}b", "a{dataid}b"]), max_size=3)
SCHEMES = {NONE: ["full"], '{"values": ["a", "b"]}': ["a", "b"], '{"values": ["ab"]}': ["ab"]}


@given(st.lists(st.tuples(PARTS, st.sampled_from(sorted(SCHEMES))), max_size=4))
def test_two_datasets_never_get_the_same_file(drawn: list[tuple[list[str], str]]) -> None:
    """What is let through shares no file; what has no {dataid} is judged exactly."""
    files = [
        {tuple(part.replace("{dataid}", dataid) for part in parts) for dataid in SCHEMES[scheme]}
        for parts, scheme in drawn
    ]
    shared = any(
        one[: len(other)] == other or other[: len(one)] == one
        for at, ours in enumerate(files)
        for theirs in files[:at]
        for one in ours
        for other in theirs
    )
    clash = find_overlap((str(n), "/".join(parts), scheme) for n, (parts, scheme) in enumerate(drawn))
    if shared:
        assert clash is not None
    elif clash is not None:
        marked = [any("{dataid}" in part for part in drawn[int(n)][0]) for n in clash]
        assert all(marked), "only two templates may be refused although their dataids differ"
