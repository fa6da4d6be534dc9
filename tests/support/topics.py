"""Kafka brokers for tests: those that librdkafka, the client library, can be itself, in a process of their own."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

PARTITIONS = 4  # of a topic of these brokers
_BROKERS = """\
import json, sys
from confluent_kafka import Producer

class Quiet:
    def log(self, *_, **__):
        pass

producer = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "logger": Quiet()})
print(",".join(f"{one.host}:{one.port}" for one in producer.list_topics(timeout=30).brokers.values()), flush=True)
for line in sys.stdin:
    written, failed = [], []
    for topic, partition, value in json.loads(line):
        producer.produce(topic, None if value is None else value.encode("latin-1"), partition=partition,
                         on_delivery=lambda error, message: (failed if error else written).append(str(error)))
    producer.flush(60)
    print(json.dumps([len(written), failed]), flush=True)
"""
Value = str | Mapping[str, object] | None


class Brokers:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self._process = process
        self.servers = process.stdout.readline().strip()

    def write(self, topic: str, values: Sequence[Value], *, partitions: int = PARTITIONS) -> None:
        """Append the values to the partitions by turns; returns when the brokers have them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
        rows = [[topic, number % partitions, text] for number, text in enumerate(texts)]
        self._process.stdin.write(json.dumps(rows) + "\n")
        self._process.stdin.flush()
        assert json.loads(self._process.stdout.readline()) == [len(values), []]


@contextlib.contextmanager
def brokers() -> Iterator[Brokers]:
    process = subprocess.Popen(
        [sys.executable, "-c", _BROKERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Brokers(process)
    finally:
        process.kill()
        process.communicate()
