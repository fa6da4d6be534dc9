"""Records of a Kafka topic: published by a stream, against the bare client that only reads and parses them.

The brokers are librdkafka's own for tests, in a process of their own. Of the stream counts the time from the claim of
its first batch to the recorded end of its last one, with a driver that is warm.
"""

import argparse
import datetime
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from measure import pair_ratio, show
from support.topics import PARTITIONS, Brokers, brokers

DATAFLOW = str(Path(sys.executable).parent / "dataflow")
PROJECT = """\
name: Topics
environments: {{dev: {{root: ./data}}}}
spark: {{master: "local[2]"}}
datasets:
  leads: {{path: leads}}
pipelines:
  - slug: leads
    mode: stream
    sources: []
    destination: leads
    transformations: [clean]
    stream:
      schema: {{id: bigint, email: string, city: string}}
      max_batch: {batch}
      every: 10ms
      from: {{kafka: {{servers: "{servers}", topic: new}}}}
"""
CLEAN = """\
from pyspark.sql import functions as F


def run(df):
    return df.withColumn("email", F.lower("email"))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000, help="in a round")
    parser.add_argument("--batch", type=int, default=25_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with brokers() as kafka, tempfile.TemporaryDirectory(prefix="dataflow-bench-") as name:
        folder = Path(name)
        (folder / "pipelines" / "leads").mkdir(parents=True)
        (folder / "pipelines" / "leads" / "clean.py").write_text(CLEAN)
        (folder / "project.yml").write_text(PROJECT.format(servers=kafka.servers, batch=options.batch))
        dataflow(folder, "apply")
        write(kafka, 100)
        dataflow(folder, "run", "leads", "--drain")
        read, bare, ours = 100 // PARTITIONS, [], []
        for _ in range(options.rounds):
            write(kafka, options.records)
            bare.append(by_hand(kafka.servers, read, options.records))
            before = time.time()
            dataflow(folder, "run", "leads", "--drain")
            ours.append(published(folder, before, options.records))
            read += options.records // PARTITIONS
    print(f"{options.records:,} records, batches of {options.batch:,}; load average {os.getloadavg()[0]:.2f}:")
    show("bare client, a record", [one / options.records for one in bare], unit="us", scale=1e6)
    show("published, a record", [one / options.records for one in ours], unit="us", scale=1e6)
    pair_ratio("stream / bare client", ours, bare)


def write(kafka: Brokers, count: int) -> None:
    """So many records, a tenth of them at a time."""
    for at in range(0, count, max(count // 10, PARTITIONS)):
        some = range(at, min(at + max(count // 10, PARTITIONS), count))
        kafka.write("new", [{"id": n, "email": f"Somebody.{n}@Example.ORG", "city": "Oslo"} for n in some])


def by_hand(servers: str, start: int, count: int) -> float:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False})
    begun, left = time.perf_counter(), count
    consumer.assign([TopicPartition("new", partition, start) for partition in range(PARTITIONS)])
    while left > 0:
        for message in consumer.consume(1_000, 1.0):
            if message.error() is None:
                json.loads(message.value() or b"null")
                left -= 1
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


def published(folder: Path, since: float, count: int) -> float:
    store = sqlite3.connect(folder / ".dataflow" / "state.db")
    moment = datetime.datetime.fromtimestamp(since, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    rows = store.execute(
        "SELECT min(claimed_at), max(ended_at) FROM run "
        "WHERE jobid = 'leads' AND status = 'COMPLETE' AND claimed_at >= ?",
        (moment,),
    ).fetchall()
    ended = store.execute("SELECT sum(end_offset - start_offset) FROM stream_batch").fetchone()
    store.close()
    assert ended[0] >= count
    first, last = (datetime.datetime.fromisoformat(one).timestamp() for one in rows[0])
    return last - first


def dataflow(folder: Path, *argv: str) -> None:
    done = subprocess.run([DATAFLOW, *argv], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)


if __name__ == "__main__":
    main()
