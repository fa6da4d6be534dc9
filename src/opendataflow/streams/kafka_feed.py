"""Items from a Kafka topic: its records are read here, beside the stream's runner, and appended to the stream's log.

A record is a JSON object (or an array of them) that fits the stream's schema. Each append holds records of one
partition, and its key names them: `kafka-<topic>-<partition>-<first offset>-<last offset>`. So an item and the offset
it came from are durable together, and how far each partition was read is what the log says. `kafka.json` beside it is a
bookmark: the keys of what was appended after it are looked at when the reading begins. Nothing is committed to Kafka.

Records that do not fit are kept beside the log, with the reason.
"""

import json
import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from opendataflow.domain.job import Job
from opendataflow.domain.streams import get_settings
from opendataflow.errors import ConfigurationError, JobFailed
from opendataflow.extras import require
from opendataflow.intake.log import IntakeLog
from opendataflow.intake.reader import IntakeReader
from opendataflow.intake.refusals import ItemsRefused, LogFull, NotJson
from opendataflow.intake.rejected import Rejected, RejectedRows
from opendataflow.intake.schema import Items, StreamSchema
from opendataflow.private_files import opener

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

BOOKMARK = "kafka.json"  # in the stream's folder
POLL_SECONDS = 0.2
AT_ONCE = 100
PART_RECORDS, PART_BYTES = 1_000, 8 << 20  # of one append, about
QUEUE_KILOBYTES = 16 << 10  # that the client fetches ahead
BOOKMARK_SECONDS = 5.0
LOOK_SECONDS = 30.0  # between two looks for new partitions
ANSWER_SECONDS = 10.0  # for a broker
MOST_SHOWN = 1_000  # characters of a record that does not fit
_MOST_TOPIC = 100  # characters of it in a key
_PER_CONSUMER = {"enable.auto.commit": False, "auto.offset.reset": "error", "enable.partition.eof": True}


class Record(NamedTuple):
    partition: int
    offset: int
    value: bytes


