"""What is read of a Kafka topic: ranges of offsets, as they are; how they are shared among partitions."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.domain.streams import TopicPart
from opendataflow.errors import ConfigurationError
from opendataflow.intake.refusals import ItemsGone
from opendataflow.intake.topic import Reach, Topic, TopicUnavailable, filled, share
from support.topics import Brokers, brokers


@pytest.fixture(scope="module")
def kafka() -> Iterator[Brokers]:
    with brokers() as started:
        yield started


@pytest.fixture
def topic(kafka: Brokers, request: pytest.FixtureRequest) -> Iterator[Topic]:
    opened = Topic(kafka.servers, request.node.name[:60])
    yield opened
    opened.close()


def test_a_range_is_read_as_it_is_and_numbered_on(kafka: Brokers, topic: Topic) -> None:
    kafka.write(topic.name, [f"value {number}" for number in range(30)], partitions=1)
    assert topic.reaches()[0] == Reach(0, 30)
    for _ in range(2):  # whatever was read before
        found = list(topic.read(TopicPart(0, 7, 12), 100))
        assert [(one.number, one.value) for one in found] == [(100 + n, b"value %d" % (7 + n)) for n in range(5)]
    assert all(one.at > 1_600_000_000 for one in found)
    assert list(topic.read(TopicPart(0, 5, 5), 0)) == []


def test_a_record_without_a_value_is_one(kafka: Brokers, topic: Topic) -> None:
    kafka.write(topic.name, [None, "x"], partitions=1)
    assert [one.value for one in topic.read(TopicPart(0, 0, 2), 0)] == [None, b"x"]


def test_what_the_topic_does_not_have_is_gone(kafka: Brokers, topic: Topic) -> None:
    kafka.write(topic.name, ["a", "b"], partitions=1)
    with pytest.raises(ItemsGone, match=r"^offsets 1 to 4 of partition 0 are not .* which has offsets 0 to 1$"):
        list(topic.read(TopicPart(0, 1, 5), 0))


def test_brokers_that_do_not_answer_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opendataflow.intake.topic.ASK_SECONDS", 0.5)
    nobody = Topic("127.0.0.1:1", "leads")
    with pytest.raises(TopicUnavailable, match=r"^the topic leads of 127\.0\.0\.1:1: "):
        nobody.reaches()
    nobody.close()


@given(st.integers(0, 500), st.dictionaries(st.integers(0, 20), st.integers(0, 200), max_size=12))
def test_partitions_share_what_a_batch_may_hold(most: int, waiting: dict[int, int]) -> None:
    taken = share(most, waiting)
    assert taken.keys() == waiting.keys()
    assert sum(taken.values()) == min(most, sum(waiting.values()))
    assert all(0 <= taken[one] <= waiting[one] for one in waiting)
    held_back = [taken[one] for one in waiting if taken[one] < waiting[one]]
    # No partition that has more is behind another by more than the one record that cannot be divided.
    assert not held_back or max(taken.values()) <= min(held_back) + 1


def test_options_take_passwords_from_variables() -> None:
    asked = {"security.protocol": "SASL_SSL", "sasl.password": "env:KAFKA_PASSWORD"}
    assert filled(asked, {"KAFKA_PASSWORD": "s3cret"})["sasl.password"] == "s3cret"
    with pytest.raises(
        ConfigurationError, match=r"sasl\.password of .* is in the variable KAFKA_PASSWORD, which is not set"
    ):
        filled(asked, {})
