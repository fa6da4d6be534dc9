"""A Kafka topic as the source of a stream: Spark's connector reads it, and its records go into the stream's log.

A record is a JSON object (or an array of them) that fits the stream's schema. Its key in the log is its topic,
partition and offset: read twice, it is accepted once. Records that do not fit are kept beside the log, with the reason.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from opendataflow.domain.streams import Field
from opendataflow.errors import ConfigurationError
from opendataflow.intake.log import IntakeLog, Request
from opendataflow.intake.refusals import ItemsRefused
from opendataflow.intake.schema import StreamSchema

MOST_RECORDS = 10_000  # at a time
CHECKPOINT, REFUSED = "kafka", "kafka_refused.ndjson"  # in the stream's folder
_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def require_connector(spark: SparkSession, slug: str) -> None:
    """Raise ConfigurationError that says how to get it, unless Spark has its Kafka connector."""
    jvm: Any = spark._jvm
    try:
        jvm.java.lang.Class.forName(_PROVIDER, False, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    except Exception:  # noqa: BLE001  whatever the JVM raised, the class is not there
        package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}"
        raise ConfigurationError(
            f"the stream {slug} reads Kafka, and Spark has no connector for it here; in project.yml, give it with "
            f"`spark: {{conf: {{spark.jars.packages: '{package}'}}}}`, or put its jars where Spark's are"
        ) from None


def start_feed(spark: SparkSession, asked: Mapping[str, Any]) -> Any:
    """The query that fills the log."""
    require_connector(spark, asked["slug"])
    kafka, folder = asked["kafka"], asked["folder"]
    schema = StreamSchema([Field(*one) for one in asked["fields"]])
    log = IntakeLog(folder, begin=asked["begin"])

    def each(df: DataFrame, _number: int) -> None:
        rows = df.select("topic", "partition", "offset", F.col("value").cast("string").alias("value"))
        append(log, schema, rows.orderBy("partition", "offset").collect(), os.path.join(folder, REFUSED))

    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka["servers"])
    source = source.option("subscribe", kafka["topic"]).option("startingOffsets", "earliest")
    source = source.option("maxOffsetsPerTrigger", MOST_RECORDS)
    writer = source.load().writeStream.foreachBatch(each).option("checkpointLocation", os.path.join(folder, CHECKPOINT))
    return writer.queryName(f"{asked['slug']} from Kafka").start()


def append(log: IntakeLog, schema: StreamSchema, records: list[Any], refused: str) -> None:
    """Append what fits, each record under its own key; the others are written down. Raises when the log is full."""
    requests = []
    for record in records:
        try:
            items = schema.parse((record["value"] or "").encode())
        except ItemsRefused as error:
            _keep(refused, record, str(error))
            continue
        key = f"kafka-{record['topic']}-{record['partition']}-{record['offset']}"
        requests.append(Request(items.data, items.count, key))
    for result in log.append_all(requests):
        if isinstance(result, Exception):
            raise result


def _keep(path: str, record: Any, reason: str) -> None:
    fields = {name: record[name] for name in ("topic", "partition", "offset", "value")}
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps({**fields, "reason": reason}) + "\n")