class KafkaFeed:
    """Takes in what is new, a little at a time."""

    def __init__(self, job: Job, folder: str, log: IntakeLog, *, say: Callable[[str], None]) -> None:
        require("confluent_kafka")
        settings = get_settings(job)
        kafka = settings.source["kafka"]
        self.place, self.topic = f"topic {kafka['topic']}", str(kafka["topic"])
        self._slug, self._folder, self._log, self._say = job.jobid, folder, log, say
        self._servers, self._backlog = str(kafka["servers"]), settings.backlog
        self._schema, self._rejected = StreamSchema(settings.schema), RejectedRows(folder)
        self._next = _find_positions(folder, self.topic)  # partition → the offset to be read next
        self._consumer: Consumer | None = None
        self._partitions: set[int] = set()
        self._at_end: set[int] = set()
        self._looked_at = self._marked_at = float("-inf")
        self._not_before = 0.0

    def close(self) -> None:
        self._mark()
        if self._consumer is not None:
            self._consumer.close()
        self._log.close()

    @property
    def is_busy(self) -> bool:
        """True: waiting for records is part of reading them."""
        return True

    @property
    def is_settled(self) -> bool:
        """True when all that is in the topic was taken in."""
        return bool(self._partitions) and self._at_end >= self._partitions

    def feed(self, *, committed: int | None = None) -> int:
        """Append what has come; returns how many items. JobFailed when the topic cannot be read now."""
        is_full = committed is not None and self._log.end - committed >= self._backlog
        if is_full or time.monotonic() < self._not_before:
            time.sleep(POLL_SECONDS)
            return 0
        try:
            self._look()
            appended = self._append(self._poll())
        except LogFull as error:
            self._say(str(error))
            self._not_before = time.monotonic() + BOOKMARK_SECONDS
            appended = 0
            self._assign()  # what was polled is read again
        except BaseException:
            self._looked_at = float("-inf")
            self._partitions = set()
            raise
        if time.monotonic() - self._marked_at >= BOOKMARK_SECONDS:
            self._mark()
        return appended

    # Reading --------------------------------------------------------------------------------------------------------
    def _look(self) -> None:
        """Read each partition from where the log is; new ones from their beginning."""
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        from confluent_kafka import Consumer, KafkaException

        if self._consumer is None:
            self._consumer = Consumer({
                "bootstrap.servers": self._servers, "group.id": f"dataflow-{self._slug}", "client.id": "dataflow",
                "queued.max.messages.kbytes": QUEUE_KILOBYTES, **_PER_CONSUMER,
            })  # fmt: skip
        try:
            found = self._consumer.list_topics(self.topic, timeout=ANSWER_SECONDS).topics[self.topic]
        except KafkaException as error:
            raise JobFailed(f"Kafka at {self._servers} does not answer: {error.args[0].str()}") from error
        if found.error is not None:
            raise JobFailed(f"{found.error.str()}: {self.topic} at {self._servers}")
        self._looked_at = time.monotonic()
        if self._partitions != set(found.partitions):
            self._partitions = set(found.partitions)
            self._assign()

    def _assign(self) -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        if self._consumer is not None:
            self._at_end = set()
            self._consumer.assign(
                [TopicPartition(self.topic, one, self._next.get(one, OFFSET_BEGINNING)) for one in self._partitions]
            )

    def _poll(self) -> list[Record]:
        found: list[Record] = []
        size = 0
        while self._consumer is not None and len(found) < PART_RECORDS and size < PART_BYTES:
            messages = self._consumer.consume(AT_ONCE, timeout=POLL_SECONDS if not found else 0.0)
            for message in messages:
                if (record := self._record(message)) is not None:
                    found.append(record)
                    size += len(record.value)
            if not messages:
                break
        return found

    def _record(self, message: "Message") -> Record | None:
        """The record; None for the news that a partition has no more. Raises JobFailed for an error."""
        from confluent_kafka import KafkaError

        partition, offset, error = message.partition() or 0, message.offset() or 0, message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            self._at_end.add(partition)
            return None
        if error is not None and error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise JobFailed(
                f"{self.topic}, partition {partition}: Kafka has not kept the records from offset "
                f"{self._next.get(partition, 0)} on, and what came next is not skipped in silence; to go on with what "
                f"is there, set that partition in {os.path.join(self._folder, BOOKMARK)} to the first offset that is"
            )
        if error is not None:
            raise JobFailed(f"{self.topic}: {error.str()}")
        self._at_end.discard(partition)
        return Record(partition, offset, message.value() or b"")

    # The log --------------------------------------------------------------------------------------------------------
    def _append(self, records: Iterable[Record]) -> int:
        """Append what fits, the records of a partition together; the others are written down."""
        appended = 0
        of_partition: dict[int, list[Record]] = {}
        for record in records:
            of_partition.setdefault(record.partition, []).append(record)
        for partition, some in of_partition.items():
            fitting = [items for record in some if (items := self._parse(record)) is not None]
            first, last = some[0].offset, some[-1].offset
            if fitting:
                joined = b"[%b]" % b",".join(one.data[1:-1] for one in fitting)
                key = f"{_prefix(self.topic)}{partition}-{first}-{last}"
                appended += self._log.append(joined, sum(one.count for one in fitting), key=key).count
            self._next[partition] = last + 1
        return appended

    def _parse(self, record: Record) -> Items | None:
        try:
            return self._schema.parse(record.value)
        except (ItemsRefused, NotJson) as error:
            text = record.value[:MOST_SHOWN].decode(errors="replace")
            where = f"{self.topic}, partition {record.partition}"
            key = f"{_prefix(self.topic)}{record.partition}-{record.offset}"
            self._rejected.add(key, [Rejected(where, record.offset, str(error), text)])
            return None

    def _mark(self) -> None:
        self._marked_at = time.monotonic()
        path = os.path.join(self._folder, BOOKMARK)
        mark = {"topic": self.topic, "log": self._log.end, "partitions": self._next}
        with open(f"{path}.new", "w", encoding="utf-8", opener=opener) as file:
            json.dump(mark, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.new", path)


def _prefix(topic: str) -> str:
    return f"kafka-{topic[-_MOST_TOPIC:]}-"


def _find_positions(folder: str, topic: str) -> dict[int, int]:
    """How far each partition was read: as the bookmark says, and what was appended after it."""
    reader, path = IntakeReader(folder), os.path.join(folder, BOOKMARK)
    first = reader.first_offset()
    found, begin = {}, 0
    try:
        with open(path, encoding="utf-8") as file:
            mark: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        mark = {}
        if first > 0:
            raise ConfigurationError(
                f"{path} is missing, and the log begins with item {first}: it is not known how far {topic} was read. "
                'Restore it from a backup; if the topic was never read before, write {"log": 0} into it'
            ) from None
    if mark.get("topic", topic) == topic:
        found = {int(partition): int(offset) for partition, offset in (mark.get("partitions") or {}).items()}
        begin = int(mark.get("log", 0))
    prefix = _prefix(topic)
    for entry in reader.read(max(begin, first), reader.durable_end()):
        if entry.key is not None and entry.key.startswith(prefix):
            partition, _, last = (int(part) for part in entry.key.removeprefix(prefix).split("-"))
            found[partition] = max(found.get(partition, 0), last + 1)
    return found
