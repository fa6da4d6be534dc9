"""The query of a stream in the Spark child: it makes micro-batches, and the runner decides about each of them.

The runner sends `{"stream": {…}}` to begin it, from the offset up to which the store has everything. For each
micro-batch the child sends `{"run": 0, "batch": [1000, 1250]}` and waits. Meanwhile the runner has the range produced
as any other chunk, by a task, and publishes it; then it sends `{"go": [1000, 1250]}`, and Spark goes on. When the query
ends, whatever the reason, the child says so with `{"run": 0, "ended": "…"}`, and waits to be told to begin again.

Spark's checkpoint decides nothing: it is removed when a query begins, so one that was lost, or that somebody restored,
changes nothing.
"""

import contextlib
import json
import os
import queue
import shutil
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opendataflow.errors import ConfigurationError
from opendataflow.private_files import make_folder
from opendataflow.spark.own_spark import Channel, OwnSpark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKPOINT = "checkpoint"  # in the stream's folder
# Spark's default starts a process for each file that it creates or renames, eight times over: 50 ms for a batch. This
# one starts two. It was in the other package before Spark 4.1.
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FILE_MANAGERS = [
    f"org.apache.spark.sql.execution.streaming.{package}FileSystemBasedCheckpointFileManager"
    for package in ("checkpointing.", "")
]
_SETTINGS = {
    "spark.sql.streaming.minBatchesToRetain": "2",  # of a checkpoint that nobody goes back to
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.sql.streaming.pollingDelay": "1ms",  # the source itself waits
}


class _Again(Exception):
    """The runner wants the query to begin again elsewhere."""


class StreamQuery:
    """One query at a time, in a thread of its own; `tell` is for the thread that hears the runner."""

    def __init__(self, warm: OwnSpark, channel: Channel) -> None:
        self._warm, self._channel = warm, channel
        self._told: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._next: dict[str, Any] | None = None
        self._active: Any = None
        self._is_closed = False

    def tell(self, message: dict[str, Any]) -> None:
        """What the runner says: where to begin, or that Spark may go on."""
        self._told.put(message)

    def close(self) -> None:
        """Begin no other query, and let the thread end."""
        self._is_closed = True
        self.tell({"close": True})
        query = self._active
        if query is not None:
            with contextlib.suppress(Exception):
                query.stop()

    def run(self) -> None:
        """Query after query, until this process ends."""
        while not self._is_closed:
            asked = self._next or self._told.get()
            self._next = None
            if "stream" not in asked:
                continue  # meant for a query that has ended
            try:
                self._query(asked["stream"])
            except _Again:
                continue
            except Exception as error:  # noqa: BLE001  the runner decides what becomes of the stream
                if self._is_closed:
                    return
                _end_if_jvm_ended()
                told, home = isinstance(error, ConfigurationError), asked["stream"]["home"]
                self._channel.send(run=0, ended=_reason(error, home), is_final=told)

    def _query(self, asked: Mapping[str, Any]) -> None:
        """To its end, which is an exception."""
        from pyspark.errors import StreamingQueryException

        spark = self._session(asked)
        checkpoint = os.path.join(asked["folder"], CHECKPOINT)
        shutil.rmtree(checkpoint, ignore_errors=True)
        make_folder(checkpoint)  # Spark's own files in it have the umask's mode
        feed = _start_feed(spark, asked)
        query = self._active = self._start(spark, asked, checkpoint)
        try:
            while not query.awaitTermination(1):
                if feed is not None and (trouble := feed.exception()) is not None:
                    raise trouble  # the log would stay as it is, and nobody would know
        except StreamingQueryException:
            if self._next is not None:
                raise _Again from None
            raise
        finally:
            self._active = None
            for one in (query, feed):
                with contextlib.suppress(Exception):  # it has ended, or Spark has
                    one.stop()
        raise RuntimeError("somebody stopped the query")

    def _session(self, asked: Mapping[str, Any]) -> "SparkSession":
        from opendataflow.spark.connect import is_address
        from opendataflow.spark.jvm import has_class

        master = str(asked["spark"].get("master") or "")
        if is_address(master):
            raise ConfigurationError(
                f"a stream needs a Spark of its own, and {master} is a Spark Connect server; give its pipeline's "
                "environment a `spark: {master: …}` like local[*], spark://… or k8s://…"
            )
        spark = self._warm.session(asked["spark"], name=asked["slug"]).newSession()
        settings = {_FILE_MANAGER: next((name for name in _FILE_MANAGERS if has_class(spark, name)), None), **_SETTINGS}
        for key, value in settings.items():
            if value is not None and key not in (asked["spark"].get("conf") or {}):  # what the project says holds
                spark.conf.set(key, value)
        return spark

    def _start(self, spark: "SparkSession", asked: Mapping[str, Any], checkpoint: str) -> Any:
        from opendataflow.spark.stream_source import NAME, ItemSource

        def each(_df: "DataFrame", number: int) -> None:
            self._propose(*_range_of(checkpoint, number))

        spark.dataSource.register(ItemSource)
        source = spark.readStream.format(NAME)
        for name in ("folder", "begin", "most", "seal", "every"):
            source = source.option(name, asked[name])
        writer = source.load().writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
        return writer.queryName(asked["slug"]).trigger(processingTime="0 seconds").start()

    def _propose(self, start: int, end: int) -> None:
        """Ask the runner to have this range produced; returns when that is done."""
        self._channel.send(run=0, batch=[start, end])
        while True:
            told = self._told.get()
            if told.get("go") == [start, end]:
                return
            if "go" not in told:
                self._next = told
                raise _Again


def _start_feed(spark: "SparkSession", asked: Mapping[str, Any]) -> Any:
    if asked.get("kafka") is None:
        return None
    from opendataflow.spark.kafka_feed import start_feed

    return start_feed(spark, asked)


def _range_of(checkpoint: str, number: int) -> tuple[int, int]:
    """The offsets of a micro-batch, as Spark wrote them down before it began with it."""
    with open(os.path.join(checkpoint, "offsets", str(number)), encoding="utf-8") as file:
        offset = json.loads(file.read().splitlines()[-1])
    return int(offset["from"]), int(offset["to"])


def _reason(error: BaseException, home: str) -> str:
    from opendataflow.spark.explain import explain

    return explain(error, home=home)


def _end_if_jvm_ended() -> None:
    """Without its Spark this process is of no use: a run in its hands has died, not failed."""
    from opendataflow.spark.jvm import find_end, find_process, is_going_down

    process = find_process()
    is_ending = process is not None and is_going_down()
    if find_end(process, wait_seconds=10.0 if is_ending else 0.0) is not None:
        os.kill(os.getpid(), signal.SIGKILL)
