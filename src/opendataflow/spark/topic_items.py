"""The records of a Kafka topic as items of a stream: read and checked in Spark's tasks, one for each partition.

A record is a JSON object that fits the stream's schema; of any other, the task says why it is left out.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from opendataflow.domain.streams import Field, TopicPart
from opendataflow.errors import UsageError
from opendataflow.intake.schema import StreamSchema
from opendataflow.intake.topic import Record, Topic, filled
from opendataflow.spark.files_read import parse_schema
from opendataflow.spark.spec import ItemRange, TopicRange
from opendataflow.spark.stream_batch import Batch, Item

_NAME = "opendataflow_topic"
_NUMBER, _ERROR = "__dataflow_number", "__dataflow_error"
_AT_ONCE = 1_000  # records of an Arrow batch
_Checked = tuple[int, Item | None, str | None]  # number in the stream, and the item or why there is none


@dataclass(slots=True, kw_only=True)
class TopicBatch(Batch):
    """Its items stay in Spark, unless the code fails on one: then they are looked for here, as of any batch."""

    spark_items: DataFrame | None

    @property
    def left(self) -> list[tuple[int, Item]]:
        if self.spark_items is not None:
            # At most max_batch of them.
            rows = self.spark_items.filter(F.col(_ERROR).isNull()).toArrow().to_pylist()
            self.items = [(row.pop(_NUMBER), row) for row in rows if row.pop(_ERROR) is None]
            self.spark_items = None
        return [one for one in self.items if one[0] not in self.aside]

    def frame(self, spark: SparkSession, items: Sequence[tuple[int, Item]] | None = None) -> DataFrame:
        if items is not None or self.spark_items is None:
            return Batch.frame(self, spark, self.left if items is None else items)
        return self.spark_items.filter(F.col(_ERROR).isNull()).drop(_NUMBER, _ERROR)


def read_in_tasks(spark: SparkSession, asked: ItemRange) -> TopicBatch:
    """The items of the range, read once."""
    topic = _topic(asked)
    spark.dataSource.register(_source_class(_Reader(topic, asked.start, asked.fields)))
    items = spark.read.format(_NAME).load().localCheckpoint(eager=True)
    left_out = items.filter(F.col(_ERROR).isNotNull()).select(_NUMBER, _ERROR).collect()  # of max_batch at most
    aside = {row[_NUMBER]: row[_ERROR] for row in left_out}
    return TopicBatch(schema=StreamSchema(asked.fields), items=[], aside=aside, spark_items=items)


def read_here(asked: ItemRange) -> Batch:
    """The same in this process."""
    topic = _topic(asked)
    reader = _Reader(topic, asked.start, asked.fields)
    batch = Batch(schema=StreamSchema(asked.fields), items=[])
    for place in reader.partitions():
        for number, item, error in reader.checked(place):
            if item is None:
                batch.aside[number] = str(error)
            else:
                batch.items.append((number, item))
    return batch


def _topic(asked: ItemRange) -> TopicRange:
    if asked.topic is None:
        raise TypeError("these items are no records of a topic")
    return TopicRange(
        servers=asked.topic.servers, topic=asked.topic.topic, parts=asked.topic.parts,
        options=filled(asked.topic.options, os.environ),
    )  # fmt: skip


# In the tasks ---------------------------------------------------------------------------------------------------------
def _source_class(reader: "_Reader") -> type[DataSource]:
    """A data source of this one read: pickled with what it holds, which no option could do without showing it."""

    class TopicSource(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return _NAME

        def schema(self) -> StructType:
            return reader.schema

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
            return reader

    return TopicSource


class _Place(InputPartition):  # type: ignore[misc]
    def __init__(self, part: TopicPart, number: int) -> None:
        super().__init__(None)
        self.part, self.number = part, number


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, topic: TopicRange, start: int, fields: Sequence[Field]) -> None:
        self._topic, self._start, self._fields = topic, start, tuple(fields)
        found = parse_schema(StreamSchema(self._fields).ddl)  # by the driver's JVM: tasks have none
        self.schema = StructType([StructField(_NUMBER, LongType()), StructField(_ERROR, StringType()), *found.fields])

    def partitions(self) -> Sequence["_Place"]:
        places, number = [], self._start
        for part in self._topic.parts:
            if part.end > part.start:
                places.append(_Place(part, number))
            number += part.end - part.start
        return places

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        types = to_arrow_schema(self.schema, timezone="UTC")
        rows: list[Item] = []
        for number, item, error in self.checked(partition):
            rows.append({**(item or {}), _NUMBER: number, _ERROR: error})
            if len(rows) == _AT_ONCE:
                yield pa.RecordBatch.from_pylist(rows, schema=types)
                rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=types)

    def checked(self, place: "_Place") -> Iterator[_Checked]:
        """The records of a partition, each with its item or the reason why it has none."""
        schema = StreamSchema(self._fields)
        topic = Topic(self._topic.servers, self._topic.topic, self._topic.options)
        try:
            for record in topic.read(place.part, place.number):
                yield _item_of(schema, record)
        finally:
            topic.close()


def _item_of(schema: StreamSchema, record: Record) -> _Checked:
    if record.value is None:
        return record.number, None, "the record has no value"
    try:
        found = schema.typed(b"[%b]" % record.value)
    except UsageError as error:
        return record.number, None, f"the record does not fit the stream's schema: {error}"
    if len(found) != 1:
        return record.number, None, "the record is not one JSON object"
    return record.number, found[0], None
