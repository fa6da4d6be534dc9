"""The intake log as a streaming source of Spark: offsets in, rows of requests out.

An offset of Spark's is `{"from": 1000, "to": 1250}`: where its micro-batch begins, and where it ends. The end is the
source's own choice: never past what is durable, never more items than asked, never over the end of an hour or day, and
never through a request. So a micro-batch is known from its last offset alone.

It waits for items itself, where looking costs a read of 40 bytes, and not in Spark's loop.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from opendataflow.intake.reader import IntakeReader

NAME = "opendataflow_items"
SCHEMA = "first bigint, at double, items string"  # a row is a request: its items are a JSON array
LOOK_SECONDS = 0.004  # between two looks at the end of the log
WAIT_SECONDS = 0.5  # at most, before Spark hears that there is nothing new

Offset = dict[str, int]


class Asked(NamedTuple):
    """Which log, from where, and how much at a time."""

    folder: str
    begin: int
    most: int
    seal: Literal["hourly", "daily"]
    every_seconds: float  # between the beginnings of two micro-batches, at least


class ItemSource(DataSource):  # type: ignore[misc]
    """Its options are the fields of `Asked`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002  Spark's name
        options = self.options
        seal = cast(Literal["hourly", "daily"], options["seal"])
        return ItemReader(
            Asked(options["folder"], int(options["begin"]), int(options["most"]), seal, float(options["every"]))
        )


class ItemRows(InputPartition):  # type: ignore[misc]
    def __init__(self, start: int, end: int) -> None:
        super().__init__(None)
        self.start, self.end = start, end


class ItemReader(DataSourceStreamReader):  # type: ignore[misc]
    """Lives in a process of Spark's beside the driver for as long as the query; `read` runs in tasks."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._log: IntakeReader | None = None
        self._not_before = 0.0

    @property
    def _reader(self) -> IntakeReader:
        if self._log is None:  # not pickled with the rest
            self._log = IntakeReader(self._asked.folder)
        return self._log

    def initialOffset(self) -> Offset:
        begin = self._asked.begin
        return {"from": begin, "to": begin}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._asked.most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next micro-batch; the start itself when nothing has come for a while."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._asked.most
        begin, give_up = start["to"], time.monotonic() + WAIT_SECONDS
        while True:
            now = time.monotonic()
            if now >= self._not_before:
                end = self._reader.boundary(begin, most, self._asked.seal)
                if end > begin:
                    self._not_before = now + self._asked.every_seconds
                    return {"from": begin, "to": end}
            if now >= give_up:
                return start
            time.sleep(LOOK_SECONDS)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [ItemRows(start["to"], end["to"])] if end["to"] > start["to"] else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        rows = cast(ItemRows, partition)
        entries = list(self._reader.read(rows.start, rows.end))
        yield pa.RecordBatch.from_pydict(
            {
                "first": [entry.first for entry in entries],
                "at": [entry.at for entry in entries],
                "items": [entry.items.decode() for entry in entries],
            }
        )
