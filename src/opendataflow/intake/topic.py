"""A Kafka topic as the log of a stream: how far it reaches, and the records of a range of offsets.

A range has a part for each partition of the topic. In the stream, the records of a range are numbered one after the
other, partition by partition, and by their offset within each. An offset without a record (of a compacted topic, or of
a transaction) is a number without an item.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from opendataflow.domain.streams import TopicPart
from opendataflow.errors import ConfigurationError, StoreUnavailable
from opendataflow.extras import require
from opendataflow.intake.refusals import ItemsGone

if TYPE_CHECKING:
    from confluent_kafka import Consumer

ASK_SECONDS = 10.0  # for an answer of the brokers
READ_SECONDS = 60.0  # without a record of a range that is there
_AT_ONCE = 1_000
_GROUP = "opendataflow"  # the client wants one; nothing is committed for it, offsets are in the store


class TopicUnavailable(StoreUnavailable):
    """The brokers do not answer, or do not have the topic. As with a store that is away, it is tried again."""


class Reach(NamedTuple):
    """Of a partition: the offset of the first record that is there, and the one after the last."""

    first: int
    end: int


class Record(NamedTuple):
    number: int  # in the stream
    at: float  # when it was written, in seconds since 1970; 0.0 where the topic does not say
    value: bytes | None


class Topic:
    """For one thread."""

    def __init__(self, servers: str, name: str, options: Mapping[str, str] | None = None) -> None:
        """`options` are settings of librdkafka, `security.protocol` for example."""
        require("confluent_kafka")
        self.name, self._servers = name, servers
        self._options = dict(options or {})
        self._opened: Consumer | None = None

    @property
    def _consumer(self) -> "Consumer":
        if self._opened is None:
            from confluent_kafka import Consumer

            self._opened = Consumer(
                {
                    "group.id": _GROUP, "enable.auto.commit": False, "enable.auto.offset.store": False,
                    "auto.offset.reset": "error", "enable.partition.eof": True, "queued.max.messages.kbytes": 16_384,
                    "allow.auto.create.topics": False, **self._options, "bootstrap.servers": self._servers,
                    "logger": _Quiet(),
                }
            )  # fmt: skip
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def reaches(self) -> dict[int, Reach]:
        """Of every partition, how far it reaches now. Raises TopicUnavailable."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            found = self._consumer.list_topics(self.name, timeout=ASK_SECONDS).topics[self.name]
            if found.error is not None:
                raise TopicUnavailable(f"the topic {self.name} of {self._servers}: {found.error.str()}")
            places = [TopicPartition(self.name, partition) for partition in sorted(found.partitions)]
            return {
                place.partition: Reach(*self._consumer.get_watermark_offsets(place, ASK_SECONDS)) for place in places
            }
        except KafkaException as error:
            raise self._unavailable(error) from error

    def mean_bytes(self, parts: Sequence[TopicPart], *, most: int) -> float:
        """Of the first records of these parts, so many at most from each; 0.0 when there are none."""
        sizes = []
        for part in parts:
            end = min(part.end, part.start + most)
            sizes += [len(record.value or b"") for record in self.read(part._replace(end=end), 0)]
        return sum(sizes) / len(sizes) if sizes else 0.0

    def read(self, part: TopicPart, number: int) -> Iterator[Record]:
        """The records of a part in their order; its first offset has this number in the stream.

        Raises ItemsGone when the topic does not have all of them any more, TopicUnavailable when they do not come.
        """
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        place = TopicPartition(self.name, part.partition, part.start)
        give_up_at = time.monotonic() + READ_SECONDS
        position = part.start
        try:
            self._consumer.assign([place])
            while position < part.end:
                messages = self._consumer.consume(min(_AT_ONCE, part.end - position), 0.2)
                for message in messages:
                    error, offset = message.error(), int(message.offset() or 0)
                    if error is None:
                        if offset >= part.end:
                            return
                        position = offset + 1
                        give_up_at = time.monotonic() + READ_SECONDS
                        moment = _moment(message.timestamp())
                        yield Record(number + offset - part.start, moment, message.value())
                    elif error.code() == KafkaError._PARTITION_EOF:
                        position = max(position, offset)  # what is before it are offsets without a record
                    elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                        raise self._gone(part)
                    else:
                        raise KafkaException(error)
                if not messages and position < part.end:
                    self._require_reach(part)
                    if time.monotonic() >= give_up_at:
                        raise TopicUnavailable(
                            f"{self._servers} did not send offset {position} of {self.name}, partition "
                            f"{part.partition}, within {READ_SECONDS:g} s"
                        )
        except KafkaException as error:
            raise self._unavailable(error) from error
        finally:
            self._consumer.unassign()

    def _require_reach(self, part: TopicPart) -> None:
        reach = self.reaches().get(part.partition, Reach(0, 0))
        if reach.first > part.start or reach.end < part.end:
            raise self._gone(part)

    def _gone(self, part: TopicPart) -> ItemsGone:
        reach = self.reaches().get(part.partition, Reach(0, 0))
        return ItemsGone(gone(self.name, part, reach))

    def _unavailable(self, error: Exception) -> TopicUnavailable:
        found = error.args[0] if error.args else error
        told = found.str() if hasattr(found, "str") else str(found)
        return TopicUnavailable(f"the topic {self.name} of {self._servers}: {told}")


def gone(name: str, part: TopicPart, reach: Reach) -> str:
    """A sentence about a part that the topic does not have."""
    has = f"offsets {reach.first} to {reach.end - 1}" if reach.end > reach.first else "no records"
    return (
        f"offsets {part.start} to {part.end - 1} of partition {part.partition} are not in the topic {name} any more, "
        f"which has {has}"
    )


def share(most: int, waiting: Mapping[int, int]) -> dict[int, int]:
    """So many records at most of all partitions together, from each as many as from the others where it has them."""
    taken = dict.fromkeys(waiting, 0)
    left = most
    while left > 0 and (open_ := [one for one in waiting if taken[one] < waiting[one]]):
        each = max(left // len(open_), 1)
        for one in open_:
            more = min(each, waiting[one] - taken[one], left)
            taken[one] += more
            left -= more
    return taken


def filled(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The options, with the value of a variable where one says `env:NAME`: passwords are in no file and no store."""
    found = {}
    for key, value in options.items():
        name = value.removeprefix("env:")
        if name != value and name not in environ:
            raise ConfigurationError(f"the option {key} of the Kafka topic is in the variable {name}, which is not set")
        found[key] = value if name == value else environ[name]
    return found


def _moment(timestamp: tuple[int, int]) -> float:
    kind, milliseconds = timestamp
    return milliseconds / 1000 if kind else 0.0


class _Quiet:
    """The client's own log; what matters of it comes as an error."""

    def log(self, *_args: object, **_more: object) -> None:
        pass
