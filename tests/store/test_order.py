"""The order of dataids: 9, 10, 100, dates as dates; the same in both databases and in the domain."""

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from world import NOW, World, job, registration

from opendataflow.domain.partitions.scheme import natural_key
from opendataflow.store import registry

ORDERS = [
    ["1", "2", "9", "10", "11", "100", "1000"],
    ["2025-09-30", "2025-10-01", "2025-10-09", "2025-10-10", "2025-11-01", "2026-01-01"],
    ["2025-11-12T09", "2025-11-12T10", "2025-11-13T00"],
    ["00001", "00002", "00010", "00100"],
    ["part-9", "part-10", "part-100"],
    ["0-99", "100-199", "1000-1099"],
    ["2025-01", "2025-02", "2025-12"],
    ["a", "b", "ä"],
]
DATAIDS = st.text(
    st.sampled_from("0123456789-ab. Tä/+") | st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    min_size=1,
    max_size=12,
)


def test_dataids_are_claimed_in_natural_order(world: World) -> None:
    for number, expected in enumerate(ORDERS):
        project = f"order{number}"
        values = sorted(expected, key=lambda dataid: dataid[::-1])
        feed = job("feed", [], ["out"], project=project, partitions={"values": values})
        registry.apply(world.store, registration(feed, project=project), now=NOW)
        claimed = []
        while (claim := world.claim("feed", project=project)) is not None:
            claimed.append(claim.dataid)
        assert claimed == expected == sorted(expected, key=natural_key)


def test_the_order_of_the_database_is_the_order_of_the_domain(world: World) -> None:
    numbers = itertools.count()

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(DATAIDS, min_size=2, max_size=12, unique=True))
    def same_order(dataids: list[str]) -> None:
        project = f"p{next(numbers)}"
        feed = job("feed", [], ["out"], project=project, partitions={"values": dataids})
        registry.apply(world.store, registration(feed, project=project), now=NOW)
        rows = registry.job_rows(world.store, project=project, jobid="feed", status=None, limit=1000)
        of = world.store.get_job("feed", project=project)
        walked = [world.store.find_claimable(of, offset=offset).dataid for offset in range(len(dataids))]
        assert walked == [row["dataid"] for row in rows] == sorted(dataids, key=natural_key)

    same_order()
