"""Records of a topic, read from librdkafka's own mock cluster: each is accepted once, whoever dies."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from opendataflow.errors import ConfigurationError, JobFailed
from opendataflow.intake.log import IntakeLog
from opendataflow.intake.reader import IntakeReader
from opendataflow.intake.rejected import list_rejected
from opendataflow.streams.feeding import open_feed
from opendataflow.streams.kafka_feed import BOOKMARK, KafkaFeed
from streams.test_watch_folder import stream_job
from support.processes import wait_for

TOPIC = "new-leads"


class Cluster:
    """It lives in the producer, and ends with it."""

    def __init__(self) -> None:
        self.producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1})
        (broker,) = self.producer.list_topics(timeout=10).brokers.values()
        self.servers = f"{broker.host}:{broker.port}"

    def send(self, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self.producer.produce(TOPIC, value, partition=partition)
        assert self.producer.flush(30) == 0

    def send_items(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            self.producer.produce(TOPIC, json.dumps({"email": f"e{number}"}).encode(), partition=number % 4)
        assert self.producer.flush(30) == 0


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.send(b"before anybody reads")  # it makes the topic, with four partitions
    return cluster


@pytest.fixture
def feeds(cluster: Cluster, tmp_path: Path) -> "Feeds":
    return Feeds(cluster.servers, tmp_path)


class Feeds:
    def __init__(self, servers: str, folder: Path) -> None:
        self.folder, self.said = folder, list[str]()
        self.job = stream_job(folder, {"kafka": {"servers": servers, "topic": TOPIC}}, backlog=100_000)

    def open(self) -> KafkaFeed:
        feed = open_feed(self.job, str(self.folder), begin=0, say=self.said.append)
        assert isinstance(feed, KafkaFeed)
        return feed

    def take(self, feed: KafkaFeed) -> int:
        """Until the topic has no more."""
        taken = 0

        def done() -> bool:
            nonlocal taken
            taken += feed.feed()
            return feed.is_settled

        wait_for(done, "the topic is read to its end", seconds=60)
        return taken

    @property
    def emails(self) -> list[str]:
        reader = IntakeReader(str(self.folder))
        return [str(one.item["email"]) for one in reader.items(0, reader.durable_end())]


def test_each_record_is_accepted_once_and_those_that_do_not_fit_are_kept_with_the_reason(
    cluster: Cluster, feeds: Feeds
) -> None:
    feed = feeds.open()
    feeds.take(feed)  # what other tests sent
    before, refused = len(feeds.emails), len(list_rejected(str(feeds.folder)))
    cluster.send_items(0, 40)
    cluster.send(
        b'[{"email": "x"}, {"email": "y", "age": 3}]', b"no JSON", b'{"age": 1}', b'{"email": "z"}', partition=2
    )
    assert feeds.take(feed) == 43
    assert sorted(feeds.emails[before:]) == sorted([*(f"e{number}" for number in range(40)), "x", "y", "z"])
    wrong = list_rejected(str(feeds.folder))[refused:]
    assert [one["file"] for one in wrong] == [f"{TOPIC}, partition 2"] * 2
    assert [one["row"] for one in wrong] == ["no JSON", '{"age": 1}']
    feed.close()
    # In its order, partition by partition.
    of_one = [email for email in feeds.emails[before:] if email[0] == "e" and int(email[1:]) % 4 == 1]
    assert of_one == [f"e{number}" for number in range(1, 40, 4)]

    again = feeds.open()
    assert feeds.take(again) == 0
    cluster.send_items(40, 4)
    assert feeds.take(again) == 4
    again.close()


def test_the_log_says_how_far_a_partition_was_read_where_the_bookmark_is_behind_or_lost(
    cluster: Cluster, feeds: Feeds
) -> None:
    feed = feeds.open()
    feeds.take(feed)
    feed._mark()
    mark = (feeds.folder / BOOKMARK).read_bytes()
    cluster.send_items(100, 20)
    assert feeds.take(feed) == 20
    feed._log.close()  # it dies without another word
    for text in (mark, None):
        (feeds.folder / BOOKMARK).unlink()
        if text is not None:
            (feeds.folder / BOOKMARK).write_bytes(text)
        again = feeds.open()
        assert feeds.take(again) == 0
        again.close()
    assert len(set(feeds.emails)) == len(feeds.emails)


def test_a_log_that_lost_its_beginning_and_its_bookmark_is_refused(feeds: Feeds) -> None:
    IntakeLog(str(feeds.folder), begin=7).close()
    with pytest.raises(ConfigurationError, match="it is not known how far new-leads was read"):
        feeds.open()


def test_a_broker_that_does_not_answer_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opendataflow.streams.kafka_feed.ANSWER_SECONDS", 0.5)
    feeds = Feeds("127.0.0.1:9", tmp_path)
    feed = feeds.open()
    with pytest.raises(JobFailed, match=r"Kafka at 127\.0\.0\.1:9 does not answer"):
        feed.feed()
    feed.close()


FEED = """
import json, sys
from opendataflow.streams.feeding import open_feed
from streams.test_watch_folder import stream_job
folder, servers, topic = sys.argv[1:]
job = stream_job(folder, {"kafka": {"servers": servers, "topic": topic}}, backlog=100_000)
feed = open_feed(job, folder, begin=0, say=print)
while True:
    feed.feed()
"""


def test_whoever_reads_is_killed_and_each_record_is_there_once(cluster: Cluster, feeds: Feeds) -> None:
    first, count = 1_000, 3_000
    env: dict[str, Any] = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [
        sys.executable,
        "-c",
        FEED,
        str(feeds.folder),
        feeds.job.definition["stream"]["from"]["kafka"]["servers"],
        TOPIC,
    ]  # type: ignore[index]
    for kill in range(5):
        reader = subprocess.Popen(argv, env=env)
        had = IntakeReader(str(feeds.folder)).durable_end()
        cluster.send_items(first + kill * count // 5, count // 5)
        wait_for(
            lambda had=had: IntakeReader(str(feeds.folder)).durable_end() > had, "something was accepted", seconds=60
        )
        os.kill(reader.pid, signal.SIGKILL)
        reader.wait()
    feed = feeds.open()
    feeds.take(feed)
    feed.close()
    mine = [email for email in feeds.emails if 1_000 <= int(email[1:] if email[1:].isdigit() else 0) < 4_000]
    assert sorted(mine) == sorted(f"e{number}" for number in range(first, first + count))
