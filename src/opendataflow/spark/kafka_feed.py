"""A Kafka topic as the source of a stream: Spark's connector reads it, and its records go into the stream's log.

A record is a JSON object (or an array of them) that fits the stream's schema. Its key in the log is its topic,
partition and offset: read twice, it is accepted once. Records that do not fit are kept beside the log, with the reason.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from opendataflow.domain.streams import Field
from opendataflow.errors import ConfigurationError
from opendataflow.intake.log import IntakeLog, Request
from opendataflow.intake.refusals import ItemsRefused, NotJson
from opendataflow.intake.rejected import Rejected, RejectedRows
from opendataflow.intake.schema import StreamSchema
from opendataflow.private_files import make_folder

MOST_RECORDS = 10_000  # at a time
MOST_SHOWN = 1_000  # characters of a record that does not fit
CHECKPOINT = "kafka"  # in the stream's folder
_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def require_connector(spark: SparkSession, slug: str, topic: str) -> None:
    """Raise ConfigurationError that says what to do instead, unless Spark has its connector for Kafka."""
    jvm: Any = spark._jvm
    try:
        jvm.java.lang.Class.forName(_PROVIDER, False, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    except Exception:  # noqa: BLE001  whatever the JVM raised, the class is not there
        package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}"
        raise ConfigurationError(
            f"{slug} reads the Kafka topic {topic!r}, and Spark has no connector for it here; name its package in "
            f"project.yml, `spark: {{conf: {{spark.jars.packages: '{package}'}}}}`, or leave out `from` and have a "
            f"consumer send the records to `POST /v1/streams/{slug}` with topic, partition and offset as "
            "Idempotency-Key"
        ) from None


def start_feed(spark: SparkSession, asked: Mapping[str, Any]) -> Any:
    """The query that fills the log."""
    kafka, folder = asked["kafka"], asked["folder"]
    require_connector(spark, asked["slug"], kafka["topic"])
    schema = StreamSchema([Field(*one) for one in asked["fields"]])
    log, rejected = IntakeLog(folder, begin=asked["begin"]), RejectedRows(folder)

    def each(df: DataFrame, _number: int) -> None:
        rows = df.select("topic", "partition", "offset", "value").orderBy("partition", "offset")
        append(log, schema, rows.collect(), rejected)

    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka["servers"])
    source = source.option("subscribe", kafka["topic"]).option("startingOffsets", "earliest")
    source = source.option("maxOffsetsPerTrigger", MOST_RECORDS)
    checkpoint = os.path.join(folder, CHECKPOINT)
    make_folder(checkpoint)  # Spark's own files in it have the umask's mode
    writer = source.load().writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    return writer.queryName(f"{asked['slug']} from Kafka").start()


def append(log: IntakeLog, schema: StreamSchema, records: Iterable[Any], rejected: RejectedRows) -> None:
    """Append what fits, each record under its own key; the others are written down. Raises when the log is full."""
    requests = []
    for record in records:
        topic, partition, offset = (record[name] for name in ("topic", "partition", "offset"))
        key, value = f"kafka-{topic[-100:]}-{partition}-{offset}", bytes(record["value"] or b"")
        try:
            items = schema.parse(value)
        except (ItemsRefused, NotJson) as error:
            text = value[:MOST_SHOWN].decode(errors="replace")
            rejected.add(key, [Rejected(f"{topic}, partition {partition}", offset, str(error), text)])
            continue
        requests.append(Request(items.data, items.count, key))
    for result in log.append_all(requests):
        if isinstance(result, Exception):
            raise result
