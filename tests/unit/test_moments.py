"""Times as people type them: what no calendar has is refused with words, not with an error of ours."""

import pytest

from opendataflow.errors import UsageError
from opendataflow.operations.time_parsing import end_of_pause, moment
from opendataflow.store.rows import utc_text


@pytest.mark.parametrize("text", ["99999999999999h", f"{'9' * 320}h", "0001-01-01T00:00+14:00"])
def test_a_time_before_all_calendars_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="further away than any calendar goes"):
        moment(text)


def test_a_pause_that_would_end_after_all_calendars_is_refused() -> None:
    with pytest.raises(UsageError, match="further away than any calendar goes"):
        end_of_pause("9999999999999999h")


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31", "9999-12-31T23:59:59"])
def test_the_first_and_the_last_day_are_times(text: str) -> None:
    assert utc_text(moment(text, end=True)).endswith("Z")
