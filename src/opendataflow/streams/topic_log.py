"""A Kafka topic as what a stream's runner reads from: where the next batch ends, and what it holds of each partition.

Offsets of the stream are numbers that batches give to the records, and the store keeps what each batch holds: whatever
dies, a batch that is made again reads the same records.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opendataflow.domain.job import Job
from opendataflow.domain.runs.questions import Items
from opendataflow.domain.streams import KAFKA, TopicPart, batch_range, get_settings
from opendataflow.intake.reader import Item
from opendataflow.intake.refusals import ItemsGone
from opendataflow.intake.topic import Reach, Topic, TopicUnavailable, filled, gone, share
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.streams import (
    find_batch_of,
    topic_parts,
    topic_parts_before,
)

ASK_EVERY_SECONDS = 0.2  # the brokers how far the topic reaches
MOST_BYTES = 64 * 1024 * 1024  # of the records of a batch, estimated from the first ones
_SAMPLED = 20  # records of each partition
_MOST_TEXT = 1_000  # of a record that is no JSON


class TopicLog:
    """For one thread. What it says of time is when the records were found, which is when they enter the stream."""

    def __init__(self, store: LoopStore, job: Job, *, committed: Callable[[], int], say: Callable[[str], None]) -> None:
        """`committed` gives the end of what is published."""
        self._store, self._job, self._committed, self._say = store, job, committed, say
        found: Mapping[str, Any] = get_settings(job).source["kafka"]
        self.topic = Topic(found["servers"], found["topic"], filled(found.get("options") or {}, os.environ))
        self._skips_lost = found.get("lost") == "skip"
        self._reaches: dict[int, Reach] = {}
        self._lost = ""  # a sentence about records that nobody has read and that are gone
        self._asked_at = float("-inf")
        self._begin: tuple[int, dict[int, int]] | None = None  # an offset of the stream, and where partitions are there
        self._planned: tuple[int, int, list[TopicPart]] | None = None
        self._found_at: float | None = None  # when what is planned was seen first

    def close(self) -> None:
        self.topic.close()

    # How far it reaches -----------------------------------------------------------------------------------------------
    def durable_end(self) -> int:
        """The offset after the last record that is there, as far as the brokers say."""
        committed = self._committed()
        try:
            waiting = sum(self._waiting(committed).values())
        except TopicUnavailable:  # `boundary` says so
            return committed
        self._found_at = (self._found_at or time.time()) if waiting else None
        return committed + waiting

    def accepted_at(self, _offset: int) -> float | None:
        return self._found_at

    def boundary(self, start: int, most: int, _seal: str | None) -> int:
        """Where a batch that begins at `start` ends; `start` itself when there is nothing more.

        Raises ItemsGone when there are records that no batch can ever have, and TopicUnavailable.
        """
        waiting = self._waiting(start)
        if self._lost:
            raise ItemsGone(f"{self._lost}; `lost: skip` beside `topic:` in project.yml lets the stream go on without")
        begin = self._starts(start)
        taken = share(most, waiting)
        if sum(taken.values()) > _SAMPLED:
            parts = [TopicPart(one, begin[one], begin[one] + count) for one, count in taken.items() if count]
            mean = self.topic.mean_bytes(parts, most=_SAMPLED)
            taken = share(min(most, max(int(MOST_BYTES / mean), 1)) if mean else most, waiting)
        parts = [TopicPart(one, begin[one], begin[one] + count) for one, count in sorted(taken.items())]
        end = start + sum(taken.values())
        self._planned = (start, end, parts)
        self._found_at = None
        return end

    def parts(self, start: int, end: int) -> Sequence[TopicPart]:
        """What `boundary` has planned for this range."""
        planned = self._planned
        if planned is None or planned[:2] != (start, end):
            raise ValueError(f"{start} to {end} was not planned")
        return planned[2]

    def _waiting(self, committed: int) -> dict[int, int]:
        """So many records of each partition are not part of a batch yet."""
        now = time.monotonic()
        if now - self._asked_at >= ASK_EVERY_SECONDS:
            self._reaches, self._asked_at = self.topic.reaches(), now
        starts, self._lost = self._starts(committed), ""
        for one, reach in self._reaches.items():
            if reach.first <= starts[one] <= reach.end:
                continue
            lost = gone(self.topic.name, TopicPart(one, starts[one], max(reach.first, starts[one] + 1)), reach)
            if self._skips_lost:
                self._say(f"{self._job.jobid}: {lost}; they are skipped")
                starts[one] = reach.first
            else:
                self._lost = lost
        return {one: max(reach.end - starts[one], 1 if self._lost else 0) for one, reach in self._reaches.items()}

    def _starts(self, committed: int) -> dict[int, int]:
        """Where each partition goes on; one that no batch knows begins with its first record."""
        if self._begin is None or self._begin[0] != committed:
            before = topic_parts_before(self._store, self._job, committed)
            self._begin = (committed, {part.partition: part.end for part in before})
        known = self._begin[1]
        for one, reach in self._reaches.items():
            known.setdefault(one, reach.first)
        return known

    # What it holds ----------------------------------------------------------------------------------------------------
    def find_items(self, dataid: str) -> Items:
        """Whether the topic has what a batch reads."""
        reaches = self.topic.reaches()
        parts = topic_parts(self._store, self._job, dataid)
        for part in parts:
            reach = reaches.get(part.partition, Reach(0, 0))
            if part.end > part.start and (reach.first > part.start or reach.end < part.end):
                return Items(False, gone(self.topic.name, part, reach))
        held = ", ".join(f"{part.partition}: {part.start}–{part.end - 1}" for part in parts if part.end > part.start)
        return Items(True, f"the topic {self.topic.name} has the offsets of its partitions {held}")

    def items(self, start: int, end: int) -> Iterator[Item]:
        """The items with these offsets; one that is no JSON is its text."""
        for dataid in {find_batch_of(self._store, self._job, offset) for offset in range(start, end)}:
            number = batch_range(dataid)[0] if dataid is not None else end
            for part in topic_parts(self._store, self._job, dataid or ""):
                first = part.start + max(start - number, 0)
                last = min(part.end, part.start + end - number)
                if first < last:
                    for record in self.topic.read(TopicPart(part.partition, first, last), number + first - part.start):
                        yield Item(record.number, record.at, _shown(record.value))
                number += part.end - part.start


def find_topic(
    store: LoopStore, job: Job, *, committed: Callable[[], int], say: Callable[[str], None]
) -> TopicLog | None:
    """The topic that a stream's items come from; None for a stream whose items are in its log."""
    return TopicLog(store, job, committed=committed, say=say) if get_settings(job).origin == KAFKA else None


def _shown(value: bytes | None) -> Any:
    try:
        return json.loads(value or b"null")
    except ValueError:
        return (value or b"")[:_MOST_TEXT].decode(errors="replace")
