"""Schedules as people write them, and the slots that come next."""

import datetime

import pytest

from opendataflow.arrivals.clock_slots import next_slot
from opendataflow.domain.partitions.clocks import find_clock
from opendataflow.domain.schedules import form, get_clock, own_clock, read_schedule
from opendataflow.errors import UsageError
from opendataflow.project.schema.values import check_dataset_id

AT = datetime.datetime(2026, 3, 28, 10, 10, tzinfo=datetime.UTC)  # the clocks of Berlin change that night


@pytest.mark.parametrize(
    ("every", "cron", "zone", "text"),
    [
        ("30m", None, None, "every 30m"),
        ("every  6h", None, None, "every 6h"),
        ("hourly", None, None, "hourly"),
        ("today", None, "Europe/Berlin", "today @Europe/Berlin"),
        (None, "0  3 * * *", None, "cron 0 3 * * *"),
        (None, "0 3 * * *", "Europe/Berlin", "cron 0 3 * * * @Europe/Berlin"),
    ],
)
def test_what_people_write_is_a_clock(every: str | None, cron: str | None, zone: str | None, text: str) -> None:
    assert read_schedule(every, cron, zone) == text
    assert get_clock(text) is not None


@pytest.mark.parametrize(
    ("every", "cron", "zone"),
    [
        (None, None, None), ("30m", "0 3 * * *", None), ("7m", None, None), ("soon", None, None), ("", None, None),
        (None, "", None), (None, "0 25 * * *", None), (None, "0 0 31 2 *", None), ("1h", None, "Europe/Berlin"),
        (None, "0 3 * * *", "Mars/Base"), (None, "0 3 * * * Europe/Berlin", "UTC"),
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused(every: str | None, cron: str | None, zone: str | None) -> None:
    with pytest.raises(UsageError):
        read_schedule(every, cron, zone)


@pytest.mark.parametrize(
    ("text", "name", "start"),
    [
        ("every 30m", "2026-03-28T10:30", "2026-03-28T10:30"),
        ("hourly", "2026-03-28T11", "2026-03-28T11:00"),
        ("every 7d", "2026-04-02", "2026-04-02T00:00"),
        ("cron 30 2 * * * @Europe/Berlin", "2026-03-29", "2026-03-29T01:00"),  # skipped: at the end of the gap
        ("cron 0 0 29 2 *", "2028-02-29", "2028-02-29T00:00"),
    ],
)
def test_the_next_slot(text: str, name: str, start: str) -> None:
    found = next_slot(get_clock(text), after=AT)
    assert found is not None
    assert (found[0], f"{found[1]:%Y-%m-%dT%H:%M}") == (name, start)
    assert form(get_clock(text)) == len(name)


def test_no_project_can_declare_the_clock_of_a_jobs_own() -> None:
    with pytest.raises(ValueError, match="are for clocks"):
        check_dataset_id(own_clock("load"))
    with pytest.raises(UsageError):
        find_clock(own_clock("load"))
